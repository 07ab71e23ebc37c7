//! `bulkhead module`: gates of protected modules, from CUDA C to what `bulkhead serve --module` takes.

mod new;
mod service;
mod start;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use bulkhead_guard::data::{Data, DataVariable};
use bulkhead_guard::{GateSummary, GateWindow, Gates};
use bulkhead_schema::limits::GATES_BYTES_MAX;
use clap::{Args, Subcommand};

use crate::{Failure, output, place::Scratch, source};

pub(crate) use service::is_starting;

/// What gates in CUDA C include.
const HEADER: (&str, &str) =
    ("bulkhead_module.h", include_str!("../../modules/api/include/bulkhead_module.h"));
/// The oldest architecture that nvcc 13 writes PTX for: what is for it runs on all later ones.
const ARCHITECTURE: u32 = 75;

/// Make protected modules, start and stop them, and look at their gates.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Compile gates in CUDA C to PTX, check them, and tell where their variables lie.
    ///
    /// The compiler is nvcc, with `#include <bulkhead_module.h>` in its path. Nothing is written where a gate is refused.
    Build(Build),
    /// Tell which gates a file of PTX has, and where its variables lie in the module's window.
    Show(Show),
    /// Print the header that gates in CUDA C include.
    Header,
    /// Have a kernel that serves let sessions claim a module, and keep its host half running until interrupted.
    ///
    /// The manifest says which gates, how large a window, and which program is the host half. A host half that ends is started
    /// again. Tenants open the module with `bulkhead run --module NAME=WORDS`, or over its socket.
    Start(start::Start),
    /// Take a module away from a kernel that serves, with its host half: what its callers launch is refused, and gates of kernels
    /// that run answer that nothing is open.
    Stop(start::Stop),
    /// Tell which modules a kernel that serves has, who serves them, and whose kernels may call them.
    List(start::List),
    /// Make a folder with a module to begin with: gates, host half, manifest and a tenant.
    New(new::New),
}

#[derive(Debug, Args)]
struct Build {
    /// The CUDA C file.
    #[arg(value_name = "GATES.cu")]
    file: PathBuf,
    /// Where the PTX goes (the file's own name, with .ptx).
    #[arg(short, long, value_name = "GATES.ptx")]
    output: Option<PathBuf>,
    /// The compiler ($NVCC, else the one in the path or in /usr/local/cuda/bin).
    #[arg(long)]
    nvcc: Option<PathBuf>,
    /// The virtual architecture: PTX for it runs there and on all later ones.
    #[arg(long, value_name = "NN", default_value_t = ARCHITECTURE)]
    architecture: u32,
    #[command(flatten)]
    told: Told,
    /// Further options for nvcc.
    #[arg(last = true, value_name = "NVCC OPTIONS")]
    further: Vec<String>,
}

#[derive(Debug, Args)]
struct Show {
    /// The file of PTX.
    #[arg(value_name = "GATES.ptx")]
    file: PathBuf,
    #[command(flatten)]
    told: Told,
}

