//! Parameters that a fast version bounds, so that what is computed from them stays in shared memory.
//!
//! How much of a parameter leaves an array large enough is tried out: as much as proves what little of it proves in loops. It
//! is the tenant's own bound where the array's size is what the parameter has to fit, and a launch of more runs the confined
//! version.

use crate::access::{self, Access};
use crate::ast::{AddressBase, Instruction, Operand, Predicate, Space, Statement};
use crate::confine::calls::Budget;
use crate::confine::lines::{instruction, plain, register};
use crate::facts::Facts;
use crate::limits::BOUND_TERMS_MAX;
use crate::maps::{HashMap, HashSet};
use crate::names::Class;
use crate::table;
use crate::values::{Known as _, Proof};

/// A parameter of which not even this is enough gets no bound: launches would hardly keep it.
const MOST_MIN: i128 = 16;
/// More than fits any array.
const MOST_MAX: i128 = 1 << 18;
/// Statements among which loads of parameters are looked for.
const BEGIN_MAX: usize = 24;
/// How often a body is gone through for a parameter.
const TRIALS: usize = 20;

/// A body some of whose parameters are bounded, and the index that each statement had; none for what is new.
pub(super) type Bounded = (Vec<Statement>, Vec<Option<usize>>);

/// Bounds parameters of a body where that proves accesses of its shared memory, none of which is dynamic. `is_enough` says of
/// a proof whether it is one.
pub(super) fn bound(
    statements: &[Statement],
    is_enough: &dyn Fn(&Proof<'_>) -> bool,
    budget: &mut Budget,
) -> Option<Bounded> {
    let loads = loads(statements);
    if loads.is_empty() || !may_prove(statements) || !budget.tries(2 * statements.len()) {
        return None;
    }
    // Mostly no bound at all proves more.
    let (mut known, all) = proven(statements, is_enough);
    let least = loads.iter().map(|load| (*load, MOST_MIN)).collect();
    if known == all || proven(&write(statements, &least).0, is_enough).0 <= known {
        return None;
    }
    let mut bounds: HashMap<usize, i128> = HashMap::default();
    for load in loads {
        // What is tried out is gone through as often as halves are looked for.
        if known == all || !budget.tries(statements.len().saturating_mul(TRIALS)) {
            break;
        }
        bounds.insert(load, MOST_MIN);
        let (mut bounded, origins) = write(statements, &bounds);
        let place =
            origins.iter().position(|origin| *origin == Some(load)).and_then(|place| place.checked_sub(2));
        let mut with = |most: i128| {
            if let Some(Statement::Instruction(test)) = place.and_then(|place| bounded.get_mut(place))
                && let Some(bound) = test.operands.last_mut()
            {
                *bound = Operand::Integer(most);
            }
            proven(&bounded, is_enough).0
        };
        let least = with(MOST_MIN);
        if least <= known {
            bounds.remove(&load);
            continue;
        }
        known = least;
        // From what is enough to what may not be.
        let (mut low, mut high) = (MOST_MIN, MOST_MAX);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if with(middle) < known { high = middle } else { low = middle }
        }
        bounds.insert(load, low);
    }
    (!bounds.is_empty()).then(|| write(statements, &bounds))
}

/// The loads of words of parameters into registers that nothing else writes and that numbers are held against, as far as
/// a body begins with loads of parameters: nothing of the guard's comes between those.
fn loads(statements: &[Statement]) -> Vec<usize> {
    let (mut loads, mut tested, mut begins) = (Vec::new(), HashSet::default(), true);
    let mut writes: HashMap<&str, usize> = HashMap::default();
    for (index, statement) in statements.iter().enumerate() {
        let Statement::Instruction(found) = statement else {
            begins = false;
            continue;
        };
        let Some(row) = table::row_of(found) else { continue };
        table::written(row, found, &mut |name| *writes.entry(name).or_default() += 1);
        let words = found.words();
        let of_parameter =
            found.opcode == "ld" && words.as_slice().first().is_some_and(|word| *word == "param");
        begins &= of_parameter || found.opcode == "mov" && found.predicate.is_none();
        match (found.opcode.as_str(), words.as_slice(), found.operands.as_slice()) {
            (
                "ld",
                ["param", "u32" | "s32" | "b32"],
                [Operand::Register(name), Operand::Address(address)],
            ) if found.predicate.is_none()
                && matches!(Class::parse(name), Some((Class::Word, _)))
                && matches!(&address.base, AddressBase::Symbol(_))
                && index < BEGIN_MAX
                && begins =>
            {
                loads.push((index, name.as_str()));
            }
            ("setp", ["lt" | "le" | "gt" | "ge", .., "s32" | "u32"], [_, one, other, ..]) => {
                for operand in [one, other] {
                    if let Operand::Register(name) = operand {
                        tested.insert(name.as_str());
                    }
                }
            }
            _ => {}
        }
    }
    let wanted = |(_, name): &(usize, &str)| tested.contains(name) && writes.get(name) == Some(&1);
    loads.into_iter().filter(wanted).map(|(index, _)| index).take(BOUND_TERMS_MAX).collect()
}

