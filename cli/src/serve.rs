//! `bulkhead serve`: the kernel.

use std::{
    ffi::OsString,
    ops::RangeInclusive,
    os::unix::{fs::MetadataExt, process::CommandExt as _},
    path::PathBuf,
    process::ExitCode,
};

use bulkhead_kernel::{
    Cells, Config, Counted, ExecutorSource, Limits, ProtectedModule, Quota, Relay, Tenant,
    arguments::{self, counted, limit, size, tenant, uids},
};
use bulkhead_mm::{Amounts, PAGE_BYTES, ProtectedWindow, Resource};
use bulkhead_schema::limits::{HOST_BYTES_MAX, MODULE_NAME_BYTES_MAX, is_module_name};
use clap::{Args, ValueEnum};

use crate::{Failure, place, sanitize, software::Software};

/// Of a module's name.
const NAME_BYTES_MAX: usize = MODULE_NAME_BYTES_MAX;

/// Which device to drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// An NVIDIA GPU where the driver finds one, else the software GPU.
    Auto,
    /// The software GPU: PTX on the CPU.
    #[value(alias = "soft")]
    Software,
    /// An NVIDIA GPU.
    Cuda,
}

impl Backend {
    /// `Auto` made definite.
    pub(crate) fn resolve(self) -> Self {
        match self {
            Self::Auto if bulkhead_cuda::Cuda::present().is_ok() => Self::Cuda,
            Self::Auto => Self::Software,
            definite => definite,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Software => "software",
            Self::Cuda => "cuda",
        }
    }
}

/// Which versions of entries run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Guard {
    /// Accesses that are proven to stay where they may are left as they are, in launches that keep the terms of the proof.
    Full,
    /// Every access is masked or clamped: less code is trusted, and kernels are slower.
    Strict,
}

impl Guard {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Strict => "strict",
        }
    }
}

impl From<Guard> for bulkhead_executor::Guard {
    fn from(guard: Guard) -> Self {
        match guard {
            Guard::Full => Self::Full,
            Guard::Strict => Self::Strict,
        }
    }
}

