//! The rewriter: a tenant's module in, the same module in the confined form out.
//!
//! The *confined form* of an entry has no inner scopes, canonical names for registers (`%p0`, `%h0`, `%r0`,
//! `%d0`, by width) and labels (`$L0`), a prefix before its own and those of variables, three hidden parameters, a prologue
//! that loads them, and a fixed sequence of instructions before every access that is not proven to stay where it may. The
//! verifier knows the form, not the rewriter: what goes wrong here is refused there.

mod access;
mod addresses;
mod alignment;
mod arguments;
mod arrays;
mod assign;
mod barriers;
mod bounded;
mod calls;
mod check;
mod clearing;
mod copies;
mod data;
mod entry;
mod epilogues;
mod faults;
mod flatten;
mod frames;
mod gate_window;
mod gates;
mod generic;
mod halves;
mod indexed;
mod indirect;
mod inductions;
mod leads;
mod lines;
mod locals;
mod mbarrier;
mod meets;
mod origin;
mod parameters;
mod peel;
mod pointers;
mod poll;
mod prologue;
mod recursion;
mod reductions;
mod region;
mod remainders;
mod renamed;
mod reserved;
mod roots;
mod runtime;
mod scope;
mod shared;
mod slices;
mod stack;
mod steps;
mod stray;
mod strides;
mod symbols;
mod textures;
mod turns;
mod unroll;
mod variables;
mod versions;
mod warps;

use std::borrow::Cow;
use std::ops::ControlFlow;

use crate::maps::HashSet;

pub(crate) use gates::images as gate_images;
pub use stray::Stray;

use crate::ast::{Function, FunctionKind, Item, Linkage, Module, Span, Statement};
use crate::data::Data;
use crate::gates::Gates;
use crate::limits::{PTX_VERSION_MAX, PTX_VERSION_MIN, STATEMENTS_MAX};
use crate::names;
use crate::report::{Reason, Report};
use entry::{Effort, Unit};
use faults::Faults;
use symbols::Symbols;

/// Confines a module to the window that its hidden launch parameters name, or says everything that stands
/// against it.
pub fn confine(module: &Module) -> Result<Module, Report> {
    confine_as(module, Stray::Silent)
}

/// As [`confine`].
pub fn confine_as(module: &Module, stray: Stray) -> Result<Module, Report> {
    confine_with(module, stray, &Gates::default())
}

/// As [`confine`], of a module that may call these gates.
pub fn confine_with(module: &Module, stray: Stray, gates: &Gates) -> Result<Module, Report> {
    confine_all(module, stray, gates, Effort::Usual).whole()
}

/// As [`confine_with`], and as the verifier passes it: where it does not see again what the usual form rests on, first
/// without fast versions, then with a poll or a counter in every loop.
pub fn confine_verified(module: &Module, stray: Stray, gates: &Gates) -> Result<Module, Report> {
    verified(module, stray, gates, Confined::whole)
}

/// As [`confine_verified`], without the entries that are refused, which come with it. Whoever confines for others calls
/// this.
///
/// # Errors
/// What stands against all of the module, or against each of its entries.
pub fn confine_each(module: &Module, stray: Stray, gates: &Gates) -> Result<(Module, Vec<Refused>), Report> {
    let mut refused = Vec::new();
    let confined = verified(module, stray, gates, |confined| {
        refused.clone_from(&confined.refused);
        confined.rest()
    })?;
    Ok((confined, refused))
}

fn verified(
    module: &Module,
    stray: Stray,
    gates: &Gates,
    mut take: impl FnMut(Confined) -> Result<Module, Report>,
) -> Result<Module, Report> {
    let mut confined = take(confine_all(module, stray, gates, Effort::Usual))?;
    let passes = |confined: &Module| crate::verify_with(&crate::print(confined), gates).is_ok();
    if passes(&confined) {
        return Ok(confined);
    }
    let before = confined.items.len();
    drop_fast_versions(&mut confined);
    if confined.items.len() < before && passes(&confined) {
        return Ok(confined);
    }
    take(confine_all(module, stray, gates, Effort::Plain))
}

/// An entry that is not let in, though the rest of its module is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What the tenant calls the entry.
    pub name: String,
    /// What stands against it.
    pub report: Report,
}

/// What becomes of a module, and what stands against it.
struct Confined {
    /// Statements that are refused are left out.
    module: Module,
    /// What stands against the module whichever entries it has.
    report: Report,
    refused: Vec<Refused>,
}

