//! The session of this process, as our `libcuda.so.1` tells of it, where that is loaded.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use bulkhead_schema::{SESSION_REPORT, SessionReport};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `RTLD_LAZY | RTLD_NOLOAD`, as Linux numbers them.
const IF_LOADED: c_int = 1 | 4;
const LIBRARY: &CStr = c"libcuda.so.1";
/// `CUDA_ERROR_NOT_INITIALIZED`.
const NOT_INITIALIZED: u32 = 3;

type Report = unsafe extern "C" fn(*mut SessionReport, usize) -> u32;

/// What there is of a session.
#[derive(Debug)]
pub(crate) enum Reported {
    /// This process has none: `cuInit` was not called here, or not with our library.
    None,
    /// It has one.
    Session(SessionReport),
    /// It had one.
    Over,
}

/// Asks; no library is loaded for it, and no session opened.
pub(crate) fn report() -> Reported {
    let Some(function) = function() else { return Reported::None };
    let mut report = SessionReport::NOTHING;
    // SAFETY: the function is ours by its name, takes a report's address and its size, and keeps neither.
    match unsafe { function(&raw mut report, size_of::<SessionReport>()) } {
        0 => Reported::Session(report),
        NOT_INITIALIZED => Reported::None,
        _ => Reported::Over,
    }
}

fn function() -> Option<Report> {
    let name = CString::new(SESSION_REPORT).ok()?;
    // SAFETY: the name ends with a NUL. Our library is never unloaded; another is held by the handle, which is kept.
    let library = unsafe { dlopen(LIBRARY.as_ptr(), IF_LOADED) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open, and the name ends with a NUL.
    let symbol = unsafe { dlsym(library, name.as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: a symbol of this name is this function; no library but ours has it.
    Some(unsafe { std::mem::transmute::<*mut c_void, Report>(symbol) })
}
