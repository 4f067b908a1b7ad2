//! Rules for published crates: each has what a registry needs, and is complete: it compiles nothing outside its folder.

use std::fs;
use std::path::Path;

use crate::source::{Finding, Source, line_of};
use crate::{assert_clean, assert_found, assert_none, root, tree};

/// Lines of the manifest that a registry or its reader needs.
const NEEDED: &[&str] = &[
    "description = ",
    "license.workspace",
    "repository.workspace",
    "rust-version.workspace",
    "keywords.workspace",
    "categories = ",
    "readme = ",
    "[package.metadata.docs.rs]",
];

/// Finds files outside of the package: paths that climb above the crate's folder.
fn outside(source: &Source) -> Vec<Finding> {
    let mut parts = source.path.split('/');
    let is_crate = parts.next() == Some("crates") && parts.next().is_some();
    // The depth of the file in the crate's folder.
    let depth = parts.count().saturating_sub(1);
    let mut findings = Vec::new();
    for (at, _) in source.text.match_indices(concat!("include_", "str!(")).filter(|_| is_crate) {
        let path = source.text[at..].split('"').nth(1).unwrap_or("");
        if path.split('/').take_while(|part| *part == "..").count() > depth {
            findings.push(source.finding(line_of(&source.text, at), format!("{path} is outside of the crate")));
        }
    }
    findings
}

/// Returns the published crates with their manifests: those without `publish = false`.
fn published() -> Vec<(String, String)> {
    let folders = fs::read_dir(root().join("crates")).expect("crates/ is there").flatten();
    let read = |it: fs::DirEntry| {
        let manifest = fs::read_to_string(it.path().join("Cargo.toml")).ok()?;
        (!manifest.contains("publish = false")).then(|| (it.file_name().to_string_lossy().into_owned(), manifest))
    };
    folders.filter_map(read).collect()
}

/// Returns `true` for a test that its manifest excludes from the package.
fn is_excluded(path: &str, crates: &[(String, String)]) -> bool {
    let inside = |name: &str| path.strip_prefix("crates/")?.strip_prefix(name)?.strip_prefix('/').map(str::to_owned);
    crates.iter().any(|(name, manifest)| {
        let excluded = manifest.lines().find(|line| line.starts_with("exclude = ")).unwrap_or("");
        inside(name).is_some_and(|path| excluded.split('"').skip(1).step_by(2).any(|it| path.starts_with(it)))
    })
}

#[test]
fn published_crates_are_whole() {
    let crates = published();
    assert!(crates.len() >= 7, "only {} crates are published", crates.len());
    let is_published = |path: &str| crates.iter().any(|(name, _)| path.starts_with(&format!("crates/{name}/")));
    let is_packed = |path: &str| is_published(path) && !is_excluded(path, &crates);
    assert_none(tree(|source| if is_packed(&source.path) { outside(source) } else { Vec::new() }));
}

#[test]
fn published_crates_say_what_they_are() {
    let mut missing = Vec::new();
    for (name, manifest) in published() {
        missing.extend(NEEDED.iter().filter(|line| !manifest.contains(**line)).map(|line| format!("{name}: {line}")));
        let folder = root().join("crates").join(&name);
        let readme = manifest.lines().find_map(|line| line.strip_prefix("readme = \"")?.strip_suffix('"'));
        let files = ["LICENSE-MIT", "LICENSE-APACHE", readme.unwrap_or("README.md")];
        missing
            .extend(files.iter().filter(|it| !Path::new(&folder.join(it)).exists()).map(|it| format!("{name}: {it}")));
    }
    assert!(missing.is_empty(), "published crates lack {missing:#?}");
}

#[test]
fn the_rule_sees_a_file_outside() {
    let text = |path: &str| format!("const PAGE: &str = include_{}!(\"{path}\");", "str");
    assert_found(outside, "crates/demo/src/lib.rs", &text("../../other/page.md"), "outside of the crate");
    assert_clean(outside, "crates/demo/src/lib.rs", &text("../docs/page.md"));
    assert_clean(outside, "crates/demo/src/deep/page.rs", &text("../../docs/page.md"));
}
