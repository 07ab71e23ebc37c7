//! How values relate over the lanes of a gang, found out before code is made.
//!
//! One pattern for each register, whatever the place in the program. It holds wherever lanes run as a gang:
//! the code computes what it says, checks what it only hopes for, and a gang comes in only if its registers
//! are as they should be.

use super::flow::{is_meeting, touched};
use crate::alu::name::Name;
use crate::code::{BarrierMode, Collective, Dst, Inst, Op, Pred, PredSrc, Program, Region, Special, Src};

/// How a register's values relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Each lane's is so much more than that of the lane before it, in the register's width.
    Even(i64),
    /// Any.
    Varying,
}

/// All lanes have one value.
pub(super) const SAME: Pattern = Pattern::Even(0);

/// Strides beyond this are not looked at.
const STRIDE_MAX: i64 = 1 << 24;

/// What has to be looked at while it runs; each of them needs that counting from the first lane to the last
/// does not wrap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hope {
    /// Nothing else.
    Counts,
    /// The first lane and the last one have the same result.
    Same,
    /// The last lane's result is as far from the first one's as their operands are.
    Follows,
}

/// How an operation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plan {
    /// Once for all lanes.
    Once,
    /// For the first lane, from which those of the others follow.
    First(i64),
    /// For the first lane, if a hope for an operand comes true, which is a signed number or not.
    Hoping { stride: i64, of: Src, hope: Hope, signed: bool },
    /// The halves of a word, for the first lane: the low one goes up by so much, and the high one is the same for all
    /// if the first lane's and the last lane's are.
    Halves { stride: i64, of: Src },
    /// For each lane.
    Each,
}

/// The patterns of an entry's registers and predicates.
#[derive(Debug)]
pub(super) struct Patterns {
    registers: Vec<Option<Pattern>>,
    /// Whether lanes may differ.
    predicates: Vec<Option<bool>>,
    lanes: i64,
}

impl Patterns {
    /// Looks at an entry that runs in gangs of so many lanes.
    pub(super) fn of(program: &Program, lanes: usize) -> Self {
        let mut patterns = Self {
            registers: vec![Some(SAME); program.widths.len()],
            predicates: vec![Some(false); program.predicates as usize],
            lanes: i64::try_from(lanes).unwrap_or(1),
        };
        // What is written is unknown until something is known that it is made of.
        for inst in &program.code {
            for place in touched(program, &inst.op).writes {
                match place.checked_sub(program.registers as usize) {
                    None => patterns.registers[place] = None,
                    Some(predicate) => patterns.predicates[predicate] = None,
                }
            }
        }
        patterns.settle(program);
        // What is made of itself alone comes in as it may, which is looked at.
        patterns.registers.iter_mut().for_each(|pattern| _ = pattern.get_or_insert(SAME));
        patterns.predicates.iter_mut().for_each(|differs| _ = differs.get_or_insert(false));
        patterns.settle(program);
        patterns
    }

    fn settle(&mut self, program: &Program) {
        while program.code.iter().fold(false, |changed, inst| self.learn(program, inst) | changed) {}
    }

    /// Of a register.
    pub(super) fn register(&self, register: usize) -> Pattern {
        self.registers[register].unwrap_or(SAME)
    }

    /// Whether lanes may differ in a predicate.
    pub(super) fn differs(&self, predicate: usize) -> bool {
        self.predicates[predicate].unwrap_or(false)
    }

    /// Of an operand.
    pub(super) fn src(&self, src: Src) -> Pattern {
        match src.register_number() {
            Some(index) if index != Dst::SINK.0 => self.register(index as usize),
            _ => SAME,
        }
    }

    /// Whether lanes may differ in a predicate that is read.
    pub(super) fn pred(&self, src: PredSrc) -> bool {
        src.of != Pred::SINK && src.of != Pred::TRUE && self.differs(src.of.0 as usize)
    }

    fn join(&mut self, d: Dst, pattern: Pattern) -> bool {
        let known = &mut self.registers[d.0 as usize];
        let joined = match *known {
            None => pattern,
            Some(before) if before == pattern => pattern,
            Some(_) => Pattern::Varying,
        };
        d != Dst::SINK && known.replace(joined) != Some(joined)
    }

