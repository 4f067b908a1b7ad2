//! Streams: created, waited for, ordered with each other.

use std::ffi::{c_char, c_void};

use millpond::{Device, Stream};

use super::capture::abandon;
use super::event::{self, MILLPOND_EVENT_WAIT_DEFAULT, MILLPOND_EVENT_WAIT_EXTERNAL};
use crate::status::{Failure, Result, answer, guard, millpond_status, text};
use crate::tables::device::{DEVICES, millpond_device_t};
use crate::tables::event::{millpond_event_t, wait};
use crate::tables::stream::{STREAMS, StreamEntry, add, adopt, millpond_stream_t, remove};

/// For millpond_stream_create_with_flags: ordered with the legacy default stream.
pub const MILLPOND_STREAM_DEFAULT: u32 = 0;
/// For millpond_stream_create_with_flags: not ordered with the legacy default stream.
pub const MILLPOND_STREAM_NON_BLOCKING: u32 = 1;

/// Makes a handle for a stream of a device. `OWN` is for a new stream, which closes with the handle.
fn hand_out<const OWN: bool>(
    stream: *mut millpond_stream_t,
    device: millpond_device_t,
    find: impl FnOnce(&Device) -> Result<Stream>,
) -> Result<()> {
    let device = DEVICES.find(device)?;
    answer(stream, "stream", || add(find(&device.device)?, device, OWN))
}

/// Opens a stream that is ordered with the legacy default stream (CUDA: cudaStreamCreate).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_create(
    stream: *mut millpond_stream_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_stream_create", || hand_out::<true>(stream, device, |device| Ok(device.stream()?)))
}

/// Opens a stream (CUDA: cudaStreamCreateWithFlags): MILLPOND_STREAM_DEFAULT or MILLPOND_STREAM_NON_BLOCKING.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_create_with_flags(
    stream: *mut millpond_stream_t,
    device: millpond_device_t,
    flags: u32,
) -> millpond_status {
    guard("millpond_stream_create_with_flags", || {
        hand_out::<true>(stream, device, |device| match flags {
            MILLPOND_STREAM_DEFAULT => Ok(device.stream()?),
            MILLPOND_STREAM_NON_BLOCKING => Ok(device.non_blocking_stream()?),
            other => Err(Failure::Value(format!("{other} is not a stream flag"))),
        })
    })
}

/// Makes a handle for a stream that the program made with CUDA. The stream stays the program's, and must be open until
/// the handle is destroyed. Not for a host device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_from_cuda(
    stream: *mut millpond_stream_t,
    device: millpond_device_t,
    cuda_stream: *mut c_void,
) -> millpond_status {
    guard("millpond_stream_from_cuda", || hand_out::<false>(stream, device, |device| adopt(device, cuda_stream as u64)))
}

/// Returns the legacy default stream (CUDA: cudaStreamLegacy): its work comes after all earlier work of blocking
/// streams, and before their later work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_legacy(
    stream: *mut millpond_stream_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_stream_legacy", || hand_out::<false>(stream, device, |device| Ok(device.legacy_stream())))
}

/// Returns the calling thread's own default stream (CUDA: cudaStreamPerThread).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_per_thread(
    stream: *mut millpond_stream_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_stream_per_thread", || hand_out::<false>(stream, device, |device| Ok(device.per_thread_stream()?)))
}

/// Destroys a handle (CUDA: cudaStreamDestroy). The stream closes with its last handle; work in it still runs. A
/// capture that began on it then ends without a graph. A thread's own stream stays open until the thread ends, and a
/// stream that was made with CUDA is the program's: captures on these go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_destroy(stream: millpond_stream_t) -> millpond_status {
    guard("millpond_stream_destroy", || {
        let StreamEntry { stream, device, is_own, .. } = remove(stream)?;
        if is_own {
            // Another thread may be in a call on the stream, and still have it.
            stream.abandon_capture();
        }
        drop(stream);
        abandon(&device);
        Ok(())
    })
}

/// Waits until all work of the stream has completed (CUDA: cudaStreamSynchronize).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_synchronize(stream: millpond_stream_t) -> millpond_status {
    guard("millpond_stream_synchronize", || Ok(STREAMS.find(stream)?.stream.synchronize()?))
}

/// Returns MILLPOND_SUCCESS if all work of the stream has completed, and else MILLPOND_NOT_READY (CUDA:
/// cudaStreamQuery).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_query(stream: millpond_stream_t) -> millpond_status {
    guard("millpond_stream_query", || match STREAMS.find(stream)?.stream.is_idle()? {
        true => Ok(()),
        false => Err(Failure::NotReady),
    })
}

/// Makes later work of the stream come after the event (CUDA: cudaStreamWaitEvent). An event that was never recorded
/// has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_wait_event(
    stream: millpond_stream_t,
    event: millpond_event_t,
) -> millpond_status {
    guard("millpond_stream_wait_event", || {
        let entry = STREAMS.find(stream)?;
        wait(event, &entry.stream, &entry.device.device, false)
    })
}

/// As millpond_stream_wait_event. With MILLPOND_EVENT_WAIT_EXTERNAL it is a node in a capture, which waits at each
/// launch for the event's last record at that time (CUDA: cudaStreamWaitEvent with its flags). Outside captures the
/// flag has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_wait_event_with_flags(
    stream: millpond_stream_t,
    event: millpond_event_t,
    flags: u32,
) -> millpond_status {
    guard("millpond_stream_wait_event_with_flags", || {
        let is_node = event::is_external(flags, [MILLPOND_EVENT_WAIT_DEFAULT, MILLPOND_EVENT_WAIT_EXTERNAL])?;
        let entry = STREAMS.find(stream)?;
        wait(event, &entry.stream, &entry.device.device, is_node)
    })
}

/// Writes 1 if the stream captures, and 0 if not (CUDA: cudaStreamIsCapturing).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_is_capturing(
    is_capturing: *mut i32,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_stream_is_capturing", || {
        answer(is_capturing, "is_capturing", || Ok(STREAMS.find(stream)?.stream.is_capturing()?.into()))
    })
}

/// Gives the stream a name, which messages and traces use in place of its number. The last name counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_set_name(stream: millpond_stream_t, name: *const c_char) -> millpond_status {
    guard("millpond_stream_set_name", || {
        STREAMS.find(stream)?.stream.set_name(text(name, "name")?);
        Ok(())
    })
}

/// Returns the stream's number on its device, as in messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_stream_get_number(number: *mut u32, stream: millpond_stream_t) -> millpond_status {
    guard("millpond_stream_get_number", || answer(number, "number", || Ok(STREAMS.find(stream)?.stream.id().0)))
}
