//! The ranks of this crate's locks.
//!
//! A thread that waits for a lock holds none of a later rank (`millpond_driver::locks`). Under a lock of the rank
//! [`Table`], no other lock of this crate is taken, except those of a trace.

use millpond_driver::locks;

millpond_driver::ranks! {
    pub before locks::FIRST;
    TracesAskedFor "the traces that the environment asks for";
    PerThread "the threads' streams";
    Trusted "streams and users of memory of a trusted program";
    Instance "an instance";
    /// The legacy default stream's lock may be held while another stream's is taken.
    Stream "a stream" several;
    Unclosed "streams that are not closed yet";
    Run "an instance's launches";
    /// Used by traced programs only.
    TracedEvents "what a trace says of external events";
    Captures "captures in progress";
    GraphMemory "the graphs' memory";
    GraphOutputs "live memory of captures, and of instances that are gone";
    /// Nothing is received, sent, accepted or closed under it.
    Connection "a connection";
    Heap "a pool's heap";
    /// Taken in the order of their numbers.
    Life "a life" several;
    /// Taken in the order of their devices and pools.
    Grants "a pool's grants" several;
    NativeAlone "a graph's native instance";
    Sharing "what is shared with other processes";
    Foreign "chains of other processes";
    Pending "memory that waits for the device";
    ChainIndices "numbers of chains";
    Chains "the chains";
    Table "a table";
    /// The driver records an event under it.
    Recorded "a stream in which an event is recorded";
    Away "events that left their traces";
    Traced "names in a trace";
    TraceOutput "a trace";
}
