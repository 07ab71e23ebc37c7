//! A session's images: offered, written, compiled, loaded, unloaded.
//!
//! The kernel makes the memory that an image travels in, of the size that was offered, and the client writes and seals
//! it: no descriptor comes from a client.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use bulkhead_caps::{Access, Kind, Need, ObjectId};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle, ModuleData, Stray, limits};
use rustix::fs::{MemfdFlags, SealFlags};
use tokio::time::Instant;

use crate::{
    compile::process::{Compiled, Compiler, FRAME_BYTES, Way},
    executor_proxy::{Answer, EntryInfo, length},
    ledger::Charge,
    refusal::internal,
    registry::{Code, Loaded, What},
    session::{
        Object, Phase, Session,
        account::CompileTime,
        code::offer::{Offer, OfferCharges},
        reference::Reference,
    },
    transport::descriptors::{Parcel, Token},
};

/// Memory for an image: as long as that, and it can neither shrink nor grow. One description writes it and is the
/// client's; the other one reads it and is the kernel's alone, so that the client can move no position in it and take
/// no lease that others would have to wait for.
fn memory_for(bytes: u64) -> io::Result<(OwnedFd, OwnedFd)> {
    let writes = rustix::fs::memfd_create("bulkhead-image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&writes, bytes)?;
    rustix::fs::fcntl_add_seals(&writes, SealFlags::SHRINK | SealFlags::GROW)?;
    // Nobody else has it yet, so nobody holds this up.
    let reads = File::open(format!("/proc/self/fd/{}", writes.as_fd().as_raw_fd()))?;
    Ok((writes, reads.into()))
}

/// Descriptors that compiling takes: the compile process's answer, and what is made of it.
const COMPILE_DESCRIPTORS: u64 = 2;
/// What the kernel needs of an answer while it reads that, and makes a text of it.
const COMPILE_BYTES: u64 = 2 * (limits::PTX_BYTES_MAX + FRAME_BYTES);

/// How much code a text may become. The software GPU keeps it as operations and immediates, each of which is many times
/// as long as what it was written as.
fn code_bytes_max(text_bytes: u64, backend: &str) -> u64 {
    let times = if backend == "software" { 48 } else { 4 };
    text_bytes.saturating_mul(times).saturating_add(1 << 20)
}

/// What loading an image is charged.
struct Loading {
    image: Charge,
    descriptors: Charge,
    kernel: Charge,
    time: CompileTime,
}

/// What was loaded, for its client.
pub(crate) enum NewImage {
    /// With all its entries.
    Whole(Reference, Vec<(Handle, Rc<EntryInfo>)>),
    /// Entries and variables are asked for by name.
    ByName(Reference),
}

impl Session {
    /// Makes memory for an image of this size: what its client is to get of it, and what is to be noted under the token
    /// that it gets it for.
    pub(crate) fn make_offer(&self, bytes: u64) -> Result<(Parcel, Offer), Error> {
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
        let on_the_way = self.charge(Resource::Descriptors, 1)?;
        let (writes, image) = memory_for(bytes).map_err(|error| {
            let message = format!("there is no memory for the image: {error}");
            Error::new(ErrorCode::OutOfMemory, message).remedy("try again later")
        })?;
        let charges = OfferCharges { _charges: charges };
        let expires = Instant::now() + self.limits.seconds(limits::OFFER_SECONDS);
        Ok((self.parcel(vec![writes], on_the_way), Offer { image, expires, charges }))
    }

    /// Forgets images that were offered and not loaded in time.
    pub(crate) fn expire_offers(&self) {
        let now = Instant::now();
        self.offers.borrow_mut().retain(|_, offer| offer.expires > now);
    }

    /// Notes what was offered under this token.
    pub(crate) fn offer(&self, token: Token, offer: Offer) {
        self.offers.borrow_mut().insert(token, offer);
    }

    /// Compiles and loads an image that was written and sealed; the second result is what its client needs to know of its variables.
    pub(crate) async fn load_image(
        self: Rc<Self>,
        token: Token,
        stray: Stray,
        compiler: &Compiler,
    ) -> Result<(NewImage, ModuleData), Error> {
        self.live()?;
        let offer = self.offers.borrow_mut().remove(&token);
        let Some(Offer { image, charges: offered, .. }) = offer else {
            let error = Error::new(ErrorCode::NotFound, "no image was offered with this token");
            return Err(error.remedy("offer it first; a token is good once"));
        };
        // Only its client seals it: a seal against writing waits until nobody has pinned the memory.
        let seals = rustix::fs::fcntl_get_seals(&image).map_err(|error| internal(error.to_string()))?;
        if !seals.contains(SealFlags::WRITE) {
            let message = format!("the image can still change: its memory is sealed against {seals:?} only");
            let error = Error::new(ErrorCode::InvalidArgument, message);
            return Err(error.remedy("offer it again, unmap the memory and seal it before it is loaded"));
        }
        let image = File::from(image);
        if self.runs_machine_code() {
            return self.load_native(image, offered).await;
        }
        let charge = self.charge(Resource::Images, 1)?;
        // One image of a session at a time, so that none takes all places of the compiler.
        let turn = self.loading.lock().await;
        let mut phase = self.phase.subscribe();
        let architecture = self.incarnation().info.architecture;
        let (gates, callable) = self.callable();
        let compiling = async {
            let _place = compiler.place(&self.party).await?;
            // Only now: those that wait need none of it.
            let loading = Loading {
                image: charge,
                descriptors: self.charge(Resource::Descriptors, COMPILE_DESCRIPTORS)?,
                kernel: self.charge(Resource::KernelBytes, COMPILE_BYTES)?,
                time: self.compile_time()?,
            };
            let way = Way { architecture, stray };
            let compiled = compiler.compile(&image, way, &gates, loading.time.spending()).await?;
            Ok::<_, Error>((loading, compiled))
        };
        let (mut loading, mut compiled) = tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase != Phase::Open) => {
                self.live()?;
                return Err(internal("a session is neither open nor over"));
            }
            compiled = compiling => compiled?,
        };
        drop((image, offered));
        // One descriptor stays, and the text.
        loading.descriptors.resize(1)?;
        loading.kernel.resize(compiled.bytes.saturating_add(compiled.data.message_bytes() as u64))?;
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
        Ok((NewImage::Whole(held.0, held.1), data))
    }

    async fn load(
        self: &Rc<Self>,
        compiled: Compiled,
        loading: Loading,
    ) -> Result<(Reference, Vec<(Handle, Rc<EntryInfo>)>), Error> {
        let _change = self.change()?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        // What compiles has yet to be seen; what is not needed goes back.
        let code_bytes_max = code_bytes_max(compiled.text_bytes, &self.incarnation().info.backend);
        let code_charge = self.charge(Resource::CodeBytes, code_bytes_max)?;
        let verifying = compiled.bytes.saturating_mul(limits::VERIFY_BYTES_PER_BYTE);
        let verifying = self.charge(Resource::KernelBytes, verifying)?;
        let Loading { image, descriptors, kernel, time } = loading;
        let text = compiled
            .text
            .try_clone()
            .map_err(|error| internal(format!("a descriptor cannot be copied: {error}")))?;
        let code = Code {
            handle: Cell::new(None),
            text: Some(text),
            entries: RefCell::default(),
            state: Cell::new(Loaded::No),
            local_bytes: Cell::new(0),
            charges: RefCell::new(vec![image, descriptors, kernel, code_charge]),
        };
        let thing = Object::new(Rc::downgrade(self), What::Code(code));
        let count = u64::from(compiled.entries);
        let (handle, object, thing) = self.registry().create(self.owner, Kind::Image, count, thing)?;
        capability.keep();
        self.objects.borrow_mut().insert(object);
        // From here on everything goes when this does.
        let held = Reference::new(Rc::clone(self), handle);
        let What::Code(code) = &thing.what else { return Err(internal("code is something else")) };
        code.handle.set(Some(handle));
        let capabilities = self.charge(Resource::Capabilities, count)?;
        let mut entries = Vec::new();
        for offset in 0..count {
            let need = Need { kind: Kind::Entry, access: Access::Read, offset, bytes: 1 };
            match self.registry().derive(self.owner, handle, self.owner, need) {
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
            load.set_local_bytes_max(self.local_bytes_max());
            let mut list = load.init_entries(length(entries.len()));
            for (at, entry) in (0u32..).zip(&entries) {
                entry.write(list.reborrow().get(at));
            }
        });
        let loaded = loaded.await;
        self.note_local();
        let loaded = match loaded? {
            Answer::Loaded(loaded)
                if loaded.entries.len() == entries.len() && loaded.code_bytes <= code_bytes_max =>
            {
                loaded
            }
            other => return Err(self.nonsense(&other)),
        };
        drop(verifying);
        code.state.set(Loaded::Yes);
        self.device.executor.count_image(loaded.origin);
        time.spend(Duration::from_millis(u64::from(loaded.compile_ms)));
        if let Some(code_charge) = code.charges.borrow_mut().last_mut() {
            code_charge.resize(loaded.code_bytes)?;
        }
        let infos = loaded.entries;
        // The device has it already, and `local_bytes_max` said that there was room.
        let thread_bytes = infos.iter().map(|info| info.local_bytes).max().unwrap_or(0);
        self.device.executor.note_local(&self.incarnation().info, thread_bytes);
        let local_bytes = u64::from(thread_bytes).saturating_mul(self.incarnation().info.threads());
        self.settle_local(local_bytes)?;
        code.local_bytes.set(local_bytes);
        let entries: Vec<_> = entries.into_iter().zip(infos.into_iter().map(Rc::new)).collect();
        code.entries.borrow_mut().clone_from(&entries);
        held.look()?;
        Ok((held, entries))
    }

    /// Takes note of what the driver keeps for local memory: an image that was refused may have made it grow.
    fn note_local(&self) {
        let incarnation = self.incarnation();
        self.device.executor.note_local(&incarnation.info, incarnation.link.local_bytes());
    }

    /// How many bytes of local memory a thread of an image may need, as far as is left of what the session and the device have.
    fn local_bytes_max(&self) -> u32 {
        self.note_local();
        let info = &self.incarnation().info;
        let charged = self.local.borrow().as_ref().map_or(0, Charge::amount);
        let left = self.device.executor.ledger.borrow().left(self.account, Resource::LocalBytes);
        let bytes = charged.saturating_add(left).min(self.device.executor.local_bytes_max(info));
        u32::try_from(bytes / info.threads().max(1)).unwrap_or(u32::MAX)
    }

    /// Charges the local memory of whichever image needs most, of those that are loaded and one more.
    pub(crate) fn settle_local(&self, more: u64) -> Result<(), Error> {
        let each = |thing: &Rc<Object>| match &thing.what {
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
        self.registry().is_entry(self.owner, entry)?;
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
    pub(crate) fn unload(thing: &Rc<Object>, object: ObjectId) {
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
                    session.registry().may_give_back(object);
                }
                Err(error) if session.live().is_ok() && session.device.executor.is_isolated() => {
                    session.end(&error)
                }
                // It stays charged: the executor may still hold it.
                Err(error) if session.live().is_ok() => session.registry().expect::<()>(Err(error), "unload"),
                Err(_) => {}
            }
        });
    }

    async fn unloaded(&self, image: Handle) -> Result<(), Error> {
        let mut pauses = self.pauses("an image waits for running work");
        loop {
            let unloaded = self.ask(Vec::new(), |request| {
                self.write_name(request.init_unload_image(), image);
            });
            match unloaded.await.and_then(|answer| self.done(&answer)) {
                Err(error) if error.code == ErrorCode::TimedOut => pauses.pause().await,
                answered => return answered,
            }
        }
    }
}
