//! The processes that the kernel starts from this binary.

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt as _,
    process::ExitCode,
    time::Duration,
};

use bulkhead_executor::Patience;
use clap::Args;
use rustix::{
    process::{Resource, Rlimit},
    thread::UnshareFlags,
};

use crate::{Failure, serve::Backend, software::Software};

/// The executor: its standard input is the socket to the kernel.
#[derive(Debug, Args)]
pub(crate) struct ExecutorArguments {
    /// Which device.
    #[arg(long, value_enum)]
    backend: Backend,
    /// Which of the driver's devices.
    #[arg(long, default_value_t = 0)]
    ordinal: u32,
    /// How many seconds one kernel may run.
    #[arg(long)]
    kernel_seconds: Option<u64>,
    /// How many seconds kernels may run without a gap while somebody waits to load code.
    #[arg(long)]
    loading_seconds: Option<u64>,
    /// How many blocks of one grid the device is given at once; without, what its kind takes.
    #[arg(long)]
    launch_blocks: Option<u64>,
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    stream_urgency: i32,
    /// Where machine code is kept; none is without it.
    #[arg(long)]
    cache: Option<std::path::PathBuf>,
    /// How many bytes of it.
    #[arg(long, default_value_t = bulkhead_executor::CACHE_BYTES)]
    cache_size: u64,
    #[command(flatten)]
    software: Software,
    /// Where a socket tells what kernels did; only for the software GPU.
    #[arg(long)]
    profile: Option<std::path::PathBuf>,
    /// Where a socket hears what programs allocate, and tells what is wrong with kernels; only for the software GPU.
    #[arg(long)]
    sanitize: Option<std::path::PathBuf>,
    /// What is looked for.
    #[arg(long, value_enum, value_delimiter = ',')]
    sanitize_tools: Vec<crate::sanitize::Tool>,
    /// Which versions of entries are loaded.
    #[arg(long, value_enum, default_value_t = crate::serve::Guard::Full)]
    guard: crate::serve::Guard,
    /// For one isolated session, whose code nothing confines.
    #[arg(long)]
    isolated: bool,
    /// Memory of its own that it may have, in bytes.
    #[arg(long, requires = "isolated")]
    memory_max: Option<u64>,
    /// How many threads its user may have.
    #[arg(long, requires = "isolated")]
    threads_max: Option<u64>,
    /// Its kernels are launched one by one, never several as a graph.
    #[arg(long)]
    launch_singly: bool,
    /// The socket's descriptor; 0 is the only one there is.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=0))]
    link_fd: u32,
}

/// As the kernel does.
pub(crate) fn keep_out() -> Result<(), Failure> {
    bulkhead_kernel::keep_out().map_err(Failure::doing("what keeps others out"))
}

/// Lowers a limit of this process, for good.
/// What an isolated executor may have of the system's descriptors: far more than NVIDIA's driver and its session need.
const ISOLATED_DESCRIPTORS: u64 = 16 << 10;

fn limit(resource: Resource, value: u64) -> Result<(), Failure> {
    let most = rustix::process::getrlimit(resource).maximum.map_or(value, |most| most.min(value));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::setrlimit(resource, limit).map_err(Failure::doing("setrlimit"))
}

/// A network without devices, and no power over processes outside, whose memory this one could otherwise read as their
/// user. Called before the log has its thread: a process with more than one is not given a user namespace.
///
/// # Errors
/// Where the system gives nobody namespaces without privileges.
pub(crate) fn namespaces() -> rustix::io::Result<()> {
    let namespaces =
        UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    #[expect(deprecated, reason = "what is unsafe about it is unsharing descriptors, which this does not")]
    rustix::thread::unshare(namespaces)
}

/// Tells where there were none: what reads an image goes on without.
fn tell_of_namespaces(who: &str, apart: Option<rustix::io::Result<()>>) {
    if let Some(Err(error)) = apart {
        tracing::info!(%error, "the {who} runs without namespaces of its own");
    }
}

impl ExecutorArguments {
    /// Whether it is for one isolated session, and gives up what that executor does.
    pub(crate) const fn is_isolated(&self) -> bool {
        self.isolated
    }
}

pub(crate) fn executor(
    arguments: &ExecutorArguments,
    walls: Option<std::io::Result<Option<i32>>>,
) -> Result<ExitCode, Failure> {
    keep_out()?;
    if arguments.isolated {
        limit(Resource::Core, 0)?;
        limit(Resource::Nofile, ISOLATED_DESCRIPTORS)?;
        limit(Resource::Data, arguments.memory_max.unwrap_or(u64::MAX))?;
        if let Some(threads) = arguments.threads_max {
            limit(Resource::Nproc, threads)?;
        }
    }
    walls.transpose().map_err(Failure::doing("the executor's walls"))?;
    // Dies with the kernel, whatever happens to it.
    let parent = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(parent).map_err(Failure::doing("PR_SET_PDEATHSIG"))?;
    let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3);
    let socket = socket.map_err(Failure::doing("the socket to the kernel"))?;
    let backend = match arguments.backend {
        Backend::Software => bulkhead_executor::Backend::Software,
        Backend::Cuda => bulkhead_executor::Backend::Cuda(arguments.ordinal),
        Backend::Auto => return Err(Failure::new("the executor is told its backend")),
    };
    let usual = Patience::default();
    let patience = Patience {
        kernel: arguments.kernel_seconds.map(Duration::from_secs).or(usual.kernel),
        loading: arguments.loading_seconds.map_or(usual.loading, Duration::from_secs),
        blocks: arguments.launch_blocks,
        urgency: arguments.stream_urgency,
    };
    let bytes_max = arguments.cache_size;
    let cache = arguments.cache.clone().map(|folder| bulkhead_executor::CacheOptions { folder, bytes_max });
    let assembler = vec![crate::place::binary()?.into(), "assembler".into()];
    let software = arguments.software.options();
    let profile = arguments.profile.clone();
    let tools = crate::sanitize::of_executor(&arguments.sanitize_tools);
    let sanitize = arguments.sanitize.clone().map(|socket| bulkhead_executor::Sanitize { socket, tools });
    let guard = arguments.guard.into();
    let isolated = arguments.isolated;
    let options = bulkhead_executor::Options {
        backend,
        software,
        cache,
        assembler,
        profile,
        sanitize,
        guard,
        isolated,
        launch_singly: arguments.launch_singly,
    };
    bulkhead_executor::run(socket, options, patience).map_err(Failure::doing("executor"))?;
    Ok(ExitCode::SUCCESS)
}

