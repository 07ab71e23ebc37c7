//! `bulkhead run`: an unmodified CUDA program on Bulkhead.

use std::{
    env,
    ffi::OsString,
    os::unix::{net::UnixStream, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::Args;

use crate::{
    Failure,
    place::{self, Scratch},
    private::Kernel,
    serve::Backend,
};

/// Run an unmodified CUDA program on Bulkhead.
///
/// The program finds Bulkhead's libcuda.so.1 in place of NVIDIA's. It runs on the kernel that serves (`bulkhead
/// serve`), or on a private one, started for it and ended with it.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The socket of the kernel to use.
    #[arg(long)]
    socket: Option<PathBuf>,
    /// Start a private kernel even where one serves.
    #[arg(long, conflicts_with = "socket")]
    private: bool,
    /// Which device a private kernel drives.
    #[arg(long, value_enum, default_value_t = Backend::Auto, env = "BULKHEAD_BACKEND")]
    backend: Backend,
    /// The program and its arguments, after `--`.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (program, rest) = arguments.command.split_first().ok_or_else(|| Failure::new("no program"))?;
    let kernel = private_kernel(arguments)?;
    let socket = match &kernel {
        Some(kernel) => kernel.socket(),
        None => arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket),
    };
    let scratch = Scratch::new()?;
    let mut command = Command::new(program);
    command.args(rest);
    prepare(&mut command, scratch.path(), &socket)?;
    let status = command.status().map_err(Failure::doing(program.to_string_lossy()))?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => {
            let signal = signal.unwrap_or(0);
            eprintln!("bulkhead: {} was ended by signal {signal}", program.to_string_lossy());
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
        }
    })
}

/// Sets a command up to find the library OS and the kernel. `directory` must live as long as the command runs.
pub(crate) fn prepare(command: &mut Command, directory: &Path, socket: &Path) -> Result<(), Failure> {
    let libraries = directory.join("lib");
    place::link_library(&libraries)?;
    let mut path = libraries.into_os_string();
    if let Some(inherited) = env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty()) {
        path.push(":");
        path.push(inherited);
    }
    command.env("LD_LIBRARY_PATH", path).env("BULKHEAD_SOCKET", socket);
    Ok(())
}

fn private_kernel(arguments: &Arguments) -> Result<Option<Kernel>, Failure> {
    let serves = || UnixStream::connect(bulkhead_client::default_socket()).is_ok();
    if arguments.socket.is_some() || (!arguments.private && serves()) {
        return Ok(None);
    }
    Kernel::start(arguments.backend).map(Some)
}