impl Confined {
    /// All of it, or everything that stands against it.
    fn whole(self) -> Result<Module, Report> {
        let (module, report) = self.into_parts();
        report.or(module)
    }

    /// The entries that nothing stands against, if there are any; or everything that stands against it.
    fn rest(mut self) -> Result<Module, Report> {
        if !self.report.is_empty() || self.refused.is_empty() {
            return self.whole();
        }
        let refused: HashSet<&str> = self.refused.iter().map(|refused| refused.name.as_str()).collect();
        let stays = |item: &Item| match item {
            Item::Function(Function { name, .. }) => !refused.contains(names::entry_of(name)),
            Item::Variable(_) | Item::Section(_) | Item::Directive(_) => true,
        };
        let is_entry = |item: &&Item| matches!(item, Item::Function(_));
        if !self.module.items.iter().filter(is_entry).any(stays) {
            return self.whole();
        }
        self.module.items.retain(stays);
        Ok(self.module)
    }

    fn into_parts(self) -> (Module, Report) {
        let mut report = self.report;
        for refused in self.refused {
            report.append(refused.report);
        }
        // What stands against a function was found wherever it is called.
        report.forget_repeated();
        (self.module, report)
    }
}

/// The names of entries that have a body.
fn entries_with_bodies(module: &Module) -> HashSet<&str> {
    let mut names = HashSet::default();
    for item in &module.items {
        if let Item::Function(Function { kind: FunctionKind::Entry, name, body: Some(_), .. }) = item {
            names.insert(name.as_str());
        }
    }
    names
}

/// Leaves the confined versions of entries only.
pub fn drop_fast_versions(module: &mut Module) {
    let is_fast =
        |item: &Item| matches!(item, Item::Function(function) if names::is_fast_version(&function.name));
    module.items.retain(|item| !is_fast(item));
}

/// The block of a module's variables that the confined form of its entries expects; what stands against the module
/// is for [`confine`] to say.
#[must_use]
pub fn data(module: &Module) -> Data {
    data_as(module, Stray::Silent)
}

/// As [`data`], of a module that was confined so.
#[must_use]
pub fn data_as(module: &Module, stray: Stray) -> Data {
    let (module, faults) = faults::rewrite(module, stray);
    Symbols::collect(&module, &runtime(&module, &faults), stray, &mut Report::default()).into_data()
}

/// What a module needs of ours: functions that its compiler leaves to the driver, and where what they tell lies.
fn runtime(module: &Module, faults: &Faults) -> Vec<Item> {
    let mut items = runtime::needed(module);
    if faults.checks() {
        items = faults::checked_heap(items);
    }
    items.extend(faults.items.iter().cloned());
    items
}

/// Confines what can be confined of a module, and says what stands against the rest, which is left out.
#[must_use]
pub(crate) fn confine_recovering(module: &Module, gates: &Gates) -> (Module, Report) {
    confine_all(module, Stray::Silent, gates, Effort::Usual).into_parts()
}

/// The entries of a module that are confined so far, and what others are confined with.
struct Entries<'a> {
    functions: &'a calls::Functions<'a>,
    symbols: &'a Symbols,
    faults: &'a faults::Faults,
    gates: &'a Gates,
    effort: Effort,
    budget: calls::Budget,
    /// Of all of them.
    statements: usize,
    items: Vec<Item>,
    refused: Vec<Refused>,
}

