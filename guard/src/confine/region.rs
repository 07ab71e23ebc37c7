//! An entry's shared variables as one, so that a mask and not two bounds keeps an access inside.
//!
//! What masks keep an access in, the *region*, is a power of two long and begins at a multiple of that, the
//! variables from its first byte on. Where the block's shared memory begins is known, [`SHARED_BASE`]: what lies before
//! the region is left out of the bounds. Elsewhere accesses would stay inside all the same, but not where they were meant.

use crate::maps::HashMap;

use crate::access;
use crate::ast::{Address, AddressBase, Operand, Space, Statement, Type};
use crate::confine::symbols::Symbol;
use crate::confine::variables::Own;
use crate::limits::SHARED_BASE;
use crate::names;
use crate::table;

/// Bytes of variables for which a region is made, at most: with what comes before it, it takes up to four times as many,
/// which so small a part of a multiprocessor's shared memory leaves room for.
const VARIABLES_BYTES_MAX: u64 = 4096;
/// How much further than its first access a run may reach, at most.
pub(super) const SPAN_MAX: u64 = 512;

/// The one variable of an entry.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) name: String,
    /// Where the region begins in it, in bytes.
    pub(super) start: u64,
    /// Its bytes; a power of two where masks reach them.
    pub(super) reach: u64,
    /// Where each variable lies in it.
    at: HashMap<String, u64>,
}

impl Region {
    /// The region of an entry with these variables, where all its shared memory are shared variables of its own that
    /// make a small one.
    pub(super) fn of(own: &[Own]) -> Option<Self> {
        let (mut region, align) = Self::all(own)?;
        (region.reach <= VARIABLES_BYTES_MAX).then_some(())?;
        region.reach = region.reach.max(align).checked_next_power_of_two()?;
        region.start = SHARED_BASE.next_multiple_of(region.reach) - SHARED_BASE;
        for begin in region.at.values_mut() {
            *begin += region.start;
        }
        Some(region)
    }

    /// All shared variables of an entry as one, as large as they are; and of what the address of each is a multiple.
    pub(super) fn all(own: &[Own]) -> Option<(Self, u64)> {
        let shared = || own.iter().filter(|own| own.symbol.space == Space::Shared);
        let name = shared().next()?.variable.name.clone();
        let (mut end, mut most) = (0_u64, names::WIDEST_ACCESS);
        let mut at = HashMap::default();
        for Own { variable, symbol } in shared() {
            let align = symbol.align.max(names::WIDEST_ACCESS);
            let begin = end.checked_next_multiple_of(align)?;
            end = begin.checked_add(symbol.bytes)?;
            most = most.max(align);
            at.insert(variable.name.clone(), begin);
        }
        Some((Self { name, start: 0, reach: end, at }, most))
    }

    /// Makes one variable of the entry's, which runs reach `slack` bytes beyond the region in.
    pub(super) fn merge(&self, statements: &mut [Statement], own: &mut Vec<Own>, slack: u64) {
        let bytes = (self.start + self.reach + slack).next_multiple_of(names::WIDEST_ACCESS);
        let align = own.iter().map(|own| own.symbol.align).fold(names::WIDEST_ACCESS, u64::max);
        let first = own.iter().position(|own| own.variable.name == self.name);
        let mut index = 0;
        own.retain(|own| {
            index += 1;
            own.symbol.space != Space::Shared || Some(index - 1) == first
        });
        if let Some(Own { variable, symbol }) = own.iter_mut().find(|own| own.variable.name == self.name) {
            variable.ty = Type::B8;
            variable.vector = 1;
            variable.dimensions = vec![bytes];
            variable.align = u32::try_from(align).ok();
            *symbol = Symbol { space: Space::Shared, bytes, align, at: None };
        }
        for statement in statements {
            let Statement::Instruction(instruction) = statement else { continue };
            instruction.operands.iter_mut().for_each(|operand| self.rename(operand));
        }
    }

    fn rename(&self, operand: &mut Operand) {
        let begin = |name: &str| self.at.get(name).and_then(|begin| i64::try_from(*begin).ok());
        let (name, offset) = match operand {
            Operand::Symbol(name) => {
                *operand = match begin(name) {
                    None => return,
                    Some(0) => Operand::Symbol(self.name.clone()),
                    Some(begin) => Operand::SymbolOffset(self.name.clone(), begin),
                };
                return;
            }
            Operand::SymbolOffset(name, offset)
            | Operand::Address(Address { base: AddressBase::Symbol(name), offset }) => (name, offset),
            _ => return,
        };
        if let Some(begin) = begin(name) {
            *offset = offset.saturating_add(begin);
            name.clone_from(&self.name);
        }
    }
}

/// Whether every access of a body that names a variable stays in it and is aligned there, so that it passes as it is, and
/// none is longer than this.
pub(super) fn fits(statements: &[Statement], own: &[Own], most: u64) -> bool {
    let extents: HashMap<&str, u64> =
        own.iter().map(|own| (own.variable.name.as_str(), own.symbol.bytes)).collect();
    statements.iter().all(|statement| {
        let Statement::Instruction(instruction) = statement else { return true };
        let accesses = table::check(instruction).and_then(|row| access::decode(row, instruction));
        accesses.unwrap_or_default().iter().all(|access| {
            if access.space == Space::Shared && access.extent > most {
                return false;
            }
            let AddressBase::Symbol(name) = &access.address.base else { return true };
            let Some(bytes) = extents.get(name.as_str()).filter(|_| access.space == Space::Shared) else {
                return true;
            };
            super::shared::is_within(access, *bytes)
        })
    })
}
