//! Pools and their attributes.

use millpond::config::Slack;
use millpond::pool::PeerAccess;
use millpond::{Pool, PoolConfig};

use crate::status::{Failure, Result, given, guard, millpond_status, place};
use crate::tables::device::{DEVICES, millpond_device_t};
use crate::tables::pool::{POOLS, millpond_pool_t};

/// For millpond_pool_config: slack that is loose while the device has room, and as little as is cheap as it fills.
pub const MILLPOND_SLACK_PRESSURE: f64 = -1.0;

/// The settings of a pool. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_pool_config {
    /// Bytes to keep at a synchronisation (CUDA: cudaMemPoolAttrReleaseThreshold).
    pub release_threshold: u64,
    /// The most bytes to reserve; 0 for no limit.
    pub max_bytes: u64,
    /// The slack: how far reserved bytes may exceed live ones, as a fraction of these; 0 for as little as is cheap, or
    /// MILLPOND_SLACK_PRESSURE.
    pub slack: f64,
    /// Not 0: freed addresses become inaccessible, so that a stray access faults. For finding bugs, not for speed.
    pub guard: i32,
}

/// A pool's attributes, with CUDA's names. Values are 64 bits wide.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum millpond_pool_attribute {
    /// 0 or 1: freed memory may serve another stream if events order that.
    MILLPOND_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
    /// 0 or 1: freed memory may serve another stream if the free has completed.
    MILLPOND_POOL_REUSE_ALLOW_OPPORTUNISTIC = 2,
    /// 0 or 1: a stream may be made to wait for another stream's free.
    MILLPOND_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
    /// Bytes to keep at a synchronisation.
    MILLPOND_POOL_RELEASE_THRESHOLD = 4,
    /// The physical memory now; read only.
    MILLPOND_POOL_RESERVED_CURRENT = 5,
    /// The most physical memory since the last reset; can be set to 0.
    MILLPOND_POOL_RESERVED_HIGH = 6,
    /// The bytes allocated and not freed; read only.
    MILLPOND_POOL_USED_CURRENT = 7,
    /// The most bytes allocated since the last reset; can be set to 0.
    MILLPOND_POOL_USED_HIGH = 8,
}

/// A pool's figures, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct millpond_pool_statistics {
    /// The bytes allocated and not freed, as requested.
    pub used_bytes: u64,
    /// The most of these since the last reset.
    pub used_high_bytes: u64,
    /// Physical memory.
    pub reserved_bytes: u64,
    /// The most of it since the last reset.
    pub reserved_high_bytes: u64,
}

use millpond_pool_attribute::*;

/// All attributes.
const ATTRIBUTES: [millpond_pool_attribute; 8] = [
    MILLPOND_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES,
    MILLPOND_POOL_REUSE_ALLOW_OPPORTUNISTIC,
    MILLPOND_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    MILLPOND_POOL_RELEASE_THRESHOLD,
    MILLPOND_POOL_RESERVED_CURRENT,
    MILLPOND_POOL_RESERVED_HIGH,
    MILLPOND_POOL_USED_CURRENT,
    MILLPOND_POOL_USED_HIGH,
];

/// Returns the attribute of a number.
fn attribute_of(number: i32) -> Result<millpond_pool_attribute> {
    let found = ATTRIBUTES.into_iter().find(|it| *it as i32 == number);
    found.ok_or_else(|| Failure::Value(format!("{number} is none of millpond_pool_attribute")))
}

/// Makes a pool (CUDA: cudaMemPoolCreate). `config` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_create(
    pool: *mut millpond_pool_t,
    device: millpond_device_t,
    config: *const millpond_pool_config,
) -> millpond_status {
    guard("millpond_pool_create", || {
        let pool = place(pool, "pool")?;
        let entry = DEVICES.find(device)?;
        let mut settings = PoolConfig::default();
        if !config.is_null() {
            let config = given(config, "config")?;
            settings.release_threshold = config.release_threshold;
            settings.max_bytes = Some(config.max_bytes).filter(|bytes| *bytes > 0);
            settings.guard = config.guard != 0;
            settings.slack = match config.slack {
                0.0 => Slack::Adaptive,
                MILLPOND_SLACK_PRESSURE => Slack::Pressure,
                part => Slack::Fixed(part),
            };
        }
        *pool = POOLS.insert(entry.device.pool(settings)?)?;
        Ok(())
    })
}

/// Destroys a pool's handle (CUDA: cudaMemPoolDestroy). The pool closes with its last handle; a device's current pool
/// closes once another pool is current. Allocations from it stay valid and can be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_destroy(pool: millpond_pool_t) -> millpond_status {
    guard("millpond_pool_destroy", || POOLS.remove(pool).map(drop))
}

