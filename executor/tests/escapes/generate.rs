//! Programs near the limits of what the guard proves: loops, predicates, shared addresses, instructions with several results.
//!
//! Few registers and few predicates are written again and again, so that what is known of one place meets what happened at
//! another. Nothing here knows what the guard looks for.

mod memory;

use crate::random::Random;

/// A program by lines: what stands before them declares everything they name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) shared_bytes: u32,
    pub(crate) lines: Vec<String>,
}

impl Program {
    /// The text.
    pub(crate) fn text(&self) -> String {
        let body = self.lines.join("\n");
        let tile = if body.contains("tile") {
            format!(".shared .align 16 .b8 tile[{}];\n", self.shared_bytes)
        } else {
            String::new()
        };
        let dynamic =
            if body.contains("dynamic") { ".extern .shared .align 16 .b8 dynamic[];\n" } else { "" };
        // Structures whose address may be taken: one that is aligned for words, and one for bytes alone.
        let named = |name: &str, declared: &'static str| if body.contains(name) { declared } else { "" };
        let list = named("list", ", .param .align 4 .b8 list[24]");
        let odd = named("odd", ", .param .align 1 .b8 first[1], .param .align 1 .b8 odd[13]");
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n{dynamic}\
             .visible .entry k(.param .u64 p, .param .u64 q, .param .u32 n, .param .u32 m, .param .u64 w{odd}{list})\n{{\n\
             .reg .pred %p<6>;\n.reg .b32 %r<12>;\n.reg .b64 %rd<12>;\n{tile}\
             ld.param.u64 %rd0, [p];\nld.param.u64 %rd1, [q];\nld.param.u32 %r0, [n];\nld.param.u32 %r1, [m];\n\
             ld.param.u64 %rd5, [w];\n{body}\nEND:\nret;\n}}\n"
        )
    }
}

/// Statements of a program at most, more or less.
const STATEMENTS: usize = 32;

pub(crate) struct Author<'a> {
    pub(crate) random: &'a mut Random,
    pub(crate) lines: Vec<String>,
    /// Registers and predicates that are used.
    pub(crate) registers: usize,
    pub(crate) predicates: usize,
    /// Whether there is shared memory.
    pub(crate) shares: bool,
    pub(crate) labels: usize,
    /// Labels that have been written: to branch back to.
    pub(crate) written: Vec<String>,
}

const NUMBERS: &[i64] = &[
    0,
    0,
    0,
    0,
    1,
    1,
    1,
    2,
    2,
    3,
    3,
    4,
    4,
    7,
    8,
    15,
    16,
    31,
    32,
    63,
    64,
    100,
    255,
    256,
    480,
    1000,
    1023,
    1024,
    2047,
    4095,
    4096,
    65_535,
    65_536,
    100_000,
    1 << 28,
    1 << 30,
    (1 << 31) - 1,
    -1,
    -1,
    -2,
    -4,
    -16,
    -256,
    -4096,
    -(1 << 31),
];
pub(crate) const SCALES: &[i64] = &[
    4,
    16,
    4096,
    1 << 16,
    1 << 20,
    1 << 20,
    1 << 24,
    1 << 24,
    1 << 26,
    1 << 28,
    1 << 28,
    1 << 28,
    1 << 28,
    1 << 30,
    (1 << 31) - 4,
    -4096,
    -(1 << 20),
    -(1 << 28),
    24,
];
const OFFSETS: &[i64] =
    &[0, 0, 0, 0, 4, 8, 16, -4, -16, 4096, 8_388_604, 8_388_600, -8_388_608, 8_388_608, -8_388_612, 1 << 20];

/// A program drawn from these numbers.
pub(crate) fn program(random: &mut Random) -> Program {
    let shared_bytes = random.of(&[16, 64, 64, 128, 1024, 4096, 4224]);
    let registers = 3 + random.below(3);
    let predicates = 1 + random.below(3);
    let shares = random.one_in(3);
    let mut author =
        Author { random, lines: Vec::new(), registers, predicates, shares, labels: 0, written: Vec::new() };
    author.begin();
    let items = author.random.below(4);
    author.items(items, 0);
    if !author.random.one_in(4) {
        author.looped(0);
        let items = author.random.below(2);
        author.items(items, 0);
    }
    if !author.lines.iter().any(|line| line.contains("global")) {
        author.access("");
    }
    let mut lines = author.lines;
    for _ in 0..random.of(&[0, 0, 1, 1, 2, 4]) {
        edit(&mut lines, random);
    }
    Program { shared_bytes, lines }
}

