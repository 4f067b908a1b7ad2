//! The state of a process, behind one lock: handles, addresses, places, and where operations go.
//!
//! *One sequence*: the checker takes operations one after the other, so they are noted under one lock. It is not held
//! during the program's calls, which may wait for other threads; only questions that change nothing are asked under it.
//! What ends something is noted before the real call, what begins something or learns something (an allocation, a
//! launch, a synchronisation) after it: so memory that one thread frees and another gets is freed first here, too. A
//! free that the real call refuses has not happened: its memory lives again.
//!
//! *One host*: threads pass knowledge to each other by means that are not seen (locks, channels, joins). What any
//! thread of the process has synchronised counts as known to all of them.

pub(crate) mod captures;
mod process;

use crate::ranks;
use millpond_driver::locks::{Guard, Mutex, lock};
use millpond_driver::output::say;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, CaptureMode, Memory, Names, Op, Part, Place, Space, StreamRole, Trust, What};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::abi::{Code, Event, Pool, Stream};
use crate::arguments::{Accesses, Kernels, Search};
use crate::entry::passed;
use crate::entry::thunk::{Entered, Inside, own};
use crate::handles::{Handles, USED_UP};
use crate::index::{Entry, Index, Kind};
use crate::judge::Judge;
use crate::mode::{self, Noting, noting};
use crate::place::Places;
use crate::signals::{self, End, Who};
use crate::sink::{Sink, Trace};
use crate::{ask, report, thread};

/// What was seen, for the summary.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    /// Calls that were understood.
    pub(crate) calls: u64,
    pub(crate) launches: u64,
    /// Launches with an address of known memory among their arguments.
    pub(crate) with_address: u64,
    /// Launches of which the arguments are not known.
    pub(crate) without_information: u64,
    /// Launches that may start before the launch before them has completed.
    pub(crate) early: u64,
    /// Calls that operations cannot say, by what they are.
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
    /// What a kernel is taken to do to memory whose address it gets.
    pub(crate) kernel_act: Act,
    /// Whether accesses are judged among each other, now or later.
    pub(crate) is_exact: bool,
    /// The launch at hand: the operation of which there are most is made in place.
    pub(crate) launch: Op,
    /// Captures that go on, by the stream that each began on.
    pub(crate) captures: FxHashMap<StreamId, Capture>,
    /// The capture modes of threads; all others have the global one.
    pub(crate) modes: FxHashMap<HostId, CaptureMode>,
    /// Addresses that alloc nodes gave out, of memory that is gone without a free.
    pub(crate) void: FxHashSet<u64>,
    /// What the other processes have waited for, as far as this one can know: a stream, and its device.
    pub(crate) others: Option<(StreamId, DeviceId)>,
    /// Streams that were destroyed while they took part in one.
    pub(crate) leaving: Vec<StreamId>,
    places: Places,
    /// What operations call them, by number: as many as were met.
    named_places: Vec<Place>,
    host: HostId,
    place: Place,
    /// Said with what is found by the call at hand.
    pub(crate) note: Option<String>,
    process: u32,
    /// Whether nothing more is noted.
    is_over: bool,
    is_finished: bool,
}

static SESSION: AtomicPtr<Mutex<ranks::Session, Session>> = AtomicPtr::new(std::ptr::null_mut());
static THREADS: AtomicU32 = AtomicU32::new(0);
/// Counted when a process forks, so that threads count anew.
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

/// A call at hand.
#[derive(Debug)]
pub(crate) struct At {
    entered: Entered,
    /// Whether the default stream is the thread's own.
    pub(crate) per_thread: bool,
    _inside: Inside,
}

impl At {
    /// A stream as a call without the thread's own default stream knows it.
    pub(crate) fn own(&self, stream: Stream) -> Stream {
        if self.per_thread && stream == Stream(0) { Stream::PER_THREAD } else { stream }
    }

    /// None where the call is passed on as it is: the library makes it itself, or nothing is asked for.
    #[inline]
    pub(crate) fn enter(entered: Entered, per_thread: bool) -> Option<Self> {
        if mode::is_off() {
            return None;
        }
        Some(At { entered, per_thread, _inside: Inside::enter()? })
    }

    /// Notes something, under the lock. What goes wrong in here is no matter of the program.
    #[inline]
    pub(crate) fn note<R: Default>(&self, act: impl FnOnce(&mut Session) -> R) -> R {
        self.note_part(act, 1)
    }

    /// Notes what became of a call that is noted already.
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

    /// As [`note`](Self::note), where the real call has succeeded; its answer.
    #[inline]
    pub(crate) fn done(&self, code: Code, act: impl FnOnce(&mut Session)) -> Code {
        if code == Code::SUCCESS {
            self.note(act);
        }
        code
    }
}

/// The session of the process, unless it has stopped.
fn session() -> Option<Guard<'static, Session>> {
    let at = SESSION.load(Ordering::Acquire);
    let session = if at.is_null() { begin()? } else { at };
    // SAFETY: a session is never given back.
    Some(lock(unsafe { &*session })).filter(|session| !session.is_over)
}

/// A launch of nothing.
fn no_launch() -> What {
    What::Launch { stream: StreamId::LEGACY, accesses: Accesses::new(), trust: Trust::None, name: None }
}