#[derive(Debug, Args)]
struct Told {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Also write where variables lie, and what they hold at first, as Rust constants for the host half.
    #[arg(long, value_name = "WINDOW.rs")]
    rust: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        Action::Build(build) => self::build(build)?,
        Action::Show(show) => {
            let name = show.file.display().to_string();
            let about = fs::metadata(&show.file).map_err(Failure::doing(&name))?;
            if about.len() > GATES_BYTES_MAX {
                return Err(Failure::new(format!("{name} has more than {GATES_BYTES_MAX} bytes")));
            }
            let text = fs::read_to_string(&show.file).map_err(Failure::doing(&name))?;
            let module = Module::of(&text).map_err(|report| {
                Failure::new(format!(
                    "{name} has no gates that can be granted:\n{}",
                    report.render(&name, &text)
                ))
            })?;
            tell(&name, &module, &show.told)?;
        }
        Action::Header => output::print(HEADER.1)?,
        Action::Start(start) => start::start(start)?,
        Action::Stop(stop) => start::stop(stop)?,
        Action::List(list) => start::list(list)?,
        Action::New(new) => new::new(new)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Gates, and what lies in their window.
struct Module {
    gates: Vec<GateSummary>,
    window: GateWindow,
    /// Of the text, by which a host half knows the gates that it was built for.
    digest: u64,
}

impl Module {
    fn of(text: &str) -> Result<Self, bulkhead_guard::Report> {
        let mut gates = Gates::default();
        let window = bulkhead_guard::add_gates(&mut gates, "", text)?;
        Ok(Self { gates: gates.summaries(), window, digest: bulkhead_module::digest(text.as_bytes()) })
    }
}

fn build(build: &Build) -> Result<(), Failure> {
    let name = build.file.display().to_string();
    let output = build.output.clone().unwrap_or_else(|| build.file.with_extension("ptx"));
    if output == build.file {
        return Err(Failure::new(format!("{name} would be written over: name another file with -o")));
    }
    let folder = Scratch::new()?;
    fs::write(folder.path().join(HEADER.0), HEADER.1).map_err(Failure::doing(HEADER.0))?;
    let made = folder.path().join("gates.ptx");
    compile(build, folder.path(), &made, &[])?;
    let text = fs::read_to_string(&made).map_err(Failure::doing("the compiler's PTX"))?;
    let module = match Module::of(&text) {
        Ok(module) => module,
        Err(report) => {
            // Once more with the lines of the source, which the PTX that is kept goes without.
            compile(build, folder.path(), &made, &["-lineinfo"])?;
            let text = fs::read_to_string(&made).map_err(Failure::doing("the compiler's PTX"))?;
            let report = Module::of(&text).err().unwrap_or(report);
            return Err(Failure::new(refused(&name, &text, &report)));
        }
    };
    fs::write(&output, text).map_err(Failure::doing(output.display()))?;
    tell(&output.display().to_string(), &module, &build.told)
}

/// The compiler's own messages go where the command's do.
fn compile(build: &Build, include: &Path, to: &Path, options: &[&str]) -> Result<(), Failure> {
    let nvcc = nvcc(build.nvcc.as_deref())?;
    let status = Command::new(&nvcc)
        .args(["-ptx", "-rdc=true", "-std=c++17"])
        .arg(format!("-arch=compute_{}", build.architecture))
        .arg("-I")
        .arg(include)
        .args(options)
        .args(&build.further)
        .arg(&build.file)
        .arg("-o")
        .arg(to)
        .status()
        .map_err(Failure::doing(nvcc.display()))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{} did not compile {}: {status}", nvcc.display(), build.file.display())))
}

fn nvcc(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    if let Some(named) = std::env::var_os("NVCC").filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&folders).chain([PathBuf::from("/usr/local/cuda/bin")]);
    let found = folders.map(|folder| folder.join("nvcc")).find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::new(
            "there is no nvcc in the path: install CUDA's compiler (tests/toolchain.sh puts one into .toolchain/cuda/bin), \
             or name it with --nvcc",
        )
    })
}

/// What is not supported is told as to a tenant; here a gate's author reads.
fn of_gates(reason: &str) -> String {
    if reason.contains("a gate's module without `.visible` functions") {
        return "no function is marked BULKHEAD_GATE".to_owned();
    }
    if let Some((_, name)) = reason.split_once("an entry beside gates, ") {
        let name = source::readable(name.trim_matches('`'));
        return format!(
            "a file of gates may not have a `__global__` function: `{name}` belongs in another file"
        );
    }
    if let Some((call, _)) = reason.split_once(", which has no body here and is no gate") {
        return format!("{call}: gates call what stands in their file, and have no printf, malloc or assert");
    }
    let told = match reason.split_once("a guarded session does not support ") {
        Some((before, what)) => {
            format!(
                "{before}a gate may not have {}",
                what.replace(", in a gate", "").replace(" in a gate", "")
            )
        }
        None => reason.to_owned(),
    };
    let hint = if told.contains("loop") {
        "; give it a bound that is seen, such as `m = n < 16 ? n : 16`, and write `#pragma unroll 1` before it: the compiler's \
         unrolling may hide the bound"
    } else if told.ends_with("a gate may not have a variable") {
        ", such as an array of its own: keep it in the window, or index it by constants only"
    } else if told.contains("the carry flag") {
        ", which its callers could read: compute with 64 bits, and see by a comparison (`sum < a`) whether a sum went over"
    } else {
        ""
    };
    format!("{told}{hint}")
}

