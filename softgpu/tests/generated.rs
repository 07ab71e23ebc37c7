//! Random programs leave the same behind in both engines and on an H200.
//!
//! What an H200 leaves is recorded in `tests/conformance/generated.txt`, as a hash for each seed, by
//! `tests/gpu/conformance.sh`, which takes the programs from the ignored test here.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong; words are cut on purpose"
)]

mod common;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bulkhead_gpu::Gpu;
use bulkhead_softgpu::Engine;
use common::{Machine, both_nan};

/// How many programs a device has run: their seeds count from 1 on.
const PROGRAMS: u64 = 300;
/// How many of them run here, unless `BULKHEAD_PROGRAMS_RUN` says so.
const RUN: u64 = 120;
const BLOCKS: usize = 2;
/// What a program leaves: so many words for each thread.
const WORDS: usize = 64;

/// Makes programs out of a seed: arithmetic of all kinds, branches, loops, memory, and meetings.
struct Author {
    state: u64,
    text: String,
    labels: u32,
    loops: u32,
}

const REGISTERS: u64 = 7;

impl Author {
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn line(&mut self, text: &str) {
        writeln!(self.text, "    {text}").unwrap();
    }

    fn simple(&mut self) {
        let [d, a, b, c] = [(); 4].map(|()| self.below(REGISTERS));
        let n = self.below(1 << 12);
        let line = match self.below(24) {
            0 => format!("add.u32 %v{d}, %v{a}, %v{b};"),
            1 => format!("mad.lo.s32 %v{d}, %v{a}, %v{b}, %v{c};"),
            2 => format!("shf.r.wrap.b32 %v{d}, %v{a}, %v{b}, %v{c};"),
            3 => format!("lop3.b32 %v{d}, %v{a}, %v{b}, %v{c}, {};", n % 256),
            4 => format!("div.s32 %v{d}, %v{a}, %v{b};"),
            5 => format!("cvt.rn.f32.u32 %f{a}, %v{b}; fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{c};"),
            6 => format!("mul.rn.ftz.f32 %f{d}, %f{a}, 0f3F000001; cvt.rzi.s32.f32 %v{a}, %f{d};"),
            7 => format!("cvt.rn.f64.s32 %g{d}, %v{a}; fma.rn.f64 %g{a}, %g{d}, %g{b}, %g{c};"),
            8 => format!("sqrt.rn.f32 %f{d}, %f{a}; mov.b32 %v{b}, %f{d};"),
            9 => format!("mul.wide.s32 %w{d}, %v{a}, %v{b}; xor.b64 %w{a}, %w{d}, %w{c};"),
            10 => format!("shr.u64 %w{d}, %w{a}, {}; cvt.u32.u64 %v{b}, %w{d};", n % 70),
            11 => format!("add.cc.u32 %v{d}, %v{a}, %v{b}; addc.u32 %v{b}, %v{c}, 0;"),
            12 => format!("setp.gt.and.s32 %p{}|%p{}, %v{a}, %v{b}, %p{};", n % 4, (n + 1) % 4, (n / 4) % 4),
            13 => format!("setp.ltu.f32 %p{}, %f{a}, %f{b};", n % 4),
            14 => format!("selp.f32 %f{d}, %f{a}, %f{b}, %p{};", n % 4),
            15 => format!("@%p{} add.s64 %w{d}, %w{a}, {n};", n % 4),
            16 => format!("@!%p{} mov.u32 %v{d}, {n};", n % 4),
            17 => format!("@%p{} sub.rn.f64 %g{d}, %g{a}, %g{b};", n % 4),
            18 => format!("mov.b64 {{%v{a}, %v{b}}}, %w{c}; mov.b64 %w{d}, {{%v{b}, %v{c}}};"),
            19 => format!(
                "and.b32 %x, %v{a}, 60; cvt.u64.u32 %y, %x; add.s64 %y, %mine, %y; ld.global.u32 %v{d}, [%y];"
            ),
            20 => format!(
                "and.b32 %x, %v{a}, 60; cvt.u64.u32 %y, %x; add.s64 %y, %mine, %y; @%p{} st.global.u32 [%y], %v{b};",
                n % 4
            ),
            21 => format!(
                "and.b32 %x, %v{a}, 24; mov.u32 %z, scratch; add.u32 %x, %x, %z; ld.local.u64 %w{d}, [%x]; st.local.v2.u32 [%x], {{%v{b}, %v{c}}};"
            ),
            22 if n.is_multiple_of(3) => {
                let ops = ["add.u32", "min.s32", "exch.b32", "inc.u32", "xor.b32", "cas.b32"];
                let op = ops[(n / 4 % 6) as usize];
                let more = if op == "cas.b32" { format!(", %v{c}") } else { String::new() };
                let (p, at) = (n % 4, 4 * (n / 32 % 8));
                format!(
                    "@%p{p} atom.global.{op} %v{d}, [%mine+{at}], %v{b}{more};
                     mov.u32 %z, scores; shl.b32 %x, %thread, 3; add.u32 %z, %z, %x;
                     atom.shared.add.u64 %w{a}, [%z], %w{c}; bfi.b32 %v{b}, %v{a}, %v{d}, {}, {};",
                    n % 33,
                    n % 31
                )
            }
            22 => format!(
                "ld.global.v4.u32 {{%v{a}, %v{b}, %v{c}, %x}}, [%mine+16]; st.global.u8 [%mine+{}], %v{d};",
                n % 64
            ),
            _ => format!("prmt.b32 %v{d}, %v{a}, %v{b}, %v{c}; popc.b32 %v{a}, %v{b};"),
        };
        self.line(&line);
    }

