//! One register for each *web*: definitions of a register and the uses that they reach, inside of a basic block.
//!
//! The guard reuses a few registers for all addresses that it confines, and compilers of other languages reuse
//! theirs. What a register is used for then has no pattern, though each of its uses has one. So code for gangs is
//! made from a copy of the entry in which each definition that stays in its basic block has a register of its own.
//!
//! # Invariants
//! 1. Instructions stand where they stood.
//! 2. Of the registers that share a row of the warp, one lives at a time.

use std::collections::HashMap;

use super::flow::{Flow, is_meeting, touched};
use crate::code::{At, Atomic, Dst, Inst, Op, Program, Src};

/// Registers that an entry gets beyond its own, at most.
const MORE_MAX: usize = 1 << 12;

/// An entry with a register for each web.
#[derive(Debug)]
pub(super) struct Webs {
    pub(super) program: Program,
    /// Where the warp keeps each register: the number of the one that it was made of.
    pub(super) rows: Vec<usize>,
}

/// Each register in its own row.
pub(super) fn own_rows(program: &Program) -> Vec<usize> {
    (0..program.widths.len()).collect()
}

impl Webs {
    /// Looks at an entry.
    pub(super) fn of(program: &Program) -> Self {
        let flow = Flow::of(program, &[]);
        let mut webs = Self { program: copy(program), rows: own_rows(program) };
        let mut start = 0;
        while start < program.code.len() {
            let end = flow.end(start);
            webs.split(program, &flow, start, end);
            start = end;
        }
        webs.program.registers = u32::try_from(webs.rows.len()).unwrap_or(u32::MAX);
        webs
    }

    /// Gives the definitions of a basic block that do not leave it registers of their own.
    fn split(&mut self, program: &Program, flow: &Flow, start: usize, end: usize) {
        if is_meeting(&program.code[start].op) {
            return;
        }
        let stays = stays(program, flow, start, end);
        let mut now: HashMap<u32, u32> = HashMap::new();
        for pc in start..end {
            let Inst { guard, op } = program.code[pc];
            let before = now.clone();
            if guard.is_none() {
                for (register, stays) in &stays[pc - start] {
                    match self.fresh(*register, program).filter(|_| *stays) {
                        Some(fresh) => now.insert(*register, fresh),
                        None => now.remove(register),
                    };
                }
            }
            self.program.code[pc].op = renamed(&op, &before, &now);
        }
    }

    /// A register more for the row of another one.
    fn fresh(&mut self, register: u32, program: &Program) -> Option<u32> {
        let width = *program.widths.get(register as usize)?;
        if self.rows.len() >= program.widths.len() + MORE_MAX {
            return None;
        }
        let fresh = u32::try_from(self.rows.len()).ok()?;
        self.rows.push(register as usize);
        self.program.widths.push(width);
        Some(fresh)
    }
}

/// The registers that each instruction of a basic block defines for all lanes, and whether the block's end is beyond
/// the last use.
fn stays(program: &Program, flow: &Flow, start: usize, end: usize) -> Vec<Vec<(u32, bool)>> {
    let out = flow.live_out(program, end - 1);
    let mut defined = Vec::new();
    let mut all = Vec::with_capacity(end - start);
    for pc in (start..end).rev() {
        let Inst { guard, op } = &program.code[pc];
        let mut here = Vec::new();
        if guard.is_none() {
            let writes = touched(program, op).writes;
            for register in writes.into_iter().filter(|place| *place < program.widths.len()) {
                let stays = defined.contains(&register) || !out.contains(register);
                here.push((u32::try_from(register).unwrap_or(u32::MAX), stays));
            }
            defined.extend(here.iter().map(|(register, _)| *register as usize));
        }
        all.push(here);
    }
    all.reverse();
    all
}

