//! What the guard knows of numbers, in programs that are made up: with branches, loops and tests of every kind, no access to
//! shared memory that it leaves as it is ever leaves the block's.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::fmt::Write;

use bulkhead_gpu::{Gpu, Launch};
use common::{Machine, Parameters};

/// Bytes of the only variable in shared memory.
const TILE: u32 = 40_960;
const BLOCKS: [u32; 6] = [1, 7, 32, 64, 100, 256];
const NUMBERS: [u32; 12] = [0, 1, 2, 3, 7, 8, 31, 100, 0x7fff_ffff, 0x8000_0000, 0xffff_fff8, u32::MAX];
/// Registers that hold addresses.
const MOVED: [&str; 3] = ["%r10", "%r11", "%r12"];
const COMPARES: [&str; 9] =
    ["lt.s32", "le.s32", "gt.s32", "ge.s32", "eq.s32", "ne.s32", "lt.u32", "ge.u32", "gt.u32"];

/// SplitMix64, and a program that is written by it.
struct Random {
    state: u64,
    labels: u32,
    /// Whether more is done with addresses than that they are moved.
    spoils: bool,
    text: String,
}

impl Random {
    fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.word() % u64::try_from(count).unwrap()).unwrap()
    }

    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "    {line}").unwrap();
    }

    fn register(&mut self) -> String {
        format!("%r{}", self.below(6))
    }

    fn operand(&mut self) -> String {
        let number = self.of(&[0_i64, 1, 2, 3, 4, 7, 8, 15, 31, 64, 100, -1, -4]);
        if self.below(2) == 0 { number.to_string() } else { self.register() }
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn arithmetic(&mut self) {
        let (to, from, other) = (self.register(), self.register(), self.operand());
        let small = self.of(&[1, 3, 4, 7, 8, 15, 31]);
        let shift = self.of(&[1, 2, 3, 5, 31]);
        let line = match self.below(16) {
            0 => format!("mov.u32 {to}, {small};"),
            1 | 2 => format!("and.b32 {to}, {from}, {small};"),
            3 => format!("add.s32 {to}, {from}, {other};"),
            4 => format!("sub.s32 {to}, {from}, {other};"),
            5 => format!("mul.lo.s32 {to}, {from}, {other};"),
            6 => format!("mad.lo.s32 {to}, {from}, {small}, {other};"),
            7 => format!("shl.b32 {to}, {from}, {shift};"),
            8 => format!("shr.s32 {to}, {from}, {shift};"),
            9 => format!("shr.u32 {to}, {from}, {shift};"),
            10 => format!("xor.b32 {to}, {to}, {small};"),
            11 => format!("or.b32 {to}, {from}, {other};"),
            12 => format!("{}.s32 {to}, {from}, {other};", self.of(&["min", "max"])),
            13 => format!("min.u32 {to}, {from}, {other};"),
            14 => format!("selp.b32 {to}, {from}, {other}, %q0;"),
            _ => format!("mov.u32 {to}, {};", self.of(&["%tid.x", "%ntid.x", "%laneid"])),
        };
        // Some only sometimes.
        let line = if self.below(12) == 0 { format!("@%q1 {line}") } else { line };
        self.line(&line);
    }

    fn access(&mut self) {
        let (index, value) = (self.register(), self.register());
        let shift = self.of(&[2, 4, 6, 8, 10, 12]);
        self.line(&format!("shl.b32 %r20, {index}, {shift};"));
        let test = match self.below(4) {
            0 => Some((self.label(), self.of(&COMPARES), self.operand())),
            _ => None,
        };
        // What is said of the index is said of what it has been shifted to.
        if let Some((behind, order, than)) = &test {
            self.line(&format!("setp.{order} %q3, {index}, {than};"));
            self.line(&format!("@%q3 bra {behind};"));
        }
        let (base, offset) = (self.of(&["%r19", "%r19", "%r10", "%r11", "%r12"]), self.of(&[0, 0, 4, -4]));
        self.line(&format!("add.s32 %r21, {base}, %r20;"));
        self.line(&format!("st.shared.u32 [%r21+{offset}], {value};"));
        if let Some((behind, ..)) = test {
            self.line(&format!("{behind}:"));
        }
    }

    /// Addresses take turns, if they do nothing else.
    fn moves(&mut self) {
        let (to, from) = (self.of(&MOVED), self.of(&MOVED));
        let sometimes = if self.below(4) == 0 { "@%q1 " } else { "" };
        let line = match self.below(6) {
            0 if self.spoils => format!("add.s32 {to}, {from}, 512;"),
            1 if self.spoils => format!("mov.u32 {to}, %r22;"),
            2 => format!("selp.b32 {to}, {from}, {to}, %q0;"),
            _ => format!("{sometimes}mov.u32 {to}, {from};"),
        };
        self.line(&line);
    }

    /// A test, whose predicate it answers.
    fn test(&mut self) -> &'static str {
        let compare = |random: &mut Self, to: &str| {
            let (order, one, other) = (random.of(&COMPARES), random.register(), random.operand());
            random.line(&format!("setp.{order} {to}, {one}, {other};"));
        };
        compare(self, "%q0");
        if self.below(3) > 0 {
            return "%q0";
        }
        compare(self, "%q1");
        let both = self.of(&["and", "or"]);
        self.line(&format!("{both}.pred %q2, %q0, %q1;"));
        "%q2"
    }

    fn some(&mut self, depth: u32) {
        for _ in 0..=self.below(4) {
            match self.below(8) {
                0..=2 => self.arithmetic(),
                3 if self.below(2) == 0 => self.moves(),
                3 | 4 => self.access(),
                5 | 6 if depth > 0 => {
                    let (test, behind) = (self.test(), self.label());
                    let not = self.of(&["", "!"]);
                    self.line(&format!("@{not}{test} bra {behind};"));
                    self.some(depth - 1);
                    if self.below(3) == 0 {
                        let end = self.label();
                        self.line(&format!("bra {end};"));
                        self.line(&format!("{behind}:"));
                        self.some(depth - 1);
                        self.line(&format!("{end}:"));
                    } else {
                        self.line(&format!("{behind}:"));
                    }
                }
                _ if depth > 0 => self.turning(depth),
                _ => self.access(),
            }
        }
    }

    /// A loop that ends at the latest with what is left of all turns.
    fn turning(&mut self, depth: u32) {
        let (again, counter) = (self.label(), self.register());
        let first = match self.below(3) {
            0 => format!("mov.u32 {counter}, {};", self.of(&[0, 1, 8, 40])),
            1 => format!("and.b32 {counter}, %r22, {};", self.of(&[3, 7, 31])),
            _ => format!("mov.u32 {counter}, %tid.x;"),
        };
        self.line(&first);
        self.line(&format!("{again}:"));
        if self.below(2) == 0 {
            self.some(depth - 1);
        } else {
            for _ in 0..=self.below(3) {
                if self.below(2) == 0 { self.access() } else { self.arithmetic() }
            }
        }
        let step = self.of(&["1", "2", "4", "-1", "-4", "%r23"]);
        self.line(&format!("add.s32 {counter}, {counter}, {step};"));
        let (order, bound) = (self.of(&COMPARES), self.of(&["0", "8", "16", "100", "%r22"]));
        self.line("add.s32 %r24, %r24, -1;");
        self.line("setp.gt.s32 %q3, %r24, 0;");
        if self.below(2) == 0 {
            self.line(&format!("setp.{order} %q0, {counter}, {bound};"));
            self.line("and.pred %q1, %q0, %q3;");
            self.line(&format!("@%q1 bra {again};"));
            return;
        }
        let behind = self.label();
        self.line(&format!("@!%q3 bra {behind};"));
        self.line(&format!("setp.{order} %q0, {counter}, {bound};"));
        if self.below(2) == 0 {
            self.line(&format!("@%q0 bra {again};"));
        } else {
            self.line(&format!("@%q0 bra {behind};"));
            self.line(&format!("bra {again};"));
        }
        self.line(&format!("{behind}:"));
    }
}

