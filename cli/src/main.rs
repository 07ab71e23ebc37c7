//! The one binary. People call `serve`, `run`, `demo`, `doctor`, `status`, `smi`, `evict`, `suspend`, `resume`, `bench`,
//! `guard`, `module`, `lint`, `coverage`, `cache` and `completions`; the kernel starts the same binary again as `executor` and `compiler`.
//!
//! Exit status: 0 for success, 1 for a failure that is told on stderr, 2 for arguments that make no sense, and for
//! `run` the program's own.

mod bench;
mod cache;
mod completions;
mod coverage;
mod demo;
mod doctor;
#[cfg(test)]
mod documented;
mod evict;
mod failure;
mod guard;
mod interrupt;
mod lint;
mod module;
mod output;
mod place;
mod private;
mod processes;
mod profile;
mod ptxas;
mod run;
mod sanitize;
mod serve;
mod smi;
mod software;
mod source;
mod status;

use std::process::ExitCode;

use bulkhead_kernel::log;
use clap::{CommandFactory as _, Parser, Subcommand};

pub(crate) use failure::Failure;

/// An exokernel for NVIDIA GPUs: programs that do not trust each other share one GPU.
#[derive(Debug, Parser)]
#[command(name = "bulkhead", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Own the GPU and serve clients until interrupted.
    Serve(Box<serve::Arguments>),
    /// Run an unmodified CUDA program on Bulkhead.
    Run(run::Arguments),
    /// Show two tenants at work and a third that attacks them.
    Demo(demo::Arguments),
    /// Tell what was found on this machine, what is missing, and how to get it.
    Doctor(doctor::Arguments),
    /// Show who uses the GPU, and for how much.
    Status(status::Arguments),
    /// Show the device, its memory and its processes as nvidia-smi does.
    Smi(smi::Arguments),
    /// End a session, whoever's it is. Its program sees a session that is over; what it had is given back.
    Evict(evict::Arguments),
    /// Move a session's memory to host memory, and hold the session until `bulkhead resume`. Its program waits meanwhile.
    Suspend(evict::Arguments),
    /// Let a suspended session go on.
    Resume(evict::Arguments),
    /// Measure Bulkhead against the driver alone, in alternating processes.
    Bench(bench::Bench),
    /// Confine a PTX file and verify the result, without a kernel.
    Guard(guard::Arguments),
    /// Make protected modules, start and stop them, and look at their gates.
    Module(module::Arguments),
    /// Read a cubin as an executor does before it loads one, without a kernel.
    Lint(lint::Arguments),
    /// Show which functions of CUDA's driver are served, and why the others are not.
    Coverage(coverage::Arguments),
    /// Show or clear the machine code that is kept.
    Cache(cache::Arguments),
    /// Print a completion script for a shell.
    ///
    /// Where shells look for it: `bulkhead completions bash > ~/.local/share/bash-completion/completions/bulkhead`,
    /// `bulkhead completions zsh > ~/.zfunc/_bulkhead` (a folder of `fpath`), and
    /// `bulkhead completions fish > ~/.config/fish/completions/bulkhead.fish`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    #[command(hide = true)]
    Executor(processes::ExecutorArguments),
    #[command(hide = true)]
    Compiler(processes::CompilerArguments),
    #[command(hide = true)]
    Assembler(processes::AssemblerArguments),
    #[command(hide = true)]
    Program(processes::ProgramArguments),
    #[command(hide = true)]
    DemoTenant(demo::TenantArguments),
    #[command(hide = true)]
    BenchWorker(bulkhead_bench::WorkerArguments),
}

fn main() -> ExitCode {
    if let Some(done) = smi::alone().or_else(ptxas::alone) {
        return done.unwrap_or_else(tell);
    }
    let arguments = Arguments::parse();
    // A kernel and what it starts have no use for what whoever started them left open, and pass it on to nobody. Programs have.
    let starts_alone = matches!(
        arguments.command,
        Command::Serve(_) | Command::Executor(_) | Command::Compiler(_) | Command::Assembler(_)
    );
    if starts_alone && let Err(error) = bulkhead_kernel::close_inherited() {
        return tell(Failure::doing("close what was inherited")(error));
    }
    // Before the log's thread: a process with two is not given a user namespace.
    let apart = match &arguments.command {
        Command::Compiler(_) | Command::Assembler(_) => Some(processes::namespaces()),
        Command::Doctor(doctor) if doctor.tries_confinement() => Some(processes::namespaces()),
        _ => None,
    };
    // Likewise: every thread has walls of its own.
    let walls = match &arguments.command {
        Command::Executor(executor) if executor.is_isolated() => {
            Some(bulkhead_executor::sandbox::take_files())
        }
        Command::Doctor(doctor) if doctor.tries_sandbox() => {
            return doctor::try_sandbox().unwrap_or_else(tell);
        }
        _ => None,
    };
    // The kernel tells an isolated executor's log from what NVIDIA's driver writes for its program.
    const LOG_MARK: &str = match std::str::from_utf8(&[bulkhead_schema::limits::LOG_MARK]) {
        Ok(mark) => mark,
        Err(_) => "",
    };
    let mark = if walls.is_some() { LOG_MARK } else { "" };
    log::begin("warn", mark);
    let done = match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments, apart),
        Command::Status(arguments) => status::run(&arguments),
        Command::Smi(arguments) => smi::run(&arguments),
        Command::Evict(arguments) => evict::evict(&arguments),
        Command::Suspend(arguments) => evict::suspend(&arguments),
        Command::Resume(arguments) => evict::resume(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Guard(arguments) => guard::run(&arguments),
        Command::Module(arguments) => module::run(&arguments),
        Command::Lint(arguments) => lint::run(&arguments),
        Command::Coverage(arguments) => coverage::run(&arguments),
        Command::Cache(arguments) => cache::run(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(Arguments::command()), "bulkhead", &mut script);
            let script = completions::with_names(shell, &String::from_utf8_lossy(&script));
            output::print(&script).map(|()| ExitCode::SUCCESS)
        }
        Command::Executor(arguments) => processes::executor(&arguments, walls),
        Command::Compiler(arguments) => processes::compiler(&arguments, apart),
        Command::Assembler(arguments) => processes::assembler(&arguments, apart),
        Command::Program(arguments) => processes::program(&arguments),
        Command::DemoTenant(arguments) => demo::tenant(&arguments),
        Command::BenchWorker(arguments) => bench::worker(&arguments),
    };
    log::end();
    done.unwrap_or_else(tell)
}

/// Says what went wrong. Some of it may be a tenant's text: it moves no cursor.
fn tell(failure: Failure) -> ExitCode {
    let text = failure.to_string();
    let plain = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    eprintln!("bulkhead: {}", text.chars().map(plain).collect::<String>());
    ExitCode::from(failure.code)
}

/// The command without what only Bulkhead itself calls.
fn visible(all: clap::Command) -> clap::Command {
    let people = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let command = clap::Command::new("bulkhead").args(all.get_arguments().cloned());
    command.version(env!("CARGO_PKG_VERSION")).propagate_version(true).subcommands(people.collect::<Vec<_>>())
}
