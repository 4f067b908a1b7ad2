//! The state of a process, behind one lock: handles, addresses, places, and where operations go.
//!
//! *One sequence*: the checker takes operations one after the other, so they are noted under one lock. The lock is not
//! held during the program's calls, which may wait for other threads. Only questions that change nothing are asked
//! under it. A call that ends something is noted before the real call. A call that begins something or learns something
//! (an allocation, a launch, a synchronisation) is noted after it. So if one thread frees memory and another gets it,
//! the free is first here, too. A free that the real call refuses has not happened: its memory is live again.
//!
//! *One host*: threads exchange knowledge in ways that are not seen (locks, channels, joins). A synchronisation by any
//! thread of the process counts as known to all of them.
//! thread of the process has synchronised counts as known to all of them.

pub(crate) mod captures;
mod living;
mod process;

use crate::ranks;
use millpond_driver::locks::{Guard, Mutex, lock};
use millpond_driver::output::say;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, Memory, Names, Op, Part, Place, Space, StreamRole, Trust, What};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::abi::{Code, Event, Pool, Stream};
use crate::arguments::{Accesses, Kernels, Search};
use crate::entry::passed;
use crate::entry::thunk::{Entered, Inside, own};
use crate::handles::{Handles, USED_UP};
use crate::index::{Entry, Index, Kind};
use crate::judge::{About, Judge};
use crate::mode::{self, Noting, noting};
use crate::place::Places;
use crate::place::launches::Launches;
use crate::signals::{self, End, Who};
use crate::sink::{Sink, Trace};
use crate::{ask, report, thread};

/// Counts of what was seen, for the summary.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// The calls that were understood.
    pub(crate) calls: u64,
    pub(crate) launches: u64,
    /// Launches with an address of known memory among their arguments.
    pub(crate) with_address: u64,
    /// Launches whose arguments are not known.
    pub(crate) without_information: u64,
    /// Launches that may start before the launch before them has completed.
    pub(crate) early: u64,
    /// Calls that operations cannot describe, by description.
    pub(crate) unsupported: FxHashMap<&'static str, u64>,
}

/// The state of a process.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) sink: Sink,
    pub(crate) index: Index,
    pub(crate) handles: Handles,
    pub(crate) names: Names,
    pub(crate) coverage: Coverage,
    pub(crate) kernels: Kernels,
    pub(crate) search: Search,
    /// The act that a kernel is assumed to do on memory whose address it gets.
    pub(crate) kernel_act: Act,
    /// `true` if accesses are judged against each other, now or later.
    pub(crate) is_exact: bool,
    /// The current launch. Launches are the most frequent operation, so it is built in place.
    pub(crate) launch: Op,
    /// The captures that go on, by the stream that each began on.
    pub(crate) captures: FxHashMap<StreamId, Capture>,
    /// Addresses that alloc nodes gave out, of memory that ended without a free.
    pub(crate) void: FxHashSet<u64>,
    /// The stream that stands for what other processes have waited for, as far as this one can know, and its device.
    pub(crate) others: Option<(StreamId, DeviceId)>,
    /// Streams that were destroyed while they were part of a capture.
    pub(crate) leaving: Vec<StreamId>,
    places: Places,
    launches: Launches,
    /// The operations' places, by number, as far as they were met.
    named_places: Vec<Place>,
    /// The place of each allocation, by its number, for findings and under a limit of memory.
    made_at: Vec<Place>,
    host: HostId,
    place: Place,
    /// Text that is added to findings of the current call.
    pub(crate) note: Option<String>,
    process: u32,
    /// `true` once nothing more is noted.
    is_over: bool,
    is_finished: bool,
}

static SESSION: AtomicPtr<Mutex<ranks::Session, Session>> = AtomicPtr::new(std::ptr::null_mut());
static THREADS: AtomicU32 = AtomicU32::new(0);
/// Incremented when a process forks, so that threads get new numbers.
static PROCESS: AtomicU64 = AtomicU64::new(1);

fn thread_number() -> u32 {
    let process = PROCESS.load(Ordering::Relaxed);
    own(|own| {
        if own.process.replace(process) != process {
            own.number.set(mode::first_number().saturating_add(THREADS.fetch_add(1, Ordering::Relaxed)));
        }
        own.number.get()
    })
}

use captures::Capture;
use process::{finish, forget, leave, save};
pub(crate) use process::{forget_code, note_apart};

