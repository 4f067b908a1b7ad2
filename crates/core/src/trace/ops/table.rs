//! The code and the fields of each operation, in order: one table that gives both the writer and the reader.
//!
//! A code is never given to another operation; a new operation gets the next code. `[Gone]` after a field stands for
//! a former field. `field = value` after a row restricts the code to operations with that value, so that the most
//! frequent operations are short, and traces from before that field existed can be read.

use super::field::{Field, Gone};
use super::frame::Reason;
use super::state::{In, Out};
use crate::op::{Trust, What};

/// The code of an operation that only earlier versions wrote: a process has ended, and its imports are returned. Now
/// each of these leases is dropped.
const PROCESS_END: u8 = 40;

macro_rules! table {
    ($($code:literal $what:ident { $($field:ident $([$gone:ident])?),* } $($is:ident = $value:path)?)*) => {
        /// Returns the code of an operation.
        #[inline]
        pub(super) fn code(what: &What) -> u8 {
            match what { $(What::$what { $($is: $value,)? .. } => $code),* }
        }

        /// Writes the fields of an operation.
        #[inline]
        pub(super) fn put(what: &What, out: &mut Out<'_>) {
            match what {
                $(What::$what { $($field,)* $($is: $value)? } => { $($field.put(out); $($gone.put(out);)?)* })*
            }
        }

        /// Reads the fields of an operation with this code.
        #[inline]
        pub(super) fn take(code: u8, from: &mut In<'_, '_>) -> Result<What, Reason> {
            match code {
                $($code => {
                    $(let $field = Field::take(from)?; $($gone::take(from)?;)?)*
                    Ok(What::$what { $($field,)* $($is: $value)? })
                })*
                PROCESS_END => Err(Reason::Former("the end of a process")),
                _ => Err(Reason::Code(code)),
            }
        }
    };
}

table! {
    0 HostStart { process }
    1 Tell { to }
    2 StreamCreate { stream, role, device }
    3 StreamDestroy { stream }
    4 StreamName { stream, name }
    5 StreamSynchronize { stream }
    6 StreamQuery { stream, is_idle }
    7 DeviceSynchronize {}
    8 EventCreate { event, device, shared }
    9 EventDestroy { event }
    10 EventRecord { event, stream, external, kind }
    11 EventWait { event, stream, external }
    12 EventSynchronize { event }
    13 EventQuery { event, is_over }
    14 PoolCreate { pool, exportable } device = None
    15 PoolDestroy { pool }
    16 Alloc { memory, pool, stream, bytes, name }
    17 AllocNow { memory, space, bytes, name }
    18 SetName { memory, name }
    19 Free { memory, stream } trust = Trust::None
    20 FreeNow { memory }
    21 Drop { memory }
    22 Launch { stream, accesses [Gone], name } trust = Trust::None
    23 HostAccess { accesses }
    24 GraphCreate { graph, symbolic }
    25 GraphNode { graph, node, after, name }
    26 GraphEdge { graph, from, to }
    27 GraphEdgeRemove { graph, from, to }
    28 GraphNodeRemove { graph, node }
    29 GraphClone { graph, copy }
    30 GraphDestroy { graph }
    31 CaptureBegin { stream, graph, mode, symbolic }
    32 CaptureEnd { stream }
    33 Instantiate { graph, exec, auto_free_on_launch }
    34 ExecUpdate { exec, graph }
    35 GraphLaunch { exec, stream }
    36 Take { exec, node, memory }
    37 ExecDestroy { exec }
    38 Export { memory, ticket }
    39 Import { ticket, memory }
    41 PoolAccess { pool, device, reach }
    42 EventCopy { event, from }
    43 SynchronizeDevice { device }
    44 GraphUpload { exec, stream }
    45 CopyName { graph, node, memory }
    46 CaptureModeExchange { mode }
    47 Copy { stream, accesses }
    48 PeerAccess { owner, device, is_enabled }
    49 PoolCreate { pool, exportable, device }
    50 Free { memory, stream, trust }
    51 Launch { stream, accesses, trust, name }
    52 Follow { stream, after }
    53 CaptureToGraph { stream, graph, after, mode }
    54 CaptureAbandon { stream }
}
