//! `bulkhead guard`: confines and verifies a file by itself, without a kernel.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use bulkhead_guard::{Examination, Explained, Finding, Gates, Handling, Verified, Window};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::{Failure, output};

/// Confine PTX to a window of memory and verify the result, without a kernel and without a GPU.
///
/// Exit status: 0 where the text is confined and verified, 1 where it is refused; what stands against it is told
/// on stderr, all at once.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The PTX to read; `-` is standard input.
    file: PathBuf,
    /// Where the confined text goes; `-` or nothing is standard output.
    #[arg(short, long, value_name = "OUT.ptx")]
    output: Option<PathBuf>,
    /// Fill this window in where a session's is a hidden parameter of every entry, so that the text runs by itself:
    /// powers of two of at least 4 GiB, BASE a multiple of SIZE. Such a text is no longer what the verifier
    /// accepts.
    #[arg(long, value_name = "BASE:SIZE", value_parser = window)]
    window: Option<Window>,
    /// The gates of a protected module, which the text may call: its `.visible` functions. May be given several times. Entries
    /// that call one have four more hidden parameters for its module, which `--window` does not fill in.
    #[arg(long, value_name = "GATES.ptx")]
    gates: Vec<PathBuf>,
    /// Print JSON, with the span of everything, in place of the text.
    #[arg(long)]
    json: bool,
    /// Tell how every access is kept where it may be, in place of the text.
    #[arg(long, value_name = "FORM", num_args = 0..=1, default_missing_value = "table", require_equals = true)]
    explain: Option<Form>,
}

/// How accesses are explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// One access a line.
    Table,
    /// The text as it was given, with comments.
    Ptx,
    /// What is claimed of the lanes in the confined text, and checked: where they are before each statement, counted
    /// behind the prologue, and which registers hold the same in all of them.
    Claims,
}

fn window(text: &str) -> Result<Window, String> {
    let (base, bytes) = text.split_once(':').ok_or("BASE:SIZE belongs here")?;
    Window::new(number(base)?, size(bytes)?).map_err(str::to_owned)
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("`{text}`: {error}"))
}

/// A number of bytes, perhaps with `G` or `T`.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match (text.strip_suffix('G'), text.strip_suffix('T')) {
        (Some(digits), _) => (digits, 30),
        (_, Some(digits)) => (digits, 40),
        (None, None) => (text, 0),
    };
    number(digits)?.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too much"))
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (name, text) = read(&arguments.file)?;
    let gates = gates(&arguments.gates)?;
    let mut examination = bulkhead_guard::examine_with(&text, &gates);
    let verified = if examination.report.is_empty() {
        let mut verified = bulkhead_guard::verify_with(&bulkhead_guard::print(&examination.confined), &gates);
        if verified.is_err() {
            // As a compile process makes it then.
            let stray = bulkhead_guard::Stray::Silent;
            if let Ok(confined) = bulkhead_guard::confine_verified(&examination.module, stray, &gates) {
                verified = bulkhead_guard::verify_with(&bulkhead_guard::print(&confined), &gates);
                examination.confined = confined;
            }
        }
        // Places in the confined text say nothing about the text that was given.
        verified
            .map_err(|report| {
                Failure::new(format!("{name}: the rewriter's output is not verified: {report}"))
            })
            .map(Some)?
    } else {
        None
    };
    examination.report.findings.sort_by_key(|finding| (finding.span.place, finding.span.start));
    if !arguments.json {
        eprint!("{}", examination.report.render(&name, &text));
    }
    let confined = verified.as_ref().map(|verified| match arguments.window {
        Some(window) => bulkhead_guard::print(&window.fill_in(&examination.confined)),
        None => verified.text().to_owned(),
    });
    if let (Some(path), Some(confined)) = (&arguments.output, &confined) {
        write(path, confined)?;
    }
    let told = if arguments.json {
        Some(format!("{:#}\n", as_json(&name, &examination, verified.as_ref(), arguments)))
    } else {
        match arguments.explain {
            Some(Form::Table) => Some(as_table(&examination)),
            Some(Form::Ptx) => Some(examination.annotated(&text)),
            Some(Form::Claims) => {
                verified.as_ref().map(|verified| bulkhead_guard::claims(verified.text(), &gates).to_string())
            }
            None if arguments.output.is_none() => confined,
            None => None,
        }
    };
    if let Some(told) = told {
        write(Path::new("-"), &told)?;
    }
    if verified.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let count = examination.report.findings.len() + examination.report.left_out;
    let plural = if count == 1 { "" } else { "s" };
    let hint = if is_ptx(&text) { "" } else { ". It is no PTX: `nvcc -ptx FILE.cu` makes PTX of CUDA C++" };
    Err(Failure::new(format!("{name} is refused: {count} finding{plural}{hint}")))
}

