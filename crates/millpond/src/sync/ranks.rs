//! The ranks of this crate's locks.
//!
//! A thread that waits for a lock holds none of a later rank (`millpond_driver::locks`).

use millpond_driver::locks;

millpond_driver::ranks! {
    pub before locks::FIRST;
    PerThread "the threads' streams";
    CurrentPool "the current pool";
    TrustedUsers "who uses trusted memory";
    TrustedStreams "trusted streams";
    /// The legacy default stream's may be held while another stream's is taken.
    Stream "a stream" several;
    Unclosed "streams that are not closed yet";
    LetGo "what kept them open";
    Run "an instance's launches";
    /// Of traced programs only.
    TracedEvents "what a trace says of external events";
    Captures "captures in progress";
    GraphMemory "the graphs' memory";
    Execs "the instances";
    Arenas "the arenas";
    ClosingArenas "arenas that are gone";
    SpareRanges "addresses of arenas that are gone";
    ArenaRanges "an arena's ranges";
    ArenaNodes "an arena's nodes";
    FreeNodes "which graph has a free node";
    Holder "who has a graph's addresses";
    Orphans "memory of instances that are gone";
    Captured "what captures allocate";
    Devices "the devices";
    /// Nothing is received, sent, accepted or closed under it.
    Connection "a connection";
    Heap "a pool's heap";
    Pools "the pools";
    Closing "pools that are gone";
    /// In the order of their numbers.
    Life "a life" several;
    /// In the order of their devices and pools.
    Grants "a pool's grants" several;
    Outputs "what launches leave";
    GraphFrees "the graphs' frees";
    NativeAlone "a graph's native instance";
    NativeNodes "a native graph's nodes";
    LastRun "the last run of a graph's closure";
    External "an external event";
    LegacyLast "the legacy stream's last operation";
    LegacyNoted "what the legacy stream comes after";
    Sharing "what is shared with other processes";
    Peer "an exporter";
    Exporter "tickets and connections";
    Watch "what the thread of sharing waits for";
    Foreign "chains of other processes";
    Guests "memory of other devices";
    Retired "pinned memory that was dropped";
    Slots "numbers of chains";
    Chains "the chains";
    InFlight "what is in flight";
    Host "what the host knows";
    EndsAhead "the end that is asked for first";
    Strays "ends of launches";
    LaunchEnd "the end of a launch";
    TracedShares "names of what is shared";
    TracedNodes "names of alloc nodes";
    TracedRefused "nodes that were refused";
    AllocNumbers "numbers of allocations";
    StreamNumbers "numbers of streams";
    Reported "what was reported";
    StreamNames "names of streams";
    TracesAskedFor "the traces that the environment asks for";
    Traces "the traces";
    TraceOutput "a trace";
}
