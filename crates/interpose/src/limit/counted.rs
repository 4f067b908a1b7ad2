//! What a call does to the memory of a device, and the call with its change.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use super::account::Kind;
use super::owned::{Key, Object};
use super::{Limited, State, arrays, refused, state};
use crate::abi::{AllocNode, Code, Context, Location, Pool, PoolProps, Stream};
use crate::ask;
use crate::calls::read;
use crate::capturing;
use crate::entry::real;
use millpond_driver::cuda::abi::AllocationProp;
use millpond_driver::cuda::abi::pool::attribute;
use millpond_driver::locks::{read as lock_read, write};

/// Who calls the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// The program.
    Program {
        /// `true` if the call's default stream is the thread's own.
        per_thread: bool,
    },
    /// Millpond's own driver.
    Millpond,
}

/// Memory that a call makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    kind: Kind,
    /// `None` if it is not a device's.
    device: Option<i32>,
    /// `true` if it ends with the current context.
    is_of_context: bool,
    bytes: u64,
    /// The place where the call writes the key.
    at: Written,
}

/// The place where a call writes the key of new memory.
#[derive(Clone, Copy, Debug)]
enum Written {
    Address(*const u64),
    /// Rows: also the place of their distance, and their number.
    Rows(*const u64, *const usize, u64),
    Handle(*const u64),
    Array(*const usize),
    Mipmapped(*const usize),
}

/// What a call does to the memory of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// It makes memory.
    Makes(Made),
    /// It ends memory, or a holder of it. An address may also be of a pool.
    Ends(Key),
    /// It maps physical memory: the address, the bytes, the handle.
    Maps(u64, usize, u64),
    /// It unmaps a range.
    Unmaps(u64, usize),
    /// It gives a handle out for a mapping that has an address.
    Retains(*const u64, u64),
    /// It allocates from a pool, or from a stream's current pool: the place of the address, the bytes.
    Draws(*const u64, usize, Option<Pool>, Stream),
    /// It adds a node that allocates.
    AddsNode(Option<AllocNode>),
    /// It makes a pool.
    MakesPool(*const Pool, Option<PoolProps>),
    /// It ends a pool.
    EndsPool(Pool),
    /// Pools or graphs may have taken memory, or given it back.
    Measures,
    /// It loads a module, whose memory is estimated by how much less is free afterwards.
    Loads(*const usize),
    /// It destroys a context.
    EndsContext(Context),
    /// It releases a device's primary context, which ends with its last holder.
    Releases(c_int),
    /// It resets a device.
    Resets(c_int),
    /// It says how much memory is free, and how much there is.
    Tells(*mut usize, *mut usize),
    /// It says how much memory a device has.
    TellsTotal(*mut usize, c_int),
    /// It finds a function for Millpond's own driver.
    Finds(*mut *mut c_void),
}

/// Rows of `cuMemAllocPitch` begin at multiples of this many bytes on the devices that are known. The call says what it
/// did.
const ROW: u64 = 512;

impl Made {
    fn now(kind: Kind, bytes: u64, at: Written) -> Self {
        Self { kind, device: ask::context_device(), is_of_context: true, bytes, at }
    }
}

impl Change {
    /// `cuMemAlloc`, `cuMemAllocManaged`
    pub(crate) fn memory(kind: Kind, at: *const u64, bytes: usize) -> Self {
        Change::Makes(Made::now(kind, bytes as u64, Written::Address(at)))
    }

    /// `cuMemAllocPitch`
    pub(crate) fn rows(at: *const u64, pitch: *const usize, width: usize, height: usize) -> Self {
        let bytes = (width as u64).saturating_add(ROW - 1) / ROW * ROW;
        let bytes = bytes.saturating_mul(height as u64);
        Change::Makes(Made::now(Kind::Memory, bytes, Written::Rows(at, pitch, height as u64)))
    }

    /// `cuMemCreate`: the memory is of the device that the properties name, whatever the current context is.
    ///
    /// # Safety
    /// The properties are null, or valid.
    pub(crate) unsafe fn physical(handle: *const u64, bytes: usize, props: *const c_void) -> Self {
        // SAFETY: the caller's promise.
        let location = unsafe { read(props.cast::<AllocationProp>()) }.map(|props| props.location);
        let device = location.filter(|it| it.kind == Location::DEVICE).map(|it| it.id);
        let at = Written::Handle(handle);
        Change::Makes(Made { kind: Kind::Virtual, device, is_of_context: false, bytes: bytes as u64, at })
    }

