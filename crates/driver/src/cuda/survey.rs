//! A description of CUDA on this machine, for messages.
//!
//! Opens no context and keeps nothing open. Errors contain the driver's own text.

use std::ffi::{CStr, c_int};

use super::abi::{Device, attribute as number};
use super::gpu::check;
use super::table::Api;
use crate::Result;

/// The name of the call in errors.
const CALL: &str = "look at CUDA";

/// The library and its devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Survey {
    /// The name of the library, under which the loader found it.
    pub library: String,
    /// The version of CUDA that the driver supports, as major and minor number.
    pub version: (u32, u32),
    /// The visible devices, or the reason why there are none.
    pub devices: Result<Vec<Facts>>,
}

/// The properties of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// The number of the device among the visible ones.
    pub ordinal: u32,
    /// The device's name.
    pub name: String,
    /// The device's memory in bytes.
    pub total_bytes: u64,
    /// The compute capability, as major and minor number.
    pub capability: (u32, u32),
    /// `true` if memory can be mapped: without this no pool is possible.
    pub has_virtual_memory: bool,
    /// `true` if memory can be shared with other processes as file descriptors.
    pub has_file_descriptors: bool,
    /// `true` if events can be shared with other processes.
    pub has_ipc_events: bool,
}

/// Queries the library of the setting [`LIBRARY_VARIABLE`](super::LIBRARY_VARIABLE), or the system's.
///
/// # Errors
/// The library or one of its functions is missing.
pub fn survey() -> Result<Survey> {
    let api = Api::load(None)?;
    let mut version = 0;
    // SAFETY: the pointer is valid for a number.
    check(&api, CALL, unsafe { (api.table.driver_version)(&raw mut version) })?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok(Survey { library: api.name.clone(), version: (version / 1000, version % 1000 / 10), devices: devices(&api) })
}

fn devices(api: &Api) -> Result<Vec<Facts>> {
    // SAFETY: no argument can be wrong.
    check(api, CALL, unsafe { (api.table.init)(0) })?;
    let mut count = 0;
    // SAFETY: the pointer is valid for a number.
    check(api, CALL, unsafe { (api.table.device_count)(&raw mut count) })?;
    (0..count).map(|ordinal| facts(api, ordinal)).collect()
}

fn facts(api: &Api, ordinal: c_int) -> Result<Facts> {
    let mut device = 0;
    // SAFETY: the pointer is valid for a device.
    check(api, CALL, unsafe { (api.table.device)(&raw mut device, ordinal) })?;
    let asked = |which| attribute(api, device, which);
    let unsigned = |which| Ok(u32::try_from(asked(which)?).unwrap_or(0));
    // Older drivers do not know newer attributes, and do not have these features.
    let has = |which| asked(which).is_ok_and(|value| value != 0);
    Ok(Facts {
        ordinal: ordinal as u32,
        name: name(api, device)?,
        total_bytes: total_bytes(api, device)?,
        capability: (unsigned(number::CAPABILITY_MAJOR)?, unsigned(number::CAPABILITY_MINOR)?),
        has_virtual_memory: has(number::VIRTUAL_MEMORY),
        has_file_descriptors: has(number::FILE_DESCRIPTORS),
        has_ipc_events: has(number::IPC_EVENTS),
    })
}

/// Returns a device's name.
pub(super) fn name(api: &Api, device: Device) -> Result<String> {
    let mut text = [0u8; 256];
    // SAFETY: the pointer is valid for the text, and the length leaves a 0 at its end.
    let code = unsafe { (api.table.device_name)(text.as_mut_ptr().cast(), text.len() as c_int - 1, device) };
    check(api, CALL, code)?;
    let text = CStr::from_bytes_until_nul(&text).map(CStr::to_string_lossy);
    Ok(text.map_or_else(|_| "a device without a name".to_owned(), std::borrow::Cow::into_owned))
}

/// Returns an attribute of a device.
pub(super) fn attribute(api: &Api, device: Device, which: c_int) -> Result<c_int> {
    let mut value = 0;
    // SAFETY: the pointer is valid for a number.
    check(api, CALL, unsafe { (api.table.device_attribute)(&raw mut value, which, device) })?;
    Ok(value)
}

/// Returns a device's memory in bytes.
pub(super) fn total_bytes(api: &Api, device: Device) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the pointer is valid for a number.
    check(api, CALL, unsafe { (api.table.device_total_bytes)(&raw mut bytes, device) })?;
    Ok(bytes as u64)
}
