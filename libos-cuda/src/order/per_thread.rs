//! The streams that calls name, the calling thread's own null stream among them.

use std::cell::RefCell;

use super::{Order, PER_THREAD_HANDLE, Target};
use crate::abi::NullStream;
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::moving::keep;
use crate::status::Status;

impl Driver {
    /// The stream that a call names.
    #[inline]
    pub(crate) fn target(&self, null: NullStream, handle: u64) -> Result<Target, Status> {
        match (handle, null) {
            (0, NullStream::PerThread) | (PER_THREAD_HANDLE, _) => per_thread(),
            _ => self.streams.target(&self.session, handle),
        }
    }
}

/// A thread's own null stream, destroyed with the thread.
struct PerThread(u64);

impl Drop for PerThread {
    fn drop(&mut self) {
        if let Ok(driver) = driver() {
            // The thread ends; nobody is left to tell.
            driver.streams.destroy(&driver.session, self.0).ok();
        }
    }
}

thread_local! {
    static PER_THREAD: RefCell<Option<PerThread>> = const { RefCell::new(None) };
}

fn per_thread() -> Result<Target, Status> {
    let driver = driver()?;
    let own = PER_THREAD.try_with(|own| {
        let mut own = own.borrow_mut();
        if let Some(PerThread(handle)) = &*own
            && let Ok(target) = driver.streams.named(&driver.session, *handle)
        {
            return Ok(target);
        }
        keep()?;
        let handle = driver.streams.create(&driver.session, Order::Blocking, 0, current()?)?;
        *own = Some(PerThread(handle));
        driver.streams.named(&driver.session, handle)
    });
    // The thread ends, and its stream has ended: what its last destructors ask for goes where all others wait for it.
    own.unwrap_or(Ok(Target::LEGACY))
}
