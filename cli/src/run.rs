//! `bulkhead run`: an unmodified CUDA program on Bulkhead.

use std::{
    collections::BTreeSet,
    env,
    ffi::{OsStr, OsString},
    io::Write as _,
    os::unix::{fs::OpenOptionsExt as _, net::UnixStream, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use bulkhead_client::{ErrorCode, SturdyToken};
use bulkhead_module::door;
use clap::Args;

use crate::{
    Failure, interrupt,
    place::{self, Scratch},
    private::Kernel,
    profile, ptxas, sanitize,
    serve::{Backend, Guard},
    software::Software,
};

/// The socket of the kernel that is meant.
const SOCKET: &str = "BULKHEAD_SOCKET";
/// Where programs look for shared libraries first.
const LIBRARIES: &str = "LD_LIBRARY_PATH";
/// Where they look for other programs.
const PROGRAMS: &str = "PATH";
/// And where, if nothing says it.
const SYSTEM_PROGRAMS: &str = "/usr/local/bin:/bin:/usr/bin";
/// The process of `bulkhead run`, for `bulkhead smi` in what it runs: the sessions that it tells of are below it.
pub(crate) const RUN: &str = "BULKHEAD_RUN";
/// For how long a module is asked for that a `module start` is about to have serve, and one of which nothing is known.
const STARTING: Duration = Duration::from_secs(15);
const UNKNOWN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// Where the library OS writes what `--check` finds.
const CHECK: &str = "BULKHEAD_CHECK";
/// Where it keeps images for `--profile` and `--sanitize`.
const PROFILE: &str = "BULKHEAD_PROFILE";
/// The socket by which it tells what the program allocates, for `--sanitize`.
const SANITIZE: &str = "BULKHEAD_SANITIZE";
/// Where the library OS finds tokens of gates.
const GATES: &str = "BULKHEAD_GATES";
/// Where it writes which calls failed, for `--sanitize`.
const CALLS: &str = "BULKHEAD_CALLS";

/// Has the library OS tell how often it asked the kernel.
const COUNT_CALLS: &str = "BULKHEAD_COUNT_CALLS";
const DOMAIN: &str = "BULKHEAD_DOMAIN";

const STATUS: &str = "Exit status: that of the program; 128 and the number of the signal that ended it; 127 where there \
    is no such program, 126 where it cannot be run; 1 where --check or --sanitize found something, or Bulkhead itself failed.";

/// What keeps a session apart from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Domain {
    /// Isolated where the program's libraries have machine code without PTX when it first uses the device, else guarded.
    Auto,
    /// It shares a context with others; the guard confines its PTX.
    Guarded,
    /// It has an executor and a context of its own, which the GPU keeps apart.
    Isolated,
}

/// Run an unmodified CUDA program on Bulkhead.
///
/// The program finds Bulkhead's libcuda.so.1 in place of NVIDIA's. It runs on the kernel that serves (`bulkhead
/// serve`), or on a private one, started for it and ended with it.
#[derive(Debug, Args)]
#[command(after_help = STATUS)]
pub(crate) struct Arguments {
    /// The socket of the kernel to use.
    #[arg(long, value_parser = place::clients_socket)]
    socket: Option<PathBuf>,
    /// Start a private kernel even where one serves. --guard and options of the software GPU do so too.
    #[arg(long, conflicts_with = "socket")]
    private: bool,
    /// Which device a private kernel drives; a kernel that serves has to drive such a one.
    #[arg(long, value_enum, default_value_t = Backend::Auto, env = "BULKHEAD_BACKEND")]
    backend: Backend,
    /// Which versions of entries a private kernel runs: `strict` trusts no proof about addresses.
    #[arg(long, value_enum, conflicts_with = "socket")]
    guard: Option<Guard>,
    /// What keeps the program's session apart from others: the guard in a context that all share, which takes PTX; or an
    /// executor and a context of its own, which takes machine code too (PyTorch).
    #[arg(long, value_enum, default_value_t = Domain::Auto, env = DOMAIN)]
    domain: Domain,
    #[command(flatten)]
    software: Software,
    /// Tell of every access of a kernel that goes where the program has no memory, or is misaligned: what, where, which
    /// line (of the source with nvcc's -lineinfo), block and thread. Kernels run much slower. The exit status is 1
    /// where there were such accesses and the program itself succeeded.
    #[arg(long)]
    check: bool,
    /// Let the program's kernels call the gates of a protected module: the file of the token that whoever has the module gave
    /// out. May be given more than once.
    #[arg(long, value_name = "TOKEN_FILE", conflicts_with = "private")]
    gates: Vec<PathBuf>,
    /// Open a protected module for the program, with words that mean what the module likes, and let its kernels call its gates;
    /// or have the program find the libraries of a service without gates (`cufft`).
    /// May be given more than once.
    #[arg(long, value_name = "NAME=WORDS", conflicts_with = "private")]
    module: Vec<String>,
    /// Count what kernels do, by kernel and by line of the source (with nvcc's -lineinfo; else of the PTX): instructions,
    /// divergence, memory traffic, bank conflicts, contention. Only on the software GPU, by a private kernel; kernels run
    /// much slower. A table on standard error, or in a file.
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["socket", "check", "gates", "module"],
    )]
    profile: Option<Option<PathBuf>>,
    /// Write what streams did when, to be looked at with Chrome's or Perfetto's viewer.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["socket", "check", "gates", "module"])]
    trace: Option<PathBuf>,
    /// Look for mistakes of kernels, and tell them by line of the source (with nvcc's -lineinfo; else of the PTX): accesses to
    /// memory that is not the program's (memcheck), reads of what nobody wrote (initcheck), races for shared memory (racecheck),
    /// barriers that not all come to (synccheck), memory that is not freed (leakcheck), calls that failed (apicheck). All of them without names. Only on the
    /// software GPU, by a private kernel; kernels run very much slower. A report on standard error in the end. The exit status
    /// is 1 where something was found and the program itself succeeded.
    #[arg(
        long, value_enum, value_name = "TOOL,...", num_args = 0.., value_delimiter = ',', require_equals = true,
        conflicts_with_all = ["socket", "check", "gates", "module", "profile", "trace"],
    )]
    sanitize: Option<Vec<sanitize::Tool>>,
    /// Tell at the end of each process of the program how often it asked the kernel for something, and for what. Launches, copies
    /// and waits go past the kernel: a program that only works on asks for nothing.
    #[arg(long)]
    count_calls: bool,
    /// Print what --check found, or --sanitize, or --profile, as one JSON object on standard output, after all that the program printed
    /// (or in --profile's file).
    #[arg(long)]
    json: bool,
    /// The program and its arguments, after `--`.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

