//! Images of isolated sessions: given to the driver as they are, and their entries asked for by name.
//!
//! The kernel reads nothing of them. What an executor says of an entry is its session's own business: whatever it claims,
//! launches reach nothing but that executor.

use std::{cell::Cell, cell::RefCell, fs::File, rc::Rc};

use bulkhead_caps::{Access, Kind, Need};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle, ModuleData, bulkhead_capnp::Question, limits};

use crate::{
    executor_proxy::{Answer, EntryInfo, Written, length},
    ledger::Charge,
    principals::Counted,
    refusal::internal,
    registry::{Code, Loaded, What},
    session::{
        Object, Session,
        code::{images::NewImage, offer::OfferCharges},
        reference::Reference,
    },
};

/// What the kernel keeps of a parameter, and of all of an entry's at most.
const PARAMETER_BYTES: u64 = size_of::<(u32, u32)>() as u64;
const PARAMETERS_BYTES_MAX: u64 = 4096 * PARAMETER_BYTES;

impl Session {
    /// Whether its images go to the driver as they are.
    pub(crate) fn runs_machine_code(&self) -> bool {
        self.device.executor.is_isolated() && self.incarnation().runs_machine_code()
    }

    /// Has its executor load an image that was written and sealed.
    pub(crate) async fn load_native(
        self: &Rc<Self>,
        image: File,
        offered: OfferCharges,
    ) -> Result<(NewImage, ModuleData), Error> {
        let bytes = image.metadata().map_err(|error| internal(format!("an image's length: {error}")))?.len();
        let _change = self.change()?;
        let charges = vec![self.charge(Resource::Images, 1)?, self.charge(Resource::CodeBytes, bytes)?];
        let capability = self.charge(Resource::Capabilities, 1)?;
        let code = Code {
            handle: Cell::new(None),
            text: None,
            entries: RefCell::default(),
            state: Cell::new(Loaded::No),
            local_bytes: Cell::new(0),
            charges: RefCell::new(charges),
        };
        let thing = Object::new(Rc::downgrade(self), What::Code(code));
        let count = u64::from(limits::NATIVE_ENTRIES_MAX);
        let (handle, object, thing) = self.registry().create(self.owner, Kind::Image, count, thing)?;
        capability.keep();
        self.objects.borrow_mut().insert(object);
        // From here on everything goes when this does.
        let held = Reference::new(Rc::clone(self), handle);
        let What::Code(code) = &thing.what else { return Err(internal("code is something else")) };
        code.handle.set(Some(handle));
        let loaded = self.ask(vec![image.into()], |request| {
            self.write_name(request.init_load_native(), handle);
        });
        let Answer::Loaded(loaded) = loaded.await? else {
            return Err(internal("the executor does not say what it has loaded"));
        };
        drop(offered);
        code.state.set(Loaded::Yes);
        self.device.executor.count_image(loaded.origin);
        held.look()?;
        Ok((NewImage::ByName(held), ModuleData::default()))
    }

    /// A variable of such an image, by its name: the next thing of that image. Address and bytes are what its executor says.
    pub(crate) async fn native_variable(
        self: Rc<Self>,
        image: Handle,
        name: String,
        number: u64,
    ) -> Result<(Reference, (Handle, u64, u64), Charge), Error> {
        self.live()?;
        let _change = self.change()?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        let kept = self.charge(Resource::KernelBytes, name.len() as u64)?;
        let need = Need { kind: Kind::Entry, access: Access::Read, offset: number, bytes: 1 };
        let variable = self.registry().derive(self.owner, image, self.owner, need)?;
        capability.keep();
        let held = Reference::new(Rc::clone(&self), variable);
        let asked = self.ask(Vec::new(), |request| {
            let mut native = request.init_native_variable();
            self.write_name(native.reborrow().init_image(), image);
            native.set_name(&name);
            variable.write(native.init_handle());
        });
        let Answer::Variable(address, bytes) = asked.await? else {
            return Err(internal("the executor does not say where the variable is"));
        };
        held.look()?;
        Ok((held, (variable, address, bytes), kept))
    }

    /// The names of the entries of such an image.
    pub(crate) async fn native_names(self: Rc<Self>, image: Handle) -> Result<Vec<String>, Error> {
        self.live()?;
        let asked = self.ask(Vec::new(), |request| self.write_name(request.init_native_names(), image));
        match asked.await? {
            Answer::Names(names) => Ok(names),
            other => Err(self.nonsense(&other)),
        }
    }

