//! Code for an entry that runs several neighbouring lanes of a warp at once: a *gang*.
//!
//! What is the same for all lanes is computed once, and so is what follows from lane to lane by a known
//! stride, above all addresses; the rest is computed in vectors. Where lanes take different ways they part:
//! each goes on by itself in the code for one lane, up to the next meeting.
//!
//! # Invariants
//! 1. A gang parts before an operation, never in its middle: no lane does anything twice.
//! 2. A register whose pattern is even lives as the first lane's value alone; wherever lanes come in,
//!    somebody has seen that the others follow.

mod arithmetic;
mod reach;
mod vectors;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Block, InstBuilder, JumpTableData, Value, types};
use cranelift_frontend::Variable;

use super::context::{Field, Outside};
use super::emit::{Emitter, Leaving};
use super::flow::{Place, is_meeting, touched};
use super::patterns::{Hope, Pattern, Patterns, Plan};
use crate::code::{Dst, Inst, Op, PredSrc, Program, Src};

/// How a gang ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// All of it stands in one place.
    Together(Leaving),
    /// Its lanes go on one by one from this instruction.
    Apart(u32),
}

/// What the rest of the engine must know about the function.
#[derive(Debug, Default)]
pub(super) struct Doors {
    /// For each way in what has to be so there, or `None` where gangs do not come in.
    pub(super) ways_in: Vec<Option<Vec<Place>>>,
    /// The ways out, by number.
    pub(super) ways_out: Vec<Ending>,
}

/// The instructions where lanes of a gang may part.
pub(super) fn partings(program: &Program, patterns: &Patterns) -> Vec<bool> {
    let parts = |inst: &Inst| match inst.op {
        Op::Branch { .. } | Op::Exit => inst.guard.is_some_and(|guard| patterns.pred(guard)),
        ref op if is_meeting(op) => false,
        ref op => {
            let varies = |place: &Place| {
                *place < program.widths.len() && patterns.register(*place) == Pattern::Varying
            };
            let writes = touched(program, op).writes;
            match patterns.plan(program, op) {
                Plan::Hoping { .. } => !writes.iter().any(varies),
                Plan::Halves { .. } => !writes.iter().all(varies),
                Plan::Once | Plan::First(_) | Plan::Each => false,
            }
        }
    };
    program.code.iter().map(parts).collect()
}

struct Gang<'a, 'b> {
    /// For the first lane, and for what is done once.
    e: Emitter<'a, 'b>,
    patterns: &'a Patterns,
    lanes: usize,
    /// Of each register that varies, in vectors.
    vectors: Vec<Vec<Variable>>,
    /// Of each predicate that differs, in vectors of all ones or zeros.
    masks: Vec<Vec<Variable>>,
    /// What is written now, is so only for lanes of this mask.
    mask: Option<Vec<Value>>,
    partings: Vec<(u32, Block)>,
}

/// Puts the code of an entry for gangs into a function.
pub(super) fn emit(mut e: Emitter<'_, '_>, patterns: &Patterns, lanes: usize, outside: &Outside) -> Doors {
    let mut vectors = Vec::with_capacity(e.kinds.len());
    for (register, kind) in e.kinds.clone().into_iter().enumerate() {
        let varies = patterns.register(register) == Pattern::Varying;
        let count = if varies { lanes * kind.bytes() as usize / 16 } else { 0 };
        let ty = vectors::of(kind);
        vectors.push((0..count).map(|_| e.b.declare_var(ty)).collect());
    }
    let mut masks = Vec::with_capacity(e.predicates.len());
    for predicate in 0..e.predicates.len() {
        let count = if patterns.differs(predicate) { lanes / 4 } else { 0 };
        masks.push((0..count).map(|_| e.b.declare_var(types::I32X4)).collect());
    }
    let mut gang = Gang { e, patterns, lanes, vectors, masks, mask: None, partings: Vec::new() };
    let entry = gang.e.b.create_block();
    let way = gang.begin(entry);
    gang.body();
    gang.e.ways_back();
    let ways_in = gang.ways_in(way);
    let ways_out = gang.ways_out();
    let mut b = gang.e.b;
    b.seal_all_blocks();
    b.finalize(outside.target);
    Doors { ways_in, ways_out }
}

