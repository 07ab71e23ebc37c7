//! C arguments as types that safe code can use.
//!
//! Each type is made by [`Argument::from_c`] from what a C caller passed, and relies on the promise that the
//! caller makes for that parameter: a pointer is null, or good for the bytes that the call's documentation says,
//! for as long as the call runs (an asynchronous copy's: until it is done).

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use crate::status::Status;

/// A type that a C argument becomes.
pub(crate) trait Argument: Sized {
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
plain!(i32, u32, u64, u16, u8, usize);
pub(super) use plain;

/// Where one value goes; null is refused.
pub(crate) struct Out<T>(NonNull<T>);

impl<T: Copy> Out<T> {
    /// Writes the value.
    pub(crate) fn set(&self, value: T) {
        // SAFETY: the C caller promised room for one value; nothing is read from it.
        unsafe { self.0.as_ptr().write_unaligned(value) }
    }
}

impl<T> Argument for Out<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<Out<T>, Status> {
        NonNull::new(c).map(Out).ok_or(Status::INVALID_VALUE)
    }
}

/// Where one value goes, if the caller wants it.
pub(crate) struct OutMaybe<T>(Option<Out<T>>);

impl<T: Copy> OutMaybe<T> {
    /// Writes the value if it is wanted.
    pub(crate) fn set(&self, value: T) {
        if let Some(out) = &self.0 {
            out.set(value);
        }
    }
}

impl<T> Argument for OutMaybe<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<OutMaybe<T>, Status> {
        Ok(OutMaybe(NonNull::new(c).map(Out)))
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
        NonNull::new(c).map(InOut).ok_or(Status::INVALID_VALUE)
    }
}

/// One value that is read, and then written over, if the caller has one.
pub(crate) struct InOutMaybe<T>(Option<InOut<T>>);

impl<T: Copy> InOutMaybe<T> {
    /// Reads the value, if there is one.
    pub(crate) fn get(&self) -> Option<T> {
        self.0.as_ref().map(InOut::get)
    }

    /// Writes the value, if there is room.
    pub(crate) fn set(&self, value: T) {
        if let Some(place) = &self.0 {
            place.set(value);
        }
    }
}

impl<T> Argument for InOutMaybe<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<InOutMaybe<T>, Status> {
        Ok(InOutMaybe(NonNull::new(c).map(InOut)))
    }
}

/// Where values go, as many as another argument says, if the caller wants them.
pub(crate) struct OutList<T>(Option<OutSlice<T>>);

impl<T: Copy> OutList<T> {
    /// The list, where it is wanted.
    pub(crate) fn wanted(&self) -> Option<&OutSlice<T>> {
        self.0.as_ref()
    }
}

impl<T> Argument for OutList<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<OutList<T>, Status> {
        Ok(OutList(NonNull::new(c).map(OutSlice)))
    }
}

/// Where values go, as many as another argument says.
pub(crate) struct OutSlice<T>(NonNull<T>);

impl<T: Copy> OutSlice<T> {
    /// Writes all `values`; the call's other arguments must allow that many.
    pub(crate) fn write(&self, values: &[T]) {
        // SAFETY: the C caller promised room for as many values as its count says, which the call has checked.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0.as_ptr(), values.len()) }
    }
}

impl<T> Argument for OutSlice<T> {
    type C = *mut T;

    unsafe fn from_c(c: *mut T) -> Result<OutSlice<T>, Status> {
        NonNull::new(c).map(OutSlice).ok_or(Status::INVALID_VALUE)
    }
}

/// Where bytes go whose number another argument says.
pub(crate) type OutBytes = OutSlice<u8>;

/// Where one value of a type that an enumeration says goes.
#[derive(Clone, Copy)]
pub(crate) struct Room(NonNull<u8>);

// SAFETY: an address means the same on every thread, and what the C caller promised of it holds on all of them.
unsafe impl Send for Room {}
// SAFETY: as above; a room is only written whole, through a copy of it.
unsafe impl Sync for Room {}

