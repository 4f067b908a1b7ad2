//! Synchronisations, which give memory back, and the ends of streams and contexts.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::{captures, devices, is_ours, live, pools};
use crate::abi::{Code, Context, Stream};
use crate::{ask, capturing};

/// After a synchronisation, pools give back what they reserve above their release threshold.
pub(crate) fn synchronized(code: Code) -> Code {
    if code != Code::SUCCESS || !is_ours() || capturing::may_be() {
        return code;
    }
    for pool in pools::all() {
        let threshold = pool.threshold.load(Ordering::Relaxed);
        if threshold < u64::MAX && pool.pool.statistics().reserved_bytes > threshold {
            // If the driver does not take it back, it stays reserved.
            let _ = pool.pool.trim_to(threshold);
        }
    }
    devices::all().for_each(|it| it.device.reclaim());
    code
}

/// `cuStreamDestroy`: the work that the stream has by now is recorded first.
pub(crate) fn destroy_stream(stream: Stream, real: impl Fn() -> Code) -> Code {
    devices::close(stream);
    real()
}

/// `cuCtxDestroy`: its streams end. Pools' memory belongs to the device, and stays.
pub(crate) fn destroy(context: Context, real: impl Fn() -> Code) -> Code {
    devices::close_all_of(context);
    let code = real();
    if code == Code::SUCCESS {
        captures::lose(context);
    }
    code
}

/// `cuDevicePrimaryCtxReset`: what was served there is gone.
pub(crate) fn reset(device: c_int, real: impl Fn() -> Code) -> Code {
    let context = ask::primary_of(device);
    let code = real();
    if code == Code::SUCCESS {
        context.into_iter().for_each(captures::lose);
        devices::lose(device);
        live::lose(device);
        pools::lose(device);
    }
    code
}
