//! Parameters of an entry whose address is taken.
//!
//! A program that indexes a structure it was launched with computes an address among its parameters. What lies beside them
//! in their constant bank is the driver's, and the guard's own. Where there is one such parameter and nothing is done with its
//! address but to read it, each read is kept inside the parameter. Otherwise each such parameter gets a copy in the thread's
//! local memory, made before anything else, whose addresses are confined like others there; a parameter that is only named
//! is read where it is.

use crate::access;
use crate::ast::{
    Address, AddressBase, Function, Instruction, Linkage, Operand, Space, Span, Statement, Type, Variable,
};
use crate::confine::calls::Budget;
use crate::confine::lines::plain;
use crate::limits::COPIED_PARAMETER_BYTES_MAX;
use crate::maps::{HashMap, HashSet};
use crate::names;
use crate::report::Reason;
use crate::table;

/// The one parameter whose address is taken, where it is read by that and nothing else is done with it.
pub(super) fn in_place<'a>(function: &'a Function, body: &[Statement]) -> Option<&'a Variable> {
    let named: HashMap<&str, &Variable> =
        function.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter)).collect();
    let mut taken = HashMap::default();
    find(body, &named, &mut taken);
    let mut all = taken.keys();
    let (Some(name), None) = (all.next(), all.next()) else { return None };
    let parameter = function.parameters.iter().find(|parameter| parameter.name == *name)?;
    let fits = only_read(body, parameter) && !hides(body, &HashSet::from_iter([*name]));
    fits.then_some(parameter)
}

/// Whether the address of a parameter is only moved into registers, and what is read by such an address is no wider than the
/// parameter is aligned.
fn only_read(body: &[Statement], parameter: &Variable) -> bool {
    let fits = |instruction: &Instruction| {
        let names = |operand: &Operand| matches!(operand, Operand::Symbol(name) | Operand::SymbolOffset(name, _) if *name == parameter.name);
        let moves = instruction.opcode == "mov"
            && matches!(instruction.words().as_slice(), ["b64" | "u64" | "s64"])
            && matches!(instruction.operands.as_slice(), [Operand::Register(_), Operand::Symbol(_)]);
        let of_parameters =
            instruction.modifiers.iter().any(|word| matches!(word.as_str(), "param" | "param::entry"));
        let by_register = instruction.operands.iter().any(|operand| {
            matches!(operand, Operand::Address(Address { base: AddressBase::Register(_), .. }))
        });
        (moves || !instruction.operands.iter().any(names))
            && match (instruction.opcode.as_str(), of_parameters) {
                ("ld", true) if by_register => read_bytes(instruction).is_some_and(|bytes| {
                    names::variable_align(parameter).is_multiple_of(bytes)
                        && names::variable_bytes(parameter).is_some_and(|all| all >= bytes)
                }),
                ("ld", true) | (_, false) => true,
                (_, true) => false,
            }
    };
    body.iter().all(|statement| match statement {
        Statement::Block(inner, _) => only_read(inner, parameter),
        Statement::Instruction(instruction) => instruction.opcode == "call" || fits(instruction),
        Statement::Variable(_) | Statement::Label(..) | Statement::Directive(_) => true,
    })
}

/// How many bytes a load reads as one.
fn read_bytes(load: &Instruction) -> Option<u64> {
    let row = table::row_of(load)?;
    let accesses = access::decode(row, load).ok()?;
    accesses.iter().map(|access| access.extent).max().filter(|bytes| bytes.is_power_of_two())
}

/// The body with such copies, where one is needed and the budget has what it adds.
pub(super) fn copied(
    function: &Function,
    body: &[Statement],
    budget: &mut Budget,
) -> Result<Option<Vec<Statement>>, Reason> {
    if in_place(function, body).is_some() {
        return Ok(None);
    }
    let mut taken: HashMap<&str, String> = HashMap::default();
    let named: HashMap<&str, &Variable> =
        function.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter)).collect();
    find(body, &named, &mut taken);
    let bytes = |name: &&str| named.get(*name).and_then(|parameter| names::variable_bytes(parameter));
    let all = taken.keys().map(bytes).try_fold(0_u64, |all, bytes| all.checked_add(bytes?));
    let kept: HashSet<&str> =
        taken.iter().flat_map(|(parameter, copy)| [*parameter, copy.as_str()]).collect();
    // Local memory has no room for more, and nothing is written for what is refused anyway.
    if taken.is_empty() || all.is_none_or(|all| all > COPIED_PARAMETER_BYTES_MAX) || hides(body, &kept) {
        return Ok(None);
    }
    let mut copied = Vec::with_capacity(body.len() + 2 * taken.len());
    // In the order of the parameters: what comes out is the same each time.
    for parameter in &function.parameters {
        if let Some(name) = taken.get(parameter.name.as_str()) {
            let Some(shape) = Pieces::of(parameter) else { return Ok(None) };
            if !budget.takes(shape.count()) {
                let what = "statements that copy parameters whose address is taken";
                return Err(Reason::Limit { what, most: budget.most() as u64 });
            }
            let Some(copies) = copy(parameter, name, shape) else { return Ok(None) };
            copied.extend(copies);
        }
    }
    copied.extend(body.iter().map(|statement| replaced(statement, &taken)));
    Ok(Some(copied))
}

