//! Lowers streams, events and processes to edges.
//!
//! A stream's task needs the task before it on the stream, what its process knew when it was submitted, and what the
//! rules of default streams add. A wait needs the record that was the latest when the wait was called. Learning that
//! something has completed is a task of the process, which needs the completed task.

mod access;
mod graphs;
mod memory;

use std::collections::{HashMap, HashSet};

use millpond_core::ids::{AllocId, DeviceId, EventId, ExecId, GraphId, HostId, ProcessId, StreamId, TicketId};
use millpond_core::op::{Access, EventKind, Memory, Names, StreamRole, What};

use super::{Effect, LifeOf, Model, TASKS_MAX, Task, TooMuch};
use crate::Program;
use access::{Grant, Owner};
use graphs::{Captured, Exec, Graph};
use memory::Named;

/// Streams of one process and device share a legacy default stream.
type Home = (ProcessId, DeviceId);

/// A stream of the program.
#[derive(Debug)]
struct Stream {
    role: StreamRole,
    home: Home,
    name: Option<String>,
    /// The last act of its process before it was made. Its handle does not exist earlier.
    made_after: Option<usize>,
    last: Option<usize>,
}

/// The meaning of an event.
#[derive(Clone, Debug)]
enum Stands {
    Task(usize),
    Captured(GraphId, Vec<usize>),
}

/// A model that is being built.
struct Lower<'a> {
    names: &'a Names,
    called: &'a HashMap<AllocId, String>,
    model: Model,
    line: u32,
    host: HostId,
    streams: HashMap<StreamId, Stream>,
    /// Blocking streams that were destroyed: their last tasks.
    ended: HashMap<Home, Vec<usize>>,
    events: HashMap<EventId, Stands>,
    processes: HashMap<HostId, ProcessId>,
    /// The last task of each process's host threads.
    timelines: HashMap<ProcessId, usize>,
    named: HashMap<Memory, Named>,
    /// The active grants, each as a life.
    grants: HashMap<Grant, usize>,
    /// The owner and the device of lives that other devices need a grant for.
    owners: HashMap<usize, (Owner, DeviceId)>,
    /// Lives of host memory.
    of_host: HashSet<usize>,
    /// The life that the latest launch gave the memory of an alloc node.
    latest: HashMap<Memory, usize>,
    /// As `latest`, for each instance.
    latest_of: HashMap<(ExecId, Memory), usize>,
    /// The exported life of each ticket, and the last act of its thread before the export.
    tickets: HashMap<TicketId, (usize, Option<usize>)>,
    graphs: HashMap<GraphId, Graph>,
    captures: HashMap<StreamId, Captured>,
    execs: HashMap<ExecId, Exec>,
    /// For the fixed addresses of a graph: the end of the last launch there, and the memory that it allocated.
    addresses: HashMap<GraphId, (usize, Vec<(Memory, usize)>)>,
}

pub(super) fn lower(program: &Program) -> Result<Model, TooMuch> {
    let Program { ops, names, settings, called, .. } = program;
    let mut lower = Lower {
        names,
        called,
        model: Model { races: settings.races, ..Model::default() },
        line: 0,
        host: HostId(0),
        streams: HashMap::new(),
        ended: HashMap::new(),
        events: HashMap::new(),
        processes: HashMap::new(),
        timelines: HashMap::new(),
        named: HashMap::new(),
        grants: HashMap::new(),
        owners: HashMap::new(),
        of_host: HashSet::new(),
        latest: HashMap::new(),
        latest_of: HashMap::new(),
        tickets: HashMap::new(),
        graphs: HashMap::new(),
        captures: HashMap::new(),
        execs: HashMap::new(),
        addresses: HashMap::new(),
    };
    for op in ops {
        (lower.line, lower.host) = (op.place.line().unwrap_or(0), op.host);
        lower.step(&op.what)?;
        if lower.model.tasks.len() > TASKS_MAX {
            return Err(TooMuch(format!("the program does more than {TASKS_MAX} things")));
        }
    }
    lower.launch_what_is_left();
    Ok(lower.model)
}

