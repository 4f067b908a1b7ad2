//! Random programs are corrected: what their findings' help says puts them right.

use std::collections::BTreeMap;

use millpond_litmus::{Fixed, Program, fix};

use crate::{maker, number, processes, whole};

/// Of so many findings one may be left that an edit is known for: no text of it was found that puts it right.
const LEFT_ONE_IN: usize = 40;

/// Of all makers: of one thread, of everything that one process can do, of several processes.
fn program(seed: u64, at: u64) -> Vec<String> {
    match at % 4 {
        0 | 1 => maker::of_one_thread(seed),
        2 => maker::program(seed),
        _ => processes::program(seed),
    }
}

#[test]
fn random_programs_are_corrected() {
    let programs = number("CORRECTED_PROGRAMS").unwrap_or(1_000);
    let seed = number("AGREEMENT_SEED").unwrap_or(3) << 32;
    let (mut wrong, mut right, mut changes) = (0, 0, BTreeMap::<&str, usize>::new());
    let mut left = BTreeMap::<String, (usize, String)>::new();
    for at in 0..programs {
        let text = whole(&program(seed + at, at)).join("\n");
        let Ok(program) = Program::parse(&text) else { continue };
        if program.check().is_empty() {
            continue;
        }
        wrong += 1;
        let fixed = std::panic::catch_unwind(|| fix(&text, &|settings| settings));
        let fixed = fixed.unwrap_or_else(|_| panic!("it panicked:\n{text}")).expect("it is a program");
        let Fixed { text: corrected, changes: made, left: rest } = fixed;
        let found = Program::parse(&corrected).expect("it is one still").check();
        let found: Vec<_> = found.iter().map(|finding| (finding.kind, finding.line())).collect();
        let said: Vec<_> = rest.iter().map(|left| (left.finding.kind, left.finding.line())).collect();
        assert_eq!(found, said, "{text}\n\n{corrected}");
        made.iter().for_each(|change| *changes.entry(change.edit.name()).or_default() += 1);
        right += usize::from(rest.is_empty());
        for one in rest {
            let why = format!("{}: {}", one.finding.kind.name(), one.why);
            let known = left.entry(why).or_insert((0, format!("{corrected}\n\n{}", one.finding)));
            known.0 += 1;
            if corrected.len() < known.1.len() {
                known.1 = format!("{corrected}\n\n{}", one.finding);
            }
        }
    }
    let made: usize = changes.values().sum();
    println!("{wrong} wrong programs, {right} right afterwards; {made} changes: {changes:?}");
    let mut tried = 0;
    for (why, (count, example)) in &left {
        println!("{count} left: {why}");
        if why.contains("no change of this kind") {
            tried += count;
            println!("{example}\n");
        }
    }
    assert!(right > 0 && tried * LEFT_ONE_IN <= made, "{tried} findings are left that an edit is known for");
}
