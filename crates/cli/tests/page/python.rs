//! Recordings of PyTorch: frames beside allocations, in the search and as a table; what it had reserved itself.

use std::path::Path;

use serde_json::json;

use crate::browser::ask;
use crate::page;

#[test]
fn frames_are_shown_searched_and_summed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/one_device_p4.pickle");
    let script = "
        page.side.show('frames');
        const table = [...document.querySelectorAll('#panel .row')].map((row) => row.textContent);
        page.visit(1);
        page.side.show('allocations');
        const held = [...document.querySelectorAll('#panel .frames li')].map((item) => item.textContent);
        page.searching.begin('forward');
        const found = page.found.count;
        page.searching.begin('backward');
        return { table, held, found, none: page.found.count, own: [...page.data.ownBytes],
            legend: $('legend').textContent, facts: $('facts').textContent, order: page.order.count };";
    let Some(answer) = ask("frames", &page(&file), script) else { return };
    let row = |text: &str| format!("{text}1.00 MiB3 allocations, 1.00 MiB in all");
    assert_eq!(answer["table"], json!([row("forward (train.py:12)"), row("<module> (train.py:40)")]));
    assert_eq!(answer["held"], json!(["forward (train.py:12)", "<module> (train.py:40)"]));
    assert_eq!((&answer["found"], &answer["none"], &answer["own"]), (&json!(3), &json!(0), &json!([2 << 20])));
    assert!(answer["legend"].as_str().unwrap().contains("reserved by the recorded run itself"), "{}", answer["legend"]);
    assert!(
        answer["facts"].as_str().unwrap().contains("from before the history1 block, 4.00 KiB"),
        "{}",
        answer["facts"]
    );
    assert_eq!(answer["order"], 0, "what orders the events of a recording is not known");
}