    /// Asks its driver what changes nothing.
    pub(crate) async fn ask_driver(
        self: Rc<Self>,
        entry: Handle,
        question: Question,
        words: Vec<u64>,
    ) -> Result<Vec<u64>, Error> {
        self.live()?;
        if !self.runs_machine_code() {
            return Err(Error::new(
                ErrorCode::NotSupported,
                "only isolated sessions on a GPU ask its driver",
            ));
        }
        let asked = self.ask(Vec::new(), |request| {
            let mut ask = request.init_ask_driver();
            self.write_name(ask.reborrow().init_entry(), entry);
            ask.set_question(question);
            let mut list = ask.init_words(length(words.len()));
            (0u32..).zip(&words).for_each(|(at, word)| list.set(at, *word));
        });
        match asked.await? {
            Answer::Words(words) if words.len() <= limits::ANSWER_WORDS_MAX => Ok(words),
            other => Err(self.nonsense(&other)),
        }
    }

    /// What its executor has written, for one who asks at a time: first it has the driver write what kernels have printed.
    /// Also once the session is over.
    pub(crate) async fn output(self: Rc<Self>) -> Written {
        let Some(output) = self.device.executor.output() else { return Written::default() };
        // Whoever asks again and again beside an executor that does not answer has so many wait.
        let Ok(_waits) = self.party.take(Counted::Waits, 1) else { return Written::default() };
        let _turn = self.outputs.lock().await;
        if self.live().is_ok() && self.runs_machine_code() {
            let asked = self.ask(Vec::new(), |request| {
                let mut ask = request.init_ask_driver();
                // Of no entry, and of this session.
                self.write_name(ask.reborrow().init_entry(), Handle { slot: 0, generation: 0 });
                ask.set_question(Question::Output);
            });
            // An executor that writes more than is kept waits until that is fetched; one that is lost has written what it has.
            tokio::select! {
                biased;
                answered = asked => if let Err(error) = answered {
                    tracing::debug!(session = self.id, %error, "an executor does not write out what kernels have printed");
                },
                () = output.full() => {}
            }
        }
        output.take()
    }

    /// Sets an attribute of an entry of such an image.
    pub(crate) async fn set_entry_attribute(
        self: Rc<Self>,
        entry: Handle,
        attribute: u32,
        value: i32,
    ) -> Result<(), Error> {
        self.live()?;
        self.registry().is_entry(self.owner, entry)?;
        let set = self.ask(Vec::new(), |request| {
            let mut set = request.init_native_attribute();
            self.write_name(set.reborrow().init_entry(), entry);
            set.set_attribute(attribute);
            set.set_value(value);
        });
        self.done(&set.await?)
    }

    /// An entry of such an image, by its name: the next of that image.
    pub(crate) async fn native_entry(
        self: Rc<Self>,
        image: Handle,
        name: String,
        number: u64,
    ) -> Result<(Reference, Handle, Rc<EntryInfo>, Charge), Error> {
        self.live()?;
        let _change = self.change()?;
        let capability = self.charge(Resource::Capabilities, 1)?;
        let mut kept = self.charge(Resource::KernelBytes, name.len() as u64 + PARAMETERS_BYTES_MAX)?;
        let need = Need { kind: Kind::Entry, access: Access::Read, offset: number, bytes: 1 };
        let entry = self.registry().derive(self.owner, image, self.owner, need)?;
        capability.keep();
        let held = Reference::new(Rc::clone(&self), entry);
        let asked = self.ask(Vec::new(), |request| {
            let mut native = request.init_native_entry();
            self.write_name(native.reborrow().init_image(), image);
            native.set_name(&name);
            entry.write(native.init_handle());
        });
        let Answer::Loaded(loaded) = asked.await? else {
            return Err(internal("the executor does not say what the entry is"));
        };
        let [info] = <[EntryInfo; 1]>::try_from(loaded.entries)
            .map_err(|_| Error::new(ErrorCode::Protocol, "the executor does not tell of one entry"))?;
        let parameters = info.parameters.len() as u64 * PARAMETER_BYTES;
        if parameters > PARAMETERS_BYTES_MAX {
            return Err(Error::new(ErrorCode::LimitReached, format!("{name} has too many parameters")));
        }
        kept.resize(name.len() as u64 + parameters)?;
        // Local memory for every thread that the device has at a time: the driver takes it at the first launch.
        let threads = self.incarnation().info.threads();
        self.settle_local(u64::from(info.local_bytes).saturating_mul(threads))?;
        held.look()?;
        // What is kept is what was asked for, and charged.
        Ok((held, entry, Rc::new(EntryInfo { name, ..info }), kept))
    }
}
