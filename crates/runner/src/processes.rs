//! Programs with several processes: each process has a host device of its own, and memory passes between them by
//! tickets.
//!
//! The processes are devices of this process. The library cannot see what one process tells another without an event,
//! so programs that need more of this than an export carries are not run here. Programs that race with an importer that
//! uses the memory are not run either: each process is checked against what it has learned, so the race would really
//! happen.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use millpond::config::Trace;
use millpond::error::ShareError;
use millpond::share::{self, Ticket};
use millpond::{Buffer, Device, Error, Event, HostConfig, Pool, PoolConfig, Stream, View};
use millpond_core::check::{Checker, Kind, Settings};
use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, ProcessId, StreamId, TicketId};
use millpond_core::op::{Access, Act, EventKind, Memory, Names, Op, StreamRole, What};

use crate::kernels::{copied, launched, on_slices, sums};
use crate::{Cannot, Found, Refusal, Said, Stopped, cannot, kind_of, said};

/// Returns `true` if a program has other processes than the first.
pub(crate) fn has(ops: &[Op]) -> bool {
    ops.iter().any(|op| matches!(op.what, What::HostStart { process } if process != ProcessId(0)))
}

/// Memory of a process.
enum Held {
    Buffer(Buffer<u8>),
    /// The memory was given away, or never existed.
    Gone(Option<(View<u8>, u64)>),
}

/// Memory that passes between processes.
#[derive(Default)]
struct Shared {
    tickets: HashMap<TicketId, Ticket>,
    /// The memory of each ticket.
    offered: HashMap<TicketId, Memory>,
    /// The exporter's name of imported memory.
    imported: HashMap<Memory, Memory>,
    /// Memory that an importer's host returned, by the exporter's name. The importer has sent nothing about it since.
    given_back: HashMap<Memory, ProcessId>,
}

/// The knowledge of the processes about each other.
#[derive(Default)]
struct Knowledge {
    /// Processes whose host learned something after it exported memory. No ticket carries that.
    knows_more: BTreeSet<ProcessId>,
    /// Tickets that carried less than a `tell` would.
    untold: BTreeSet<TicketId>,
    offered_by: HashMap<TicketId, ProcessId>,
    /// The processes whose events each process has waited for, directly or through others.
    waited_for: HashMap<ProcessId, BTreeSet<ProcessId>>,
}

#[derive(Default)]
struct Run {
    /// The device of each process, with a buffer whose name is the line of the next operation.
    devices: HashMap<ProcessId, (Device, Buffer<u8>)>,
    hosts: HashMap<HostId, ProcessId>,
    streams: HashMap<StreamId, (ProcessId, Stream)>,
    events: HashMap<EventId, (ProcessId, Event)>,
    /// Events that were not made for other processes. The library does not distinguish these.
    private: BTreeSet<EventId>,
    pools: HashMap<PoolId, Pool>,
    memory: HashMap<Memory, (ProcessId, Held)>,
    shared: Shared,
    knowledge: Knowledge,
    /// The lines with races.
    races: BTreeSet<u32>,
    found: BTreeSet<Refusal>,
    line: u32,
}

/// Runs a program and returns what was refused, with the lines.
pub(crate) fn run(ops: &[Op], trace: &dyn Fn() -> Option<Trace>) -> Result<Found, Stopped> {
    let mut run = Run { races: races(ops), ..Run::default() };
    for op in ops {
        run.line = op.place.line().unwrap_or(0);
        let process = match op.what {
            What::HostStart { process } => process,
            _ => run.hosts.get(&op.host).copied().unwrap_or(ProcessId(0)),
        };
        if let Entry::Vacant(free) = run.devices.entry(process) {
            let config = HostConfig::default().trace(trace());
            let device = Device::host(config).expect("a host device");
            let own = device.stream().expect("a stream");
            let marker = own.alloc::<u8>(&device.default_pool(), 1).expect("memory");
            free.insert((device, marker));
        }
        for (_, marker) in run.devices.values() {
            marker.set_name(&format!("line {}", run.line));
        }
        run.step(op).map_err(|why| Stopped { line: run.line, why })?;
    }
    // Work at the end of the program has no line.
    for (_, marker) in run.devices.values() {
        marker.set_name("line 0");
    }
    Ok(Found { verdict: run.found, ..Found::default() })
}

