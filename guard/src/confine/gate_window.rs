//! The variables of a gate's module lie in its protected window, and its other pointers are the caller's.
//!
//! Authors write CUDA C: `head` is a variable of the module's, `*from` is memory of whoever calls. The compiler makes of both
//! the same accesses, so where an address comes from is followed from the variables' names. A mistake here harms the
//! author's program and nobody else: each access is confined to the caller's window or to the module's own.
//!
//! A pointer into the window that is stored and loaded again is not followed: it is a number, and an access by it is the
//! caller's. What may be one on one way and the other on another is refused.

use crate::access;
use crate::ast::{
    Address, AddressBase, Instruction, Item, Linkage, Module, Operand, Space, Span, Statement, Variable,
};
use crate::confine::Stray;
use crate::confine::symbols::{measured, named};
use crate::data::{Layout, is_managed};
use crate::maps::{HashMap, HashSet};
use crate::module_gates::GateWindow;
use crate::names::Class;
use crate::report::{Reason, Report};
use crate::table::{self, Row};

/// Rounds until the origins must have settled; real code takes two or three.
const ROUNDS_MAX: usize = 16;

/// The name of the window itself, which an author declares as an array without a size: `extern "C" __device__ char
/// bulkhead_window[]`.
const WHOLE: &str = "bulkhead_window";

/// The variables that lie in a module's window.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Where each begins, and its bytes. What lies in host memory counts from the window's end, downwards.
    places: HashMap<String, (i64, u64)>,
    pub(super) told: GateWindow,
}

impl Window {
    /// Lays out the `.global` variables of a module from the window's first byte on, and managed ones in the host memory that
    /// the window ends with; without what headers leave behind and nothing names.
    pub(super) fn of(module: &Module, report: &mut Report) -> Self {
        let (mut variables, mut managed): (Vec<(&Variable, u64, u64)>, Vec<_>) = (Vec::new(), Vec::new());
        let (named, mut whole) = (named(module), false);
        for item in &module.items {
            let Item::Variable(variable) = item else { continue };
            if variable.space != Space::Global
                || (variable.linkage == Linkage::Internal && !named.contains(variable.name.as_str()))
            {
                continue;
            }
            if variable.name == WHOLE && variable.linkage == Linkage::Extern && variable.dimensions == [0] {
                whole = true;
                continue;
            }
            match plain(variable).and_then(|()| measured(variable)) {
                Ok(symbol) => {
                    let part = if is_managed(variable) { &mut managed } else { &mut variables };
                    part.push((variable, symbol.bytes, symbol.align));
                }
                Err(reason) => report.add(variable.span, reason),
            }
        }
        let (device, host) =
            (Layout::of(&variables, Stray::Silent, report), Layout::of(&managed, Stray::Silent, report));
        let told = GateWindow {
            device: device.fill(&variables, &|_| None, report),
            host: host.fill(&managed, &|_| None, report),
        };
        if !(told.device.relocations.is_empty() && told.host.relocations.is_empty()) {
            let what = "an initial value that is an address, in a gate's module".to_owned();
            report.add(Span::WHOLE, Reason::NotImplemented { what });
        }
        let mut places: HashMap<String, (i64, u64)> = HashMap::default();
        if whole {
            places.insert(WHOLE.to_owned(), (0, u64::MAX));
        }
        // The mask of the window's size makes a place near its end of a number below zero.
        let below = i64::try_from(told.host_bytes()).unwrap_or(i64::MAX);
        for (part, layout, below) in [(&variables, &device, 0), (&managed, &host, below)] {
            for (variable, bytes, _) in part {
                let at = layout.place_of(&variable.name).and_then(|at| i64::try_from(at).ok());
                let twice = at.and_then(|at| places.insert(variable.name.clone(), (at - below, *bytes)));
                if twice.is_some() {
                    report.add(variable.span, Reason::Duplicate(variable.name.clone()));
                }
            }
        }
        Self { places, told }
    }