impl Gang<'_, '_> {
    /// What happens first. Answers the number of the way in.
    fn begin(&mut self, entry: Block) -> Value {
        let e = &mut self.e;
        e.b.append_block_params_for_function_params(entry);
        e.b.switch_to_block(entry);
        let [context, way, lane] = e.b.block_params(entry) else { unreachable!("three parameters") };
        let (context, way, lane) = (*context, *way, *lane);
        e.b.def_var(e.context, context);
        e.b.def_var(e.lane, lane);
        let fuel = e.field(types::I32, Field::Fuel);
        e.b.def_var(e.fuel, fuel);
        self.stand_at(lane);
        let e = &mut self.e;
        e.b.ins().jump(e.comes, &[]);
        e.b.set_cold_block(e.failed);
        e.b.switch_to_block(e.failed);
        e.b.ins().return_(&[]);
        way
    }

    /// What is done for one lane is done for this one.
    fn stand_at(&mut self, lane: Value) {
        let e = &mut self.e;
        e.b.def_var(e.lane, lane);
        let registers = e.field(types::I64, Field::Registers);
        let lane = e.b.ins().uextend(types::I64, lane);
        let offset = e.b.ins().ishl_imm_u(lane, 3);
        let row = e.b.ins().iadd(registers, offset);
        e.b.def_var(e.row, row);
    }

    fn ways_in(&mut self, way: Value) -> Vec<Option<Vec<Place>>> {
        let mut ways = Vec::new();
        let mut targets = Vec::new();
        for pc in 0..self.e.program.code.len() {
            if !self.e.flow.enters[pc] {
                continue;
            }
            let Some(target) = self.e.blocks[pc].filter(|_| !self.e.flow.parts[pc]) else {
                ways.push(None);
                targets.push(self.e.failed);
                continue;
            };
            let block = self.e.b.create_block();
            targets.push(block);
            self.e.b.switch_to_block(block);
            let live: Vec<Place> = self.e.flow.live(pc).collect();
            for place in &live {
                if self.varies(*place) {
                    self.fetch_all(*place);
                } else {
                    self.e.fetch(*place);
                }
            }
            self.e.b.ins().jump(target, &[]);
            ways.push(Some(live.into_iter().filter(|place| !self.varies(*place)).collect()));
        }
        self.e.b.switch_to_block(self.e.comes);
        let b = &mut self.e.b;
        let mut call = |block| b.func.dfg.block_call(block, &[]);
        let table: Vec<_> = targets.iter().map(|block| call(*block)).collect();
        let data = JumpTableData::new(call(self.e.failed), &table);
        let table = b.create_jump_table(data);
        b.ins().br_table(way, table);
        ways
    }

    fn ways_out(&mut self) -> Vec<Ending> {
        let together = self.e.doors.ways_out.iter().zip(&self.e.outs);
        let mut outs: Vec<(Ending, Block)> =
            together.map(|(leaving, block)| (Ending::Together(*leaving), *block)).collect();
        outs.extend(self.partings.iter().map(|(pc, block)| (Ending::Apart(*pc), *block)));
        for (index, (ending, block)) in outs.iter().enumerate() {
            self.e.b.switch_to_block(*block);
            if let Ending::Together(Leaving::Before(pc)) | Ending::Apart(pc) = *ending {
                let kept: Vec<Place> = self.e.flow.kept(pc as usize).collect();
                kept.into_iter().for_each(|place| self.store_all(place));
            }
            let left = self.e.b.use_var(self.e.fuel);
            self.e.set_field(Field::Left, left);
            let number = i64::try_from(index).unwrap_or(i64::MAX);
            let number = self.e.b.ins().iconst(types::I32, number);
            self.e.set_field(Field::Gone, number);
            self.e.b.ins().return_(&[]);
        }
        outs.into_iter().map(|(ending, _)| ending).collect()
    }