/// Notes the parameters that are named by something other than an access to them.
fn find<'a>(
    body: &'a [Statement],
    named: &HashMap<&str, &'a Variable>,
    taken: &mut HashMap<&'a str, String>,
) {
    for statement in body {
        match statement {
            Statement::Block(inner, _) => find(inner, named, taken),
            Statement::Instruction(instruction) if instruction.opcode != "call" => {
                for operand in &instruction.operands {
                    if let Operand::Symbol(name) | Operand::SymbolOffset(name, _) = operand
                        && let Some(parameter) = named.get(name.as_str())
                    {
                        taken.entry(&parameter.name).or_insert_with(|| format!("{name}_in_local_memory"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a declaration inside gives the name of a taken parameter, or of its copy, to something else.
fn hides(body: &[Statement], kept: &HashSet<&str>) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Block(inner, _) => hides(inner, kept),
        Statement::Variable(Variable { name, .. }) | Statement::Label(name, _) => {
            kept.contains(name.as_str())
        }
        _ => false,
    })
}

/// How a parameter is copied.
#[derive(Clone, Copy)]
struct Pieces {
    bytes: u64,
    /// Bytes of a piece, apart from the last ones.
    align: u64,
}

impl Pieces {
    fn of(parameter: &Variable) -> Option<Self> {
        let bytes = names::variable_bytes(parameter)?;
        let element = names::type_bytes(parameter.ty)?;
        Some(Self { bytes, align: parameter.align.map_or(element, u64::from).clamp(1, 8) })
    }

    /// How many they are at most.
    fn count(self) -> usize {
        // What is left after whole ones is less than eight bytes: three pieces.
        usize::try_from(self.bytes / self.align + 3).unwrap_or(usize::MAX)
    }
}

/// A local variable of a parameter's size, and what copies the parameter into it.
fn copy(parameter: &Variable, name: &str, pieces: Pieces) -> Option<[Statement; 2]> {
    let Pieces { bytes, align } = pieces;
    let local = Variable {
        linkage: Linkage::Internal,
        space: Space::Local,
        align: u32::try_from(align).ok(),
        vector: 1,
        ty: Type::B8,
        name: name.to_owned(),
        dimensions: vec![bytes],
        range: None,
        pointer: None,
        initializer: Vec::new(),
        attributes: Vec::new(),
        span: parameter.span,
    };
    let mut moves = Vec::new();
    let mut at = 0;
    while at < bytes {
        let left = bytes - at;
        let size = align.min(1 << left.ilog2());
        moves.push(Statement::Block(piece(parameter, name, at, size)?, parameter.span));
        at += size;
    }
    Some([Statement::Variable(local), Statement::Block(moves, parameter.span)])
}

/// What copies so many bytes from one on.
fn piece(parameter: &Variable, name: &str, at: u64, size: u64) -> Option<Vec<Statement>> {
    let (ty, word) = match size {
        1 => (Type::B16, "u8"),
        2 => (Type::B16, "b16"),
        4 => (Type::B32, "b32"),
        _ => (Type::B64, "b64"),
    };
    let span: Span = parameter.span;
    let held = Variable {
        linkage: Linkage::Internal,
        space: Space::Register,
        align: None,
        vector: 1,
        ty,
        name: PIECE.to_owned(),
        dimensions: Vec::new(),
        range: None,
        pointer: None,
        initializer: Vec::new(),
        attributes: Vec::new(),
        span,
    };
    let offset = i64::try_from(at).ok()?;
    let place = |name: &str| Operand::Address(Address { base: AddressBase::Symbol(name.to_owned()), offset });
    let register = || Operand::Register(PIECE.to_owned());
    let load = plain("ld", &["param", word], vec![register(), place(&parameter.name)], span);
    let store = plain("st", &["local", word], vec![place(name), register()], span);
    Some(vec![Statement::Variable(held), Statement::Instruction(load), Statement::Instruction(store)])
}

/// What holds a piece of a parameter on its way.
const PIECE: &str = "%piece";

fn replaced(statement: &Statement, taken: &HashMap<&str, String>) -> Statement {
    match statement {
        Statement::Block(inner, span) => {
            Statement::Block(inner.iter().map(|statement| replaced(statement, taken)).collect(), *span)
        }
        Statement::Instruction(instruction) if instruction.opcode != "call" => {
            Statement::Instruction(local(instruction, taken))
        }
        other => other.clone(),
    }
}

/// An instruction that says parameters where it means a copy of one.
fn local(instruction: &Instruction, taken: &HashMap<&str, String>) -> Instruction {
    let mut instruction = instruction.clone();
    for operand in &mut instruction.operands {
        if let Operand::Symbol(name) | Operand::SymbolOffset(name, _) = operand
            && let Some(copy) = taken.get(name.as_str())
        {
            name.clone_from(copy);
        }
    }
    let by_register = |operand: &Operand| {
        matches!(operand, Operand::Address(Address { base: AddressBase::Register(_), .. }))
    };
    let converts = instruction.opcode == "cvta";
    if converts || instruction.opcode == "ld" && instruction.operands.iter().any(by_register) {
        for word in &mut instruction.modifiers {
            if matches!(word.as_str(), "param" | "param::entry") {
                "local".clone_into(word);
            }
        }
    }
    instruction
}