impl Room {
    /// Writes a value's bytes.
    pub(crate) fn write(self, bytes: &[u8]) {
        // SAFETY: the C caller promised room for the type that its enumeration argument names.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.as_ptr(), bytes.len()) }
    }

    /// The buffer that an option's value is, if it is one.
    pub(crate) fn of_option(value: *mut c_void) -> Option<Room> {
        NonNull::new(value.cast()).map(Room)
    }

    /// Reads a 64-bit value.
    pub(crate) fn read_u64(self) -> u64 {
        // SAFETY: the C caller promised a value of the type that its enumeration argument names.
        unsafe { self.0.as_ptr().cast::<u64>().read_unaligned() }
    }
}

impl Argument for Room {
    type C = *mut c_void;

    unsafe fn from_c(c: *mut c_void) -> Result<Room, Status> {
        NonNull::new(c.cast()).map(Room).ok_or(Status::INVALID_VALUE)
    }
}

/// One value to read; null is refused.
pub(crate) struct In<T>(pub(crate) T);

impl<T: Copy> Argument for In<T> {
    type C = *const T;

    unsafe fn from_c(c: *const T) -> Result<In<T>, Status> {
        if c.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the C caller promised one value there; every `T` used here is valid for any bits.
        Ok(In(unsafe { c.read_unaligned() }))
    }
}

/// One value to read, if the caller passes one.
pub(crate) struct InMaybe<T>(pub(crate) Option<T>);

impl<T: Copy> Argument for InMaybe<T> {
    type C = *const T;

    unsafe fn from_c(c: *const T) -> Result<InMaybe<T>, Status> {
        if c.is_null() {
            return Ok(InMaybe(None));
        }
        // SAFETY: the C caller promised one value there; every `T` used here is valid for any bits.
        Ok(InMaybe(Some(unsafe { c.read_unaligned() })))
    }
}

/// Values to read, as many as another argument says.
pub(crate) struct InSlice<T>(*const T);

impl<T: Copy> InSlice<T> {
    /// Copies `count` values out.
    pub(crate) fn read(&self, count: usize) -> Result<Vec<T>, Status> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the C caller promised as many values as its count says; every `T` used is valid for any bits.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) }.to_vec())
    }
}

impl<T> InSlice<T> {
    /// Whether the caller gave no list.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// No list, for a call that has none.
    pub(crate) fn none() -> InSlice<T> {
        InSlice(std::ptr::null())
    }

    /// A list that a structure of the caller's points to.
    pub(super) fn nested(list: *const T) -> InSlice<T> {
        InSlice(list)
    }
}

impl InSlice<c_char> {
    /// The text that it points to, up to its NUL.
    pub(crate) fn text(&self) -> Option<String> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the C caller promised a string that ends with a NUL where there is one.
        let text = unsafe { CStr::from_ptr(self.0) };
        Some(text.to_string_lossy().into_owned())
    }
}

impl InSlice<*mut c_void> {
    /// Copies `count` pointers out, each of which is room for a value.
    pub(crate) fn rooms(&self, count: usize) -> Result<Vec<Room>, Status> {
        self.read(count)?
            .into_iter()
            .map(|pointer| NonNull::new(pointer.cast()).map(Room).ok_or(Status::INVALID_VALUE))
            .collect()
    }
}

impl<T> Argument for InSlice<T> {
    type C = *const T;

    unsafe fn from_c(c: *const T) -> Result<InSlice<T>, Status> {
        Ok(InSlice(c))
    }
}

/// A C string; null, and what is not UTF-8, is refused.
pub(crate) struct Text(pub(crate) String);

impl Argument for Text {
    type C = *const c_char;

    unsafe fn from_c(c: *const c_char) -> Result<Text, Status> {
        if c.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the C caller promised a string that ends with a NUL.
        let text = unsafe { CStr::from_ptr(c) };
        text.to_str().map(|text| Text(text.to_owned())).map_err(|_| Status::INVALID_VALUE)
    }
}