/// The current call.
#[derive(Debug)]
pub(crate) struct At {
    entered: Entered,
    /// `true` if the default stream is the thread's own.
    pub(crate) per_thread: bool,
    _inside: Inside,
}

impl At {
    /// Returns the handle that a call without the per-thread default stream would use for a stream.
    pub(crate) fn own(&self, stream: Stream) -> Stream {
        if self.per_thread && stream == Stream(0) { Stream::PER_THREAD } else { stream }
    }

    /// Returns `None` if the call is passed on unchanged: the library itself makes it, or the command asks for nothing.
    #[inline]
    pub(crate) fn enter(entered: Entered, per_thread: bool) -> Option<Self> {
        if mode::is_off() {
            return None;
        }
        Some(At { entered, per_thread, _inside: Inside::enter()? })
    }

    /// Notes something, under the lock. A panic in here does not reach the program.
    #[inline]
    pub(crate) fn note<R: Default>(&self, act: impl FnOnce(&mut Session) -> R) -> R {
        self.note_part(act, 1)
    }

    /// Notes the result of a call that is counted already.
    #[inline]
    pub(crate) fn settle(&self, act: impl FnOnce(&mut Session)) {
        self.note_part(act, 0);
    }

    #[inline]
    fn note_part<R: Default>(&self, act: impl FnOnce(&mut Session) -> R, calls: u64) -> R {
        let Some(mut session) = session() else { return R::default() };
        let noted = catch_unwind(AssertUnwindSafe(|| {
            session.coverage.calls += calls;
            session.host = session.this_host();
            session.set_place(self.entered);
            session.note = None;
            let noted = act(&mut session);
            session.stop_where_numbers_end();
            noted
        }));
        noted.unwrap_or_default()
    }

    /// As [`note`](Self::note), if the real call has succeeded. Returns its code.
    #[inline]
    pub(crate) fn done(&self, code: Code, act: impl FnOnce(&mut Session)) -> Code {
        if code == Code::SUCCESS {
            self.note(act);
        }
        code
    }
}

/// Returns the session of the process, unless it has stopped.
fn session() -> Option<Guard<'static, Session>> {
    let at = SESSION.load(Ordering::Acquire);
    let session = if at.is_null() { begin()? } else { at };
    // SAFETY: a session is never freed.
    Some(lock(unsafe { &*session })).filter(|session| !session.is_over)
}

/// Returns a launch without accesses.
fn no_launch() -> What {
    What::Launch { stream: StreamId::LEGACY, accesses: Accesses::new(), trust: Trust::None, name: None }
}

#[cold]
fn begin() -> Option<*mut Mutex<ranks::Session, Session>> {
    // `Some(true)` if a judge looks for races; `None` if there is no judge.
    let is_judged = match noting() {
        Noting::Check { races, .. } => Some(*races),
        _ => None,
    };
    let sink = match noting() {
        Noting::Off => return None,
        Noting::Record(path) => Sink::Trace(Box::new(Trace::new(path.clone()))),
        Noting::Check { races, leaks, suppressions, .. } => {
            Sink::Judge(Box::new(Judge::new(*races, *leaks, suppressions)))
        }
    };
    let new = Box::into_raw(Box::new(Mutex::new(Session {
        sink,
        index: Index::default(),
        handles: Handles::numbered_from(mode::first_number()),
        names: Names::new(),
        coverage: Coverage::default(),
        kernels: Kernels::default(),
        search: Search::default(),
        kernel_act: if is_judged == Some(true) { Act::Write } else { Act::Read },
        is_exact: is_judged != Some(false),
        launch: Op { host: HostId(0), place: Place::Unknown, what: no_launch() },
        captures: FxHashMap::default(),
        void: FxHashSet::default(),
        others: None,
        leaving: Vec::new(),
        places: Places::new(matches!(noting(), Noting::Check { stacks: true, .. })),
        launches: Launches::default(),
        named_places: Vec::new(),
        made_at: Vec::new(),
        host: HostId(0),
        place: Place::Unknown,
        note: None,
        process: std::process::id(),
        is_over: false,
        is_finished: false,
    })));
    // Before the session is there: a process that is forked in between must forget it.
    signals::watch(Who::Noting, End { finish, forget, leave: Some(leave), save: Some(save) });
    match SESSION.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if is_judged.is_some() {
                // So the command knows of the process even if it never sends a report.
                report::add("began\n");
            }
            Some(new)
        }
        Err(other) => {
            // SAFETY: it was made just now, and nothing else refers to it.
            drop(unsafe { Box::from_raw(new) });
            Some(other)
        }
    }
}

