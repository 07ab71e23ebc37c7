//! What an executor answers, decoded.

use std::{
    cell::Cell,
    os::fd::{AsFd, OwnedFd},
};

use bulkhead_ring::layout::COMPLETION_BYTES;
use bulkhead_schema::{Error, bulkhead_capnp, executor_capnp, limits};
use capnp::{message::ReaderOptions, serialize};
use rustix::fs::SealFlags;

use crate::executor_proxy::passed::Passed;

/// What is kept of what an executor says is the matter, in bytes.
const WORDS_BYTES_MAX: usize = 8 << 10;
/// And of what is kept for as long as a client holds what it concerns.
const KEPT_WORDS_BYTES_MAX: usize = 256;

/// An answer that is no error.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// What the device is.
    Device(DeviceInfo),
    /// A session is open; the completion page's memfd, unless that was lost on the way.
    Opened(Option<OwnedFd>),
    /// An image is loaded.
    Loaded(LoadedImage),
    /// Physical memory, for another executor to adopt, unless it was lost on the way.
    Exported(Option<Passed>),
    /// What each session does.
    Activity(Vec<Activity>),
    /// Some of a module's window.
    Piece(Vec<u8>),
    /// Where a variable lies, and its bytes.
    Variable(u64, u64),
    /// What a driver answered.
    Words(Vec<u64>),
    /// Names of an image's entries.
    Names(Vec<String>),
}

impl Answer {
    /// What kind of answer it is. What it says may be long.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Device(_) => "a device",
            Self::Opened(_) => "an open session",
            Self::Loaded(_) => "a loaded image",
            Self::Exported(_) => "exported memory",
            Self::Activity(_) => "what sessions do",
            Self::Piece(_) => "a piece of a window",
            Self::Variable(..) => "a variable",
            Self::Words(_) => "words",
            Self::Names(_) => "names",
        }
    }
}

/// A loaded image.
#[derive(Debug)]
pub(crate) struct LoadedImage {
    pub(crate) entries: Vec<EntryInfo>,
    pub(crate) code_bytes: u64,
    /// How long the executor compiled it.
    pub(crate) compile_ms: u32,
    pub(crate) origin: Origin,
}

/// Where the code of an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was compiled.
    Compiled,
    /// It had been compiled before.
    Kept,
    /// Somebody had it loaded.
    Loaded,
}

/// What a session does, as its executor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) session: u32,
    pub(crate) idle_ns: u64,
    pub(crate) in_flight: u32,
    /// For how long nothing of its work has passed on a stream that has some, in milliseconds.
    pub(crate) stuck_ms: u32,
}

/// A packet from the executor.
pub(crate) enum Decoded {
    /// The answer to the request with this id.
    Reply(u64, Result<Answer, Error>),
    /// The first answer to the request with this id: no work can reach what it names any more.
    Quiescent(u64),
    /// The executor ended this session on its own.
    SessionEnded(u32, Error),
    /// A session that is swapped out has something to do.
    Wanted(u32),
}

/// What a device is, as its executor describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceInfo {
    pub(crate) backend: String,
    pub(crate) name: String,
    pub(crate) uuid: Vec<u8>,
    pub(crate) memory_bytes: u64,
    pub(crate) driver_version: u32,
    pub(crate) architecture: u32,
    pub(crate) attributes: Vec<(u32, i32)>,
    /// Whether it runs entries only whose accesses are all masked or clamped.
    pub(crate) strict: bool,
}

/// `CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS`.
const PAGEABLE_MEMORY_ACCESS: u32 = 88;
/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: u32 = 16;
/// `CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR`.
const THREADS_PER_MULTIPROCESSOR: u32 = 39;

impl DeviceInfo {
    fn attribute(&self, number: u32) -> Option<i32> {
        self.attributes.iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
    }

    /// Whether kernels can follow pointers into the ordinary memory of their executor's process (HMM or ATS).
    pub(crate) fn reaches_its_process(&self) -> bool {
        self.attribute(PAGEABLE_MEMORY_ACCESS).is_some_and(|value| value != 0)
    }

    /// How many threads can be on the device at a time, each of which has local memory of its own.
    pub(crate) fn threads(&self) -> u64 {
        let attribute =
            |number| self.attribute(number).and_then(|value| u64::try_from(value).ok()).unwrap_or(1);
        attribute(MULTIPROCESSORS).saturating_mul(attribute(THREADS_PER_MULTIPROCESSOR))
    }