    /// What all threads do together; only where all of them come.
    fn meeting(&mut self) {
        let (d, a) = (self.below(REGISTERS), self.below(REGISTERS));
        let line = match self.below(6) {
            0 => format!("shfl.sync.bfly.b32 %v{d}, %v{a}, {}, 31, 0xffffffff;", self.below(32)),
            1 => format!("vote.sync.ballot.b32 %v{d}, %p{}, 0xffffffff;", a % 4),
            2 => format!("redux.sync.add.u32 %v{d}, %v{a}, 0xffffffff;"),
            3 => format!(
                "shl.b32 %x, %thread, 2; mov.u32 %z, board; add.u32 %z, %z, %x; st.shared.u32 [%z], %v{a};
                 bar.sync 0; xor.b32 %z, %z, 4; ld.shared.u32 %v{d}, [%z]; bar.sync 0;"
            ),
            4 => format!("bar.red.popc.u32 %v{d}, 0, %p{};", a % 4),
            _ => format!("shfl.sync.up.b32 %v{d}|%p{}, %v{a}, {}, 0, 0xffffffff;", a % 4, self.below(8)),
        };
        self.line(&line);
    }

    fn statement(&mut self, depth: u32, all: bool) {
        let (a, b) = (self.below(REGISTERS), self.below(REGISTERS));
        self.labels += 2;
        let (one, other) = (self.labels, self.labels + 1);
        match if depth == 0 { 0 } else { self.below(10) } {
            6 => {
                self.line(&format!("setp.lt.s32 %p0, %v{a}, %v{b};\n    @%p0 bra $L{one};"));
                self.statements(depth - 1, false);
                self.line(&format!("bra $L{other};\n    $L{one}:"));
                self.statements(depth - 1, false);
                self.line(&format!("$L{other}:"));
            }
            7 => {
                // So many turns for everybody, or for each thread its own.
                let counter = self.loops;
                self.loops += 1;
                let turns = 1 + self.below(6);
                let same = self.below(2) == 0;
                if same {
                    self.line(&format!("mov.u32 %n{counter}, {turns};"));
                } else {
                    self.line(&format!("and.b32 %n{counter}, %v{a}, {turns};"));
                }
                self.line(&format!("$L{one}: setp.eq.u32 %p1, %n{counter}, 0;\n    @%p1 bra $L{other};"));
                self.line(&format!("sub.u32 %n{counter}, %n{counter}, 1;"));
                self.statements(depth - 1, all && same);
                self.line(&format!("bra $L{one};\n    $L{other}:"));
            }
            8 | 9 if all => self.meeting(),
            _ => self.simple(),
        }
    }

