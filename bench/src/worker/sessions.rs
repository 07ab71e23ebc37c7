//! What sessions cost where the executor runs and windows are warm.

use std::{path::Path, time::Instant};

use bulkhead_client::{Session, Stream};

use super::{
    effort::Amounts,
    findings::{Findings, Trouble, milliseconds},
    observer::Observer,
    tenant,
};
use crate::samples::Samples;

/// Sessions before those that are measured.
const WARM: usize = 2;
const NAME: &str = "bench session";
/// Of a session's first memory.
const BYTES: usize = 4096;

pub(super) fn measure(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let observer = Observer::open(socket)?;
    let count = amounts.sessions;
    let [mut open, mut first_use, mut close] = [0; 3].map(|_| Samples::with_capacity(count));
    for round in 0..WARM + count {
        let begun = Instant::now();
        let session = tenant::open(socket, NAME)?;
        let opened = milliseconds(begun);
        use_first(&session, round)?;
        let used = milliseconds(begun);
        let begun = Instant::now();
        drop(session);
        observer.until("a session to be gone", |status| !status.sessions.iter().any(|name| name == NAME))?;
        let closed = milliseconds(begun);
        if round >= WARM {
            open.push(opened);
            first_use.push(used);
            close.push(closed);
        }
    }
    findings.add("session_open_ms", open);
    findings.add("session_first_use_ms", first_use);
    findings.add("session_close_ms", close);
    Ok(())
}

/// That what was opened works.
fn use_first(session: &Session, round: usize) -> Result<(), Trouble> {
    let sent: Vec<u8> = (0..BYTES).map(|index| (index + round).to_le_bytes()[0] | 1).collect();
    let memory = session.allocate(BYTES as u64)?;
    session.write(Stream::DEFAULT, memory.all(), &sent)?;
    let mut found = vec![0; BYTES];
    session.read(Stream::DEFAULT, &mut found, memory.all())?;
    if found != sent {
        return Err(Trouble::Said("a new session's memory is not what was written to it".to_owned()));
    }
    Ok(())
}