impl Lower<'_> {
    fn step(&mut self, what: &What) -> Result<(), TooMuch> {
        match *what {
            What::HostStart { process } => {
                self.processes.insert(self.host, process);
            }
            What::Tell { to } => self.learn(to, self.timeline(self.host)),
            What::StreamCreate { stream, role, device } => self.create(stream, role, device),
            What::StreamName { stream, name } => {
                let name = self.names.text(name).map(ToString::to_string);
                self.stream(stream).name = name;
            }
            What::StreamSynchronize { stream } | What::StreamQuery { stream, is_idle: true } => {
                if !self.captures.contains_key(&stream) {
                    let needs = self.needs(stream);
                    self.synchronise(needs);
                }
            }
            What::DeviceSynchronize => {
                let work = self.work_of(self.process(self.host), None);
                self.synchronise(work);
            }
            What::SynchronizeDevice { device } => {
                let work = self.work_of(self.process(self.host), Some(device));
                self.synchronise(work);
            }
            What::EventCopy { event, from } => {
                let stands = self.events.get(&from).cloned();
                match stands {
                    Some(stands) => drop(self.events.insert(event, stands)),
                    None => drop(self.events.remove(&event)),
                }
            }
            What::EventDestroy { event } => drop(self.events.remove(&event)),
            What::EventRecord { event, stream, external, kind } => self.record(event, stream, external, kind),
            What::EventWait { event, stream, external } => self.wait(event, stream, external),
            What::EventSynchronize { event } | What::EventQuery { event, is_over: true } => {
                if let Some(Stands::Task(record)) = self.events.get(&event) {
                    let record = *record;
                    self.synchronise(vec![record]);
                }
            }
            What::Launch { stream, ref accesses, .. } => self.work(stream, accesses, false),
            What::Copy { stream, ref accesses } => self.work(stream, accesses, true),
            ref other => {
                if !self.access_step(other) && !self.memory_step(other) {
                    self.graph_step(other)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the last tasks of a process's streams.
    fn work_of(&self, process: ProcessId, device: Option<DeviceId>) -> Vec<usize> {
        let is_meant = |home: &(ProcessId, DeviceId)| home.0 == process && device.is_none_or(|it| it == home.1);
        let open = self.streams.values().filter(|it| is_meant(&it.home)).filter_map(|it| it.last);
        let ended = self.ended.iter().filter(|(home, _)| is_meant(home)).flat_map(|(_, last)| last);
        open.chain(ended.copied()).collect()
    }

    fn create(&mut self, id: StreamId, role: StreamRole, device: DeviceId) {
        let home = (self.process(self.host), device);
        let made_after = self.timeline(self.host);
        let new = Stream { role, home, name: None, made_after, last: None };
        let old = self.streams.insert(id, new);
        // If a stream's number is reused, the work of the former stream goes on.
        if let Some(Stream { home, last: Some(last), .. }) = old {
            self.ended.entry(home).or_default().push(last);
        }
    }

    /// Returns a stream. The legacy default stream exists without being created.
    fn stream(&mut self, id: StreamId) -> &mut Stream {
        let home = (self.process(self.host), DeviceId(0));
        let made = || Stream { role: StreamRole::Legacy, home, name: None, made_after: None, last: None };
        self.streams.entry(id).or_insert_with(made)
    }

    fn process(&self, host: HostId) -> ProcessId {
        self.processes.get(&host).copied().unwrap_or(ProcessId(0))
    }

    fn timeline(&self, host: HostId) -> Option<usize> {
        self.timelines.get(&self.process(host)).copied()
    }

    /// Lets the next acts of a thread's process come after a task.
    fn learn(&mut self, host: HostId, known: Option<usize>) {
        let needs = known.into_iter().chain(self.timeline(host)).collect();
        let edge = self.push(Task { needs, is_hidden: true, ..Task::default() });
        self.timelines.insert(self.process(host), edge);
    }

    /// Returns the tasks that a stream's next task needs.
    fn needs(&mut self, id: StreamId) -> Vec<usize> {
        let timeline = self.timeline(self.host);
        let Stream { role, home, made_after, last, .. } = *self.stream(id);
        let is_blocking = |role| matches!(role, StreamRole::Blocking | StreamRole::PerThread);
        let others = self.streams.values().filter(|it| it.home == home);
        let mut needs: Vec<usize> = match role {
            StreamRole::Legacy => {
                let ended = self.ended.get(&home).into_iter().flatten().copied();
                others.filter(|it| is_blocking(it.role)).filter_map(|it| it.last).chain(ended).collect()
            }
            StreamRole::NonBlocking => Vec::new(),
            _ => others.filter(|it| it.role == StreamRole::Legacy).filter_map(|it| it.last).collect(),
        };
        needs.extend(timeline.into_iter().chain(made_after).chain(last));
        needs
    }

    /// Appends a task. Returns its index.
    fn push(&mut self, task: Task) -> usize {
        let line = if task.line == 0 { self.line } else { task.line };
        let (mut needs, at) = (task.needs, self.model.tasks.len());
        needs.sort_unstable();
        needs.dedup();
        for effect in &task.effects {
            self.model.lives[effect.life].users.push(at);
        }
        self.model.tasks.push(Task { needs, line, ..task });
        at
    }

    /// Appends a task to a stream. Returns its index.
    fn submit(&mut self, stream: StreamId, effects: Vec<Effect>) -> usize {
        let (needs, who) = (self.needs(stream), self.who(stream));
        let task = self.push(Task { needs, effects, who, ..Task::default() });
        self.stream(stream).last = Some(task);
        task
    }

    fn who(&mut self, stream: StreamId) -> String {
        self.stream(stream).name.clone().unwrap_or_else(|| stream.to_string())
    }

    /// Lowers work on a stream: a node if the stream is captured, else a task.
    fn work(&mut self, stream: StreamId, accesses: &[Access], is_copy: bool) {
        if !self.captured_work(stream, accesses) {
            let device = self.stream(stream).home.1;
            let effects = self.granted(device, is_copy, accesses);
            self.submit(stream, effects);
        }
    }

    /// Lowers an act of the calling thread itself: an access, or learning that something has completed.
    fn act(&mut self, mut needs: Vec<usize>, effects: Vec<Effect>) -> usize {
        let process = self.process(self.host);
        needs.extend(self.timelines.get(&process));
        let task = self.push(Task { needs, effects, who: "host".into(), ..Task::default() });
        self.timelines.insert(process, task);
        task
    }

    fn synchronise(&mut self, needs: Vec<usize>) {
        self.act(needs, Vec::new());
    }

    fn record(&mut self, event: EventId, stream: StreamId, external: bool, kind: EventKind) {
        let stands = match self.captures.get(&stream) {
            Some(_) if external => return self.captured_event(stream, event, true),
            Some(captured) => Some(Stands::Captured(captured.graph, captured.tails.clone())),
            None if external => None,
            None => {
                let record = self.submit(stream, Vec::new());
                (kind != EventKind::Progress).then_some(Stands::Task(record))
            }
        };
        match stands {
            Some(stands) => drop(self.events.insert(event, stands)),
            None => drop(self.events.remove(&event)),
        }
    }

    fn wait(&mut self, event: EventId, stream: StreamId, external: bool) {
        if external {
            if self.captures.contains_key(&stream) {
                self.captured_event(stream, event, false);
            }
            return;
        }
        match self.events.get(&event).cloned() {
            Some(Stands::Captured(graph, tails)) => self.join(stream, graph, tails),
            Some(Stands::Task(record)) if !self.captures.contains_key(&stream) => {
                let (mut needs, who) = (self.needs(stream), self.who(stream));
                needs.push(record);
                let task = self.push(Task { needs, who, ..Task::default() });
                self.stream(stream).last = Some(task);
            }
            _ => {}
        }
    }

    fn new_life(&mut self, memory: Memory, is_there: bool) -> usize {
        let name = self.called.get(&memory.id).cloned().unwrap_or_else(|| memory.id.to_string());
        self.model.lives.push(LifeOf { name, is_there, ..LifeOf::default() });
        self.model.lives.len() - 1
    }

    /// Returns the tasks that have used a life so far.
    fn users(&self, life: usize) -> Vec<usize> {
        self.model.lives[life].users.clone()
    }
}
