//! The project's litmus programs: each gets the verdict that it expects, at the expected line.
//!
//! A wrong program `x.litmus` has a corrected version `x.fixed.litmus` beside it.

use crate::files::corpus;
use millpond_core::check::Kind;
use millpond_litmus::Program;

#[test]
fn every_program_gets_the_verdict_that_it_expects() {
    let mut wrong = Vec::new();
    for (name, text) in corpus() {
        match Program::parse(&text) {
            Err(refusal) => wrong.push(format!("{name}: {refusal}")),
            Ok(program) => {
                let findings = program.check();
                wrong.extend(program.differences(&findings).into_iter().map(|it| format!("{name}: {it}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_wrong_program_has_a_right_twin() {
    let all = corpus();
    assert!(all.len() > 100, "the corpus has only {} programs: looked in the wrong place?", all.len());
    for (name, text) in &all {
        let is_right = Program::parse(text).expect("it can be read").is_right();
        match name.strip_suffix(".fixed.litmus") {
            Some(_) => assert!(is_right, "{name} is a corrected twin and expects a violation"),
            None if !is_right => {
                let twin = name.replace(".litmus", ".fixed.litmus");
                assert!(all.iter().any(|(other, _)| *other == twin), "{name} is wrong and has no twin {twin}");
            }
            None => {}
        }
    }
}

#[test]
fn a_violation_names_both_sides_and_what_to_add() {
    for (name, text) in corpus() {
        let program = Program::parse(&text).expect("it can be read");
        for finding in program.check() {
            assert!(!finding.help().is_empty(), "{name}: {finding}");
            assert!(finding.earlier.is_some() || finding.later.is_some(), "{name}: {finding}");
            assert!(finding.line().is_some(), "{name}: {finding}");
            assert!(finding.facts().starts_with(&format!("kind={}", finding.kind.name())), "{name}: {finding}");
        }
    }
}

/// Known real bugs, and the rules of CUDA's documentation: each has its program. If a rule's program is right, there is
/// no corrected version.
const KNOWN: &[(&str, &[&str])] = &[
    ("measured", &["1-", "2-", "3-", "4-", "5-", "6-", "7-", "8-", "9-"]),
    ("loops", &["1-", "2-", "3-", "4-", "5-events-between", "5-events-in"]),
    (
        "zoo",
        &[
            "01-", "02-", "03-", "04-", "05-", "06-", "07-", "08-", "09-", "10-", "11-", "12-", "14-", "16-", "17-",
            "18-", "20-", "23-", "24-", "25-", "26-", "27-", "29-", "31-", "33-", "34-", "35a-", "35b-", "35c-",
            "35d-", "35e-", "35f-", "37-", "38-", "39-", "40-", "41-", "42-", "44-", "48-", "49-", "51-",
        ],
    ),
    (
        "rules",
        &[
            "relaunch-with-unfreed-memory",
            "freed-by-owner-then-another",
            "two-instances-of-fixed-addresses",
            "clone-of-fixed-addresses",
            "exporter-frees-first",
            "one-instance-on-two-streams",
            "external-record-before-the-alloc-node",
            "external-wait-in-a-graph",
            "wait-for-an-event-never-recorded",
            "external-wait-outside-a-capture",
            "programmatic-event-as-completion",
            "one-past-the-end",
        ],
    ),
];

#[test]
fn every_known_bug_has_its_program() {
    let all = corpus();
    for (folder, beginnings) in KNOWN {
        for beginning in *beginnings {
            let wanted = format!("{folder}/{beginning}");
            assert!(all.iter().any(|(name, _)| name.starts_with(&wanted)), "no program {wanted}...");
        }
    }
}

#[test]
fn every_rule_is_broken_by_some_program() {
    let programs: Vec<Program> =
        corpus().iter().map(|(_, text)| Program::parse(text).expect("it can be read")).collect();
    for kind in Kind::ALL {
        assert!(programs.iter().any(|it| it.expected().iter().any(|it| it.kind == *kind)), "{}", kind.name());
    }
}