    fn join_predicate(&mut self, p: Pred, differs: bool) -> bool {
        let known = &mut self.predicates[p.0 as usize];
        let joined = known.unwrap_or(false) | differs;
        p != Pred::SINK && known.replace(joined) != Some(joined)
    }

    /// Takes in what an instruction writes; says whether that is news.
    fn learn(&mut self, program: &Program, inst: &Inst) -> bool {
        let masked = inst.guard.is_some_and(|guard| self.pred(guard));
        let count = program.registers as usize;
        let known = |place: usize| match place.checked_sub(count) {
            None => self.registers[place].is_some(),
            Some(predicate) => self.predicates[predicate].is_some(),
        };
        let all = touched(program, &inst.op);
        let (pattern, differs) = if is_meeting(&inst.op) {
            let same = meets_in_one(&inst.op);
            (if same { SAME } else { Pattern::Varying }, !same)
        } else {
            if !all.reads.iter().all(|place| known(*place)) {
                return false;
            }
            match self.plan(program, &inst.op) {
                Plan::Halves { stride, .. } if !masked => {
                    let Op::Unpack { d: [low, high, ..], .. } = inst.op else { return false };
                    return self.join(low, Pattern::Even(stride)) | self.join(high, SAME);
                }
                Plan::Halves { .. } => (Pattern::Varying, true),
                Plan::Once => (SAME, false),
                Plan::First(stride) | Plan::Hoping { stride, .. } => (Pattern::Even(stride), true),
                Plan::Each => (Pattern::Varying, true),
            }
        };
        let pattern = if masked { Pattern::Varying } else { pattern };
        let mut changed = false;
        for place in all.writes {
            changed |= match place.checked_sub(count) {
                None => self.join(Dst(u32::try_from(place).unwrap_or(0)), pattern),
                Some(predicate) => {
                    self.join_predicate(Pred(u32::try_from(predicate).unwrap_or(0)), differs || masked)
                }
            };
        }
        changed
    }

    /// How an operation that lanes do by themselves is done, its predicate left aside.
    pub(super) fn plan(&self, program: &Program, op: &Op) -> Plan {
        if let Some(plan) = self.followed(program, op) {
            return plan;
        }
        match *op {
            // Each lane has its own.
            Op::Special { what, .. } if !is_uniform(what) => return Plan::Each,
            Op::Load { shape, .. } if matches!(shape.region, Region::Local | Region::Generic) => {
                return Plan::Each;
            }
            Op::Store { shape, .. } if matches!(shape.region, Region::Local | Region::Generic) => {
                return Plan::Each;
            }
            Op::Atomic { .. } | Op::Copy { .. } | Op::ActiveMask { .. } => return Plan::Each,
            _ => {}
        }
        let registers = program.registers as usize;
        let same = |place: &usize| match place.checked_sub(registers) {
            None => self.register(*place) == SAME,
            Some(predicate) => !self.differs(predicate),
        };
        if touched(program, op).reads.iter().all(same) { Plan::Once } else { Plan::Each }
    }

    /// The stride of an operand of so many bits, or of a constant none.
    fn stride(&self, program: &Program, src: Src, bits: u8) -> Option<i64> {
        let Pattern::Even(stride) = self.src(src) else { return None };
        let fits = src.register_number().is_none_or(|index| program.widths[index as usize] == bits);
        (stride == 0 || fits).then_some(stride)
    }

