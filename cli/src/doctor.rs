//! `bulkhead doctor`: what was found, what is missing, how to get it.

mod bounds;
mod confinement;

use std::{os::unix::net::UnixStream, path::Path, process::ExitCode};

use clap::Args;
use serde_json::json;

use crate::{Failure, output, place, serve::Backend};

/// Tell what was found on this machine, what is missing, and how to get it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print only the backend that `auto` stands for here.
    #[arg(long)]
    backend: bool,
    /// Try on this process what a compile process gives up, and tell.
    #[arg(long, hide = true)]
    try_confinement: bool,
    /// Try on this process what an executor of an isolated session gives up, and tell.
    #[arg(long, hide = true)]
    try_sandbox: bool,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is there.
    Found,
    /// It is not, and something does not work without it.
    Missing,
    /// It is not, and nothing here needs it.
    Absent,
}

struct Check {
    name: &'static str,
    state: State,
    detail: String,
    remedy: &'static str,
}

impl Arguments {
    /// Whether this process gives up what a compile process does.
    pub(crate) const fn tries_confinement(&self) -> bool {
        self.try_confinement
    }

    /// Whether this process gives up what an executor of an isolated session does.
    pub(crate) const fn tries_sandbox(&self) -> bool {
        self.try_sandbox
    }
}

/// Tries on this process, which must have one thread, what an executor of an isolated session gives up.
pub(crate) fn try_sandbox() -> Result<ExitCode, Failure> {
    confinement::attempt_sandbox()
}

