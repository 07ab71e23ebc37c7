//! The stack of an entry whose functions call themselves, and the lines that stand for what is written later.

use crate::ast::{Instruction, Operand, Predicate, Span, Statement, Variable};
use crate::confine::lines::{instruction, plain, register};
use crate::maps::HashMap;

/// The beginning of functions that may call themselves inside one another, with 1, and their end, with 0.
pub(super) const REGION: &str = "%region";
/// Saves what is needed behind the call of this number.
pub(super) const SAVE: &str = "%save";
/// Restores it.
pub(super) const RESTORE: &str = "%restore";
/// Sets a predicate where the stack has room for the call of this number.
pub(super) const FITS: &str = "%fits";
/// Goes to where the body of this number was called.
pub(super) const RETURN: &str = "%return";
/// Moves all of an argument to another.
pub(super) const PASS: &str = "%pass";

/// A function's body that calls go to.
#[derive(Debug)]
pub(super) struct Body {
    /// The label that it begins with.
    pub(super) start: String,
    /// The register that says which call it is; 0 is the first, from where it is inlined.
    pub(super) site: String,
    /// The arguments that its results are, and its parameters.
    pub(super) returned: Vec<String>,
    pub(super) given: Vec<String>,
    /// The labels where the other calls go on.
    pub(super) sites: Vec<String>,
}

/// The stack of an entry.
#[derive(Debug)]
pub(super) struct Stack {
    /// The register that says where the frame begins, in bytes.
    pub(super) pointer: String,
    /// Where the stack is: a variable, and where it begins in that.
    pub(super) variable: String,
    pub(super) start: i64,
    /// Bytes of variables in each frame.
    pub(super) frame: u64,
    /// How many calls there are.
    pub(super) calls: usize,
    pub(super) bodies: Vec<Body>,
    /// The bodies by the names of functions.
    pub(super) reached: HashMap<String, usize>,
    /// How many functions are open that may call themselves.
    pub(super) open: usize,
    /// Where variables are in a frame, by their declarations.
    pub(super) places: HashMap<*const Variable, u64>,
}

/// A line that [`super::stack`] or [`super::arguments`] replaces.
pub(super) fn line(name: &str, operands: Vec<Operand>, span: Span) -> Statement {
    instruction(name, &[], operands, span)
}

/// Makes a register zero.
pub(super) fn zero(name: &str, span: Span) -> Statement {
    instruction("mov", &["b32"], vec![register(name), number(0)], span)
}

/// What an entry begins with that has a stack.
pub(super) fn begin(stack: &Stack, span: Span) -> Statement {
    zero(&stack.pointer, span)
}

pub(super) fn number(value: usize) -> Operand {
    Operand::Integer(value as i128)
}

/// Where a frame is: these lines compute it into a register.
pub(super) fn address(stack: &Stack, offset: u64, registers: [&str; 2], span: Span) -> [Statement; 3] {
    let [into, between] = registers.map(register);
    let start = stack.start.saturating_add(i64::try_from(offset).unwrap_or(i64::MAX));
    let variable = match start {
        0 => Operand::Symbol(stack.variable.clone()),
        _ => Operand::SymbolOffset(stack.variable.clone(), start),
    };
    let pointer = register(&stack.pointer);
    [
        instruction("cvt", &["u64", "u32"], vec![between.clone(), pointer], span),
        instruction("mov", &["b64"], vec![into.clone(), variable], span),
        instruction("add", &["s64"], vec![into.clone(), into, between], span),
    ]
}

/// A branch, where the predicate holds if there is one.
pub(super) fn jump(label: &str, predicate: Option<&str>, span: Span) -> Statement {
    let mut branch: Instruction = plain("bra", &[], vec![Operand::Symbol(label.to_owned())], span);
    branch.predicate = predicate.map(|name| Predicate { register: name.to_owned(), negated: false });
    Statement::Instruction(branch)
}
