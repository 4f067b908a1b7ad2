//! Contexts: memory belongs to the device, no matter which context a stream has or which is current on the thread.

use millpond::check::Kind;
use millpond::config::StreamKind;
use millpond::cuda::CudaConfig;
use millpond::{Buffer, Device, DeviceConfig, PoolConfig, Stream};
use millpond_driver::cuda::abi::{Code, Context, Stream as Native};

use super::config;

const BYTES: usize = 1 << 20;

/// Another user of the library in the process, with contexts of its own.
struct Program(libloading::Library);

impl Program {
    fn new(config: &CudaConfig) -> Self {
        let name = config.library.clone().unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: the library of the device, which is loaded already.
        Self(unsafe { libloading::Library::new(name) }.unwrap())
    }

    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers below give the signatures of the header.
        *unsafe { self.0.get::<F>(name) }.unwrap()
    }

    /// Creates a context and makes it current.
    fn create_context(&self, device: u32) -> Context {
        let mut context = Context::default();
        let create = self.function::<unsafe extern "C" fn(*mut Context, u32, i32) -> Code>("cuCtxCreate_v2");
        // SAFETY: a place for a context.
        assert_eq!(unsafe { create(&raw mut context, 0, device as i32) }, Code::SUCCESS);
        context
    }

    fn destroy_context(&self, context: Context) {
        let destroy = self.function::<unsafe extern "C" fn(Context) -> Code>("cuCtxDestroy_v2");
        // SAFETY: a context of this test's own.
        assert_eq!(unsafe { destroy(context) }, Code::SUCCESS);
    }

    fn current(&self) -> Context {
        let mut context = Context::default();
        let current = self.function::<unsafe extern "C" fn(*mut Context) -> Code>("cuCtxGetCurrent");
        // SAFETY: a place for a context.
        assert_eq!(unsafe { current(&raw mut context) }, Code::SUCCESS);
        context
    }

    fn set_current(&self, context: Context) {
        let set = self.function::<unsafe extern "C" fn(Context) -> Code>("cuCtxSetCurrent");
        // SAFETY: a context of this test's own, or none.
        assert_eq!(unsafe { set(context) }, Code::SUCCESS);
    }

    /// Opens a stream of the current context.
    fn open_stream(&self) -> u64 {
        let mut stream = Native::default();
        let open = self.function::<unsafe extern "C" fn(*mut Native, u32) -> Code>("cuStreamCreate");
        // SAFETY: a place for a stream.
        assert_eq!(unsafe { open(&raw mut stream, 1) }, Code::SUCCESS);
        stream.0 as u64
    }

    fn close_stream(&self, stream: u64) {
        let close = self.function::<unsafe extern "C" fn(Native) -> Code>("cuStreamDestroy_v2");
        // SAFETY: a stream of this test's own.
        assert_eq!(unsafe { close(Native(stream as usize)) }, Code::SUCCESS);
    }
}

fn open() -> Option<(Device, Program, CudaConfig)> {
    let config = config()?;
    let device = Device::cuda_with(config.clone(), DeviceConfig::default()).expect("a CUDA device");
    let program = Program::new(&config);
    Some((device, program, config))
}

fn adopt(device: &Device, native: u64) -> Stream {
    // SAFETY: the tests adopt open streams, and drop them before they close them.
    unsafe { device.adopt_stream(native, StreamKind::NonBlocking) }.unwrap()
}

#[track_caller]
fn expect(stream: &Stream, x: &Buffer<u8>, value: u8) {
    assert_eq!(stream.copy_to_host(x.read()).unwrap(), vec![value; BYTES]);
}