    /// `cuArrayCreate`
    ///
    /// # Safety
    /// The descriptor is null, or valid.
    pub(crate) unsafe fn array(array: *const usize, shape: *const arrays::Flat) -> Self {
        // SAFETY: the caller's promise.
        let bytes = unsafe { read(shape) }.map_or(0, arrays::Flat::bytes);
        Change::Makes(Made::now(Kind::Array, bytes, Written::Array(array)))
    }

    /// `cuArray3DCreate`
    ///
    /// # Safety
    /// The descriptor is null, or valid.
    pub(crate) unsafe fn deep_array(array: *const usize, shape: *const arrays::Deep) -> Self {
        // SAFETY: the caller's promise.
        let bytes = unsafe { read(shape) }.map_or(0, |shape| shape.bytes(1));
        Change::Makes(Made::now(Kind::Array, bytes, Written::Array(array)))
    }

    /// `cuMipmappedArrayCreate`
    ///
    /// # Safety
    /// The descriptor is null, or valid.
    pub(crate) unsafe fn mipmapped(array: *const usize, shape: *const arrays::Deep, levels: u32) -> Self {
        // SAFETY: the caller's promise.
        let bytes = unsafe { read(shape) }.map_or(0, |shape| shape.bytes(levels));
        Change::Makes(Made::now(Kind::Array, bytes, Written::Mipmapped(array)))
    }

    /// `cuGraphAddNode`, whose first word is the kind of node, and whose parameters begin 16 bytes after that.
    ///
    /// # Safety
    /// The parameters are null, or valid.
    pub(crate) unsafe fn node(params: *const c_int) -> Self {
        const ALLOC: c_int = 10;
        // SAFETY: the caller's promise.
        let kind = unsafe { read(params) };
        let fields = params.wrapping_byte_add(16).cast::<AllocNode>();
        // SAFETY: the kind says which structure the fields are.
        let node = if kind == Some(ALLOC) { unsafe { read(fields) } } else { None };
        node.map_or(Change::Measures, |node| Change::AddsNode(Some(node)))
    }
}

/// Makes a call that changes the memory of a device, and counts the change. A call that would pass the limit is not
/// made: its code is CUDA's for no memory.
///
/// # Safety
/// The places of the change are null, or valid once the call has succeeded.
pub(crate) unsafe fn counted(change: Change, door: Door, real: impl Fn() -> Code) -> Code {
    let Some(state) = state() else { return real() };
    // Calls that may wait for the device make and end nothing.
    let _changing = (!matches!(change, Change::Measures)).then(|| state.rest.change());
    match change {
        // SAFETY: the caller's promise.
        Change::Makes(made) => unsafe { state.make(made, door, real) },
        Change::Ends(key) => state.end(&[key], real),
        Change::Unmaps(at, bytes) => {
            let keys = state.owned().mappings(at, bytes as u64);
            state.end(&keys, real)
        }
        Change::Draws(at, bytes, pool, stream) => {
            let is_own = door == Door::Program { per_thread: true } && stream == Stream(0);
            let stream = if is_own { Stream::PER_THREAD } else { stream };
            // SAFETY: the caller's promise.
            unsafe { state.draw(at, bytes as u64, pool, stream, real) }
        }
        Change::AddsNode(node) => state.add_node(node, real),
        // SAFETY: the caller's promise.
        Change::Loads(module) => unsafe { state.load(module, real) },
        Change::EndsPool(pool) => state.end_pool(pool, real),
        Change::Releases(device) => {
            let context = ask::primary_of(device);
            state.after(real(), || {
                let gone = context.filter(|_| !ask::is_primary_active(device));
                gone.into_iter().for_each(|context| state.end_context(context));
            })
        }
        Change::Resets(device) => {
            let context = ask::primary_of(device);
            state.after(real(), || {
                let is_gone = |it: &Object| it.device == device && (it.context.is_none() || it.context == context);
                let gone = state.owned().end_all(is_gone);
                gone.into_iter().for_each(|object| state.give(object));
                state.measure_all();
                state.measure_rest();
            })
        }
        // The other changes are noted once the call has succeeded.
        // SAFETY: the caller's promise.
        later => state.after(real(), || unsafe { state.settle(later, door) }),
    }
}

