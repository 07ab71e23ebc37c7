//! What an instruction reads, writes and reaches: each access stands behind its sequence, inside its variable, or rests on
//! what is known of its address.

use crate::access::{self, Access, Accesses};
use crate::ast::{AddressBase, Instruction, Operand, Space};
use crate::body::{Pass, ZEROED};
use crate::extents::Extent;
use crate::limits::SHARED_TERMS_MAX;
use crate::names::{self, Class};
use crate::refusal::unverified;
use crate::report::Reason;
use crate::sequence;
use crate::table::{self, Row, Treatment};
use crate::values::{Known as _, Proof};

impl<'a> Pass<'a> {
    /// Checks an instruction with whatever it reaches.
    pub(super) fn confined(
        &mut self,
        row: &Row,
        instruction: &'a Instruction,
        reads: &[&'a str],
        writes: &[&'a str],
    ) -> Result<(), Reason> {
        let of_guard = |name: &&str| names::is_reserved(name) && !names::is_of_slice(name);
        let reserved = reads.iter().any(of_guard)
            || writes.iter().any(|name| names::is_reserved(name))
            || instruction.operands.iter().any(is_reserved_symbol);
        self.assigned(reads, writes)?;
        // It stands for the carry flag, which has no name in a text.
        let mut names_carry = false;
        for operand in &instruction.operands {
            table::each(operand, &mut |name| names_carry |= name == table::CARRY);
        }
        if names_carry {
            return Err(unverified("a register called `%cc`"));
        }
        self.terms.reads_grid |= reads.iter().any(|name| names::is_of_grid(name));
        self.go(row, instruction, writes)?;
        let accesses = access::decode(row, instruction)?;
        if accesses.shared().is_some() {
            self.cleared()?;
        }
        if accesses.iter().any(|access| access.space == Space::Local) && !self.flow.is_written(ZEROED) {
            return Err(unverified("local memory that may not have been zeroed"));
        }
        if reserved && accesses.iter().next().is_none() {
            // Its access decides whether it stands here rightly.
            self.lead.push(instruction);
            let fits = instruction.predicate.is_none() && self.lead.len() <= sequence::LENGTH_MAX;
            return if fits { Ok(()) } else { Err(unverified("a write to a reserved register")) };
        }
        if !(reserved || self.lead.is_empty()) {
            return Err(unverified("a sequence that is interrupted"));
        }
        if accesses.iter().next().is_none() {
            return self.plain(row, instruction);
        }
        if writes.iter().any(|name| names::is_reserved(name)) {
            return Err(unverified("a reserved register that an access writes"));
        }
        self.only_addresses_are_reserved(row, instruction, &accesses)?;
        let lead = std::mem::take(&mut self.lead);
        let mut left = lead.as_slice();
        for access in accesses.iter() {
            if is_reserved_address(access) {
                let (rest, rests) =
                    sequence::check(left, access, &self.declared, &self.numbers, self.is_fast)?;
                left = rest;
                self.terms.dynamic_shared_min = self.terms.dynamic_shared_min.max(rests.dynamic);
                if let Some((root, bytes)) = rests.aligned {
                    let (align, _) = self.terms.pointers.entry(root).or_default();
                    *align = bytes.max(*align);
                }
            } else {
                self.proven(access)?;
            }
            left = sequence::stride(left, instruction, access)?;
            if row.treatment == Treatment::Copy && access.index == 1 {
                left = sequence::source_bytes(left, instruction, access.bytes)?;
            }
        }
        if left.is_empty() { Ok(()) } else { Err(unverified("an access that no sequence confines")) }
    }

    /// No register is read before it is written on every path to here, and every register is declared.
    pub(crate) fn assigned(&self, reads: &[&str], writes: &[&str]) -> Result<(), Reason> {
        for name in reads {
            let known = if names::is_of_slice(name) {
                self.declared.grid.contains(name)
            } else {
                self.flow.is_written(name) || names::is_special(name) || names::is_reserved(name)
            };
            if !known {
                return Err(unverified(&format!("`{name}` may be read before it is written")));
            }
        }
        for name in reads.iter().chain(writes) {
            let declared = Class::parse(name).is_some_and(|(class, number)| {
                self.declared.registers.get(&class).is_some_and(|count| number < *count)
            });
            if !(declared || names::is_special(name) || names::is_reserved(name) || *name == table::CARRY) {
                return Err(unverified(&format!("`{name}` is not declared")));
            }
        }
        Ok(())
    }

    /// What is written from here on, and where control goes.
    fn go(&mut self, row: &Row, instruction: &'a Instruction, writes: &[&'a str]) -> Result<(), Reason> {
        let always = instruction.predicate.is_none();
        if table::parts(row, instruction) {
            self.whole = false;
        }
        if matches!(row.treatment, Treatment::Branch | Treatment::Gate) {
            self.lanes.part();
        }
        if always {
            // The guard's own are read in sequences only. Those write them first, or the prologue has; counters have to have fuel.
            for name in writes.iter().filter(|name| !names::is_reserved(name)) {
                self.flow.write(name);
            }
        }
        if row.treatment == Treatment::Branch
            && let Some(Operand::Symbol(label)) = instruction.operands.first()
        {
            self.goes_to(label)?;
        }
        if always && (row.treatment == Treatment::Branch || matches!(row.name, "ret" | "exit")) {
            self.flow.end();
        }
        Ok(())
    }

    /// An instruction on the tenant's registers only.
    fn plain(&self, row: &Row, instruction: &Instruction) -> Result<(), Reason> {
        for operand in &instruction.operands {
            if let Operand::Symbol(name) | Operand::SymbolOffset(name, _) = operand {
                let known = match row.treatment {
                    Treatment::Branch => self.labels.contains(name.as_str()),
                    _ => self.declared.extents.get(name).is_some_and(|extent| match extent.space {
                        Space::Shared | Space::Local | Space::Constant => true,
                        // A number among those of its bank, which is read by a sequence only. Not as a word: addresses that are
                        // words are of shared memory, and aligned as its variables are.
                        Space::Parameter => {
                            let words = instruction.words();
                            row.name == "mov" && matches!(words.as_slice(), ["b64" | "u64" | "s64"])
                        }
                        Space::Global | Space::Register => false,
                    }),
                };
                if !known {
                    return Err(unverified(&format!("`{name}` may not be named here")));
                }
            }
        }
        Ok(())
    }

    /// An access without a sequence: by symbol, inside the symbol's variable; or by what is known of its register.
    fn proven(&mut self, access: &Access<'_>) -> Result<(), Reason> {
        let address = access.address;
        let name = match &address.base {
            AddressBase::Register(_) => {
                // What is known of a register is known for as many bytes as the access is aligned to.
                let usable = self.is_fast && access.extent == access.bytes;
                let proof = self.numbers.proof(access).filter(|_| usable);
                let proof = proof.ok_or_else(|| unverified("an access that is not confined"))?;
                return self.rests_on(proof);
            }
            AddressBase::Absolute => return Err(unverified("an absolute address")),
            AddressBase::Symbol(name) => name,
        };
        let extent = self.declared.extents.get(name).filter(|extent| extent.space == access.space);
        let Some(extent) = extent else { return Err(unverified("an access to an unknown symbol")) };
        let writable = matches!(access.space, Space::Shared | Space::Local);
        let inside = u64::try_from(address.offset)
            .ok()
            .filter(|offset| offset.is_multiple_of(access.bytes) && extent.align.is_multiple_of(access.bytes))
            .and_then(|offset| offset.checked_add(access.extent))
            .is_some_and(|end| end <= extent.bytes);
        // What the prologue's bounds do not cover is not zeroed.
        let zeroed = access.space != Space::Shared
            || self
                .declared
                .shared
                .as_ref()
                .and_then(|bounds| bounds.names.get(name.as_str()))
                .is_some_and(|start| u64::try_from(address.offset).is_ok_and(|offset| offset >= *start));
        if inside && zeroed && (access.reads_only || writable) {
            Ok(())
        } else {
            Err(unverified("an access outside its variable"))
        }
    }

    /// Makes what an access rests on terms of the launch.
    fn rests_on(&mut self, proof: Proof<'a>) -> Result<(), Reason> {
        match proof {
            Proof::Checked => Ok(()),
            Proof::Pointer(proof) => {
                let (align, writes) = self.terms.pointers.entry(proof.root).or_default();
                *align = proof.align.max(*align);
                *writes |= proof.writes;
                Ok(())
            }
            Proof::Shared(proof) => {
                let extent = self.declared.extents.get(proof.variable);
                // What the prologue's bounds do not cover is not zeroed. Every name of dynamic shared memory names the
                // same bytes, and every shared variable is aligned for the widest access.
                let covered = |extent: &&Extent| {
                    self.declared.shared.as_ref().is_some_and(|bounds| {
                        let named = bounds.names.get(proof.variable);
                        named.is_some_and(|start| proof.start >= *start)
                            || (extent.bytes == 0 && bounds.dynamic)
                    })
                };
                let extent = extent.filter(|extent| extent.space == Space::Shared).filter(covered);
                let term = extent.and_then(|extent| proof.term(extent.bytes));
                let Some(term) = term else { return Err(unverified("an access outside its variable")) };
                if let Some((key, constant)) = term {
                    let known = self.terms.shared.entry(key).or_default();
                    *known = constant.max(*known);
                }
                if self.terms.shared.len() > SHARED_TERMS_MAX {
                    return Err(unverified("a fast version with too many terms"));
                }
                Ok(())
            }
        }
    }

    /// Apart from its addresses and what a copy takes, which its sequence decides, an access reads no register of the
    /// guard but those that tell of the whole grid.
    fn only_addresses_are_reserved(
        &self,
        row: &Row,
        instruction: &Instruction,
        accesses: &Accesses<'_>,
    ) -> Result<(), Reason> {
        let others = instruction.operands.iter().enumerate().filter(|(index, _)| {
            accesses.iter().all(|access| access.index != *index)
                && !(row.treatment == Treatment::Copy && *index == 3)
                && accesses.iter().all(|access| access.stride.is_none_or(|(at, _)| at != *index))
        });
        let mut reserved =
            instruction.predicate.iter().any(|predicate| names::is_reserved(&predicate.register));
        for (_, operand) in others {
            let of_guard = |name: &str| names::is_reserved(name) && !names::is_of_slice(name);
            table::each(operand, &mut |name| reserved |= of_guard(name));
        }
        if reserved { Err(unverified("a reserved register as data")) } else { Ok(()) }
    }
}

fn is_reserved_address(access: &Access<'_>) -> bool {
    match &access.address.base {
        AddressBase::Register(name) | AddressBase::Symbol(name) => names::is_reserved(name),
        AddressBase::Absolute => false,
    }
}

fn is_reserved_symbol(operand: &Operand) -> bool {
    match operand {
        Operand::Symbol(name) | Operand::SymbolOffset(name, _) => names::is_reserved(name),
        Operand::Address(address) => {
            matches!(&address.base, AddressBase::Symbol(name) if names::is_reserved(name))
        }
        _ => false,
    }
}
