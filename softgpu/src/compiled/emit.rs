//! Code for one entry: a function that runs the lanes of a mask, one after the other, from one place to
//! where each of them meets others, ends, or has gone round for long enough.
//!
//! Registers of a lane are values of the function; they come from the warp's registers where a lane comes in,
//! and go back there where it leaves.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AliasRegion, AliasRegionData, Block, Function, InstBuilder, JumpTableData, MemFlagsData, SigRef, Type,
    Value, types,
};
use cranelift_frontend::{FunctionBuilder, Variable};

use super::context::{Field, Outside};
use super::flow::{Flow, Place, is_meeting, touched};
use super::{kinds, webs};
use crate::code::{Dst, Inst, Op, Pred, PredSrc, Program, Src};

/// A place where lanes leave, and who stands there then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// They have exited.
    Exited,
    /// They stand before this instruction.
    Before(u32),
}

/// What the rest of the engine must know about a function.
#[derive(Debug, Default)]
pub(super) struct Doors {
    /// Number of the way in at each instruction, where there is one.
    pub(super) ways_in: Vec<Option<u32>>,
    /// The ways out, by number.
    pub(super) ways_out: Vec<Leaving>,
}

pub(super) struct Emitter<'a, 'b> {
    pub(super) b: FunctionBuilder<'b>,
    pub(super) program: &'a Program,
    /// The entry as it lives with its code, whose addresses the code may have.
    pub(super) kept: &'a Program,
    pub(super) flow: &'a Flow,
    pub(super) kinds: Vec<Type>,
    pub(super) registers: Vec<Variable>,
    /// Where the warp keeps each register.
    pub(super) rows: Vec<usize>,
    pub(super) predicates: Vec<Variable>,
    pub(super) blocks: Vec<Option<Block>>,
    pub(super) context: Variable,
    pub(super) lane: Variable,
    /// The mask of lanes that are still to run.
    rest: Variable,
    /// Backward branches that the lane may still take.
    pub(super) fuel: Variable,
    /// The least that any lane had left.
    left: Variable,
    /// Where the lane's registers are: those of one lane are a row of registers apart.
    pub(super) row: Variable,
    next_lane: Block,
    /// Where a lane has come in.
    pub(super) comes: Block,
    pub(super) failed: Block,
    /// Ways back: the block, where it goes, and where it goes when the lane has gone round for long enough.
    backs: Vec<(Block, Block, Block)>,
    pub(super) outs: Vec<Block>,
    pub(super) doors: Doors,
    /// The operation being translated is for lanes with this predicate.
    pub(super) guard: Option<Value>,
    pub(super) own: AliasRegion,
    pub(super) theirs: AliasRegion,
    pub(super) fallback: (SigRef, i64),
    pub(super) calls: [SigRef; 5],
}

/// Bytes of a register of all lanes.
const ROW_BYTES: i32 = 256;

impl<'a, 'b> Emitter<'a, 'b> {
    /// Puts the code of an entry into a function.
    pub(super) fn emit(
        b: FunctionBuilder<'b>,
        program: &'a Program,
        flow: &'a Flow,
        outside: &Outside,
    ) -> Doors {
        let mut emitter = Self::start(b, program, flow, outside);
        let entry = emitter.b.create_block();
        let way = emitter.begin(entry);
        emitter.body();
        emitter.ways_back();
        emitter.ways_in(way);
        emitter.ways_out();
        let Self { mut b, doors, .. } = emitter;
        b.seal_all_blocks();
        b.finalize(outside.target);
        doors
    }