impl Session {
    /// Returns the calling thread.
    #[inline]
    fn this_host(&mut self) -> HostId {
        let number = thread_number();
        if number >= USED_UP {
            self.handles.used_up = Some("threads");
        }
        HostId(number)
    }

    /// Stops once numbers have run out: a new object would be taken for the one that had its number before.
    #[inline]
    fn stop_where_numbers_end(&mut self) {
        if let Some(what) = self.handles.used_up {
            self.stop(what);
        }
    }

    #[cold]
    fn stop(&mut self, what: &str) {
        self.is_over = true;
        self.unsupported("all calls since the numbers of what the program makes were used up");
        match &mut self.sink {
            Sink::Trace(trace) => trace.end_here(&format!("there are no numbers left for {what}")),
            Sink::Judge(_) => {
                say(format_args!("millpond: there are no numbers left for {what}: nothing is checked from here on"))
            }
        }
    }

    #[inline]
    fn set_place(&mut self, entered: Entered) {
        let number = self.places.number(entered);
        self.place = match self.named_places.get(number as usize) {
            Some(place) => *place,
            None => self.look_up(number),
        };
    }

    /// Returns the place of a number. Numbers are given out in sequence. The checker gets them as lines. For a trace,
    /// file and line are looked up when a number is first met.
    #[cold]
    fn look_up(&mut self, number: u32) -> Place {
        for number in self.named_places.len() as u32..=number {
            let place = match &self.sink {
                Sink::Judge(_) => Place::Line(number + 1),
                Sink::Trace(_) => match self.places.spot(number) {
                    Some(spot) => Place::File { file: self.names.intern(&spot.file), line: spot.line.unwrap_or(0) },
                    None => Place::Unknown,
                },
            };
            self.named_places.push(place);
        }
        self.named_places[number as usize]
    }

    /// Hands an operation on.
    #[inline]
    pub(crate) fn push(&mut self, what: What) {
        match self.captures.is_empty() {
            true => self.hand_on(what),
            false => self.push_while_capturing(what),
        }
    }

    #[inline]
    fn hand_on(&mut self, what: What) {
        let op = Op { host: self.host, place: self.place, what };
        let Self { sink, names, places, index, launches, handles, made_at, note, .. } = self;
        sink.push(&op, names, |judge| {
            judge.tell(About { places, index, launches, handles, made_at, names, note: note.as_deref() });
        });
    }

    /// Hands the current launch on.
    #[inline]
    pub(crate) fn push_launch(&mut self, on: StreamId) {
        if let What::Launch { stream, .. } = &mut self.launch.what {
            *stream = on;
        }
        (self.launch.host, self.launch.place) = (self.host, self.place);
        let Self { sink, launch, names, places, index, launches, handles, made_at, note, .. } = self;
        if let (Place::Line(line), What::Launch { name, .. }) = (self.place, &launch.what) {
            launches.note(line - 1, *name);
        }
        sink.push(launch, names, |judge| {
            judge.tell(About { places, index, launches, handles, made_at, names, note: note.as_deref() });
        });
    }

    /// Notes how `millpond shake` names the next operation on a stream. If it is one that the command delays, what is
    /// found about it, and about later work of its stream, is what the command wants.
    pub(crate) fn count(&mut self, at: &At, stream: Stream, point: [u32; 2], is_delayed: bool) {
        let id = self.stream(at, stream);
        let Sink::Judge(judge) = &mut self.sink else { return };
        let op = judge.count(id, point, is_delayed);
        if !is_delayed {
            return;
        }
        let spot = match self.place {
            Place::Line(line) => line.checked_sub(1).and_then(|number| self.places.spot(number)).cloned(),
            _ => None,
        };
        let spot = spot.map(|spot| spot.to_string()).unwrap_or_default();
        let [stream, number] = point;
        report::add(&format!("delayed\t{stream}\t{number}\t{id}\t{op}\t{spot}\n"));
    }

    fn finish(&mut self) {
        let is_first = !std::mem::replace(&mut self.is_finished, true);
        match &mut self.sink {
            Sink::Trace(trace) => trace.finish(),
            Sink::Judge(judge) if is_first => {
                // Memory that the program would have freed later is not a leak.
                if !self.is_over {
                    let Self { names, places, index, launches, handles, made_at, .. } = self;
                    judge.find_rest(About { places, index, launches, handles, made_at, names, note: None });
                }
                judge.report();
            }
            Sink::Judge(_) => {}
        }
        if is_first {
            report::add(&self.coverage_lines());
        }
    }

