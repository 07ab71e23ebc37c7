//! What records of faults say, and what entries need to leave them.

use crate::ast::{Directive, Instruction, Item, Operand, Statement};
use crate::confine::Stray;
use crate::maps::HashMap;

/// The names of entries and files, each with its NUL; nobody's name begins at 0.
pub(crate) const NAMES: &str = "__bh_names";

/// What ended a thread, as records have it. 3 is a failed assertion, 4, 5 and 8 are accesses, 9 is what is given back to the heap
/// and is not of it, 10 an entry whose accesses are not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Trap = 1,
    Breakpoint = 2,
    /// It called through a pointer that is no function's number.
    Nobody = 6,
    /// It came to an instruction for whole warps without all of its warp.
    Part = 7,
    /// It called itself more deeply than its stack holds.
    Stack = 11,
}

impl Kind {
    /// What an instruction is that ends its thread so.
    pub(super) fn of(instruction: &Instruction) -> Option<Self> {
        let plain = instruction.modifiers.is_empty() && instruction.operands.is_empty();
        match instruction.opcode.as_str() {
            "trap" if plain => Some(Kind::Trap),
            "brkpt" if plain => Some(Kind::Breakpoint),
            _ => None,
        }
    }
}

/// File and line of a statement in its source, as `.loc` has them and records tell them; 0 and 0 where nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Loc {
    pub(crate) file: i64,
    pub(crate) line: i64,
}

/// What entries need to leave records.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Functions and variables, beside those of the module.
    pub(crate) items: Vec<Item>,
    pub(super) entries: HashMap<String, i64>,
    /// By the number that `.loc` has for it.
    pub(super) files: HashMap<String, i64>,
    pub(super) stray: Stray,
}

impl Faults {
    /// Whether accesses are looked at.
    pub(crate) fn checks(&self) -> bool {
        self.stray == Stray::Told
    }

    /// The file and line that a `.loc` tells, as records have them.
    pub(crate) fn place(&self, directive: &Directive) -> Option<Loc> {
        place(&self.files, directive)
    }

    /// Has an entry's flat body name itself in its records.
    pub(crate) fn name(&self, entry: &str, statements: &mut [Statement]) {
        let Some(at) = self.entries.get(entry) else { return };
        for statement in statements {
            let Statement::Instruction(instruction) = statement else { continue };
            for operand in &mut instruction.operands {
                if matches!(operand, Operand::Symbol(name) if name == NAMES) {
                    *operand = Operand::SymbolOffset(NAMES.to_owned(), *at);
                }
            }
        }
    }
}

/// File and line of what follows a `.loc`. What was inlined from another file, as a header's functions are, is where it was
/// inlined.
pub(super) fn place(files: &HashMap<String, i64>, directive: &Directive) -> Option<Loc> {
    let position = |text: &str| {
        let mut words = text.split(' ');
        let file = words.next().and_then(|file| files.get(file)).copied().unwrap_or_default();
        let line = words.next().and_then(|line| line.parse::<u32>().ok()).unwrap_or_default();
        Loc { file, line: i64::from(line) }
    };
    let own = directive.operands.first().filter(|_| directive.name == ".loc").map(|text| position(text))?;
    let caller = directive.operands.iter().find_map(|operand| operand.strip_prefix("inlined_at "));
    Some(caller.map(position).filter(|caller| caller.file != own.file).unwrap_or(own))
}
