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
    Gates, Reason, Report,
    ast::{FunctionKind, Item, Module},
};
use bulkhead_schema::{
    DataVariable, Error, ErrorCode, ModuleData, RefusedEntry, Relocation, Stray, compile_capnp::compiled,
    limits,
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
        Ok(Compiled { text, claims, entries: names, data }) => {
            let mut ptx = answer.init_ptx();
            ptx.set_text(&text);
            ptx.set_claims(&claims);
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
        let text = std::fs::read_to_string(file)?;
        bulkhead_guard::add_gates(&mut gates, &name, &text).map_err(io::Error::other)?;
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
    /// What is claimed of it.
    pub claims: String,
    /// What the image calls its entries.
    pub entries: Vec<String>,
    /// Its module-scope variables.
    pub data: ModuleData,
}

impl Compiled {
    /// The text and the claims in one piece, as an executor reads them.
    #[must_use]
    pub fn sealed(&self) -> Vec<u8> {
        [self.text.as_bytes(), &[limits::CLAIMS_MARK], self.claims.as_bytes()].concat()
    }
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
    let (_, module, mut confined, refused) = confined(image, target.architecture, stray, gates)?;
    if target.guard == Guard::Strict {
        bulkhead_guard::drop_fast_versions(&mut confined);
    }
    let text = bulkhead_guard::print(&confined);
    let names = entries(&confined);
    if names.len() > limits::ENTRIES_MAX as usize {
        return Err(Error::new(ErrorCode::LimitReached, format!("the image has {} entries", names.len())));
    }
    let mut data = described(bulkhead_guard::data_as(&module, stray));
    data.refused = refused;
    data.check()?;
    let claims = bulkhead_guard::claims(&text, gates).to_string();
    Ok(Compiled { text, claims, entries: names, data })
}

/// What the guard calls it.
fn guards(stray: Stray) -> bulkhead_guard::Stray {
    match stray {
        Stray::Silent => bulkhead_guard::Stray::Silent,
        Stray::Told => bulkhead_guard::Stray::Told,
    }
}

/// An image's own text for an architecture, the tree of it, that confined, and the entries that are left out of it.
fn confined(
    image: &[u8],
    architecture: u32,
    stray: bulkhead_guard::Stray,
    gates: &Gates,
) -> Result<(String, Module, Module, Vec<RefusedEntry>), Error> {
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
    // What does not have PTX's shape is none; what the guard reads no byte of may be PTX all the same.
    let has_shape = |reason: &Reason| !matches!(reason, Reason::Expected { .. } | Reason::Unterminated(_));
    let unread = |report: Report| {
        let refused = refused(&report, None);
        let is_ptx = report.findings.iter().any(|finding| has_shape(&finding.reason));
        Error { code: if is_ptx { ErrorCode::ImageRefused } else { ErrorCode::ImageInvalid }, ..refused }
    };
    let module = bulkhead_guard::parse(&text).map_err(unread)?;
    let (confined, left_out) = bulkhead_guard::confine_each(&module, stray, gates)
        .map_err(|report| refused(&report, Some(&module)))?;
    let left_out = entries_left_out(left_out, &module);
    Ok((text, module, confined, left_out))
}

/// Bytes of what is said of entries that are left out of an image.
const LEFT_OUT_BYTES_MAX: usize = 32 << 10;

/// Entries with what stands against them: the first of each as far as there is room, and of the others that it is refused.
fn entries_left_out(refused: Vec<bulkhead_guard::Refused>, module: &Module) -> Vec<RefusedEntry> {
    if refused.is_empty() {
        return Vec::new();
    }
    let known = origins::Known::of(module);
    let mut room = LEFT_OUT_BYTES_MAX;
    let told = |bulkhead_guard::Refused { name, report }| {
        let mut why = reasons(&report, Some(&known)).join("\n");
        if name.len() + why.len() > room {
            "the guard refuses it".clone_into(&mut why);
        }
        room = room.checked_sub(name.len() + why.len())?;
        Some(RefusedEntry { name, why })
    };
    refused.into_iter().map_while(told).collect()
}

/// Places of one reason that a refusal names.
const PLACES_MAX: usize = 3;
/// Reasons that it names of those that differ in names only.
const ALIKE_MAX: usize = 6;

/// What the guard has against an image.
fn refused(report: &bulkhead_guard::Report, module: Option<&Module>) -> Error {
    let known = module.map(origins::Known::of);
    let mut message = "the guard refuses the image's PTX".to_owned();
    for line in reasons(report, known.as_ref()) {
        message.push('\n');
        message.push_str(&line);
    }
    Error::new(ErrorCode::ImageRefused, message)
}

/// Each reason with the first places that it has, and the lines of CUDA C that those come from, where the image was
/// compiled with `-lineinfo`; of reasons that differ in the names they tell, the first. Where kernels launch kernels, nothing
/// else is told: what else there is comes with the runtime for that, which is NVIDIA's.
fn reasons(report: &bulkhead_guard::Report, known: Option<&origins::Known<'_>>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut alike: Vec<Alike> = Vec::new();
    let launches = report.findings.iter().any(|finding| finding.reason.is_of_launches());
    let told = report.findings.iter().filter(|finding| !launches || finding.reason.is_of_launches());
    for finding in told {
        if !Alike::find(&mut alike, &finding.reason.to_string()).has_room() {
            continue;
        }
        let source = known.and_then(|known| known.source(finding.span));
        let source = source.map(|(file, line)| format!(" ({file}:{line})")).unwrap_or_default();
        lines.push(format!("image.ptx:{finding}{source}"));
    }
    for reason in alike {
        for (reason, places) in reason.left_out() {
            lines.push(format!("... and {places} more places: {reason}"));
        }
    }
    if report.left_out > 0 {
        lines.push(format!("... and {} more", report.left_out));
    }
    lines
}

/// Reasons that differ in the names they tell.
struct Alike {
    shape: String,
    /// Each with how many places are told, and how many are not.
    reasons: Vec<(String, usize, usize)>,
    /// Places of reasons for which there is no room.
    others: usize,
    /// The one that was found last.
    last: Option<usize>,
}

impl Alike {
    /// Those of a reason, which is noted.
    fn find<'a>(all: &'a mut Vec<Self>, reason: &str) -> &'a mut Self {
        let shape = without_names(reason);
        let index = all.iter().position(|alike| alike.shape == shape).unwrap_or(all.len());
        if index == all.len() {
            all.push(Self { shape, reasons: Vec::new(), others: 0, last: None });
        }
        let alike = &mut all[index];
        alike.last = alike.reasons.iter().position(|(told, _, _)| told == reason);
        if alike.last.is_none() && alike.reasons.len() < ALIKE_MAX {
            alike.last = Some(alike.reasons.len());
            alike.reasons.push((reason.to_owned(), 0, 0));
        }
        alike
    }

    /// Whether another place of the last is told. Counts it.
    fn has_room(&mut self) -> bool {
        let Some((_, told, left_out)) = self.last.and_then(|last| self.reasons.get_mut(last)) else {
            self.others += 1;
            return false;
        };
        let has_room = *told < PLACES_MAX;
        *(if has_room { told } else { left_out }) += 1;
        has_room
    }

    /// Places that are not told, with their reason.
    fn left_out(self) -> impl Iterator<Item = (String, usize)> {
        let of_reasons = self.reasons.into_iter().map(|(reason, _, left_out)| (reason, left_out));
        of_reasons.chain([(self.shape, self.others)]).filter(|(_, places)| *places > 0)
    }
}