fn watches(arguments: &Arguments) -> bool {
    arguments.profile.is_some() || arguments.trace.is_some() || arguments.sanitize.is_some()
}

/// Whether something is asked for that only guarded sessions have.
fn needs_guard(arguments: &Arguments) -> bool {
    arguments.check || !arguments.gates.is_empty() || watches(arguments) || arguments.guard.is_some()
}

/// Whether what is asked for can be had together, before anything starts.
fn can_be_had(arguments: &Arguments, needs_guard: bool) -> Result<(), Failure> {
    let told = arguments.check || arguments.profile.is_some() || arguments.sanitize.is_some();
    if arguments.json && !told {
        return Err(Failure::new("--json is for --check, --sanitize and --profile"));
    }
    if arguments.domain == Domain::Isolated && needs_guard {
        return Err(Failure::new(
            "--check, --gates, --guard, --profile, --trace and --sanitize are for guarded sessions: leave --domain isolated (or BULKHEAD_DOMAIN) out",
        ));
    }
    if arguments.domain == Domain::Isolated && !arguments.module.is_empty() {
        return Err(Failure::new(
            "--module is for guarded sessions, which share memory with modules: leave --domain isolated (or BULKHEAD_DOMAIN) out",
        ));
    }
    for file in &arguments.gates {
        std::fs::File::open(file).map_err(Failure::doing(format!("--gates {}", file.display())))?;
    }
    for file in arguments.profile.iter().flatten().chain(&arguments.trace) {
        // Before the program runs for an hour; what is there already stays until then.
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        opened.map_err(Failure::doing(file.display()))?;
    }
    let served = arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket);
    if !arguments.module.is_empty() && UnixStream::connect(&served).is_err() {
        return Err(Failure::new(format!(
            "--module: no kernel serves at {}: start one with `bulkhead serve`",
            served.display()
        )));
    }
    Ok(())
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (program, rest) = arguments.command.split_first().ok_or_else(|| Failure::new("no program"))?;
    find(program)?;
    let needs_guard = needs_guard(arguments);
    can_be_had(arguments, needs_guard)?;
    let scratch = Scratch::new()?;
    let profile = arguments.profile.is_some() || arguments.trace.is_some();
    let profile = profile.then(|| profile::Run::new(scratch.path())).transpose()?;
    let sanitize = arguments.sanitize.as_deref();
    let sanitize = sanitize.map(|tools| sanitize::Run::new(scratch.path(), tools)).transpose()?;
    let watching = profile.iter().flat_map(profile::Run::arguments);
    let watching: Vec<OsString> =
        watching.chain(sanitize.iter().flat_map(sanitize::Run::arguments)).collect();
    let kernel = if watching.is_empty() {
        private_kernel(arguments)?
    } else {
        Some(watching_kernel(arguments, watching)?)
    };
    if let Some(socket) = arguments.socket.as_deref() {
        serves_at("--socket", socket)?;
        drives(arguments.backend, socket)?;
    }
    let socket = match &kernel {
        Some(kernel) => kernel.socket(),
        None => arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket),
    };
    // A process of ours becomes the program, which ends when this one does, however that ends.
    let mut command = Command::new(place::binary()?);
    command.args(["program", "--parent", &std::process::id().to_string(), "--"]).arg(program).args(rest);
    prepare(&mut command, scratch.path(), &socket)?;
    let domain = match arguments.domain {
        Domain::Isolated => "isolated",
        Domain::Auto if !needs_guard && arguments.module.is_empty() => "auto",
        Domain::Auto | Domain::Guarded => "guarded",
    };
    command.env(DOMAIN, domain);
    if domain == "guarded" {
        ptxas::stand_in(&mut command, &place::link_assembler(&scratch.path().join("triton"))?);
    }
    let found = scratch.path().join("violations");
    if arguments.check || sanitize.as_ref().is_some_and(sanitize::Run::checks) {
        command.env(CHECK, &found);
    }
    command.env_remove(GATES);
    // The modules are the program's for as long as these are held.
    let (opened, folders) = open_modules(&arguments.module, &socket)?;
    put_first(&mut command, &folders)?;
    if !arguments.gates.is_empty() || !opened.is_empty() {
        let files = arguments.gates.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>();
        let mut files = files.map_err(Failure::doing("--gates"))?;
        for (name, opened) in &opened {
            // By this the library OS knows the module's name, and tells it.
            let file = scratch.path().join(format!("{name}.module.token"));
            write_token(&file, &opened.token).map_err(Failure::doing(file.display()))?;
            files.push(file);
        }
        command
            .env(GATES, env::join_paths(files).map_err(|error| Failure::new(format!("--gates: {error}")))?);
    }
    if let Some(profile) = &profile {
        command.env(PROFILE, profile.images());
    }
    if arguments.count_calls {
        command.env(COUNT_CALLS, "1");
    }
    if let Some(sanitize) = &sanitize {
        command.env(PROFILE, sanitize.images()).env(SANITIZE, sanitize.socket());
        command.env(CALLS, sanitize.calls());
    }
    let status = interrupt::run(&mut command).map_err(Failure::doing(program.to_string_lossy()))?;
    let mut errors = if arguments.check { summary(&found, arguments.json) } else { 0 };
    if let Some(sanitize) = &sanitize {
        errors += sanitize.tell(&found, arguments.json);
    }
    if let Some(profile) = &profile {
        profile.tell(&profile::Output {
            table: arguments.profile.is_some(),
            file: arguments.profile.iter().flatten().next().map(PathBuf::as_path),
            json: arguments.json,
            trace: arguments.trace.as_deref(),
        })?;
    }
    Ok(match (status.code(), status.signal()) {
        (Some(0), _) if errors > 0 => ExitCode::FAILURE,
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => {
            let signal = signal.unwrap_or(0);
            eprintln!("bulkhead: {} was ended by signal {signal}", program.to_string_lossy());
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
    })
}