/// What is wrong, by lines of the source where the PTX has them.
fn refused(name: &str, text: &str, report: &bulkhead_guard::Report) -> String {
    let mut told = format!("{name} has no gates that can be granted:\n");
    let mut last = String::new();
    for finding in &report.findings {
        let line = usize::try_from(finding.span.place.line).unwrap_or(0);
        match source_line(text, line) {
            Some((file, line)) => {
                let why = format!("{file}:{line}: {}\n", of_gates(&finding.reason.to_string()));
                // One line of the source is many of PTX.
                if why == last {
                    continue;
                }
                told.push_str(&why);
                last = why;
                let shown = fs::read_to_string(&file).ok();
                if let Some(shown) = shown.and_then(|all| all.lines().nth(line - 1).map(str::to_owned)) {
                    told.push_str(&format!("    {}\n", shown.trim()));
                }
            }
            None => {
                told.push_str(&format!("{}\n", of_gates(&finding.to_string())));
            }
        }
    }
    told.truncate(told.trim_end().len());
    told
}

/// The line of the source that a line of PTX comes from: what was inlined is where it was called.
fn source_line(text: &str, line: usize) -> Option<(String, usize)> {
    // Not `.local`.
    let is_loc = |line: &str| {
        line.trim_start().strip_prefix(".loc").is_some_and(|rest| rest.starts_with(char::is_whitespace))
    };
    // What is wrong with a function as a whole, or a parameter, is told before its first line.
    let lines: Vec<&str> = text.lines().collect();
    let up_to = lines.get(..line)?;
    let begins = |line: &str| line.contains(".func") || line.contains(".entry");
    let begin = up_to.iter().rposition(|line| begins(line)).unwrap_or(0);
    let before = up_to.get(begin..)?.iter().rfind(|line| is_loc(line));
    let loc = before.or_else(|| lines.get(line..)?.iter().find(|line| is_loc(line)))?;
    let own = loc.rsplit_once("inlined_at").map_or(loc.trim_start().strip_prefix(".loc")?, |(_, at)| at);
    let mut words = own.split_whitespace();
    let (file, line) = (words.next()?, words.next()?.parse().ok().filter(|line| *line > 0)?);
    let declares = |line: &&str| {
        line.trim_start()
            .strip_prefix(".file")
            .is_some_and(|rest| rest.split_whitespace().next() == Some(file))
    };
    let declared = text.lines().find(declares)?;
    let path = declared.split('"').nth(1)?;
    Some((path.to_owned(), line))
}

fn tell(name: &str, module: &Module, told: &Told) -> Result<(), Failure> {
    if let Some(path) = &told.rust {
        fs::write(path, as_rust(&module.window, module.digest)).map_err(Failure::doing(path.display()))?;
    }
    if told.json {
        let Module { gates, window, .. } = module;
        let gates: Vec<_> = gates
            .iter()
            .map(|gate| {
                serde_json::json!({
                    "name": gate.name, "arguments_bits": gate.arguments, "results_bits": gate.results,
                    "statements": gate.statements, "cost": gate.cost,
                })
            })
            .collect();
        let part = |part: &Data| {
            let variables: Vec<_> = part
                .variables
                .iter()
                .map(|found| {
                    serde_json::json!({ "name": plain_name(&found.name), "offset": found.at, "bytes": found.bytes })
                })
                .collect();
            serde_json::json!({ "bytes": part.bytes, "initial_bytes": part.initial.len(), "variables": variables })
        };
        let value = serde_json::json!({
            "file": name, "gates": gates,
            "window": part(&window.device), "host": part(&window.host),
            "host_bytes": window.host_bytes(), "window_bytes_min": window.bytes_min(),
        });
        return output::print(&format!("{}\n", output::plain_json(&format!("{value:#}"))));
    }
    output::print(&as_table(module))
}

