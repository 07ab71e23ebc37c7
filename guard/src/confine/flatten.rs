//! From a body with scopes to one without: every name resolved, every opcode looked up.

mod state;

use crate::ast::{
    Address, AddressBase, Directive, Instruction, Operand, Predicate, Space, Span, Statement, Variable,
};
use crate::confine::halves;
use crate::confine::indirect::is_list;
use crate::confine::lines::{self, instruction as plain_instruction, register};
use crate::confine::mbarrier;
use crate::confine::pointers;
use crate::confine::runtime;
use crate::confine::scope::Meaning;
use crate::confine::variables::Owner;
use crate::limits::CALL_NESTING_MAX;
use crate::names::{self, Class};
use crate::report::Reason;
use crate::table::{self, Treatment};
use crate::{access, operands};
pub(super) use state::{Flat, Flattener, Held, Parameters, Stops};

impl<'a> Flattener<'a> {
    /// Flattens `body`, in text order; recursion is bounded by the limit on calls and braces.
    pub(super) fn block(&mut self, body: &'a [Statement], into: &mut Flat) {
        self.depth += 1;
        self.scopes.enter();
        // Labels are known in their whole scope, also before they stand.
        for (index, statement) in body.iter().enumerate() {
            let Statement::Label(name, span) = statement else { continue };
            let declared = names::check_label(name).and_then(|()| match body.get(index + 1) {
                Some(Statement::Directive(list)) if is_list(list) => {
                    self.lists.push(list);
                    self.scopes.declare_variable(name, Meaning::List(self.lists.len() - 1))
                }
                _ => self.scopes.declare_label(name),
            });
            self.note(*span, declared);
        }
        let mut before = None;
        let mut is_first = true;
        for statement in body {
            is_first &= !matches!(statement, Statement::Instruction(_) | Statement::Block(..));
            let labelled = matches!(before.replace(statement), Some(Statement::Label(..)));
            if !self.spend_inside() {
                break;
            }
            match statement {
                Statement::Label(name, span) => {
                    if let Some(Meaning::Label(canonical)) = self.scopes.resolve(name) {
                        into.statements.push(Statement::Label(canonical, *span));
                    }
                }
                Statement::Variable(variable) => {
                    let declared = match self.framed(variable, is_first, into) {
                        Ok(false) => self.variable(variable),
                        declared => declared.map(|_| ()),
                    };
                    self.note(variable.span, declared);
                }
                Statement::Instruction(instruction) => {
                    let done = self.statement(instruction, into);
                    self.note(instruction.span, done);
                }
                Statement::Block(block, span) => {
                    if self.depth < CALL_NESTING_MAX {
                        self.block(block, into);
                    } else {
                        let what = "calls and braces inside one another";
                        self.report.add(*span, Reason::Limit { what, most: CALL_NESTING_MAX as u64 });
                    }
                }
                // Whoever names the label reads it.
                Statement::Directive(list) if labelled && is_list(list) => {}
                Statement::Directive(directive) => {
                    self.loc = self.faults.place(directive).unwrap_or(self.loc);
                    let allowed = check_directive(directive);
                    self.note(directive.span, allowed);
                    if directive.operands.iter().any(|operand| operand == names::NOUNROLL) {
                        let operands = vec![names::NOUNROLL.to_owned()];
                        into.statements
                            .push(Statement::Directive(Directive { operands, ..directive.clone() }));
                    }
                }
            }
        }
        self.scopes.leave();
        self.depth -= 1;
    }

    fn statement(&mut self, instruction: &'a Instruction, into: &mut Flat) -> Result<(), Reason> {
        if instruction.opcode == "call" {
            return self.call(instruction, into);
        }
        if instruction.opcode == "brx" && instruction.modifiers.first().is_some_and(|word| word == "idx") {
            return self.branch_by_index(instruction, into);
        }
        if mbarrier::is_one(instruction) {
            return self.barrier_object(instruction, into);
        }
        if halves::is_one(instruction) {
            return self.half_atomic(instruction, into);
        }
        if let Some(half) = runtime::where_to_wait(instruction) {
            return self.where_to_wait(instruction, half, into);
        }
        let instruction = match self.argument_access(instruction)? {
            Some(access) => Some(access),
            None => match self.barrier(instruction, into)? {
                Some(instruction) => self.instruction(&instruction)?,
                None => None,
            },
        };
        if let Some(mut instruction) = instruction {
            if instruction.opcode == "ret" {
                self.return_to_caller(&mut instruction);
            }
            check_mask(&instruction)?;
            // What we wrote has no place.
            if self.faults.checks() && instruction.span.place.line > 0 {
                self.check(&mut instruction, into)?;
                self.check_warp(&instruction, into);
            }
            self.through_wider(&mut instruction, into);
            into.statements.push(Statement::Instruction(instruction));
        }
        Ok(())
    }

