//! Encodes a scene for the page, and writes the page.
//!
//! Small data is JSON. Large data is in columns, one after the other. Each number is a little-endian base-128 varint.
//! The columns are deflated and encoded in base 64. `page/data.js` reads them in this order:
//!
//! | column | one for each | value |
//! |---|---|---|
//! | born | life | steps since the life before |
//! | lasts | life | steps up to its free; 0 if it was never freed |
//! | size | life | index in `meta.sizes` |
//! | stream, free stream | life | numbers |
//! | start | life | offset since the life before, in `meta.grain` bytes, zigzag |
//! | name, site, free site | life | indexes in `meta.strings` |
//! | step, bytes | change of the reserved bytes | steps since the change before; bytes |
//! | count | life | the number of its uses (no column if there are no uses) |
//! | step | use | steps since the use before it, or the birth of its life |
//! | stream | use | number |
//! | writes | use | 0 or 1 |
//! | lane, deed, label, site | operation | indexes in `meta.lanes`, `deeds`, `strings`, `strings` |
//! | number | operation | its number in its stream, from 1; 0 for none |
//! | graph | operation | index in `meta.graphs` plus 1; 0 for none |
//! | refused | operation | 0 or 1 |
//! | to, length, tie | arrow | steps since the arrow before; steps from its begin; index in `meta.ties` |
//! | step, bytes | change of the recorded run's reserved bytes | steps since the change before; bytes |
//! | stack | life | index in `meta.stacks` (no column if there are none) |
//! | time | step | microseconds since the step before (no column if times are unknown) |
//! | pool | life | index in `meta.pools` plus 1; 0 for none (no column if there are none) |

use std::collections::HashMap;
use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use millpond_core::units::Range;
use serde::Serialize;

use super::addresses::Packed;
use super::scene::{EdgeKind, OperationKind, Scene};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
const SCRIPTS: [&str; 12] = [
    include_str!("page/words.js"),
    include_str!("page/data.js"),
    include_str!("page/rows.js"),
    include_str!("page/order.js"),
    include_str!("page/lanes.js"),
    include_str!("page/svg.js"),
    include_str!("page/charts.js"),
    include_str!("page/search.js"),
    include_str!("page/side.js"),
    include_str!("page/graph.js"),
    include_str!("page/input.js"),
    include_str!("page/main.js"),
];

