//! One session's capabilities.

use std::collections::VecDeque;

use bulkhead_schema::Handle;

use crate::Kind;

/// An object of a session, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability<T> {
    /// What it is.
    pub kind: Kind,
    /// The object, or what is known of it here.
    pub object: T,
}

/// Why a table refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The session holds as many capabilities as it may.
    #[error("the table holds {limit} capabilities, its limit")]
    Full {
        /// The limit.
        limit: u32,
    },
    /// The handle names nothing: it was never issued, or what it named is closed.
    #[error("handle {}.{} names nothing", handle.slot, handle.generation)]
    Stale {
        /// The handle.
        handle: Handle,
    },
    /// The handle names something else.
    #[error("handle {}.{} names a capability of another kind ({found:?}, not {expected:?})", handle.slot, handle.generation)]
    WrongKind {
        /// The handle.
        handle: Handle,
        /// What it names.
        found: Kind,
        /// What was asked for.
        expected: Kind,
    },
}

/// Which of the capabilities that a slot holds over time. Counts from 1, so that no handle is all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Generation(u32);

impl Generation {
    const FIRST: Self = Self(1);

    /// The one after this; `None` where the slot is worn out.
    fn next(self, last: Self) -> Option<Self> {
        if self.0 >= last.0 { None } else { Some(Self(self.0 + 1)) }
    }
}

/// A place for one capability at a time.
#[derive(Debug)]
enum Slot<T> {
    /// Ready for a capability, which will be named by this generation.
    Free(Generation),
    /// In use.
    Held(Generation, Capability<T>),
    /// Worn out: its generations are spent, so it can never be named again.
    Retired,
}

/// One session's capabilities by handle.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    /// Free slots; the one that was freed first is used first, so that generations wear evenly.
    free: VecDeque<u32>,
    held: u32,
    limit: u32,
    last: Generation,
}

