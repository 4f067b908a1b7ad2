//! The time of a frame, and of a search, with many operations, and that nothing is left out to save time.

use std::path::{Path, PathBuf};

use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Name, Names, Op, Place, StreamRole, Trust, What};
use millpond_core::trace::ops::Writer;
use serde_json::Value;

use super::browser::ask;
use super::{page, to};

/// Makes a trace of about so many operations: streams that allocate, compute, pass on by events, and free.
fn long_trace(operations: u32) -> PathBuf {
    let (mut names, mut writer) = (Names::new(), Writer::new());
    let kernels: Vec<Name> = (0..40).map(|at| names.intern(&format!("layer{at}.forward"))).collect();
    let file = names.intern("train.py");
    let mut bytes = Vec::new();
    let mut push = |what, line| {
        writer.push(&Op { host: HostId(0), place: Place::File { file, line }, what }, &names);
        if line % 64 == 0 {
            bytes.extend(writer.seal());
        }
    };
    let (pool, streams) = (PoolId(1), 8);
    for stream in 1..=streams {
        push(
            What::StreamCreate { stream: StreamId(stream), role: StreamRole::NonBlocking, device: DeviceId(0) },
            stream,
        );
    }
    push(What::PoolCreate { pool, exportable: false, device: None }, 9);
    for round in 0..operations / 8 {
        let (own, other) = (StreamId(1 + round % streams), StreamId(1 + (round * 5 + 3) % streams));
        let (memory, event, line) = (Memory::first(round), EventId(round % 64), 10 + round % 97);
        let name = Some(kernels[(round % 40) as usize]);
        let size = 512 << (round * 7 % 13);
        let launch = |stream, act| What::Launch {
            stream,
            accesses: [Access::whole(memory, act)].into_iter().collect(),
            trust: Trust::None,
            name,
        };
        push(What::Alloc { memory, pool, stream: own, bytes: size, name: None }, line);
        push(launch(own, Act::Write), line + 1);
        push(What::EventRecord { event, stream: own, external: false, kind: EventKind::Completion }, line + 2);
        push(What::EventWait { event, stream: other, external: false }, line + 3);
        push(launch(other, Act::Read), line + 4);
        push(What::EventRecord { event, stream: other, external: false, kind: EventKind::Completion }, line + 5);
        push(What::EventWait { event, stream: own, external: false }, line + 6);
        push(What::Free { memory, stream: own, trust: Trust::None }, line + 7);
    }
    bytes.extend(writer.finish());
    let path = to(&format!("long{operations}.trace"));
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Makes a recording of so many allocations and frees, two hundred of which are live at a time.
fn long_recording(events: u32) -> PathBuf {
    let (mut text, mut live, mut born) = ("{\"name\": \"dense\"}\n".to_owned(), Vec::new(), 0_u32);
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..events {
        if live.is_empty() || live.len() < 200 && random.u8(..) < 154 {
            text += &format!("[\"a\", {born}, {}, {}]\n", 512 << (born * 7 % 13), born % 4);
            live.push(born);
            born += 1;
        } else {
            let id = live.swap_remove(random.usize(..live.len()));
            text += &format!("[\"f\", {id}, {}]\n", id % 4);
        }
    }
    let path = to(&format!("dense{events}.jsonl"));
    std::fs::write(&path, text).unwrap();
    path
}

/// The script of the measurement.
const MEASURE: &str = include_str!("frames.js");

fn measure(file: &Path) -> Option<Value> {
    let name = file.file_stem().unwrap().to_str().unwrap();
    ask(name, &page(file), MEASURE)
}

#[test]
fn frames_are_short_and_typing_is_not_held_up() {
    let Some(answer) = measure(&long_trace(200_000)) else { return };
    assert_eq!(answer["operations"], 200_000);
    assert!(answer["found"].as_u64() > Some(0));
    for (zoom, times) in answer["frames"].as_object().unwrap() {
        // Four times the bound of the measurement below, for a machine with other work.
        assert!(times["middle"].as_f64() < Some(64.0), "at zoom {zoom}: {answer:#}");
    }
    assert!(answer["held"].as_f64() < Some(1000.0), "{answer:#}");
}

/// Blocks are skipped only if they are hidden: the picture equals that of all blocks, painted one by one.
#[test]
fn no_block_is_missing() {
    for file in [long_trace(100_000), long_recording(100_000)] {
        let name = format!("painted-{}", file.file_stem().unwrap().display());
        let Some(answer) = ask(&name, &page(&file), include_str!("painted.js")) else { return };
        for (zoom, counts) in answer.as_object().unwrap() {
            let [painted, other] = ["painted", "other"].map(|it| counts[it].as_u64().unwrap());
            assert!(painted > 10_000 && other == 0, "at zoom {zoom}: {answer:#}");
        }
    }
}

/// A measurement: a million operations, as a trace with its order and as a recording, half of which is allocations.
#[test]
#[ignore = "a measurement"]
fn a_million_operations() {
    // Half a million blocks are more than the trace has: with other work on the machine they may take two frames.
    for (file, most) in [(long_trace(1_000_000), 16.0), (long_recording(1_000_000), 32.0)] {
        let Some(answer) = measure(&file) else { return };
        println!("{}: {answer:#}", file.file_stem().unwrap().display());
        for (zoom, times) in answer["frames"].as_object().unwrap() {
            assert!(times["middle"].as_f64() < Some(most), "at zoom {zoom}: {answer:#}");
        }
    }
}
