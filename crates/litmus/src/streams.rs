//! Statements about streams, events, threads and processes.

use millpond_core::check::Settings;
use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, ProcessId, StreamId};
use millpond_core::op::{EventKind, Reach, StreamRole, What};

use crate::Refusal;
use crate::lower::{Count, Lower, Symbol};
use crate::statements::statements;

impl Lower {
    statements! {
        /// Lowers a line about streams, events, threads and processes.
        fn stream_statement(&mut self, words) -> (), STREAM_STATEMENTS;
        ["set", "races", is @ ("on" | "off")] => self.set(|settings| settings.races = is == "on");
        ["set", "leaks", is @ ("on" | "off")] => self.set(|settings| settings.leaks = is == "on");
        ["stream", s, ref rest @ ..] "[nonblocking | per-thread | legacy] [on 1]" => self.new_stream(s, rest);
        ["event", f, "holds", e] => self.copy_event(f, e);
        ["event", e, ref rest @ ..] "[shared] [on 1]" => self.new_event(e, rest);
        ["pool", p] => self.new_pool(p, false);
        ["pool", p, "shared"] => self.new_pool(p, true);
        ["grant", p, "to", device] => self.reach(p, device, Reach::ReadWrite);
        ["grant", p, "to", device, "read"] => self.reach(p, device, Reach::Read);
        ["revoke", p, "from", device] => self.reach(p, device, Reach::None);
        ["grant", "device", owner, "to", device] => self.peer(owner, device, true);
        ["revoke", "device", owner, "from", device] => self.peer(owner, device, false);
        ["thread", t] => self.new_host(t).map(drop);
        ["process", p] => self.new_process(p);
        ["tell", t] => self.tell(t);
        ["record", e, s] => self.record(e, s, false, EventKind::Completion);
        ["record", e, s, "external"] => self.record(e, s, true, EventKind::Completion);
        ["record", e, s, "progress"] => self.record(e, s, false, EventKind::Progress);
        ["wait", s, e] => self.wait(s, e, false);
        ["wait", s, e, "external"] => self.wait(s, e, true);
        ["synchronize", "device"] => self.push(What::SynchronizeDevice { device: DeviceId(0) });
        ["synchronize", "device", device] => {
            let device = self.device(&["on", device])?;
            self.push(What::SynchronizeDevice { device })
        };
        ["synchronize", s] => match self.symbol(s) {
            Some(Symbol::Event(event)) => self.push(What::EventSynchronize { event }),
            _ => {
                let stream = self.stream(s)?;
                self.push(What::StreamSynchronize { stream })
            }
        };
        ["query", s, answer @ ("yes" | "no")] => match self.symbol(s) {
            Some(Symbol::Event(event)) => self.push(What::EventQuery { event, is_over: answer == "yes" }),
            _ => {
                let stream = self.stream(s)?;
                self.push(What::StreamQuery { stream, is_idle: answer == "yes" })
            }
        };
        ["destroy", x] => self.destroy(x);
    }

    fn set(&mut self, set: impl FnOnce(&mut Settings)) -> Result<(), Refusal> {
        set(&mut self.settings);
        Ok(())
    }

    fn new_stream(&mut self, name: &str, rest: &[&str]) -> Result<(), Refusal> {
        let (role, rest) = match rest {
            ["nonblocking", rest @ ..] => (StreamRole::NonBlocking, rest),
            ["per-thread", rest @ ..] => (StreamRole::PerThread, rest),
            ["legacy", rest @ ..] => (StreamRole::Legacy, rest),
            rest => (StreamRole::Blocking, rest),
        };
        let device = self.device(rest)?;
        // A default stream exists once for each device, of a process or of a thread, whatever its name.
        let default = match role {
            StreamRole::Legacy => Some((self.process(), device, None)),
            StreamRole::PerThread => Some((self.process(), device, Some(self.host))),
            _ => None,
        };
        let known = default.and_then(|whose| self.defaults.get(&whose).copied());
        let stream = known.unwrap_or_else(|| match default {
            Some((ProcessId(0), DeviceId(0), None)) => StreamId(0),
            _ => StreamId(self.next(Count::Stream)),
        });
        self.define(name, Symbol::Stream(stream))?;
        if known.is_none() {
            self.push(What::StreamCreate { stream, role, device })?;
        }
        self.defaults.extend(default.map(|whose| (whose, stream)));
        let name = self.names.intern(name);
        self.push(What::StreamName { stream, name })
    }

