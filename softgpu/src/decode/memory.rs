//! Loads, stores, atomics, asynchronous copies, fences.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::operand::Operands;
use super::refusal::Refusal;
use super::scope::Register;
use super::words::{Words, bits_of, is_signed};
use crate::alu::update;
use crate::code::{Atomic, AtomicOp, Dst, Op, Region, Shape, Src};

const SCOPES: [&str; 4] = ["cta", "cluster", "gpu", "sys"];
const CACHES: [&str; 9] = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak"];

fn not_supported() -> Refusal {
    Refusal::new("this form is not supported")
}

fn region(words: &mut Words<'_>) -> Region {
    words
        .find(|word| match word {
            "global" => Some(Region::Global),
            "shared" | "shared::cta" => Some(Region::Shared),
            "local" => Some(Region::Local),
            "const" => Some(Region::Constant),
            "param" | "param::entry" => Some(Region::Parameter),
            _ => None,
        })
        .unwrap_or(Region::Generic)
}

/// What the words of an access say about its order.
struct Ordering {
    /// Others may take part in it.
    strong: bool,
    /// A fence belongs before it.
    release: bool,
    /// A fence belongs behind it.
    acquire: bool,
    /// Only threads of the block may.
    of_block: bool,
}

/// Takes the ordering.
fn ordering(words: &mut Words<'_>) -> Ordering {
    let of_block = words.take("cta");
    words.ignore(&SCOPES);
    let (relaxed, volatile, mmio) = (words.take("relaxed"), words.take("volatile"), words.take("mmio"));
    let both = words.take("acq_rel");
    let (release, acquire) = (words.take("release") || both, words.take("acquire") || both);
    Ordering { strong: relaxed || volatile || mmio || release || acquire, release, acquire, of_block }
}

