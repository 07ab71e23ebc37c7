//! What `bulkhead module start` knows of a module: `module.toml`.
//!
//! ```toml
//! name = "counter"                     # letters, digits, `_` and `-`
//! version = "1.0"                      # for people
//! gates = "gates.ptx"                  # what `bulkhead module build` has made
//! window = "4MiB"                      # the smallest that the gates' variables fit into, unless it is said
//! host = ["target/release/counter"]    # the host half, and its arguments
//! instances = 64                       # callers at a time
//!
//! [quota]                              # what the host half's session may use: columns of the ledger
//! device_bytes = "128MiB"               # a session takes 64 MiB to begin with
//!
//! [needs]                              # else it is refused before it starts
//! bulkhead = "0.1"                     # this version or a later one
//! backend = "cuda"                     # or "software": where it does not run on every device
//! ```
//!
//! Paths are relative to the manifest's folder.
//!
//! With `kind = "service"` there are no gates: the host half is a CUDA program, which programs talk to from the host
//! (`modules/cufft`). Such a manifest has no `gates`, no `window` and no `quota`.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::runner::INSTANCES_DEFAULT;

/// Longest manifest.
const BYTES_MAX: u64 = 64 << 10;
/// Most instances of a module.
pub const INSTANCES_MAX: usize = 4096;

/// A module's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What people call it.
    pub name: String,
    /// Which of its versions this is.
    pub version: String,
    /// The file of its gates; `None` where it is a service without.
    pub gates: Option<PathBuf>,
    /// Bytes of its window; the smallest that does, where it is not said.
    pub window: Option<u64>,
    /// The host half and its arguments.
    pub host: Vec<String>,
    /// The folder that the host half starts in: the manifest's.
    pub folder: PathBuf,
    /// Instances at a time.
    pub instances: usize,
    /// What the host half's session may use of a column of the ledger.
    pub quota: BTreeMap<String, u64>,
    /// What it does not work without.
    pub needs: Needs,
}

/// What a module does not work without.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// This version of Bulkhead, or a later one.
    pub bulkhead: Option<Version>,
    /// A device of this backend: `software` or `cuda`.
    pub backend: Option<String>,
}

/// A version: its numbers, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u64; 3]);

