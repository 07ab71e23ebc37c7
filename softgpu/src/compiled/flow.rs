//! What an entry's operations read and write, where its blocks are, and what lives where.

use crate::code::{Atomic, AtomicOp, BarrierMode, Collective, Dst, Inst, Op, Pred, PredSrc, Program, Src};

/// Something that an operation reads or writes: a register, or behind all registers a predicate.
pub(super) type Place = usize;

/// A set of places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places(Vec<u64>);

impl Places {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn insert(&mut self, place: Place) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn remove(&mut self, place: Place) {
        self.0[place / 64] &= !(1 << (place % 64));
    }

    /// Adds all of another set; says whether that changed anything.
    fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            changed |= *other & !*word != 0;
            *word |= *other;
        }
        changed
    }

    /// Whether a place is in the set.
    pub(super) fn contains(&self, place: Place) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    /// All places of the set.
    pub(super) fn iter(&self) -> impl Iterator<Item = Place> {
        let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
        self.0.iter().enumerate().flat_map(move |(index, word)| bits(*word).map(move |bit| index * 64 + bit))
    }
}

/// What the operations of one instruction touch.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Read, the instruction's own predicate not among them.
    pub(super) reads: Vec<Place>,
    /// Written.
    pub(super) writes: Vec<Place>,
}

struct Lister {
    registers: usize,
    touched: Touched,
}

impl Lister {
    fn src(&mut self, src: Src) {
        if let Some(register) = src.register_number().filter(|register| *register != Dst::SINK.0) {
            self.touched.reads.push(register as usize);
        }
    }

    fn sources(&mut self, all: &[Src]) {
        all.iter().for_each(|src| self.src(*src));
    }

    fn pred(&mut self, of: Pred) {
        if of != Pred::SINK && of != Pred::TRUE {
            self.touched.reads.push(self.registers + of.0 as usize);
        }
    }

    fn dst(&mut self, d: Dst) {
        if d != Dst::SINK {
            self.touched.writes.push(d.0 as usize);
        }
    }

    fn pred_dst(&mut self, p: Pred) {
        if p != Pred::SINK {
            self.touched.writes.push(self.registers + p.0 as usize);
        }
    }

    fn collective(&mut self, what: &Collective) {
        match *what {
            Collective::Shuffle { mode: _, d, p, a, b, c } => {
                self.sources(&[a, b, c]);
                self.dst(d);
                self.pred_dst(p);
            }
            Collective::Vote { mode: _, d, a } => {
                self.pred(a.of);
                self.pred_dst(d);
            }
            Collective::Ballot { d, a } => {
                self.pred(a.of);
                self.dst(d);
            }
            Collective::MatchAny { d, a } | Collective::Reduce { f: _, d, a } => {
                self.src(a);
                self.dst(d);
            }
            Collective::MatchAll { d, p, a } => {
                self.src(a);
                self.dst(d);
                self.pred_dst(p);
            }
            Collective::Elect { d, p } => {
                self.dst(d);
                self.pred_dst(p);
            }
        }
    }

    fn op(&mut self, program: &Program, op: &Op) {
        match *op {
            Op::Nop | Op::Fence | Op::Yield | Op::Branch { .. } | Op::Exit | Op::Trap => {}
            Op::Load { .. } | Op::Store { .. } | Op::Atomic { .. } | Op::Copy { .. } => self.access(op),
            Op::Test { .. }
            | Op::Set { .. }
            | Op::Property { .. }
            | Op::InRegion { .. }
            | Op::Logic { .. }
            | Op::Select { .. } => self.of_predicates(op),
            Op::Switch { table: _, a } => self.src(a),
            Op::Barrier { mode, id, count, a } => {
                self.src(id);
                if let Some(count) = count {
                    self.src(count);
                }
                self.pred(a.of);
                match mode {
                    BarrierMode::Sync | BarrierMode::Arrive => {}
                    BarrierMode::Count(d) => self.dst(d),
                    BarrierMode::All(p) | BarrierMode::Any(p) => self.pred_dst(p),
                }
            }
            Op::WarpBarrier { members } => self.src(members),
            Op::Collective { members, ref what } => {
                self.src(members);
                self.collective(what);
            }
            Op::Matrix { index } => {
                let (reads, writes) = program.matrices[index as usize].touched();
                reads.into_iter().for_each(|src| self.src(src));
                writes.into_iter().for_each(|d| self.dst(d));
            }
            Op::Unary { .. }
            | Op::Convert { .. }
            | Op::Binary { .. }
            | Op::Ternary { .. }
            | Op::Lop3 { .. }
            | Op::Insert { .. }
            | Op::Carry { .. }
            | Op::Video { .. }
            | Op::Special { .. }
            | Op::ActiveMask { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. } => self.arithmetic(op),
        }
    }

