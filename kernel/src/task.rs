//! Work that outlives whoever asked for it.

use std::future::Future;

use bulkhead_schema::Error;

use crate::refusal::internal;

/// Does work to its end even when the caller goes away; what it made is dropped then. A method whose call is given
/// up in the middle so leaves nothing half done.
pub(crate) async fn detached<T: 'static>(
    work: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_local(work).await {
        Ok(result) => result,
        Err(stopped) => Err(internal(format!("the work stopped: {stopped}"))),
    }
}
