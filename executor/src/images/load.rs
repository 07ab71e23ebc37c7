//! Loading an image: verify what the compile process returned, then hand exactly that to the device. What is loaded
//! already is found by its text; code that was compiled before is taken from the cache, and linted like fresh code.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::Arc,
    time::Instant,
};

use bulkhead_gpu::{Compiled, EntryInfo, Error as DeviceError, LoadedImage};
use bulkhead_schema::{
    Digest, Error, ErrorCode, Handle,
    bulkhead_capnp::entry,
    executor_capnp::{self as wire, reply},
    limits,
};
use bulkhead_verifier::{Claims, GATE_PARAMETERS, Gates, Verified};
use parking_lot::Mutex;

use crate::{
    device::{self, Guard},
    executor::Executor,
    images::{Installed, Most, Origin, machine_code},
    launch::{
        entry::{Entry, HIDDEN, SLICE, Template},
        fast::Fast,
    },
    modules::grants::{Callable, Called},
    moments::Need,
    session::Session,
    watch::remains::Image,
};

/// A loaded image.
pub(crate) struct Loaded {
    pub(crate) image: Arc<Image>,
    pub(crate) bound: Vec<Entry>,
    infos: Vec<EntryInfo>,
    code_bytes: u64,
    compile_ms: u32,
    origin: Origin,
}

/// Reads, verifies and loads the image behind a descriptor for a session; it must have `count` entries.
/// `hidden` is what the guard's parameters get: base, load mask, store mask; `callable` whose gates it may call. Code that takes
/// more than `most` is not kept.
pub(crate) fn load(
    executor: &Executor,
    session: &Session,
    descriptor: OwnedFd,
    count: usize,
    hidden: [u32; HIDDEN],
    callable: &Callable,
    most: Most,
) -> Result<Loaded, Error> {
    let internal = |what: String| Error::new(ErrorCode::Internal, what);
    let broken = |error: std::io::Error| internal(format!("the canonical print: {error}"));
    let file = File::from(descriptor);
    let bytes = file.metadata().map_err(broken)?.len().min(limits::PTX_BYTES_MAX + 1);
    let mut text = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    // By position: a standby reads the same open file at the same time.
    file.read_exact_at(&mut text, 0).map_err(broken)?;
    // What is known of entries depends on what was claimed.
    let digest = Digest::of(&[&text]);
    // Whoever loads the same text meanwhile waits for its turn, and finds it.
    let place = executor.images.place(digest, &callable.modules);
    let (preparing, mut turn) = place.turn();
    // What others take is not this session's to pay.
    let began = Instant::now();
    let installed = turn.as_deref().and_then(Option::as_ref);
    if let Some((installed, (image, bound))) =
        installed.and_then(|installed| Some((installed, installed.entries(hidden)?)))
    {
        let (infos, code_bytes) = (installed.infos.clone(), installed.code_bytes);
        may_be_charged(code_bytes, most.code_bytes)?;
        if bound.len() != count {
            return Err(announced(bound.len(), count));
        }
        return Ok(Loaded {
            image,
            bound,
            infos,
            code_bytes,
            compile_ms: elapsed_ms(began),
            origin: Origin::Loaded,
        });
    }
    let verified = verify(text, &callable.gates)?;
    if executor.guard == Guard::Strict && verified.entries().iter().any(|entry| entry.fast.is_some()) {
        let message =
            "the compile process returned a fast version, and this executor takes confined ones only";
        return Err(Error::new(ErrorCode::ImageRefused, message)
            .remedy("report this: kernel and executor disagree about --guard"));
    }
    let digest = Digest::of(&[verified.text().as_bytes()]);
    let (compiled, origin) = compile(executor, &verified, digest).map_err(|error| device::error(&error))?;
    let compile_ms = elapsed_ms(began);
    may_be_charged(compiled.code.len() as u64, most.code_bytes)?;
    drop(preparing);
    let image =
        executor.while_drained(Need::Code(session), || install(executor, &compiled, most.local_bytes))??;
    let owned = Arc::new(Image::new(image.id, &executor.reaper));
    // Where there is no machine code, only the device knows what it takes: it is unloaded again.
    let code_bytes = image.code_bytes;
    may_be_charged(code_bytes, most.code_bytes)?;
    let (templates, infos) = describe(&verified, &image.entries, count)?;
    let installed = Installed::new(&owned, templates, infos.clone(), code_bytes);
    let (_, bound) =
        installed.entries(hidden).ok_or_else(|| internal("an image that is held is gone".into()))?;
    if let Some(turn) = &mut turn {
        **turn = Some(installed);
    }
    Ok(Loaded { image: owned, bound, infos, code_bytes, compile_ms, origin })
}