    fn device(&self, rest: &[&str]) -> Result<DeviceId, Refusal> {
        match rest {
            [] => Ok(DeviceId(0)),
            ["on", number] => Ok(DeviceId(self.count(number, 0..=255)? as u32)),
            other => {
                self.refuse(format!("`{}` is not understood here", other.join(" ")), "a device is named by `on 1`")
            }
        }
    }

    fn new_event(&mut self, name: &str, rest: &[&str]) -> Result<(), Refusal> {
        let (shared, rest) = match rest {
            ["shared", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let device = self.device(rest)?;
        let event = EventId(self.next(Count::Event));
        self.define(name, Symbol::Event(event))?;
        self.push(What::EventCreate { event, device, shared })
    }

    /// Returns an event, and makes it if it does not exist.
    pub(crate) fn event_to_record(&mut self, name: &str) -> Result<EventId, Refusal> {
        if self.symbol(name).is_none() {
            let event = EventId(self.next(Count::Event));
            self.define(name, Symbol::Event(event))?;
        }
        self.event(name)
    }

    fn copy_event(&mut self, name: &str, from: &str) -> Result<(), Refusal> {
        let (from, event) = (self.event(from)?, self.event_to_record(name)?);
        self.push(What::EventCopy { event, from })
    }

    fn reach(&mut self, pool: &str, device: &str, reach: Reach) -> Result<(), Refusal> {
        let (pool, device) = (self.pool(pool)?, self.device(&["on", device])?);
        self.push(What::PoolAccess { pool, device, reach })
    }

    fn peer(&mut self, owner: &str, device: &str, is_enabled: bool) -> Result<(), Refusal> {
        let (owner, device) = (self.device(&["on", owner])?, self.device(&["on", device])?);
        self.push(What::PeerAccess { owner, device, is_enabled })
    }

    fn new_pool(&mut self, name: &str, exportable: bool) -> Result<(), Refusal> {
        // Number 0 is the default pool.
        let pool = PoolId(self.next(Count::Pool) + 1);
        self.define(name, Symbol::Pool(pool))?;
        self.push(What::PoolCreate { pool, exportable, device: None })
    }

    fn new_host(&mut self, name: &str) -> Result<HostId, Refusal> {
        let host = HostId(self.next(Count::Host));
        self.define(name, Symbol::Host(host))?;
        Ok(host)
    }

    /// Starts a process with its only thread.
    fn new_process(&mut self, name: &str) -> Result<(), Refusal> {
        self.refuse_capture_beside_processes(self.has_captured)?;
        let host = self.new_host(name)?;
        let process = ProcessId(host.0);
        self.processes.insert(host, process);
        self.push_by(host, What::HostStart { process })
    }

    pub(crate) fn refuse_capture_beside_processes(&self, are_both: bool) -> Result<(), Refusal> {
        if are_both {
            let help = "make the graph by nodes, or check each process by itself";
            return self.refuse("a program of several processes captures nothing", help);
        }
        Ok(())
    }

    fn tell(&mut self, thread: &str) -> Result<(), Refusal> {
        let to = self.host(thread)?;
        let process = self.processes.get(&to).copied().unwrap_or(ProcessId(0));
        if process == self.process() {
            let help = "leave it out: threads of one process know the same, and `tell` is for another process";
            return self.refuse(format!("`{thread}` is of this process"), help);
        }
        self.push(What::Tell { to })
    }

    fn record(&mut self, event: &str, stream: &str, external: bool, kind: EventKind) -> Result<(), Refusal> {
        let (stream, event) = (self.stream(stream)?, self.event_to_record(event)?);
        self.push(What::EventRecord { event, stream, external, kind })
    }

    fn wait(&mut self, stream: &str, event: &str, external: bool) -> Result<(), Refusal> {
        let (stream, event) = (self.stream(stream)?, self.event(event)?);
        self.push(What::EventWait { event, stream, external })
    }

    fn destroy(&mut self, name: &str) -> Result<(), Refusal> {
        self.of_this_process(name)?;
        match self.symbol(name) {
            Some(Symbol::Stream(stream)) => {
                self.defaults.retain(|_, default| *default != stream);
                self.push(What::StreamDestroy { stream })
            }
            Some(Symbol::Event(event)) => self.push(What::EventDestroy { event }),
            Some(Symbol::Pool(pool)) => self.push(What::PoolDestroy { pool }),
            Some(Symbol::Graph(graph)) => self.push(What::GraphDestroy { graph }),
            Some(Symbol::Exec(exec)) => self.push(What::ExecDestroy { exec }),
            _ => {
                let help = "streams, events, pools, graphs and instances can be destroyed; memory is freed, and a \
                            process frees or drops what it imported";
                self.refuse(format!("`{name}` cannot be destroyed"), help)
            }
        }
    }
}
