//! Loops in two versions, of which a check of their pointers chooses one.
//!
//! Which check makes accesses proven is tried out with what is known of registers, as the verifier does it. Only loops
//! without labels inside get versions, and none in which threads wait for one another: those of a warp may differ in
//! what they choose.

use std::borrow::Cow;

use crate::maps::HashMap;

use crate::access::{self, Accesses};
use crate::anchors::{Anchor, Check, Step};
use crate::ast::{AddressBase, Instruction, Operand, Space, Span, Statement};
use crate::confine::lines::instruction;
use crate::confine::turns::{self, Ends, Firsts, Loop};
use crate::facts::Facts;
use crate::names::{self, Class};
use crate::table::{self, Treatment};
use crate::values::{Known as _, Proof};

/// Loops of an entry that get two versions, at most.
const LOOPS_MAX: usize = 64;
/// Statements of a loop that gets two, at most.
const BODY_MAX: usize = 512;
/// What may be copied to try out checks of an entry's loops, in registers of which something is known.
const COPIED_MAX: usize = 1 << 18;
/// A loop that is known to turn no more often gets none.
const TURNS_MIN: u64 = 8;
/// How little what is added to pointers may be asked to be, as powers of two: the first that suffices is taken.
const BOUNDS: [u32; 4] = [24, 22, 20, 18];
/// Instructions whose threads wait for one another, or ask who else is there.
pub(super) const TOGETHER: [&str; 14] = [
    "activemask",
    "bar",
    "barrier",
    "cp",
    "elect",
    "ldmatrix",
    "match",
    "mbarrier",
    "mma",
    "movmatrix",
    "redux",
    "shfl",
    "stmatrix",
    "vote",
];

/// What is known of an access that does not have to be made so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// It is where it may be.
    Proven,
    /// It is aligned.
    Aligned,
}

/// What is known of accesses, by statement and operand.
pub(super) type Proven = HashMap<(usize, usize), Known>;

/// A body whose loops have versions.
pub(super) struct Versions<'a> {
    statements: Cow<'a, [Statement]>,
    /// The index that each statement had, none for what is new; where any is new.
    origins: Vec<Option<usize>>,
    /// By the label of each version, that of both, from where a thread begins anew after a poll.
    pub(super) begins: HashMap<String, String>,
    /// The versions that a check leads to, by label.
    checked: HashMap<String, Chosen>,
}

/// What a check asks, apart from the text.
struct Chosen {
    anchors: Vec<(String, bool, u64)>,
    steps: Vec<(String, i64)>,
}

impl Chosen {
    fn check<'a>(&'a self, label: &'a str) -> Check<'a> {
        let anchor = |(register, writes, align): &'a (String, bool, u64)| Anchor {
            register,
            writes: *writes,
            align: *align,
        };
        let step = |(register, bound): &'a (String, i64)| Step { register, bound: *bound };
        Check {
            anchors: self.anchors.iter().map(anchor).collect(),
            steps: self.steps.iter().map(step).collect(),
            label,
        }
    }
}

