//! Module-scope variables: which are accepted, and where they end up.
//!
//! `.global` variables lie in the session's window, in one block whose address every entry takes as a parameter
//! ([`crate::data`]), and so do `.const` variables, which the host may write: only where all of a module's are tables
//! of the compiler's own, and none's address is taken as a generic one, do they stay in the constant bank.

use crate::maps::{HashMap, HashSet};

use crate::ast::{AddressBase, Item, Linkage, Module, Operand, Space, Statement, Type, Variable};
use crate::confine::Stray;
use crate::confine::pointers::Numbers;
use crate::data::{self, Data, Layout, is_managed};
use crate::limits::{CONSTANT_BYTES_MAX, DATA_ALIGN_MAX, DATA_INITIAL_BYTES_MAX, SHARED_BYTES_MAX};
use crate::names;
use crate::report::{Reason, Report};

/// What is known of a variable of the confined module.
#[derive(Debug, Clone)]
pub(super) struct Symbol {
    /// Global for those in the module's block.
    pub(super) space: Space,
    /// Its size; 0 for the block's dynamic shared memory.
    pub(super) bytes: u64,
    pub(super) align: u64,
    /// Where it begins in the module's block; none where it is not there.
    pub(super) at: Option<u64>,
}

/// The module-scope variables of a module.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    order: Vec<Variable>,
    by_name: HashMap<String, Symbol>,
    refused: HashSet<String>,
    constants: bool,
    /// Whether `.const` means the module's block.
    constants_in_block: bool,
    /// Where each shared variable stands among all.
    shared_at: HashMap<String, usize>,
    sized_shared: usize,
    /// What the addresses of functions are.
    numbers: Numbers,
    data: Data,
}

impl Symbols {
    /// The variables of a module, and those that the runtime's functions need in it; apart from each other where what goes
    /// beyond one is told.
    pub(super) fn collect(module: &Module, runtime: &[Item], stray: Stray, report: &mut Report) -> Self {
        let mut symbols = Self {
            constants_in_block: needs_constants_in_block(module),
            numbers: Numbers::of(module),
            ..Self::default()
        };
        let mut constant_bytes = 0_u64;
        let named = named(module);
        let mut unnamed = Unnamed::beside(&named, module);
        let mut block = Vec::new();
        for item in &module.items {
            let Item::Variable(variable) = item else { continue };
            let is_named = || named.contains(variable.name.as_str()) || is_managed(variable);
            if variable.space == Space::Global && !is_named() && !unnamed.keeps(variable, &symbols.numbers) {
                continue;
            }
            match confined(variable, symbols.constants_in_block) {
                Ok((confined, symbol)) => {
                    if symbol.space == Space::Constant {
                        symbols.constants = true;
                        constant_bytes = constant_bytes.saturating_add(symbol.bytes);
                    }
                    if symbol.space == Space::Global {
                        block.push((variable, symbol.bytes, symbol.align));
                    } else {
                        symbols.order.push(confined);
                    }
                    if symbols.by_name.insert(variable.name.clone(), symbol).is_some() {
                        report.add(variable.span, Reason::Duplicate(variable.name.clone()));
                    }
                }
                Err(reason) => {
                    report.add(variable.span, reason);
                    symbols.refused.insert(variable.name.clone());
                }
            }
            if constant_bytes > CONSTANT_BYTES_MAX {
                let what = "bytes of constant variables";
                report.add(variable.span, Reason::Limit { what, most: CONSTANT_BYTES_MAX });
                break;
            }
        }
        for item in runtime {
            let Item::Variable(variable) = item else { continue };
            if let Ok(symbol) = measured(variable) {
                block.push((variable, symbol.bytes, symbol.align));
                symbols.by_name.insert(variable.name.clone(), symbol);
            }
        }
        symbols.align_dynamic();
        let layout = Layout::of(&block, stray, report);
        for (variable, ..) in &block {
            match layout.place_of(&variable.name) {
                Some(at) => {
                    if let Some(symbol) = symbols.by_name.get_mut(&variable.name) {
                        symbol.at = Some(at);
                    }
                }
                None => {
                    symbols.by_name.remove(&variable.name);
                    symbols.refused.insert(variable.name.clone());
                }
            }
        }
        let shared: Vec<(String, u64)> =
            symbols.shared().map(|(name, symbol)| (name.to_owned(), symbol.bytes)).collect();
        symbols.sized_shared = shared.iter().filter(|(_, bytes)| *bytes > 0).count();
        symbols.shared_at = shared.into_iter().enumerate().map(|(at, (name, _))| (name, at)).collect();
        symbols.data = layout.fill(&block, &|value| symbols.numbers.value(value), report);
        symbols
    }