    fn body(&mut self) {
        let code = &self.e.program.code;
        let mut open = false;
        for (pc, Inst { guard, op }) in code.iter().enumerate() {
            if let Some(block) = self.e.blocks[pc] {
                if open {
                    self.e.b.ins().jump(block, &[]);
                }
                self.e.b.switch_to_block(block);
            }
            open = true;
            if is_meeting(op) {
                let out = self.e.out(Leaving::Before(u32::try_from(pc).unwrap_or(u32::MAX)));
                self.e.b.ins().jump(out, &[]);
                open = false;
                continue;
            }
            match *op {
                Op::Branch { target } => {
                    let taken = self.e.branch(pc, target as usize);
                    self.leave_block(*guard, taken, pc);
                    open = false;
                }
                Op::Exit => {
                    let out = self.e.out(Leaving::Exited);
                    self.leave_block(*guard, out, pc);
                    open = false;
                }
                _ => self.instruction(pc, *guard, op),
            }
        }
    }

    /// Goes to a block where the predicate holds for all lanes, behind the instruction where it does for
    /// none, and apart where they differ.
    fn leave_block(&mut self, guard: Option<PredSrc>, taken: Block, pc: usize) {
        let Some(guard) = guard.filter(|guard| self.patterns.pred(*guard)) else {
            return self.e.leave_block(guard, taken, pc);
        };
        let behind = self.e.blocks.get(pc + 1).copied().flatten().unwrap_or(self.e.failed);
        let apart = self.apart(pc);
        self.agree(guard, taken, behind, apart);
    }

    /// Where lanes go that part before an instruction.
    fn apart(&mut self, pc: usize) -> Block {
        let block = self.e.b.create_block();
        self.e.b.set_cold_block(block);
        self.partings.push((u32::try_from(pc).unwrap_or(u32::MAX), block));
        block
    }

    /// Goes where all lanes go, or elsewhere if they differ.
    fn agree(&mut self, guard: PredSrc, all: Block, none: Block, mixed: Block) {
        let masks: Vec<Value> =
            self.masks[guard.of.0 as usize].iter().map(|mask| self.e.b.use_var(*mask)).collect();
        let b = &mut self.e.b;
        let both = tree(masks.clone(), |x, y| b.ins().band(x, y));
        let either = tree(masks, |x, y| b.ins().bor(x, y));
        let holds = b.ins().vall_true(both);
        let some = b.ins().vany_true(either);
        let (all, none) = if guard.negated { (none, all) } else { (all, none) };
        let not_all = b.create_block();
        b.ins().brif(holds, all, &[], not_all, &[]);
        b.switch_to_block(not_all);
        b.ins().brif(some, mixed, &[], none, &[]);
    }

    fn instruction(&mut self, pc: usize, guard: Option<PredSrc>, op: &Op) {
        let plan = self.patterns.plan(self.e.program, op);
        let Some(guard) = guard else { return self.unguarded(pc, plan, op) };
        let touched = touched(self.e.program, op);
        let effects = matches!(
            op,
            Op::Load { .. } | Op::Store { .. } | Op::Atomic { .. } | Op::Copy { .. } | Op::Fence
        );
        if self.patterns.pred(guard) {
            if !effects {
                self.mask = Some(self.masks_of(guard));
                self.unguarded(pc, plan, op);
                self.mask = None;
                return;
            }
            let [all, mixed, behind] = [(); 3].map(|()| self.e.b.create_block());
            self.agree(guard, all, behind, mixed);
            self.e.b.switch_to_block(mixed);
            self.lane_by_lane(pc, Some(guard), op);
            self.e.b.ins().jump(behind, &[]);
            self.e.b.switch_to_block(all);
            self.unguarded(pc, plan, op);
            self.e.b.ins().jump(behind, &[]);
            self.e.b.switch_to_block(behind);
            return;
        }
        if plan == Plan::Once && !touched.writes.iter().any(|place| self.varies(*place)) {
            return self.e.guarded(pc, Some(guard), op);
        }
        let (then, behind) = (self.e.b.create_block(), self.e.b.create_block());
        let holds = self.e.predicate(guard);
        self.e.b.ins().brif(holds, then, &[], behind, &[]);
        self.e.b.switch_to_block(then);
        self.unguarded(pc, plan, op);
        self.e.b.ins().jump(behind, &[]);
        self.e.b.switch_to_block(behind);
    }

