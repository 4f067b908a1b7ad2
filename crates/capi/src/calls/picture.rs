//! The live memory as JSON: to read, and for the Python package, which makes other pictures of it.

use std::ffi::{CString, c_char};
use std::fmt::Write;

use millpond::Device;
use millpond::raw::{LiveAllocation, PoolPicture};

use crate::status::{Failure, Result, guard, millpond_status, place};
use crate::tables::device::{DEVICES, millpond_device_t};

/// Writes a JSON string.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Writing to a string does not fail.
macro_rules! put {
    ($out:expr, $($part:tt)*) => {
        write!($out, $($part)*).expect("a string takes everything")
    };
}

fn allocation(live: &LiveAllocation, out: &mut String) {
    let LiveAllocation { id, range, bytes, name, stream, op, .. } = live;
    put!(out, "{{\"id\":{},\"address\":{},\"bytes\":{},\"requested\":{bytes}", id.0, range.start, range.bytes);
    put!(out, ",\"stream\":{},\"op\":{op}", stream.0);
    if let Some(name) = name {
        out.push_str(",\"name\":");
        quote(name, out);
    }
    out.push('}');
}

fn pool(pool: &PoolPicture, out: &mut String) {
    let PoolPicture { id, statistics: it, live } = pool;
    put!(out, "{{\"id\":{},\"used\":{},\"used_high\":{}", id.0, it.used_bytes, it.used_high_bytes);
    put!(out, ",\"reserved\":{},\"reserved_high\":{}", it.reserved_bytes, it.reserved_high_bytes);
    out.push_str(",\"live\":[");
    for (i, live) in live.iter().enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        allocation(live, out);
    }
    out.push_str("]}");
}

/// Returns the picture of a device.
pub(crate) fn picture(device: &Device) -> String {
    let mut out = String::from("{\"device\":");
    let properties = device.properties();
    quote(&properties.name, &mut out);
    put!(out, ",\"total\":{},\"granularity\":{},\"pools\":[", properties.total_bytes, properties.granularity);
    for (i, it) in device.picture().iter().enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        pool(it, &mut out);
    }
    out.push_str("]}");
    out
}

/// Gives a text to the caller.
pub(crate) fn hand_out(text: String, to: &mut *mut c_char) -> Result<()> {
    let text = CString::new(text).map_err(|_| Failure::Value("the text has a zero in it".into()))?;
    *to = text.into_raw();
    Ok(())
}

/// Returns a device's live memory as JSON: its pools with their figures, and all allocations. The caller must give the
/// text back with millpond_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_memory_picture(json: *mut *mut c_char, device: millpond_device_t) -> millpond_status {
    guard("millpond_memory_picture", || {
        let json = place(json, "json")?;
        hand_out(picture(&DEVICES.find(device)?.device), json)
    })
}

/// Gives a text of the library back. Null has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller gives back what a call of this library handed out, once.
        drop(unsafe { CString::from_raw(text) });
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_are_quoted() {
        let mut out = String::new();
        super::quote("a\"b\\c\nd", &mut out);
        assert_eq!(out, "\"a\\\"b\\\\c\\u000ad\"");
    }
}
