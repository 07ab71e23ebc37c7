//! What Triton is given as `ptxas` in a guarded session: it leaves PTX as it is, which is what such a session takes.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use crate::{Failure, output};

/// What it is called as.
pub(crate) const NAME: &str = "ptxas";

/// What Triton reads of it: the toolkit's release, by which it chooses the version of PTX. It keeps what it compiled by all of this,
/// so that machine code of the real ptxas is not taken for PTX.
const VERSION: &str = concat!(
    "ptxas: Bulkhead's stand-in, which leaves PTX as it is\nCuda compilation tools, release 13.0, V13.0.88, bulkhead ",
    env!("CARGO_PKG_VERSION"),
    "\n"
);

/// What it does, where this is called so.
pub(crate) fn alone() -> Option<Result<ExitCode, Failure>> {
    let mut arguments = env::args_os();
    let called = arguments.next()?;
    (Path::new(&called).file_name()? == NAME).then(|| run(arguments))
}

fn run(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let Some(files) = asked(arguments) else {
        return output::print(VERSION).map(|()| ExitCode::SUCCESS);
    };
    let (Some(input), Some(output)) = (files.input, files.output) else {
        return Err(Failure::new("ptxas: a PTX file and -o FILE are needed"));
    };
    let mut text = fs::read(&input).map_err(Failure::doing(format!("ptxas: {}", input.display())))?;
    // Whoever loads it may give its address alone.
    text.push(0);
    fs::write(&output, text).map_err(Failure::doing(format!("ptxas: {}", output.display())))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Files {
    input: Option<PathBuf>,
    output: Option<PathBuf>,
}

/// The files of a command line of ptxas; nothing where its version is asked for. Nothing else matters to who leaves text as it is.
fn asked(mut arguments: impl Iterator<Item = OsString>) -> Option<Files> {
    let mut files = Files::default();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--version" | "-V") => return None,
            Some("-o" | "--output-file") => files.output = arguments.next().map(PathBuf::from),
            // These take a word of their own where they are not written with `=`.
            Some("-arch" | "--gpu-name" | "-O" | "--opt-level" | "-maxrregcount" | "--maxrregcount") => {
                drop(arguments.next());
            }
            Some(flag) if flag.starts_with('-') => {
                if let Some((_, file)) = flag.split_once('=').filter(|(name, _)| *name == "--output-file") {
                    files.output = Some(file.into());
                }
            }
            _ => files.input = Some(argument.into()),
        }
    }
    Some(files)
}

/// The variables that tell Triton where its assemblers are: that of devices before Blackwell, and of those since.
const VARIABLES: [&str; 2] = ["TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"];

/// Has Triton call the stand-in, except where somebody named another.
pub(crate) fn stand_in(command: &mut Command, assembler: &Path) {
    for variable in VARIABLES.into_iter().filter(|variable| env::var_os(variable).is_none()) {
        command.env(variable, assembler);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Files> {
        asked(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_files_are_found_among_what_triton_says() {
        let both = Files { input: Some("/t/a.ptx".into()), output: Some("/t/a.o".into()) };
        for line in [
            "-lineinfo -v --gpu-name=sm_90a /t/a.ptx -o /t/a.o",
            "-lineinfo -v --fmad=false --gpu-name sm_90 --opt-level 0 /t/a.ptx -o /t/a.o",
            "--output-file=/t/a.o /t/a.ptx",
        ] {
            assert_eq!(of(line).as_ref(), Some(&both), "{line}");
        }
        assert_eq!(of("--version"), None);
        assert_eq!(of("-v"), Some(Files::default()));
    }
}
