//! The names of pools in messages.

use std::fmt;

use millpond_core::ids::PoolId;
use millpond_core::op::Quoted;

/// The name of a pool in messages: its name if it has one, otherwise its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolName {
    /// Its number on its device.
    pub id: PoolId,
    /// The program's name for it ([`Pool::named`](crate::Pool::named)).
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