/// Installs what was compiled, and makes room for the local memory of its kernels: a launch would wait for that.
fn install(executor: &Executor, compiled: &Compiled, local_bytes_max: u32) -> Result<LoadedImage, Error> {
    let gpu = &*executor.gpu;
    let image = gpu.install(compiled).map_err(|error| device::error(&error))?;
    let local_bytes = image.entries.iter().map(|entry| entry.local_bytes).max().unwrap_or(0);
    let grown = if local_bytes <= local_bytes_max {
        let grown = gpu.grow_local(local_bytes).map_err(|error| match error {
            DeviceError::OutOfMemory => no_local_memory(local_bytes),
            other => device::error(&other),
        });
        // Whatever becomes of the image, the driver keeps it.
        grown.inspect(|()| executor.link.local_grew(local_bytes))
    } else {
        Err(no_local_memory(local_bytes))
    };
    grown.map_err(|why| gpu.unload(image.id).map_or_else(|error| device::error(&error), |()| why))?;
    Ok(image)
}

fn no_local_memory(bytes: u32) -> Error {
    let message = format!(
        "the image needs {bytes} bytes of local memory for each thread, and there is no room for so many"
    );
    Error::new(ErrorCode::OutOfMemory, message)
        .remedy("use smaller arrays in kernels, free memory of the device, or set the limit of local_bytes")
}

/// Verifies a text with what is claimed of it, which stands behind it.
fn verify(sealed: Vec<u8>, gates: &Gates) -> Result<Verified, Error> {
    let refused = |why: &dyn std::fmt::Display| {
        tracing::error!(%why, "the compile process returned what the verifier refuses");
        Error::new(ErrorCode::ImageRefused, format!("the verifier refuses the guard's output: {why}"))
            .remedy("report this: the guard and the verifier disagree")
    };
    let sealed = String::from_utf8(sealed).map_err(|error| refused(&error))?;
    let (text, claims) = sealed.split_once(char::from(limits::CLAIMS_MARK)).unwrap_or((&sealed, ""));
    let claims: Claims = claims.parse().map_err(|line: String| {
        let line: String = line.chars().take(80).collect();
        refused(&format!("`{line}` is no claim"))
    })?;
    bulkhead_verifier::verify(text, &claims, gates).map_err(|report| refused(&report))
}

fn elapsed_ms(began: Instant) -> u32 {
    u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX)
}

fn may_be_charged(code_bytes: u64, code_bytes_max: u64) -> Result<(), Error> {
    if code_bytes <= code_bytes_max {
        return Ok(());
    }
    let message = format!("the image compiles to {code_bytes} bytes of code and {code_bytes_max} are left");
    Err(Error::new(ErrorCode::OutOfMemory, message).remedy("unload images, or split this one"))
}

fn announced(found: usize, count: usize) -> Error {
    Error::new(ErrorCode::Internal, format!("{found} entries where {count} were announced"))
}

/// Compiles a text, or takes what was kept, where the device needs machine code.
fn compile(
    executor: &Executor,
    verified: &Verified,
    text: Digest,
) -> Result<(Compiled, Origin), bulkhead_gpu::Error> {
    let gpu = &*executor.gpu;
    let Some(compiler) = gpu.compiler()? else {
        return Ok((gpu.compile(verified.text())?, Origin::Compiled));
    };
    let architecture = gpu.info().architecture;
    let compile = || executor.images.compile(|| gpu.compile(verified.text())).map(|compiled| compiled.code);
    let (code, origin) =
        machine_code(verified, text, &compiler, architecture, executor.cache.as_ref(), compile)?;
    Ok((Compiled { ptx: verified.text().to_owned(), code }, origin))
}

