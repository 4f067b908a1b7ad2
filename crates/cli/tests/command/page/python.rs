//! Recordings of PyTorch: frames beside allocations, in the search and as a table; and what PyTorch had reserved
//! itself.

use std::path::Path;

use serde_json::json;

use super::browser::ask;
use super::page;

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

#[test]
fn times_annotations_and_pools_are_shown() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/annotated.pickle");
    let script = "
        page.side.show('annotations');
        const rows = [...document.querySelectorAll('#panel .row')].map((row) => row.textContent);
        document.querySelectorAll('#panel .row')[1].click();
        const range = page.range, sums = $('panel').textContent;
        page.visit(2);
        page.side.show('allocations');
        const held = $('panel').textContent;
        $('colour').value = 'pool';
        $('colour').dispatchEvent(new Event('change'));
        const colours = [1, 2, 3].map((at) => page.colourOf(at));
        page.searching.begin('pool:(0,');
        const found = page.found.count;
        page.searching.begin('');
        page.look(page.whole());
        await frame();
        return { rows, range, sums, held, found, colours, streams: page.theme.streams, legend: $('legend').textContent,
            spanRow: page.data.spanRow, facts: $('facts').textContent };";
    let Some(answer) = ask("annotated", &page(&file), script) else { return };
    let rows: Vec<_> = answer["rows"].as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
    assert_eq!(rows[0], "warm-upevent 0 to 0, 0 \u{b5}s");
    assert_eq!(rows[1], "step 1299 msevent 3 to 5, 1.5 ms");
    assert_eq!((&answer["range"], &answer["spanRow"]), (&json!([3, 6]), &json!([0, 0, 1, 1, 0])));
    let sums = answer["sums"].as_str().unwrap();
    assert!(sums.contains("allocated1.50 MiB by 2 allocations") && sums.contains("to6, 1.5 s"), "{sums}");
    let held = answer["held"].as_str().unwrap();
    assert!(held.contains("event 3, 1.5 ms, stream 0") && held.contains("event 5, 250 ms"), "{held}");
    assert!(held.contains("poolpool (0, 1)"), "{held}");
    let (colours, streams) = (&answer["colours"], &answer["streams"]);
    assert_eq!(colours, &json!([streams[8], streams[1], streams[0]]), "not known, the graph's, the default pool");
    assert_eq!(answer["found"], 1);
    assert!(answer["legend"].as_str().unwrap().contains("blocks: pool (0, 1)"), "{}", answer["legend"]);
    assert!(answer["facts"].as_str().unwrap().contains("time1.500 s"), "{}", answer["facts"]);
}