/// Returns the lines of operations that race with another process.
fn races(ops: &[Op]) -> BTreeSet<u32> {
    let (names, mut checker, mut findings) = (Names::default(), Checker::new(Settings::default()), Vec::new());
    for op in ops {
        checker.check(op, &names, &mut findings);
    }
    findings.iter().filter(|it| it.kind == Kind::Race).filter_map(|it| it.line()).collect()
}

impl Run {
    fn step(&mut self, op: &Op) -> Result<(), Cannot> {
        let process = self.hosts.get(&op.host).copied().unwrap_or(ProcessId(0));
        let said = match &op.what {
            What::HostStart { process } => {
                self.hosts.insert(op.host, *process);
                Said::Done
            }
            What::StreamName { .. } | What::SetName { .. } => Said::Done,
            // A ticket carries what its host knows.
            What::Tell { .. }
                if self.knowledge.knows_more.contains(&process)
                    && (self.knowledge.waited_for.contains_key(&process)
                        || self.knowledge.offered_by.values().any(|it| *it == process)) =>
            {
                return cannot("what a host learns later it tells no other");
            }
            What::Tell { .. } if !self.knowledge.untold.is_empty() && !self.shared.imported.is_empty() => {
                return cannot("a ticket tells of its own memory only");
            }
            What::Tell { .. } => {
                self.knowledge.untold.retain(|ticket| self.knowledge.offered_by[ticket] != process);
                self.shared.given_back.retain(|_, by| *by != process);
                Said::Done
            }
            What::StreamCreate { stream, role: StreamRole::Blocking, .. } => {
                let made = self.device(process).stream().expect("a stream");
                self.streams.insert(*stream, (process, made));
                Said::Done
            }
            What::StreamSynchronize { .. } | What::SynchronizeDevice { .. } if self.has_imported(process) => {
                return cannot("what an importer's host learns goes to its exporter with what is given back");
            }
            What::StreamSynchronize { stream } => {
                self.knowledge.knows_more.insert(process);
                said(self.stream(*stream)?.1.synchronize(), Act::Read)
            }
            What::SynchronizeDevice { device: DeviceId(0) } => {
                self.knowledge.knows_more.insert(process);
                said(self.device(process).synchronize(), Act::Read)
            }
            What::EventCreate { event, shared, .. } => {
                if !shared {
                    self.private.insert(*event);
                }
                Said::Done
            }
            What::EventRecord { event, stream, external: false, kind: EventKind::Completion } => {
                let (process, stream) = self.stream(*stream)?;
                let recorded = stream.record().expect("it records");
                self.events.insert(*event, (*process, recorded));
                Said::Done
            }
            What::EventWait { event, stream, external: false } => self.wait(*event, *stream)?,
            other => self.memory_step(process, other)?,
        };
        let Said::Refused(error, act) = said else { return Ok(()) };
        let kind = match error.share() {
            Some(ShareError::NotShareable { .. } | ShareError::Imported { .. }) => Some(Kind::NotShareable),
            Some(ShareError::Refused { why: share::Refusal::Stale | share::Refusal::Used, .. }) => {
                Some(Kind::UnknownName)
            }
            Some(other) => return cannot(&other.to_string()),
            None => kind_of(&error, act),
        };
        self.found.extend(kind.map(|kind| Refusal { line: self.line, kind }));
        Ok(())
    }

