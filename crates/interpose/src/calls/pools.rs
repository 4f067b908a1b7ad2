//! Pools: made, destroyed, opened to devices, made current.

use std::ffi::c_int;

use millpond_core::ids::DeviceId;
use millpond_core::op::{Reach, What};

use crate::abi::{AccessDesc, Location, Pool, PoolProps};
use crate::session::Session;

impl Session {
    /// A pool was made. What had its handle before is gone.
    pub(crate) fn create_pool(&mut self, pool: Pool, props: Option<PoolProps>) {
        let exportable = props.is_some_and(|props| props.handle_types != 0);
        let device = props.filter(|it| it.location.kind == Location::DEVICE).map(|it| DeviceId(it.location.id as u32));
        self.destroy_pool(pool);
        let pool = self.handles.new_pool(pool);
        self.push(What::PoolCreate { pool, exportable, device });
    }

    /// A pool that a capture has refused.
    pub(crate) fn refused_pool(&mut self) -> What {
        What::PoolCreate { pool: self.handles.unused_pool(), exportable: false, device: None }
    }

    /// A pool is destroyed.
    pub(crate) fn destroy_pool(&mut self, pool: Pool) {
        if let Some(id) = self.handles.pools.remove(&pool) {
            self.handles.current_pools.retain(|_, it| *it != id);
            self.push(What::PoolDestroy { pool: id });
        }
    }

    /// Devices may do that much with a pool's memory.
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

    /// Allocations on a device's streams come from this pool.
    pub(crate) fn set_pool(&mut self, device: c_int, pool: Pool) {
        let pool = self.pool(pool);
        self.handles.current_pools.insert(device, pool);
    }
}
