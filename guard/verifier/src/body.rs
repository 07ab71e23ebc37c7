//! The instructions of a body, in one pass.

use crate::maps::HashSet;
use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::Claimant;
use crate::ast::{Instruction, Operand, Span, Statement};
use crate::claims::fuel::Fuel;
use crate::declarations::{self, Declared};
use crate::extents::Extents;
use crate::flow::Flow;
use crate::fuel::{Events, Kind};
use crate::gates::{self, Gates};
use crate::limits::SHORT_COST_MAX;
use crate::meets::Lanes;
use crate::names;
use crate::numbers::Numbers;
use crate::operands;
use crate::refusal::{refuse, unverified};
use crate::report::{Reason, Report};
use crate::table::{self, Row, Treatment};
use crate::values::{Root, SharedKey};

mod accesses;
mod forms;

/// Shared memory is as another block left it, and what would need it not to be stands here.
const LEFT: &str = "shared memory that may not have been zeroed";

/// Stands among the registers that are written for the local variable, once it is zeroed.
const ZEROED: &str = "%bh_zeroed";

/// What every launch of a body has to give.
#[derive(Default)]
pub(crate) struct Terms<'a> {
    /// Bytes of dynamic shared memory.
    pub(crate) dynamic_shared_min: u64,
    /// What its pointers have to be: of what they are a multiple, and whether stores go through them.
    pub(crate) pointers: BTreeMap<Root<'a>, (u64, bool)>,
    /// What its shared accesses ask, and the constant of each.
    pub(crate) shared: BTreeMap<SharedKey, u64>,
    /// What parameters are at most: words, by where they lie.
    pub(crate) bounds: BTreeMap<Root<'a>, u32>,
    /// What a thread does that never looks at the flag; 0 where threads look.
    pub(crate) work: u64,
    /// The modules whose gates it calls.
    pub(crate) modules: Vec<&'a str>,
    /// Whether the grid of the launch itself is read, of which that may be a slice.
    pub(crate) reads_grid: bool,
    /// Whether no two rows of a block may have a warp in common.
    pub(crate) rows: bool,
}

/// Which of an entry's bodies it is.
#[derive(Clone, Copy)]
pub(crate) struct Version {
    /// Whether accesses may rest on what launches give.
    pub(crate) is_fast: bool,
    /// Whether it has the parameters that tell of the whole grid.
    pub(crate) is_sliced: bool,
    /// Of how many modules it may call gates.
    pub(crate) modules: usize,
}

/// Who says what is claimed of a body, and by which name it asks.
pub(crate) struct Asked<'c, 'd> {
    pub(crate) claimant: &'c mut dyn Claimant<'d>,
    pub(crate) name: &'c str,
}

/// The registers that a gate is called with, and those in which it returns.
pub(crate) struct Passed<'a, 'r> {
    pub(crate) arguments: &'a [String],
    pub(crate) results: &'r [String],
}

/// Verifies the body of one entry, whose parameters and the module's variables are in `extents`. What is claimed is asked for
/// the statements behind the prologue.
pub(crate) fn verify<'a>(
    statements: &'a [Statement],
    extents: Extents<'a>,
    version: Version,
    gates: &'a Gates,
    asked: Asked<'_, '_>,
    report: &mut Report,
) -> Terms<'a> {
    let Version { is_fast, is_sliced, modules } = version;
    let Asked { claimant, name } = asked;
    let (declared, statements) = declarations::take(statements, extents, is_sliced, report);
    let labels = labels(statements, report);
    let copies = statements.iter().any(
        |statement| matches!(statement, Statement::Instruction(instruction) if table::copies(instruction)),
    );
    let kind = match (declared.looks, is_fast) {
        (true, _) => Kind::Looks,
        (false, true) => Kind::Short,
        (false, false) => Kind::Plain,
    };
    let claimed = claimant.entry(name, statements, is_fast);
    let lanes = Lanes::of(statements, &claimed.lanes, is_fast);
    let lanes = lanes.unwrap_or_else(|(span, reason)| nowhere(span, reason, report));
    let numbers = Numbers::of(statements, &claimed.numbers);
    let mut pass = Pass::new(
        declared,
        Events::new(kind, copies, statements),
        Flow::of(statements.len()),
        labels,
        numbers,
        lanes,
    );
    pass.awaits = copies.then_some(None);
    pass.is_fast = is_fast;
    (pass.gates, pass.modules) = (Some(gates), vec![None; modules]);
    let span = walk(&mut pass, statements, report);
    if pass.left {
        refuse(report, span, LEFT);
    }
    if pass.fuel.counters() != pass.declared.counters {
        refuse(report, span, "more or fewer counters than loops that have one");
    }
    let fuel = pass.burns(claimed.fuel.as_ref(), Asked { claimant, name }, report);
    if kind == Kind::Short {
        // More is claimed in vain: no more is given. The bounds of shared memory stand before the body.
        let bounds = pass.declared.shared.as_ref().map_or(0, |bounds| bounds.cost);
        pass.terms.work = fuel.entry.min(SHORT_COST_MAX) + bounds;
    }
    if let Err(reason) = pass.lanes.end().and_then(|()| pass.numbers.end()) {
        report.add(span, reason);
    }
    pass.terms.rows = pass.lanes.needs_rows();
    pass.terms.modules = pass.modules.iter().copied().flatten().collect();
    if pass.terms.modules.len() != modules {
        refuse(report, span, "a parameter for a gate's module that is not called");
    }
    pass.terms
}

