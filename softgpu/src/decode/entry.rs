//! One entry: its declarations, its statements, and the code they become.

use std::collections::HashMap;

use bulkhead_gpu::Error;
use bulkhead_ptx::ast::{
    Directive, Function, Instruction, Linkage, Operand, Place, Predicate, Space, Statement, Variable,
};

use super::layout::{self, Cursor};
use super::refusal::Refusal;
use super::scope::{Names, Register, Symbol};
use crate::alu::{LANES, Lanes};
use crate::code::{Ask, ConstantBank, Inst, Op, Pred, PredSrc, Program, Region, SHARED_BASE, Src};
use crate::device::SHARED_BYTES_DEFAULT;

/// Instructions of one entry.
const CODE_MAX: usize = 1 << 20;
/// Different immediates of one entry: 8 MiB, as each is kept for 32 lanes.
const CONSTANTS_MAX: usize = 1 << 15;
/// Local memory per thread (the device's limit).
const LOCAL_BYTES_MAX: u64 = 512 << 10;
/// Dynamic shared memory starts on a multiple of this, as `.extern .shared` is declared by nvcc at most.
const DYNAMIC_ALIGN: u64 = 16;

/// The code of an entry while it is made.
pub(crate) struct Builder<'a> {
    pub(crate) names: Names,
    pub(crate) code: Vec<Inst>,
    places: Vec<Place>,
    zeroing: Vec<u32>,
    of_block: Vec<u32>,
    acquires: Vec<u32>,
    counting: Vec<u32>,
    pub(crate) asked: Vec<(u32, Ask)>,
    /// Whether the instruction being decoded zeroes memory for the guard.
    zeroes: bool,
    pub(crate) constants: Vec<Lanes>,
    known_constants: HashMap<u64, u32>,
    /// Constants that the end of static shared memory is added to.
    dynamic: Vec<u32>,
    pub(crate) conversions: Vec<crate::alu::convert::Conversion>,
    pub(crate) videos: Vec<crate::alu::video::Video>,
    pub(crate) matrices: Vec<crate::matrix::Matrix>,
    pub(crate) tables: Vec<Vec<u32>>,
    /// Where each label stands, by its number.
    labels: Vec<Option<u32>>,
    shared: Cursor,
    local: Cursor,
    dynamic_align: u64,
    /// Of the instruction being decoded.
    place: Place,
    guard: Option<PredSrc>,
    bank: &'a ConstantBank,
}