/// A compile process: an image on standard input, an answer on standard output.
#[derive(Debug, Args)]
pub(crate) struct CompilerArguments {
    /// 90 for sm_90.
    #[arg(long)]
    architecture: u32,
    /// The code tells of accesses that go astray.
    #[arg(long)]
    check: bool,
    /// Which versions of entries there are.
    #[arg(long, value_enum, default_value_t = crate::serve::Guard::Full)]
    guard: crate::serve::Guard,
    /// Files of gates that it may call.
    #[arg(long)]
    gates: Vec<std::path::PathBuf>,
    /// The image's descriptor; 0 is the only one there is.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=0))]
    input_fd: u32,
    /// The answer's descriptor; 1 is the only one there is.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1))]
    output_fd: u32,
}

pub(crate) fn compiler(
    arguments: &CompilerArguments,
    apart: Option<rustix::io::Result<()>>,
) -> Result<ExitCode, Failure> {
    // Behind the namespaces, which can change it.
    keep_out()?;
    tell_of_namespaces("compiler", apart);
    let parent = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(parent).map_err(Failure::doing("PR_SET_PDEATHSIG"))?;
    let input = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3);
    let output = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3);
    let (input, output) =
        (input.map_err(Failure::doing("the image"))?, output.map_err(Failure::doing("the answer"))?);
    let stray = bulkhead_schema::Stray::of(arguments.check);
    let target = bulkhead_executor::compiler::Target {
        architecture: arguments.architecture,
        stray,
        guard: arguments.guard.into(),
    };
    bulkhead_executor::compiler::run(input, output, target, &arguments.gates)
        .map_err(Failure::doing("compiler"))?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes the assembler, with less than this process has.
#[derive(Debug, Args)]
pub(crate) struct AssemblerArguments {
    /// The assembler and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Its address space, the longest file it may write, and its descriptors.
const ASSEMBLER_LIMITS: [(Resource, u64); 4] =
    [(Resource::As, 16 << 30), (Resource::Fsize, 256 << 20), (Resource::Nofile, 64), (Resource::Core, 0)];

pub(crate) fn assembler(
    arguments: &AssemblerArguments,
    apart: Option<rustix::io::Result<()>>,
) -> Result<ExitCode, Failure> {
    let parent = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(parent).map_err(Failure::doing("PR_SET_PDEATHSIG"))?;
    for (resource, value) in ASSEMBLER_LIMITS {
        limit(resource, value)?;
    }
    tell_of_namespaces("assembler", apart);
    rustix::thread::set_no_new_privs(true).map_err(Failure::doing("PR_SET_NO_NEW_PRIVS"))?;
    let (program, rest) =
        arguments.command.split_first().ok_or_else(|| Failure::new("no assembler is named"))?;
    let error = std::process::Command::new(program).args(rest).env_clear().exec();
    Err(Failure::new(format!("{}: {error}", program.display())))
}

/// Becomes a program that ends when the process does that started this one.
#[derive(Debug, Args)]
pub(crate) struct ProgramArguments {
    /// The number of that process.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn program(arguments: &ProgramArguments) -> Result<ExitCode, Failure> {
    let parent = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(parent).map_err(Failure::doing("PR_SET_PDEATHSIG"))?;
    // It may have ended before it was asked about.
    if rustix::process::getppid().map(rustix::process::Pid::as_raw_pid) != Some(arguments.parent) {
        return Err(Failure::new("whoever started this has ended"));
    }
    let (program, rest) = arguments.command.split_first().ok_or_else(|| Failure::new("no program"))?;
    Err(not_started(program, &std::process::Command::new(program).args(rest).exec()))
}

/// Why a program does not run.
pub(crate) fn not_started(program: &OsStr, error: &std::io::Error) -> Failure {
    let name = program.to_string_lossy();
    let here = std::path::Path::new(program).is_file() && !name.contains('/');
    // As shells say it.
    let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    let message = match error.kind() {
        std::io::ErrorKind::NotFound if here => {
            format!("{name}: {error}; the one in this folder is ./{name}")
        }
        std::io::ErrorKind::PermissionDenied => format!("{name}: {error}: it is no program that may be run"),
        _ => format!("{name}: {error}"),
    };
    Failure::new(message).with_code(code)
}