impl State {
    /// Calls `act` if the call has succeeded, and returns its code.
    fn after(&self, code: Code, act: impl FnOnce()) -> Code {
        if code == Code::SUCCESS {
            act();
        }
        code
    }

    /// # Safety
    /// As of [`counted`], and the call has succeeded.
    unsafe fn settle(&self, change: Change, door: Door) {
        match change {
            Change::Maps(at, bytes, handle) => {
                let gone = self.owned().map(at, bytes as u64, handle);
                gone.into_iter().for_each(|object| self.give(object));
            }
            Change::Retains(handle, at) => {
                // SAFETY: the caller's promise.
                let Some(handle) = (unsafe { read(handle) }) else { return };
                let gone = self.owned().retain(handle, at);
                gone.into_iter().for_each(|object| self.give(object));
            }
            Change::MakesPool(pool, props) => {
                // SAFETY: the caller's promise.
                let Some((pool, props)) = unsafe { read(pool) }.zip(props) else { return };
                let device = (props.location.kind == Location::DEVICE).then_some(props.location.id);
                self.owned().pools.insert(pool, device);
            }
            Change::Measures => self.measure_all(),
            Change::EndsContext(context) => self.end_context(context),
            Change::Tells(free, total) => {
                let Some(device) = ask::context_device() else { return };
                let Some(Limited { place, bytes }) = self.limited(device) else { return };
                self.measure(device);
                self.rest.measure(&self.account, device, place, false);
                let left = bytes.saturating_sub(self.account.used(place));
                // SAFETY: the caller's promise.
                unsafe { lower(free, left) };
                // SAFETY: as above.
                unsafe { lower(total, bytes) };
            }
            Change::TellsTotal(total, device) => {
                let Some(Limited { bytes, .. }) = self.limited(device) else { return };
                // SAFETY: the caller's promise.
                unsafe { lower(total, bytes) };
            }
            Change::Finds(place) if door == Door::Millpond => {
                // SAFETY: the caller's promise.
                let Some(found) = (unsafe { read(place) }) else { return };
                if let Some(inner) = real::inner(found.expose_provenance()) {
                    // SAFETY: not null, and the caller's promise.
                    unsafe { place.write_unaligned(std::ptr::with_exposed_provenance_mut(inner)) };
                }
            }
            _ => {}
        }
    }

    /// # Safety
    /// As of [`counted`].
    unsafe fn make(&self, made: Made, door: Door, real: impl Fn() -> Code) -> Code {
        let Made { device, is_of_context, bytes, at, .. } = made;
        let limited = device.and_then(|device| Some((device, self.limited(device)?)));
        let Some((device, limited @ Limited { place, .. })) = limited else { return real() };
        let kind = if door == Door::Millpond { Kind::Pool } else { made.kind };
        if !self.take(device, limited, kind, bytes) {
            return Code::OUT_OF_MEMORY;
        }
        let code = real();
        // SAFETY: the caller's promise.
        let written = if code == Code::SUCCESS { unsafe { at.key() } } else { None };
        let Some((key, known)) = written else {
            self.account.give(place, kind, bytes);
            return code;
        };
        let made = known.unwrap_or(bytes);
        self.account.add(place, kind, made.saturating_sub(bytes));
        self.account.give(place, kind, bytes.saturating_sub(made));
        let context = if is_of_context { ask::current_context() } else { None };
        let gone = self.owned().make(key, Object { place, device, kind, bytes: made, context });
        gone.into_iter().for_each(|object| self.give(object));
        code
    }

