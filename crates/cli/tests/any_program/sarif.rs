//! A description of the part of SARIF 2.1.0 that the command writes, after the standard's text: the properties of each
//! object, which are required, and their types. A property that is not described is an error, as the standard's own
//! schema has `additionalProperties: false` for all objects but property bags.

use serde_json::Value;

/// The type of a property.
enum Type {
    Text,
    /// An absolute URI, or a relative one.
    Uri,
    /// An integer that is at least this.
    Number(i64),
    Truth,
    OneOf(&'static [&'static str]),
    Object(&'static str),
    /// At least so many objects.
    Objects(usize, &'static str),
    /// An array of texts.
    List,
    /// Any object with texts.
    Texts,
    /// Locations of artifacts, by their names.
    Bases,
}

use Type::*;

/// Returns the properties of an object: name, whether it is required, type.
fn properties(object: &str) -> &'static [(&'static str, bool, Type)] {
    match object {
        // 3.13
        "log" => &[("$schema", false, Uri), ("version", true, OneOf(&["2.1.0"])), ("runs", true, Objects(1, "run"))],
        // 3.14
        "run" => &[
            ("tool", true, Object("tool")),
            ("invocations", false, Objects(0, "invocation")),
            ("originalUriBaseIds", false, Bases),
            ("columnKind", false, OneOf(&["utf16CodeUnits", "unicodeCodePoints"])),
            ("results", true, Objects(0, "result")),
        ],
        // 3.18, 3.19
        "tool" => &[("driver", true, Object("driver"))],
        "driver" => &[
            ("name", true, Text),
            ("semanticVersion", false, Text),
            ("informationUri", false, Uri),
            ("rules", false, Objects(0, "rule")),
        ],
        // 3.49
        "rule" => &[
            ("id", true, Text),
            ("shortDescription", false, Object("message")),
            ("fullDescription", false, Object("message")),
            ("helpUri", false, Uri),
            ("help", false, Object("message")),
        ],
        // 3.20
        "invocation" => &[
            ("executionSuccessful", true, Truth),
            ("arguments", false, List),
            ("exitCode", false, Number(i64::MIN)),
            ("exitSignalNumber", false, Number(i64::MIN)),
        ],
        // 3.27
        "result" => &[
            ("ruleId", false, Text),
            ("ruleIndex", false, Number(0)),
            ("level", false, OneOf(&["none", "note", "warning", "error"])),
            ("message", true, Object("message")),
            ("locations", false, Objects(0, "location")),
            ("relatedLocations", false, Objects(0, "location")),
            ("occurrenceCount", false, Number(1)),
            ("partialFingerprints", false, Texts),
            ("properties", false, Texts),
        ],
        // 3.11
        "message" => &[("text", true, Text)],
        // 3.28
        "location" => &[
            ("id", false, Number(0)),
            ("physicalLocation", false, Object("physicalLocation")),
            ("logicalLocations", false, Objects(1, "logicalLocation")),
            ("message", false, Object("message")),
        ],
        // 3.29
        "physicalLocation" => {
            &[("artifactLocation", true, Object("artifactLocation")), ("region", false, Object("region"))]
        }
        // 3.4
        "artifactLocation" => &[("uri", true, Uri), ("uriBaseId", false, Text)],
        // 3.30
        "region" => &[("startLine", true, Number(1))],
        // 3.33
        "logicalLocation" => &[("fullyQualifiedName", false, Text), ("kind", false, Text)],
        other => panic!("{other} is described"),
    }
}

/// Asserts that a log is as described, and what its parts say of each other.
#[track_caller]
pub(super) fn validate(log: &Value) {
    object("log", log, "");
    for run in log["runs"].as_array().unwrap() {
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        let ids: Vec<&str> = rules.iter().map(|rule| rule["id"].as_str().unwrap()).collect();
        for result in run["results"].as_array().unwrap() {
            let rule = ids[result["ruleIndex"].as_u64().unwrap() as usize];
            assert_eq!(result["ruleId"], rule, "3.27.6: the rule at the index has the result's id");
            let places = [&result["locations"], &result["relatedLocations"]].map(|it| it.as_array().unwrap());
            let bases = places.into_iter().flatten().map(|place| &place["physicalLocation"]["artifactLocation"]);
            for base in bases.filter_map(|artifact| artifact["uriBaseId"].as_str()) {
                assert!(run["originalUriBaseIds"][base]["uri"].is_string(), "3.4.4: {base} is known");
            }
        }
        for (_, base) in run["originalUriBaseIds"].as_object().unwrap() {
            let uri = base["uri"].as_str().unwrap();
            assert!(uri.starts_with("file:///") && uri.ends_with('/'), "3.14.14: {uri}");
        }
    }
}

#[track_caller]
fn object(name: &str, value: &Value, at: &str) {
    let members = value.as_object().unwrap_or_else(|| panic!("{at} is an object: {value}"));
    let known = properties(name);
    for (key, value) in members {
        let Some((_, _, kind)) = known.iter().find(|(known, _, _)| known == key) else {
            panic!("{at}: {name} has no property {key}");
        };
        property(kind, value, &format!("{at}/{key}"));
    }
    for (key, _, _) in known.iter().filter(|(_, is_required, _)| *is_required) {
        assert!(members.contains_key(*key), "{at}: {name} needs {key}");
    }
}

#[track_caller]
fn property(kind: &Type, value: &Value, at: &str) {
    match kind {
        Text => assert!(value.is_string(), "{at} is a text: {value}"),
        Uri => {
            let text = value.as_str().unwrap_or_else(|| panic!("{at} is a text: {value}"));
            let is_legal = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&'()*+,;=%".contains(c);
            assert!(!text.is_empty() && text.chars().all(is_legal), "{at} is a URI (RFC 3986): {text}");
        }
        Number(least) => assert!(value.as_i64().is_some_and(|number| number >= *least), "{at}: {value}"),
        Truth => assert!(value.is_boolean(), "{at}: {value}"),
        OneOf(values) => assert!(value.as_str().is_some_and(|text| values.contains(&text)), "{at}: {value}"),
        Object(name) => object(name, value, at),
        Objects(least, name) => {
            let all = value.as_array().unwrap_or_else(|| panic!("{at} is an array: {value}"));
            assert!(all.len() >= *least, "{at} has at least {least}");
            all.iter().enumerate().for_each(|(index, it)| object(name, it, &format!("{at}/{index}")));
        }
        List => assert!(value.as_array().is_some_and(|all| all.iter().all(Value::is_string)), "{at}: {value}"),
        Texts => assert!(value.as_object().is_some_and(|all| all.values().all(Value::is_string)), "{at}: {value}"),
        Bases => value.as_object().unwrap().values().for_each(|it| object("artifactLocation", it, at)),
    }
}

#[test]
fn the_description_refuses_what_is_wrong() {
    let right = serde_json::json!({
        "version": "2.1.0",
        "runs": [{ "tool": { "driver": { "name": "it", "rules": [] } }, "originalUriBaseIds": {}, "results": [] }],
    });
    validate(&right);
    let refuses = |change: fn(&mut Value)| {
        let mut log = right.clone();
        change(&mut log);
        std::panic::catch_unwind(|| validate(&log)).is_err()
    };
    assert!(refuses(|log| log["version"] = "2.0.0".into()));
    assert!(refuses(|log| log["other"] = 1.into()));
    assert!(refuses(|log| log["runs"][0]["tool"] = serde_json::json!({})));
    assert!(refuses(|log| log["runs"][0]["results"] = serde_json::json!([{}])));
    assert!(refuses(|log| log["runs"] = serde_json::json!([])));
}