/// One line goes elsewhere, goes, comes twice, or names another register; or a branch goes back to a new label.
fn edit(lines: &mut Vec<String>, random: &mut Random) {
    // What was edited before may have left nothing.
    if lines.is_empty() {
        return;
    }
    let at = random.below(lines.len());
    match random.below(8) {
        0..3 => {
            let line = lines.remove(at);
            let to = if random.one_in(2) {
                (at + random.below(5)).saturating_sub(2)
            } else {
                random.below(lines.len())
            };
            lines.insert(to.min(lines.len()), line);
        }
        3 if !lines[at].ends_with(':') => {
            lines.remove(at);
        }
        4 if !lines[at].ends_with(':') => {
            let to = random.below(lines.len());
            lines.insert(to, lines[at].clone());
        }
        5 => {
            let label = format!("B{}", random.word());
            lines.insert(at, format!("{label}:"));
            let (from, not) = (at + 1 + random.below(lines.len() - at), random.of(&["", "!"]));
            lines.insert(from.min(lines.len()), format!("@{not}%p{} bra {label};", random.below(3)));
        }
        _ => {
            let (class, most) = random.of(&[("%r", 5), ("%r", 5), ("%p", 3)]);
            let (old, new) =
                (format!("{class}{}", random.below(most)), format!("{class}{}", random.below(most)));
            // `%rd` is another class.
            lines[at] = lines[at].replacen(&old, &new, 1);
        }
    }
}

