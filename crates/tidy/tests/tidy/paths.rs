//! The paths that a file names: the leaves of its `use` declarations, and the paths in its code.
//!
//! Recognises identifiers, braces and inline modules, and no more grammar than that.

use crate::source::{Source, closing_brace, words};

/// A path that a file names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    /// Its names; `*` for all names of a module.
    pub(crate) segments: Vec<String>,
    /// The file's own name for it, if `use` declares it.
    pub(crate) alias: Option<String>,
    /// `true` if other files can use that name.
    pub(crate) is_public: bool,
    /// The inline modules around it.
    pub(crate) within: Vec<String>,
}

/// Returns the paths of a file outside its tests.
pub(crate) fn named(source: &Source) -> Vec<Named> {
    let mut code = without_tests(source).into_bytes();
    let inline = inline_modules(std::str::from_utf8(&code).expect("blanked code is ASCII"));
    let within = |at: usize| -> Vec<String> {
        inline.iter().filter(|it| (it.0..it.1).contains(&at)).map(|it| it.2.clone()).collect()
    };
    let mut found = Vec::new();
    let text = String::from_utf8(code.clone()).expect("blanked code is ASCII");
    for at in words(&text, "use") {
        let Some(end) = text[at..].find(';').map(|length| at + length) else { continue };
        let is_public = text[..at].trim_end().ends_with("pub") || text[..at].trim_end().ends_with(')');
        for (segments, alias) in leaves(&text[at + "use".len()..end]) {
            found.push(Named { segments, alias: Some(alias), is_public, within: within(at) });
        }
        code[at..end].fill(b' ');
    }
    let text = String::from_utf8(code).expect("blanked code is ASCII");
    for (at, segments) in in_code(&text) {
        found.push(Named { segments, alias: None, is_public: false, within: within(at) });
    }
    found
}

/// Returns `true` if a file defines an item of this name.
pub(crate) fn defines(source: &Source, name: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "macro_rules!"];
    words(&source.code, name).any(|at| {
        let before = source.code[..at].trim_end();
        kinds.iter().any(|kind| before.ends_with(kind))
    })
}

/// Returns the code, with the lines of its tests blanked.
fn without_tests(source: &Source) -> String {
    let tests = source.test_lines();
    let mut code = source.code.clone().into_bytes();
    let mut line = 0;
    for byte in &mut code {
        match *byte {
            b'\n' => line += 1,
            _ if tests.get(line) == Some(&true) => *byte = b' ',
            _ => {}
        }
    }
    String::from_utf8(code).expect("blanked code is ASCII")
}

/// Returns the start, the end and the name of each module whose text is in the file itself.
fn inline_modules(code: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    for at in words(code, "mod") {
        let rest = code[at + "mod".len()..].trim_start();
        let name = head(rest);
        if !name.is_empty() && rest[name.len()..].trim_start().starts_with('{') {
            let open = at + code[at..].find('{').expect("it is there");
            found.push((open, closing_brace_from(code, open), name.to_owned()));
        }
    }
    found
}

/// As [`closing_brace`], for a brace that is not the first.
fn closing_brace_from(code: &str, open: usize) -> usize {
    open + closing_brace(&code[open..], 0)
}

/// Returns the leaves of a `use` tree: their paths, and the file's name for each.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias.trim())));
        let mut segments: Vec<String> = path.split("::").map(|name| name.trim().to_owned()).collect();
        if segments.last().is_some_and(|name| name == "self") {
            segments.pop();
        }
        segments.retain(|name| !name.is_empty());
        let alias = alias.map_or_else(|| segments.last().cloned().unwrap_or_default(), str::to_owned);
        return if segments.is_empty() { Vec::new() } else { vec![(segments, alias)] };
    };
    let before = &tree[..open];
    let group = &tree[open + 1..closing_brace_from(tree, open)];
    parts(group).into_iter().flat_map(|part| leaves(&format!("{before}{}", part.trim()))).collect()
}

/// Splits a group at its commas.
fn parts(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Returns the paths of two names or more in code, with their positions.
fn in_code(code: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let name = head(&code[at..]);
        if name.is_empty() {
            at += 1;
            continue;
        }
        let (start, mut segments) = (at, vec![name.to_owned()]);
        at += name.len();
        while let Some(rest) = code[at..].strip_prefix("::") {
            let name = head(rest);
            if name.is_empty() {
                break;
            }
            segments.push(name.to_owned());
            at += "::".len() + name.len();
        }
        let is_method = code[..start].ends_with("::");
        if segments.len() > 1 && !is_method {
            found.push((start, segments));
        }
    }
    found
}

/// Returns the name that a text begins with.
fn head(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[test]
fn paths_are_read() {
    let text = "use crate::a::{self, B, c::{D as E, *}};\npub(crate) use super::f;\n\
        mod g { fn h() { super::i::J::new() } }\n\
        #[cfg(test)]\nmod tests { use crate::k; }\nfn l() { m::n::<u8>(crate::o) } // crate::p";
    let source = Source::new("crates/x/src/y.rs", text);
    let found: Vec<String> = named(&source)
        .into_iter()
        .map(|it| format!("{}={}{}", it.segments.join("::"), it.alias.unwrap_or_default(), it.within.concat()))
        .collect();
    let expected =
        ["crate::a=a", "crate::a::B=B", "crate::a::c::D=E", "crate::a::c::*=*", "super::f=f", "super::i::J::new=g"];
    assert_eq!(found[..6], expected);
    assert_eq!(found[6..], ["m::n=", "crate::o="]);
    assert!(defines(&source, "l") && !defines(&source, "n"));
}
