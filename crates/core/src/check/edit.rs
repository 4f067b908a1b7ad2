//! What to change so that a finding is gone, as data: what its help says in words. The sides are the finding's, which
//! may know better than its rule: see `Finding::edit`.

use crate::life::Kind;

/// One change of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Edit {
    /// The later side's stream waits for events that are recorded on the streams of all other sides, at or after their
    /// operations. A host synchronises them instead; a process learns of it from the process that knows.
    Order,
    /// An edge from the earlier node to the later one.
    Edge,
    /// The later side is left out.
    LeaveOut,
    /// The earlier side is moved behind the later one.
    MoveBehind,
    /// The later side is moved behind a launch of the graph that allocates its memory.
    BehindLaunch,
    /// The memory is freed after its last use.
    Free,
    /// The later side is moved out of the capture.
    OutsideCapture,
    /// The wait gets the external flag.
    External,
    /// The external flag is left out.
    Internal,
    /// The instance frees by itself at its next launch.
    AutoFree,
    /// The graph has symbolic addresses.
    Symbolic,
    /// The pool or the event is made for other processes.
    Shareable,
    /// The pool lets the other device in.
    Grant,
}

impl Edit {
    /// A stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Edit::Order => "order",
            Edit::Edge => "edge",
            Edit::LeaveOut => "leave-out",
            Edit::MoveBehind => "move-behind",
            Edit::BehindLaunch => "behind-launch",
            Edit::Free => "free",
            Edit::OutsideCapture => "outside-capture",
            Edit::External => "external",
            Edit::Internal => "internal",
            Edit::AutoFree => "auto-free",
            Edit::Symbolic => "symbolic",
            Edit::Shareable => "shareable",
            Edit::Grant => "grant",
        }
    }
}

impl Kind {
    /// What puts it right, where two sides are known.
    pub(super) fn edit(self) -> Result<Edit, &'static str> {
        Ok(match self {
            Kind::UseBeforeAlloc
            | Kind::FreeBeforeAlloc
            | Kind::FreeBeforeUse
            | Kind::Race
            | Kind::AutoFreeBeforeUse
            | Kind::CaptureUnjoined => Edit::Order,
            Kind::UseAfterFree | Kind::StreamAfterDestroy | Kind::PoolAfterDestroy | Kind::FreeWhileImported => {
                Edit::MoveBehind
            }
            Kind::DoubleFree | Kind::StaleFree | Kind::RedundantWait | Kind::EmptyWait => Edit::LeaveOut,
            Kind::Leak => Edit::Free,
            Kind::UnfreedLaunch => Edit::AutoFree,
            Kind::SharedAddresses => Edit::Symbolic,
            Kind::NoAccess => Edit::Grant,
            Kind::NotShareable => Edit::Shareable,
            Kind::CaptureIsolation => Edit::External,
            Kind::CaptureUnsupported | Kind::CaptureForeignFree => Edit::OutsideCapture,
            Kind::ExternalOutsideCapture => Edit::Internal,
            Kind::UnknownName => return Err("what is meant by the name, only the program knows"),
            Kind::CapturedEvent => return Err("after which work it is to be recorded again, only the program knows"),
            Kind::WrongDevice => return Err("which device the event is for, only the program knows"),
            Kind::Aliased => return Err("whether it is to be read or written, only the program knows"),
            Kind::CaptureMerge => return Err("which of the captures is meant, only the program knows"),
            Kind::CaptureState => return Err("where the capture is to begin or to end, only the program knows"),
            Kind::GraphRefused => return Err("which other node or edge is meant, only the program knows"),
        })
    }
}