/// Own the GPU and serve clients until interrupted.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which device to drive.
    #[arg(long, value_enum, default_value_t = Backend::Auto, env = "BULKHEAD_BACKEND")]
    backend: Backend,
    /// Which of the driver's devices; only for the CUDA backend.
    #[arg(long, default_value_t = 0)]
    ordinal: u32,
    /// Where the sockets go: $XDG_RUNTIME_DIR/bulkhead unless told otherwise. Only its owner can connect.
    #[arg(long)]
    runtime_directory: Option<PathBuf>,
    /// How much of the device's memory sessions may use together: bytes, or a number and KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE", value_parser = device_memory)]
    device_memory: Option<u64>,
    /// How much host memory sessions may be swapped out to, 0 for no swapping. A quarter of the machine's unless
    /// told otherwise.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    swap_memory: Option<u64>,
    /// What one session may use of a column of its ledger, such as `streams=8` or `host_bytes=1GiB`; `bulkhead status
    /// --session NAME` shows them. May be given more than once.
    #[arg(long, value_name = "COLUMN=AMOUNT", value_parser = limit)]
    session_limit: Vec<(Resource, u64)>,
    /// The same for all sessions together.
    #[arg(long, value_name = "COLUMN=AMOUNT", value_parser = limit)]
    total_limit: Vec<(Resource, u64)>,
    /// What one user, or tenant, may take of what clients share, such as `sessions=16`: connections,
    /// descriptor_connections, sessions, waits, message_bytes, compiles, gone_sessions, given_up,
    /// of_others. May be given more than once.
    #[arg(long, value_name = "WHAT=AMOUNT", value_parser = counted)]
    user_limit: Vec<(Counted, u64)>,
    /// The same for one process of a user or tenant: a quarter of the sessions and an eighth of the connections unless told
    /// otherwise.
    #[arg(long, value_name = "WHAT=AMOUNT", value_parser = counted)]
    process_limit: Vec<(Counted, u64)>,
    /// Processes that count as one user apart: those of a uid, or those in a cgroup (version 2) and below. May be given more
    /// than once; the first that fits counts.
    #[arg(long, value_name = "NAME=uid:UID|cgroup:PATH", value_parser = tenant)]
    tenant: Vec<Tenant>,
    /// The most urgent priority that a session gets, and a stream on the device, whatever is asked for; lower is more
    /// urgent, and -4 the most urgent of a stream.
    #[arg(long, value_name = "PRIORITY", default_value_t = 0, allow_negative_numbers = true)]
    priority_ceiling: i32,
    /// How many seconds one kernel may run before its session is ended, guarded or isolated; without, as long as it takes. A graph that is
    /// launched counts as one. Launches of isolated sessions go to the device one by one then.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    kernel_seconds: Option<u64>,
    /// How many seconds a kernel may run while another session waits to load code, or for memory that is made zero on the device: then its session is ended. For so long at
    /// most, once somebody has waited for so long, nobody's new work is taken.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    loading_seconds: u64,
    /// Which versions of entries run: `strict` trusts no proof about addresses, for operators who want the least to trust.
    #[arg(long, value_enum, default_value_t = Guard::Full, env = "BULKHEAD_GUARD")]
    guard: Guard,
    /// How many blocks of one grid the device is given at once: a larger one is launched in slices. Without, what is gone
    /// soon after its session was told to end.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    launch_blocks: Option<u64>,
    /// Launch the kernels of isolated sessions one by one. Without, those that wait in a stream go to the device as graphs.
    #[arg(long)]
    launch_singly: bool,
    /// Where machine code is kept, so that the same PTX is not compiled again; only for the CUDA backend. A folder of this
    /// user's: $XDG_CACHE_HOME/bulkhead/images unless told otherwise.
    #[arg(long, value_name = "DIR", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// How much of it is kept.
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GiB", conflicts_with = "no_cache")]
    cache_size: u64,
    /// Keep no machine code.
    #[arg(long)]
    no_cache: bool,
    /// Put a thread between each client and the kernel, which drops passed descriptors. Done anyway where the system cannot
    /// refuse them, which is before Linux 6.16.
    #[arg(long)]
    relay: bool,
    /// Keep a second executor, which goes on with every session's memory and code when the first is lost.
    #[arg(long)]
    standby: bool,
    /// Keep so many executors started for isolated sessions, so that none waits for the driver. Each takes 832 MiB of a GPU's
    /// memory, which sessions cannot use; on the software GPU none.
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=16))]
    warm: u32,
    /// A cgroup (version 2) that the kernel may make others in: each executor of an isolated session gets one of its own, which
    /// bounds its memory and its threads. It has the controllers `memory` and `pids` enabled for its children.
    #[arg(long, value_name = "DIR")]
    executor_cgroup: Option<PathBuf>,
    /// Users that nobody else is, as FIRST-LAST: each executor of an isolated session runs as one of them, and no more of them run
    /// at a time than there are users, those that wait (--warm) among them. For kernels that run as root.
    #[arg(long, value_name = "FIRST-LAST", value_parser = uids)]
    executor_uids: Option<RangeInclusive<u32>>,
    /// Memory of its own that each executor of an isolated session may have: one that needs more ends, and its session with it.
    /// Without a cgroup this bounds its heap and what is like it (RLIMIT_DATA), and not files in memory.
    #[arg(long, value_name = "SIZE", value_parser = some, default_value = "16GiB")]
    executor_memory: u64,
    /// A protected module: the file of its gates, and how much memory those alone reach: a power of two, from 2 MiB on. The
    /// session that claims it with the token in NAME.token, in the directory of the sockets, is charged that memory, and
    /// says whose kernels may call the gates: nobody's else. May be given more than once.
    #[arg(long, value_name = "NAME=GATES.ptx:SIZE", value_parser = module)]
    module: Vec<Module>,
    #[command(flatten)]
    software: Software,
    /// Where a socket tells what kernels did, of all sessions; only for the software GPU.
    #[arg(long, value_name = "PATH", hide = true, conflicts_with = "standby")]
    profile: Option<PathBuf>,
    /// Where a socket hears what programs allocate, and tells what is wrong with kernels; only for the software GPU.
    #[arg(long, value_name = "PATH", hide = true, conflicts_with_all = ["standby", "profile"])]
    sanitize: Option<PathBuf>,
    /// What is looked for.
    #[arg(long, value_enum, value_delimiter = ',', hide = true, requires = "sanitize")]
    sanitize_tools: Vec<sanitize::Tool>,
    /// End when the process that started this one ends; with its number, also where it has ended already.
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true)]
    with_parent: Option<Option<i32>>,
}

/// A protected module as it is named.
#[derive(Debug, Clone)]
struct Module {
    name: String,
    file: PathBuf,
    bytes: u64,
}

