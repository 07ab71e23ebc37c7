//! The `.shared` and `.local` variables of an entry and of the functions inlined into it.
//!
//! All local variables become one: the confined form has a single one, to which accesses are clamped. A
//! function that is inlined several times has its variables once, since it is never active twice.

use crate::maps::{HashMap, HashSet};

use crate::ast::{Space, Span, Type, Variable};
use crate::confine::lines::declared;
use crate::confine::scope::Meaning;
use crate::confine::symbols::{self, Symbol};
use crate::limits::{LOCAL_BYTES_MAX, NAME_BYTES_MAX};
use crate::names;
use crate::report::Reason;

/// Whose a variable is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The entry, where variables keep their names.
    Entry,
    /// A function.
    Function,
}

/// A variable of an entry's own, as the confined form has it.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) variable: Variable,
    pub(super) symbol: Symbol,
}

/// The variables of one entry.
#[derive(Debug, Default)]
pub(super) struct Variables {
    /// In the confined form, in order.
    placed: Vec<Own>,
    /// Which of them is the local one.
    local: Option<usize>,
    taken: HashSet<String>,
    /// The last number behind each name that has had one.
    numbers: HashMap<String, usize>,
    /// What variables of functions mean, by their declaration.
    known: HashMap<*const Variable, Meaning>,
}

impl Variables {
    /// Places a variable. What the name means is known also where something stands against the variable, which
    /// is the second result.
    pub(super) fn place(
        &mut self,
        owner: Owner,
        variable: &Variable,
        elsewhere: impl Fn(&str) -> bool,
    ) -> Result<(Meaning, Result<(), Reason>), Reason> {
        names::check_symbol(&variable.name)?;
        let declaration = std::ptr::from_ref(variable);
        if let Some(known) = self.known.get(&declaration) {
            return Ok((known.clone(), Ok(())));
        }
        if owner == Owner::Entry && (elsewhere(&variable.name) || self.taken.contains(&variable.name)) {
            return Err(Reason::Duplicate(variable.name.clone()));
        }
        let name = self.unused(&variable.name, elsewhere)?;
        let (meaning, placed) = match measured(variable) {
            Ok(symbol) if symbol.space == Space::Local => self.place_local(variable, name, symbol),
            Ok(symbol) => {
                self.append(variable, name.clone(), symbol);
                (Meaning::Variable(name, 0), Ok(()))
            }
            Err(reason) => (Meaning::Variable(name, 0), Err(reason)),
        };
        self.known.insert(declaration, meaning.clone());
        Ok((meaning, placed))
    }

    /// Places a stack of so many bytes; where it is.
    pub(super) fn place_stack(
        &mut self,
        bytes: u64,
        align: u64,
        elsewhere: impl Fn(&str) -> bool,
    ) -> Result<(String, i64), Reason> {
        let name = self.unused("stack", elsewhere)?;
        let variable = declared(Space::Local, Type::B8, &name, None, Span::default());
        let symbol = Symbol { space: Space::Local, bytes, align, at: None };
        let variable = of_bytes(&variable, &symbol);
        let (meaning, placed) = self.place_local(&variable, name, symbol);
        placed?;
        match meaning {
            Meaning::Variable(name, start) => Ok((name, start)),
            _ => Err(Reason::Malformed("a stack that is no variable".to_owned())),
        }
    }

    /// The name of one more variable.
    fn unused(&mut self, wanted: &str, elsewhere: impl Fn(&str) -> bool) -> Result<String, Reason> {
        let first = self.numbers.get(wanted).copied().unwrap_or(0);
        let is_taken = |name: &str| elsewhere(name) || self.taken.contains(name);
        let (name, number) = names::unused(wanted, first, is_taken)?;
        self.numbers.insert(wanted.to_owned(), number);
        if name.len() > NAME_BYTES_MAX {
            return Err(Reason::Limit { what: "bytes of a name", most: NAME_BYTES_MAX as u64 });
        }
        self.taken.insert(name.clone());
        Ok(name)
    }

    /// Whether a variable of a function has a place.
    pub(super) fn has(&self, variable: &Variable) -> bool {
        self.known.contains_key(&std::ptr::from_ref(variable))
    }

    fn append(&mut self, variable: &Variable, name: String, symbol: Symbol) {
        let align = u32::try_from(symbol.align).ok();
        let variable = Variable { name, align, ..variable.clone() };
        self.placed.push(Own { variable, symbol });
    }

    fn place_local(
        &mut self,
        variable: &Variable,
        name: String,
        symbol: Symbol,
    ) -> (Meaning, Result<(), Reason>) {
        let fits = |bytes: u64| {
            let reason = Reason::Limit { what: "bytes of local variables", most: LOCAL_BYTES_MAX };
            if bytes > LOCAL_BYTES_MAX { Err(reason) } else { Ok(()) }
        };
        let all = self.local.and_then(|index| self.placed.get_mut(index));
        let Some(Own { variable: all, symbol: extent }) = all else {
            let fits = fits(symbol.bytes);
            if fits.is_ok() {
                self.local = Some(self.placed.len());
                self.append(variable, name.clone(), symbol);
            }
            return (Meaning::Variable(name, 0), fits);
        };
        let align = extent.align.max(symbol.align);
        let start = extent.bytes.checked_next_multiple_of(symbol.align).unwrap_or(u64::MAX);
        let end = start.saturating_add(symbol.bytes);
        let meaning = Meaning::Variable(all.name.clone(), i64::try_from(start).unwrap_or(i64::MAX));
        if let Err(reason) = fits(end) {
            return (meaning, Err(reason));
        }
        extent.bytes = end;
        extent.align = align;
        *all = of_bytes(all, extent);
        (meaning, Ok(()))
    }

    /// The variables of the confined form. The local one has room for the widest access: in code that is inlined for a
    /// call through a pointer, an access may be wider than what the caller's own functions would read.
    pub(super) fn into_placed(mut self) -> Vec<Own> {
        if let Some(Own { variable: all, symbol: extent }) =
            self.local.and_then(|index| self.placed.get_mut(index))
            && extent.bytes < names::WIDEST_ACCESS
        {
            extent.bytes = names::WIDEST_ACCESS;
            *all = of_bytes(all, extent);
        }
        self.placed
    }
}

/// The same variable, as an array of bytes of that size.
fn of_bytes(variable: &Variable, extent: &Symbol) -> Variable {
    let align = u32::try_from(extent.align).ok();
    Variable { ty: Type::B8, vector: 1, dimensions: vec![extent.bytes], align, ..variable.clone() }
}

fn measured(variable: &Variable) -> Result<Symbol, Reason> {
    let symbol = symbols::measured(variable)?;
    if symbol.bytes == 0 || !variable.initializer.is_empty() {
        let what = format!("a variable of a body like `{}`", variable.name);
        return Err(Reason::NotImplemented { what });
    }
    Ok(symbol)
}
