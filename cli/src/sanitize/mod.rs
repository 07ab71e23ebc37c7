//! `bulkhead run --sanitize`: what is wrong with a program's kernels, by line of its own source.

mod json;
mod report;
mod words;

use std::{
    ffi::OsString,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use bulkhead_executor::Sanitize;
use bulkhead_schema::{Stray, Told};
use bulkhead_softgpu::{Finding, Findings, REPORT_BYTES_MAX};
use clap::ValueEnum;

use crate::{Failure, source::Sources};
use report::{Call, Device, Report};

/// How long an executor may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// Accesses to memory that is not the program's, or misaligned.
    Memcheck,
    /// Reads of memory that nobody has written.
    Initcheck,
    /// Accesses to shared memory that nothing orders.
    Racecheck,
    /// Barriers and collective operations that not all come to.
    Synccheck,
    /// Memory that is not freed.
    Leakcheck,
    /// Calls of CUDA that failed.
    Apicheck,
}

impl Tool {
    /// What people call it.
    fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Initcheck => "initcheck",
            Self::Racecheck => "racecheck",
            Self::Synccheck => "synccheck",
            Self::Leakcheck => "leakcheck",
            Self::Apicheck => "apicheck",
        }
    }

    /// What the software GPU does of it. Accesses that go astray are told by the guard's text, calls by the library OS.
    fn of_executor(self) -> Option<bulkhead_softgpu::Tool> {
        match self {
            Self::Memcheck | Self::Apicheck => None,
            Self::Initcheck => Some(bulkhead_softgpu::Tool::Initialization),
            Self::Racecheck => Some(bulkhead_softgpu::Tool::Races),
            Self::Synccheck => Some(bulkhead_softgpu::Tool::Synchronization),
            Self::Leakcheck => Some(bulkhead_softgpu::Tool::Leaks),
        }
    }
}

/// What the software GPU looks for.
pub(crate) fn of_executor(tools: &[Tool]) -> Vec<bulkhead_softgpu::Tool> {
    tools.iter().filter_map(|tool| tool.of_executor()).collect()
}

/// What processes that are started for it are told.
pub(crate) fn arguments(socket: &Path, tools: &[Tool]) -> Vec<OsString> {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
    let mut arguments = vec!["--sanitize".into(), socket.into()];
    if !names.is_empty() {
        arguments.extend(["--sanitize-tools".into(), names.join(",").into()]);
    }
    arguments
}

/// What a run that is sanitized needs.
pub(crate) struct Run {
    socket: PathBuf,
    images: PathBuf,
    calls: PathBuf,
    tools: Vec<Tool>,
    /// Whether calls that failed were asked for, and so are errors: a program may well expect one to.
    counts_calls: bool,
}

impl Run {
    /// A run that keeps what it needs in a directory, and looks for everything where nothing is named.
    pub(crate) fn new(directory: &Path, tools: &[Tool]) -> Result<Self, Failure> {
        let images = directory.join("images");
        std::fs::create_dir(&images)?;
        let counts_calls = tools.contains(&Tool::Apicheck);
        let tools = if tools.is_empty() { Tool::value_variants() } else { tools };
        let (socket, calls) = (directory.join("sanitize.sock"), directory.join("calls"));
        Ok(Self { socket, images, calls, tools: tools.to_vec(), counts_calls })
    }

    /// What a private kernel is told.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        arguments(&self.socket, &self.tools)
    }

    /// Where the library OS keeps images.
    pub(crate) fn images(&self) -> &Path {
        &self.images
    }

    /// Where it tells what the program allocates.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where it tells which calls failed.
    pub(crate) fn calls(&self) -> &Path {
        &self.calls
    }

    /// Whether kernels tell of accesses that go astray.
    pub(crate) fn checks(&self) -> bool {
        self.tools.contains(&Tool::Memcheck)
    }

    /// The program has ended: tells what was wrong, with what its kernels told of accesses that went astray; answers how much
    /// it is.
    pub(crate) fn tell(&self, astray: &Path, json: bool) -> u64 {
        let stray = Stray::of(self.checks());
        let mut sources = Sources::of_images(&self.images, stray);
        let (mut findings, device) = match self.findings() {
            // Whoever opens a session makes the file.
            _ if !self.calls.exists() => (Findings::default(), Device::Unused),
            Ok(findings) => {
                let device = if findings.is_rest { Device::Lost } else { Device::Told };
                (findings, device)
            }
            Err(failure) => {
                eprintln!("bulkhead: {failure}");
                (Findings::default(), Device::Lost)
            }
        };
        for found in self.journal() {
            if !findings.list.iter().any(|known| known.is_same(&found)) {
                findings.list.push(found);
            }
        }
        // Not there where no process opened a session.
        let astray = std::fs::read_to_string(astray).unwrap_or_default();
        let calls = std::fs::read_to_string(&self.calls).unwrap_or_default();
        let mut report = Report::of(&findings, &astray, &calls, &mut sources, device);
        if !self.tools.contains(&Tool::Apicheck) {
            report.calls.retain(Call::is_refusal);
        }
        if json {
            println!("{}", json::document(&report, self.counts_calls));
        }
        eprint!("{}", words::text(&report, self.counts_calls));
        report.errors(self.counts_calls)
    }

    fn findings(&self) -> Result<Findings, Failure> {
        let doing = "asking the software GPU for what it found";
        let mut socket = UnixStream::connect(&self.socket).map_err(Failure::doing(doing))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(&Told::Asked.to_bytes()).map_err(Failure::doing(doing))?;
        let mut bytes = Vec::new();
        socket.take(REPORT_BYTES_MAX).read_to_end(&mut bytes).map_err(Failure::doing(doing))?;
        Findings::from_bytes(&bytes).map_err(Failure::doing(doing))
    }

    /// What executors wrote down as it came up, which those that were lost cannot tell.
    fn journal(&self) -> Vec<Finding> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(Sanitize::journal(&self.socket));
        // Without a journal nothing was found, or nobody was there who looked.
        let read = file.and_then(|file| file.take(REPORT_BYTES_MAX).read_to_end(&mut bytes));
        tracing::debug!(?read, "journal");
        Finding::journal(&bytes)
    }
}
