//! Names to what they mean: the scopes of a body, and the canonical names that registers and labels get.

use crate::maps::HashMap;

use crate::ast::{Type, Variable};
use crate::limits::{REGISTER_NAME_BYTES_MAX, REGISTERS_MAX};
use crate::names::{self, Class};
use crate::report::Reason;

/// What a name of a body means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A register, by its canonical name.
    Register(String),
    /// A label, by its canonical name.
    Label(String),
    /// A variable of the body, by its name in the confined form and where it begins in that.
    Variable(String, i64),
    /// What a function is called with or returns, by the name that it has until it is in registers.
    Argument(String),
    /// A list of what a call or branch may go to, by its place among those of the entry.
    List(usize),
}

/// One `{ ... }`.
#[derive(Debug, Default)]
struct Scope {
    names: HashMap<String, Meaning>,
    /// `%r<5>`: prefix, number and class. Members get their canonical name when they are first used.
    ranges: HashMap<String, (u32, Class)>,
}

/// The scopes that a function's body does not see.
#[derive(Debug)]
pub(super) struct Outer(Vec<Scope>);

/// The open scopes of one body.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    open: Vec<Scope>,
    declared: u64,
    labels: u32,
    /// How many registers of each class have a canonical name.
    registers: HashMap<Class, u32>,
}

impl Scopes {
    pub(super) fn enter(&mut self) {
        self.open.push(Scope::default());
    }

    pub(super) fn leave(&mut self) {
        self.open.pop();
    }

    /// Enters a function, which sees nothing of where it is called.
    pub(super) fn enter_function(&mut self) -> Outer {
        let outer = Outer(std::mem::take(&mut self.open));
        self.enter();
        outer
    }

    pub(super) fn leave_function(&mut self, outer: Outer) {
        self.open = outer.0;
    }

    /// Declares the registers of a `.reg`.
    pub(super) fn declare_registers(&mut self, variable: &Variable) -> Result<(), Reason> {
        if names::is_reserved(&variable.name) {
            return Err(Reason::Reserved(variable.name.clone()));
        }
        if variable.name.len() > REGISTER_NAME_BYTES_MAX {
            let what = "bytes of a register's name";
            return Err(Reason::Limit { what, most: REGISTER_NAME_BYTES_MAX as u64 });
        }
        let class = register_class(variable)?;
        self.declared = self.declared.saturating_add(u64::from(variable.range.unwrap_or(1)));
        if self.declared > REGISTERS_MAX {
            return Err(Reason::Limit { what: "registers", most: REGISTERS_MAX });
        }
        match variable.range {
            Some(count) => {
                let scope = self.innermost();
                match scope.ranges.insert(variable.name.clone(), (count, class)) {
                    None => Ok(()),
                    Some(_) => Err(Reason::Duplicate(variable.name.clone())),
                }
            }
            None => {
                let canonical = self.fresh(class);
                self.declare(&variable.name, Meaning::Register(canonical))
            }
        }
    }

    /// Declares a label of the innermost scope.
    pub(super) fn declare_label(&mut self, name: &str) -> Result<(), Reason> {
        let canonical = self.fresh_label();
        self.declare(name, Meaning::Label(canonical))
    }

    /// The canonical name of one more label.
    pub(super) fn fresh_label(&mut self) -> String {
        let canonical = format!("$L{}", self.labels);
        self.labels += 1;
        canonical
    }

    /// Declares a variable, a call's argument or a list of the innermost scope.
    pub(super) fn declare_variable(&mut self, name: &str, meaning: Meaning) -> Result<(), Reason> {
        self.declare(name, meaning)
    }

    fn declare(&mut self, name: &str, meaning: Meaning) -> Result<(), Reason> {
        match self.innermost().names.insert(name.to_owned(), meaning) {
            None => Ok(()),
            Some(_) => Err(Reason::Duplicate(name.to_owned())),
        }
    }

    fn innermost(&mut self) -> &mut Scope {
        if self.open.is_empty() {
            self.open.push(Scope::default());
        }
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// The canonical name of one more register.
    pub(super) fn fresh(&mut self, class: Class) -> String {
        let count = self.registers.entry(class).or_default();
        let name = format!("{}{count}", class.prefix());
        *count += 1;
        name
    }

    /// What a name means here: the innermost declaration counts.
    pub(super) fn resolve(&mut self, name: &str) -> Option<Meaning> {
        for index in (0..self.open.len()).rev() {
            let scope = &self.open[index];
            if let Some(meaning) = scope.names.get(name) {
                return Some(meaning.clone());
            }
            if let Some(class) = in_range(scope, name) {
                let meaning = Meaning::Register(self.fresh(class));
                self.open[index].names.insert(name.to_owned(), meaning.clone());
                return Some(meaning);
            }
        }
        None
    }

    /// The number of registers of a class that have a canonical name.
    pub(super) fn count(&self, class: Class) -> u32 {
        self.registers.get(&class).copied().unwrap_or_default()
    }

    /// The same of all classes.
    pub(super) const fn counts(&self) -> &HashMap<Class, u32> {
        &self.registers
    }
}

fn register_class(variable: &Variable) -> Result<Class, Reason> {
    let missing = |what: &str| Reason::NotImplemented { what: format!("{what}, `{}`", variable.name) };
    if variable.vector != 1 || !variable.dimensions.is_empty() {
        return Err(missing("a vector register"));
    }
    match (Class::of(variable.ty), variable.ty) {
        (Some(class), _) => Ok(class),
        // Only loads, stores and conversions take it, which take the low half of a wider one as well.
        (None, Type::B8 | Type::U8 | Type::S8) => Ok(Class::Half),
        (None, _) => Err(missing("a 128-bit register")),
    }
}

/// Digits of a number below the most registers of a range.
const DIGITS_MAX: usize = 10;

/// The class of `name` where it is a member of a range of the scope: a prefix and a number without leading
/// zeros below the count.
fn in_range(scope: &Scope, name: &str) -> Option<Class> {
    if name.len() > REGISTER_NAME_BYTES_MAX + DIGITS_MAX {
        return None;
    }
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(DIGITS_MAX);
    (1..=digits).find_map(|length| {
        let (prefix, number) = name.split_at_checked(name.len() - length)?;
        let (count, class) = scope.ranges.get(prefix)?;
        let canonical = number == "0" || !number.starts_with('0');
        let number: u32 = number.parse().ok()?;
        (canonical && number < *count).then_some(*class)
    })
}