    pub(super) fn start(
        mut b: FunctionBuilder<'b>,
        program: &'a Program,
        flow: &'a Flow,
        outside: &Outside,
    ) -> Self {
        let kinds = kinds::of(program);
        let registers = kinds.iter().map(|kind| b.declare_var(*kind)).collect();
        let predicates = (0..program.predicates).map(|_| b.declare_var(types::I8)).collect();
        let blocks = flow.leads.iter().map(|leads| leads.then(|| b.create_block())).collect();
        let [context, row] = [types::I64; 2].map(|ty| b.declare_var(ty));
        let [lane, rest, fuel, left] = [types::I32; 4].map(|ty| b.declare_var(ty));
        let [next_lane, comes, failed] = [(); 3].map(|()| b.create_block());
        let mut region = |number: u32| {
            let data = AliasRegionData { user_id: number, description: "".into() };
            b.func.dfg.alias_regions.insert(data)
        };
        let (own, theirs) = (region(0), region(1));
        let (fallback, calls) = outside.import(b.func);
        Self {
            b,
            program,
            kept: program,
            flow,
            kinds,
            registers,
            rows: webs::own_rows(program),
            predicates,
            blocks,
            context,
            lane,
            rest,
            fuel,
            left,
            row,
            next_lane,
            comes,
            failed,
            backs: Vec::new(),
            outs: Vec::new(),
            doors: Doors::default(),
            guard: None,
            own,
            theirs,
            fallback,
            calls,
        }
    }

    /// What happens before and between lanes. Answers the number of the way in.
    fn begin(&mut self, entry: Block) -> Value {
        self.b.append_block_params_for_function_params(entry);
        self.b.switch_to_block(entry);
        let [context, way, mask] = self.b.block_params(entry) else { unreachable!("three parameters") };
        let (context, way, mask) = (*context, *way, *mask);
        self.b.def_var(self.context, context);
        let fuel = self.field(types::I32, Field::Fuel);
        self.b.def_var(self.rest, mask);
        self.b.def_var(self.left, fuel);
        self.b.ins().jump(self.next_lane, &[]);

        self.b.switch_to_block(self.next_lane);
        let rest = self.b.use_var(self.rest);
        let (comes, done) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(rest, comes, &[], done, &[]);
        self.b.switch_to_block(done);
        let left = self.b.use_var(self.left);
        self.set_field(Field::Left, left);
        self.b.ins().return_(&[]);
        self.b.set_cold_block(self.failed);
        self.b.switch_to_block(self.failed);
        self.b.ins().return_(&[]);

        self.b.switch_to_block(comes);
        let lane = self.b.ins().ctz(rest);
        let less = self.b.ins().iadd_imm_s(rest, -1);
        let rest = self.b.ins().band(rest, less);
        let fuel = self.field(types::I32, Field::Fuel);
        self.b.def_var(self.rest, rest);
        self.b.def_var(self.lane, lane);
        self.b.def_var(self.fuel, fuel);
        let registers = self.field(types::I64, Field::Registers);
        let lane = self.b.ins().uextend(types::I64, lane);
        let offset = self.b.ins().ishl_imm_u(lane, 3);
        let row = self.b.ins().iadd(registers, offset);
        self.b.def_var(self.row, row);
        self.b.ins().jump(self.comes, &[]);
        way
    }

    fn ways_in(&mut self, way: Value) {
        self.doors.ways_in = vec![None; self.program.code.len()];
        let mut targets = Vec::new();
        for pc in 0..self.program.code.len() {
            if !self.flow.enters[pc] {
                continue;
            }
            let Some(target) = self.blocks[pc] else { continue };
            self.doors.ways_in[pc] = u32::try_from(targets.len()).ok();
            let block = self.b.create_block();
            targets.push(block);
            self.b.switch_to_block(block);
            for place in self.flow.live(pc) {
                self.fetch(place);
            }
            self.b.ins().jump(target, &[]);
        }
        self.b.switch_to_block(self.comes);
        match targets[..] {
            [] => self.b.ins().jump(self.failed, &[]),
            [only] => self.b.ins().jump(only, &[]),
            [first, ..] => {
                let mut call = |block| self.b.func.dfg.block_call(block, &[]);
                let table: Vec<_> = targets.iter().map(|block| call(*block)).collect();
                let data = JumpTableData::new(call(first), &table);
                let table = self.b.create_jump_table(data);
                self.b.ins().br_table(way, table)
            }
        };
    }

