//! The driver's calls, one wrapper each.
//!
//! The symbols come from `libcuda.so.1`. Their types are cuda.h's of CUDA 13.0, from `cudarc`, but for the
//! result: `cudarc` has it as a closed enum, and a code that a newer driver adds would be undefined
//! behaviour there. Here it is the integer that the driver returned ([`Code`]).
//!
//! A wrapper is a safe function, and what its SAFETY comment asks of a handle is kept by the tables of
//! this crate: a handle is in a table from its making until its destruction, and every use pins it there.

mod arrays;
mod calls;
mod chains;
mod graphs;
mod load;
mod management;
pub mod native;
pub(crate) mod pages;
mod questions;

use std::ffi::c_int;

pub(crate) use arrays::DriverArray;
pub(crate) use chains::Chain;
pub(crate) use graphs::{Made, Step};
pub(crate) use load::{Absent, Driver};
pub(crate) use management::Management;

/// A `CUresult` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    /// `CUDA_ERROR_INVALID_VALUE`
    pub(crate) const INVALID_VALUE: Self = Self(1);
    /// `CUDA_ERROR_NOT_READY`
    pub(crate) const NOT_READY: Self = Self(600);
    /// `CUDA_ERROR_UNKNOWN`
    pub(crate) const UNKNOWN: Self = Self(999);
    /// `CUDA_ERROR_INVALID_HANDLE`
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    /// `CUDA_ERROR_NOT_FOUND`
    pub(crate) const NOT_FOUND: Self = Self(500);

    fn check(result: c_int) -> Result<(), Self> {
        match result {
            0 => Ok(()),
            code => Err(Self(code.cast_unsigned())),
        }
    }
}

/// A driver's pointer, by its address.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(usize);

        impl $name {
            fn of<T>(pointer: *mut T) -> Self {
                Self(pointer.expose_provenance())
            }

            fn pointer<T>(self) -> *mut T {
                std::ptr::with_exposed_provenance_mut(self.0)
            }
        }
    )* };
}

handles! {
    /// `CUcontext`
    Context;
    /// `CUstream`
    Stream;
    /// `CUevent`
    Event;
    /// `CUmodule`
    Module;
    /// `CUfunction`
    Function;
}

/// Handles that a table keeps, as plain numbers.
macro_rules! kept {
    ($($name:ident),*) => { $(
        impl $name {
            /// For a table; only [`Self::from_bits`] reads it.
            pub(crate) fn bits(self) -> u64 {
                self.0 as u64
            }

            /// What a table was given by [`Self::bits`].
            pub(crate) fn from_bits(bits: u64) -> Self {
                Self(usize::try_from(bits).unwrap_or_default())
            }
        }
    )* };
}

kept!(Stream, Event, Function);

/// `CUmemGenericAllocationHandle`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Physical(pub(crate) u64);
