//! The corpus under every schedule: a right program has no schedule that does damage, a wrong order has one that shows
//! it.

use crate::files::corpus;
use crate::mutated;
use millpond_core::check::{Finding, Kind};
use millpond_core::op::{Act, What};
use millpond_litmus::Program;
use millpond_litmus::model::Harm;
use millpond_litmus::model::Model;
use millpond_litmus::model::{forbidden_calls, refused_copies};

/// A graph that is nested too deeply is refused, and makes no schedule.
#[test]
fn graphs_that_are_nested_deeply_are_explored() {
    let mut text = String::from("stream s\ngraph g0\nnode n in g0: empty\n");
    for at in 1..3000 {
        text += &format!("graph g{at}\nnode n in g{at}: child g{}\n", at - 1);
    }
    let program = Program::parse(&(text + "x = instantiate g2999\nlaunch x s\n")).expect("it can be read");
    assert!(program.check().iter().any(|finding| finding.kind == Kind::GraphRefused));
    assert!(Model::new(&program).is_ok_and(|model| model.explore(1 << 10).is_some()));
}

#[test]
fn every_wrong_order_has_a_schedule_that_shows_it_and_no_right_program_has_one() {
    let (mut wrong, mut shown, mut right, mut denied, mut not) = (Vec::new(), 0, 0, 0, Vec::new());
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
        for finding in program.check() {
            let is_shown = all.damages.iter().any(|damage| model.shows(damage, &finding) > 0);
            // The model does not know the access rights of nodes of graphs.
            denied += u32::from(finding.kind == Kind::NoAccess && is_shown);
            if !finding.kind.is_about_order() {
                continue;
            }
            match is_shown {
                true => shown += 1,
                false => wrong.push(format!("{name}: no schedule shows {}: {finding}", finding.kind.name())),
            }
        }
    }
    println!("{shown} violations shown, {right} right programs; not: {not:#?}");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(shown >= 60 && right >= 90, "{shown} violations shown, {right} right programs");
    assert!(denied >= 6, "{denied} uses without access shown");
}

/// Rules of launches: each of these programs is right, no schedule does damage, and nothing is freed twice.
#[test]
fn launches_uploads_and_updates_of_one_instance_come_one_after_the_other() {
    let after_an_upload = "a = alloc s 512\ngraph g\nnode n in g: write a\nx = instantiate g\nlaunch x s\nupload x t\n\
                           write t a\nfree t a";
    let left_with_a_child = "graph h\nnode m in h: alloc b 512\ngraph g\nnode n in g: alloc a 512\n\
                             node c in g after n: child h\nx = instantiate g\nlaunch x s\ndestroy x\n\
                             y = instantiate g auto-free\nlaunch y s";
    let updated_from_its_graph = "graph g\nnode n in g: alloc a 512\nnode m in g after n: write a\n\
                                  x = instantiate g auto-free\nlaunch x s\nupdate x from g\nlaunch x t";
    for text in [after_an_upload, left_with_a_child, updated_from_its_graph] {
        let text = format!("set leaks off\nstream s nonblocking\nstream t nonblocking\n{text}");
        let program = Program::parse(&text).expect("it can be read");
        assert!(program.check().is_empty(), "{:?}\n{text}", program.check());
        let model = Model::new(&program).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let all = model.explore(1 << 14).expect("it is small");
        assert!(all.damages.is_empty(), "{:?}\n{text}", all.damages);
        for life in 0..model.lives.len() {
            let effects = model.tasks.iter().flat_map(|task| &task.effects);
            let frees = effects.filter(|it| it.life == life && it.act == Act::Free).count();
            assert!(frees <= 1, "{} is freed {frees} times\n{text}", model.lives[life].name);
        }
    }
}

/// If no order decides which record of an event a node of the same launch waits for, or which is the last, there is no
/// order.
#[test]
fn records_of_one_event_that_nothing_orders_order_nothing() {
    let waits_beside = "event e\nwrite s a\nrecord e s\ngraph g\nnode r in g: record e\nnode w in g: wait e\n\
                        node n in g after w: write a\nx = instantiate g\nlaunch x t";
    let records_beside = "event e\ngraph g\nnode n in g: write a\nnode m in g: empty\nnode v in g after m: record e\n\
                          node r in g after n: record e\nx = instantiate g\nlaunch x s\nwait t e\nwrite t a";
    for text in [waits_beside, records_beside] {
        let text = format!("set leaks off\nstream s nonblocking\nstream t nonblocking\na = alloc s 512\n{text}");
        let program = Program::parse(&text).expect("it can be read");
        assert!(program.check().iter().any(|it| it.kind.is_about_order()), "{:?}\n{text}", program.check());
        let all = Model::new(&program).expect("it has a model").explore(1 << 14).expect("it is small");
        assert!(!all.damages.is_empty(), "no schedule shows it\n{text}");
    }
}