/// Decodes one entry.
pub(crate) fn decode<'a>(
    function: &Function,
    body: &[Statement],
    shared: impl Iterator<Item = &'a Variable>,
    bank: &ConstantBank,
    text: u64,
) -> Result<Program, Error> {
    let what = format!("entry `{}`", bulkhead_verifier::entry_of(&function.name));
    let at_entry = |refusal: Refusal| refusal.at(function.span.place, &what);
    let (parameters, parameter_bytes) = layout::parameters(&function.parameters).map_err(at_entry)?;
    let (threads_max, threads_required) = threads(&function.directives)?;

    let mut builder = Builder {
        names: Names::new(Pred::FIXED),
        code: Vec::new(),
        places: Vec::new(),
        zeroing: Vec::new(),
        of_block: Vec::new(),
        acquires: Vec::new(),
        counting: Vec::new(),
        asked: Vec::new(),
        zeroes: false,
        constants: Vec::new(),
        known_constants: HashMap::new(),
        dynamic: Vec::new(),
        conversions: Vec::new(),
        videos: Vec::new(),
        matrices: Vec::new(),
        tables: Vec::new(),
        labels: Vec::new(),
        shared: Cursor::default(),
        local: Cursor::default(),
        dynamic_align: DYNAMIC_ALIGN,
        place: function.span.place,
        guard: None,
        bank,
    };
    builder.names.enter(&[]).map_err(at_entry)?;
    for (parameter, layout) in function.parameters.iter().zip(&parameters) {
        let symbol = Symbol { region: Region::Parameter, address: layout.offset.into(), dynamic: false };
        builder.names.declare_symbol(&parameter.name, symbol);
    }
    for variable in shared {
        builder.declare(variable).map_err(|refusal| refusal.at(variable.span.place, &variable.name))?;
    }
    builder.scope(body)?;
    builder.guard = None;
    builder.emit(Op::Exit).map_err(at_entry)?;
    builder.resolve().map_err(at_entry)?;

    let static_shared = builder.shared.end.next_multiple_of(builder.dynamic_align);
    for index in &builder.dynamic {
        for lane in &mut builder.constants[*index as usize] {
            *lane = lane.wrapping_add(static_shared);
        }
    }
    let has_dynamic = !builder.dynamic.is_empty();
    let shared_bytes = if has_dynamic { static_shared } else { builder.shared.end };
    let (widths, predicates) = builder.names.widths();
    let narrow = |bytes: u64, what: &str| {
        u32::try_from(bytes).map_err(|_| at_entry(Refusal::new(format!("too much {what} memory"))))
    };
    if shared_bytes > u64::from(SHARED_BYTES_DEFAULT) {
        return Err(at_entry(Refusal::new("more than 48 KiB of static shared memory")));
    }
    if builder.local.end > LOCAL_BYTES_MAX {
        return Err(at_entry(Refusal::new("too much local memory")));
    }
    // What is kept is what is charged.
    builder.code.shrink_to_fit();
    builder.places.shrink_to_fit();
    builder.constants.shrink_to_fit();
    Ok(Program {
        name: function.name.clone(),
        text,
        code: builder.code,
        places: builder.places,
        zeroing: builder.zeroing,
        of_block: builder.of_block,
        acquires: builder.acquires,
        counting: builder.counting,
        asked: builder.asked,
        constants: builder.constants,
        conversions: builder.conversions,
        videos: builder.videos,
        matrices: builder.matrices,
        tables: builder.tables,
        registers: u32::try_from(widths.len()).unwrap_or(u32::MAX),
        widths,
        predicates,
        parameters,
        parameter_bytes,
        shared_bytes: narrow(shared_bytes, "shared")?,
        local_bytes: narrow(builder.local.end.next_multiple_of(16), "local")?,
        threads_max,
        threads_required,
    })
}

/// `.maxntid` and `.reqntid`.
fn threads(directives: &[Directive]) -> Result<(u32, Option<[u32; 3]>), Error> {
    let mut most = 1024;
    let mut required = None;
    for directive in directives {
        let refuse =
            |text: &str| Err(Refusal::new(text).at(directive.span.place, &format!("`{}`", directive.name)));
        match directive.name.as_str() {
            ".maxntid" | ".reqntid" => {
                let mut shape = [1u32; 3];
                if directive.operands.is_empty() || directive.operands.len() > 3 {
                    return refuse("one to three numbers belong here");
                }
                for (axis, operand) in shape.iter_mut().zip(&directive.operands) {
                    match operand.parse() {
                        Ok(number @ 1..=1024) => *axis = number,
                        _ => return refuse("a number from 1 to 1024 belongs here"),
                    }
                }
                most = shape.iter().product::<u32>().min(1024);
                if directive.name == ".reqntid" {
                    required = Some(shape);
                }
            }
            ".minnctapersm" | ".maxnctapersm" | ".maxnreg" | ".noreturn" | ".pragma" | ".abi_preserve" => {}
            _ => return refuse("this directive is not supported"),
        }
    }
    Ok((most, required))
}