/// Verifies the body of a gate. Answers what it does on the longest path.
pub(crate) fn gate<'a>(
    statements: &'a [Statement],
    declared: Declared<'a>,
    Passed { arguments, results }: Passed<'a, '_>,
    Asked { claimant, name }: Asked<'_, '_>,
    report: &mut Report,
) -> u64 {
    let labels = labels(statements, report);
    let claimed = claimant.gate(name, statements);
    let lanes = Lanes::of_gate(statements, &claimed.lanes);
    let lanes = lanes.unwrap_or_else(|(span, reason)| nowhere(span, reason, report));
    let numbers = Numbers::of(statements, &claimed.numbers);
    let mut pass = Pass::new(
        declared,
        Events::new(Kind::Gate, false, statements),
        Flow::of(statements.len()),
        labels,
        numbers,
        lanes,
    );
    gates::TOLD.iter().for_each(|name| pass.flow.write(name));
    arguments.iter().for_each(|name| pass.flow.write(name));
    let span = walk(&mut pass, statements, report);
    if let Err(reason) = pass.numbers.end() {
        report.add(span, reason);
    }
    let without = results.iter().find(|name| !pass.flow.is_written(name));
    if without.is_some() || pass.fuel.counters() > 0 {
        refuse(report, span, "a gate that does not return what it has to, or counts turns");
    }
    pass.burns(claimed.fuel.as_ref(), Asked { claimant, name }, report).entry
}

/// Of a body with a wrong claim no lanes are known to be anywhere.
fn nowhere(span: Span, reason: Reason, report: &mut Report) -> Lanes {
    report.add(span, reason);
    Lanes::default()
}

/// Takes a body through a pass. Answers where it ends.
fn walk<'a>(pass: &mut Pass<'a>, statements: &'a [Statement], report: &mut Report) -> Span {
    let mut rest = statements;
    while let Some((statement, after)) = rest.split_first() {
        let here = std::mem::replace(&mut rest, after);
        pass.lanes.at(here);
        let span = span_of(statement);
        pass.fuel.at(span);
        let behind = match statement {
            Statement::Instruction(instruction) => pass.next(instruction, here, report),
            Statement::Label(name, _) if gates::is_label(name) => {
                pass.end_lead(span, report);
                told(pass.gate(here).map(Some), span, report).map(|rest| pass.over(here, rest))
            }
            _ => {
                pass.other(statement, report);
                pass.end_lead(span, report);
                None
            }
        };
        rest = behind.unwrap_or(rest);
    }
    let last = match statements.last() {
        Some(Statement::Instruction(last)) => Some(last),
        _ => None,
    };
    let ends = last.is_some_and(|last| {
        last.predicate.is_none() && matches!(last.opcode.as_str(), "ret" | "exit" | "bra")
    });
    let span = last.map_or_else(Span::default, |last| last.span);
    if !ends {
        refuse(report, span, "a body that does not end");
    }
    pass.end_lead(span, report);
    if pass.flow.is_over() {
        refuse(report, span, "a body with more registers at its labels and branches than are followed");
    }
    span
}

/// What is right, or nothing where a reason stands against it, which is told.
fn told<T>(checked: Result<Option<T>, Reason>, span: Span, report: &mut Report) -> Option<T> {
    checked.unwrap_or_else(|reason| {
        report.add(span, reason);
        None
    })
}

