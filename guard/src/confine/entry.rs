//! One entry: parameters, performance directives, body.

mod header;

use crate::maps::{HashMap, HashSet};
use header::{Header, directives, parameters};
pub(super) use header::{is_droppable, named};
use std::collections::{BTreeMap, BTreeSet};

use crate::ast::{Function, Linkage, Span, Statement, Variable};
use crate::confine::calls::{Budget, Functions, Looks};
use crate::confine::faults::{Faults, Loc};
use crate::confine::flatten::{Flat, Flattener, Parameters};
use crate::confine::frames::{self, Stack};
use crate::confine::gates::InUse;
use crate::confine::peel::Peeled;
use crate::confine::poll::Variant;
use crate::confine::roots::Roots;
use crate::confine::scope::Scopes;
use crate::confine::shared::{self, Shared};
use crate::confine::slices::Slices;
use crate::confine::symbols::Symbols;
use crate::confine::turns::{Ends, Firsts};
use crate::confine::variables::{Own, Variables};
use crate::confine::versions::{Known, Proven, Versions};
use crate::confine::{
    access, addresses, arguments, assign, bounded, check, clearing, copies, data, generic, indexed,
    inductions, lines, locals, meets, parameters, peel, poll, prologue, reductions, remainders, roots,
    runtime, stack, strides, unroll, warps,
};
use crate::gates::Gates;
use crate::limits::{NAME_BYTES_MAX, REGISTERS_MAX, SHARED_TERMS_MAX, SHARED_VARIABLES_MAX};
use crate::names::{self, Class};
use crate::report::{Reason, Report};
use crate::values::{Proof, SharedKey};

/// What is made of what is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Fast versions, and loops that end by themselves.
    Usual,
    /// Neither.
    Plain,
}

/// What an entry is confined with, of the module that it is of.
#[derive(Clone, Copy)]
pub(super) struct Unit<'a> {
    pub(super) symbols: &'a Symbols,
    pub(super) functions: &'a Functions<'a>,
    pub(super) gates: &'a Gates,
    pub(super) faults: &'a Faults,
}

/// The confined form of an entry, and its fast version where accesses can be proven; what stands against it is in the
/// report.
pub(super) fn confine<'a>(
    function: &'a Function,
    body: &'a [Statement],
    unit: Unit<'a>,
    effort: Effort,
    budget: &mut Budget,
    report: &mut Report,
) -> (Function, Option<Function>) {
    let Unit { symbols, functions: _, gates, faults } = unit;
    if let Err(reason) = names::check_entry(&function.name) {
        report.add(function.span, reason);
    }
    let by_name: Parameters<'_> =
        function.parameters.iter().map(|parameter| (parameter.name.as_str(), parameter)).collect();
    let in_place = indexed::in_place(function, body);
    let of = Of { function, unit, by_name: &by_name, in_place };
    let Flattened { statements, stack, mut scopes, mut variables } = of.flatten(body, budget, report);
    if budget.is_exceeded() || budget.looks() == Looks::Short {
        // It was said, or is tried in another way; what is there is not worth more.
        return (of.version(&names::entry(&function.name), Header::default(), None), None);
    }
    let ours = of.own_parameters(&variables, report);
    let called = InUse::of(&statements, gates);
    let for_gates = called.parameters(function.span).unwrap_or_else(|reason| {
        report.add(function.span, reason);
        Vec::new()
    });
    let slices = Slices::of(&statements);
    let parameters = parameters(function, &ours, for_gates, slices, symbols, report);
    let mut readable = by_name.clone();
    readable.extend(ours.iter().map(|parameter| (parameter.name.as_str(), parameter)));
    let (mut statements, roots) = of.transform(statements, stack, &ours, &mut scopes, budget, report);
    let shared = Shared::find(&mut statements, symbols, &mut variables, function.span);
    if shared.are_many() {
        let most = SHARED_VARIABLES_MAX as u64;
        report.add(function.span, Reason::Limit { what: "shared variables of an entry", most });
    }
    for class in Class::ALL {
        if u64::from(scopes.count(class)) > REGISTERS_MAX {
            report.add(function.span, Reason::Limit { what: "registers", most: REGISTERS_MAX });
        }
    }
    let emission = Emission {
        span: function.span,
        tables: access::Tables::new(symbols, &variables, &readable, in_place, roots),
        copies: copies::are_in(&statements),
        statements: &statements,
        scopes: &scopes,
        variables: &variables,
        shared: &shared,
        called: &called,
        slices,
    };
    let none = HashSet::default();
    let nothing_ends = Ends::default();
    let given = Some(&nothing_ends).filter(|_| effort == Effort::Plain);
    let Emitted { text: mut confined, zeroed, ends } = emission.plain(&none, given, report);
    let may_be_fast = !faults.checks() && effort == Effort::Usual;
    let name = Some(names::fast(&function.name)).filter(|name| name.len() <= NAME_BYTES_MAX && may_be_fast);
    let zeroed: Vec<String> =
        zeroed.iter().map(|(class, number)| format!("{}{number}", class.prefix())).collect();
    let declared = Header { parameters, directives: directives(function, report) };
    let fast = name.and_then(|name| {
        let text = emission.fast(&zeroed, &ends, budget)?;
        Some(of.version(&name, declared.clone(), Some(text)))
    });
    // Where there is a fast version, this is seldom launched; and nobody waits for one that tells what goes astray.
    if fast.is_none() && may_be_fast {
        let peels = labels(&peel::find(&statements, &zeroed, &HashMap::default(), Some(&ends)));
        if !peels.is_empty() {
            confined = emission.plain(&peels, None, &mut Report::default()).text;
        }
    }
    (of.version(&names::entry(&function.name), declared, Some(confined)), fast)
}