    fn ways_out(&mut self) {
        for (index, leaving) in self.doors.ways_out.clone().into_iter().enumerate() {
            self.b.switch_to_block(self.outs[index]);
            if let Leaving::Before(pc) = leaving {
                for place in self.flow.kept(pc as usize) {
                    self.store(place);
                }
            }
            let fuel = self.b.use_var(self.fuel);
            let left = self.b.use_var(self.left);
            let left = self.b.ins().umin(left, fuel);
            self.b.def_var(self.left, left);
            let lane = self.b.use_var(self.lane);
            let one = self.b.ins().iconst(types::I32, 1);
            let bit = self.b.ins().ishl(one, lane);
            let out = self.field(types::I64, Field::Out);
            let offset = i32::try_from(index * 4).unwrap_or(0);
            let flags = self.own_flags();
            let mask = self.b.ins().load(types::I32, flags, out, offset);
            let mask = self.b.ins().bor(mask, bit);
            self.b.ins().store(flags, mask, out, offset);
            self.b.ins().jump(self.next_lane, &[]);
        }
    }

    /// Where lanes go that leave.
    pub(super) fn out(&mut self, leaving: Leaving) -> Block {
        if let Some(index) = self.doors.ways_out.iter().position(|known| *known == leaving) {
            return self.outs[index];
        }
        let block = self.b.create_block();
        self.doors.ways_out.push(leaving);
        self.outs.push(block);
        block
    }

    fn body(&mut self) {
        let code = &self.program.code;
        let mut open = false;
        for (pc, inst) in code.iter().enumerate() {
            if let Some(block) = self.blocks[pc] {
                if open {
                    self.b.ins().jump(block, &[]);
                }
                self.b.switch_to_block(block);
            }
            open = true;
            let Inst { guard, op } = inst;
            if is_meeting(op) {
                let out = self.out(Leaving::Before(u32::try_from(pc).unwrap_or(u32::MAX)));
                self.b.ins().jump(out, &[]);
                open = false;
                continue;
            }
            match *op {
                Op::Branch { target } => {
                    let taken = self.branch(pc, target as usize);
                    self.leave_block(*guard, taken, pc);
                    open = false;
                }
                Op::Exit => {
                    let out = self.out(Leaving::Exited);
                    self.leave_block(*guard, out, pc);
                    open = false;
                }
                _ => self.guarded(pc, *guard, op),
            }
        }
    }

    /// Goes to a block where the predicate holds, and else behind this instruction.
    pub(super) fn leave_block(&mut self, guard: Option<PredSrc>, taken: Block, pc: usize) {
        match guard {
            None => {
                self.b.ins().jump(taken, &[]);
            }
            Some(guard) => {
                let holds = self.predicate(guard);
                let behind = self.blocks.get(pc + 1).copied().flatten().unwrap_or(self.failed);
                self.b.ins().brif(holds, taken, &[], behind, &[]);
            }
        }
    }

    /// The block that a branch goes to: on the way back there is a look at the fuel, and at whether
    /// mappings have changed.
    pub(super) fn branch(&mut self, pc: usize, target: usize) -> Block {
        let there = self.blocks[target].unwrap_or(self.failed);
        if target > pc || is_meeting(&self.program.code[target].op) {
            return there;
        }
        let out = self.out(Leaving::Before(u32::try_from(target).unwrap_or(u32::MAX)));
        let back = self.b.create_block();
        self.backs.push((back, there, out));
        back
    }

    pub(super) fn ways_back(&mut self) {
        for (back, there, out) in std::mem::take(&mut self.backs) {
            self.b.switch_to_block(back);
            let fuel = self.b.use_var(self.fuel);
            let fuel = self.b.ins().iadd_imm_s(fuel, -1);
            self.b.def_var(self.fuel, fuel);
            let seen = self.field(types::I64, Field::Seen);
            let now = self.field(types::I64, Field::Generation);
            // Also keeps loads of one turn of the loop apart from those of the next.
            let now = self.b.ins().atomic_load(types::I64, MemFlagsData::trusted(), now);
            let changed = self.b.ins().icmp(IntCC::NotEqual, seen, now);
            let spent = self.b.ins().icmp_imm_s(IntCC::Equal, fuel, 0);
            let stop = self.b.ins().bor(changed, spent);
            self.b.ins().brif(stop, out, &[], there, &[]);
        }
    }

