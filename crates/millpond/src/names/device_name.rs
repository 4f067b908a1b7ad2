//! What messages call a device.

use std::fmt;

/// What messages call a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceName {
    /// Its number: the devices of a process are counted from 0 as they are opened.
    pub number: u32,
    /// What its driver calls it.
    pub name: String,
}

impl DeviceName {
    /// Of the device that the library itself knows by `key`: those are counted from 1.
    pub(crate) fn new(key: u32, name: String) -> Self {
        Self { number: key - 1, name }
    }

    pub(crate) fn key(&self) -> u32 {
        self.number + 1
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {} (`{}`)", self.number, self.name)
    }
}