impl<T> Table<T> {
    /// An empty table for up to `limit` capabilities.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self::with_last_generation(limit, Generation(u32::MAX))
    }

    fn with_last_generation(limit: u32, last: Generation) -> Self {
        Self { slots: Vec::new(), free: VecDeque::new(), held: 0, limit, last }
    }

    /// How many capabilities it holds.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Puts a capability in and names it.
    pub fn insert(&mut self, kind: Kind, object: T) -> Result<Handle, Error> {
        let full = Error::Full { limit: self.limit };
        if self.held >= self.limit {
            return Err(full);
        }
        let capability = Capability { kind, object };
        let handle = if let Some(index) = self.free.pop_front() {
            let place = self.slots.get_mut(index as usize).ok_or(full)?;
            let Slot::Free(generation) = *place else { unreachable!("only free slots are in the free list") };
            *place = Slot::Held(generation, capability);
            Handle { slot: index, generation: generation.0 }
        } else {
            let index = u32::try_from(self.slots.len()).map_err(|_| full)?;
            self.slots.push(Slot::Held(Generation::FIRST, capability));
            Handle { slot: index, generation: Generation::FIRST.0 }
        };
        self.held += 1;
        Ok(handle)
    }

    /// What a handle names, whatever its kind.
    pub fn resolve(&self, handle: Handle) -> Result<&Capability<T>, Error> {
        match self.slots.get(handle.slot as usize) {
            Some(Slot::Held(generation, capability)) if generation.0 == handle.generation => Ok(capability),
            Some(Slot::Held(..) | Slot::Free(_) | Slot::Retired) | None => Err(Error::Stale { handle }),
        }
    }

    /// The object that a handle names as this kind.
    pub fn get(&self, handle: Handle, kind: Kind) -> Result<&T, Error> {
        let capability = self.resolve(handle)?;
        if capability.kind != kind {
            return Err(Error::WrongKind { handle, found: capability.kind, expected: kind });
        }
        Ok(&capability.object)
    }

    /// The same, to change.
    pub fn get_mut(&mut self, handle: Handle, kind: Kind) -> Result<&mut T, Error> {
        self.get(handle, kind)?;
        match self.slots.get_mut(handle.slot as usize) {
            Some(Slot::Held(_, capability)) => Ok(&mut capability.object),
            Some(Slot::Free(_) | Slot::Retired) | None => Err(Error::Stale { handle }),
        }
    }

    /// Takes a capability out: its handle names nothing from here on.
    pub fn remove(&mut self, handle: Handle) -> Result<Capability<T>, Error> {
        self.resolve(handle)?;
        let stale = Error::Stale { handle };
        let place = self.slots.get_mut(handle.slot as usize).ok_or(stale)?;
        let next = Generation(handle.generation).next(self.last);
        let left = next.map_or(Slot::Retired, Slot::Free);
        let Slot::Held(_, capability) = std::mem::replace(place, left) else { return Err(stale) };
        if next.is_some() {
            self.free.push_back(handle.slot);
        }
        self.held -= 1;
        Ok(capability)
    }

    /// Every capability with its handle, in the order of the slots.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &Capability<T>)> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| match slot {
            Slot::Held(generation, capability) => {
                Some((Handle { slot: index, generation: generation.0 }, capability))
            }
            Slot::Free(_) | Slot::Retired => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    struct Choices(u64);

    impl Choices {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8) % bound
        }
    }

    fn seeds() -> Vec<u64> {
        if let Some(seed) = std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok()) {
            return vec![seed];
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| u64::from(now.subsec_nanos()));
        vec![1, 2, 3, now]
    }

    #[test]
    fn a_closed_capability_cannot_be_named_by_its_old_handle() {
        let mut table = Table::new(4);
        let old = table.insert(Kind::Buffer, 'a').unwrap();
        assert_eq!(table.remove(old).unwrap().object, 'a');
        let new = table.insert(Kind::Buffer, 'b').unwrap();
        assert_eq!(old.slot, new.slot);
        assert_eq!(table.resolve(old), Err(Error::Stale { handle: old }));
        assert_eq!(table.remove(old), Err(Error::Stale { handle: old }));
        assert_eq!(table.get(new, Kind::Buffer), Ok(&'b'));
    }

    #[test]
    fn a_handle_resolves_only_as_the_kind_it_names() {
        let mut table = Table::new(4);
        let handle = table.insert(Kind::Image, 1).unwrap();
        let wrong = Error::WrongKind { handle, found: Kind::Image, expected: Kind::Entry };
        assert_eq!(table.get(handle, Kind::Entry), Err(wrong));
        assert_eq!(table.get_mut(handle, Kind::Entry), Err(wrong));
        *table.get_mut(handle, Kind::Image).unwrap() = 2;
        assert_eq!(table.get(handle, Kind::Image), Ok(&2));
    }

    #[test]
    fn the_handle_of_zeros_names_nothing() {
        let mut table = Table::new(4);
        table.insert(Kind::Buffer, ()).unwrap();
        assert!(table.resolve(Handle { slot: 0, generation: 0 }).is_err());
    }

    #[test]
    fn slots_are_used_again_in_the_order_they_were_freed() {
        let mut table = Table::new(4);
        let handles: Vec<_> = (0..4).map(|n| table.insert(Kind::Buffer, n).unwrap()).collect();
        for index in [2, 0, 3] {
            table.remove(handles[index]).unwrap();
        }
        let slots: Vec<_> = (0..3).map(|n| table.insert(Kind::Buffer, n).unwrap().slot).collect();
        assert_eq!(slots, [2, 0, 3]);
    }

    #[test]
    fn a_worn_out_slot_is_never_used_again() {
        let mut table = Table::with_last_generation(2, Generation(3));
        let mut issued = HashSet::new();
        for round in 0..50 {
            let handle = table.insert(Kind::Buffer, round).unwrap();
            assert!(handle.generation <= 3);
            assert!(issued.insert(handle), "{handle:?} was issued twice");
            table.remove(handle).unwrap();
        }
        assert!(issued.iter().all(|handle| table.resolve(*handle).is_err()));
        assert!(table.slots.iter().filter(|slot| matches!(slot, Slot::Retired)).count() >= 16);
    }

    #[test]
    fn a_table_agrees_with_a_naive_model() {
        for seed in seeds() {
            println!("seed {seed}");
            let mut choices = Choices(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let last = Generation(if seed % 2 == 0 { 4 } else { u32::MAX });
            let mut table = Table::with_last_generation(16, last);
            let mut model: HashMap<Handle, (Kind, u64)> = HashMap::new();
            let mut issued: Vec<Handle> = Vec::new();
            for step in 0..4_000 {
                let pick = choices.below(issued.len().max(1) as u64);
                let picked = issued.get(usize::try_from(pick).unwrap()).copied();
                match choices.below(4) {
                    0 | 1 => {
                        let kind = if choices.below(2) == 0 { Kind::Buffer } else { Kind::Entry };
                        match table.insert(kind, step) {
                            Ok(handle) => {
                                assert!(model.len() < 16 && !issued.contains(&handle));
                                model.insert(handle, (kind, step));
                                issued.push(handle);
                            }
                            Err(error) => {
                                assert_eq!(error, Error::Full { limit: 16 });
                                assert_eq!(model.len(), 16);
                            }
                        }
                    }
                    2 => {
                        let Some(handle) = picked else { continue };
                        let removed = table.remove(handle).map(|capability| capability.object);
                        assert_eq!(removed.ok(), model.remove(&handle).map(|(_, object)| object));
                    }
                    _ => {
                        let Some(handle) = picked else { continue };
                        let forged = Handle { slot: handle.slot, generation: handle.generation ^ 1 };
                        for handle in [handle, forged] {
                            let found = table.get(handle, Kind::Buffer).ok();
                            let expected = model.get(&handle).filter(|(kind, _)| *kind == Kind::Buffer);
                            assert_eq!(found, expected.map(|(_, object)| object));
                        }
                    }
                }
                assert_eq!(table.held() as usize, model.len());
                assert_eq!(table.iter().count(), model.len());
                assert!(table.iter().all(|(handle, held)| model[&handle] == (held.kind, held.object)));
            }
        }
    }
}
