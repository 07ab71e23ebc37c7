//! What functions are called with and return, put into registers.
//!
//! An argument is some bytes that are stored and loaded in pieces, each as large as it is aligned: of two that
//! overlap one lies in the other. A piece that lies in no other is a *cell* and becomes a register; what lies in
//! it is inserted and extracted. (Compilers store a `char` as 32 bits and load 8 of them.)

use crate::maps::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet};

use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Span, Statement};
use crate::confine::calls::{ARGUMENT, Budget};
use crate::confine::frames::PASS;
use crate::confine::lines::{plain, register};
use crate::confine::scope::Scopes;
use crate::names::Class;
use crate::report::{Reason, Report};

/// Replaces the accesses to arguments in a flat body by moves.
pub(super) fn lower(
    statements: Vec<Statement>,
    scopes: &mut Scopes,
    budget: &mut Budget,
    report: &mut Report,
) -> Vec<Statement> {
    let mut pieces: BTreeMap<String, BTreeSet<Piece>> = BTreeMap::new();
    for statement in &statements {
        let Some((access, argument)) = argument_of(statement) else { continue };
        match Shape::of(access) {
            Ok(shape) => {
                pieces
                    .entry(argument.to_owned())
                    .or_default()
                    .extend((0..shape.count()).map(|at| shape.piece(at)));
            }
            Err(reason) => report.add(access.span, reason),
        }
    }
    let passes: Vec<[String; 2]> = statements.iter().filter_map(pass_of).collect();
    if pieces.is_empty() && passes.is_empty() {
        return statements;
    }
    if !join(&mut pieces, &passes, budget) {
        let reason = Reason::Limit { what: "pieces of arguments", most: budget.most() as u64 };
        report.add(Span::WHOLE, reason);
        return Vec::new();
    }
    let mut pass = Pass { cells: HashMap::default(), scopes, lowered: Vec::with_capacity(statements.len()) };
    for (argument, pieces) in pieces {
        let cells = cells(&pieces, pass.scopes);
        pass.cells.insert(argument, cells);
    }
    for statement in statements {
        if let (Some(names), Statement::Instruction(Instruction { span, .. })) =
            (pass_of(&statement), &statement)
        {
            pass.move_all(&names, *span);
            continue;
        }
        match argument_of(&statement) {
            None => pass.lowered.push(statement),
            Some((access, argument)) => {
                let done = Shape::of(access).and_then(|shape| pass.access(access, argument, &shape));
                if let Err(reason) = done {
                    report.add(access.span, reason);
                }
            }
        }
    }
    pass.lowered
}

/// The access to an argument that a statement is.
fn argument_of(statement: &Statement) -> Option<(&Instruction, &str)> {
    let Statement::Instruction(access) = statement else { return None };
    if !matches!(access.opcode.as_str(), "ld" | "st") {
        return None;
    }
    access.operands.iter().find_map(|operand| match operand {
        Operand::Address(Address { base: AddressBase::Symbol(name), .. }) if name.starts_with(ARGUMENT) => {
            Some((access, name.as_str()))
        }
        _ => None,
    })
}

