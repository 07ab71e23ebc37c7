//! `bulkhead run --sanitize`: the software GPU is told what the program allocates and frees.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use bulkhead_schema::Told;
use parking_lot::Mutex;

use crate::report;

/// The socket of the sanitizer.
const VARIABLE: &str = "BULKHEAD_SANITIZE";

/// The connection, where this is such a run; none any more where it broke.
fn connection() -> Option<&'static Mutex<Option<UnixStream>>> {
    static CONNECTION: OnceLock<Option<Mutex<Option<UnixStream>>>> = OnceLock::new();
    let connect = || {
        let path = std::env::var_os(VARIABLE).filter(|path| !path.is_empty())?;
        let opened = UnixStream::connect(path);
        let opened = opened.inspect_err(|error| report::once(&format!("{VARIABLE}: {error}")));
        Some(Mutex::new(opened.ok()))
    };
    CONNECTION.get_or_init(connect).as_ref()
}

/// Whether this is such a run.
pub(crate) fn runs() -> bool {
    connection().is_some()
}

/// The program has allocated memory. Kernels that are launched from now on are looked at by it.
#[inline]
pub(crate) fn allocated(address: u64, bytes: u64) {
    if let Some(connection) = connection() {
        tell(connection, Told::Allocated { address, bytes });
    }
}

/// It has freed it.
#[inline]
pub(crate) fn freed(address: u64) {
    if let Some(connection) = connection() {
        tell(connection, Told::Freed(address));
    }
}

/// A context ended, and with it what the program has not freed.
pub(crate) fn left(address: u64) {
    if let Some(connection) = connection() {
        tell(connection, Told::Left(address));
    }
}

/// Others may write it.
pub(crate) fn exported(address: u64) {
    if let Some(connection) = connection() {
        tell(connection, Told::Exported(address));
    }
}

#[cold]
fn tell(connection: &Mutex<Option<UnixStream>>, told: Told) {
    let mut connection = connection.lock();
    let Some(socket) = &mut *connection else { return };
    let done = socket.write_all(&told.to_bytes()).and_then(|()| socket.read_exact(&mut [0]));
    // The executor is lost, which the program is told by its calls.
    if done.is_err() {
        *connection = None;
    }
}
