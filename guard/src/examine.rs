//! What a person asks of a text: everything that stands against it, and what becomes of each of its accesses.

use crate::maps::{HashMap, HashSet};
use std::fmt;

use crate::anchors::Check;
use crate::ast::{
    AddressBase, Function, FunctionKind, Instruction, Item, Module, Operand, Space, Span, Statement,
};
use crate::facts::Facts;
use crate::gates::Gates;
use crate::names;
use crate::report::{Reason, Report};
use crate::table::{self, Row, Treatment};
use crate::values::{Known as _, Proof};
use crate::{access, anchors, confine, parse};
use bulkhead_ptx::print::Text;

/// A text, read and confined as far as that goes.
#[derive(Debug)]
pub struct Examination {
    /// What was read: statements with errors are left out.
    pub module: Module,
    /// The confined form, without what is refused.
    pub confined: Module,
    /// Everything that stands against the text.
    pub report: Report,
}

/// Parses and confines a text and goes on after errors.
#[must_use]
pub fn examine(text: &str) -> Examination {
    examine_with(text, &Gates::default())
}

/// As [`examine`], of a text that may call these gates.
#[must_use]
pub fn examine_with(text: &str, gates: &Gates) -> Examination {
    let (module, mut report) = parse::parse_recovering(text);
    let parsed = report.is_empty();
    let (confined, findings) = confine::confine_recovering(&module, gates);
    // Without its header nothing can be said of a module, and what is not declared may only have been left out.
    let header = module.version != (0, 0);
    for finding in findings.findings {
        if parsed || (header && !matches!(finding.reason, Reason::Undeclared(_))) {
            report.add(finding.span, finding.reason);
        }
    }
    report.left_out = report.left_out.saturating_add(findings.left_out);
    Examination { module, confined, report }
}

/// How an access is kept where it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handling {
    /// The high word of its address is replaced by the window's, with the mask for loads.
    LoadWindow,
    /// The high word of its address is replaced by the window's, with the mask for stores.
    StoreWindow,
    /// It is left as it is in a fast version, which runs where that pointer lies in the window and is aligned, and
    /// confined otherwise.
    Proven {
        /// The parameter that holds the pointer.
        parameter: String,
        /// How far from the pointer it begins at least and at most, in bytes.
        reach: (i64, i64),
    },
    /// It is left as it is in a fast version, which runs where the block is so small that all its threads stay in the
    /// variable, and clamped otherwise.
    ProvenShared {
        /// The variable in shared memory.
        variable: String,
    },
    /// It is left as it is in a fast version while a loop turns whose pointers were checked before, and confined in a copy
    /// of the loop otherwise.
    ProvenByCheck,
    /// It names a variable or parameter and lies inside as it stands.
    Inside,
    /// Its address is clamped to the block's shared memory.
    SharedClamp,
    /// Its address is clamped to the entry's local variable.
    LocalClamp,
    /// Its address is clamped to one variable of the constant bank.
    ConstantClamp,
    /// By the space that its address is of: it is tested where the access runs, or differs from call to call.
    BySpace,
    /// What it loads or stores is put into a register, since the call is inlined.
    Register,
    /// It stands in a function that no entry calls.
    NotCalled,
    /// It only advises the caches, or the launches of other kernels, and is left out.
    HintDropped,
    /// It never passes.
    Refused(Reason),
}

impl Handling {
    /// One word, for tools.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Handling::LoadWindow => "load-window",
            Handling::StoreWindow => "store-window",
            Handling::Proven { .. } | Handling::ProvenShared { .. } | Handling::ProvenByCheck => "proven",
            Handling::Inside => "inside",
            Handling::SharedClamp => "shared-clamp",
            Handling::LocalClamp => "local-clamp",
            Handling::ConstantClamp => "constant-clamp",
            Handling::BySpace => "by-space",
            Handling::Register => "register",
            Handling::NotCalled => "not-called",
            Handling::HintDropped => "hint-dropped",
            Handling::Refused(_) => "refused",
        }
    }
}

impl fmt::Display for Handling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Handling::Proven { parameter, reach: (low, high) } => {
                let off = if low == high { format!("{low}") } else { format!("{low} to {high}") };
                let parameter = names::of_tenant(parameter);
                return write!(f, "proven: {off} bytes from the pointer in `{parameter}`");
            }
            Handling::ProvenShared { variable } => {
                return write!(f, "proven: inside `{}`", names::of_tenant(variable));
            }
            Handling::ProvenByCheck => "proven: by a check of its pointer before the loop",
            Handling::LoadWindow => "confined to the window, by the mask for loads",
            Handling::StoreWindow => "confined to the window, by the mask for stores",
            Handling::Inside => "inside its variable as it stands",
            Handling::SharedClamp => "clamped to the block's shared memory",
            Handling::LocalClamp => "clamped to the local variable",
            Handling::ConstantClamp => "clamped to its constant variable",
            Handling::BySpace => "kept as accesses are of the space that its address turns out to be of",
            Handling::Register => "put into a register",
            Handling::NotCalled => "left out: no entry calls its function",
            Handling::HintDropped => "left out: it is only advice",
            Handling::Refused(reason) => return write!(f, "refused: {reason}"),
        })
    }
}

