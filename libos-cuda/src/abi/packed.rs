//! The two forms in which a launch's parameters come.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::args::Argument;
use crate::status::Status;

/// A launch's parameters, one pointer each.
pub(crate) struct Parameters(*mut *mut c_void);

impl Parameters {
    /// A list that a structure of the caller's points to.
    pub(super) fn nested(list: *mut *mut c_void) -> Parameters {
        Parameters(list)
    }

    /// Whether the caller gave any.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Copies the parameter of this index to `to`, which has exactly its size. Not for a null list.
    #[inline]
    pub(crate) fn copy(&self, index: usize, to: &mut [u8]) {
        // In bounds, so this is the pointer's place; wrapping arithmetic is as quick.
        let place = self.0.wrapping_add(index);
        // SAFETY: the C caller promised one pointer for each parameter that the entry declares.
        let pointer = unsafe { place.read() };
        // SAFETY: and that each points to a value of the parameter's declared size.
        unsafe { std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), to.as_mut_ptr(), to.len()) }
    }
}

impl Argument for Parameters {
    type C = *mut *mut c_void;

    unsafe fn from_c(c: *mut *mut c_void) -> Result<Parameters, Status> {
        Ok(Parameters(c))
    }
}

/// A launch's `extra`: null, or a list of options that ends with a null.
pub(crate) struct Extra(*mut *mut c_void);

impl Extra {
    const BUFFER_POINTER: usize = 1;
    const BUFFER_SIZE: usize = 2;
    const OPTIONS_MAX: usize = 16;

    /// A list that a structure of the caller's points to.
    pub(super) fn nested(list: *mut *mut c_void) -> Extra {
        Extra(list)
    }

    /// As if the caller gave none.
    pub(crate) fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Whether the caller gave any.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The packed parameter block that the options describe.
    pub(crate) fn block(&self) -> Result<&[u8], Status> {
        let (mut buffer, mut size) = (std::ptr::null_mut::<c_void>(), None);
        let mut at = 0;
        loop {
            let option = self.word(at).addr();
            match option {
                0 => break,
                Self::BUFFER_POINTER => buffer = self.word(at + 1),
                Self::BUFFER_SIZE => size = NonNull::new(self.word(at + 1).cast::<usize>()),
                _ => return Err(Status::INVALID_VALUE),
            }
            at += 2;
            if at > 2 * Self::OPTIONS_MAX {
                return Err(Status::INVALID_VALUE);
            }
        }
        let size = size.ok_or(Status::INVALID_VALUE)?;
        // SAFETY: the C caller promised that this option points to the buffer's size.
        let bytes = unsafe { size.as_ptr().read_unaligned() };
        if bytes == 0 {
            return Ok(&[]);
        }
        if buffer.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the C caller promised a buffer of that size.
        Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), bytes) })
    }

    fn word(&self, at: usize) -> *mut c_void {
        let place = self.0.wrapping_add(at);
        // SAFETY: the C caller promised a list that ends with a null option, and the walk stops there.
        unsafe { place.read() }
    }
}

impl Argument for Extra {
    type C = *mut *mut c_void;

    unsafe fn from_c(c: *mut *mut c_void) -> Result<Extra, Status> {
        Ok(Extra(c))
    }
}
