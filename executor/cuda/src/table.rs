//! Driver handles by number, looked up without a lock.
//!
//! A launch looks up two handles, from many threads at once, and each lookup touches one cache line that
//! other sessions' launches do not. A *pin* keeps a handle alive through a driver call.
//!
//! # Invariants
//! 1. A number resolves only to the handle it was issued for: the slot's generation is part of it.
//! 2. A handle leaves the table only when nobody has it pinned, and is never pinned again.
//! 3. Numbers are never 0, and never issued twice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

const LIVE: u64 = 1 << 31;
const PINS: u64 = LIVE - 1;

/// A fixed number of slots.
pub(crate) struct Table {
    slots: Box<[Slot]>,
    free: Mutex<Free>,
}

struct Free {
    untouched: usize,
    returned: Vec<usize>,
}

/// `state` is, from the top: generation (32 bits), live (1 bit), number of pins (31 bits).
#[repr(align(64))]
struct Slot {
    state: AtomicU64,
    handle: AtomicU64,
    note: AtomicU32,
}

/// A handle that stays in the table while this lives.
pub(crate) struct Pin<'a>(&'a Slot);

impl Pin<'_> {
    /// What was inserted.
    pub(crate) fn handle(&self) -> u64 {
        // Relaxed: the pin's acquire ordered it after the insertion's release.
        self.0.handle.load(Ordering::Relaxed)
    }

    /// The number that was inserted with the handle.
    pub(crate) fn note(&self) -> u32 {
        self.0.note.load(Ordering::Relaxed)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Ordering::Release);
    }
}

impl Table {
    /// A table with room for `capacity` handles at a time.
    pub(crate) fn new(capacity: u32) -> Self {
        let slot =
            |_| Slot { state: AtomicU64::new(1 << 32), handle: AtomicU64::new(0), note: AtomicU32::new(0) };
        Self {
            slots: (0..capacity).map(slot).collect(),
            free: Mutex::new(Free { untouched: 0, returned: Vec::new() }),
        }
    }

    /// Keeps a handle, and a number beside it; `None` where the table is full.
    pub(crate) fn insert(&self, handle: u64, note: u32) -> Option<u64> {
        let index = {
            let mut free = self.free.lock();
            if let Some(index) = free.returned.pop() {
                index
            } else {
                let index = free.untouched;
                if index == self.slots.len() {
                    return None;
                }
                free.untouched += 1;
                index
            }
        };
        let slot = &self.slots[index];
        let generation = slot.state.load(Ordering::Relaxed) >> 32;
        slot.handle.store(handle, Ordering::Relaxed);
        slot.note.store(note, Ordering::Relaxed);
        slot.state.store(generation << 32 | LIVE, Ordering::Release);
        Some(generation << 32 | index as u64)
    }

    fn slot(&self, id: u64) -> Option<&Slot> {
        let index = usize::try_from(id & u64::from(u32::MAX)).ok()?;
        self.slots.get(index)
    }

