//! `bulkhead demo`: two tenants at work, and a third that attacks them.
//!
//! Every tenant is a process with a session of its own on one kernel. The attacker's GPU kernel stores through
//! forged addresses, its neighbours' among them; everybody's bytes are checked afterwards.

mod attacker;
mod worker;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
};

use bulkhead_client::{Image, Options, Session};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::{Failure, place, private::Kernel, serve::Backend, software::Software};

/// What a stray store of the attacker writes.
pub(crate) const MARK: u32 = 0xBAD0_CAFE;

/// Show two tenants at work and a third that attacks them.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which device.
    #[arg(long, value_enum, default_value_t = Backend::Auto, env = "BULKHEAD_BACKEND")]
    backend: Backend,
    #[command(flatten)]
    software: Software,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Who a tenant process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Adds vectors of floats.
    Saxpy,
    /// Iterates a generator on integers.
    Scramble,
    /// Stores where it must not.
    Attacker,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Saxpy => "saxpy",
            Self::Scramble => "scramble",
            Self::Attacker => "attacker",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct TenantArguments {
    #[arg(long, value_enum)]
    role: Role,
    #[arg(long)]
    socket: PathBuf,
    /// Addresses to attack.
    #[arg(long, value_delimiter = ',')]
    targets: Vec<u64>,
}

/// A tenant's process.
pub(crate) fn tenant(arguments: &TenantArguments) -> Result<ExitCode, Failure> {
    let name = format!("demo-{}", arguments.role.name());
    let session = Session::open(&Options { socket: arguments.socket.clone(), name, ..Options::default() })?;
    let image = session.load_image(include_bytes!("kernels.ptx"))?;
    let told = match arguments.role {
        Role::Saxpy => worker::run(&session, &image, worker::Work::Saxpy)?,
        Role::Scramble => worker::run(&session, &image, worker::Work::Scramble)?,
        Role::Attacker => attacker::run(&session, &image, &arguments.targets)?,
    };
    println!("{told}");
    Ok(ExitCode::SUCCESS)
}

/// Entries of the demo's image.
pub(crate) fn entry(image: &Image, name: &str) -> Result<bulkhead_client::Entry, Failure> {
    image.entry(name).map_err(Failure::from)
}

/// A tenant as the demo's own process sees it.
struct Tenant {
    role: Role,
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    stdin: Option<ChildStdin>,
}

impl Tenant {
    fn start(role: Role, kernel: &Kernel, targets: &[u64]) -> Result<Self, Failure> {
        let mut command = Command::new(place::binary()?);
        command.args(["demo-tenant", "--role", role.name(), "--socket"]).arg(kernel.socket());
        if !targets.is_empty() {
            let targets: Vec<String> = targets.iter().map(u64::to_string).collect();
            command.arg("--targets").arg(targets.join(","));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdout, stdin) = (child.stdout.take(), child.stdin.take());
        let stdout = stdout.ok_or_else(|| Failure::new("a tenant without output"))?;
        Ok(Self { role, child, lines: BufReader::new(stdout), stdin })
    }

    /// The next line it says.
    fn hear(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let silent = |_| Failure::new(format!("tenant {} ended early", self.role.name()));
        serde_json::from_str(&line).map_err(silent)
    }

