//! Branches, barriers and what lanes do together.

use bulkhead_ptx::ast::{AddressBase, Instruction, Operand, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::words::Words;
use crate::alu::update;
use crate::code::{BarrierMode, Collective, Dst, Op, Pred, PredSrc, ShuffleMode, VoteMode};

fn not_supported() -> Refusal {
    Refusal::new("this form is not supported")
}

fn label(operand: &Operand) -> Result<&str, Refusal> {
    match operand {
        Operand::Symbol(name) | Operand::Register(name) => Ok(name),
        Operand::Address(address) => match &address.base {
            AddressBase::Symbol(name) if address.offset == 0 => Ok(name),
            _ => Err(Refusal::new("a label belongs here")),
        },
        _ => Err(Refusal::new("a label belongs here")),
    }
}

impl Builder<'_> {
    /// Control flow and synchronization.
    pub(crate) fn decode_control(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let operands = Operands(&instruction.operands);
        match instruction.opcode.as_str() {
            "bra" => {
                words.ignore(&["uni"]);
                words.finish()?;
                let [target] = operands.exactly()?;
                let target = self.names.label(label(target)?)?;
                self.emit(Op::Branch { target })?;
            }
            "brx" => {
                words.ignore(&["uni", "idx"]);
                words.finish()?;
                let [index, list] = operands.exactly()?;
                let a = self.src(index, Type::B32)?;
                let names = self.names.targets(label(list)?)?;
                let targets: Result<Vec<u32>, Refusal> =
                    names.iter().map(|name| self.names.label(name)).collect();
                let table = u32::try_from(self.tables.len()).map_err(|_| not_supported())?;
                self.tables.push(targets?);
                self.emit(Op::Switch { table, a })?;
            }
            "ret" | "exit" => {
                words.ignore(&["uni"]);
                words.finish()?;
                self.emit(Op::Exit)?;
            }
            "trap" | "brkpt" => self.emit(Op::Trap)?,
            "nanosleep" => self.emit(Op::Yield)?,
            "griddepcontrol" => {
                // Grids of one stream run one after the other here.
                words.ignore(&["wait", "launch_dependents"]);
                words.finish()?;
                self.emit(Op::Nop)?;
            }
            "bar" | "barrier" => self.barrier(words, &operands)?,
            "activemask" => {
                let ty = words.ty()?;
                words.finish()?;
                let [d] = operands.exactly()?;
                let d = self.dst(d, ty)?;
                self.emit(Op::ActiveMask { d })?;
            }
            "shfl" | "vote" | "match" | "redux" | "elect" => {
                if !words.take("sync") {
                    return Err(Refusal::new("only the `.sync` form exists on this architecture"));
                }
                match instruction.opcode.as_str() {
                    "shfl" => self.shuffle(words, &operands)?,
                    "vote" => self.vote(words, &operands)?,
                    "match" => self.matching(words, &operands)?,
                    "redux" => self.redux(words, &operands)?,
                    _ => self.elect(words, &operands)?,
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn barrier(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        if words.take("warp") {
            words.ignore(&["sync"]);
            words.finish()?;
            let [members] = operands.exactly()?;
            let members = self.src(members, Type::B32)?;
            return self.emit(Op::WarpBarrier { members });
        }
        words.ignore(&["cta", "aligned"]);
        let mut rest = operands.0.iter();
        let mut next = || rest.next();
        let missing = || Refusal::new("an operand is missing");
        let (mode, holds) = if words.take("sync") {
            (BarrierMode::Sync, false)
        } else if words.take("arrive") {
            (BarrierMode::Arrive, false)
        } else if words.take("red") {
            let d = next().ok_or_else(missing)?;
            if words.take("popc") {
                let ty = words.ty()?;
                (BarrierMode::Count(self.dst(d, ty)?), true)
            } else if words.take("and") {
                words.ignore(&["pred"]);
                (BarrierMode::All(self.pred_dst(d)?), true)
            } else if words.take("or") {
                words.ignore(&["pred"]);
                (BarrierMode::Any(self.pred_dst(d)?), true)
            } else {
                return Err(not_supported());
            }
        } else {
            return Err(not_supported());
        };
        words.finish()?;
        let id = self.src(next().ok_or_else(missing)?, Type::B32)?;
        let mut left: Vec<&Operand> = std::iter::from_fn(next).collect();
        let a = if holds { self.pred_src(left.pop().ok_or_else(missing)?)? } else { PredSrc::FALSE };
        let count = match left[..] {
            [] => None,
            [count] => Some(self.src(count, Type::B32)?),
            _ => return Err(not_supported()),
        };
        if mode == BarrierMode::Arrive && count.is_none() {
            return Err(missing());
        }
        self.emit(Op::Barrier { mode, id, count, a })
    }

    fn shuffle(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let mode = words
            .find(|word| match word {
                "up" => Some(ShuffleMode::Up),
                "down" => Some(ShuffleMode::Down),
                "bfly" => Some(ShuffleMode::Butterfly),
                "idx" => Some(ShuffleMode::Index),
                _ => None,
            })
            .ok_or_else(not_supported)?;
        let ty = words.ty()?;
        words.finish()?;
        let [d, a, b, c, members] = operands.exactly()?;
        let (d, p) = self.with_predicate(d, ty)?;
        let a = self.src(a, ty)?;
        let [b, c, members] = [b, c, members].map(|operand| self.src(operand, Type::B32));
        let (b, c, members) = (b?, c?, members?);
        self.emit(Op::Collective { members, what: Collective::Shuffle { mode, d, p, a, b, c } })
    }

    fn vote(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let mode = words.find(|word| match word {
            "all" => Some(VoteMode::All),
            "any" => Some(VoteMode::Any),
            "uni" => Some(VoteMode::Uniform),
            _ => None,
        });
        let ballot = words.take("ballot");
        let ty = words.ty()?;
        words.finish()?;
        let [d, a, members] = operands.exactly()?;
        let (a, members) = (self.pred_src(a)?, self.src(members, Type::B32)?);
        let what = match (mode, ballot, ty) {
            (Some(mode), false, Type::Pred) => Collective::Vote { mode, d: self.pred_dst(d)?, a },
            (None, true, Type::B32) => Collective::Ballot { d: self.dst(d, ty)?, a },
            _ => return Err(not_supported()),
        };
        self.emit(Op::Collective { members, what })
    }

    fn matching(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let (any, all) = (words.take("any"), words.take("all"));
        let ty = words.ty()?;
        words.finish()?;
        let [d, a, members] = operands.exactly()?;
        let a = self.src(a, ty)?;
        let members = self.src(members, Type::B32)?;
        let what = if any && !all {
            Collective::MatchAny { d: self.dst(d, Type::B32)?, a }
        } else if all && !any {
            let (d, p) = self.with_predicate(d, Type::B32)?;
            Collective::MatchAll { d, p, a }
        } else {
            return Err(not_supported());
        };
        self.emit(Op::Collective { members, what })
    }

    fn redux(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        let name =
            words.find(|word| ["add", "min", "max", "and", "or", "xor"].contains(&word).then_some(word));
        let ty = words.ty()?;
        words.finish()?;
        let f = match ty {
            Type::U32 | Type::S32 | Type::B32 => name.and_then(|name| update::named(name, ty)),
            _ => None,
        };
        let f = f.ok_or_else(not_supported)?;
        let [d, a, members] = operands.exactly()?;
        let (a, members, d) = (self.src(a, ty)?, self.src(members, Type::B32)?, self.dst(d, ty)?);
        self.emit(Op::Collective { members, what: Collective::Reduce { f, d, a } })
    }

    fn elect(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        words.finish()?;
        let [d, members] = operands.exactly()?;
        let members = self.src(members, Type::B32)?;
        let (d, p) = self.with_predicate(d, Type::B32)?;
        self.emit(Op::Collective { members, what: Collective::Elect { d, p } })
    }

    /// `d` or `d|p`.
    fn with_predicate(&mut self, operand: &Operand, ty: Type) -> Result<(Dst, Pred), Refusal> {
        match operand {
            Operand::Pair(d, p) => Ok((self.dst(d, ty)?, self.pred_dst(p)?)),
            single => Ok((self.dst(single, ty)?, Pred::SINK)),
        }
    }
}