fn as_table(module: &Module) -> String {
    let Module { gates, window, .. } = module;
    let width = |names: &mut dyn Iterator<Item = usize>| names.max().unwrap_or(0).max(8);
    let mut table = String::new();
    let widest = width(&mut gates.iter().map(|gate| gate.name.len()));
    table.push_str(&format!("{:widest$}  takes        gives        statements  cost\n", "gate"));
    let bits = |bits: &[usize]| {
        let all: Vec<String> = bits.iter().map(usize::to_string).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(" ") }
    };
    for gate in gates {
        table.push_str(&format!(
            "{:widest$}  {:11}  {:11}  {:10}  {}\n",
            output::plain(&gate.name),
            bits(&gate.arguments),
            bits(&gate.results),
            gate.statements,
            gate.cost
        ));
    }
    for (part, of) in [(&window.device, "device memory"), (&window.host, "host memory")] {
        if part.variables.is_empty() {
            continue;
        }
        let names: Vec<String> =
            part.variables.iter().map(|found| output::plain(&plain_name(&found.name))).collect();
        let widest = width(&mut names.iter().map(String::len));
        table.push_str(&format!("\n{:widest$}  offset      bytes  in {of}\n", "variable"));
        for (name, DataVariable { at, bytes, .. }) in names.iter().zip(&part.variables) {
            table.push_str(&format!("{name:widest$}  {at:10}  {bytes}\n"));
        }
        let held = match part.initial.len() {
            0 => "zero at first".to_owned(),
            bytes => {
                format!("zero at first from byte {bytes} on: what is before, the host half writes (--rust)")
            }
        };
        table.push_str(&format!("{} bytes, {held}\n", part.bytes));
    }
    table.push_str(&format!("\nthe window takes {} MiB\n", window.bytes_min() >> 20));
    table
}

/// The constants that a host half reads and writes the window by.
fn as_rust(window: &GateWindow, digest: u64) -> String {
    let mut text =
        "//! Where the variables of the gates lie in the module's window. Written by `bulkhead module`.\n\
        #![allow(dead_code, unreachable_pub, reason = \"a host half uses what it needs\")]\n"
            .to_owned();
    text.push_str(&format!(
        "\n/// Tells these gates from others.\npub const GATES: u64 = 0x{digest:016X};\n"
    ));
    // What the file says of the parts has names too.
    let mut taken: BTreeSet<String> =
        ["GATES", "WINDOW_BYTES", "INITIAL", "HOST_WINDOW_BYTES", "HOST_INITIAL"].map(str::to_owned).into();
    for (part, prefix, of) in [
        (&window.device, "", "device memory"),
        (&window.host, "HOST_", "the host memory, which counts for itself"),
    ] {
        for found in &part.variables {
            let name = unused(&constant(&found.name), &mut taken);
            text.push_str(&format!(
                "\n/// `{0}`: where it begins in {of}.\npub const {name}: u64 = {1};\n/// `{0}`: its bytes.\n\
                 pub const {name}_BYTES: u64 = {2};\n",
                plain_name(&found.name),
                found.at,
                found.bytes
            ));
        }
        if part.variables.is_empty() && !prefix.is_empty() {
            continue;
        }
        let bytes: Vec<String> = part.initial.iter().map(u8::to_string).collect();
        text.push_str(&format!(
            "\n/// Bytes of all of them in {of}.\npub const {prefix}WINDOW_BYTES: u64 = {};\n\n\
             /// What that begins with before the first call: the host half writes it. The rest is zero.\n\
             pub const {prefix}INITIAL: &[u8] = &[{}];\n",
            part.bytes,
            bytes.join(", ")
        ));
    }
    text
}

/// A constant's name that none before it has, nor its length: with a number behind it where that is needed.
fn unused(wanted: &str, taken: &mut BTreeSet<String>) -> String {
    let with = |number: u32| if number == 1 { wanted.to_owned() } else { format!("{wanted}_{number}") };
    let is_free = |name: &String| !taken.contains(name) && !taken.contains(&format!("{name}_BYTES"));
    let name = (1..).map(with).find(is_free).unwrap_or_default();
    taken.extend([name.clone(), format!("{name}_BYTES")]);
    name
}

/// A variable's name as its source has it.
fn plain_name(name: &str) -> String {
    // What nvcc makes of `static` in relocatable code: __nv_static_LENGTH_STAMP_NAME, where STAMP has so many bytes.
    let own = name.strip_prefix("__nv_static_").and_then(|rest| {
        let (length, rest) = rest.split_once('_')?;
        rest.get(length.parse().ok()?..)?.strip_prefix('_')
    });
    source::readable(own.unwrap_or(name))
}