/// An entry, and what it is confined with.
struct Of<'a, 'b> {
    function: &'a Function,
    unit: Unit<'a>,
    by_name: &'b Parameters<'a>,
    /// The parameter that is read in place by register.
    in_place: Option<&'a Variable>,
}

/// A body without scopes and calls, with canonical names.
struct Flattened {
    statements: Vec<Statement>,
    /// What its functions that call themselves keep on their way.
    stack: Option<Stack>,
    scopes: Scopes,
    variables: Vec<Own>,
}

impl<'a> Of<'a, '_> {
    fn flatten(&self, body: &'a [Statement], budget: &mut Budget, report: &mut Report) -> Flattened {
        let Self { function, unit, by_name, in_place } = *self;
        let Unit { symbols, functions, gates, faults } = unit;
        let mut flat = Flat::default();
        let mut flattener = Flattener {
            in_place: in_place.map(|parameter| parameter.name.as_str()),
            symbols,
            parameters: by_name,
            functions,
            gates,
            variables: Variables::default(),
            scopes: Scopes::default(),
            calls: Vec::new(),
            arguments: HashMap::default(),
            lists: Vec::new(),
            faults,
            loc: Loc::default(),
            held: Vec::new(),
            stops: None,
            stack: None,
            depth: 0,
            budget,
            report,
        };
        if let Err(reason) = flattener.tell_unlooked(function.span, &mut flat) {
            flattener.report.add(function.span, reason);
        }
        flattener.block(body, &mut flat);
        if let Err(reason) = flattener.place_stops(function.span, &mut flat) {
            flattener.report.add(function.span, reason);
        }
        if let Err(reason) = flattener.leave_barriers(&mut flat) {
            flattener.report.add(function.span, reason);
        }
        faults.name(&function.name, &mut flat.statements);
        let Flattener { mut scopes, variables, held, stack, budget, report, .. } = flattener;
        let mut statements = flat.statements;
        statements.splice(0..0, stack.iter().map(|stack| frames::begin(stack, function.span)));
        if budget.is_exceeded() || budget.looks() == Looks::Short {
            return Flattened { statements, stack, scopes, variables: Vec::new() };
        }
        let variables = variables.into_placed();
        if !budget.takes(prologue::zero_locals(&variables, function.span).len()) {
            let what = "statements that zero local variables";
            report.add(function.span, Reason::Limit { what, most: budget.most() as u64 });
        }
        if !held.is_empty() {
            check::place_bounds(&mut statements, &held, symbols, &variables, &mut scopes, function.span);
        }
        Flattened { statements, stack, scopes, variables }
    }

    /// The parameters that tell where the module's variables lie.
    fn own_parameters(&self, variables: &[Own], report: &mut Report) -> Vec<Variable> {
        let Self { function, unit: Unit { symbols, functions, .. }, .. } = *self;
        let taken = |name: &str| {
            self.by_name.contains_key(name)
                || symbols.contains(name)
                || symbols.was_refused(name)
                || functions.contains(name)
                || variables.iter().any(|own| own.variable.name == name)
        };
        let mut ours = Vec::new();
        if symbols.have_data() {
            let grid = symbols.contains(runtime::GRID).then_some(data::GRID);
            for wanted in std::iter::once(data::BLOCK).chain(grid) {
                match data::parameter(wanted, &taken, function.span) {
                    Ok(parameter) => ours.push(parameter),
                    Err(reason) => report.add(function.span, reason),
                }
            }
        }
        ours
    }

    /// What is made of a flat body before its accesses are confined, pass by pass; and what its addresses are made of.
    fn transform(
        &self,
        statements: Vec<Statement>,
        stack: Option<Stack>,
        ours: &[Variable],
        scopes: &mut Scopes,
        budget: &mut Budget,
        report: &mut Report,
    ) -> (Vec<Statement>, Roots) {
        let statements = arguments::lower(statements, scopes, budget, report);
        let statements = stack::lower(statements, stack.as_ref(), scopes, budget, report);
        let statements = data::replace(statements, ours, self.unit.symbols, scopes, report);
        let roots = roots::find(&statements, self.unit.symbols, report);
        let mut statements = generic::resolve(statements, scopes, budget, report);
        reductions::of_one_kind(&mut statements, scopes);
        meets::branch_around(&mut statements);
        strides::fold(&mut statements);
        remainders::fold(&mut statements);
        inductions::normalise(&mut statements);
        bounded::copy(&mut statements, scopes);
        unroll::unroll(&mut statements);
        addresses::fold(&mut statements);
        (statements, roots)
    }

    /// An entry of a confined text.
    fn version(&self, name: &str, header: Header, body: Option<Vec<Statement>>) -> Function {
        let Header { parameters, directives } = header;
        let function = self.function;
        let linkage = match function.linkage {
            Linkage::Internal => Linkage::Internal,
            Linkage::Visible | Linkage::Weak | Linkage::Extern | Linkage::Common => Linkage::Visible,
        };
        let (returns, attributes) = Default::default();
        let (kind, name, span) = (function.kind, name.to_owned(), function.span);
        Function { kind, linkage, name, returns, parameters, attributes, directives, body, span }
    }
}

