//! Operands: registers, immediates, special registers, addresses.

use bulkhead_ptx::ast::{Address, AddressBase, Operand, Type};

use super::entry::Builder;
use super::refusal::Refusal;
use super::scope::Register;
use super::words::{bits_of, is_float, pattern, single_bits};
use crate::alu::convert;
use crate::code::{At, Dst, Op, Pred, PredSrc, Special, Src};

/// The operands of one instruction, by position.
pub(crate) struct Operands<'a>(pub(crate) &'a [Operand]);

impl<'a> Operands<'a> {
    /// Exactly so many.
    pub(crate) fn exactly<const N: usize>(&self) -> Result<[&'a Operand; N], Refusal> {
        let found: Vec<&Operand> = self.0.iter().collect();
        found.try_into().map_err(|_| Refusal::new(format!("{N} operands belong here, not {}", self.0.len())))
    }
}

fn not_a(what: &str) -> Refusal {
    Refusal::new(format!("an operand is not a {what}"))
}

impl Builder<'_> {
    /// A register by name, whether the parser took the name for a register or a symbol.
    pub(crate) fn register(&mut self, operand: &Operand) -> Result<Option<Register>, Refusal> {
        match operand {
            Operand::Register(name) | Operand::Symbol(name) => self.names.register(name),
            _ => Ok(None),
        }
    }

    /// A value of exactly the width of `ty`.
    pub(crate) fn src(&mut self, operand: &Operand, ty: Type) -> Result<Src, Refusal> {
        match self.register(operand)? {
            Some(Register::Data { index, bits }) if bits == bits_of(ty) => Ok(Src::register(index)),
            Some(Register::Data { bits, .. }) => {
                Err(Refusal::new(format!("a register of {bits} bits stands where {} belong", bits_of(ty))))
            }
            Some(Register::Predicate(_)) => Err(not_a("value but a predicate")),
            None => self.immediate(operand, ty),
        }
    }

    /// A value whose register may be wider than `ty` (`st`, `cvt`).
    pub(crate) fn src_wide(&mut self, operand: &Operand, ty: Type) -> Result<Src, Refusal> {
        match self.register(operand)? {
            Some(Register::Data { index, bits }) if bits >= bits_of(ty) => Ok(Src::register(index)),
            Some(Register::Data { .. }) => Err(Refusal::new("a register is too narrow")),
            Some(Register::Predicate(_)) => Err(not_a("value but a predicate")),
            None => self.immediate(operand, ty),
        }
    }

    fn immediate(&mut self, operand: &Operand, ty: Type) -> Result<Src, Refusal> {
        let bits = bits_of(ty);
        match operand {
            Operand::Integer(value) if bits <= 64 && !is_float(ty) => {
                self.constant(pattern(*value) & (u64::MAX >> (64 - bits)))
            }
            // A packed pair is written as its bits.
            Operand::Integer(value) if bits == 32 && ty != Type::F32 => {
                self.constant(pattern(*value) & u64::from(u32::MAX))
            }
            Operand::Float32(word) if bits == 32 => self.constant(u64::from(*word)),
            Operand::Float64(word) if bits == 64 => self.constant(*word),
            Operand::Float64(word) if bits == 32 => self.constant(single_bits(*word)),
            Operand::Symbol(name) if name == "WARP_SZ" => self.constant(32),
            Operand::Symbol(name) => {
                let symbol = self.symbol(name)?;
                self.address_of(symbol, 0)
            }
            Operand::SymbolOffset(name, offset) => {
                let symbol = self.symbol(name)?;
                self.address_of(symbol, *offset)
            }
            Operand::Register(name) => self.special(name, bits),
            _ => Err(not_a("value")),
        }
    }

    /// Reads a special register into a temporary.
    fn special(&mut self, name: &str, bits: u32) -> Result<Src, Refusal> {
        let what = special_named(name)
            .ok_or_else(|| Refusal::new(format!("register `{name}` is not declared or not supported")))?;
        let temporary = self.names.temporary()?;
        self.emit(Op::Special { what, d: Dst(temporary) })?;
        if bits < 32 {
            let truncate = convert::sign_extend(bits, bits).ok_or_else(|| not_a("value of this width"))?;
            self.emit(Op::Unary { f: truncate, d: Dst(temporary), a: Src::register(temporary) })?;
        }
        Ok(Src::register(temporary))
    }

    /// A destination of exactly the width of `ty`.
    pub(crate) fn dst(&mut self, operand: &Operand, ty: Type) -> Result<Dst, Refusal> {
        match self.dst_wide(operand, ty)? {
            (d, bits) if bits == bits_of(ty) => Ok(d),
            (_, bits) => {
                Err(Refusal::new(format!("a register of {bits} bits stands where {} belong", bits_of(ty))))
            }
        }
    }

    /// A destination that may be wider than `ty`, and its width.
    pub(crate) fn dst_wide(&mut self, operand: &Operand, ty: Type) -> Result<(Dst, u32), Refusal> {
        if *operand == Operand::Sink {
            return Ok((Dst::SINK, bits_of(ty)));
        }
        match self.register(operand)? {
            Some(Register::Data { index, bits }) if bits >= bits_of(ty) => Ok((Dst(index), bits)),
            Some(Register::Data { .. }) => Err(Refusal::new("the destination is too narrow")),
            _ => Err(not_a("register")),
        }
    }

    /// A predicate that is written.
    pub(crate) fn pred_dst(&mut self, operand: &Operand) -> Result<Pred, Refusal> {
        if *operand == Operand::Sink {
            return Ok(Pred::SINK);
        }
        match self.register(operand)? {
            Some(Register::Predicate(index)) => Ok(Pred(index)),
            _ => Err(not_a("predicate")),
        }
    }

    /// A predicate that is read.
    pub(crate) fn pred_src(&mut self, operand: &Operand) -> Result<PredSrc, Refusal> {
        let (name, negated) = match operand {
            Operand::Not(name) => (name, true),
            Operand::Register(name) | Operand::Symbol(name) => (name, false),
            Operand::Integer(0) => return Ok(PredSrc::FALSE),
            Operand::Integer(_) => return Ok(PredSrc::TRUE),
            _ => return Err(not_a("predicate")),
        };
        match self.names.register(name)? {
            Some(Register::Predicate(index)) => Ok(PredSrc { of: Pred(index), negated }),
            _ => Err(not_a("predicate")),
        }
    }

    /// What stands in brackets.
    pub(crate) fn address(&mut self, operand: &Operand) -> Result<At, Refusal> {
        let Operand::Address(Address { base, offset }) = operand else { return Err(not_a("address")) };
        let name = match base {
            AddressBase::Absolute => return Ok(At { base: self.constant(0)?, offset: *offset }),
            AddressBase::Register(name) | AddressBase::Symbol(name) => name,
        };
        match self.names.register(name)? {
            Some(Register::Data { index, bits: 32 | 64 }) => {
                Ok(At { base: Src::register(index), offset: *offset })
            }
            Some(_) => Err(not_a("register of an address' width")),
            None => {
                let symbol = self.symbol(name)?;
                Ok(At { base: self.address_of(symbol, *offset)?, offset: 0 })
            }
        }
    }
}