impl<'a> Versions<'a> {
    /// Gives versions to the loops of a flat body for which that is worth it. It may be known already how they end.
    pub(super) fn of(statements: &'a [Statement], zeroed: &[String], given: Option<&Ends>) -> Self {
        let loops = straight(statements);
        if loops.is_empty() {
            return Self::none(statements);
        }
        let none = HashMap::default();
        let plain = Firsts::default();
        let (ends, _) = turns::find_as(statements, zeroed, &none, &plain, given);
        let mut facts = Facts::of(statements);
        zeroed.iter().for_each(|name| facts.also_written(name));
        let mut chosen: HashMap<usize, (usize, Chosen)> = HashMap::default();
        let mut copied = 0;
        for (index, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Label(name, _) => {
                    let behind = statements.get(index + 1..).unwrap_or_default();
                    facts.label(name, behind);
                    let straight = loops.get(&index);
                    copied += straight.map_or(0, |_| facts.size());
                    if let Some(back) = straight.filter(|_| chosen.len() < LOOPS_MAX)
                        && let Some(body) = statements.get(index + 1..*back)
                        && facts.turns(name, behind).is_none_or(|turns| turns > TURNS_MIN)
                        && copied <= COPIED_MAX
                        && let Some(check) = choose(&facts, body)
                    {
                        chosen.insert(index, (*back, check));
                    } else if ends.get(name.as_str()).is_some_and(Loop::ends) {
                        facts.turning(behind, name);
                    }
                }
                Statement::Instruction(instruction) => facts.learn(instruction),
                Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
            }
        }
        if chosen.is_empty() {
            return Self::none(statements);
        }
        let versions = write(statements, chosen);
        // A loop that polls in each turn has no place for a check.
        let found = turns::find(&versions.statements, zeroed, &versions.begins);
        let turns = |label: &String| found.get(label.as_str()).is_some_and(|found| !found.polls(usize::MAX));
        if versions.begins.keys().all(turns) { versions } else { Self::none(statements) }
    }

    fn none(statements: &'a [Statement]) -> Self {
        Self {
            statements: Cow::Borrowed(statements),
            origins: Vec::new(),
            begins: HashMap::default(),
            checked: HashMap::default(),
        }
    }

    /// The statements, with the index that each had; none for what is new.
    pub(super) fn statements(&self) -> impl Iterator<Item = (Option<usize>, &Statement)> {
        let origin = |index| self.origins.get(index).copied().unwrap_or(Some(index));
        self.statements.iter().enumerate().map(move |(index, statement)| (origin(index), statement))
    }

    /// Whether there are none.
    pub(super) fn is_none(&self) -> bool {
        self.begins.is_empty()
    }

    /// The same text.
    pub(super) fn text(&self) -> &[Statement] {
        &self.statements
    }

    /// Which accesses of the versions, by statement and operand, need no confining: of that text, or of it with copies of
    /// some loops' turns in front.
    pub(super) fn proven(
        &self,
        zeroed: &[String],
        plain: &[Statement],
        firsts: &Firsts,
        given: Option<&Ends>,
        mut is_enough: impl FnMut(&Proof<'_>) -> bool,
    ) -> Proven {
        let mut facts = Facts::of_versions(plain, &self.begins);
        zeroed.iter().for_each(|name| facts.also_written(name));
        let (ends, _) = turns::find_as(plain, zeroed, &self.begins, firsts, given);
        let mut proven = HashMap::default();
        // The last copy whose label has come.
        let mut copy = None;
        for (index, statement) in plain.iter().enumerate() {
            match statement {
                Statement::Label(label, _) => {
                    if firsts.has(label) {
                        facts.label_of_part(label);
                        copy = firsts.is_copy(label).then_some(label.as_str());
                        continue;
                    }
                    let behind = plain.get(index + 1..).unwrap_or_default();
                    facts.label(label, behind);
                    if let Some(chosen) = self.checked.get(label) {
                        let body = crate::anchors::turns(behind, label).unwrap_or_default();
                        facts.turn(&chosen.check(""), body);
                    } else if ends.get(label.as_str()).is_some_and(Loop::ends) {
                        facts.turning(behind, label);
                    }
                }
                Statement::Instruction(_) if firsts.goes_back(copy, statement) => copy = None,
                Statement::Instruction(instruction) => {
                    for access in accesses(instruction).iter() {
                        if access.extent == access.bytes
                            && let Some(proof) = facts.proof(access)
                            && is_enough(&proof)
                        {
                            proven.insert((index, access.index), Known::Proven);
                        } else if access.space == Space::Global
                            && let AddressBase::Register(name) = &access.address.base
                            && facts.aligned(name, access.address.offset, access.bytes).is_some()
                        {
                            proven.insert((index, access.index), Known::Aligned);
                        }
                    }
                    facts.learn(instruction);
                }
                Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
            }
        }
        proven
    }
}

fn accesses(instruction: &Instruction) -> Accesses<'_> {
    let accesses = table::row_of(instruction).and_then(|row| access::decode(row, instruction).ok());
    accesses.unwrap_or_default()
}

/// The loops that may get versions: where the label stands, and the one branch back to it.
fn straight(statements: &[Statement]) -> HashMap<usize, usize> {
    let mut loops = HashMap::default();
    let mut branches: HashMap<&str, usize> = HashMap::default();
    let mut last = None;
    for (index, statement) in statements.iter().enumerate() {
        match statement {
            Statement::Label(name, _) => {
                last = Some((index, name.as_str()));
                branches.insert(name, 0);
            }
            Statement::Instruction(instruction) => {
                let target = table::row_of(instruction).and_then(|row| table::target(row, instruction));
                let Some(target) = target else { continue };
                let Some(backs) = branches.get_mut(target) else { continue };
                *backs += 1;
                match last {
                    Some((label, name)) if name == target && instruction.predicate.is_some() => {
                        loops.insert(label, index);
                    }
                    // The way around the poll of another loop ends at a label.
                    _ => last = None,
                }
            }
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => {}
        }
    }
    loops.retain(|label, back| {
        let once = matches!(statements.get(*label), Some(Statement::Label(name, _)) if branches.get(name.as_str()) == Some(&1));
        let body = statements.get(label + 1..*back).unwrap_or_default();
        once && body.len() <= BODY_MAX && body.iter().all(fits)
    });
    loops
}

