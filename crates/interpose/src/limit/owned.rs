//! What this process has made and not yet ended: objects of memory, by the keys that the program ends them with.
//!
//! Physical memory (`cuMemCreate`) lives until its handles are released and its mappings are unmapped. So an object has
//! holders: each address, each handle as often as it was given out, each mapping.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::account::Kind;
use crate::abi::{Context, Pool};

/// The name by which the program ends memory, or a holder of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Key {
    /// The first address of an allocation.
    Address(u64),
    /// The handle of physical memory.
    Handle(u64),
    /// The first address of a mapping.
    Mapping(u64),
    Array(usize),
    Mipmapped(usize),
    Module(usize),
}

/// Memory that was made by one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Object {
    /// The device's place in the account.
    pub(super) place: usize,
    pub(super) device: i32,
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    /// The context that it ends with; `None` for memory of the device.
    pub(super) context: Option<Context>,
}

/// A holder of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    object: u64,
    /// The number of times that the key was given out.
    count: u64,
    /// The bytes of a mapping.
    bytes: u64,
}

/// The objects of a process.
#[derive(Debug, Default)]
pub(super) struct Owned {
    last: u64,
    /// Each object with the number of its holders.
    objects: FxHashMap<u64, (Object, u64)>,
    holders: BTreeMap<Key, Holder>,
    /// Memory of CUDA's pools that was allocated since they were measured: its device's place, and its bytes.
    pub(super) unmeasured: FxHashMap<u64, (usize, u64)>,
    /// The device of each pool that was made.
    pub(super) pools: FxHashMap<Pool, Option<i32>>,
}

impl Owned {
    /// Adds a new object with its first holder. Returns the object that had the key before, if that has ended by a call
    /// that was not seen.
    pub(super) fn make(&mut self, key: Key, object: Object) -> Option<Object> {
        let gone = self.lose(key);
        self.last += 1;
        self.objects.insert(self.last, (object, 0));
        self.hold(key, self.last, 0);
        gone
    }

    fn hold(&mut self, key: Key, object: u64, bytes: u64) {
        if let Some((_, count)) = self.objects.get_mut(&object) {
            *count += 1;
            self.holders.entry(key).or_insert(Holder { object, count: 0, bytes }).count += 1;
        }
    }

    /// Adds a mapping of the memory of a handle. Returns an object that has ended by a call that was not seen.
    pub(super) fn map(&mut self, at: u64, bytes: u64, handle: u64) -> Option<Object> {
        let gone = self.lose(Key::Mapping(at));
        if let Some(object) = self.holders.get(&Key::Handle(handle)).map(|holder| holder.object) {
            self.hold(Key::Mapping(at), object, bytes);
        }
        gone
    }

    /// Adds a handle for the memory that is mapped at an address. Returns an object that has ended by a call that was
    /// not seen.
    pub(super) fn retain(&mut self, handle: u64, at: u64) -> Option<Object> {
        let (start, mapping) = self.holders.range(..=Key::Mapping(at)).next_back()?;
        let Key::Mapping(start) = *start else { return None };
        let object = mapping.object;
        if at - start >= mapping.bytes {
            return None;
        }
        let key = Key::Handle(handle);
        let is_another = self.holders.get(&key).is_some_and(|holder| holder.object != object);
        let gone = if is_another { self.lose(key) } else { None };
        self.hold(key, object, 0);
        gone
    }

    /// Returns the mappings that begin in a range.
    pub(super) fn mappings(&self, at: u64, bytes: u64) -> Vec<Key> {
        let range = Key::Mapping(at)..Key::Mapping(at.saturating_add(bytes));
        self.holders.range(range).map(|(key, _)| *key).collect()
    }

    /// Takes a key once, before the call that ends it: from then on the driver may give it to another thread.
    pub(super) fn take(&mut self, key: Key) -> Option<Holder> {
        let holder = self.holders.get_mut(&key)?;
        let taken = Holder { count: 1, ..*holder };
        holder.count -= 1;
        if holder.count == 0 {
            self.holders.remove(&key);
        }
        Some(taken)
    }

    /// Puts a key back whose end was refused.
    pub(super) fn put_back(&mut self, key: Key, taken: Holder) {
        self.holders.entry(key).or_insert(Holder { count: 0, ..taken }).count += 1;
    }

    /// Ends a holder that was taken. Returns the object if that was its last one.
    pub(super) fn end(&mut self, taken: Holder) -> Option<Object> {
        let (object, count) = self.objects.get_mut(&taken.object)?;
        *count = count.saturating_sub(taken.count);
        let object = *object;
        (*count == 0).then(|| self.objects.remove(&taken.object))??;
        Some(object)
    }

    /// Ends a key that the driver has given out again.
    fn lose(&mut self, key: Key) -> Option<Object> {
        let holder = self.holders.remove(&key)?;
        self.end(holder)
    }

    /// Ends all objects of a kind that `is_gone` says, and returns them.
    pub(super) fn end_all(&mut self, is_gone: impl Fn(&Object) -> bool) -> Vec<Object> {
        let gone = self.objects.extract_if(|_, it| is_gone(&it.0));
        let gone: Vec<(u64, Object)> = gone.map(|(number, (object, _))| (number, object)).collect();
        let numbers: FxHashSet<u64> = gone.iter().map(|it| it.0).collect();
        self.holders.retain(|_, holder| !numbers.contains(&holder.object));
        gone.into_iter().map(|it| it.1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(bytes: u64) -> Object {
        Object { place: 0, device: 0, kind: Kind::Virtual, bytes, context: None }
    }

    #[test]
    fn physical_memory_lives_as_long_as_a_handle_or_a_mapping() {
        let mut owned = Owned::default();
        assert_eq!(owned.make(Key::Handle(7), object(64)), None);
        assert_eq!((owned.map(0x1000, 64, 7), owned.retain(7, 0x1020)), (None, None));
        for _ in 0..2 {
            let handle = owned.take(Key::Handle(7)).unwrap();
            assert_eq!(owned.end(handle), None, "it is mapped");
        }
        assert!(owned.take(Key::Handle(7)).is_none() && owned.retain(8, 0x1040).is_none());
        assert_eq!(owned.mappings(0x1000, 0x1000), [Key::Mapping(0x1000)]);
        let mapping = owned.take(Key::Mapping(0x1000)).unwrap();
        assert_eq!(owned.end(mapping), Some(object(64)));
    }

    #[test]
    fn a_key_that_is_given_out_again_ends_what_had_it() {
        let mut owned = Owned::default();
        owned.make(Key::Address(0x1000), object(1));
        assert_eq!(owned.make(Key::Address(0x1000), object(2)), Some(object(1)));
        let taken = owned.take(Key::Address(0x1000)).unwrap();
        owned.put_back(Key::Address(0x1000), taken);
        assert_eq!(owned.end_all(|it| it.bytes == 2), [object(2)]);
        assert!(owned.take(Key::Address(0x1000)).is_none());
    }
}
