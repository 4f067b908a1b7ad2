//! The order of a traced program as a picture: lanes, operations, and the edges between operations of different lanes.
//!
//! The checker says which points and events each operation waits for ([`Effects`]). This module finds the drawn
//! operations of these points and events, and those of the sides of a finding.

use std::collections::HashMap;

use millpond_core::check::{Effects, Side};
use millpond_core::ids::{ChainIndex, DeviceId, EventId, HostId, Point, ProcessId, Seq, StreamId, TicketId};
use millpond_core::op::{Op, What};

use super::scene::{Arrow, EdgeKind, Lane, Operation, OperationKind};

/// A stream.
struct Stream {
    lane: u32,
    /// The step of each operation that the checker counted.
    counted: Vec<u64>,
    /// The newest synchronisation that it comes after because its work was submitted later.
    submitted: Option<u64>,
}

/// The order of a program; see the module.
#[derive(Default)]
pub(super) struct Order {
    pub(super) lanes: Vec<Lane>,
    pub(super) operations: Vec<Operation>,
    pub(super) arrows: Vec<Arrow>,
    threads: HashMap<u32, u32>,
    processes: HashMap<HostId, ProcessId>,
    streams: HashMap<StreamId, Stream>,
    /// The step of each position of a chain; `None` where the chain begins.
    chains: HashMap<ChainIndex, Vec<(Seq, Option<u64>)>>,
    /// The step that recorded each event. `tickets` has the step that exported each ticket.
    events: HashMap<EventId, u64>,
    tickets: HashMap<TicketId, u64>,
    /// The last step at which each process learned about completion.
    learned: HashMap<ProcessId, u64>,
}

/// Returns the kind of an operation in a picture, or `None` if it only makes or names something, or learned nothing.
pub(super) fn kind_of(what: &What) -> Option<OperationKind> {
    Some(match what {
        What::Alloc { .. } | What::AllocNow { .. } => OperationKind::Alloc,
        What::Free { .. } | What::FreeNow { .. } | What::Drop { .. } => OperationKind::Free,
        What::Launch { .. } | What::Copy { .. } | What::HostAccess { .. } => OperationKind::Kernel,
        What::EventRecord { .. } => OperationKind::Record,
        What::EventWait { .. } | What::Follow { .. } => OperationKind::Wait,
        What::StreamSynchronize { .. }
        | What::DeviceSynchronize
        | What::SynchronizeDevice { .. }
        | What::EventSynchronize { .. }
        | What::StreamQuery { is_idle: true, .. }
        | What::EventQuery { is_over: true, .. } => OperationKind::Sync,
        What::GraphLaunch { .. } => OperationKind::Launch,
        What::CaptureBegin { .. } | What::CaptureToGraph { .. } => OperationKind::Capture,
        What::CaptureEnd { .. } | What::CaptureAbandon { .. } => OperationKind::CaptureEnd,
        What::GraphNode { .. }
        | What::GraphEdge { .. }
        | What::GraphEdgeRemove { .. }
        | What::GraphNodeRemove { .. } => OperationKind::Build,
        What::Instantiate { .. } | What::ExecUpdate { .. } => OperationKind::Instantiate,
        What::Tell { .. } | What::Export { .. } | What::Import { .. } => OperationKind::Tell,
        What::StreamDestroy { .. } | What::PoolDestroy { .. } => OperationKind::End,
        What::GraphUpload { .. } | What::PoolAccess { .. } | What::PeerAccess { .. } => OperationKind::Other,
        _ => return None,
    })
}

/// Returns the stream on whose lane an operation is drawn, or `None` if it is drawn on its thread's lane.
pub(super) fn stream_of(what: &What) -> Option<StreamId> {
    match what {
        What::StreamName { .. } | What::StreamSynchronize { .. } | What::StreamQuery { .. } => None,
        _ => what.stream(),
    }
}

impl Order {
    /// Registers new streams, threads and copies of events. The operation itself may not be part of a picture.
    pub(super) fn prepare(&mut self, op: &Op, effects: &Effects) {
        match op.what {
            What::HostStart { process } => drop(self.processes.insert(op.host, process)),
            What::StreamCreate { stream, device, .. } => {
                self.open(op.host, stream, device);
                // Its chain may have the index of the chain of a destroyed stream.
                if let Some(point) = effects.point {
                    self.chains.entry(point.chain).or_default().push((point.seq, None));
                }
            }
            What::EventCopy { event, from } => {
                let recorded = self.events.get(&from).copied();
                self.events.extend(recorded.map(|step| (event, step)));
            }
            _ => {}
        }
    }

    fn process(&self, host: HostId) -> ProcessId {
        self.processes.get(&host).copied().unwrap_or(ProcessId(0))
    }

    fn open(&mut self, host: HostId, id: StreamId, device: DeviceId) -> u32 {
        let (lane, process) = (self.lanes.len() as u32, self.process(host));
        self.lanes.push(Lane { name: String::new(), stream: Some(id.0), device: device.0, process: process.0 });
        self.streams.insert(id, Stream { lane, counted: Vec::new(), submitted: None });
        lane
    }