    pub(super) fn guarded(&mut self, pc: usize, guard: Option<PredSrc>, op: &Op) {
        let Some(guard) = guard else { return self.op(pc, op) };
        let holds = self.predicate(guard);
        if kinds::is_cheap(op) {
            self.guard = Some(holds);
            self.op(pc, op);
            self.guard = None;
            return;
        }
        let (then, behind) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(holds, then, &[], behind, &[]);
        self.b.switch_to_block(then);
        self.op(pc, op);
        self.b.ins().jump(behind, &[]);
        self.b.switch_to_block(behind);
    }

    /// The interpreter does this operation for the lane.
    pub(super) fn fall_back(&mut self, pc: usize) {
        let touched = touched(self.program, &self.program.code[pc].op);
        for place in touched.reads {
            self.store(place);
        }
        let lane = self.b.use_var(self.lane);
        let one = self.b.ins().iconst(types::I64, 1);
        let bit = self.b.ins().ishl(one, lane);
        self.call_back(pc, bit);
        for place in touched.writes {
            self.fetch(place);
        }
    }

    /// The interpreter does this operation for the lanes of a mask, where the warp keeps their registers.
    pub(super) fn call_back(&mut self, pc: usize, lanes: Value) {
        let context = self.b.use_var(self.context);
        let number = self.b.ins().iconst(types::I64, i64::try_from(pc).unwrap_or(0));
        let (signature, address) = self.fallback;
        let callee = self.b.ins().iconst(types::I64, address);
        self.b.ins().call_indirect(signature, callee, &[context, number, lanes]);
        let failed = self.field(types::I32, Field::Failed);
        let fine = self.b.create_block();
        self.b.ins().brif(failed, self.failed, &[], fine, &[]);
        self.b.switch_to_block(fine);
    }

    /// A place's value comes from the warp.
    pub(super) fn fetch(&mut self, place: Place) {
        let flags = self.own_flags();
        let registers = self.kinds.len();
        if place < registers {
            let row = self.b.use_var(self.row);
            let offset = self.row_offset(place);
            let value = self.b.ins().load(self.kinds[place], flags, row, offset);
            self.b.def_var(self.registers[place], value);
            return;
        }
        let index = place - registers;
        let predicates = self.field(types::I64, Field::Predicates);
        let mask = self.b.ins().load(types::I32, flags, predicates, word_offset(index));
        let lane = self.b.use_var(self.lane);
        let bit = self.b.ins().ushr(mask, lane);
        let bit = self.b.ins().band_imm_u(bit, 1);
        let bit = self.b.ins().ireduce(types::I8, bit);
        self.b.def_var(self.predicates[index], bit);
    }

    /// A place's value goes to the warp.
    pub(super) fn store(&mut self, place: Place) {
        let flags = self.own_flags();
        let registers = self.kinds.len();
        if place < registers {
            let row = self.b.use_var(self.row);
            let value = self.b.use_var(self.registers[place]);
            let offset = self.row_offset(place);
            self.b.ins().store(flags, value, row, offset);
            return;
        }
        let index = place - registers;
        let value = self.b.use_var(self.predicates[index]);
        let predicates = self.field(types::I64, Field::Predicates);
        let lane = self.b.use_var(self.lane);
        let value = self.b.ins().uextend(types::I32, value);
        let value = self.b.ins().ishl(value, lane);
        let one = self.b.ins().iconst(types::I32, 1);
        let bit = self.b.ins().ishl(one, lane);
        let mask = self.b.ins().load(types::I32, flags, predicates, word_offset(index));
        let others = self.b.ins().band_not(mask, bit);
        let mask = self.b.ins().bor(others, value);
        self.b.ins().store(flags, mask, predicates, word_offset(index));
    }

    /// How far behind the row of the first register that of another one is.
    pub(super) fn row_offset(&self, register: usize) -> i32 {
        i32::try_from(self.rows[register]).unwrap_or(0) * ROW_BYTES
    }

    /// For what belongs to the warp or the engine.
    pub(super) fn own_flags(&self) -> MemFlagsData {
        MemFlagsData::trusted().with_alias_region(Some(self.own))
    }

    /// A field of the context.
    pub(super) fn field(&mut self, ty: Type, field: Field) -> Value {
        let context = self.b.use_var(self.context);
        let flags = self.own_flags();
        self.b.ins().load(ty, flags, context, field.offset())
    }

