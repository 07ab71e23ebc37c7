//! Contexts: book-keeping over the one session. What a context owns ends with it.

mod calls;

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use parking_lot::RwLock;

pub(crate) use calls::*;

use crate::handle::{Kind, decode, encode};
use crate::status::{Answer, Status};
use crate::storage::Storage;

const PRIMARY: usize = 0;

#[derive(Debug, Clone, Copy, Default)]
struct Context {
    flags: u32,
    /// The primary context: how often it is retained. Others: 1 until they are destroyed.
    held: u32,
    cache_config: u32,
}

/// The values of the limits that programs may set and read back.
#[derive(Debug, Clone, Copy)]
struct ContextLimits([usize; 6]);

impl Default for ContextLimits {
    /// As NVIDIA's driver has them: stack, printf buffer, device heap, synchronize depth, pending launches, L2 fetch.
    fn default() -> ContextLimits {
        ContextLimits([1024, 1 << 20, 8 << 20, 2, 2048, 64])
    }
}

/// All contexts of the process; the first is the primary one.
pub(crate) struct Contexts {
    list: RwLock<Vec<Context>>,
    limits: RwLock<ContextLimits>,
    pub(crate) storage: Storage,
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// The contexts below the current one on this thread's stack.
    ///
    /// Never dropped: destructors of a program's thread-local objects run after those of Rust, and call the driver too.
    static BELOW: ManuallyDrop<RefCell<Vec<u64>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// The calling thread's context.
#[inline]
pub(crate) fn current() -> Result<u64, Status> {
    match CURRENT.get() {
        0 => Err(Status::INVALID_CONTEXT),
        context => Ok(context),
    }
}

fn handle_of(index: usize) -> u64 {
    encode(Kind::Context, 0, u32::try_from(index).unwrap_or(u32::MAX))
}

/// The handle of the primary context, whether or not it is active.
pub(crate) fn primary() -> u64 {
    handle_of(PRIMARY)
}

fn index_of(context: u64) -> Result<usize, Status> {
    decode(Kind::Context, context).map(|(_, index)| index as usize)
}

impl Default for Contexts {
    fn default() -> Contexts {
        Contexts {
            list: RwLock::new(vec![Context::default()]),
            limits: RwLock::new(ContextLimits::default()),
            storage: Storage::new(),
        }
    }
}

impl Contexts {
    /// That a handle names a context that has not been destroyed.
    pub(crate) fn check(&self, context: u64) -> Answer {
        let index = index_of(context)?;
        match self.list.read().get(index) {
            Some(known) if index == PRIMARY || known.held > 0 => Ok(()),
            Some(_) => Err(Status::CONTEXT_IS_DESTROYED),
            None => Err(Status::INVALID_CONTEXT),
        }
    }

    fn with<R>(&self, context: u64, change: impl FnOnce(&mut Context) -> R) -> Result<R, Status> {
        let mut list = self.list.write();
        list.get_mut(index_of(context)?).map(change).ok_or(Status::INVALID_CONTEXT)
    }
}
