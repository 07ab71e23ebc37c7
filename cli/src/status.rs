//! `bulkhead status`: who uses the GPU, and for how much.

use std::{io::IsTerminal as _, path::PathBuf, process::ExitCode, thread, time::Duration};

use bulkhead_client::{Column, Connection, Error, ErrorCode, Operator};
use bulkhead_schema::bulkhead_capnp::{device, device_status, module_status, result, session_status, status};
use clap::Args;
use serde_json::{Value, json};

use crate::{Failure, output, output::plain, place};

/// Show who uses the GPU: sessions, their memory, what is swapped out, and the standby.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The socket of the kernel to ask.
    #[arg(long, value_parser = place::kernel_socket)]
    socket: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Show what the sessions of this name, or the one of this number, use of everything, and how much they may.
    #[arg(long, value_name = "NAME|NUMBER")]
    session: Option<String>,
    /// Ask again every so many seconds, until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = pause)]
    watch: Option<Duration>,
}

/// How long to wait before the kernel is asked again.
fn pause(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(pause) if pause >= PAUSE_MIN => Ok(pause),
        Ok(_) | Err(_) => {
            Err(format!("at least {} s, or the kernel does nothing else", PAUSE_MIN.as_secs_f64()))
        }
    }
}

/// No kernel is asked more often.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// A device's row.
pub(crate) struct Device {
    pub(crate) index: u32,
    executor_pid: u32,
    executor_starts: u32,
    standby_pid: u32,
    failovers: u32,
    warm: u32,
    unclaimed_bytes: u64,
    strict: bool,
    memory_bytes: u64,
    charged_bytes: u64,
    images: [u32; 3],
    swap_outs: u32,
    swap_ins: u32,
    swapped_bytes: u64,
    pub(crate) ledger: Vec<Column>,
    modules: Vec<Module>,
}

/// A protected module.
struct Module {
    name: String,
    bytes: u64,
    session: u32,
    callers: Vec<u32>,
}

/// A session's row.
pub(crate) struct Session {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) device: u32,
    pub(crate) pid: u32,
    parent: u32,
    priority: i32,
    arena_bytes: u64,
    host_bytes: u64,
    swapped_bytes: u64,
    quarantined_bytes: u64,
    executor_pid: u32,
    swaps: u32,
    suspended: bool,
    suspending: bool,
    /// Its work, without any of it having passed.
    busy: Duration,
    granted: u32,
    capabilities: u32,
    swappable: bool,
    lost: bool,
    pub(crate) ledger: Vec<Column>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let socket = arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("starting a runtime"))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let operator = place::operator_socket(&socket);
        if socket == operator {
            // Named by somebody who may: it has no clients' calls.
            let kernel = Kernel::Operator(Operator::open(&operator).await?);
            return show(arguments, &kernel).await;
        }
        let kernel = match Connection::open(&socket, "bulkhead status").await {
            Ok(connection) => Kernel::Client(connection),
            // Clients have all places that this process may have one of: the operator has some of its own.
            Err(error) if error.code == ErrorCode::LimitReached => {
                Kernel::Operator(Operator::open(&operator).await.map_err(|_| error)?)
            }
            Err(error) => return Err(error.into()),
        };
        show(arguments, &kernel).await
    })
}

/// Prints what a kernel answers, once or again and again.
async fn show(arguments: &Arguments, kernel: &Kernel) -> Result<ExitCode, Failure> {
    loop {
        let (devices, mut sessions) = kernel.ask().await?;
        if let Some(name) = &arguments.session {
            sessions.retain(|session| session.name == *name || session.id.to_string() == *name);
            if sessions.is_empty() {
                return Err(Failure::new(format!(
                    "no session is called {name:?} or has that number: `bulkhead status` lists them"
                )));
            }
        }
        let told = match (arguments.json, &arguments.session) {
            (true, _) => output::plain_json(&format!("{:#}\n", as_json(&devices, &sessions))),
            (false, Some(_)) => sessions.iter().map(as_ledger).collect(),
            (false, None) => as_table(&devices, &sessions),
        };
        // Home, then clear what is below: a screen that does not flicker. A file gets one table behind the other.
        let is_screen = std::io::stdout().is_terminal();
        let screen =
            if arguments.watch.is_some() && !arguments.json && is_screen { "\x1b[H\x1b[J" } else { "" };
        output::print(&format!("{screen}{told}"))?;
        let Some(pause) = arguments.watch else { return Ok(ExitCode::SUCCESS) };
        thread::sleep(pause);
    }
}