fn module(text: &str) -> Result<Module, String> {
    let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.rsplit_once(':')?)));
    let (name, (file, bytes)) = parts.ok_or("NAME=GATES.ptx:SIZE belongs here")?;
    if !is_module_name(name) {
        return Err(format!("{name:?} is no name: letters, digits, _ and - are, at most {NAME_BYTES_MAX}"));
    }
    let file = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
    let bytes = size(bytes)?;
    if ProtectedWindow::new(0).is_none_or(|window| window.memory(bytes).is_none()) {
        return Err(format!(
            "{bytes} bytes are no size of a module's memory: a power of two from 2MiB to 32GiB is"
        ));
    }
    Ok(Module { name: name.to_owned(), file, bytes })
}

/// The modules, whose gates are good.
fn modules(named: &[Module]) -> Result<Vec<ProtectedModule>, Failure> {
    let mut modules: Vec<ProtectedModule> = Vec::new();
    for Module { name, file, bytes } in named {
        if modules.iter().any(|module| module.name == *name) {
            return Err(Failure::new(format!("two modules are called {name}")));
        }
        modules.push(protected(name, file, Some(*bytes))?);
    }
    Ok(modules)
}

/// A module whose gates are good. Its window is the smallest that does, where it is not said how large.
pub(crate) fn protected(
    name: &str,
    file: &std::path::Path,
    bytes: Option<u64>,
) -> Result<ProtectedModule, Failure> {
    // A name may stand in two modules: a session that accepts the gates of both is refused.
    let mut gates = bulkhead_guard::Gates::default();
    let path = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(Failure::doing(&path))?;
    let window = bulkhead_guard::add_gates(&mut gates, name, &text).map_err(|report| {
        Failure::new(format!("{path} has no gates that can be granted:\n{}", report.render(&path, &text)))
    })?;
    let bytes = bytes.unwrap_or(window.bytes_min());
    if window.bytes_min() > bytes {
        return Err(Failure::new(format!(
            "the variables of {path} take {} bytes of device memory and {} of host memory, and {name} has a window of \
             {bytes}: give it {}MiB",
            window.device.bytes,
            window.host_bytes(),
            window.bytes_min() >> 20
        )));
    }
    Ok(ProtectedModule { name: name.to_owned(), gates: text, bytes, host_bytes: window.host_bytes() })
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    crate::processes::keep_out()?;
    if let Some(parent) = arguments.with_parent {
        let signal = Some(rustix::process::Signal::TERM);
        rustix::process::set_parent_process_death_signal(signal)
            .map_err(Failure::doing("PR_SET_PDEATHSIG"))?;
        let now = rustix::process::getppid().map(rustix::process::Pid::as_raw_pid);
        if parent.is_some() && parent != now {
            return Err(Failure::new("whoever started this has ended"));
        }
    }
    let binary: OsString = place::binary()?.into();
    // The kernel itself never loads the driver: a process of its own looks for it.
    let backend = match arguments.software.on(arguments.backend)? {
        Backend::Auto => resolve_apart(&binary)?,
        Backend::Cuda if resolve_apart(&binary)? != Backend::Cuda => {
            return Err(Failure::new(
                "there is no GPU to serve: `bulkhead doctor` says what is missing; `--backend software` needs none",
            ));
        }
        definite => definite,
    };
    if backend == Backend::Software && arguments.ordinal > 0 {
        return Err(Failure::new("--ordinal is for --backend cuda: there is one software GPU"));
    }
    let ordinal = arguments.ordinal.to_string();
    let loading = arguments.loading_seconds.to_string();
    let kernel = arguments.kernel_seconds.map(|seconds| seconds.to_string());
    let urgency = arguments.priority_ceiling.to_string();
    let blocks = arguments.launch_blocks.map(|blocks| blocks.to_string());
    let mut executor = vec!["executor", "--backend", backend.name(), "--ordinal", &ordinal];
    executor.extend(["--loading-seconds", &loading, "--guard", arguments.guard.name()]);
    executor.extend(["--stream-urgency", &urgency]);
    if let Some(seconds) = &kernel {
        executor.extend(["--kernel-seconds", seconds]);
    }
    if let Some(blocks) = &blocks {
        executor.extend(["--launch-blocks", blocks]);
    }
    if arguments.launch_singly {
        executor.push("--launch-singly");
    }
    let executor = executor.into_iter().map(OsString::from).chain(cache(arguments, backend));
    let executor = executor.chain(arguments.software.arguments());
    let profile = arguments.profile.iter().flat_map(|path| ["--profile".into(), path.clone().into()]);
    let executor = executor.chain(profile);
    let sanitize = arguments.sanitize.iter();
    let sanitize = sanitize.flat_map(|path| sanitize::arguments(path, &arguments.sanitize_tools));
    let executor = executor.chain(sanitize);
    let mut environment: Vec<(OsString, OsString)> = Vec::new();
    // An executor's environment is nearly empty: what names the assembler here would not be there.
    if let (Backend::Cuda, Ok(ptxas)) = (backend, bulkhead_cuda::Compiler::default().find()) {
        environment.push(("BULKHEAD_PTXAS".into(), ptxas.into()));
    }
    let directory = arguments.runtime_directory.clone().unwrap_or_else(place::runtime_directory);
    let config = Config {
        runtime_directory: directory,
        executor: ExecutorSource::Command(std::iter::once(binary.clone()).chain(executor).collect()),
        executor_environment: environment,
        compiler: vec![binary, "compiler".into(), "--guard".into(), arguments.guard.name().into()],
        modules: modules(&arguments.module)?,
        relay: if arguments.relay { Relay::Always } else { Relay::WhereNeeded },
        tenants: arguments.tenant.clone(),
        limits: limits(arguments),
        cells: cells(arguments)?,
        ready: None,
    };
    let strict = if arguments.guard == Guard::Strict { ", guard strict" } else { "" };
    let (backend, directory) = (backend.name(), config.runtime_directory.display());
    let told = format!("bulkhead: serving the {backend} backend in {directory}{strict}");
    Err(become_kernel(&config, &told))
}