/// Whether there is a program of this name, before anything is started for it: a path, or a name that `PATH` leads to.
fn find(program: &OsStr) -> Result<(), Failure> {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    // Without it the system looks in places of its own.
    let folders = env::var_os("PATH").filter(|_| !is_path);
    let is_there = match &folders {
        Some(folders) => env::split_paths(folders).any(|folder| folder.join(program).is_file()),
        None => !is_path || Path::new(program).exists(),
    };
    let missing = || std::io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
    if is_there { Ok(()) } else { Err(crate::processes::not_started(program, &missing())) }
}

/// What modules give: gates, by the module's name, and folders of libraries.
type Modules = (Vec<(String, door::Opened)>, Vec<PathBuf>);

/// Opens each module: `NAME=WORDS`, or a name alone.
fn open_modules(modules: &[String], kernel: &Path) -> Result<Modules, Failure> {
    let name_of =
        |module: &String| module.split_once('=').map_or(module.as_str(), |(name, _)| name).to_owned();
    let names: BTreeSet<_> = modules.iter().map(name_of).collect();
    if names.len() < modules.len() {
        return Err(Failure::new("a module is opened once for a program: --module has a name twice"));
    }
    let open = |module: &String| {
        let (name, words) = module.split_once('=').unwrap_or((module, ""));
        if !bulkhead_client::is_module_name(name) {
            return Err(Failure::new(format!("--module {module}: {name:?} is no module's name")));
        }
        let opened = when_served(kernel, name, || door::open_any(&door::socket_of(kernel, name), words));
        opened.map_err(|error| Failure::new(format!("--module {name}: {error}")))
    };
    let (mut gates, mut folders) = (Vec::new(), Vec::new());
    for module in modules {
        match open(module)? {
            door::Given::Gates(opened) => gates.push((name_of(module), opened)),
            door::Given::Library(folder) => folders.push(folder),
        }
    }
    Ok((gates, folders))
}