    /// The handle of a number, if that is still in the table.
    pub(crate) fn pin(&self, id: u64) -> Option<Pin<'_>> {
        let slot = self.slot(id)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            if state >> 32 != id >> 32 || state & LIVE == 0 {
                return None;
            }
            match slot.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Pin(slot)),
                Err(now) => state = now,
            }
        }
    }

    /// All handles that are in the table, one after the other.
    pub(crate) fn pins(&self) -> impl Iterator<Item = Pin<'_>> {
        let used = self.free.lock().untouched;
        let pin = |(index, slot): (usize, &Slot)| {
            let generation = slot.state.load(Ordering::Relaxed) >> 32;
            self.pin(generation << 32 | index as u64)
        };
        self.slots.iter().take(used).enumerate().filter_map(pin)
    }

    /// Takes a handle out of the table, once the calls that have it pinned have returned.
    pub(crate) fn remove(&self, id: u64) -> Option<u64> {
        let slot = self.slot(id)?;
        let mut state = slot.state.load(Ordering::Relaxed);
        loop {
            if state >> 32 != id >> 32 || state & LIVE == 0 {
                return None;
            }
            match slot.state.compare_exchange_weak(state, state & !LIVE, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        while slot.state.load(Ordering::Acquire) & PINS != 0 {
            std::thread::yield_now();
        }
        let handle = slot.handle.load(Ordering::Relaxed);
        // A slot whose generations are spent stays as it is: not live, and in no list.
        if let Some(next) = (id >> 32).checked_add(1).filter(|next| *next <= u64::from(u32::MAX)) {
            slot.state.store(next << 32, Ordering::Relaxed);
            self.free.lock().returned.push(usize::try_from(id & u64::from(u32::MAX)).ok()?);
        }
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_number_resolves_to_what_was_inserted_until_it_is_removed() {
        let table = Table::new(4);
        let id = table.insert(77, 5).unwrap();
        assert_eq!(table.pin(id).map(|pin| (pin.handle(), pin.note())), Some((77, 5)));
        assert_eq!(table.remove(id), Some(77));
        assert!(table.pin(id).is_none());
        assert_eq!(table.remove(id), None);
    }

    #[test]
    fn all_that_is_in_the_table_is_found_and_nothing_else() {
        let table = Table::new(8);
        let ids: Vec<_> = (10..14).map(|handle| table.insert(handle, 0).unwrap()).collect();
        table.remove(ids[1]).unwrap();
        let handles = |table: &Table| table.pins().map(|pin| pin.handle()).collect::<Vec<_>>();
        assert_eq!(handles(&table), [10, 12, 13]);
        table.insert(99, 0).unwrap();
        assert_eq!(handles(&table), [10, 99, 12, 13]);
    }

    #[test]
    fn a_number_of_a_previous_generation_does_not_resolve() {
        let table = Table::new(1);
        let old = table.insert(1, 0).unwrap();
        table.remove(old).unwrap();
        let new = table.insert(2, 0).unwrap();
        assert_ne!(old, new);
        assert!(table.pin(old).is_none());
        assert_eq!(table.remove(old), None);
        assert_eq!(table.pin(new).unwrap().handle(), 2);
    }

    #[test]
    fn a_full_table_refuses_and_a_returned_slot_is_used_again() {
        let table = Table::new(2);
        let first = table.insert(1, 0).unwrap();
        table.insert(2, 0).unwrap();
        assert_eq!(table.insert(3, 0), None);
        table.remove(first).unwrap();
        assert!(table.insert(3, 0).is_some());
    }

    #[test]
    fn numbers_nobody_issued_do_not_resolve() {
        let table = Table::new(2);
        for id in [0, 1, 1 << 32, 3 << 32, u64::MAX, 1 << 32 | 2] {
            assert!(table.pin(id).is_none(), "{id:#x}");
            assert_eq!(table.remove(id), None, "{id:#x}");
        }
    }

    #[test]
    fn removal_waits_for_the_pins() {
        let table = Table::new(1);
        let id = table.insert(9, 0).unwrap();
        let (start, released) = (Barrier::new(2), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pin = table.pin(id).unwrap();
            scope.spawn(|| {
                start.wait();
                assert_eq!(table.remove(id), Some(9));
                assert!(released.load(Ordering::SeqCst));
            });
            start.wait();
            while table.pin(id).is_some() {
                std::thread::yield_now();
            }
            released.store(true, Ordering::SeqCst);
            drop(pin);
        });
    }

    #[test]
    fn many_threads_pin_and_remove_without_seeing_anothers_handle() {
        let table = Table::new(8);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..2000_u64 {
                        let handle = thread << 32 | round;
                        let id = table.insert(handle, 0).unwrap();
                        assert_eq!(table.pin(id).unwrap().handle(), handle);
                        assert_eq!(table.remove(id), Some(handle));
                    }
                });
            }
        });
    }
}
