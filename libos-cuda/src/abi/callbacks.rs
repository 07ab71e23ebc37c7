//! Pointers and functions of the program's that are kept and handed back to it.

use std::ffi::{c_char, c_void};

use super::args::Argument;
use crate::status::Status;

/// A pointer that is only handed back to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Callback(pub(crate) usize);

impl Argument for Callback {
    type C = *mut c_void;

    unsafe fn from_c(c: *mut c_void) -> Result<Callback, Status> {
        Ok(Callback(c.expose_provenance()))
    }
}

impl Callback {
    /// As the program passed it.
    pub(crate) fn pointer(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = extern "C" fn($($arg:ty),*) $(-> $result:ty)?;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(pub(crate) extern "C" fn($($arg),*) $(-> $result)?);

        impl Argument for $name {
            type C = Option<extern "C" fn($($arg),*) $(-> $result)?>;

            unsafe fn from_c(c: Self::C) -> Result<$name, Status> {
                c.map($name).ok_or(Status::INVALID_VALUE)
            }
        }
    )*};
}

functions! {
    /// What `cuLaunchHostFunc` runs.
    HostFunction = extern "C" fn(*mut c_void);
    /// What `cuStreamAddCallback` runs: stream, status, the program's pointer.
    StreamCallback = extern "C" fn(u64, u32, *mut c_void);
    /// What `cuLogsRegisterCallback` has called: the program's pointer, how bad it is, the message and its length.
    LogCallback = extern "C" fn(*mut c_void, u32, *mut c_char, usize);
}

/// What ends a value of the context-local storage: context, key, value.
#[derive(Clone, Copy)]
pub(crate) struct Destructor(pub(crate) Option<extern "C" fn(u64, *mut c_void, *mut c_void)>);

impl Argument for Destructor {
    type C = Option<extern "C" fn(u64, *mut c_void, *mut c_void)>;

    unsafe fn from_c(c: Self::C) -> Result<Destructor, Status> {
        Ok(Destructor(c))
    }
}

/// How much dynamic shared memory a block of some size needs.
#[derive(Clone, Copy)]
pub(crate) struct SharedBytesOf(pub(crate) Option<extern "C" fn(i32) -> usize>);

impl Argument for SharedBytesOf {
    type C = Option<extern "C" fn(i32) -> usize>;

    unsafe fn from_c(c: Self::C) -> Result<SharedBytesOf, Status> {
        Ok(SharedBytesOf(c))
    }
}
