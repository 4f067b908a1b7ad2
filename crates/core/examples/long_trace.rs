//! Writes a long operation trace to standard output, for measurements of programs that read one.
//!
//!     cargo run --release -p millpond-core --example long_trace -- 2000000 > long.trace
//!
//! Four streams in a loop: each round allocates, launches with three accesses, passes memory on by an event, and frees.
//! Streams and events are replaced now and then, as in a program that runs for days.

use std::io::Write;

use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Names, Op, Place, StreamRole, Trust, What};
use millpond_core::trace::ops::Writer;
use smallvec::smallvec;

fn main() -> std::io::Result<()> {
    let wanted: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2_000_000);
    let (mut writer, mut names, mut out) = (Writer::new(), Names::new(), std::io::stdout().lock());
    let file = names.intern("examples/long_trace.rs");
    let mut written = 0;
    let mut push = |line: u32, what: What| -> std::io::Result<()> {
        writer.push(&Op { host: HostId(0), place: Place::File { file, line }, what }, &names);
        written += 1;
        if writer.is_full() {
            out.write_all(&writer.seal())?;
        }
        Ok(())
    };
    let create = |stream| What::StreamCreate { stream, role: StreamRole::NonBlocking, device: DeviceId(0) };
    let (kept, other) = (Memory::first(1_000), Memory::first(1_001));
    push(1, create(StreamId(1)))?;
    push(1, create(StreamId(2)))?;
    for memory in [kept, other] {
        push(2, What::Alloc { memory, pool: PoolId(0), stream: StreamId(1), bytes: 1 << 20, name: None })?;
    }
    let (mut streams, mut made) = ([StreamId(1), StreamId(2)], 2);
    for round in 0..(wanted.saturating_sub(8) / 8) as u32 {
        let [here, there] = streams;
        let (event, generation) = (EventId(round % 16), u64::from(round / 64));
        let memory = Memory { generation, ..Memory::first(round % 64) };
        let access = Access::whole;
        let launch = |stream, accesses| What::Launch { stream, accesses, trust: Trust::None, name: None };
        push(3, What::Alloc { memory, pool: PoolId(0), stream: here, bytes: 4096, name: None })?;
        push(
            4,
            launch(here, smallvec![access(kept, Act::Read), access(other, Act::Write), access(memory, Act::Write)]),
        )?;
        push(5, What::EventRecord { event, stream: here, external: false, kind: EventKind::Completion })?;
        push(6, What::EventWait { event, stream: there, external: false })?;
        push(7, launch(there, smallvec![access(memory, Act::Read), access(kept, Act::Read)]))?;
        push(8, What::Free { memory, stream: there, trust: Trust::None })?;
        push(9, What::EventRecord { event, stream: there, external: false, kind: EventKind::Completion })?;
        push(10, What::EventWait { event, stream: here, external: false })?;
        if round % 10_000 == 9_999 {
            made += 1;
            push(11, What::StreamSynchronize { stream: there })?;
            push(12, What::StreamDestroy { stream: there })?;
            streams[1] = StreamId(made);
            push(13, create(StreamId(made)))?;
        }
    }
    for memory in [kept, other] {
        push(14, What::Free { memory, stream: StreamId(1), trust: Trust::None })?;
    }
    out.write_all(&writer.finish())?;
    eprintln!("{written} operations");
    Ok(())
}
