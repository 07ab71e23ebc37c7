//! From the syntax tree to what the interpreter runs.
//!
//! Everything is decided here once: which function computes an instruction, which registers it names,
//! where its operands lie. What the software GPU does not do is refused here, with line, column and
//! opcode; nothing is left to be found out while a kernel runs.

mod arithmetic;
mod compare;
mod control;
mod entry;
mod float;
mod layout;
mod matrix;
mod mbarrier;
mod memory;
mod moves;
mod operand;
mod refusal;
mod scope;
mod video;
mod waits;
mod words;

use std::collections::HashSet;
use std::sync::Arc;

use bulkhead_gpu::Error;
use bulkhead_ptx::ast::{FunctionKind, Item, Module, Operand, Space, Statement};

use crate::code::{ConstantBank, Program};
use refusal::Refusal;

/// Instructions of one image.
const CODE_MAX: usize = 1 << 22;
/// Immediates of one image, counted by entry: 64 MiB.
const CONSTANTS_MAX: usize = 1 << 18;

/// A decoded image.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its entries, in the order of the source.
    pub(crate) programs: Vec<Arc<Program>>,
    /// Its constant memory.
    pub(crate) constants: Arc<ConstantBank>,
    /// The number of the architecture that `.target` names.
    pub(crate) architecture: u32,
}

impl Image {
    /// Host memory that it takes, about.
    pub(crate) fn host_bytes(&self) -> u64 {
        let programs: u64 = self.programs.iter().map(|program| program.host_bytes()).sum();
        programs.saturating_add(self.constants.bytes.len() as u64)
    }
}

/// Decodes the text of an image.
pub(crate) fn image(ptx: &str) -> Result<Image, Error> {
    let module = bulkhead_ptx::parse(ptx).map_err(|report| Error::Image(report.to_string()))?;
    module_image(&module, crate::text_number(ptx))
}

/// Decodes a syntax tree, of a text with this number.
pub(crate) fn module_image(module: &Module, text: u64) -> Result<Image, Error> {
    if module.address_size != 64 {
        return Err(Error::Image("only 64-bit addresses are supported".to_owned()));
    }
    let mut constants = ConstantBank::default();
    let mut shared = Vec::new();
    let mut entries = Vec::new();
    for item in &module.items {
        match item {
            Item::Variable(variable) => match variable.space {
                Space::Constant => layout::constant(&mut constants, variable)
                    .map_err(|refusal| refusal.at(variable.span.place, "`.const` variable"))?,
                Space::Shared => shared.push(variable),
                Space::Global | Space::Local | Space::Parameter | Space::Register => {
                    let refusal = Refusal::new("the software GPU has no variables of this kind");
                    return Err(refusal
                        .at(variable.span.place, &format!("module-scope variable `{}`", variable.name)));
                }
            },
            Item::Function(function) if function.kind == FunctionKind::Entry => {
                if function.body.is_some() {
                    entries.push(function);
                }
            }
            // Device functions are harmless while nobody calls them, and `call` is refused.
            Item::Function(_) | Item::Section(_) => {}
            Item::Directive(directive) => {
                if !matches!(directive.name.as_str(), ".file" | ".pragma") {
                    let refusal = Refusal::new("this directive is not supported");
                    return Err(refusal.at(directive.span.place, &format!("`{}`", directive.name)));
                }
            }
        }
    }
    let mut programs = Vec::with_capacity(entries.len());
    let (mut code, mut immediates) = (0, 0);
    for function in entries {
        let body = function.body.as_deref().unwrap_or_default();
        let mut used = HashSet::new();
        names_of(body, &mut used);
        let shared = shared.iter().copied().filter(|variable| used.contains(variable.name.as_str()));
        let program = entry::decode(function, body, shared, &constants, text)?;
        code += program.code.len();
        immediates += program.constants.len();
        if code > CODE_MAX || immediates > CONSTANTS_MAX {
            let name = bulkhead_verifier::entry_of(&function.name);
            return Err(Refusal::new("the image is too long").at(function.span.place, name));
        }
        programs.push(Arc::new(program));
    }
    let target = module.target.first().and_then(|word| word.strip_prefix("sm_"));
    let architecture =
        target.and_then(|number| number.trim_end_matches(['a', 'f']).parse().ok()).unwrap_or(0);
    Ok(Image { programs, constants: Arc::new(constants), architecture })
}

/// All names that the operands of a body mention. The parser bounds how deep blocks nest.
fn names_of<'a>(body: &'a [Statement], names: &mut HashSet<&'a str>) {
    for statement in body {
        match statement {
            Statement::Block(inner, _) => names_of(inner, names),
            Statement::Instruction(instruction) => {
                for operand in &instruction.operands {
                    names_in(operand, names);
                }
            }
            Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

fn names_in<'a>(operand: &'a Operand, names: &mut HashSet<&'a str>) {
    use bulkhead_ptx::ast::AddressBase;
    match operand {
        Operand::Symbol(name) | Operand::SymbolOffset(name, _) | Operand::Subscript(name, _) => {
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
        | Operand::Negated(_)
        | Operand::Masked(..)
        | Operand::Field(..)
        | Operand::Register(_)
        | Operand::Integer(_)
        | Operand::Float32(_)
        | Operand::Float64(_)
        | Operand::Not(_)
        | Operand::Generic(..)
        | Operand::Difference(..)
        | Operand::Sink
        | Operand::Selected(..) => {}
    }
    for inner in operand.inner() {
        names_in(inner, names);
    }
}