pub(crate) fn run(arguments: &Arguments, apart: Option<rustix::io::Result<()>>) -> Result<ExitCode, Failure> {
    if let Some(apart) = apart {
        return confinement::attempt(apart);
    }
    let backend = Backend::Auto.resolve();
    if arguments.backend {
        return output::print(&format!("{}\n", backend.name())).map(|()| ExitCode::SUCCESS);
    }
    let checks = checks(backend);
    let healthy = checks.iter().all(|check| check.state != State::Missing);
    if arguments.json {
        let rows: Vec<_> = checks
            .iter()
            .map(|check| {
                let state = match check.state {
                    State::Found => "found",
                    State::Missing => "missing",
                    State::Absent => "absent",
                };
                json!({"name": check.name, "state": state, "detail": check.detail, "remedy": check.remedy})
            })
            .collect();
        let told = json!({"backend": backend.name(), "healthy": healthy, "checks": rows});
        output::print(&format!("{told:#}\n"))?;
    } else {
        let mut told = String::new();
        for check in &checks {
            let mark = match check.state {
                State::Found => "ok     ",
                State::Missing => "MISSING",
                State::Absent => "-      ",
            };
            told += &format!("{mark}  {:<18} {}\n", check.name, check.detail);
            if check.state != State::Found && !check.remedy.is_empty() {
                told += &format!("         {:<18} {}\n", "", check.remedy);
            }
        }
        told += match (healthy, backend) {
            (false, _) => "\nSomething is missing: see above.\n",
            (true, Backend::Cuda) => "\nReady: programs run on the GPU.\n",
            (true, _) => "\nReady: programs run on the software GPU.\n",
        };
        output::print(&told)?;
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn checks(backend: Backend) -> Vec<Check> {
    let gpu = backend == Backend::Cuda;
    let found = |name, detail: String| Check { name, state: State::Found, detail, remedy: "" };
    let mut checks = Vec::new();

    let version = std::fs::read_to_string("/proc/driver/nvidia/version");
    match version.as_deref().map(|text| text.lines().next().unwrap_or("").to_owned()) {
        Ok(line) => checks.push(found("driver module", line)),
        Err(_) => checks.push(Check {
            name: "driver module",
            state: State::Absent,
            detail: "no NVIDIA kernel driver is loaded".into(),
            remedy: "nothing to do without an NVIDIA GPU; with one, install NVIDIA's driver 580 or later",
        }),
    }
    match bulkhead_cuda::Cuda::present() {
        Ok(()) => checks.push(found("libcuda", "NVIDIA's driver library answers".into())),
        Err(missing) => checks.push(Check {
            name: "libcuda",
            state: State::Absent,
            detail: missing.to_string(),
            remedy: "the software GPU is used instead",
        }),
    }
    checks.extend(devices());
    match bulkhead_cuda::Compiler::default().find() {
        Ok(path) => checks.push(found("ptxas", path.display().to_string())),
        Err(error) => checks.push(Check {
            name: "ptxas",
            state: if gpu { State::Missing } else { State::Absent },
            detail: match error {
                bulkhead_gpu::Error::Missing(_) => "no ptxas is found: it makes machine code for a GPU".to_owned(),
                error => error.to_string(),
            },
            remedy: "install CUDA 13.0, or `pip install nvidia-cuda-nvcc==13.0.88`, and name it in BULKHEAD_PTXAS",
        }),
    }
    match place::libraries() {
        Ok(paths) => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            checks.push(found("library OS", paths.join(", ")));
        }
        Err(failure) => checks.push(Check {
            name: "library OS",
            state: State::Missing,
            detail: failure.to_string(),
            remedy: "without it `bulkhead run` has nothing to give to programs",
        }),
    }
    match bulkhead_client::seals() {
        Ok(()) => checks.push(found("memory seals", "completion pages are read-only to clients".into())),
        Err(error) => checks.push(Check {
            name: "memory seals",
            state: State::Missing,
            detail: error.to_string(),
            remedy: "use Linux 5.1 or later: it has F_SEAL_FUTURE_WRITE",
        }),
    }
    checks.extend(confinement::checks());
    checks.push(storage());
    checks.push(kernel());
    checks
}

fn devices() -> Vec<Check> {
    let Ok(devices) = bulkhead_cuda::Cuda::devices() else { return Vec::new() };
    let device = |info: &bulkhead_gpu::DeviceInfo| {
        let gib = info.memory_bytes >> 30;
        let detail =
            format!("{} (sm_{}, {gib} GiB, CUDA {})", info.name, info.architecture, info.driver_version);
        if info.pageable_memory_access() {
            return Check {
                name: "device",
                state: State::Absent,
                detail: format!(
                    "{detail}: HMM is on, so kernels could reach their executor's own memory: isolated sessions open, guarded ones do not"
                ),
                remedy: "load the driver with `uvm_disable_hmm=1` (options nvidia-uvm, in /etc/modprobe.d)",
            };
        }
        Check { name: "device", state: State::Found, detail, remedy: "" }
    };
    devices.iter().map(device).collect()
}

/// What the module `storage` reads and writes files by, as its host half says.
fn storage() -> Check {
    let check = |state, detail, remedy| Check { name: "storage", state, detail, remedy };
    let program = std::env::current_exe().map(|own| own.with_file_name("storage"));
    let Some(program) = program.ok().filter(|program| program.is_file()) else {
        let remedy = "`cargo build -p bulkhead-storage` builds it, for programs that read files in kernels";
        return check(State::Absent, "the module's host half is not beside this program".into(), remedy);
    };
    let told =
        std::process::Command::new(&program).arg("--probe").stdin(std::process::Stdio::null()).output();
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned()).unwrap_or_default();
    if told.starts_with("io_uring") {
        check(State::Found, told, "")
    } else if told.is_empty() {
        check(State::Absent, format!("{} does not answer", program.display()), "build it anew")
    } else {
        check(State::Absent, told, "threads take its place: right, and slower")
    }
}

fn kernel() -> Check {
    let socket = bulkhead_client::default_socket();
    let detail = |what: &str, socket: &Path| format!("{what} at {}", socket.display());
    match UnixStream::connect(&socket) {
        Ok(_) => {
            let what = match crate::status::is_strict(&socket) {
                Ok(true) => "serving, guard strict,",
                Ok(false) => "serving, guard full,",
                Err(_) => "serving, and not answering,",
            };
            Check { name: "kernel", state: State::Found, detail: detail(what, &socket), remedy: "" }
        }
        Err(_) => Check {
            name: "kernel",
            state: State::Absent,
            detail: detail("none serves", &socket),
            remedy: "`bulkhead run` starts a private one; `bulkhead serve` starts one for everybody",
        },
    }
}