/// What an access does to memory, as far as people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
    /// Reads and writes.
    Updates,
    /// Neither.
    Touches,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doing::Reads => "reads",
            Doing::Writes => "writes",
            Doing::Updates => "updates",
            Doing::Touches => "touches",
        })
    }
}

/// One instruction of a text that accesses memory, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// The entry or function that it stands in.
    pub entry: String,
    /// Where it stands.
    pub span: Span,
    /// Its canonical text.
    pub instruction: String,
    /// What it does to memory, by the address that it accesses first.
    pub doing: Doing,
    /// How it is kept where it may be.
    pub handling: Handling,
}

impl Examination {
    /// Every instruction that accesses memory, in the order of the text.
    #[must_use]
    pub fn accesses(&self) -> Vec<Explained> {
        let (mut handled, mut standing) = (HashMap::default(), HashSet::default());
        let (fast, confined): (Vec<_>, Vec<_>) =
            functions(&self.confined).partition(|function| names::is_fast_version(&function.name));
        for function in confined {
            each(function.body.as_deref().unwrap_or_default(), &mut |instruction| {
                if instruction.span.end > 0 {
                    standing.insert(instruction.span.start);
                }
                if let Some(handling) = handling(instruction) {
                    let at = handled.entry(instruction.span.start).or_insert_with(|| handling.clone());
                    if *at != handling {
                        *at = Handling::BySpace;
                    }
                }
            });
        }
        for function in fast {
            for (at, proven) in proven(function.body.as_deref().unwrap_or_default()) {
                let known = handled.get_mut(&at);
                if let Some(known @ (Handling::LoadWindow | Handling::StoreWindow | Handling::SharedClamp)) =
                    known
                {
                    *known = proven;
                }
            }
        }
        let mut explained = Vec::new();
        for function in functions(&self.module) {
            let mut inlined = function.kind == FunctionKind::Entry;
            each(function.body.as_deref().unwrap_or_default(), &mut |instruction| {
                inlined |= standing.contains(&instruction.span.start);
            });
            each(function.body.as_deref().unwrap_or_default(), &mut |instruction| {
                let Some(row) = table::row_of(instruction) else { return };
                let memory = match row.treatment {
                    Treatment::Copy => row.memory.last(),
                    _ => row.memory.first(),
                };
                let Some(memory) = memory else { return };
                explained.push(Explained {
                    entry: function.name.clone(),
                    span: instruction.span,
                    instruction: Text(instruction).to_string(),
                    doing: match memory.effect {
                        table::Effect::Reads => Doing::Reads,
                        table::Effect::Writes => Doing::Writes,
                        table::Effect::Updates => Doing::Updates,
                        table::Effect::Touches => Doing::Touches,
                    },
                    handling: if inlined {
                        self.of(function, instruction, row, &handled)
                    } else {
                        Handling::NotCalled
                    },
                });
            });
        }
        explained
    }

    fn of(
        &self,
        function: &Function,
        instruction: &Instruction,
        row: &Row,
        handled: &HashMap<u32, Handling>,
    ) -> Handling {
        let at = |span: Span| self.report.findings.iter().find(|finding| finding.span.start == span.start);
        let refused = at(instruction.span);
        match (handled.get(&instruction.span.start), refused) {
            (_, Some(finding)) => Handling::Refused(finding.reason.clone()),
            (Some(handling), None) => handling.clone(),
            (None, None) if row.treatment == Treatment::Hint => Handling::HintDropped,
            (None, None) if passes_parameter(instruction) => Handling::Register,
            // The whole function is refused, or the report was full.
            (None, None) => Handling::Refused(at(function.span).map_or_else(
                || Reason::NotImplemented { what: format!("what `{}` depends on", function.name) },
                |finding| finding.reason.clone(),
            )),
        }
    }

    /// The text with a comment at the end of each line that accesses memory.
    #[must_use]
    pub fn annotated(&self, text: &str) -> String {
        let mut by_line: HashMap<u32, Vec<String>> = HashMap::default();
        for access in self.accesses() {
            by_line.entry(access.span.place.line).or_default().push(access.handling.to_string());
        }
        let mut annotated = String::with_capacity(text.len());
        for (line, number) in text.lines().zip(1..) {
            annotated.push_str(line);
            if let Some(handlings) = by_line.get(&number) {
                annotated.push_str("  // guard: ");
                annotated.push_str(&handlings.join("; "));
            }
            annotated.push('\n');
        }
        annotated
    }
}

