//! In which order locks may be taken.
//!
//! A thread that waits for a lock holds none of a later rank, so that no two threads wait for each other. Where several
//! locks of one rank are held at once, those have an order of their own, which is said here.

/// The ranks, first what may be taken first, each with its name and whether a thread may hold several.
macro_rules! ranks {
    ($($(#[doc = $doc:literal])* $rank:ident $name:literal $($several:ident)?;)*) => {
        #[derive(Clone, Copy)]
        #[repr(u8)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Number { $($rank),* }

        $($(#[doc = $doc])* pub(crate) const $rank: u8 = Number::$rank as u8;)*

        #[cfg(debug_assertions)]
        const ALL: &[(&str, bool)] = &[$(($name, ranks!(@ $($several)?))),*];
    };
    (@) => { false };
    (@ several) => { true };
}

ranks! {
    /// The program's own code runs under it, as if nothing were held. It is never waited for: launches of one instance
    /// come one after the other.
    KERNEL "a kernel" several;
    PER_THREAD "the threads' streams";
    CURRENT_POOL "the current pool";
    TRUSTED_USERS "who uses trusted memory";
    TRUSTED_STREAMS "trusted streams";
    EXPORTER "the exporter";
    PEER_TURN "whose turn it is to ask an exporter";
    DESK "what is lent";
    CONNECTIONS "the connections";
    /// The legacy stream's may be held while another stream's is taken.
    STREAM "a stream" several;
    UNCLOSED "streams that are not closed yet";
    LET_GO "what kept them open";
    RUN "an instance's launches";
    CAPTURES "captures in progress";
    GRAPH_MEMORY "the graphs' memory";
    EXECS "the instances";
    ARENAS "the arenas";
    CLOSING_ARENAS "arenas that are gone";
    SPARE_RANGES "addresses of arenas that are gone";
    ARENA_RANGES "an arena's ranges";
    ARENA_NODES "an arena's nodes";
    FREE_NODES "which graph has a free node";
    INSTANCE "a graph's only instance";
    ORPHANS "memory of instances that are gone";
    CAPTURED "what captures allocate";
    DEVICES "the devices";
    PEERS "the exporters that are imported from";
    OUTPUT_NUMBERS "what launches leave, by number";
    /// Nothing is received, sent, accepted or closed under it.
    CONNECTION "a connection";
    FETCHED "what an importer fetched";
    IMPORTS "what is imported";
    HEAP "a pool's heap";
    POOLS "the pools";
    CLOSING "pools that are gone";
    /// In the order of their numbers.
    LIFE "a life" several;
    /// In the order of their devices and pools.
    GRANTS "a pool's grants" several;
    MET "devices that met others";
    OUTPUT_NAMES "what launches leave";
    OUTPUTS_ENDED "what launches left";
    GRAPH_FREES "the graphs' frees";
    NATIVE_ALONE "a graph's native instance";
    NATIVE_NODES "a native graph's nodes";
    EXTERNAL "an external event";
    LEGACY_LAST "the legacy stream's last operation";
    LEGACY_NOTED "what the legacy stream comes after";
    WINDOW "an import's addresses";
    RETURNS "imports to give back";
    PEER_UNSAID "what an exporter does not know yet";
    PEER_CHUNKS "an exporter's chunks";
    AWAITS "events of other processes";
    ALLOWED "who may import";
    TIMES "times of other processes";
    BELL_RUNG "who rang";
    BELL_MADE "turns of the exporter";
    ABROAD "chains of other processes";
    RETIRED "pinned memory that was dropped";
    SLOTS "numbers of chains";
    CHAINS "the chains";
    IN_FLIGHT "what is in flight";
    HOST "what the host knows";
    ENDS_AHEAD "the end that is asked for first";
    STRAYS "ends of launches";
    LAUNCH_END "the end of a launch";
    TRACED_SHARES "names of what is shared";
    TRACED_NODES "names of alloc nodes";
    TRACED_REFUSED "nodes that were refused";
    REPORTED "what was reported";
    STREAM_NAMES "names of streams";
    TRACES_ASKED_FOR "the traces that the environment asks for";
    TRACES "the traces";
    TRACE_OUTPUT "a trace";
}

/// Says that this thread holds a lock of a rank, for as long as it is there.
#[cfg(not(debug_assertions))]
pub(crate) struct Held<const RANK: u8>;

#[cfg(not(debug_assertions))]
impl<const RANK: u8> Held<RANK> {
    /// The lock may be waited for.
    #[inline]
    pub(crate) fn in_order() -> Self {
        Self
    }

    /// The lock is taken, and was not waited for.
    #[inline]
    pub(crate) fn tried() -> Self {
        Self
    }
}

#[cfg(debug_assertions)]
pub(crate) use checked::Held;

/// Locks from this rank on may be waited for here, in builds with debug assertions: see [`Held::in_order`].
#[track_caller]
#[inline]
pub(crate) fn may_wait<const RANK: u8>() {
    // While a panic passes there would be no second one, but an abort.
    if !std::thread::panicking() {
        drop(Held::<RANK>::in_order());
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::Cell;

    use super::{ALL, KERNEL};

    thread_local! {
        /// How many locks of each rank this thread holds.
        static HELD: [Cell<u32>; ALL.len()] = const { [const { Cell::new(0) }; ALL.len()] };
    }

    pub(crate) struct Held<const RANK: u8>(());

    impl<const RANK: u8> Held<RANK> {
        /// The lock may be waited for.
        ///
        /// # Panics
        /// This thread holds one that comes later.
        #[track_caller]
        pub(crate) fn in_order() -> Self {
            if RANK == KERNEL {
                return Self(());
            }
            let comes_later = |(rank, held): (usize, &Cell<u32>)| {
                let may_be = rank < RANK as usize || (rank == RANK as usize && ALL[rank].1);
                (held.get() > 0 && !may_be).then_some(rank)
            };
            if let Some(later) = HELD.with(|held| held.iter().enumerate().find_map(comes_later)) {
                let (wanted, later) = (ALL[RANK as usize].0, ALL[later].0);
                panic!("this thread holds the lock of {later} and waits for that of {wanted}, which comes first");
            }
            Self::tried()
        }

        /// The lock is taken, and was not waited for.
        pub(crate) fn tried() -> Self {
            Self::count(|held| held + 1);
            Self(())
        }

        fn count(change: impl FnOnce(u32) -> u32) {
            if RANK != KERNEL {
                HELD.with(|held| held[RANK as usize].update(change));
            }
        }
    }

    impl<const RANK: u8> Drop for Held<RANK> {
        fn drop(&mut self) {
            Self::count(|held| held - 1);
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use crate::sync::locks::{Biased, Mutex, lock};
    use crate::sync::ranks;

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (stream, other) = (Biased::<{ ranks::STREAM }, _>::new(0), Biased::<{ ranks::STREAM }, _>::new(0));
        let heap = Mutex::<{ ranks::HEAP }, _>::new(0);
        {
            let (_stream, _other) = (stream.lock(), other.lock());
            let _heap = lock(&heap);
        }
        let _heap = lock(&heap);
        assert!(stream.try_lock().is_some(), "it is not waited for");
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(stream.lock()))).unwrap_err();
        let text = held.downcast_ref::<String>().expect("a message");
        let right = "this thread holds the lock of a pool's heap and waits for that of a stream, which comes first";
        assert_eq!(text, right);
        let second = Mutex::<{ ranks::HEAP }, _>::new(0);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock(&second)))).unwrap_err();
    }
}
