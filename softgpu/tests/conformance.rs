//! What instructions compute on the software GPU, held against what they compute on an H200.
//!
//! The cases, their inputs and the recorded values lie in `tests/conformance`, whose script says what they mean.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong"
)]

mod common;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use bulkhead_gpu::Gpu;
use bulkhead_softgpu::{Engine, Options};
use common::{Machine, Parameters};

const THREADS: usize = 256;
const OPERANDS: &str = "abcefghijklmno";
const HEADER: &str = ".version 8.4\n.target sm_90a\n.address_size 64\n";

/// A line of the table.
struct Case<'a> {
    rule: &'a str,
    results: Vec<&'a str>,
    operands: Vec<&'a str>,
    text: &'a str,
}

impl<'a> Case<'a> {
    fn new(line: &'a str) -> Self {
        let [rule, results, operands, text] = *line.splitn(4, "; ").collect::<Vec<_>>() else {
            panic!("{line}")
        };
        Self { rule, results: results.split(' ').collect(), operands: operands.split(' ').collect(), text }
    }

    /// As the script writes it.
    fn kernel(&self) -> String {
        let mut text = format!(
            "{HEADER}.visible .entry test(.param .u64 from, .param .u64 to)\n{{\n.reg .pred %p, %q;\n\
             .reg .b32 %s, %thread;\n.reg .b64 %from, %to, %offset;\n"
        );
        let named = || OPERANDS.chars().zip(&self.operands).enumerate();
        let results = || self.results.iter().enumerate();
        for (_, (name, pool)) in named() {
            writeln!(text, ".reg .b{} %{name};", pool_bits(pool)).unwrap();
        }
        for (index, result) in results() {
            writeln!(text, ".reg .b{} %d{index};", result_bits(result)).unwrap();
        }
        text += "ld.param.u64 %from, [from];\nld.param.u64 %to, [to];\nmov.u32 %thread, %tid.x;\n\
            mul.wide.u32 %offset, %thread, 8;\nadd.s64 %from, %from, %offset;\nadd.s64 %to, %to, %offset;\n\
            setp.eq.u32 %q, %thread, 3;\n";
        for (index, (name, pool)) in named() {
            let offset = 8 * THREADS * index;
            writeln!(text, "ld.global.b{} %{name}, [%from+{offset}];", pool_bits(pool)).unwrap();
        }
        writeln!(text, "{}", self.text).unwrap();
        for (index, result) in results() {
            let offset = 8 * THREADS * index;
            writeln!(text, "st.global.b{} [%to+{offset}], %d{index};", result_bits(result)).unwrap();
        }
        text + "ret;\n}\n"
    }

    /// The operands of all threads, one operand after the other.
    fn words(&self, pools: &HashMap<&str, Vec<u64>>) -> Vec<u64> {
        let seed = self.text.bytes().fold(0, |seed, byte| mixed(seed ^ u64::from(byte)));
        let mut words = Vec::new();
        for (index, pool) in self.operands.iter().enumerate() {
            let values = &pools[pool];
            for thread in 0..THREADS as u64 {
                let at = match self.operands.len() {
                    1 => thread,
                    _ => mixed(seed.wrapping_add((index as u64) << 32).wrapping_add(thread)) >> 8,
                };
                words.push(values[(at % values.len() as u64) as usize]);
            }
        }
        words
    }
}

/// SplitMix64.
fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn result_bits(ty: &str) -> u32 {
    match ty {
        "b16" | "f16" | "bf16" => 16,
        "b32" | "f16x2" | "bf16x2" | "f32" => 32,
        "b64" | "f64" => 64,
        other => panic!("{other}"),
    }
}

fn pool_bits(pool: &str) -> u32 {
    match pool {
        "i16" | "odd16" => 16,
        "i32" | "odd32" | "count" | "whole16" | "wholeb16" | "whole32" | "tiny32" => 32,
        "i64" | "odd64" | "whole64" => 64,
        ty => result_bits(ty),
    }
}

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A floating-point format: bits of its exponent and its fraction.
#[derive(Clone, Copy)]
struct Format {
    exponent: u32,
    fraction: u32,
}

impl Format {
    fn of(ty: &str) -> Option<Self> {
        let (exponent, fraction) = match ty {
            "f16" | "f16x2" => (5, 10),
            "bf16" | "bf16x2" => (8, 7),
            "f32" => (8, 23),
            "f64" => (11, 52),
            _ => return None,
        };
        Some(Self { exponent, fraction })
    }

    fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    fn is_nan(self, bits: u64) -> bool {
        let infinity = ((1 << self.exponent) - 1) << self.fraction;
        bits & ((1 << (self.bits() - 1)) - 1) > infinity
    }

    /// The number with these bits.
    fn value(self, bits: u64) -> f64 {
        let sign = if bits >> (self.bits() - 1) & 1 == 1 { -1.0 } else { 1.0 };
        let exponent = (bits >> self.fraction & ((1 << self.exponent) - 1)) as i32;
        let fraction = (bits & ((1 << self.fraction) - 1)) as f64 / (1u64 << self.fraction) as f64;
        let bias = (1 << (self.exponent - 1)) - 1;
        match exponent {
            0 => sign * fraction * 2f64.powi(1 - bias),
            all if all == (1 << self.exponent) - 1 => sign * f64::INFINITY,
            normal => sign * (1.0 + fraction) * 2f64.powi(normal - bias),
        }
    }