    /// Puts numbers in the place of variables' names. What is accessed by a name is told to `protected`, what holds an
    /// address to `holds`, by where the instruction stands.
    pub(super) fn resolve(
        &self,
        found: &mut Instruction,
        protected: &mut HashSet<u32>,
        holds: &mut HashSet<u32>,
        report: &mut Report,
    ) {
        let start = found.span.start;
        for operand in &mut found.operands {
            match operand {
                Operand::Address(address) => {
                    let AddressBase::Symbol(name) = &address.base else { continue };
                    let Some((at, bytes)) = self.places.get(name) else { continue };
                    let inside = u64::try_from(address.offset).is_ok_and(|offset| offset < *bytes);
                    match at.checked_add(address.offset).filter(|_| inside) {
                        Some(offset) => {
                            protected.insert(start);
                            *operand = Operand::Address(Address { base: AddressBase::Absolute, offset });
                        }
                        None => {
                            let text = format!("offset {} lies outside of `{name}`", address.offset);
                            report.add(found.span, Reason::Malformed(text));
                        }
                    }
                }
                Operand::Symbol(name) | Operand::SymbolOffset(name, _) if self.places.contains_key(name) => {
                    let at = self.places.get(name).map_or(0, |(at, _)| i128::from(*at));
                    let further = if let Operand::SymbolOffset(_, offset) = operand { *offset } else { 0 };
                    holds.insert(start);
                    *operand = Operand::Integer(at + i128::from(further));
                }
                _ => {}
            }
        }
    }
}

/// A variable that a window has room for by its declaration alone.
fn plain(variable: &Variable) -> Result<(), Reason> {
    match variable.linkage {
        Linkage::Internal | Linkage::Visible | Linkage::Weak
            if variable.attributes.is_empty() || is_managed(variable) =>
        {
            Ok(())
        }
        _ => {
            let what = format!("a variable of a gate's module like `{}`", variable.name);
            Err(Reason::NotImplemented { what })
        }
    }
}

/// Where the value of a register comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A number that stands in the text: as an address it is nobody's, so it may join any other.
    Literal,
    /// Not the window: the caller gave it, or it was computed or loaded.
    Number,
    /// An address of the window.
    Window,
    /// Perhaps an address of the window, or what was made of one in a way that is not followed.
    Either,
}

/// Whose memory an access reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Callers,
    Modules,
    /// One or the other.
    Either,
}

/// The origins of a body's registers.
#[derive(Debug, Default)]
pub(super) struct Origins(HashMap<String, Origin>);

impl Origins {
    /// Follows values through a flat body, all definitions of a register together. `holds` are the instructions of which an
    /// operand was a variable's name.
    pub(super) fn find(statements: &[Statement], holds: &HashSet<u32>) -> Self {
        let mut origins = given(statements);
        for round in 0..=ROUNDS_MAX {
            let mut changed = false;
            for statement in statements {
                let Statement::Instruction(found) = statement else { continue };
                let Ok(row) = table::check(found) else { continue };
                let Some(origin) = result(row, found, holds, &origins) else { continue };
                table::written(row, found, &mut |name| {
                    let joined = origins.get(name).map_or(origin, |known| known.join(origin));
                    // Not settled: nothing is known of what still changes.
                    let joined = if round == ROUNDS_MAX { Origin::Either } else { joined };
                    changed |= origins.insert(name, joined) != Some(joined);
                });
            }
            if !changed {
                break;
            }
        }
        Self(origins.into_iter().map(|(name, origin)| (name.to_owned(), origin)).collect())
    }

    /// Whose memory an access without a mark reaches.
    pub(super) fn whose(&self, row: &Row, found: &Instruction) -> Whose {
        let generic = access::generic(row, found).and_then(|index| found.operands.get(index));
        let named = access::decode(row, found).ok();
        let named = named.as_ref().and_then(|accesses| accesses.iter().next().map(|access| access.address));
        let address = match (generic, named) {
            (Some(Operand::Address(address)), _) => address,
            (_, Some(address)) => address,
            _ => return Whose::Callers,
        };
        let AddressBase::Register(name) = &address.base else { return Whose::Callers };
        match self.0.get(name.as_str()) {
            Some(Origin::Window) => Whose::Modules,
            // Of what is computed of itself alone nothing is known.
            Some(Origin::Either) | None => Whose::Either,
            Some(Origin::Literal | Origin::Number) => Whose::Callers,
        }
    }
}

