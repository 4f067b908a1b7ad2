//! Kernels that use another device's memory. `cuMemAlloc` allocates for its own device, until peer access is enabled.
//!
//! Access can also come from other calls (an imported handle that enables it). So the driver is asked about it before
//! such a kernel is noted. If the driver does not answer, the access counts as given.

use millpond_core::ids::DeviceId;
use millpond_core::op::What;
use smallvec::SmallVec;

use crate::ask;
use crate::index::Kind;
use crate::session::Session;

impl Session {
    /// Notes that the thread's device has access to another device's memory from now on.
    pub(crate) fn enable_peer_access(&mut self, owner: i32) {
        self.set_peer(owner, ask::current_device(), true);
    }

    /// Notes that the thread's device has no access to another device's memory any more.
    pub(crate) fn disable_peer_access(&mut self, owner: i32) {
        self.set_peer(owner, ask::current_device(), false);
    }

    fn set_peer(&mut self, owner: i32, device: i32, is_enabled: bool) {
        let is_news = match is_enabled {
            true => self.handles.peers.insert((owner, device)),
            false => self.handles.peers.remove(&(owner, device)),
        };
        if is_news {
            let [owner, device] = [owner, device].map(|device| DeviceId(device as u32));
            self.push(What::PeerAccess { owner, device, is_enabled });
        }
    }

    /// Asks the driver which other devices' memory the current kernel may use.
    #[cold]
    pub(crate) fn ask_for_peers(&mut self) {
        let What::Launch { accesses, .. } = &self.launch.what else { return };
        let device = ask::current_device();
        let of_others = accesses.iter().filter_map(|access| {
            let entry = self.index.entry(access.memory).filter(|entry| entry.kind == Kind::Device)?;
            let owner = self.handles.device_of(entry.home);
            let is_known = owner == device || self.handles.peers.contains(&(owner, device));
            (!is_known && ask::has_access(entry.start) != Some(false)).then_some(owner)
        });
        let owners: SmallVec<[i32; 2]> = of_others.collect();
        owners.into_iter().for_each(|owner| self.set_peer(owner, device, true));
    }
}