/// Opens a module that may be starting, or be started again: a while where it is not known to be, and longer where a `module start`
/// runs.
fn when_served<T>(
    kernel: &Path,
    name: &str,
    open: impl Fn() -> Result<T, bulkhead_client::Error>,
) -> Result<T, bulkhead_client::Error> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error) if error.code == ErrorCode::Unavailable => {
                let patience = if crate::module::is_starting(kernel, name) { STARTING } else { UNKNOWN };
                if begun.elapsed() > patience {
                    return Err(error);
                }
                std::thread::sleep(LOOK);
            }
            opened => return opened,
        }
    }
}

/// Has a program look for libraries in these folders before it looks where it is told already.
fn put_first(command: &mut Command, folders: &[PathBuf]) -> Result<(), Failure> {
    let told = command.get_envs().find(|(name, _)| *name == LIBRARIES).and_then(|(_, path)| path);
    let told: Vec<PathBuf> = told.map(|path| env::split_paths(path).collect()).unwrap_or_default();
    let path = env::join_paths(folders.iter().chain(&told));
    command.env(LIBRARIES, path.map_err(|error| Failure::new(format!("--module: {error}")))?);
    Ok(())
}

/// For nobody else to read.
fn write_token(file: &Path, token: &SturdyToken) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(format!("{token:x}\n").as_bytes())
}

/// Says how many accesses went astray, of all processes of the run; answers how many.
fn summary(found: &Path, json: bool) -> u64 {
    // Not there where no process opened a session.
    let text = std::fs::read_to_string(found).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let (unlooked, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.get("unlooked").is_some());
    let unlooked: BTreeSet<_> = unlooked.iter().filter_map(|line| line["unlooked"].as_str()).collect();
    let (more, records): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.get("more").is_some());
    let more: u64 = more.iter().filter_map(|line| line.get("more")?.as_u64()).sum();
    let times = records.iter().map(|record| record["times"].as_u64().unwrap_or(1));
    let errors = times.fold(more, u64::saturating_add);
    if json {
        println!(
            "{}",
            serde_json::json!({ "errors": errors, "records": records, "more": more, "notLookedAt": unlooked })
        );
    }
    eprintln!("bulkhead: {errors} {}", if errors == 1 { "error" } else { "errors" });
    errors
}