    /// Runs an operation on memory, or an export of memory.
    fn memory_step(&mut self, process: ProcessId, what: &What) -> Result<Said, Cannot> {
        if let What::Free { memory, .. } | What::FreeNow { memory } | What::Drop { memory } = what {
            if self.shared.given_back.contains_key(memory) {
                return cannot("an owner learns in any case of what is given back, and a `tell` says so");
            }
            if let (Some(owned), false) = (self.shared.imported.get(memory), matches!(what, What::Free { .. })) {
                self.shared.given_back.insert(*owned, process);
            }
        }
        Ok(match what {
            What::PoolCreate { pool, exportable, .. } => {
                let config = PoolConfig::default().shareable(*exportable);
                let made = self.device(process).pool(config).expect("a pool");
                self.pools.insert(*pool, made);
                Said::Done
            }
            What::Alloc { memory, pool, stream, bytes, .. } => {
                let (process, stream) = self.stream(*stream)?.clone();
                let pool = self.pools.get(pool).cloned().unwrap_or_else(|| self.device(process).default_pool());
                let made = stream.alloc::<u8>(&pool, *bytes as usize).expect("memory");
                self.memory.insert(*memory, (process, Held::Buffer(made)));
                Said::Done
            }
            What::Export { memory, ticket } => {
                let offered_by = &self.knowledge.offered_by;
                let is_untold = self.knowledge.untold.iter().any(|ticket| offered_by[ticket] == process);
                if self.knowledge.knows_more.remove(&process) || is_untold {
                    self.knowledge.untold.insert(*ticket);
                }
                self.knowledge.offered_by.insert(*ticket, process);
                self.export(*memory, *ticket)?
            }
            What::Import { ticket, memory } => self.import(process, *ticket, *memory)?,
            What::Free { memory, stream, .. } => {
                let stream = self.stream(*stream)?.1.clone();
                self.free(*memory, |buffer| stream.free(buffer), |address| stream.free_address(address))?
            }
            What::FreeNow { memory } => {
                let device = self.device(process).clone();
                self.free(*memory, |buffer| device.free(buffer), |address| device.free_address(address))?
            }
            What::Drop { memory } => {
                let Some((owner, Held::Buffer(buffer))) = self.memory.remove(memory) else {
                    return cannot("only a buffer can be dropped");
                };
                let gone = Held::Gone(Some((buffer.view(), buffer.address())));
                drop(buffer);
                self.memory.insert(*memory, (owner, gone));
                Said::Done
            }
            What::Launch { stream, accesses, .. } => self.launch(*stream, accesses, false)?,
            What::Copy { stream, accesses } => self.launch(*stream, accesses, true)?,
            other => return cannot(&format!("between processes: {other:?}")),
        })
    }

    fn device(&self, process: ProcessId) -> &Device {
        &self.devices[&process].0
    }

    fn stream(&self, stream: StreamId) -> Result<&(ProcessId, Stream), Cannot> {
        self.streams.get(&stream).map_or_else(|| cannot("a stream that is gone cannot be named"), Ok)
    }

    fn wait(&mut self, event: EventId, stream: StreamId) -> Result<Said, Cannot> {
        let (process, stream) = self.stream(stream)?.clone();
        let Some((recorded_by, recorded)) = self.events.get(&event).cloned() else { return Ok(Said::Done) };
        if recorded_by == process {
            return Ok(said(stream.wait(&recorded), Act::Read));
        }
        if self.private.contains(&event) {
            return cannot("the library has no events that cannot be exported");
        }
        let before = self.knowledge.waited_for.get(&recorded_by).cloned().unwrap_or_default();
        if before.contains(&process) && self.streams.values().filter(|it| it.0 == process).count() > 1 {
            return cannot("what others say of a process's own streams is not believed");
        }
        let waited_for = self.knowledge.waited_for.entry(process).or_default();
        waited_for.extend(before);
        waited_for.insert(recorded_by);
        let device = self.device(process).clone();
        let passed = recorded.export().and_then(|ticket| device.import_event(&ticket));
        Ok(said(passed.and_then(|event| stream.wait(&event)), Act::Read))
    }

    fn export(&mut self, memory: Memory, ticket: TicketId) -> Result<Said, Cannot> {
        let Some((_, Held::Buffer(buffer))) = self.memory.get(&memory) else {
            return cannot("only a buffer can be exported");
        };
        Ok(match buffer.export() {
            Ok(made) => {
                self.shared.tickets.insert(ticket, made);
                self.shared.offered.insert(ticket, memory);
                Said::Done
            }
            Err(error) => Said::Refused(error, Act::Read),
        })
    }

