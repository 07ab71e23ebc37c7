//! Hands out what the software GPU's profiler has found so far, to whoever connects to a socket.
//!
//! Only for an executor of one program's own kernel: a report tells of all sessions. The socket lies where only its owner
//! may enter.

use std::{
    io::{self, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use bulkhead_softgpu::Profiler;

/// How long somebody who asked may not read.
const WRITE: Duration = Duration::from_secs(10);

/// A profiler, and a thread that tells what it has found at this path.
pub(crate) fn serve(path: &Path) -> io::Result<Arc<Profiler>> {
    // Of an executor that was lost.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    let profiler = Arc::new(Profiler::default());
    let told = Arc::clone(&profiler);
    thread::Builder::new().name("profile".into()).spawn(move || {
        for connection in listener.incoming() {
            if let Err(error) = connection.and_then(|connection| tell(&told, connection)) {
                tracing::warn!(%error, "a profile is not told");
            }
        }
    })?;
    Ok(profiler)
}

fn tell(profiler: &Profiler, mut to: UnixStream) -> io::Result<()> {
    to.set_write_timeout(Some(WRITE))?;
    to.write_all(&profiler.report().to_bytes())
}