/// The same as the name of a constant.
fn constant(name: &str) -> String {
    let plain = plain_name(name).replace("::", "_");
    let letters = plain.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' });
    letters.collect::<String>().trim_matches('_').to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_variable_is_told_by_the_line_of_its_function() {
        let text = ".file 1 \"gates.cu\"\n.visible .func g()\n{\n\t.local .align 8 .b8 depot[64];\n\t.loc\t1 7 0\n\tret;\n}\n";
        assert_eq!(source_line(text, 4), Some(("gates.cu".to_owned(), 7)));
    }

    #[test]
    fn an_entry_is_told_by_its_own_line_and_not_by_that_of_the_function_before_it() {
        let text = ".file 1 \"gates.cu\"\n.visible .func g()\n{\n\t.loc\t1 4 0\n\tret;\n}\n.visible .entry k()\n{\n\t.loc\t1 3 0\n\tret;\n}\n";
        assert_eq!(source_line(text, 7), Some(("gates.cu".to_owned(), 3)));
    }

    #[test]
    fn authors_of_gates_are_told_in_their_own_terms() {
        for (reason, told) in [
            ("a guarded session does not support a barrier in a gate", "a gate may not have a barrier"),
            (
                "a guarded session does not support the carry flag in a gate",
                "a gate may not have the carry flag, which its callers could read: compute with 64 bits, and see by a \
                 comparison (`sum < a`) whether a sum went over",
            ),
            (
                "a guarded session does not support an entry beside gates, `_Z5strayPi`",
                "a file of gates may not have a `__global__` function: `stray(int*)` belongs in another file",
            ),
            (
                "a guarded session does not support a gate's module without `.visible` functions",
                "no function is marked BULKHEAD_GATE",
            ),
            (
                "a call of `vprintf`, which has no body here and is no gate that the session was granted: link the function",
                "a call of `vprintf`: gates call what stands in their file, and have no printf, malloc or assert",
            ),
        ] {
            assert_eq!(of_gates(reason), told);
        }
        assert!(
            of_gates("7:1: a guarded session does not support a variable in a gate")
                .contains("keep it in the window")
        );
        assert!(
            of_gates("a guarded session does not support a loop in a gate that is not known to end soon")
                .contains("; give it a bound")
        );
    }

    #[test]
    fn names_are_those_of_the_source() {
        for (name, plain, upper) in [
            ("count", "count", "COUNT"),
            ("__nv_static_25__9a81618c_4_a_cu_8ca2a4bf_records", "records", "RECORDS"),
            ("_ZN7storage4headE", "storage::head", "STORAGE_HEAD"),
            ("h", "h", "H"),
            ("__nv_static_x", "__nv_static_x", "NV_STATIC_X"),
            ("__nv_static_900_x", "__nv_static_900_x", "NV_STATIC_900_X"),
        ] {
            assert_eq!((plain_name(name).as_str(), constant(name).as_str()), (plain, upper));
        }
    }

    #[test]
    fn constants_have_names_of_their_own() {
        let mut taken: BTreeSet<String> = ["INITIAL".to_owned()].into();
        let names =
            ["COUNT", "COUNT", "INITIAL", "COUNT_BYTES", "OTHER"].map(|name| unused(name, &mut taken));
        assert_eq!(names, ["COUNT", "COUNT_2", "INITIAL_2", "COUNT_BYTES_2", "OTHER"]);
    }

    #[test]
    fn lines_of_ptx_are_lines_of_the_source() {
        let text = ".loc 1 7 3\nmov\n.loc 2 9 1, function_name L, inlined_at 1 12 5\nld\n.file 1 \"/a/gates.cu\"\n.file 2 \"/h\"\n";
        assert_eq!(source_line(text, 2), Some(("/a/gates.cu".to_owned(), 7)));
        assert_eq!(source_line(text, 4), Some(("/a/gates.cu".to_owned(), 12)));
        assert_eq!(
            source_line(&format!(".visible .func g()\n{text}"), 1),
            Some(("/a/gates.cu".to_owned(), 7))
        );
        assert_eq!(source_line("mov\n", 1), None);
    }
}