    /// For operations of which all lanes' results follow from the first one's.
    fn followed(&self, program: &Program, op: &Op) -> Option<Plan> {
        let constant = |src: Src| src.constant_number().map(|index| program.constants[index as usize][0]);
        let width = |d: Dst| program.widths[d.0 as usize];
        match *op {
            Op::Special { what: Special::Thread(axis), d } if width(d) >= 32 => {
                Some(Plan::First(i64::from(axis == 0)))
            }
            Op::Special { what: Special::Lane, d } if width(d) >= 32 => Some(Plan::First(1)),
            Op::Unary { f, d, a } => self.unary(program, f.name?, d, a),
            Op::Binary { f, d, a, b } => self.binary(program, f.name?, d, a, b),
            Op::Ternary { f, d, a, b, c } => match f.name? {
                Name::MultiplyAdd(bits) if width(d) == bits => {
                    let product = self.product(program, a, b, bits)?;
                    first(product.checked_add(self.stride(program, c, bits)?)?, bits)
                }
                Name::MultiplyAddWide { bits: 32, signed } if width(d) == 64 => {
                    let more = self.stride(program, c, 64)?;
                    self.wide(program, a, b, more, signed)
                }
                _ => None,
            },
            // `a & b | c`, of which the bits that differ are left out.
            Op::Lop3 { table: 0xea, d, a, b, c } if width(d) == 32 => {
                let dropped = constant(b).filter(|_| self.src(c) == SAME)?;
                is_aligned(self.stride(program, a, 32)?, dropped).then_some(Plan::First(0))
            }
            Op::Pack { bits: 32, count: 2, d, parts: [low, high, ..] } if width(d) == 64 => {
                let stride = self.stride(program, low, 32)?;
                (stride > 0 && self.src(high) == SAME).then_some(Plan::Hoping {
                    stride,
                    of: low,
                    hope: Hope::Counts,
                    signed: false,
                })
            }
            Op::Unpack { bits: 32, count: 2, d: [low, high, ..], a } => {
                let stride = self.stride(program, a, 64)?;
                let fits = [low, high].into_iter().all(|d| d == Dst::SINK || width(d) == 32);
                (stride > 0 && stride <= STRIDE_MAX && fits).then_some(Plan::Halves { stride, of: a })
            }
            Op::Select { d, a, b, c } if !self.pred(c) => {
                let (a, b) = (self.stride(program, a, width(d))?, self.stride(program, b, width(d))?);
                (a == b).then_some(Plan::First(a))
            }
            _ => None,
        }
    }

    fn binary(&self, program: &Program, name: Name, d: Dst, a: Src, b: Src) -> Option<Plan> {
        let constant = |src: Src| src.constant_number().map(|index| program.constants[index as usize][0]);
        let width = |d: Dst| program.widths[d.0 as usize];
        match name {
            Name::Add(bits) if width(d) == bits => {
                let (a, b) = (self.stride(program, a, bits)?, self.stride(program, b, bits)?);
                first(a.checked_add(b)?, bits)
            }
            Name::Subtract(bits) if width(d) == bits => {
                let (a, b) = (self.stride(program, a, bits)?, self.stride(program, b, bits)?);
                first(a.checked_sub(b)?, bits)
            }
            Name::Multiply(bits) if width(d) == bits => first(self.product(program, a, b, bits)?, bits),
            Name::ShiftLeft(bits) if width(d) == bits => {
                let by = constant(b).filter(|by| *by < u64::from(bits).min(24))?;
                first(self.stride(program, a, bits)?.checked_mul(1 << by)?, bits)
            }
            Name::MultiplyWide { bits: 32, signed } if width(d) == 64 => self.wide(program, a, b, 0, signed),
            Name::Divide { bits, signed } if width(d) == bits => {
                self.divided(program, a, b, bits, signed, Hope::Same)
            }
            Name::Remainder { bits, signed } if width(d) == bits => {
                self.divided(program, a, b, bits, signed, Hope::Follows)
            }
            Name::ShiftRight { bits, signed } if width(d) == bits => {
                let stride = self.stride(program, a, bits)?;
                let by = constant(b).filter(|by| *by < u64::from(bits).min(31))?;
                let wide = 1 << by >= stride.checked_mul(self.lanes)?;
                (wide && stride > 0).then_some(Plan::Hoping { stride: 0, of: a, hope: Hope::Same, signed })
            }
            Name::And => {
                let (a, mask) = match (constant(a), constant(b)) {
                    (None, Some(mask)) => (a, mask),
                    (Some(mask), None) => (b, mask),
                    _ => return None,
                };
                let stride = self.stride(program, a, width(d))?;
                let low = (mask & mask.wrapping_neg()).wrapping_sub(1);
                if low != 0 && !is_aligned(stride, low) {
                    return None;
                }
                if (mask | low) & ones(width(d)) == ones(width(d)) {
                    return first(stride, width(d));
                }
                let range = (mask | low).checked_add(1).filter(|range| range.is_power_of_two())?;
                let wide = i64::try_from(range).ok()? >= stride.checked_mul(self.lanes)?;
                (wide && stride > 0).then_some(Plan::Hoping {
                    stride,
                    of: a,
                    hope: Hope::Follows,
                    signed: false,
                })
            }
            _ => None,
        }
    }