/// Whom to ask.
enum Kernel {
    Client(Connection),
    Operator(Operator),
}

impl Kernel {
    async fn ask(&self) -> Result<(Vec<Device>, Vec<Session>), Failure> {
        match self {
            Self::Client(connection) => ask(connection).await,
            Self::Operator(operator) => {
                let status = operator.status().await?;
                status.get_root_as_reader().and_then(read).map_err(broken)
            }
        }
    }
}

pub(crate) fn broken(error: capnp::Error) -> Failure {
    Failure::new(format!("the kernel does not answer: {error}"))
}

/// Whether the kernel behind a socket runs entries only whose accesses are all masked or clamped.
pub(crate) fn is_strict(socket: &std::path::Path) -> Result<bool, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Failure::doing("starting a runtime"))?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let connection = Connection::open(socket, "bulkhead doctor").await?;
        let (devices, _) = ask(&connection).await?;
        Ok(devices.iter().all(|device| device.strict))
    })
}

/// The backends of a kernel's devices.
pub(crate) async fn backends(socket: &std::path::Path) -> Result<Vec<String>, Failure> {
    let connection = Connection::open(socket, "bulkhead").await?;
    let response = connection.kernel.list_devices_request().send().promise.await.map_err(broken)?;
    let result = response.get().and_then(|response| response.get_result()).map_err(broken)?;
    match result.which().map_err(|error| broken(error.into()))? {
        result::Ok(devices) => {
            let devices = devices.and_then(|devices| devices.get_devices()).map_err(broken)?;
            let backend = |device: device::Reader<'_>| Ok(device.get_backend()?.to_string()?);
            devices.iter().map(backend).collect::<capnp::Result<_>>().map_err(broken)
        }
        result::Error(error) => Err(Error::read(error.map_err(broken)?).into()),
    }
}

/// How `serve --guard` is called.
const fn guard(strict: bool) -> &'static str {
    if strict { "strict" } else { "full" }
}

/// Asks as any client may.
pub(crate) async fn ask(connection: &Connection) -> Result<(Vec<Device>, Vec<Session>), Failure> {
    let response = connection.kernel.status_request().send().promise.await.map_err(broken)?;
    let result = response.get().and_then(|response| response.get_result()).map_err(broken)?;
    match result.which().map_err(|error| broken(error.into()))? {
        result::Ok(status) => read(status.map_err(broken)?).map_err(broken),
        result::Error(error) => Err(Error::read(error.map_err(broken)?).into()),
    }
}

fn read(status: status::Reader<'_>) -> capnp::Result<(Vec<Device>, Vec<Session>)> {
    let module = |module: module_status::Reader<'_>| {
        Ok(Module {
            name: module.get_name()?.to_string()?,
            bytes: module.get_bytes(),
            session: module.get_session(),
            callers: module.get_callers()?.iter().collect(),
        })
    };
    let device = |device: device_status::Reader<'_>| {
        Ok(Device {
            index: device.get_index(),
            executor_pid: device.get_executor_pid(),
            executor_starts: device.get_executor_starts(),
            standby_pid: device.get_standby_pid(),
            failovers: device.get_failovers(),
            warm: device.get_warm(),
            unclaimed_bytes: device.get_unclaimed_bytes(),
            strict: device.get_strict(),
            memory_bytes: device.get_memory_bytes(),
            charged_bytes: device.get_charged_bytes(),
            images: [device.get_images_compiled(), device.get_images_kept(), device.get_images_loaded()],
            swap_outs: device.get_swap_outs(),
            swap_ins: device.get_swap_ins(),
            swapped_bytes: device.get_swapped_bytes(),
            ledger: device.get_ledger()?.iter().map(Column::read).collect::<capnp::Result<_>>()?,
            modules: device.get_modules()?.iter().map(module).collect::<capnp::Result<_>>()?,
        })
    };
    let session = |session: session_status::Reader<'_>| {
        Ok(Session {
            id: session.get_id(),
            name: session.get_name()?.to_string()?,
            device: session.get_device(),
            pid: session.get_pid(),
            parent: session.get_parent(),
            priority: session.get_priority(),
            arena_bytes: session.get_arena_bytes(),
            host_bytes: session.get_host_bytes(),
            swapped_bytes: session.get_swapped_bytes(),
            quarantined_bytes: session.get_quarantined_bytes(),
            executor_pid: session.get_executor_pid(),
            swaps: session.get_swaps(),
            suspended: session.get_suspended(),
            suspending: session.get_suspending(),
            granted: session.get_granted(),
            capabilities: session.get_capabilities(),
            swappable: session.get_swappable(),
            lost: session.get_lost(),
            busy: Duration::from_millis(session.get_busy_ms().into()),
            ledger: session.get_ledger()?.iter().map(Column::read).collect::<capnp::Result<_>>()?,
        })
    };
    let devices = status.get_devices()?.iter().map(device).collect::<capnp::Result<_>>()?;
    let sessions = status.get_sessions()?.iter().map(session).collect::<capnp::Result<_>>()?;
    Ok((devices, sessions))
}