/// Whether a statement may stand in a loop that has versions.
fn fits(statement: &Statement) -> bool {
    match statement {
        Statement::Instruction(instruction) => {
            let Some(row) = table::row_of(instruction) else { return false };
            let together =
                row.treatment == Treatment::Barrier || TOGETHER.contains(&instruction.opcode.as_str());
            let local = accesses(instruction).iter().any(|access| access.space == Space::Local);
            !(together || local || row.treatment == Treatment::Gate)
        }
        Statement::Directive(directive) => names::is_nounroll(directive),
        Statement::Label(..) | Statement::Variable(_) | Statement::Block(..) => false,
    }
}

/// The check that proves most accesses of a loop, where any does.
fn choose(facts: &Facts<'_>, body: &[Statement]) -> Option<Chosen> {
    let mut inside = facts.clone();
    let nothing = Check { anchors: Vec::new(), steps: Vec::new(), label: "" };
    inside.turn(&nothing, body);
    let mut anchors: Vec<(String, bool, u64)> = Vec::new();
    let mut steps: Vec<String> = Vec::new();
    for (index, statement) in body.iter().enumerate() {
        let Statement::Instruction(found) = statement else { continue };
        if let Some(access) = accesses(found).iter().find(|access| access.space == Space::Global)
            && inside.proof(access).is_none()
            && let AddressBase::Register(name) = &access.address.base
            && let Some(trace) = Trace::back(&inside, body, index, name)
            && let Some(around) = Trace::back(&inside, body, body.len(), trace.root)
            && around.root == trace.root
        {
            let offsets = trace.added.iter().filter(|name| !inside.is_number(name));
            for step in around.added.iter().chain(offsets) {
                if !steps.iter().any(|known| known == step) {
                    steps.push((*step).to_owned());
                }
            }
            let writes = !access.reads_only;
            match anchors.iter_mut().find(|(known, ..)| known == trace.root) {
                Some((_, stores, align)) => {
                    *stores |= writes;
                    *align = access.bytes.max(*align);
                }
                None => anchors.push((trace.root.to_owned(), writes, access.bytes)),
            }
        }
        inside.learn(found);
    }
    let mut best: Option<(usize, Chosen)> = None;
    for bits in BOUNDS.into_iter().take(if steps.is_empty() { 1 } else { BOUNDS.len() }) {
        let steps = steps.iter().map(|step| (step.clone(), 1 << bits)).collect();
        let chosen = Chosen { anchors: anchors.clone(), steps };
        let count = gain(facts, body, &chosen);
        if count > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((count, chosen));
        }
    }
    best.map(|(_, chosen)| chosen)
}

/// How many accesses a check proves.
fn gain(facts: &Facts<'_>, body: &[Statement], chosen: &Chosen) -> usize {
    let mut facts = facts.clone();
    // The names live as long as the trial.
    let named = |name: &String| body.iter().find_map(|statement| register_of(statement, name));
    let anchors: Option<Vec<Anchor<'_>>> = chosen
        .anchors
        .iter()
        .map(|(name, writes, align)| Some(Anchor { register: named(name)?, writes: *writes, align: *align }))
        .collect();
    let steps: Option<Vec<Step<'_>>> = chosen
        .steps
        .iter()
        .map(|(name, bound)| Some(Step { register: named(name)?, bound: *bound }))
        .collect();
    let (Some(anchors), Some(steps)) = (anchors, steps) else { return 0 };
    if anchors.is_empty() || facts.turn(&Check { anchors, steps, label: "" }, body).is_none() {
        return 0;
    }
    let mut count = 0;
    for statement in body {
        let Statement::Instruction(instruction) = statement else { continue };
        if accesses(instruction).iter().any(|access| facts.proof(access) == Some(Proof::Checked)) {
            count += 1;
        }
        facts.learn(instruction);
    }
    count
}

/// A register of this name, where a statement has it.
fn register_of<'a>(statement: &'a Statement, name: &str) -> Option<&'a str> {
    let Statement::Instruction(instruction) = statement else { return None };
    let row = table::row_of(instruction)?;
    let (mut read, mut written) = (None, None);
    table::registers(
        row,
        instruction,
        &mut |found| read = read.or((found == name).then_some(found)),
        &mut |found| written = written.or((found == name).then_some(found)),
    );
    read.or(written)
}