fn labels<'a>(statements: &'a [Statement], report: &mut Report) -> HashSet<&'a str> {
    let mut labels = HashSet::default();
    for statement in statements {
        if let Statement::Label(name, span) = statement
            && !gates::is_label(name)
            && !declarations::ZEROING_LABELS.contains(&name.as_str())
            && (!names::is_canonical_label(name) || !labels.insert(name.as_str()))
        {
            refuse(report, *span, "a label that is declared twice or not canonical");
        }
    }
    labels
}

/// Where the pass is.
pub(crate) struct Pass<'a> {
    pub(crate) declared: Declared<'a>,
    /// What it has to do with the flag, and with how much is done without a look at that.
    pub(crate) fuel: Events<'a>,
    pub(crate) labels: HashSet<&'a str>,
    pub(crate) flow: Flow<'a>,
    /// What is known of registers.
    pub(crate) numbers: Numbers<'a>,
    /// Whether accesses may rest on it.
    pub(crate) is_fast: bool,
    /// Instructions on the guard's registers whose access has not come yet.
    lead: Vec<&'a Instruction>,
    /// Where the body copies: what stands directly before, if that waits for all copies.
    pub(crate) awaits: Option<Option<&'a Instruction>>,
    /// Whether all lanes of the warp come here together.
    whole: bool,
    /// Which lanes of the warp come here.
    lanes: Lanes,
    /// Whether shared memory is still as it was left.
    left: bool,
    pub(crate) terms: Terms<'a>,
    /// The gates that may be called; none inside of one.
    pub(crate) gates: Option<&'a Gates>,
    /// How many calls of gates there were.
    pub(crate) regions: u32,
    /// The modules whose gates are called, as far as they have been.
    pub(crate) modules: Vec<Option<&'a str>>,
}

impl<'a> Pass<'a> {
    fn new(
        declared: Declared<'a>,
        fuel: Events<'a>,
        flow: Flow<'a>,
        labels: HashSet<&'a str>,
        numbers: Numbers<'a>,
        lanes: Lanes,
    ) -> Self {
        Self {
            left: declared.shared.is_some(),
            declared,
            fuel,
            labels,
            flow,
            numbers,
            is_fast: false,
            lead: Vec::new(),
            awaits: None,
            whole: false,
            lanes,
            terms: Terms::default(),
            gates: None,
            regions: 0,
            modules: Vec::new(),
        }
    }

    fn end_lead(&mut self, span: Span, report: &mut Report) {
        if !self.lead.is_empty() {
            refuse(report, span, "a sequence without its access");
            self.lead.clear();
        }
    }

    /// What is neither an instruction nor a gate: a label, or what may not stand here.
    fn other(&mut self, statement: &'a Statement, report: &mut Report) {
        let what = match statement {
            Statement::Label(name, _) if declarations::ZEROING_LABELS.contains(&name.as_str()) => {
                "a label of the zeroing without it"
            }
            Statement::Label(name, span) => return self.label(name, *span, report),
            Statement::Directive(directive) if names::is_nounroll(directive) => return,
            Statement::Directive(_) => "a directive in a body",
            Statement::Variable(_) => "a declaration after the first instruction",
            Statement::Block(..) => "a scope in a body",
            Statement::Instruction(_) => return,
        };
        refuse(report, span_of(statement), what);
    }

    fn label(&mut self, name: &'a str, span: Span, report: &mut Report) {
        self.flow.label(name);
        self.fuel.label(name);
        self.numbers.label(name);
        if let Err(reason) = self.numbers.are_right() {
            report.add(span, reason);
        }
        (self.whole, self.awaits) = (false, self.awaits.map(|_| None));
        self.lanes.part();
    }

