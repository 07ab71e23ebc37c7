//! Host memory that the device may reach.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_gpu::{Error, HostAddress, HostRange};
use parking_lot::{Condvar, Mutex};

use super::Bytes;

/// Page size that registrations are aligned to.
const PAGE_BYTES: usize = 4096;

/// A registered range and how many queued pieces of work use it.
#[derive(Debug)]
pub(crate) struct Registration {
    bytes: Bytes,
    users: Mutex<usize>,
    idle: Condvar,
}

/// The use of part of a registered range by one piece of work; the range stays registered meanwhile.
#[derive(Debug)]
pub(crate) struct HostUse {
    registration: Arc<Registration>,
    offset: usize,
    len: usize,
}

impl HostUse {
    /// The registered bytes.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.registration.bytes
    }

    /// Where the part starts.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Length of the part.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for HostUse {
    fn drop(&mut self) {
        let mut users = self.registration.users.lock();
        *users -= 1;
        if *users == 0 {
            self.registration.idle.notify_all();
        }
    }
}

/// All registered ranges, by address.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    ranges: Mutex<BTreeMap<usize, Arc<Registration>>>,
}

impl HostMemory {
    /// See [`bulkhead_gpu::Gpu::register_host`].
    pub(crate) fn register(&self, range: HostRange) -> Result<(), Error> {
        let start = range.at.0;
        let end = start.checked_add(range.bytes);
        let aligned = start.is_multiple_of(PAGE_BYTES) && range.bytes.is_multiple_of(PAGE_BYTES);
        let Some(end) = end.filter(|_| aligned && range.bytes != 0 && start != 0) else {
            return Err(Error::Refused(format!(
                "host range {start:#x}+{:#x} is not made of pages",
                range.bytes
            )));
        };
        let mut ranges = self.ranges.lock();
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(at, other)| at + other.bytes.len() > start) {
            return Err(Error::Refused(format!("host range {start:#x} is registered already")));
        }
        let registration =
            Registration { bytes: Bytes::borrowed(range), users: Mutex::new(0), idle: Condvar::new() };
        ranges.insert(start, Arc::new(registration));
        Ok(())
    }

    /// Waits for the work that uses the range, then forgets it.
    pub(crate) fn unregister(&self, range: HostRange) -> Result<(), Error> {
        let registration = {
            let mut ranges = self.ranges.lock();
            match ranges.get(&range.at.0) {
                Some(found) if found.bytes.len() == range.bytes => {}
                _ => return Err(Error::Refused(format!("host range {:#x} is not registered", range.at.0))),
            }
            ranges.remove(&range.at.0)
        };
        if let Some(registration) = registration {
            let mut users = registration.users.lock();
            while *users > 0 {
                registration.idle.wait(&mut users);
            }
        }
        Ok(())
    }

    /// Begins the use of a range by one piece of work.
    pub(crate) fn begin(&self, at: HostAddress, len: usize) -> Result<HostUse, Error> {
        let unknown = || Error::Refused(format!("host range {:#x}+{len:#x} is not registered", at.0));
        let ranges = self.ranges.lock();
        let (start, registration) = ranges.range(..=at.0).next_back().ok_or_else(unknown)?;
        let offset = at.0 - start;
        if offset.checked_add(len).is_none_or(|end| end > registration.bytes.len()) {
            return Err(unknown());
        }
        *registration.users.lock() += 1;
        Ok(HostUse { registration: Arc::clone(registration), offset, len })
    }
}
