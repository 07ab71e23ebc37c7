//! `bulkhead module start`, `stop` and `list`: modules of a kernel that serves.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use bulkhead_client::{Error, ErrorCode, Operator};
use bulkhead_module::{
    door,
    manifest::{Manifest, Version},
};
use bulkhead_schema::bulkhead_capnp::status;
use clap::Args;
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal, SignalKind, signal},
};

use super::service;
use crate::{
    Failure,
    output::{self, tell},
    place, serve,
};

/// A host half that lives for less is started again only so often.
const STEADY: Duration = Duration::from_secs(5);
const FAILURES_MAX: u32 = 5;
/// For how long a kernel is waited for.
const KERNEL: Duration = Duration::from_secs(3);
/// Between two of those, as many times as there were.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked whether a host half lets callers in.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// How often it is looked whether the module is there.
pub(super) const GONE_LOOK: Duration = Duration::from_millis(500);
/// How long a host half may take to serve before that is told.
const SERVING: Duration = Duration::from_secs(5);
/// How long a host half may take to end when its module is gone.
pub(super) const ENDING: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(super) struct Start {
    /// The manifest, or the folder that it lies in.
    #[arg(value_name = "MODULE.toml", default_value = ".")]
    manifest: PathBuf,
    /// The socket of the kernel that serves; the operator's is beside it.
    #[arg(long, value_parser = place::kernel_socket)]
    socket: Option<PathBuf>,
    /// What the host half is told besides what the manifest has, such as `--namespace data=file:/srv/data.img`.
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct Stop {
    /// The module's name.
    name: String,
    #[arg(long, value_parser = place::kernel_socket, help = "The socket of the kernel that serves; the operator's is beside it")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print the names alone, one a line: for scripts and for the completion of names.
    #[arg(long, conflicts_with = "json")]
    names: bool,
    /// The socket of the kernel that serves; the operator's is beside it.
    #[arg(long, value_parser = place::kernel_socket)]
    socket: Option<PathBuf>,
}

fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::doing("starting a runtime"))?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

fn kernel(socket: Option<&Path>) -> PathBuf {
    socket.map_or_else(bulkhead_client::default_socket, Path::to_owned)
}

/// Which session has a module; `None` where the kernel knows no such module.
async fn holder(operator: &Operator, name: &str) -> Result<Option<u32>, Failure> {
    let modules = modules(operator).await?;
    Ok(modules.into_iter().find(|module| module.name == name).map(|module| module.session))
}

struct Module {
    name: String,
    bytes: u64,
    /// 0 where nobody has it.
    session: u32,
    pid: u32,
    callers: Vec<u32>,
}

async fn modules(operator: &Operator) -> Result<Vec<Module>, Failure> {
    let message = operator.status().await?;
    let read = || -> capnp::Result<Vec<Module>> {
        let status: status::Reader<'_> = message.get_root_as_reader()?;
        let sessions = status.get_sessions()?;
        let mut found = Vec::new();
        for device in status.get_devices()? {
            for module in device.get_modules()? {
                let session = module.get_session();
                let pid = sessions.iter().find(|one| one.get_id() == session).map_or(0, |one| one.get_pid());
                let (name, bytes) = (module.get_name()?.to_string()?, module.get_bytes());
                let callers = module.get_callers()?.iter().collect();
                found.push(Module { name, bytes, session, pid, callers });
            }
        }
        Ok(found)
    };
    read().map_err(|error| Failure::new(format!("what the kernel says makes no sense: {error}")))
}

