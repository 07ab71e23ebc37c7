//! `bulkhead lint`: reads machine code by itself, without a kernel.

use std::{fs, path::PathBuf, process::ExitCode};

use bulkhead_linter::{Counts, Linted, LintedEntry, Refusal};
use clap::Args;
use serde_json::{Value, json};

use crate::{Failure, guard::gates, output};

/// Read a cubin as an executor does before it loads one, and tell what is in it.
///
/// Exit status: 0 where it passes, 1 where it is refused, with the reason on stderr.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The cubin, as ptxas writes it.
    file: PathBuf,
    /// The verified text that it was made of (`bulkhead guard FILE.ptx -o OUT.ptx`): it may have nothing that the text
    /// has not.
    #[arg(long, value_name = "OUT.ptx")]
    text: Option<PathBuf>,
    /// The gates of a protected module, which that text may call (`bulkhead guard --gates`). May be given several times.
    #[arg(long, value_name = "GATES.ptx", requires = "text")]
    gates: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let name = arguments.file.display();
    let cubin = fs::read(&arguments.file).map_err(Failure::doing(&format!("reading {name}")))?;
    let mut linted = bulkhead_linter::inspect(&cubin);
    if let (Ok(found), Some(path)) = (&linted, &arguments.text) {
        let reading = format!("reading {}", path.display());
        let text = fs::read_to_string(path).map_err(Failure::doing(&reading))?;
        let verified = bulkhead_guard::verify_with(&text, &gates(&arguments.gates)?)
            .map_err(|report| Failure::new(format!("{} is no verified text: {report}", path.display())))?;
        linted = bulkhead_linter::lint(&cubin, found.architecture, verified.footprints());
    }
    if arguments.json {
        output::print(&format!("{:#}\n", as_json(&name.to_string(), &linted)))?;
    } else if let Ok(linted) = &linted {
        output::print(&as_table(linted).to_string())?;
    }
    match linted {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(refusal) => Err(Failure::new(format!("{name} is refused: {refusal}"))),
    }
}

fn as_table(linted: &Linted) -> String {
    let mut out = format!(
        "sm_{}, {} bytes of code; opcodes {}\n{:<32} {:>9} {:>6} {:>7} {:>6} {:>20} {:>20} {:>12} {:>12}\n",
        linted.architecture,
        linted.code_bytes,
        if linted.opcodes_checked {
            "are in the list"
        } else {
            "of this architecture are not known: not looked at"
        },
        "entry",
        "registers",
        "stack",
        "shared",
        "params",
        "global ld/st/atomic",
        "shared ld/st/atomic",
        "local ld/st",
        "instructions",
    );
    for LintedEntry { name, is_fast, registers, stack_bytes, shared_bytes, parameter_bytes, counts } in
        &linted.entries
    {
        let name = if *is_fast { format!("{name} (fast version)") } else { name.clone() };
        let Counts { global_loads, global_stores, global_updates, .. } = counts;
        let Counts { shared_loads, shared_stores, shared_updates, local_loads, local_stores, .. } = counts;
        out += &format!(
            "{name:<32} {registers:>9} {stack_bytes:>6} {shared_bytes:>7} {parameter_bytes:>6} {:>20} {:>20} {:>12} {:>12}\n",
            format!("{global_loads}/{global_stores}/{global_updates}"),
            format!("{shared_loads}/{shared_stores}/{shared_updates}"),
            format!("{local_loads}/{local_stores}"),
            counts.instructions,
        );
    }
    out
}

fn as_json(name: &str, linted: &Result<Linted, Refusal>) -> Value {
    match linted {
        Err(refusal) => json!({ "file": name, "accepted": false, "refusal": refusal.to_string() }),
        Ok(linted) => json!({
            "file": name,
            "accepted": true,
            "architecture": linted.architecture,
            "opcodes_checked": linted.opcodes_checked,
            "code_bytes": linted.code_bytes,
            "entries": linted.entries.iter().map(entry).collect::<Vec<_>>(),
        }),
    }
}

fn entry(entry: &LintedEntry) -> Value {
    let counts = &entry.counts;
    json!({
        "name": entry.name,
        "fast": entry.is_fast,
        "registers": entry.registers,
        "stack_bytes": entry.stack_bytes,
        "shared_bytes": entry.shared_bytes,
        "parameter_bytes": entry.parameter_bytes,
        "instructions": counts.instructions,
        "global": { "loads": counts.global_loads, "stores": counts.global_stores, "updates": counts.global_updates },
        "shared": { "loads": counts.shared_loads, "stores": counts.shared_stores, "updates": counts.shared_updates },
        "local": { "loads": counts.local_loads, "stores": counts.local_stores },
    })
}
