//! `bulkhead coverage`: which functions of CUDA's driver the library serves, from the table that its tests keep.

use std::{collections::BTreeSet, process::ExitCode};

use clap::Args;
use serde_json::{Value, json};

use crate::{Failure, output};

/// Written by the tests of the library, from its exports.
const TABLE: &str = include_str!("../../libos-cuda/names.tsv");

const MORE: &str = "\
Each line is a symbol of the library, with the version of CUDA that has it first, what becomes of a call, what there is to say
about it, and the test of libos-cuda that calls it. Programs that use the runtime API (cudaMalloc) call these functions
underneath.

  served    it does what NVIDIA's driver does, but for what is said
  refused   it answers \"not supported\", and says why on stderr, once
  absent    it is refused, and cuGetProcAddress says that there is no such function

Exit status: 0, or 1 where no function has a name that begins so.";

/// Show which functions of CUDA's driver are served, and why the others are not.
#[derive(Debug, Args)]
#[command(after_help = MORE)]
pub(crate) struct Arguments {
    /// Show functions whose name begins so: `cuMem`, `cuGraphAdd`.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Show only what is refused.
    #[arg(long)]
    refused: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A function under one of its symbols: those of other versions, and of the null stream of each thread, are others.
struct Symbol<'a> {
    symbol: &'a str,
    name: &'a str,
    since: u32,
    state: &'a str,
    note: &'a str,
    test: &'a str,
}

impl<'a> Symbol<'a> {
    fn read(line: &'a str) -> Option<Symbol<'a>> {
        let mut cells = line.split('\t');
        let (symbol, name) = (cells.next()?, cells.next()?);
        let since = cells.next()?.parse().ok()?;
        Some(Symbol { symbol, name, since, state: cells.next()?, note: cells.next()?, test: cells.next()? })
    }

    fn is_served(&self) -> bool {
        self.state == "served"
    }

    /// As people write the version of CUDA that has it first.
    fn version(&self) -> String {
        format!("{}.{}", self.since / 1000, self.since % 1000 / 10)
    }
}

fn table() -> impl Iterator<Item = Symbol<'static>> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(Symbol::read)
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let name = arguments.name.as_deref().unwrap_or_default();
    let named: Vec<_> = table().filter(|symbol| symbol.symbol.starts_with(name)).collect();
    if named.is_empty() {
        return Err(Failure::new(format!(
            "no function of CUDA 13.0's driver has a name that begins with {name:?}; those of the runtime API (cudaMalloc) are \
             NVIDIA's own library on top of these"
        )));
    }
    let shown: Vec<_> = named.iter().filter(|symbol| !arguments.refused || !symbol.is_served()).collect();
    let text = if arguments.json { format!("{:#}\n", as_json(&shown)) } else { as_table(&shown) };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// How many functions there are among these, whatever their symbols, and how many of them are served.
fn counts(shown: &[&Symbol<'_>]) -> (usize, usize) {
    let names = |all: bool| -> BTreeSet<&str> {
        shown.iter().filter(|symbol| all || symbol.is_served()).map(|symbol| symbol.name).collect()
    };
    (names(true).len(), names(false).len())
}

fn as_table(shown: &[&Symbol<'_>]) -> String {
    let width = shown.iter().map(|symbol| symbol.symbol.len()).max().unwrap_or_default();
    let mut out = String::new();
    for symbol in shown {
        let Symbol { symbol: name, state, note, test, .. } = symbol;
        let test = if test.is_empty() { String::new() } else { format!("[{test}]") };
        let more: Vec<&str> = [*note, test.as_str()].into_iter().filter(|part| !part.is_empty()).collect();
        let line = format!("{name:<width$}  {:>5}  {state:<7}  {}", symbol.version(), more.join("  "));
        out += &format!("{}\n", line.trim_end());
    }
    let (all, served) = counts(shown);
    out + &format!("{} symbols; {served} of {all} functions are served\n", shown.len())
}

fn as_json(shown: &[&Symbol<'_>]) -> Value {
    let (all, served) = counts(shown);
    let symbol = |symbol: &&Symbol<'_>| {
        json!({
            "symbol": symbol.symbol,
            "name": symbol.name,
            "since": symbol.since,
            "state": symbol.state,
            "note": some(symbol.note),
            "test": some(symbol.test),
        })
    };
    json!({
        "functions": all,
        "served": served,
        "symbols": shown.iter().map(symbol).collect::<Vec<_>>(),
    })
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert!(table().count() == lines && lines > 600, "{lines}");
        for symbol in table() {
            assert!(matches!(symbol.state, "served" | "refused" | "absent"), "{}", symbol.symbol);
            assert!(symbol.is_served() || !symbol.note.is_empty(), "{}", symbol.symbol);
        }
    }
}
