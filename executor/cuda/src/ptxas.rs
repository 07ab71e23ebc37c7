//! `ptxas` as a child process with limits.
//!
//! It reads verified text only, but it is the largest program that does, so it gets nothing else: an empty
//! environment, a private directory, no input or output but its files, and limits on time, memory and disk.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use bulkhead_gpu::Error;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};

/// Names the compiler; asked first.
const VARIABLE: &str = "BULKHEAD_PTXAS";
const HOW_TO_GET_IT: &str = "no ptxas found: run `pip install nvidia-cuda-nvcc==13.0.88` and set BULKHEAD_PTXAS to \
     site-packages/nvidia/cu13/bin/ptxas, or install the CUDA toolkit";

/// Bytes of an image's text.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Bytes of what `ptxas` writes.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;
/// Bytes of its messages that are kept; one that writes more is ended.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Descriptors it may have open.
const DESCRIPTORS_MAX: u64 = 64;
/// Its address space.
const ADDRESS_BYTES_MAX: u64 = 16 << 30;
const OPTIMIZATION: &str = "-O3";
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A program file: where it is, its length, and when it was written.
type Stamp = (PathBuf, u64, Option<SystemTime>);

/// What compiles images.
#[derive(Debug, Clone)]
pub struct Compiler {
    /// `ptxas`; `None` looks for it: `BULKHEAD_PTXAS`, `bin` in `CUDA_HOME` and `CUDA_PATH`, `/usr/local/cuda/bin`, `PATH`.
    pub ptxas: Option<PathBuf>,
    /// Where the private directories are made; `None` is the system's folder for temporary files.
    pub scratch: Option<PathBuf>,
    /// How long one compilation may take, as time passes and in processor time.
    pub time_max: Duration,
    /// A program, and arguments before ptxas and its own, that limits itself, gives up what it can, and becomes ptxas.
    /// Without it ptxas is started as it is, and limited from outside.
    pub through: Vec<OsString>,
}

