//! The instructions of a body, in one pass.

use crate::maps::HashSet;
use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::access::{self, Access, Accesses};
use crate::anchors::Check;
use crate::ast::{AddressBase, Instruction, Operand, Space, Span, Statement};
use crate::claims::fuel::Fuel;
use crate::declarations::{self, Declared};
use crate::extents::{Extent, Extents};
use crate::flow::Flow;
use crate::fuel::{Events, Kind};
use crate::gates::{self, Gates};
use crate::limits::{SHARED_TERMS_MAX, SHORT_COST_MAX};
use crate::meets::{Lanes, Met};
use crate::names::{self, Class};
use crate::numbers::Numbers;
use crate::operands;
use crate::refusal::{refuse, unverified};
use crate::report::{Reason, Report};
use crate::table::{self, Row, Treatment};
use crate::values::{Known as _, Proof, Root, SharedKey};
use crate::{Claimant, bounds, sequence};

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

/// Verifies the body of one entry, whose parameters and the module's variables are in `extents`, and which may call gates of
/// so many modules. In a fast version accesses may rest on what its launches give. One that is sliced has the parameters that
/// tell of the whole grid. `claimant` says what is claimed of the statements behind the prologue of the entry of that name.
pub(crate) fn verify<'a>(
    statements: &'a [Statement],
    extents: Extents<'a>,
    (is_fast, sliced): (bool, bool),
    (gates, modules): (&'a Gates, usize),
    ((claimant, name), report): ((&mut dyn Claimant<'_>, &str), &mut Report),
) -> Terms<'a> {
    let (declared, statements) = declarations::take(statements, extents, sliced, report);
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
    let lanes = lanes.unwrap_or_else(|wrong| nowhere(wrong, report));
    let numbers = Numbers::of(statements, &claimed.numbers);
    let mut pass = Pass::new(
        declared,
        Events::new(kind, copies, statements),
        Flow::of(statements.len()),
        labels,
        (numbers, lanes),
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
    let fuel = pass.burns((claimed.fuel.as_ref(), name), claimant, report);
    if kind == Kind::Short {
        // More is claimed in vain: no more is given.
        pass.terms.work = fuel.entry.min(SHORT_COST_MAX);
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

/// Verifies the body of a gate, which is called with these registers and returns in those. Answers what it does on the
/// longest path.
pub(crate) fn gate<'a>(
    statements: &'a [Statement],
    declared: Declared<'a>,
    (arguments, results): (&'a [String], &[String]),
    ((claimant, name), report): ((&mut dyn Claimant<'_>, &str), &mut Report),
) -> u64 {
    let labels = labels(statements, report);
    let claimed = claimant.gate(name, statements);
    let lanes = Lanes::of_gate(statements, &claimed.lanes);
    let lanes = lanes.unwrap_or_else(|wrong| nowhere(wrong, report));
    let numbers = Numbers::of(statements, &claimed.numbers);
    let mut pass = Pass::new(
        declared,
        Events::new(Kind::Gate, false, statements),
        Flow::of(statements.len()),
        labels,
        (numbers, lanes),
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
    pass.burns((claimed.fuel.as_ref(), name), claimant, report).entry
}

/// Of a body with a wrong claim no lanes are known to be anywhere.
fn nowhere((span, reason): (Span, Reason), report: &mut Report) -> Lanes {
    report.add(span, reason);
    Lanes::default()
}

/// Takes a body through a pass. Answers where it ends.
fn walk<'a>(pass: &mut Pass<'a>, statements: &'a [Statement], report: &mut Report) -> Span {
    let mut rest = statements;
    while let Some((statement, after)) = rest.split_first() {
        let here = std::mem::replace(&mut rest, after);
        pass.lanes.at(here);
        pass.fuel.at(span_of(statement));
        let span = match statement {
            Statement::Label(name, span) if gates::is_label(name) => {
                pass.end_lead(*span, report);
                match pass.gate(here) {
                    Ok(after) => rest = after,
                    Err(reason) => report.add(*span, reason),
                }
                continue;
            }
            Statement::Label(name, span) if declarations::ZEROING_LABELS.contains(&name.as_str()) => {
                refuse(report, *span, "a label of the zeroing without it");
                *span
            }
            Statement::Label(name, span) => {
                pass.flow.label(name);
                pass.fuel.label(name);
                pass.numbers.label(name);
                if let Err(reason) = pass.numbers.are_right() {
                    report.add(*span, reason);
                }
                (pass.whole, pass.awaits) = (false, pass.awaits.map(|_| None));
                pass.lanes.part();
                *span
            }
            Statement::Instruction(instruction) => {
                match pass.gathers(instruction, here) {
                    Ok(None) => {}
                    Ok(Some(after)) => {
                        rest = after;
                        continue;
                    }
                    Err(reason) => report.add(instruction.span, reason),
                }
                if pass.lead.is_empty() && is_reserved_result(instruction) {
                    match pass.flag(here) {
                        Ok(None) => {}
                        Ok(Some(after)) => {
                            pass.awaits = pass.awaits.map(|_| None);
                            rest = after;
                            continue;
                        }
                        Err(reason) => report.add(instruction.span, reason),
                    }
                }
                let checked = pass.instruction(instruction);
                if checked.is_err() {
                    pass.lead.clear();
                }
                let learned = checked.and_then(|()| {
                    pass.numbers.learn(instruction);
                    pass.numbers.are_right()
                });
                if let Err(reason) = learned {
                    report.add(instruction.span, reason);
                }
                continue;
            }
            Statement::Variable(variable) => {
                refuse(report, variable.span, "a declaration after the first instruction");
                variable.span
            }
            Statement::Directive(directive) if names::is_nounroll(directive) => directive.span,
            Statement::Directive(directive) => {
                refuse(report, directive.span, "a directive in a body");
                directive.span
            }
            Statement::Block(..) => {
                refuse(report, Span::default(), "a scope in a body");
                Span::default()
            }
        };
        pass.end_lead(span, report);
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
        (numbers, lanes): (Numbers<'a>, Lanes),
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

    fn instruction(&mut self, instruction: &'a Instruction) -> Result<(), Reason> {
        let row = table::check(instruction)?;
        operands::check(row, instruction)?;
        if matches!(row.treatment, Treatment::Hint | Treatment::Gate) {
            return Err(unverified("a cache hint or a gate"));
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

    /// What is left where lanes of a warp meet, or find out which of them are here.
    fn gathers(
        &mut self,
        first: &Instruction,
        here: &'a [Statement],
    ) -> Result<Option<&'a [Statement]>, Reason> {
        let begins = matches!(first.opcode.as_str(), "bar" | "match");
        if !begins || !self.lead.is_empty() || self.left {
            return Ok(None);
        }
        let Some((met, rest)) = self.lanes.meets(here, self.awaits.is_some()) else { return Ok(None) };
        match met {
            Met::Whole => self.whole = true,
            Met::Others => {}
            Met::Fewer => self.whole = false,
        }
        let gathered = here.get(..here.len() - rest.len()).unwrap_or_default();
        for found in gathered {
            // A mask in a register is the tenant's.
            if let Statement::Instruction(Instruction { opcode, operands, .. }) = found
                && opcode == "match"
                && let Some(Operand::Register(mask)) = operands.get(1)
            {
                if !matches!(Class::parse(mask), Some((Class::Word, _))) {
                    return Err(unverified("a mask of lanes that is no register of 32 bits"));
                }
                self.assigned(&[mask.as_str()], &[])?;
            }
        }
        self.awaits = self.awaits.map(|_| None);
        match gathered.len() {
            // A wait by itself, which is the tenant's.
            1 if first.opcode == "bar" => self.fuel.waits(table::cost(table::check(first)?, first)),
            lines => self.fuel.gathers(lines as u64),
        }
        Ok(Some(rest))
    }

    /// What has to do with the flag: a look, a poll, how a loop begins or goes back that ends by a counter. Answers what
    /// is left behind it.
    fn flag(&mut self, here: &'a [Statement]) -> Result<Option<&'a [Statement]>, Reason> {
        if self.left
            && let Some(after) = declarations::zeroes_shared(&self.declared, here)
        {
            self.fuel.pass()?;
            // It ends with a barrier for all lanes of each warp.
            if !self.lanes.together() {
                return Err(unverified(
                    "shared memory that is zeroed where lanes of a warp may be elsewhere",
                ));
            }
            self.left = false;
            self.apart();
            return Ok(Some(after));
        }
        if let Some(after) = self.fuel.poll(here).or_else(|| self.fuel.look(here)) {
            self.whole = false;
            return self.cleared().map(|()| Some(after));
        }
        if let Some((after, count)) = declarations::zeroes_local(&self.declared, here) {
            self.fuel.costs(count as u64);
            self.flow.write(ZEROED);
            return Ok(Some(after));
        }
        if let Some((root, most)) = bounds::parse(here).filter(|_| self.is_fast) {
            return self.bound(root, most, here).map(Some);
        }
        if let Some((check, count)) = Check::parse(here) {
            return self.check(&check, count, here).map(Some);
        }
        if let Some(opening) = self.fuel.opening(here) {
            self.open(&opening)?;
            self.begin(&opening)?;
            return Ok(Some(opening.rest));
        }
        let Some((closing, after)) = self.fuel.closing(here)? else { return Ok(None) };
        self.apart();
        if !self.labels.contains(closing.label) {
            return Err(unverified("a branch back to what is no label"));
        }
        self.tests(closing.reads)?;
        // The counter, and the register that it is compared with, were written where it was set, or `fuel` refuses: only what
        // came by there has fuel for it.
        for statement in here.iter().take(closing.length) {
            if let Statement::Instruction(line) = statement {
                self.numbers.learn(line);
            }
        }
        self.numbers.are_right()?;
        if let Some(step) = closing.step {
            let (mut reads, mut writes) = (Vec::new(), Vec::new());
            let row = table::check(step)?;
            table::registers(row, step, &mut |name| reads.push(name), &mut |name| writes.push(name));
            self.assigned(&reads, &writes)?;
            writes.iter().for_each(|name| self.flow.write(name));
        }
        self.goes_to(closing.label)?;
        Ok(Some(after))
    }

    /// Shared memory has been zeroed by all threads, so that none may have ended or wait elsewhere before.
    pub(crate) fn cleared(&self) -> Result<(), Reason> {
        if self.left { Err(unverified(LEFT)) } else { Ok(()) }
    }

    /// Holds what a body of this name spends against what is claimed, or against what the claimant says when it is asked.
    fn burns<'c>(
        &self,
        (claimed, name): (Option<&'c Fuel>, &str),
        claimant: &mut dyn Claimant<'_>,
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

    /// A branch back asks a predicate: the tenant's, since what the guard's say is nobody's to know.
    fn tests(&mut self, predicate: Option<&'a str>) -> Result<(), Reason> {
        // Of another class it is none of the guard's either: ptxas refuses it.
        if predicate.is_some_and(names::is_reserved) {
            return Err(unverified("a branch back on a predicate of the guard's"));
        }
        self.assigned(predicate.as_slice(), &[])
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

    fn confined(
        &mut self,
        row: &Row,
        instruction: &'a Instruction,
        reads: &[&'a str],
        writes: &[&'a str],
    ) -> Result<(), Reason> {
        let of_guard = |name: &&str| names::is_reserved(name) && !names::is_of_slice(name);
        let reserved = reads.iter().any(of_guard)
            || writes.iter().any(|name| names::is_reserved(name))
            || instruction.operands.iter().any(is_reserved_symbol);
        self.assigned(reads, writes)?;
        self.terms.reads_grid |= reads.iter().any(|name| names::is_of_grid(name));
        self.go(row, instruction, writes)?;
        let accesses = access::decode(row, instruction)?;
        if accesses.shared().is_some() {
            self.cleared()?;
        }
        if accesses.iter().any(|access| access.space == Space::Local) && !self.flow.is_written(ZEROED) {
            return Err(unverified("local memory that may not have been zeroed"));
        }
        if reserved && accesses.iter().next().is_none() {
            // Its access decides whether it stands here rightly.
            self.lead.push(instruction);
            let fits = instruction.predicate.is_none() && self.lead.len() <= sequence::LENGTH_MAX;
            return if fits { Ok(()) } else { Err(unverified("a write to a reserved register")) };
        }
        if !(reserved || self.lead.is_empty()) {
            return Err(unverified("a sequence that is interrupted"));
        }
        if accesses.iter().next().is_none() {
            return self.plain(row, instruction);
        }
        self.only_addresses_are_reserved(row, instruction, &accesses)?;
        let lead = std::mem::take(&mut self.lead);
        let mut left = lead.as_slice();
        for access in accesses.iter() {
            if is_reserved_address(access) {
                let known = (&self.numbers, self.is_fast);
                let (rest, rests) = sequence::check(left, access, &self.declared, known)?;
                left = rest;
                self.terms.dynamic_shared_min = self.terms.dynamic_shared_min.max(rests.dynamic);
                if let Some((root, bytes)) = rests.aligned {
                    let (align, _) = self.terms.pointers.entry(root).or_default();
                    *align = bytes.max(*align);
                }
            } else {
                self.proven(access)?;
            }
            left = sequence::stride(left, instruction, access)?;
            if row.treatment == Treatment::Copy && access.index == 1 {
                left = sequence::source_bytes(left, instruction, access.bytes)?;
            }
        }
        if left.is_empty() { Ok(()) } else { Err(unverified("an access that no sequence confines")) }
    }

    /// No register is read before it is written on every path to here, and every register is declared.
    pub(crate) fn assigned(&self, reads: &[&str], writes: &[&str]) -> Result<(), Reason> {
        for name in reads {
            let known = if names::is_of_slice(name) {
                self.declared.grid.contains(name)
            } else {
                self.flow.is_written(name) || names::is_special(name) || names::is_reserved(name)
            };
            if !known {
                return Err(unverified(&format!("`{name}` may be read before it is written")));
            }
        }
        for name in reads.iter().chain(writes) {
            let declared = Class::parse(name).is_some_and(|(class, number)| {
                self.declared.registers.get(&class).is_some_and(|count| number < *count)
            });
            if !(declared || names::is_special(name) || names::is_reserved(name) || *name == table::CARRY) {
                return Err(unverified(&format!("`{name}` is not declared")));
            }
        }
        Ok(())
    }

    /// What is written from here on, and where control goes.
    fn go(&mut self, row: &Row, instruction: &'a Instruction, writes: &[&'a str]) -> Result<(), Reason> {
        let always = instruction.predicate.is_none();
        if table::parts(row, instruction) {
            self.whole = false;
        }
        if matches!(row.treatment, Treatment::Branch | Treatment::Gate) {
            self.lanes.part();
        }
        if always {
            // The guard's own are read in sequences only. Those write them first, or the prologue has; counters have to have fuel.
            for name in writes.iter().filter(|name| !names::is_reserved(name)) {
                self.flow.write(name);
            }
        }
        if row.treatment == Treatment::Branch
            && let Some(Operand::Symbol(label)) = instruction.operands.first()
        {
            self.goes_to(label)?;
        }
        if always && (row.treatment == Treatment::Branch || matches!(row.name, "ret" | "exit")) {
            self.flow.end();
        }
        Ok(())
    }

    /// An instruction on the tenant's registers only.
    fn plain(&self, row: &Row, instruction: &Instruction) -> Result<(), Reason> {
        for operand in &instruction.operands {
            if let Operand::Symbol(name) | Operand::SymbolOffset(name, _) = operand {
                let known = match row.treatment {
                    Treatment::Branch => self.labels.contains(name.as_str()),
                    _ => self.declared.extents.get(name).is_some_and(|extent| match extent.space {
                        Space::Shared | Space::Local | Space::Constant => true,
                        // A number among those of its bank, which is read by a sequence only. Not as a word: addresses that are
                        // words are of shared memory, and aligned as its variables are.
                        Space::Parameter => {
                            let words = instruction.words();
                            row.name == "mov" && matches!(words.as_slice(), ["b64" | "u64" | "s64"])
                        }
                        Space::Global | Space::Register => false,
                    }),
                };
                if !known {
                    return Err(unverified(&format!("`{name}` may not be named here")));
                }
            }
        }
        Ok(())
    }

    /// An access without a sequence: by symbol, inside the symbol's variable; or by what is known of its register.
    fn proven(&mut self, access: &Access<'_>) -> Result<(), Reason> {
        let address = access.address;
        let name = match &address.base {
            AddressBase::Register(_) => {
                // What is known of a register is known for as many bytes as the access is aligned to.
                let usable = self.is_fast && access.extent == access.bytes;
                let proof = self.numbers.proof(access).filter(|_| usable);
                let proof = proof.ok_or_else(|| unverified("an access that is not confined"))?;
                return self.rests_on(proof);
            }
            AddressBase::Absolute => return Err(unverified("an absolute address")),
            AddressBase::Symbol(name) => name,
        };
        let extent = self.declared.extents.get(name).filter(|extent| extent.space == access.space);
        let Some(extent) = extent else { return Err(unverified("an access to an unknown symbol")) };
        let writable = matches!(access.space, Space::Shared | Space::Local);
        let inside = u64::try_from(address.offset)
            .ok()
            .filter(|offset| offset.is_multiple_of(access.bytes) && extent.align.is_multiple_of(access.bytes))
            .and_then(|offset| offset.checked_add(access.extent))
            .is_some_and(|end| end <= extent.bytes);
        // What the prologue's bounds do not cover is not zeroed.
        let zeroed = access.space != Space::Shared
            || self
                .declared
                .shared
                .as_ref()
                .and_then(|bounds| bounds.names.get(name.as_str()))
                .is_some_and(|start| u64::try_from(address.offset).is_ok_and(|offset| offset >= *start));
        if inside && zeroed && (access.reads_only || writable) {
            Ok(())
        } else {
            Err(unverified("an access outside its variable"))
        }
    }

    /// Makes what an access rests on terms of the launch.
    fn rests_on(&mut self, proof: Proof<'a>) -> Result<(), Reason> {
        match proof {
            Proof::Checked => Ok(()),
            Proof::Pointer(proof) => {
                let (align, writes) = self.terms.pointers.entry(proof.root).or_default();
                *align = proof.align.max(*align);
                *writes |= proof.writes;
                Ok(())
            }
            Proof::Shared(proof) => {
                let extent = self.declared.extents.get(proof.variable);
                // What the prologue's bounds do not cover is not zeroed. Every name of dynamic shared memory names the
                // same bytes, and every shared variable is aligned for the widest access.
                let covered = |extent: &&Extent| {
                    self.declared.shared.as_ref().is_some_and(|bounds| {
                        let named = bounds.names.get(proof.variable);
                        named.is_some_and(|start| proof.start >= *start)
                            || (extent.bytes == 0 && bounds.dynamic)
                    })
                };
                let extent = extent.filter(|extent| extent.space == Space::Shared).filter(covered);
                let term = extent.and_then(|extent| proof.term(extent.bytes));
                let Some(term) = term else { return Err(unverified("an access outside its variable")) };
                if let Some((key, constant)) = term {
                    let known = self.terms.shared.entry(key).or_default();
                    *known = constant.max(*known);
                }
                if self.terms.shared.len() > SHARED_TERMS_MAX {
                    return Err(unverified("a fast version with too many terms"));
                }
                Ok(())
            }
        }
    }

    /// Apart from its addresses and what a copy takes, which its sequence decides, an access uses no register of the
    /// guard.
    fn only_addresses_are_reserved(
        &self,
        row: &Row,
        instruction: &Instruction,
        accesses: &Accesses<'_>,
    ) -> Result<(), Reason> {
        let others = instruction.operands.iter().enumerate().filter(|(index, _)| {
            accesses.iter().all(|access| access.index != *index)
                && !(row.treatment == Treatment::Copy && *index == 3)
                && accesses.iter().all(|access| access.stride.is_none_or(|(at, _)| at != *index))
        });
        let mut reserved =
            instruction.predicate.iter().any(|predicate| names::is_reserved(&predicate.register));
        for (_, operand) in others {
            let of_guard = |name: &str| names::is_reserved(name) && !names::is_of_slice(name);
            table::each(operand, &mut |name| reserved |= of_guard(name));
        }
        if reserved { Err(unverified("a reserved register as data")) } else { Ok(()) }
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

fn is_reserved_address(access: &Access<'_>) -> bool {
    match &access.address.base {
        AddressBase::Register(name) | AddressBase::Symbol(name) => names::is_reserved(name),
        AddressBase::Absolute => false,
    }
}

fn is_reserved_symbol(operand: &Operand) -> bool {
    match operand {
        Operand::Symbol(name) | Operand::SymbolOffset(name, _) => names::is_reserved(name),
        Operand::Address(address) => {
            matches!(&address.base, AddressBase::Symbol(name) if names::is_reserved(name))
        }
        _ => false,
    }
}
