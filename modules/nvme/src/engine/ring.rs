//! The one place where the system is handed addresses of ours: io_uring's submission queue.

use std::{io, os::fd::RawFd};

use io_uring::{IoUring, opcode, squeue::Entry, types};

use super::{Durability, Operation, Store};

/// Not in the io-uring crate; `linux/fs.h`.
const RWF_DSYNC: i32 = 2;

/// A request that the system may be working on, with the buffer that it may read or write.
pub(super) struct Flight {
    pub(super) tag: u64,
    pub(super) operation: Operation,
    /// How many bytes are moved.
    pub(super) done: usize,
}

impl Flight {
    /// How many bytes are left to move.
    pub(super) fn left(&self) -> usize {
        match &self.operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => buffer.bytes() - self.done,
            Operation::Flush => 0,
        }
    }

    fn entry(&mut self, descriptor: RawFd) -> Entry {
        let descriptor = types::Fd(descriptor);
        let (from, left) = (self.done, u32::try_from(self.left()).unwrap_or(u32::MAX));
        match &mut self.operation {
            Operation::Read { offset, buffer } => {
                let bytes = &mut buffer.as_mut_slice()[from..];
                opcode::Read::new(descriptor, bytes.as_mut_ptr(), left).offset(*offset + from as u64).build()
            }
            Operation::Write { offset, buffer, durability } => {
                let bytes = &buffer.as_slice()[from..];
                let flags = match durability {
                    Durability::Flushed => 0,
                    Durability::Forced => RWF_DSYNC,
                };
                opcode::Write::new(descriptor, bytes.as_ptr(), left)
                    .offset(*offset + from as u64)
                    .rw_flags(flags)
                    .build()
            }
            Operation::Flush => opcode::Fsync::new(descriptor).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }
}

/// An io_uring with the file it works on and the requests in flight, each in a slot.
///
/// A slot is taken until the system has completed its request, and the memory of a taken slot's buffer does not move
/// and is not freed: a [`Buffer`](super::Buffer) owns a vector that nobody resizes.
pub(super) struct Ring {
    ring: IoUring,
    store: Store,
    slots: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Entries that the system was not told of.
    unsubmitted: usize,
}

impl Ring {
    pub(super) fn new(store: Store, depth: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let ring = IoUring::new(entries)?;
        let slots = (0..depth).map(|_| None).collect();
        Ok(Self { ring, store, slots, free: (0..depth).rev().collect(), unsubmitted: 0 })
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts a request in a slot and its entry in the submission queue, or gives it back where either is full.
    pub(super) fn push(&mut self, flight: Flight) -> Result<(), Flight> {
        let Some(slot) = self.free.pop() else { return Err(flight) };
        let flight = self.slots[slot].insert(flight);
        let entry = flight.entry(self.store.descriptor()).user_data(slot as u64);
        let mut queue = self.ring.submission();
        // SAFETY: the entry names the descriptor of `self.store`, which outlives the requests (`drop` waits for
        // them), and the bytes of a buffer from `done` to its end, which its slot keeps at their place until the
        // system has completed the request (`pop` alone empties a slot that was pushed).
        let pushed = unsafe { queue.push(&entry) };
        drop(queue);
        if pushed.is_ok() {
            self.unsubmitted += 1;
            return Ok(());
        }
        self.free.push(slot);
        // The entry did not get into the queue, so that the system does not know of the buffer.
        match self.slots[slot].take() {
            Some(flight) => Err(flight),
            None => Ok(()),
        }
    }

    /// Tells the system of new entries. An interrupted or refused call is made again by the next one.
    pub(super) fn submit(&mut self) {
        if self.unsubmitted > 0
            && let Ok(told) = self.ring.submit()
        {
            self.unsubmitted = self.unsubmitted.saturating_sub(told);
        }
    }

    /// A request that the system has completed, with what it answered: bytes, or an error number below zero.
    pub(super) fn pop(&mut self) -> Option<(Flight, i32)> {
        loop {
            let completion = self.ring.completion().next()?;
            let slot = usize::try_from(completion.user_data()).ok()?;
            if let Some(flight) = self.slots.get_mut(slot).and_then(Option::take) {
                self.free.push(slot);
                return Some((flight, completion.result()));
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.taken() > 0 {
            while self.pop().is_some() {}
            if self.taken() == 0 {
                break;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {}
                Err(_) => {
                    // The system may still write to the buffers: they must never be used again.
                    std::mem::forget(std::mem::take(&mut self.slots));
                    break;
                }
            }
        }
    }
}
