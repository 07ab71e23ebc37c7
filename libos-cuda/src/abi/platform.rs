//! What of the operating system takes unsafe code: the calling thread's name, forks.

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