    /// A conversion between bf16 and 8 bits, for which ptxas wants a register of 8 bits: it goes through a wider type, which
    /// holds every value of the narrower one.
    fn through_wider(&mut self, instruction: &mut Instruction, into: &mut Flat) {
        let count = instruction.modifiers.len();
        if instruction.opcode != "cvt" || count < 2 || instruction.operands.len() != 2 {
            return;
        }
        let (to, from) =
            (instruction.modifiers[count - 2].as_str(), instruction.modifiers[count - 1].as_str());
        let (class, wider, first) = match (to, from) {
            ("s8" | "u8", "bf16") => (Class::Word, "f32", ["f32", "bf16"]),
            ("bf16", "s8") => (Class::Half, "s16", ["s16", "s8"]),
            ("bf16", "u8") => (Class::Half, "u16", ["u16", "u8"]),
            _ => return,
        };
        let between = register(&self.scopes.fresh(class));
        let source = std::mem::replace(&mut instruction.operands[1], between.clone());
        let mut widened = lines::plain("cvt", &first, vec![between, source], instruction.span);
        widened.predicate.clone_from(&instruction.predicate);
        wider.clone_into(&mut instruction.modifiers[count - 1]);
        into.statements.push(Statement::Instruction(widened));
    }

    /// Where a grid waits comes in a parameter of ours instead of the driver's registers.
    fn where_to_wait(
        &mut self,
        instruction: &Instruction,
        half: runtime::Half,
        into: &mut Flat,
    ) -> Result<(), Reason> {
        let word = instruction.modifiers.as_slice() == ["u32"] || instruction.modifiers.as_slice() == ["b32"];
        let Some(Operand::Register(name)) = instruction.operands.first().filter(|_| word) else {
            return Err(Reason::Malformed("such a use of a register of the driver's".to_owned()));
        };
        let name = self.register(name)?;
        let span = instruction.span;
        let address = self.scopes.fresh(Class::Double);
        let halves = [Class::Word; 2].map(|class| register(&self.scopes.fresh(class)));
        let wanted = halves[usize::from(half == runtime::Half::High)].clone();
        let place = Operand::Symbol(runtime::GRID.to_owned());
        into.statements.push(plain_instruction("mov", &["u64"], vec![register(&address), place], span));
        let split = vec![Operand::Vector(halves.to_vec()), register(&address)];
        into.statements.push(plain_instruction("mov", &["b64"], split, span));
        let mut moved = lines::plain("mov", &["u32"], vec![register(&name), wanted], span);
        if let Some(Predicate { register, negated }) = &instruction.predicate {
            moved.predicate = Some(Predicate { register: self.register(register)?, negated: *negated });
        }
        into.statements.push(Statement::Instruction(moved));
        Ok(())
    }

    fn note(&mut self, span: Span, result: Result<(), Reason>) {
        if let Err(reason) = result {
            self.report.add(span, reason);
        }
    }

    fn variable(&mut self, variable: &'a Variable) -> Result<(), Reason> {
        match variable.space {
            Space::Register => self.scopes.declare_registers(variable),
            Space::Shared | Space::Local => {
                let owner = if self.calls.is_empty() { Owner::Entry } else { Owner::Function };
                let elsewhere =
                    |name: &str| self.symbols.contains(name) || self.parameters.contains_key(name);
                let (meaning, placed) = self.variables.place(owner, variable, elsewhere)?;
                self.scopes.declare_variable(&variable.name, meaning)?;
                placed
            }
            Space::Parameter => {
                let argument = self.argument(pointers::size(variable));
                self.scopes.declare_variable(&variable.name, Meaning::Argument(argument))
            }
            Space::Global | Space::Constant => Err(Reason::NotImplemented {
                what: format!("a variable of this state space in a body, `{}`", variable.name),
            }),
        }
    }