    /// What computes registers from registers.
    fn arithmetic(&mut self, op: &Op) {
        match *op {
            Op::Unary { f: _, d, a } | Op::Convert { conversion: _, d, a } => {
                self.src(a);
                self.dst(d);
            }
            Op::Binary { f: _, d, a, b } => {
                self.sources(&[a, b]);
                self.dst(d);
            }
            Op::Ternary { f: _, d, a, b, c } | Op::Lop3 { table: _, d, a, b, c } => {
                self.sources(&[a, b, c]);
                self.dst(d);
            }
            Op::Insert { wide: _, d, a, b, position, length } => {
                self.sources(&[a, b, position, length]);
                self.dst(d);
            }
            Op::Carry { kind: _, wide: _, takes, gives, d, operands } => {
                self.sources(&operands);
                if takes {
                    self.pred(Pred::CARRY);
                }
                self.dst(d);
                if gives {
                    self.pred_dst(Pred::CARRY);
                }
            }
            Op::Video { video: _, d, operands } => {
                self.sources(&operands);
                self.dst(d);
            }
            Op::Special { what: _, d } | Op::ActiveMask { d } => self.dst(d),
            Op::Pack { bits: _, count, d, parts } => {
                parts.iter().take(usize::from(count)).for_each(|src| self.src(*src));
                self.dst(d);
            }
            Op::Unpack { bits: _, count, d, a } => {
                self.src(a);
                d.iter().take(usize::from(count)).for_each(|d| self.dst(*d));
            }
            ref other => unreachable!("{other:?} computes no register from registers"),
        }
    }

    /// What reads or writes predicates.
    fn of_predicates(&mut self, op: &Op) {
        match *op {
            Op::Test { f: _, p, q, a, b, combine: _, c } => {
                self.sources(&[a, b]);
                self.pred(c.of);
                self.pred_dst(p);
                self.pred_dst(q);
            }
            Op::Set { f: _, truth: _, d, a, b, combine: _, c } => {
                self.sources(&[a, b]);
                self.pred(c.of);
                self.dst(d);
            }
            Op::Property { f: _, p, a } | Op::InRegion { region: _, p, a } => {
                self.src(a);
                self.pred_dst(p);
            }
            Op::Logic { op: _, p, a, b } => {
                self.pred(a.of);
                self.pred(b.of);
                self.pred_dst(p);
            }
            Op::Select { d, a, b, c } => {
                self.sources(&[a, b]);
                self.pred(c.of);
                self.dst(d);
            }
            ref other => unreachable!("{other:?} has no predicates"),
        }
    }

    /// What reads or writes memory.
    fn access(&mut self, op: &Op) {
        match *op {
            Op::Load { shape, at, d } => {
                self.src(at.base);
                d.iter().take(usize::from(shape.count)).for_each(|d| self.dst(*d));
            }
            Op::Store { shape, at, a } => {
                self.src(at.base);
                a.iter().take(usize::from(shape.count)).for_each(|src| self.src(*src));
            }
            Op::Atomic(Atomic { op, region: _, size: _, d, at, a, b }) => {
                self.src(at.base);
                self.src(a);
                if matches!(op, AtomicOp::CompareSwap) {
                    self.src(b);
                }
                self.dst(d);
            }
            Op::Copy { bytes: _, to, from, valid } => {
                self.sources(&[to.base, from.base, valid]);
            }
            ref other => unreachable!("{other:?} reaches no memory"),
        }
    }
}

/// What an operation touches.
pub(super) fn touched(program: &Program, op: &Op) -> Touched {
    let mut lister = Lister { registers: program.registers as usize, touched: Touched::default() };
    lister.op(program, op);
    lister.touched
}

/// Whether lanes leave compiled code at an operation, to do it together or to let others run.
pub(super) fn is_meeting(op: &Op) -> bool {
    matches!(
        op,
        Op::Barrier { .. }
            | Op::WarpBarrier { .. }
            | Op::Collective { .. }
            | Op::Matrix { .. }
            | Op::Yield
            | Op::Switch { .. }
            | Op::ActiveMask { .. }
            | Op::Trap
    )
}

/// What is known about an entry before code is made for it.
#[derive(Debug)]
pub(super) struct Flow {
    /// Whether a block starts at each instruction.
    pub(super) leads: Vec<bool>,
    /// Whether lanes may come into compiled code at each instruction.
    pub(super) enters: Vec<bool>,
    /// Those among them where lanes only come from a gang that has parted.
    pub(super) parts: Vec<bool>,
    /// What lives at each instruction that leads.
    live: Vec<Option<Places>>,
    /// What may have been written since lanes came in, at each instruction that leads.
    written: Vec<Option<Places>>,
}

impl Flow {
    /// What lives at an instruction that leads.
    pub(super) fn live(&self, pc: usize) -> impl Iterator<Item = Place> {
        self.live[pc].iter().flat_map(Places::iter)
    }

    /// What has to be kept when lanes leave at an instruction that leads.
    pub(super) fn kept(&self, pc: usize) -> impl Iterator<Item = Place> {
        let written = self.written[pc].as_ref();
        self.live(pc).filter(move |place| written.is_some_and(|written| written.contains(*place)))
    }

