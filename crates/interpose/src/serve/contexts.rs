//! Synchronisations give memory back; streams and contexts end.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::{captures, devices, is_ours, live, pools};
use crate::abi::{Code, Context, Event, Stream};
use crate::session::At;

/// After a synchronisation a pool keeps no more than its release threshold, beside what is in use.
fn synchronized(code: Code) -> Code {
    if code != Code::SUCCESS || !is_ours() || captures::may_be() {
        return code;
    }
    for pool in pools::all() {
        let threshold = pool.threshold.load(Ordering::Relaxed);
        if threshold < u64::MAX && pool.pool.statistics().reserved_bytes > threshold {
            // What the driver refuses to take back stays reserved.
            let _ = pool.pool.trim_to(threshold);
        }
    }
    devices::all().for_each(|it| it.device.reclaim());
    code
}

/// `cuCtxSynchronize`
pub(crate) unsafe fn synchronize(_at: &At, real: impl Fn() -> Code + Copy) -> Code {
    synchronized(real())
}

/// `cuCtxSynchronize_v2`
pub(crate) unsafe fn synchronize_v2(_at: &At, real: impl Fn() -> Code + Copy, _context: Context) -> Code {
    synchronized(real())
}

/// `cuStreamSynchronize`
pub(crate) unsafe fn synchronize_stream(_at: &At, real: impl Fn() -> Code + Copy, _stream: Stream) -> Code {
    synchronized(real())
}

/// `cuEventSynchronize`
pub(crate) unsafe fn synchronize_event(_at: &At, real: impl Fn() -> Code + Copy, _event: Event) -> Code {
    synchronized(real())
}

/// `cuStreamDestroy`: all that it has by now counts.
pub(crate) unsafe fn destroy_stream(_at: &At, real: impl Fn() -> Code + Copy, stream: Stream) -> Code {
    devices::close(stream);
    real()
}

/// `cuCtxDestroy`: its streams end. Memory of pools is the device's, and stays.
pub(crate) unsafe fn destroy(_at: &At, real: impl Fn() -> Code + Copy, context: Context) -> Code {
    devices::close_all_of(context);
    real()
}

/// `cuDevicePrimaryCtxReset`: what was served there is gone.
pub(crate) unsafe fn reset(_at: &At, real: impl Fn() -> Code + Copy, device: c_int) -> Code {
    let code = real();
    if code == Code::SUCCESS {
        devices::lose(device);
        live::lose(device);
        pools::lose(device);
    }
    code
}
