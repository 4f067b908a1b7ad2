//! The names of devices in messages.

use std::fmt;

/// The name of a device in messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceName {
    /// Its number. The devices of a process are counted from 0 as they are opened.
    pub number: u32,
    /// The driver's name for it.
    pub name: String,
}

impl DeviceName {
    /// Makes the name of the device with the library's own number `key`, which is counted from 1.
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
