//! The software GPU's sanitizer: hears from programs what they have allocated, and hands out what it has found.
//!
//! Only for an executor of one program's own kernel, as with a profile: findings are of all sessions. The socket lies where
//! only its owner may enter. Whoever connects may tell what they like of memory: it is believed about findings, and nothing
//! else.

use std::{
    fs::OpenOptions,
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use bulkhead_schema::Told;
use bulkhead_softgpu::{Sanitizer, Tool};

/// How long somebody who asked may not read.
const WRITE: Duration = Duration::from_secs(10);
/// Processes of a run at a time.
const CONNECTIONS_MAX: usize = 256;

/// Where a sanitizer is reached, and what it looks for.
#[derive(Debug, Clone)]
pub struct Sanitize {
    /// Its socket. Beside it lies a journal of findings, with the extension `journal`.
    pub socket: PathBuf,
    /// What it looks for.
    pub tools: Vec<Tool>,
}

impl Sanitize {
    /// Where findings are written as they come up: an executor may be lost with those that it has not told.
    #[must_use]
    pub fn journal(socket: &Path) -> PathBuf {
        socket.with_extension("journal")
    }

    /// A sanitizer, and a thread that listens.
    pub(crate) fn serve(&self) -> io::Result<Arc<Sanitizer>> {
        // Of an executor that was lost.
        let is_successor = match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            removed => removed.is_ok(),
        };
        let listener = UnixListener::bind(&self.socket)?;
        let journal = OpenOptions::new().append(true).create(true).open(Self::journal(&self.socket))?;
        let sanitizer = Arc::new(Sanitizer::new(&self.tools, Some(journal), is_successor));
        let told = Arc::clone(&sanitizer);
        thread::Builder::new().name("sanitize".into()).spawn(move || listen(&listener, &told))?;
        Ok(sanitizer)
    }
}

fn listen(listener: &UnixListener, sanitizer: &Arc<Sanitizer>) {
    let connections = Arc::new(AtomicUsize::new(0));
    for connection in listener.incoming() {
        if connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            connections.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("too many processes are sanitized at once");
            continue;
        }
        let (counted, told) = (Arc::clone(&connections), Arc::clone(sanitizer));
        let heard = connection.and_then(|connection| {
            thread::Builder::new().name("sanitized".into()).spawn(move || {
                if let Err(error) = hear(&told, connection) {
                    tracing::warn!(%error, "a program that is sanitized");
                }
                counted.fetch_sub(1, Ordering::Relaxed);
            })
        });
        if let Err(error) = heard {
            connections.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%error, "a program is not sanitized");
        }
    }
}

/// Hears a process until it ends.
fn hear(sanitizer: &Sanitizer, mut connection: UnixStream) -> io::Result<()> {
    connection.set_write_timeout(Some(WRITE))?;
    let mut message = [0; Told::BYTES];
    loop {
        match connection.read_exact(&mut message) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            heard => heard?,
        }
        let known = match Told::from_bytes(&message) {
            Some(Told::Allocated { address, bytes }) => sanitizer.allocated(address, bytes),
            Some(Told::Freed(address)) => sanitizer.freed(address),
            Some(Told::Left(address)) => sanitizer.left(address),
            Some(Told::Exported(address)) => sanitizer.exported(address),
            Some(Told::Asked) => return connection.write_all(&sanitizer.findings().to_bytes()),
            None => return Err(io::ErrorKind::InvalidData.into()),
        };
        connection.write_all(&[known.into()])?;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use bulkhead_softgpu::Findings;

    use super::*;

    /// What a connection answers to messages, up to its end.
    fn answers(sanitizer: &Arc<Sanitizer>, messages: &[u8]) -> (bool, Vec<u8>) {
        let (mut own, others) = UnixStream::pair().unwrap();
        let told = Arc::clone(sanitizer);
        let heard = thread::spawn(move || hear(&told, others).is_ok());
        own.write_all(messages).unwrap();
        own.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        own.read_to_end(&mut answers).unwrap();
        (heard.join().unwrap(), answers)
    }

    #[test]
    fn what_a_process_tells_is_known_of_memory_and_what_makes_no_sense_ends_it() {
        let sanitizer = Arc::new(Sanitizer::new(&Tool::ALL, None, false));
        let told = [
            Told::Allocated { address: 1 << 40, bytes: 100 },
            Told::Allocated { address: 1 << 40, bytes: 100 },
            Told::Allocated { address: u64::MAX, bytes: u64::MAX },
            Told::Exported(1 << 40),
            Told::Freed(3),
        ];
        let messages = told.map(Told::to_bytes).concat();
        assert_eq!(answers(&sanitizer, &messages), (true, vec![1, 0, 0, 1, 0]));
        let (heard, bytes) = answers(&sanitizer, &Told::Asked.to_bytes());
        let findings = Findings::from_bytes(&bytes).unwrap();
        assert!(heard && findings.list.is_empty());
        assert_eq!((findings.leaks.len(), findings.leaks[0].bytes, findings.allocations), (1, 100, 1));
        assert_eq!(answers(&sanitizer, &[9; Told::BYTES]), (false, vec![]));
    }
}