    /// All names of dynamic shared memory name the same bytes, as CUDA says: ptxas has them begin at different ones where they
    /// are aligned differently.
    fn align_dynamic(&mut self) {
        let is_dynamic =
            |variable: &&mut Variable| variable.space == Space::Shared && variable.linkage == Linkage::Extern;
        let most = self.order.iter_mut().filter(is_dynamic).filter_map(|variable| variable.align).max();
        for variable in self.order.iter_mut().filter(is_dynamic) {
            variable.align = most;
            if let Some((symbol, most)) = self.by_name.get_mut(&variable.name).zip(most) {
                symbol.align = most.into();
            }
        }
    }

    /// What lies in the module's block.
    pub(super) fn into_data(self) -> Data {
        self.data
    }

    /// What the addresses of functions are.
    pub(super) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Whether entries need the address of the module's block.
    pub(super) fn have_data(&self) -> bool {
        self.data.bytes > 0
    }

    /// Whether the module's block is where `.const` variables lie.
    pub(super) fn constants_in_block(&self) -> bool {
        self.constants_in_block
    }

    /// Where a variable begins in the module's block; none for all others.
    pub(super) fn in_block(&self, name: &str) -> Option<u64> {
        self.by_name.get(name)?.at
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = Variable> + '_ {
        self.order.iter().cloned()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether a variable of this name was refused, so that its uses need no finding of their own.
    pub(super) fn was_refused(&self, name: &str) -> bool {
        self.refused.contains(name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Symbol> {
        self.by_name.get(name)
    }

    /// The shared variables among these names, in the order in which they are declared.
    pub(super) fn shared_among<'a>(&'a self, names: &HashSet<&'a str>) -> Vec<(&'a str, &'a Symbol)> {
        let found = |name: &&'a str| Some((*self.shared_at.get(*name)?, *name, self.by_name.get(*name)?));
        let mut among: Vec<_> = names.iter().filter_map(found).collect();
        among.sort_unstable_by_key(|(at, ..)| *at);
        among.into_iter().map(|(_, name, symbol)| (name, symbol)).collect()
    }

    /// How many shared variables have a size, which what a launch gives has not.
    pub(super) const fn sized_shared(&self) -> usize {
        self.sized_shared
    }

    /// The shared variables, in order.
    pub(super) fn shared(&self) -> impl Iterator<Item = (&str, &Symbol)> {
        let named = self
            .order
            .iter()
            .filter_map(|variable| Some((variable.name.as_str(), self.by_name.get(&variable.name)?)));
        named.filter(|(_, symbol)| symbol.space == Space::Shared)
    }

    /// Whether there are constant variables, whose addresses have to be followed.
    pub(super) fn have_constants(&self) -> bool {
        self.constants
    }
}

/// Variables that no function names: the host may ask for them by their names.
#[derive(Debug)]
struct Unnamed {
    /// How much of initial values may still be kept, with what goes along with each.
    room: u64,
    /// How many bytes that begin as zero may still be kept of those in namespaces.
    zero_room: u64,
    /// Variables of global memory that functions or initializers name.
    globals: HashSet<String>,
}

/// The most of variables in namespaces that begin as zero and that no function names.
const UNNAMED_ZERO_BYTES_MAX: u64 = 64 << 20;
/// What is told of a variable beside its name, and of a value that is an address, is no more than this.
const TOLD_BYTES: u64 = 40;

impl Unnamed {
    /// Half of the room that those which functions name leave.
    fn beside(named: &HashSet<&str>, module: &Module) -> Self {
        let variables = module.items.iter().filter_map(|item| match item {
            Item::Variable(variable) => Some(variable),
            Item::Function(_) | Item::Directive(_) | Item::Section(_) => None,
        });
        let (mut taken, mut globals) = (0_u64, HashSet::default());
        for variable in variables.filter(|variable| named.contains(variable.name.as_str())) {
            if !variable.initializer.is_empty() {
                taken = taken.saturating_add(names::variable_bytes(variable).unwrap_or(0));
            }
            if variable.space == Space::Global && confined(variable, false).is_ok() {
                globals.insert(variable.name.clone());
            }
        }
        Self {
            room: DATA_INITIAL_BYTES_MAX.saturating_sub(taken) / 2,
            zero_room: UNNAMED_ZERO_BYTES_MAX,
            globals,
        }
    }

    /// Whether one is kept. Headers leave empty objects behind in every program that includes them, a byte each, in namespaces
    /// of theirs, and tables: the first are nobody's, and the others get what room there is. None that cannot be had is worth
    /// the module.
    fn keeps(&mut self, variable: &Variable, numbers: &Numbers) -> bool {
        let in_namespace = variable.name.starts_with("_ZN");
        let is_zero = variable.initializer.is_empty();
        if is_zero && !in_namespace {
            return true;
        }
        let Ok((_, Symbol { bytes, align, .. })) = confined(variable, false) else { return false };
        if (bytes <= 1 && in_namespace) || align > DATA_ALIGN_MAX {
            return false;
        }
        let (cost, room) = if is_zero {
            (bytes.saturating_add(align), &mut self.zero_room)
        } else {
            let Some(addresses) = self.addresses(variable, bytes, numbers) else { return false };
            let told = addresses
                .saturating_add(1)
                .saturating_mul(TOLD_BYTES)
                .saturating_add(variable.name.len() as u64);
            (bytes.saturating_add(align).saturating_add(told), &mut self.room)
        };
        let left = room.checked_sub(cost);
        *room = left.unwrap_or(*room);
        left.is_some()
    }

    /// How many values of an initializer are addresses of variables; none where some value is of a kind that none can have.
    fn addresses(&self, variable: &Variable, bytes: u64, numbers: &Numbers) -> Option<u64> {
        let element = names::type_bytes(variable.ty)?;
        let mut addresses = 0;
        for (index, value) in variable.flat_initializer()? {
            let end = (index as u64).checked_add(1)?.checked_mul(element)?;
            if end > bytes {
                return None;
            }
            // Functions have numbers.
            if data::number(value, element).is_some() || numbers.value(value).is_some() {
                continue;
            }
            match value {
                Operand::Symbol(name) | Operand::SymbolOffset(name, _) | Operand::Generic(name, _)
                    if element == 8 && self.globals.contains(name) =>
                {
                    addresses += 1;
                }
                _ => return None,
            }
        }
        Some(addresses)
    }
}

/// Whether the constant bank does not do: the host writes variables that it knows, with an initializer or without, and
/// generic addresses are of the window.
fn needs_constants_in_block(module: &Module) -> bool {
    let constant =
        |item: &Item| matches!(item, Item::Variable(variable) if variable.space == Space::Constant);
    let mut constants = module.items.iter().filter(|item| constant(item)).peekable();
    if constants.peek().is_none() {
        return false;
    }
    let hosts = |item: &Item| {
        matches!(item, Item::Variable(Variable { linkage: Linkage::Internal | Linkage::Visible, name, initializer, .. })
            if initializer.is_empty() || !names::is_compilers(name))
    };
    constants.any(hosts)
        || module.items.iter().any(|item| match item {
            Item::Function(function) => has_generic_constants(function.body.as_deref().unwrap_or_default()),
            Item::Variable(_) | Item::Directive(_) | Item::Section(_) => false,
        })
}

/// Recursion is bounded by the parser's limit on braces.
fn has_generic_constants(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => {
            let is = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
            instruction.opcode == "cvta" && is("const") && !is("to")
        }
        Statement::Block(block, _) => has_generic_constants(block),
        Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => false,
    })
}

