//! The corpus under every schedule: a right program has none that does damage, a wrong order has one that shows it.

mod files;

use files::corpus;
use millpond_litmus::Program;
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
