//! Pools: created, destroyed, opened to devices, made current.

use std::ffi::c_int;

use millpond_core::ids::DeviceId;
use millpond_core::op::{Reach, What};

use crate::abi::{AccessDesc, Location, Pool, PoolProps};
use crate::session::Session;

impl Session {
    /// Notes that a pool was created. A pool that had the handle before is gone.
    pub(crate) fn create_pool(&mut self, pool: Pool, props: Option<PoolProps>) {
        let exportable = props.is_some_and(|props| props.handle_types != 0);
        let device = props.filter(|it| it.location.kind == Location::DEVICE).map(|it| DeviceId(it.location.id as u32));
        self.destroy_pool(pool);
        let pool = self.handles.new_pool(pool);
        self.push(What::PoolCreate { pool, exportable, device });
    }

    /// Returns the operation of a pool's creation that a capture has refused.
    pub(crate) fn refused_pool(&mut self) -> What {
        What::PoolCreate { pool: self.handles.unused_pool(), exportable: false, device: None }
    }

    /// Notes that a pool is destroyed.
    pub(crate) fn destroy_pool(&mut self, pool: Pool) {
        if let Some(id) = self.handles.pools.remove(&pool) {
            self.handles.current_pools.retain(|_, it| *it != id);
            self.push(What::PoolDestroy { pool: id });
        }
    }

    /// Notes the access of devices to a pool's memory.
    pub(crate) fn open_pool(&mut self, pool: Pool, access: &[AccessDesc]) {
        let pool = self.pool(pool);
        for desc in access {
            let reach = match desc.flags {
                AccessDesc::NONE => Reach::None,
                AccessDesc::READ => Reach::Read,
                _ => Reach::ReadWrite,
            };
            self.push(What::PoolAccess { pool, device: DeviceId(desc.location.id as u32), reach });
        }
    }

    /// Makes this pool the one that allocations on a device's streams come from.
    pub(crate) fn set_pool(&mut self, device: c_int, pool: Pool) {
        let pool = self.pool(pool);
        self.handles.current_pools.insert(device, pool);
    }
}
