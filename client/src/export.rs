//! Buffers for other sessions at the level of CUDA's IPC: any buffer, read-write, until it is freed.
//!
//! Other sessions map whole pages, and a block is seldom that. So what is exported is the pages that it lies in, with
//! whatever else of this session lies there. Freeing an exported buffer takes it back from everybody, and the block
//! is nobody's until no work of others can reach it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp as rpc};

use crate::{
    Access, Buffer, Export, Received, Session, Share, SturdyToken, Uses,
    arena::BlockIndex,
    buffer::{After, Exported, Held},
    connection::{Capability, answer, broken},
    token,
};

/// For how long what another session exported is asked for.
const IMPORT_PATIENCE: Duration = Duration::from_secs(60);
/// What sessions map of each other.
const PAGE_BYTES: u64 = 2 << 20;
/// How long one question waits for others' work; it is asked again.
const ASK_MS: u32 = 30_000;
/// How long a kernel that has as many revocations as it takes is left alone.
const BUSY_NAP: Duration = Duration::from_millis(20);

/// The pages that `bytes` from `offset` on lie in: first and size.
fn pages(offset: u64, bytes: u64) -> (u64, u64) {
    let first = offset - offset % PAGE_BYTES;
    (first, (offset + bytes).next_multiple_of(PAGE_BYTES) - first)
}

impl Buffer {
    /// What it was exported with, if it was.
    #[must_use]
    pub fn exported(&self) -> Option<Export> {
        self.exported.lock().as_ref().map(|exported| exported.export)
    }

    /// Lets other sessions read and write the pages that the buffer lies in, until it is freed: then it is taken back,
    /// and work of theirs that runs on beyond the kernel's deadline ends their session. The same answer every time. A
    /// remote call.
    ///
    /// # Errors
    /// `limitReached`, or that the session is over.
    pub fn export(&self) -> Result<Export, Error> {
        let mut exported = self.exported.lock();
        if let Some(exported) = &*exported {
            return Ok(exported.export);
        }
        let (arena, shares_pages) = match self.held {
            Held::Arena(key) => (key, false),
            Held::Block(block) => self.session.surroundings(block, PAGE_BYTES),
        };
        let (first, bytes) = pages(self.offset, self.bytes);
        let (key, token) = self.session.inner.remote.call(move |context| async move {
            let mut derive = rpc::gpu_buffer::Client { client: context.any(arena)? }.derive_buffer_request();
            derive.get().set_offset(first);
            derive.get().set_bytes(bytes);
            let response = derive.send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let buffer = created.get_buffer().map_err(broken)?;
            let capability = rpc::gpu_capability::Client { client: buffer.client.clone() };
            let token = token::make(&capability, Uses::UntilRevoked).await?;
            Ok((context.hold(Capability::Buffer(buffer)), token))
        })?;
        let export = Export { token, offset: self.offset - first, shares_pages };
        *exported = Some(Exported { key, export });
        Ok(export)
    }
}

impl Session {
    /// Maps what another session [exported](Buffer::export), where kernels can read and write it. A remote call; this
    /// session and the other pause meanwhile.
    ///
    /// # Errors
    /// `notFound` where the buffer was freed, `outOfMemory` where work of a session does not end, `timedOut` where the other
    /// session was busy for a minute.
    pub fn import(&self, token: SturdyToken) -> Result<Share, Error> {
        let given = self.receive(token)?;
        let begun = Instant::now();
        loop {
            match self.accept(&given) {
                // The kernel waits for some seconds each time: what CUDA calls waits for a busy process, and does not fail.
                Err(error) if error.code == ErrorCode::TimedOut && begun.elapsed() < IMPORT_PATIENCE => {}
                done => return done,
            }
        }
    }

    /// What another session gives to read and write, without mapping it.
    ///
    /// # Errors
    /// `notFound` where the memory was freed, `notPermitted` where it is given to read only.
    pub fn receive(&self, token: SturdyToken) -> Result<Share, Error> {
        let Received::Share(received) = self.restore(token)? else {
            return Err(Error::new(ErrorCode::InvalidArgument, "the token does not stand for memory"));
        };
        if received.access() != Access::ReadWrite {
            return Err(Error::new(ErrorCode::NotPermitted, "the token stands for memory to read only"));
        }
        Ok(received)
    }

    /// Frees a block that was exported, once it is taken back from everybody. Waits for nothing.
    pub(crate) fn free_exported(&self, exported: &Exported, block: BlockIndex, after: After) {
        let bytes = self.begin_withdrawal(block);
        let (key, inner) = (exported.key, Arc::downgrade(&self.inner));
        self.inner.remote.spawn(move |context| async move {
            let withdrawn = context.withdraw(key, ASK_MS, BUSY_NAP).await;
            let Some(session) = inner.upgrade().map(|inner| Session { inner }) else { return };
            match withdrawn {
                Ok(()) => session.end_withdrawal(block, bytes, after),
                // Nobody can tell who still reaches the block: it stays taken, as long as the session lasts.
                Err(error) => {
                    tracing::debug!(%error, "an exported block is given up");
                    session.abandon_withdrawal(bytes);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_range_hold_it_and_no_page_more() {
        const PAGE: u64 = PAGE_BYTES;
        assert_eq!(pages(0, 1), (0, PAGE));
        assert_eq!(pages(0, PAGE), (0, PAGE));
        assert_eq!(pages(0, PAGE + 1), (0, 2 * PAGE));
        assert_eq!(pages(PAGE - 512, 512), (0, PAGE));
        assert_eq!(pages(PAGE - 512, 513), (0, 2 * PAGE));
        assert_eq!(pages(3 * PAGE + 512, 4096), (3 * PAGE, PAGE));
        assert_eq!(pages(6 * PAGE, 8 << 20), (6 * PAGE, 4 * PAGE));
    }
}
