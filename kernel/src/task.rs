//! Work that outlives whoever asked for it.

use std::{future::Future, rc::Rc, time::Duration};

use bulkhead_schema::{Error, ErrorCode};

use crate::{
    principals::{Counted, Party},
    refusal::internal,
};

/// The same for a client whose executor may answer late: what waits for that after the client was told is counted as one of its
/// party's waits.
///
/// # Errors
/// Those of the work, `TimedOut`, and `LimitReached` where the party has too many waits.
pub(crate) async fn counted<T: 'static>(
    party: &Rc<Party>,
    patience: Duration,
    work: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    let waits = party.take(Counted::Waits, 1)?;
    let work = async move {
        let done = work.await;
        drop(waits);
        done
    };
    detached(patience, work).await
}

/// Does work to its end even when the caller goes away or has waited long enough; what it made is dropped then. A
/// method whose call is given up in the middle so leaves nothing half done.
pub(crate) async fn detached<T: 'static>(
    patience: Duration,
    work: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    match tokio::time::timeout(patience, tokio::task::spawn_local(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(stopped)) => Err(internal(format!("the work stopped: {stopped}"))),
        Err(_) => Err(Error::new(
            ErrorCode::TimedOut,
            format!("the device has not got around to it in {} s; it is given up", patience.as_secs()),
        )
        .remedy("kernels that run for long are in the way: try again when they have ended")),
    }
}
