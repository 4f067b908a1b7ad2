//! The playground's folder in a real browser, opened from the disk: a wrong program's verdict, page and correction,
//! programs of the documentation, and text that is no program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// The actions of a visitor. What they see is written to the document's title.
const VISIT: &str = include_str!("visit.html");

fn chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let named = std::env::var_os("MILLPOND_CHROMIUM").map(PathBuf::from);
    named.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name))).find(|it| it.is_file())
    })
}

/// Runs a command that must succeed. Returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_target() -> bool {
    let root = Command::new("rustc").args(["--print", "sysroot"]).output();
    root.is_ok_and(|it| Path::new(String::from_utf8_lossy(&it.stdout).trim()).join("lib/rustlib").join(TARGET).exists())
}

/// Builds the folder anew.
fn site() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (target, folder) = (place.join("wasm"), place.join("site"));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--release", "--package", "millpond-playground", "--lib", "--target", TARGET]);
    build.args(["--config", "profile.release.strip=true", "--target-dir"]).arg(&target).env_remove("RUSTFLAGS");
    run(&mut build);
    let wasm = target.join(TARGET).join("release/playground.wasm");
    run(Command::new(env!("CARGO_BIN_EXE_millpond-site")).arg(wasm).arg(repository).arg(&folder));
    folder
}

#[test]
fn the_playground_judges_draws_and_corrects() {
    let Some(chromium) = chromium().filter(|_| has_target()) else {
        println!("skipped: no Chromium, or no target {TARGET}");
        return;
    };
    let folder = site();
    let index = fs::read_to_string(folder.join("index.html")).unwrap();
    fs::write(folder.join("visit.html"), index.replace("</body>", VISIT)).unwrap();
    let mut browser = Command::new(chromium);
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=600000"]);
    browser.arg(format!("--user-data-dir={}", folder.with_file_name("profile").display()));
    browser.arg("--dump-dom").arg(format!("file://{}", folder.join("visit.html").display()));
    let dom = run(&mut browser);
    let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or_default();
    let title = title.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let seen: serde_json::Value = serde_json::from_str(&title).unwrap_or_else(|error| panic!("{error}: {title}"));
    let text = |name: &str| seen[name].as_str().unwrap_or_else(|| panic!("no {name} in {seen:#}"));
    assert!(seen.get("error").is_none(), "{seen:#}");
    assert!(seen["examples"].as_u64() > Some(250) && seen["undocumented"].as_u64() > Some(0), "{seen:#}");
    assert_eq!(text("wrong"), "wrong: 1 wrong order");
    assert_eq!(text("lit"), ",,,,,side,wrong,");
    for part in ["free-before-use", "left", "right", "help: "] {
        assert!(text("finding").contains(part), "{seen:#}");
    }
    assert!(text("page").contains("allocations1streams2"), "{seen:#}");
    assert_eq!(text("corrected"), "right: The order is right.");
    assert!(text("text").contains("wait"), "{seen:#}");
    assert!(text("reference").contains("# Litmus programs"), "{seen:#}");
    assert_eq!((text("project"), text("default")), (env!("CARGO_PKG_REPOSITORY"), "Litmus programs"));
    assert!(text("refused").starts_with("wrong: Line 2: "), "{seen:#}");
    assert!(text("long").contains("65536 are judged here"), "{seen:#}");
    assert_eq!(seen["named"], true);
    assert_eq!(seen["faults"], serde_json::json!([]), "examples that do not get what they expect");
}

/// The content of the page, without the target: it is one file that needs no other.
#[test]
fn the_playground_is_one_file_with_named_examples() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bare");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    let (wasm, repository) = (place.join("wasm"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    fs::write(&wasm, b"</script>").unwrap();
    run(Command::new(env!("CARGO_BIN_EXE_millpond-site")).arg(wasm).arg(repository).arg(place.join("site")));
    let files: Vec<_> = fs::read_dir(place.join("site")).unwrap().flatten().map(|it| it.file_name()).collect();
    assert_eq!(files, ["index.html"]);
    let page = fs::read_to_string(place.join("site/index.html")).unwrap();
    assert!(!page.contains(" src=") && !page.contains("<link"), "nothing is fetched");
    assert_eq!(page.matches("</script>").count(), 2, "the page's own");
    assert!(page.contains("REFERENCE = \"# Litmus programs") && page.contains(env!("CARGO_PKG_REPOSITORY")));
    let (_, examples) = page.split_once("EXAMPLES = ").unwrap();
    let mut values = serde_json::Deserializer::from_str(examples).into_iter::<serde_json::Value>();
    let examples = values.next().unwrap().unwrap();
    let names: Vec<_> = examples.as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names[0], "docs/litmus.md/Litmus programs");
    assert!(names.iter().all(|name| name.rsplit('/').next().unwrap().parse::<u32>().is_err()), "{names:?}");
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "each name is one example's");
}
