//! What a kernel is told at its start.

use std::{ffi::OsString, fmt, io, os::fd::OwnedFd, path::PathBuf, time::Duration};

use bulkhead_mm::Amounts;
use bulkhead_schema::limits;

use crate::{
    executor_proxy::{Cells, DeviceInfo},
    modules::protected::ProtectedModule,
    principals::{Counted, Quota, Tenant},
    transport::door::Relay,
};

/// Device memory that sessions never get, where it is a GPU's: at most so much.
const RESERVED_BYTES_MAX: u64 = 2 << 30;

/// How to get an executor.
pub enum ExecutorSource {
    /// Start this program with these arguments and `--link-fd 0`: its standard input is the socket to the kernel.
    Command(Vec<OsString>),
    /// Ask for a socket whose other end an executor serves already.
    Connect(Box<dyn Fn() -> io::Result<OwnedFd> + Send>),
}

impl fmt::Debug for ExecutorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => f.debug_tuple("Command").field(command).finish(),
            Self::Connect(_) => f.write_str("Connect"),
        }
    }
}

/// Limits that a site may set lower than `bulkhead_schema::limits` does.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time.
    pub connections_max: usize,
    /// Sessions at a time.
    pub sessions_max: u32,
    /// What one session may use of anything.
    pub session: Amounts,
    /// What all sessions together may use of anything.
    pub total: Amounts,
    /// The most urgent priority that a session may choose; lower is more urgent.
    pub priority_ceiling: i32,
    /// Pinned host memory of all sessions together, in bytes.
    pub host_bytes: u64,
    /// Device memory of all sessions together, in bytes, where that is less than the device has for them.
    pub device_bytes: Option<u64>,
    /// Host memory of all sessions together that their device memory is swapped to, in bytes; 0 for no swapping.
    pub swap_bytes: u64,
    /// Host memory that the kernel keeps for all sessions together and the device does not reach, in bytes.
    pub kernel_bytes: u64,
    /// Compile processes at a time.
    pub compiles_max: usize,
    /// Whether a second executor is kept that goes on with the sessions when the first is lost.
    pub standby: bool,
    /// How many executors have started before an isolated session asks for one.
    pub warm: u32,
    /// What a principal may take of what clients share.
    pub principal: Quota,
    /// What one process of a principal may.
    pub process: Quota,
    /// What the limits that are counted in seconds count in. One second; tests have less patience.
    pub second: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // What is pinned and what is kept leave the machine an eighth of its memory.
        let memory = memory_bytes().unwrap_or(2 * limits::HOST_BYTES_MAX);
        Self {
            connections_max: limits::CONNECTIONS_MAX,
            sessions_max: limits::SESSIONS_MAX,
            session: Amounts::UNLIMITED,
            total: Amounts::UNLIMITED,
            priority_ceiling: 0,
            host_bytes: memory / 2,
            device_bytes: None,
            swap_bytes: memory / 4,
            kernel_bytes: (memory / 8).max(limits::KERNEL_BYTES_MIN),
            compiles_max: limits::COMPILES_MAX,
            standby: false,
            warm: 0,
            principal: Quota::PRINCIPAL,
            process: Quota::PROCESS,
            second: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// What sessions together may use of a device. What the driver needs for contexts, code and stacks is not theirs.
    pub(crate) fn usable_bytes(&self, device: &DeviceInfo) -> u64 {
        let reserved = match device.backend.as_str() {
            "cuda" => (device.memory_bytes / 32).min(RESERVED_BYTES_MAX),
            _ => 0,
        };
        let usable = device.memory_bytes - reserved;
        self.device_bytes.map_or(usable, |most| most.min(usable))
    }

    /// What all clients together may take.
    pub(crate) fn everybody(&self) -> Quota {
        Quota::UNLIMITED
            .with(Counted::Connections, self.connections_max as u64)
            .with(Counted::DescriptorConnections, limits::DESCRIPTOR_CONNECTIONS_MAX as u64)
            .with(Counted::Compiles, limits::COMPILES_QUEUED_MAX as u64)
    }

    /// So many of the seconds that limits count in.
    pub(crate) fn seconds(&self, seconds: u64) -> Duration {
        self.second * u32::try_from(seconds).unwrap_or(u32::MAX)
    }

    /// How long an executor may be silent while it is asked something.
    pub(crate) fn request(&self) -> Duration {
        self.seconds(limits::REQUEST_SECONDS)
    }

    /// How long an executor may take to start: a driver that makes a dozen contexts at once takes half a minute for each.
    pub(crate) fn start(&self) -> Duration {
        self.seconds(2 * limits::REQUEST_SECONDS)
    }

    /// How long a client waits for its executor: the session's own work may have to pass first.
    pub(crate) fn answer(&self) -> Duration {
        self.seconds(limits::REQUEST_SECONDS + limits::DRAIN_SECONDS)
    }

    /// How long a client waits for an image: its turn, the compile process, the executor's own compiler.
    pub(crate) fn load(&self) -> Duration {
        self.answer() + self.seconds(2 * limits::COMPILE_SECONDS)
    }
}

/// What the machine has, as the system tells it.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What a kernel is told at its start.
pub struct Config {
    /// Holds the sockets `kernel.sock` and `descriptors.sock`. Made where it is not there; only its owner may enter.
    pub runtime_directory: PathBuf,
    /// Where executors come from.
    pub executor: ExecutorSource,
    /// Names and values added to the environment of executors, which is otherwise nearly empty.
    pub executor_environment: Vec<(OsString, OsString)>,
    /// Program and arguments of a compile process; it gets `--input-fd 0 --output-fd 1 --architecture N` besides.
    pub compiler: Vec<OsString>,
    /// Protected modules that sessions may claim.
    pub modules: Vec<ProtectedModule>,
    /// Whether connections are relayed.
    pub relay: Relay,
    /// Principals that are more than users.
    pub tenants: Vec<Tenant>,
    /// Limits lower than the schema's.
    pub limits: Limits,
    /// What the system bounds of isolated sessions' executors.
    pub cells: Cells,
    /// Called once clients can connect.
    pub ready: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("runtime_directory", &self.runtime_directory)
            .field("executor", &self.executor)
            .field("compiler", &self.compiler)
            .field("modules", &self.modules)
            .field("tenants", &self.tenants)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
