//! Slots that are filled with sinks before anybody needs them: filling one takes longer than a client wants to wait.

use bulkhead_gpu::Error;
use bulkhead_mm::{SLOTS, Slot};
use parking_lot::{Condvar, Mutex};

use crate::memory::{CLEARED, Means, SlotMemory};

/// Slots that are filled at least, in use or not.
const FILLED_MIN: usize = 2;

enum Place {
    Cold,
    /// A thread fills it.
    Filling,
    Warm(Box<SlotMemory>),
    InUse,
}

struct Table {
    places: Vec<Place>,
    stopped: bool,
}

/// All slots of the device.
pub(crate) struct Slots {
    means: Means,
    table: Mutex<Table>,
    changed: Condvar,
}

impl Slots {
    pub(crate) fn new(means: Means) -> Self {
        let places = (0..SLOTS).map(|_| Place::Cold).collect();
        Self { means, table: Mutex::new(Table { places, stopped: false }), changed: Condvar::new() }
    }

    /// The slot with this index.
    pub(crate) fn slot(&self, index: u32) -> Option<Slot> {
        self.means.slot(index)
    }

    /// Takes a slot for a session; fills it where that was not done before.
    pub(crate) fn take(&self, slot: Slot, session: u32) -> Result<Box<SlotMemory>, Error> {
        let _waits = self.means.waits.enter(Some(session), CLEARED);
        let mut memory = self.take_out(slot)?;
        memory.session = Some(session);
        Ok(memory)
    }

    fn take_out(&self, slot: Slot) -> Result<Box<SlotMemory>, Error> {
        let index = slot.index() as usize;
        let mut table = self.table.lock();
        loop {
            match std::mem::replace(&mut table.places[index], Place::InUse) {
                Place::Warm(memory) => {
                    self.changed.notify_all();
                    return Ok(memory);
                }
                Place::Cold => break,
                Place::InUse => return Err(Error::Refused("the slot is in use".into())),
                Place::Filling => {
                    table.places[index] = Place::Filling;
                    self.changed.wait(&mut table);
                }
            }
        }
        drop(table);
        let made = SlotMemory::open(&self.means, slot).map(Box::new);
        if made.is_err() {
            self.table.lock().places[index] = Place::Cold;
        }
        self.changed.notify_all();
        made
    }

    /// Takes a slot back, whose session has no work left.
    pub(crate) fn give_back(&self, mut memory: Box<SlotMemory>) -> Result<(), Error> {
        let index = memory.slot().index() as usize;
        memory.session = None;
        // A slot that cannot be cleaned stays in use.
        memory.recycle()?;
        if memory.is_broken() {
            return Err(Error::Refused("the slot has a hole: it is not used again".into()));
        }
        self.table.lock().places[index] = Place::Warm(memory);
        self.changed.notify_all();
        Ok(())
    }

    /// The life of the thread that fills slots ahead: always one more than are in use.
    pub(crate) fn keep_warm(&self) {
        if let Err(error) = self.means.gpu.bind_thread() {
            tracing::error!(%error, "the warm slots");
        }
        let mut table = self.table.lock();
        while !table.stopped {
            let used = table.places.iter().filter(|place| matches!(place, Place::InUse)).count();
            let filled = table.places.iter().filter(|place| !matches!(place, Place::Cold)).count();
            let cold = table.places.iter().position(|place| matches!(place, Place::Cold));
            let wanted = filled < FILLED_MIN.max(used + 1);
            let next = cold.filter(|_| wanted).and_then(|index| self.slot(u32::try_from(index).ok()?));
            let Some(slot) = next else {
                self.changed.wait(&mut table);
                continue;
            };
            let index = slot.index() as usize;
            table.places[index] = Place::Filling;
            drop(table);
            let made = SlotMemory::open(&self.means, slot);
            table = self.table.lock();
            match made {
                Ok(memory) => table.places[index] = Place::Warm(Box::new(memory)),
                Err(error) => {
                    tracing::warn!(%error, "a slot is not filled ahead");
                    table.places[index] = Place::Cold;
                    self.changed.notify_all();
                    // Not again before something changes.
                    self.changed.wait(&mut table);
                    continue;
                }
            }
            self.changed.notify_all();
        }
    }

    /// Ends [`Slots::keep_warm`].
    pub(crate) fn stop(&self) {
        self.table.lock().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
        time::{Duration, Instant},
    };

    use bulkhead_gpu::Gpu;
    use bulkhead_softgpu::{Options, SoftGpu};

    use super::*;
    use crate::{
        memory::{physical::Physical, piece::Pieces, workbench::Workbench},
        moments::waits::Waits,
        watch::flag::Flags,
    };

    /// Long enough to be seen while it is made zero.
    const BYTES: u64 = 512 << 20;

    #[test]
    fn whoever_has_memory_made_zero_waits_for_the_device_and_may_be_overdue() {
        let options = Options { memory_bytes: 2 * BYTES, threads: Some(1), ..Options::default() };
        let gpu: Arc<dyn Gpu> = SoftGpu::new(options).unwrap();
        let (physical, _freeing) = Physical::new(&gpu);
        let waits = Waits::default();
        let slots = Slots::new(Means {
            physical,
            workbench: Arc::new(Workbench::open(&gpu).unwrap()),
            flags: Arc::new(Flags::open(&gpu).unwrap()),
            pieces: Arc::new(Pieces::default()),
            waits: waits.clone(),
            gpu,
            plain: false,
            wide: false,
        });
        let is_done = AtomicBool::new(false);
        let look = |found: &mut Vec<Option<u32>>| {
            let late = Instant::now() + Duration::from_secs(60);
            found.extend(waits.sessions_overdue(late, Duration::from_secs(30)));
            found.dedup();
        };
        let slot = slots.slot(0).unwrap();
        let seen = thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut found = Vec::new();
                while !is_done.load(Ordering::Relaxed) {
                    look(&mut found);
                }
                found
            });
            let mut memory = slots.take(slot, 7).unwrap();
            let at = memory.slot().read_write().start().0;
            memory.grow(at, BYTES).unwrap();
            // Nobody waits for that.
            slots.give_back(memory).unwrap();
            is_done.store(true, Ordering::Relaxed);
            looks.join().unwrap()
        });
        assert_eq!(seen, [Some(7)]);
        let mut left = Vec::new();
        look(&mut left);
        assert!(left.is_empty(), "nobody waits any more: {left:?}");
    }
}