/// A reason with an ellipsis for each name in it.
fn without_names(reason: &str) -> String {
    let part =
        |(index, part): (usize, &str)| if index % 2 == 0 { part.to_owned() } else { "`...`".to_owned() };
    reason.split('`').enumerate().map(part).collect()
}

/// A block as messages have it.
fn described(block: bulkhead_guard::data::Data) -> ModuleData {
    use bulkhead_guard::data as guard;
    let relocation = |guard::Relocation { at, to, shift, bytes }| Relocation { at, to, shift, bytes };
    let variable =
        |guard::DataVariable { name, at, bytes, managed }| DataVariable { name, at, bytes, managed };
    ModuleData {
        bytes: block.bytes,
        initial: block.initial,
        relocations: block.relocations.into_iter().map(relocation).collect(),
        variables: block.variables.into_iter().map(variable).collect(),
        refused: Vec::new(),
    }
}

/// What the tenant calls the entries of a confined module.
fn entries(module: &Module) -> Vec<String> {
    let entry = |item: &Item| match item {
        Item::Function(function)
            if function.kind == FunctionKind::Entry
                && function.body.is_some()
                && !bulkhead_guard::is_fast_version(&function.name) =>
        {
            Some(bulkhead_guard::entry_of(&function.name).to_owned())
        }
        Item::Function(_) | Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
    };
    module.items.iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_reason_with_its_first_places_and_the_lines_of_the_source() {
        let events = "    .loc 1 7 5\n    pmevent 3;\n    .loc 1 8 5\n    pmevent 3;\n    pmevent 3;\n    pmevent 3;\n    pmevent 3;\n";
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n    .reg .b32 %r<4>;\n{events}    \
             .loc 1 9 5\n    setmaxnreg.inc.sync.aligned.u32 64;\n    ret;\n}}\n.file 1 \"/src/app.cu\"\n"
        );
        let error = compile(text.as_bytes(), 90).map(|_| ()).unwrap_err();
        let told: Vec<&str> = error.message.lines().collect();
        assert_eq!(told.iter().filter(|line| line.contains("pmevent")).count(), 4, "{told:#?}");
        assert!(
            told.iter().any(|line| line.starts_with("image.ptx:8:5: ") && line.ends_with("(/src/app.cu:7)")),
            "{told:#?}"
        );
        assert!(
            told.iter().any(|line| line.starts_with("image.ptx:10:5: ") && line.ends_with("(/src/app.cu:8)"))
        );
        assert!(told.iter().any(|line| line.starts_with("... and 2 more places: ")), "{told:#?}");
        // Those do not hide another reason.
        assert!(
            told.iter().any(|line| line.contains("image.ptx:15:") && line.ends_with("(/src/app.cu:9)")),
            "{told:#?}"
        );
    }

    #[test]
    fn of_reasons_that_differ_in_names_the_first_are_told_and_how_many_there_are() {
        let refused = |text: String| {
            let error = compile(text.as_bytes(), 90).map(|_| ()).unwrap_err();
            error.message.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let declared: String = (0..20).map(|index| format!(".extern .entry k{index}();\n")).collect();
        let told = refused(format!(".version 8.0\n.target sm_90\n.address_size 64\n{declared}"));
        assert_eq!(told.len(), 1 + ALIKE_MAX + 1, "{told:#?}");
        assert!(told[1].contains("`k0`"), "{told:#?}");
        assert_eq!(
            told[1 + ALIKE_MAX],
            "... and 14 more places: a guarded session does not support an entry without a body, `...`"
        );
    }

    #[test]
    fn where_kernels_launch_kernels_nothing_else_is_told() {
        let text = ".version 8.0\n.target sm_90\n.address_size 64\n\
            .extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 a, .param .b64 b);\n\
            .visible .entry k()\n{\n    .reg .b64 %rd<2>;\n    .reg .b32 %r<2>;\n    pmevent 3;\n\
            \x20   mov.u64 %rd1, 0;\n    call (%r1), cudaLaunchDeviceV2, (%rd1, %rd1);\n    ret;\n}\n";
        let error = compile(text.as_bytes(), 90).map(|_| ()).unwrap_err();
        let told: Vec<&str> = error.message.lines().collect();
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(told[1].ends_with("(dynamic parallelism): launch from the host instead"), "{told:#?}");
    }
}