    fn statements(&mut self, depth: u32, all: bool) {
        for _ in 0..1 + self.below(6) {
            self.statement(depth, all);
        }
    }
}

/// Threads of a block of the random programs.
const THREADS: u64 = 64;

fn program(seed: u64) -> String {
    let mut author = Author {
        state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        text: String::new(),
        labels: 0,
        loops: 1,
    };
    for _ in 0..10 {
        author.statement(4, true);
    }
    let (mut start, mut end) = (String::new(), String::new());
    // A device's local memory begins with anything.
    let scratch: String = (0..8).map(|word| format!("st.local.u64 [%z+{}], 0; ", 8 * word)).collect();
    for register in 0..REGISTERS {
        let factor = 2_654_435_761_u64 >> register;
        writeln!(start, "mul.lo.u32 %v{register}, %id, {factor}; mul.wide.u32 %w{register}, %id, {factor};")
            .unwrap();
        writeln!(
            start,
            "cvt.rn.f32.s32 %f{register}, %v{register}; cvt.rn.f64.s32 %g{register}, %v{register};"
        )
        .unwrap();
        let at = 64 + 32 * register;
        writeln!(
            end,
            "st.global.u32 [%mine+{at}], %v{register}; st.global.u64 [%mine+{}], %w{register};",
            at + 8
        )
        .unwrap();
        writeln!(
            end,
            "st.global.f32 [%mine+{}], %f{register}; st.global.f64 [%mine+{}], %g{register};",
            at + 4,
            at + 16
        )
        .unwrap();
        writeln!(end, "selp.u64 %y, 1, 2, %p{}; st.global.u64 [%mine+{}], %y;", register % 4, at + 24)
            .unwrap();
    }
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 p)\n{{
    .reg .pred %p<4>; .reg .b32 %v<{REGISTERS}>, %n<{}>, %id, %thread, %x, %z; .reg .f32 %f<{REGISTERS}>;
    .reg .f64 %g<{REGISTERS}>; .reg .b64 %w<{REGISTERS}>, %mine, %y;
    .shared .align 8 .b8 board[512]; .shared .align 8 .b8 scores[512]; .local .align 8 .b8 scratch[64];
    ld.param.u64 %mine, [p];
    mov.u32 %x, %ctaid.x; mov.u32 %z, %ntid.x; mov.u32 %thread, %tid.x; mad.lo.u32 %id, %x, %z, %thread;
    mul.wide.u32 %y, %id, 512; add.s64 %mine, %mine, %y; add.u32 %id, %id, 1;
    mov.u32 %z, scores; shl.b32 %x, %thread, 3; add.u32 %z, %z, %x; st.shared.u64 [%z], %y;
    mov.u32 %z, scratch; {} mov.u64 %y, 0;
    setp.ne.u32 %p0, %id, 5; setp.gt.u32 %p1, %id, 9; setp.eq.u32 %p2, %id, 0; setp.lt.u32 %p3, %id, 40;
{start}{}{end}    ret;\n}}\n",
        author.loops,
        scratch.trim_end(),
        author.text
    )
}

/// Whether a word of what a program left is a number in double precision.
fn is_double(place: usize) -> bool {
    place % WORDS >= 8 && place % 4 == 2
}