fn special_named(name: &str) -> Option<Special> {
    let (stem, axis) = match name.rsplit_once('.') {
        Some((stem, "x")) => (stem, Some(0)),
        Some((stem, "y")) => (stem, Some(1)),
        Some((stem, "z")) => (stem, Some(2)),
        Some(_) => return None,
        None => (name, None),
    };
    Some(match (stem, axis) {
        ("%tid", Some(axis)) => Special::Thread(axis),
        ("%ntid", Some(axis)) => Special::Threads(axis),
        ("%ctaid", Some(axis)) => Special::Block(axis),
        ("%nctaid", Some(axis)) => Special::Blocks(axis),
        // Every block is a cluster of its own.
        ("%clusterid", Some(axis)) => Special::Block(axis),
        ("%nclusterid", Some(axis)) => Special::Blocks(axis),
        ("%cluster_ctaid", Some(_)) => Special::Fixed(0),
        ("%cluster_nctaid", Some(_)) => Special::Fixed(1),
        ("%cluster_ctarank", None) => Special::Fixed(0),
        ("%cluster_nctarank", None) => Special::Fixed(1),
        ("%laneid", None) => Special::Lane,
        ("%warpid", None) => Special::Warp,
        ("%nwarpid", None) => Special::Warps,
        ("%smid", None) => Special::Multiprocessor,
        ("%nsmid", None) => Special::Multiprocessors,
        ("%gridid", None) => Special::Grid,
        ("%lanemask_eq", None) => Special::LaneEqual,
        ("%lanemask_lt", None) => Special::LanesBelow,
        ("%lanemask_le", None) => Special::LanesUpTo,
        ("%lanemask_gt", None) => Special::LanesAbove,
        ("%lanemask_ge", None) => Special::LanesFrom,
        ("%clock" | "%globaltimer_lo", None) => Special::Time { bits: 32, high: false },
        ("%clock_hi" | "%globaltimer_hi", None) => Special::Time { bits: 32, high: true },
        ("%clock64" | "%globaltimer", None) => Special::Time { bits: 64, high: false },
        ("%dynamic_smem_size", None) => Special::DynamicShared,
        ("%total_smem_size" | "%aggr_smem_size", None) => Special::TotalShared,
        _ => return None,
    })
}