/// The accesses of a fast version that are left as they are, by where they stand in the text. One that is inlined several
/// times has to be left everywhere.
fn proven(body: &[Statement]) -> HashMap<u32, Handling> {
    let mut facts = Facts::of(body);
    let mut found: HashMap<u32, Option<Handling>> = HashMap::default();
    let mut checked = None;
    for (index, statement) in body.iter().enumerate() {
        let instruction = match statement {
            Statement::Instruction(instruction) => instruction,
            Statement::Label(label, _) => {
                let behind = body.get(index + 1..).unwrap_or_default();
                facts.label(label, behind);
                // The label behind the check is the loop's.
                if let Some(check) = checked.take() {
                    facts.turn(&check, anchors::turns(behind, label).unwrap_or_default());
                } else {
                    facts.turning(behind, label);
                }
                continue;
            }
            Statement::Variable(_) | Statement::Directive(_) | Statement::Block(..) => continue,
        };
        if let Some((check, _)) = Check::parse(body.get(index..).unwrap_or_default()) {
            checked = Some(check);
        }
        let accesses = table::check(instruction).and_then(|row| access::decode(row, instruction));
        // Of a copy people are told of what it reads: the window is what is larger than it seems.
        if let Some(access) = accesses.unwrap_or_default().iter().last()
            && matches!(access.space, Space::Global | Space::Shared)
            && instruction.span.end > 0
        {
            let bound = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
            let by_register = matches!(access.address.base, AddressBase::Register(_));
            let left = by_register && !is_confined(access);
            let proven = facts.proof(access).filter(|_| left).map(|proof| match proof {
                Proof::Pointer(proof) => Handling::Proven {
                    parameter: proof.root.parameter.to_owned(),
                    reach: (bound(proof.low), bound(proof.high)),
                },
                Proof::Shared(proof) => Handling::ProvenShared { variable: proof.variable.to_owned() },
                Proof::Checked => Handling::ProvenByCheck,
            });
            let known = found.entry(instruction.span.start).or_insert_with(|| proven.clone());
            // The copy of a loop is confined.
            if proven == Some(Handling::ProvenByCheck) {
                *known = proven;
            } else if proven.is_none() && *known != Some(Handling::ProvenByCheck) {
                *known = None;
            }
        }
        facts.learn(instruction);
    }
    found.into_iter().filter_map(|(at, handling)| Some((at, handling?))).collect()
}

/// Whether the address of an access is what a sequence left.
fn is_confined(access: &access::Access<'_>) -> bool {
    matches!(&access.address.base, AddressBase::Register(name) if names::is_reserved(name))
}

fn functions(module: &Module) -> impl Iterator<Item = &Function> {
    module.items.iter().filter_map(|item| match item {
        Item::Function(function) => Some(function),
        Item::Variable(_) | Item::Section(_) | Item::Directive(_) => None,
    })
}

/// Whether an instruction loads or stores what a function is called with or returns.
fn passes_parameter(instruction: &Instruction) -> bool {
    let parameter = |word: &String| matches!(word.as_str(), "param" | "param::func" | "param::entry");
    matches!(instruction.opcode.as_str(), "ld" | "st") && instruction.modifiers.iter().any(parameter)
}

/// Recursion is bounded by the parser's limit on braces.
fn each<'a>(body: &'a [Statement], see: &mut dyn FnMut(&'a Instruction)) {
    for statement in body {
        match statement {
            Statement::Instruction(instruction) => see(instruction),
            Statement::Block(body, _) => each(body, see),
            Statement::Label(..) | Statement::Variable(_) | Statement::Directive(_) => {}
        }
    }
}

/// How an access of the confined form is kept; none for what is no access, or was not in the text.
fn handling(instruction: &Instruction) -> Option<Handling> {
    let row = table::check(instruction).ok()?;
    let accesses = access::decode(row, instruction).ok()?;
    let access = accesses.iter().last()?;
    if instruction.span.end == 0 {
        return None;
    }
    let by_register = match instruction.operands.get(access.index)? {
        Operand::Address(address) => matches!(address.base, AddressBase::Register(_)),
        _ => false,
    };
    Some(match access.space {
        Space::Global if access.reads_only => Handling::LoadWindow,
        Space::Global => Handling::StoreWindow,
        Space::Shared if by_register => Handling::SharedClamp,
        Space::Local if by_register => Handling::LocalClamp,
        Space::Constant if by_register => Handling::ConstantClamp,
        Space::Shared | Space::Local | Space::Constant | Space::Parameter | Space::Register => {
            Handling::Inside
        }
    })
}
