//! Everything that can be refused, and why.
//!
//! One type for the whole crate, with few variants: what a caller does next is what tells them apart. Nothing is lost
//! by an error: the operation that failed has not happened, and what it was given comes back
//! (see [`Refused`](crate::Refused)).

use std::fmt;

use millpond_core::check::{Finding, Side, Spot};
use millpond_core::ids::{PoolId, StreamId};
use millpond_core::pool::Exhausted;
use millpond_core::share::TicketError;
use millpond_core::units::{Bytes, Range};
use millpond_driver::{DriverError, PeerAccess};
use rustix::io::Errno;

use crate::names::device_name::DeviceName;
pub use crate::names::graph_error::{CaptureError, GraphError};
use crate::names::share_error::ShareError;

/// Result of Millpond's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call was refused.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No memory is left, after everything idle was moved or given back.
    #[error("{0}")]
    OutOfMemory(Box<OutOfMemory>),
    /// The order of the program is wrong.
    #[error("{0}")]
    Violation(Box<Finding>),
    /// An argument names nothing, or something that cannot be meant.
    #[error("{0}")]
    InvalidArgument(Box<Invalid>),
    /// The device's system refused a call.
    #[error("the device refused: {0}")]
    Driver(Box<DriverError>),
    /// A stream's capture cannot do this, or cannot go on.
    #[error("{0}")]
    Capture(Box<CaptureError>),
    /// Something is not shared with another process.
    #[error("{0}")]
    Share(Box<ShareError>),
    /// A graph is wrong, or cannot be launched like this.
    #[error("{0}")]
    Graph(Box<GraphError>),
    /// A kernel faulted or panicked: nothing more runs on this device.
    #[error("the device is lost: {reason}; nothing more runs on it, its buffers can still be dropped")]
    DeviceLost {
        /// What happened first.
        reason: String,
    },
}

impl Error {
    /// What is wrong with an argument, if that is it.
    pub fn invalid(&self) -> Option<&Invalid> {
        match self {
            Error::InvalidArgument(invalid) => Some(invalid),
            _ => None,
        }
    }

    /// Why a capture refused, if one did.
    pub fn capture(&self) -> Option<&CaptureError> {
        match self {
            Error::Capture(error) => Some(error),
            _ => None,
        }
    }

    /// Why something is not shared, if that is it.
    pub fn share(&self) -> Option<&ShareError> {
        match self {
            Error::Share(error) => Some(error),
            _ => None,
        }
    }