fn as_json(devices: &[Device], sessions: &[Session]) -> Value {
    let module = |module: &Module| {
        json!({
            "name": module.name,
            "bytes": module.bytes,
            "session": (module.session > 0).then_some(module.session),
            "callers": module.callers,
        })
    };
    let device = |device: &Device| {
        json!({
            "index": device.index,
            "executor_pid": device.executor_pid,
            "executor_starts": device.executor_starts,
            "standby_pid": device.standby_pid,
            "failovers": device.failovers,
            "warm_executors": device.warm,
            "unclaimed_bytes": device.unclaimed_bytes,
            "guard": guard(device.strict),
            "memory_bytes": device.memory_bytes,
            "charged_bytes": device.charged_bytes,
            "images_compiled": device.images[0],
            "images_kept": device.images[1],
            "images_loaded": device.images[2],
            "swap_outs": device.swap_outs,
            "swap_ins": device.swap_ins,
            "swapped_bytes": device.swapped_bytes,
            "ledger": ledger_json(&device.ledger),
            "modules": device.modules.iter().map(module).collect::<Vec<_>>(),
        })
    };
    let session = |session: &Session| {
        json!({
            "id": session.id,
            "name": session.name,
            "device": session.device,
            "pid": session.pid,
            "parent": session.parent,
            "priority": session.priority,
            "device_bytes": session.arena_bytes,
            "host_bytes": session.host_bytes,
            "swapped_bytes": session.swapped_bytes,
            "suspended": session.suspended,
            "suspending": session.suspending,
            "quarantined_bytes": session.quarantined_bytes,
            "domain": if session.executor_pid == 0 { "guarded" } else { "isolated" },
            "executor_pid": session.executor_pid,
            "swaps": session.swaps,
            "granted": session.granted,
            "capabilities": session.capabilities,
            "swappable": session.swappable,
            "state": state(session),
            "busy_ms": u64::try_from(session.busy.as_millis()).unwrap_or(u64::MAX),
            "ledger": ledger_json(&session.ledger),
        })
    };
    json!({
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
        "sessions": sessions.iter().map(session).collect::<Vec<_>>(),
    })
}

/// By the name of the column; `null` where there is no limit.
fn ledger_json(columns: &[Column]) -> Value {
    let column = |column: &Column| {
        let limit = (column.limit != u64::MAX).then_some(column.limit);
        (column.name.clone(), json!({"used": column.used, "limit": limit}))
    };
    Value::Object(columns.iter().map(column).collect())
}

/// What a session uses of everything.
fn as_ledger(session: &Session) -> String {
    let mut out = format!(
        "session {}  {:.40}, process {}, {}, priority {}\n{:>16} {:>14} {:>14}\n",
        session.id,
        plain(&session.name),
        session.pid,
        state(session),
        session.priority,
        "column",
        "used",
        "limit"
    );
    for column in &session.ledger {
        let amount = |amount: u64| match (amount, column.name.ends_with("_bytes")) {
            (0, _) => "-".to_owned(),
            (u64::MAX, _) => "none".to_owned(),
            (_, true) => bytes(amount),
            (_, false) => amount.to_string(),
        };
        out += &format!("{:>16} {:>14} {:>14}\n", column.name, amount(column.used), amount(column.limit));
    }
    out
}

