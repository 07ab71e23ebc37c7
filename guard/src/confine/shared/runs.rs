//! Runs: accesses of one width off one base between which the thread cannot turn away.

use super::{Clamp, How, WIDTHS};
use crate::maps::HashMap;

use crate::access::{self, Access};
use crate::ast::{AddressBase, Instruction, Statement};
use crate::table::{self, Treatment};

/// An access that may be of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// Its statement.
    index: usize,
    offset: i64,
}

/// What the addresses of a run start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Base<'a> {
    Register(&'a str),
    Symbol(&'a str),
}

impl<'a> Base<'a> {
    fn of(base: &'a AddressBase) -> Option<Self> {
        match base {
            AddressBase::Register(name) => Some(Self::Register(name)),
            AddressBase::Symbol(name) => Some(Self::Symbol(name)),
            AddressBase::Absolute => None,
        }
    }
}

/// The search for runs.
pub(crate) struct Runs<'a> {
    pub(super) statements: &'a [Statement],
    /// Bytes that the entry's shared memory has at least, or can be made to have.
    pub(super) bytes: u64,
    /// Whether an access is inside a variable as it stands.
    pub(super) is_proven: &'a dyn Fn(&Access<'_>) -> bool,
    pub(super) open: HashMap<(Base<'a>, u64), Vec<Member>>,
    pub(super) clamps: HashMap<usize, Clamp>,
}

impl<'a> Runs<'a> {
    pub(super) fn find(mut self) -> HashMap<usize, Clamp> {
        let statements = self.statements;
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Instruction(instruction) => self.instruction(index, instruction),
                Statement::Label(..)
                | Statement::Variable(_)
                | Statement::Block(..)
                | Statement::Directive(_) => {
                    self.close_all();
                }
            }
        }
        self.close_all();
        self.clamps
    }

    fn instruction(&mut self, index: usize, instruction: &'a Instruction) {
        let Some(row) = table::row_of(instruction) else { return };
        if let Ok(accesses) = access::decode(row, instruction)
            && let Some(access) = accesses.shared()
            && !(self.is_proven)(access)
        {
            let member = Member { index, offset: access.address.offset };
            if access.extent != access.bytes {
                self.clamps.insert(
                    index,
                    Clamp { least: access.address.offset, span: access.extent, how: How::Between },
                );
            } else {
                match Base::of(&access.address.base) {
                    Some(base) if instruction.predicate.is_none() => {
                        self.open.entry((base, access.bytes)).or_default().push(member);
                    }
                    _ => self.single(member, access.bytes),
                }
            }
        }
        if row.treatment == Treatment::Branch || matches!(row.name, "ret" | "exit") {
            self.close_all();
            return;
        }
        let mut written = Vec::new();
        table::written(row, instruction, &mut |name| written.push(name));
        for name in written {
            for bytes in WIDTHS {
                if let Some(members) = self.open.remove(&(Base::Register(name), bytes)) {
                    self.close(&members, bytes);
                }
            }
        }
    }

    fn close_all(&mut self) {
        for ((_, bytes), members) in std::mem::take(&mut self.open) {
            self.close(&members, bytes);
        }
    }

    fn close(&mut self, members: &[Member], bytes: u64) {
        match self.together(members, bytes) {
            Some(clamp) => self.clamps.extend(members.iter().map(|member| (member.index, clamp))),
            None => members.iter().for_each(|member| self.single(*member, bytes)),
        }
    }

    /// One clamp for all, where the run's span is known to fit and every offset keeps the alignment.
    fn together(&self, members: &[Member], bytes: u64) -> Option<Clamp> {
        let least = members.iter().map(|member| member.offset).min()?;
        let most = members.iter().map(|member| member.offset).max()?;
        let span = u64::try_from(most.checked_sub(least)?).ok()?.checked_add(bytes)?;
        let aligned = members.iter().all(|member| {
            member.offset.checked_sub(least).is_some_and(|ahead| ahead.unsigned_abs().is_multiple_of(bytes))
        });
        (aligned && span <= self.bytes).then_some(Clamp { least, span, how: How::Between })
    }

    fn single(&mut self, Member { index, offset }: Member, bytes: u64) {
        self.clamps.insert(index, Clamp { least: offset, span: bytes, how: How::Between });
    }
}