    /// Tells it to finish and hears what it has to say.
    fn finish(mut self) -> Result<Value, Failure> {
        drop(self.stdin.take());
        let told = self.hear();
        let status = self.child.wait()?;
        if status.success() {
            told
        } else {
            Err(Failure::new(format!("tenant {}: {status}", self.role.name())))
        }
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// Whether something that a tenant said is there and true.
fn holds(value: &Value, key: &str) -> bool {
    value[key].as_bool().unwrap_or(false)
}

/// Whether a store went to the attacker's sink, and is there.
fn contained(store: &Value) -> bool {
    ["in_own_slot", "seen", "sink"].iter().all(|key| holds(store, key))
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let backend = arguments.software.on(arguments.backend)?.resolve();
    eprintln!("bulkhead demo: starting a kernel on the {} backend ...", backend.name());
    let kernel = Kernel::start_with(backend, &arguments.software.arguments())?;
    let device =
        Session::open(&Options { socket: kernel.socket(), name: "demo".into(), ..Options::default() })?;
    let device_name = device.device().name.clone();
    drop(device);

    eprintln!("bulkhead demo: two tenants start to work ...");
    let mut alice = Tenant::start(Role::Saxpy, &kernel, &[])?;
    let mut bob = Tenant::start(Role::Scramble, &kernel, &[])?;
    let (in_alice, in_bob) = (alice.hear()?, bob.hear()?);
    let targets = [
        number(&in_alice, "vault"),
        number(&in_alice, "work"),
        number(&in_bob, "vault"),
        number(&in_bob, "work"),
        0,
        0xdead_beef_0000_0000,
        number(&in_bob, "vault") + 2,
    ];
    eprintln!("bulkhead demo: a third stores through forged addresses ...");
    let attack = Tenant::start(Role::Attacker, &kernel, &targets)?.finish()?;
    let (alice, bob) = (alice.finish()?, bob.finish()?);

    let stores = attack["stores"].as_array().cloned().unwrap_or_default();
    let contained = stores.len() == targets.len() && stores.iter().all(contained);
    let intact = |tenant: &Value| holds(tenant, "results") && holds(tenant, "vault_intact");
    let safe = contained && intact(&alice) && intact(&bob) && holds(&attack, "alive");
    let report = json!({
        "backend": backend.name(), "device": device_name, "safe": safe,
        "tenants": {"alice": alice, "bob": bob, "mallory": attack},
    });
    if arguments.json {
        println!("{report:#}")
    } else {
        print(&report)?
    }
    Ok(if safe { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &Value) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let yes = |value: &Value, key: &str| if holds(value, key) { "yes" } else { "NO" };
    writeln!(
        out,
        "\nThree tenants, one address space, on: {} ({})\n",
        text(&report["device"]),
        text(&report["backend"])
    )?;
    writeln!(out, "  tenant    work                        rounds  results right  bytes intact")?;
    for (name, work) in [("alice", "y = a*x + y, floats"), ("bob", "generator, integers")] {
        let tenant = &report["tenants"][name];
        writeln!(
            out,
            "  {name:<9} {work:<25} {:>8}  {:<13}  {}",
            number(tenant, "rounds"),
            yes(tenant, "results"),
            yes(tenant, "vault_intact"),
        )?;
    }
    let mallory = &report["tenants"]["mallory"];
    writeln!(
        out,
        "\n  mallory's kernel stored {MARK:#010x} through forged addresses; its slot begins at {:#x}:\n",
        number(mallory, "slot")
    )?;
    writeln!(
        out,
        "  forged address      whose                 the store landed at  there now   in mallory's own sink"
    )?;
    let whose = [
        "alice's vault",
        "alice's work",
        "bob's vault",
        "bob's work",
        "null",
        "nobody's",
        "bob's, misaligned",
    ];
    let stores = mallory["stores"].as_array().cloned().unwrap_or_default();
    for (store, whose) in stores.iter().zip(whose) {
        writeln!(
            out,
            "  {:#018x}  {whose:<20}  {:#018x}  {:#010x}  {}",
            number(store, "forged"),
            number(store, "landed"),
            number(store, "value"),
            if contained(store) { "yes" } else { "NO" },
        )?;
    }
    let verdict = if holds(report, "safe") {
        "Every store was confined to mallory's own slot, where it hit a sink. Nobody faulted, nobody else saw it:\n  \
         the guard rewrote mallory's PTX so that each address keeps its low bits and gets mallory's high ones."
    } else {
        "SOMETHING IS WRONG: see the lines that say NO."
    };
    writeln!(out, "\n  {verdict}\n")?;
    Ok(())
}