/// This process becomes the kernel's program, which has nothing of this one's: neither the driver, nor a compiler.
fn become_kernel(config: &Config, told: &str) -> Failure {
    let kernel = match place::kernel_binary() {
        Ok(kernel) => kernel,
        Err(failure) => return failure,
    };
    match arguments::write(config, told) {
        // The texts of gates stay open for it.
        Ok((arguments, _texts)) => {
            bulkhead_kernel::log::end();
            let error = std::process::Command::new(&kernel).args(arguments).exec();
            Failure::doing(kernel.display())(error)
        }
        Err(error) => Failure::doing("serve")(error),
    }
}

/// What executors are told of the cache. The software GPU compiles nothing.
fn cache(arguments: &Arguments, backend: Backend) -> Vec<OsString> {
    if arguments.no_cache || backend != Backend::Cuda {
        return Vec::new();
    }
    match arguments.cache.clone().map_or_else(place::cache_directory, Ok) {
        Ok(folder) => {
            let size = arguments.cache_size.to_string();
            ["--cache".into(), folder.into(), "--cache-size".into(), size.into()].into()
        }
        Err(error) => {
            tracing::warn!(%error, "no machine code is kept");
            Vec::new()
        }
    }
}

fn limits(arguments: &Arguments) -> Limits {
    let limits = Limits::default();
    Limits {
        device_bytes: arguments.device_memory,
        swap_bytes: arguments.swap_memory.unwrap_or(limits.swap_bytes),
        standby: arguments.standby,
        warm: arguments.warm,
        session: amounts(&arguments.session_limit),
        total: amounts(&arguments.total_limit),
        principal: quota(Quota::PRINCIPAL, &arguments.user_limit),
        process: quota(Quota::PROCESS, &arguments.process_limit),
        priority_ceiling: arguments.priority_ceiling,
        ..limits
    }
}

/// `CGROUP2_SUPER_MAGIC` of linux/magic.h.
const CGROUP2_MAGIC: rustix::fs::FsWord = 0x6367_7270;

/// Less than this, in bytes, is not enough for an executor's own threads.
const EXECUTOR_MEMORY_MIN: u64 = 128 << 20;