/// The entries as the device has them, in the order of the text: what a launch needs, and what clients are told.
pub(crate) fn describe(
    verified: &Verified,
    infos: &[EntryInfo],
    count: usize,
) -> Result<(Vec<Template>, Vec<EntryInfo>), Error> {
    let internal = |what: String| Error::new(ErrorCode::Internal, what);
    if verified.entries().len() != count {
        return Err(announced(verified.entries().len(), count));
    }
    let mut templates = Vec::with_capacity(count);
    let mut ordered = Vec::with_capacity(count);
    for entry in verified.entries() {
        let info = infos.iter().find(|info| info.name == entry.symbol);
        let info = info.ok_or_else(|| internal(format!("the device lost the entry {}", entry.name)))?;
        let (visible, hidden) = info
            .parameters
            .split_at_checked(info.parameters.len().wrapping_sub(entry.hidden))
            .filter(|_| info.parameters.len() == entry.parameters)
            .ok_or_else(|| internal(format!("{} has {} parameters", entry.name, info.parameters.len())))?;
        let (for_modules, hidden) = hidden
            .split_at_checked(entry.modules.len() * GATE_PARAMETERS)
            .ok_or_else(|| internal(format!("{} has {} hidden parameters", entry.name, entry.hidden)))?;
        let end = |layout: Option<&bulkhead_gpu::ParameterLayout>| {
            layout.map_or(0, |layout| layout.offset as usize + layout.bytes as usize)
        };
        let block_bytes = end(hidden.last());
        if block_bytes > limits::PARAMETER_BYTES_MAX
            || hidden.iter().any(|layout| layout.bytes != 4)
            || for_modules.iter().any(|layout| layout.bytes != 8)
        {
            return Err(Error::new(ErrorCode::LimitReached, format!("{}: too many parameters", entry.name)));
        }
        let offsets: Vec<u32> = hidden.iter().map(|layout| layout.offset).collect();
        let (of_slice, offsets) = offsets
            .split_last_chunk::<HIDDEN>()
            .ok_or_else(|| internal(format!("{} has {} hidden parameters", entry.name, hidden.len())))?;
        let of_slice: Option<[u32; SLICE]> = of_slice.try_into().ok();
        let (for_modules, _) = for_modules.as_chunks::<GATE_PARAMETERS>();
        let called = entry.modules.iter().zip(for_modules).map(|(module, layouts)| {
            let module = module.parse().map_err(|_| internal(format!("a module called {module}")))?;
            Ok(Called { module, offsets: layouts.map(|layout| layout.offset) })
        });
        let called = called.collect::<Result<Box<[_]>, Error>>()?;
        let fast = match &entry.fast {
            None => None,
            Some(version) => {
                let found = infos.iter().find(|info| info.name == version.symbol);
                let found = found.filter(|found| found.parameters == info.parameters);
                let fast = found.and_then(|found| Fast::new(found.id, version, visible));
                let lost = || internal(format!("the device lost a version of the entry {}", entry.name));
                Some((fast.ok_or_else(lost)?, found))
            }
        };
        let (fast, fast_info) = fast.unzip();
        let fast_shared = fast_info.flatten().map_or(0, |fast| fast.shared_bytes);
        templates.push(Template {
            id: info.id,
            fast,
            name: entry.name.as_str().into(),
            block: vec![0; block_bytes],
            visible_bytes: end(visible.last()),
            dynamic_shared_min: entry.dynamic_shared_min,
            // Whichever version runs.
            static_shared: fast_shared.max(info.shared_bytes),
            dynamic_shared_max: Arc::new(Mutex::new(0)),
            hidden: Some(*offsets),
            sliceable: entry.sliceable,
            of_slice,
            called,
            base: 0,
        });
        let mut known = EntryInfo {
            name: entry.name.clone(),
            parameters: visible.to_vec(),
            // What a program chooses between its versions by, as CUB does: not what its text is written in.
            ptx_version: verified.architecture(),
            ..info.clone()
        };
        // Either may run: what holds for both is told.
        if let Some(fast) = fast_info.flatten() {
            known.threads_max = known.threads_max.min(fast.threads_max);
            known.local_bytes = known.local_bytes.max(fast.local_bytes);
            known.registers = known.registers.max(fast.registers);
            known.shared_bytes = known.shared_bytes.max(fast.shared_bytes);
        }
        ordered.push(known);
    }
    Ok((templates, ordered))
}

