//! The texts of the library, as C programs get them. Reads other crates' source, so it is not published.

#[path = "../src/words.rs"]
mod words;

/// The sources of the texts that C programs get.
const TEXTS: [&str; 5] = [
    include_str!("../../millpond/src/names/error.rs"),
    include_str!("../../millpond/src/names/error/report.rs"),
    include_str!("../../core/src/graph/capture.rs"),
    include_str!("../../core/src/check/refusals.rs"),
    include_str!("../../core/src/check/words.rs"),
];

/// Returns the texts of a file without its comments. A text that continues on the next line is one text.
fn texts(file: &str) -> Vec<String> {
    let code: Vec<&str> = file.lines().map(str::trim_start).filter(|line| !line.starts_with("//")).collect();
    let code = code.join("\n").replace("\\\n", "");
    code.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Each text that names something of Rust is translated to C words, or is about something that C does not have.
#[test]
fn texts_name_nothing_of_rust() {
    const OF_RUST: [&str; 12] =
        ["::", "(`", "`.", "closure", "buffer", "view", "slice", "dropped", "element", "`take`", "a name", "the name"];
    const NOT_OF_C: [&str; 5] = [
        "`pool.grant(&device, PeerAccess::{})`",
        "the source has {left} elements",
        "elements {start}..{end} do not lie",
        "the addresses of {0} are placed at each instantiation",
        "or drop the buffer: its memory goes",
    ];
    let texts: Vec<String> = TEXTS.iter().flat_map(|file| texts(file)).filter(|text| text.contains(' ')).collect();
    assert!(texts.len() > 60, "are texts still read? {}", texts.len());
    for text in texts.iter().filter(|text| !NOT_OF_C.iter().any(|it| text.contains(it))) {
        let said = words::in_c(text);
        let found = OF_RUST.iter().find(|word| said.contains(*word));
        assert_eq!(found, None, "{said}");
    }
}

#[test]
fn what_is_named_as_in_rust_is_said_as_in_c() {
    let refused = "which grants it nothing: call `pool.grant(&device, PeerAccess::Read)` first";
    assert_eq!(words::in_c(refused), "which grants it nothing: call `millpond_pool_set_access` to read first");
    assert_eq!(words::in_c("is_idle while capture 0 goes on"), "a query while capture 0 goes on");
}
