//! Why captures and graphs are refused. Plain data, in words.

use millpond_core::check::{Act, Finding, Side};
use millpond_core::graph::{CopyRefused, GraphId, LaunchRefused, UpdateRefused};

/// Why a call was refused because of a capture.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// A rule of captures; each variant there names CUDA's code.
    #[error("{text}")]
    Rule {
        /// Which.
        rule: millpond_core::graph::CaptureError,
        /// What it says, with streams by their names.
        text: String,
    },
    /// The call cannot become a node; the capture goes on.
    #[error("`{call}` cannot be captured; the capture goes on without it")]
    Uncapturable {
        /// The call.
        call: &'static str,
    },
    /// A captured free of memory that is no graph's (CUDA: `cudaErrorInvalidValue`). The capture goes on.
    #[error("{allocation} is not from a graph: free it outside the capture (which goes on)")]
    NotGraphMemory {
        /// The memory.
        allocation: String,
    },
    /// Memory of an alloc node has no life before its graph is launched (CUDA: `cudaErrorInvalidValue`).
    #[error("{}", not_launched(.allocation, .user, *.goes_on))]
    NotLaunched {
        /// The memory.
        allocation: String,
        /// Who uses or frees it: a stream, or the host.
        user: String,
        /// Whether the capture that allocated it goes on. The user is no part of that then.
        goes_on: bool,
    },
}

/// What is wrong with a graph, or with what was asked of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A change was refused; the graph is as before.
    #[error("{0}")]
    Change(millpond_core::graph::GraphError),
    /// The graph's order is wrong: each with two nodes and the missing edge. At least one.
    #[error("{}", .0.first().map(ToString::to_string).unwrap_or_default())]
    Faults(Vec<Finding>),
    /// The allocations pass the address space.
    #[error("the allocations of the graph are more than there are addresses")]
    TooLarge,
    /// With its children it has more than four million nodes, or so many that do not come after one another that
    /// their order takes more than 1 GiB.
    #[error(
        "the graph has too many nodes, its children's included, or too many that do not come after one another: make \
         several graphs of it"
    )]
    TooManyNodes,
    /// More than 16384 of its kernels, host functions and event waits have no path between any two of them: each of
    /// those needs a queue of the device, because it may wait for the others.
    #[error(
        "the graph has more than 16384 kernels, host functions and event waits without a path between any two of them, \
         and each of those needs a queue of the device: add edges between them, or make several graphs of it"
    )]
    TooWide,
    /// An allocation of an earlier launch is not freed (CUDA: `cudaErrorInvalidValue`). Nothing was enqueued.
    #[error("{0}")]
    Unfreed(LaunchRefused),
    /// A graph with memory nodes and fixed addresses was to be in two places (CUDA: `cudaErrorNotSupported`).
    #[error("{0}")]
    Copy(Box<CopyRefused>),
    /// An instance was not updated (CUDA: `cudaErrorGraphExecUpdateFailure`).
    #[error("{0}")]
    Update(UpdateRefused),
    /// A graph, or a stream, uses or frees memory of a graph that is not live (CUDA: `cudaErrorInvalidValue`).
    #[error("{}", not_live(*.graph, *.act, .freed.as_deref()))]
    NotLive {
        /// The graph that allocates it.
        graph: GraphId,
        /// What is done to it.
        act: Act,
        /// Where it was freed last, if the instance that allocated it then is gone.
        freed: Option<Box<Side>>,
    },
    /// A node would use memory that is freed already.
    #[error("{}", freed_already(.allocation, .free.as_deref(), .anew.as_deref()))]
    Freed {
        /// The allocation.
        allocation: String,
        /// The free; none where its place was allocated anew more than once.
        free: Option<Box<Side>>,
        /// The latest allocation in its place, if there is one.
        anew: Option<Box<Side>>,
    },
    /// A node names, by a buffer or a view, what an earlier launch left of a graph that is launched with it.
    #[error(
        "{allocation} is what an earlier launch of {graph} left, and each launch of this graph makes it anew: name \
        its alloc node instead"
    )]
    MadeAnew {
        /// The graph that allocates it.
        graph: GraphId,
        /// The allocation.
        allocation: String,
    },
    /// Memory of a graph with symbolic addresses, named where no instance of it is meant.
    #[error(
        "the addresses of {0} are placed at each instantiation, so that its alloc nodes name no memory outside it: \
         take the buffer from a launch, or make that graph a child of this one"
    )]
    Symbolic(GraphId),
    /// A capture needs addresses at once.
    #[error("{0} has symbolic addresses, and a capture needs addresses at once: build it node by node")]
    SymbolicCapture(GraphId),
    /// Another graph has the free node for it.
    #[error("{by} has a free node for that allocation already")]
    FreedByOther {
        /// Who.
        by: GraphId,
    },
    /// The alloc node is not one of the launch that leaves memory live.
    #[error("that alloc node leaves no memory for this launch: it is of another graph, or its graph frees it")]
    NoOutput,
    /// The allocation was taken from this launch before.
    #[error("that allocation was taken from this launch already, or has been freed since")]
    Taken,
    /// A symbolic graph that leaves memory is a child twice: that memory has one name.
    #[error("{0} leaves memory and is in this graph more than once: that memory has one name")]
    ChildTwice(GraphId),
}

fn not_launched(allocation: &str, user: &str, goes_on: bool) -> String {
    match goes_on {
        true => format!(
            "{allocation} is memory of a capture, and {user} is not part of that capture: make the stream wait for an \
             event recorded in it, or use the memory on a stream of the capture"
        ),
        false => format!(
            "{allocation} was allocated in a capture, and is live only once the graph was launched: let it leave the \
             capture as an alloc node (`into_alloc_node`), and take it from the launch (`take`)"
        ),
    }
}

fn freed_already(allocation: &str, free: Option<&Side>, anew: Option<&Side>) -> String {
    let sides: String = free.iter().chain(&anew).map(|side| format!("\n  {side}")).collect();
    let since = if anew.is_some() { ", and allocated anew since" } else { "" };
    format!("a node uses {allocation}, which is freed already{since}:{sides}\n  help: name memory that lives")
}

fn not_live(graph: GraphId, act: Act, freed: Option<&Side>) -> String {
    match freed {
        None => format!("memory of {graph} is {}, which is not live: launch that graph first", act.past()),
        Some(free) => format!(
            "memory of {graph} is {}, which was freed:\n  {free}\n  help: launch that graph again first",
            act.past()
        ),
    }
}
