//! A session's images: offered, sent, compiled, loaded, unloaded.

use std::{os::fd::OwnedFd, rc::Rc};

use bulkhead_caps::Kind;
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use rustix::fs::SealFlags;
use tokio::time::Instant;

use super::{Object, Phase, Session};
use crate::{
    compiler::{Compiled, Compiler},
    descriptors::Token,
    executor::{Answer, EntryInfo, length},
    image::Image,
    refusal::{self, internal},
};

/// An image that a client wants to send.
pub(super) struct Offer {
    bytes: u64,
    file: Option<OwnedFd>,
    expires: Instant,
}

impl Session {
    /// Whether an image of this size may be sent now.
    pub(crate) fn may_offer(&self, bytes: u64) -> Result<(), Error> {
        self.live()?;
        if bytes == 0 || bytes > limits::IMAGE_BYTES_MAX {
            let message = format!("an image has 1 to {} bytes, not {bytes}", limits::IMAGE_BYTES_MAX);
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        let now = Instant::now();
        let mut offers = self.offers.borrow_mut();
        offers.retain(|_, offer| offer.expires > now);
        if offers.len() >= limits::UPLOADS_MAX {
            let message = format!("{} images were offered and not loaded", limits::UPLOADS_MAX);
            return Err(
                Error::new(ErrorCode::LimitReached, message).remedy("load them, or wait until they expire")
            );
        }
        Ok(())
    }

    /// Notes that an image was offered under this token.
    pub(crate) fn offer(&self, token: Token, bytes: u64) {
        let offer = Offer { bytes, file: None, expires: self.offer_expires() };
        self.offers.borrow_mut().insert(token, offer);
    }

    fn offer_expires(&self) -> Instant {
        Instant::now() + self.limits.seconds(limits::TOKEN_SECONDS)
    }

    /// Takes the descriptor of an offered image. Its content can never change again.
    pub(crate) fn receive_image(&self, token: Token, file: OwnedFd) -> Result<(), Error> {
        self.live()?;
        let invalid = |message: String| Error::new(ErrorCode::InvalidArgument, message);
        let seals = rustix::fs::fcntl_get_seals(&file)
            .map_err(|error| invalid(format!("the descriptor is no memfd: {error}")))?;
        if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW) {
            return Err(invalid(format!("the memfd is sealed against {seals:?} only")));
        }
        let bytes = rustix::fs::fstat(&file)
            .map_err(|error| invalid(format!("the memfd has no size: {error}")))?
            .st_size
            .cast_unsigned();
        let mut offers = self.offers.borrow_mut();
        let offer = offers.get_mut(&token).ok_or_else(|| invalid("no image was offered".into()))?;
        if bytes == 0 || bytes > offer.bytes {
            return Err(invalid(format!("{bytes} bytes were sent and {} offered", offer.bytes)));
        }
        offer.file = Some(file);
        offer.expires = self.offer_expires();
        Ok(())
    }

