//! Is the program's own order right?
//!
//! A verdict depends on the operations alone: who did what to an allocation, at which points, and which points come
//! before which. This module never sees a pool or an address of a device; where memory is placed and what the device
//! has finished cannot change what it says (*timing-blind*). Which allocations of a graph share bytes follows from the
//! graph's edges: for that graphs have addresses here that no device has.
//!
//! | file | what it has |
//! |---|---|
//! | `checker` | the checker, and what becomes of an operation |
//! | `timeline` | streams, processes, what hosts know |
//! | `lives`, `names`, `left` | memory by the program's names; what is freed, and what is left at the end |
//! | `usage` | allocations, uses and frees |
//! | `events` | records, waits, queries |
//! | `captures`, `graphs`, `graph_state`, `grants`, `addresses` | graphs, by capture and by hand; who may free what |
//! | `launches`, `launching`, `protocol`, `inside` | instances and launches; which node did what |
//! | `shares`, `reach` | other processes; pools and memory of other devices |
//! | `finding`, `explain`, `edges`, `refusals`, `words`, `edit` | findings: both sides, the missing edges, the words |
//! | `engine`, `answer` | a step that says what the device has to do, for a library; events by handle |
//! | `withdraw`, `changes` | launches that a driver refuses after they were judged right |
//! | `private` | memory that one stream alone has named, which is not stepped |
//! | `numbers` | small numbers for the numbers of a trace |

mod addresses;
mod answer;
mod captures;
mod changes;
mod checker;
mod edges;
mod edit;
mod engine;
mod events;
mod explain;
mod finding;
mod grants;
mod graph_state;
mod graphs;
mod inside;
mod launches;
mod launching;
mod left;
mod lives;
mod names;
mod numbers;
mod private;
mod protocol;
mod reach;
mod refusals;
mod shares;
mod timeline;
mod usage;
mod withdraw;
mod words;

pub use crate::life::{Fault, History, Kind, Site, Use};
pub use answer::{Begun, Captured, Done, Ended, Reason, Refusal, StreamHandle, Wait};
pub use checker::{Checker, Recorded, Settings};
pub use edges::{Way, brought, settled_by};
pub use edit::Edit;
pub use finding::{Edge, Finding, Known, Side, Spot, Subject};
pub use inside::Sought;
pub use private::Header;
pub use protocol::{Launch, Launched, judge};

pub use crate::op::{Act, Place};
