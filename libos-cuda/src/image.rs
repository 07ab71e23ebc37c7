//! Images: found in the program's memory, and loaded into the session.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bulkhead_fatbin::{Image, Needed, Wrapper, needed};
use bulkhead_schema::limits::IMAGE_BYTES_MAX;
use parking_lot::Mutex;

use crate::abi::ImagePointer;
use crate::device::{DeviceRange, Domain, ErrorCode, Image as DeviceImage};
use crate::driver::{Driver, driver};
use crate::function::Function;
use crate::handle::{Kind, decode, encode};
use crate::linker;
use crate::memory::What;
use crate::printf;
use crate::report;
use crate::status::Status;

/// A loaded image. Its functions end when the last module or library drops it, and with them the image.
pub(crate) struct Loaded {
    driver: &'static Driver,
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

    /// Whether it is loaded in this session.
    pub(crate) fn is_of(&self, driver: &Driver) -> bool {
        std::ptr::eq(self.driver, driver)
    }

    /// What it runs on, as in `sm_90`: 90.
    pub(crate) fn architecture(&self) -> u32 {
        self.driver.device().architecture
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
            let why = format!("the guard refuses `{name}`: {}{}", refused.why, elsewhere(self.driver));
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
        let function = Function::new(&self.image, &entry, &self.driver.limits, self.library)?;
        function.module.store(self.module.load(Ordering::Relaxed), Ordering::Relaxed);
        let index = self.driver.functions.push(function)?;
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
        self.driver.memory.insert(address, range.bytes, What::Foreign(range), 0)?;
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
            drop(self.driver.memory.take(*address, |what| matches!(what, What::Foreign(_))));
        }
        let data = self.data.map(|at| self.driver.memory.take(at, |what| matches!(what, What::Variables(_))));
        drop(data);
        for (_, handle) in self.functions.iter().chain(self.named.get_mut().iter()) {
            if let Some(function) =
                decode(Kind::Function, *handle).ok().and_then(|(_, index)| self.driver.functions.get(index))
            {
                function.end();
            }
        }
    }
}

/// Copies an image out of the program's memory. What is no image is refused in the name of `call`.
pub(crate) fn read(call: &str, image: &ImagePointer) -> Result<Vec<u8>, Status> {
    let mut inner = None;
    let mut units = None;
    let mut have = 0;
    let bytes = loop {
        let at = inner.as_ref().unwrap_or(image);
        let said = needed(at.prefix(have)).map_err(|error| invalid(call, &error))?;
        match said {
            Needed::More(more) => have = more,
            Needed::Exactly(bytes) if bytes as u64 > IMAGE_BYTES_MAX => {
                report::refused(
                    call,
                    &format!("the image has {bytes} bytes; the limit is {IMAGE_BYTES_MAX}"),
                );
                return Err(Status::OUT_OF_MEMORY);
            }
            Needed::Exactly(bytes) => break at.prefix(bytes).to_vec(),
            Needed::UpToNul => break at.text().to_vec(),
            Needed::Wrapper(wrapper) if inner.is_none() => {
                units = (wrapper.version == Wrapper::LINKED && wrapper.extra != 0).then_some(wrapper.extra);
                inner = Some(image.follow(wrapper.data)?);
                have = 0;
            }
            Needed::Wrapper(_) => return Err(Status::INVALID_IMAGE),
        }
    };
    let driver = driver()?;
    match units {
        // What nvcc linked itself is machine code; the PTX of its units is beside it.
        Some(units) if !is_complete(driver, &bytes) => linker::relocatable(call, image, units),
        _ => Ok(bytes),
    }
}

/// Whether an image has what runs on the device.
fn is_complete(driver: &Driver, content: &[u8]) -> bool {
    let architecture = driver.device().architecture;
    Image::read(content).is_ok_and(|image| {
        let has_code = driver.runs_machine_code() && image.has_machine_code_for(architecture);
        has_code || image.check_ptx_for(architecture).is_ok()
    })
}