    /// The instruction with canonical names; none where it is left out.
    fn instruction(&mut self, instruction: &Instruction) -> Result<Option<Instruction>, Reason> {
        let mut instruction = instruction.clone();
        no_cache_policy(&mut instruction);
        widened_byte(&mut instruction);
        instruction.modifiers.retain(|modifier| !is_hint(modifier));
        if matches!(instruction.opcode.as_str(), "bra" | "ret") {
            // A promise that all lanes branch alike, which nobody checks: ptxas would keep masks in uniform registers.
            instruction.modifiers.retain(|modifier| modifier != "uni");
        }
        if self.symbols.constants_in_block() {
            no_constant_bank(&mut instruction);
        }
        let row = table::check(&instruction)?;
        if row.treatment == Treatment::Hint {
            return Ok(None);
        }
        // Decoded first: of all that may be wrong with an access its space is the clearest to name.
        if access::generic(row, &instruction).is_none() {
            access::decode(row, &instruction)?;
        }
        let predicate = match &instruction.predicate {
            None => None,
            Some(Predicate { register, negated }) => {
                Some(Predicate { register: self.register(register)?, negated: *negated })
            }
        };
        let operands = instruction
            .operands
            .iter()
            .map(|operand| match row.treatment {
                Treatment::Branch => self.target(operand),
                _ => self.operand(operand),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut instruction = Instruction { predicate, operands, ..instruction };
        operands::check(row, &instruction)?;
        if row.name == "nanosleep" {
            sleeps_alike(&mut instruction);
        }
        Ok(Some(instruction))
    }

    pub(super) fn register(&mut self, name: &str) -> Result<String, Reason> {
        match self.scopes.resolve(name) {
            Some(Meaning::Register(canonical)) => Ok(canonical),
            Some(Meaning::Label(_) | Meaning::Variable(..) | Meaning::Argument(_) | Meaning::List(_)) => {
                Err(Reason::Malformed(format!("`{name}` is not a register")))
            }
            None if names::is_special(name) => Ok(name.to_owned()),
            None if names::is_reserved(name) => Err(Reason::Reserved(name.to_owned())),
            None if names::is_special_elsewhere(name) => {
                Err(Reason::NotImplemented { what: format!("the special register `{name}`") })
            }
            None => Err(Reason::Undeclared(name.to_owned())),
        }
    }

    pub(super) fn target(&mut self, operand: &Operand) -> Result<Operand, Reason> {
        let Operand::Symbol(name) = operand else {
            return Err(Reason::Malformed("a branch goes to a label".to_owned()));
        };
        match self.scopes.resolve(name) {
            Some(Meaning::Label(canonical)) => Ok(Operand::Symbol(canonical)),
            Some(Meaning::Register(_) | Meaning::Variable(..) | Meaning::Argument(_) | Meaning::List(_)) => {
                Err(Reason::Malformed(format!("`{name}` is not a label")))
            }
            None => Err(Reason::Undeclared(name.clone())),
        }
    }

    pub(super) fn operand(&mut self, operand: &Operand) -> Result<Operand, Reason> {
        Ok(match operand {
            Operand::Register(name) => Operand::Register(self.register(name)?),
            Operand::Not(name) => Operand::Not(self.register(name)?),
            Operand::Symbol(name) if name == bulkhead_ptx::parse::WARP_SIZE => Operand::Integer(32),
            Operand::Symbol(name) => match self.scopes.resolve(name) {
                Some(Meaning::Register(canonical)) => Operand::Register(canonical),
                Some(Meaning::Label(_) | Meaning::List(_)) => {
                    return Err(Reason::NotImplemented {
                        what: format!("the address of the label `{name}`"),
                    });
                }
                Some(Meaning::Variable(name, 0)) => Operand::Symbol(name),
                Some(Meaning::Variable(name, start)) => Operand::SymbolOffset(name, start),
                Some(Meaning::Argument(_)) => return Err(argument_address(name)),
                None if self.calls.is_empty() && self.in_place == Some(name.as_str()) => operand.clone(),
                None => match self.symbols.numbers().get(name) {
                    Some(number) if !self.symbols.contains(name) => Operand::Integer(i128::from(number)),
                    _ => {
                        self.module_symbol(name)?;
                        operand.clone()
                    }
                },
            },
            Operand::SymbolOffset(name, offset) => match self.scopes.resolve(name) {
                Some(Meaning::Variable(name, start)) => Operand::SymbolOffset(name, moved(*offset, start)?),
                Some(Meaning::Argument(_)) => return Err(argument_address(name)),
                Some(Meaning::Register(_) | Meaning::Label(_) | Meaning::List(_)) => {
                    return Err(Reason::Malformed(format!("`{name}` is not a variable")));
                }
                None => {
                    self.module_symbol(name)?;
                    operand.clone()
                }
            },
            Operand::Address(address) => Operand::Address(self.address(address)?),
            Operand::Vector(elements) => Operand::Vector(self.operands(elements)?),
            Operand::List(elements) => Operand::List(self.operands(elements)?),
            Operand::Pair(first, second) => {
                Operand::Pair(Box::new(self.operand(first)?), Box::new(self.operand(second)?))
            }
            Operand::Selected(name, selector) => Operand::Selected(self.register(name)?, selector.clone()),
            Operand::Coordinates(address, coordinates) => {
                Operand::Coordinates(self.address(address)?, self.operands(coordinates)?)
            }
            Operand::Negated(inner) => Operand::Negated(Box::new(self.operand(inner)?)),
            Operand::Subscript(name, _) => {
                return Err(Reason::NotImplemented {
                    what: format!("an element by subscript, `{name}[...]`"),
                });
            }
            Operand::Generic(..) | Operand::Masked(..) | Operand::Difference(..) | Operand::Field(..) => {
                return Err(Reason::Malformed("such an operand belongs in an initializer".to_owned()));
            }
            Operand::Integer(_) | Operand::Float32(_) | Operand::Float64(_) | Operand::Sink => {
                operand.clone()
            }
        })
    }

    fn operands(&mut self, operands: &[Operand]) -> Result<Vec<Operand>, Reason> {
        operands.iter().map(|operand| self.operand(operand)).collect()
    }

    fn module_symbol(&self, name: &str) -> Result<(), Reason> {
        if self.symbols.contains(name) {
            return Ok(());
        }
        if self.symbols.was_refused(name) {
            return Err(Reason::NotImplemented { what: format!("the variable `{name}`") });
        }
        if self.calls.is_empty() && self.parameters.contains_key(name) {
            return Err(argument_address(name));
        }
        if self.functions.contains(name) {
            return Err(Reason::NotImplemented { what: format!("the address of the function `{name}`") });
        }
        Err(Reason::Undeclared(name.to_owned()))
    }

    fn address(&mut self, address: &Address) -> Result<Address, Reason> {
        let mut offset = address.offset;
        let base = match &address.base {
            AddressBase::Register(name) => AddressBase::Register(self.register(name)?),
            AddressBase::Symbol(name) => match self.scopes.resolve(name) {
                Some(Meaning::Register(canonical)) => AddressBase::Register(canonical),
                Some(Meaning::Label(_) | Meaning::List(_)) => {
                    return Err(Reason::Malformed(format!("`{name}` is a label")));
                }
                Some(Meaning::Argument(_)) => return Err(argument_address(name)),
                Some(Meaning::Variable(name, start)) => {
                    offset = moved(offset, start)?;
                    AddressBase::Symbol(name)
                }
                None if self.calls.is_empty() && self.parameters.contains_key(name.as_str()) => {
                    address.base.clone()
                }
                None => {
                    self.module_symbol(name)?;
                    address.base.clone()
                }
            },
            AddressBase::Absolute => AddressBase::Absolute,
        };
        Ok(Address { base, offset })
    }
}

fn argument_address(name: &str) -> Reason {
    Reason::NotImplemented { what: format!("the address of the parameter `{name}`") }
}

/// An offset into a variable that begins at `start` of another.
fn moved(offset: i64, start: i64) -> Result<i64, Reason> {
    let moved = offset.checked_add(start);
    moved.ok_or_else(|| Reason::Malformed(format!("{offset} is no offset into a variable")))
}

/// Whether a modifier only advises the caches: hints of one session would evict lines of the others.
fn is_hint(modifier: &str) -> bool {
    modifier.starts_with("L1::") || modifier.starts_with("L2::")
}

/// How long a thread sleeps at most, in nanoseconds: a sleep may end sooner than it says (PTX ISA, "nanosleep"), and a longer
/// one is more than a thread may do between two polls.
const SLEEP_NS_MAX: i128 = 100_000;
/// How long a thread sleeps where a register says it, in nanoseconds.
const SLEEP_NS: i128 = 128;

/// All lanes sleep for the same time: what a sleep lasts is a hint, and lanes that wake at different times might go on apart where
/// ptxas takes them to be together.
fn sleeps_alike(instruction: &mut Instruction) {
    for operand in &mut instruction.operands {
        match operand {
            Operand::Register(_) => *operand = Operand::Integer(SLEEP_NS),
            Operand::Integer(time) if !(0..SLEEP_NS_MAX).contains(time) => *time = SLEEP_NS_MAX,
            _ => {}
        }
    }
}

/// Policies that accesses name are hints like others: they are left out, and made zero where they are made.
fn no_cache_policy(instruction: &mut Instruction) {
    let form = instruction.modifiers.first().map(String::as_str);
    if instruction.opcode == "createpolicy" && matches!(form, Some("fractional" | "cvt" | "range")) {
        instruction.opcode = "mov".to_owned();
        instruction.modifiers = vec!["b64".to_owned()];
        instruction.operands.truncate(1);
        instruction.operands.push(Operand::Integer(0));
    }
    if instruction.modifiers.iter().any(|modifier| modifier == "L2::cache_hint") {
        // The policy comes last.
        instruction.operands.pop();
    }
}

/// `mov.b16 %h1, {byte, 0};`, as CUDA's headers convert from bf16: registers of 8 bits are kept in 16, of which the low half
/// counts.
fn widened_byte(instruction: &mut Instruction) {
    if instruction.opcode != "mov" || instruction.modifiers != ["b16"] {
        return;
    }
    let [_, Operand::Vector(parts)] = instruction.operands.as_slice() else { return };
    let [byte @ (Operand::Register(_) | Operand::Symbol(_)), Operand::Integer(0)] = parts.as_slice() else {
        return;
    };
    let byte = byte.clone();
    "and".clone_into(&mut instruction.opcode);
    instruction.operands.truncate(1);
    instruction.operands.extend([byte, Operand::Integer(255)]);
}

/// An access to a variable that moved from the constant bank to the module's block, which no kernel writes.
fn no_constant_bank(instruction: &mut Instruction) {
    let plain =
        instruction.modifiers.iter().all(|word| !access::is_ordering(word) && !access::is_caching(word));
    let load = instruction.opcode == "ld" && plain;
    if let Some(at) = instruction.modifiers.iter().position(|word| word == "const") {
        let words = std::iter::once("global").chain(load.then_some("nc")).map(str::to_owned);
        instruction.modifiers.splice(at..=at, words);
    }
}

/// Which lanes are waited for is said in 32 bits: the verifier takes no others, and nor does ptxas.
fn check_mask(instruction: &Instruction) -> Result<(), Reason> {
    let waits = table::row_of(instruction).is_some_and(|row| table::waits_for_lanes(row, instruction));
    let Some(Operand::Register(mask)) = instruction.operands.last().filter(|_| waits) else { return Ok(()) };
    match Class::parse(mask) {
        Some((Class::Word, _)) => Ok(()),
        Some(_) => Err(Reason::Malformed("a mask of lanes has 32 bits".to_owned())),
        None => Err(Reason::Malformed(format!("`{mask}` as a mask of lanes: move it to a register first"))),
    }
}

/// Of the directives in a body only pragmas that promise nothing are accepted.
fn check_directive(directive: &Directive) -> Result<(), Reason> {
    if super::entry::is_droppable(directive) {
        return Ok(());
    }
    Err(Reason::NotImplemented { what: super::entry::named(directive) })
}