    pub(super) fn set_field(&mut self, field: Field, value: Value) {
        let context = self.b.use_var(self.context);
        let flags = self.own_flags();
        self.b.ins().store(flags, value, context, field.offset());
    }

    /// The value of a constant operand.
    pub(super) fn constant(&self, src: Src) -> Option<u64> {
        src.constant_number().map(|index| self.program.constants[index as usize][0])
    }

    /// An operand as a value of some type.
    pub(super) fn src(&mut self, src: Src, ty: Type) -> Value {
        let (value, kind) = match (self.constant(src), src.register_number()) {
            (Some(word), _) => return self.literal(word, ty),
            (None, Some(index)) if index != Dst::SINK.0 => {
                let index = index as usize;
                (self.b.use_var(self.registers[index]), self.kinds[index])
            }
            (None, _) => return self.literal(0, ty),
        };
        self.turned(value, kind, ty)
    }

    pub(super) fn literal(&mut self, word: u64, ty: Type) -> Value {
        let low = (word & 0xffff_ffff).cast_signed();
        match ty {
            types::F32 => {
                let bits = self.b.ins().iconst(types::I32, low);
                self.b.ins().bitcast(types::F32, MemFlagsData::new(), bits)
            }
            types::F64 => {
                let bits = self.b.ins().iconst(types::I64, word.cast_signed());
                self.b.ins().bitcast(types::F64, MemFlagsData::new(), bits)
            }
            types::I64 => self.b.ins().iconst(types::I64, word.cast_signed()),
            _ => self.b.ins().iconst(types::I32, low),
        }
    }

    /// The bits of a value as a value of another type; what is wider is zero above.
    pub(super) fn turned(&mut self, value: Value, from: Type, to: Type) -> Value {
        if from == to {
            return value;
        }
        let bits = if from.is_float() {
            self.b.ins().bitcast(from.as_int(), MemFlagsData::new(), value)
        } else {
            value
        };
        let wide = to.as_int();
        let bits = match (from.bits(), to.bits()) {
            (32, 64) => self.b.ins().uextend(wide, bits),
            (64, 32) => self.b.ins().ireduce(wide, bits),
            _ => bits,
        };
        if to.is_float() { self.b.ins().bitcast(to, MemFlagsData::new(), bits) } else { bits }
    }

    /// Gives a register a value; its bits are the low bits of the register.
    pub(super) fn set(&mut self, d: Dst, value: Value) {
        if d == Dst::SINK {
            return;
        }
        let index = d.0 as usize;
        let from = self.b.func.dfg.value_type(value);
        let value = self.turned(value, from, self.kinds[index]);
        let value = match self.guard {
            None => value,
            Some(guard) => {
                let before = self.b.use_var(self.registers[index]);
                self.b.ins().select(guard, value, before)
            }
        };
        self.b.def_var(self.registers[index], value);
    }

    /// A predicate, one or zero.
    pub(super) fn predicate(&mut self, src: PredSrc) -> Value {
        let value = match src.of {
            Pred::TRUE => self.b.ins().iconst(types::I8, 1),
            Pred::SINK => self.b.ins().iconst(types::I8, 0),
            Pred(index) => self.b.use_var(self.predicates[index as usize]),
        };
        if src.negated { self.b.ins().bxor_imm_u(value, 1) } else { value }
    }

    /// Gives a predicate a value, one or zero.
    pub(super) fn set_predicate(&mut self, p: Pred, value: Value) {
        if p == Pred::SINK {
            return;
        }
        let variable = self.predicates[p.0 as usize];
        let value = match self.guard {
            None => value,
            Some(guard) => {
                let before = self.b.use_var(variable);
                self.b.ins().select(guard, value, before)
            }
        };
        self.b.def_var(variable, value);
    }
}

pub(super) fn word_offset(predicate: usize) -> i32 {
    i32::try_from(predicate).unwrap_or(0) * 4
}

/// The parameters of the function: context, way in, mask.
pub(super) fn signature(function: &mut Function) {
    use cranelift_codegen::ir::AbiParam;
    function.signature.params.extend([types::I64, types::I32, types::I32].map(AbiParam::new));
}
