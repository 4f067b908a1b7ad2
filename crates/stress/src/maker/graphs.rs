//! Graphs: built node by node or by capture, nested, instantiated repeatedly, launched, updated and dropped.
//!
//! A graph writes memory of its own, checks it, frees it or leaves it live, and uses some of the thread's memory. Every
//! launch does the same, so one pattern serves all launches.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use millpond_core::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use millpond_core::op::{Access, Act, CaptureMode, EventKind, Memory, NodeOp, Trust, What};
use millpond_runner::Work;
use smallvec::SmallVec;

use super::{Buf, Thread, pick, place};
use crate::bytes::{Content, Look, Of};
use crate::finding::{finding, lock};
use crate::ground::{Before, Done, Launches};
use crate::kind::Kind;
use crate::model::Kernel;
use crate::op::Op;
use crate::random::{Random, mix};

/// A kernel of a graph that writes memory of the thread.
#[derive(Clone, Debug)]
struct Outside {
    memory: Memory,
    content: Content,
    line: u32,
    launches: Launches,
}

/// A graph of the thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    id: GraphId,
    nodes: u32,
    /// The outputs of a launch: the memory, its number of words, and its content.
    outputs: Vec<(Memory, usize, Content)>,
    /// The kernels that write memory of the thread.
    outside: Vec<Outside>,
    /// The events that it records.
    records: Vec<EventId>,
    /// An event that it waits for before it uses memory of the thread.
    gate: Option<EventId>,
    has_memory: bool,
}

/// An instance of the thread.
#[derive(Clone, Debug)]
pub(super) struct Exec {
    id: ExecId,
    made: Made,
    /// `true` if a launch frees the outputs of the launch before.
    frees: bool,
}

/// A graph that is being built node by node.
struct Draft {
    made: Made,
    /// Memory that is live at this point: its number of words, its content, its writer and its readers.
    live: Vec<(Memory, usize, Content, Vec<NodeId>)>,
    random: Random,
}

impl Outside {
    /// Prepares a launch. Returns the flag that is set when the kernel has run.
    fn launch(&self) -> Option<Done> {
        let done = Done::default();
        lock(&self.launches).as_mut().map(|launches| {
            launches.push_back(Arc::clone(&done));
            done
        })
    }

    /// Undoes [`launch`](Self::launch), because the graph was not launched or because that is not known.
    fn not_launched(&self, is_unsure: bool) {
        let mut launches = lock(&self.launches);
        match is_unsure {
            true => launches.take().into_iter().flatten().for_each(|done| done.store(true, Ordering::Release)),
            false => drop(launches.as_mut().and_then(VecDeque::pop_back)),
        }
    }
}

impl Draft {
    fn some(&mut self) -> Vec<NodeId> {
        let count = u64::from(self.made.nodes);
        let mut some: Vec<NodeId> =
            (0..self.random.below(3).min(count)).map(|_| NodeId(self.random.below(count) as u32)).collect();
        some.sort_unstable();
        some.dedup();
        some
    }
}