fn program(seed: u64) -> String {
    let mut random = Random { state: seed, labels: 0, spoils: seed.is_multiple_of(3), text: String::new() };
    random.text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u32 n, .param .u32 m)\n{{\n    \
         .reg .pred %q<4>;\n    .reg .b32 %r<25>;\n    .shared .align 16 .b8 tile[{TILE}];\n    \
         ld.param.u32 %r22, [n];\n    ld.param.u32 %r23, [m];\n    mov.u32 %r19, tile;\n    mov.u32 %r24, 300;\n    \
         setp.eq.s32 %q0, %r22, 3;\n    setp.eq.s32 %q1, %r23, 3;\n"
    );
    for index in 0..6 {
        let first = random.of(&["%tid.x", "%r22", "%r23", "0", "5", "%laneid"]);
        random.line(&format!("mov.u32 %r{index}, {first};"));
    }
    for name in MOVED {
        let offset = random.of(&[0, 512, 520, 4096, 20_000]);
        random.line(&format!("add.s32 {name}, %r19, {offset};"));
    }
    for _ in 0..3 {
        random.some(3);
    }
    random.line("ret;");
    random.text.push_str("}\n");
    random.text
}

#[test]
fn what_is_left_as_it_is_stays_in_shared_memory() {
    let number =
        |name: &str, other| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(other);
    let (first, runs) = (number("BULKHEAD_FUZZ_SEED", 1), number("BULKHEAD_FUZZ_RUNS", 1500));
    println!("seeds {first} to {}", first + runs - 1);
    let machine = Machine::with_sinks();
    let (mut left, mut launches, mut bounded) = (0, 0, 0);
    for seed in first..first + runs {
        let source = program(seed);
        let confined = bulkhead_guard::parse(&source).and_then(|module| bulkhead_guard::confine(&module));
        let text =
            bulkhead_guard::print(&confined.unwrap_or_else(|report| panic!("{seed}: {report}\n{source}")));
        let verified =
            bulkhead_guard::verify(&text).unwrap_or_else(|report| panic!("seed {seed}: {report}\n{text}"));
        let Some(fast) = verified.entries()[0].fast.clone() else { continue };
        let body = text.split("__bh_fast_").nth(1).unwrap();
        left += body.matches("st.shared.u32 [%r").count();
        bounded += usize::from(!fast.bounds.is_empty());
        let image = machine.gpu.load(&text).unwrap();
        let info = image.entries.iter().find(|info| info.name == fast.symbol).unwrap();
        let mut random = Random { state: seed, labels: 0, spoils: false, text: String::new() };
        let admits = |side: &u32| fast.shared.iter().all(|term| term.admits([*side, 1, 1], 0));
        for side in BLOCKS.into_iter().filter(admits) {
            for _ in 0..2 {
                // Whether a bound is kept does not matter: the text takes no more than that.
                let (n, m) = (random.of(&NUMBERS), random.of(&NUMBERS));
                let parameters = Parameters::default().u32(n).u32(m).guarded(info);
                let launch =
                    Launch { grid: [1; 3], block: [side, 1, 1], shared_bytes: 0, parameters: &parameters.0 };
                machine.gpu.launch(machine.stream, info.id, &launch).unwrap();
                let done = machine.gpu.synchronize(machine.stream);
                assert!(done.is_ok(), "seed {seed}, {side} threads, {n} {m}: {done:?}\n{source}\n{text}");
                launches += 1;
            }
        }
        machine.gpu.unload(image.id).unwrap();
    }
    println!("{left} accesses left as they are, {launches} launches, {bounded} with bounds");
    assert!(
        left > usize::try_from(runs).unwrap() && launches > runs && bounded > 0,
        "{left} {launches} {bounded}"
    );
}
