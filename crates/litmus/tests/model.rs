//! The corpus under every schedule: a right program has none that does damage, a wrong order has one that shows it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use millpond_core::check::Kind;
use millpond_litmus::Program;
use millpond_litmus::model::{Harm, Model};

fn corpus() -> Vec<(String, Program)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../litmus");
    let (mut found, mut folders) = (Vec::new(), vec![root]);
    while let Some(at) = folders.pop() {
        for path in fs::read_dir(&at).expect("litmus/ is there").flatten().map(|entry| entry.path()) {
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    let read = |path: PathBuf| {
        let program = Program::parse(&fs::read_to_string(&path).expect("UTF-8")).expect("it can be read");
        (path.file_name().expect("a file").to_string_lossy().into_owned(), program)
    };
    found.into_iter().map(read).collect()
}

/// The rules that are about order: some schedule shows what is wrong.
fn is_shown(kind: Kind) -> bool {
    use Kind::*;
    matches!(kind, UseBeforeAlloc | UseAfterFree | FreeBeforeAlloc | FreeBeforeUse | Race | DoubleFree | StaleFree)
        || matches!(kind, WeakOrder | AutoFreeBeforeUse | FreeWhileImported)
}

#[test]
fn every_wrong_order_has_a_schedule_that_shows_it_and_no_right_program_has_one() {
    let (mut wrong, mut shown, mut right, mut not) = (Vec::new(), 0, 0, Vec::new());
    for (name, program) in corpus() {
        let model = match Model::new(&program) {
            Ok(model) => model,
            Err(why) => {
                not.push(format!("{name}: {why}"));
                continue;
            }
        };
        let Some(all) = model.explore(1 << 20) else {
            not.push(format!("{name}: {} tasks", model.tasks.len()));
            continue;
        };
        if program.is_right() {
            right += 1;
            if let Some(damage) = all.damages.first() {
                let line = model.tasks[damage.task].line;
                wrong.push(format!("{name} is right, and line {line} does damage: {damage:?}"));
            }
            continue;
        }
        for finding in program.check().iter().filter(|finding| is_shown(finding.kind)) {
            let line = |side: &Option<millpond_core::check::Side>| side.as_ref().and_then(|side| side.spot.line);
            let sides: BTreeSet<u32> = [line(&finding.earlier), line(&finding.later)].into_iter().flatten().collect();
            let lines = |harm: Harm, task: usize| {
                let other = match harm {
                    Harm::Freed(other) | Harm::Overtaken(other) => Some(other),
                    Harm::NotBorn | Harm::Held => None,
                };
                let of = |task: usize| [Some(model.tasks[task].line), model.tasks[task].launch].into_iter().flatten();
                of(task).chain(other.into_iter().flat_map(of)).any(|line| sides.contains(&line))
            };
            match all.damages.iter().any(|damage| lines(damage.harm, damage.task)) {
                true => shown += 1,
                false => wrong.push(format!("{name}: no schedule shows {}: {finding}", finding.kind.name())),
            }
        }
    }
    println!("{shown} violations shown, {right} right programs; not: {not:#?}");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(shown >= 60 && right >= 90, "{shown} violations shown, {right} right programs");
}
