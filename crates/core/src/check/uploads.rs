//! What orders a stream after the launches of an instance before: its next launch, and an upload, which is that alone.

use smallvec::smallvec;

use super::checker::{Call, Checker, Step};
use super::graph_state::{Instance, Last};
use super::timeline::Seat;
use crate::ids::{ExecId, StreamId};
use crate::op::Act;

impl Checker {
    /// The stream comes after the launches before.
    pub(super) fn follow_launches(&mut self, seat: Seat, instance: &Instance) {
        for last in &instance.before.last {
            self.time.wait(seat, &last.snapshot);
        }
    }

    /// An instance's memory is bound on a stream.
    pub(super) fn upload(&mut self, call: Call<'_>, exec: ExecId, stream: StreamId) -> Step {
        let seat = self.enter(call, stream)?;
        self.instance(call, exec)?;
        self.refuse_in_capture(call, stream, "a graph is uploaded")?;
        let Some(mut instance) = self.graphs.execs.remove(&exec) else { return Ok(()) };
        self.follow_launches(seat, &instance);
        let site = self.site(call, seat, Act::Read);
        let uploading = self.time.at_mut(seat);
        uploading.chain.submit();
        let snapshot = uploading.chain.snapshot();
        instance.before.last = smallvec![Last { snapshot, site }];
        self.graphs.execs.insert(exec, instance);
        self.done(seat, "uploaded", call.op.place);
        Ok(())
    }
}