    fn coverage_lines(&self) -> String {
        let Coverage { calls, launches, with_address, without_information, early, .. } = self.coverage;
        let mut lines = format!("coverage\t{calls}\t{launches}\t{with_address}\t{without_information}\n");
        if early > 0 {
            lines += &format!("early\t{early}\n");
        }
        for (name, count) in &self.coverage.unsupported {
            lines += &format!("unsupported\t{name}\t{count}\n");
        }
        lines += if self.places.is_without_python() { "without-lines\n" } else { "" };
        for (name, count) in passed::counts() {
            lines += &format!("unknown\t{name}\t{count}\n");
        }
        lines
    }

    /// Counts a call that operations cannot describe.
    pub(crate) fn unsupported(&mut self, what: &'static str) {
        *self.coverage.unsupported.entry(what).or_default() += 1;
    }

    /// Returns a stream by its handle. A stream whose creation was not seen is created now.
    #[inline]
    pub(crate) fn stream(&mut self, at: &At, stream: Stream) -> StreamId {
        match self.handles.last_stream {
            Some((last, id)) if last == stream && stream.0 > 2 => id,
            _ => self.find_stream(at, stream),
        }
    }

    fn find_stream(&mut self, at: &At, stream: Stream) -> StreamId {
        if let Some(&(id, _)) = self.handles.streams.get(&stream) {
            self.handles.last_stream = Some((stream, id));
            return id;
        }
        match stream {
            Stream::PER_THREAD => self.per_thread_stream(),
            Stream(0) if at.per_thread => self.per_thread_stream(),
            Stream(0) | Stream::LEGACY => self.legacy_stream(ask::current_device()),
            other => {
                let role = if ask::is_non_blocking(other) { StreamRole::NonBlocking } else { StreamRole::Blocking };
                let home = match ask::context_of(other) {
                    Some(context) => self.handles.home(context, || ask::device_of(context)),
                    None => self.current_home(),
                };
                self.add_stream(other, role, home)
            }
        }
    }

    /// Returns the legacy default stream of a device.
    pub(crate) fn legacy_stream(&mut self, device: i32) -> StreamId {
        if let Some(id) = self.handles.legacy.get(&device) {
            return *id;
        }
        let id = if device == 0 { StreamId::LEGACY } else { self.handles.new_stream() };
        self.handles.legacy.insert(device, id);
        self.push(What::StreamCreate { stream: id, role: StreamRole::Legacy, device: DeviceId(device as u32) });
        id
    }

    fn per_thread_stream(&mut self) -> StreamId {
        let (device, host) = (ask::current_device(), self.host.0);
        if let Some((id, _)) = self.handles.per_thread.get(&(host, device)) {
            return *id;
        }
        if self.captures.is_empty() {
            for ended in self.handles.take_streams_of_ended_threads() {
                self.push_stream_end(ended);
            }
        }
        let id = self.handles.new_stream();
        self.handles.per_thread.insert((host, device), (id, thread::current()));
        self.push(What::StreamCreate { stream: id, role: StreamRole::PerThread, device: DeviceId(device as u32) });
        id
    }

    /// Returns the number of the thread's current context.
    pub(crate) fn current_home(&mut self) -> u32 {
        self.handles.home(ask::current_context().unwrap_or_default(), ask::current_device)
    }

    /// Adds a new stream. A stream that had its handle before is gone, as the driver gave it out again.
    pub(crate) fn add_stream(&mut self, stream: Stream, role: StreamRole, home: u32) -> StreamId {
        self.end_stream(stream, false);
        let (id, device) = (self.handles.new_stream(), self.handles.device_of(home));
        self.handles.streams.insert(stream, (id, home));
        self.handles.stream_places.insert(id, (stream, self.place));
        self.push(What::StreamCreate { stream: id, role, device: DeviceId(device as u32) });
        id
    }

    /// Returns an event by its handle. An event whose creation was not seen is created now.
    pub(crate) fn event(&mut self, event: Event) -> EventId {
        match self.handles.events.get(&event) {
            Some(id) => *id,
            None => self.add_event(event, true),
        }
    }

    /// Adds a new event. An event that had its handle before is gone.
    pub(crate) fn add_event(&mut self, event: Event, shared: bool) -> EventId {
        self.destroy_event(event);
        let id = self.handles.new_event(event);
        if shared {
            self.handles.shared_events.insert(id);
        }
        self.push(What::EventCreate { event: id, device: DeviceId(ask::current_device() as u32), shared });
        id
    }