    /// Compiles and loads an image that was sent.
    pub(crate) async fn load_image(
        self: Rc<Self>,
        token: Token,
        compiler: &Compiler,
    ) -> Result<Image, Error> {
        self.live()?;
        let offer = self.offers.borrow_mut().remove(&token);
        let image = offer.and_then(|offer| offer.file).ok_or_else(|| {
            Error::new(ErrorCode::NotFound, "no image was sent with this token")
                .remedy("send it over the descriptor socket first; a token is good once")
        })?;
        let charge = self.charge(Resource::Images, 1)?;
        // One image of a session at a time, so that none takes all places of the compiler.
        let turn = self.loading.lock().await;
        let mut phase = self.phase.subscribe();
        let compiled = tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase != Phase::Open) => {
                self.live()?;
                return Err(internal("a session is neither open nor over"));
            }
            compiled = compiler.compile(&image, self.incarnation.info.architecture) => compiled?,
        };
        drop(image);
        let (handle, entries) = self.load(compiled).await?;
        drop(turn);
        charge.keep();
        Ok(Image::new(Rc::clone(&self), handle, entries))
    }

    async fn load(&self, compiled: Compiled) -> Result<(Handle, Vec<(Handle, EntryInfo)>), Error> {
        self.live()?;
        let capabilities = self.charge(Resource::Capabilities, 1 + u64::from(compiled.entries))?;
        let (image, entries) = self.name_image(compiled.entries)?;
        let loaded = self.ask(vec![compiled.text], |request| {
            let mut load = request.init_load_image();
            self.write_name(load.reborrow().init_name(), image);
            let mut list = load.init_entries(length(entries.len()));
            for (at, entry) in (0u32..).zip(&entries) {
                entry.write(list.reborrow().get(at));
            }
        });
        let loaded = loaded.await.and_then(|answer| match answer {
            Answer::Loaded(infos) if infos.len() == entries.len() => Ok(infos),
            other => Err(self.nonsense(&other)),
        });
        match loaded.and_then(|infos| self.live().map(|()| infos)) {
            Ok(infos) => {
                capabilities.keep();
                Ok((image, entries.into_iter().zip(infos).collect()))
            }
            Err(error) => {
                self.unname_image(image)?;
                Err(error)
            }
        }
    }

    /// Makes the handles of an image and its entries; all of them or none.
    fn name_image(&self, entries: u32) -> Result<(Handle, Vec<Handle>), Error> {
        let mut table = self.table.borrow_mut();
        let mut named = Vec::new();
        for _ in 0..entries {
            match table.insert(Kind::Entry, Object::Entry) {
                Ok(handle) => named.push(handle),
                Err(error) => {
                    for handle in named {
                        table.remove(handle).map_err(refusal::table)?;
                    }
                    return Err(refusal::table(error));
                }
            }
        }
        match table.insert(Kind::Image, Object::Image(named.clone())) {
            Ok(image) => Ok((image, named)),
            Err(error) => {
                for handle in named {
                    table.remove(handle).map_err(refusal::table)?;
                }
                Err(refusal::table(error))
            }
        }
    }

    /// Takes the handles of an image and its entries back; answers how many there were.
    fn unname_image(&self, image: Handle) -> Result<u64, Error> {
        let mut table = self.table.borrow_mut();
        let entries = match table.get(image, Kind::Image).map_err(refusal::table)? {
            Object::Image(entries) => entries.clone(),
            Object::Buffer(_) | Object::HostBuffer(_) | Object::Entry => {
                return Err(internal("an image is something else"));
            }
        };
        table.remove(image).map_err(refusal::table)?;
        for entry in &entries {
            table.remove(*entry).map_err(refusal::table)?;
        }
        Ok(1 + entries.len() as u64)
    }

    /// Allows launches of an entry with this much dynamic shared memory.
    pub(crate) async fn allow_dynamic_shared(self: Rc<Self>, entry: Handle, bytes: u32) -> Result<(), Error> {
        self.live()?;
        self.table.borrow().get(entry, Kind::Entry).map_err(refusal::table)?;
        let allowed = self.ask(Vec::new(), |request| {
            let mut allow = request.init_allow_dynamic_shared();
            self.write_name(allow.reborrow().init_name(), entry);
            allow.set_bytes(bytes);
        });
        self.done(&allowed.await?)
    }

    /// Unloads an image of which nothing is running any more. An error means that it must be tried again.
    pub(super) async fn unload(&self, image: Handle) -> Result<(), Error> {
        let unloaded = self.ask(Vec::new(), |request| {
            self.write_name(request.init_unload_image(), image);
        });
        match unloaded.await.and_then(|answer| self.done(&answer)) {
            Ok(()) => {
                match self.unname_image(image) {
                    Ok(capabilities) => {
                        self.refund(Resource::Capabilities, capabilities);
                        self.refund(Resource::Images, 1);
                    }
                    Err(error) => self.expect(Err(error), "unload"),
                }
                Ok(())
            }
            Err(error) if error.code == ErrorCode::TimedOut => {
                tracing::info!(session = self.id, %error, "an image waits for running work");
                Err(error)
            }
            Err(error) => {
                // It stays charged: the executor may still hold it.
                self.expect(Err(error), "unload");
                Ok(())
            }
        }
    }
}