    /// What is wrong with a graph, if that is it.
    pub fn graph(&self) -> Option<&GraphError> {
        match self {
            Error::Graph(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the other side is another process, whose word may be on its way.
    pub(crate) fn is_abroad(&self) -> bool {
        self.violation().and_then(|it| it.earlier.as_ref()).is_some_and(|earlier| earlier.process.is_some())
    }

    /// The same without places in the source, for programs in other languages: those of the calls are this library's.
    pub fn without_places(mut self) -> Self {
        match &mut self {
            Error::Violation(finding) => finding.forget_places(),
            Error::Graph(refused) => {
                if let GraphError::Faults(faults) = &mut **refused {
                    faults.iter_mut().for_each(Finding::forget_places);
                }
            }
            Error::InvalidArgument(invalid) => {
                if let Invalid::InUse { last, .. } = &mut **invalid {
                    last.spot = Spot::default();
                }
            }
            _ => {}
        }
        self
    }

    /// Takes in what else the same operation is refused for: the help of a violation settles both.
    #[cold]
    pub(crate) fn join(&mut self, also: &Error) {
        if let (Error::Violation(first), Error::Violation(also)) = (self, also) {
            first.join(also);
        }
    }

    /// Whether it is about what the program asked for, so that whoever reads its trace is to judge it, too. The others
    /// are about the device, or about values that no operation has.
    pub(crate) fn is_verdict(&self) -> bool {
        let is_use = |it: &Invalid| matches!(it, Invalid::Stale | Invalid::NoAccess { .. } | Invalid::Aliased { .. });
        let is_of_graph = |it: &GraphError| {
            use GraphError::*;
            matches!(
                it,
                Change(_)
                    | FreedByOther { .. }
                    | MadeAnew { .. }
                    | ChildTwice(_)
                    | Update(_)
                    | Faults(_)
                    | Unfreed(_)
                    | AddressesTaken { .. }
                    | NotLive { .. }
                    | Freed { .. }
                    | Outlived { .. }
                    | Symbolic(_)
                    | SymbolicCapture(_)
            )
        };
        let is_of_capture = |it: &CaptureError| !matches!(it, CaptureError::Uncapturable { .. });
        self.violation().is_some()
            || self.invalid().is_some_and(is_use)
            || self.graph().is_some_and(is_of_graph)
            || self.capture().is_some_and(is_of_capture)
    }

    /// Who holds what, if no memory is left.
    pub fn out_of_memory(&self) -> Option<&OutOfMemory> {
        match self {
            Error::OutOfMemory(report) => Some(report),
            _ => None,
        }
    }

    /// The violation, if it is one.
    pub fn violation(&self) -> Option<&Finding> {
        match self {
            Error::Violation(violation) => Some(violation),
            _ => None,
        }
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Lost { reason } => Error::DeviceLost { reason },
            other => Error::Driver(Box::new(other)),
        }
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Error::InvalidArgument(Box::new(invalid))
    }
}

impl From<CaptureError> for Error {
    fn from(error: CaptureError) -> Self {
        Error::Capture(Box::new(error))
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        Error::Graph(Box::new(error))
    }
}

impl From<millpond_core::graph::GraphError> for Error {
    fn from(error: millpond_core::graph::GraphError) -> Self {
        GraphError::Change(error).into()
    }
}

impl From<Finding> for Error {
    fn from(violation: Finding) -> Self {
        Error::Violation(Box::new(violation))
    }
}

/// What is wrong with an argument.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The pointer is not the start of a live allocation.
    #[error("{pointer:#x} is not the start of a live allocation: {nearest}")]
    Pointer {
        /// The pointer given.
        pointer: u64,
        /// What is there, or nearest to it.
        nearest: Nearest,
    },
    /// The view names a life of an allocation that has ended, and nothing is left that tells how.
    #[error("this view's allocation was freed, and its place has been used again since")]
    Stale,
    /// The stream was closed.
    #[error("{0} is closed")]
    StreamClosed(StreamId),
    /// The pool was destroyed; its live allocations stay valid.
    #[error("{0} is destroyed: nothing new can be allocated from it")]
    PoolDestroyed(PoolId),
    /// Two things of different devices met in one call.
    #[error("{what} belongs to another device than {with}")]
    OtherDevice {
        /// The stranger.
        what: String,
        /// Whom it met.
        with: String,
    },
    /// Work of a device would use memory of another whose pool does not grant it that.
    #[error(
        "{stream} of {device} may not {} {allocation} of {pool} of {owner}, which grants it {granted}: call \
         `pool.grant(&device, PeerAccess::{})` first",
        if *.writes { "write" } else { "read" },
        if *.writes { "ReadWrite" } else { "Read" }
    )]
    NoAccess {
        /// The memory.
        allocation: String,
        /// Its pool.
        pool: PoolId,
        /// The pool's device.
        owner: DeviceName,
        /// The device that would use it.
        device: DeviceName,
        /// Its stream.
        stream: StreamId,
        /// Whether it would write it.
        writes: bool,
        /// What it may do.
        granted: PeerAccess,
    },
    /// Two devices that can have nothing to do with each other: of different kinds, or without a way between them.
    #[error("{device} and {other} cannot use each other's memory or wait for each other: copy by way of the host")]
    NotPeers {
        /// One device.
        device: DeviceName,
        /// The other.
        other: DeviceName,
    },
    /// A pool's own device always has access.
    #[error("{pool} is of {device}, whose own access cannot be taken away")]
    OwnAccess {
        /// The pool.
        pool: PoolId,
        /// Its device.
        device: DeviceName,
    },
    /// Access cannot be taken away from a device whose work may use it at this moment.
    #[error(
        "{pool} of {owner} is in use by {device}: {} on {}{} is not known to have completed; synchronize with that \
         stream, or with an event recorded after it, before you revoke the access",
        .last.noun(),
        .last.title(),
        at_place(.last)
    )]
    InUse {
        /// The pool.
        pool: PoolId,
        /// Its device.
        owner: DeviceName,
        /// The device that has access.
        device: DeviceName,
        /// A use that the host was not told has completed.
        last: Side,
    },
    /// One launch writes an allocation and uses it a second time.
    #[error("{allocation} is written and used a second time by one launch: give the launch one write access instead")]
    Aliased {
        /// The allocation.
        allocation: String,
    },
    /// The two sides of a copy have different sizes.
    #[error("{what}: {left} on one side, {right} on the other")]
    Length {
        /// The call.
        what: &'static str,
        /// Elements on one side.
        left: u64,
        /// Elements on the other.
        right: u64,
    },
    /// A range does not lie within its buffer.
    #[error("elements {start}..{end} do not lie within a buffer of {len}")]
    Bounds {
        /// First element.
        start: u64,
        /// Behind the last element.
        end: u64,
        /// The buffer's elements.
        len: u64,
    },
    /// The device has numbered so many streams, pools or allocations that no number is left.
    #[error("the device has no numbers left for {what}, after {made} of them: open another device")]
    NoNumbers {
        /// What was to get one.
        what: &'static str,
        /// How many it has made.
        made: u32,
    },
    /// A setting that this device or pool cannot have.
    #[error("{setting}: {reason}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Why not.
        reason: String,
    },
    /// This device runs no closures as kernels.
    #[error("the device `{device}` runs no closures: use `enqueue`")]
    NoClosures {
        /// Its name.
        device: String,
    },
}

