//! The functions of a module, and what is known of a call.

use crate::ast::{Function, FunctionKind, Item, Module, Operand, Span};
use crate::confine::calls::graph;
use crate::confine::pointers::{Pointed, Shape};
use crate::confine::symbols::Symbols;
use crate::maps::{HashMap, HashSet};
use crate::names;
use crate::report::{Reason, Report};

/// A module's functions.
#[derive(Debug)]
pub(crate) struct Functions<'a> {
    /// By name: of several declarations the one with a body.
    named: HashMap<&'a str, &'a Function>,
    /// Those of ours.
    own: HashSet<&'a str>,
    /// Those whose address is taken.
    pointed: Pointed<'a>,
    /// Those that may call themselves.
    recursive: HashSet<String>,
}

impl<'a> Functions<'a> {
    /// Finds the functions of a module; those that it only declares may be the runtime's.
    pub(crate) fn of(
        module: &'a Module,
        runtime: &'a [Item],
        symbols: &Symbols,
        report: &mut Report,
    ) -> Self {
        let pointed = Pointed::of(module, symbols.numbers());
        let (named, own) = named(module, runtime, report);
        Self { named, own, pointed, recursive: HashSet::default() }
    }

    /// The same of a module whose functions may call themselves.
    pub(crate) fn with_recursion(self, module: &Module) -> Self {
        Self { recursive: graph::recursive(module), ..self }
    }

    /// Whether a function may call itself.
    pub(super) fn is_recursive(&self, name: &str) -> bool {
        self.recursive.contains(name)
    }

    /// Whether a function is ours.
    pub(super) fn is_own(&self, name: &str) -> bool {
        self.own.contains(name)
    }

    /// The function of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Function> {
        self.named.get(name).copied()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.named.contains_key(name)
    }

    /// The functions that a call through a pointer may mean.
    pub(crate) fn pointed(&self, shape: &Shape) -> &[(u64, &'a Function)] {
        self.pointed.get(shape)
    }
}

/// The prefix of the names of arguments.
pub(crate) const ARGUMENT: &str = "__bh_argument";

/// All functions by name, and the names of ours.
fn named<'a>(
    module: &'a Module,
    runtime: &'a [Item],
    report: &mut Report,
) -> (HashMap<&'a str, &'a Function>, HashSet<&'a str>) {
    let mut functions: HashMap<&'a str, &'a Function> = HashMap::default();
    for item in &module.items {
        let Item::Function(function) = item else { continue };
        let known = functions.get(function.name.as_str());
        if function.kind == FunctionKind::Device && function.body.is_some() {
            if known.is_some_and(|known| known.body.is_some()) {
                report.add(function.span, Reason::Duplicate(function.name.clone()));
            }
        } else if known.is_some() {
            continue;
        }
        functions.insert(&function.name, function);
    }
    let mut own = HashSet::default();
    for item in runtime {
        let Item::Function(function) = item else { continue };
        let known = functions.get(function.name.as_str());
        // What is called by a name of ours is called by what was written here.
        if names::is_reserved(&function.name) || known.is_some_and(|known| known.body.is_none()) {
            functions.insert(&function.name, function);
            own.insert(function.name.as_str());
        }
    }
    (functions, own)
}

/// A function whose body is being inlined.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(super) name: &'a str,
    /// Where the call stands.
    pub(super) span: Span,
    /// Where the function returns to.
    pub(super) end: String,
    /// How many branches go there.
    pub(super) returns: usize,
    /// Whether the function is ours, or is called by one that is.
    pub(super) own: bool,
}

/// What a call gives for a parameter.
#[derive(Clone)]
pub(crate) enum Actual {
    /// A parameter of the call, by the name that arguments have.
    Argument(String),
    /// A register or a number.
    Value(Operand),
}

/// What a call gives for all parameters of a function.
#[derive(Clone)]
pub(crate) struct Passed {
    /// For those that it returns.
    pub(crate) returned: Vec<Actual>,
    pub(crate) given: Vec<Actual>,
}

impl Passed {
    /// Of a function that returns nothing.
    pub(crate) fn given(given: Vec<Actual>) -> Self {
        Self { returned: Vec::new(), given }
    }
}

/// Whether a value goes into a function or comes out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}
