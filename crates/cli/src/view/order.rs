//! The order of a traced program as a picture of it: lanes, operations, and what puts operations of different lanes in
//! order.
//!
//! What is in order and what is not is the checker's business: here stand the events, waits and synchronisations that
//! the program made, and for each operation that the checker counted the step at which it stands, so that the sides of
//! a finding are found again. What was refused puts nothing in order.

use std::collections::HashMap;
use std::convert::Infallible;

use millpond_core::check::Side;
use millpond_core::ids::{DeviceId, EventId, HostId, ProcessId, StreamId, TicketId};
use millpond_core::op::{Op, StreamRole, What};
use millpond_core::order::default_streams::{Standing, Ties, after, before};

use super::scene::{Arrow, Deed, Lane, Operation, Tie};

/// A stream.
struct Line {
    lane: u32,
    device: DeviceId,
    process: ProcessId,
    role: StreamRole,
    /// The step of its newest operation.
    last: Option<u64>,
    /// The step of each operation that the checker counted.
    counted: Vec<u64>,
    /// The newest steps that it comes after: of its host threads, and of the legacy default stream.
    host: Option<u64>,
    legacy: Option<u64>,
    /// Whether the legacy default stream has had no operation since its newest.
    is_owed: bool,
}

/// A legacy stream's home: the step of its newest operation, and the blocking streams that had operations since.
type Home = (Option<u64>, Vec<StreamId>);

/// A stream with an operation, as the rule of the default streams sees it: what comes before is drawn.
struct Drawn<'o> {
    id: StreamId,
    step: u64,
    home: &'o mut Home,
    streams: &'o mut HashMap<StreamId, Line>,
    arrows: &'o mut Vec<(u64, Tie)>,
}