pub(super) fn list(list: &List) -> Result<(), Failure> {
    let socket = kernel(list.socket.as_deref());
    let mut modules = block_on(async {
        let operator = Operator::open(&place::operator_socket(&socket)).await?;
        self::modules(&operator).await
    })?;
    for (name, pid) in service::running(&socket) {
        if modules.iter().all(|module| module.name != name) {
            modules.push(Module { name, bytes: 0, session: 0, pid, callers: Vec::new() });
        }
    }
    if list.names {
        let names: String =
            modules.iter().map(|module| format!("{}\n", output::plain(&module.name))).collect();
        return output::print(&names);
    }
    if list.json {
        let modules: Vec<_> = modules
            .iter()
            .map(|module| {
                serde_json::json!({
                    "name": module.name, "bytes": module.bytes,
                    "session": (module.session > 0).then_some(module.session),
                    "pid": (module.pid > 0).then_some(module.pid), "callers": module.callers,
                })
            })
            .collect();
        let value = serde_json::json!({ "modules": modules });
        return output::print(&format!("{}\n", output::plain_json(&format!("{value:#}"))));
    }
    let widest = modules.iter().map(|module| module.name.len()).max().unwrap_or(0).max(6);
    let mut table = format!("{:widest$}   window  host half        callers\n", "module");
    for Module { name, bytes, session, pid, callers } in &modules {
        let half = match (*session, *pid) {
            (0, 0) => "-".to_owned(),
            (0, pid) => format!("service, {pid}"),
            (session, pid) => format!("session {session}, {pid}"),
        };
        let callers: Vec<_> = callers.iter().map(u32::to_string).collect();
        let callers = if callers.is_empty() { "-".to_owned() } else { callers.join(" ") };
        let window = if *bytes == 0 { "-".to_owned() } else { format!("{} MiB", bytes >> 20) };
        table.push_str(&format!("{:widest$}  {window:>7}  {half:15}  {callers}\n", output::plain(name)));
    }
    output::print(&table)
}

pub(super) fn stop(stop: &Stop) -> Result<(), Failure> {
    let socket = kernel(stop.socket.as_deref());
    block_on(async {
        let operator = Operator::open(&place::operator_socket(&socket)).await?;
        match operator.remove_module(&stop.name).await {
            // Of a service without gates the kernel knows nothing.
            Err(error) if error.code == ErrorCode::NotFound && service::stop(&socket, &stop.name).await? => {
                Ok(())
            }
            removed => Ok(removed?),
        }
    })
}

pub(super) fn start(start: &Start) -> Result<(), Failure> {
    let mut manifest =
        Manifest::read(&start.manifest).map_err(|refused| Failure::new(refused.to_string()))?;
    manifest.host.extend(start.arguments.iter().cloned());
    let socket = kernel(start.socket.as_deref());
    let socket = std::path::absolute(&socket).map_err(Failure::doing(socket.display()))?;
    check_needs(&manifest, &socket)?;
    let Some(gates) = &manifest.gates else {
        return block_on(service::start(&manifest, &socket));
    };
    let module = serve::protected(&manifest.name, gates, manifest.window)?;
    block_on(async {
        let operator = operator(&socket).await?;
        let _only = only(&socket, &manifest.name).await?;
        // What was left by a `module start` that was killed is in the way of nobody.
        match holder(&operator, &manifest.name).await? {
            Some(0) => operator.remove_module(&manifest.name).await?,
            Some(session) => {
                let name = &manifest.name;
                return Err(Failure::new(format!(
                    "session {session} serves {name} already: `bulkhead module stop {name}` takes it away"
                )));
            }
            None => {}
        }
        program(&manifest)?;
        operator.add_module(&module.name, &module.gates, module.bytes, module.host_bytes).await?;
        let done = supervise(&operator, &manifest, &socket).await;
        if done.is_err() && operator.status().await.is_err() {
            // There is nothing to be removed.
            return done;
        }
        match operator.remove_module(&manifest.name).await {
            Err(error) if error.code != ErrorCode::NotFound && done.is_ok() => Err(error.into()),
            Ok(()) | Err(_) => done,
        }
    })
}

