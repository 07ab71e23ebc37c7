//! Memory that is made without a place, and addresses to map it at.
//!
//! What CUDA's virtual memory management is made of: physical memory on the one hand, addresses on the other, and
//! mappings of the one at the other, which [`Session::accept_at`] makes.

use bulkhead_schema::{Error, bulkhead_capnp as rpc};

use crate::{
    Session, Share,
    connection::{answer, broken},
    memory::is_refusal,
};

/// Addresses that the kernel put aside for a session: nothing is mapped there but what the session
/// [maps](Session::accept_at). Given back when dropped, once what is mapped there has gone.
pub struct Reservation {
    session: Session,
    address: u64,
    bytes: u64,
}

impl Reservation {
    /// The first address.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How much it is, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let address = self.address;
        self.session.inner.remote.spawn(move |context| async move {
            let Ok(session) = context.session() else { return };
            let mut release = session.release_addresses_request();
            release.get().set_address(address);
            // A session that is over has given everything back already.
            if let Err(error) = release.send().promise.await {
                tracing::debug!(%error, "addresses went with their session");
            }
        });
    }
}

impl Session {
    /// Makes device memory, in whole pages of 2 MiB, that is mapped nowhere: it has no address, and no work can name it.
    /// [Mapped](Self::accept_at) as often as one likes, here and by whoever else gets it. A remote call.
    ///
    /// # Errors
    /// As [`Session::allocate`].
    pub fn create(&self, bytes: u64) -> Result<Share, Error> {
        match self.try_create(bytes) {
            Err(error) if is_refusal(&error) => {
                self.give_back_and_wait()?;
                self.try_create(bytes)
            }
            created => created,
        }
    }

    fn try_create(&self, bytes: u64) -> Result<Share, Error> {
        let own = self.clone();
        self.inner.remote.call(move |context| async move {
            let mut create = context.session()?.create_request();
            create.get().set_bytes(bytes);
            let response = create.send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Share::created(&own, &context, created)
        })
    }

    /// Puts addresses aside, which costs nothing but addresses: at a multiple of 64 MiB and of `alignment` (0 or a power
    /// of two), at `wish` if that can be. A remote call.
    ///
    /// # Errors
    /// `outOfMemory` where the session has no such gap, `limitReached` where it has as many reservations as it may,
    /// `invalidArgument` for no bytes, and for an alignment that is none.
    pub fn reserve_addresses(
        &self,
        bytes: u64,
        wish: Option<u64>,
        alignment: u64,
    ) -> Result<Reservation, Error> {
        let session = self.clone();
        self.inner.remote.call(move |context| async move {
            let mut reserve = context.session()?.reserve_addresses_request();
            reserve.get().set_bytes(bytes);
            reserve.get().set_at(wish.unwrap_or(0));
            reserve.get().set_alignment(alignment);
            let response = reserve.send().promise.await.map_err(broken)?;
            let reserved: rpc::addresses::Reader<'_> =
                answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            Ok(Reservation { session, address: reserved.get_address(), bytes: reserved.get_bytes() })
        })
    }

    /// Maps memory at an address of a [`Reservation`], for kernels to read and write: another session's, or what this one
    /// [created](Self::create). The memory lasts as long as what was mapped of it. A remote call; this session pauses
    /// meanwhile. What was unmapped there before is waited for.
    ///
    /// # Errors
    /// `invalidArgument` where the addresses are not reserved or something is mapped there, or the memory may be read
    /// only; as [`Session::accept`].
    pub fn accept_at(&self, share: &Share, address: u64) -> Result<Share, Error> {
        if address == 0 {
            let message = "nothing is mapped at address 0";
            return Err(Error::new(bulkhead_schema::ErrorCode::InvalidArgument, message));
        }
        self.accept_in(share, address)
    }
}