#[cold]
fn begin() -> Option<*mut Mutex<ranks::Session, Session>> {
    // Whether a judge looks for races; none where there is no judge.
    let is_judged = match noting() {
        Noting::Check { races, .. } => Some(*races),
        _ => None,
    };
    let sink = match noting() {
        Noting::Off => return None,
        Noting::Record(path) => Sink::Trace(Box::new(Trace::new(path.clone()))),
        Noting::Check { races, leaks, .. } => Sink::Judge(Box::new(Judge::new(*races, *leaks))),
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
        modes: FxHashMap::default(),
        void: FxHashSet::default(),
        others: None,
        leaving: Vec::new(),
        places: Places::new(matches!(noting(), Noting::Check { stacks: true, .. })),
        named_places: Vec::new(),
        host: HostId(0),
        place: Place::Unknown,
        note: None,
        process: std::process::id(),
        is_over: false,
        is_finished: false,
    })));
    match SESSION.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if is_judged.is_some() {
                // So that a process that never says what it has seen is known of.
                report::add("began\n");
            }
            signals::watch(Who::Noting, End { finish, forget, leave: Some(leave), save: Some(save) });
            Some(new)
        }
        Err(other) => {
            // SAFETY: it was made just now, and nothing else knows it.
            drop(unsafe { Box::from_raw(new) });
            Some(other)
        }
    }
}

impl Session {
    /// The calling thread.
    #[inline]
    fn this_host(&mut self) -> HostId {
        let number = thread_number();
        if number >= USED_UP {
            self.handles.used_up = Some("threads");
        }
        HostId(number)
    }

    /// What comes after the last number of its kind would be taken for what had that number.
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

    /// Numbers are given out one after the other, and are only lines to the checker. For a trace each is looked up when
    /// it is met first.
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
        let Self { sink, names, places, index, note, .. } = self;
        sink.push(&op, names, |judge| judge.tell(places, index, note.as_deref()));
    }

    /// Hands the launch at hand on.
    #[inline]
    pub(crate) fn push_launch(&mut self, on: StreamId) {
        if let What::Launch { stream, .. } = &mut self.launch.what {
            *stream = on;
        }
        (self.launch.host, self.launch.place) = (self.host, self.place);
        let Self { sink, launch, names, places, index, note, .. } = self;
        sink.push(launch, names, |judge| judge.tell(places, index, note.as_deref()));
    }

    fn finish(&mut self) {
        let is_first = !std::mem::replace(&mut self.is_finished, true);
        match &mut self.sink {
            Sink::Trace(trace) => trace.finish(),
            Sink::Judge(judge) if is_first => {
                // What would have been freed later is not a leak.
                if !self.is_over {
                    judge.find_rest(&self.names, &mut self.places, &self.index);
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

    /// A call that operations cannot say.
    pub(crate) fn unsupported(&mut self, what: &'static str) {
        *self.coverage.unsupported.entry(what).or_default() += 1;
    }

    /// A stream by its handle; one that was not seen made is made now.
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

    /// The legacy default stream of a device.
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

    /// The number of the thread's current context.
    pub(crate) fn current_home(&mut self) -> u32 {
        self.handles.home(ask::current_context().unwrap_or_default(), ask::current_device)
    }

    /// A stream that was made. The driver is right: what had its handle before is gone.
    pub(crate) fn add_stream(&mut self, stream: Stream, role: StreamRole, home: u32) -> StreamId {
        self.end_stream(stream, false);
        let (id, device) = (self.handles.new_stream(), self.handles.device_of(home));
        self.handles.streams.insert(stream, (id, home));
        self.push(What::StreamCreate { stream: id, role, device: DeviceId(device as u32) });
        id
    }

    /// An event by its handle; one that was not seen made is made now.
    pub(crate) fn event(&mut self, event: Event) -> EventId {
        match self.handles.events.get(&event) {
            Some(id) => *id,
            None => self.add_event(event, true),
        }
    }

    /// An event that was made. What had its handle before is gone.
    pub(crate) fn add_event(&mut self, event: Event, shared: bool) -> EventId {
        self.destroy_event(event);
        let id = self.handles.new_event(event);
        if shared {
            self.handles.shared_events.insert(id);
        }
        self.push(What::EventCreate { event: id, device: DeviceId(ask::current_device() as u32), shared });
        id
    }

    /// A pool by its handle: a device's default pool, or one that was not seen made.
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

    /// The pool of allocations on a stream that name none.
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

    /// Memory at these addresses has a name from now on. What lay there was freed by means that were not seen.
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
        // Whoever frees this address from now on means what is there.
        self.void.remove(&at);
        memory
    }

    /// Memory that is there at once.
    pub(crate) fn add_memory_now(&mut self, at: u64, bytes: u64, kind: Kind) {
        if at == 0 {
            return;
        }
        let memory = self.add_memory(at, bytes, kind);
        self.memory_now(memory, bytes, kind);
    }

    /// Memory that has its name is there at once.
    pub(crate) fn memory_now(&mut self, memory: Memory, bytes: u64, kind: Kind) {
        self.push(What::AllocNow { memory, space: space_of(kind), bytes, name: None });
    }

    /// Memory that a capture has refused.
    pub(crate) fn refused_memory(&mut self, bytes: u64, kind: Kind) -> What {
        What::AllocNow { memory: self.index.unused_name(), space: space_of(kind), bytes, name: None }
    }

    /// What a range of addresses means to an operation that uses it: nothing where no known memory is there.
    #[inline]
    pub(crate) fn access(&mut self, at: u64, bytes: u64, act: Act, accesses: &mut Accesses) {
        let Some(end) = at.checked_add(bytes).filter(|_| bytes > 0) else { return };
        let mut from = at;
        while from < end {
            let Some(entry) = self.index.used(from, ask::is_of_host) else { return };
            let to = end.min(entry.end);
            // Which bytes matters to accesses among each other only.
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
