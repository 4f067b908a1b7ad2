//! The guide in the documentation: its links are those of the folder `docs`, and are valid there and in the modules.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Returns each text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Vec<&'t str> {
    text.split(before).skip(1).filter_map(|rest| rest.split_once(after)).map(|(found, _)| found).collect()
}

/// Returns the pages that are modules.
fn pages() -> BTreeSet<String> {
    between(&read("src/lib.rs"), "include_str!(\"../docs/", ".md\")").into_iter().map(str::to_owned).collect()
}

#[test]
fn each_page_knows_the_modules() {
    let (source, script) = (read("src/lib.rs"), read("src/guide.html"));
    let pages = pages();
    let list = between(&script, "const pages = [", "]");
    let known: BTreeSet<String> = list[0].split('\'').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(known, pages);
    assert_eq!(source.matches("include_str!(\"guide.html\")").count(), pages.len(), "each page has it");
    for page in &pages {
        assert!(source.contains(&format!("pub mod {} {{}}", page.replace('-', "_"))), "{page}");
    }
    assert!(script.contains(&format!("{}/blob/main/docs/", env!("CARGO_PKG_REPOSITORY"))));
}

#[test]
fn links_between_pages_lead_somewhere() {
    let files = std::fs::read_dir(root().join("docs")).unwrap().map(|file| file.unwrap().file_name());
    let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
    let all: BTreeSet<String> = files.iter().filter_map(|name| name.strip_suffix(".md")).map(str::to_owned).collect();
    assert!(all.is_superset(&pages()));
    for page in all {
        let text = read(format!("docs/{page}.md"));
        for link in between(&text, "](", ")") {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            // Other files are in the repository only.
            let Some(other) = path.strip_suffix(".md").filter(|other| !other.contains('/')) else { continue };
            let file = root().join("docs").join(path);
            assert!(file.is_file(), "{page}: {link}");
            let headings: Vec<String> = std::fs::read_to_string(file)
                .unwrap()
                .lines()
                .filter_map(|line| line.strip_prefix('#'))
                .map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"))
                .map(|line| line.chars().filter(|it| it.is_alphanumeric() || matches!(it, '-' | '_')).collect())
                .collect();
            assert!(anchor.is_empty() || headings.iter().any(|it| it == anchor), "{page}: {other} has no #{anchor}");
        }
    }
}