    /// The next instruction, or all that stands here in one of the guard's forms: answers what is left behind that.
    fn next(
        &mut self,
        instruction: &'a Instruction,
        here: &'a [Statement],
        report: &mut Report,
    ) -> Option<&'a [Statement]> {
        let span = instruction.span;
        if let Some(rest) = told(self.gathers(instruction, here), span, report) {
            return Some(self.over(here, rest));
        }
        if self.lead.is_empty()
            && is_reserved_result(instruction)
            && let Some(rest) = told(self.flag(here), span, report)
        {
            self.awaits = self.awaits.map(|_| None);
            return Some(rest);
        }
        let checked = self.instruction(instruction);
        if checked.is_err() {
            self.lead.clear();
        }
        let learned = checked.and_then(|()| {
            self.numbers.learn(instruction);
            self.numbers.are_right()
        });
        if let Err(reason) = learned {
            report.add(span, reason);
        }
        None
    }

    /// Behind a form of which nothing is learnt.
    fn over(&mut self, here: &'a [Statement], rest: &'a [Statement]) -> &'a [Statement] {
        self.numbers.pass_over(&here[..here.len() - rest.len()]);
        rest
    }

    fn instruction(&mut self, instruction: &'a Instruction) -> Result<(), Reason> {
        let row = table::check(instruction)?;
        operands::check(row, instruction)?;
        if matches!(row.treatment, Treatment::Hint | Treatment::Gate) {
            return Err(unverified("a cache hint or a gate"));
        }
        // Whether lanes that sleep for different times go on apart, where ptxas takes them to be together, is not known.
        if row.name == "nanosleep" && !matches!(instruction.operands.as_slice(), [Operand::Integer(_)]) {
            return Err(unverified("a sleep whose time lanes may differ in"));
        }
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        table::registers(row, instruction, &mut |name| reads.push(name), &mut |name| writes.push(name));
        let lanes = table::waits_for_lanes(row, instruction);
        if lanes || row.treatment == Treatment::Barrier || matches!(row.name, "ret" | "exit") {
            self.cleared()?;
        }
        let went = self.fuel.instruction(row, instruction, &writes);
        if self.lanes.wait(row, instruction)? {
            // As its mask.
            reads.retain(|name| *name != names::LANES);
        }
        self.awaited(row, instruction)?;
        // Of lanes that a predicate leaves out ptxas writes no register which only such an instruction reads, and the device
        // takes it all the same.
        if table::is_for_warps(row) && !(self.whole && instruction.predicate.is_none()) {
            return Err(unverified("an instruction for whole warps where one may not be whole"));
        }
        self.confined(row, instruction, &reads, &writes)?;
        went
    }

    /// Directly before a thread ends it waits for its copies, under the same predicate.
    fn awaited(&mut self, row: &Row, instruction: &'a Instruction) -> Result<(), Reason> {
        let Some(before) = &mut self.awaits else { return Ok(()) };
        let waits = std::mem::replace(before, Some(instruction).filter(|_| row.name == table::WAIT_ALL));
        let awaited = waits.is_some_and(|wait| wait.predicate == instruction.predicate);
        if matches!(row.name, "ret" | "exit") && !awaited {
            return Err(unverified("an end that does not wait for copies"));
        }
        Ok(())
    }

    /// Shared memory has been zeroed by all threads, so that none may have ended or wait elsewhere before.
    pub(crate) fn cleared(&self) -> Result<(), Reason> {
        if self.left { Err(unverified(LEFT)) } else { Ok(()) }
    }

    /// Holds what a body of this name spends against what is claimed, or against what the claimant says when it is asked.
    fn burns<'c>(
        &self,
        claimed: Option<&'c Fuel>,
        Asked { claimant, name }: Asked<'_, '_>,
        report: &mut Report,
    ) -> Cow<'c, Fuel> {
        let turns = |label: &str| self.numbers.turns(label);
        let fuel = match claimed {
            Some(fuel) => Cow::Borrowed(fuel),
            None => Cow::Owned(claimant.fuel(name, &self.fuel, &turns)),
        };
        if let Err((span, reason)) = self.fuel.check(&fuel, turns) {
            report.add(span, reason);
        }
        fuel
    }

    /// Threads of a warp may be in different places from here on.
    pub(crate) fn apart(&mut self) {
        self.whole = false;
        self.lanes.part();
        self.awaits = self.awaits.map(|_| None);
    }

    /// Control may go to a label.
    pub(crate) fn goes_to(&mut self, label: &'a str) -> Result<(), Reason> {
        match self.flow.branch(label).next() {
            Some(name) => {
                Err(unverified(&format!("`{name}` may be read before it is written, from `{label}` on")))
            }
            None => Ok(()),
        }
    }
}

fn span_of(statement: &Statement) -> Span {
    match statement {
        Statement::Label(_, span) => *span,
        Statement::Instruction(instruction) => instruction.span,
        Statement::Variable(variable) => variable.span,
        Statement::Directive(directive) => directive.span,
        Statement::Block(..) => Span::default(),
    }
}

/// Whether an instruction computes one of the guard's registers.
fn is_reserved_result(instruction: &Instruction) -> bool {
    matches!(instruction.operands.first(), Some(Operand::Register(name)) if names::is_reserved(name))
}
