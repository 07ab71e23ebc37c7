//! A session's images: offered, sent, compiled, loaded, unloaded.

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use bulkhead_caps::{Access, Kind, Need, ObjectId};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle, ModuleData, Stray, limits};
use rustix::fs::SealFlags;
use tokio::time::Instant;

use super::{Charge, Phase, Session, account::CompileTime};
use crate::{
    books::{Code, Loaded, Thing, What},
    compiler::{Compiled, Compiler, FRAME_BYTES},
    descriptors::Token,
    executor::{Answer, EntryInfo, length},
    held::Held,
    image::Image,
    refusal::internal,
};

/// An image that a client wants to send.
pub(super) struct Offer {
    bytes: u64,
    file: Option<OwnedFd>,
    expires: Instant,
    charges: OfferCharges,
}

/// What an offered image is charged: itself, its descriptor, its bytes.
pub(super) struct OfferCharges {
    _charges: [Charge; 3],
}

/// Descriptors that compiling takes: the compile process's answer, and what is made of it.
const COMPILE_DESCRIPTORS: u64 = 2;
/// What the kernel needs of an answer while it reads that, and makes a text of it.
const COMPILE_BYTES: u64 = 2 * (limits::PTX_BYTES_MAX + FRAME_BYTES);

/// How much code a text may compile to.
fn code_bytes_max(text_bytes: u64) -> u64 {
    text_bytes.saturating_mul(4).saturating_add(1 << 20)
}

/// What loading an image is charged.
struct Loading {
    image: Charge,
    descriptors: Charge,
    kernel: Charge,
    time: CompileTime,
}

impl Session {
    /// What an image of this size is charged that may be sent now.
    pub(super) fn may_offer(&self, bytes: u64) -> Result<OfferCharges, Error> {
        self.live()?;
        if bytes == 0 || bytes > limits::IMAGE_BYTES_MAX {
            let message = format!("an image has 1 to {} bytes, not {bytes}", limits::IMAGE_BYTES_MAX);
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        self.expire_offers();
        let charges = [
            self.charge(Resource::Uploads, 1)?,
            self.charge(Resource::Descriptors, 1)?,
            self.charge(Resource::KernelBytes, bytes)?,
        ];
        Ok(OfferCharges { _charges: charges })
    }

    /// Forgets images that were offered and did not come, or were not loaded, in time.
    pub(super) fn expire_offers(&self) {
        let now = Instant::now();
        self.offers.borrow_mut().retain(|_, offer| offer.expires > now);
    }

    /// Notes that an image was offered under this token.
    pub(super) fn offer(&self, token: Token, bytes: u64, charges: OfferCharges) {
        let offer = Offer { bytes, file: None, expires: self.offer_expires(), charges };
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

    /// Compiles and loads an image that was sent; the second result is what its client needs to know of its variables.
    pub(crate) async fn load_image(
        self: Rc<Self>,
        token: Token,
        stray: Stray,
        compiler: &Compiler,
    ) -> Result<(Image, ModuleData), Error> {
        self.live()?;
        let offer = self.offers.borrow_mut().remove(&token);
        let sent = offer.and_then(|offer| Some((offer.file?, offer.charges)));
        let (image, offered) = sent.ok_or_else(|| {
            Error::new(ErrorCode::NotFound, "no image was sent with this token")
                .remedy("send it over the descriptor socket first; a token is good once")
        })?;
        let charge = self.charge(Resource::Images, 1)?;
        // One image of a session at a time, so that none takes all places of the compiler.
        let turn = self.loading.lock().await;
        let mut loading = Loading {
            image: charge,
            descriptors: self.charge(Resource::Descriptors, COMPILE_DESCRIPTORS)?,
            kernel: self.charge(Resource::KernelBytes, COMPILE_BYTES)?,
            time: self.compile_time()?,
        };
        let mut phase = self.phase.subscribe();
        let architecture = self.incarnation().info.architecture;
        let (gates, callable) = self.callable();
        let mut compiled = tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase != Phase::Open) => {
                self.live()?;
                return Err(internal("a session is neither open nor over"));
            }
            compiled = compiler.compile(&image, (architecture, stray), &gates, loading.time.spending()) => compiled?,
        };
        drop((image, offered));
        // One descriptor stays, and the text.
        loading.descriptors.resize(1)?;
        loading.kernel.resize(compiled.bytes.saturating_add(compiled.data.initial.len() as u64))?;
        let data = std::mem::take(&mut compiled.data);
        let loaded = self.load(compiled, loading).await;
        let held = loaded.map_err(|error| {
            if self.callable().1 == callable {
                return error;
            }
            // It was compiled for others: what the verifier says of that helps nobody.
            let message = "gates were taken back or accepted while the image was compiled";
            Error::new(ErrorCode::Revoked, message).remedy("load it again")
        })?;
        drop(turn);
        Ok((Image::new(held.0, held.1), data))
    }