impl Builder<'_> {
    /// Operations on memory.
    pub(crate) fn decode_memory(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        words.ignore_hints();
        let operands = Operands(&instruction.operands);
        match instruction.opcode.as_str() {
            "ld" | "ldu" => {
                let [d, at] = operands.exactly()?;
                self.load(words, d, at)?;
            }
            "st" => {
                let [at, a] = operands.exactly()?;
                self.store(words, at, a)?;
            }
            "atom" => {
                let (d, rest) = operands.0.split_first().ok_or_else(not_supported)?;
                self.atomic(words, Some(d), &Operands(rest))?;
            }
            "red" => self.atomic(words, None, &operands)?,
            "cp" => self.copy(words, &operands)?,
            "membar" | "fence" => {
                let (of_block, acquire) = (words.take("cta"), words.take("acquire"));
                words.ignore(&SCOPES);
                words.ignore(&["gl", "sc", "acq_rel", "release"]);
                words.finish()?;
                if acquire {
                    self.acquire()?;
                } else {
                    self.emit_scoped(Op::Fence, of_block)?;
                }
            }
            "prefetch" | "prefetchu" => self.emit(Op::Nop)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn shape(&mut self, words: &mut Words<'_>) -> Result<(Shape, Type), Refusal> {
        let region = region(words);
        let count = words.find(|word| match word {
            "v2" => Some(2),
            "v4" => Some(4),
            _ => None,
        });
        words.ignore(&CACHES);
        let ty = words.ty()?;
        words.finish()?;
        let size = match bits_of(ty) {
            8 => 1,
            16 => 2,
            32 => 4,
            64 => 8,
            _ => return Err(not_supported()),
        };
        let count = count.unwrap_or(1);
        if count * size > 16 {
            return Err(Refusal::new("the vector is longer than 16 bytes"));
        }
        Ok((Shape { region, size, count, extend: 0, strong: false }, ty))
    }

    fn load(&mut self, words: &mut Words<'_>, d: &Operand, at: &Operand) -> Result<(), Refusal> {
        let Ordering { strong, acquire, of_block, .. } = ordering(words);
        let (mut shape, ty) = self.shape(words)?;
        shape.strong = strong;
        let list = elements(d, shape.count)?;
        let mut destinations = [Dst::SINK; 4];
        for (slot, operand) in destinations.iter_mut().zip(list) {
            let (d, bits) = self.dst_wide(operand, ty)?;
            *slot = d;
            if is_signed(ty) && bits > bits_of(ty) {
                shape.extend = u8::try_from(bits).map_err(|_| not_supported())?;
            }
        }
        let at = self.address(at)?;
        self.emit_scoped(Op::Load { shape, at, d: destinations }, of_block)?;
        if acquire { self.acquire() } else { Ok(()) }
    }

    fn store(&mut self, words: &mut Words<'_>, at: &Operand, a: &Operand) -> Result<(), Refusal> {
        let Ordering { strong, release, of_block, .. } = ordering(words);
        let (mut shape, ty) = self.shape(words)?;
        shape.strong = strong;
        if matches!(shape.region, Region::Constant | Region::Parameter) {
            return Err(Refusal::new("this memory is read-only"));
        }
        let list = elements(a, shape.count)?;
        let mut values = [Src::register(0); 4];
        for (slot, operand) in values.iter_mut().zip(list) {
            *slot = self.src_wide(operand, ty)?;
        }
        let at = self.address(at)?;
        if release {
            self.emit_scoped(Op::Fence, of_block)?;
        }
        self.emit_scoped(Op::Store { shape, at, a: values }, of_block)
    }

    fn atomic(
        &mut self,
        words: &mut Words<'_>,
        d: Option<&Operand>,
        operands: &Operands<'_>,
    ) -> Result<(), Refusal> {
        let Ordering { release, acquire, of_block, .. } = ordering(words);
        words.ignore(&["noftz"]);
        let region = region(words);
        let name = words
            .find(|word| {
                let known = ["add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas"];
                known.contains(&word).then_some(word)
            })
            .ok_or_else(not_supported)?;
        let ty = words.ty()?;
        words.finish()?;
        // Single precision is flushed in global memory only (ISA, `atom`).
        let flushes = (name, ty) == ("add", Type::F32) && region != Region::Shared;
        let counts = matches!(name, "add" | "inc" | "dec");
        let name = if flushes { "add.ftz" } else { name };
        let size = match bits_of(ty) {
            16 => 2,
            32 => 4,
            64 => 8,
            _ => return Err(not_supported()),
        };
        let (op, at, a, b) = if name == "cas" {
            let [at, a, b] = operands.exactly()?;
            let b = self.src(b, ty)?;
            (AtomicOp::CompareSwap, at, a, b)
        } else {
            let [at, a] = operands.exactly()?;
            (AtomicOp::Update(update::named(name, ty).ok_or_else(not_supported)?), at, a, Src::register(0))
        };
        let (a, at) = (self.src(a, ty)?, self.address(at)?);
        let d = match d {
            Some(d) => self.dst(d, ty)?,
            None => Dst::SINK,
        };
        // Every atomic operation here is sequentially consistent: who watches goes by the fences.
        if release {
            self.emit_scoped(Op::Fence, of_block)?;
        }
        if counts {
            self.counts();
        }
        self.emit_scoped(Op::Atomic(Atomic { op, region, size, d, at, a, b }), of_block)?;
        if acquire { self.acquire() } else { Ok(()) }
    }

    fn is_predicate(&mut self, operand: &Operand) -> Result<bool, Refusal> {
        let register = self.register(operand)?;
        Ok(matches!(operand, Operand::Not(_)) || matches!(register, Some(Register::Predicate(_))))
    }

    /// `cp.async`, which is done at once, so that waiting for it is nothing.
    fn copy(&mut self, words: &mut Words<'_>, operands: &Operands<'_>) -> Result<(), Refusal> {
        if !words.take("async") {
            return Err(not_supported());
        }
        if words
            .find(|word| matches!(word, "commit_group" | "wait_group" | "wait_all").then_some(()))
            .is_some()
        {
            words.finish()?;
            return self.emit(Op::Nop);
        }
        words.ignore(&["ca", "cg", "global"]);
        if !words.take("shared") && !words.take("shared::cta") {
            return Err(not_supported());
        }
        words.finish()?;
        let (to, from, size, valid) = match operands.0 {
            [to, from, size] => (to, from, size, None),
            [to, from, size, valid] => (to, from, size, Some(valid)),
            _ => return Err(not_supported()),
        };
        let bytes = match size {
            Operand::Integer(4) => 4,
            Operand::Integer(8) => 8,
            Operand::Integer(16) => 16,
            _ => return Err(Refusal::new("a copy has 4, 8 or 16 bytes")),
        };
        let valid = match valid {
            Some(ignores) if self.is_predicate(ignores)? => {
                let (nothing, all) = (self.constant(0)?, self.constant(u64::from(bytes))?);
                let c = self.pred_src(ignores)?;
                let temporary = self.names.temporary()?;
                self.emit(Op::Select { d: Dst(temporary), a: nothing, b: all, c })?;
                Src::register(temporary)
            }
            Some(valid) => self.src(valid, Type::B32)?,
            None => self.constant(u64::from(bytes))?,
        };
        let (to, from) = (self.address(to)?, self.address(from)?);
        self.emit(Op::Copy { bytes, to, from, valid })
    }
}

/// The elements of a vector operand, or the one operand.
fn elements(operand: &Operand, count: u8) -> Result<&[Operand], Refusal> {
    match operand {
        Operand::Vector(list) if list.len() == usize::from(count) => Ok(list),
        Operand::Vector(_) => Err(Refusal::new("the vector has another length")),
        single if count == 1 => Ok(std::slice::from_ref(single)),
        _ => Err(Refusal::new("a vector belongs here")),
    }
}
