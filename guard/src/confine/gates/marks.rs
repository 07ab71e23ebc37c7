//! What the author of gates says of instructions.

use crate::maps::{HashMap, HashSet};

use crate::ast::{Address, AddressBase, Function, Instruction, Item, Module, Operand, Statement};
use crate::confine::gate_window::Window;
use crate::gates::{self, BADGE, CALLER, PROTECTED};
use crate::report::{Reason, Report};

/// What the author says of instructions, by where each stands.
#[derive(Default)]
pub(crate) struct Marks {
    pub(super) protected: HashSet<u32>,
    /// Where it is read who calls, or with which badge, and which register has that.
    pub(super) told: HashMap<u32, &'static str>,
    /// Where an operand was the name of a variable in the window.
    pub(super) variables: HashSet<u32>,
}

impl Marks {
    /// Takes the marks and the variables out of a module.
    pub(super) fn take(module: &mut Module, window: &Window, report: &mut Report) -> Self {
        let mut marks = Self::default();
        for item in &mut module.items {
            if let Item::Function(Function { body: Some(body), .. }) = item {
                marks.block(body, window, report);
            }
        }
        marks
    }

    /// Recursion is bounded by the parser's limit on braces.
    fn block(&mut self, body: &mut Vec<Statement>, window: &Window, report: &mut Report) {
        let mut marked = None;
        body.retain_mut(|statement| {
            let mark = marked.take();
            if let Statement::Instruction(found) = statement {
                window.resolve(found, &mut self.protected, &mut self.variables, report);
            }
            match statement {
                Statement::Directive(found) if found.name == ".pragma" && found.operands == [PROTECTED] => {
                    marked = Some(found.span);
                    return false;
                }
                Statement::Instruction(found) if mark.is_some() => {
                    self.protected.insert(found.span.start);
                }
                Statement::Instruction(found) => self.told(found),
                Statement::Block(inner, _) => self.block(inner, window, report),
                Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
            }
            if let Some(span) = mark.filter(|_| !matches!(statement, Statement::Instruction(_))) {
                let text = "no access stands behind this mark";
                report.add(span, Reason::Malformed(text.to_owned()));
            }
            true
        });
    }

    /// Who calls, and with which badge, is in registers by then.
    fn told(&mut self, found: &mut Instruction) {
        let read = match found.operands.get(1) {
            Some(Operand::Address(Address { base: AddressBase::Symbol(name), offset: 0 })) => {
                [CALLER, BADGE].iter().position(|known| name == known)
            }
            _ => None,
        };
        let load = found.opcode == "ld"
            && matches!(found.modifiers.as_slice(), [space, ty] if space == "const" && matches!(ty.as_str(), "u64" | "b64"));
        if let Some(register) = read.filter(|_| load).and_then(|read| gates::TOLD.get(read)) {
            self.told.insert(found.span.start, register);
            found.opcode = "mov".to_owned();
            found.modifiers = vec!["b64".to_owned()];
            found.operands.truncate(1);
            found.operands.push(Operand::Integer(0));
        }
    }
}

/// Whether a constant is one that tells a gate of its caller.
pub(crate) fn is_told(name: &str) -> bool {
    matches!(name, CALLER | BADGE)
}