/// Where the value of a register in a loop comes from.
struct Trace<'a> {
    /// What it is when a turn begins, and
    root: &'a str,
    /// what the turn adds to it up to here, which it does not write itself.
    added: Vec<&'a str>,
}

impl<'a> Trace<'a> {
    /// Of a register's value directly before a statement.
    fn back(facts: &Facts<'_>, body: &'a [Statement], before: usize, name: &'a str) -> Option<Self> {
        let mut trace = Self { root: name, added: Vec::new() };
        let mut before = before;
        while let Some(index) = written(body, before, trace.root) {
            let Some(Statement::Instruction(found)) = body.get(index) else { return None };
            if found.predicate.is_some() {
                return None;
            }
            let operand = |index: usize| match found.operands.get(index) {
                Some(Operand::Register(name)) if matches!(Class::parse(name), Some((Class::Double, _))) => {
                    Some(name.as_str())
                }
                _ => None,
            };
            let is_written = |name: &str| written(body, body.len(), name).is_some();
            let (next, added) = match found.opcode.as_str() {
                "mov" | "cvta" => (operand(1)?, None),
                "mad" => (operand(3)?, None),
                "sub" => (operand(1)?, operand(2)),
                "add" => match (operand(1), operand(2)) {
                    (Some(one), None) => (one, None),
                    (None, Some(other)) => (other, None),
                    (Some(one), Some(other)) => {
                        let swap = facts.is_number(one) || (!is_written(one) && !facts.is_number(other));
                        if swap { (other, Some(one)) } else { (one, Some(other)) }
                    }
                    (None, None) => return None,
                },
                _ => return None,
            };
            if let Some(added) = added.filter(|added| !is_written(added)) {
                trace.added.push(added);
            }
            (trace.root, before) = (next, index);
        }
        Some(trace)
    }
}

/// The last statement before another that writes a register.
fn written(body: &[Statement], before: usize, name: &str) -> Option<usize> {
    body.get(..before)?.iter().rposition(|statement| {
        let Statement::Instruction(instruction) = statement else { return false };
        let Some(row) = table::row_of(instruction) else { return true };
        let mut writes = false;
        table::written(row, instruction, &mut |found| writes |= found == name);
        writes
    })
}

/// Writes both versions of each loop, the one that is checked first.
fn write(statements: &[Statement], mut chosen: HashMap<usize, (usize, Chosen)>) -> Versions<'static> {
    let number = |statement: &Statement| match statement {
        Statement::Label(name, _) => name.strip_prefix("$L")?.parse::<u64>().ok(),
        _ => None,
    };
    let mut labels = statements.iter().filter_map(number).max().map_or(0, |most| most + 1);
    let mut written: Vec<(Option<usize>, Statement)> = Vec::with_capacity(statements.len());
    let (mut begins, mut checked) = (HashMap::default(), HashMap::default());
    let mut index = 0;
    while let Some(statement) = statements.get(index) {
        written.push((Some(index), statement.clone()));
        if let Statement::Label(name, _) = statement
            && let Some((back, chosen)) = chosen.remove(&index)
        {
            let mut fresh = || {
                labels += 1;
                format!("$L{}", labels - 1)
            };
            let [left, confined, behind] = [fresh(), fresh(), fresh()];
            let check = chosen.check(&confined).instructions();
            written.extend(check.into_iter().map(|line| (None, Statement::Instruction(line))));
            for (label, is_left) in [(&left, true), (&confined, false)] {
                if is_left {
                    checked.insert(
                        label.clone(),
                        Chosen { anchors: chosen.anchors.clone(), steps: chosen.steps.clone() },
                    );
                }
                begins.insert(label.clone(), name.clone());
                written.push((None, Statement::Label(label.clone(), Span::default())));
                for (at, statement) in statements.iter().enumerate().take(back + 1).skip(index + 1) {
                    let mut statement = statement.clone();
                    if let (true, Statement::Instruction(branch)) = (at == back, &mut statement) {
                        branch.operands = vec![Operand::Symbol(label.clone())];
                    }
                    written.push((Some(at), statement));
                }
                if is_left {
                    let over =
                        instruction("bra", &[], vec![Operand::Symbol(behind.clone())], Span::default());
                    written.push((None, over));
                }
            }
            written.push((None, Statement::Label(behind, Span::default())));
            index = back;
        }
        index += 1;
    }
    let (origins, statements): (Vec<_>, Vec<_>) = written.into_iter().unzip();
    Versions { statements: Cow::Owned(statements), origins, begins, checked }
}
