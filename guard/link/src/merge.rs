//! Which unit's definition a name means, and the module of all of them.

use std::collections::{HashMap, HashSet};

use bulkhead_ptx::ast::{Function, FunctionKind, Item, Linkage, Module, Space, Variable};

use crate::{Error, Named, rename};

/// What a unit has of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Declared,
    Weak,
    Common,
    Defined,
}

/// What kind of thing a name is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Function,
    Variable(Space),
}

/// A name that units share: which of them defines it.
struct Shared {
    kind: Kind,
    has: Has,
    unit: usize,
}

/// Links units.
pub(crate) fn merge(mut units: Vec<Named<'_>>) -> Result<Module, Error> {
    let first = units.first().ok_or(Error::Empty)?;
    let address_size = first.module.address_size;
    let (header, count) = (first.module.header, units.len());
    if let Some(other) = units.iter().find(|unit| unit.module.address_size != address_size) {
        return Err(Error::AddressSize { unit: other.unit.to_owned(), bits: other.module.address_size });
    }
    let version = units.iter().map(|unit| unit.module.version).max().unwrap_or_default();
    let target = target(&units);
    separate(&mut units);
    let shared = shared(&units)?;
    let commons = commons(&units);
    let mut written = HashSet::new();
    let (mut variables, mut functions) = (Vec::new(), Vec::new());
    for (index, unit) in units.into_iter().enumerate() {
        for item in unit.module.items {
            match item {
                Item::Variable(variable) => {
                    variables.extend(
                        variable_of(variable, index, &shared, &commons, &mut written).map(Item::Variable),
                    );
                }
                Item::Function(function) => {
                    functions.extend(function_of(function, index, &shared, &mut written).map(Item::Function));
                }
                other => functions.push(other),
            }
        }
    }
    let declared: Vec<Item> =
        if count > 1 { functions.iter().filter_map(declaration).collect() } else { Vec::new() };
    let items = declared.into_iter().chain(variables).chain(functions).collect();
    Ok(Module { version, target, address_size, header, items })
}

