//! The cost to write an operation into a trace and to read it out.
//!
//!     cargo bench -p millpond-core --bench trace

use std::hint::black_box;
use std::panic::Location;
use std::time::Instant;

use millpond_core::ids::{AllocId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Names, Op, Place, Trust, What};
use millpond_core::trace::ops::{Reader, Writer};
use smallvec::SmallVec;

/// The rounds of the written program: 10 operations each.
const ROUNDS: u32 = 200_000;

#[track_caller]
fn op(what: What) -> Op {
    Op { host: HostId(0), place: Place::Source(Location::caller()), what }
}

/// One round of a loop over four streams: allocate, three launches, an event to another stream, a free.
fn round(turn: u32, mut push: impl FnMut(Op)) {
    let memory = |of: u32| Memory { id: AllocId(of % 64), generation: u64::from(of / 64) };
    let access = |of: u32, act| Access::whole(memory(of), act);
    let (stream, next) = (StreamId(turn % 4), StreamId((turn + 1) % 4));
    let launch = |accesses: &[Access]| What::Launch {
        stream,
        accesses: SmallVec::from_slice(accesses),
        trust: Trust::None,
        name: None,
    };
    push(op(What::Alloc { memory: memory(turn), pool: PoolId(0), stream, bytes: 4096 + u64::from(turn), name: None }));
    push(op(launch(&[access(turn, Act::Write)])));
    push(op(launch(&[access(turn, Act::Read), access(turn.wrapping_sub(1), Act::Write)])));
    push(op(launch(&[access(turn, Act::Read)])));
    push(op(launch(&[access(turn, Act::Read)])));
    let event = EventId(turn % 8);
    push(op(What::EventRecord { event, stream, external: false, kind: EventKind::Completion }));
    push(op(What::EventWait { event, stream: next, external: false }));
    push(op(launch(&[access(turn, Act::Read)])));
    push(op(launch(&[access(turn, Act::Write)])));
    push(op(What::Free { memory: memory(turn), stream, trust: Trust::None }));
}

fn main() {
    let names = Names::new();
    let mut trace = Vec::new();
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..5 {
        trace.clear();
        let (mut writer, mut ops) = (Writer::new(), 0_u64);
        let began = Instant::now();
        for turn in 0..ROUNDS {
            round(turn, |op| {
                writer.push(&op, &names);
                ops += 1;
            });
            if writer.is_full() {
                trace.append(&mut writer.seal());
            }
        }
        trace.append(&mut writer.finish());
        let write = began.elapsed().as_nanos() as f64 / ops as f64;
        let (mut reader, mut read) = (Reader::new(), 0);
        let began = Instant::now();
        for bytes in trace.chunks(1 << 16) {
            reader.feed(bytes);
            while let Some(op) = reader.next_op().expect("it was just written") {
                black_box(op);
                read += 1;
            }
        }
        assert_eq!((read, reader.is_finished()), (ops, true));
        best = (best.0.min(write), best.1.min(began.elapsed().as_nanos() as f64 / ops as f64));
    }
    let ops = f64::from(ROUNDS) * 10.0;
    println!("write {:6.1} ns an operation", best.0);
    println!("read  {:6.1} ns an operation", best.1);
    println!("size  {:6.2} bytes an operation", trace.len() as f64 / ops);
}