    async fn load(
        self: &Rc<Self>,
        compiled: Compiled,
        loading: Loading,
    ) -> Result<(Held, Vec<(Handle, EntryInfo)>), Error> {
        let _change = self.change()?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        // What compiles has yet to be seen; what is not needed goes back.
        let code_bytes_max = code_bytes_max(compiled.bytes);
        let code_charge = self.charge(Resource::CodeBytes, code_bytes_max)?;
        let Loading { image, descriptors, kernel, time } = loading;
        let text = compiled
            .text
            .try_clone()
            .map_err(|error| internal(format!("a descriptor cannot be copied: {error}")))?;
        let code = Code {
            handle: Cell::new(None),
            text,
            entries: RefCell::default(),
            state: Cell::new(Loaded::No),
            local_bytes: Cell::new(0),
            charges: RefCell::new(vec![image, descriptors, kernel, code_charge]),
        };
        let thing = Thing::new(Rc::downgrade(self), What::Code(code));
        let count = u64::from(compiled.entries);
        let (handle, object, thing) = self.books().create(self.owner, Kind::Image, count, thing)?;
        capability.keep();
        self.objects.borrow_mut().insert(object);
        // From here on everything goes when this does.
        let held = Held::new(Rc::clone(self), handle);
        let What::Code(code) = &thing.what else { return Err(internal("code is something else")) };
        code.handle.set(Some(handle));
        let capabilities = self.charge(Resource::Capabilities, count)?;
        let mut entries = Vec::new();
        for offset in 0..count {
            let need = Need { kind: Kind::Entry, access: Access::Read, offset, bytes: 1 };
            match self.books().derive(self.owner, handle, self.owner, need) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    // Those that were made are refunded when they go.
                    drop(capabilities);
                    self.charge(Resource::Capabilities, entries.len() as u64)?.keep();
                    return Err(error);
                }
            }
        }
        capabilities.keep();
        let loaded = self.ask(vec![compiled.text], |request| {
            let mut load = request.init_load_image();
            self.write_name(load.reborrow().init_name(), handle);
            load.set_code_bytes_max(code_bytes_max);
            let mut list = load.init_entries(length(entries.len()));
            for (at, entry) in (0u32..).zip(&entries) {
                entry.write(list.reborrow().get(at));
            }
        });
        let loaded = match loaded.await? {
            Answer::Loaded(loaded)
                if loaded.entries.len() == entries.len() && loaded.code_bytes <= code_bytes_max =>
            {
                loaded
            }
            other => return Err(self.nonsense(&other)),
        };
        code.state.set(Loaded::Yes);
        self.device.count_image(loaded.origin);
        time.spend(Duration::from_millis(u64::from(loaded.compile_ms)));
        if let Some(code_charge) = code.charges.borrow_mut().last_mut() {
            code_charge.resize(loaded.code_bytes)?;
        }
        let infos = loaded.entries;
        // The device takes it at the first launch, which nobody can ask for yet.
        let thread_bytes = infos.iter().map(|info| u64::from(info.local_bytes)).max().unwrap_or(0);
        let local_bytes = thread_bytes.saturating_mul(self.incarnation().info.threads());
        self.settle_local(local_bytes)?;
        code.local_bytes.set(local_bytes);
        let entries: Vec<_> = entries.into_iter().zip(infos).collect();
        code.entries.borrow_mut().clone_from(&entries);
        held.look()?;
        Ok((held, entries))
    }

    /// Charges the local memory of whichever image needs most, of those that are loaded and one more.
    pub(super) fn settle_local(&self, more: u64) -> Result<(), Error> {
        let each = |thing: &Rc<Thing>| match &thing.what {
            What::Code(code) if code.state.get() != Loaded::No => code.local_bytes.get(),
            What::Code(_)
            | What::Memory(_)
            | What::Host { .. }
            | What::Point(_)
            | What::Program
            | What::Peer
            | What::Module(_) => 0,
        };
        let needed = self.things().iter().map(each).max().unwrap_or(0).max(more);
        let mut local = self.local.borrow_mut();
        match &mut *local {
            Some(charge) => charge.resize(needed),
            None if needed == 0 => Ok(()),
            None => {
                *local = Some(self.charge(Resource::LocalBytes, needed)?);
                Ok(())
            }
        }
    }

    /// Allows launches of an entry with this much dynamic shared memory.
    pub(crate) async fn allow_dynamic_shared(self: Rc<Self>, entry: Handle, bytes: u32) -> Result<(), Error> {
        self.live()?;
        self.books().is_entry(self.owner, entry)?;
        let allowed = self.ask(Vec::new(), |request| {
            let mut allow = request.init_allow_dynamic_shared();
            self.write_name(allow.reborrow().init_name(), entry);
            allow.set_bytes(bytes);
        });
        self.done(&allowed.await?)?;
        let mut allowed = self.allowed.borrow_mut();
        let most = allowed.entry(entry).or_default();
        *most = bytes.max(*most);
        Ok(())
    }

    /// Has an image unloaded that nobody names and of which nothing is running any more.
    pub(crate) fn unload(thing: &Rc<Thing>, object: ObjectId) {
        let Some(session) = thing.session.upgrade() else { return };
        let What::Code(code) = &thing.what else { return };
        // The end of a session takes its images along.
        let (Some(handle), Loaded::Yes, Ok(())) = (code.handle.get(), code.state.get(), session.live())
        else {
            return;
        };
        code.state.set(Loaded::Unloading);
        let thing = Rc::clone(thing);
        tokio::task::spawn_local(async move {
            let unloaded = session.unloaded(handle).await;
            let What::Code(code) = &thing.what else { return };
            match unloaded {
                Ok(()) => {
                    code.state.set(Loaded::No);
                    session.books().may_give_back(object);
                }
                // It stays charged: the executor may still hold it.
                Err(error) if session.live().is_ok() => session.books().expect::<()>(Err(error), "unload"),
                Err(_) => {}
            }
        });
    }

    async fn unloaded(&self, image: Handle) -> Result<(), Error> {
        loop {
            let unloaded = self.ask(Vec::new(), |request| {
                self.write_name(request.init_unload_image(), image);
            });
            match unloaded.await.and_then(|answer| self.done(&answer)) {
                Err(error) if error.code == ErrorCode::TimedOut => {
                    tracing::info!(session = self.id, %error, "an image waits for running work");
                    tokio::time::sleep(self.limits.second).await;
                }
                answered => return answered,
            }
        }
    }
}
