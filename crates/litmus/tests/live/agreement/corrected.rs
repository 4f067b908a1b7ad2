//! The edges that findings name are added to random programs.

use millpond_litmus::{Fixed, Program, fix};

use super::{maker, number, processes, whole};

/// One in so many findings that name edges may be left: no program text was found that corrects it. (Most concern
/// graphs whose nodes are in the other order: an edge would close a cycle.)
const LEFT_ONE_IN: usize = 8;

/// Makes a program by each of the makers: of one thread, of everything that one process can do, of several processes.
fn program(seed: u64, at: u64) -> Vec<String> {
    match at % 4 {
        0 | 1 => maker::of_one_thread(seed),
        2 => maker::program(seed),
        _ => processes::program(seed),
    }
}

#[test]
fn random_programs_get_their_edges() {
    let programs = number("CORRECTED_PROGRAMS").unwrap_or(1_000);
    let seed = number("AGREEMENT_SEED").unwrap_or(3) << 32;
    let (mut wrong, mut right, mut settled, mut unsettled, mut left) = (0, 0, 0, 0, 0);
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
        settled += made.len();
        right += usize::from(rest.is_empty());
        unsettled += rest.iter().filter(|left| left.why.is_some()).count();
        left += rest.len();
    }
    println!(
        "{wrong} wrong programs, {right} right afterwards; {settled} settled, {left} left, {unsettled} with edges"
    );
    assert!(right > 0 && unsettled * LEFT_ONE_IN <= settled, "{unsettled} findings are left that name edges");
}