impl Builder<'_> {
    fn scope(&mut self, statements: &[Statement]) -> Result<(), Error> {
        let opened = self.names.enter(statements);
        opened.map_err(|refusal| refusal.at(self.place, "block"))?;
        self.labels.resize(self.names.label_count() as usize, None);
        for statement in statements {
            match statement {
                Statement::Label(name, span) => {
                    let here = u32::try_from(self.code.len()).unwrap_or(u32::MAX);
                    let number = self.names.label(name).map_err(|refusal| refusal.at(span.place, "label"))?;
                    self.labels[number as usize] = Some(here);
                }
                Statement::Variable(variable) => self
                    .declare(variable)
                    .map_err(|refusal| refusal.at(variable.span.place, &format!("`{}`", variable.name)))?,
                Statement::Instruction(instruction) => {
                    self.place = instruction.span.place;
                    self.instruction(instruction)
                        .map_err(|refusal| refusal.at(instruction.span.place, &spelled(instruction)))?;
                }
                Statement::Block(inner, _) => self.scope(inner)?,
                Statement::Directive(directive) => {
                    if !matches!(directive.name.as_str(), ".pragma" | ".branchtargets" | ".loc") {
                        let refusal = Refusal::new("this directive is not supported");
                        return Err(refusal.at(directive.span.place, &format!("`{}`", directive.name)));
                    }
                }
            }
        }
        self.names.leave();
        Ok(())
    }

    fn declare(&mut self, variable: &Variable) -> Result<(), Refusal> {
        let symbol = match variable.space {
            Space::Register => return self.names.declare_register(variable),
            Space::Shared => {
                let (size, align) = layout::extent(variable)?;
                if variable.linkage == Linkage::Extern || size == 0 {
                    self.dynamic_align = self.dynamic_align.max(align);
                    Symbol { region: Region::Shared, address: SHARED_BASE, dynamic: true }
                } else {
                    let at = self.shared.place(size, align);
                    Symbol { region: Region::Shared, address: SHARED_BASE + at, dynamic: false }
                }
            }
            Space::Local => {
                let (size, align) = layout::extent(variable)?;
                let at = self.local.place(size, align);
                Symbol { region: Region::Local, address: at, dynamic: false }
            }
            Space::Global | Space::Constant | Space::Parameter => {
                return Err(Refusal::new("a body declares no variables of this kind"));
            }
        };
        self.names.declare_symbol(&variable.name, symbol);
        Ok(())
    }

    fn instruction(&mut self, instruction: &Instruction) -> Result<(), Refusal> {
        self.guard = None;
        self.zeroes = zeroes(instruction);
        if let Some(Predicate { register, negated }) = &instruction.predicate {
            match self.names.register(register)? {
                Some(Register::Predicate(index)) => {
                    self.guard = Some(PredSrc { of: Pred(index), negated: *negated });
                }
                _ => return Err(Refusal::new(format!("`{register}` is not a predicate"))),
            }
        }
        self.asks(instruction)?;
        let known = self.decode_moves(instruction)?
            || self.decode_arithmetic(instruction)?
            || self.decode_float(instruction)?
            || self.decode_compare(instruction)?
            || self.decode_video(instruction)?
            || self.decode_mbarrier(instruction)?
            || self.decode_memory(instruction)?
            || self.decode_matrix(instruction)?
            || self.decode_control(instruction)?;
        if known { Ok(()) } else { Err(Refusal::new("this instruction is not supported")) }
    }

    /// Adds an operation for the lanes that the instruction is for.
    pub(crate) fn emit(&mut self, op: Op) -> Result<(), Refusal> {
        if self.code.len() >= CODE_MAX {
            return Err(Refusal::new("the entry is too long"));
        }
        if self.zeroes && matches!(op, Op::Store { .. }) {
            self.zeroing.push(u32::try_from(self.code.len()).unwrap_or(u32::MAX));
        }
        self.code.push(Inst { guard: self.guard, op });
        self.places.push(self.place);
        Ok(())
    }

    /// Adds an operation that concerns threads of the block only, where it does.
    pub(crate) fn emit_scoped(&mut self, op: Op, of_block: bool) -> Result<(), Refusal> {
        if of_block {
            self.of_block.push(u32::try_from(self.code.len()).unwrap_or(u32::MAX));
        }
        self.emit(op)
    }

    /// Remembers that the next operation counts.
    pub(crate) fn counts(&mut self) {
        self.counting.push(u32::try_from(self.code.len()).unwrap_or(u32::MAX));
    }

    /// Adds a fence behind a read, which nothing is released by.
    pub(crate) fn acquire(&mut self) -> Result<(), Refusal> {
        self.acquires.push(u32::try_from(self.code.len()).unwrap_or(u32::MAX));
        self.emit(Op::Fence)
    }

    /// Adds an operation for the lanes of which a predicate does not hold.
    pub(crate) fn emit_where_not(&mut self, of: Pred, op: Op) -> Result<(), Refusal> {
        let guard = self.guard.replace(PredSrc { of, negated: true });
        let emitted = self.emit(op);
        self.guard = guard;
        emitted
    }

    /// A value that is the same in all lanes.
    pub(crate) fn constant(&mut self, value: u64) -> Result<Src, Refusal> {
        if let Some(index) = self.known_constants.get(&value) {
            return Ok(Src::constant(*index));
        }
        let index = self.new_constant(value)?;
        self.known_constants.insert(value, index);
        Ok(Src::constant(index))
    }

    /// The address of a variable, as a constant.
    pub(crate) fn address_of(&mut self, symbol: Symbol, offset: i64) -> Result<Src, Refusal> {
        let value = symbol.address.wrapping_add_signed(offset);
        if !symbol.dynamic {
            return self.constant(value);
        }
        let index = self.new_constant(value)?;
        self.dynamic.push(index);
        Ok(Src::constant(index))
    }

    fn new_constant(&mut self, value: u64) -> Result<u32, Refusal> {
        if self.constants.len() >= CONSTANTS_MAX {
            return Err(Refusal::new("the entry has too many different immediates"));
        }
        self.constants.push([value; LANES]);
        u32::try_from(self.constants.len() - 1).map_err(|_| Refusal::new("too many immediates"))
    }

    /// The variable of this name: of the body, the entry or the module.
    pub(crate) fn symbol(&self, name: &str) -> Result<Symbol, Refusal> {
        let constant = || {
            let address = *self.bank.symbols.get(name)?;
            Some(Symbol { region: Region::Constant, address, dynamic: false })
        };
        let found = self.names.symbol(name).or_else(constant);
        found.ok_or_else(|| Refusal::new(format!("`{name}` is not declared")))
    }

    /// Puts places where label numbers stand.
    fn resolve(&mut self) -> Result<(), Refusal> {
        let labels = &self.labels;
        let place_of = |label: u32| {
            let place = labels.get(label as usize).copied().flatten();
            place.ok_or_else(|| Refusal::new("a label has no place"))
        };
        for inst in &mut self.code {
            if let Op::Branch { target } = &mut inst.op {
                *target = place_of(*target)?;
            }
        }
        for target in self.tables.iter_mut().flatten() {
            *target = place_of(*target)?;
        }
        Ok(())
    }
}

/// Whether an instruction stores what only the guard's own registers hold: zeroes.
fn zeroes(instruction: &Instruction) -> bool {
    let own = |operand: &Operand| matches!(operand, Operand::Register(name) if bulkhead_verifier::is_own_register(name));
    instruction.opcode == "st"
        && match instruction.operands.get(1) {
            Some(Operand::Vector(values)) => values.iter().all(own),
            Some(value) => own(value),
            None => false,
        }
}

/// The opcode with its modifiers.
fn spelled(instruction: &Instruction) -> String {
    let mut text = format!("`{}", instruction.opcode);
    for modifier in &instruction.modifiers {
        text.push('.');
        text.push_str(modifier);
    }
    text.push('`');
    text
}
