//! Everything that can be refused, and why.
//!
//! One type for the whole crate, with few variants: what a caller does next is what tells them apart. Nothing is lost
//! by an error: the operation that failed has not happened, and what it was given comes back
//! (see [`Refused`](crate::Refused)). An error is one sentence; its report has all that is known.

mod report;

use std::fmt;

use millpond_core::check::{Finding, Side};
use millpond_core::graph::{GraphError, GraphId};
use millpond_core::op::Names;
use millpond_core::share::TicketError;
use millpond_driver::{DriverError, PeerAccess};
use rustix::io::Errno;

use crate::names::device_name::DeviceName;
pub use crate::names::out_of_memory::{Holder, OutOfMemory};
use crate::names::pool_name::PoolName;
use crate::names::share_error::ShareError;
pub use report::Report;

/// Result of Millpond's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call was refused: one sentence as text, and all that is known in its [`report`](Self::report), which is also
/// what `{:?}` shows, so that `unwrap` and `main` print it.
///
/// ```
/// # fn main() -> millpond::Result<()> {
/// # let device = millpond::Device::host(Default::default())?;
/// let (left, right) = (device.stream()?, device.stream()?);
/// let x = left.alloc::<f32>(&device.default_pool(), 1024)?;
/// let error = right.memset(x.write(), 0).unwrap_err();
/// assert!(!error.to_string().contains('\n'));
/// let report = error.report().to_string(); // both sides, the missing edge, and help
/// assert!(report.starts_with(&error.to_string()) && report.contains("help: make stream 2 wait"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// No memory is left, after everything idle was moved or given back.
    OutOfMemory(Box<OutOfMemory>),
    /// The order of the program is wrong, or a graph or a capture cannot be like this: with the rule, both sides, their
    /// places, and what helps.
    Violation(Box<Finding>),
    /// An argument names nothing, or something that cannot be meant.
    InvalidArgument(Box<Invalid>),
    /// The device's system refused a call.
    Driver(Box<DriverError>),
    /// Something is not shared with another process.
    Share(Box<ShareError>),
    /// A kernel faulted or panicked: nothing more runs on this device.
    DeviceLost {
        /// What happened first.
        reason: String,
    },
}

impl std::error::Error for Error {}

impl Error {
    /// All that is known: both sides of a wrong order with their places, what is missing and what helps; who holds the
    /// memory that is not left; every fault of a graph.
    pub fn report(&self) -> Report<'_> {
        Report::of(self)
    }

    /// Whether the other side is another process, whose word may be on its way.
    pub(crate) fn is_foreign(&self) -> bool {
        self.violation().and_then(|it| it.earlier.as_ref()).is_some_and(|earlier| earlier.process.is_some())
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
        use Invalid::{InUse, NoAccess, Overlap, Stale, SymbolicCapture};
        let is_use =
            |it: &Invalid| matches!(it, Stale | NoAccess { .. } | InUse { .. } | Overlap { .. } | SymbolicCapture(_));
        self.violation().is_some() || self.invalid().is_some_and(is_use)
    }
}