impl Thread<'_> {
    /// Returns a kernel, or bytes of the host, that leave this content in memory.
    fn work_of(&self, (memory, words): (Memory, usize), before: Content, after: Content, micros: u64) -> Work {
        let of = Of { first: 0, all: words };
        match self.runs_closures() {
            true => {
                let ground = Arc::clone(&self.stage.ground);
                let (life, doubt, done) = (memory.id.0, None, None);
                Work::Kernel(Look { ground, life, before, doubt, after, done, micros, of }.kernel())
            }
            false => Work::FromHost(after.bytes(0, words)),
        }
    }

    /// Returns a kernel, or bytes of the host, that leave this content in memory of the thread, and its description.
    fn outside_work(&self, buf: &Buf, content: Content, micros: u64) -> (Work, Outside) {
        let work = self.work_of((buf.memory, buf.words), Content::Unknown, content, micros);
        let launches = Launches::new(Mutex::new(self.runs_closures().then(VecDeque::new)));
        let line = self.ops.len() as u32 + 1;
        let outside = Outside { memory: buf.memory, content, line, launches: Arc::clone(&launches) };
        let Work::Kernel(mut kernel) = work else { return (work, outside) };
        let says = move |reads: &[&[u8]], writes: &mut [&mut [u8]]| {
            kernel(reads, writes);
            let done = lock(&launches).as_mut().and_then(VecDeque::pop_front);
            done.into_iter().for_each(|done| done.store(true, Ordering::Release));
        };
        (Work::Kernel(Box::new(says)), outside)
    }

    /// Adds a node. Returns its number if it was added.
    fn add(&mut self, draft: &mut Draft, after: &[NodeId], node: NodeOp, work: Option<Work>) -> Option<NodeId> {
        let (graph, after) = (draft.made.id, SmallVec::from_slice(after));
        let what = What::GraphNode { graph, node: Box::new(node), after, name: None };
        self.perform_with(what, work).then(|| {
            draft.made.nodes += 1;
            NodeId(draft.made.nodes - 1)
        })
    }

    fn add_alloc(&mut self, draft: &mut Draft) {
        let after = draft.some();
        let bits = draft.random.below(17);
        let words = 1 + draft.random.below(1 << bits) as usize;
        let (memory, content) = (self.new_memory(), Content::Words(mix(draft.random.number())));
        let micros = self.stage.micros(draft.random.number() as u32);
        let node = NodeOp::Alloc { memory, bytes: words as u64 * 8 };
        let Some(alloc) = self.add(draft, &after, node, None) else { return };
        draft.made.has_memory = true;
        let work = self.work_of((memory, words), Content::Unknown, content, micros);
        let write = NodeOp::Kernel(SmallVec::from_slice(&[Access::whole(memory, Act::Write)]));
        if let Some(writer) = self.add(draft, &[alloc], write, Some(work)) {
            draft.live.push((memory, words, content, vec![writer]));
        }
    }

    fn add_read(&mut self, draft: &mut Draft) {
        let at = draft.random.below(draft.live.len() as u64) as usize;
        let (memory, words, content, users) = draft.live[at].clone();
        let node = match self.runs_closures() {
            true => NodeOp::Kernel(SmallVec::from_slice(&[Access::whole(memory, Act::Read)])),
            false => NodeOp::Empty,
        };
        let work = self.runs_closures().then(|| self.work_of((memory, words), content, content, 0));
        if let Some(node) = self.add(draft, &users[..1], node, work) {
            draft.live[at].3.push(node);
        }
    }

    /// Adds a node that records an external event or waits for one.
    fn add_event(&mut self, draft: &mut Draft, after: &[NodeId], records: bool) -> Option<(EventId, NodeId)> {
        let at = pick(&self.externals, draft.random.number() as u32)?;
        let event = self.externals[at].as_ref()?.id;
        let node = if records { NodeOp::EventRecord(event) } else { NodeOp::EventWait(event) };
        let node = self.add(draft, after, node, None)?;
        draft.made.records.extend(records.then_some(event));
        Some((event, node))
    }

    pub(super) fn build(&mut self, op: Op) {
        let mut random = Random::new(u64::from(op.c));
        let child = random.chance(20).then(|| self.by_nodes(random.number(), None)).flatten();
        let Some(made) = self.by_nodes(u64::from(op.c), Some((op, child))) else { return };
        self.keep(made, op);
    }

    /// Keeps a graph: instantiates it and puts it in a place.
    fn keep(&mut self, made: Made, op: Op) {
        self.instantiate(&made, op.c >> 5 & 1 == 0);
        let at = place(&self.graphs, op.b);
        if let Some(old) = self.graphs[at].replace(made) {
            self.perform(What::GraphDestroy { graph: old.id });
        }
    }

    fn by_nodes(&mut self, seed: u64, whole: Option<(Op, Option<Made>)>) -> Option<Made> {
        let id = GraphId(self.stage.number());
        if !self.perform(What::GraphCreate { graph: id, symbolic: false }) {
            return None;
        }
        let made = Made { id, ..Made::default() };
        let mut draft = Draft { made, live: Vec::new(), random: Random::new(seed) };
        for _ in 0..2 + draft.random.below(14) {
            match draft.random.below(8) {
                0..=2 => self.add_alloc(&mut draft),
                3 | 4 if !draft.live.is_empty() => self.add_read(&mut draft),
                5 | 6 if !draft.live.is_empty() => {
                    let at = draft.random.below(draft.live.len() as u64) as usize;
                    let (memory, .., users) = draft.live.swap_remove(at);
                    self.add(&mut draft, &users, NodeOp::Free(memory), None);
                }
                7 if self.stage.setting.event_nodes && draft.random.chance(50) => {
                    let (after, records) = (draft.some(), draft.random.chance(40));
                    self.add_event(&mut draft, &after, records);
                }
                _ => {
                    let after = draft.some();
                    self.add(&mut draft, &after, NodeOp::Empty, None);
                }
            }
        }
        if let Some((op, child)) = whole {
            self.use_outside(&mut draft, op);
            if let Some(child) = child {
                let after = draft.some();
                if self.add(&mut draft, &after, NodeOp::Child(child.id), None).is_some() {
                    draft.made.outputs.extend(child.outputs);
                    draft.made.records.extend(child.records);
                    draft.made.has_memory |= child.has_memory;
                }
            }
        }
        if draft.random.chance(5) && !draft.live.is_empty() {
            // Nothing orders this write after the alloc node.
            let (memory, words, content, _) = draft.live[0].clone();
            let work = self.work_of((memory, words), Content::Unknown, content, 0);
            let write = NodeOp::Kernel(SmallVec::from_slice(&[Access::whole(memory, Act::Write)]));
            self.add(&mut draft, &[], write, Some(work));
        }
        if self.stage.setting.event_nodes && draft.random.chance(25) {
            let all: Vec<NodeId> = (0..draft.made.nodes).map(NodeId).collect();
            self.add_event(&mut draft, &all, true);
        }
        let left = draft.live.iter().map(|(memory, words, content, _)| (*memory, *words, *content));
        draft.made.outputs.extend(left);
        Some(draft.made)
    }

    /// Adds nodes that use memory of the thread. One may own some of it.
    fn use_outside(&mut self, draft: &mut Draft, op: Op) {
        let is_gated = self.stage.setting.event_nodes && draft.random.chance(30);
        let gate = is_gated.then(|| self.add_event(draft, &[], false)).flatten();
        draft.made.gate = gate.map(|it| it.0);
        for at in 0..self.bufs.len() {
            let Some(buf) = self.bufs[at].clone() else { continue };
            if buf.pool.is_none() || buf.device != 0 || !draft.random.chance(15) {
                continue;
            }
            let (mut after, content) = (draft.some(), Content::Words(mix(u64::from(buf.memory.id.0 ^ op.c))));
            after.extend(gate.map(|it| it.1).filter(|it| !after.contains(it)));
            let (work, outside) = self.outside_work(&buf, content, self.stage.micros(draft.random.number() as u32));
            let write = NodeOp::Kernel(SmallVec::from_slice(&[Access::whole(buf.memory, Act::Write)]));
            if self.add(draft, &after, write, Some(work)).is_some() {
                draft.made.outside.push(outside);
                self.bufs[at].iter_mut().for_each(|buf| buf.is_in_graph = true);
            }
        }
        if self.stage.setting.has(Kind::Owning) && self.stage.runs_kernels() && draft.random.chance(30) {
            let cargo = self.cargo(op, 0);
            let after = draft.some();
            let kernel = move |_: &[&[u8]], _: &mut [&mut [u8]]| {
                let _keeps = &cargo;
            };
            self.add(draft, &after, NodeOp::Kernel(SmallVec::new()), Some(Work::Kernel(Box::new(kernel))));
        }
    }

    /// Launches work on a capturing stream.
    fn captured(&mut self, stream: StreamId, memory: Memory, act: Act, work: Work) -> bool {
        let accesses = SmallVec::from_slice(&[Access::whole(memory, act)]);
        self.perform_with(What::Launch { stream, accesses, trust: Trust::None, name: None }, Some(work))
    }

    /// Orders one stream after another, by an event.
    fn fork(&mut self, from: StreamId, to: StreamId) -> bool {
        let event = EventId(self.stage.number());
        self.perform(What::EventRecord { event, stream: from, external: false, kind: EventKind::Completion })
            && self.perform(What::EventWait { event, stream: to, external: false })
    }

    pub(super) fn capture(&mut self, op: Op) {
        let is_free = |it: &super::Line| !it.is_shared && it.device == 0;
        let of = |thread: &Self, number: u32| {
            let at = pick(&thread.streams, number)?;
            thread.streams[at].as_ref().filter(|it| is_free(it)).map(|it| it.id)
        };
        let Some(stream) = of(self, op.a) else { return };
        let side = of(self, op.a >> 4).filter(|it| *it != stream);
        let Some(pool) = pick(&self.pools, op.b).and_then(|at| self.pools[at].clone()).filter(|it| it.device == 0)
        else {
            return;
        };
        let mut random = Random::new(u64::from(op.c));
        let graph = GraphId(self.stage.number());
        let mode = [CaptureMode::Global, CaptureMode::Relaxed, CaptureMode::ThreadLocal][random.below(3) as usize];
        if !self.perform(What::CaptureBegin { stream, graph, mode, symbolic: false }) {
            return;
        }
        let begun = self.ops.len() - 1;
        let mut made = Made { id: graph, has_memory: true, ..Made::default() };
        let mut is_loose = false;
        for _ in 0..1 + random.below(4) {
            self.captured_event(stream, &mut made, &mut random);
            let (memory, words) = (self.new_memory(), 1 + random.below(9000) as usize);
            let bytes = words as u64 * 8;
            if !self.perform(What::Alloc { memory, pool: pool.id, stream, bytes, name: None }) {
                continue;
            }
            let content = Content::Words(mix(random.number()));
            let work = self.work_of((memory, words), Content::Unknown, content, 0);
            self.captured(stream, memory, Act::Write, work);
            if let Some(side) = side.filter(|_| random.chance(60))
                && self.fork(stream, side)
            {
                if self.runs_closures() {
                    let work = self.work_of((memory, words), content, content, 0);
                    is_loose |= self.captured(side, memory, Act::Read, work);
                }
                // Now and then the join is left out.
                if !random.chance(4) && self.fork(side, stream) {
                    is_loose = false;
                }
            }
            match random.below(4) {
                0 | 1 => drop(self.perform(What::Free { memory, stream, trust: Trust::None })),
                _ => made.outputs.push((memory, words, content)),
            }
            if random.chance(10) {
                // This is refused. The capture may go on, or may have ended because of it.
                self.perform(What::StreamSynchronize { stream });
            }
        }
        if let Some(at) = pick(&self.bufs, op.b).filter(|_| random.chance(60))
            && let Some(buf) = self.bufs[at].clone().filter(|it| it.pool.is_some() && it.device == 0)
        {
            let content = Content::Words(mix(random.number()));
            let (work, outside) = self.outside_work(&buf, content, self.stage.micros(random.number() as u32));
            if self.captured(stream, buf.memory, Act::Write, work) {
                made.outside.push(outside);
                self.bufs[at].iter_mut().for_each(|buf| buf.is_in_graph = true);
            }
        }
        if self.perform(What::CaptureEnd { stream }) && self.run.graph_of(graph).is_some() {
            if is_loose {
                finding("a capture ends well, and the work of another stream was not joined to it");
            }
            return self.keep(made, op);
        }
        // The operations that were to be captured are not part of the program.
        self.wrong.retain(|at| *at < begun);
        self.followed.extend(begun..self.ops.len());
        if !self.is_exact() || self.has_failed {
            // The library and the checker may disagree on whether the capture goes on, so it is ended with its stream.
            self.give_up(stream);
        }
    }

    /// Forgets stale names of memory that may now mean an output of a launch.
    fn forget_stale(&mut self, made: &Made) {
        for stale in &mut self.stale {
            stale.take_if(|memory| made.outputs.iter().any(|it| it.0 == *memory));
        }
    }

    /// Destroys a stream, without comparing the answers of the library and the checker.
    fn give_up(&mut self, stream: StreamId) {
        if let Some(at) = self.streams.iter().position(|it| it.as_ref().is_some_and(|it| it.id == stream)) {
            self.closed.extend(self.streams[at].take());
        }
        self.end_quietly(What::StreamDestroy { stream });
    }

    /// Adds a node of an external event at the current place of a capture.
    fn captured_event(&mut self, stream: StreamId, made: &mut Made, random: &mut Random) {
        if !self.stage.setting.event_nodes || !random.chance(25) {
            return;
        }
        let Some(event) = pick(&self.externals, random.number() as u32).and_then(|at| self.externals[at].clone())
        else {
            return;
        };
        match random.chance(40) {
            true => {
                let kind = EventKind::Completion;
                if self.perform(What::EventRecord { event: event.id, stream, external: true, kind }) {
                    made.records.push(event.id);
                }
            }
            false => {
                if self.perform(What::EventWait { event: event.id, stream, external: true }) {
                    made.gate = Some(event.id);
                }
            }
        }
    }

    pub(super) fn instantiate_again(&mut self, op: Op) {
        if let Some(made) = pick(&self.graphs, op.a).and_then(|at| self.graphs[at].clone()) {
            // Without memory of the graph, two instances exist at once, and their launches are unordered.
            if made.has_memory || self.execs.iter().flatten().all(|exec| exec.made.id != made.id) {
                self.instantiate(&made, op.c >> 5 & 1 == 0);
            }
        }
    }

    fn instantiate(&mut self, made: &Made, frees: bool) {
        let exec = ExecId(self.stage.number());
        if self.perform(What::Instantiate { graph: made.id, exec, auto_free_on_launch: frees }) {
            let at = place(&self.execs, exec.0);
            self.drop_exec_at(at);
            self.execs[at] = Some(Exec { id: exec, made: made.clone(), frees });
        }
    }

    fn drop_exec_at(&mut self, at: usize) {
        if let Some(exec) = self.execs[at].take() {
            self.perform(What::ExecDestroy { exec: exec.id });
        }
    }

    pub(super) fn launch(&mut self, op: Op) {
        let (Some(on), Some(at)) = (pick(&self.streams, op.a), pick(&self.execs, op.b)) else { return };
        let (Some(line), Some(exec)) = (self.streams[on].clone(), self.execs[at].clone()) else { return };
        let Exec { id, made, frees } = exec;
        if line.device != 0 {
            return;
        }
        let is_there = |it: &&Buf| made.outside.iter().any(|of| of.memory == it.memory);
        let outside: Vec<Memory> = self.bufs.iter().flatten().filter(is_there).map(|it| it.memory).collect();
        // The outputs of an earlier launch, also of a destroyed instance. This launch frees them first.
        let execs: Vec<ExecId> = self.execs.iter().flatten().map(|it| it.id).collect();
        let is_remade = |node| made.outputs.iter().any(|it| it.0 == node);
        let is_left =
            |it: &Buf| it.launched_by.is_some_and(|(by, node)| by == id || (!execs.contains(&by) && is_remade(node)));
        let left: Vec<Memory> = self.bufs.iter().flatten().filter(|it| is_left(it)).map(|it| it.memory).collect();
        // The graph itself comes after the work that it depends on, by an event that it waits for and that may be an
        // old one. Otherwise its stream does.
        let gate = made.gate.filter(|_| op.c >> 4 & 3 != 0);
        let gate = gate.and_then(|gate| self.externals.iter().flatten().find(|it| it.id == gate).map(|it| it.id));
        let by = gate.and_then(|_| pick(&self.streams, op.a >> 4)).filter(|by| *by != on);
        if !op.c.is_multiple_of(4) {
            for memory in outside.iter() {
                self.order(by.unwrap_or(on), &[Access::whole(*memory, Act::Write)]);
            }
            for memory in &left {
                self.order(on, &[Access::whole(*memory, Act::Write)]);
            }
        }
        if let Some((gate, by)) = gate.zip(by) {
            self.record_at(gate, by);
        }
        let mut ended = Vec::new();
        for at in 0..self.bufs.len() {
            if let Some(buf) = self.bufs[at].take_if(|it| frees && is_left(it)) {
                let range = self.release(&buf);
                ended.push((at, buf, range));
            }
        }
        self.before(on);
        let flags: Vec<Option<Done>> = made.outside.iter().map(Outside::launch).collect();
        let is_done = self.perform(What::GraphLaunch { exec: id, stream: line.id });
        if !is_done {
            let is_partial = self.has_failed;
            made.outside.iter().for_each(|of| of.not_launched(is_partial));
            for (at, buf, range) in ended {
                match is_partial {
                    false => self.restore(at, buf, range),
                    // The memory may have been freed.
                    true => drop(self.perform(What::Drop { memory: buf.memory })),
                }
            }
            if is_partial {
                self.forget_stale(&made);
                // The driver may have received a part before it refused the rest. This counts as a use of all of it.
                for at in 0..self.bufs.len() {
                    let is_met = |it: &mut Buf| outside.contains(&it.memory) || is_left(it);
                    if let Some(buf) = self.bufs[at].take_if(is_met) {
                        self.let_go(buf);
                    }
                }
            }
            return;
        }
        self.after(on, None);
        let launch = Some(self.ops.len() as u32);
        for (of, done) in made.outside.iter().zip(flags) {
            let Some(done) = done else { continue };
            self.after_kernel(on, Some((&done, Kernel { line: of.line, launch })));
            self.bufs.iter_mut().flatten().filter(|it| it.memory == of.memory).for_each(|it| it.uses.add(&done));
        }
        for event in self.externals.iter_mut().flatten().filter(|it| made.records.contains(&it.id)) {
            event.before = Before::default();
        }
        for (_, buf, _) in ended {
            let at = place(&self.stale, op.c);
            self.stale[at] = Some(buf.memory);
        }
        self.forget_stale(&made);
        for buf in self.bufs.iter_mut().flatten() {
            if let Some(of) = made.outside.iter().rfind(|of| of.memory == buf.memory) {
                buf.content = of.content;
            }
        }
        self.take_launched(&made, id, op);
    }

    /// Takes some of the outputs of a launch.
    fn take_launched(&mut self, made: &Made, exec: ExecId, op: Op) {
        for (at, (node, words, content)) in made.outputs.iter().enumerate() {
            if op.c >> (at % 32) & 1 == 0 || self.run.buffer(*node).is_none() {
                continue;
            }
            let memory = match (op.c >> ((at + 7) % 32)) & 1 {
                0 => *node,
                _ => {
                    let memory = self.new_memory();
                    if !self.perform(What::Take { exec, node: *node, memory }) {
                        continue;
                    }
                    memory
                }
            };
            let Some(buffer) = self.run.buffer(memory) else { continue };
            let range = (buffer.address(), buffer.bytes());
            self.stage.say(self.number, format_args!("# a{} is at {:#x}", memory.id.0, range.0));
            self.stage.ground.claim(memory.id.0, range);
            let to = place(&self.bufs, op.b);
            let (launched_by, content, uses) = (Some((exec, *node)), *content, Before::default());
            let (words, pool) = (*words, None);
            self.put(to, Buf { memory, words, device: 0, pool, content, launched_by, is_in_graph: false, uses });
        }
    }

    pub(super) fn upload(&mut self, op: Op) {
        let (Some(on), Some(at)) = (pick(&self.streams, op.a), pick(&self.execs, op.b)) else { return };
        let (Some(line), Some(exec)) = (self.streams[on].clone(), self.execs[at].as_ref().map(|it| it.id)) else {
            return;
        };
        self.before(on);
        if line.device == 0 && self.perform(What::GraphUpload { exec, stream: line.id }) {
            self.after(on, None);
        }
    }

    pub(super) fn update(&mut self, op: Op) {
        let (Some(at), Some(from)) = (pick(&self.execs, op.a), pick(&self.graphs, op.b)) else { return };
        let (Some(exec), Some(made)) = (self.execs[at].clone(), self.graphs[from].clone()) else { return };
        let is_left = |it: &Buf| it.launched_by.is_some_and(|(by, _)| by == exec.id);
        let has_left = exec.made.id != made.id && self.bufs.iter().flatten().any(is_left);
        if !has_left
            && self.perform(What::ExecUpdate { exec: exec.id, graph: made.id })
            && let Some(exec) = &mut self.execs[at]
        {
            exec.made = made;
        }
    }

    pub(super) fn drop_exec(&mut self, op: Op) {
        match op.c & 1 {
            0 => {
                if let Some(at) = pick(&self.execs, op.a) {
                    self.drop_exec_at(at);
                }
            }
            _ => {
                if let Some(made) = pick(&self.graphs, op.a).and_then(|at| self.graphs[at].take()) {
                    self.perform(What::GraphDestroy { graph: made.id });
                }
            }
        }
    }

    pub(super) fn trim_graphs(&mut self, op: Op) {
        if let Some(device) = self.stage.device(op.a as usize % self.stage.devices.len()) {
            self.is_fine("trim_graph_memory()", device.trim_graph_memory());
        }
    }
}
