//! Findings as a SARIF 2.1.0 log, which code scanning services read.
//!
//! Sections are those of the standard (OASIS, SARIF 2.1.0). Knows texts only.

use std::collections::HashMap;
use std::path::Path;

use millpond_core::check::{Found, Kind, Shown};
use serde_json::{Value, json};

use super::Ended;

const SCHEMA: &str = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The name of the folder that relative addresses are relative to (3.14.14).
const BASE: &str = "SRCROOT";

/// Returns the log of one run. Files below `base` get relative addresses.
pub(super) fn log<'a>(
    findings: impl Iterator<Item = &'a (u64, Found)>,
    base: &Path,
    program: &[String],
    ended: Ended,
) -> Value {
    let findings: Vec<&(u64, Found)> = findings.collect();
    let mut kinds: Vec<&str> = findings.iter().map(|(_, found)| &*found.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut met: HashMap<String, u32> = HashMap::new();
    let results = findings.iter().map(|(count, found)| {
        let print = fingerprint(found);
        let number = met.entry(print.clone()).or_default();
        *number += 1;
        result(found, *count, &kinds, base, &format!("{print}|{number}"))
    });
    let results: Vec<Value> = results.collect();
    let (status, signal) = ended.parts();
    let mut invocation = json!({
        "executionSuccessful": status == Some(0),
        "arguments": program,
    });
    match (status, signal) {
        (Some(status), _) => invocation["exitCode"] = status.into(),
        (None, signal) => invocation["exitSignalNumber"] = signal.into(),
    }
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "millpond",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": kinds.iter().map(|kind| rule(kind)).collect::<Vec<_>>(),
            } },
            "invocations": [invocation],
            "originalUriBaseIds": { (BASE): { "uri": format!("file://{}/", encoded(&base.display().to_string())) } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

/// Describes a rule (3.49).
fn rule(kind: &str) -> Value {
    let text = Kind::from_name(kind).map_or("More findings, which are not listed.", Kind::description);
    let page = concat!(page!("litmus"), "#what-is-expected");
    json!({
        "id": kind,
        "shortDescription": { "text": text },
        "fullDescription": { "text": text },
        "helpUri": page,
        "help": { "text": format!("{text} All rules: {page}") },
    })
}

/// Describes a finding (3.27).
fn result(found: &Found, count: u64, kinds: &[&str], base: &Path, fingerprint: &str) -> Value {
    let mut text = found.sentence.clone();
    let help = [&found.help].into_iter().filter(|help| !help.is_empty()).chain(&found.calls);
    for part in found.notes.iter().chain(help) {
        text += &format!(". {part}");
    }
    let main = found.later.as_ref().or(found.earlier.as_ref());
    let others = found.sides().filter(|side| !main.is_some_and(|main| std::ptr::eq(main, *side)));
    let related: Vec<Value> = others
        .zip(1..)
        .map(|(side, id)| {
            let mut place = location(side, base);
            place["id"] = Value::from(id);
            place["message"] = json!({ "text": words(side) });
            place
        })
        .collect();
    json!({
        "ruleId": found.kind,
        "ruleIndex": kinds.iter().position(|kind| *kind == found.kind),
        "level": "error",
        "message": { "text": text },
        "locations": main.map(|side| location(side, base)).into_iter().collect::<Vec<_>>(),
        "relatedLocations": related,
        "occurrenceCount": count,
        // The same mistake has the same fingerprint on other lines of its files.
        "partialFingerprints": { "rule/functions/v1": fingerprint },
        "properties": { "facts": found.facts },
    })
}

fn fingerprint(found: &Found) -> String {
    let name = |side: &Shown| {
        let file = side.file.as_deref().map_or("", |file| file.rsplit('/').next().unwrap_or(file));
        format!("{file}:{}:{}", side.function.as_deref().unwrap_or_default(), side.verb)
    };
    let sides: Vec<String> = found.sides().map(name).collect();
    format!("{}|{}", found.kind, sides.join("|"))
}

fn words(side: &Shown) -> String {
    let kernel = side.kernel.as_ref().map(|kernel| format!(", kernel {kernel}")).unwrap_or_default();
    let op = side.op.map(|op| format!(", op {op}")).unwrap_or_default();
    format!("{}: {}{op}{kernel}", side.verb, side.who)
}

/// Describes a place (3.28). Code without a source file has a function and a module in place of the file.
fn location(side: &Shown, base: &Path) -> Value {
    let Some(file) = &side.file else { return json!({}) };
    let is_source = side.line.is_some() && !file.starts_with('<');
    let function = side.function.as_ref().map(|name| json!([{ "fullyQualifiedName": name, "kind": "function" }]));
    if !is_source {
        let name = side.function.as_ref().unwrap_or(file);
        return json!({ "logicalLocations": [{ "fullyQualifiedName": name, "kind": "function" }] });
    }
    let path = Path::new(file);
    let artifact = match (path.strip_prefix(base), path.is_absolute()) {
        (Ok(below), _) => json!({ "uri": encoded(&below.display().to_string()), "uriBaseId": BASE }),
        (Err(_), true) => json!({ "uri": format!("file://{}", encoded(file)) }),
        (Err(_), false) => json!({ "uri": encoded(file), "uriBaseId": BASE }),
    };
    let region = json!({ "startLine": side.line });
    let mut place = json!({ "physicalLocation": { "artifactLocation": artifact, "region": region } });
    if let Some(function) = function {
        place["logicalLocations"] = function;
    }
    place
}

/// Returns a path as part of a URI (RFC 3986).
fn encoded(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().fold(String::new(), |uri, byte| match is_plain(byte) {
        true => uri + char::from(byte).encode_utf8(&mut [0; 4]),
        false => uri + &format!("%{byte:02X}"),
    })
}