/// The registers that nothing writes: the caller gives what they hold.
fn given(statements: &[Statement]) -> HashMap<&str, Origin> {
    let (mut read, mut written) = (HashSet::default(), HashSet::default());
    for statement in statements {
        let Statement::Instruction(found) = statement else { continue };
        let Ok(row) = table::check(found) else { continue };
        let mut reads = |name| {
            read.insert(name);
        };
        let mut writes = |name| {
            written.insert(name);
        };
        table::registers(row, found, &mut reads, &mut writes);
    }
    read.difference(&written).map(|name| (*name, Origin::Number)).collect()
}

/// What an instruction's results are; none where its operands are not known yet.
fn result(
    row: &Row,
    found: &Instruction,
    holds: &HashSet<u32>,
    origins: &HashMap<&str, Origin>,
) -> Option<Origin> {
    if access::generic(row, found).is_some()
        || access::decode(row, found).is_ok_and(|accesses| accesses.iter().next().is_some())
    {
        return Some(Origin::Number);
    }
    let variable = holds.contains(&found.span.start);
    let of = |index: usize| match found.operands.get(index) {
        Some(Operand::Register(name)) => match Class::parse(name) {
            Some((Class::Double | Class::Word, _)) => origins.get(name.as_str()).copied(),
            _ => Some(Origin::Number),
        },
        Some(Operand::Integer(_)) if variable => Some(Origin::Window),
        Some(Operand::Integer(_)) => Some(Origin::Literal),
        _ => Some(Origin::Number),
    };
    let both =
        |first: usize, second: usize, f: fn(Origin, Origin) -> Origin| Some(f(of(first)?, of(second)?));
    let wide = |index: usize| matches!(found.operands.get(index), Some(Operand::Register(name)) if matches!(Class::parse(name), Some((Class::Double, _))));
    match found.opcode.as_str() {
        "mov" | "cvta" if wide(0) && !matches!(found.operands.get(1), Some(Operand::Vector(_))) => of(1),
        "cvt" if wide(0) && wide(1) => of(1),
        "add" if wide(0) => both(1, 2, Origin::sum),
        "sub" if wide(0) => both(1, 2, Origin::difference),
        // Masks take away low bits, and flags put some there.
        "and" | "or" if wide(0) => both(1, 2, Origin::sum),
        "mad" if wide(0) => {
            let product = of(1)?.other(of(2)?);
            Some(product.sum(of(3)?))
        }
        "selp" | "min" | "max" | "slct" => both(1, 2, Origin::join),
        _ => {
            let (mut all, mut known) = (Origin::Number, true);
            table::registers(
                row,
                found,
                &mut |name| match origins.get(name) {
                    Some(origin) => all = all.other(*origin),
                    None => known &= !matches!(Class::parse(name), Some((Class::Double | Class::Word, _))),
                },
                &mut |_| {},
            );
            if variable {
                all = Origin::Either;
            }
            known.then_some(all)
        }
    }
}

impl Origin {
    /// What is either of two.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Literal, other) | (other, Self::Literal) => other,
            _ => Self::Either,
        }
    }

    fn sum(self, other: Self) -> Self {
        match (self, other) {
            (Self::Literal, Self::Literal) => Self::Literal,
            (Self::Literal | Self::Number, Self::Literal | Self::Number) => Self::Number,
            (Self::Window, Self::Literal | Self::Number) | (Self::Literal | Self::Number, Self::Window) => {
                Self::Window
            }
            _ => Self::Either,
        }
    }

    fn difference(self, other: Self) -> Self {
        match (self, other) {
            (Self::Window, Self::Window) => Self::Number,
            (Self::Literal | Self::Number, Self::Window) => Self::Either,
            (one, other) => one.sum(other),
        }
    }

    /// What is computed of two in another way.
    fn other(self, other: Self) -> Self {
        match (self, other) {
            (Self::Literal | Self::Number, Self::Literal | Self::Number) => Self::Number,
            _ => Self::Either,
        }
    }
}
