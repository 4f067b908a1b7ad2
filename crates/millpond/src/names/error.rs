//! All errors, with their reasons.
//!
//! There is one type for the whole crate, with few variants, distinguished by what a caller does next. Nothing is
//! lost by an error: the failed operation has not happened, and its arguments are returned (see
//! [`Refused`](crate::Refused)). An error is one sentence; its report has everything known.

mod report;

use std::fmt;

use millpond_core::check::Finding;
use millpond_core::graph::{GraphError, GraphId};
use millpond_core::op::Names;
use millpond_core::share::TicketError;
use millpond_driver::DriverError;
use rustix::io::Errno;

use crate::names::device_name::DeviceName;
pub use crate::names::out_of_memory::{Holder, OutOfMemory};
use crate::names::pool_name::PoolName;
use crate::names::share_error::ShareError;
pub use report::Report;

/// The result of Millpond's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call was refused. As text it is one sentence; its [`report`](Self::report) has everything known,
/// which is also what `{:?}` shows, so that `unwrap` and `main` print it.
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
    /// The order of the program is wrong, or a graph or a capture is not possible like this. Has the rule, both
    /// operations, their places, and a fix.
    Violation(Box<Finding>),
    /// An argument names nothing, or something that cannot be right.
    InvalidArgument(Box<Invalid>),
    /// The device's system refused a call.
    Driver(Box<DriverError>),
    /// Something cannot be shared with another process.
    Share(Box<ShareError>),
    /// A kernel faulted or panicked: nothing more runs on this device.
    DeviceLost {
        /// The first event that caused it.
        reason: String,
    },
}

impl std::error::Error for Error {}

impl Error {
    /// Returns everything known: both operations of a wrong order with their places, what is missing and how to fix
    /// it; the holders of memory if none is left; every fault of a graph.
    pub fn report(&self) -> Report<'_> {
        Report::of(self)
    }

    /// Returns `true` if the other operation is of another process, whose messages may be in transit.
    pub(crate) fn is_foreign(&self) -> bool {
        self.violation().and_then(|it| it.earlier.as_ref()).is_some_and(|earlier| earlier.process.is_some())
    }

    /// Adds another reason why the same operation is refused: the help of a violation then fixes both.
    #[cold]
    pub(crate) fn join(&mut self, also: &Error) {
        if let (Error::Violation(first), Error::Violation(also)) = (self, also) {
            first.join(also);
        }
    }

    /// Returns `true` if the error is about the program's request, so that a reader of its trace finds the error,
    /// too. Other errors are about the device, or about values that are not part of an operation.
    pub(crate) fn is_verdict(&self) -> bool {
        self.violation().is_some() || self.invalid().is_some_and(|it| matches!(it, Invalid::Stale))
    }
}

/// Makes, for each boxed variant, the conversion into an error and the method that returns its contents.
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
    /// Returns the report of the holders of memory, if no memory is left.
    OutOfMemory(OutOfMemory) = out_of_memory;
    /// Returns the violation, if it is one.
    Violation(Finding) = violation;
    /// Returns the error of an argument, if it is one.
    InvalidArgument(Invalid) = invalid;
    /// Returns the error of sharing, if it is one.
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