    /// Ends holders of memory. They are taken before the call: from then on the driver may give their keys out again.
    fn end(&self, keys: &[Key], real: impl Fn() -> Code) -> Code {
        let (taken, unmeasured) = {
            let mut owned = self.owned();
            let taken: Vec<_> = keys.iter().filter_map(|key| Some((*key, owned.take(*key)?))).collect();
            let at = |key: &Key| if let Key::Address(at) = key { owned.unmeasured.remove(at) } else { None };
            (taken, keys.iter().find_map(at))
        };
        let code = real();
        if let (Some((place, bytes)), Code::SUCCESS) = (unmeasured, code) {
            self.account.give(place, Kind::CudaPool, bytes);
        }
        for (key, holder) in taken {
            let mut owned = self.owned();
            if code != Code::SUCCESS {
                owned.put_back(key, holder);
            } else if let Some(object) = owned.end(holder) {
                self.give(object);
            }
        }
        self.measure_all();
        if keys.iter().any(|key| matches!(key, Key::Module(_))) {
            self.measure_rest();
        }
        code
    }

    /// Ends a pool of CUDA's. From before the call on it is not asked for its figures.
    fn end_pool(&self, pool: Pool, real: impl Fn() -> Code) -> Code {
        let device = self.owned().pools.remove(&pool);
        let drawn: Vec<_> = write(&self.drawn).extract_if(|it| it.0 == pool).collect();
        let code = real();
        if code != Code::SUCCESS {
            self.owned().pools.extend(device.map(|device| (pool, device)));
            write(&self.drawn).extend(drawn);
        }
        self.measure_all();
        code
    }

    fn end_context(&self, context: Context) {
        let gone = self.owned().end_all(|it| it.context == Some(context));
        gone.into_iter().for_each(|object| self.give(object));
        self.measure_rest();
    }

    /// Allocates from a pool of CUDA's. In a capture, this adds a node to the capture's graph.
    ///
    /// # Safety
    /// As of [`counted`].
    unsafe fn draw(
        &self,
        at: *const u64,
        bytes: u64,
        pool: Option<Pool>,
        stream: Stream,
        real: impl Fn() -> Code,
    ) -> Code {
        let of_stream = || match stream.0 <= Stream::PER_THREAD.0 {
            true => ask::context_device(),
            false => ask::context_of(stream).map(ask::device_of),
        };
        let device = match pool.and_then(|pool| self.owned().pools.get(&pool).copied()) {
            Some(known) => known,
            None => of_stream(),
        };
        let Some(device) = device else { return real() };
        if ask::is_capturing(stream) {
            return self.add_memory_of_graph(device, bytes, real);
        }
        let limited = self.limited(device).zip(pool.or_else(|| ask::pool_of(device)));
        let Some((limited @ Limited { place, bytes: limit }, pool)) = limited else { return real() };
        // The pool serves from what is idle in it, if that fits.
        let before = reserved_and_used(pool);
        let idle = before.map_or(0, |(reserved, used)| reserved.saturating_sub(used));
        let fresh = bytes.saturating_sub(idle);
        if !self.take(device, limited, Kind::Pending, fresh) {
            return Code::OUT_OF_MEMORY;
        }
        let code = real();
        if code != Code::SUCCESS {
            self.account.give(place, Kind::Pending, fresh);
            return code;
        }
        self.will_measure(device);
        let is_known = lock_read(&self.drawn).contains(&(pool, device));
        if !is_known {
            write(&self.drawn).insert((pool, device));
        }
        // The bytes count as they are until the next measurement.
        self.account.settle(place, Kind::CudaPool, fresh);
        // SAFETY: the caller's promise.
        let Some(made) = (unsafe { read(at) }) else { return code };
        self.owned().unmeasured.insert(made, (place, fresh));
        self.measure(device);
        // A pool takes more than it is asked for, and what was idle may not have fitted.
        let has_grown = || before.zip(reserved_and_used(pool)).is_none_or(|(before, after)| after.0 > before.0);
        if self.account.sum(place) <= limit || !has_grown() || !ask::free_on(made, stream) {
            return code;
        }
        let unmeasured = self.owned().unmeasured.remove(&made);
        unmeasured.into_iter().for_each(|(place, bytes)| self.account.give(place, Kind::CudaPool, bytes));
        // A wait makes captures invalid.
        capturing::while_none(|| {
            ask::wait_for(stream);
            ask::trim_pool(pool);
        });
        self.measure(device);
        refused::set(Some((device, bytes)));
        Code::OUT_OF_MEMORY
    }