/// What of an entry its code is made from.
fn copy(program: &Program) -> Program {
    Program {
        name: program.name.clone(),
        text: program.text,
        code: program.code.clone(),
        places: Vec::new(),
        zeroing: Vec::new(),
        of_block: Vec::new(),
        acquires: Vec::new(),
        counting: Vec::new(),
        asked: Vec::new(),
        constants: program.constants.clone(),
        conversions: program.conversions.clone(),
        videos: program.videos.clone(),
        matrices: program.matrices.clone(),
        tables: program.tables.clone(),
        registers: program.registers,
        widths: program.widths.clone(),
        predicates: program.predicates,
        parameters: Vec::new(),
        parameter_bytes: program.parameter_bytes,
        shared_bytes: program.shared_bytes,
        local_bytes: program.local_bytes,
        threads_max: program.threads_max,
        threads_required: program.threads_required,
    }
}

/// An operation that reads and writes other registers.
fn renamed(op: &Op, reads: &HashMap<u32, u32>, writes: &HashMap<u32, u32>) -> Op {
    let src = |src: &mut Src| {
        if let Some(web) = src.register_number().and_then(|register| reads.get(&register)) {
            *src = Src::register(*web);
        }
    };
    let dst = |d: &mut Dst| {
        if let Some(web) = writes.get(&d.0) {
            *d = Dst(*web);
        }
    };
    let at = |at: &mut At| src(&mut at.base);
    let mut op = *op;
    match &mut op {
        Op::Unary { f: _, d, a } | Op::Convert { conversion: _, d, a } => {
            src(a);
            dst(d);
        }
        Op::Binary { f: _, d, a, b } => {
            [a, b].into_iter().for_each(src);
            dst(d);
        }
        Op::Ternary { f: _, d, a, b, c } | Op::Lop3 { table: _, d, a, b, c } => {
            [a, b, c].into_iter().for_each(src);
            dst(d);
        }
        Op::Insert { wide: _, d, a, b, position, length } => {
            [a, b, position, length].into_iter().for_each(src);
            dst(d);
        }
        Op::Carry { d, operands, .. } | Op::Video { video: _, d, operands } => {
            operands.iter_mut().for_each(src);
            dst(d);
        }
        Op::Test { a, b, .. } => {
            [a, b].into_iter().for_each(src);
        }
        Op::Set { d, a, b, .. } => {
            [a, b].into_iter().for_each(src);
            dst(d);
        }
        Op::Property { f: _, p: _, a } | Op::InRegion { region: _, p: _, a } | Op::Switch { table: _, a } => {
            src(a);
        }
        Op::Select { d, a, b, c: _ } => {
            [a, b].into_iter().for_each(src);
            dst(d);
        }
        Op::Special { what: _, d } => dst(d),
        Op::Pack { bits: _, count: _, d, parts } => {
            parts.iter_mut().for_each(src);
            dst(d);
        }
        Op::Unpack { bits: _, count: _, d, a } => {
            src(a);
            d.iter_mut().for_each(dst);
        }
        Op::Load { shape: _, at: from, d } => {
            at(from);
            d.iter_mut().for_each(dst);
        }
        Op::Store { shape: _, at: to, a } => {
            at(to);
            a.iter_mut().for_each(src);
        }
        Op::Atomic(Atomic { d, at: to, a, b, .. }) => {
            at(to);
            [a, b].into_iter().for_each(src);
            dst(d);
        }
        Op::Copy { bytes: _, to, from, valid } => {
            [to, from].into_iter().for_each(at);
            src(valid);
        }
        Op::Nop | Op::Fence | Op::Logic { .. } | Op::Branch { .. } | Op::Exit => {}
        // What lanes do together stands in basic blocks of its own, of which nothing is renamed.
        Op::Yield
        | Op::Trap
        | Op::Barrier { .. }
        | Op::WarpBarrier { .. }
        | Op::Collective { .. }
        | Op::Matrix { .. }
        | Op::ActiveMask { .. } => {}
    }
    op
}
