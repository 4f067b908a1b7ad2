//! The layers of modules in a crate, and the dependencies between crates.

use std::fs;

use crate::source::{Finding, Source, line_of};
use crate::{CRATES, LAYERS};
use crate::{assert_clean, assert_found, assert_none, root, tree};

/// Finds uses of a module from a layer that is later in the list than the file's own.
fn modules(source: &Source) -> Vec<Finding> {
    let found = LAYERS.iter().find_map(|(folder, layers)| Some((source.path.strip_prefix(folder)?, *layers)));
    let Some((inside, layers)) = found.filter(|(inside, _)| *inside != "lib.rs") else { return Vec::new() };
    let module = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
    let Some(rank) = layers.iter().position(|layer| *layer == module) else {
        return vec![source.finding(1, format!("`{module}` is not in the list of layers"))];
    };
    let mut findings = Vec::new();
    for (line, used) in uses(source, "crate::").into_iter().chain(uses(source, "super::")) {
        if layers[rank + 1..].contains(&used.as_str()) {
            findings.push(source.finding(line, format!("`{module}` uses `{used}`, which is below it in the list")));
        }
    }
    findings
}

/// Returns the names directly after `prefix`, those in a group included, with their lines.
fn uses(source: &Source, prefix: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in source.code.match_indices(prefix) {
        let rest = &source.code[at + prefix.len()..];
        let line = line_of(&source.code, at);
        match rest.strip_prefix('{') {
            Some(group) => found.extend(heads(group).into_iter().map(|name| (line, name))),
            None => found.push((line, head(rest))),
        }
    }
    found
}

/// Returns the first name of each part of a group, up to the brace that closes it.
fn heads(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b',' | b'}' if depth == 0 => {
                names.push(head(group[start..at].trim_start()));
                start = at + 1;
                if byte == b'}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

fn head(path: &str) -> String {
    path.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// Returns the crates of ours that a manifest must not depend on. Dev-dependencies are checked for `core` only.
fn crates(folder: &str, manifest: &str) -> Vec<String> {
    let Some((_, allowed)) = CRATES.iter().find(|(name, _)| *name == folder) else {
        return vec![format!("crates/{folder} is not in the list of crates")];
    };
    let mut findings = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
        }
        let is_dev = section.contains("dev-");
        let counts = section.contains("dependencies") && (folder == "core" || !is_dev);
        // `[dependencies.name]` has the name in the header, `name = ...` and `name.workspace = true` have it in a line.
        let name = if line.starts_with('[') { section.rsplit('.').next().unwrap_or("") } else { line };
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').unwrap_or(name.len());
        let ours = match &name[..end] {
            "millpond" => "millpond",
            other => other.strip_prefix("millpond-").unwrap_or(""),
        };
        let is_known = allowed.contains(&ours) || (is_dev && ours == "reach");
        if counts && !ours.is_empty() && !is_known {
            findings.push(format!("crates/{folder}/Cargo.toml:{}: may not depend on `{ours}`", index + 1));
        }
    }
    findings
}

#[test]
fn modules_of_core_use_what_is_above_them() {
    assert_none(tree(modules));
}

#[test]
fn a_module_that_looks_down_is_found() {
    let path = "crates/core/src/order/clock.rs";
    assert_found(modules, path, "use crate::pool::Pool;", "`order` uses `pool`");
    assert_found(modules, path, "use crate::{ids::{Slot, Point}, check::Verdict};", "`order` uses `check`");
    assert_found(modules, path, "fn a() -> crate::space::Space {}", "`order` uses `space`");
    assert_found(modules, "crates/core/src/units.rs", "use super::order;", "`units` uses `order`");
    assert_found(modules, "crates/core/src/extra.rs", "", "not in the list");
    assert_clean(modules, path, "use crate::ids::Point; // not crate::pool\nuse crate::order::x;");
    assert_clean(modules, "crates/core/src/lib.rs", "pub use crate::pool::Pool;");
}

#[test]
fn crates_depend_in_one_direction() {
    let mut findings = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("crates/ is there").flatten() {
        let Ok(manifest) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        findings.extend(crates(&entry.file_name().to_string_lossy(), &manifest));
    }
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn a_circle_of_crates_is_found() {
    let found = |folder, manifest| crates(folder, manifest).join("\n");
    assert!(found("driver", "[dependencies]\nmillpond.workspace = true").contains("depend on `millpond`"));
    assert!(found("core", "[dev-dependencies]\nmillpond-driver = { path = \"\" }").contains("`driver`"));
    assert_eq!(found("core", "[dev-dependencies]\nmillpond-reach.workspace = true"), "");
    assert!(found("core", "[dependencies]\nmillpond-reach.workspace = true").contains("`reach`"));
    assert!(found("driver", "[target.'cfg(unix)'.dependencies.millpond-cli]\npath = \"\"").contains("`cli`"));
    assert!(found("extra", "").contains("not in the list"));
    assert_eq!(found("driver", "[dependencies]\nmillpond-core.workspace = true\n[dev-dependencies]\nmillpond = 1"), "");
    assert_eq!(found("cli", "[package]\nname = \"millpond-cli\"\n[dependencies]\nclap = \"4\""), "");
}