    fn add_node(&self, node: Option<AllocNode>, real: impl Fn() -> Code) -> Code {
        let device = node.filter(|node| node.pool.location.kind == Location::DEVICE).map(|it| it.pool.location.id);
        let device = device.or_else(ask::context_device).filter(|_| node.is_some());
        let Some(device) = device else { return real() };
        self.add_memory_of_graph(device, node.map_or(0, |node| node.bytes as u64), real)
    }

    /// Makes a call that adds an alloc node, unless its bytes would pass the limit.
    fn add_memory_of_graph(&self, device: i32, bytes: u64, real: impl Fn() -> Code) -> Code {
        let Some(limited) = self.limited(device) else { return real() };
        if !self.take(device, limited, Kind::Pending, bytes) {
            return Code::OUT_OF_MEMORY;
        }
        let code = real();
        if code == Code::SUCCESS {
            self.has_nodes.store(true, Ordering::Relaxed);
            self.will_measure(device);
            // The bytes count as they are until the next measurement.
            self.account.settle(limited.place, Kind::Graph, bytes);
            self.measure(device);
        } else {
            self.account.give(limited.place, Kind::Pending, bytes);
        }
        code
    }

    /// # Safety
    /// As of [`counted`].
    unsafe fn load(&self, module: *const usize, real: impl Fn() -> Code) -> Code {
        let limited = ask::context_device().and_then(|device| Some((device, self.limited(device)?)));
        let Some((device, Limited { place, .. })) = limited.filter(|_| !capturing::may_be()) else { return real() };
        if self.rest.measure(&self.account, device, place, false) {
            return self.after(real(), || self.measure_rest());
        }
        // It becomes less by memory that is not in the account.
        let apart = || Some(ask::free_bytes()?.saturating_add(self.account.sum(place)));
        let before = apart();
        let code = real();
        // SAFETY: the caller's promise.
        let module = if code == Code::SUCCESS { unsafe { read(module) } } else { None };
        if let Some(module) = module {
            let bytes = before.zip(apart()).map_or(0, |(before, after)| before.saturating_sub(after));
            self.account.add(place, Kind::Module, bytes);
            let object = Object { place, device, kind: Kind::Module, bytes, context: ask::current_context() };
            let gone = self.owned().make(Key::Module(module), object);
            gone.into_iter().for_each(|object| self.give(object));
        }
        code
    }
}

/// Returns the bytes that a pool has reserved, and those that allocations have. `None` while a stream captures: the
/// question makes a capture invalid.
fn reserved_and_used(pool: Pool) -> Option<(u64, u64)> {
    let ask = || Some((ask::pool_bytes(pool, attribute::RESERVED)?, ask::pool_bytes(pool, attribute::USED)?));
    capturing::while_none(ask).flatten()
}

impl Written {
    /// Returns the key that the call has written, and the bytes if only the call knows them.
    ///
    /// # Safety
    /// The places are null, or valid.
    unsafe fn key(self) -> Option<(Key, Option<u64>)> {
        // SAFETY: the caller's promise, as below.
        let number = |at| unsafe { read::<u64>(at) };
        // SAFETY: as above.
        let handle = |at| unsafe { read::<usize>(at) };
        Some(match self {
            Written::Address(at) => (Key::Address(number(at)?), None),
            Written::Rows(at, pitch, rows) => {
                (Key::Address(number(at)?), Some((handle(pitch)? as u64).saturating_mul(rows)))
            }
            Written::Handle(at) => (Key::Handle(number(at)?), None),
            Written::Array(at) => (Key::Array(handle(at)?), None),
            Written::Mipmapped(at) => (Key::Mipmapped(handle(at)?), None),
        })
    }
}

/// Lowers a number of the program's to at most `to`.
///
/// # Safety
/// Null, or valid.
unsafe fn lower(place: *mut usize, to: u64) {
    // SAFETY: the caller's promise.
    if let Some(known) = unsafe { read(place) } {
        let to = usize::try_from(to).unwrap_or(usize::MAX);
        // SAFETY: not null, and the caller's promise. A place of a program may be unaligned.
        unsafe { place.write_unaligned(known.min(to)) };
    }
}