/// FNV-1a of what a program left, all numbers in double precision that are none as one.
fn hash(words: &[u64]) -> u64 {
    words.iter().enumerate().fold(0xcbf2_9ce4_8422_2325, |hash, (place, word)| {
        let nan = is_double(place) && f64::from_bits(*word).is_nan();
        let word = if nan { 0x7ff8_0000_0000_0000 } else { *word };
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn recorded() -> HashMap<u64, u64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/generated.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = text.lines().filter_map(|line| line.split_once(' ').filter(|(seed, _)| *seed != "#"));
    lines.map(|(seed, hash)| (seed.parse().unwrap(), u64::from_str_radix(hash, 16).unwrap())).collect()
}

/// What became of some programs: gangs that ran and that parted, and which left something else on a device.
#[derive(Default)]
struct Outcome {
    gangs: u64,
    parted: u64,
    other_on_device: Vec<u64>,
}

/// Runs these programs in both engines.
fn run(seeds: impl Iterator<Item = u64>, recorded: &HashMap<u64, u64>) -> Outcome {
    let mut engines = [Machine::of(Engine::Interpreter), Machine::of(Engine::Compiled)];
    let count = BLOCKS * THREADS as usize * WORDS;
    let zeros = vec![0; count];
    let mut outcome = Outcome::default();
    for seed in seeds {
        let ptx = program(seed);
        let found = engines.each_mut().map(|machine| {
            let image = machine.gpu.load(&ptx).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{ptx}"));
            let at = machine.upload_u64(&zeros);
            machine.run(image.entries[0].id, BLOCKS as u32, THREADS as u32, &at.to_le_bytes()).unwrap();
            machine.is_what_it_was_told(image.entries[0].id);
            let counts = machine.gpu.gang_counts(image.entries[0].id).unwrap().unwrap_or_default();
            outcome.gangs += u64::from(counts.ran);
            outcome.parted += u64::from(counts.parted);
            let found = machine.download_u64(at, count);
            machine.forget();
            machine.gpu.unload(image.id).unwrap();
            found
        });
        let differs = |place: &usize| {
            let (one, other) = (found[0][*place], found[1][*place]);
            one != other && !(is_double(*place) && both_nan(one, other))
        };
        if let Some(place) = (0..count).find(differs) {
            let (thread, byte) = (place / WORDS, place % WORDS * 8);
            let (one, other) = (found[0][place], found[1][place]);
            panic!("seed {seed}: byte {byte} of thread {thread} is {one:#x}, compiled {other:#x}\n{ptx}");
        }
        if recorded.get(&seed) != Some(&hash(&found[0])) {
            outcome.other_on_device.push(seed);
        }
    }
    outcome
}

#[test]
fn random_programs_leave_the_same_in_both_engines_and_on_an_h200() {
    let recorded = &recorded();
    let programs =
        std::env::var("BULKHEAD_PROGRAMS_RUN").map_or(RUN, |count| count.parse().unwrap()).min(PROGRAMS);
    let halves = std::thread::scope(|scope| {
        let half = |first| scope.spawn(move || run((first..=programs).step_by(2), recorded));
        [half(1), half(2)].map(|half| half.join().unwrap())
    });
    let sum = |of: fn(&Outcome) -> u64| halves.iter().map(of).sum::<u64>();
    let (gangs, parted) = (sum(|half| half.gangs), sum(|half| half.parted));
    println!("{gangs} gangs ran, {parted} of them parted");
    assert!(gangs > 4 * programs && parted > programs, "{gangs}, {parted}");
    let other_on_device: Vec<_> = halves.iter().flat_map(|half| &half.other_on_device).collect();
    assert!(other_on_device.is_empty(), "{} differ: seeds {other_on_device:?}", other_on_device.len());
}

/// Writes the programs, and what the interpreter leaves of each, to the folder in `BULKHEAD_PROGRAMS`.
#[test]
#[ignore = "writes the programs that a device is to run"]
fn write() {
    let folder =
        PathBuf::from(std::env::var_os("BULKHEAD_PROGRAMS").expect("BULKHEAD_PROGRAMS names a folder"));
    let mut machine = Machine::of(Engine::Interpreter);
    let count = BLOCKS * THREADS as usize * WORDS;
    for seed in 1..=PROGRAMS {
        let ptx = program(seed);
        let image = machine.gpu.load(&ptx).unwrap();
        let at = machine.upload_u64(&vec![0; count]);
        machine.run(image.entries[0].id, BLOCKS as u32, THREADS as u32, &at.to_le_bytes()).unwrap();
        let found = machine.download_u64(at, count);
        machine.forget();
        machine.gpu.unload(image.id).unwrap();
        let bytes: Vec<u8> = found.iter().flat_map(|word| word.to_le_bytes()).collect();
        std::fs::write(folder.join(format!("{seed}.ptx")), ptx).unwrap();
        std::fs::write(folder.join(format!("{seed}.left")), bytes).unwrap();
    }
}
