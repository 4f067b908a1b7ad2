//! Judges whether the order of a program is right.
//!
//! A verdict depends on the operations alone: which party did what to an allocation, at which points, and which points
//! come before which. This module never sees the memory of a pool or an address of a device. Where memory is placed and
//! what the device has completed cannot change a verdict (*timing-blind*). Which allocations of a graph share bytes
//! follows from the graph's edges; for this, graphs have addresses here that no device has.
//!
//! | file | contents |
//! |---|---|
//! | `checker` | the checker, and what becomes of an operation |
//! | `timeline` | streams, processes, the knowledge of hosts |
//! | `lives`, `names`, `left` | memory by the program's names; frees, and memory that launches leave |
//! | `usage` | allocations, uses and frees |
//! | `events` | records, waits, queries |
//! | `captures`, `graphs`, `graph_state`, `grants`, `addresses` | graphs, by capture and by hand; who may free what |
//! | `launches`, `launching`, `protocol`, `inside` | instances and launches; the node that did something |
//! | `shares`, `reach` | other processes; access to memory of other devices |
//! | `finding`, `explain`, `edges`, `refusals`, `words`, `edit` | findings: both sides, the missing edges, the texts |
//! | `found`, `suppressions` | findings as plain texts for reports, and rules for those that are not wanted |
//! | `effects` | the effects of an operation, for a caller that shows them |
//! | `numbers` | the table from numbers of memory to lifetimes, and uses that repeat |

mod addresses;
mod captures;
mod checker;
mod edges;
mod edit;
mod effects;
mod events;
mod explain;
mod finding;
mod found;
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
mod protocol;
mod reach;
mod refusals;
mod shares;
mod suppressions;
mod timeline;
mod usage;
mod words;

pub use crate::life::{Fault, History, Kind, Site, Use};
pub use checker::{Checker, Settings};
pub use edges::{Way, brought, settled_by};
pub use edit::Edit;
pub use effects::{Captured, Effects};
pub use finding::{Edge, Finding, Known, Side, Spot, Subject};
pub use found::{Found, Shown, ShownMemory};
pub use inside::Sought;
pub use protocol::{Launch, Launched, judge};
pub use suppressions::{Suppression, Suppressions, WrongSuppression};

pub use crate::op::{Act, Place};
