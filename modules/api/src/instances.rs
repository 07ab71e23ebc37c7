//! Instances and their badges.

use std::fmt;

/// What gates read of whoever calls them: which slot an instance has, and how often that slot was used before.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Badge(u64);

impl Badge {
    /// A badge's parts: the slot in the low half.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | slot as u64)
    }

    /// As gates read it.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The slot: less than how many instances there are at a time. Gates index what they keep of callers by it.
    #[must_use]
    pub fn slot(self) -> usize {
        (self.0 & 0xFFFF_FFFF) as usize
    }

    /// How often the slot was used, from 1 on. Gates compare all of the badge: it tells an instance from those before it.
    #[must_use]
    pub fn generation(self) -> u32 {
        u32::try_from(self.0 >> 32).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

enum Slot<I> {
    Free,
    Open(I),
    /// Revoked, and perhaps a kernel is still in a gate.
    Closing(I),
    /// Its generations are spent.
    Retired,
}

/// The instances of a service.
pub struct Instances<I> {
    slots: Vec<(u32, Slot<I>)>,
}

impl<I> Instances<I> {
    pub(crate) fn new(most: usize) -> Self {
        Self { slots: (0..most).map(|_| (0, Slot::Free)).collect() }
    }

    /// A badge that no instance had before; `None` where no slot is free.
    pub(crate) fn next(&mut self) -> Option<Badge> {
        let at = self.slots.iter().position(|(_, slot)| matches!(slot, Slot::Free))?;
        let generation = self.slots[at].0.checked_add(1)?;
        Some(Badge::new(u32::try_from(at).ok()?, generation))
    }

    pub(crate) fn insert(&mut self, badge: Badge, instance: I) {
        if let Some(slot) = self.slots.get_mut(badge.slot()) {
            *slot = (badge.generation(), Slot::Open(instance));
        }
    }

    /// The instance with this badge, if it is open.
    pub fn get(&mut self, badge: Badge) -> Option<&mut I> {
        match self.slots.get_mut(badge.slot())? {
            (generation, Slot::Open(instance)) if *generation == badge.generation() => Some(instance),
            _ => None,
        }
    }

    /// The instance whose badge a gate has written somewhere, if it is open. Whatever else stands there is nobody's.
    pub fn of(&mut self, badge: u64) -> Option<&mut I> {
        self.get(Badge(badge))
    }

    /// Those that are open.
    pub fn open(&mut self) -> impl Iterator<Item = (Badge, &mut I)> {
        (0..).zip(&mut self.slots).filter_map(|(at, (generation, slot))| match slot {
            Slot::Open(instance) => Some((Badge::new(at, *generation), instance)),
            Slot::Free | Slot::Closing(_) | Slot::Retired => None,
        })
    }

    /// Says that an instance is revoked.
    pub(crate) fn closes(&mut self, badge: Badge) -> Option<&mut I> {
        self.get(badge)?;
        let (_, slot) = self.slots.get_mut(badge.slot())?;
        let Slot::Open(instance) = std::mem::replace(slot, Slot::Free) else { return None };
        *slot = Slot::Closing(instance);
        match slot {
            Slot::Closing(instance) => Some(instance),
            Slot::Free | Slot::Open(_) | Slot::Retired => None,
        }
    }

    /// What was revoked and is not given back yet.
    pub(crate) fn closing(&mut self, badge: Badge) -> Option<&mut I> {
        match self.slots.get_mut(badge.slot())? {
            (generation, Slot::Closing(instance)) if *generation == badge.generation() => Some(instance),
            _ => None,
        }
    }

    /// Takes out what was revoked, when no kernel can read its badge any more.
    pub(crate) fn take(&mut self, badge: Badge) -> Option<I> {
        let (generation, slot) = self.slots.get_mut(badge.slot())?;
        if *generation != badge.generation() || !matches!(slot, Slot::Closing(_)) {
            return None;
        }
        let next = if *generation == u32::MAX { Slot::Retired } else { Slot::Free };
        match std::mem::replace(slot, next) {
            Slot::Closing(instance) => Some(instance),
            Slot::Free | Slot::Open(_) | Slot::Retired => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_badge_is_ever_used_again_and_no_slot_while_it_closes() {
        let mut instances = Instances::new(2);
        let first = instances.next().unwrap();
        instances.insert(first, 'a');
        let second = instances.next().unwrap();
        instances.insert(second, 'b');
        assert_eq!((first.slot(), second.slot()), (0, 1));
        assert_eq!(instances.next(), None);
        assert_eq!(instances.closes(first).copied(), Some('a'));
        assert_eq!(instances.next(), None, "a kernel may still be in a gate");
        assert!(instances.get(first).is_none() && instances.closes(first).is_none());
        assert_eq!(instances.take(first), Some('a'));
        assert_eq!(instances.take(first), None);
        let third = instances.next().unwrap();
        instances.insert(third, 'c');
        assert_eq!(third.slot(), 0);
        assert_ne!(third, first);
        assert!(instances.of(first.value()).is_none());
        assert_eq!(instances.of(third.value()).copied(), Some('c'));
        assert_eq!(instances.open().map(|(_, instance)| *instance).collect::<String>(), "cb");
    }

    #[test]
    fn badges_that_somebody_made_up_are_nobodys() {
        let mut instances = Instances::new(1);
        instances.insert(Badge::new(0, 1), ());
        for badge in [0, 1, 1 << 32 | 1, 2 << 32, u64::MAX, 0xFFFF_FFFF] {
            assert!(instances.of(badge).is_none(), "{badge:#x}");
        }
        assert!(instances.of(1 << 32).is_some());
    }

    #[test]
    fn a_slot_whose_generations_are_spent_is_not_used_again() {
        let mut instances = Instances::new(1);
        instances.insert(Badge::new(0, u32::MAX), ());
        instances.closes(Badge::new(0, u32::MAX)).unwrap();
        instances.take(Badge::new(0, u32::MAX)).unwrap();
        assert_eq!(instances.next(), None);
    }
}
