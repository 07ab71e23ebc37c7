//! What of the operating system takes unsafe code: the calling thread's name, forks, C's own output.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn pthread_self() -> usize;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
    fn atexit(function: extern "C" fn()) -> c_int;
    fn backtrace(frames: *mut *mut c_void, room: c_int) -> c_int;
    fn dladdr(address: *const c_void, found: *mut Found) -> c_int;
    fn printf(format: *const c_char, ...) -> c_int;
    fn fflush(stream: *mut c_void) -> c_int;
    #[link_name = "stdout"]
    static STDOUT: *mut c_void;
}

/// `Dl_info`.
#[repr(C)]
struct Found {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

const _: () = assert!(size_of::<Found>() == 32 && std::mem::offset_of!(Found, file) == 0);

/// Frames that are looked through for a caller.
const FRAMES: c_int = 16;

/// Whether a library whose file's name begins so is among the callers.
pub(crate) fn is_called_by(library: &str) -> bool {
    let mut frames = [std::ptr::null_mut(); FRAMES as usize];
    // SAFETY: there is room for as many frames as are asked for.
    let count = unsafe { backtrace(frames.as_mut_ptr(), FRAMES) };
    let count = usize::try_from(count).unwrap_or(0);
    frames.iter().take(count).any(|frame| {
        let mut found = Found {
            file: std::ptr::null(),
            base: std::ptr::null_mut(),
            symbol: std::ptr::null(),
            address: std::ptr::null_mut(),
        };
        // SAFETY: any address may be asked for, and there is room for the answer.
        if unsafe { dladdr(*frame, &raw mut found) } == 0 || found.file.is_null() {
            return false;
        }
        // SAFETY: the loader's name of a library that is loaded, which ends with a NUL.
        let file = unsafe { CStr::from_ptr(found.file) };
        let file = file.to_string_lossy();
        file.rsplit('/').next().is_some_and(|name| name.starts_with(library))
    })
}

/// The calling thread as the C library names it.
pub(crate) fn thread_id() -> usize {
    // SAFETY: takes nothing and cannot fail.
    unsafe { pthread_self() }
}

/// Has `child` run in every process that is forked off this one. It must do no more than set a flag.
pub(crate) fn on_fork_in_child(child: extern "C" fn()) {
    // SAFETY: the function pointer stays valid: this library is never unloaded once a program uses a device.
    let refused = unsafe { pthread_atfork(None, None, Some(child)) };
    debug_assert_eq!(refused, 0, "only fails without memory");
}

/// Has `function` run when the process ends by itself.
pub(crate) fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function pointer stays valid: this library is never unloaded once a program uses a device.
    let refused = unsafe { atexit(function) };
    debug_assert_eq!(refused, 0, "only fails without memory");
}

/// Output through C's `stdout`, in whose order a program's own output is.
pub(crate) struct Print;

impl Print {
    /// Prints text as it is.
    pub(crate) fn text(text: &CStr) {
        // SAFETY: the format takes one string, which is one; both live during the call.
        unsafe { printf(c"%s".as_ptr(), text.as_ptr()) };
    }

    /// Empties the buffer, as NVIDIA's driver does: what the program writes past C's library comes after.
    pub(crate) fn flush() {
        // SAFETY: the C library's own stream, which the call locks; a program that replaces the variable gives it another.
        unsafe { fflush(STDOUT) };
    }

    /// Prints an integer by one of the letters `diouxXc`. `field` is flags, width and precision.
    pub(crate) fn integer(field: &str, letter: u8, value: i64) {
        if letter == b'c' {
            let Some(format) = format(field, "", letter, b"c") else { return };
            let [low, ..] = value.to_le_bytes();
            // SAFETY: the format has one conversion, of an `int`, which is given; it lives during the call.
            unsafe { printf(format.as_ptr(), c_int::from(low)) };
            return;
        }
        let Some(format) = format(field, "ll", letter, b"diouxX") else { return };
        // SAFETY: the format has one conversion, of a `long long`, which is given; it lives during the call.
        unsafe { printf(format.as_ptr(), value) };
    }

    /// Prints a number by one of the letters `aAeEfFgG`.
    pub(crate) fn float(field: &str, letter: u8, value: f64) {
        let Some(format) = format(field, "", letter, b"aAeEfFgG") else { return };
        // SAFETY: the format has one conversion, of a `double`, which is given; it lives during the call.
        unsafe { printf(format.as_ptr(), value) };
    }

    /// Prints a string.
    pub(crate) fn string(field: &str, text: &CStr) {
        let Some(format) = format(field, "", b's', b"s") else { return };
        // SAFETY: the format has one conversion, of a string, which is given; both live during the call.
        unsafe { printf(format.as_ptr(), text.as_ptr()) };
    }

    /// Prints an address.
    pub(crate) fn pointer(field: &str, address: u64) {
        let Some(format) = format(field, "", b'p', b"p") else { return };
        let pointer: *const c_void = std::ptr::without_provenance(usize::try_from(address).unwrap_or(0));
        // SAFETY: the format has one conversion, of an address, which is given and not followed.
        unsafe { printf(format.as_ptr(), pointer) };
    }
}

/// A format with this one conversion; none where the parts are something else.
fn format(field: &str, length: &str, letter: u8, letters: &[u8]) -> Option<CString> {
    let plain = field.bytes().all(|byte| matches!(byte, b'-' | b'+' | b' ' | b'#' | b'.' | b'0'..=b'9'));
    let sound = plain && letters.contains(&letter);
    CString::new(format!("%{field}{length}{}", char::from(letter))).ok().filter(|_| sound)
}