/// Reads an image from a file.
pub(crate) fn read_file(call: &str, path: &str) -> Result<Vec<u8>, Status> {
    let refuse = |why: String| {
        report::refused(call, &why);
        Status::FILE_NOT_FOUND
    };
    let path = Path::new(path);
    let length =
        std::fs::metadata(path).map_err(|error| refuse(format!("{}: {error}", path.display())))?.len();
    if length > IMAGE_BYTES_MAX {
        return Err(refuse(format!("{} has {length} bytes; the limit is {IMAGE_BYTES_MAX}", path.display())));
    }
    let bytes = std::fs::read(path).map_err(|error| refuse(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

fn invalid(call: &str, error: &bulkhead_fatbin::Error) -> Status {
    report::refused(call, &error.to_string());
    Status::INVALID_IMAGE
}

/// Why an image is not loaded: the status, and a text.
pub(crate) type Failure = (Status, String);

/// Loads an image. A refusal is said on stderr, once, in the name of `call`, and returned with its text.
pub(crate) fn load(
    call: &str,
    driver: &'static Driver,
    content: &[u8],
    library: u64,
) -> Result<Arc<Loaded>, Failure> {
    load_quietly(driver, content, library).inspect_err(|(_, text)| report::refused(call, text))
}

/// Where what the guard refuses would run: an isolated session has no guard. Its device has to be one.
fn elsewhere(driver: &Driver) -> &'static str {
    match (driver.domain, driver.device().backend == "software") {
        (Domain::Guarded, false) => "\nit runs in an isolated session: `bulkhead run --domain isolated`",
        (Domain::Isolated, true) => {
            "\nthe software GPU runs no machine code, in isolated sessions either: they have the same guard there"
        }
        _ => "",
    }
}

/// Whether an image has no PTX for the device.
fn has_no_ptx(driver: &Driver, content: &[u8]) -> bool {
    let architecture = driver.device().architecture;
    Image::read(content).is_ok_and(|image| image.check_ptx_for(architecture).is_err())
}

/// Loads an image, and says nothing where that fails.
pub(crate) fn load_quietly(
    driver: &'static Driver,
    content: &[u8],
    library: u64,
) -> Result<Arc<Loaded>, Failure> {
    if driver.domain == Domain::Guarded {
        let image = Image::read(content).map_err(|error| (Status::INVALID_IMAGE, error.to_string()))?;
        if let Err(error) = image.check_ptx_for(driver.device().architecture) {
            let text = format!("{error}{}", elsewhere(driver));
            return Err((Status::NO_BINARY_FOR_GPU, text));
        }
    }
    let image = driver.session.load_image(content).map_err(|error| {
        let text = match error.code {
            ErrorCode::ImageRefused => format!("{error}{}", elsewhere(driver)),
            _ => error.to_string(),
        };
        let status = match error.code {
            // The image has PTX, but none for this device.
            ErrorCode::NotFound => Status::NO_BINARY_FOR_GPU,
            // As in a guarded session, where nobody is asked.
            ErrorCode::ImageRefused if has_no_ptx(driver, content) => Status::NO_BINARY_FOR_GPU,
            ErrorCode::Internal
            | ErrorCode::InvalidArgument
            | ErrorCode::InvalidHandle
            | ErrorCode::NotPermitted
            | ErrorCode::NotSupported
            | ErrorCode::OutOfMemory
            | ErrorCode::LimitReached
            | ErrorCode::ImageInvalid
            | ErrorCode::ImageRefused
            | ErrorCode::LaunchResources
            | ErrorCode::DeviceLost
            | ErrorCode::SessionLost
            | ErrorCode::Protocol
            | ErrorCode::TimedOut
            | ErrorCode::Unavailable
            | ErrorCode::Version
            | ErrorCode::Revoked
            | ErrorCode::WorkLost
            | ErrorCode::LaunchTimeout
            | ErrorCode::Trapped
            | ErrorCode::AssertionFailed => Status::of(&error),
        };
        (status, text)
    })?;
    crate::profile::keep(content);
    let failed = |status: Status| (status, format!("{status:?}"));
    let mut functions = Vec::new();
    for entry in image.entries() {
        let function = Function::new(&image, entry, &driver.limits, library).map_err(failed)?;
        let index = driver.functions.push(function).map_err(failed)?;
        functions.push((entry.name.clone(), encode(Kind::Function, 1, index)));
    }
    if let Some(heap) = image.heap() {
        driver.heap.get_or_init(|| heap);
    }
    let data = image.variables().map(|memory| (memory.address(), memory.bytes()));
    if let Some((address, bytes)) = data {
        driver.memory.insert(address, bytes, What::Variables(image.clone()), 0).map_err(failed)?;
    }
    let data = data.map(|(address, _)| address);
    let (named, variables, module) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
    let loaded = Arc::new(Loaded { driver, functions, named, variables, library, module, image, data });
    printf::note(&loaded, content);
    Ok(loaded)
}

/// Notes the module through which functions are reached.
pub(crate) fn set_module(loaded: &Loaded, module: u64) {
    loaded.module.store(module, Ordering::Relaxed);
    for (_, handle) in loaded.functions.iter().chain(loaded.named.lock().iter()) {
        if let Ok(function) = crate::function::find(loaded.driver, *handle) {
            function.module.store(module, Ordering::Relaxed);
        }
    }
}
