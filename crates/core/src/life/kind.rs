//! The rules that a program can break, with their stable names.
//!
//! A name never changes its meaning: programs and litmus files compare names.

use crate::op::Act;

/// Lists the kinds, each with its description and its stable name.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident $name:literal,)*) => {
        /// The broken rule, or the advice.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Kind { $($(#[doc = $doc])* $kind),* }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// Returns the stable name, for programs.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name),* }
            }

            /// Returns a sentence that says what the program does wrong.
            pub fn description(self) -> &'static str {
                match self { $(Kind::$kind => concat!($($doc),*).trim_start()),* }
            }
        }
    };
}

kinds! {
    /// An access is not ordered after the allocation.
    UseBeforeAlloc "use-before-alloc",
    /// An access comes after the free, or nothing puts it before.
    UseAfterFree "use-after-free",
    /// A free is not ordered after the allocation.
    FreeBeforeAlloc "free-before-alloc",
    /// A free is not ordered after an access.
    FreeBeforeUse "free-before-use",
    /// Two accesses, one of them a write, are not ordered.
    Race "race",
    /// An allocation is freed again.
    DoubleFree "double-free",
    /// A free names an allocation whose number belongs to a later allocation by now.
    StaleFree "stale-free",
    /// Memory is never freed.
    Leak "leak",
    /// A graph is launched again while memory of its last launch is not freed.
    UnfreedLaunch "unfreed-launch",
    /// A launch frees what the launch before left, and that free is not ordered after an access.
    AutoFreeBeforeUse "auto-free-before-use",
    /// An instance would use addresses at which another instance's memory is live.
    SharedAddresses "shared-addresses",
    /// A stream is used after it was destroyed.
    StreamAfterDestroy "stream-after-destroy",
    /// A name was never defined, or its object is gone.
    UnknownName "unknown-name",
    /// An event and a stream are of different devices.
    WrongDevice "wrong-device",
    /// Work of a device uses memory of another device whose pool does not grant it access.
    NoAccess "no-access",
    /// The source and the target of a copy overlap.
    Aliased "aliased",
    /// A pool is used after it was destroyed.
    PoolAfterDestroy "pool-after-destroy",
    /// Memory or an event that cannot be shared is given to another process.
    NotShareable "not-shareable",
    /// Memory is freed while another process has a lease of it.
    FreeWhileImported "free-while-imported",
    /// A side stream's captured work is not joined when the capture ends.
    CaptureUnjoined "capture-unjoined",
    /// A captured stream waits for an event from outside.
    CaptureIsolation "capture-isolation",
    /// An operation that cannot be captured: a synchronisation, a query, an immediate allocation, the legacy default
    /// stream.
    CaptureUnsupported "capture-unsupported",
    /// An event recorded in a capture is waited for, synchronised or queried as if its work ran.
    CapturedEvent "captured-event",
    /// Two captures would be merged.
    CaptureMerge "capture-merge",
    /// Memory that belongs to no graph is freed in a capture.
    CaptureForeignFree "capture-foreign-free",
    /// A capture is begun, used or ended where that is not possible, or is never ended.
    CaptureState "capture-state",
    /// An external record or wait outside of a capture.
    ExternalOutsideCapture "external-outside-capture",
    /// A graph cannot have this node or edge.
    GraphRefused "graph-refused",
    /// Advice: a wait for something that already comes before.
    RedundantWait "redundant-wait",
    /// Advice: a wait for an event that orders nothing: never recorded, or not a completion.
    EmptyWait "empty-wait",
}

impl Kind {
    /// Returns the rule that an act breaks if it does not come after the allocation.
    #[inline]
    pub fn before_alloc(act: Act) -> Kind {
        if act == Act::Free { Kind::FreeBeforeAlloc } else { Kind::UseBeforeAlloc }
    }

    /// Returns the rule that an act breaks if it does not come after a use.
    #[inline]
    pub fn before_use(act: Act) -> Kind {
        if act == Act::Free { Kind::FreeBeforeUse } else { Kind::Race }
    }

    /// Returns `true` if an edge is missing between two operations or two nodes, and adding it fixes the finding.
    pub fn is_order(self) -> bool {
        matches!(self, Kind::UseBeforeAlloc | Kind::FreeBeforeAlloc | Kind::FreeBeforeUse | Kind::Race)
    }

    /// Returns the rule that an act breaks if it comes after the free.
    #[inline]
    pub fn after_free(act: Act) -> Kind {
        if act == Act::Free { Kind::DoubleFree } else { Kind::UseAfterFree }
    }

    /// Returns the kind with a name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Returns `true` if nothing is wrong and the finding is only advice.
    pub fn is_advice(self) -> bool {
        matches!(self, Kind::RedundantWait | Kind::EmptyWait)
    }

    /// Returns `true` if the rule is one that a capture enforces.
    pub fn is_about_captures(self) -> bool {
        use Kind::*;
        matches!(self, CaptureUnjoined | CaptureIsolation | CaptureUnsupported | CapturedEvent | CaptureMerge)
            || matches!(self, CaptureForeignFree | CaptureState | ExternalOutsideCapture)
    }

    /// Returns `true` if the kind is about when work runs: in some schedule of the device, work touches memory that
    /// is not there, or one access overtakes another. The other kinds are about what a program asks for.
    pub fn is_about_order(self) -> bool {
        use Kind::*;
        matches!(self, UseBeforeAlloc | UseAfterFree | FreeBeforeAlloc | FreeBeforeUse | Race | DoubleFree | StaleFree)
            || matches!(self, AutoFreeBeforeUse | FreeWhileImported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for &kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_name("no-such-kind"), None);
    }
}
