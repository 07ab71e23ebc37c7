//! Registers that are only moved among one another, as buffers are that take turns: where nothing writes some registers but
//! moves from others of them and of addresses in one variable, each is one of these addresses whenever it is read,
//! whichever way control took.

use crate::maps::HashMap;

use super::edges::{Edges, Writes};
use super::{Base, Pointer};
use crate::ast::{Instruction, Operand, Statement};
use crate::names::Class;
use crate::values::number::Number;

/// What such registers are.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved<'a> {
    /// Which of the sets each is in.
    set_of: HashMap<&'a str, usize>,
    /// Between what addresses those of a set lie; none where other things are written to one.
    sets: Vec<Option<Pointer<'a>>>,
}

/// What is written to a register.
enum Source<'a> {
    /// A variable, and how far from its first byte.
    Address(&'a str, i32),
    Register(&'a str),
}

impl<'a> Source<'a> {
    fn address(&self) -> Option<Pointer<'a>> {
        match self {
            Self::Address(variable, offset) => {
                Some(Pointer::start(Base::Shared(variable)).plus(Number::exactly((*offset).into())))
            }
            Self::Register(_) => None,
        }
    }
}

impl<'a> Moved<'a> {
    /// Of a body.
    pub(super) fn of(edges: &Edges<'a>) -> Self {
        let writes = edges.writes();
        let several = |(name, writes): (&&'a str, &Writes)| {
            let word = matches!(Class::parse(name), Some((Class::Word, _)));
            (word && writes.several().is_some()).then_some(*name)
        };
        let mut rest: Vec<&str> = writes.iter().filter_map(several).collect();
        // By register what is written to it; nothing where that is anything else.
        let mut sources: HashMap<&str, Option<Vec<Source<'a>>>> = HashMap::default();
        while let Some(name) = rest.pop() {
            if sources.contains_key(name) {
                continue;
            }
            let of = writes.get(name).and_then(|writes| of_writes(name, writes, edges.statements));
            for source in of.iter().flatten() {
                if let Source::Register(other) = source {
                    rest.push(other);
                }
            }
            sources.insert(name, of);
        }
        let mut moved = Self::default();
        let named: HashMap<&str, usize> = sources.keys().copied().zip(0..).collect();
        let mut parents: Vec<usize> = (0..named.len()).collect();
        for (name, of) in &sources {
            for source in of.iter().flatten() {
                if let (Source::Register(other), Some(one)) = (source, named.get(name))
                    && let Some(other) = named.get(other)
                {
                    let (one, other) = (root(&mut parents, *one), root(&mut parents, *other));
                    if let Some(parent) = parents.get_mut(one) {
                        *parent = other;
                    }
                }
            }
        }
        // What each set holds so far: nothing yet, something, or anything.
        let mut sets: Vec<Option<Option<Pointer<'a>>>> = vec![Some(None); named.len()];
        for (name, of) in &sources {
            let Some(index) = named.get(name).map(|index| root(&mut parents, *index)) else { continue };
            let Some(set) = sets.get_mut(index) else { continue };
            let Some(of) = of else {
                *set = None;
                continue;
            };
            moved.set_of.insert(name, index);
            for source in of {
                let Some(fact) = source.address() else { continue };
                *set = set.and_then(|known| known.map_or(Some(fact), |known| known.or(fact))).map(Some);
            }
        }
        moved.sets = sets.into_iter().map(Option::flatten).collect();
        moved
    }

    /// The registers of all sets.
    pub(super) fn names(&self) -> impl Iterator<Item = &&'a str> + '_ {
        self.set_of.keys()
    }

    /// Between what addresses a register always is.
    pub(super) fn of_register(&self, name: &str) -> Option<Pointer<'a>> {
        *self.sets.get(*self.set_of.get(name)?)?
    }

    /// Something else is written to a register.
    pub(super) fn forget(&mut self, name: &str) {
        if let Some(set) = self.set_of.get(name).and_then(|index| self.sets.get_mut(*index)) {
            *set = None;
        }
    }
}

/// What is written to a register, where that is such addresses and registers only. Whether it is written where a predicate
/// says so does not matter: what it was before, it was written as.
fn of_writes<'a>(name: &str, writes: &Writes, statements: &'a [Statement]) -> Option<Vec<Source<'a>>> {
    let mut sources = Vec::new();
    for at in writes.all() {
        let Some(Statement::Instruction(instruction)) = statements.get(at) else { return None };
        let Instruction { opcode, operands, .. } = instruction;
        let (is_move, is_choice) = (opcode == "mov", opcode == "selp");
        let words = instruction.words();
        let [Operand::Register(to), from @ ..] = operands.as_slice() else { return None };
        let fits = matches!(words.as_slice(), ["b32" | "u32" | "s32"]) && to == name;
        (fits && (is_move || is_choice)).then_some(())?;
        for from in from.iter().take(1 + usize::from(is_choice)) {
            sources.push(match from {
                Operand::Symbol(variable) => Source::Address(variable, 0),
                Operand::SymbolOffset(variable, offset) => {
                    Source::Address(variable, i32::try_from(*offset).ok()?)
                }
                Operand::Register(other) if matches!(Class::parse(other), Some((Class::Word, _))) => {
                    Source::Register(other)
                }
                _ => return None,
            });
        }
    }
    Some(sources)
}

/// The one that stands for a register's set.
fn root(parents: &mut [usize], mut index: usize) -> usize {
    while let Some(parent) = parents.get(index).copied().filter(|parent| *parent != index) {
        let above = parents.get(parent).copied().unwrap_or(parent);
        if let Some(parent) = parents.get_mut(index) {
            *parent = above;
        }
        index = above;
    }
    index
}