/// The JSON for the page: the small data of a scene, and the sizes of its columns.
#[derive(Serialize)]
struct Meta<'a> {
    #[serde(flatten)]
    scene: &'a Scene,
    allocations: usize,
    events: usize,
    reserved: usize,
    uses: usize,
    height: u64,
    grain: u64,
    /// Offsets with their addresses. The addresses are text, because JavaScript numbers cannot hold them.
    seams: Vec<(u64, String)>,
    sizes: &'a [u64],
    operations: usize,
    arrows: usize,
    deeds: [&'static str; OperationKind::NAMES.len()],
    ties: [&'static str; EdgeKind::NAMES.len()],
    recorded: usize,
    /// The number of the scene's strings, after the first, that are frames.
    frames: usize,
    times: usize,
}

/// Writes the page. Returns its size in bytes.
pub(super) fn write_page(out: &mut dyn Write, scene: &Scene) -> io::Result<u64> {
    let ranges = scene.lives.iter().map(|life| Range::new(life.address, life.bytes));
    let packed = Packed::of(ranges);
    let grain = packed.grain(scene.lives.iter().map(|life| life.address));
    let sizes = Sizes::of(scene);
    let meta = Meta {
        scene,
        allocations: scene.lives.len(),
        events: scene.events(),
        reserved: scene.reserved.len(),
        uses: scene.uses.len(),
        height: packed.height,
        grain,
        seams: packed.seams.iter().map(|&(offset, address)| (offset, address.to_string())).collect(),
        sizes: &sizes.all,
        operations: scene.operations.len(),
        arrows: scene.arrows.len(),
        deeds: OperationKind::NAMES,
        ties: EdgeKind::NAMES,
        recorded: scene.recorded.len(),
        frames: scene.frames.len(),
        times: scene.times.len(),
    };
    // Inside a script element only `<` could end the script.
    let meta = serde_json::to_string(&meta)?.replace('<', "\\u003c");
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::best());
    deflated.write_all(&columns(scene, &packed, grain, &sizes))?;
    let data = BASE64_STANDARD.encode(deflated.finish()?);
    let title = escaped(&scene.name);
    let script = format!("'use strict';\n(() => {{\n{}\n}})();", SCRIPTS.join("\n"));
    let parts =
        [("@TITLE@", title.as_str()), ("@STYLE@", STYLE), ("@META@", &meta), ("@DATA@", &data), ("@SCRIPT@", &script)];
    let (mut rest, mut bytes) = (PAGE, 0);
    for (mark, part) in parts {
        let (before, after) = rest.split_once(mark).expect("the page has each mark once, in this order");
        out.write_all(before.as_bytes())?;
        out.write_all(part.as_bytes())?;
        bytes += (before.len() + part.len()) as u64;
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    Ok(bytes + rest.len() as u64)
}

/// The distinct sizes of allocations.
struct Sizes {
    all: Vec<u64>,
    places: HashMap<u64, u64>,
}

impl Sizes {
    fn of(scene: &Scene) -> Self {
        let mut sizes = Self { all: Vec::new(), places: HashMap::new() };
        for life in &scene.lives {
            sizes.places.entry(life.bytes).or_insert_with(|| {
                sizes.all.push(life.bytes);
                sizes.all.len() as u64 - 1
            });
        }
        sizes
    }
}

/// Returns all columns, one after the other.
fn columns(scene: &Scene, packed: &Packed, grain: u64, sizes: &Sizes) -> Vec<u8> {
    let mut out = Vec::with_capacity(scene.lives.len() * 12);
    let mut column = |numbers: &mut dyn Iterator<Item = u64>| numbers.for_each(|number| push_varint(&mut out, number));
    let lives = &scene.lives;
    column(&mut differences(lives.iter().map(|life| life.born)));
    column(&mut lives.iter().map(|life| life.freed.map_or(0, |freed| freed.saturating_sub(life.born).max(1))));
    column(&mut lives.iter().map(|life| sizes.places[&life.bytes]));
    column(&mut lives.iter().map(|life| u64::from(life.stream)));
    column(&mut lives.iter().map(|life| u64::from(life.free_stream)));
    let mut last = 0;
    column(&mut lives.iter().map(|life| {
        let at = (packed.offset(life.address) / grain) as i64;
        zigzag(at - std::mem::replace(&mut last, at))
    }));
    column(&mut lives.iter().map(|life| u64::from(life.name)));
    column(&mut lives.iter().map(|life| u64::from(life.site)));
    column(&mut lives.iter().map(|life| u64::from(life.free_site)));
    column(&mut differences(scene.reserved.iter().map(|&(step, _)| step)));
    column(&mut scene.reserved.iter().map(|&(_, bytes)| bytes));
    if !scene.uses.is_empty() {
        push_uses(scene, &mut column);
    }
    push_operations(scene, &mut column);
    column(&mut differences(scene.recorded.iter().map(|&(step, _)| step)));
    column(&mut scene.recorded.iter().map(|&(_, bytes)| bytes));
    column(&mut scene.life_stacks.iter().map(|&stack| u64::from(stack)));
    column(&mut differences(scene.times.iter().copied()));
    column(&mut scene.life_pools.iter().map(|&pool| u64::from(pool)));
    out
}

/// Appends a column.
type Push<'a> = &'a mut dyn FnMut(&mut dyn Iterator<Item = u64>);

fn push_operations(scene: &Scene, column: Push<'_>) {
    let operations = &scene.operations;
    column(&mut operations.iter().map(|it| u64::from(it.lane)));
    column(&mut operations.iter().map(|it| it.kind as u64));
    column(&mut operations.iter().map(|it| u64::from(it.label)));
    column(&mut operations.iter().map(|it| u64::from(it.site)));
    column(&mut operations.iter().map(|it| it.number));
    column(&mut operations.iter().map(|it| u64::from(it.graph)));
    column(&mut operations.iter().map(|it| u64::from(it.is_refused)));
    column(&mut differences(scene.arrows.iter().map(|arrow| arrow.to)));
    column(&mut scene.arrows.iter().map(|arrow| arrow.to - arrow.from));
    column(&mut scene.arrows.iter().map(|arrow| arrow.kind as u64));
}

fn push_uses(scene: &Scene, column: Push<'_>) {
    let lives = &scene.lives;
    let mut counts = vec![0_u64; lives.len()];
    scene.uses.iter().for_each(|it| counts[it.life as usize] += 1);
    column(&mut counts.into_iter());
    let mut before = (u32::MAX, 0);
    column(&mut scene.uses.iter().map(|it| {
        let since = if before.0 == it.life { before.1 } else { lives[it.life as usize].born };
        before = (it.life, it.step);
        it.step.saturating_sub(since)
    }));
    column(&mut scene.uses.iter().map(|it| u64::from(it.stream)));
    column(&mut scene.uses.iter().map(|it| u64::from(it.writes)));
}

/// Returns the difference of each number to the one before. The numbers ascend.
fn differences(numbers: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut last = 0;
    numbers.map(move |number| number - std::mem::replace(&mut last, number))
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number > 127 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Escapes text that stands between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
