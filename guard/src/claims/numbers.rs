//! What can be claimed of the numbers in registers: what the inference of [`Facts`] found, written down for each label.

use crate::anchors::{self, Check};
use crate::ast::Statement;
use crate::facts::{Facts, Stepping};
use crate::maps::{HashMap, HashSet};
use bulkhead_verifier::claims::numbers::{AtLabel, Claim, Numbers, Turns};
use bulkhead_verifier::numbers::{self as verify, Wrong};
use bulkhead_verifier::values::number::{Sign, Width};
use bulkhead_verifier::values::value::Fact;

/// Claims that are made at labels, at most.
const CLAIMS_MAX: usize = 1 << 16;
/// How often claims are tried, at most; then none is made. After so many times one that is wrong at one label is made at none.
const ROUNDS_MAX: usize = 12;
const PATIENCE: usize = 4;

/// What can be said of a body: what the inference finds, without what the checker does not follow.
pub(crate) fn of(statements: &[Statement]) -> Numbers {
    let mut claims = found(statements);
    let labels = statements.iter().enumerate().filter_map(|(at, statement)| match statement {
        Statement::Label(name, _) => Some((name.as_str(), at)),
        _ => None,
    });
    let at: HashMap<&str, usize> = labels.collect();
    for round in 0..ROUNDS_MAX {
        let wrong = wrong(&claims, statements);
        if wrong.is_empty() {
            return claims;
        }
        weaken(&mut claims, &at, &wrong, round >= PATIENCE);
    }
    Numbers::default()
}

/// What the inference finds.
fn found(statements: &[Statement]) -> Numbers {
    let mut facts = Facts::of(statements);
    let mut claims = Numbers::default();
    let mut checked: Option<Check<'_>> = None;
    // What loops leave as it is, up to where each ends: it holds at their labels too.
    let mut left: Vec<(usize, Vec<(&str, Fact<'_>)>)> = Vec::new();
    let mut room = CLAIMS_MAX;
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Instruction(instruction) => {
                let here = statements.get(index..).unwrap_or_default();
                if let Some((check, _)) = Check::parse(here) {
                    checked = Some(check);
                }
                facts.learn(instruction);
            }
            Statement::Label(label, _) => {
                let behind = statements.get(index + 1..).unwrap_or_default();
                facts.label(label, behind);
                // The label behind the check is the loop's.
                let stepping = match checked.take() {
                    Some(check) => {
                        let body = anchors::turns(behind, label).unwrap_or_default();
                        facts.turn(&check, body)
                    }
                    None => facts.turning(behind, label),
                };
                let mut claim = at_label(&facts, stepping);
                left.retain(|(last, _)| *last >= index);
                if room > 0 && !left.is_empty() {
                    let known: HashMap<&str, Fact<'_>> = facts.here().collect();
                    // Where ways met that a test parted, less is known than before it.
                    let says_more = |(name, fact): &&(&str, Fact<'_>)| {
                        known.get(name).is_none_or(|known| known != fact && !fact.is_plain())
                    };
                    let all = left.iter().flat_map(|(_, left)| left);
                    for (name, fact) in all.take(room).filter(says_more) {
                        claim.known.push(((*name).to_owned(), Claim::new(*fact)));
                    }
                    room = room.saturating_sub(left.iter().map(|(_, left)| left.len()).sum());
                    claim.known.sort_by(|one, other| one.0.cmp(&other.0));
                    claim.known.dedup();
                }
                room = room.saturating_sub(claim.known.len());
                if room == 0 {
                    claim.known.clear();
                }
                if claim != AtLabel::default() {
                    claims.labels.insert(index, claim);
                }
                left.extend(facts.of_loop(label));
            }
            Statement::Variable(_) | Statement::Directive(_) | Statement::Block(..) => {}
        }
    }
    claims.always =
        facts.always().into_iter().map(|(name, fact)| (name.to_owned(), Claim::new(fact))).collect();
    claims
}

/// Which of them the checker finds wrong.
fn wrong<'a>(claims: &Numbers, statements: &'a [Statement]) -> Vec<Wrong<'a>> {
    let mut checker = verify::Numbers::of(statements, claims).trying();
    let mut check: Option<(Check<'_>, usize)> = None;
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Instruction(instruction) => {
                let here = statements.get(index..).unwrap_or_default();
                if check.is_none() {
                    check = Check::parse(here);
                }
                checker.learn(instruction);
                // What it lets through is known behind it.
                check = match check.take() {
                    Some((check, 1)) => {
                        checker.check(&check);
                        None
                    }
                    left => left.map(|(check, left)| (check, left - 1)),
                };
            }
            Statement::Label(label, _) => checker.label(label),
            Statement::Variable(_) | Statement::Directive(_) | Statement::Block(..) => {}
        }
    }
    checker.wrong()
}

/// Claims less than what was wrong, at the labels that are `at` these statements. All of a label is gone through once.
fn weaken(all: &mut Numbers, at: &HashMap<&str, usize>, wrong: &[Wrong<'_>], everywhere: bool) {
    let mut of_labels: HashMap<&str, HashSet<&str>> = HashMap::default();
    for wrong in wrong {
        match wrong {
            Wrong::Always(name) => drop(all.always.remove(*name)),
            Wrong::Known(label, name) => {
                of_labels.entry(label).or_default().insert(name);
            }
            Wrong::Turns(label) => {
                if let Some(claims) = at.get(label).and_then(|at| all.labels.get_mut(at)) {
                    claims.turns = None;
                }
            }
            Wrong::Many => return *all = Numbers::default(),
        }
    }
    if everywhere {
        let names: HashSet<&str> = of_labels.into_values().flatten().collect();
        for claims in all.labels.values_mut() {
            claims.known.retain(|(known, _)| !names.contains(known.as_str()));
        }
        return;
    }
    for (label, names) in of_labels {
        let Some(claims) = at.get(label).and_then(|at| all.labels.get_mut(at)) else { continue };
        // What depends on where in its block a thread is, is claimed without that first.
        let depends =
            |(known, claim): &(String, Claim)| names.contains(known.as_str()) && !claim.number.is_plain();
        let depend: HashSet<String> =
            claims.known.iter().filter(|claim| depends(claim)).map(|(name, _)| name.clone()).collect();
        claims.known.retain_mut(|(known, claim)| {
            if depend.contains(known) {
                claim.number = claim.number.plain();
                return true;
            }
            !names.contains(known.as_str())
        });
    }
}

fn at_label(facts: &Facts<'_>, stepping: Option<Stepping<'_>>) -> AtLabel {
    let turns = stepping.map(|stepping| Turns {
        most: stepping.turns,
        counter: stepping.counter.map(str::to_owned),
        steps: stepping
            .steps
            .iter()
            .map(|(name, first, step)| ((*name).to_owned(), Claim::new(*first), *step))
            .collect(),
    });
    let steps = |name: &str| {
        turns.as_ref().is_some_and(|turns| turns.steps.iter().any(|(register, ..)| register == name))
    };
    let counter = turns.as_ref().and_then(|turns| turns.counter.as_deref());
    // Of which any number is possible nothing is said.
    let says = |fact: Fact<'_>| fact.number().is_none_or(|number| number != Sign::Unsigned.all(Width::WORD));
    let known = facts.here().filter(|(name, fact)| says(*fact) && (!steps(name) || counter == Some(*name)));
    let mut known: Vec<_> = known.map(|(name, fact)| (name.to_owned(), Claim::new(fact))).collect();
    known.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    AtLabel { known, turns }
}