    fn unguarded(&mut self, pc: usize, plan: Plan, op: &Op) {
        let writes = touched(self.e.program, op).writes;
        let varies = writes.iter().any(|place| self.varies(*place));
        match plan {
            Plan::Once | Plan::First(_) => {
                self.e.op(pc, op);
                let stride = if let Plan::First(stride) = plan { stride } else { 0 };
                writes.into_iter().for_each(|place| self.spread(place, stride));
            }
            Plan::Hoping { stride, of, hope, signed } if !varies => {
                self.hoping(pc, op, stride, of, hope, signed);
            }
            Plan::Halves { stride, of } if !writes.iter().all(|place| self.varies(*place)) => {
                self.halves(pc, op, stride, of);
            }
            Plan::Hoping { .. } | Plan::Halves { .. } | Plan::Each => self.each(pc, op),
        }
    }

    /// The first lane's halves of a word, if the high one is the same for all lanes; else lanes part.
    fn halves(&mut self, pc: usize, op: &Op, stride: i64, of: Src) {
        let Op::Unpack { d: [low, high, ..], .. } = *op else { return };
        let far = i64::try_from(self.lanes - 1).unwrap_or(0);
        let first = self.e.src(of, types::I64);
        let last = self.e.b.ins().iadd_imm_s(first, stride * far);
        let [first, last] = [first, last].map(|word| self.e.b.ins().ushr_imm_u(word, 32));
        let holds = self.e.b.ins().icmp(IntCC::Equal, first, last);
        let (fine, apart) = (self.e.b.create_block(), self.apart(pc));
        self.e.b.ins().brif(holds, fine, &[], apart, &[]);
        self.e.b.switch_to_block(fine);
        self.e.op(pc, op);
        for (d, stride) in [(low, stride), (high, 0)] {
            if d != Dst::SINK {
                self.spread(d.0 as usize, stride);
            }
        }
    }

    fn each(&mut self, pc: usize, op: &Op) {
        if self.in_vectors(op) {
            return;
        }
        match *op {
            Op::Load { shape, at, d } => self.load(pc, shape, at, d),
            Op::Store { shape, at, a } => self.store_to(pc, shape, at, a),
            Op::Atomic { .. } => self.lane_by_lane(pc, None, op),
            _ => self.interpreted(pc),
        }
    }

    /// The first lane's result, where those of the others follow from it; else lanes part.
    fn hoping(&mut self, pc: usize, op: &Op, stride: i64, of: Src, hope: Hope, signed: bool) {
        let Some(operand) = of.register_number() else { return self.each(pc, op) };
        let [Some(d), None] = [0, 1].map(|index| touched(self.e.program, op).writes.get(index).copied())
        else {
            return self.each(pc, op);
        };
        let Pattern::Even(step) = self.patterns.src(of) else { return self.each(pc, op) };
        let operand = operand as usize;
        let far = i64::try_from(self.lanes - 1).unwrap_or(0);
        let (kind, result) = (self.e.kinds[operand], self.e.kinds[d]);
        let (from, to) = (self.e.registers[operand], self.e.registers[d]);
        let (base, before) = (self.e.b.use_var(from), self.e.b.use_var(to));
        let count = self.e.turned(base, kind, kind.as_int());
        let last = self.e.b.ins().iadd_imm_s(count, step * far);
        let order = if signed { IntCC::SignedLessThanOrEqual } else { IntCC::UnsignedLessThanOrEqual };
        let mut holds = self.e.b.ins().icmp(order, count, last);
        if hope != Hope::Counts {
            let last = self.e.turned(last, kind.as_int(), kind);
            self.e.b.def_var(from, last);
            self.e.op(pc, op);
            let last = self.e.b.use_var(to);
            self.e.b.def_var(from, base);
            self.e.op(pc, op);
            let first = self.e.b.use_var(to);
            self.e.b.def_var(to, before);
            self.e.b.def_var(from, base);
            let [last, first] = [last, first].map(|value| self.e.turned(value, result, result.as_int()));
            let wanted = self.e.b.ins().iadd_imm_s(first, stride * far);
            let follows = self.e.b.ins().icmp(IntCC::Equal, last, wanted);
            holds = self.e.b.ins().band(holds, follows);
        }
        let (fine, apart) = (self.e.b.create_block(), self.apart(pc));
        self.e.b.ins().brif(holds, fine, &[], apart, &[]);
        self.e.b.switch_to_block(fine);
        self.e.op(pc, op);
    }