/// Sets one of `millpond_pool_attribute` (CUDA: cudaMemPoolSetAttribute). High values can only be set to 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_set_attribute(
    pool: millpond_pool_t,
    attribute: i32,
    value: *const u64,
) -> millpond_status {
    guard("millpond_pool_set_attribute", || {
        let value = *given(value, "value")?;
        let pool = POOLS.find(pool)?;
        let (is_on, read_only) = (value != 0, || Failure::Value("this attribute can only be read".into()));
        match attribute_of(attribute)? {
            MILLPOND_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES => {
                pool.update_reuse(|reuse| reuse.follow_event_dependencies = is_on);
            }
            MILLPOND_POOL_REUSE_ALLOW_OPPORTUNISTIC => pool.update_reuse(|reuse| reuse.allow_opportunistic = is_on),
            MILLPOND_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                pool.update_reuse(|reuse| reuse.allow_internal_dependencies = is_on);
            }
            MILLPOND_POOL_RELEASE_THRESHOLD => pool.set_release_threshold(value),
            MILLPOND_POOL_RESERVED_CURRENT | MILLPOND_POOL_USED_CURRENT => return Err(read_only()),
            _ if value != 0 => return Err(Failure::Value("a high mark can be set to 0 only".into())),
            MILLPOND_POOL_RESERVED_HIGH => pool.reset_reserved_high(),
            MILLPOND_POOL_USED_HIGH => pool.reset_used_high(),
        }
        Ok(())
    })
}

/// Reads one of `millpond_pool_attribute` (CUDA: cudaMemPoolGetAttribute).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_get_attribute(
    pool: millpond_pool_t,
    attribute: i32,
    value: *mut u64,
) -> millpond_status {
    guard("millpond_pool_get_attribute", || {
        let value = place(value, "value")?;
        let pool = POOLS.find(pool)?;
        let (config, statistics) = (pool.config(), pool.statistics());
        *value = match attribute_of(attribute)? {
            MILLPOND_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES => config.reuse.follow_event_dependencies.into(),
            MILLPOND_POOL_REUSE_ALLOW_OPPORTUNISTIC => config.reuse.allow_opportunistic.into(),
            MILLPOND_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES => config.reuse.allow_internal_dependencies.into(),
            MILLPOND_POOL_RELEASE_THRESHOLD => config.release_threshold,
            MILLPOND_POOL_RESERVED_CURRENT => statistics.reserved_bytes,
            MILLPOND_POOL_RESERVED_HIGH => statistics.reserved_high_bytes,
            MILLPOND_POOL_USED_CURRENT => statistics.used_bytes,
            MILLPOND_POOL_USED_HIGH => statistics.used_high_bytes,
        };
        Ok(())
    })
}

/// Returns a pool's figures, all of one moment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_get_statistics(
    pool: millpond_pool_t,
    statistics: *mut millpond_pool_statistics,
) -> millpond_status {
    guard("millpond_pool_get_statistics", || {
        let out = place(statistics, "statistics")?;
        *out = figures(&POOLS.find(pool)?);
        Ok(())
    })
}

pub(crate) fn figures(pool: &Pool) -> millpond_pool_statistics {
    let now = pool.statistics();
    millpond_pool_statistics {
        used_bytes: now.used_bytes,
        used_high_bytes: now.used_high_bytes,
        reserved_bytes: now.reserved_bytes,
        reserved_high_bytes: now.reserved_high_bytes,
    }
}

/// The access of a device to a pool's memory, for millpond_pool_set_access: none (CUDA: cudaMemAccessFlagsProtNone).
pub const MILLPOND_ACCESS_NONE: i32 = 0;
/// The device may read it (CUDA: cudaMemAccessFlagsProtRead).
pub const MILLPOND_ACCESS_READ: i32 = 1;
/// The device may read and write it (CUDA: cudaMemAccessFlagsProtReadWrite).
pub const MILLPOND_ACCESS_READ_WRITE: i32 = 3;

/// Grants another device access to all memory of a pool, allocated before or later, or revokes it (CUDA:
/// cudaMemPoolSetAccess). `access` is MILLPOND_ACCESS_NONE, MILLPOND_ACCESS_READ or MILLPOND_ACCESS_READ_WRITE. Before
/// access is revoked, the host must have synchronised with the device's uses. If a use is not known to have completed,
/// the call is refused, and nothing has happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_set_access(
    pool: millpond_pool_t,
    device: millpond_device_t,
    access: i32,
) -> millpond_status {
    guard("millpond_pool_set_access", || {
        let access = match access {
            MILLPOND_ACCESS_NONE => PeerAccess::None,
            MILLPOND_ACCESS_READ => PeerAccess::Read,
            MILLPOND_ACCESS_READ_WRITE => PeerAccess::ReadWrite,
            other => return Err(Failure::Value(format!("{other} is no MILLPOND_ACCESS_..."))),
        };
        let pool = POOLS.find(pool)?;
        Ok(pool.grant(&DEVICES.find(device)?.device, access)?)
    })
}

/// Returns the access of a device to a pool's memory (CUDA: cudaMemPoolGetAccess).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_get_access(
    access: *mut i32,
    pool: millpond_pool_t,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_pool_get_access", || {
        let access = place(access, "access")?;
        *access = match POOLS.find(pool)?.access_of(&DEVICES.find(device)?.device) {
            PeerAccess::None => MILLPOND_ACCESS_NONE,
            PeerAccess::Read => MILLPOND_ACCESS_READ,
            PeerAccess::ReadWrite => MILLPOND_ACCESS_READ_WRITE,
        };
        Ok(())
    })
}

/// Gives idle memory back to the system until `keep_bytes` are left (CUDA: cudaMemPoolTrimTo).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_pool_trim_to(pool: millpond_pool_t, keep_bytes: u64) -> millpond_status {
    guard("millpond_pool_trim_to", || Ok(POOLS.find(pool)?.trim_to(keep_bytes)?))
}