    fn unary(&self, program: &Program, name: Name, d: Dst, a: Src) -> Option<Plan> {
        let width = program.widths[d.0 as usize];
        match name {
            // From a wider register comes what fits.
            Name::Copy if width == 32 => {
                let stride = self.stride(program, a, 32).or_else(|| self.stride(program, a, 64))?;
                first(stride, 32)
            }
            Name::Copy => first(self.stride(program, a, width)?, width),
            Name::Extend { from: 64, .. } if width == 64 => first(self.stride(program, a, 64)?, 64),
            Name::Extend { from: 32, to: 32, .. } if width == 32 => {
                let stride = self.stride(program, a, 32).or_else(|| self.stride(program, a, 64))?;
                first(stride, 32)
            }
            Name::Extend { from: 32, signed, to } if width == 64 => {
                let stride = self.stride(program, a, 32)?;
                let signed = signed && to == 64;
                (stride > 0).then_some(Plan::Hoping { stride, of: a, hope: Hope::Counts, signed })
            }
            _ => None,
        }
    }

    /// The stride of a product.
    fn product(&self, program: &Program, a: Src, b: Src, bits: u8) -> Option<i64> {
        let constant = |src: Src| src.constant_number().map(|index| program.constants[index as usize][0]);
        let signed = |word: u64| if bits == 32 { low_signed(word) } else { word.cast_signed() };
        let (x, y) = (self.stride(program, a, bits)?, self.stride(program, b, bits)?);
        match (x, y, constant(a), constant(b)) {
            (0, 0, _, _) => Some(0),
            (x, 0, _, Some(factor)) => x.checked_mul(signed(factor)),
            (0, y, Some(factor), _) => y.checked_mul(signed(factor)),
            _ => None,
        }
    }

    /// A product in twice the width, and a sum of so much stride.
    fn wide(&self, program: &Program, a: Src, b: Src, more: i64, signed: bool) -> Option<Plan> {
        let constant = |src: Src| src.constant_number().map(|index| program.constants[index as usize][0]);
        let factor = |word: u64| if signed { low_signed(word) } else { (word & 0xffff_ffff).cast_signed() };
        let (x, y) = (self.stride(program, a, 32)?, self.stride(program, b, 32)?);
        let (of, stride, by) = match (x, y, constant(a), constant(b)) {
            (0, 0, _, _) => return first(more, 64),
            (x, 0, _, Some(word)) => (a, x, factor(word)),
            (0, y, Some(word), _) => (b, y, factor(word)),
            _ => return None,
        };
        let whole = stride.checked_mul(by)?.checked_add(more)?;
        (stride > 0 && whole.abs() <= STRIDE_MAX).then_some(Plan::Hoping {
            stride: whole,
            of,
            hope: Hope::Counts,
            signed,
        })
    }

    fn divided(&self, program: &Program, a: Src, b: Src, bits: u8, signed: bool, hope: Hope) -> Option<Plan> {
        let stride = self.stride(program, a, bits)?;
        let constant = b.constant_number().map(|index| program.constants[index as usize][0]);
        let far = stride.checked_mul(self.lanes)?;
        let wide = constant.is_none_or(|by| i64::try_from(by).is_ok_and(|by| by >= far));
        let hopes = matches!(bits, 32 | 64) && self.stride(program, b, bits)? == 0 && wide && stride > 0;
        let results = if hope == Hope::Same { 0 } else { stride };
        hopes.then_some(Plan::Hoping { stride: results, of: a, hope, signed })
    }
}

/// All bits of a register.
fn ones(width: u8) -> u64 {
    u64::MAX >> (64 - width.clamp(1, 64))
}

