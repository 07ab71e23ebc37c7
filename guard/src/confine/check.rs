//! Looks at accesses before they are confined: what goes where the client has nothing leaves a record.
//!
//! What this writes is PTX that a tenant might have written. Accesses stay confined, looked at or not.

use std::collections::BTreeSet;

use crate::access;
use crate::ast::{Address, AddressBase, Instruction, Operand, Predicate, Space, Span, Statement};
use crate::confine::arrays::Roots;
use crate::confine::calls::{Actual, Looks, Passed};
use crate::confine::faults::{Kind, Loc};
use crate::confine::flatten::{Flat, Flattener, Held};
use crate::confine::lines::{self, instruction, register};
use crate::confine::scope::Scopes;
use crate::confine::symbols::Symbols;
use crate::confine::variables::Own;
use crate::maps::HashMap;
use crate::names::Class;
use crate::report::Reason;
use crate::table::{self, Effect};

/// What records have for a space.
const GLOBAL: i128 = 4;
const SHARED: i128 = 5;

impl<'a> Flattener<'a> {
    /// Has each address of an access looked at, whose operands have their canonical names. What writes to global memory writes
    /// to where it is told by then.
    pub(super) fn check(&mut self, access: &mut Instruction, into: &mut Flat) -> Result<(), Reason> {
        if self.budget.looks() != Looks::All {
            return Ok(());
        }
        for (index, to) in self.check_each(access, into)? {
            if let Some(operand) = access.operands.get_mut(index) {
                *operand = Operand::Address(Address { base: AddressBase::Register(to), offset: 0 });
            }
        }
        Ok(())
    }

    /// The operands that are addresses to write to, with the registers that hold them once they were looked at.
    fn check_each(&mut self, access: &Instruction, into: &mut Flat) -> Result<Vec<(usize, String)>, Reason> {
        let mut moved = Vec::new();
        // What a call passes is put into registers yet.
        let Ok(row) = table::check(access) else { return Ok(moved) };
        if let Some(index) = access::generic(row, access)
            && let Some(first) = row.memory.first()
        {
            let named = Instruction { modifiers: with_space(&access.modifiers), ..access.clone() };
            let bytes = access::decode(row, &named)?.iter().next().map_or(1, |access| access.bytes);
            let Some(Operand::Address(address)) = access.operands.get(index) else { return Ok(moved) };
            let to = self.look(access, None, first.effect, bytes, address, into)?;
            moved.extend(to.map(|to| (index, to)));
            return Ok(moved);
        }
        let effects: Vec<Effect> = row.memory.iter().map(|memory| memory.effect).collect();
        let decoded = access::decode(row, access)?;
        for (found, effect) in decoded.iter().zip(effects) {
            let to = self.look(access, Some(found.space), effect, found.bytes, found.address, into)?;
            let is_this = |operand: &Operand| matches!(operand, Operand::Address(address) if std::ptr::eq(address, found.address));
            moved.extend(access.operands.iter().position(is_this).zip(to));
        }
        Ok(moved)
    }

    /// Has launches tell that accesses of the entry are not looked at, where that is so.
    pub(super) fn tell_unlooked(&mut self, span: Span, into: &mut Flat) -> Result<(), Reason> {
        let function = self.functions.get("__bh_unlooked").filter(|_| self.budget.looks() == Looks::None);
        let Some((function, body)) = function.and_then(|function| Some((function, function.body.as_ref()?)))
        else {
            return Ok(());
        };
        let given = vec![Actual::Value(Operand::Integer(span.place.line.into()))];
        self.open(function, body, Passed::given(given), span, into)
    }

