//! C arguments as types that safe code can use.
//!
//! Each type is made by [`Argument::from_c`] from what a C caller passed, and relies on the promise that the
//! caller makes for that parameter: a pointer is null, or good for the bytes that the call's documentation says,
//! for as long as the call runs.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

use crate::status::Status;

/// A type that a C argument becomes.
pub(super) trait Argument: Sized {
    /// What C passes.
    type C;

    /// Reads it.
    ///
    /// # Safety
    /// `c` is what a C caller passed for a parameter of this type, as the module says.
    unsafe fn from_c(c: Self::C) -> Result<Self, Status>;
}

macro_rules! plain {
    ($($number:ty),*) => {$(
        impl Argument for $number {
            type C = $number;

            unsafe fn from_c(c: $number) -> Result<$number, Status> {
                Ok(c)
            }
        }
    )*};
}
plain!(i32, u32);

/// `nvmlDevice_t` of the one device: no address that anything lies at.
const DEVICE: usize = 0x6E76_6D6C_0000_0001;

/// A handle that was compared with the one device's, and is that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device(());

impl Argument for Device {
    type C = *mut c_void;

    unsafe fn from_c(c: *mut c_void) -> Result<Device, Status> {
        if c.addr() == DEVICE { Ok(Device(())) } else { Err(Status::INVALID_ARGUMENT) }
    }
}

/// Where one value goes; null is refused.
pub(crate) struct Out<T>(NonNull<T>);

impl<T: Copy> Out<T> {
    /// Writes the value.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: the C caller promised room for one value; nothing is read from it.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }
}

impl Out<*mut c_void> {
    /// Writes the handle of the one device.
    pub(crate) fn set_device(&self) {
        self.set(std::ptr::without_provenance_mut(DEVICE));
    }
}

impl<T> Argument for Out<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<Out<T>, Status> {
        NonNull::new(c).map(Out).ok_or(Status::INVALID_ARGUMENT)
    }
}

/// One value that is read, and then written over; null is refused.
pub(crate) struct InOut<T>(NonNull<T>);

impl<T: Copy> InOut<T> {
    /// Reads the value.
    pub(crate) fn get(&self) -> T {
        // SAFETY: the C caller promised one value there; every `T` used here is valid for any bits.
        unsafe { self.0.as_ptr().read_unaligned() }
    }

    /// Writes the value.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: the C caller promised room for one value.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }
}

impl<T> Argument for InOut<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<InOut<T>, Status> {
        NonNull::new(c).map(InOut).ok_or(Status::INVALID_ARGUMENT)
    }
}

/// Values that are read and written over one by one, as many as another argument says; null is refused.
pub(crate) struct InOutSlice<T>(NonNull<T>);

impl<T: Copy> InOutSlice<T> {
    /// Changes the first `count` values, one after the other; the call's other arguments must allow that many.
    pub(crate) fn change(&self, count: usize, mut change: impl FnMut(T) -> T) {
        for at in 0..count {
            // SAFETY: the C caller promised as many values as its count says, which `at` is below.
            let place = unsafe { self.0.as_ptr().add(at) };
            // SAFETY: as above; every `T` used here is valid for any bits.
            let value = unsafe { place.read_unaligned() };
            // SAFETY: as above; they may be written.
            unsafe { place.write_unaligned(change(value)) };
        }
    }
}

impl<T> Argument for InOutSlice<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<InOutSlice<T>, Status> {
        NonNull::new(c).map(InOutSlice).ok_or(Status::INVALID_ARGUMENT)
    }
}

/// Where values go, as many as another argument says; may be null until something is written.
pub(crate) struct OutSlice<T>(*mut T);

impl<T: Copy> OutSlice<T> {
    /// Writes all `values`; the call's other arguments must allow that many.
    pub(crate) fn write(&self, values: &[T]) -> Result<(), Status> {
        if values.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        let (from, to) = (values.as_ptr().cast::<u8>(), self.0.cast::<u8>());
        // SAFETY: the C caller promised room for as many values as its count says, which the call has checked.
        unsafe { std::ptr::copy_nonoverlapping(from, to, size_of_val(values)) };
        Ok(())
    }
}

impl<T> Argument for OutSlice<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<OutSlice<T>, Status> {
        Ok(OutSlice(c))
    }
}

/// Where a text goes, of a length that another argument says; null is refused.
pub(crate) struct OutText(NonNull<u8>);

impl OutText {
    /// Writes a text and its NUL.
    ///
    /// # Errors
    /// Where it does not fit into `room` bytes.
    pub(crate) fn write(&self, room: u32, text: &str) -> Result<(), Status> {
        if room as usize <= text.len() {
            return Err(Status::INSUFFICIENT_SIZE);
        }
        // SAFETY: the C caller promised `room` bytes, which are more than the text has.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.as_ptr(), text.len()) };
        // SAFETY: as above: there is one more.
        let end = unsafe { self.0.add(text.len()) };
        // SAFETY: as above.
        unsafe { end.write(0) };
        Ok(())
    }
}

impl Argument for OutText {
    type C = *mut c_char;

    unsafe fn from_c(c: *mut c_char) -> Result<OutText, Status> {
        NonNull::new(c.cast()).map(OutText).ok_or(Status::INVALID_ARGUMENT)
    }
}

/// A structure that begins with its version, which says how long it is; null is refused.
pub(crate) struct Versioned(NonNull<u8>);

impl Versioned {
    /// What the caller says that it passed.
    pub(crate) fn version(&self) -> u32 {
        // SAFETY: the C caller promised a structure there that begins with its version.
        unsafe { self.0.as_ptr().cast::<u32>().read_unaligned() }
    }

    /// Writes the structure, where its version is `version`; `None` where it has another.
    pub(crate) fn write<T: Copy>(&self, version: u32, value: T) -> Option<()> {
        if self.version() != version {
            return None;
        }
        // SAFETY: the C caller promised the structure that its version says, and the version says which type that is.
        unsafe { self.0.as_ptr().cast::<T>().write_unaligned(value) };
        Some(())
    }

    /// Reads the structure, where its version is `version`; `None` where it has another.
    pub(crate) fn read<T: Copy>(&self, version: u32) -> Option<T> {
        if self.version() != version {
            return None;
        }
        // SAFETY: the C caller promised the structure that its version says; every `T` used here is valid for any bits.
        Some(unsafe { self.0.as_ptr().cast::<T>().read_unaligned() })
    }
}

impl Argument for Versioned {
    type C = *mut c_void;

    unsafe fn from_c(c: *mut c_void) -> Result<Versioned, Status> {
        NonNull::new(c.cast()).map(Versioned).ok_or(Status::INVALID_ARGUMENT)
    }
}

/// A C string; null, and what is not UTF-8, is refused.
pub(crate) struct Text(pub(crate) String);

impl Argument for Text {
    type C = *const c_char;

    unsafe fn from_c(c: *const c_char) -> Result<Text, Status> {
        if c.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: the C caller promised a string that ends with a NUL.
        let text = unsafe { CStr::from_ptr(c) };
        text.to_str().map(|text| Text(text.to_owned())).map_err(|_| Status::INVALID_ARGUMENT)
    }
}