/// Whether a text may be meant as PTX.
fn is_ptx(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with(".version"))
}

/// The gates of these files, each a module of its own.
pub(crate) fn gates(files: &[PathBuf]) -> Result<Gates, Failure> {
    let mut gates = Gates::default();
    for file in files {
        let (name, text) = read(file)?;
        bulkhead_guard::add_gates(&mut gates, &name, &text).map_err(|report| {
            let told = report.render(&name, &text);
            Failure::new(format!("{name} has no gates that can be granted:\n{}", told.trim_end()))
        })?;
    }
    Ok(gates)
}

fn read(path: &Path) -> Result<(String, String), Failure> {
    let name = if path == Path::new("-") { "<stdin>".to_owned() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    // One byte more than the guard reads: it says so itself.
    let most = bulkhead_guard::limits::TEXT_BYTES_MAX as u64 + 1;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map_err(Failure::doing(&name))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!(
            "{name} is not text: look at byte {at}. The guard reads PTX: `nvcc -ptx` makes it, and `cuobjdump -ptx` takes it \
             out of a program"
        ))
    })?;
    Ok((name, text))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if path != Path::new("-") {
        return fs::write(path, text).map_err(Failure::doing(path.display()));
    }
    output::print(text)
}

/// One access a line, by entry; what holds for how many comes last.
fn as_table(examination: &Examination) -> String {
    let accesses = examination.accesses();
    let mut table = String::new();
    let mut counts: Vec<(&'static str, usize)> = Vec::new();
    let mut entry = None;
    for access in &accesses {
        if entry != Some(&access.entry) {
            entry = Some(&access.entry);
            line(&mut table, &access.entry);
        }
        let place = format!("{}:{}", access.span.place.line, access.span.place.column);
        let doing = access.doing.to_string();
        let Explained { instruction, handling, .. } = access;
        line(&mut table, &format!("  {place:<8} {doing:<8} {instruction:<44} {handling}"));
        match counts.iter_mut().find(|(word, _)| *word == handling.word()) {
            Some((_, count)) => *count += 1,
            None => counts.push((handling.word(), 1)),
        }
    }
    let mut counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    if counts.is_empty() {
        counts.push("none is read".to_owned());
    }
    line(&mut table, &format!("{} accesses: {}", accesses.len(), counts.join(", ")));
    table
}

fn line(table: &mut String, text: &str) {
    // Writing to a string does not fail.
    if writeln!(table, "{}", text.trim_end()).is_err() {
        table.push('\n');
    }
}

fn as_json(
    name: &str,
    examination: &Examination,
    verified: Option<&Verified>,
    arguments: &Arguments,
) -> Value {
    let mut report = json!({
        "file": name,
        "accepted": verified.is_some(),
        "findings": examination.report.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_left_out": examination.report.left_out,
        "entries": verified.map_or_else(Vec::new, entries),
    });
    if arguments.explain.is_some() {
        report["accesses"] = examination.accesses().iter().map(access).collect();
    }
    if let Some(window) = arguments.window {
        let values = bulkhead_guard::HIDDEN_PARAMETERS.iter().zip(window.values());
        report["hidden_parameters"] =
            values.map(|(name, value)| json!({ "name": name, "value": value })).collect();
    }
    report
}

fn span(span: bulkhead_guard::ast::Span) -> Value {
    json!({ "line": span.place.line, "column": span.place.column, "start": span.start, "end": span.end })
}

fn finding(finding: &Finding) -> Value {
    json!({ "span": span(finding.span), "reason": finding.reason.to_string() })
}

fn entries(verified: &Verified) -> Vec<Value> {
    let entry = |entry: &bulkhead_guard::VerifiedEntry| {
        json!({
            "name": entry.name,
            "parameters": entry.parameters - entry.hidden,
            "hidden_parameters": entry.hidden,
            "modules": entry.modules,
            "dynamic_shared_bytes_min": entry.dynamic_shared_min,
        })
    };
    verified.entries().iter().map(entry).collect()
}

fn access(access: &Explained) -> Value {
    let refusal =
        if let Handling::Refused(reason) = &access.handling { Some(reason.to_string()) } else { None };
    json!({
        "entry": access.entry,
        "span": span(access.span),
        "instruction": access.instruction,
        "effect": access.doing.to_string(),
        "handling": access.handling.word(),
        "refusal": refusal,
    })
}