/// Sets a command up to find our libraries, our `nvidia-smi` and the kernel. `directory` must live as long as the command runs.
pub(crate) fn prepare(command: &mut Command, directory: &Path, socket: &Path) -> Result<(), Failure> {
    let libraries = directory.join("lib");
    place::link_libraries(&libraries)?;
    let tools = directory.join("bin");
    place::link_tools(&tools)?;
    command.env(LIBRARIES, before(libraries, LIBRARIES, ""));
    command.env(PROGRAMS, before(tools, PROGRAMS, SYSTEM_PROGRAMS));
    command.env(SOCKET, socket).env(RUN, std::process::id().to_string());
    Ok(())
}

/// A folder before those that a variable names, or before `otherwise`.
fn before(folder: PathBuf, variable: &str, otherwise: &str) -> OsString {
    let mut path = folder.into_os_string();
    let inherited = env::var_os(variable).filter(|path| !path.is_empty());
    let rest = inherited.unwrap_or_else(|| otherwise.into());
    if !rest.is_empty() {
        path.push(":");
        path.push(rest);
    }
    path
}

/// A private kernel on the software GPU, which watches what kernels do, as it is told.
fn watching_kernel(arguments: &Arguments, watching: Vec<OsString>) -> Result<Kernel, Failure> {
    if arguments.backend == Backend::Cuda {
        let what = if arguments.sanitize.is_some() {
            "looks for mistakes of kernels"
        } else {
            "counts what kernels do"
        };
        return Err(Failure::new(format!("only the software GPU {what}: --backend software")));
    }
    let mut told = of_private(arguments);
    told.extend(watching);
    Kernel::start_with(Backend::Software, &told)
}

fn private_kernel(arguments: &Arguments) -> Result<Option<Kernel>, Failure> {
    // Whoever names a socket means that one.
    let serves = || match env::var_os(SOCKET) {
        Some(named) => serves_at(SOCKET, Path::new(&named)).map(|()| true),
        None => Ok(UnixStream::connect(bulkhead_client::default_socket()).is_ok()),
    };
    let software = &arguments.software;
    if arguments.socket.is_some() {
        let own = "what is asked of the software GPU is for a private kernel: leave --socket out";
        return if software.is_given() { Err(Failure::new(own)) } else { Ok(None) };
    }
    if !arguments.private && arguments.guard.is_none() && !software.is_given() && serves()? {
        return drives(arguments.backend, &bulkhead_client::default_socket()).map(|()| None);
    }
    Kernel::start_with(software.on(arguments.backend)?, &of_private(arguments)).map(Some)
}

/// Whether a kernel serves at a socket that was named so, and serves this user.
fn serves_at(named: &str, socket: &Path) -> Result<(), Failure> {
    let Err(error) = UnixStream::connect(socket) else { return Ok(()) };
    let why = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "the kernel there does not serve this user".to_owned(),
        _ if socket.is_dir() => {
            format!("it is a folder: name the socket, {}", socket.join("kernel.sock").display())
        }
        _ => format!("no kernel serves there ({error}): start one with `bulkhead serve`"),
    };
    Err(Failure::new(format!("{named} {}: {why}", socket.display())))
}

/// Whether the kernel that serves has a device of the backend that was asked for, where one was.
fn drives(backend: Backend, socket: &Path) -> Result<(), Failure> {
    if backend == Backend::Auto {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::doing("starting a runtime"))?;
    let found = tokio::task::LocalSet::new().block_on(&runtime, crate::status::backends(socket))?;
    if found.iter().any(|found| found == backend.name()) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "--backend {} was asked for, and the kernel that serves at {} drives {}: add --private for a kernel of the program's own, \
         or leave --backend out",
        backend.name(),
        socket.display(),
        found.join(", "),
    )))
}

/// What a private kernel is told.
fn of_private(arguments: &Arguments) -> Vec<OsString> {
    let guard = arguments.guard.map(|guard| ["--guard".into(), guard.name().into()]);
    guard.into_iter().flatten().chain(arguments.software.arguments()).collect()
}
