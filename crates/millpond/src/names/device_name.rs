//! What messages call a device.

use std::fmt;

/// What messages call a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceName {
    /// Its number: the devices of a process are counted from 1 as they are opened.
    pub number: u32,
    /// What its driver calls it.
    pub name: String,
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} (`{}`)", self.number, self.name)
    }
}