/// The names that stand in the bodies of a module that has `.global` variables, registers left out.
pub(super) fn named(module: &Module) -> HashSet<&str> {
    let mut names = HashSet::default();
    let global = |item: &Item| matches!(item, Item::Variable(variable) if variable.space == Space::Global);
    if !module.items.iter().any(global) {
        return names;
    }
    for item in &module.items {
        match item {
            Item::Function(function) => named_in(function.body.as_deref().unwrap_or_default(), &mut names),
            // A table of addresses.
            Item::Variable(variable) => {
                variable.initializer.iter().for_each(|value| named_by(value, &mut names));
            }
            Item::Directive(_) | Item::Section(_) => {}
        }
    }
    names
}

/// Recursion is bounded by the parser's limit on braces.
fn named_in<'a>(body: &'a [Statement], names: &mut HashSet<&'a str>) {
    for statement in body {
        match statement {
            Statement::Instruction(instruction) => {
                instruction.operands.iter().for_each(|operand| named_by(operand, names));
            }
            Statement::Block(block, _) => named_in(block, names),
            Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

fn named_by<'a>(operand: &'a Operand, names: &mut HashSet<&'a str>) {
    match operand {
        Operand::Symbol(name)
        | Operand::SymbolOffset(name, _)
        | Operand::Subscript(name, _)
        | Operand::Generic(name, _) => {
            names.insert(name);
        }
        Operand::Address(address) | Operand::Coordinates(address, _) => {
            if let AddressBase::Symbol(name) = &address.base {
                names.insert(name);
            }
        }
        Operand::Vector(_)
        | Operand::List(_)
        | Operand::Pair(..)
        | Operand::Register(_)
        | Operand::Integer(_)
        | Operand::Float32(_)
        | Operand::Float64(_)
        | Operand::Not(_)
        | Operand::Sink
        | Operand::Selected(..)
        | Operand::Negated(_)
        | Operand::Masked(..)
        | Operand::Difference(..)
        | Operand::Field(..) => {}
    }
    for inner in operand.inner() {
        named_by(inner, names);
    }
}

/// The confined form of a module-scope variable.
fn confined(variable: &Variable, constants_in_block: bool) -> Result<(Variable, Symbol), Reason> {
    names::check_symbol(&variable.name)?;
    let missing = |what: &str| Err(Reason::NotImplemented { what: format!("{what}, `{}`", variable.name) });
    let managed = variable.space == Space::Global && is_managed(variable);
    if !managed && !variable.attributes.is_empty() {
        return missing("an attribute of a variable");
    }
    if matches!(variable.ty, Type::Texref | Type::Samplerref | Type::Surfref) {
        return missing("a texture, sampler or surface");
    }
    let mut confined = variable.clone();
    confined.attributes.clear();
    match (variable.space, variable.linkage, variable.initializer.is_empty()) {
        (Space::Shared, Linkage::Internal | Linkage::Visible | Linkage::Extern, true) => {}
        (Space::Constant, Linkage::Internal | Linkage::Visible, _) => {
            if constants_in_block {
                confined.space = Space::Global;
            }
        }
        (Space::Global, Linkage::Internal | Linkage::Visible | Linkage::Weak | Linkage::Common, _) => {}
        (Space::Global | Space::Constant | Space::Shared, _, _) => {
            return missing("a variable with such a linkage");
        }
        (Space::Register | Space::Local | Space::Parameter, _, _) => {
            return missing("a module-scope variable of this state space");
        }
    }
    if confined.space != Space::Global && !names::are_numbers(&variable.initializer) {
        return missing("an initializer that is not all numbers");
    }
    let symbol = measured(&confined)?;
    if matches!(symbol.space, Space::Constant | Space::Shared) {
        confined.align = u32::try_from(symbol.align).ok();
    }
    let dynamic = variable.linkage == Linkage::Extern;
    if dynamic != (symbol.bytes == 0) || (dynamic && variable.dimensions.as_slice() != [0]) {
        return Err(Reason::Malformed(format!("`{}` has no size", variable.name)));
    }
    Ok((confined, symbol))
}

/// Size and alignment of a variable. Where accesses are clamped into it, the alignment is that of the widest.
pub(super) fn measured(variable: &Variable) -> Result<Symbol, Reason> {
    let bytes = names::variable_bytes(variable)
        .ok_or_else(|| Reason::Malformed(format!("`{}` has no size that can be declared", variable.name)))?;
    if variable.space == Space::Shared && bytes > SHARED_BYTES_MAX {
        return Err(Reason::Limit { what: "bytes of shared memory", most: SHARED_BYTES_MAX });
    }
    let declared = names::variable_align(variable);
    let align = match variable.space {
        Space::Constant | Space::Local | Space::Shared => declared.max(names::WIDEST_ACCESS),
        Space::Global | Space::Parameter | Space::Register => declared,
    };
    Ok(Symbol { space: variable.space, bytes, align, at: None })
}