    /// Returns a pool by its handle: a device's default pool, or one whose creation was not seen.
    pub(crate) fn pool(&mut self, pool: Pool) -> PoolId {
        if let Some(id) = self.handles.pools.get(&pool) {
            return *id;
        }
        for device in 0..ask::devices() {
            if ask::default_pool_of(device) == Some(pool) {
                self.handles.pools.insert(pool, PoolId(device as u32));
                return PoolId(device as u32);
            }
        }
        let id = self.handles.new_pool(pool);
        self.push(What::PoolCreate { pool: id, exportable: true, device: None });
        id
    }

    /// Returns the pool of allocations on a stream that name no pool.
    pub(crate) fn pool_for(&mut self, handle: Stream) -> PoolId {
        let device = match self.handles.streams.get(&handle) {
            Some((_, home)) => self.handles.device_of(*home),
            None => ask::current_device(),
        };
        if let Some(pool) = self.handles.current_pools.get(&device) {
            return *pool;
        }
        let pool = match ask::pool_of(device) {
            Some(pool) => self.pool(pool),
            None => PoolId(device as u32),
        };
        self.handles.current_pools.insert(device, pool);
        pool
    }

    /// Adds memory at these addresses. Memory that was there before was freed by calls that were not seen.
    pub(crate) fn add_memory(&mut self, at: u64, bytes: u64, kind: Kind) -> Memory {
        let mut displaced = SmallVec::<[Entry; 2]>::new();
        let home = self.current_home();
        let memory = self.index.insert(at, bytes, kind, home, |entry| displaced.push(entry));
        for entry in &displaced {
            if entry.kind == Kind::Node {
                self.note_void(entry);
            } else {
                self.unsupported("memory that was freed by a call that is not wrapped");
                self.push(What::Drop { memory: entry.memory() });
            }
        }
        // A free of this address now means the new memory.
        self.void.remove(&at);
        if mode::limit().is_some() || matches!(self.sink, Sink::Judge(_)) {
            let number = memory.id.0 as usize;
            if number >= self.made_at.len() {
                self.made_at.resize(number + 1, Place::Unknown);
            }
            self.made_at[number] = self.place;
        }
        memory
    }

    /// Adds memory that is allocated immediately.
    pub(crate) fn add_memory_now(&mut self, at: u64, bytes: u64, kind: Kind) {
        if at == 0 {
            return;
        }
        let memory = self.add_memory(at, bytes, kind);
        self.memory_now(memory, bytes, kind);
    }

    /// Notes the immediate allocation of memory that has its name already.
    pub(crate) fn memory_now(&mut self, memory: Memory, bytes: u64, kind: Kind) {
        self.push(What::AllocNow { memory, space: space_of(kind), bytes, name: None });
    }

    /// Returns the operation of an allocation that a capture has refused.
    pub(crate) fn refused_memory(&mut self, bytes: u64, kind: Kind) -> What {
        What::AllocNow { memory: self.index.unused_name(), space: space_of(kind), bytes, name: None }
    }

    /// Adds the accesses of an operation that uses a range of addresses. Stops at the first address without known
    /// memory.
    #[inline]
    pub(crate) fn access(&mut self, at: u64, bytes: u64, act: Act, accesses: &mut Accesses) {
        let Some(end) = at.checked_add(bytes).filter(|_| bytes > 0) else { return };
        let mut from = at;
        while from < end {
            let Some(entry) = self.index.used(from, ask::is_of_host) else { return };
            let to = end.min(entry.end);
            // The exact bytes matter only if accesses are judged against each other.
            let part = match self.is_exact {
                true => Part::new(from - entry.start, to - entry.start).map(|it| it.within(entry.end - entry.start)),
                false => Some(Part::WHOLE),
            };
            let known = accesses.iter_mut().find(|it| !self.is_exact && it.memory == entry.memory());
            match (known, part) {
                (Some(known), _) if act == Act::Write => known.act = act,
                (None, Some(part)) => accesses.push(Access { memory: entry.memory(), act, part }),
                _ => {}
            }
            from = to;
        }
    }
}

fn space_of(kind: Kind) -> Space {
    match kind {
        Kind::Host => Space::Host,
        Kind::Device => Space::Device(DeviceId(ask::current_device() as u32)),
        _ => Space::Managed,
    }
}
