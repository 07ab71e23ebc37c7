//! `bulkhead run --profile`: what a program's kernels did, by kernel and by line of its own source.

mod json;
mod lines;
mod table;
mod trace;

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use bulkhead_schema::Stray;
use bulkhead_softgpu::{REPORT_BYTES_MAX, Report};

use crate::{Failure, source::Sources};
use lines::Profile;

/// How long an executor may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a run that is profiled needs.
pub(crate) struct Run {
    socket: PathBuf,
    images: PathBuf,
}

/// Where a profile goes.
pub(crate) struct Output<'a> {
    /// Whether anything but a trace is wanted.
    pub(crate) table: bool,
    /// The table, or the JSON document; standard error and standard output without.
    pub(crate) file: Option<&'a Path>,
    pub(crate) json: bool,
    pub(crate) trace: Option<&'a Path>,
}

impl Run {
    /// A run that keeps what it needs in a directory.
    pub(crate) fn new(directory: &Path) -> Result<Self, Failure> {
        let images = directory.join("images");
        std::fs::create_dir(&images)?;
        Ok(Self { socket: directory.join("profile.sock"), images })
    }

    /// What a private kernel is told.
    pub(crate) fn arguments(&self) -> [OsString; 2] {
        ["--profile".into(), self.socket.clone().into()]
    }

    /// Where the library OS keeps images.
    pub(crate) fn images(&self) -> &Path {
        &self.images
    }

    /// The program has ended: tells what its kernels did.
    pub(crate) fn tell(&self, output: &Output<'_>) -> Result<(), Failure> {
        let report = self.report()?;
        if report.kernels.is_empty() {
            eprintln!("bulkhead: the program launched no kernel");
        }
        let profile = Profile::of(&report, &mut Sources::of_images(&self.images, Stray::Silent));
        if let Some(path) = output.trace {
            let trace = trace::document(&report);
            write(path, &trace.to_string())?;
        }
        if !output.table {
            return Ok(());
        }
        let text = if output.json { json::document(&profile).to_string() } else { table::text(&profile) };
        match (output.file, output.json) {
            (Some(path), _) => write(path, &text)?,
            (None, true) => println!("{text}"),
            // That was said.
            (None, false) if report.kernels.is_empty() => {}
            (None, false) => eprint!("{text}"),
        }
        Ok(())
    }

    /// What the software GPU has counted; nothing where it was never asked for: then nobody has made the socket.
    fn report(&self) -> Result<Report, Failure> {
        let doing = "asking the software GPU for its profile";
        let socket = match UnixStream::connect(&self.socket) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Report::default()),
            connected => connected.map_err(Failure::doing(doing))?,
        };
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = Vec::new();
        socket.take(REPORT_BYTES_MAX).read_to_end(&mut bytes).map_err(Failure::doing(doing))?;
        Report::from_bytes(&bytes).map_err(Failure::doing(doing))
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let name = path.display().to_string();
    let file = File::create(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")
    });
    file.map_err(Failure::doing(&name))
}