/// Memory of the program, of a length that the call's other arguments say. May be null until it is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host(*mut u8);

impl Host {
    /// Its address, to look it up by.
    pub(crate) fn address(self) -> u64 {
        self.0.addr() as u64
    }

    /// The same memory `bytes` further on.
    pub(crate) fn after(self, bytes: usize) -> Host {
        Host(self.0.wrapping_add(bytes))
    }

    /// The first `count` bytes, to read.
    pub(crate) fn bytes(&self, count: usize) -> Result<&[u8], Status> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the C caller promised that many readable bytes, and not to write them during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }

    /// The first `count` bytes, to write.
    pub(crate) fn bytes_mut(&mut self, count: usize) -> Result<&mut [u8], Status> {
        if count == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the C caller promised that many writable bytes, and not to use them during the call.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, count) })
    }

    /// Copies `count` bytes of the program's memory to another place in it.
    pub(crate) fn copy_to(self, to: Host, count: usize) -> Result<(), Status> {
        if count != 0 && (self.0.is_null() || to.0.is_null()) {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the C caller promised both ranges; they may overlap.
        unsafe { std::ptr::copy(self.0, to.0, count) };
        Ok(())
    }
}

impl Argument for Host {
    type C = *mut c_void;

    unsafe fn from_c(c: *mut c_void) -> Result<Host, Status> {
        Ok(Host(c.cast()))
    }
}

/// An address that is the device's or the program's: what it is, a look-up says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wide(pub(crate) u64);

impl Wide {
    /// The program's memory at this address, for a call whose caller said that it is that.
    pub(crate) fn host(self) -> Host {
        Host(std::ptr::with_exposed_provenance_mut(usize::try_from(self.0).unwrap_or(0)))
    }
}

impl Argument for Wide {
    type C = u64;

    unsafe fn from_c(c: u64) -> Result<Wide, Status> {
        Ok(Wide(c))
    }
}

/// A handle of the operating system's, as C passes it in the place of a pointer: a file descriptor.
pub(crate) struct ShareableHandle(i32);

impl ShareableHandle {
    /// The descriptor, which may turn out not to be open; `None` for what is none.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the C caller promised that it is open for as long as the call runs; where it is not, the system says so,
        // since nothing here closes it or takes it for a certain file.
        (self.0 >= 0).then(|| unsafe { BorrowedFd::borrow_raw(self.0) })
    }
}

impl Argument for ShareableHandle {
    type C = *mut c_void;

    unsafe fn from_c(c: *mut c_void) -> Result<ShareableHandle, Status> {
        i32::try_from(c.addr()).map(ShareableHandle).map_err(|_| Status::INVALID_VALUE)
    }
}

/// An image without a length.
pub(crate) struct ImagePointer(NonNull<u8>);

impl ImagePointer {
    /// Its first `count` bytes; a header before them has to have said that they are there.
    pub(crate) fn prefix(&self, count: usize) -> &[u8] {
        // SAFETY: the C caller promised an image, and what an image's own headers claim belongs to it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), count) }
    }

    /// The image as text, up to its NUL.
    pub(crate) fn text(&self) -> &[u8] {
        // SAFETY: the C caller promised an image, and one that is text ends with a NUL.
        unsafe { CStr::from_ptr(self.0.as_ptr().cast()) }.to_bytes()
    }

    /// The image at an address that this one's wrapper holds.
    pub(crate) fn follow(&self, address: u64) -> Result<ImagePointer, Status> {
        let address = usize::try_from(address).map_err(|_| Status::INVALID_IMAGE)?;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
            .map(ImagePointer)
            .ok_or(Status::INVALID_IMAGE)
    }
}

impl Argument for ImagePointer {
    type C = *const c_void;

    unsafe fn from_c(c: *const c_void) -> Result<ImagePointer, Status> {
        NonNull::new(c.cast_mut().cast()).map(ImagePointer).ok_or(Status::INVALID_VALUE)
    }
}