impl Entries<'_> {
    /// Confines one more entry. Breaks where no more can be.
    fn add(&mut self, function: &Function, body: &[Statement], report: &mut Report) -> ControlFlow<()> {
        let mut own = Report::default();
        let copied = indexed::copied(function, body, &mut self.budget);
        let copied = copied.unwrap_or_else(|reason| {
            own.add(function.span, reason);
            None
        });
        let body = copied.as_deref().unwrap_or(body);
        let before = self.budget.clone();
        let mut tried = Report::default();
        let (mut confined, mut fast) = self.confine(function, body, &mut tried);
        if self.budget.looks() == calls::Looks::Short {
            // An entry that there are too few checks for goes without.
            self.budget = before.without_checks();
            tried = Report::default();
            (confined, fast) = self.confine(function, body, &mut tried);
            self.budget.look_again();
        }
        own.append(tried);
        // What comes after would only cost more.
        if self.budget.is_exceeded() {
            report.append(own);
            return ControlFlow::Break(());
        }
        if !own.is_empty() {
            self.refused.push(Refused { name: function.name.clone(), report: own });
        }
        for version in std::iter::once(confined).chain(fast) {
            self.statements += version.body.as_ref().map_or(0, Vec::len);
            self.items.push(Item::Function(version));
        }
        if self.statements > STATEMENTS_MAX {
            let reason = Reason::Limit { what: "statements", most: STATEMENTS_MAX as u64 };
            report.add(function.span, reason);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn confine(
        &mut self,
        function: &Function,
        body: &[Statement],
        report: &mut Report,
    ) -> (Function, Option<Function>) {
        let Self { symbols, functions, gates, faults, effort, .. } = *self;
        let unit = Unit { symbols, functions, gates, faults };
        entry::confine(function, body, unit, effort, &mut self.budget, report)
    }
}

fn confine_all(module: &Module, stray: Stray, gates: &Gates, effort: Effort) -> Confined {
    let mut report = Report::default();
    let target = header(module, &mut report);
    let unreserved = reserved::rewrite(module).unwrap_or_else(|reason| {
        report.add(Span::WHOLE, reason);
        Cow::Borrowed(module)
    });
    let (called, functions) = textures::rewrite(&unreserved);
    let called = halves::with_whole_words(&called);
    let (module, faults) = faults::rewrite(&called, stray);
    let module = &*module;
    let mut runtime = runtime(module, &faults);
    runtime.extend(functions);
    let symbols = Symbols::collect(module, &runtime, stray, &mut report);
    let defined = entries_with_bodies(module);
    let is_declared_only =
        |function: &Function| function.body.is_none() && defined.contains(function.name.as_str());
    let mut names = HashSet::default();
    let mut entries = Entries {
        functions: &calls::Functions::of(module, &runtime, &symbols, &mut report).with_recursion(module),
        symbols: &symbols,
        faults: &faults,
        gates,
        effort,
        budget: calls::Budget::of(module),
        statements: 0,
        items: symbols.variables().map(Item::Variable).collect(),
        refused: Vec::new(),
    };
    for item in &module.items {
        let function = match item {
            Item::Variable(_) | Item::Section(_) => continue,
            Item::Directive(directive) => {
                if !entry::is_droppable(directive) {
                    report.add(directive.span, Reason::NotImplemented { what: entry::named(directive) });
                }
                continue;
            }
            Item::Function(function) => function,
        };
        if !function.attributes.is_empty() {
            let what = format!("an attribute of a function, `{}`", function.name);
            report.add(function.span, Reason::NotImplemented { what });
        }
        // Functions are inlined where they are called, and what is declared before it is defined is one entry.
        if function.kind == FunctionKind::Device || is_declared_only(function) {
            continue;
        }
        let again = !names.insert(function.name.as_str());
        if again || symbols.contains(&function.name) {
            report.add(function.span, Reason::Duplicate(function.name.clone()));
        }
        match (function.linkage, &function.body) {
            (Linkage::Extern | Linkage::Common, _) | (_, None) => {
                let what = format!("an entry without a body, `{}`", function.name);
                report.add(function.span, Reason::NotImplemented { what });
            }
            (_, Some(body)) if entries.add(function, body, &mut report).is_break() => break,
            (_, Some(_)) => {}
        }
    }
    let Entries { mut items, refused, .. } = entries;
    renamed::rename(&mut items, &mut report);
    let (version, target) = gates.header(module, target);
    let Module { address_size, header, .. } = *module;
    Confined { module: Module { version, target, address_size, header, items }, report, refused }
}

fn header(module: &Module, report: &mut Report) -> Vec<String> {
    let (major, minor) = module.version;
    if !(PTX_VERSION_MIN..=PTX_VERSION_MAX).contains(&module.version) {
        report.add(
            module.header.version,
            Reason::NotImplemented { what: format!("PTX version {major}.{minor}") },
        );
    }
    if module.address_size != 64 {
        let span = module.header.address_size;
        report.add(span, Reason::NotImplemented { what: format!("`.address_size {}`", module.address_size) });
    }
    // `debug` only asks for debug information, which is dropped.
    let target = module.target.iter().filter(|word| *word != "debug");
    let target: Vec<String> = target.map(|word| crate::names::architecture(word).to_owned()).collect();
    match target.as_slice() {
        [architecture] if crate::names::is_architecture(architecture) => {}
        _ => {
            let what = format!("the target `{}`", module.target.join(", "));
            report.add(module.header.target, Reason::NotImplemented { what });
        }
    }
    target
}