/// Up to where something in a body goes back, by where that begins: what lies between may be done more than once.
fn looped(statements: &[Statement]) -> HashMap<usize, usize> {
    let (mut labels, mut loops) = (HashMap::default(), HashMap::default());
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                labels.insert(name.as_str(), index);
            }
            Statement::Instruction(found) => {
                let target = table::row_of(found).and_then(|row| table::target(row, found));
                if let Some(from) = target.and_then(|target| labels.get(target)) {
                    loops.insert(*from, index);
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    loops
}

/// Whether there is an access in a loop that could be proven.
fn may_prove(statements: &[Statement]) -> bool {
    let loops = looped(statements);
    let mut end = 0;
    statements.iter().enumerate().any(|(index, statement)| {
        end = loops.get(&index).copied().unwrap_or(0).max(end);
        matches!(statement, Statement::Instruction(found) if index < end && in_shared(found).next().is_some())
    })
}

/// The accesses by a register of shared memory of an instruction, of bytes that lie side by side.
fn in_shared(found: &Instruction) -> impl Iterator<Item = Access<'_>> {
    let shared = found.modifiers.iter().any(|word| word.starts_with("shared"));
    let decoded = || access::decode(table::row_of(found)?, found).ok();
    let accesses: Vec<Access<'_>> =
        shared.then(decoded).flatten().unwrap_or_default().iter().copied().collect();
    accesses.into_iter().filter(|access| {
        let by_register = matches!(access.address.base, AddressBase::Register(_));
        access.space == Space::Shared && by_register && access.extent == access.bytes
    })
}

/// How many accesses by a register of shared memory are proven in loops, and how many there are.
fn proven(statements: &[Statement], is_enough: &dyn Fn(&Proof<'_>) -> bool) -> (usize, usize) {
    let mut facts = Facts::of(statements);
    let loops = looped(statements);
    let (mut count, mut all, mut end) = (0, 0, 0);
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                end = loops.get(&index).copied().unwrap_or(0).max(end);
                facts.label(name, statements.get(index + 1..).unwrap_or_default());
            }
            Statement::Instruction(found) => {
                for access in in_shared(found).filter(|_| index < end) {
                    all += 1;
                    let proof = facts.proof(&access);
                    count += usize::from(proof.is_some_and(|proof| is_enough(&proof)));
                }
                facts.learn(found);
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    (count, all)
}

/// The body with bounds before these loads.
fn write(statements: &[Statement], bounds: &HashMap<usize, i128>) -> Bounded {
    let mut bounded = Vec::with_capacity(statements.len() + 3 * bounds.len());
    let mut origins = Vec::with_capacity(statements.len() + 3 * bounds.len());
    for (index, statement) in statements.iter().enumerate() {
        match (bounds.get(&index), statement) {
            (Some(most), Statement::Instruction(load)) if let [to, from] = load.operands.as_slice() => {
                let (lo, q, span) = (|| register("%bh_lo"), || register("%bh_q"), load.span);
                let mut end = plain("exit", &[], Vec::new(), span);
                end.predicate = Some(Predicate { register: "%bh_q".to_owned(), negated: false });
                let load = |to: Operand| instruction("ld", &["param", "u32"], vec![to, from.clone()], span);
                let test = vec![q(), lo(), Operand::Integer(*most)];
                bounded.push(load(lo()));
                bounded.push(instruction("setp", &["gt", "u32"], test, span));
                bounded.push(Statement::Instruction(end));
                bounded.push(load(to.clone()));
                origins.extend([None; 3]);
            }
            _ => bounded.push(statement.clone()),
        }
        origins.push(Some(index));
    }
    (bounded, origins)
}