/// The errors of arguments.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The pointer is not the start of a live allocation.
    #[error("{pointer:#x} is not the start of a live allocation: {nearest}")]
    Pointer {
        /// The pointer given.
        pointer: u64,
        /// The thing at the pointer, or nearest to it.
        nearest: Nearest,
    },
    /// The view is of an allocation that has ended, and nothing is left that tells how.
    #[error(
        "this view's allocation is not live: it was freed, or its pool, its device or the capture that made it is gone"
    )]
    Stale,
    /// The stream was closed. Has the stream's title.
    #[error("{0} is closed")]
    StreamClosed(String),
    /// The pool was destroyed; its live allocations stay valid.
    #[error("{0} is destroyed: nothing new can be allocated from it")]
    PoolDestroyed(PoolName),
    /// Two things of different devices are in one call.
    #[error("{what} belongs to another device than {with}: both must be of one device")]
    OtherDevice {
        /// The thing of the other device.
        what: String,
        /// The thing that it was used with.
        with: String,
    },
    /// The two devices cannot work together: they are of different kinds, or there is no connection between them.
    #[error("{device} and {other} cannot use each other's memory or wait for each other: copy by way of the host")]
    NotPeers {
        /// One device.
        device: DeviceName,
        /// The other.
        other: DeviceName,
    },
    /// A pool's own device always has access, which cannot be revoked.
    #[error("{pool} is of {device}, whose own access cannot be taken away")]
    OwnAccess {
        /// The pool.
        pool: PoolName,
        /// Its device.
        device: DeviceName,
    },
    /// One launch would have two slices of the same bytes, one of them for writing.
    #[error(
        "{allocation} is written and used a second time by one launch: name the bytes that it writes once, as written"
    )]
    Aliased {
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
        /// The element after the last one.
        end: u64,
        /// The buffer's elements.
        len: u64,
    },
    /// An event was recorded without its time.
    #[error("{which} was recorded without a time: record a timed event")]
    NotTimed {
        /// Which of the call's events.
        which: &'static str,
    },
    /// An event has not completed.
    #[error("{which} has not completed: synchronise with it first")]
    NotCompleted {
        /// Which of the call's events.
        which: &'static str,
    },
    /// No number is left: too many streams and allocations exist, or too many pools, graphs and devices were made.
    #[error(
        "there are no numbers left for {what}, after {made} of them: {}",
        if *what == "devices" { "start another process" } else { "open another device" }
    )]
    NoNumbers {
        /// The kind of thing that needs a number.
        what: &'static str,
        /// The number of them made so far.
        made: u32,
    },
    /// This device or pool cannot have a setting.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// The reason.
        reason: String,
    },
    /// The call cannot become a node of a graph; the capture goes on.
    #[error("`{call}` cannot be captured; the capture goes on without it")]
    Uncapturable {
        /// The call.
        call: &'static str,
    },
    /// The capture ends when the closure of `capture` or `capture_to` returns, and goes on until then.
    #[error(
        "the capture on {stream} is ended by the call that began it, when what it runs returns: do not end it inside"
    )]
    EndsWithClosure {
        /// The title of the stream.
        stream: String,
    },
    /// Memory that was allocated in a capture that has ended is live only in launches of its graph.
    #[error(
        "{allocation} was allocated in a capture, and is live only once the graph was launched: let it leave the \
         capture as an alloc node (`into_alloc_node`), and take it from the launch (`take`)"
    )]
    NotLaunched {
        /// The memory.
        allocation: String,
    },
    /// A capture needs addresses at once, and the graph has symbolic addresses.
    #[error("{0} has symbolic addresses, and a capture needs addresses at once: build it node by node")]
    SymbolicCapture(GraphId),
    /// The graph is too large for a device.
    #[error("{0}")]
    GraphTooLarge(&'static str),
    /// The alloc node does not leave memory live for this launch.
    #[error("that alloc node leaves no memory for this launch: it is of another graph, or its graph frees it")]
    NoOutput,
    /// The allocation was already taken from this launch.
    #[error("that allocation was taken from this launch already, or has been freed since")]
    Taken,
    /// This device cannot run closures as kernels.
    #[error("the device `{device}` runs no closures: use `enqueue`")]
    NoClosures {
        /// Its name.
        device: String,
    },
}

/// The thing at, or nearest to, a pointer that should have been the start of an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Nearest {
    /// No device of the process has this address: it belongs to the host or another process, or is not mapped.
    Outside {
        /// The nearest live allocation of the device, and its distance.
        nearest: Option<(String, u64)>,
    },
    /// Another device of the process has this address.
    OtherDevice {
        /// That device.
        device: DeviceName,
        /// The thing at the address.
        what: String,
    },
    /// The address belongs to a graph: memory of an alloc node, which is live only in a launch.
    OfGraph {
        /// The alloc node.
        node: String,
        /// The offset from its start, in bytes.
        offset: u64,
    },
    /// The address is inside an allocation.
    Inside {
        /// The allocation, with its state.
        allocation: String,
        /// The offset from its start, in bytes.
        offset: u64,
    },
    /// The allocation that started here was freed.
    Freed {
        /// The allocation, with the place of its free.
        allocation: String,
    },
    /// The address is between allocations.
    Between {
        /// The allocation below, and the distance to its end.
        below: Option<(String, u64)>,
        /// The allocation above, and the distance to its start.
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
