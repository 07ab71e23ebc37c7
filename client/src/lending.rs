//! Host memory that another process maps too: lent by a session, borrowed by the host half of a module.

use std::{os::fd::AsFd as _, sync::Arc, time::Duration};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp as rpc};

use crate::{
    HostBuffer, ModuleHost, Received, Revocation, Session, Share, SturdyToken, Uses,
    buffer::HeldHost,
    connection::{answer, broken},
    descriptors,
    share::Reference,
    token,
};

/// Host memory that is lent. Dropping it takes it back: whoever has borrowed it is told, and killed where it has not let go of it ten
/// seconds later. Memory that is freed is taken back too, and counts as used until then.
#[must_use = "dropping it takes the memory back"]
pub struct Lending {
    lent: Reference,
    token: SturdyToken,
}

impl Lending {
    /// What the memory is borrowed by. Whoever knows it may read and write all of the memory.
    #[must_use]
    pub fn token(&self) -> SturdyToken {
        self.token
    }

    /// Takes it back. From *quiescent* on nobody has it mapped who borrowed it by this.
    ///
    /// # Errors
    /// Where it has ended already.
    pub fn take_back(self) -> Result<Revocation, Error> {
        self.lent.close()
    }
}

/// Memory that was borrowed, mapped. Dropping it gives it back.
pub struct Borrowed {
    // Unmapped before it is given back: fields are dropped in this order.
    memory: ModuleHost,
    // What was borrowed is derived from the share.
    _back: Option<(Back, Share)>,
}

impl Borrowed {
    /// Memory that was not borrowed, for tests of a service that borrows some.
    #[must_use]
    pub fn of(memory: ModuleHost) -> Self {
        Self { memory, _back: None }
    }

    /// The memory. Whoever lent it may write all of it at any time.
    #[must_use]
    pub fn memory(&self) -> &ModuleHost {
        &self.memory
    }
}

/// A loan, to be given back.
struct Back(Reference);

impl Drop for Back {
    fn drop(&mut self) {
        let key = self.0.key();
        self.0.session.inner.remote.spawn(move |context| {
            let loan = context.any(key).map(|client| rpc::gpu_loan::Client { client });
            async move {
                // Where the kernel is gone nobody waits for it.
                if let Ok(loan) = loan {
                    drop(loan.give_back_request().send().promise.await);
                }
            }
        });
    }
}

/// Tells when borrowed memory is to be given back.
pub struct Recall(Reference);

impl Recall {
    /// Waits until it is to be given back, or was, or the time is up; whether it is.
    ///
    /// # Errors
    /// Where the session or the kernel is gone; `limitReached` where this user waits for as much as it may.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let key = self.0.key();
        let milliseconds = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        self.0.session.inner.remote.call(move |context| async move {
            let loan = rpc::gpu_loan::Client { client: context.any(key)? };
            let mut recalled = loan.recalled_request();
            recalled.get().set_timeout_ms(milliseconds);
            let response = recalled.send().promise.await.map_err(broken)?;
            let recalled = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok(recalled.get_recalled())
        })
    }
}

impl HostBuffer {
    /// Lends it to whoever is given the token, to be mapped in that process: a module that reads files into it, for example.
    ///
    /// # Errors
    /// `notSupported` where it was not allocated to be [lent](Session::allocate_lendable): other buffers would be lent with it.
    pub fn lend(&self) -> Result<Lending, Error> {
        let HeldHost::Whole(key) = self.held else {
            let message = "other buffers of the session lie in the same pages";
            return Err(Error::new(ErrorCode::NotSupported, message)
                .remedy("lend what `Session::allocate_lendable` or `Session::allocate_host` allocates"));
        };
        let (session, bytes) = (self.session.clone(), self.pinned.memory.bytes() as u64);
        self.session.inner.remote.call(move |context| async move {
            let mut derive = rpc::gpu_buffer::Client { client: context.any(key)? }.derive_buffer_request();
            derive.get().set_bytes(bytes);
            let response = derive.send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = created.get_buffer().map_err(broken)?.client;
            let lent = Reference::hold(&session, &context, client.clone());
            let token = token::make(&rpc::gpu_capability::Client { client }, Uses::UntilRevoked).await?;
            Ok(Lending { lent, token })
        })
    }
}

impl Session {
    /// Borrows host memory that another session lends, and maps it. It may be recalled at any time: let go of it then.
    ///
    /// # Errors
    /// `notFound` where the token is not good, or not any more; `invalidArgument` or `notSupported` where it stands for something else.
    pub fn borrow_host(&self, token: SturdyToken) -> Result<(Arc<Borrowed>, Recall), Error> {
        let Received::Share(given) = self.restore(token)? else {
            return Err(Error::new(ErrorCode::InvalidArgument, "the token does not stand for memory"));
        };
        if given.access() != crate::Access::ReadWrite {
            return Err(Error::new(ErrorCode::NotPermitted, "the token stands for memory to read only"));
        }
        let (loan, recall, memory, bytes, socket) = self.ask_to_borrow(&given)?;
        let recall = Recall(recall);
        // From here on it is given back, whatever comes.
        let back = Back(loan);
        let passed = descriptors::present(&socket, memory)?;
        let descriptor = passed.first();
        let descriptor =
            descriptor.ok_or_else(|| Error::new(ErrorCode::Internal, "the kernel handed over no memory"))?;
        let unmapped = |error| Error::new(ErrorCode::OutOfMemory, format!("borrowed memory: {error}"));
        let memory = ModuleHost::of(descriptor.as_fd(), bytes).map_err(unmapped)?;
        Ok((Arc::new(Borrowed { memory, _back: Some((back, given)) }), recall))
    }

    fn ask_to_borrow(
        &self,
        given: &Share,
    ) -> Result<(Reference, Reference, [u8; 16], u64, std::path::PathBuf), Error> {
        let (session, key) = (self.clone(), given.key());
        self.inner.remote.call(move |context| async move {
            let buffer = rpc::gpu_buffer::Client { client: context.any(key)? };
            let response = buffer.borrow_request().send().promise.await.map_err(broken)?;
            let borrowed = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let loan = borrowed.get_loan().map_err(broken)?.client;
            let (one, other) = (
                Reference::hold(&session, &context, loan.clone()),
                Reference::hold(&session, &context, loan),
            );
            let memory = descriptors::bytes(borrowed.get_memory().map_err(broken)?);
            Ok((one, other, memory, borrowed.get_bytes(), context.connection.descriptor_socket.clone()))
        })
    }
}