/// Refuses a module that does not work here.
fn check_needs(manifest: &Manifest, kernel: &Path) -> Result<(), Failure> {
    let needs = |what: String| Failure::new(format!("{} needs {what}", manifest.name));
    let own = env!("CARGO_PKG_VERSION");
    if let Some(version) =
        manifest.needs.bulkhead.filter(|version| Version::of(own).is_none_or(|own| own < *version))
    {
        return Err(needs(format!("Bulkhead {version}, and this is {own}")));
    }
    let Some(backend) = &manifest.needs.backend else { return Ok(()) };
    block_on(async {
        // A kernel that was started just now is waited for.
        drop(operator(kernel).await?);
        let found = crate::status::backends(kernel).await?;
        if found.contains(backend) {
            return Ok(());
        }
        Err(needs(format!("a device of the backend {backend}, and the kernel has {}", found.join(", "))))
    })
}

/// The kernel's operator socket. A kernel that was started just now is waited for.
pub(super) async fn operator(kernel: &Path) -> Result<Operator, Failure> {
    let until = Instant::now() + KERNEL;
    loop {
        match Operator::open(&place::operator_socket(kernel)).await {
            Err(_) if Instant::now() < until => tokio::time::sleep(LOOK).await,
            opened => return Ok(opened?),
        }
    }
}

