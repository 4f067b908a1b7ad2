//! The checker forgets completed work: its tables are as large after ten million operations as after a few.

use millpond_core::check::{Checker, Settings};
use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Names, Op, Place, StreamRole, Trust, What};
use smallvec::smallvec;

fn op(what: What) -> Op {
    Op { host: HostId(0), place: Place::Line(1), what }
}

#[test]
fn memory_is_flat_in_the_length_of_the_program() {
    const ROUNDS: u64 = 700_000;
    let (mut checker, mut findings, names) = (Checker::new(Settings::default()), Vec::new(), Names::new());
    let kept = Memory::first(1_000);
    let long_lived = StreamId(1);
    let create = |stream| op(What::StreamCreate { stream, role: StreamRole::Blocking, device: DeviceId(0) });
    let alloc = |memory, stream| op(What::Alloc { memory, pool: PoolId(0), stream, bytes: 64, name: None });
    let read = |memory, stream, act| {
        let accesses = smallvec![Access::whole(memory, act)];
        op(What::Launch { stream, accesses, trust: Trust::None, name: None })
    };
    let mut count = 0_u64;
    let mut check = |op: Op, checker: &mut Checker, findings: &mut Vec<_>| {
        count += 1;
        checker.check(&op, &names, findings);
    };
    check(create(long_lived), &mut checker, &mut findings);
    check(alloc(kept, long_lived), &mut checker, &mut findings);
    let mut entries = Vec::new();
    for round in 0..ROUNDS {
        // A stream, an event and an allocation for each round. The numbers of events and allocations are used again.
        let stream = StreamId(2 + round as u32);
        let event = EventId(round as u32 % 8);
        let memory = Memory { generation: round / 16, ..Memory::first(round as u32 % 16) };
        let record = |stream| op(What::EventRecord { event, stream, external: false, kind: EventKind::Completion });
        let wait = |stream| op(What::EventWait { event, stream, external: false });
        for op in [
            create(stream),
            record(long_lived),
            wait(stream),
            alloc(memory, stream),
            read(memory, stream, Act::Write),
            read(kept, stream, Act::Read),
            read(kept, stream, Act::Read),
            record(stream),
            wait(long_lived),
            read(memory, long_lived, Act::Read),
            op(What::Free { memory, stream: long_lived, trust: Trust::None }),
            read(kept, long_lived, Act::Read),
            op(What::EventDestroy { event }),
            op(What::StreamDestroy { stream }),
            op(What::StreamSynchronize { stream: long_lived }),
        ] {
            check(op, &mut checker, &mut findings);
        }
        if round % 100_000 == 99_999 {
            entries.push(checker.entries());
        }
    }
    assert!(findings.is_empty(), "{}", findings[0]);
    assert!(count > 10_000_000, "{count} operations");
    // Freed names are remembered up to a bound. From then on nothing grows.
    assert_eq!(entries[2], entries[6], "{entries:?}");
}