/// What bounds executors of isolated sessions. What cannot work is refused now, and not when the first session opens.
fn cells(arguments: &Arguments) -> Result<Cells, Failure> {
    if arguments.executor_uids.is_some() && !rustix::process::geteuid().is_root() {
        return Err(Failure::new("--executor-uids: only root starts processes as other users"));
    }
    if let Some(uids) = &arguments.executor_uids
        && let Some(somebody) = somebody_of(uids)
    {
        return Err(Failure::new(format!(
            "--executor-uids: {somebody}: name users that nobody is, such as 70000-70015"
        )));
    }
    if let Some(cgroup) = &arguments.executor_cgroup {
        let system = rustix::fs::statfs(cgroup)
            .map_err(|error| Failure::new(format!("--executor-cgroup: {}: {error}", cgroup.display())))?;
        if system.f_type != CGROUP2_MAGIC {
            return Err(Failure::new(format!(
                "--executor-cgroup: {} is no cgroup of version 2: `bulkhead doctor` says where there are some",
                cgroup.display()
            )));
        }
        let controllers = cgroup.join("cgroup.subtree_control");
        let enabled = std::fs::read_to_string(&controllers).map_err(|error| {
            Failure::new(format!("--executor-cgroup: {}: {error}", controllers.display()))
        })?;
        if let Some(missing) =
            ["memory", "pids"].iter().find(|name| !enabled.split_whitespace().any(|on| on == **name))
        {
            let how = format!("`echo +{missing} > {}` enables it", controllers.display());
            return Err(Failure::new(format!(
                "--executor-cgroup: no controller {missing} for its children: {how}"
            )));
        }
    }
    if arguments.executor_memory < EXECUTOR_MEMORY_MIN {
        return Err(Failure::new(
            "--executor-memory: programs do not run with less than 128MiB, and a GPU's driver takes more",
        ));
    }
    if let Some(uids) = &arguments.executor_uids
        && uids.clone().count() <= arguments.warm as usize
    {
        return Err(Failure::new(
            "--executor-uids: executors that wait (--warm) would have all of them; name at least one more",
        ));
    }
    let pinned = amounts(&arguments.session_limit).get(Resource::HostBytes);
    Ok(Cells {
        cgroup: arguments.executor_cgroup.clone(),
        uids: arguments.executor_uids.clone(),
        memory_bytes: arguments.executor_memory,
        pinned_bytes: pinned.min(HOST_BYTES_MAX),
    })
}

/// Who is one of these users already: a name, or a process. Executors of the same user could reach each other.
fn somebody_of(uids: &RangeInclusive<u32>) -> Option<String> {
    /// What the system calls users that it has no number for.
    const OVERFLOW_UID: u32 = 65534;
    if uids.contains(&OVERFLOW_UID) {
        return Some(format!("{OVERFLOW_UID} is nobody, whom the system takes for users without a number"));
    }
    // NAME:PASSWORD:UID:...; without the file nobody has a name.
    let names = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = names.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        uids.contains(&uid).then(|| format!("{uid} is {name} (/etc/passwd)"))
    });
    let runs = || {
        std::fs::read_dir("/proc").ok()?.flatten().find_map(|process| {
            let pid: u32 = process.file_name().to_str()?.parse().ok()?;
            let uid = process.metadata().ok()?.uid();
            // One that has ended, and that nobody has waited for, is nobody.
            let status = std::fs::read_to_string(process.path().join("status")).ok()?;
            let is_gone = status.contains("\nState:\tZ");
            (uids.contains(&uid) && !is_gone).then(|| format!("process {pid} runs as {uid}"))
        })
    };
    named.or_else(runs)
}

fn amounts(limits: &[(Resource, u64)]) -> Amounts {
    limits.iter().fold(Amounts::UNLIMITED, |amounts, (resource, most)| amounts.with(*resource, *most))
}

fn quota(quota: Quota, limits: &[(Counted, u64)]) -> Quota {
    limits.iter().fold(quota, |quota, (counted, most)| quota.with(*counted, *most))
}

/// A number of bytes, as people write it.
fn device_memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        0..PAGE_BYTES => {
            Err("the device gives memory in pieces of 2 MiB: no session could allocate anything".to_owned())
        }
        bytes => Ok(bytes),
    }
}

fn some(text: &str) -> Result<u64, String> {
    size(text)
        .and_then(|bytes| if bytes == 0 { Err("no session could do anything".to_owned()) } else { Ok(bytes) })
}

/// Asks a process of its own whether there is a GPU.
fn resolve_apart(binary: &OsString) -> Result<Backend, Failure> {
    let doctor = std::process::Command::new(binary).args(["doctor", "--backend"]).output();
    let doctor = doctor.map_err(Failure::doing("looking for a GPU"))?;
    match String::from_utf8_lossy(&doctor.stdout).trim() {
        "cuda" => Ok(Backend::Cuda),
        "software" => Ok(Backend::Software),
        other => Err(Failure::new(format!("`bulkhead doctor --backend` answered {other:?}"))),
    }
}