impl Default for Compiler {
    fn default() -> Self {
        Self { ptxas: None, scratch: None, time_max: Duration::from_secs(60), through: Vec::new() }
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

impl Compiler {
    /// Where `ptxas` is.
    ///
    /// # Errors
    /// [`Error::Missing`], with what to do, where there is none.
    pub fn find(&self) -> Result<PathBuf, Error> {
        let named = self.ptxas.clone().or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        if let Some(named) = named {
            return if is_program(&named) {
                Ok(named)
            } else {
                Err(Error::Missing(format!("{} is not a program; {HOW_TO_GET_IT}", named.display())))
            };
        }
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
        let toolkits = toolkits.map(|home| Path::new(&home).join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        toolkits
            .chain([PathBuf::from("/usr/local/cuda/bin")])
            .chain(std::env::split_paths(&path))
            .map(|folder| folder.join("ptxas"))
            .find(|candidate| candidate.is_absolute() && is_program(candidate))
            .ok_or_else(|| Error::Missing(HOW_TO_GET_IT.to_owned()))
    }

    /// What it is, in words that differ where its output may.
    ///
    /// # Errors
    /// [`Error::Missing`] where it is not there or does not say its version.
    pub fn identity(&self) -> Result<String, Error> {
        let program = self.find()?;
        let unknown = |what: String| Error::Missing(format!("{}: {what}", program.display()));
        let found = program.metadata().map_err(|error| unknown(error.to_string()))?;
        // Asked once for each file there is: a toolkit that is exchanged under us has another length or time.
        static KNOWN: Mutex<Option<(Stamp, String)>> = Mutex::new(None);
        let stamp = (program.clone(), found.len(), found.modified().ok());
        let mut known = KNOWN.lock();
        if let Some((_, version)) = known.as_ref().filter(|(known, _)| *known == stamp) {
            return Ok(version.clone());
        }
        let child = self
            .command(&program)
            .arg("--version")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| unknown(format!("does not start: {error}")))?;
        let (status, said) = self.supervise(child).map_err(|error| unknown(error.to_string()))?;
        if !status.success() || said.trim().is_empty() {
            return Err(unknown(format!("`--version` ended with {status}")));
        }
        let version = format!("{} {OPTIMIZATION}", said.split_whitespace().collect::<Vec<_>>().join(" "));
        *known = Some((stamp, version.clone()));
        Ok(version)
    }

    /// Compiles canonical PTX to a cubin for `sm_{architecture}`; from sm_90 on for its `a` variant, which takes
    /// modules written for either.
    ///
    /// # Errors
    /// [`Error::Image`] with the compiler's message, or when it ran into a limit; [`Error::Missing`] where it is not there.
    pub fn compile(&self, ptx: &str, architecture: u32) -> Result<Vec<u8>, Error> {
        if ptx.len() > TEXT_BYTES_MAX {
            return Err(Error::Image(format!("the text is longer than {TEXT_BYTES_MAX} bytes")));
        }
        let program = self.find()?;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| Error::Image(format!("{what}: {error}"))
        };
        let folder = Folder::new(self.scratch.clone().unwrap_or_else(std::env::temp_dir))
            .map_err(failed("no private directory for the compiler"))?;
        let (input, output) = (folder.0.join("image.ptx"), folder.0.join("image.cubin"));
        std::fs::write(&input, ptx).map_err(failed("the compiler's input cannot be written"))?;
        let child = self
            .command(&program)
            .arg(format!("-arch=sm_{architecture}{}", if architecture >= 90 { "a" } else { "" }))
            .args([OsStr::new(OPTIMIZATION), OsStr::new("-o"), output.as_os_str(), input.as_os_str()])
            .current_dir(&folder.0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::Missing(format!("{} does not start: {error}", program.display())))?;
        let (status, message) = self.supervise(child).map_err(failed("ptxas"))?;
        // The private directory's name is of no use to whoever reads the message.
        let message = message.replace(&format!("{}/", folder.0.display()), "");
        if !status.success() {
            return Err(Error::Image(format!("ptxas ended with {status}: {}", message.trim())));
        }
        let cubin = read_bounded(&output).map_err(failed("the compiler's output cannot be read"))?;
        if !is_cubin(&cubin) {
            return Err(Error::Image("ptxas wrote something that is no ELF file".to_owned()));
        }
        Ok(cubin)
    }

    /// Starts ptxas with nothing of ours, in a process group of its own.
    fn command(&self, program: &Path) -> Command {
        let mut words = self.through.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command.args(words).env_clear().stdin(Stdio::null()).process_group(0);
        command
    }

    /// Limits the child, reads its messages, and ends it at the deadline.
    fn supervise(&self, child: Child) -> io::Result<(ExitStatus, String)> {
        let mut child = Reaped(child);
        let deadline = Instant::now() + self.time_max;
        let seconds = self.time_max.as_secs().max(1);
        for (resource, most) in [
            (Resource::Cpu, seconds),
            (Resource::As, ADDRESS_BYTES_MAX),
            (Resource::Fsize, OUTPUT_BYTES_MAX),
            (Resource::Core, 0),
            (Resource::Nofile, DESCRIPTORS_MAX),
        ] {
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            let pid = i32::try_from(child.0.id()).ok().and_then(Pid::from_raw);
            match prlimit(pid, resource, limit) {
                // It is done already.
                Err(rustix::io::Errno::SRCH) | Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut message = Vec::new();
        if let Some(stdout) = child.0.stdout.take() {
            read_until(stdout, deadline, &mut message)?;
        }
        if let Some(stderr) = child.0.stderr.take() {
            read_until(stderr, deadline, &mut message)?;
        }
        loop {
            if let Some(status) = child.0.try_wait()? {
                return Ok((status, String::from_utf8_lossy(&message).into_owned()));
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("took longer than {:?}", self.time_max),
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Collects what the child writes until it closes the pipe, the deadline passes, or it has written too much (closing
/// the pipe then ends it at its next write).
fn read_until(mut stderr: impl Read + AsFd, deadline: Instant, message: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    while message.len() < MESSAGE_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let ready = match poll(&mut [PollFd::new(&stderr, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if ready == 0 {
            return Ok(());
        }
        match stderr.read(&mut buffer)? {
            0 => return Ok(()),
            count => message.extend_from_slice(&buffer[..count]),
        }
    }
    message.truncate(MESSAGE_BYTES_MAX);
    Ok(())
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A 64-bit ELF file whose section headers, which come last in a cubin or before its program headers, lie in it.
fn is_cubin(bytes: &[u8]) -> bool {
    let field = |at: usize, length: usize| -> Option<u64> {
        let bytes = bytes.get(at..at + length)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let lies_inside = |offset: usize, size: usize, count: usize| {
        let (offset, size, count) = (field(offset, 8)?, field(size, 2)?, field(count, 2)?);
        Some(offset.checked_add(size * count)? <= bytes.len() as u64)
    };
    // Offsets of e_shoff, e_shentsize, e_shnum and e_phoff, e_phentsize, e_phnum: the ELF-64 specification, figure 2.
    bytes.starts_with(b"\x7fELF\x02\x01")
        && lies_inside(0x28, 0x3a, 0x3c) == Some(true)
        && lies_inside(0x20, 0x36, 0x38) == Some(true)
}

/// A child that is ended and reaped whatever happens.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // All fail only where it has been reaped already; what it started goes with it.
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw)
            && matches!(self.0.try_wait(), Ok(None))
        {
            kill_process_group(group, Signal::KILL).ok();
        }
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A directory that nobody else can enter, removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new(parent: PathBuf) -> io::Result<Self> {
        let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..16 {
            let unguessable = RandomState::new().build_hasher().finish();
            let path = parent.join(format!("bulkhead-ptxas-{unguessable:016x}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is a leak, not a failure of the compilation.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard};

    use super::*;

    /// A scratch directory with a shell script for a compiler. One test at a time: a script still open for writing in
    /// a child that another test is starting cannot be run.
    fn script(body: &str) -> ((Folder, MutexGuard<'static, ()>), Compiler) {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let folder = Folder::new(std::env::temp_dir()).unwrap();
        let path = folder.0.join("ptxas");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        let compiler = Compiler {
            ptxas: Some(path),
            scratch: Some(folder.0.clone()),
            time_max: Duration::from_secs(5),
            ..Compiler::default()
        };
        ((folder, one), compiler)
    }

    /// What is left in the scratch directory beside the script.
    fn leftovers(folder: &Folder) -> usize {
        std::fs::read_dir(&folder.0).unwrap().count() - 1
    }

    #[test]
    fn the_message_of_a_failing_compiler_is_told_and_its_directory_removed() {
        let ((folder, _one), compiler) = script("echo 'image.ptx, line 3; error: wrong' >&2; exit 255");
        let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
        assert!(text.contains("line 3; error: wrong"), "{text}");
        assert_eq!(leftovers(&folder), 0);
    }

    #[test]
    fn a_compiler_that_does_not_end_is_ended_at_the_deadline() {
        for body in ["exec sleep 100", "exec 2>&-; exec /bin/sleep 100"] {
            let ((folder, _one), mut compiler) = script(body);
            compiler.time_max = Duration::from_millis(300);
            let started = Instant::now();
            let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
            assert!(text.contains("longer than"), "{text}");
            assert!(started.elapsed() < Duration::from_secs(10));
            assert_eq!(leftovers(&folder), 0);
        }
    }

    #[test]
    fn a_compiler_that_writes_for_ever_is_ended_with_a_bounded_message() {
        let (_folder, compiler) =
            script("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa >&2 || exit 3; done");
        let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
        assert!(text.len() < MESSAGE_BYTES_MAX + 200, "{}", text.len());
    }

    #[test]
    fn the_compiler_sees_no_environment_and_a_private_directory() {
        let (_scratch, compiler) = script(r#"/usr/bin/env >&2; /usr/bin/stat -c %a . >&2; exit 1"#);
        let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
        assert!(text.contains("700"), "{text}");
        for line in text.lines() {
            // What the shell sets by itself.
            let own = ["PWD=", "OLDPWD=", "SHLVL=", "_="];
            assert!(!line.contains('=') || own.iter().any(|own| line.contains(own)), "{line}");
        }
    }

    #[test]
    fn output_that_is_no_elf_file_is_refused() {
        for body in
            ["echo hello > image.cubin", ": > image.cubin", "printf '\\177ELF\\002\\001' > image.cubin"]
        {
            let (_scratch, compiler) = script(body);
            let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
            assert!(text.contains("no ELF file"), "{text}");
        }
        let (_scratch, compiler) = script("exit 0");
        let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
        assert!(text.contains("cannot be read"), "{text}");
    }

    #[test]
    fn output_beyond_the_limit_ends_the_compiler() {
        let (_folder, compiler) =
            script("/bin/dd if=/dev/zero of=image.cubin bs=1M seek=255 count=2 2>/dev/null; exit 7");
        let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
        assert!(text.contains("ended with"), "{text}");
    }

    #[test]
    fn what_the_compiler_started_ends_with_it() {
        let ((folder, _one), mut compiler) = script("/bin/sleep 100 & echo $! > ../child; wait");
        compiler.time_max = Duration::from_millis(700);
        let Err(Error::Image(text)) = compiler.compile("", 90) else { panic!() };
        assert!(text.contains("longer than"), "{text}");
        let child = std::fs::read_to_string(folder.0.join("child")).unwrap();
        let there = || match std::fs::read_to_string(format!("/proc/{}/stat", child.trim())) {
            // Nobody may have reaped it yet.
            Ok(stat) => !stat.contains(") Z "),
            Err(_) => false,
        };
        let ended = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !there()
        });
        assert!(ended, "process {} outlived its compiler", child.trim());
    }

    #[test]
    fn a_compiler_is_told_apart_by_what_it_says_its_version_is() {
        let ((folder, _one), compiler) = script("echo 'Build one'");
        let first = compiler.identity().unwrap();
        assert!(first.contains("Build one"), "{first}");
        assert_eq!(compiler.identity().unwrap(), first);
        std::fs::write(folder.0.join("ptxas"), "#!/bin/sh\necho 'Build number two'\n").unwrap();
        assert!(compiler.identity().unwrap().contains("number two"));
    }

    #[test]
    fn a_missing_compiler_is_told_with_what_to_do() {
        let compiler = Compiler { ptxas: Some(PathBuf::from("/nowhere/ptxas")), ..Compiler::default() };
        let Err(Error::Missing(text)) = compiler.compile("", 90) else { panic!() };
        assert!(text.contains("pip install nvidia-cuda-nvcc") && text.contains("BULKHEAD_PTXAS"), "{text}");
    }

    #[test]
    fn the_real_compiler_writes_a_cubin_and_names_the_line_of_an_error() {
        let compiler = Compiler::default();
        if compiler.find().is_err() {
            println!("skipped: no ptxas");
            return;
        }
        let ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";
        assert!(is_cubin(&compiler.compile(ptx, 90).unwrap()));
        let Err(Error::Image(text)) = compiler.compile(&ptx.replace("ret;", "bad;"), 90) else { panic!() };
        assert!(text.contains("line 6"), "{text}");
    }
}