/// Writes, for what a variant has in a box, that it becomes the error, and how an error is asked for it.
macro_rules! boxed {
    ($($(#[$doc:meta])* $variant:ident($kind:ty) = $name:ident;)*) => {
        impl Error {
            $(
                $(#[$doc])*
                pub fn $name(&self) -> Option<&$kind> {
                    match self {
                        Error::$variant(it) => Some(it),
                        _ => None,
                    }
                }
            )*
        }

        $(
            impl From<$kind> for Error {
                fn from(it: $kind) -> Self {
                    Error::$variant(Box::new(it))
                }
            }
        )*
    };
}

boxed! {
    /// Who holds what, if no memory is left.
    OutOfMemory(OutOfMemory) = out_of_memory;
    /// The violation, if it is one.
    Violation(Finding) = violation;
    /// What is wrong with an argument, if that is it.
    InvalidArgument(Invalid) = invalid;
    /// Why something is not shared, if that is it.
    Share(ShareError) = share;
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Lost { reason } => Error::DeviceLost { reason },
            other => Error::Driver(Box::new(other)),
        }
    }
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        Finding::of_change(&error, |node| node.to_string(), &Names::default()).into()
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
    #[error(
        "this view's allocation is not live: it was freed, or its pool, its device or the capture that made it is gone"
    )]
    Stale,
    /// The stream was closed: what messages call it.
    #[error("{0} is closed")]
    StreamClosed(String),
    /// The pool was destroyed; its live allocations stay valid.
    #[error("{0} is destroyed: nothing new can be allocated from it")]
    PoolDestroyed(PoolName),
    /// Two things of different devices met in one call.
    #[error("{what} belongs to another device than {with}: both must be of one device")]
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
        pool: PoolName,
        /// The pool's device.
        owner: DeviceName,
        /// The device that would use it.
        device: DeviceName,
        /// What messages call its stream.
        stream: String,
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
        pool: PoolName,
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
        pool: PoolName,
        /// Its device.
        owner: DeviceName,
        /// The device that has access.
        device: DeviceName,
        /// A use that the host does not know to have completed.
        last: Side,
    },
    /// One launch would have two slices of the same bytes, one of them to write.
    #[error(
        "{allocation} is written and used a second time by one launch: name the bytes that it writes once, as written"
    )]
    Aliased {
        /// The allocation.
        allocation: String,
    },
    /// The source and the target of a copy overlap.
    #[error("the source and the target of a copy overlap in {allocation}: copy by way of other memory")]
    Overlap {
        /// The allocation.
        allocation: String,
    },
    /// Source and target of a copy have different sizes.
    #[error(
        "{what}: the source has {left} elements and the target {right}: copy a part of the longer one, such as its \
         slice 0..{}",
        .left.min(.right)
    )]
    Length {
        /// The call.
        what: &'static str,
        /// Elements of the source.
        left: u64,
        /// Elements of the target.
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
    /// An event was recorded without its time.
    #[error("{which} was recorded without a time: record a timed event")]
    NotTimed {
        /// Which of those that the call was given.
        which: &'static str,
    },
    /// An event has not completed.
    #[error("{which} has not completed: synchronise with it first")]
    NotCompleted {
        /// Which of those that the call was given.
        which: &'static str,
    },
    /// So many streams and allocations exist, or pools, graphs and devices were made, that no number is left.
    #[error(
        "there are no numbers left for {what}, after {made} of them: {}",
        if *what == "devices" { "start another process" } else { "open another device" }
    )]
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
    /// The call cannot become a node of a graph; the capture goes on.
    #[error("`{call}` cannot be captured; the capture goes on without it")]
    Uncapturable {
        /// The call.
        call: &'static str,
    },
    /// The capture ends with the closure of `capture` or `capture_to`, and goes on until then.
    #[error(
        "the capture on {stream} is ended by the call that began it, when what it runs returns: do not end it inside"
    )]
    EndsWithClosure {
        /// What messages call the stream.
        stream: String,
    },
    /// Memory that was allocated in a capture which has ended is live only in launches of its graph.
    #[error(
        "{allocation} was allocated in a capture, and is live only once the graph was launched: let it leave the \
         capture as an alloc node (`into_alloc_node`), and take it from the launch (`take`)"
    )]
    NotLaunched {
        /// The memory.
        allocation: String,
    },
    /// A capture needs addresses at once.
    #[error("{0} has symbolic addresses, and a capture needs addresses at once: build it node by node")]
    SymbolicCapture(GraphId),
    /// The graph is larger than a device can have it.
    #[error("{0}")]
    GraphTooLarge(&'static str),
    /// The alloc node is not one of the launch that leaves memory live.
    #[error("that alloc node leaves no memory for this launch: it is of another graph, or its graph frees it")]
    NoOutput,
    /// The allocation was taken from this launch before.
    #[error("that allocation was taken from this launch already, or has been freed since")]
    Taken,
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
    /// No device of the process has this address: it is the host's, another process's, or not mapped.
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

impl ShareError {
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Error {
        move |errno| ShareError::System { call, reason: errno.to_string() }.into()
    }

    pub(crate) fn answer(why: impl Into<String>) -> Error {
        ShareError::Answer(why.into()).into()
    }
}

impl From<TicketError> for Error {
    fn from(error: TicketError) -> Self {
        ShareError::Ticket(error).into()
    }
}