    /// How many numbers lie between two, those below zero counted downwards.
    fn apart(self, one: u64, other: u64) -> u64 {
        let place = |bits: u64| {
            let magnitude = (bits & ((1 << (self.bits() - 1)) - 1)) as i64;
            if bits >> (self.bits() - 1) & 1 == 1 { -magnitude } else { magnitude }
        };
        place(one).abs_diff(place(other))
    }
}

/// Instructions of which a device makes another NaN than the software GPU. PTX leaves it open, and so does the device: a sign
/// that the assembler folds into the next instruction keeps the payload, one that it computes does not.
fn leaves_nan_open(text: &str) -> bool {
    let begins = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    let from = |types: &[&str]| types.iter().any(|ty| text.contains(&format!("{ty} %d0")));
    begins(&["abs.", "neg.", "mul.rn.f64", "rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"])
        || begins(&["cvt."]) && from(&[".f64", ".bf16", ".f32.f32", ".f64.f32"])
        || text.contains("global.add.f64")
}

/// Whether a result is what a case's rule asks for.
fn agree(rule: &str, open: bool, ty: &str, expected: u64, found: u64) -> bool {
    if expected == found {
        return true;
    }
    let Some(format) = Format::of(ty) else { return false };
    if ty.ends_with("x2") {
        let half = if ty == "f16x2" { "f16" } else { "bf16" };
        return [0, 16]
            .into_iter()
            .all(|at| agree(rule, open, half, expected >> at & 0xffff, found >> at & 0xffff));
    }
    if format.is_nan(expected) || format.is_nan(found) {
        return open && format.is_nan(expected) && format.is_nan(found);
    }
    let (rule, bound) = rule.split_once(' ').unwrap_or((rule, "0"));
    let bound: u32 = bound.parse().unwrap();
    let (one, other) = (format.value(expected), format.value(found));
    let error = (one - other).abs();
    match rule {
        "exact" => false,
        // Both are within the bound of what is right.
        "ulp" => format.apart(expected, found) <= 2 * u64::from(bound),
        // What is subnormal has fewer bits than that.
        "relative" => {
            format.apart(expected, found) <= 1
                || error <= one.abs().max(other.abs()) * 2f64.powi(1 - bound as i32)
        }
        "sine" => error <= 2f64.powi(-19),
        "log" => error <= 2f64.powi(-21) || error <= one.abs() * 2f64.powi(-21),
        other => panic!("{other}"),
    }
}

#[test]
fn interpreted_instructions_compute_what_they_compute_on_an_h200() {
    compare(Engine::Interpreter);
}

#[test]
fn compiled_instructions_compute_what_they_compute_on_an_h200() {
    compare(Engine::Compiled);
}

fn compare(engine: Engine) {
    let (inputs, cases, recorded) = (file("inputs.txt"), file("cases.txt"), file("h200.txt"));
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let pools: HashMap<&str, Vec<u64>> = inputs
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, values)| (name, values.split(' ').map(number).collect()))
        .collect();
    let recorded: HashMap<&str, &str> = recorded.lines().filter_map(|line| line.split_once('\t')).collect();
    let mut machine = Machine::with(Options { threads: Some(1), engine, ..Options::default() });
    let (mut compared, mut wrong, mut said) = (0, 0, String::new());
    for case in cases.lines().map(Case::new) {
        let Some(expected) = recorded.get(case.text) else {
            wrong += 1;
            writeln!(said, "{}: nothing is recorded", case.text).unwrap();
            continue;
        };
        let expected: Vec<u64> = expected.split(' ').map(number).collect();
        let image = match machine.gpu.load(&case.kernel()) {
            Ok(image) => image,
            Err(error) => {
                wrong += 1;
                writeln!(said, "{}: {error}", case.text).unwrap();
                continue;
            }
        };
        let words = case.words(&pools);
        let count = THREADS * case.results.len();
        let (from, to) = (machine.upload_u64(&words), machine.upload_u64(&vec![0; count]));
        machine
            .run(image.entries[0].id, 1, THREADS as u32, &Parameters::default().u64(from).u64(to).0)
            .unwrap();
        let found = machine.download_u64(to, count);
        machine.forget();
        machine.gpu.unload(image.id).unwrap();
        assert_eq!(expected.len(), count, "{}", case.text);
        let nan_is_open = leaves_nan_open(case.text);
        let differs = |index: &usize| {
            let ty = case.results[index / THREADS];
            // The ISA bounds the error of sines from -pi to pi, and a device's is arbitrary far from there.
            let argument = f32::from_bits(words[index % THREADS] as u32);
            let open = case.rule == "sine" && argument.abs() > std::f32::consts::PI && argument.is_finite();
            !open && !agree(case.rule, nan_is_open, ty, expected[*index], found[*index])
        };
        let differing: Vec<usize> = (0..count).filter(differs).collect();
        compared += count;
        if let Some(first) = differing.first() {
            wrong += 1;
            let thread = first % THREADS;
            let given: Vec<String> =
                words.iter().skip(thread).step_by(THREADS).map(|word| format!("{word:x}")).collect();
            writeln!(
                said,
                "{} of {} [{}]: {} differ: of {} it is {:x} and not {:x}",
                case.text,
                case.results.join(" "),
                case.rule,
                differing.len(),
                given.join(", "),
                found[*first],
                expected[*first]
            )
            .unwrap();
        }
    }
    println!("{compared} results of {} cases", cases.lines().count());
    assert!(wrong == 0, "{wrong} cases differ:\n{said}");
}