impl Version {
    /// `1`, `1.2` or `1.2.3`.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let mut numbers = [0; 3];
        let mut parts = text.split('.');
        for (at, number) in numbers.iter_mut().enumerate() {
            match parts.next() {
                Some(part) => *number = part.parse().ok()?,
                None if at > 0 => {}
                None => return None,
            }
        }
        parts.next().is_none().then_some(Self(numbers))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Why a manifest is none.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It cannot be read.
    #[error("{path}: {error}")]
    Unread {
        /// The file.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// It is not written as manifests are. The message has line and column.
    #[error("{path}: {message}")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// It says what cannot be.
    #[error("{path}: `{key}`: {what}")]
    Value {
        /// The file.
        path: String,
        /// Which key.
        key: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: Kind,
    gates: Option<PathBuf>,
    window: Option<String>,
    host: Vec<String>,
    #[serde(default = "instances")]
    instances: usize,
    #[serde(default)]
    quota: BTreeMap<String, Amount>,
    #[serde(default)]
    needs: WrittenNeeds,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WrittenNeeds {
    bulkhead: Option<String>,
    backend: Option<String>,
}

/// Whether kernels call gates of it.
#[derive(Deserialize, Default, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Module,
    Service,
}

fn instances() -> usize {
    INSTANCES_DEFAULT
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Count(u64),
    Size(String),
}

/// `64MiB`, `2GiB`, `65536`: bytes.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match text.get(digits.len()..)? {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

impl Manifest {
    /// Reads a manifest, or the one in a folder.
    ///
    /// # Errors
    /// [`Refused`], by file, line and key.
    pub fn read(path: &Path) -> Result<Self, Refused> {
        let path = if path.is_dir() { path.join("module.toml") } else { path.to_owned() };
        let unread = |error| Refused::Unread { path: path.display().to_string(), error };
        if fs::metadata(&path).map_err(unread)?.len() > BYTES_MAX {
            return Err(unread(io::ErrorKind::FileTooLarge.into()));
        }
        let text = fs::read_to_string(&path).map_err(unread)?;
        let whole = std::path::absolute(&path).map_err(unread)?;
        let folder = whole.parent().unwrap_or(Path::new("/")).to_owned();
        Self::parse(&path.display().to_string(), &text, folder)
    }

    fn parse(path: &str, text: &str, folder: PathBuf) -> Result<Self, Refused> {
        let written: Written = toml::from_str(text).map_err(|error: toml::de::Error| Refused::Malformed {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        let value = |key, what: String| Refused::Value { path: path.to_owned(), key, what };
        let bytes = |key, text: &str| {
            size(text).ok_or_else(|| value(key, format!("{text:?} is no size: 65536, 64KiB and 4MiB are")))
        };
        if !bulkhead_client::is_module_name(&written.name) {
            return Err(value(
                "name",
                "a module's name is of letters, digits, _ and -, at most 64".to_owned(),
            ));
        }
        if written.host.first().is_none_or(String::is_empty) {
            return Err(value(
                "host",
                "name the program of the host half, and behind it its arguments".to_owned(),
            ));
        }
        if !(1..=INSTANCES_MAX).contains(&written.instances) {
            return Err(value(
                "instances",
                format!("from 1 to {INSTANCES_MAX} callers at a time are served"),
            ));
        }
        let has_gates = written.gates.is_some();
        match written.kind {
            Kind::Module if !has_gates => {
                return Err(value("gates", "name the file of the gates; or kind = \"service\"".to_owned()));
            }
            Kind::Service if has_gates || written.window.is_some() || !written.quota.is_empty() => {
                let what = "a service has no gates, no window and no quota: its processes have sessions of their own";
                return Err(value("kind", what.to_owned()));
            }
            Kind::Module | Kind::Service => {}
        }
        let quota = written.quota.into_iter().map(|(column, amount)| {
            let amount = match amount {
                Amount::Count(amount) => amount,
                Amount::Size(text) => bytes("quota", &text)?,
            };
            Ok((column, amount))
        });
        let version = written.needs.bulkhead.as_deref().map(|text| {
            let wrong =
                || value("needs", format!("bulkhead = {text:?} is no version: \"0.1\" and \"1.2.3\" are"));
            Version::of(text).ok_or_else(wrong)
        });
        let backend = written.needs.backend;
        if let Some(backend) = backend.as_deref().filter(|backend| !["software", "cuda"].contains(backend)) {
            let what = format!("backend = {backend:?} is none: \"software\" and \"cuda\" are");
            return Err(value("needs", what));
        }
        let needs = Needs { bulkhead: version.transpose()?, backend };
        Ok(Self {
            needs,
            name: written.name,
            version: written.version,
            gates: written.gates.map(|gates| folder.join(gates)),
            window: written.window.map(|text| bytes("window", &text)).transpose()?,
            host: written.host,
            instances: written.instances,
            quota: quota.collect::<Result<_, Refused>>()?,
            folder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Manifest, String> {
        Manifest::parse("module.toml", text, PathBuf::from("/m")).map_err(|refused| refused.to_string())
    }

    const LEAST: &str = "name = \"kv\"\ngates = \"gates.ptx\"\nhost = [\"kv\", \"-v\"]\n";

    #[test]
    fn what_is_not_said_is_what_most_want() {
        let manifest = parse(LEAST).unwrap();
        assert_eq!(manifest.gates.as_deref(), Some(Path::new("/m/gates.ptx")));
        assert_eq!((manifest.window, manifest.instances), (None, INSTANCES_DEFAULT));
        assert_eq!(manifest.host, ["kv", "-v"]);
        let text = format!(
            "{LEAST}window = \"4MiB\"\ninstances = 8\n[quota]\ndevice_bytes = \"64MiB\"\nstreams = 4\n"
        );
        let manifest = parse(&text).unwrap();
        assert_eq!((manifest.window, manifest.instances), (Some(4 << 20), 8));
        assert_eq!(manifest.quota, [("device_bytes".to_owned(), 64 << 20), ("streams".to_owned(), 4)].into());
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        let of = |text| Version::of(text).unwrap();
        assert!(of("0.10") > of("0.9.9") && of("1") == of("1.0.0") && of("1.2.3").to_string() == "1.2.3");
        for text in ["", ".", "1.", "a", "1.2.3.4", "-1"] {
            assert_eq!(Version::of(text), None, "{text:?}");
        }
        let manifest = parse(&format!("{LEAST}[needs]\nbulkhead = \"0.1\"\nbackend = \"cuda\"\n")).unwrap();
        let needs = Needs { bulkhead: Some(Version([0, 1, 0])), backend: Some("cuda".to_owned()) };
        assert_eq!(manifest.needs, needs);
    }

    #[test]
    fn a_service_has_no_gates() {
        let manifest = parse("name = \"fft\"\nkind = \"service\"\nhost = [\"fft\"]\n").unwrap();
        assert_eq!(manifest.gates, None);
    }

    #[test]
    fn what_is_wrong_is_told_by_line_or_key() {
        for (text, told) in [
            (format!("{LEAST}windw = \"4MiB\"\n"), "line 4"),
            (format!("{LEAST}windw = \"4MiB\"\n"), "windw"),
            (format!("{LEAST}window = 4\n"), "line 4"),
            (format!("{LEAST}window = \"4MB\"\n"), "`window`: \"4MB\" is no size"),
            (format!("{LEAST}instances = 0\n"), "`instances`"),
            (LEAST.replace("\"kv\"\n", "\"a/b\"\n"), "`name`"),
            (format!("{LEAST}[quota]\nstreams = \"x\"\n"), "`quota`"),
            ("name = \"kv\"\ngates = \"g\"\nhost = []\n".to_owned(), "`host`"),
            ("name = \"kv\"\nhost = [\"h\"]\n".to_owned(), "`gates`: name the file"),
            (format!("{LEAST}kind = \"service\"\n"), "`kind`: a service has no gates"),
            ("name = \"kv\"\nkind = \"service\"\nhost = [\"h\"]\nwindow = \"2MiB\"\n".to_owned(), "`kind`"),
            (format!("{LEAST}kind = \"x\"\n"), "line 4"),
            (format!("{LEAST}[needs]\nbulkhead = \"new\"\n"), "`needs`: bulkhead = \"new\" is no version"),
            (format!("{LEAST}[needs]\nbackend = \"gpu\"\n"), "`needs`: backend = \"gpu\" is none"),
            (format!("{LEAST}[needs]\nmemory = 1\n"), "line 5"),
            ("name = ".to_owned(), "line 1"),
        ] {
            let refused = parse(&text).unwrap_err();
            assert!(refused.starts_with("module.toml: ") && refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn sizes_have_units_of_two_to_the_ten() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("2MiB", Some(2 << 20)),
            ("2 GiB", Some(2 << 30)),
            ("2MB", None),
            ("", None),
            ("MiB", None),
            ("-1", None),
            ("18446744073709551615KiB", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }
}
