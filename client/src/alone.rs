//! Moments in which the library's own thread stores nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use bulkhead_schema::Error;

use crate::Session;

impl Session {
    /// Ends the session now, with all that it has, though buffers and images of it are still there: whatever is done with them
    /// from then on fails. Nobody waits for the end.
    pub fn end(&self) {
        self.inner.remote.hang_up();
    }

    /// Gives back the addresses of this process that are kept for host memory of the session: another session's may be the same.
    /// What is mapped there stays, and keeps them until it is gone.
    pub fn give_up_window(&self) {
        // Memory that nobody uses lies there too, and would keep them. Where the kernel is gone, so is all of it.
        let _returned = self.return_empty_and_wait();
        self.inner.host.give_up_window();
    }

    /// Takes them again, if nothing else lies there by now.
    pub fn take_back_window(&self) {
        let (start, bytes) = self.window();
        self.inner.host.take_window(start, bytes);
    }

    /// Runs `work` while the thread that speaks with the kernel does nothing: it stores nothing in this process's memory
    /// until `work` has returned, which should be soon.
    ///
    /// # Errors
    /// Where that thread is gone; then `work` did not run.
    pub fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let hold = Arc::new(Hold::default());
        let other = Arc::clone(&hold);
        self.inner.remote.spawn(move |_| {
            other.wait_for_release();
            std::future::ready(())
        });
        let _release = Release(&hold);
        while !hold.is_held.load(Ordering::Acquire) {
            self.inner.remote.status()?;
            thread::yield_now();
        }
        Ok(work())
    }
}

/// Two threads' agreement that one of them does nothing.
#[derive(Default)]
struct Hold {
    is_held: AtomicBool,
    is_released: AtomicBool,
}

impl Hold {
    /// Only reads, from when it is held on.
    fn wait_for_release(&self) {
        self.is_held.store(true, Ordering::Release);
        while !self.is_released.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
}

/// Ends a hold, also where the work panics.
struct Release<'a>(&'a Hold);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.is_released.store(true, Ordering::Release);
    }
}
