//! The view of the order: lanes, arrows, the missing edge of the checker, the fix, the range and its sums, the keys.

use std::path::Path;

use serde_json::{Value, json};

use super::browser::ask;
use super::{litmus, page};

/// A free that does not come after a read on the other stream.
const EARLY: &str = "stream left\nstream right\nx = alloc left 4096\nwrite left x\nrecord e left\nwait right e\n\
    read right x\nfree left x      !! free-before-use\n";

/// The approximate number of pixels of this colour in the chart of the order.
const COUNT: &str = "const { pen, element } = page.canvases.order;
    const { data } = pen.getImageData(0, 0, element.width, element.height);
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(page.theme.bad.slice(at, at + 2), 16));
    let bad = 0;
    for (let at = 0; at < data.length; at += 4) {
        if (Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue) < 30) bad++;
    }";

#[test]
fn two_streams_and_the_missing_edge() {
    let script = format!(
        "{COUNT}
        const lane = (step) => page.order.lanes[page.data.lane[step]].name;
        const mark = page.data.meta.marks[page.mark];
        const titles = [0, 1, 2, 3, 4, 5].map((step) => page.order.title(step));
        const arrows = [...page.data.arrowFrom].map((from, at) => [from, page.data.arrowTo[at]]);
        return {{ titles, arrows, missing: mark.missing, on: mark.missing[0].map(lane),
            lanes: page.order.lanes.map((lane) => lane.name),
            sides: mark.sides, bad, panel: $('panel').textContent, svg: page.picture() }};"
    );
    let Some(answer) = ask("early", &litmus("early", EARLY), &script) else { return };
    assert_eq!(answer["lanes"], json!(["left", "right"]));
    assert_eq!(answer["titles"][4], "read right x");
    assert_eq!(answer["arrows"], json!([[2, 3]]), "from the record to the wait");
    assert_eq!((&answer["missing"], &answer["on"]), (&json!([[4, 5]]), &json!(["right", "left"])));
    assert_eq!(answer["sides"], json!([4, 5]));
    assert!(answer["bad"].as_u64() > Some(500), "both sides are lit and the edge is drawn: {}", answer["bad"]);
    let panel = answer["panel"].as_str().unwrap();
    assert!(panel.contains("make stream `left` wait for an event recorded on stream `right`"), "{panel}");
    assert!(
        panel.contains("check --fix corrects 1 violation by this") && panel.contains("+ wait left fix1"),
        "{panel}"
    );
    let svg = answer["svg"].as_str().unwrap();
    assert_eq!(svg.matches("<text ").count(), svg.matches("textLength=\"").count(), "all text fits, whatever the font");
    assert!(svg.contains("stroke-dasharray=\"8 5\"") && svg.contains("free left x") && svg.contains("missing edge"));
}

#[test]
fn a_right_program_has_nothing_red() {
    let right = EARLY.replace("free left x      !! free-before-use", "record f right\nwait left f\nfree left x");
    let script = format!("{COUNT} page.side.show('violations'); return {{ bad, panel: $('panel').textContent }};");
    let Some(answer) = ask("right", &litmus("right", &right), &script) else { return };
    assert_eq!((&answer["bad"], &answer["panel"]), (&json!(0), &json!("None: every use is ordered.")));
}

