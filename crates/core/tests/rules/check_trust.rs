//! The checker trusts what a program declares about its own order, for each operation. An operation that passed counts
//! as executed.

use millpond_core::check::{Checker, Kind, Settings};
use millpond_core::ids::{AllocId, DeviceId, EventId, GraphId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, CaptureMode, Memory, Names, Op, Place, StreamRole, Trust, What};

const MEMORY: Memory = Memory { id: AllocId(7), generation: 3 };

/// Returns the findings of a trusted program, with their lines. There are streams 1 and 2, of device 0, and stream 3,
/// of device 1.
fn told(program: &[What]) -> Vec<(usize, Kind)> {
    let mut checker = Checker::new(Settings { leaks: false, advice: false, ..Settings::default() });
    let (names, mut told) = (Names::new(), Vec::new());
    let stream = |stream, device| What::StreamCreate {
        stream: StreamId(stream),
        role: StreamRole::NonBlocking,
        device: DeviceId(device),
    };
    let streams = [stream(1, 0), stream(2, 0), stream(3, 1)];
    for (at, what) in streams.iter().chain(program).enumerate() {
        let op = Op { host: HostId(0), place: Place::Unknown, what: what.clone() };
        let mut findings = Vec::new();
        let is_done = checker.check(&op, &names, &mut findings);
        assert_eq!(is_done, findings.is_empty(), "{what:?}");
        told.extend(findings.iter().map(|it| (at - streams.len(), it.kind)));
    }
    told
}

fn alloc(stream: u32) -> What {
    What::Alloc { memory: MEMORY, pool: PoolId(0), stream: StreamId(stream), bytes: 64, name: None }
}

fn write(stream: u32, trust: Trust) -> What {
    let accesses = std::iter::once(Access::whole(MEMORY, Act::Write)).collect();
    What::Launch { stream: StreamId(stream), accesses, trust, name: None }
}

fn free(stream: u32, trust: Trust) -> What {
    What::Free { memory: MEMORY, stream: StreamId(stream), trust }
}

fn follow(stream: u32, after: u32) -> What {
    What::Follow { stream: StreamId(stream), after: StreamId(after) }
}

#[test]
fn races_pass_where_the_program_says_so_and_nothing_else_does() {
    let begin = [alloc(1), follow(2, 1), write(1, Trust::Races)];
    let after = |end: &[What]| told(&[&begin[..], end].concat());
    assert_eq!(after(&[write(2, Trust::Races)]), []);
    assert_eq!(after(&[write(2, Trust::None)]), [(3, Kind::Race)]);
    // A stream repeats an operation that was not ordered with other work.
    assert_eq!(after(&[write(2, Trust::Races), write(2, Trust::None)]), [(4, Kind::Race)]);
    assert_eq!(after(&[write(2, Trust::Races), free(2, Trust::None)]), [(4, Kind::FreeBeforeUse)]);
    assert_eq!(told(&[alloc(1), write(2, Trust::Races)]), [(1, Kind::UseBeforeAlloc)]);
    assert_eq!(told(&[alloc(1), free(1, Trust::None), write(1, Trust::Races)]), [(2, Kind::UseAfterFree)]);
}

#[test]
fn an_order_that_is_said_is_believed_of_that_operation_alone() {
    assert_eq!(told(&[alloc(1), write(2, Trust::Order)]), []);
    assert_eq!(told(&[alloc(1), write(2, Trust::Order), free(1, Trust::None)]), [(2, Kind::FreeBeforeUse)]);
    assert_eq!(told(&[alloc(1), write(2, Trust::Order), write(2, Trust::None)]), [(2, Kind::UseBeforeAlloc)]);
    assert_eq!(told(&[alloc(1), write(2, Trust::Order), free(1, Trust::Order)]), []);
    assert_eq!(told(&[alloc(1), free(2, Trust::Order), free(1, Trust::None)]), [(2, Kind::DoubleFree)]);
    assert_eq!(told(&[alloc(1), free(1, Trust::None), write(2, Trust::Order)]), [(2, Kind::UseAfterFree)]);
}

#[test]
fn what_was_let_pass_comes_after_the_stream_that_it_missed() {
    let missing = [alloc(1), write(2, Trust::None)];
    let again = |end: &[What]| told(&[&missing[..], end].concat());
    let said = (1, Kind::UseBeforeAlloc);
    assert_eq!(again(&[follow(2, 1), write(2, Trust::None), free(1, Trust::None)]), [said, (4, Kind::FreeBeforeUse)]);
    // The stream has ended: its end is what the other stream waits for.
    let ended = What::StreamDestroy { stream: StreamId(1) };
    assert_eq!(again(&[ended, follow(2, 1), write(2, Trust::None), free(2, Trust::None)]), [said]);
}

#[test]
fn a_capture_forbids_unsafe_calls_of_all_devices() {
    let (stream, graph, mode) = (StreamId(1), GraphId(0), CaptureMode::Global);
    let begin = What::CaptureBegin { stream, graph, mode, symbolic: false };
    let event = |device| What::EventCreate { event: EventId(device), device: DeviceId(device), shared: false };
    for device in [0, 1] {
        for call in [
            What::PoolCreate { pool: PoolId(9), exportable: false, device: Some(DeviceId(device)) },
            What::StreamSynchronize { stream: StreamId(if device == 0 { 2 } else { 3 }) },
            What::EventSynchronize { event: EventId(device) },
        ] {
            let found = told(&[event(0), event(1), begin.clone(), call]);
            assert_eq!(found, [(3, Kind::CaptureUnsupported)]);
        }
    }
}
