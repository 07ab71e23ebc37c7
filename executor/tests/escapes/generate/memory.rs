//! Statements that reach memory, jump and wait.

use super::{Author, OFFSETS, SCALES};

impl Author<'_> {
    pub(crate) fn pointer(&mut self) -> &'static str {
        self.random.of(&["%rd0", "%rd0", "%rd1", "%rd2", "%rd2", "%rd3"])
    }

    /// A load or store of global memory at a sum of a pointer and what a register makes.
    pub(crate) fn access(&mut self, condition: &str) {
        let (index, scale) = (self.register(), self.random.of(SCALES));
        let (pointer, sign) = (self.pointer(), self.random.of(&["s", "s", "u"]));
        let at = match self.random.below(12) {
            0..5 => {
                let factor = if self.random.one_in(5) { self.register() } else { scale.to_string() };
                put!(self, "mul.wide.{sign}32 %rd8, {index}, {factor};");
                put!(self, "add.s64 %rd9, {pointer}, %rd8;");
                "%rd9"
            }
            5 => {
                put!(self, "mad.wide.{sign}32 %rd9, {index}, {scale}, {pointer};");
                "%rd9"
            }
            6 => {
                let shift = self.random.of(&[0, 2, 3, 4, 12, 20, 28, 31]);
                put!(self, "cvt.{sign}64.{sign}32 %rd8, {index};");
                put!(self, "shl.b64 %rd8, %rd8, {shift};");
                put!(self, "{}.s64 %rd9, {pointer}, %rd8;", self.random.of(&["add", "add", "sub"]));
                "%rd9"
            }
            7 => {
                put!(self, "add.s64 %rd9, {pointer}, %rd4;");
                "%rd9"
            }
            8 => {
                let most = self.random.of(&[4_i64, 4096, 1 << 31, 1 << 32, 1 << 35, (1 << 36) - 4, 1 << 36]);
                let op = self.random.of(&["min.u64", "and.b64", "min.s64"]);
                put!(self, "{op} %rd8, {}, {most};", self.random.of(&["%rd5", "%rd4"]));
                put!(self, "add.s64 %rd9, {pointer}, %rd8;");
                "%rd9"
            }
            _ => pointer,
        };
        let (offset, register) = (self.random.of(OFFSETS), self.register());
        let at = if offset == 0 { format!("[{at}]") } else { format!("[{at}+{offset}]") };
        let line = match self.random.below(14) {
            0..5 => format!("st.global.u32 {at}, {register};"),
            5 => format!("st.global.u64 {at}, %rd5;"),
            6 => format!("st.global.u8 {at}, {register};"),
            7 => format!("red.global.add.u32 {at}, {register};"),
            8 => format!("ld.global.v2.u32 {{{register}, {}}}, {at};", self.register()),
            9 => format!("ld.global.u64 %rd{}, {at};", self.random.of(&[4, 5, 6])),
            10 => format!("st.global.v4.u32 {at}, {{{register}, {register}, {register}, {register}}};"),
            _ => format!("ld.global.u32 {register}, {at};"),
        };
        put!(self, "{condition}{line}");
    }

    /// A store at a register's own distance from a pointer.
    pub(crate) fn reach(&mut self, register: &str) {
        let sign = self.random.of(&["s", "s", "u"]);
        let scale = if self.random.one_in(4) {
            self.random.of(SCALES)
        } else {
            self.random.of(&[1 << 28, 1 << 28, 1 << 24])
        };
        let pointer = self.random.of(&["%rd0", "%rd0", "%rd0", "%rd1", "%rd2"]);
        let condition = self.condition(8);
        put!(self, "mul.wide.{sign}32 %rd8, {register}, {scale};");
        put!(self, "add.s64 %rd9, {pointer}, %rd8;");
        let kind = self.random.of(&[
            "st.global.u32 [%rd9], %r0",
            "st.global.u32 [%rd9], %r0",
            "ld.global.u32 %r9, [%rd9]",
        ]);
        put!(self, "{condition}{kind};");
    }

    pub(crate) fn shared(&mut self) {
        let (register, index) = (self.register(), self.register());
        let condition = self.condition(6);
        let base = self.random.of(&["tile", "tile", "dynamic"]);
        let at = match self.random.below(5) {
            0 => "[tile]".to_owned(),
            1 => format!("[{index}]"),
            _ => {
                let shift = self.random.below(6);
                put!(self, "shl.b32 %r8, {index}, {shift};");
                put!(self, "mov.u32 %r9, {base};");
                let (op, ty) =
                    self.random.of(&[("add", "s32"), ("add", "s32"), ("sub", "s32"), ("or", "b32")]);
                put!(self, "{op}.{ty} %r9, %r9, %r8;");
                format!("[%r9+{}]", self.random.of(&[0, 0, 4, 16, -4]))
            }
        };
        let line = match self.random.below(4) {
            0 => format!("ld.shared.u32 {register}, {at};"),
            1 => format!("atom.shared.add.u32 {register}, {at}, {index};"),
            _ => format!("st.shared.u32 {at}, {register};"),
        };
        self.put(condition + &line);
    }

    /// An instruction with several results, which may all go to one register.
    pub(crate) fn several(&mut self) {
        let a = self.register();
        let b = if self.random.one_in(8) { a.clone() } else { self.register() };
        let condition = self.condition(6);
        let line = match self.random.below(4) {
            0 => format!("ld.global.v2.u32 {{{a}, {b}}}, [%rd0];"),
            1 => {
                let (p, q) = (self.predicate(), self.predicate());
                format!("setp.lt.s32 {p}|{q}, {a}, {b};")
            }
            _ => format!("mov.b64 {{{a}, {b}}}, {};", self.random.of(&["%rd5", "%rd5", "%rd4", "%rd0"])),
        };
        self.put(condition + &line);
    }

    /// Goes on behind a few statements.
    pub(crate) fn skip(&mut self, depth: usize) {
        let to = self.label();
        let predicate = self.tested();
        let not = self.random.of(&["", "!"]);
        let uni = if self.random.one_in(12) { ".uni" } else { "" };
        put!(self, "@{not}{predicate} bra{uni} {to};");
        let count = 1 + self.random.below(2);
        self.items(count, depth + 1);
        put!(self, "{to}:");
        self.written.push(to);
    }

    pub(crate) fn leave(&mut self) {
        let predicate = self.tested();
        let not = self.random.of(&["", "!"]);
        put!(self, "@{not}{predicate} bra END;");
    }

    /// Goes back to wherever.
    pub(crate) fn back(&mut self) {
        if self.written.is_empty() || !self.random.one_in(3) {
            return self.test();
        }
        let to = self.written[self.random.below(self.written.len())].clone();
        let predicate = self.predicate();
        put!(self, "@{predicate} bra {to};");
    }

    pub(crate) fn wide_number(&mut self) {
        let (register, scale) = (self.register(), self.random.of(SCALES));
        let line = match self.random.below(5) {
            0 => format!(
                "mov.u64 %rd4, {};",
                self.random.of(&[4_i64, 4096, 1 << 20, 1 << 28, -4, -4096, 1 << 32])
            ),
            1 => format!("cvt.s64.s32 %rd4, {register};"),
            2 => "mov.b64 %rd4, %rd5;".to_owned(),
            _ => format!("mul.wide.s32 %rd4, {register}, {scale};"),
        };
        self.put(line);
    }

    pub(crate) fn step_pointer(&mut self) {
        let pointer = self.random.of(&["%rd2", "%rd2", "%rd3"]);
        let condition = self.condition(16);
        let by = match self.random.below(3) {
            0 => self
                .random
                .of(&[4_i64, 8, -4, 4096, 1 << 20, 1 << 26, 1 << 28, -(1 << 28), 1 << 30, 1 << 33])
                .to_string(),
            _ => "%rd4".to_owned(),
        };
        let op = self.random.of(&["add", "add", "add", "sub"]);
        put!(self, "{condition}{op}.s64 {pointer}, {pointer}, {by};");
    }

    pub(crate) fn moved(&mut self) {
        let (to, from) = (self.register(), self.register());
        let line = match self.random.below(4) {
            0 if self.shares => {
                format!("mov.u32 {to}, {};", self.random.of(&["tile", "tile", "dynamic", "tile+16"]))
            }
            1 => format!("mov.u32 {to}, {};", self.random.of(&["%tid.x", "%laneid", "%ctaid.x"])),
            2 => format!("mov.b64 %rd{}, %rd{};", self.random.of(&[2, 3]), self.random.of(&[0, 1, 2, 3])),
            _ => format!("mov.u32 {to}, {from};"),
        };
        self.put(line);
    }

    /// What takes long, so that a loop is not written out.
    pub(crate) fn pad(&mut self, count: usize) {
        let long = if count == 2 { 1_000_000 } else { self.random.of(&[1, 1000, 100_000]) };
        for _ in 0..count {
            put!(self, "nanosleep.u32 {long};");
        }
    }

    pub(crate) fn wait(&mut self) {
        let condition = self.condition(3);
        let line = match self.random.below(5) {
            0 => format!("bar.warp.sync {};", self.random.of(&["-1", "1", "0x55555555", "%r0"])),
            1 => {
                let (to, from) = (self.predicate(), self.predicate());
                format!("bar.red.and.pred {to}, 0, {from};")
            }
            _ => "bar.sync 0;".to_owned(),
        };
        self.put(condition + &line);
    }
}
