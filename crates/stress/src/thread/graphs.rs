//! Graphs: built node by node and by capture, nested, instantiated again and again, launched, updated and dropped.
//!
//! A graph writes memory of its own with a pattern, looks at it, frees it or leaves it live, and uses some buffers of
//! the thread. Every launch does the same, so that one pattern serves all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond::check;
use millpond::graph::{Graph, GraphExec, GraphNode, Instantiate, Launch, MemAllocNode};
use millpond::{Error, Result, Stream};

use crate::finding::lock;
use crate::kind::Kind;
use crate::life::{Expect, Life};
use crate::marks::Marks;
use crate::op::Op;
use crate::oracle::Oracle;
use crate::party::{ALL, Act};
use crate::random::{Random, mix};
use crate::settings::DeviceKind;
use crate::thread::{Thread, pick, place};
use crate::work::{Cargo, Content, Kernel};
use crate::world::{Buf, Held};
use millpond_reach::Past;

/// A graph at hand.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) graph: Graph,
    pub(crate) number: u64,
    device: usize,
    pub(crate) made: Made,
}

/// What a graph does with memory that others can see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// What a launch leaves live, and what is in it.
    pub(crate) outputs: Vec<(MemAllocNode<u64>, Content)>,
    /// Buffers that it uses: which life, and what it writes.
    pub(crate) outside: Vec<(u64, Option<Content>)>,
    /// Whether its order is wrong.
    pub(crate) is_wrong: bool,
    /// Whether it has memory nodes: it has one instance at a time.
    pub(crate) has_memory: bool,
    /// Events that it records and waits for.
    pub(crate) marks: Marks,
}

/// An instance at hand.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) exec: GraphExec,
    pub(crate) device: usize,
    pub(crate) made: Made,
    pub(crate) number: u64,
    /// Whether a launch frees what the one before left.
    frees: bool,
    /// What its last launch came after, and that launch: the next one comes after it.
    pub(crate) last: Past,
    /// Whether another instance had its addresses, after whose launches its own come.
    pub(crate) is_second: bool,
}

/// A graph in the making, node by node.
pub(crate) struct Draft<'t> {
    pub(crate) graph: Graph,
    pub(crate) nodes: Vec<GraphNode>,
    /// Memory that is live at this point, what is in it, who wrote it and who has read it.
    live: Vec<(MemAllocNode<u64>, Content, Vec<GraphNode>)>,
    oracle: &'t Arc<Oracle>,
    runs_closures: bool,
    has_memory: bool,
    pub(crate) random: Random,
}

impl Draft<'_> {
    fn kernel(&self, before: Content, after: Content) -> Kernel {
        let micros = if self.random.clone().chance(20) { 30 } else { 0 };
        Kernel { micros, ..Kernel::new(self.oracle, 0, before, after) }
    }

    pub(crate) fn some(&mut self) -> Vec<GraphNode> {
        let count = self.nodes.len() as u64;
        let mut some: Vec<GraphNode> =
            (0..self.random.below(3).min(count)).map(|_| self.nodes[self.random.below(count) as usize]).collect();
        some.dedup();
        if some.len() == 2 && some[0] == some[1] {
            some.pop();
        }
        some
    }

    fn alloc(&mut self) -> Result<()> {
        let after = self.some();
        let len = 1 + self.random.below(1 << self.random.clone().below(17)) as usize;
        let memory = self.graph.add_alloc::<u64>(&after, len)?;
        self.has_memory = true;
        let content = Content::Words(mix(self.random.number()));
        let Some(alloc) = self.graph.node_of(memory) else { return Ok(()) };
        let writer = match self.runs_closures && self.random.chance(80) {
            true => {
                let kernel = self.kernel(Content::Unknown, content);
                self.graph.add_kernel(&[alloc], memory.write(), move |x| kernel.write(x))?
            }
            false => self.graph.add_copy_from_host(&[alloc], memory.write(), &content.words(len))?,
        };
        self.nodes.extend([alloc, writer]);
        self.live.push((memory, content, vec![writer]));
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let at = self.random.below(self.live.len() as u64) as usize;
        let (memory, content, users) = self.live[at].clone();
        let node = match self.runs_closures {
            true => {
                let kernel = self.kernel(content, content);
                self.graph.add_kernel(&users[..1], memory.read(), move |x| kernel.read(x))?
            }
            false => self.graph.add_empty(&users[..1])?,
        };
        self.live[at].2.push(node);
        self.nodes.push(node);
        Ok(())
    }

    fn free(&mut self) -> Result<()> {
        let at = self.random.below(self.live.len() as u64) as usize;
        let (memory, _, users) = self.live.swap_remove(at);
        self.nodes.push(self.graph.add_free(&users, memory)?);
        Ok(())
    }
}

