//! The hostile kernels of `tests/attacks`: what each tries, and what has to become of it.
//!
//! A file is PTX with one entry `attack(own, at, value)`: memory of its own, an address that is not, and what to store. Its
//! comments begin with
//! - `// tries: ` and what it tries,
//! - `// must: ` and `refused`, `confined`, `told`, `silent`, `stopped` or `ended`,
//! - `// launch: BLOCKS THREADS SHARED`, unless it is 1 32 0,
//! - `// unguarded: ` and why it does no harm on the software GPU without the guard, where that is so.
//!
//! What is refused says why at the end of each line that is: `// error: part of the message`.

use std::{fs, path::PathBuf};

use bulkhead_guard::{Gates, Stray, Verified, confine_verified, data, parse, print, verify};

use crate::place::repository;

/// What has to become of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Must {
    /// The guard does not let it in.
    Refused,
    /// It runs, and neither changes nor reads anybody's memory, nor ends the context.
    Confined,
    /// As confined, and its own session is told that a thread of it ended before its time.
    Told,
    /// It runs, and sees nothing of what another session left.
    Silent,
    /// It runs until it is stopped.
    Stopped,
    /// Its threads wait for each other, as far as they are concerned: some end, or all do when they are stopped.
    Ended,
}

/// A reason for which a line is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The line, counted from 1.
    pub line: usize,
    /// Part of the message.
    pub reason: String,
}

/// A hostile kernel.
#[derive(Debug, Clone)]
pub struct Attack {
    /// `CLASS/NAME`.
    pub name: String,
    /// What it tries.
    pub tries: String,
    /// What has to become of it.
    pub must: Must,
    /// Blocks, threads of a block, bytes of dynamic shared memory.
    pub launch: [u32; 3],
    /// Why it does no harm without the guard.
    pub harmless: Option<String>,
    /// Why it is refused.
    pub expected: Vec<Expected>,
    /// The file.
    pub bytes: Vec<u8>,
}

impl Attack {
    /// The folder it lies in.
    #[must_use]
    pub fn class(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Whether it makes something of the address it is given.
    #[must_use]
    pub fn takes_addresses(&self) -> bool {
        String::from_utf8_lossy(&self.bytes).matches("%d2").count() > 1
    }

    /// What the guard makes of it.
    ///
    /// # Errors
    /// With the report where it is refused.
    pub fn guarded(&self) -> Result<Verified, String> {
        let text = String::from_utf8(self.bytes.clone()).map_err(|error| error.to_string())?;
        let module =
            parse(&text).and_then(|module| confine_verified(&module, Stray::Silent, &Gates::default()));
        let module = module.map_err(|report| report.render("attack.ptx", &text))?;
        verify(&print(&module)).map_err(|report| format!("not verified: {report}"))
    }

    /// What its module-scope variables hold at first; addresses in them are left out.
    #[must_use]
    pub fn variables(&self) -> Vec<u8> {
        let text = String::from_utf8_lossy(&self.bytes);
        parse(&text).map(|module| data(&module).initial).unwrap_or_default()
    }

    fn read(name: String, bytes: Vec<u8>) -> Result<Self, String> {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let header = |word: &str| {
            let lines = text.split('\n').take_while(|line| line.starts_with("//"));
            lines
                .filter_map(|line| line.strip_prefix("// ")?.strip_prefix(word)?.strip_prefix(": "))
                .next()
                .map(str::to_owned)
        };
        let must = match header("must").as_deref() {
            Some("refused") => Must::Refused,
            Some("confined") => Must::Confined,
            Some("told") => Must::Told,
            Some("silent") => Must::Silent,
            Some("stopped") => Must::Stopped,
            Some("ended") => Must::Ended,
            other => return Err(format!("`must: {other:?}`")),
        };
        let launch = header("launch").unwrap_or_else(|| "1 32 0".to_owned());
        let launch: Option<Vec<u32>> = launch.split(' ').map(|number| number.parse().ok()).collect();
        let launch = launch.and_then(|launch| launch.try_into().ok()).ok_or("`launch` is three numbers")?;
        let mut expected = Vec::new();
        for (line, number) in text.split('\n').zip(1..) {
            for reason in line.split("// error: ").skip(1) {
                expected.push(Expected { line: number, reason: reason.trim().to_owned() });
            }
        }
        if (must == Must::Refused) == expected.is_empty() {
            return Err("what is refused says why, and nothing else does".to_owned());
        }
        Ok(Self {
            tries: header("tries").ok_or("does not say what it tries")?,
            must,
            launch,
            harmless: header("unguarded"),
            expected,
            name,
            bytes,
        })
    }

    /// The expected reasons that are in no line `...:LINE:COLUMN: reason` of a message.
    #[must_use]
    pub fn missing<'a>(&'a self, message: &str) -> Vec<&'a Expected> {
        let is_told = |expected: &Expected| {
            message.lines().any(|line| {
                let mut parts = line.splitn(4, ':').skip(1);
                let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
                let (line, column) = (number(), number());
                line == Some(expected.line)
                    && column > Some(0)
                    && parts.next().is_some_and(|reason| reason.contains(&expected.reason))
            })
        };
        self.expected.iter().filter(|expected| !is_told(expected)).collect()
    }
}

/// All attacks, in the order of their names.
///
/// # Panics
/// Where a file does not say what it is.
#[must_use]
pub fn all() -> Vec<Attack> {
    let list = |folder: PathBuf| {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.expect("a folder that can be read").path()).collect();
        paths.sort();
        paths
    };
    let word = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let mut attacks = Vec::new();
    for class in list(repository().join("tests/attacks")) {
        for path in list(class.clone()) {
            let name = format!("{}/{}", word(&class), word(&path));
            let bytes = fs::read(&path).expect("a file that can be read");
            attacks.push(Attack::read(name.clone(), bytes).unwrap_or_else(|why| panic!("{name}: {why}")));
        }
    }
    attacks
}