    fn read(reader: bulkhead_capnp::device::Reader<'_>) -> Result<Self, capnp::Error> {
        Ok(Self {
            backend: text(reader.get_backend()?),
            name: text(reader.get_name()?),
            uuid: reader.get_uuid()?.to_vec(),
            memory_bytes: reader.get_memory_bytes(),
            driver_version: reader.get_driver_version(),
            architecture: reader.get_architecture(),
            attributes: reader
                .get_attributes()?
                .iter()
                .map(|attribute| (attribute.get_number(), attribute.get_value()))
                .collect(),
            strict: reader.get_strict(),
        })
    }

    pub(crate) fn write(&self, index: u32, mut builder: bulkhead_capnp::device::Builder<'_>) {
        builder.set_index(index);
        builder.set_backend(&self.backend);
        builder.set_name(&self.name);
        builder.set_uuid(&self.uuid);
        builder.set_memory_bytes(self.memory_bytes);
        builder.set_driver_version(self.driver_version);
        builder.set_architecture(self.architecture);
        builder.set_strict(self.strict);
        let mut attributes = builder.init_attributes(length(self.attributes.len()));
        for (at, (number, value)) in (0u32..).zip(&self.attributes) {
            let mut attribute = attributes.reborrow().get(at);
            attribute.set_number(*number);
            attribute.set_value(*value);
        }
    }
}

/// What is known of an entry of a loaded image. Its handle is the kernel's, not repeated here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryInfo {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(u32, u32)>,
    pub(crate) parameter_bytes: u32,
    pub(crate) threads_max: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) local_bytes: u32,
    pub(crate) constant_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) ptx_version: u32,
    pub(crate) binary_version: u32,
}

impl EntryInfo {
    fn read(reader: bulkhead_capnp::entry::Reader<'_>) -> Result<Self, capnp::Error> {
        Ok(Self {
            name: text(reader.get_name()?),
            parameters: reader
                .get_parameters()?
                .iter()
                .map(|parameter| (parameter.get_offset(), parameter.get_bytes()))
                .collect(),
            parameter_bytes: reader.get_parameter_bytes(),
            threads_max: reader.get_threads_max(),
            shared_bytes: reader.get_shared_bytes(),
            local_bytes: reader.get_local_bytes(),
            constant_bytes: reader.get_constant_bytes(),
            registers: reader.get_registers(),
            ptx_version: reader.get_ptx_version(),
            binary_version: reader.get_binary_version(),
        })
    }

    pub(crate) fn write(
        &self,
        handle: bulkhead_schema::Handle,
        mut builder: bulkhead_capnp::entry::Builder<'_>,
    ) {
        builder.set_name(&self.name);
        handle.write(builder.reborrow().init_handle());
        builder.set_parameter_bytes(self.parameter_bytes);
        builder.set_threads_max(self.threads_max);
        builder.set_shared_bytes(self.shared_bytes);
        builder.set_local_bytes(self.local_bytes);
        builder.set_constant_bytes(self.constant_bytes);
        builder.set_registers(self.registers);
        builder.set_ptx_version(self.ptx_version);
        builder.set_binary_version(self.binary_version);
        let mut parameters = builder.init_parameters(length(self.parameters.len()));
        for (at, (offset, bytes)) in (0u32..).zip(&self.parameters) {
            let mut parameter = parameters.reborrow().get(at);
            parameter.set_offset(*offset);
            parameter.set_bytes(*bytes);
        }
    }
}

/// Why a packet from the executor makes no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error(transparent)]
    Message(#[from] capnp::Error),
    #[error(transparent)]
    Union(#[from] capnp::NotInSchema),
    #[error("{found} descriptors came with it, not {expected}")]
    Descriptors { found: usize, expected: usize },
    #[error("what came as a completion page is none")]
    Page,
}

/// What every completion page is sealed against: its length is final, and nobody else ever writes it.
const PAGE_SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE).union(SealFlags::SEAL);

/// Whether memory is sealed as completion pages are.
pub(crate) fn is_sealed(memory: impl AsFd) -> bool {
    rustix::fs::fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(PAGE_SEALS))
}

/// A completion page, unless it was lost on the way: memory of a known size, which closes at once and holds up no client.
fn page(passed: Option<Passed>) -> Result<Option<OwnedFd>, Malformed> {
    let Some(passed) = passed else { return Ok(None) };
    let found = passed.descriptor().ok_or(Malformed::Page)?;
    // Only memory has seals. Of anything else nothing more is asked: others may have to answer that.
    if !is_sealed(found) {
        return Err(Malformed::Page);
    }
    let bytes = rustix::fs::fstat(found).map_err(|_| Malformed::Page)?.st_size;
    if usize::try_from(bytes) != Ok(COMPLETION_BYTES) {
        return Err(Malformed::Page);
    }
    Ok(passed.into_known())
}

