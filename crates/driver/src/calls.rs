//! The kinds of driver calls, and the number of calls of each kind.
//!
//! Knows the names of the contract's methods, but not their effects. Counters are plain relaxed atomics, because a
//! count is a statistic and orders nothing.

use std::fmt;
use std::ops::{Index, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

/// Lists the kinds in the order of the contract, each with the method's name and CUDA's.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $cuda:literal,)*) => {
        /// The kind of a call that a tap sees: one method of [`Driver`](crate::Driver), or several similar ones. A tap
        /// does not see methods without a kind in the contract.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum CallKind { $($(#[$doc])* $kind),* }

        /// The number of kinds.
        const KINDS: usize = [$($name),*].len();

        impl CallKind {
            /// Every kind, in the order of the contract.
            pub const ALL: [CallKind; KINDS] = [$(CallKind::$kind),*];

            /// Returns the method's name.
            pub const fn name(self) -> &'static str {
                match self { $(CallKind::$kind => $name),* }
            }

            /// Returns CUDA's name of the call.
            pub const fn cuda(self) -> &'static str {
                match self { $(CallKind::$kind => $cuda),* }
            }
        }
    };
}

kinds! {
    /// [`Driver::reserve`](crate::Driver::reserve)
    Reserve "reserve" "cuMemAddressReserve",
    /// [`Driver::unreserve`](crate::Driver::unreserve)
    Unreserve "unreserve" "cuMemAddressFree",
    /// [`Driver::create`](crate::Driver::create) and [`Driver::create_shareable`](crate::Driver::create_shareable)
    Create "create" "cuMemCreate",
    /// [`Driver::destroy`](crate::Driver::destroy)
    Destroy "destroy" "cuMemRelease",
    /// [`Driver::export`](crate::Driver::export) and [`Driver::export_event`](crate::Driver::export_event)
    Export "export" "cuMemExportToShareableHandle",
    /// [`Driver::import`](crate::Driver::import) and [`Driver::import_event`](crate::Driver::import_event)
    Import "import" "cuMemImportFromShareableHandle",
    /// [`Driver::map`](crate::Driver::map)
    Map "map" "cuMemMap, cuMemSetAccess",
    /// [`Driver::unmap`](crate::Driver::unmap)
    Unmap "unmap" "cuMemUnmap",
    /// [`Driver::alloc_host`](crate::Driver::alloc_host)
    AllocHost "alloc_host" "cuMemHostAlloc",
    /// [`Driver::free_host`](crate::Driver::free_host)
    FreeHost "free_host" "cuMemFreeHost",
    /// [`Driver::can_let`](crate::Driver::can_let) and [`Driver::let_in`](crate::Driver::let_in)
    LetIn "let_in" "cuMemSetAccess",
    /// [`Driver::open_stream`](crate::Driver::open_stream) and [`adopt_stream`](crate::Driver::adopt_stream)
    OpenStream "open_stream" "cuStreamCreate",
    /// [`Driver::close_stream`](crate::Driver::close_stream)
    CloseStream "close_stream" "cuStreamDestroy",
    /// [`Driver::submit`](crate::Driver::submit)
    Submit "submit" "cuLaunchKernel and the like",
    /// [`Driver::record`](crate::Driver::record) and [`Driver::record_time`](crate::Driver::record_time)
    Record "record" "cuEventRecord",
    /// [`Driver::wait`](crate::Driver::wait)
    Wait "wait" "cuStreamWaitEvent",
    /// [`Driver::is_over`](crate::Driver::is_over) and [`Driver::elapsed`](crate::Driver::elapsed)
    IsOver "is_over" "cuEventQuery",
    /// [`Driver::block_on`](crate::Driver::block_on)
    BlockOn "block_on" "cuEventSynchronize",
    /// [`Driver::forget`](crate::Driver::forget) and [`Driver::forget_time`](crate::Driver::forget_time)
    Forget "forget" "cuEventDestroy, or the event is used again",
    /// [`Driver::instantiate`](crate::Driver::instantiate)
    Instantiate "instantiate" "cuGraphInstantiate",
    /// [`Driver::upload`](crate::Driver::upload)
    UploadGraph "upload" "cuGraphUpload",
    /// [`Driver::launch`](crate::Driver::launch)
    LaunchGraph "launch" "cuGraphLaunch",
    /// [`Driver::destroy_exec`](crate::Driver::destroy_exec)
    DestroyExec "destroy_exec" "cuGraphExecDestroy",
    /// [`Driver::begin_capture`](crate::Driver::begin_capture)
    BeginCapture "begin_capture" "cuStreamBeginCapture",
    /// [`Driver::end_capture`](crate::Driver::end_capture)
    EndCapture "end_capture" "cuStreamEndCapture",
    /// [`Driver::destroy_graph`](crate::Driver::destroy_graph)
    DestroyGraph "destroy_graph" "cuGraphDestroy",
}

impl CallKind {
    /// Returns `true` if the method can return an error.
    pub const fn can_fail(self) -> bool {
        !matches!(self, CallKind::Forget)
    }

    /// Returns `true` if the method belongs to graphs of the device's own, which not every device has.
    pub const fn is_graph(self) -> bool {
        (self as u8) >= CallKind::Instantiate as u8
    }

    /// Returns `true` if the method belongs to memory, not to streams and their work.
    pub const fn is_memory(self) -> bool {
        (self as u8) <= CallKind::LetIn as u8
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The number of calls of each kind; `later - earlier` are the calls between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallCounts([u64; KINDS]);

impl CallCounts {
    /// Returns the number of all calls.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the number of calls that belong to memory.
    pub fn memory(&self) -> u64 {
        CallKind::ALL.iter().filter(|kind| kind.is_memory()).map(|&kind| self[kind]).sum()
    }
}

impl Index<CallKind> for CallCounts {
    type Output = u64;

    fn index(&self, kind: CallKind) -> &u64 {
        &self.0[kind as usize]
    }
}

impl Sub for CallCounts {
    type Output = CallCounts;

    fn sub(self, earlier: CallCounts) -> CallCounts {
        CallCounts(std::array::from_fn(|kind| self.0[kind] - earlier.0[kind]))
    }
}

impl fmt::Display for CallCounts {
    /// Writes the kinds with calls, as `create 3, map 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for kind in CallKind::ALL {
            if self[kind] > 0 {
                write!(f, "{separator}{kind} {}", self[kind])?;
                separator = ", ";
            }
        }
        if separator.is_empty() { f.write_str("no calls") } else { Ok(()) }
    }
}

/// Counters that several threads may increment at once.
#[derive(Debug, Default)]
pub struct Counters([AtomicU64; KINDS]);

impl Counters {
    /// Counts one call.
    #[inline]
    pub fn count(&self, kind: CallKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> CallCounts {
        CallCounts(std::array::from_fn(|kind| self.0[kind].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_in_order() {
        for (number, kind) in CallKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
        assert!(CallKind::Unmap.is_memory() && !CallKind::OpenStream.is_memory());
    }

    #[test]
    fn counts_subtract_and_read_well() {
        let counters = Counters::default();
        counters.count(CallKind::Create);
        let earlier = counters.counts();
        counters.count(CallKind::Create);
        counters.count(CallKind::Record);
        let since = counters.counts() - earlier;
        assert_eq!((since.total(), since.memory()), (2, 1));
        assert_eq!(since.to_string(), "create 1, record 1");
        assert_eq!(CallCounts::default().to_string(), "no calls");
    }
}
