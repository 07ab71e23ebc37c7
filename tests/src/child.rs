//! A test that plays a second process: the test binary again, with one test and a role.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Names the kernel's socket to a test that plays a client, and so tells it that it does.
const ROLE: &str = "BULKHEAD_TEST_CLIENT_OF";

/// The socket of the kernel whose client this process plays, if it does.
#[must_use]
pub fn role() -> Option<PathBuf> {
    env::var_os(ROLE).map(PathBuf::from)
}

/// This test again as a client of a kernel, or as whatever its role is.
///
/// # Panics
/// Where the test does not know itself.
#[must_use]
pub fn command(test: &str, socket: &Path) -> Command {
    let binary = env::current_exe().expect("the test knows its own path");
    let arguments: [OsString; 3] = ["--exact".into(), "--nocapture".into(), test.into()];
    let mut command = Command::new(binary);
    command.args(arguments).env(ROLE, socket).stdin(Stdio::null());
    command
}

/// Starts this test again as a client of a kernel; what it prints can be read.
///
/// # Panics
/// Where it does not start.
#[must_use]
pub fn start(test: &str, socket: &Path) -> Child {
    command(test, socket).stdout(Stdio::piped()).spawn().expect("a client starts")
}
