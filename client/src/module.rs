//! Protected modules: their host halves, and gates that kernels call.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use bulkhead_ring::{Activity, memory::Shared};
use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp as rpc, limits};

use crate::{
    Received, Revocation, Session, SturdyToken,
    connection::{answer, broken},
    descriptors,
    grant::capability,
    share::Reference,
};

/// The half of a value that a word of a message carries beside the number.
const LOW: u64 = 0xFFFF_FFFF;

capability!(
    ProtectedModule,
    "The host half of a protected module: it reads and writes what the gates keep, and says whose kernels may call them. \
     What [claimed](Session::claim_module) the module ends it when it is dropped."
);
capability!(
    Gates,
    "That kernels may call the gates of a protected module: in sessions that [accept](Session::accept_gates) them."
);
/// Gates that a session has accepted. Its kernels may call them until this is dropped, or what it was made of is revoked.
#[must_use = "kernels may call the gates as long as this is held"]
pub struct AcceptedGates {
    accepted: Reference,
    /// What was accepted is derived from it.
    _given: Gates,
}

impl AcceptedGates {
    /// Gives them up. The revocation says when no kernel of the session calls them any more.
    ///
    /// # Errors
    /// Where they have ended already.
    pub fn close(self) -> Result<Revocation, Error> {
        self.accepted.close()
    }
}

/// How much the kernel reads or writes at a time.
const PIECE_BYTES: usize = limits::MODULE_PIECE_BYTES_MAX;

/// Where the pieces of so much from an offset on begin.
fn offsets(offset: u64) -> impl Iterator<Item = u64> {
    (0_u64..).map(move |piece| offset.saturating_add(piece.saturating_mul(PIECE_BYTES as u64)))
}

/// The host memory of a module's window, or memory that a host half shares with host code, mapped. It stays mapped here when the module ends, and nobody else has it then.
pub struct ModuleHost(Shared);

impl ModuleHost {
    /// Makes memory that a host half shares with host code, which is given the descriptor: nobody can make it shorter or longer.
    ///
    /// # Errors
    /// Where the system has no memory for it.
    pub fn create(bytes: u64) -> io::Result<(Self, OwnedFd)> {
        let descriptor = bulkhead_ring::memory::create_shared(bytes)?;
        Ok((Self::of(descriptor.as_fd(), bytes)?, descriptor))
    }

    /// Maps memory that another process shares.
    ///
    /// # Errors
    /// Where it is shorter, or can be made shorter.
    pub fn of(descriptor: BorrowedFd<'_>, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Shared::map(descriptor, bytes).map(Self)
    }

    /// Where it is mapped.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.0.address())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// A word of it, at a multiple of 4, that kernels store to and load from at the same time.
    #[must_use]
    pub fn word(&self, offset: usize) -> Option<&AtomicU32> {
        self.0.atomic_u32(offset)
    }

    /// The same of 8 bytes, at a multiple of 8.
    #[must_use]
    pub fn wide(&self, offset: usize) -> Option<&AtomicU64> {
        self.0.atomic_u64(offset)
    }

    /// Posts a value for gates, which read it by `read_system` with the same number: two words at a multiple of 16 bytes, each
    /// with the number. False where they do not lie in it.
    pub fn post(&self, offset: usize, number: u32, value: u64) -> bool {
        let words = (self.wide(offset), offset.checked_add(8).and_then(|at| self.wide(at)));
        let (Some(first), Some(second)) = words else { return false };
        for (word, half) in [(first, value & LOW), (second, value >> 32)] {
            word.store(u64::from(number) << 32 | half, Ordering::Release);
        }
        true
    }

    /// What a gate has posted there by `post_system`, with its number; `None` while not all of it is there.
    #[must_use]
    pub fn message(&self, offset: usize) -> Option<(u32, u64)> {
        let low = self.wide(offset)?.load(Ordering::Acquire);
        let high = self.wide(offset.checked_add(8)?)?.load(Ordering::Acquire);
        let number = u32::try_from(low >> 32).ok()?;
        (low >> 32 == high >> 32).then_some((number, low & LOW | high << 32))
    }

    /// Copies bytes out of it, as kernels happen to leave them.
    ///
    /// # Panics
    /// Where they do not lie in it.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.bytes() && into.len() <= self.bytes() - offset, "beyond the host memory");
        self.0.read(offset, into);
    }

    /// Copies bytes into it.
    ///
    /// # Panics
    /// Where they do not lie in it.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset <= self.bytes() && from.len() <= self.bytes() - offset, "beyond the host memory");
        self.0.write(offset, from);
    }
}