impl Ties for Drawn<'_> {
    type Refused = Infallible;

    fn follow(&mut self) -> Result<(), Infallible> {
        let last = self.home.0;
        if let Some(line) = self.streams.get_mut(&self.id).filter(|line| last > line.legacy) {
            line.legacy = last;
            self.arrows.extend(last.map(|from| (from, Tie::Default)));
        }
        Ok(())
    }

    fn note(&mut self) {
        if let Some(line) = self.streams.get_mut(&self.id)
            && !std::mem::replace(&mut line.is_owed, true)
        {
            self.home.1.push(self.id);
        }
    }

    fn gather(&mut self) -> Result<(), Infallible> {
        for stream in std::mem::take(&mut self.home.1) {
            let Some(line) = self.streams.get_mut(&stream) else { continue };
            line.is_owed = false;
            self.arrows.extend(line.last.map(|from| (from, Tie::Default)));
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.home.0 = Some(self.step);
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Order {
    pub(super) lanes: Vec<Lane>,
    pub(super) operations: Vec<Operation>,
    pub(super) arrows: Vec<Arrow>,
    hosts: HashMap<HostId, u32>,
    processes: HashMap<HostId, ProcessId>,
    streams: HashMap<StreamId, Line>,
    events: HashMap<EventId, u64>,
    tickets: HashMap<TicketId, u64>,
    /// What the threads of a process learned or did last.
    known: HashMap<ProcessId, u64>,
    /// The streams of each process that had an operation since.
    fresh: HashMap<ProcessId, Vec<StreamId>>,
    /// The newest operation of each legacy default stream, and the blocking streams that had operations since.
    legacy: HashMap<(ProcessId, DeviceId), Home>,
}

/// What an operation is in a picture; none where it only makes or names something, or learned nothing.
pub(super) fn deed(what: &What) -> Option<Deed> {
    Some(match what {
        What::Alloc { .. } | What::AllocNow { .. } => Deed::Alloc,
        What::Free { .. } | What::FreeNow { .. } | What::Drop { .. } => Deed::Free,
        What::Launch { .. } | What::Copy { .. } | What::HostAccess { .. } => Deed::Kernel,
        What::EventRecord { .. } => Deed::Record,
        What::EventWait { .. } | What::Follow { .. } => Deed::Wait,
        What::StreamSynchronize { .. }
        | What::DeviceSynchronize
        | What::SynchronizeDevice { .. }
        | What::EventSynchronize { .. }
        | What::StreamQuery { is_idle: true, .. }
        | What::EventQuery { is_over: true, .. } => Deed::Sync,
        What::GraphLaunch { .. } => Deed::Launch,
        What::CaptureBegin { .. } => Deed::Capture,
        What::CaptureEnd { .. } => Deed::CaptureEnd,
        What::GraphNode { .. }
        | What::GraphEdge { .. }
        | What::GraphEdgeRemove { .. }
        | What::GraphNodeRemove { .. } => Deed::Build,
        What::Instantiate { .. } | What::ExecUpdate { .. } => Deed::Instantiate,
        What::Tell { .. } | What::Export { .. } | What::Import { .. } => Deed::Tell,
        What::StreamDestroy { .. } | What::PoolDestroy { .. } => Deed::End,
        What::GraphUpload { .. } | What::PoolAccess { .. } | What::PeerAccess { .. } => Deed::Other,
        _ => return None,
    })
}

/// The stream whose operation it is; none where it is a host thread's.
pub(super) fn stream_of(what: &What) -> Option<StreamId> {
    match *what {
        What::Alloc { stream, .. }
        | What::Free { stream, .. }
        | What::Launch { stream, .. }
        | What::Copy { stream, .. }
        | What::EventRecord { stream, .. }
        | What::EventWait { stream, .. }
        | What::Follow { stream, .. }
        | What::GraphLaunch { stream, .. }
        | What::GraphUpload { stream, .. }
        | What::CaptureBegin { stream, .. }
        | What::CaptureEnd { stream }
        | What::StreamDestroy { stream } => Some(stream),
        _ => None,
    }
}

impl Order {
    /// What makes streams, threads and events, and is no operation in a picture.
    pub(super) fn prepare(&mut self, op: &Op) {
        match op.what {
            What::HostStart { process } => drop(self.processes.insert(op.host, process)),
            What::StreamCreate { stream, role, device } => drop(self.open(op.host, stream, role, device)),
            What::EventCopy { event, from } => match self.events.get(&from).copied() {
                Some(step) => drop(self.events.insert(event, step)),
                None => drop(self.events.remove(&event)),
            },
            What::EventCreate { event, .. } | What::EventDestroy { event } => drop(self.events.remove(&event)),
            _ => {}
        }
    }

    fn process(&self, host: HostId) -> ProcessId {
        self.processes.get(&host).copied().unwrap_or(ProcessId(0))
    }

    fn open(&mut self, host: HostId, id: StreamId, role: StreamRole, device: DeviceId) -> u32 {
        let (lane, process) = (self.lanes.len() as u32, self.process(host));
        self.lanes.push(Lane { name: String::new(), stream: Some(id.0), device: device.0, process: process.0 });
        let counted = Vec::new();
        let line = Line { lane, device, process, role, last: None, counted, host: None, legacy: None, is_owed: false };
        self.streams.insert(id, line);
        lane
    }

    /// The lane of an operation.
    pub(super) fn lane(&mut self, op: &Op) -> u32 {
        if let Some(stream) = stream_of(&op.what) {
            let known = self.streams.get(&stream).map(|line| line.lane);
            let role = if stream == StreamId::LEGACY { StreamRole::Legacy } else { StreamRole::NonBlocking };
            return known.unwrap_or_else(|| self.open(op.host, stream, role, DeviceId(0)));
        }
        if let Some(&lane) = self.hosts.get(&op.host) {
            return lane;
        }
        let (lane, process) = (self.lanes.len() as u32, self.process(op.host));
        self.lanes.push(Lane { name: op.host.0.to_string(), stream: None, device: 0, process: process.0 });
        self.hosts.insert(op.host, lane);
        lane
    }

    /// The operation of a step. `counted` is how many operations of its stream the checker has done with it.
    pub(super) fn push(&mut self, op: &Op, operation: Operation, counted: u64) {
        let step = self.operations.len() as u64;
        self.operations.push(operation);
        if operation.is_refused {
            return;
        }
        match stream_of(&op.what) {
            Some(stream) => self.on_stream(op, stream, step, counted),
            None => self.on_host(op, step),
        }
    }

    fn on_stream(&mut self, op: &Op, id: StreamId, step: u64, counted: u64) {
        let followed = match op.what {
            What::Follow { after, .. } => self.streams.get(&after).and_then(|line| line.last),
            _ => None,
        };
        let (process, events) = (self.process(op.host), &self.events);
        let Some(line) = self.streams.get_mut(&id) else { return };
        let mut arrows = Vec::new();
        if let What::EventWait { event, .. } = op.what {
            arrows.extend(events.get(&event).map(|&from| (from, Tie::Event)));
        }
        arrows.extend(followed.map(|from| (from, Tie::Event)));
        let known = self.known.get(&process).copied();
        if known > line.host {
            line.host = known;
            arrows.extend(known.map(|from| (from, Tie::Submit)));
        }
        while (line.counted.len() as u64) < counted {
            line.counted.push(step);
        }
        // The first operation since the process knew of all before.
        if line.last <= self.known.get(&line.process).copied() {
            self.fresh.entry(line.process).or_default().push(id);
        }
        line.last = Some(step);
        let (home, standing) = ((line.process, line.device), line.role.standing());
        if standing != Standing::Free {
            let home = self.legacy.entry(home).or_default();
            let mut drawn = Drawn { id, step, home, streams: &mut self.streams, arrows: &mut arrows };
            let Ok(()) = before(standing, &mut drawn);
            after(standing, &mut drawn);
        }
        self.draw(step, &arrows);
        if let What::EventRecord { event, .. } = op.what {
            self.events.insert(event, step);
        }
    }

    /// A process knows of all before a step.
    fn tell(&mut self, process: ProcessId, step: u64) {
        self.known.insert(process, step);
        self.fresh.remove(&process);
    }

    fn on_host(&mut self, op: &Op, step: u64) {
        let process = self.process(op.host);
        let of_stream =
            |stream: &StreamId| self.streams.get(stream).and_then(|line| line.last).map(|it| (it, Tie::Sync));
        let of_all = |device: Option<DeviceId>| {
            let is_meant = |line: &&Line| device.is_none_or(|it| it == line.device);
            let fresh = self.fresh.get(&process).into_iter().flatten().filter_map(|stream| self.streams.get(stream));
            let mut all: Vec<u64> = fresh.filter(is_meant).filter_map(|line| line.last).collect();
            all.sort_unstable();
            all.dedup();
            all.into_iter().map(|last| (last, Tie::Sync)).collect()
        };
        let of_event = |event: &EventId| self.events.get(event).map(|&it| (it, Tie::Sync));
        let (arrows, is_news): (Vec<(u64, Tie)>, bool) = match &op.what {
            What::StreamSynchronize { stream } | What::StreamQuery { stream, .. } => {
                (of_stream(stream).into_iter().collect(), true)
            }
            What::DeviceSynchronize => (of_all(None), true),
            What::SynchronizeDevice { device } => (of_all(Some(*device)), true),
            What::EventSynchronize { event } | What::EventQuery { event, .. } => {
                (of_event(event).into_iter().collect(), true)
            }
            What::Import { ticket, .. } => {
                (self.tickets.get(ticket).map(|&from| (from, Tie::Tell)).into_iter().collect(), true)
            }
            What::HostAccess { .. } => (Vec::new(), true),
            _ => (Vec::new(), false),
        };
        self.draw(step, &arrows);
        if is_news {
            self.tell(process, step);
        }
        match op.what {
            What::Export { ticket, .. } => drop(self.tickets.insert(ticket, step)),
            What::Tell { to } => self.tell(self.process(to), step),
            _ => {}
        }
    }

    /// A launch records and waits for the events of its graph's nodes.
    pub(super) fn launched(&mut self, waits: &[EventId], records: &[EventId]) {
        let Some(step) = (self.operations.len() as u64).checked_sub(1) else { return };
        let arrows: Vec<_> = waits.iter().filter_map(|it| self.events.get(it)).map(|&it| (it, Tie::Event)).collect();
        self.draw(step, &arrows);
        self.events.extend(records.iter().map(|event| (*event, step)));
    }

    fn draw(&mut self, to: u64, ties: &[(u64, Tie)]) {
        let lane = |step: u64| self.operations.get(step as usize).map(|operation| operation.lane);
        let between = ties.iter().filter(|(from, _)| *from < to && lane(*from) != lane(to));
        let arrows: Vec<Arrow> = between.map(|&(from, tie)| Arrow { from, to, tie }).collect();
        self.arrows.extend(arrows);
    }

    /// The step of an operation of a stream, as the checker counts them.
    pub(super) fn locate(&self, side: &Side) -> Option<u64> {
        if side.process.is_some() {
            return None;
        }
        let op = usize::try_from(side.op?.checked_sub(1)?).ok()?;
        self.streams.get(&side.stream?)?.counted.get(op).copied()
    }

    /// Leaves out lanes without an operation, and puts hosts first, then streams by process, device and number.
    pub(super) fn finish(&mut self, title: &dyn Fn(StreamId) -> (String, u32)) {
        let mut is_used = vec![false; self.lanes.len()];
        self.operations.iter().for_each(|operation| is_used[operation.lane as usize] = true);
        let mut kept: Vec<usize> = (0..self.lanes.len()).filter(|&lane| is_used[lane]).collect();
        kept.sort_by_key(|&lane| {
            let it = &self.lanes[lane];
            (it.process, it.stream.is_some(), it.device, it.stream, lane)
        });
        let mut places = vec![0; self.lanes.len()];
        kept.iter().enumerate().for_each(|(place, &lane)| places[lane] = place as u32);
        self.operations.iter_mut().for_each(|operation| operation.lane = places[operation.lane as usize]);
        let processes: Vec<u32> = kept.iter().map(|&lane| self.lanes[lane].process).collect();
        let are_several = processes.windows(2).any(|pair| pair[0] != pair[1]);
        let threads = kept.iter().filter(|&&lane| self.lanes[lane].stream.is_none()).count();
        let named = |lane: usize| {
            let mut it = self.lanes[lane].clone();
            match it.stream {
                Some(stream) => {
                    let (name, place) = title(StreamId(stream));
                    (it.name, it.stream) = (name, Some(place));
                }
                None if threads == 1 => it.name = "host".to_owned(),
                None => it.name = format!("thread {}", it.name),
            }
            if are_several {
                it.name += &format!(" of process {}", it.process);
            }
            it
        };
        self.lanes = kept.into_iter().map(named).collect();
    }
}
