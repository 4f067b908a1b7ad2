//! Settings from the environment.

use std::sync::LazyLock;

use millpond_core::units::GIB;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Devices from this number on are peers of no other device.
pub(crate) const PEERS: i32 = 64;

/// Returns the number of devices.
pub(crate) fn devices() -> usize {
    static SETTING: LazyLock<u64> = LazyLock::new(|| setting("FAKECUDA_DEVICES", PEERS as u64 + 1));
    *SETTING as usize
}

/// Returns the number of the first device among all of the machine, as `CUDA_VISIBLE_DEVICES` chooses it.
pub(crate) fn first_device() -> u64 {
    setting("FAKECUDA_FIRST_DEVICE", 0)
}

/// Returns the memory that each module takes, in bytes.
pub(crate) fn module_bytes() -> usize {
    setting("FAKECUDA_MODULE_BYTES", 0) as usize
}

/// Returns the memory of each device, in bytes.
pub(crate) fn total_bytes() -> u64 {
    setting("FAKECUDA_BYTES", 64 * GIB)
}

/// Returns `true` if the program's host memory counts as pageable: a copy with one side there has completed when its
/// call returns.
pub(crate) fn is_pageable() -> bool {
    static SETTING: LazyLock<bool> = LazyLock::new(|| setting("FAKECUDA_PAGEABLE", 0) != 0);
    *SETTING
}

/// Returns `true` if devices support interprocess events. The calls exist anyway, as in a real driver.
pub(crate) fn has_ipc_events() -> bool {
    setting("FAKECUDA_IPC_EVENTS", 1) != 0
}

/// Returns `true` if devices report an engine that decompresses memory. The engine itself does not exist.
pub(crate) fn decompresses() -> bool {
    setting("FAKECUDA_DECOMPRESSES", 0) != 0
}

/// Returns `true` if a new object gets the handle of the last destroyed one, as it may from a real driver.
pub(crate) fn are_handles_reused() -> bool {
    static SETTING: LazyLock<u64> = LazyLock::new(|| setting("FAKECUDA_REUSED_HANDLES", 0));
    *SETTING != 0
}

/// Returns `true` if streams may take part in captures of others.
pub(crate) fn are_forks_allowed() -> bool {
    static SETTING: LazyLock<u64> = LazyLock::new(|| setting("FAKECUDA_FORKS", 0));
    *SETTING != 0
}