impl ProtectedModule {
    /// Reads from the window, as kernels that run meanwhile happen to leave it. More than 64 KiB are read piece by piece.
    ///
    /// # Errors
    /// `invalidArgument` where that does not lie in the window.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        for (offset, piece) in offsets(offset).zip(into.chunks_mut(PIECE_BYTES)) {
            let (key, bytes) = (self.0.key(), u32::try_from(piece.len()).unwrap_or(u32::MAX));
            let data = self.0.session.inner.remote.call(move |context| async move {
                let module = rpc::gpu_protected_module::Client { client: context.any(key)? };
                let mut read = module.read_request();
                read.get().set_offset(offset);
                read.get().set_bytes(bytes);
                let response = read.send().promise.await.map_err(broken)?;
                let read = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
                Ok(read.get_data().map_err(broken)?.to_vec())
            })?;
            if data.len() != piece.len() {
                return Err(Error::new(ErrorCode::Internal, "the kernel has read another number of bytes"));
            }
            piece.copy_from_slice(&data);
        }
        Ok(())
    }

    /// Reads a word of the window.
    ///
    /// # Errors
    /// `invalidArgument` where it does not lie in the window.
    pub fn read_u64(&self, offset: u64) -> Result<u64, Error> {
        let mut word = [0; 8];
        self.read(offset, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes into the window. More than 64 KiB are written piece by piece.
    ///
    /// # Errors
    /// `invalidArgument` where that does not lie in the window.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        for (offset, piece) in offsets(offset).zip(data.chunks(PIECE_BYTES)) {
            let (key, piece) = (self.0.key(), piece.to_vec());
            self.0.session.inner.remote.call(move |context| async move {
                let module = rpc::gpu_protected_module::Client { client: context.any(key)? };
                let mut write = module.write_request();
                write.get().set_offset(offset);
                write.get().set_data(&piece);
                let response = write.send().promise.await.map_err(broken)?;
                answer(response.get().and_then(|r| r.get_result()).map_err(broken)?).map(|_| ())
            })?;
        }
        Ok(())
    }

    /// The host memory that the window ends with, mapped into this process: kernels reach it through the gates only, and what both
    /// store there the other sees. Variables of the gates that are `__managed__` lie in it.
    ///
    /// # Errors
    /// `notFound` where the gates have no such variables.
    pub fn host(&self) -> Result<ModuleHost, Error> {
        let key = self.0.key();
        let (bytes, token, socket) = self.0.session.inner.remote.call(move |context| async move {
            let module = rpc::gpu_protected_module::Client { client: context.any(key)? };
            let response = module.host_request().send().promise.await.map_err(broken)?;
            let host = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let token = descriptors::bytes(host.get_memory().map_err(broken)?);
            Ok((host.get_bytes(), token, context.connection.descriptor_socket.clone()))
        })?;
        let passed = descriptors::present(&socket, token)?;
        let unmapped =
            |error| Error::new(ErrorCode::OutOfMemory, format!("the module's host memory: {error}"));
        let descriptor = passed.first();
        let descriptor =
            descriptor.ok_or_else(|| Error::new(ErrorCode::Internal, "the kernel handed over no memory"))?;
        let length = usize::try_from(bytes).map_err(|_| Error::new(ErrorCode::OutOfMemory, "too large"))?;
        Shared::map(descriptor.as_fd(), length).map(ModuleHost).map_err(unmapped)
    }

    /// How many launches are in flight whose entries call its gates, whoever's they are: a host half looks at what gates leave
    /// for it while there are any, and sleeps otherwise.
    ///
    /// # Errors
    /// Where it has ended. `limitReached` where there is no place for one more descriptor; after the loss of an executor that may
    /// pass by itself.
    pub fn activity(&self) -> Result<Activity, Error> {
        let key = self.0.key();
        let (token, socket) = self.0.session.inner.remote.call(move |context| async move {
            let module = rpc::gpu_protected_module::Client { client: context.any(key)? };
            let response = module.activity_request().send().promise.await.map_err(broken)?;
            let activity = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let token = descriptors::bytes(activity.get_page().map_err(broken)?);
            Ok((token, context.connection.descriptor_socket.clone()))
        })?;
        let passed = descriptors::present(&socket, token)?;
        let page = passed.first();
        let page = page.ok_or_else(|| Error::new(ErrorCode::Internal, "the kernel handed over no page"))?;
        let unmapped = |error| Error::new(ErrorCode::OutOfMemory, format!("the activity page: {error}"));
        Activity::map(page.as_fd()).map_err(unmapped)
    }

    /// Its gates alone, to be given to others: by a [token](Gates::token), or by a [`Peer`](crate::Peer).
    ///
    /// # Errors
    /// Where it has ended.
    pub fn gates(&self) -> Result<Gates, Error> {
        self.gates_with_badge(0)
    }

    /// The same with 64 bits of the module's own, which its gates read (`bulkhead_badge`) wherever somebody calls them who has
    /// these, or what was derived from these: whose state a call is about, without asking the caller.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn gates_with_badge(&self, badge: u64) -> Result<Gates, Error> {
        let (session, key) = (self.0.session.clone(), self.0.key());
        self.0.session.inner.remote.call(move |context| async move {
            let module = rpc::gpu_protected_module::Client { client: context.any(key)? };
            let mut request = module.gates_request();
            request.get().set_badge(badge);
            let response = request.send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = created.get_gates().map_err(broken)?.client;
            Ok(Gates(Reference::hold(&session, &context, client)))
        })
    }
}

