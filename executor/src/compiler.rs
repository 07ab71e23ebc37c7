//! The compile process: hostile bytes in, the guard's canonical print or an error out.
//!
//! It reads one image from a descriptor, writes one message (`compile.capnp`) to another and ends. Whatever
//! happens to it, the kernel sees an exit status and at most a message that the verifier checks again. Before it reads
//! the image it takes files and nearly all system calls from itself ([`confinement`]).

pub mod confinement;
mod origins;

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::PathBuf,
};

use bulkhead_fatbin::Image;
use bulkhead_guard::{
    Gates,
    ast::{FunctionKind, Item, Module},
};
use bulkhead_schema::{
    DataVariable, Error, ErrorCode, ModuleData, Relocation, Stray, compile_capnp::compiled, limits,
};
use rustix::process::{Resource, Rlimit};

use crate::device::Guard;

pub use origins::{Origin, Origins, origins, origins_as};

/// Runs a compile process: the image behind `input`, for devices of `architecture` (90 for sm_90), which tells of accesses
/// that go astray or does not, and may call the gates of these files.
///
/// # Errors
/// Where the descriptors cannot be read or written. What is wrong with the image is written as an answer.
pub fn run(input: OwnedFd, output: OwnedFd, target: Target, gates: &[PathBuf]) -> io::Result<()> {
    limit_process()?;
    let gates = callable(gates)?;
    // Everything that it needs is open. From here on the image's bytes may have their way with this process.
    confinement::confine()?;
    let mut bytes = Vec::new();
    File::from(input).take(limits::IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let mut message = capnp::message::Builder::new_default();
    let answer = message.init_root::<compiled::Builder<'_>>();
    match compile_with(&bytes, target, &gates) {
        Ok(Compiled { text, entries: names, data }) => {
            let mut ptx = answer.init_ptx();
            ptx.set_text(&text);
            data.write(ptx.reborrow().init_data());
            let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
            let mut entries = ptx.init_entries(count);
            for (index, name) in (0..count).zip(&names) {
                entries.set(index, name);
            }
        }
        Err(error) => error.write(answer.init_error()),
    }
    let mut output = File::from(output);
    output.write_all(&capnp::serialize::write_message_to_words(&message))?;
    output.flush()
}

/// The gates of these files, which were found good when the kernel started.
fn callable(files: &[PathBuf]) -> io::Result<Gates> {
    let mut gates = Gates::default();
    for file in files {
        let name = file.to_string_lossy();
        gates.add(&name, &std::fs::read_to_string(file)?).map_err(io::Error::other)?;
    }
    Ok(gates)
}

/// Limits on what hostile bytes can make this process use.
fn limit_process() -> io::Result<()> {
    for (resource, value) in [
        (Resource::As, limits::COMPILE_MEMORY_BYTES),
        (Resource::Cpu, limits::COMPILE_SECONDS),
        (Resource::Fsize, limits::PTX_BYTES_MAX * 2),
        (Resource::Core, 0),
        (Resource::Nproc, 0),
    ] {
        // The kernel may have set a lower one already.
        let most = rustix::process::getrlimit(resource).maximum.map_or(value, |most| most.min(value));
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}

/// What becomes of an image.
#[derive(Debug)]
pub struct Compiled {
    /// The canonical print of its PTX.
    pub text: String,
    /// The names of its entries.
    pub entries: Vec<String>,
    /// Its module-scope variables.
    pub data: ModuleData,
}

/// Confines an image's PTX.
///
/// # Errors
/// With `imageInvalid` where it is no image or not PTX, `imageRefused` where the guard does not let it in.
pub fn compile(image: &[u8], architecture: u32) -> Result<Compiled, Error> {
    compile_with(image, Target::of(architecture), &Gates::default())
}

/// What an image is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// 90 for sm_90.
    pub architecture: u32,
    /// What becomes of accesses that go astray.
    pub stray: Stray,
    /// Which versions of entries there are.
    pub guard: Guard,
}

impl Target {
    /// An architecture, and what is usual.
    #[must_use]
    pub fn of(architecture: u32) -> Self {
        Self { architecture, stray: Stray::Silent, guard: Guard::default() }
    }
}

/// As [`compile`], of an image that may call these gates.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(image: &[u8], target: Target, gates: &Gates) -> Result<Compiled, Error> {
    let stray = guards(target.stray);
    let (_, module, mut confined) = confined(image, target.architecture, stray, gates)?;
    if target.guard == Guard::Strict {
        bulkhead_guard::drop_fast_versions(&mut confined);
    }
    let text = bulkhead_guard::print(&confined);
    let names = entries(&confined);
    if names.len() > limits::ENTRIES_MAX as usize {
        return Err(Error::new(ErrorCode::LimitReached, format!("the image has {} entries", names.len())));
    }
    let data = described(bulkhead_guard::data_as(&module, stray));
    data.check()?;
    Ok(Compiled { text, entries: names, data })
}

/// What the guard calls it.
fn guards(stray: Stray) -> bulkhead_guard::Stray {
    match stray {
        Stray::Silent => bulkhead_guard::Stray::Silent,
        Stray::Told => bulkhead_guard::Stray::Told,
    }
}

/// An image's own text for an architecture, the tree of it, and that confined.
fn confined(
    image: &[u8],
    architecture: u32,
    stray: bulkhead_guard::Stray,
    gates: &Gates,
) -> Result<(String, Module, Module), Error> {
    if image.len() as u64 > limits::IMAGE_BYTES_MAX {
        return Err(Error::new(ErrorCode::LimitReached, "the image is too large"));
    }
    let fatbin = |error: bulkhead_fatbin::Error| {
        use bulkhead_fatbin::Error as Fatbin;
        let code = match error {
            Fatbin::MachineCodeOnly(_) | Fatbin::TooNew { .. } => ErrorCode::ImageRefused,
            _ => ErrorCode::ImageInvalid,
        };
        Error::new(code, error.to_string())
    };
    let text = Image::read(image).map_err(fatbin)?.ptx_for(architecture).map_err(fatbin)?;
    let module = bulkhead_guard::parse(&text).map_err(refused)?;
    let confined = bulkhead_guard::confine_verified(&module, stray, gates).map_err(refused)?;
    Ok((text, module, confined))
}

/// What the guard has against an image.
fn refused(report: bulkhead_guard::Report) -> Error {
    let mut message = "the guard refuses the image's PTX".to_owned();
    for finding in &report.findings {
        message.push_str(&format!("\nimage.ptx:{finding}"));
    }
    if report.left_out > 0 {
        message.push_str(&format!("\n... and {} more", report.left_out));
    }
    Error::new(ErrorCode::ImageRefused, message)
}

/// A block as messages have it.
fn described(block: bulkhead_guard::data::Data) -> ModuleData {
    use bulkhead_guard::data as guard;
    let relocation = |guard::Relocation { at, to, shift, bytes }| Relocation { at, to, shift, bytes };
    let variable = |guard::DataVariable { name, at, bytes }| DataVariable { name, at, bytes };
    ModuleData {
        bytes: block.bytes,
        initial: block.initial,
        relocations: block.relocations.into_iter().map(relocation).collect(),
        variables: block.variables.into_iter().map(variable).collect(),
    }
}

fn entries(module: &Module) -> Vec<String> {
    let entry = |item: &Item| match item {
        Item::Function(function)
            if function.kind == FunctionKind::Entry
                && function.body.is_some()
                && !bulkhead_guard::is_fast_version(&function.name) =>
        {
            Some(function.name.clone())
        }
        Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
    };
    module.items.iter().filter_map(entry).collect()
}