impl Thread<'_> {
    pub(crate) fn build(&mut self, op: Op) {
        let number = self.world.number();
        let built = match op.kind {
            Kind::Capture => self.capture(op),
            _ => self.by_nodes(op, true),
        };
        let what = if op.kind == Kind::Capture { "a capture" } else { "a graph by nodes" };
        self.judge(what, Expect::Either, built.as_ref().err());
        if let Ok(Some(mut built)) = built {
            built.number = number;
            self.say(format_args!("let g{number} = /* {what}: {:?} */;", built.made));
            self.instantiate(&built, op.c >> 5 & 1 == 0, false);
            let at = place(&self.graphs, op.b);
            self.graphs[at] = Some(built);
        }
    }

    pub(crate) fn instantiate_again(&mut self, op: Op) {
        let Some(at) = pick(&self.graphs, op.a) else { return };
        // Without memory nodes two instances are there at once, and their launches are in no order.
        let Some(built) = self.graphs[at].take_if(|built| built.made.has_memory) else { return };
        self.instantiate(&built, op.c >> 5 & 1 == 0, true);
        self.graphs[at] = Some(built);
    }

    fn instantiate(&mut self, built: &Built, frees: bool, is_second: bool) {
        let (made, number) = (built.made.clone(), built.number);
        let is_there = self.execs.iter().flatten().any(|it| it.number == number);
        let settings = format_args!("Instantiate::new().auto_free_on_launch({frees})");
        self.say(format_args!("let e{number} = g.instantiate({settings})?;"));
        let exec = built.graph.instantiate(Instantiate::default().auto_free_on_launch(frees));
        let expect = if made.is_wrong || made.has_memory && is_there { Expect::Refused } else { Expect::Either };
        self.judge("instantiate", expect, exec.as_ref().err());
        if let Ok(exec) = exec {
            let at = place(&self.execs, number as u32);
            let (last, device) = (Past::default(), built.device);
            self.execs[at] = Some(Instance { exec, device, made, number, frees, last, is_second });
        }
    }

    fn by_nodes(&mut self, op: Op, is_whole: bool) -> Result<Option<Built>> {
        let at = op.a as usize % self.world.devices.len();
        let Some(device) = self.device(at) else { return Ok(None) };
        let runs_closures = self.world.kind != DeviceKind::Cuda;
        let mut random = Random::new(u64::from(op.c));
        let mut made = Made::default();
        let (graph, oracle) = (device.graph()?, &self.world.oracle);
        let steps = 2 + random.below(14);
        let (nodes, live, has_memory) = (vec![], vec![], false);
        let mut draft = Draft { graph, nodes, live, oracle, runs_closures, has_memory, random };
        for _ in 0..steps {
            match draft.random.below(8) {
                0..=2 => draft.alloc()?,
                3 | 4 if !draft.live.is_empty() => draft.read()?,
                5 | 6 if !draft.live.is_empty() => draft.free()?,
                7 if self.world.setting.event_nodes && draft.random.chance(50) => {
                    self.mark(&mut draft, &mut made.marks, at)?
                }
                _ => {
                    let after = draft.some();
                    let node = draft.graph.add_empty(&after)?;
                    draft.nodes.push(node);
                }
            }
        }
        let mut outputs = Vec::new();
        if is_whole {
            self.use_outside(&mut draft, &mut made, at, op)?;
            let op = Op { c: draft.random.number() as u32, ..op };
            if draft.random.chance(20)
                && let Some(child) = self.by_nodes(op, false)?
            {
                let after = draft.some();
                draft.nodes.push(draft.graph.add_child(&after, &child.graph)?);
                made.marks.join(&child.made.marks);
                (outputs, made.is_wrong) = (child.made.outputs, child.made.is_wrong);
                draft.has_memory |= child.made.has_memory;
            }
        }
        if runs_closures && draft.random.chance(5) && !draft.live.is_empty() {
            // Nothing orders it after the alloc node.
            let (memory, ..) = draft.live[0];
            draft.graph.add_kernel(&[], memory.write(), |x: &mut [u64]| x.fill(0))?;
            made.is_wrong = true;
        }
        self.mark_end(&mut draft, &mut made.marks, at)?;
        outputs.extend(draft.live.iter().map(|(memory, content, _)| (*memory, *content)));
        (made.outputs, made.has_memory) = (outputs, draft.has_memory);
        Ok(Some(Built { graph: draft.graph, number: 0, device: at, made }))
    }

    /// Nodes use buffers of the thread, and one may own some.
    fn use_outside(&mut self, draft: &mut Draft<'_>, made: &mut Made, device: usize, op: Op) -> Result<()> {
        for buf in self.bufs.iter_mut().flatten() {
            let Life { id, used, device: of, .. } = &buf.life;
            if used.is_none() || *of != device || !draft.random.chance(15) {
                continue;
            }
            let (after, content) = (draft.some(), Content::Words(mix(*id ^ u64::from(op.c))));
            let len = buf.buffer.len();
            let node = match draft.runs_closures {
                true => {
                    let kernel = Kernel { life: *id, ..draft.kernel(Content::Unknown, content) };
                    draft.graph.add_kernel(&after, buf.buffer.write(), move |x| kernel.write(x))?
                }
                false => draft.graph.add_copy_from_host(&after, buf.buffer.write(), &content.words(len))?,
            };
            draft.nodes.push(node);
            made.outside.push((*id, Some(content)));
            buf.life.is_in_graph = true;
        }
        let may_own = self.world.setting.has(Kind::Owning) && self.world.runs_kernels();
        if may_own && draft.random.chance(30) {
            let pool = pick(&self.pools, op.b).and_then(|at| self.pools[at].clone());
            let stream = self.stream(op.a).filter(|held| held.line.device == device);
            stream.iter().for_each(|it| it.line.is_unsure.store(true, Ordering::Relaxed));
            let buffer = self.take_to_own(op.b);
            let mut cargo = Cargo::new(&self.world.oracle, device, draft.random.number() as u32);
            cargo.buffer = buffer.map(|it| (it.buffer, it.life.id, it.life.uses));
            (cargo.stream, cargo.pool) = (stream.map(|it| it.stream), pool.map(|it| it.pool));
            self.world.say(
                self.number,
                format_args!(
                    "/* a kernel of the graph owns {:?}, {:?}, {:?} */",
                    cargo.buffer, cargo.stream, cargo.pool
                ),
            );
            let after = draft.some();
            draft.graph.add_kernel(&after, (), move |()| {
                let _keeps = &cargo;
            })?;
        }
        Ok(())
    }

    fn capture(&mut self, op: Op) -> Result<Option<Built>> {
        let Some(held) = self.stream(op.a).filter(|held| held.line.is_sure()) else { return Ok(None) };
        let side = self
            .stream(op.a >> 4)
            .filter(|it| it.line.is_sure() && it.line.chain != held.line.chain && it.line.device == held.line.device);
        let Some(pool) = pick(&self.pools, op.b).and_then(|at| self.pools[at].clone()) else { return Ok(None) };
        let outside = pick(&self.bufs, op.b).and_then(|at| self.bufs[at].as_ref());
        let outside = outside.filter(|buf| buf.life.used.is_some() && buf.life.device == held.line.device);
        let mut random = Random::new(u64::from(op.c));
        let (oracle, runs_closures) = (&self.world.oracle, self.world.kind != DeviceKind::Cuda);
        let mut made = Made { has_memory: true, ..Made::default() };
        self.world.say(self.number, format_args!("// s{} captures", held.line.chain));
        let write = |stream: &Stream, buffer: &millpond::Buffer<u64>, content: Content, life| match runs_closures {
            true => {
                let kernel = Kernel::new(oracle, life, Content::Unknown, content);
                stream.launch(buffer.write(), move |x| kernel.write(x))
            }
            false => stream.copy_from_host(buffer.write(), &content.words(buffer.len())),
        };
        let (graph, ()) = held.stream.capture(|stream| {
            for _ in 0..1 + random.below(4) {
                self.mark_captured(stream, &mut made.marks, &mut random, held.line.device)?;
                let buffer = stream.alloc::<u64>(&pool.pool, 1 + random.below(9000) as usize)?;
                let content = Content::Words(mix(random.number()));
                write(stream, &buffer, content, 0)?;
                if let Some(side) = side.as_ref().filter(|_| random.chance(60)) {
                    side.stream.wait(&stream.record()?)?;
                    if runs_closures {
                        let kernel = Kernel::new(oracle, 0, content, content);
                        side.stream.launch(buffer.read(), move |x| kernel.read(x))?;
                    }
                    stream.wait(&side.stream.record()?)?;
                }
                match random.below(4) {
                    0 => stream.free(buffer).map_err(|refused| refused.error)?,
                    1 => drop(buffer),
                    _ => made.outputs.push((buffer.into_alloc_node(), content)),
                }
                if random.chance(10) {
                    // Refused; the capture may go on or have ended for it.
                    let _ = stream.synchronize();
                }
            }
            if let Some(buf) = outside.filter(|_| random.chance(60)) {
                let content = Content::Words(mix(buf.life.id ^ random.number()));
                write(stream, &buf.buffer, content, buf.life.id)?;
                made.outside.push((buf.life.id, Some(content)));
            }
            Ok(())
        })?;
        for buf in self.bufs.iter_mut().flatten().filter(|buf| made.outside.iter().any(|(id, _)| *id == buf.life.id)) {
            buf.life.is_in_graph = true;
        }
        Ok(Some(Built { graph, number: 0, device: held.line.device, made }))
    }

    pub(crate) fn launch(&mut self, op: Op) {
        let (Some(held), Some(at)) = (self.stream(op.a), pick(&self.execs, op.b)) else { return };
        let Some(instance) = &self.execs[at] else { return };
        let (made, number, frees, device) = (instance.made.clone(), instance.number, instance.frees, instance.device);
        let (is_second, last, exec) = (instance.is_second, instance.last.clone(), instance.exec.clone());
        let place_of = |id: u64| self.bufs.iter().position(|buf| buf.as_ref().is_some_and(|buf| buf.life.id == id));
        let used: Vec<_> = made.outside.iter().map(|(id, content)| (place_of(*id), *content)).collect();
        if !op.c.is_multiple_of(4) {
            used.iter().filter_map(|(at, _)| *at).for_each(|at| self.order(&held, at));
        }
        let mut knows = self.before_next(&held.line);
        knows.join(&last);
        let is_there = used.iter().all(|(at, _)| at.is_some());
        let is_right = used
            .iter()
            .filter_map(|(at, _)| self.bufs[(*at)?].as_ref())
            .all(|it| it.life.is_right(&knows, Act::Write, ALL));
        let waited = self.waited_by(&made.marks);
        let is_plain = made.outputs.is_empty() && !is_second && (is_right || waited.is_none());
        let expect = match is_there && held.line.device == device && is_plain {
            true => self.expect(is_right, &held.line),
            false => Expect::Either,
        };
        // What an earlier launch left, and this one frees first.
        let ended = if frees { self.take_outputs(number) } else { Vec::new() };
        self.say(format_args!("let l = e{number}.launch(&s{})?;", held.line.chain));
        let launched = exec.launch(&held.stream);
        self.judge(&format!("launch of e{number} on s{}", held.line.chain), expect, launched.as_ref().err());
        let is_partial = launched.as_ref().is_err_and(|error| !matches!(error, Error::Violation(_) | Error::Graph(_)));
        if is_partial {
            self.world.lose_track();
            made.marks.unsure();
        }
        for at in used.iter().filter_map(|(at, _)| *at).filter(|_| is_partial) {
            // The driver may have got some of it before it refused the rest: that counts as a use of all.
            self.may_be_used(&held, at, true);
        }
        let Ok(launched) = launched else {
            return ended.into_iter().for_each(|buf| self.take_back(&held, buf, is_partial, op));
        };
        lock(&held.line.past).join(&last);
        // The launch completes after its wait nodes, and what comes before them.
        waited.iter().for_each(|waited| lock(&held.line.past).join(waited));
        if is_second {
            self.world.lose_track();
        }
        for buf in ended {
            let again = held.stream.declare(buf.buffer.read());
            self.judge("a use of what a launch has freed", Expect::Refused, again.as_ref().err());
        }
        for (at, content) in used {
            let Some(at) = at else { continue };
            self.used(&held, at, ALL, true, None);
            if let (Some(buf), Some(content)) = (&mut self.bufs[at], content) {
                buf.life.content = content;
            }
        }
        self.take_launched(&held, &launched, &made, (number, frees, device), (knows, op));
    }

    /// A refused launch freed nothing; what is freed first is freed as soon as some of it was submitted.
    fn take_back(&mut self, held: &Held, buf: Buf, is_partial: bool, op: Op) {
        let again = is_partial.then(|| held.stream.declare(buf.buffer.read()));
        let freed = |error: &Error| error.violation().is_some_and(|it| it.kind == check::Kind::UseAfterFree);
        if again.as_ref().is_some_and(|again| again.as_ref().is_err_and(freed)) {
            return self.say(format_args!("// b{} is freed", buf.life.id));
        }
        self.world.oracle.restore(buf.life.id, buf.buffer.address(), buf.buffer.bytes());
        let to = place(&self.bufs, op.c);
        self.put(to, buf);
        if again.is_some_and(|again| again.is_ok()) {
            self.used(held, to, ALL, false, None);
        }
    }

    /// What earlier launches of a graph left, taken out of the thread's hands.
    fn take_outputs(&mut self, of: u64) -> Vec<Buf> {
        let is_it = |buf: &Option<Buf>| buf.as_ref().is_some_and(|it| it.life.launched_by == Some(of));
        let taken: Vec<Buf> = self.bufs.iter_mut().filter(|it| is_it(it)).filter_map(Option::take).collect();
        taken.iter().for_each(|it| self.world.oracle.release(it.life.id, it.buffer.address(), &it.life.uses));
        taken
    }

    /// Takes some of what a launch left.
    fn take_launched(
        &mut self,
        held: &crate::world::Held,
        launched: &Launch,
        made: &Made,
        (number, frees, device): (u64, bool, usize),
        (knows, op): (Past, Op),
    ) {
        let born = held.line.step(None);
        self.publish(&held.line);
        let end = self.end_of(&held.line, knows.clone());
        made.marks.launched(&knows, &end);
        let launched_by = self.execs.iter_mut().flatten().filter(|it| it.number == number);
        launched_by.for_each(|it| it.last = end.clone());
        for (at, (memory, content)) in made.outputs.iter().enumerate() {
            if op.c >> (at % 32) & 1 == 0 {
                continue;
            }
            let taken = launched.take(*memory);
            self.judge("Launch::take", Expect::Either, taken.as_ref().err());
            let Ok(buffer) = taken else { continue };
            let id = self.world.number();
            self.say(format_args!("let b{id} = l.take(..)?; // at {:#x}", buffer.address()));
            self.world.oracle.claim(id, buffer.address(), buffer.bytes(), None);
            let new = Life::new(id, born, *content, device);
            let life = Life { may_be_freed: frees, launched_by: Some(number), ..new };
            let to = place(&self.bufs, op.b);
            self.put(to, Buf { buffer, life, after: None });
        }
    }
}
