//! Tables of objects that handles name.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::handle::{Kind, decode, encode, next_generation};
use crate::status::Status;

type Chunk<T> = Box<[OnceLock<T>]>;

const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

/// A table that only grows, read without a lock: for what launches look up. Its objects live as long as the
/// process, so it is for small ones; what of them can end says so itself.
pub(crate) struct Permanent<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
    next: AtomicU32,
}

impl<T> Permanent<T> {
    /// An empty table.
    pub(crate) fn new() -> Permanent<T> {
        Permanent { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), next: AtomicU32::new(0) }
    }

    /// Puts an object in for good, and tells its index.
    pub(crate) fn push(&self, value: T) -> Result<u32, Status> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let place = index as usize;
        let Some(chunk) = self.chunks.get(place / CHUNK) else {
            self.next.fetch_sub(1, Ordering::Relaxed);
            return Err(Status::OUT_OF_MEMORY);
        };
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        match chunk.get(place % CHUNK).map(|slot| slot.set(value)) {
            Some(Ok(())) => Ok(index),
            Some(Err(_)) | None => Err(Status::UNKNOWN),
        }
    }

    /// The object of an index.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        let place = index as usize;
        self.chunks.get(place / CHUNK)?.get()?.get(place % CHUNK)?.get()
    }
}

/// A table of objects that come and go; a handle of one that went is refused.
pub(crate) struct Table<T> {
    kind: Kind,
    slots: RwLock<Vec<(u32, Option<Arc<T>>)>>,
    free: Mutex<Vec<u32>>,
    limit: usize,
}

impl<T> Table<T> {
    /// An empty table for at most `limit` objects.
    pub(crate) fn new(kind: Kind, limit: usize) -> Table<T> {
        Table { kind, slots: RwLock::new(Vec::new()), free: Mutex::new(Vec::new()), limit }
    }

    /// Puts an object in, and tells its handle.
    pub(crate) fn insert(&self, value: Arc<T>) -> Result<u64, Status> {
        let mut slots = self.slots.write();
        if let Some(index) = self.free.lock().pop()
            && let Some(slot) = slots.get_mut(index as usize)
        {
            slot.1 = Some(value);
            return Ok(encode(self.kind, slot.0, index));
        }
        if slots.len() >= self.limit {
            return Err(Status::OUT_OF_MEMORY);
        }
        let index = u32::try_from(slots.len()).map_err(|_| Status::OUT_OF_MEMORY)?;
        slots.push((1, Some(value)));
        Ok(encode(self.kind, 1, index))
    }

    /// The object of a handle.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Status> {
        let (generation, index) = decode(self.kind, handle)?;
        match self.slots.read().get(index as usize) {
            Some((current, Some(value))) if *current == generation => Ok(value.clone()),
            Some(_) | None => Err(Status::INVALID_HANDLE),
        }
    }

    /// All objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.slots.read().iter().filter_map(|(_, value)| value.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.read().iter().all(|(_, value)| value.is_none())
    }

    /// Takes the object of a handle out.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Status> {
        let (generation, index) = decode(self.kind, handle)?;
        let mut slots = self.slots.write();
        match slots.get_mut(index as usize) {
            Some((current, place)) if *current == generation => {
                let value = place.take().ok_or(Status::INVALID_HANDLE)?;
                *current = next_generation(generation);
                self.free.lock().push(index);
                Ok(value)
            }
            Some(_) | None => Err(Status::INVALID_HANDLE),
        }
    }

    /// Takes out every object that `ends` says of, and hands them over.
    pub(crate) fn remove_all(&self, ends: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut slots = self.slots.write();
        let mut removed = Vec::new();
        for (index, (generation, place)) in slots.iter_mut().enumerate() {
            if place.as_ref().is_some_and(|value| ends(value))
                && let Some(value) = place.take()
                && let Ok(index) = u32::try_from(index)
            {
                *generation = next_generation(*generation);
                self.free.lock().push(index);
                removed.push(value);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_ends_with_its_object() {
        let table = Table::new(Kind::Event, 2);
        let first = table.insert(Arc::new(1)).unwrap();
        assert_eq!(*table.get(first).unwrap(), 1);
        assert_eq!(*table.remove(first).unwrap(), 1);
        assert_eq!(table.get(first), Err(Status::INVALID_HANDLE));
        assert_eq!(table.remove(first), Err(Status::INVALID_HANDLE));
        let second = table.insert(Arc::new(2)).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), Err(Status::INVALID_HANDLE));
        assert_eq!(*table.get(second).unwrap(), 2);
    }

    #[test]
    fn a_full_table_says_so() {
        let table = Table::new(Kind::Event, 1);
        let first = table.insert(Arc::new(1)).unwrap();
        assert_eq!(table.insert(Arc::new(2)), Err(Status::OUT_OF_MEMORY));
        table.remove(first).unwrap();
        assert!(table.insert(Arc::new(2)).is_ok());
    }

    #[test]
    fn a_permanent_table_keeps_what_it_was_given() {
        let table = Permanent::new();
        let indices: Vec<u32> = (0..3000).map(|value| table.push(value).unwrap()).collect();
        assert!(indices.iter().all(|index| table.get(*index) == Some(&(*index as i32))));
        assert_eq!(table.get(3000), None);
        assert_eq!(table.get(u32::MAX), None);
    }
}