impl Gates {
    /// Ends the tokens that were made of these: nobody accepts them by one any more.
    ///
    /// # Errors
    /// Where the kernel is gone.
    pub fn drop_tokens(&self) -> Result<(), Error> {
        self.0.drop_tokens()
    }

    /// The same, to be given away and taken back by itself.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn derive(&self) -> Result<Self, Error> {
        let (session, key) = (self.0.session.clone(), self.0.key());
        self.0.session.inner.remote.call(move |context| async move {
            let gates = rpc::gpu_gates::Client { client: context.any(key)? };
            let response = gates.derive_request().send().promise.await.map_err(broken)?;
            let created = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = created.get_gates().map_err(broken)?.client;
            Ok(Self(Reference::hold(&session, &context, client)))
        })
    }
}

impl Session {
    /// Makes a protected module that was named when the kernel started (`bulkhead serve --module`), by the token that was
    /// written for it. It ends with this session, which is charged its window. With how many bytes that has, all zero.
    ///
    /// # Errors
    /// `notFound` where the token is no module's, `unavailable` while another session has it, `outOfMemory` where its
    /// window does not fit into what this session may use.
    pub fn claim_module(&self, token: SturdyToken) -> Result<(ProtectedModule, u64), Error> {
        let session = self.clone();
        self.inner.remote.call(move |context| async move {
            let mut claim = context.session()?.claim_module_request();
            token.write(claim.get().init_token());
            let response = claim.send().promise.await.map_err(broken)?;
            let claimed = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = claimed.get_module().map_err(broken)?.client;
            let module = ProtectedModule(Reference::hold(&session, &context, client));
            Ok((module, claimed.get_bytes()))
        })
    }

    /// [Accepts](Session::accept_gates) the gates that a token stands for.
    ///
    /// # Errors
    /// `notFound` where the token is not good, or not any more; `invalidArgument` where it stands for something else.
    pub fn accept_gates_of(&self, token: SturdyToken) -> Result<AcceptedGates, Error> {
        match self.restore(token)? {
            Received::Gates(gates) => self.accept_gates(gates),
            Received::Share(_)
            | Received::Program(_)
            | Received::Peer(_)
            | Received::Fence(_)
            | Received::Signal(_)
            | Received::Module(_) => {
                Err(Error::new(ErrorCode::InvalidArgument, "the token does not stand for gates"))
            }
        }
    }

    /// Lets what is loaded from now on call gates, which know this session by its [number](Session::number). When they are revoked, launches of entries that call them are refused with
    /// `revoked`, and work of this session that runs on beyond the kernel's deadline ends the session.
    ///
    /// # Errors
    /// `revoked` where they were taken back, `invalidArgument` where this session has accepted gates of the same module, or
    /// of the same name.
    pub fn accept_gates(&self, gates: Gates) -> Result<AcceptedGates, Error> {
        let (session, key) = (self.clone(), gates.0.key());
        let accepted = self.inner.remote.call(move |context| async move {
            let mut accept = context.session()?.accept_gates_request();
            accept.get().set_gates(rpc::gpu_gates::Client { client: context.any(key)? });
            let response = accept.send().promise.await.map_err(broken)?;
            let accepted = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
            let client = accepted.get_gates().map_err(broken)?.client;
            Ok(Reference::hold(&session, &context, client))
        })?;
        Ok(AcceptedGates { accepted, _given: gates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_there_once_both_of_its_words_have_its_number() {
        let (memory, _) = ModuleHost::create(4096).unwrap();
        assert_eq!(memory.message(32), Some((0, 0)), "nothing was posted");
        let value = 0x0123_4567_89AB_CDEF;
        assert!(memory.post(32, u32::MAX, value));
        assert_eq!(memory.message(32), Some((u32::MAX, value)));
        // As `tagged` of the header lays them out.
        assert_eq!(memory.wide(32).unwrap().load(Ordering::Relaxed), 0xFFFF_FFFF_89AB_CDEF);
        assert_eq!(memory.wide(40).unwrap().load(Ordering::Relaxed), 0xFFFF_FFFF_0123_4567);
        for half in [32, 40] {
            assert!(memory.post(32, 7, value));
            memory.wide(half).unwrap().store(8 << 32, Ordering::Relaxed);
            assert_eq!(memory.message(32), None, "half of the next is there");
        }
        // The words come in any order.
        assert!(memory.post(32, 7, value));
        for half in [40, 32] {
            memory.wide(half).unwrap().store(9 << 32 | 5, Ordering::Relaxed);
        }
        assert_eq!(memory.message(32), Some((9, 5 << 32 | 5)));
        for beyond in [4092, 4096, 4, usize::MAX - 7, usize::MAX] {
            assert!(!memory.post(beyond, 1, 1), "{beyond}");
            assert_eq!(memory.message(beyond), None, "{beyond}");
        }
        assert!(!memory.post(4088, 1, 1), "its second word is beyond");
        assert_eq!(memory.wide(4088).unwrap().load(Ordering::Relaxed), 0);
    }
}
