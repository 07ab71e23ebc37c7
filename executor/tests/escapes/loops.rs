//! Loops, and what bounds the numbers they carry.

use crate::generate::{Author, SCALES};

impl Author<'_> {
    /// What a loop goes back by.
    pub(crate) fn test_turn(&mut self, predicate: &str, counter: &str, bound: &str) {
        if self.random.one_in(4) {
            return self.test_of(predicate, counter, bound);
        }
        let compare = self.random.of(&["lt.s32", "lt.s32", "lt.u32", "le.s32", "ne.s32"]);
        put!(self, "setp.{compare} {predicate}, {counter}, {bound};");
    }

    pub(crate) fn looped(&mut self, depth: usize) {
        let (head, end) = (self.label(), self.label());
        let (counter, test) = (self.register(), self.predicate());
        // A loop begins with what is set directly before it, or with what is set before the loop around it and again behind.
        let again = depth > 0 && self.random.one_in(2);
        if !again && !self.random.one_in(4) {
            self.set(&counter);
        }
        let bound = self.loop_bound(&counter);
        let mut first = self.predicate();
        if first == test {
            first = self.predicate();
        }
        let changing = self.register();
        if !again && self.random.one_in(2) {
            self.set(&changing);
        }
        let tested_before = self.random.one_in(2);
        if tested_before {
            self.test_before(&first, &counter, &changing, &bound);
        }
        put!(self, "{head}:");
        self.written.push(head.clone());
        let tests_first = self.random.one_in(2);
        if tests_first {
            let predicate = if tested_before && !self.random.one_in(4) { first } else { test.clone() };
            if !tested_before || self.random.one_in(4) {
                self.test_of(&predicate, &counter, &bound);
            }
            let not = self.random.of(&["!", "!", ""]);
            let to = if self.random.one_in(2) { "END" } else { end.as_str() };
            put!(self, "@{not}{predicate} bra {to};");
        }
        // What grows from turn to turn, and where it leads.
        let grown = (!self.random.one_in(3)).then(|| changing.clone());
        if let Some(grown) = &grown
            && self.random.one_in(2)
        {
            self.reach(grown);
        }
        let (early, count) = (self.random.one_in(4), self.random.below(3));
        if early {
            self.step_counter(&counter);
        }
        let tested_early = self.random.one_in(5);
        if tested_early {
            self.test_turn(&test, &counter, &bound);
        }
        // So long that each turn is looked at by itself.
        let heavy = if !self.random.one_in(3) && (depth == 0 || self.random.one_in(4)) {
            1 + self.random.below(2)
        } else {
            0
        };
        if heavy == 1 {
            self.pad(2);
        }
        if self.random.one_in(3) {
            self.reach(&counter);
        }
        if self.random.one_in(2) {
            self.access_by_pointer(&counter);
        }
        if self.random.one_in(2) {
            (0..count).for_each(|_| self.straight());
        } else if depth < 2 && !self.random.one_in(3) {
            self.looped(depth + 1);
        } else {
            self.items(count, depth + 1);
        }
        if heavy == 2 {
            self.pad(2);
        }
        if let Some(grown) = &grown {
            if self.random.one_in(3) {
                self.reach(grown);
            }
            self.grow(grown);
        }
        if !early {
            self.step_counter(&counter);
        }
        if !tested_early {
            self.test_turn(&test, &counter, &bound);
        }
        let not = if self.random.one_in(8) { "!" } else { "" };
        put!(self, "@{not}{test} bra {head};");
        put!(self, "{end}:");
        self.written.push(end);
        if again {
            self.set(&counter);
            if self.random.one_in(2) {
                self.set(&changing);
            }
        }
    }

    /// What a loop's counter is held against: a number, or a register.
    fn loop_bound(&mut self, counter: &str) -> String {
        match self.random.below(5) {
            0 | 1 => self
                .random
                .of(&[2, 3, 3, 4, 4, 8, 16, 100, 480, 1000, 4096, 65_536, i64::from(i32::MAX), 1, 0, -1])
                .to_string(),
            2 | 3 => {
                let register = self.register();
                if register != counter {
                    self.bound(&register);
                }
                register
            }
            _ => self.register(),
        }
    }

    /// What is tested before a loop.
    fn test_before(&mut self, first: &str, counter: &str, changing: &str, bound: &str) {
        let register = match self.random.below(4) {
            0 => counter.to_owned(),
            1 => self.register(),
            _ => changing.to_owned(),
        };
        match self.random.below(8) {
            0 => self.test_of(first, &register, bound),
            1 => {
                let other = self.value();
                self.test_of(first, &register, &other);
            }
            _ => {
                let most = self.random.of(&[2, 3, 4, 8, 16, 64, 255]);
                put!(
                    self,
                    "setp.{} {first}, {register}, {most};",
                    self.random.of(&["lt.s32", "lt.u32", "le.s32", "gt.s32"])
                );
            }
        }
    }

    /// An access in a loop, by a pointer that it may step.
    fn access_by_pointer(&mut self, counter: &str) {
        let pointer = self.random.of(&["%rd2", "%rd2", "%rd3", "%rd0"]);
        let (width, register) = (self.random.of(&["u32", "u32", "u8"]), self.register());
        let line = match self.random.below(4) {
            0 | 1 => format!("st.global.{width} [{pointer}], {register};"),
            2 => format!("ld.global.{width} {register}, [{pointer}];"),
            _ => {
                let (scale, index) = (self.random.of(SCALES), self.random.of(&[counter, register.as_str()]));
                put!(self, "mul.wide.{}32 %rd8, {index}, {scale};", self.random.of(&["s", "s", "u"]));
                put!(self, "add.s64 %rd9, {pointer}, %rd8;");
                format!("st.global.{width} [%rd9], {register};")
            }
        };
        self.put(line);
        if !self.random.one_in(3) {
            self.step_pointer();
        }
    }

    /// Where a number of a loop begins.
    pub(crate) fn set(&mut self, register: &str) {
        let start = self.random.of(&[0, 0, 0, 1, 1, 1, 2, 16, 64, 100, -1, 4096]);
        put!(self, "mov.u32 {register}, {start};");
    }

    /// What becomes more from turn to turn.
    pub(crate) fn grow(&mut self, register: &str) {
        let shift = self.random.of(&[1, 2, 6, 6, 10]);
        match self.random.below(6) {
            0 | 1 => {
                put!(self, "shl.b32 %r8, {register}, {shift};");
                put!(self, "mov.u32 {register}, %r8;");
            }
            2 => put!(self, "shl.b32 {register}, {register}, {shift};"),
            3 => put!(self, "mul.lo.s32 {register}, {register}, {};", self.random.of(&[2, 3, 64])),
            4 => put!(
                self,
                "add.s32 {register}, {register}, {};",
                self.random.of(&[1_i64, 256, 4096, 1 << 28, -4096])
            ),
            _ => self.step_counter(register),
        }
    }

    pub(crate) fn step_counter(&mut self, counter: &str) {
        let condition = self.condition(12);
        let line = match self.random.below(14) {
            0..7 => {
                let by =
                    self.random.of(&[1_i64, 1, 1, 1, 2, 4, 32, 256, 4096, 4096, 65_536, -1, -1, -4, 1 << 28]);
                format!("add.s32 {counter}, {counter}, {by};")
            }
            7 => format!("add.s32 {counter}, {counter}, {};", self.register()),
            8 => format!("shl.b32 {counter}, {counter}, {};", self.random.of(&[1, 1, 6])),
            9 => format!("sub.s32 {counter}, {counter}, {};", self.random.of(&["1", "1", "4"])),
            10 => format!("shr.u32 {counter}, {counter}, 1;"),
            11 => {
                put!(self, "shl.b32 %r8, {counter}, {};", self.random.of(&[1, 2, 6]));
                format!("mov.u32 {counter}, %r8;")
            }
            12 => format!("add.s32 {counter}, {counter}, {counter};"),
            _ => format!("mul.lo.s32 {counter}, {counter}, {};", self.random.of(&[2, 3, 64])),
        };
        self.put(condition + &line);
    }

    /// A number from somewhere, something that bounds it, and where it leads.
    pub(crate) fn bounded(&mut self, depth: usize) {
        let register = self.register();
        match self.random.below(6) {
            0 => put!(self, "ld.param.u32 {register}, [n];"),
            1 => put!(self, "mov.b64 {{{register}, %r9}}, %rd5;"),
            2 | 3 if self.shares => put!(self, "mov.u32 {register}, tile;"),
            3 => put!(self, "mov.u32 {register}, %tid.x;"),
            _ => {}
        }
        let mut out = None;
        if self.random.one_in(2) {
            let (predicate, most) = (self.predicate(), self.value());
            self.test_of(&predicate, &register, &most);
            if self.random.one_in(4) {
                self.item(depth + 1);
            }
            let (not, to) = (self.random.of(&["", "!", "!"]), self.label());
            if self.random.one_in(2) {
                put!(self, "@{not}{predicate} bra {to};");
                out = Some(to);
            } else {
                put!(self, "@{not}{predicate} bra END;");
            }
        } else {
            self.bound(&register);
        }
        let mut reached = register.clone();
        match self.random.below(5) {
            0 | 1 => {
                reached = self.register();
                let (op, other) = (self.random.of(&["and", "or", "xor", "or"]), self.value());
                put!(self, "{op}.b32 {reached}, {register}, {other};");
            }
            2 => self.item(depth + 1),
            _ => {}
        }
        self.reach(&reached);
        if let Some(to) = out {
            put!(self, "{to}:");
            self.written.push(to);
        }
    }

    pub(crate) fn bound(&mut self, register: &str) {
        match self.random.below(8) {
            0 => put!(self, "ld.param.u32 {register}, [{}];", self.random.of(&["n", "m"])),
            1 | 5 => {
                let other = if self.random.one_in(8) { register.to_owned() } else { self.register() };
                put!(self, "mov.b64 {{{register}, {other}}}, %rd5;");
            }
            2 => put!(self, "ld.global.u32 {register}, [%rd0];"),
            3 => {
                let from = if self.shares { self.random.of(&["tile", "%tid.x"]) } else { "%laneid" };
                put!(self, "mov.u32 {register}, {from};");
            }
            4 => {
                let from = self.register();
                put!(self, "mov.u32 {register}, {from};");
            }
            _ => {}
        }
        let skips = self.random.one_in(2).then(|| self.label());
        if let Some(to) = &skips {
            if self.random.one_in(2) {
                self.test();
            }
            let (predicate, not) = (self.predicate(), self.random.of(&["", "!"]));
            put!(self, "@{not}{predicate} bra {to};");
        }
        let most = self.random.of(&[1_i64, 3, 7, 15, 16, 31, 63, 64, 255, 1023, 4095, 4096, 65_535]);
        let condition = self.condition(6);
        let line = match self.random.below(5) {
            0 => format!("and.b32 {register}, {register}, {most};"),
            1 => format!("shr.u32 {register}, {register}, {};", self.random.of(&[8, 16, 24, 26, 28])),
            2 => format!("max.s32 {register}, {register}, {};", -most),
            _ => format!("min.{}32 {register}, {register}, {most};", self.random.of(&["s", "s", "s", "u"])),
        };
        self.put(condition + &line);
        if let Some(to) = skips {
            put!(self, "{to}:");
            self.written.push(to);
        }
    }

    /// A number from outside that something bounds, or does not.
    pub(crate) fn clamped(&mut self) {
        let register = self.register();
        self.bound(&register);
    }
}
