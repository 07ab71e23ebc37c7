//! The bind table of a session: which handle means what, as the kernel said last.

use std::sync::Arc;

use bulkhead_gpu::{DeviceAddress, EntryId, HostAddress, HostRange, ImageId};
use bulkhead_ring::{Bind, memory::Shared};
use bulkhead_schema::{Handle, limits::CAPABILITIES_MAX};

/// An entry that can be launched.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    /// The parameter block of the next launch: the client's parameters go to the front, the hidden ones are there.
    pub(crate) block: Vec<u8>,
    /// The part of the block that the client fills, in bytes.
    pub(crate) visible_bytes: usize,
    /// Dynamic shared memory that every launch has: the guard's clamp of shared accesses rests on it.
    pub(crate) dynamic_shared_min: u32,
}

/// What a handle can stand for.
pub(crate) enum Object {
    /// A range of the session's window.
    Buffer { address: u64, bytes: u64 },
    /// Host memory registered with the device.
    Host(Arc<Shared>),
    /// An entry of an image.
    Entry(Entry),
    /// A loaded image with the handles of its entries.
    Image { id: ImageId, entries: Vec<Handle> },
}

/// Generation and object by slot. A slot that is bound again forgets what it held. The kernel hands out slots from
/// the bottom, at most [`CAPABILITIES_MAX`] of them.
#[derive(Default)]
pub(crate) struct Bindings {
    slots: Vec<Option<(u32, Object)>>,
}

impl Bindings {
    /// Binds a handle; `None` where there is no such slot.
    pub(crate) fn bind(&mut self, handle: Handle, object: Object) -> Option<()> {
        if handle.slot >= CAPABILITIES_MAX {
            return None;
        }
        let slot = handle.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some((handle.generation, object));
        Some(())
    }

    pub(crate) fn unbind(&mut self, handle: Handle) -> Option<Object> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        match slot {
            Some((generation, _)) if *generation == handle.generation => {
                slot.take().map(|(_, object)| object)
            }
            _ => None,
        }
    }

    pub(crate) fn get(&self, slot: u32, generation: u32) -> Option<&Object> {
        let (bound, object) = self.slots.get(slot as usize)?.as_ref()?;
        (*bound == generation).then_some(object)
    }

    /// The device range `[offset, offset + bytes)` of a buffer, if it lies in it.
    pub(crate) fn device(&self, name: Bind, offset: u64, bytes: u64) -> Option<DeviceAddress> {
        match self.get(name.slot, name.generation)? {
            Object::Buffer { address, bytes: size } => {
                (offset <= *size && bytes <= size - offset).then(|| DeviceAddress(address + offset))
            }
            Object::Host(_) | Object::Entry(_) | Object::Image { .. } => None,
        }
    }

    /// The host range `[offset, offset + bytes)` of host memory, if it lies in it.
    pub(crate) fn host(&self, name: Bind, offset: u64, bytes: u64) -> Option<HostRange> {
        match self.get(name.slot, name.generation)? {
            Object::Host(memory) => {
                let (offset, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
                (offset <= memory.bytes() && bytes <= memory.bytes() - offset)
                    .then(|| HostRange { at: HostAddress(memory.address() + offset), bytes })
            }
            Object::Buffer { .. } | Object::Entry(_) | Object::Image { .. } => None,
        }
    }

    pub(crate) fn entry(&mut self, slot: u32, generation: u32) -> Option<&mut Entry> {
        let (bound, object) = self.slots.get_mut(slot as usize)?.as_mut()?;
        if *bound != generation {
            return None;
        }
        match object {
            Object::Entry(entry) => Some(entry),
            Object::Buffer { .. } | Object::Host(_) | Object::Image { .. } => None,
        }
    }

    /// Empties the table.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Object> {
        std::mem::take(&mut self.slots).into_iter().flatten().map(|(_, object)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: Handle = Handle { slot: 4, generation: 2 };
    const NAME: Bind = Bind { slot: 4, generation: 2 };

    fn table() -> Bindings {
        let mut bindings = Bindings::default();
        assert!(bindings.bind(BUFFER, Object::Buffer { address: 1 << 45, bytes: 100 }).is_some());
        bindings
    }

    #[test]
    fn a_range_resolves_only_inside_its_buffer() {
        let bindings = table();
        assert_eq!(bindings.device(NAME, 10, 90), Some(DeviceAddress((1 << 45) + 10)));
        assert_eq!(bindings.device(NAME, 100, 0), Some(DeviceAddress((1 << 45) + 100)));
        for (offset, bytes) in [(10, 91), (101, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(bindings.device(NAME, offset, bytes), None, "{offset}+{bytes}");
        }
    }

    #[test]
    fn a_handle_of_another_generation_slot_or_kind_does_not_resolve() {
        let mut bindings = table();
        assert_eq!(bindings.device(Bind { generation: 1, ..NAME }, 0, 1), None);
        assert_eq!(bindings.device(Bind { slot: 5, ..NAME }, 0, 1), None);
        assert_eq!(bindings.host(NAME, 0, 1), None);
        assert!(bindings.entry(4, 2).is_none());
        assert!(bindings.unbind(Handle { generation: 3, ..BUFFER }).is_none());
        assert!(bindings.unbind(BUFFER).is_some());
        assert_eq!(bindings.device(NAME, 0, 1), None);
    }
}
