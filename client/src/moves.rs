//! Moves to another executor: the kernel tells, and the new completion page takes the place of the old.

use std::{
    os::fd::AsFd,
    rc::Rc,
    sync::{Arc, Weak},
    time::Duration,
};

use bulkhead_ring::memory::Completion;
use bulkhead_schema::{Error, ErrorCode};

use crate::{
    connection::{Context, answer, broken},
    descriptors,
    session::Inner,
};

/// How long the kernel is asked to wait with its answer, in milliseconds.
const PATIENCE_MS: u32 = 600_000;

/// How soon the page is asked for again that there was no place for.
const AGAIN: Duration = Duration::from_millis(20);

/// Has the connection's thread follow the session wherever it goes, as long as it is open.
pub(crate) fn follow(inner: &Arc<Inner>, page: Arc<Completion>) {
    let session = Arc::downgrade(inner);
    inner.remote.spawn(move |context| async move {
        let mut seen = 0;
        // Whoever waits for the session learns from its ring that it is over.
        loop {
            match next(&context, &session, &page, &mut seen).await {
                Ok(()) => {}
                Err(error) if error.code == ErrorCode::LimitReached => tokio::time::sleep(AGAIN).await,
                Err(_) => return,
            }
        }
    });
}

async fn next(
    context: &Rc<Context>,
    session: &Weak<Inner>,
    page: &Completion,
    seen: &mut u32,
) -> Result<(), Error> {
    let mut lost = context.session()?.lost_request();
    lost.get().set_seen(*seen);
    lost.get().set_timeout_ms(PATIENCE_MS);
    let response = lost.send().promise.await.map_err(broken)?;
    let moved = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
    let times = moved.get_times();
    if times <= *seen {
        return Ok(());
    }
    let token = descriptors::bytes(moved.get_page().map_err(broken)?);
    let given = descriptors::present(&context.connection.descriptor_socket, token)?;
    let unmapped = |error| Error::new(ErrorCode::Internal, format!("the completion page: {error}"));
    let descriptor = given.first().ok_or_else(|| Error::new(ErrorCode::Internal, "no completion page"))?;
    page.replace(descriptor.as_fd()).map_err(unmapped)?;
    *seen = times;
    if let Some(session) = session.upgrade() {
        session.moved(times);
    }
    Ok(())
}
