//! The statements that polls, looks and counters are.

use super::super::copies;
use super::super::lines::{instruction, plain, register};
use super::super::steps::Steps;
use super::super::turns::How;
use crate::ast::{Address, AddressBase, Directive, Instruction, Operand, Predicate, Span, Statement};
use crate::names;

/// Has the assembler leave the turns between polls as they are: it would write them several times, in more registers.
pub(crate) fn nounroll() -> Statement {
    Statement::Directive(Directive {
        name: ".pragma".to_owned(),
        operands: vec![names::NOUNROLL.to_owned()],
        span: Span::default(),
    })
}

/// Sets a loop's counter.
pub(crate) fn opening(how: &How<'_>, counter: &str) -> Vec<Statement> {
    let at = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
        instruction(opcode, modifiers, operands, Span::default())
    };
    let c = || register(counter);
    let number = |value: i128| Operand::Integer(value);
    match how {
        How::Polls | How::Ends(_) => Vec::new(),
        How::Counts(turns) => vec![at("mov", &["u32"], vec![c(), number(i128::from(*turns))])],
        How::Steps(steps) => bounded(steps, counter),
    }
}

/// Sets a loop's counter to where its register is after so many steps, or to the tenant's bound where that comes first.
pub(crate) fn bounded(steps: &Steps<'_>, counter: &str) -> Vec<Statement> {
    let at = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
        instruction(opcode, modifiers, operands, Span::default())
    };
    let (c, number) = (|| register(counter), Operand::Integer);
    let (stepped, bound, turns) = (register(steps.register), steps.bound.clone(), i128::from(steps.turns));
    let ty = steps.ty();
    let far = match steps.step {
        Operand::Integer(step) => turns * step,
        _ => steps.most,
    };
    let set = match steps.step {
        Operand::Integer(_) => at("add", &["s32"], vec![c(), stepped, number(far)]),
        step => at("mad", &["lo", "s32"], vec![c(), step.clone(), number(turns), stepped]),
    };
    let mut lines = vec![set, at("min", &[ty], vec![c(), c(), bound])];
    if steps.or_equal() {
        let most: i128 = if ty == "s32" { i32::MAX.into() } else { u32::MAX.into() };
        lines.push(at("min", &[ty], vec![c(), c(), number(most - far)]));
    }
    lines
}

/// Goes back while there are turns left.
pub(crate) fn closing(how: &How<'_>, counter: &str, back: &Instruction, label: &str) -> Vec<Statement> {
    let at = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
        instruction(opcode, modifiers, operands, Span::default())
    };
    let (c, q) = (|| register(counter), || register("%bh_q"));
    let mut lines = match how {
        How::Polls | How::Ends(_) => return Vec::new(),
        How::Counts(_) => {
            let mut test = vec![q(), c(), Operand::Integer(0)];
            let mut modifiers = vec!["gt", "s32"];
            if let Some(Predicate { register, negated }) = &back.predicate {
                modifiers.insert(1, "and");
                let register = register.clone();
                test.push(if *negated { Operand::Not(register) } else { Operand::Register(register) });
            }
            vec![at("add", &["s32"], vec![c(), c(), Operand::Integer(-1)]), at("setp", &modifiers, test)]
        }
        How::Steps(steps) => {
            vec![at("setp", &[steps.order(), steps.ty()], vec![q(), register(steps.register), c()])]
        }
    };
    let branch = plain("bra", &[], vec![Operand::Symbol(label.to_owned())], Span::default());
    lines.push(Statement::Instruction(where_negative(branch)));
    lines
}

/// Whether a poll begins with an instruction.
pub(crate) fn begins(instruction: &Instruction) -> bool {
    let is = |index: usize, name: &str| matches!(instruction.operands.get(index), Some(Operand::Register(found)) if found == name);
    instruction.opcode == "or" && is(0, "%bh_hi") && is(1, "%bh_base")
}

/// Loads the word of the multiprocessor that the block runs on. Where it lies is found anew for each poll, so that no
/// register keeps it meanwhile.
pub(crate) fn start() -> Vec<Statement> {
    let at = |opcode, modifiers: &[&str], operands| instruction(opcode, modifiers, operands, Span::default());
    let (lo, hi) = (|| register("%bh_lo"), || register("%bh_hi"));
    let line = Operand::Integer(i128::from(names::FLAG_LINE_MASK));
    let words = Operand::Integer(i128::from(names::FLAG_WORDS));
    vec![
        at("or", &["b32"], vec![hi(), register("%bh_base"), register("%bh_loadmask")]),
        at("mov", &["u32"], vec![lo(), register("%smid")]),
        at("shl", &["b32"], vec![lo(), lo(), Operand::Integer(i128::from(names::FLAG_LINE_SHIFT))]),
        at("lop3", &["b32"], vec![lo(), lo(), line, words, Operand::Integer(234)]),
        at("mov", &["b64"], vec![register("%bh_k"), Operand::Vector(vec![lo(), hi()])]),
        Statement::Instruction(load()),
    ]
}

pub(crate) fn load() -> Instruction {
    let at = Operand::Address(Address { base: AddressBase::Register("%bh_k".to_owned()), offset: 0 });
    plain("ld", &["relaxed", "sys", "global", "b32"], vec![register("%bh_n"), at], Span::default())
}

pub(crate) fn look(copies: bool) -> Vec<Statement> {
    let test = vec![register("%bh_q"), register("%bh_n"), Operand::Integer(0)];
    let mut lines = vec![instruction("setp", &["lt", "s32"], test, Span::default())];
    let exit = where_negative(plain("exit", &[], Vec::new(), Span::default()));
    if copies {
        lines.push(copies::wait(exit.predicate.clone(), Span::default()));
    }
    lines.push(Statement::Instruction(exit));
    lines
}

pub(crate) fn where_negative(instruction: Instruction) -> Instruction {
    Instruction { predicate: Some(Predicate { register: "%bh_q".to_owned(), negated: false }), ..instruction }
}
