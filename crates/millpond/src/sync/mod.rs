//! The lowest layer: the ranks of locks, and values that are dropped after the locks. Depends on nothing about
//! devices.

pub(crate) mod garbage;
pub(crate) mod ranks;
pub(crate) mod sweep;
pub(crate) mod weak_list;