    /// Whether a place is held for each lane.
    fn varies(&self, place: Place) -> bool {
        match place.checked_sub(self.e.kinds.len()) {
            None => self.patterns.register(place) == Pattern::Varying,
            Some(predicate) => self.patterns.differs(predicate),
        }
    }

    /// What was computed for the first lane is for all, with a stride.
    fn spread(&mut self, place: Place, stride: i64) {
        if !self.varies(place) {
            return;
        }
        match place.checked_sub(self.e.kinds.len()) {
            None => {
                let first = self.e.b.use_var(self.e.registers[place]);
                let kind = self.e.kinds[place];
                let values = self.in_steps(first, kind, stride);
                self.set(Dst(u32::try_from(place).unwrap_or(0)), values, kind);
            }
            Some(predicate) => {
                let value = self.e.b.use_var(self.e.predicates[predicate]);
                let masks = self.mask_of_one(value);
                self.set_masks(predicate, masks);
            }
        }
    }

    /// The interpreter does the operation for all lanes.
    fn interpreted(&mut self, pc: usize) {
        let touched = touched(self.e.program, &self.e.program.code[pc].op);
        touched.reads.iter().for_each(|place| self.store_all(*place));
        let lane = self.e.b.use_var(self.e.lane);
        let lanes = self.e.b.ins().iconst(types::I64, (1 << self.lanes) - 1);
        let lanes = self.e.b.ins().ishl(lanes, lane);
        self.e.call_back(pc, lanes);
        touched.writes.iter().for_each(|place| self.take(*place));
    }

    /// A written place's value comes from the warp.
    fn take(&mut self, place: Place) {
        if self.varies(place) { self.fetch_all(place) } else { self.e.fetch(place) }
    }

    /// Lane after lane does the operation, where the warp keeps its registers.
    fn lane_by_lane(&mut self, pc: usize, guard: Option<PredSrc>, op: &Op) {
        let touched = touched(self.e.program, op);
        let count = self.e.kinds.len();
        let mut needed = touched.reads;
        if let Some(guard) = guard {
            needed.push(count + guard.of.0 as usize);
            needed.extend(&touched.writes);
        }
        needed.sort_unstable();
        needed.dedup();
        needed.iter().for_each(|place| self.store_all(*place));
        let variable = |gang: &Self, place: Place| match place.checked_sub(count) {
            None => gang.e.registers[place],
            Some(predicate) => gang.e.predicates[predicate],
        };
        // What is held once is the first lane's again afterwards.
        let mut held = Vec::new();
        for place in needed.iter().copied() {
            if self.varies(place) {
                continue;
            }
            let variable = variable(self, place);
            held.push((variable, self.e.b.use_var(variable)));
        }
        let first = self.e.b.use_var(self.e.lane);
        let end = i64::try_from(self.lanes).unwrap_or(0);
        let end = self.e.b.ins().iadd_imm_s(first, end);
        let (turn, done) = (self.e.b.create_block(), self.e.b.create_block());
        self.e.b.ins().jump(turn, &[]);
        self.e.b.switch_to_block(turn);
        let lane = self.e.b.use_var(self.e.lane);
        self.stand_at(lane);
        needed.iter().for_each(|place| self.e.fetch(*place));
        self.e.guarded(pc, guard, op);
        touched.writes.iter().for_each(|place| self.e.store(*place));
        let next = self.e.b.ins().iadd_imm_s(lane, 1);
        self.e.b.def_var(self.e.lane, next);
        let more = self.e.b.ins().icmp(IntCC::NotEqual, next, end);
        self.e.b.ins().brif(more, turn, &[], done, &[]);
        self.e.b.switch_to_block(done);
        self.stand_at(first);
        for (variable, value) in held {
            self.e.b.def_var(variable, value);
        }
        touched.writes.iter().for_each(|place| self.take(*place));
    }
}

/// All values as one.
fn tree(mut values: Vec<Value>, mut join: impl FnMut(Value, Value) -> Value) -> Value {
    while values.len() > 1 {
        values = values.chunks(2).map(|pair| if let [x, y] = *pair { join(x, y) } else { pair[0] }).collect();
    }
    values[0]
}
