//! The texts of the library, as C programs get them. It reads other crates' source, so it is not published.

/// Each text that names something of Rust is said in words of C, or is of what C has not.
#[test]
fn texts_name_nothing_of_rust() {
    const NOT_OF_C: [&str; 6] = [
        "`PoolConfig::shareable`",
        "`Buffer::export`",
        "`Device::set_peers`",
        "`pool.grant(&device, PeerAccess::{})`",
        "`enqueue`",
        "`{device}`",
    ];
    let texts = [
        include_str!("../../millpond/src/names/error.rs"),
        include_str!("../../millpond/src/names/graph_error.rs"),
        include_str!("../../millpond/src/names/share_error.rs"),
    ];
    let is_text = |line: &&str| !line.trim_start().starts_with("//");
    let mut named: Vec<&str> = texts.iter().flat_map(|text| text.lines().filter(is_text)).collect();
    named.retain(|line| line.contains('`'));
    assert!(named.len() > 5, "are texts still read?");
    for line in named {
        let tokens = line.split('`').skip(1).step_by(2).map(|token| format!("`{token}`"));
        let is_rust = |token: &String| token.contains("::") || token.contains('(');
        for token in tokens.filter(is_rust) {
            assert!(NOT_OF_C.contains(&&*token), "{token} in {line}");
        }
    }
}