/// The newest architecture that a unit is for, and whatever else units say of their target.
fn target(units: &[Named<'_>]) -> Vec<String> {
    let words = || units.iter().flat_map(|unit| &unit.module.target);
    let number = |word: &String| {
        word.strip_prefix("sm_")
            .map(|rest| rest.trim_end_matches(char::is_alphabetic).parse().unwrap_or(0_u32))
    };
    let newest = words().max_by_key(|word| number(word));
    let mut target: Vec<String> = newest.into_iter().cloned().collect();
    for word in words().filter(|word| number(word).is_none()) {
        if !target.contains(word) {
            target.push(word.clone());
        }
    }
    target
}

/// Gives names of their own to what belongs to one unit and is called as something of another.
fn separate(units: &mut [Named<'_>]) {
    let mut taken: HashSet<String> = HashSet::new();
    let mut outside: HashSet<String> = HashSet::new();
    for unit in units.iter() {
        for (name, linkage) in names(&unit.module) {
            if linkage != Linkage::Internal {
                outside.insert(name.to_owned());
            }
            taken.insert(name.to_owned());
        }
    }
    let mut files = 0;
    let mut inside: HashSet<String> = HashSet::new();
    for (index, unit) in units.iter_mut().enumerate() {
        // A function that is declared and then defined has its name twice.
        let own: HashSet<String> = names(&unit.module)
            .filter(|(_, linkage)| *linkage == Linkage::Internal)
            .map(|(name, _)| name.to_owned())
            .collect();
        let mut anew = HashMap::new();
        for name in own {
            if !outside.contains(&name) && inside.insert(name.clone()) {
                continue;
            }
            let other = (0_u32..).map(|number| format!("{name}__unit{index}_{number}"));
            if let Some(other) = other.into_iter().find(|other| !taken.contains(other)) {
                taken.insert(other.clone());
                anew.insert(name, other);
            }
        }
        let last = rename::last_file(&unit.module);
        rename::rename(&mut unit.module, &anew, files);
        files += last;
    }
}

/// The names at module scope, with their linkage. A function that is declared with linkage and defined without, or the
/// other way around, has that linkage.
fn names(module: &Module) -> impl Iterator<Item = (&str, Linkage)> {
    let outside: HashSet<&str> =
        named(module).filter(|(_, linkage)| *linkage != Linkage::Internal).map(|(name, _)| name).collect();
    named(module).map(move |(name, linkage)| match linkage {
        Linkage::Internal if outside.contains(name) => (name, Linkage::Visible),
        linkage => (name, linkage),
    })
}

fn named(module: &Module) -> impl Iterator<Item = (&str, Linkage)> {
    module.items.iter().filter_map(|item| match item {
        Item::Variable(variable) => Some((variable.name.as_str(), variable.linkage)),
        Item::Function(function) => Some((function.name.as_str(), function.linkage)),
        Item::Section(_) | Item::Directive(_) => None,
    })
}

/// What units have of the names that they share.
fn shared(units: &[Named<'_>]) -> Result<HashMap<String, Shared>, Error> {
    let mut shared: HashMap<String, Shared> = HashMap::new();
    let name_of = |unit: usize| units.get(unit).map_or_else(String::new, |unit| unit.unit.to_owned());
    for (unit, found) in units.iter().enumerate() {
        for item in &found.module.items {
            let (name, kind, has) = match item {
                Item::Variable(variable) => {
                    (&variable.name, Kind::Variable(variable.space), has_variable(variable))
                }
                Item::Function(function) => (&function.name, Kind::Function, has_function(function)),
                Item::Section(_) | Item::Directive(_) => continue,
            };
            let Some(before) = shared.get_mut(name) else {
                shared.insert(name.clone(), Shared { kind, has, unit });
                continue;
            };
            if before.kind != kind {
                let (first, second) = (name_of(before.unit), name_of(unit));
                return Err(Error::Mismatch { name: name.clone(), first, second });
            }
            match (before.has, has) {
                (Has::Defined, Has::Defined) => {
                    let (first, second) = (name_of(before.unit), name_of(unit));
                    return Err(Error::Duplicate { name: name.clone(), first, second });
                }
                (Has::Declared, Has::Weak | Has::Common | Has::Defined)
                | (Has::Weak | Has::Common, Has::Defined) => *before = Shared { kind, has, unit },
                (_, Has::Declared | Has::Weak | Has::Common) => {}
            }
        }
    }
    for (name, found) in &shared {
        // The dynamic shared memory of a launch is declared so, and nowhere defined.
        let is_missing = match found.kind {
            Kind::Variable(space) => space != Space::Shared && found.has == Has::Declared,
            Kind::Function => false,
        };
        if is_missing {
            return Err(Error::Undefined { name: name.clone(), unit: name_of(found.unit) });
        }
    }
    Ok(shared)
}

fn has_variable(variable: &Variable) -> Has {
    match variable.linkage {
        Linkage::Extern => Has::Declared,
        Linkage::Weak => Has::Weak,
        Linkage::Common => Has::Common,
        Linkage::Internal | Linkage::Visible => Has::Defined,
    }
}

fn has_function(function: &Function) -> Has {
    match (&function.body, function.linkage) {
        (None, _) | (_, Linkage::Extern) => Has::Declared,
        (_, Linkage::Weak) => Has::Weak,
        (_, Linkage::Common) => Has::Common,
        (_, Linkage::Internal | Linkage::Visible) => Has::Defined,
    }
}

/// The largest of the `.common` variables of each name.
fn commons(units: &[Named<'_>]) -> HashMap<String, Variable> {
    let mut largest: HashMap<String, Variable> = HashMap::new();
    for item in units.iter().flat_map(|unit| &unit.module.items) {
        if let Item::Variable(variable) = item
            && variable.linkage == Linkage::Common
            && largest.get(&variable.name).is_none_or(|other| elements(other) < elements(variable))
        {
            largest.insert(variable.name.clone(), variable.clone());
        }
    }
    largest
}

fn elements(variable: &Variable) -> u64 {
    variable
        .dimensions
        .iter()
        .fold(u64::from(variable.vector), |product, length| product.saturating_mul(*length))
}

/// What becomes of a variable: it stays in the unit whose definition its name means.
fn variable_of(
    variable: Variable,
    unit: usize,
    shared: &HashMap<String, Shared>,
    commons: &HashMap<String, Variable>,
    written: &mut HashSet<String>,
) -> Option<Variable> {
    let found = shared.get(&variable.name)?;
    let stays = match found.has {
        Has::Declared => written.insert(variable.name.clone()),
        Has::Weak | Has::Common | Has::Defined => {
            found.unit == unit
                && has_variable(&variable) == found.has
                && written.insert(variable.name.clone())
        }
    };
    match found.has {
        _ if !stays => None,
        Has::Common => commons.get(&variable.name).cloned(),
        Has::Declared | Has::Weak | Has::Defined => Some(variable),
    }
}

/// What is declared of a function before everything else: units call each other's, and variables have their addresses.
fn declaration(item: &Item) -> Option<Item> {
    match item {
        Item::Function(function) if function.kind == FunctionKind::Device && function.body.is_some() => {
            Some(Item::Function(Function { body: None, ..function.clone() }))
        }
        _ => None,
    }
}

/// What becomes of a function. Where some unit defines it, the declarations of units go.
fn function_of(
    function: Function,
    unit: usize,
    shared: &HashMap<String, Shared>,
    written: &mut HashSet<String>,
) -> Option<Function> {
    let found = shared.get(&function.name)?;
    let stays = match found.has {
        Has::Declared => true,
        Has::Weak | Has::Common | Has::Defined => found.unit == unit && has_function(&function) == found.has,
    };
    (stays && written.insert(function.name.clone())).then_some(function)
}
