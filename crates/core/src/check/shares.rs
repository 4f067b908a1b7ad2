//! Memory that processes share: one exports it, others hold it by leases, and the owner frees it last.
//!
//! An importer's uses are uses of the owner's allocation. An importer's free ends only its lease. That free must come
//! after the importer's own uses and before the owner's free (CUDA: "imported memory must be freed from all importing
//! processes before being freed in the exporting process"). An owner that drops its memory waits for no process: the
//! lifetime ends with its last holder. Knows lifetimes and threads.

use super::checker::{Call, Checker, Refused, Step, quiet};
use super::finding::Finding;
use super::lives::{Lease, LifeId, Named, Source, Ticket};
use super::timeline::StreamIndex;
use super::usage::ALWAYS;
use crate::ids::{StreamId, TicketId};
use crate::life::{History, Kind, Site, Use};
use crate::op::{Act, Memory};

impl Checker {
    /// Exports memory to other processes by a ticket.
    pub(super) fn export(&mut self, call: Call<'_>, memory: Memory, ticket: TicketId) -> Step {
        let site = self.host_site(call, Act::Read);
        let target = self.resolve(call, memory, site)?;
        let life = self.lives.at(target.life);
        if target.is_lease || !life.is_exportable() {
            let subject = self.subject(call, memory, life.bytes, life.name);
            let is_pool = matches!(life.source, Source::Stream { .. });
            let (what, help) = match target.is_lease {
                true => ("it is imported itself", "export it where it was allocated: only its owner offers it"),
                false if is_pool => {
                    ("its pool is not for other processes", "allocate it from a pool that is made with a handle type")
                }
                false => ("it is of no pool", "export memory that a stream allocates from a pool, and copy to that"),
            };
            let mut finding = Finding::new(Kind::NotShareable, format!("{subject} is exported, but {what}"), help);
            finding.subject = Some(subject);
            finding.earlier = (!target.is_lease).then(|| self.act_side(call, life.history.born().site));
            finding.later = Some(self.side(call, site, "exported"));
            return Err(Box::new(finding));
        }
        let known = self.time.base(call.op.host);
        self.lives.tickets.insert(ticket, Ticket { life: target.life, known });
        Ok(())
    }

    /// Imports memory by a ticket. This waits for nothing. The importer's uses must come by other means after
    /// everything that the exporting thread did not know to have completed.
    pub(super) fn import(&mut self, call: Call<'_>, ticket: TicketId, memory: Memory) -> Step {
        let site = self.host_site(call, Act::Allocate);
        if self.lives.void_tickets.contains(&ticket) {
            return Err(quiet());
        }
        // A ticket is good for one import.
        let Some(Ticket { life, known }) = self.lives.tickets.remove(&ticket) else {
            let help =
                "import it once, after it is exported and before the owner frees it; export again for each importer";
            let mut finding = Finding::new(
                Kind::UnknownName,
                format!("{ticket} was never exported, or was imported or withdrawn already"),
                help,
            );
            finding.later = Some(self.side(call, site, "imported"));
            return Err(Box::new(finding));
        };
        self.time.learn_base(call.op.host, &known);
        let process = self.time.process(call.op.host);
        let history = History::new(Use { point: ALWAYS, site });
        self.lives.at_mut(life).leases.push(Lease {
            memory,
            process,
            place: call.op.place,
            is_doubtful: false,
            history,
        });
        self.lives.name(memory, Named::Lease(life));
        Ok(())
    }

    /// Frees an import on a stream of the importer.
    pub(super) fn release(&mut self, call: Call<'_>, stream_index: StreamIndex, memory: Memory, life: LifeId) -> Step {
        let site = self.site(call, stream_index, Act::Free);
        let chain = &self.time.at(stream_index).chain;
        if let Some(Err(fault)) = self.lives.lease_mut(life, memory).map(|lease| lease.check_free(chain)) {
            return Err(self.unordered(call, life, fault, site));
        }
        let point = self.time.at_mut(stream_index).chain.submit();
        self.time.done(stream_index, "freed", call.op.place);
        self.end_lease(memory, life, Use { point, site });
        Ok(())
    }

    /// Frees an import immediately.
    pub(super) fn release_now(&mut self, call: Call<'_>, memory: Memory, life: LifeId) -> Step {
        let site = self.host_site(call, Act::Free);
        let base = self.time.base(call.op.host);
        if let Some(Err(fault)) = self.lives.lease_mut(life, memory).map(|lease| lease.check_free(&*base)) {
            return Err(self.unordered(call, life, fault, site));
        }
        let point = self.time.act(call.op.host);
        self.end_lease(memory, life, Use { point, site });
        Ok(())
    }

    /// Drops an import: after everything declared so far, and after what the importer's thread knows. If another
    /// process says so, as an exporter's trace does, the lease is known to have ended.
    pub(super) fn drop_lease(&mut self, call: Call<'_>, memory: Memory, life: LifeId, site: Site) {
        let (host, lease) = (call.op.host, self.lives.lease_mut(life, memory));
        let is_own = lease.is_some_and(|lease| lease.process == self.time.process(host));
        let point = if is_own { self.time.act(host) } else { ALWAYS };
        self.end_lease(memory, life, Use { point, site });
    }

    /// Ends a lease at a point that the owner's free must come after.
    pub(super) fn end_lease(&mut self, memory: Memory, life: LifeId, by: Use) {
        let held = self.lives.at_mut(life);
        held.leases.retain(|lease| lease.memory != memory);
        if by.point != ALWAYS {
            held.history.add_apart(by);
        }
        let freed = held.freed_by(by);
        let is_over = held.is_dropped && held.leases.is_empty();
        self.lives.forget(memory, freed);
        if is_over {
            self.end(life, by);
        }
    }

    /// Checks that all leases have ended, because the owner frees last.
    pub(super) fn check_leases(&mut self, call: Call<'_>, life: LifeId, later: Site) -> Step {
        let Some(lease) = self.lives.at(life).leases.first().cloned() else { return Ok(()) };
        self.lives.at_mut(life).is_doubtful = true;
        Err(self.still_held(call, life, lease, later))
    }

    #[cold]
    fn still_held(&self, call: Call<'_>, life: LifeId, lease: Lease, later: Site) -> Refused {
        let life = self.lives.at(life);
        let subject = self.subject(call, life.memory, life.bytes, life.name);
        let site = Site { act: Act::Allocate, stream: StreamId::HOST, op: 0, place: lease.place };
        let import = self.side(call, site, "imported");
        let by = self.act_side(call, later);
        let finding = Finding::while_imported(subject, lease.process.to_string(), import, by);
        Box::new(finding)
    }
}