    /// Has threads tell that come to an instruction for whole warps without all of their warp, and end.
    pub(super) fn check_warp(&mut self, instruction: &Instruction, into: &mut Flat) {
        if !table::row_of(instruction).is_some_and(table::is_for_warps) {
            return;
        }
        let span = instruction.span;
        let (there, all) = (self.scopes.fresh(Class::Word), self.scopes.fresh(Class::Predicate));
        let told = self.scopes.fresh(Class::Double);
        let mut push = |opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
            into.statements.push(lines::instruction(opcode, modifiers, operands, span));
        };
        push("bar", &["warp", "sync"], vec![Operand::Integer(-1)]);
        push("activemask", &["b32"], vec![register(&there)]);
        push("setp", &["eq", "s32"], vec![register(&all), register(&there), Operand::Integer(-1)]);
        let whole = self.pass_over(&Predicate { register: all, negated: true }, span, into);
        let wide = vec![register(&told), register(&there)];
        into.statements.push(lines::instruction("cvt", &["u64", "u32"], wide, span));
        self.stop(Kind::Part, register(&told), self.loc, span, into);
        into.statements.push(Statement::Label(whole, span));
    }

    /// The register that holds where to write, if that is what the access does.
    fn look(
        &mut self,
        access: &Instruction,
        space: Option<Space>,
        effect: Effect,
        bytes: u64,
        address: &Address,
        into: &mut Flat,
    ) -> Result<Option<String>, Reason> {
        let (function, kind) = match space {
            None => ("__bh_check_generic", GLOBAL),
            Some(Space::Global) => ("__bh_check_global", GLOBAL),
            Some(Space::Shared) => ("__bh_check_shared", SHARED),
            Some(Space::Local | Space::Constant | Space::Parameter | Space::Register) => return Ok(None),
        };
        if !bytes.is_power_of_two() {
            return Ok(None);
        }
        let function = self.functions.get(function);
        let Some((function, body)) = function.and_then(|function| Some((function, function.body.as_ref()?)))
        else {
            return Ok(None);
        };
        let span = access.span;
        let skip = access.predicate.as_ref().map(|predicate| self.pass_over(predicate, span, into));
        let Some(at) = self.address_of(space, address, bytes, span, into) else {
            into.statements.extend(skip.map(|label| Statement::Label(label, span)));
            return Ok(None);
        };
        let effect: i128 = match effect {
            Effect::Reads | Effect::Touches => 0,
            Effect::Writes => 1,
            Effect::Updates => 2,
        };
        let what = kind | i128::from(bytes) << 8 | effect << 16;
        let Loc { file, line } = self.loc;
        let told = [what, i128::from(line), i128::from(file), i128::from(span.place.line)];
        let mut given = vec![Actual::Value(register(&at))];
        if space != Some(Space::Global) {
            let bounds = [Class::Word, Class::Word, Class::Double].map(|class| self.scopes.fresh(class));
            given.extend(bounds.iter().map(|name| Actual::Value(register(name))));
            self.held.push(Held { bounds, address: at.clone() });
        }
        given.extend(told.map(|word| Actual::Value(Operand::Integer(word))));
        let to = (space != Some(Space::Shared)).then(|| self.scopes.fresh(Class::Double));
        let returned = to.iter().map(|to| Actual::Value(register(to))).collect();
        self.open_check(function, body, Passed { returned, given }, span, into)?;
        into.statements.extend(skip.map(|label| Statement::Label(label, span)));
        Ok(to.filter(|_| effect != 0))
    }

    /// Branches over what follows where a predicate does not hold; returns the label to put behind it.
    fn pass_over(&mut self, predicate: &Predicate, span: Span, into: &mut Flat) -> String {
        let label = self.scopes.fresh_label();
        let mut branch = instruction("bra", &[], vec![Operand::Symbol(label.clone())], span);
        if let Statement::Instruction(branch) = &mut branch {
            branch.predicate = Some(Predicate { negated: !predicate.negated, ..predicate.clone() });
        }
        into.statements.push(branch);
        label
    }

    /// The register that holds the address; none where the access is seen to be inside a variable, or is refused anyway.
    fn address_of(
        &mut self,
        space: Option<Space>,
        address: &Address,
        bytes: u64,
        span: Span,
        into: &mut Flat,
    ) -> Option<String> {
        let class = if space == Some(Space::Shared) { Class::Word } else { Class::Double };
        let mut push = |scopes: &mut Scopes, opcode: &str, modifiers: &[&str], operands: Vec<Operand>| {
            let to = scopes.fresh(class);
            let operands = std::iter::once(register(&to)).chain(operands).collect();
            into.statements.push(instruction(opcode, modifiers, operands, span));
            to
        };
        let offset = || Operand::Integer(i128::from(address.offset));
        match (&address.base, space) {
            (AddressBase::Register(name), _) => {
                let mut at = name.clone();
                if class == Class::Word && matches!(Class::parse(name), Some((Class::Double, _))) {
                    at = push(&mut self.scopes, "cvt", &["u32", "u64"], vec![register(&at)]);
                }
                if address.offset != 0 {
                    let modifier = if class == Class::Word { "s32" } else { "s64" };
                    at = push(&mut self.scopes, "add", &[modifier], vec![register(&at), offset()]);
                }
                matches!(Class::parse(&at), Some((found, _)) if found == class).then_some(at)
            }
            (AddressBase::Symbol(name), Some(Space::Global)) => {
                let symbol = self.symbols.get(name)?;
                let inside = u64::try_from(address.offset)
                    .is_ok_and(|offset| offset.checked_add(bytes).is_some_and(|end| end <= symbol.bytes));
                let aligned = address.offset.unsigned_abs().is_multiple_of(bytes);
                if inside && aligned {
                    return None;
                }
                let place = vec![Operand::SymbolOffset(name.clone(), address.offset)];
                Some(push(&mut self.scopes, "mov", &["u64"], place))
            }
            (AddressBase::Symbol(_) | AddressBase::Absolute, _) => None,
        }
    }
}

