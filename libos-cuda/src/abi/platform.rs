//! What of the operating system takes unsafe code: the calling thread's name, forks, address space.

use std::ffi::c_void;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

unsafe extern "C" {
    fn pthread_self() -> usize;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
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

/// Takes a range of addresses out of this process's hands, so that none of its memory ever has an address of the
/// device's. Where that fails (a limit on address space), the addresses stay as unlikely as they are.
pub(crate) fn reserve_addresses(first: u64, bytes: u64) {
    let (Ok(first), Ok(bytes)) = (usize::try_from(first), usize::try_from(bytes)) else { return };
    let at = std::ptr::without_provenance_mut::<c_void>(first);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: the mapping replaces no other, and nothing can be read or written through it.
    let reserved = unsafe { mmap_anonymous(at, bytes, ProtFlags::empty(), flags) };
    // An older system takes the address for a hint.
    if let Ok(elsewhere) = reserved
        && elsewhere != at
    {
        // SAFETY: made above and unused.
        let unmapped = unsafe { rustix::mm::munmap(elsewhere, bytes) };
        debug_assert!(unmapped.is_ok(), "it was mapped just now");
    }
}