#[test]
fn captured_work_is_on_its_lanes_and_opens_as_a_graph() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/litmus/loops/2-kernel-not-after-its-allocation.litmus");
    let script =
        "const titles = page.data.meta.marks.map((mark) => mark.missing[0].map((step) => page.order.title(step)));
        const graph = page.data.meta.graphs[0];
        const labels = graph.missing.map((ends) => ends.map((node) => graph.nodes[node].label));
        page.side.show('violations');
        const panel = $('panel').textContent;
        page.pick(page.order.captures[0].from);
        page.input.enter();
        return { titles, labels, panel, open: $('graph').open, head: $('graph').querySelector('h2').textContent,
            band: [page.order.captures[0].from, page.order.captures[0].to] };";
    let Some(answer) = ask("captured", &page(&file), script) else { return };
    let edge = json!(["a = alloc s 1024", "write side a"]);
    assert_eq!(answer["titles"], json!([edge, edge]), "the edge is between the nodes that the finding names");
    assert_eq!(answer["labels"], json!([["alloc a", "kernel"], ["alloc a", "kernel"]]));
    assert_eq!((&answer["open"], &answer["band"]), (&json!(true), &json!([0, 15])));
    assert!(answer["head"].as_str().unwrap().starts_with("graph 0: "), "{}", answer["head"]);
    let panel = answer["panel"].as_str().unwrap();
    assert!(panel.contains("check --fix corrects 2 violations by this"), "one line of a loop: {panel}");
}