/// An access's modifiers with a space, so that its width can be told.
fn with_space(modifiers: &[String]) -> Vec<String> {
    modifiers.iter().cloned().chain(["global".to_owned()]).collect()
}

/// Computes where the block's shared memory begins and ends, and where each array does, first of all; and has each access
/// held against the array that its address is made of, or else against all of it.
pub(super) fn place_bounds(
    statements: &mut Vec<Statement>,
    held: &[Held],
    symbols: &Symbols,
    own: &[Own],
    scopes: &mut Scopes,
    span: Span,
) {
    let shared = shared_in(statements, symbols, own);
    let mut first = Vec::new();
    let mut push = |opcode: &str, modifier: &str, operands: Vec<Operand>| {
        first.push(instruction(opcode, &[modifier], operands, span));
    };
    let [low, top] = [scopes.fresh(Class::Word), scopes.fresh(Class::Word)].map(|name| register(&name));
    push("mov", "b32", vec![low.clone(), Operand::Integer(-1)]);
    push("mov", "b32", vec![top.clone(), Operand::Integer(0)]);
    let mut arrays = HashMap::default();
    for (name, bytes) in &shared {
        let [begin, end] = [scopes.fresh(Class::Word), scopes.fresh(Class::Word)].map(|name| register(&name));
        push("mov", "b32", vec![begin.clone(), Operand::Symbol(name.clone())]);
        push("min", "u32", vec![low.clone(), low.clone(), begin.clone()]);
        if *bytes == 0 {
            push("mov", "u32", vec![end.clone(), register("%dynamic_smem_size")]);
            push("add", "s32", vec![end.clone(), end.clone(), begin.clone()]);
        } else {
            push("add", "s32", vec![end.clone(), begin.clone(), Operand::Integer(i128::from(*bytes))]);
        }
        push("max", "u32", vec![top.clone(), top.clone(), end.clone()]);
        arrays.insert(name.clone(), [begin, end]);
    }
    // All of it is one array, and what is beyond it beyond the block.
    if arrays.len() < 2 {
        arrays.clear();
    }
    let roots = Roots::of(statements, &|name| arrays.contains_key(name));
    let mut placed = HashMap::default();
    for Held { bounds: [begin, end, one_of], address } in held {
        let array = roots.array(address).and_then(|name| arrays.get(name));
        let is_array = Operand::Integer(i128::from(array.is_some()));
        let [low, top] = array.cloned().unwrap_or_else(|| [low.clone(), top.clone()]);
        placed.extend([(begin.as_str(), low), (end.as_str(), top), (one_of.as_str(), is_array)]);
    }
    for statement in statements.iter_mut() {
        let Statement::Instruction(found) = statement else { continue };
        for operand in &mut found.operands {
            if let Operand::Register(name) = operand
                && let Some(bound) = placed.get(name.as_str())
            {
                *operand = bound.clone();
            }
        }
    }
    statements.splice(0..0, first);
}

/// The shared variables that a flat body names, with their sizes.
fn shared_in(statements: &[Statement], symbols: &Symbols, own: &[Own]) -> Vec<(String, u64)> {
    let mut named = BTreeSet::new();
    for statement in statements {
        let Statement::Instruction(found) = statement else { continue };
        for operand in &found.operands {
            if let Operand::Symbol(name)
            | Operand::SymbolOffset(name, _)
            | Operand::Address(Address { base: AddressBase::Symbol(name), .. }) = operand
            {
                named.insert(name.as_str());
            }
        }
    }
    let all = own.iter().map(|own| (own.variable.name.as_str(), &own.symbol));
    let all = all.chain(symbols.shared()).filter(|(_, symbol)| symbol.space == Space::Shared);
    let named = all.filter(|(name, _)| named.contains(name));
    named.map(|(name, symbol)| (name.to_owned(), symbol.bytes)).collect()
}
