//! What holds for every program that was read: the invariants of `recorded::program`, against its events.

use millpond_cli::recorded::program::{BYTES_MAX, Event, Leftover, Program};

/// # Panics
/// An invariant does not hold.
pub(crate) fn audit(program: &Program) {
    let mut live: Vec<Option<Leftover>> = Vec::new();
    let (mut bytes_live, mut peak_bytes, mut streams) = (0_u64, 0, 0);
    for event in &program.events {
        let stream = match *event {
            Event::Alloc { id, bytes, stream } => {
                assert_eq!(id as usize, live.len(), "dense-ids: allocations are counted up");
                assert!(bytes > 0, "an allocation has bytes");
                bytes_live += bytes;
                live.push(Some(Leftover { id, bytes, stream }));
                stream
            }
            Event::Free { id, stream } => {
                let freed = live.get_mut(id as usize).and_then(Option::take);
                bytes_live -= freed.expect("one-life: what is freed is live").bytes;
                stream
            }
        };
        assert!(stream <= streams, "dense-ids: streams are counted in the order of their first use");
        streams = streams.max(stream + 1);
        assert!(bytes_live <= BYTES_MAX, "live-sum");
        peak_bytes = peak_bytes.max(bytes_live);
    }
    assert_eq!((program.allocations as usize, program.streams, program.peak_bytes), (live.len(), streams, peak_bytes));
    assert!(live.into_iter().flatten().eq(program.leftovers.iter().copied()), "leftovers are what stays live");
    assert!(!program.events.is_empty(), "a program has a step");
}