/// The advice about a missing edge is below the lanes and covers nothing. Long names stay inside the list.
#[test]
fn long_help_covers_nothing() {
    let (left, right) = ("left_".repeat(9), "right_".repeat(9));
    let text = EARLY.replace("left", &left).replace("right", &right);
    let script = "
        page.side.show('violations');
        const svg = page.picture(), y = Number(svg.match(/ y=\"([\\d.]+)\"[^>]*>missing edge</)[1]);
        const { rows } = page.order, panel = $('panel');
        return { y, foot: rows.tall - rows.scroll, wide: panel.scrollWidth, room: panel.clientWidth };";
    let Some(answer) = ask("long", &litmus("long", &text), script) else { return };
    let number = |name: &str| answer[name].as_f64().unwrap();
    assert!(number("y") > number("foot"), "{answer}");
    assert!(number("wide") <= number("room"), "{answer}");
}

/// A box has the space that its lane leaves it, and no two boxes overlap.
#[test]
fn boxes_take_the_room_of_their_lane() {
    let text = "stream left\nstream right\nx = alloc left 4096\ny = alloc right 64\nrecord e left\n\
        wait right e\nread right x\nwrite right x\nfree right y\nwrite right x\nrecord f right\n\
        wait left f\nfree left x\n";
    let script = "
        page.look({ x0: 0, x1: 10 });
        $('order').style.width = '720px';
        page.resize();
        await frame();
        const { order, lanes, view } = page, count = order.count;
        const boxes = [...Array(count).keys()].map((step) => (
            { lane: page.data.lane[step], at: lanes.x(view, step), ...lanes.boxed(step) }));
        const isOver = (a, b) => a.lane === b.lane && Math.abs(a.at - b.at) < (a.fits + b.fits) / 2;
        const y = lanes.y(0), edge = boxes[2].at + boxes[2].fits / 2;
        return { wide: lanes.wide, texts: boxes.map((box) => box.text), fits: boxes[2].fits,
            over: boxes.some((a, i) => boxes.some((b, k) => i < k && isOver(a, b))),
            hit: [lanes.at(view, edge - 2, y), lanes.at(view, edge + 3, y)] };";
    let Some(answer) = ask("boxes", &litmus("boxes", text), script) else { return };
    let wide = answer["wide"].as_f64().unwrap();
    assert!((44.0..75.0).contains(&wide), "the page has another width than this was made for: {wide}");
    assert_eq!(answer["texts"][2], "record e left", "there is nothing beside it on its lane");
    assert!(answer["fits"].as_f64().unwrap() > wide, "{answer}");
    assert_eq!((&answer["over"], &answer["hit"]), (&json!(false), &json!([2, -1])), "{answer}");
}

/// Zoomed out, operations have no text, and the legend explains the shapes.
#[test]
fn the_legend_has_each_shape_that_is_drawn() {
    let script = "
        const items = [...$('legend').querySelectorAll('.deed')];
        const painted = (item) => {
            const icon = item.querySelector('canvas');
            return icon.getContext('2d').getImageData(0, 0, icon.width, icon.height).data.some((byte) => byte);
        };
        return { words: items.map((item) => item.textContent), painted: items.every(painted) };";
    let Some(answer) = ask("shapes", &litmus("shapes", EARLY), script) else { return };
    assert_eq!(answer["words"], json!(["alloc", "free", "kernel", "record", "wait"]));
    assert_eq!(answer["painted"], true);
    let host = EARLY.replace("free left x ", "synchronize left\nfree left x ");
    let Some(answer) = ask("shapes-host", &litmus("shapes-host", &host), script) else { return };
    assert_eq!(answer["words"], json!(["alloc", "free", "kernel", "record", "wait", "synchronize"]));
}

/// The axis of memory fits small memory, too: it is as high as the live memory, for any sizes.
#[test]
fn the_axis_of_memory_ends_where_the_memory_does() {
    let script = "return { top: page.view.y1, height: page.data.meta.height, ceiling: page.data.ceiling,
        starts: [...page.data.start], low: (page.mode = 'size', page.recolour(), page.ends[0]) };";
    let text = "stream s\na = alloc s 64\nwrite s a\nfree s a\n";
    let Some(answer) = ask("small", &litmus("small", text), script) else { return };
    assert_eq!([&answer["top"], &answer["height"], &answer["low"]], [&json!(64), &json!(64), &json!(64)]);
    assert!(answer["ceiling"].as_f64() < Some(80.0), "{answer}");
    let text = "stream s\na = alloc s 64\nb = alloc s 100\nc = alloc s 4096\nfree s a\nfree s b\nfree s c\n";
    let Some(answer) = ask("small-three", &litmus("small-three", text), script) else { return };
    assert_eq!((&answer["top"], &answer["starts"]), (&json!(4260), &json!([0, 64, 164])));
}

/// Arrows end outside of the drawn operations, even with the lowest lanes.
#[test]
fn arrows_end_outside_of_boxes() {
    let lanes: String = (0..24).map(|at| format!("stream s{at}\nx{at} = alloc s{at} 64\nfree s{at} x{at}\n")).collect();
    let text =
        format!("{lanes}x = alloc s0 64\nrecord e s0\nwait s23 e\nread s23 x\nrecord f s23\nwait s0 f\nfree s0 x\n");
    let script = "
        const { lanes, data } = page;
        const ends = () => [...data.arrowFrom].flatMap((from, at) => {
            const to = data.arrowTo[at], { y0, y1 } = lanes.route(from, to);
            const clear = (lane, y) => Math.abs(y - lanes.y(lane)) - lanes.edge(lane);
            return [clear(data.lane[from], y0), clear(data.lane[to], y1)];
        });
        page.look({ x0: page.data.steps - 9, x1: page.data.steps });
        await frame();
        const boxed = { wide: lanes.wide, drawn: lanes.boxed(1).high / 2, edge: lanes.edge(0), ends: ends() };
        lanes.wide = 30;
        return { high: lanes.high, boxed, shapes: { drawn: 9.8, edge: lanes.edge(0), ends: ends() } };";
    let Some(answer) = ask("ends", &litmus("ends", &text), script) else { return };
    assert_eq!(answer["high"], 26, "the lanes are as low as they get: {answer}");
    assert!(answer["boxed"]["wide"].as_f64() > Some(44.0), "{answer}");
    for at in [&answer["boxed"], &answer["shapes"]] {
        assert!(at["edge"].as_f64() >= at["drawn"].as_f64(), "{at}");
        let ends = at["ends"].as_array().unwrap();
        assert_eq!(ends.len(), 4);
        assert!(ends.iter().all(|end| end.as_f64() > Some(0.0)), "an arrow ends below a mark: {at}");
    }
}

/// An arrow avoids the boxes of the lanes that it crosses.
#[test]
fn arrows_cross_lanes_where_there_is_no_box() {
    let text = "stream s\nstream t\nh = alloc host 64\na = alloc s 64\nwrite s a\nsynchronize s\nhost write h\n\
        record made s\nwait t made\nread t a\nrecord done t\nwait s done\nfree s a\nfree now h\n";
    let script = "
        const { lanes, data, order } = page, crossing = [];
        const points = { moveTo: (x, y) => line.push([x, y]), lineTo: (x, y) => line.push([x, y]),
            bezierCurveTo: (ax, ay, bx, by, x, y) => {
                const [x0, y0] = line[line.length - 1];
                for (let at = 1; at <= 50; at++) {
                    const t = at / 50, u = 1 - t;
                    const of = (a, b, c, d) => u ** 3 * a + 3 * u * u * t * b + 3 * u * t * t * c + t ** 3 * d;
                    line.push([of(x0, ax, bx, x), of(y0, ay, by, y)]);
                }
            } };
        let line = [];
        const boxes = [...Array(order.count).keys()].map((step) => {
            const { fits, high } = lanes.boxed(step), x = lanes.x(page.view, step), y = lanes.y(data.lane[step]);
            return { step, left: x - fits / 2, right: x + fits / 2, top: y - high / 2, foot: y + high / 2 };
        });
        let longest = 0;
        data.arrowFrom.forEach((from, at) => {
            const to = data.arrowTo[at], pen = lanes.pen;
            longest = Math.max(longest, Math.abs(data.lane[from] - data.lane[to]));
            const route = lanes.route(from, to);
            line = [];
            lanes.pen = points;
            lanes.follow(route);
            lanes.pen = pen;
            for (const { step, left, right, top, foot } of boxes) {
                const isIn = ([x, y]) => x > left && x < right && y > top && y < foot;
                if (line.some(isIn)) crossing.push([from, to, step]);
            }
        });
        return { longest, crossing, wide: lanes.wide };";
    let Some(answer) = ask("crossing", &litmus("crossing", text), script) else { return };
    assert!(answer["wide"].as_f64() >= Some(44.0), "operations are boxes: {answer}");
    assert_eq!((&answer["longest"], &answer["crossing"]), (&json!(2), &json!([])));
}

#[test]
fn a_range_has_sums_and_keys_do_what_the_pointer_does() {
    let script = "
        const press = (key, target = document.body) =>
            target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        page.select([-1, 2.2]);
        const sums = $('panel').textContent;
        press('Escape');
        $('order').focus();
        press('ArrowRight', $('order'));
        const first = page.operation;
        press('ArrowRight', $('order'));
        const second = page.operation;
        press('ArrowDown', $('order'));
        const below = page.operation, said = $('live').textContent;
        press('v');
        return { sums, first, second, below, said, mark: page.mark,
            tab: document.querySelector('[aria-selected=true]').id,
            rows: [...document.querySelectorAll('#panel .row')].every((row) => row.tagName === 'BUTTON') };";
    let Some(answer) = ask("keys", &litmus("keys", EARLY), script) else { return };
    let sums = answer["sums"].as_str().unwrap();
    assert!(sums.contains("allocated4.00 KiB by 1 allocation") && sums.contains("freed0 B by 0 frees"), "{sums}");
    assert_eq!([&answer["first"], &answer["second"], &answer["below"]], [&json!(0), &json!(1), &json!(3)]);
    assert_eq!(answer["said"], "wait right e, right, op 1");
    assert_eq!(
        (&answer["mark"], &answer["tab"], &answer["rows"]),
        (&json!(0), &json!("tab-violations"), &Value::Bool(true))
    );
}

#[test]
fn a_block_leads_to_its_operations_and_back() {
    let script = "return { of: page.order.operationsOf(0), by: [0, 1, 4, 5].map((step) => page.order.memoryOf(step)),
        none: page.order.memoryOf(2), facts: page.order.facts(3).map((pair) => pair.join(': ')) };";
    let Some(answer) = ask("ties", &litmus("ties", EARLY), script) else { return };
    assert_eq!(answer["of"], json!([0, 1, 4, 5]));
    assert_eq!(answer["by"], json!([[[0, 0]], [[0, 3]], [[0, 2]], [[0, 1]]]), "allocates, writes, reads, frees");
    assert_eq!(answer["none"], json!([]));
    assert!(
        answer["facts"][2].as_str().unwrap().starts_with("comes after: record e left (left, op 3), by event"),
        "{}",
        answer["facts"]
    );
}

