//! What the service is told.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use bulkhead_module::manifest::size;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It lets callers in.
    Serve,
    /// It works for one, whose connection is its standard input.
    Work,
}

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Auto,
    Nvidia,
    Host,
}

/// What a worker's session has of the device beside its work area: the library's variables, and what the session itself
/// takes and keeps.
const DEVICE_BESIDE: u64 = 1 << 30;
/// Pinned memory that copies go through.
const HOST_MOST: u64 = 1 << 30;
/// The worker has one; the library of NVIDIA's may have some.
const STREAMS_MOST: u64 = 32;

/// Callers at a time: a program and its worker have a session each, and a user has 32 of a kernel's.
const CALLERS: usize = 12;
/// A process has so much of what all have.
const PART_OF_PROCESS: u64 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) role: Role,
    pub(crate) engine: Choice,
    pub(crate) library: Option<PathBuf>,
    pub(crate) host_bytes: u64,
    pub(crate) work_bytes: u64,
    pub(crate) host_bytes_of_all: u64,
    pub(crate) work_bytes_of_all: u64,
    host_bytes_of_process: Option<u64>,
    work_bytes_of_process: Option<u64>,
    pub(crate) callers: usize,
    pub(crate) callers_of_process: usize,
}

impl Options {
    fn new(role: Role) -> Self {
        Self {
            role,
            engine: Choice::Auto,
            library: None,
            host_bytes: 2 << 30,
            work_bytes: 8 << 30,
            host_bytes_of_all: 8 << 30,
            work_bytes_of_all: 32 << 30,
            host_bytes_of_process: None,
            work_bytes_of_process: None,
            callers: CALLERS,
            callers_of_process: 4,
        }
    }

    /// `None` where help is asked for.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = match arguments.next().as_deref() {
            Some("serve") => Self::new(Role::Serve),
            Some("worker") => Self::new(Role::Work),
            Some("--help" | "-h") | None => return Ok(None),
            Some(other) => return Err(format!("{other:?} is nothing that it does")),
        };
        while let Some(name) = arguments.next() {
            if name == "--help" {
                return Ok(None);
            }
            let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
            let wrong = || format!("{name} {value}: no such value");
            let bytes = || size(&value).filter(|bytes| *bytes > 0).ok_or_else(wrong);
            let count = || value.parse().ok().filter(|count| *count > 0).ok_or_else(wrong);
            match name.as_str() {
                "--engine" => {
                    options.engine = match value.as_str() {
                        "auto" => Choice::Auto,
                        "nvidia" => Choice::Nvidia,
                        "host" => Choice::Host,
                        _ => return Err(wrong()),
                    };
                }
                "--library" if !Path::new(&value).is_absolute() => {
                    return Err(format!(
                        "--library {value}: give the whole path, since workers look for it too: one that begins with /"
                    ));
                }
                "--library" => options.library = Some(PathBuf::from(&value)),
                "--host-memory" => options.host_bytes = bytes()?,
                "--work-memory" => options.work_bytes = bytes()?,
                "--host-memory-of-all" => options.host_bytes_of_all = bytes()?,
                "--work-memory-of-all" => options.work_bytes_of_all = bytes()?,
                "--host-memory-of-process" => options.host_bytes_of_process = Some(bytes()?),
                "--work-memory-of-process" => options.work_bytes_of_process = Some(bytes()?),
                "--callers" => options.callers = count()?,
                "--callers-of-process" => options.callers_of_process = count()?,
                _ => return Err(format!("there is no option {name}")),
            }
        }
        Ok(Some(options))
    }

    /// What all workers of a process have together, of the device's memory and of the host's. Unless told otherwise it is
    /// a quarter of what there is, or what one worker may have where that is more.
    pub(crate) fn of_process(&self) -> [u64; 2] {
        let share = |told: Option<u64>, one: u64, all: u64| {
            told.unwrap_or_else(|| one.max(all / PART_OF_PROCESS).min(all))
        };
        [
            share(self.work_bytes_of_process, self.work_bytes, self.work_bytes_of_all),
            share(self.host_bytes_of_process, self.host_bytes, self.host_bytes_of_all),
        ]
    }

    /// What a worker's session is limited to: columns of the kernel's ledger.
    pub(crate) fn limits(&self) -> String {
        let device = self.work_bytes.saturating_add(DEVICE_BESIDE);
        format!("device_bytes={device},host_bytes={HOST_MOST},streams={STREAMS_MOST}")
    }

    /// What a worker of this service is told.
    pub(crate) fn of_worker(&self) -> Vec<OsString> {
        let engine = match self.engine {
            Choice::Auto => "auto",
            Choice::Nvidia => "nvidia",
            Choice::Host => "host",
        };
        let mut told: Vec<OsString> = vec!["worker".into(), "--engine".into(), engine.into()];
        told.extend(["--host-memory".into(), self.host_bytes.to_string().into()]);
        told.extend(["--work-memory".into(), self.work_bytes.to_string().into()]);
        if let Some(library) = &self.library {
            told.extend(["--library".into(), library.into()]);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Option<Options>, String> {
        Options::read(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn a_worker_is_told_what_its_service_was() {
        let words =
            ["serve", "--engine", "host", "--library", "/a/b", "--host-memory", "1MiB", "--callers", "3"];
        let options = read(&words).expect("right").expect("no help");
        let told: Vec<String> =
            options.of_worker().into_iter().map(|word| word.into_string().expect("text")).collect();
        let told: Vec<&str> = told.iter().map(String::as_str).collect();
        let worker = read(&told).expect("right").expect("no help");
        assert_eq!(worker, Options { role: Role::Work, callers: CALLERS, ..options });
        assert_eq!(worker.host_bytes, 1 << 20);
    }

    #[test]
    fn a_process_has_a_quarter_unless_told_otherwise() {
        let of = |words: &[&str]| {
            let options = read(&[&["serve"], words].concat()).expect("right").expect("no help");
            options.of_process()
        };
        assert_eq!(of(&[]), [8 << 30, 2 << 30]);
        assert_eq!(of(&["--work-memory-of-all", "80GiB"]), [20 << 30, 2 << 30]);
        // As much as a worker may have, where there is as much.
        assert_eq!(of(&["--host-memory", "6GiB", "--work-memory-of-all", "1MiB"]), [1 << 20, 6 << 30]);
        assert_eq!(
            of(&["--host-memory-of-process", "1MiB", "--work-memory-of-process", "2MiB"]),
            [2 << 20, 1 << 20]
        );
    }

    #[test]
    fn callers_and_their_workers_fit_in_what_a_user_has() {
        let options = read(&["serve"]).expect("right").expect("no help");
        assert!(2 * options.callers <= 32 - 8, "{} of them", options.callers);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            &["serv"][..],
            &["serve", "--engine", "x"],
            &["serve", "--callers", "0"],
            &["serve", "--callers"],
            &["serve", "--host-memory", "1MB"],
            &["serve", "--more", "1"],
            &["serve", "--library", "lib/libcufft.so.12"],
            &["serve", "--library", "libcufft.so.12"],
            &["serve", "--library", ""],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
        assert_eq!(read(&["serve", "--help"]), Ok(None));
    }
}