    /// Looks at an entry, of which gangs part before some instructions.
    pub(super) fn of(program: &Program, partings: &[bool]) -> Self {
        let (mut leads, mut enters) = blocks(program);
        let mut parts = vec![false; leads.len()];
        for pc in (0..leads.len()).filter(|pc| partings.get(*pc).copied().unwrap_or(false)) {
            leads[pc] = true;
            parts[pc] = !enters[pc];
            enters[pc] = true;
        }
        let places = (program.registers + program.predicates) as usize;
        let starts: Vec<usize> = (0..program.code.len()).filter(|pc| leads[*pc]).collect();
        let mut flow =
            Self { live: vec![None; leads.len()], written: vec![None; leads.len()], leads, enters, parts };
        for start in &starts {
            flow.live[*start] = Some(Places::new(places));
            flow.written[*start] = Some(Places::new(places));
        }
        while starts.iter().rev().fold(false, |changed, start| flow.live_at(program, *start) | changed) {}
        while starts.iter().fold(false, |changed, start| flow.written_from(program, *start) | changed) {}
        flow
    }

    /// Where the basic block ends that starts here.
    pub(super) fn end(&self, start: usize) -> usize {
        (start + 1..self.leads.len()).find(|pc| self.leads[*pc]).unwrap_or(self.leads.len())
    }

    /// What lives behind an instruction that ends a basic block.
    pub(super) fn live_out(&self, program: &Program, pc: usize) -> Places {
        let mut live = Places::new((program.registers + program.predicates) as usize);
        for next in successors(program, pc) {
            if let Some(there) = &self.live[next] {
                live.join(there);
            }
        }
        live
    }

    /// Finds out again what lives at a block's start; says whether it is more than before.
    fn live_at(&mut self, program: &Program, start: usize) -> bool {
        let end = self.end(start);
        let mut live = self.live_out(program, end - 1);
        for pc in (start..end).rev() {
            let Inst { guard, op } = &program.code[pc];
            let touched = touched(program, op);
            // Not all lanes that come write what a meeting writes.
            if guard.is_none() && !is_meeting(op) {
                touched.writes.iter().for_each(|place| live.remove(*place));
            }
            touched.reads.iter().for_each(|place| live.insert(*place));
            if let Some(PredSrc { of, negated: _ }) = guard
                && *of != Pred::TRUE
                && *of != Pred::SINK
            {
                live.insert(program.registers as usize + of.0 as usize);
            }
        }
        self.live[start].as_mut().is_some_and(|before| before.join(&live))
    }

    /// Hands on what a block writes; says whether anybody learnt something.
    fn written_from(&mut self, program: &Program, start: usize) -> bool {
        let end = self.end(start);
        if is_meeting(&program.code[start].op) {
            // Lanes come back in behind it with everything in its place.
            return false;
        }
        let Some(mut written) = self.written[start].clone() else { return false };
        for inst in &program.code[start..end] {
            touched(program, &inst.op).writes.iter().for_each(|place| written.insert(*place));
        }
        let mut changed = false;
        for next in successors(program, end - 1) {
            changed |= self.written[next].as_mut().is_some_and(|there| there.join(&written));
        }
        changed
    }
}

/// Where lanes may go behind an instruction.
fn successors(program: &Program, pc: usize) -> Vec<usize> {
    let Inst { guard, op } = &program.code[pc];
    let mut next = Vec::new();
    let goes_on = match op {
        Op::Branch { target } => {
            next.push(*target as usize);
            guard.is_some()
        }
        Op::Switch { table, a: _ } => {
            next.extend(program.tables[*table as usize].iter().map(|target| *target as usize));
            guard.is_some()
        }
        Op::Exit | Op::Trap => guard.is_some(),
        _ => true,
    };
    if goes_on && pc + 1 < program.code.len() {
        next.push(pc + 1);
    }
    next
}

/// Where blocks start, and where lanes may come in.
fn blocks(program: &Program) -> (Vec<bool>, Vec<bool>) {
    let count = program.code.len();
    let mut leads = vec![false; count];
    let mut enters = vec![false; count];
    leads[0] = true;
    enters[0] = true;
    for (pc, inst) in program.code.iter().enumerate() {
        let meets = is_meeting(&inst.op);
        if meets {
            leads[pc] = true;
        }
        let ends = meets || matches!(inst.op, Op::Branch { .. } | Op::Exit);
        if ends && pc + 1 < count {
            leads[pc + 1] = true;
            enters[pc + 1] |= meets;
        }
        if let Op::Branch { target } = inst.op {
            leads[target as usize] = true;
            // Whoever goes round for long is set aside at the loop's head.
            enters[target as usize] |= target as usize <= pc;
        }
        if let Op::Switch { table, .. } = inst.op {
            for target in &program.tables[table as usize] {
                leads[*target as usize] = true;
                enters[*target as usize] = true;
            }
        }
    }
    for (pc, inst) in program.code.iter().enumerate() {
        enters[pc] &= !is_meeting(&inst.op);
    }
    (leads, enters)
}
