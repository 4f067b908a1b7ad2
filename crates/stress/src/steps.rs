//! The interface of a thread of a program, of either kind: operations one by one, and an end.

use crate::op::Op;

/// A thread of a program.
pub(crate) trait Runs: Send {
    /// Runs an operation.
    fn step(&mut self, op: Op);

    /// Drops everything in a random order.
    fn finish(self, chance: u64);
}

/// Runs an operation of a kind that both kinds of threads have. Each adds its own kinds.
macro_rules! step {
    ($thread:ident, $op:ident, { $($kind:pat => $other:expr,)* }) => {
        match $op.kind {
            Kind::Open => $thread.open($op),
            Kind::Close => $thread.close($op),
            Kind::MakePool => $thread.make_pool($op),
            Kind::DropPool => $thread.drop_pool($op),
            Kind::SetPool => $thread.set_pool($op),
            Kind::Trim => $thread.trim($op),
            Kind::Look => $thread.look($op),
            Kind::Alloc => $thread.alloc($op),
            Kind::Copy => $thread.copy($op),
            Kind::Free => $thread.free($op),
            Kind::Drop => $thread.drop_buf($op),
            Kind::FreeNow => $thread.free_now($op),
            Kind::Stale => $thread.use_stale($op),
            Kind::Record => $thread.record($op),
            Kind::Wait => $thread.wait($op),
            Kind::SyncEvent | Kind::IsOver => $thread.ask_event($op),
            Kind::SyncStream | Kind::IsIdle => $thread.ask_stream($op),
            $($kind => $other,)*
        }
    };
}
pub(crate) use step;