/// A lock that one `module start` of a name has at a time. One that is about to end is waited for.
pub(super) async fn only(socket: &Path, name: &str) -> Result<std::fs::File, Failure> {
    let path = socket.with_file_name(format!("{name}.module.lock"));
    let opened = std::fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let file = opened.map_err(Failure::doing(path.display()))?;
    let until = Instant::now() + ENDING + ENDING;
    let mut said = false;
    while let Err(error) = file.try_lock() {
        if !std::mem::replace(&mut said, true) {
            let seconds = (ENDING + ENDING).as_secs();
            tell!("bulkhead: {name} runs already; waiting up to {seconds} s for that `module start` to end");
        }
        if Instant::now() > until {
            return Err(Failure::new(format!(
                "another `bulkhead module start` keeps {name} running ({}: {error}): \
                 `bulkhead module stop {name}` takes it away",
                path.display()
            )));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(file)
}

/// Signals that end a supervisor.
pub(super) struct Signals([Signal; 3]);

impl Signals {
    pub(super) fn new() -> Result<Self, Failure> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        let broken = Failure::doing("waiting for signals");
        match (interrupt, terminate, hangup) {
            (Ok(interrupt), Ok(terminate), Ok(hangup)) => Ok(Self([interrupt, terminate, hangup])),
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => Err(broken(error)),
        }
    }

    pub(super) async fn came(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// Keeps a host half running until the module is taken away, or somebody wants this process to end.
async fn supervise(operator: &Operator, manifest: &Manifest, kernel: &Path) -> Result<(), Failure> {
    let (name, mut signals, mut failures) = (&manifest.name, Signals::new()?, 0);
    loop {
        let begun = Instant::now();
        let mut child = command(manifest, kernel)?.spawn().map_err(Failure::doing(name))?;
        let ended = tokio::select! {
            ended = watch(&mut child, name, kernel) => ended,
            gone = until_gone(operator, name) => {
                if gone.is_err() {
                    return with_its_kernel(name, &mut child).await;
                }
                // It sees that its session is over; where it does not look, it is killed.
                drop(tokio::time::timeout(ENDING, child.wait()).await);
                tell!("bulkhead: the module {name} was taken away");
                return Ok(());
            }
            () = signals.came() => {
                match operator.remove_module(name).await {
                    Ok(()) | Err(Error { code: ErrorCode::NotFound, .. }) => {}
                    Err(error) => tell!("bulkhead: {error}"),
                }
                // Its session is over, and so is it; it is killed when it is dropped.
                drop(tokio::time::timeout(ENDING, child.wait()).await);
                return Ok(());
            }
        };
        let ended = ended.map_err(Failure::doing("waiting for the host half"))?;
        match holder(operator, name).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                tell!("bulkhead: the module {name} was taken away");
                return Ok(());
            }
            Err(_) => return with_its_kernel(name, &mut child).await,
        }
        failures = again(name, ended, begun, failures).await?;
    }
}

/// The kernel answers no more: the host half, which sees that its session is over, ends too, or is killed when it is dropped.
async fn with_its_kernel(name: &str, child: &mut Child) -> Result<(), Failure> {
    drop(tokio::time::timeout(ENDING, child.wait()).await);
    Err(Failure::new(format!(
        "the kernel has ended, and with it the module {name}: start a kernel (`bulkhead serve`), and the module again"
    )))
}

/// Whether a host half that has ended is started again: how often it has failed in a row.
pub(super) async fn again(
    name: &str,
    ended: ExitStatus,
    begun: Instant,
    failures: u32,
) -> Result<u32, Failure> {
    if ended.code() == Some(bulkhead_module::CANNOT_SERVE.into()) {
        return Err(Failure::new(format!("the host half of {name} cannot serve: what it says is above")));
    }
    let failures = if begun.elapsed() < STEADY { failures + 1 } else { 0 };
    if failures >= FAILURES_MAX {
        return Err(Failure::new(format!(
            "the host half of {name} ends at once, {failures} times now: {ended}"
        )));
    }
    tell!("bulkhead: the host half of {name} has ended ({ended}): it is started again");
    tokio::time::sleep(PAUSE * failures).await;
    Ok(failures)
}

/// The host half's program.
pub(super) fn program(manifest: &Manifest) -> Result<PathBuf, Failure> {
    // With a folder in it, it is the manifest's; without, the path's.
    let named = manifest.host.first().map_or("", String::as_str);
    let program = if named.contains('/') { manifest.folder.join(named) } else { named.into() };
    if program.is_absolute() && !program.is_file() {
        return Err(Failure::new(format!(
            "the host half, {}, is not there: build it, or name another in the manifest",
            program.display()
        )));
    }
    Ok(program)
}

pub(super) fn command(manifest: &Manifest, kernel: &Path) -> Result<Command, Failure> {
    let arguments = manifest.host.get(1..).unwrap_or_default();
    let program = program(manifest)?;
    let quota: Vec<_> = manifest.quota.iter().map(|(column, most)| format!("{column}={most}")).collect();
    // A process of ours becomes the host half, which ends when this one does, however that ends.
    let mut command = Command::new(place::binary()?);
    command
        .args(["program", "--parent", &std::process::id().to_string(), "--"])
        .arg(&program)
        .args(arguments)
        .current_dir(&manifest.folder)
        .env("BULKHEAD_SOCKET", kernel)
        .env(bulkhead_module::NAME, &manifest.name)
        .env(bulkhead_module::INSTANCES, manifest.instances.to_string())
        .env(bulkhead_module::QUOTA, quota.join(","))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Ok(command)
}

/// Waits until the kernel knows no such module any more.
async fn until_gone(operator: &Operator, name: &str) -> Result<(), Failure> {
    while holder(operator, name).await?.is_some() {
        tokio::time::sleep(GONE_LOOK).await;
    }
    Ok(())
}

/// Says when a host half lets callers in, and waits for its end.
pub(super) async fn watch(child: &mut Child, name: &str, kernel: &Path) -> std::io::Result<ExitStatus> {
    let socket = door::socket_of(kernel, name);
    let (begun, mut told) = (Instant::now(), false);
    loop {
        if begun.elapsed() > SERVING && !told {
            told = true;
            tell!(
                "bulkhead: the host half of {name} does not serve yet, {} s after its start",
                SERVING.as_secs()
            );
        }
        if let Ok(ended) = tokio::time::timeout(LOOK, child.wait()).await {
            return ended;
        }
        if tokio::net::UnixStream::connect(&socket).await.is_ok() {
            tell!("bulkhead: the module {name} serves at {}", socket.display());
            return child.wait().await;
        }
    }
}
