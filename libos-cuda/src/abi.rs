//! The C symbols of `libcuda.so.1`: the only unsafe code of this crate.
//!
//! Each export is one row: the symbol, the name and version by which `cuGetProcAddress` finds it, its arguments
//! as [`args`] reads them, and the safe function that serves it. What a C caller promises (a pointer is null or
//! good for what the call's documentation says) is relied on in [`args`], and nowhere else.

mod args;
mod callbacks;
mod code;
mod graph_layouts;
mod graphs;
mod layouts;
mod memory;
mod packed;
mod pages;
mod platform;
mod pools;
mod queries;
mod refused;
mod reported;
mod streams;
mod tables;
mod textures;
mod virtual_memory;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use args::{
    Argument, Host, ImagePointer, In, InMaybe, InOut, InOutMaybe, InSlice, Out, OutBytes, OutList, OutMaybe,
    OutSlice, Room, ShareableHandle, Text, Wide,
};
pub(crate) use callbacks::{Callback, Destructor, HostFunction, LogCallback, SharedBytesOf, StreamCallback};
pub(crate) use graph_layouts::{
    AllocationNode, EdgeData, HostNode, InstantiateParameters, KernelNode, KernelNodeOfContext, MemsetNode,
    NodeParameters, UpdateResult,
};
pub(crate) use layouts::{
    AccessDescription, BatchOperand, BatchedCopy3d, Copy2d, Copy3d, CopyAttributes, IpcHandle,
    LaunchAttribute, LaunchConfig, Location, PoolProperties, Properties, Side2d, Side3d,
};
pub(crate) use packed::{Extra, Parameters};
pub(crate) use pages::{PAGE_BYTES, Pages, Spare};
pub(crate) use platform::{Print, at_exit, is_called_by, on_fork_in_child, thread_id};
pub(crate) use refused::{FAMILIES, Lookup};
pub(crate) use tables::export_table;
pub(crate) use textures::{ArrayDescription, ArrayDescription3d, Resource, TextureDescription};

use crate::status::{Answer, SUCCESS, Status};

/// Which stream a null stream means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullStream {
    /// The one that orders with every blocking stream.
    Legacy,
    /// The calling thread's own.
    PerThread,
}

/// The address of a C function.
#[derive(Clone, Copy)]
pub(crate) struct Function(*const c_void);

// SAFETY: the address of a function never changes, and is only handed out.
unsafe impl Sync for Function {}
// SAFETY: as above.
unsafe impl Send for Function {}

impl Function {
    /// As C takes it.
    pub(crate) fn pointer(self) -> *const c_void {
        self.0
    }
}

/// One export.
pub(crate) struct Row {
    /// Its symbol.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the test that compares the table with the header"))]
    pub(crate) symbol: &'static str,
    /// The name that `cuGetProcAddress` takes.
    pub(crate) name: &'static str,
    /// The first version of CUDA that has it.
    pub(crate) since: i32,
    /// What a null stream means to it.
    pub(crate) null_stream: NullStream,
    /// The function.
    pub(crate) function: Function,
}

/// Every export.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    [
        queries::ROWS,
        code::ROWS,
        memory::ROWS,
        pools::ROWS,
        textures::ROWS,
        streams::ROWS,
        virtual_memory::ROWS,
        graphs::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// Runs a call; a panic must not unwind into C.
fn call(body: impl FnOnce() -> Answer) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status.code(),
        Err(_) => Status::UNKNOWN.code(),
    }
}

/// The same of an export, of which it is told where it fails.
fn exported(symbol: &'static str, body: impl Fn() -> Answer) -> u32 {
    let code =
        call(|| crate::moving::again(&body).inspect_err(|status| crate::calls::failed(symbol, *status)));
    if code != SUCCESS {
        crate::logs::tell();
    }
    code
}

/// Defines exports and their rows. A row under `streams` has a second symbol, for which a null stream is the
/// calling thread's own; its function gets the [`NullStream`] first.
macro_rules! exports {
    (
        plain { $($symbol:ident $name:literal $since:literal ($($arg:ident: $kind:ty),*) => $target:path;)* }
        streams { $(
            $ssymbol:ident $sname:literal $ssince:literal, $tsymbol:ident $tsince:literal
            ($($sarg:ident: $skind:ty),*) => $starget:path;
        )* }
    ) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "CUDA's names")]
            unsafe extern "C" fn $symbol($($arg: <$kind as Argument>::C),*) -> u32 {
                crate::abi::exported(stringify!($symbol), || $target($(
                    // SAFETY: the argument is what a C caller passed under this call's contract.
                    unsafe { <$kind as Argument>::from_c($arg) }?
                ),*))
            }
        )*
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "CUDA's names")]
            unsafe extern "C" fn $ssymbol($($sarg: <$skind as Argument>::C),*) -> u32 {
                crate::abi::exported(stringify!($ssymbol), || $starget(NullStream::Legacy, $(
                    // SAFETY: the argument is what a C caller passed under this call's contract.
                    unsafe { <$skind as Argument>::from_c($sarg) }?
                ),*))
            }

            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "CUDA's names")]
            unsafe extern "C" fn $tsymbol($($sarg: <$skind as Argument>::C),*) -> u32 {
                crate::abi::exported(stringify!($tsymbol), || $starget(NullStream::PerThread, $(
                    // SAFETY: the argument is what a C caller passed under this call's contract.
                    unsafe { <$skind as Argument>::from_c($sarg) }?
                ),*))
            }
        )*

        /// These exports.
        pub(super) static ROWS: &[Row] = &[
            $(Row {
                symbol: stringify!($symbol),
                name: $name,
                since: $since,
                null_stream: NullStream::Legacy,
                function: Function($symbol as *const std::ffi::c_void),
            },)*
            $(Row {
                symbol: stringify!($ssymbol),
                name: $sname,
                since: $ssince,
                null_stream: NullStream::Legacy,
                function: Function($ssymbol as *const std::ffi::c_void),
            },
            Row {
                symbol: stringify!($tsymbol),
                name: $sname,
                since: $tsince,
                null_stream: NullStream::PerThread,
                function: Function($tsymbol as *const std::ffi::c_void),
            },)*
        ];
    };
}
use exports;

#[cfg(test)]
mod tests;