    #[allow(unsafe_code)] // The one unsafe call.
    fn import(&mut self, process: ProcessId, ticket: TicketId, memory: Memory) -> Result<Said, Cannot> {
        if self.knowledge.untold.contains(&ticket) {
            return cannot("a ticket tells what its host knows, and a `tell` says so");
        }
        self.shared.imported.extend(self.shared.offered.get(&ticket).map(|offered| (memory, *offered)));
        let Some(ticket) = self.shared.tickets.get(&ticket).cloned() else {
            self.memory.insert(memory, (process, Held::Gone(None)));
            return Ok(Said::Done);
        };
        // SAFETY: the accesses that run were found to be ordered. The library does not detect every unordered access
        // between processes at once, but no program here uses the memory while another process does.
        let imported = unsafe { self.device(process).import::<u8>(&ticket) };
        Ok(match imported {
            Ok(buffer) => {
                self.memory.insert(memory, (process, Held::Buffer(buffer)));
                Said::Done
            }
            Err(error) => {
                self.memory.insert(memory, (process, Held::Gone(None)));
                Said::Refused(error, Act::Allocate)
            }
        })
    }

    fn free(
        &mut self,
        memory: Memory,
        free: impl FnOnce(Buffer<u8>) -> Result<(), millpond::Refused<u8>>,
        free_address: impl FnOnce(u64) -> Result<(), Error>,
    ) -> Result<Said, Cannot> {
        let Some((process, held)) = self.memory.remove(&memory) else {
            return cannot("memory that was never allocated cannot be named");
        };
        let (held, said) = match held {
            Held::Buffer(buffer) => {
                let gone = Held::Gone(Some((buffer.view(), buffer.address())));
                match free(buffer) {
                    Ok(()) => (gone, Said::Done),
                    Err(refused) => (Held::Buffer(refused.buffer), Said::Refused(refused.error, Act::Free)),
                }
            }
            Held::Gone(Some((_, address))) if self.lies_at(address) => {
                return cannot("the address has another owner by now");
            }
            Held::Gone(Some((view, address))) => {
                (Held::Gone(Some((view, address))), said(free_address(address), Act::Free))
            }
            Held::Gone(None) => (Held::Gone(None), Said::Done),
        };
        self.memory.insert(memory, (process, held));
        Ok(said)
    }

    fn launch(&mut self, stream: StreamId, accesses: &[Access], is_copy: bool) -> Result<Said, Cannot> {
        let on = self.stream(stream)?.1.clone();
        if self.races.contains(&self.line) && accesses.iter().any(|access| self.is_at_it(access.memory)) {
            return cannot("it races with another process that is at it");
        }
        let act = accesses.iter().map(|access| access.act).find(|act| *act == Act::Write).unwrap_or(Act::Read);
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for access in accesses {
            let (read, write) = match self.memory.get(&access.memory) {
                Some((_, Held::Buffer(buffer))) => (buffer.read(), buffer.write()),
                Some((_, Held::Gone(Some((view, _))))) => (view.read(), view.write()),
                Some((_, Held::Gone(None))) => return Ok(Said::Done),
                None => return cannot("memory that was never allocated cannot be named"),
            };
            match access.act {
                Act::Read => reads.push(read),
                _ => writes.push(write),
            }
        }
        if is_copy {
            let Some((from, to)) = copied(&(reads, writes)) else { return cannot("a copy between different sizes") };
            return Ok(said(on.copy(from, to), act));
        }
        Ok(said(on_slices!(reads, writes, sums(), |declared, kernel| launched(&on, declared, kernel)), act))
    }

    fn has_imported(&self, process: ProcessId) -> bool {
        self.shared.imported.keys().any(|import| self.memory.get(import).is_some_and(|(owner, _)| *owner == process))
    }

    /// Returns `true` if a live buffer has this address.
    fn lies_at(&self, at: u64) -> bool {
        self.memory.values().any(|(_, held)| matches!(held, Held::Buffer(buffer) if buffer.address() == at))
    }

    /// Returns `true` if another process may be using the memory: its owner, or an importer.
    fn is_at_it(&self, memory: Memory) -> bool {
        let owned = *self.shared.imported.get(&memory).unwrap_or(&memory);
        if owned != memory {
            return true;
        }
        let others = self.shared.imported.iter().filter(|(import, of)| **import != memory && **of == owned);
        others.into_iter().any(|(import, _)| matches!(self.memory.get(import), Some((_, Held::Buffer(_)))))
    }
}
