//! Context-local storage: values that NVIDIA's runtime keeps per context, by a key of its own.

mod calls;

use parking_lot::RwLock;

pub(crate) use calls::*;

use crate::abi::{Callback, Destructor};
use crate::status::{Answer, Status};

/// More values than the dozen that the runtimes of one process keep would be a program gone wrong.
const VALUES_MAX: usize = 4096;

struct Value {
    context: u64,
    key: Callback,
    value: Callback,
    destructor: Destructor,
}

/// The values of all contexts.
pub(crate) struct Storage(RwLock<Vec<Value>>);

impl Storage {
    pub(crate) fn new() -> Storage {
        Storage(RwLock::new(Vec::new()))
    }

    fn put(&self, context: u64, key: Callback, value: Callback, destructor: Destructor) -> Answer {
        let mut values = self.0.write();
        values.retain(|kept| (kept.context, kept.key) != (context, key));
        if values.len() >= VALUES_MAX {
            return Err(Status::OUT_OF_MEMORY);
        }
        values.push(Value { context, key, value, destructor });
        Ok(())
    }

    fn get(&self, context: u64, key: Callback) -> Option<Callback> {
        let values = self.0.read();
        values.iter().find(|kept| (kept.context, kept.key) == (context, key)).map(|kept| kept.value)
    }

    fn delete(&self, context: u64, key: Callback) {
        self.0.write().retain(|kept| (kept.context, kept.key) != (context, key));
    }

    /// Ends all values of a context, as its end does.
    pub(crate) fn end(&self, context: u64) {
        let ended: Vec<Value> = self.0.write().extract_if(.., |value| value.context == context).collect();
        // Without the lock: a destructor may call back.
        for value in ended {
            if let Destructor(Some(destructor)) = value.destructor {
                destructor(context, value.key.pointer(), value.value.pointer());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static ENDED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn count(_context: u64, key: *mut std::ffi::c_void, value: *mut std::ffi::c_void) {
        ENDED.fetch_add(key.addr() * 100 + value.addr(), Ordering::Relaxed);
    }

    #[test]
    fn values_are_kept_by_context_and_key_until_the_context_ends() {
        let storage = Storage::new();
        storage.put(1, Callback(10), Callback(5), Destructor(Some(count))).unwrap();
        storage.put(2, Callback(10), Callback(6), Destructor(Some(count))).unwrap();
        storage.put(1, Callback(10), Callback(7), Destructor(Some(count))).unwrap();
        storage.put(1, Callback(11), Callback(8), Destructor(None)).unwrap();
        assert_eq!(storage.get(1, Callback(10)), Some(Callback(7)));
        assert_eq!(storage.get(2, Callback(11)), None);
        storage.end(1);
        assert_eq!(ENDED.load(Ordering::Relaxed), 1007);
        assert_eq!(storage.get(1, Callback(10)), None);
        assert_eq!(storage.get(2, Callback(10)), Some(Callback(6)));
        storage.delete(2, Callback(10));
        assert_eq!(storage.get(2, Callback(10)), None);
    }
}
