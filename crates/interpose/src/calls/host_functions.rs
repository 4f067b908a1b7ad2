//! Host functions in streams: a program often learns from one that earlier work has completed, as from an event.
//!
//! A host function starts once all earlier work of its stream has completed. So an event that the program does not see
//! is recorded before it, and is found complete when the function starts. What the function then tells other threads
//! (by a lock, a flag, a future) counts as known from that point. Host nodes of graphs are not followed.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

use millpond_core::ids::{DeviceId, EventId};
use millpond_core::op::{EventKind, What};

use crate::abi::{Code, Stream};
use crate::ask;
use crate::entry::real;
use crate::session::{At, Session, note_apart};

/// `CUhostFn`
type HostFunction = unsafe extern "C-unwind" fn(*mut c_void);
/// `CUstreamCallback`
type Callback = unsafe extern "C-unwind" fn(Stream, c_int, *mut c_void);

/// The data of the function that the driver calls in place of the program's.
struct Followed {
    function: usize,
    data: usize,
    event: EventId,
}

/// `cuLaunchHostFunc`
pub(crate) fn launch(at: &At, real: impl FnOnce() -> Code, stream: Stream, function: usize, data: usize) -> Code {
    type Launch = unsafe extern "C" fn(Stream, HostFunction, *mut c_void) -> Code;
    static PLAIN: OnceLock<usize> = OnceLock::new();
    static TWIN: OnceLock<usize> = OnceLock::new();
    let found = match at.per_thread {
        false => find(&PLAIN, c"cuLaunchHostFunc"),
        true => find(&TWIN, c"cuLaunchHostFunc_ptsz"),
    };
    follow(at, real, stream, (found, function, data), |found, data| {
        // SAFETY: the function of this name, and its type by the header.
        let launch = unsafe { std::mem::transmute::<*const c_void, Launch>(std::ptr::with_exposed_provenance(found)) };
        // SAFETY: the program's own call but for the function, which calls the program's.
        unsafe { launch(stream, run, data) }
    })
}

/// `cuStreamAddCallback`
pub(crate) fn add_callback(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: Stream,
    function: usize,
    data: usize,
    flags: c_uint,
) -> Code {
    type Add = unsafe extern "C" fn(Stream, Callback, *mut c_void, c_uint) -> Code;
    static PLAIN: OnceLock<usize> = OnceLock::new();
    static TWIN: OnceLock<usize> = OnceLock::new();
    let found = match at.per_thread {
        false => find(&PLAIN, c"cuStreamAddCallback"),
        true => find(&TWIN, c"cuStreamAddCallback_ptsz"),
    };
    follow(at, real, stream, (found, function, data), |found, data| {
        // SAFETY: as above.
        let add = unsafe { std::mem::transmute::<*const c_void, Add>(std::ptr::with_exposed_provenance(found)) };
        // SAFETY: as above.
        unsafe { add(stream, call_back, data, flags) }
    })
}

fn find(place: &OnceLock<usize>, name: &CStr) -> usize {
    *place.get_or_init(|| real::asked(name))
}

/// Makes the call with a function of this library in place of the program's, unless the stream captures.
fn follow(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: Stream,
    (found, function, data): (usize, usize, usize),
    call: impl FnOnce(usize, *mut c_void) -> Code,
) -> Code {
    let event = match found == 0 || function == 0 {
        true => None,
        // Before the call: the function may run before it returns.
        false => at.note(|session| session.record_for_host(at, stream)),
    };
    let Some(event) = event else {
        return at.done(real(), |session| session.work(at, stream, &[]));
    };
    let followed = Box::into_raw(Box::new(Followed { function, data, event }));
    let code = call(found, followed.cast());
    match code == Code::SUCCESS {
        true => at.settle(|session| session.work(at, stream, &[])),
        false => {
            at.settle(|session| session.end_unnamed(event));
            // SAFETY: made above, and the driver did not take it.
            drop(unsafe { Box::from_raw(followed) });
        }
    }
    code
}

/// Returns the program's function and its argument. The host now knows that what came before the function has
/// completed.
///
/// # Safety
/// `data` is that of [`follow`], and is passed here once.
unsafe fn started(data: *mut c_void) -> (usize, *mut c_void) {
    // SAFETY: the caller's promise.
    let Followed { function, data, event } = *unsafe { Box::from_raw(data.cast::<Followed>()) };
    note_apart(|session| {
        session.push(What::EventQuery { event, is_over: true });
        session.end_unnamed(event);
    });
    (function, std::ptr::with_exposed_provenance_mut(data))
}

unsafe extern "C-unwind" fn run(data: *mut c_void) {
    // SAFETY: the driver passes the data of `follow`, once.
    let (function, data) = unsafe { started(data) };
    // SAFETY: the program's function, and its type by the header.
    let run =
        unsafe { std::mem::transmute::<*const c_void, HostFunction>(std::ptr::with_exposed_provenance(function)) };
    // SAFETY: as the driver would call it.
    unsafe { run(data) }
}

unsafe extern "C-unwind" fn call_back(stream: Stream, status: c_int, data: *mut c_void) {
    // SAFETY: as in `run`.
    let (function, data) = unsafe { started(data) };
    // SAFETY: as in `run`.
    let run = unsafe { std::mem::transmute::<*const c_void, Callback>(std::ptr::with_exposed_provenance(function)) };
    // SAFETY: as the driver would call it.
    unsafe { run(stream, status, data) }
}

impl Session {
    /// Records an event that the program does not see; `None` in a capture.
    fn record_for_host(&mut self, at: &At, stream: Stream) -> Option<EventId> {
        if self.is_lost(at, stream) {
            return None;
        }
        let handle = stream;
        let stream = self.stream(at, handle);
        if self.origin(at, stream, handle).is_some() {
            return None;
        }
        let event = self.handles.new_unnamed_event();
        let device = DeviceId(ask::current_device() as u32);
        self.push(What::EventCreate { event, device, shared: false });
        self.push(What::EventRecord { event, stream, external: false, kind: EventKind::Completion });
        Some(event)
    }

    fn end_unnamed(&mut self, event: EventId) {
        self.handles.end_unnamed_event(event);
        self.push(What::EventDestroy { event });
    }
}