/// Mutated programs: those without findings have no schedule that does damage.
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
        // In the model, a graph that is never launched runs at the end.
        let runs =
            |task: &usize| model.tasks[*task].launch.is_some() || !is_of_a_graph(&program, model.tasks[*task].line);
        let damage = all.damages.iter().find(|damage| match damage.harm {
            Harm::Freed(other) | Harm::StaleName(other) => runs(&damage.task) && runs(&other),
            Harm::NotBorn | Harm::Held => runs(&damage.task),
        });
        if let Some(damage) = damage {
            panic!("{number}: line {} does damage: {damage:?}\n{text}", model.tasks[damage.task].line);
        }
        right += 1;
    }
    assert!(right > 15_000, "{right} right programs");
}

/// A call that a capture forbids is refused, unless the capture is invalid already; and no other call is.
#[test]
fn what_captures_forbid_is_refused_and_nothing_else() {
    let mutated = mutated::Mutated::new();
    let texts = corpus().into_iter().map(|(_, text)| text);
    let (mut forbidden, mut allowed) = (0, 0);
    for text in texts.chain((0..100_000).map(|number| mutated.program(number).join("\n"))) {
        let Ok(program) = Program::parse(&text) else { continue };
        if !program.ops().iter().any(|op| matches!(op.what, What::CaptureBegin { .. })) {
            continue;
        }
        let (findings, by_model) = (program.check(), forbidden_calls(&program));
        let is_of_capture = |kind: Kind| kind.name().starts_with("capture");
        for op in program.ops().iter().filter(|op| op.what.unsafe_call().is_some()) {
            let line = op.place.line();
            // Memory that does not exist cannot be freed in any case.
            let is_free = matches!(op.what, What::FreeNow { .. });
            let is_said = |kind: Kind| kind == Kind::CaptureUnsupported || is_free;
            let is_refused = findings.iter().any(|it| is_said(it.kind) && it.line() == line);
            // In a loop a later line may be an earlier operation.
            let is_before = |it: &Finding| it.line() < line || text.contains("repeat");
            let was_spoilt = || findings.iter().any(|it| is_of_capture(it.kind) && is_before(it));
            match by_model.contains(&line.unwrap_or(0)) {
                true => {
                    forbidden += 1;
                    // If a refused operation would have made the memory, nothing more is reported about it.
                    let was_refused = || is_free && findings.iter().any(is_before);
                    assert!(
                        is_refused || was_spoilt() || was_refused(),
                        "line {line:?} is forbidden, and passes\n{text}"
                    );
                }
                false if is_refused => {
                    // Captured streams, and the default stream, do not depend on modes.
                    let is_of_streams = matches!(op.what, What::StreamSynchronize { .. } | What::StreamQuery { .. });
                    assert!(
                        is_of_streams || is_free || was_spoilt(),
                        "line {line:?} is refused, and may be done\n{text}"
                    );
                }
                false => allowed += 1,
            }
        }
    }
    assert!(forbidden > 1000 && allowed > 1000, "{forbidden} forbidden, {allowed} allowed");
}

/// A graph with memory nodes is refused a second place, and no other graph is.
#[test]
fn graphs_with_memory_nodes_are_in_one_place() {
    let mutated = mutated::Mutated::new();
    let texts = corpus().into_iter().map(|(_, text)| text);
    let (mut refused, mut right) = (0, 0);
    for text in texts.chain((0..300_000).map(|number| mutated.program(number).join("\n"))) {
        let Ok(program) = Program::parse(&text) else { continue };
        // In a loop a later line may be an earlier operation.
        if !program.ops().iter().any(|op| matches!(op.what, What::Instantiate { .. })) || text.contains("repeat") {
            continue;
        }
        let findings = program.check();
        let is_said = |it: &&Finding| it.kind == Kind::GraphRefused && it.sentence.contains("a fixed address");
        let said = findings.iter().find(is_said).and_then(Finding::line);
        // An operation that is refused first has no effect, and what follows from it is not reported.
        let is_first = |it: &Finding| it.kind.is_advice() || it.kind == Kind::Leak || it.line() >= said;
        let by_model = refused_copies(&program).first().copied();
        match said {
            Some(_) if findings.iter().all(is_first) => assert_eq!(said, by_model, "{text}"),
            None if findings.is_empty() => assert_eq!(by_model, None, "{text}"),
            _ => continue,
        }
        *(if said.is_some() { &mut refused } else { &mut right }) += 1;
    }
    assert!(refused > 100 && right > 1000, "{refused} refused, {right} right");
}

/// Returns `true` if a line of a program makes a node.
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