impl Author<'_> {
    pub(crate) fn put(&mut self, line: String) {
        self.lines.push(line);
    }

    pub(crate) fn register(&mut self) -> String {
        format!("%r{}", self.random.below(self.registers))
    }

    pub(crate) fn predicate(&mut self) -> String {
        format!("%p{}", self.random.below(self.predicates))
    }

    pub(crate) fn number(&mut self) -> i64 {
        self.random.of(NUMBERS)
    }

    pub(crate) fn value(&mut self) -> String {
        if self.random.one_in(2) { self.register() } else { self.number().to_string() }
    }

    pub(crate) fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    /// What a statement may have in front of it.
    pub(crate) fn condition(&mut self, cases: usize) -> String {
        if !self.random.one_in(cases) {
            return String::new();
        }
        let not = self.random.of(&["", "!"]);
        format!("@{not}{} ", self.predicate())
    }

    pub(crate) fn begin(&mut self) {
        for register in 2..self.registers {
            match self.random.below(8) {
                0 => {
                    let number = self.number();
                    put!(self, "mov.u32 %r{register}, {number};");
                }
                1..3 => self.set(&format!("%r{register}")),
                3 => {
                    let from = self.random.of(&["%tid.x", "%laneid", "%ntid.x", "%ctaid.x", "%tid.y"]);
                    put!(self, "mov.u32 %r{register}, {from};");
                }
                4 if self.shares => {
                    let from = self.random.of(&["tile", "tile", "tile+16", "dynamic", "odd"]);
                    put!(self, "mov.u32 %r{register}, {from};");
                }
                5 if self.random.one_in(6) => {
                    let from = self.random.of(&["list", "odd"]);
                    put!(self, "mov.u32 %r{register}, {from};");
                }
                5 => put!(self, "mov.u32 %r{register}, %r{};", register - 1),
                _ => {}
            }
        }
        for register in 2..4 {
            let from = self.random.of(&["%rd0", "%rd0", "%rd1"]);
            put!(self, "mov.b64 %rd{register}, {from};");
        }
        if self.random.one_in(2) {
            self.wide_number();
        }
        for predicate in 0..self.predicates {
            if self.random.one_in(2) {
                let (register, other) = (self.register(), self.value());
                self.test_of(&format!("%p{predicate}"), &register, &other);
            }
        }
    }

    pub(crate) fn items(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            if self.lines.len() > STATEMENTS {
                return;
            }
            self.item(depth);
        }
    }

    /// What has no label in it.
    pub(crate) fn straight(&mut self) {
        match self.random.below(20) {
            0..7 => self.arithmetic(),
            7..9 => self.test(),
            9 => self.logic(),
            10..14 => {
                let condition = self.condition(6);
                self.access(&condition);
            }
            14..18 => self.step_pointer(),
            18 => self.several(),
            _ => self.moved(),
        }
    }

    pub(crate) fn item(&mut self, depth: usize) {
        let loops = if depth < 3 { 8 } else { 0 };
        match self.random.below(40 + loops) {
            kind @ (9 | 14 | 22 | 37) if self.random.one_in(2) || kind == 14 => self.bounded(depth),
            0..9 => self.arithmetic(),
            9..13 => self.test(),
            13 => self.logic(),
            14..21 => {
                let condition = self.condition(6);
                self.access(&condition);
            }
            21..23 if self.shares => self.shared(),
            23..25 => self.several(),
            25..28 => self.skip(depth),
            28..30 => self.step_pointer(),
            30 => self.wide_number(),
            31 if self.random.one_in(2) => self.indexed(),
            31 => self.clamped(),
            32 => self.moved(),
            33 => {
                let count = self.random.of(&[1, 1, 2, 4]);
                self.pad(count);
            }
            34 => self.wait(),
            35 => self.leave(),
            36 => self.back(),
            37..40 => {
                let condition = self.condition(6);
                self.access(&condition);
            }
            21..23 => self.arithmetic(),
            _ => self.looped(depth),
        }
    }

    /// A number by what there is.
    pub(crate) fn arithmetic(&mut self) {
        let (to, from) = (self.register(), self.register());
        let condition = self.condition(6);
        let line = match self.random.below(16) {
            0..4 => format!("add.s32 {to}, {from}, {};", self.value()),
            4 => format!("sub.s32 {to}, {from}, {};", self.value()),
            5 => format!("mul.lo.s32 {to}, {from}, {};", self.value()),
            6 => format!("shl.b32 {to}, {from}, {};", self.random.below(12)),
            7 => {
                format!("shr.{}32 {to}, {from}, {};", self.random.of(&["u", "s", "b"]), self.random.below(32))
            }
            8 => {
                format!("{}.b32 {to}, {from}, {};", self.random.of(&["and", "or", "xor", "or"]), self.value())
            }
            9 | 10 => {
                let (op, ty) = (self.random.of(&["min", "max"]), self.random.of(&["s", "u"]));
                format!("{op}.{ty}32 {to}, {from}, {};", self.value())
            }
            11 => {
                let predicate = self.predicate();
                format!("selp.b32 {to}, {from}, {}, {predicate};", self.value())
            }
            12 => format!("mov.u32 {to}, {};", self.value()),
            13 => {
                let (b, c) = (self.value(), self.register());
                format!("mad.lo.s32 {to}, {from}, {b}, {c};")
            }
            14 => format!("not.b32 {to}, {from};"),
            _ => {
                let (b, shift) = (self.value(), self.random.below(32));
                match self.random.below(4) {
                    0 => format!(
                        "{}.u32 {to}, {from}, {};",
                        self.random.of(&["div", "rem"]),
                        1 + self.random.below(64)
                    ),
                    1 => format!("bfe.u32 {to}, {from}, {shift}, {};", self.random.below(32)),
                    2 => format!("neg.s32 {to}, {from};"),
                    _ => {
                        let (c, table) = (self.register(), self.random.below(256));
                        format!("lop3.b32 {to}, {from}, {b}, {c}, {table};")
                    }
                }
            }
        };
        self.put(condition + &line);
    }

    pub(crate) fn test_of(&mut self, predicate: &str, register: &str, other: &str) {
        let compare = self.random.of(&["lt", "lt", "lt", "le", "ne", "gt", "ge", "eq"]);
        let ty = self.random.of(&["s32", "s32", "u32"]);
        if self.random.one_in(8) {
            let (op, not, second) =
                (self.random.of(&["and", "or", "xor"]), self.random.of(&["", "!"]), self.predicate());
            return put!(self, "setp.{compare}.{op}.{ty} {predicate}, {register}, {other}, {not}{second};");
        }
        if self.random.one_in(10) {
            let second = self.predicate();
            if second != predicate {
                return put!(self, "setp.{compare}.{ty} {predicate}|{second}, {register}, {other};");
            }
        }
        let condition = self.condition(12);
        put!(self, "{condition}setp.{compare}.{ty} {predicate}, {register}, {other};");
    }

    pub(crate) fn test(&mut self) {
        let (predicate, register, other) = (self.predicate(), self.register(), self.value());
        self.test_of(&predicate, &register, &other);
    }

    /// A predicate, often one of a test that stands here.
    pub(crate) fn tested(&mut self) -> String {
        let predicate = self.predicate();
        if self.random.one_in(2) {
            let (register, other) = (self.register(), self.value());
            self.test_of(&predicate, &register, &other);
        }
        predicate
    }

    pub(crate) fn logic(&mut self) {
        let (to, a, b) = (self.predicate(), self.predicate(), self.predicate());
        let condition = self.condition(6);
        let line = match self.random.below(5) {
            0 => format!("not.pred {to}, {a};"),
            1 => format!("mov.pred {to}, {a};"),
            _ => format!("{}.pred {to}, {a}, {b};", self.random.of(&["and", "or", "xor"])),
        };
        self.put(condition + &line);
    }

    /// A read of a structure among the parameters at what a register makes.
    fn indexed(&mut self) {
        let (name, index, scale) =
            (self.random.of(&["list", "list", "list", "odd"]), self.register(), self.random.of(SCALES));
        let (sign, to) = (self.random.of(&["s", "u"]), self.register());
        put!(self, "mov.b64 %rd10, {name};");
        put!(self, "mul.wide.{sign}32 %rd8, {index}, {scale};");
        put!(self, "add.s64 %rd11, %rd10, %rd8;");
        let offset = self.random.of(OFFSETS);
        let at = if offset == 0 { "[%rd11]".to_owned() } else { format!("[%rd11+{offset}]") };
        let condition = self.condition(6);
        let line = match self.random.below(6) {
            0 => format!("ld.param.u64 %rd6, {at};"),
            1 => format!("ld.param.v2.u32 {{{to}, {}}}, {at};", self.register()),
            2 => format!("ld.param.u8 {to}, {at};"),
            _ => format!("ld.param.u32 {to}, {at};"),
        };
        self.put(condition + &line);
    }
}
