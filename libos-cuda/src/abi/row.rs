//! One export, as the table of exports has it.

use std::ffi::c_void;

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
pub(crate) struct Function(pub(super) *const c_void);

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