    /// Returns the lane of an operation.
    pub(super) fn lane(&mut self, op: &Op) -> u32 {
        if let Some(stream) = stream_of(&op.what) {
            let known = self.streams.get(&stream).map(|stream| stream.lane);
            return known.unwrap_or_else(|| self.open(op.host, stream, DeviceId(0)));
        }
        if let Some(&lane) = self.threads.get(&op.host.thread()) {
            return lane;
        }
        let (lane, process) = (self.lanes.len() as u32, self.process(op.host));
        self.lanes.push(Lane { name: op.host.thread().to_string(), stream: None, device: 0, process: process.0 });
        self.threads.insert(op.host.thread(), lane);
        lane
    }

    /// Adds the operation of the next step.
    pub(super) fn push(&mut self, op: &Op, operation: Operation, effects: &Effects) {
        let step = self.operations.len() as u64;
        self.operations.push(operation);
        let process = self.process(op.host);
        let is_of_event = |point: &Point| effects.awaited.iter().any(|(_, record)| record.as_ref() == Some(point));
        let events = &self.events;
        let of_event = |kind| move |(event, _): &(EventId, Option<Point>)| Some((*events.get(event)?, kind));
        let mut before: Vec<(u64, EdgeKind)> = Vec::new();
        if let Some(stream) = stream_of(&op.what) {
            before.extend(effects.awaited.iter().filter_map(of_event(EdgeKind::Event)));
            // A wait is made even if the operation itself is refused.
            let waits = effects.waits.iter().filter(|point| !is_of_event(point));
            let from = waits.filter_map(|point| self.at(*point));
            before.extend(from.map(|from| (from, self.edge_kind(&op.what, from, operation.graph))));
            let learned = self.learned.get(&process).copied();
            if let Some(stream) = self.streams.get_mut(&stream).filter(|_| !operation.is_refused) {
                if learned > stream.submitted {
                    stream.submitted = learned;
                    before.extend(learned.map(|from| (from, EdgeKind::Submit)));
                }
                stream.counted.resize(stream.counted.len().max(effects.number as usize), step);
            }
        } else if operation.kind == OperationKind::Sync {
            before.extend(effects.awaited.iter().filter_map(of_event(EdgeKind::Sync)));
            let learned = effects.learned.iter().filter(|point| !is_of_event(point));
            before.extend(learned.filter_map(|point| Some((self.at(*point)?, EdgeKind::Sync))));
        } else if let What::Import { ticket, .. } = op.what {
            before.extend(self.tickets.get(&ticket).map(|&from| (from, EdgeKind::Tell)));
        }
        self.draw(step, before);
        if operation.is_refused {
            return;
        }
        // A synchronisation of a stream is not an operation of that stream.
        if let Some(point) = effects.point.filter(|_| operation.kind != OperationKind::Sync) {
            self.chains.entry(point.chain).or_default().push((point.seq, Some(step)));
        }
        self.events.extend(effects.recorded.iter().map(|event| (*event, step)));
        if let What::Export { ticket, .. } = op.what {
            self.tickets.insert(ticket, step);
        }
        if !effects.learned.is_empty() {
            let by = if let What::Tell { to } = op.what { self.process(to) } else { process };
            self.learned.insert(by, step);
        }
    }

    /// Returns the kind of an edge to an operation of a stream from a step, if no event is named for it.
    fn edge_kind(&self, what: &What, from: u64, graph: u32) -> EdgeKind {
        let before = &self.operations[from as usize];
        match what {
            What::Follow { .. } => EdgeKind::Event,
            What::GraphLaunch { .. } if before.kind == OperationKind::Launch && before.graph == graph => {
                EdgeKind::Launch
            }
            _ => EdgeKind::Default,
        }
    }

    /// Returns the newest step at or before a point of a chain.
    fn at(&self, point: Point) -> Option<u64> {
        let chain = self.chains.get(&point.chain)?;
        let behind = chain.partition_point(|(seq, _)| *seq <= point.seq);
        chain[behind.checked_sub(1)?].1
    }

    fn draw(&mut self, to: u64, mut before: Vec<(u64, EdgeKind)>) {
        before.sort_unstable();
        before.dedup();
        let lane = |step: u64| self.operations[step as usize].lane;
        let between = before.into_iter().filter(|(from, _)| lane(*from) != lane(to));
        let arrows: Vec<Arrow> = between.map(|(from, kind)| Arrow { from, to, kind }).collect();
        self.arrows.extend(arrows);
    }

    /// Returns the step of a side's operation, which the checker numbers within its stream.
    pub(super) fn locate(&self, side: &Side) -> Option<u64> {
        if side.process.is_some() {
            return None;
        }
        let op = usize::try_from(side.op?.checked_sub(1)?).ok()?;
        self.streams.get(&side.stream?)?.counted.get(op).copied()
    }

    /// Removes lanes without operations, and sorts the others by process. Within a process, hosts come first, then
    /// streams by device and number.
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
