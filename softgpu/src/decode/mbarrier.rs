//! Barrier objects: loads, stores and atomic operations on words of 64 bits.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::words::Words;
use crate::alu::mbarrier;
use crate::code::{Atomic, AtomicOp, Dst, Logic, Op, Pred, PredSrc, Region, Shape, Src};

fn not_supported() -> Refusal {
    Refusal::new("this form is not supported")
}

const SHAPE: Shape = Shape { region: Region::Shared, size: 8, count: 1, extend: 0, strong: true };

/// Takes where the object lies, its type, and the ordering: here everything is ordered.
fn region(words: &mut Words<'_>) -> Result<Region, Refusal> {
    words.ignore(&["acquire", "release", "relaxed", "cta", "cluster"]);
    let shared = words.take("shared") || words.take("shared::cta");
    if !words.take("b64") {
        return Err(not_supported());
    }
    words.finish()?;
    Ok(if shared { Region::Shared } else { Region::Generic })
}

impl Builder<'_> {
    /// Operations on barrier objects.
    pub(crate) fn decode_mbarrier(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let operands = Operands(&instruction.operands);
        match instruction.opcode.as_str() {
            "mbarrier" => {}
            "cp" if words.take("async") && words.take("mbarrier") => {
                return self.arrive_behind_copies(words, &operands).map(|()| true);
            }
            _ => return Ok(false),
        }
        let name = words.find(Some).ok_or_else(not_supported)?;
        match name {
            "init" => {
                let [at, count] = operands.exactly()?;
                let (region, word) = (region(words)?, self.names.temporary()?);
                let (a, at) = (self.src(count, Type::B32)?, self.address(at)?);
                self.emit(Op::Unary { f: mbarrier::init(), d: Dst(word), a })?;
                let a = [Src::register(word); 4];
                self.emit(Op::Store { shape: Shape { region, ..SHAPE }, at, a })?;
            }
            "inval" => {
                let [at] = operands.exactly()?;
                let (region, at, zero) = (region(words)?, self.address(at)?, self.constant(0)?);
                self.emit(Op::Store { shape: Shape { region, ..SHAPE }, at, a: [zero; 4] })?;
            }
            "arrive" | "arrive_drop" => {
                words.ignore(&["noComplete"]);
                let expects = words.take("expect_tx");
                let one = Operand::Integer(1);
                let (d, at, count) = match operands.0 {
                    [d, at] if !expects => (d, at, &one),
                    [d, at, count] => (d, at, count),
                    _ => return Err(not_supported()),
                };
                let d = self.dst(d, Type::B64)?;
                self.on_object(words, name, expects, d, at, count)?;
            }
            "expect_tx" | "complete_tx" => {
                let [at, count] = operands.exactly()?;
                self.on_object(words, name, false, Dst::SINK, at, count)?;
            }
            "test_wait" | "try_wait" => self.wait(name == "try_wait", words, operands.0)?,
            "pending_count" => {
                if !words.take("b64") {
                    return Err(not_supported());
                }
                self.unary(mbarrier::pending(), words, &operands, [Type::B32, Type::B64])?;
            }
            _ => return Err(not_supported()),
        }
        Ok(true)
    }

    fn on_object(
        &mut self,
        words: &mut Words<'_>,
        name: &str,
        expects: bool,
        d: Dst,
        at: &Operand,
        count: &Operand,
    ) -> Result<(), Refusal> {
        let releases = name.starts_with("arrive") && !words.take("relaxed");
        let region = region(words)?;
        let f = mbarrier::update(name, expects).ok_or_else(not_supported)?;
        let (a, at) = (self.src(count, Type::B32)?, self.address(at)?);
        let op = AtomicOp::Update(f);
        if releases {
            self.emit_scoped(Op::Fence, true)?;
        }
        self.emit(Op::Atomic(Atomic { op, region, size: 8, d, at, a, b: Src::register(0) }))
    }

    /// Copies are done at once, so that nothing is to be waited for.
    fn arrive_behind_copies(
        &mut self,
        words: &mut Words<'_>,
        operands: &Operands<'_>,
    ) -> Result<(), Refusal> {
        let counted = words.take("arrive").then(|| words.take("noinc")).ok_or_else(not_supported)?;
        let [at] = operands.exactly()?;
        if counted {
            return self.on_object(words, "arrive", false, Dst::SINK, at, &Operand::Integer(1));
        }
        region(words)?;
        self.address(at)?;
        self.emit(Op::Nop)
    }

    /// Lanes that a `try_wait` leaves waiting let others run.
    fn wait(&mut self, tries: bool, words: &mut Words<'_>, operands: &[Operand]) -> Result<(), Refusal> {
        let (parity, relaxed) = (words.take("parity"), words.take("relaxed"));
        let region = region(words)?;
        let (p, at, which) = match operands {
            [p, at, which] => (p, at, which),
            [p, at, which, hint] if tries => {
                self.src(hint, Type::B32)?;
                (p, at, which)
            }
            _ => return Err(not_supported()),
        };
        let (f, ty) = if parity {
            (mbarrier::is_over_by_parity(), Type::B32)
        } else {
            (mbarrier::is_over(), Type::B64)
        };
        let (b, at, p) = (self.src(which, ty)?, self.address(at)?, self.pred_dst(p)?);
        let now = self.names.temporary()?;
        let mut d = [Dst::SINK; 4];
        d[0] = Dst(now);
        self.emit(Op::Load { shape: Shape { region, ..SHAPE }, at, d })?;
        if !relaxed {
            self.acquire()?;
        }
        let a = Src::register(now);
        self.emit(Op::Test { f, p, q: Pred::SINK, a, b, combine: Logic::And, c: PredSrc::TRUE })?;
        if tries { self.emit_where_not(p, Op::Yield) } else { Ok(()) }
    }
}