/// What a session is doing, in a word.
fn state(session: &Session) -> &'static str {
    match (session.lost, session.quarantined_bytes, session.swapped_bytes) {
        (_, 1.., _) => "quarantined",
        (true, 0, _) => "ending",
        (false, 0, 1..) => "swapped out",
        (false, 0, 0) => "resident",
    }
}

fn as_table(devices: &[Device], sessions: &[Session]) -> String {
    const COLUMNS: usize = 40;
    let mut out = String::new();
    for device in devices {
        let used = device.charged_bytes.min(device.memory_bytes);
        let share = if device.memory_bytes == 0 {
            0
        } else {
            u128::from(used) * COLUMNS as u128 / u128::from(device.memory_bytes)
        };
        let full = usize::try_from(share).unwrap_or(COLUMNS);
        let process = |pid: u32| if pid == 0 { "none".to_owned() } else { format!("process {pid}") };
        out += &format!(
            "device {}  [{}{}] {} of {} in use\n",
            device.index,
            "#".repeat(full),
            ".".repeat(COLUMNS - full),
            bytes(device.charged_bytes),
            bytes(device.memory_bytes),
        );
        out += &format!(
            "          guard {}; executor {}, started {} times; standby {}, took over {} times\n",
            guard(device.strict),
            process(device.executor_pid),
            device.executor_starts,
            process(device.standby_pid),
            device.failovers,
        );
        if device.warm > 0 {
            out += &format!("          {} executors wait for isolated sessions\n", device.warm);
        }
        if device.unclaimed_bytes > 0 {
            out += &format!(
                "          {} are taken by no process that is known: one of an isolated session may keep them until it ends\n",
                bytes(device.unclaimed_bytes)
            );
        }
        out += &format!(
            "          swapped out {} and in {} times, {} moved\n",
            device.swap_outs,
            device.swap_ins,
            bytes(device.swapped_bytes),
        );
        let [compiled, kept, loaded] = device.images;
        out += &format!(
            "          images: {compiled} compiled, {kept} taken from the cache, {loaded} loaded already\n"
        );
        for module in &device.modules {
            let callers: Vec<_> = module.callers.iter().map(u32::to_string).collect();
            out += &format!(
                "          module {}: {}, {}, called by {}\n",
                module.name,
                bytes(module.bytes),
                if module.session == 0 {
                    "nobody's".to_owned()
                } else {
                    format!("session {}'s", module.session)
                },
                if callers.is_empty() { "nobody".to_owned() } else { callers.join(", ") },
            );
        }
    }
    if sessions.is_empty() {
        return out + "\nno sessions\n";
    }
    out += &format!(
        "\n{:>6} {:>8} {:<20} {:>10} {:>10} {:>10} {:>5} {:>7} {:>6}  {}\n",
        "id", "process", "name", "device", "host", "swapped", "caps", "granted", "swaps", "state"
    );
    for session in sessions {
        out += &format!(
            "{:>6} {:>8} {:<20.20} {:>10} {:>10} {:>10} {:>5} {:>7} {:>6}  {}{}{}{}\n",
            session.id,
            session.pid,
            plain(&session.name),
            bytes(session.arena_bytes),
            bytes(session.host_bytes),
            bytes(session.swapped_bytes),
            session.capabilities,
            session.granted,
            session.swaps,
            state(session).to_owned() + &busy(session),
            match session.executor_pid {
                0 => String::new(),
                pid => format!(", isolated in process {pid}"),
            } + match (session.suspended, session.suspending) {
                (true, _) => ", suspended",
                (false, true) => ", suspending",
                (false, false) => "",
            },
            if session.swappable || session.executor_pid != 0 { "" } else { ", stays resident" },
            if session.parent == 0 { String::new() } else { format!(", program of {}", session.parent) },
        );
    }
    out
}

/// For how long it has had work of which none has passed, where that is long.
fn busy(session: &Session) -> String {
    match session.busy.as_secs() {
        0 => String::new(),
        seconds => format!(", busy for {seconds} s"),
    }
}

/// A number of bytes for people.
fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        1..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => {
            // Hundredths, without floating point.
            let hundredths = (u128::from(bytes) * 100) >> 30;
            format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_the_unit_that_fits() {
        assert_eq!(bytes(0), "-");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(64 << 20), "64 MiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(bytes(u64::MAX), "17179869183.99 GiB");
    }
}