/// What the text of an entry is written from.
struct Emission<'b> {
    span: Span,
    statements: &'b [Statement],
    scopes: &'b Scopes,
    variables: &'b [Own],
    tables: access::Tables<'b>,
    shared: &'b Shared,
    called: &'b InUse<'b>,
    slices: Slices,
    /// Whether there are asynchronous copies.
    copies: bool,
}

/// A text, the registers that begin as zero, and how its loops end.
struct Emitted {
    text: Vec<Statement>,
    zeroed: BTreeSet<(Class, u32)>,
    ends: Ends,
}

/// What makes a text a fast version.
#[derive(Clone, Copy)]
struct Fast<'t> {
    /// What is proven of its accesses.
    proven: &'t Proven,
    /// Where its versions of loops begin.
    begins: &'t HashMap<String, String>,
}

/// A statement with its place in the body before, where it has one.
type Placed<'s> = (Option<usize>, &'s Statement);

impl Emission<'_> {
    /// The text in which nothing is taken to be proven.
    fn plain(&self, peels: &HashSet<String>, given: Option<&Ends>, report: &mut Report) -> Emitted {
        let list: Vec<Placed<'_>> =
            self.statements.iter().enumerate().map(|(index, found)| (Some(index), found)).collect();
        self.write(&list, None, peels, given, report)
    }

    /// The text of a body, which may be a fast version; with the loops whose first turns are peeled, and how loops end where
    /// that is known.
    fn write(
        &self,
        list: &[Placed<'_>],
        fast: Option<Fast<'_>>,
        peels: &HashSet<String>,
        given: Option<&Ends>,
        report: &mut Report,
    ) -> Emitted {
        let Self { span, variables, shared, called, copies, .. } = *self;
        // Whoever launches a fast version does not cut its grid.
        let sums = if fast.is_none() { self.slices } else { Slices::default() };
        let mut confined = self.accesses(list, fast.map(|fast| fast.proven), sums, report);
        let mut registers = self.scopes.counts().clone();
        let left = meets::gather_groups(&mut confined, &mut registers);
        let zeroed = assign::unassigned(&confined, report);
        let zeroes = assign::zeroes(&zeroed, span);
        let mut zeroed_first: Vec<Statement> = zeroes.chain(confined).collect();
        if let Some(place) = locals::place(&zeroed_first) {
            zeroed_first.splice(place..place, prologue::zero_locals(variables, span));
        }
        if copies {
            zeroed_first = copies::await_at_exits(zeroed_first);
        }
        let none = HashMap::default();
        let begins = fast.map_or(&none, |fast| fast.begins);
        let peeled = peel::find_again(&zeroed_first, peels);
        let firsts = peel::write(&mut zeroed_first, peeled, &mut registers);
        let variant = if fast.is_some() { Variant::Proven } else { Variant::Checked };
        let mut looking = poll::insert(&zeroed_first, variant, copies, begins, &firsts, given);
        let (met, meetings) = meets::gather(std::mem::take(&mut looking.statements), left, variant, copies);
        let looked = warps::check(met, copies, meetings);
        let of_gates = called.registers();
        let mut text = prologue::declarations(&registers, looking.counters, sums, of_gates, variables);
        text.extend(prologue::instructions(looking.starts, span));
        text.extend(sums.prologue(span));
        text.extend(shared.bounds(span));
        let mut looked = called.expand(looked);
        prologue::clear_locals(&mut looked, variables);
        shared::ease(&mut looked);
        let place = clearing::place(&looked);
        looked.splice(place..place, shared.zeroes(span));
        text.append(&mut looked);
        Emitted { text, zeroed, ends: looking.ends }
    }

    /// The statements with what confines their accesses, and an end.
    fn accesses(
        &self,
        list: &[Placed<'_>],
        proven: Option<&Proven>,
        sums: Slices,
        report: &mut Report,
    ) -> Vec<Statement> {
        let mut confined = Vec::with_capacity(self.statements.len());
        for (index, (origin, statement)) in list.iter().enumerate() {
            match statement {
                Statement::Instruction(instruction) => {
                    let clamp = origin.and_then(|index| self.shared.clamp(index));
                    let known = |operand| proven.and_then(|proven| proven.get(&(index, operand)).copied());
                    let sliced = sums.replace(instruction.clone());
                    if let Err(reason) = self.tables.confine(sliced, clamp, &known, &mut confined) {
                        report.add(instruction.span, reason);
                    } else if clamp.is_some_and(|clamp| !self.shared.holds(clamp)) {
                        let what = "a matrix that takes more than there is of shared memory".to_owned();
                        report.add(instruction.span, Reason::NotImplemented { what });
                    }
                }
                other => confined.push((*other).clone()),
            }
        }
        if !lines::ends(&confined) {
            confined.push(lines::instruction("ret", &[], Vec::new(), self.span));
        }
        confined
    }

    /// The text of the fast version; none where nothing can be proven.
    fn fast(&self, zeroed: &[String], ends: &Ends, budget: &mut Budget) -> Option<Vec<Statement>> {
        let Self { statements, ref tables, shared, copies, .. } = *self;
        let fits = |proof: &Proof<'_>| is_enough(proof, tables, shared.start(), &mut BTreeMap::new());
        let bounded =
            (shared.is_clamped() && !copies).then(|| parameters::bound(statements, &fits, budget)).flatten();
        let plain = bounded.as_ref().map_or(statements, |(bounded, _)| bounded);
        // Of the same text it is known by now.
        let ends = Some(ends).filter(|_| bounded.is_none());
        let versions = Versions::of(plain, zeroed, ends);
        let ends = ends.filter(|_| versions.is_none());
        let proven = |text: &[Statement], firsts: &Firsts, ends: Option<&Ends>| {
            let mut terms = BTreeMap::new();
            let is_enough = |proof: &Proof<'_>| is_enough(proof, tables, shared.start(), &mut terms);
            let proven = versions.proven(zeroed, text, firsts, ends, is_enough);
            (proven, terms)
        };
        let text = versions.text();
        let (known, terms) = proven(text, &Firsts::default(), ends);
        let peeled = peel::find(text, zeroed, &versions.begins, ends);
        let mut peels = labels(&peeled);
        if !peels.is_empty() {
            let (mut twice, mut registers) = (text.to_vec(), self.scopes.counts().clone());
            let firsts = peel::write(&mut twice, peeled.clone(), &mut registers);
            let (known_twice, terms_twice) = proven(&twice, &firsts, None);
            // Its launches are asked no more either.
            if terms_twice != terms || !peel::are_same(&peeled, text.len(), &known, &known_twice) {
                peels.clear();
            }
        }
        // What is only aligned is not worth a version.
        if !known.values().any(|known| *known == Known::Proven) {
            return None;
        }
        let origin = |index: Option<usize>| match &bounded {
            Some((_, origins)) => index.and_then(|index| *origins.get(index)?),
            None => index,
        };
        let list: Vec<Placed<'_>> =
            versions.statements().map(|(index, found)| (origin(index), found)).collect();
        let ends = ends.filter(|_| peels.is_empty());
        // What stands against the accesses that are left has been said.
        let fast = Fast { proven: &known, begins: &versions.begins };
        Some(self.write(&list, Some(fast), &peels, ends, &mut Report::default()).text)
    }
}

fn labels(loops: &[Peeled]) -> HashSet<String> {
    loops.iter().map(|found| found.label.clone()).collect()
}

/// Whether an access is proven by this, and with terms of which a fast version may have so many. The bounds of shared
/// memory begin so far into the variables.
fn is_enough(
    proof: &Proof<'_>,
    tables: &access::Tables<'_>,
    start: u64,
    terms: &mut BTreeMap<SharedKey, u64>,
) -> bool {
    let proof = match proof {
        Proof::Pointer(_) | Proof::Checked => return true,
        Proof::Shared(proof) => proof,
    };
    if proof.start < start {
        return false;
    }
    match tables.shared_bytes(proof.variable).and_then(|bytes| proof.term(bytes)) {
        None => false,
        Some(None) => true,
        Some(Some((key, constant))) => {
            let room = terms.contains_key(&key) || terms.len() < SHARED_TERMS_MAX;
            if room {
                let known = terms.entry(key).or_default();
                *known = constant.max(*known);
            }
            room
        }
    }
}
