//! The access of devices to each other's memory. A grant is modelled as memory of its own, which an act of the host
//! frees. Each use of another device's memory reads the latest grant. Without a grant it reads memory that never
//! begins.
//!
//! Memory of graphs keeps the grants of its pool at the time when it was made, and is not modelled here.

use millpond_core::ids::{DeviceId, PoolId, ProcessId};
use millpond_core::op::{Access, Act, Reach, Space, What};

use super::{Effect, LifeOf, Lower};

/// The owner of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Owner {
    Pool(PoolId),
    Device(ProcessId, DeviceId),
}

/// A grant: the memory's owner, the device that gets access, and `true` if it may write.
pub(super) type Grant = (Owner, DeviceId, bool);

impl Lower<'_> {
    /// Performs an operation on grants. Returns `true` if it is one.
    pub(super) fn access_step(&mut self, what: &What) -> bool {
        let (owner, device, reach) = match *what {
            What::PoolAccess { pool, device, reach } => (Owner::Pool(pool), device, reach),
            What::PeerAccess { owner, device, is_enabled } => {
                let reach = if is_enabled { Reach::ReadWrite } else { Reach::None };
                (Owner::Device(self.process(self.host), owner), device, reach)
            }
            _ => return false,
        };
        for (writes, needed) in [(false, Reach::Read), (true, Reach::ReadWrite)] {
            let grant = (owner, device, writes);
            match (self.grants.contains_key(&grant), reach >= needed) {
                (false, true) => {
                    let life = self.new_grant(true);
                    self.grants.insert(grant, life);
                }
                (true, false) => {
                    let life = self.grants.remove(&grant);
                    // The effect of disabling peer access on running kernels is not known.
                    if let (Some(life), Owner::Pool(_)) = (life, owner) {
                        self.act(Vec::new(), vec![Effect::of_all(life, Act::Free)]);
                    }
                }
                _ => {}
            }
        }
        true
    }

    /// Notes the owner of a life, if other devices need a grant to use it.
    pub(super) fn own(&mut self, life: usize, what: &What) {
        let owner = match *what {
            What::Alloc { stream, pool, .. } => {
                let device = self.stream(stream).home.1;
                (Owner::Pool(pool), device)
            }
            What::AllocNow { space: Space::Device(device), .. } => {
                (Owner::Device(self.process(self.host), device), device)
            }
            What::AllocNow { space: Space::Host, .. } => {
                self.of_host.insert(life);
                return;
            }
            _ => return,
        };
        self.owners.insert(life, owner);
    }

    /// Returns the effects of a device's work on memory, including reads of the grants that it needs. Copies need no
    /// grant for immediate memory; imported memory needs none at all.
    pub(super) fn granted(&mut self, device: DeviceId, is_copy: bool, accesses: &[Access]) -> Vec<Effect> {
        let mut all = Vec::new();
        for access in accesses {
            let effects = self.effects(std::slice::from_ref(access));
            let of = |effect: &Effect| Some((self.owners.get(&effect.life)?, effect.act));
            if let [effect] = effects[..]
                && let Some((&(owner, home), act)) = of(&effect)
                && home != device
                && !(is_copy && matches!(owner, Owner::Device(..)))
            {
                let grant = self.grants.get(&(owner, device, act == Act::Write)).copied();
                let life = grant.unwrap_or_else(|| self.new_grant(false));
                all.push(Effect::of_all(life, Act::Read));
            }
            all.extend(effects);
        }
        all
    }

    fn new_grant(&mut self, is_there: bool) -> usize {
        self.model.lives.push(LifeOf { name: "a grant".into(), is_there, ..LifeOf::default() });
        self.model.lives.len() - 1
    }
}
