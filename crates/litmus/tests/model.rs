//! The corpus under every schedule: a right program has none that does damage, a wrong order has one that shows it.

mod files;
mod mutated;

use files::corpus;
use millpond_core::check::Kind;
use millpond_core::op::What;
use millpond_litmus::Program;
use millpond_litmus::model::Harm;
use millpond_litmus::model::Model;

#[test]
fn every_wrong_order_has_a_schedule_that_shows_it_and_no_right_program_has_one() {
    let (mut wrong, mut shown, mut right, mut not) = (Vec::new(), 0, 0, Vec::new());
    for (name, text) in corpus() {
        let program = Program::parse(&text).expect("it can be read");
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
        for finding in program.check().iter().filter(|finding| finding.kind.is_about_order()) {
            match all.damages.iter().any(|damage| model.shows(damage, finding) > 0) {
                true => shown += 1,
                false => wrong.push(format!("{name}: no schedule shows {}: {finding}", finding.kind.name())),
            }
        }
    }
    println!("{shown} violations shown, {right} right programs; not: {not:#?}");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(shown >= 60 && right >= 90, "{shown} violations shown, {right} right programs");
}

/// Programs that nobody meant: those that the checker has nothing to say of have no schedule that does damage.
#[test]
fn what_passes_has_no_schedule_that_does_damage() {
    let (mutated, mut right) = (mutated::Mutated::new(), 0);
    for number in 0..300_000 {
        let text = mutated.program(number).join("\n");
        let Ok(program) = Program::parse(&text) else { continue };
        if !program.check().iter().all(|finding| finding.kind.is_advice() || finding.kind == Kind::Leak) {
            continue;
        }
        let Ok(model) = Model::new(&program) else { continue };
        let Some(all) = model.explore(1 << 14) else { continue };
        // A graph that is never launched is, in the model, at the end.
        let runs =
            |task: &usize| model.tasks[*task].launch.is_some() || !is_of_a_graph(&program, model.tasks[*task].line);
        let damage = all.damages.iter().find(|damage| match damage.harm {
            Harm::Freed(other) | Harm::Overtaken(other) => runs(&damage.task) && runs(&other),
            Harm::NotBorn | Harm::Held => runs(&damage.task),
        });
        if let Some(damage) = damage {
            panic!("{number}: line {} does damage: {damage:?}\n{text}", model.tasks[damage.task].line);
        }
        right += 1;
    }
    assert!(right > 15_000, "{right} right programs");
}

/// Whether a line of a program makes a node.
fn is_of_a_graph(program: &Program, line: u32) -> bool {
    let mut captures = 0;
    for op in program.ops() {
        let is_here = op.place.line() == Some(line);
        match op.what {
            What::CaptureBegin { .. } => captures += 1,
            What::CaptureEnd { .. } => captures -= 1,
            What::GraphNode { .. } if is_here => return true,
            _ if is_here => return captures > 0,
            _ => {}
        }
    }
    false
}
