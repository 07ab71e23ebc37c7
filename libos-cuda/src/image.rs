//! Images that are loaded into the session.

mod load;
mod read;

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub(crate) use load::{load, load_quietly};
pub(crate) use read::{read, read_file};

use crate::device::{DeviceRange, ErrorCode, Image as DeviceImage};
use crate::function::{Function, find};
use crate::handle::{Kind, decode, encode};
use crate::handle_tables::Permanent;
use crate::limits::Limits;
use crate::memory::{Memory, What};
use crate::report;
use crate::status::Status;

/// A loaded image. Its functions end when the last module or library drops it, and with them the image.
pub(crate) struct Loaded {
    /// Where its variables are noted, and its functions.
    memory: &'static Memory,
    made: &'static Permanent<Function>,
    /// What launches are checked against.
    limits: Limits,
    /// What it runs on, as in `sm_90`: 90.
    architecture: u32,
    /// Where what the guard refuses of it would run.
    elsewhere: &'static str,
    /// Name and handle of every entry, in the order of the image.
    pub(crate) functions: Vec<(String, u64)>,
    /// The same of those that were asked for by name, where they are.
    named: Mutex<Vec<(String, u64)>>,
    /// Address and length of variables that were asked for likewise.
    variables: Mutex<Vec<(String, (u64, usize))>>,
    /// The library that it is the image of, or 0.
    library: u64,
    /// The module through which its functions are reached, once there is one.
    module: AtomicU64,
    image: DeviceImage,
    /// Where its variables lie, if it has any.
    data: Option<u64>,
}

impl Loaded {
    /// Whether its entries are asked for by name: the driver of an isolated session has it as it is.
    pub(crate) fn is_by_name(&self) -> bool {
        self.image.is_by_name()
    }

    /// Whether it is loaded in the session that has this memory.
    pub(crate) fn is_of(&self, memory: &Memory) -> bool {
        std::ptr::eq(self.memory, memory)
    }

    /// What it runs on, as in `sm_90`: 90.
    pub(crate) fn architecture(&self) -> u32 {
        self.architecture
    }

    /// The function of a name. Where the guard let in others and not this one, that is said in the name of `call`.
    pub(crate) fn function(&self, call: &str, name: &str) -> Result<u64, Status> {
        if self.image.is_by_name() {
            return self.ask(call, name);
        }
        let found = self.functions.iter().find(|(known, _)| known == name);
        found.map(|(_, handle)| *handle).ok_or_else(|| {
            let Some(refused) = self.image.refused().iter().find(|refused| refused.name == name) else {
                return Status::NOT_FOUND;
            };
            let why = format!("the guard refuses `{name}`: {}{}", refused.why, self.elsewhere);
            report::refused(call, &why);
            Status::NOT_SUPPORTED
        })
    }

    /// All of its functions. Of an image that is asked for names all are asked for now.
    pub(crate) fn all(&self, call: &str) -> Result<Vec<u64>, Status> {
        if !self.image.is_by_name() {
            return Ok(self.functions.iter().map(|(_, handle)| *handle).collect());
        }
        let names = self.image.ask_names().map_err(|error| {
            report::refused(call, &error.to_string());
            Status::of(&error)
        })?;
        names.iter().map(|name| self.ask(call, name)).collect()
    }

    /// The function of a name, which the executor's driver is asked for once.
    fn ask(&self, call: &str, name: &str) -> Result<u64, Status> {
        // Whoever asks for the same meanwhile waits for this.
        let mut named = self.named.lock();
        if let Some((_, handle)) = named.iter().find(|(known, _)| known == name) {
            return Ok(*handle);
        }
        let entry = self.image.ask(name).map_err(|error| match error.code {
            ErrorCode::NotFound => Status::NOT_FOUND,
            _ => {
                report::refused(call, &error.to_string());
                Status::of(&error)
            }
        })?;
        let function = Function::new(&self.image, &entry, &self.limits, self.library)?;
        function.module.store(self.module.load(Ordering::Relaxed), Ordering::Relaxed);
        let index = self.made.push(function)?;
        let handle = encode(Kind::Function, 1, index);
        named.push((name.to_owned(), handle));
        Ok(handle)
    }

    /// The same, which the executor's driver is asked for once.
    fn ask_variable(&self, name: &str) -> Result<(u64, usize), Status> {
        let mut variables = self.variables.lock();
        if let Some((_, found)) = variables.iter().find(|(known, _)| known == name) {
            return Ok(*found);
        }
        let (range, address) = self.image.ask_variable(name).map_err(|error| match error.code {
            ErrorCode::NotFound => Status::NOT_FOUND,
            _ => Status::of(&error),
        })?;
        self.memory.insert(address, range.bytes, What::Foreign(range), 0)?;
        let found = (address, usize::try_from(range.bytes).map_err(|_| Status::NOT_FOUND)?);
        variables.push((name.to_owned(), found));
        Ok(found)
    }

    /// Where the variable of a name lies.
    pub(crate) fn range(&self, name: &str) -> Result<DeviceRange, Status> {
        self.image.variable(name).map_err(|_| Status::NOT_FOUND)
    }

    /// Address and length of the variable of a name.
    pub(crate) fn variable(&self, name: &str) -> Result<(u64, usize), Status> {
        if self.image.is_by_name() {
            return self.ask_variable(name);
        }
        let address = self.image.variable_address(name).map_err(|_| Status::NOT_FOUND)?;
        let range = self.image.variable(name).map_err(|_| Status::NOT_FOUND)?;
        Ok((address, usize::try_from(range.bytes).map_err(|_| Status::NOT_FOUND)?))
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        for (_, (address, _)) in self.variables.get_mut().iter() {
            drop(self.memory.take(*address, |what| matches!(what, What::Foreign(_))));
        }
        let data = self.data.map(|at| self.memory.take(at, |what| matches!(what, What::Variables(_))));
        drop(data);
        for (_, handle) in self.functions.iter().chain(self.named.get_mut().iter()) {
            if let Some(function) =
                decode(Kind::Function, *handle).ok().and_then(|(_, index)| self.made.get(index))
            {
                function.end();
            }
        }
    }
}

/// Notes the module through which functions are reached.
pub(crate) fn set_module(loaded: &Loaded, module: u64) {
    loaded.module.store(module, Ordering::Relaxed);
    for (_, handle) in loaded.functions.iter().chain(loaded.named.lock().iter()) {
        if let Ok(function) = find(loaded.made, *handle) {
            function.module.store(module, Ordering::Relaxed);
        }
    }
}
