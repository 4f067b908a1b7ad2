//! What messages call a pool.

use std::fmt;

use millpond_core::ids::PoolId;
use millpond_core::op::Quoted;

/// What messages call a pool: by its name, where it has one, else by its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolName {
    /// Its number on its device.
    pub id: PoolId,
    /// What the program calls it ([`Pool::named`](crate::Pool::named)).
    pub name: Option<String>,
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "pool {}", Quoted(name)),
            None => self.id.fmt(f),
        }
    }
}
