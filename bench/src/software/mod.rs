//! `bulkhead bench --software`: how fast the software GPU is, its two engines beside each other and beside the same
//! kernels in C.
//!
//! Every figure is the least of several runs: whatever else a machine does only adds.

mod device;
mod native;

use std::fmt::Write as _;
use std::process::ExitCode;

use bulkhead_softgpu::Engine;
use serde_json::{Value, json};

use super::machine;
use crate::host::Failure;
use device::Device;

/// Of the JSON document.
const FORMAT: u32 = 1;

/// A plane of so many floats on a side.
const SIDE: u32 = 1 << 10;
/// Floats of a plane.
const PLANE: u32 = SIDE * SIDE;
/// A matrix of so many floats on a side.
const MATRIX: u32 = 512;
/// Floats of a long vector.
const LONG: u32 = 16 << 20;

/// Runs of everything, unless it is to be quick.
const RUNS: usize = 7;
const RUNS_QUICK: usize = 2;
/// Empty launches in a row.
const LAUNCHES: u32 = 10_000;

/// A kernel whose thread-instructions are known.
struct Kernel {
    name: &'static str,
    threads: u32,
    /// Of all threads together; counted in `kernels.ptx`.
    instructions: f64,
}

impl Kernel {
    fn all() -> [Self; 3] {
        let inside = f64::from(PLANE - 2 * 1025);
        let matrix = f64::from(MATRIX * MATRIX);
        [
            Self { name: "saxpy", threads: PLANE, instructions: 18.0 * f64::from(PLANE) },
            // The few threads outside end after at most 14.
            Self { name: "stencil", threads: PLANE, instructions: 28.0 * inside },
            Self {
                name: "matmul",
                threads: MATRIX * MATRIX,
                instructions: (22.0 + 8.0 * f64::from(MATRIX)) * matrix,
            },
        ]
    }
}

/// One figure.
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    bar: Option<(char, f64)>,
}

impl Row {
    fn met(&self) -> Option<bool> {
        self.bar.map(|(least_or_most, bar)| match least_or_most {
            '>' => self.value >= bar,
            _ => self.value <= bar,
        })
    }

    fn line(&self) -> String {
        let bar = self.bar.map_or(String::new(), |(sign, bar)| format!("{sign}= {bar} {}", self.unit));
        let met = match self.met() {
            None => "",
            Some(true) => "met",
            Some(false) => "missed",
        };
        format!("{:<44} {:>12.4} {:<8} {bar:<18} {met}\n", self.name, self.value, self.unit)
    }

    fn json(&self) -> Value {
        let bar = self.bar.map(|(sign, bar)| format!("{sign}= {bar}"));
        json!({"name": self.name, "value": self.value, "unit": self.unit, "bar": bar, "met": self.met()})
    }
}

/// Measures, and prints a table, or a document and the table on stderr.
pub(super) fn run(quick: bool, as_json: bool, strict: bool) -> Result<ExitCode, Failure> {
    let runs = if quick { RUNS_QUICK } else { RUNS };
    let mut rows = Vec::new();
    engines(&mut rows, runs)?;
    whole(&mut rows, runs)?;
    let note = match native::seconds(runs) {
        Ok(natives) => {
            rows.extend(natives.into_iter().map(|(name, value)| Row {
                name: format!("{name}, C at -O2, one thread"),
                value,
                unit: "s",
                bar: None,
            }));
            None
        }
        Err(why) => Some(why),
    };
    let mut table = String::new();
    rows.iter().for_each(|row| table.push_str(&row.line()));
    if let Some(note) = &note {
        writeln!(table, "no C beside it: {note}").map_err(|error| format!("the table: {error}"))?;
    }
    if as_json {
        let figures: Vec<Value> = rows.iter().map(Row::json).collect();
        eprint!("{table}");
        println!(
            "{:#}",
            json!({
                "format": FORMAT,
                "date": machine::now(),
                "machine": machine::describe(),
                "runs": runs,
                "figures": figures,
                "without_c": note,
            })
        );
    } else {
        print!("{table}");
    }
    let missed = rows.iter().any(|row| row.met() == Some(false));
    Ok(if strict && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Each engine on one core.
fn engines(rows: &mut Vec<Row>, runs: usize) -> Result<(), Failure> {
    let mut rates = Vec::new();
    for (engine, name, bar) in
        [(Engine::Interpreter, "interpreter", 0.05), (Engine::Compiled, "compiled", 0.5)]
    {
        let mut device = Device::new(engine, Some(1))?;
        for kernel in Kernel::all() {
            let seconds = device.least(runs, |device| device.launch(kernel.name, kernel.threads))?;
            let rate = kernel.instructions / seconds / 1e9;
            rates.push((kernel.name, rate));
            rows.push(Row {
                name: format!("{}, {name}, one core", kernel.name),
                value: rate,
                unit: "G/s",
                bar: Some(('>', bar)),
            });
        }
    }
    let half = rates.len() / 2;
    for ((name, interpreted), (_, compiled)) in rates[..half].iter().zip(&rates[half..]) {
        rows.push(Row {
            name: format!("{name}, compiled to interpreted"),
            value: compiled / interpreted,
            unit: "",
            bar: Some(('>', 10.0)),
        });
    }
    Ok(())
}

/// The device as it is by default.
fn whole(rows: &mut Vec<Row>, runs: usize) -> Result<(), Failure> {
    let mut device = Device::new(Engine::default(), None)?;
    for (name, entry, threads, bar) in [
        ("matmul, 512 x 512, all cores", "matmul", MATRIX * MATRIX, 1.0),
        ("add, 16 M floats, all cores", "add", LONG, 0.2),
    ] {
        let value = device.least(runs, |device| device.launch(entry, threads))?;
        rows.push(Row { name: name.to_owned(), value, unit: "s", bar: Some(('<', bar)) });
    }
    let seconds = device.least(runs, |device| (0..LAUNCHES).try_for_each(|_| device.submit("empty", 32)))?;
    let value = seconds / f64::from(LAUNCHES) * 1e6;
    rows.push(Row { name: "launch of an empty kernel".into(), value, unit: "us", bar: Some(('<', 10.0)) });
    Ok(())
}