impl Loaded {
    /// Writes the entries, which are bound to `handles`, into a reply.
    pub(crate) fn write(&self, handles: &[Handle], mut reply: reply::Builder<'_>) {
        reply.set_code_bytes(self.code_bytes);
        reply.set_compile_ms(self.compile_ms);
        reply.set_origin(match self.origin {
            Origin::Compiled => wire::Origin::Compiled,
            Origin::Kept => wire::Origin::Kept,
            Origin::Loaded => wire::Origin::Loaded,
        });
        let mut list = reply.init_loaded(size(self.infos.len()));
        for (index, ((info, bound), handle)) in self.infos.iter().zip(&self.bound).zip(handles).enumerate() {
            let entry = list.reborrow().get(size(index));
            write_entry(info, *handle, bound.template.visible_bytes, entry);
        }
    }
}

fn size(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn write_entry(info: &EntryInfo, handle: Handle, visible_bytes: usize, mut entry: entry::Builder<'_>) {
    entry.set_name(&info.name);
    handle.write(entry.reborrow().init_handle());
    entry.set_parameter_bytes(size(visible_bytes));
    entry.set_threads_max(info.threads_max);
    entry.set_shared_bytes(info.shared_bytes);
    entry.set_local_bytes(info.local_bytes);
    entry.set_constant_bytes(info.constant_bytes);
    entry.set_registers(info.registers);
    entry.set_ptx_version(info.ptx_version);
    entry.set_binary_version(info.binary_version);
    let mut parameters = entry.init_parameters(size(info.parameters.len()));
    for (index, layout) in info.parameters.iter().enumerate() {
        let mut parameter = parameters.reborrow().get(size(index));
        parameter.set_offset(layout.offset);
        parameter.set_bytes(layout.bytes);
    }
}

/// What was loaded of an image that nobody has checked: all of it, or one entry.
pub(crate) struct Native {
    pub(crate) code_bytes: u64,
    pub(crate) entry: Option<EntryInfo>,
}

/// Bytes of the parameter block of an entry that has no hidden ones.
fn native_block_bytes(info: &EntryInfo) -> usize {
    let ends = info.parameters.iter().map(|layout| layout.offset as usize + layout.bytes as usize);
    ends.max().unwrap_or(0)
}

/// An entry that nothing confines: its block is the client's.
pub(crate) fn native_template(info: &EntryInfo) -> Result<Template, Error> {
    let bytes = native_block_bytes(info);
    if bytes > limits::PARAMETER_BYTES_MAX {
        return Err(Error::new(ErrorCode::LimitReached, format!("{}: too many parameters", info.name)));
    }
    Ok(Template {
        id: info.id,
        fast: None,
        name: info.name.as_str().into(),
        block: vec![0; bytes],
        visible_bytes: bytes,
        dynamic_shared_min: 0,
        static_shared: 0,
        dynamic_shared_max: Arc::new(Mutex::new(0)),
        hidden: None,
        sliceable: false,
        of_slice: None,
        called: Box::default(),
        base: 0,
    })
}

impl Native {
    /// Writes it into a reply.
    pub(crate) fn write(&self, handle: Handle, mut reply: reply::Builder<'_>) {
        reply.set_code_bytes(self.code_bytes);
        reply.set_origin(wire::Origin::Compiled);
        let mut list = reply.init_loaded(size(self.entry.iter().len()));
        if let Some(info) = &self.entry {
            write_entry(info, handle, native_block_bytes(info), list.reborrow().get(0));
        }
    }
}
