//! The ranks of this crate's locks.
//!
//! A thread that waits for a lock holds none of a later rank (`millpond_driver::locks`). Under a lock of the rank
//! [`Table`], only leaves are waited for: those of a trace.

use millpond_driver::locks;

millpond_driver::ranks! {
    pub before locks::FIRST;
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
    /// Nothing is received, sent, accepted or closed under it.
    Connection "a connection";
    Heap "a pool's heap";
    /// Taken in the order of their numbers.
    Life "a life" several;
    /// Taken in the order of their devices and pools.
    Grants "a pool's grants" several;
    Foreign "chains of other processes";
    Pending "memory that waits for the device";
    Chains "the chains";
    Table "a table";
}