/// Where an operation stands in the source, for a sentence.
fn at_place(side: &Side) -> String {
    match side.spot.to_string() {
        place if place.is_empty() => place,
        place => format!(" ({place})"),
    }
}

/// What is at a pointer that should have been the start of an allocation, or nearest to it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Nearest {
    /// No device of the process has this address: it is the host's, another process's, or nobody's.
    Outside {
        /// The nearest live allocation of the device, and how far away it is.
        nearest: Option<(String, u64)>,
    },
    /// Another device of the process has it.
    OtherDevice {
        /// That device.
        device: DeviceName,
        /// What is there.
        what: String,
    },
    /// It belongs to a graph: memory of an alloc node, which only a launch makes live.
    OfGraph {
        /// The alloc node.
        node: String,
        /// Bytes from its start.
        offset: u64,
    },
    /// It lies inside an allocation.
    Inside {
        /// The allocation, with its state.
        allocation: String,
        /// Bytes from its start.
        offset: u64,
    },
    /// The allocation that started here is freed.
    Freed {
        /// The allocation, and where it was freed.
        allocation: String,
    },
    /// It lies between allocations.
    Between {
        /// The one below, and how far its end is.
        below: Option<(String, u64)>,
        /// The one above, and how far its start is.
        above: Option<(String, u64)>,
    },
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nearest::Outside { nearest } => {
                f.write_str("no device of this process has that address")?;
                match nearest {
                    Some((name, bytes)) => write!(f, "; the nearest allocation is {name}, {bytes} B away"),
                    None => Ok(()),
                }
            }
            Nearest::OtherDevice { device, what } => write!(f, "it is of {device}: {what}"),
            Nearest::OfGraph { node, offset } => {
                write!(f, "it is {offset} B inside {node}, which only a launch of that graph makes live")
            }
            Nearest::Inside { allocation, offset } => write!(f, "it is {offset} B inside {allocation}"),
            Nearest::Freed { allocation } => write!(f, "it is {allocation}"),
            Nearest::Between { below: None, above: None } => f.write_str("its pool has no allocations"),
            Nearest::Between { below, above } => {
                f.write_str("the nearest ")?;
                if let Some((name, bytes)) = below {
                    write!(f, "below is {name}, which ends {bytes} B before")?;
                }
                if let Some((name, bytes)) = above {
                    let join = if below.is_some() { ", the nearest " } else { "" };
                    write!(f, "{join}above is {name}, {bytes} B further")?;
                }
                Ok(())
            }
        }
    }
}

/// A report of who holds what, when nothing is left.
#[derive(Clone, PartialEq, Debug)]
pub struct OutOfMemory {
    /// The pool that was asked.
    pub pool: PoolId,
    /// The pool's figures.
    pub exhausted: Exhausted,
    /// Physical memory of the device, in bytes.
    pub device_bytes: u64,
    /// Addresses of the pool, in bytes. Fewer than its memory only where the system granted no more.
    pub address_bytes: u64,
    /// Physical memory of the device's other pools, in bytes.
    pub other_pools_bytes: u64,
    /// The largest live allocations: what they are and where they were made.
    pub largest: Vec<Holder>,
}

/// A live allocation in a report.
#[derive(Clone, PartialEq, Debug)]
pub struct Holder {
    /// Its name.
    pub allocation: String,
    /// Its addresses.
    pub range: Range,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory in {}: {}", self.pool, self.exhausted)?;
        write!(f, "; the device has {}", Bytes(self.device_bytes))?;
        let limit = self.exhausted.limit;
        if self.address_bytes < if limit == 0 { self.device_bytes } else { limit.min(self.device_bytes) } {
            let granted = Bytes(self.address_bytes);
            write!(f, ", and the system granted the pool only {granted} of addresses (RLIMIT_AS, `ulimit -v`)")?;
        }
        if self.other_pools_bytes > 0 {
            write!(f, ", other pools hold {}", Bytes(self.other_pools_bytes))?;
        }
        for holder in &self.largest {
            write!(f, "\n  held by {}", holder.allocation)?;
        }
        Ok(())
    }
}

impl ShareError {
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Error {
        move |errno| ShareError::System { call, reason: errno.to_string() }.into()
    }

    pub(crate) fn answer(why: impl Into<String>) -> Error {
        ShareError::Answer(why.into()).into()
    }
}

impl From<ShareError> for Error {
    fn from(error: ShareError) -> Self {
        Error::Share(Box::new(error))
    }
}

impl From<TicketError> for Error {
    fn from(error: TicketError) -> Self {
        ShareError::Ticket(error).into()
    }
}