/// Whether steps of a stride leave these bits as they are, which are the low ones of a word.
fn is_aligned(stride: i64, low: u64) -> bool {
    let size = low.checked_add(1).filter(|size| size.is_power_of_two());
    size.and_then(|size| i64::try_from(size).ok()).is_some_and(|size| stride != 0 && stride % size == 0)
}

/// The low 32 bits as a signed number.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low_signed(word: u64) -> i64 {
    i64::from(word as i32)
}

/// A stride in so many bits.
#[expect(clippy::cast_possible_truncation, reason = "strides wrap with the register")]
fn first(stride: i64, bits: u8) -> Option<Plan> {
    let stride = match bits {
        64 => stride,
        32 => i64::from(stride as i32),
        _ if stride == 0 => 0,
        _ => return None,
    };
    (stride.abs() <= STRIDE_MAX).then_some(Plan::First(stride))
}

/// Whether lanes of a warp see one value.
fn is_uniform(what: Special) -> bool {
    match what {
        Special::Threads(_)
        | Special::Block(_)
        | Special::Blocks(_)
        | Special::Warp
        | Special::Warps
        | Special::Multiprocessor
        | Special::Multiprocessors
        | Special::Grid
        | Special::DynamicShared
        | Special::TotalShared
        | Special::Fixed(_) => true,
        Special::Thread(axis) => axis > 0,
        Special::Lane
        | Special::LaneEqual
        | Special::LanesBelow
        | Special::LanesUpTo
        | Special::LanesAbove
        | Special::LanesFrom
        | Special::Time { .. } => false,
    }
}

/// Whether all lanes of a meeting get one result.
fn meets_in_one(op: &Op) -> bool {
    match op {
        Op::Barrier { mode, .. } => match mode {
            BarrierMode::Sync | BarrierMode::Arrive | BarrierMode::Count(_) => true,
            BarrierMode::All(_) | BarrierMode::Any(_) => true,
        },
        Op::Collective { what, .. } => match what {
            Collective::Vote { .. } | Collective::Ballot { .. } | Collective::Reduce { .. } => true,
            Collective::Shuffle { .. }
            | Collective::MatchAny { .. }
            | Collective::MatchAll { .. }
            | Collective::Elect { .. } => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::webs::Webs;
    use super::*;
    use crate::decode;

    #[test]
    fn confined_addresses_follow_whatever_the_registers_of_the_guard_are_used_for_besides() {
        let confined = |mask: &str| {
            format!(
                "mov.b64 {{%lo, %hi}}, %at; lop3.b32 %hi, %hi, %mask, %base, 234; and.b32 %lo, %lo, {mask};
                 mov.b64 %to, {{%lo, %hi}};"
            )
        };
        let ptx = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n
             .visible .entry test(.param .u64 out, .param .u32 mask)\n{{\n
             .reg .b64 %at, %to, %far; .reg .b32 %lo, %hi, %mask, %base, %id, %x; .reg .pred %p;\n
             ld.param.u64 %at, [out]; ld.param.u32 %mask, [mask]; mov.u32 %base, 4096; mov.u32 %id, %tid.x;\n
             mul.lo.u32 %lo, %id, %id; st.shared.u32 [%lo], %lo;\n
             mul.wide.u32 %far, %id, 4; add.s64 %at, %at, %far; setp.eq.u32 %p, %mask, 5; @%p bra $end;\n
             {} ld.global.u32 %x, [%to];\n{} st.global.u32 [%to], %x;\n{} ld.global.u8 %x, [%to];\n
             $end: ret;\n}}\n",
            confined("-4"),
            confined("-4"),
            confined("-8"),
        );
        let image = decode::image(&ptx).unwrap();
        let webs = Webs::of(&image.programs[0]);
        let patterns = Patterns::of(&webs.program, 32);
        let of = |inst: &Inst| match inst.op {
            Op::Load { shape, at, .. } | Op::Store { shape, at, .. } if shape.region == Region::Global => {
                Some(patterns.src(at.base))
            }
            _ => None,
        };
        let found: Vec<Pattern> = webs.program.code.iter().filter_map(of).collect();
        // Four words make a step of eight bytes only with every other one.
        assert_eq!(found, [Pattern::Even(4), Pattern::Even(4), Pattern::Varying]);
    }
}
