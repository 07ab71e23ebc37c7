//! Random programs: a warp computes what each of its lanes computes alone.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::fmt::Write as _;

use bulkhead_gpu::{EntryId, Gpu, Launch};
use common::Machine;

/// Makes structured programs out of a seed.
struct Author {
    state: u64,
    text: String,
    labels: u32,
    loops: u32,
}

const REGISTERS: u64 = 6;

impl Author {
    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn line(&mut self, text: &str) {
        writeln!(self.text, "    {text}").unwrap();
    }

    fn arithmetic(&mut self) {
        let (d, a, b, c) =
            (self.below(REGISTERS), self.below(REGISTERS), self.below(REGISTERS), self.below(REGISTERS));
        let number = self.below(1 << 20);
        let line = match self.below(16) {
            0 => format!("add.u32 %v{d}, %v{a}, %v{b};"),
            1 => format!("sub.s32 %v{d}, %v{a}, {number};"),
            2 => format!("mad.lo.u32 %v{d}, %v{a}, %v{b}, %v{c};"),
            3 => format!("mul.hi.s32 %v{d}, %v{a}, %v{b};"),
            4 => format!("xor.b32 %v{d}, %v{a}, %v{b};"),
            5 => format!("shl.b32 %v{d}, %v{a}, {};", number % 40),
            6 => format!("shr.s32 %v{d}, %v{a}, {};", number % 40),
            7 => format!("lop3.b32 %v{d}, %v{a}, %v{b}, %v{c}, {};", number % 256),
            8 => format!("prmt.b32 %v{d}, %v{a}, %v{b}, {};", number % 65_536),
            9 => format!("max.s32 %v{d}, %v{a}, %v{b};"),
            10 => format!("bfe.s32 %v{d}, %v{a}, {}, {};", number % 40, number % 35),
            11 => format!("shf.l.wrap.b32 %v{d}, %v{a}, %v{b}, %v{c};"),
            12 => format!("setp.lt.s32 %p, %v{a}, %v{b}; selp.b32 %v{d}, %v{b}, %v{c}, %p;"),
            13 => format!("setp.ge.u32 %p, %v{a}, %v{b}; @%p add.u32 %v{d}, %v{d}, {number};"),
            14 => format!("cvt.rn.f32.s32 %f, %v{a}; mul.f32 %f, %f, 0f3DCCCCCD; cvt.rzi.s32.f32 %v{d}, %f;"),
            _ => format!("rem.u32 %v{d}, %v{a}, %v{b};"),
        };
        self.line(&line);
    }

    fn statement(&mut self, depth: u32) {
        let (a, b) = (self.below(REGISTERS), self.below(REGISTERS));
        match if depth == 0 { 0 } else { self.below(8) } {
            5 => {
                let (other, end) = (self.label(), self.label());
                self.line(&format!("setp.lt.s32 %p, %v{a}, %v{b};"));
                self.line(&format!("@%p bra $L{other};"));
                self.statements(depth - 1);
                self.line(&format!("bra $L{end};"));
                self.line(&format!("$L{other}:"));
                self.statements(depth - 1);
                self.line(&format!("$L{end}:"));
            }
            6 => {
                let (start, end) = (self.label(), self.label());
                let counter = self.loops;
                self.loops += 1;
                let most = 1 + self.below(6);
                self.line(&format!("and.b32 %n{counter}, %v{a}, {most};"));
                self.line(&format!("$L{start}: setp.eq.u32 %p, %n{counter}, 0;"));
                self.line(&format!("@%p bra $L{end};"));
                self.line(&format!("sub.u32 %n{counter}, %n{counter}, 1;"));
                self.statements(depth - 1);
                if self.below(3) == 0 {
                    // A break somewhere in the middle.
                    self.line(&format!("setp.gt.s32 %p, %v{a}, %v{b};"));
                    self.line(&format!("@%p bra $L{end};"));
                    self.statements(depth - 1);
                }
                self.line(&format!("bra $L{start};"));
                self.line(&format!("$L{end}:"));
            }
            7 if self.below(6) == 0 => {
                self.line(&format!("and.b32 %n0, %v{a}, 15; setp.eq.u32 %p, %n0, 3;"));
                self.line("@%p bra $LEND;");
            }
            _ => self.arithmetic(),
        }
    }

    fn statements(&mut self, depth: u32) {
        for _ in 0..1 + self.below(5) {
            self.statement(depth);
        }
    }
}

fn program(seed: u64) -> String {
    let mut author = Author {
        state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        text: String::new(),
        labels: 0,
        loops: 1,
    };
    for _ in 0..8 {
        author.statement(4);
    }
    let mut start = String::new();
    let mut end = String::new();
    for register in 0..REGISTERS {
        writeln!(start, "    mul.lo.u32 %v{register}, %id, {};", 2_654_435_761u64 >> register).unwrap();
        writeln!(end, "    xor.b32 %sum, %sum, %v{register}; mul.lo.u32 %sum, %sum, 16777619;").unwrap();
    }
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 p)\n{{
    .reg .pred %p; .reg .b32 %v<{REGISTERS}>, %n<{}>, %id, %sum, %a, %b; .reg .f32 %f; .reg .b64 %at, %x;
    ld.param.u64 %at, [p];
    mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %id, %tid.x; mad.lo.u32 %id, %a, %b, %id;
{start}{}$LEND:
    mov.u32 %sum, 2166136261;
{end}    mul.wide.u32 %x, %id, 4; add.s64 %at, %at, %x; st.global.u32 [%at], %sum;
    ret;\n}}\n",
        author.loops, author.text
    )
}

#[test]
fn a_warp_computes_what_its_lanes_compute_alone() {
    let mut machine = Machine::new();
    let (together, alone) = (machine.buffer(256), machine.buffer(256));
    for seed in 1..=120 {
        let ptx = program(seed);
        let image = machine.gpu.load(&ptx).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{ptx}"));
        let id: EntryId = image.entries[0].id;
        let run = |at: u64, grid, block| {
            let parameters = at.to_le_bytes();
            let launch =
                Launch { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0, parameters: &parameters };
            machine.gpu.launch(machine.stream, id, &launch).unwrap();
        };
        run(together, 1, 64);
        run(alone, 64, 1);
        let expected = machine.download_u32(alone, 64);
        assert_eq!(machine.download_u32(together, 64), expected, "seed {seed}\n{ptx}");
        machine.gpu.unload(image.id).unwrap();
    }
}