/// What an executor says is the matter, cut: it may be kept, and told to many.
fn told(error: bulkhead_schema::bulkhead_capnp::error::Reader<'_>) -> Error {
    let mut error = Error::read(error);
    cut(&mut error, WORDS_BYTES_MAX);
    error
}

/// As much of an error as is kept for long.
pub(crate) fn kept(mut error: Error) -> Error {
    cut(&mut error, KEPT_WORDS_BYTES_MAX);
    error
}

fn cut(error: &mut Error, bytes: usize) {
    for text in [&mut error.message, &mut error.remedy] {
        text.truncate(text.floor_char_boundary(bytes));
        text.shrink_to_fit();
    }
}

/// Decodes one packet and what came with it.
pub(crate) fn decode(
    mut packet: &[u8],
    mut passed: Vec<Passed>,
    local_bytes: &Cell<u32>,
) -> Result<Decoded, Malformed> {
    let mut options = ReaderOptions::new();
    // A packet read twice over: every field is read once here.
    options.traversal_limit_in_words(Some(limits::PACKET_BYTES_MAX / 4));
    options.nesting_limit(limits::MESSAGE_NESTING_MAX);
    let message = serialize::read_message_from_flat_slice(&mut packet, options)?;
    let reply: executor_capnp::reply::Reader<'_> = message.get_root()?;
    let id = reply.get_id();
    local_bytes.set(local_bytes.get().max(reply.get_local_bytes()));
    let found = passed.len();
    let count = |expected| {
        if found == expected { Ok(()) } else { Err(Malformed::Descriptors { found, expected }) }
    };
    // It is missing where the executor, or this process, has no place for more.
    let one = || if found <= 1 { Ok(()) } else { Err(Malformed::Descriptors { found, expected: 1 }) };
    use executor_capnp::reply::Which;
    let answer = match reply.which()? {
        Which::Ok(()) => Answer::Done,
        Which::Error(error) => {
            count(0)?;
            return Ok(Decoded::Reply(id, Err(told(error?))));
        }
        Which::Device(device) => Answer::Device(DeviceInfo::read(device?)?),
        Which::Opened(()) => {
            one()?;
            return Ok(Decoded::Reply(id, Ok(Answer::Opened(page(passed.pop())?))));
        }
        Which::Loaded(entries) => Answer::Loaded(LoadedImage {
            entries: entries?.iter().map(EntryInfo::read).collect::<Result<_, _>>()?,
            code_bytes: reply.get_code_bytes(),
            compile_ms: reply.get_compile_ms(),
            origin: match reply.get_origin()? {
                executor_capnp::Origin::Compiled => Origin::Compiled,
                executor_capnp::Origin::Kept => Origin::Kept,
                executor_capnp::Origin::Loaded => Origin::Loaded,
            },
        }),
        Which::SessionEnded(ended) => {
            count(0)?;
            let ended = ended?;
            return Ok(Decoded::SessionEnded(ended.get_session(), told(ended.get_error()?)));
        }
        Which::Quiescent(()) => {
            count(0)?;
            return Ok(Decoded::Quiescent(id));
        }
        Which::Wanted(session) => {
            count(0)?;
            return Ok(Decoded::Wanted(session));
        }
        Which::Exported(()) => {
            one()?;
            return Ok(Decoded::Reply(id, Ok(Answer::Exported(passed.pop()))));
        }
        Which::Names(names) => {
            let names = names?;
            let texts = names.iter().map(|name| name.map(text)).collect::<Result<_, _>>()?;
            Answer::Names(texts)
        }
        Which::Words(words) => Answer::Words(words?.iter().collect()),
        Which::Variable(variable) => {
            let variable = variable?;
            Answer::Variable(variable.get_address(), variable.get_bytes())
        }
        Which::Piece(piece) => Answer::Piece(piece?.to_vec()),
        Which::Activity(sessions) => {
            let read = |activity: executor_capnp::activity::Reader<'_>| Activity {
                session: activity.get_session(),
                idle_ns: activity.get_idle_ns(),
                in_flight: activity.get_in_flight(),
                stuck_ms: activity.get_stuck_ms(),
            };
            Answer::Activity(sessions?.iter().map(read).collect())
        }
    };
    count(0)?;
    Ok(Decoded::Reply(id, Ok(answer)))
}

fn text(text: capnp::text::Reader<'_>) -> String {
    String::from_utf8_lossy(text.as_bytes()).into_owned()
}

/// The length of a list that came out of a message, and so fits into one.
pub(crate) fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