#[test]
fn memory_of_one_context_is_used_and_freed_in_another() {
    let Some((device, program, config)) = open() else { return };
    let pool = device.pool(PoolConfig::default()).unwrap();
    let own = device.stream().unwrap();
    let other = program.create_context(config.ordinal);
    let native = program.open_stream();
    let elsewhere = adopt(&device, native);

    // Allocated in the primary context, used and freed in the other.
    let x = own.alloc::<u8>(&pool, BYTES).unwrap();
    own.memset(x.write(), 3).unwrap();
    let early = elsewhere.memset(x.write(), 4).unwrap_err();
    assert_eq!(early.violation().unwrap().kind, Kind::UseBeforeAlloc);
    elsewhere.wait(&own.record().unwrap()).unwrap();
    expect(&elsewhere, &x, 3);
    elsewhere.memset(x.write(), 4).unwrap();
    let refused = own.free(x).unwrap_err();
    elsewhere.free(refused.buffer).unwrap();

    // The other way, and the memory of both belongs to the device.
    let y = elsewhere.alloc::<u8>(&pool, BYTES).unwrap();
    elsewhere.memset(y.write(), 5).unwrap();
    assert_eq!(pool.statistics().used_bytes, BYTES as u64);
    own.wait(&elsewhere.record().unwrap()).unwrap();
    expect(&own, &y, 5);
    own.free(y).unwrap();
    assert_eq!(program.current(), other, "the thread's context is as the program set it");
    elsewhere.synchronize().unwrap();
    device.synchronize().unwrap();
    assert_eq!(pool.statistics().reserved_bytes, 0);

    drop(elsewhere);
    program.close_stream(native);
    program.destroy_context(other);
}

/// If the allocating stream and context are destroyed, the memory stays as it is.
#[test]
fn memory_outlives_the_context_that_allocated_it() {
    let Some((device, program, config)) = open() else { return };
    let (pool, own) = (device.default_pool(), device.stream().unwrap());
    let before = program.current();
    let other = program.create_context(config.ordinal);
    let native = program.open_stream();
    let elsewhere = adopt(&device, native);
    let x = elsewhere.alloc::<u8>(&pool, BYTES).unwrap();
    let dropped = elsewhere.alloc::<u8>(&pool, BYTES).unwrap();
    elsewhere.memset(x.write(), 6).unwrap();
    elsewhere.memset(dropped.write(), 7).unwrap();
    let made = elsewhere.record().unwrap();
    drop(elsewhere);
    program.close_stream(native);
    program.destroy_context(other);
    program.set_current(before);

    // Its events still answer, and the device is not lost.
    own.wait(&made).unwrap();
    assert!(made.synchronize().is_ok() && made.is_over().unwrap());
    expect(&own, &x, 6);
    drop(dropped);
    let again = own.alloc::<u8>(&pool, BYTES).unwrap();
    own.memset(again.write(), 8).unwrap();
    expect(&own, &again, 8);
    own.free(x).unwrap();
    own.free(again).unwrap();
    device.synchronize().unwrap();
    assert_eq!(pool.statistics().reserved_bytes, 0);
}

/// An allocation is on the device of the pool and the stream, never on the one that is current on the thread.
#[test]
fn the_current_context_says_nothing() {
    let Some((device, program, config)) = open() else { return };
    let (stream, pool) = (device.stream().unwrap(), device.default_pool());
    let Some(stranger) = super::config().filter(|other| other.ordinal != config.ordinal) else { return };
    let currents = [program.create_context(config.ordinal), program.create_context(stranger.ordinal)];
    for context in currents {
        program.set_current(context);
        let x = stream.alloc::<u8>(&pool, 64 << 20).unwrap();
        stream.memset(x.write(), 9).unwrap();
        assert!(stream.copy_to_host(x.read()).unwrap().iter().all(|byte| *byte == 9));
        let event = stream.record().unwrap();
        event.synchronize().unwrap();
        let fresh = device.stream().unwrap();
        fresh.wait(&event).unwrap();
        fresh.free(x).unwrap();
        fresh.synchronize().unwrap();
        pool.trim_to(0).unwrap();
        assert_eq!(program.current(), context);
    }
    // On a thread without a context.
    let freed = std::thread::scope(|scope| {
        let work = || stream.alloc::<u8>(&pool, BYTES).and_then(|x| Ok(stream.free(x)?));
        scope.spawn(work).join().unwrap()
    });
    freed.unwrap();
    // A stream of the other device is not a stream of this device.
    program.set_current(currents[1]);
    let native = program.open_stream();
    // SAFETY: an open stream; it is refused.
    let refused = unsafe { device.adopt_stream(native, StreamKind::NonBlocking) }.unwrap_err();
    assert!(refused.report().to_string().contains("the stream is of another device"), "{refused}");
    program.close_stream(native);
    currents.into_iter().for_each(|context| program.destroy_context(context));
}
