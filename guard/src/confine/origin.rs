//! Which state space the generic address in a register belongs to, as far as can be told.
//!
//! A mistake here cannot break the confinement, only the program: whatever space an access is given, it is
//! confined to that space. So what is not certain is [`Origin::Any`], and tested when it runs.

use crate::maps::HashMap;

use crate::ast::{Instruction, Operand, Space, Statement};
use crate::names::Class;
use crate::table;

/// Rounds until the origins must have settled; real code takes two or three.
const ROUNDS_MAX: usize = 16;

/// Where the value of a 64-bit register comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A number that stands in the text, or where a variable lies in its own space: as a generic address it is
    /// nobody's, so it may join any other.
    Literal,
    /// A number that was computed.
    Number,
    /// The entry's parameters, where all addresses are global.
    Parameter,
    /// A generic address in this space.
    Of(Space),
    /// Perhaps an address, of any space.
    Any,
}

/// The origins of a body's 64-bit registers.
#[derive(Debug, Default)]
pub(super) struct Origins(HashMap<String, Origin>);

impl Origins {
    /// The space of the generic address in a register; none where it may be one or another.
    pub(super) fn space(&self, register: &str) -> Option<Space> {
        match self.0.get(register) {
            Some(Origin::Parameter) => Some(Space::Global),
            Some(Origin::Of(space)) => Some(*space),
            Some(Origin::Literal | Origin::Number | Origin::Any) | None => None,
        }
    }
}

/// Follows values through a flat body, all definitions of a register together.
pub(super) fn find(statements: &[Statement]) -> Origins {
    let mut origins: HashMap<&str, Origin> = HashMap::default();
    for round in 0..=ROUNDS_MAX {
        let mut changed = false;
        for statement in statements {
            let Statement::Instruction(instruction) = statement else { continue };
            for_defined(instruction, &mut origins, &mut changed);
        }
        if !changed {
            break;
        }
        if round == ROUNDS_MAX {
            // Not settled: nothing is known of any address.
            origins.clear();
        }
    }
    Origins(origins.into_iter().map(|(register, origin)| (register.to_owned(), origin)).collect())
}

fn for_defined<'a>(instruction: &'a Instruction, origins: &mut HashMap<&'a str, Origin>, changed: &mut bool) {
    let Ok(row) = table::check(instruction) else { return };
    let mut written = Vec::new();
    table::written(row, instruction, &mut |name| {
        if is_double(name) {
            written.push(name);
        }
    });
    if written.is_empty() {
        return;
    }
    let Some(origin) = result(instruction, origins) else { return };
    for name in written {
        let joined = origins.get(name).map_or(origin, |known| known.join(origin));
        *changed |= origins.insert(name, joined) != Some(joined);
    }
}

fn is_double(name: &str) -> bool {
    matches!(Class::parse(name), Some((Class::Double, _)))
}

/// What an instruction's 64-bit results are; none where its operands are not known yet.
fn result(instruction: &Instruction, origins: &HashMap<&str, Origin>) -> Option<Origin> {
    let of = |index: usize| match instruction.operands.get(index) {
        Some(Operand::Register(name)) if is_double(name) => origins.get(name.as_str()).copied(),
        Some(Operand::Register(_)) => Some(Origin::Number),
        Some(Operand::Integer(_)) => Some(Origin::Literal),
        Some(Operand::Symbol(_) | Operand::SymbolOffset(..)) => Some(Origin::Literal),
        _ => Some(Origin::Any),
    };
    let is = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    let both = |first: usize, second: usize, f: fn(Origin, Origin) -> Origin| match (of(first), of(second)) {
        (Some(first), Some(second)) => Some(f(first, second)),
        (Some(_), None) | (None, Some(_) | None) => None,
    };
    match instruction.opcode.as_str() {
        "mov" | "cvt" => of(1),
        "cvta" => Some(match (is("global"), is("to"), is("local")) {
            (true, _, _) => Origin::Of(Space::Global),
            (false, true, _) => Origin::Any,
            (false, false, true) => Origin::Of(Space::Local),
            (false, false, false) => Origin::Of(Space::Shared),
        }),
        // Masks take away low bits, and flags put some there.
        "add" | "and" | "or" => both(1, 2, Origin::sum),
        "sub" => both(1, 2, Origin::difference),
        "mad" => of(3).map(|third| Origin::Number.sum(third)),
        "selp" | "min" | "max" | "slct" => both(1, 2, Origin::join),
        "mul" | "shl" | "shr" | "div" | "rem" | "bfe" | "neg" | "not" | "abs" | "brev" | "cnot" => {
            Some(Origin::Number)
        }
        "ld" if is("b64") || is("u64") || is("s64") => {
            Some(if is("param") { Origin::Parameter } else { Origin::Any })
        }
        "ld" => Some(Origin::Number),
        _ => Some(Origin::Any),
    }
}

impl Origin {
    fn join(self, other: Self) -> Self {
        use Origin::{Any, Literal, Of, Parameter};
        match (self, other) {
            (one, other) if one == other => one,
            (Literal, other) | (other, Literal) => other,
            (Parameter, Of(Space::Global)) | (Of(Space::Global), Parameter) => Of(Space::Global),
            _ => Any,
        }
    }

    fn sum(self, other: Self) -> Self {
        use Origin::{Any, Literal, Number, Of, Parameter};
        match (self, other) {
            (Literal, Literal) => Literal,
            (Number, Literal | Number) | (Literal, Number) => Number,
            (Literal | Number, address) | (address, Literal | Number) => address,
            (Parameter, Parameter) => Parameter,
            (Parameter, Of(Space::Global)) | (Of(Space::Global), Parameter) => Of(Space::Global),
            _ => Any,
        }
    }

    fn difference(self, other: Self) -> Self {
        use Origin::{Any, Literal, Number, Of};
        match (self, other) {
            (one, Literal | Number) => one.sum(other),
            (Of(one), Of(other)) if one == other => Number,
            _ => Any,
        }
    }
}
