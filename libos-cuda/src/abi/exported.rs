//! How a call from C runs, and how a file defines its exports.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::status::{Answer, SUCCESS, Status};
use crate::{calls, logs, moving};

/// Runs a call; a panic must not unwind into C.
pub(super) fn call(body: impl FnOnce() -> Answer) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status.code(),
        Err(_) => Status::UNKNOWN.code(),
    }
}

/// The same of an export, of which it is told where it fails.
pub(super) fn exported(symbol: &'static str, body: impl Fn() -> Answer) -> u32 {
    let code = call(|| moving::again(&body).inspect_err(|status| calls::failed(symbol, *status)));
    if code != SUCCESS {
        logs::tell();
    }
    code
}

/// Defines exports and their rows. A row under `streams` has a second symbol, for which a null stream is the
/// calling thread's own; its function gets the [`NullStream`](super::NullStream) first.
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
                $crate::abi::exported::exported(stringify!($symbol), || $target($(
                    // SAFETY: the argument is what a C caller passed under this call's contract.
                    unsafe { <$kind as Argument>::from_c($arg) }?
                ),*))
            }
        )*
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "CUDA's names")]
            unsafe extern "C" fn $ssymbol($($sarg: <$skind as Argument>::C),*) -> u32 {
                $crate::abi::exported::exported(stringify!($ssymbol), || $starget(NullStream::Legacy, $(
                    // SAFETY: the argument is what a C caller passed under this call's contract.
                    unsafe { <$skind as Argument>::from_c($sarg) }?
                ),*))
            }

            #[unsafe(no_mangle)]
            #[allow(non_snake_case, reason = "CUDA's names")]
            unsafe extern "C" fn $tsymbol($($sarg: <$skind as Argument>::C),*) -> u32 {
                $crate::abi::exported::exported(stringify!($tsymbol), || $starget(NullStream::PerThread, $(
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
pub(super) use exports;
