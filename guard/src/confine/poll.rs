//! Where threads look at their session's flag, so that a kernel that runs on can be ended.
//!
//! Every multiprocessor has a word in memory that the session's stores do not reach: how much its threads may do
//! before they look again; negative where they are to end. A thread loads it at entry and counts down at *polls*,
//! which stand where branches go back to: no cycle is without one. Who has done its share loads the word again.
//! The word that was loaded at entry is *looked* at by the first poll, or else before the first store to
//! global memory or after [`UNLOOKED_COST_MAX`]: late, so that what comes before hides the load.

use std::collections::HashMap;

use super::prologue::{instruction, plain, register};
use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Span, Statement};
use crate::limits::{POLL_COST_MAX, UNLOOKED_COST_MAX};
use crate::names;
use crate::table;

/// Whether an entry looks at the flag at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    /// It is short, and does nothing before it ends.
    None,
    /// It has polls, or looks once.
    Some,
}

/// Puts polls and looks into a body that is confined and has no prologue yet.
pub(super) fn insert(statements: Vec<Statement>) -> (Vec<Statement>, Looks) {
    let polls = costs_of_cycles(&statements);
    let mut out = Vec::with_capacity(statements.len());
    let mut looks = Looks::None;
    // What was done since entry on the longest path that has not looked; none where all have.
    let mut since = Some(0);
    let mut joins: HashMap<String, Option<u64>> = HashMap::new();
    // Where the sequence before the next access begins.
    let mut lead = 0;
    for statement in statements {
        match &statement {
            Statement::Label(name, _) => {
                since = since.max(joins.remove(name).flatten());
                let poll = polls.get(name).copied();
                out.push(statement);
                if let Some(cost) = poll {
                    out.extend(sequence(cost));
                    (since, looks) = (None, Looks::Some);
                }
                lead = out.len();
                continue;
            }
            Statement::Instruction(instruction) => {
                if let Ok(row) = table::check(instruction) {
                    let cost = since.map(|since| since + table::cost(row, instruction));
                    let late = cost.is_some_and(|cost| cost > UNLOOKED_COST_MAX);
                    if late || (since.is_some() && table::writes_global(row, instruction)) {
                        out.splice(lead..lead, look());
                        (since, looks) = (None, Looks::Some);
                    } else {
                        since = cost;
                    }
                    if let Some(target) = table::target(row, instruction) {
                        let join = joins.entry(target.to_owned()).or_default();
                        *join = (*join).max(since);
                    }
                    if table::ends_path(row, instruction) {
                        since = None;
                    }
                }
                let leads = is_lead(instruction);
                out.push(statement);
                if !leads {
                    lead = out.len();
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {
                out.push(statement);
                lead = out.len();
            }
        }
    }
    (out, looks)
}

/// The labels that branches go back to, with the most that lies between.
fn costs_of_cycles(statements: &[Statement]) -> HashMap<String, u64> {
    let mut cost = 0_u64;
    let mut labels: HashMap<&str, u64> = HashMap::new();
    let mut polls: HashMap<String, u64> = HashMap::new();
    for statement in statements {
        match statement {
            Statement::Label(name, _) => {
                labels.insert(name, cost);
            }
            Statement::Instruction(instruction) => {
                let Ok(row) = table::check(instruction) else { continue };
                cost += table::cost(row, instruction);
                if let Some(target) = table::target(row, instruction)
                    && let Some(at) = labels.get(target)
                {
                    let poll = polls.entry(target.to_owned()).or_default();
                    *poll = (*poll).max(cost - at).min(POLL_COST_MAX);
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    polls
}

/// Whether an instruction only prepares an access.
fn is_lead(instruction: &Instruction) -> bool {
    match instruction.operands.first() {
        Some(Operand::Register(name)) => names::is_reserved(name),
        Some(Operand::Vector(names)) => {
            names.iter().all(|name| matches!(name, Operand::Register(name) if names::is_reserved(name)))
        }
        _ => false,
    }
}

/// Loads the word of the multiprocessor that the block runs on.
pub(super) fn start() -> Vec<Statement> {
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

fn load() -> Instruction {
    let at = Operand::Address(Address { base: AddressBase::Register("%bh_k".to_owned()), offset: 0 });
    plain("ld", &["relaxed", "sys", "global", "b32"], vec![register("%bh_n"), at], Span::default())
}

fn look() -> [Statement; 2] {
    let test = [register("%bh_q"), register("%bh_n"), Operand::Integer(0)];
    [
        instruction("setp", &["lt", "s32"], test.to_vec(), Span::default()),
        Statement::Instruction(where_negative(plain("exit", &[], Vec::new(), Span::default()))),
    ]
}

fn where_negative(instruction: Instruction) -> Instruction {
    Instruction { predicate: Some(Predicate { register: "%bh_q".to_owned(), negated: false }), ..instruction }
}

fn sequence(cost: u64) -> Vec<Statement> {
    let less = Operand::Integer(-i128::from(cost));
    let [test, exit] = look();
    vec![
        instruction("add", &["s32"], vec![register("%bh_n"), register("%bh_n"), less], Span::default()),
        test.clone(),
        Statement::Instruction(where_negative(load())),
        test,
        exit,
    ]
}