/// The arguments of which all of the second is moved to the first.
fn pass_of(statement: &Statement) -> Option<[String; 2]> {
    match statement {
        Statement::Instruction(Instruction { opcode, operands, .. }) if opcode == PASS => {
            match operands.as_slice() {
                [Operand::Symbol(to), Operand::Symbol(from)] => Some([to.clone(), from.clone()]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Gives arguments that are moved to each other the same pieces; false where they are too many, or what is to be moved.
fn join(pieces: &mut BTreeMap<String, BTreeSet<Piece>>, passes: &[[String; 2]], budget: &mut Budget) -> bool {
    let mut next: HashMap<&str, Vec<&str>> = HashMap::default();
    for [one, other] in passes {
        next.entry(one).or_default().push(other);
        next.entry(other).or_default().push(one);
    }
    let mut seen: HashSet<&str> = HashSet::default();
    for [first, _] in passes {
        let mut group = Vec::new();
        let mut open = vec![first.as_str()];
        while let Some(name) = open.pop() {
            if seen.insert(name) {
                group.push(name);
                open.extend(next.get(name).into_iter().flatten());
            }
        }
        let all: BTreeSet<Piece> =
            group.iter().filter_map(|name| pieces.get(*name)).flatten().copied().collect();
        if !budget.takes(all.len().saturating_mul(group.len())) {
            return false;
        }
        for name in group {
            pieces.insert(name.to_owned(), all.clone());
        }
    }
    passes.iter().all(|[to, _]| budget.takes(pieces.get(to).map_or(0, BTreeSet::len)))
}

/// Bytes of an argument that are stored or loaded as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    start: u64,
    bytes: u64,
}

/// What an access to an argument moves.
struct Shape<'a> {
    start: u64,
    /// Bytes of each element.
    bytes: u64,
    signed: bool,
    elements: &'a [Operand],
    stores: bool,
}

impl<'a> Shape<'a> {
    fn of(access: &'a Instruction) -> Result<Self, Reason> {
        let malformed = || Reason::Malformed(format!("`{}` of a parameter in such a form", access.opcode));
        let stores = access.opcode == "st";
        let ([Operand::Address(address), value] | [value, Operand::Address(address)]) =
            access.operands.as_slice()
        else {
            return Err(malformed());
        };
        let (mut element, mut count) = (None, 1);
        for modifier in access.modifiers.iter().filter(|word| *word != "param") {
            match (modifier.as_str(), element) {
                ("v2", None) => count = 2,
                ("v4", None) => count = 4,
                (modifier, None) => element = Some(scalar(modifier).ok_or_else(malformed)?),
                (_, Some(_)) => return Err(malformed()),
            }
        }
        let (bytes, signed) = element.ok_or_else(malformed)?;
        let elements = match value {
            Operand::Vector(elements) => elements.as_slice(),
            single => std::slice::from_ref(single),
        };
        let start = u64::try_from(address.offset).ok().filter(|start| start.is_multiple_of(bytes));
        let start = start.filter(|start| *start < 1 << 16).ok_or_else(malformed)?;
        if elements.len() != count || !matches!(value, Operand::Vector(_)) && count > 1 {
            return Err(malformed());
        }
        Ok(Self { start, bytes, signed, elements, stores })
    }

    fn count(&self) -> u64 {
        self.elements.len() as u64
    }

    fn piece(&self, at: u64) -> Piece {
        Piece { start: self.start + at * self.bytes, bytes: self.bytes }
    }
}

/// Bytes of a type and whether it is signed.
fn scalar(modifier: &str) -> Option<(u64, bool)> {
    Some(match modifier {
        "b8" | "u8" => (1, false),
        "s8" => (1, true),
        "b16" | "u16" | "f16" | "bf16" => (2, false),
        "s16" => (2, true),
        "b32" | "u32" | "f32" | "f16x2" | "bf16x2" => (4, false),
        "s32" => (4, true),
        "b64" | "u64" | "f64" => (8, false),
        "s64" => (8, true),
        _ => return None,
    })
}

/// A piece that is a register.
#[derive(Clone)]
struct Cell {
    piece: Piece,
    register: String,
    class: Class,
}

/// The cells of an argument, by their first byte.
fn cells(pieces: &BTreeSet<Piece>, scopes: &mut Scopes) -> BTreeMap<u64, Cell> {
    let mut whole: BTreeMap<u64, (Piece, bool)> = BTreeMap::new();
    let mut sorted: Vec<Piece> = pieces.iter().copied().collect();
    sorted.sort_by_key(|piece| (piece.start, std::cmp::Reverse(piece.bytes)));
    for piece in sorted {
        match whole.values_mut().next_back() {
            Some((last, cut)) if piece.start < last.start + last.bytes => *cut = true,
            _ => {
                whole.insert(piece.start, (piece, false));
            }
        }
    }
    let cell = |(start, (piece, cut)): (u64, (Piece, bool))| {
        // There is no `bfi` for 16 bits.
        let class = class(if cut { piece.bytes.max(4) } else { piece.bytes });
        (start, Cell { piece, register: scopes.fresh(class), class })
    };
    whole.into_iter().map(cell).collect()
}

/// Which class of registers holds a value of so many bytes.
fn class(bytes: u64) -> Class {
    match bytes {
        0..=2 => Class::Half,
        3..=4 => Class::Word,
        5.. => Class::Double,
    }
}

fn bits(class: Class) -> u64 {
    match class {
        Class::Predicate => 1,
        Class::Half => 16,
        Class::Word => 32,
        Class::Double => 64,
    }
}

/// The rewriting of one body.
struct Pass<'a> {
    cells: HashMap<String, BTreeMap<u64, Cell>>,
    scopes: &'a mut Scopes,
    lowered: Vec<Statement>,
}

impl Pass<'_> {
    /// Moves an argument to another, which has the same cells.
    fn move_all(&mut self, names: &[String; 2], span: Span) {
        let [to, from] = names.each_ref().map(|name| self.cells.get(name).cloned().unwrap_or_default());
        let context = Context { predicate: None, span };
        for (into, value) in to.values().zip(from.values()) {
            let operands = vec![register(&into.register), register(&value.register)];
            self.push("mov", &[into.class.mov()], operands, &context);
        }
    }

    fn access(&mut self, access: &Instruction, argument: &str, shape: &Shape<'_>) -> Result<(), Reason> {
        let context = Context { predicate: access.predicate.clone(), span: access.span };
        for (element, at) in shape.elements.iter().zip(0..) {
            let piece = shape.piece(at);
            let cells = self.cells.get(argument);
            let cell = cells.and_then(|cells| cells.range(..=piece.start).next_back());
            let Some(cell) = cell.map(|(_, cell)| cell.clone()) else { continue };
            if shape.stores {
                self.store(&cell, piece, element, &context)?;
            } else {
                self.load(&cell, piece, shape.signed, element, &context)?;
            }
        }
        Ok(())
    }

    fn store(&mut self, cell: &Cell, piece: Piece, value: &Operand, context: &Context) -> Result<(), Reason> {
        let whole = piece == cell.piece;
        let into = if whole { cell.register.clone() } else { self.scopes.fresh(cell.class) };
        match value {
            Operand::Register(name) => {
                let from = class_of(name)?;
                if bits(from) < piece.bytes * 8 && piece.bytes > 1 {
                    return Err(Reason::Malformed(format!("`{name}` is smaller than what is stored")));
                }
                self.convert(&into, cell.class, name, from, "u", context);
            }
            Operand::Integer(_) | Operand::Float32(_) | Operand::Float64(_) => {
                self.push("mov", &[cell.class.mov()], vec![register(&into), value.clone()], context);
            }
            _ => return Err(Reason::Malformed("a parameter is stored from a register".to_owned())),
        }
        if !whole {
            let own = || register(&cell.register);
            let number = |bytes: u64| Operand::Integer(i128::from(bytes * 8));
            let position = number(piece.start - cell.piece.start);
            let operands = vec![own(), register(&into), own(), position, number(piece.bytes)];
            self.push("bfi", &[cell.class.mov()], operands, context);
        }
        Ok(())
    }

    fn load(
        &mut self,
        cell: &Cell,
        piece: Piece,
        signed: bool,
        into: &Operand,
        context: &Context,
    ) -> Result<(), Reason> {
        let into = match into {
            Operand::Register(name) => name,
            Operand::Sink => return Ok(()),
            _ => return Err(Reason::Malformed("a parameter is loaded into a register".to_owned())),
        };
        let to = class_of(into)?;
        let mut from = cell.register.clone();
        let ahead = piece.start - cell.piece.start;
        if ahead > 0 {
            let shifted = self.scopes.fresh(cell.class);
            let distance = Operand::Integer(i128::from(ahead * 8));
            self.push(
                "shr",
                &[cell.class.mov()],
                vec![register(&shifted), register(&from), distance],
                context,
            );
            from = shifted;
        }
        let kind = if signed { "s" } else { "u" };
        if bits(to) > piece.bytes * 8 {
            // Also where the cell's register is wider than the piece.
            let (wide, narrow) = (format!("{kind}{}", bits(to)), format!("{kind}{}", piece.bytes * 8));
            self.push("cvt", &[&wide, &narrow], vec![register(into), register(&from)], context);
        } else {
            self.convert(into, to, &from, cell.class, kind, context);
        }
        Ok(())
    }

    /// Moves a register into another one, which may be narrower or wider.
    fn convert(&mut self, into: &str, to: Class, name: &str, from: Class, kind: &str, context: &Context) {
        let operands = vec![register(into), register(name)];
        if to == from {
            self.push("mov", &[to.mov()], operands, context);
        } else {
            let (to, from) = (format!("{kind}{}", bits(to)), format!("{kind}{}", bits(from)));
            self.push("cvt", &[&to, &from], operands, context);
        }
    }

    fn push(&mut self, opcode: &str, modifiers: &[&str], operands: Vec<Operand>, context: &Context) {
        let mut instruction = plain(opcode, modifiers, operands, context.span);
        instruction.predicate.clone_from(&context.predicate);
        self.lowered.push(Statement::Instruction(instruction));
    }
}

/// What the moves of an access have of it.
struct Context {
    predicate: Option<Predicate>,
    span: Span,
}

/// The class of a register that can hold a parameter.
fn class_of(name: &str) -> Result<Class, Reason> {
    let class = Class::parse(name).map(|(class, _)| class).filter(|class| *class != Class::Predicate);
    class.ok_or_else(|| Reason::Malformed(format!("`{name}` cannot hold a parameter")))
}