/// The colours of streams as colour-blind people see them (Machado, Oliveira and Fernandes 2009, severity 1): any two
/// differ, in both themes, and differ from the red of mistakes.
#[test]
fn colours_are_told_apart_by_colour_blind_people() {
    let script = include_str!("colours.js");
    let Some(answer) = ask("colours", &litmus("colours", EARLY), script) else { return };
    let least = answer[0][0].as_f64().unwrap();
    assert!(least >= 15.0, "the nearest are {answer:#}");
}

/// Two devices, with two streams on the second one.
const DEVICES: &str = "pool p\ngrant p to 1\nstream a\nstream b on 1\nstream c on 1\nx = alloc a 4096 from p\n\
    write a x\nrecord e a\nwait b e\nread b x\ny = alloc c 512\nwrite c y\nfree c y\n\
    free a x      !! free-before-use\n";

#[test]
fn lanes_stand_below_their_device_which_closes() {
    let script = "
        const { rows } = page.order;
        const groups = () => rows.groups.map(({ name, from, to, isShut }) => [name, from, to, isShut]);
        const middle = (at) => rows.groupY(rows.groups[at]), box = $('order').getBoundingClientRect();
        const open = { groups: groups(), lanes: page.order.lanes.map((lane) => lane.name),
            y: [rows.y(0), middle(0), rows.y(1), middle(1), rows.y(2), rows.y(3)] };
        const svg = page.picture(), where = page.order.where(5);
        const clientX = box.left + 8, clientY = box.top + middle(1);
        $('order').dispatchEvent(new MouseEvent('click', { clientX, clientY }));
        await frame();
        const closed = { groups: groups(), y: [middle(1), rows.y(2), rows.y(3)], said: $('live').textContent,
            nearest: page.order.title(page.lanes.at(page.view, page.lanes.x(page.view, 7), rows.y(2))) };
        page.pick(5);
        const revealed = groups().map((group) => group[3]);
        document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'd', bubbles: true }));
        return { open, svg, where, closed, revealed, all: groups().map((group) => group[3]) };";
    let Some(answer) = ask("devices", &litmus("devices", DEVICES), script) else { return };
    let open = &answer["open"];
    assert_eq!(open["lanes"], json!(["host", "a", "b", "c"]));
    assert_eq!(open["groups"], json!([["device 0", 1, 2, false], ["device 1", 2, 4, false]]));
    let y: Vec<f64> = open["y"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
    assert!(
        y.windows(2).all(|pair| pair[0] + 10.0 < pair[1]),
        "each lane below its device, in a row of its own: {y:?}"
    );
    let svg = answer["svg"].as_str().unwrap();
    assert!(svg.contains(">device 0</text>") && svg.contains(">device 1</text>"), "{svg}");
    assert_eq!(answer["where"], "b (device 1), op 2");
    let closed = &answer["closed"];
    assert_eq!(closed["groups"][1][3], true);
    assert!(closed["y"][0] == closed["y"][1] && closed["y"][1] == closed["y"][2], "all in one row: {closed}");
    assert_eq!((&closed["said"], &closed["nearest"]), (&json!("device 1 closed"), &json!("write c y")));
    assert_eq!(answer["revealed"], json!([false, false]), "what is held is shown");
    assert_eq!(answer["all"], json!([true, true]));
}
