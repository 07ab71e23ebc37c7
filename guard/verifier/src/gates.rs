//! Gates: functions of protected modules that a tenant's code may call.
//!
//! A gate is PTX that the module's author wrote. Its body is confined and verified once, when the module is granted; where
//! it is called that very text stands between the moves that pass its arguments, on registers (`%bh_g...`) and labels that
//! nothing else names. So a tenant can neither jump into it nor read what it leaves, and where it is entered it
//! ends. Accesses that the author marked are confined to the module's protected window, all others to the caller's.

use std::collections::BTreeMap;

use crate::access;
use crate::ast::{Instruction, Item, Module, Span, Statement};
use crate::names::{self, Class};

use crate::table::{self, Row, Treatment};

/// The pragma that stands before an access to the protected window.
pub const PROTECTED: &str = "\"bulkhead protected\"";
/// The constant that a gate reads to learn for whom it runs.
pub const CALLER: &str = "bulkhead_caller";
/// The constant that a gate reads to learn what the module fixed when it gave the gates to whom it runs for.
pub const BADGE: &str = "bulkhead_badge";
/// What begins the names of the labels of gates.
const LABEL: &str = "__bh_g";
/// Stands in a body's labels for which of the entry's calls it is; no name has it.
const NUMBER: &str = "#";
/// What an entry is given for each module: where its protected window begins, what is one less than the window's bytes, who
/// the caller is, and its badge.
const PARAMETERS: [&str; 4] = ["base", "mask", "caller", "badge"];
/// Hidden parameters of an entry for each module whose gates it calls.
pub const PARAMETERS_OF_MODULE: usize = PARAMETERS.len();

/// The gates that a text may call.
#[derive(Debug, Clone, Default)]
pub struct Gates {
    pub(crate) gates: BTreeMap<String, Gate>,
}

/// A gate's confined body, which whoever confined it takes to be good.
#[derive(Debug, Clone)]
pub struct Image {
    /// What the gate is called.
    pub name: String,
    /// Where its author wrote it.
    pub span: Span,
    /// A canonical text with one entry without parameters, which is the body.
    pub text: String,
    /// The registers that it takes, and those that it returns.
    pub arguments: Vec<Class>,
    /// See `arguments`.
    pub results: Vec<Class>,
    /// The PTX version and the architecture that its author wrote it in.
    pub version: (u32, u32),
    /// See `version`; of no length where there is none.
    pub architecture: String,
}

/// One gate, as it stands wherever it is called.
#[derive(Debug, Clone)]
pub struct Gate {
    /// The module that it is of.
    pub module: String,
    /// The registers that it takes.
    pub arguments: Vec<Class>,
    /// The registers that it returns.
    pub results: Vec<Class>,
    pub(crate) lines: Vec<String>,
    /// The PTX version and the architecture that it is written in.
    pub(crate) version: (u32, u32),
    pub(crate) architecture: String,
    /// How many registers of each class it has.
    pub registers: [u32; 4],
    /// What it costs, and what passes its arguments.
    pub cost: u64,
}

/// What a gate takes, gives and does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateSummary {
    /// Its name.
    pub name: String,
    /// Bits of each argument.
    pub arguments: Vec<usize>,
    /// Bits of each result.
    pub results: Vec<usize>,
    /// Statements that stand wherever it is called.
    pub statements: usize,
    /// What a call may do at most, in the guard's units.
    pub cost: u64,
}

impl Gates {
    /// Adds gates that were verified elsewhere; else answers the first name that both have.
    pub fn join(&mut self, others: &Self) -> Result<(), String> {
        if let Some(name) = others.gates.keys().find(|name| self.gates.contains_key(*name)) {
            return Err(name.clone());
        }
        self.gates.extend(others.gates.iter().map(|(name, gate)| (name.clone(), gate.clone())));
        Ok(())
    }

    /// What is known of all gates, by name.
    #[must_use]
    pub fn summaries(&self) -> Vec<GateSummary> {
        let bits = |classes: &[Class]| classes.iter().map(|class| class.bits()).collect();
        let of = |(name, gate): (&String, &Gate)| GateSummary {
            name: name.clone(),
            arguments: bits(&gate.arguments),
            results: bits(&gate.results),
            statements: gate.length(),
            cost: gate.cost,
        };
        self.gates.iter().map(of).collect()
    }

    /// The names of all gates, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.gates.keys().map(String::as_str)
    }

    /// The PTX version and the target of a text's confined form: its own, or those of a gate that it declares where these
    /// are newer, since the gate's statements stand in it then.
    pub fn header(&self, module: &Module, mut target: Vec<String>) -> ((u32, u32), Vec<String>) {
        let mut version = module.version;
        let declared = module.items.iter().filter_map(|item| match item {
            Item::Function(function) if function.body.is_none() => self.gates.get(&function.name),
            _ => None,
        });
        for gate in declared {
            version = version.max(gate.version);
            for word in &mut target {
                let number = names::architecture_number(word);
                if number.is_some() && number < names::architecture_number(&gate.architecture) {
                    word.clone_from(&gate.architecture);
                }
            }
        }
        (version, target)
    }

    /// The gate of a name.
    pub fn get(&self, name: &str) -> Option<(&str, &Gate)> {
        self.gates.get_key_value(name).map(|(name, gate)| (name.as_str(), gate))
    }

    /// The gate whose place among the names this is.
    pub fn at(&self, place: usize) -> Option<(&str, &Gate)> {
        self.gates.iter().nth(place).map(|(name, gate)| (name.as_str(), gate))
    }

    /// Where among the names of all gates one is.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.gates.keys().position(|known| known == name)
    }
}

/// A call of a gate in an entry.
pub struct Called<'a> {
    /// Which of the entry's calls of gates it is.
    pub number: u32,
    /// Which of the modules whose gates the entry calls.
    pub slot: usize,
    /// The registers that are passed.
    pub given: &'a [&'a str],
    /// Those that get what comes back.
    pub taken: &'a [&'a str],
}

impl Gate {
    /// How many statements a call of it is.
    pub fn length(&self) -> usize {
        1 + PARAMETERS.len() + self.arguments.len() + self.lines.len() + self.results.len()
    }

    /// Where the moves of its arguments stand in those.
    pub fn moves(&self) -> std::ops::Range<usize> {
        let first = 1 + PARAMETERS.len();
        first..first + self.arguments.len()
    }

    /// The one text that a call of it has: a statement each.
    pub fn lines<'a>(&'a self, name: &str, called: &Called<'a>) -> impl Iterator<Item = String> + use<'a> {
        let Called { number, slot, given, taken } = *called;
        let (arguments, results) = registers(&self.arguments, &self.results);
        let [base, mask] = WINDOW.map(str::to_owned);
        let loads = [base, mask].into_iter().chain(TOLD.map(renamed)).zip(parameters(slot));
        let loads = loads.map(|(into, name)| load(&into, &name));
        let passes = self.arguments.iter().zip(arguments).zip(given);
        let passes =
            passes.map(|((class, own), name)| format!("mov.{} {}, {name}", class.mov(), renamed(&own)));
        let returns = self.results.iter().zip(results).zip(taken);
        let returns =
            returns.map(|((class, own), name)| format!("mov.{} {name}, {}", class.mov(), renamed(&own)));
        let number = number.to_string();
        let inside = self.lines.iter().map(move |line| line.replace(NUMBER, &number));
        let first = format!("{}:", label(called.number, name));
        std::iter::once(first).chain(loads).chain(passes).chain(inside).chain(returns)
    }
}

/// What stands behind the label of a call.
pub fn first_load(slot: usize) -> String {
    let [base, ..] = parameters(slot);
    load("%bh_gbase", &base)
}

fn load(into: &str, parameter: &str) -> String {
    format!("ld.param.u64 {into}, [{parameter}]")
}

/// The registers of a body that say for whom it runs, and what the module fixed for that.
pub const TOLD: [&str; 2] = ["%d0", "%d1"];

/// The registers of a body that hold its arguments, and its results when it ends. The first 64-bit ones are [`TOLD`].
pub fn registers(arguments: &[Class], results: &[Class]) -> (Vec<String>, Vec<String>) {
    let mut next = [0_u32; 4];
    TOLD.iter().for_each(|_| next[Class::Double as usize] += 1);
    let mut name = |class: &Class| {
        let number = &mut next[*class as usize];
        *number += 1;
        format!("{}{}", class.prefix(), *number - 1)
    };
    (arguments.iter().map(&mut name).collect(), results.iter().map(&mut name).collect())
}

/// The hidden parameters for one of the modules whose gates an entry calls.
pub fn parameters(slot: usize) -> [String; PARAMETERS_OF_MODULE] {
    PARAMETERS.map(|name| format!("{}{slot}_{name}", names::GATE_PARAMETER))
}

/// The label that begins a call.
pub fn label(number: u32, name: &str) -> String {
    format!("{LABEL}{number}_{name}")
}

/// Whether a label is one of those.
pub fn is_label(name: &str) -> bool {
    name.starts_with(LABEL)
}

/// The registers that hold where the protected window of the gate's module begins, and what is less than its bytes by one.
pub const WINDOW: [&str; 2] = ["%bh_gbase", "%bh_gmask"];

/// The declaration of so many registers of gates.
pub fn declaration(class: Class, count: u32) -> String {
    let ty = if class == Class::Predicate { "pred" } else { class.mov() };
    format!(".reg .{ty} {}<{count}>", prefix(class))
}

/// What the registers of gates are called.
pub fn prefix(class: Class) -> &'static str {
    match class {
        Class::Predicate => "%bh_gp",
        Class::Half => "%bh_gh",
        Class::Word => "%bh_gr",
        Class::Double => "%bh_gd",
    }
}

/// The line of a body on registers and labels that only gates have. In a canonical text `%` begins the name of a register
/// and `$L` that of a label.
pub(crate) fn renamed(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 16);
    let mut rest = line;
    while let Some(at) = rest.find(['%', '$']) {
        let (before, name) = rest.split_at(at);
        out.push_str(before);
        let end = name.char_indices().skip(1).find(|(_, found)| !is_of_name(*found));
        let (name, after) = name.split_at(end.map_or(name.len(), |(at, _)| at));
        match (Class::parse(name), names::is_canonical_label(name)) {
            (Some((class, number)), _) => out.push_str(&format!("{}{number}", prefix(class))),
            (None, true) => out.push_str(&format!("{LABEL}{NUMBER}_{}", &name[2..])),
            (None, false) => out.push_str(name),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn is_of_name(found: char) -> bool {
    found.is_ascii_alphanumeric() || matches!(found, '_' | '$' | '%')
}

/// What no gate has, since it would wait for other threads, end this one or depend on the caller's memory.
pub fn forbidden(row: &Row, instruction: &Instruction) -> Option<&'static str> {
    let is = |word: &str| instruction.modifiers.iter().any(|modifier| modifier == word);
    let barrier = row.treatment == Treatment::Barrier && !is("warp");
    let lanes = is("sync") || is("warp") || table::is_for_warps(row);
    let elsewhere = access::decode(row, instruction)
        .is_ok_and(|found| found.iter().any(|access| access.space != crate::ast::Space::Global));
    match row.treatment {
        _ if matches!(row.name, "exit" | "ret") => Some("an end of the thread"),
        _ if barrier => Some("a barrier"),
        _ if lanes => Some("an instruction for several lanes"),
        _ if elsewhere || access::generic(row, instruction).is_some() => {
            Some("an access that does not name `.global`")
        }
        _ if row.name == "nanosleep" => Some("`nanosleep`"),
        // There is one for a gate and its callers, who could read it.
        _ if is("cc") => Some("the carry flag"),
        Treatment::Barrier | Treatment::Copy | Treatment::Hint | Treatment::Gate | Treatment::Refused(_) => {
            Some("such an instruction")
        }
        Treatment::Pure
        | Treatment::Move
        | Treatment::Load
        | Treatment::Store
        | Treatment::Atomic
        | Treatment::Reduction
        | Treatment::Branch => None,
    }
}

/// The statement as one line, without what ends it.
pub fn line(statement: &Statement) -> Option<String> {
    match statement {
        Statement::Label(name, _) => Some(format!("{name}:")),
        Statement::Instruction(found) => Some(crate::print::Text(found).to_string()),
        Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_keeps_none_of_the_names_that_entries_have() {
        let line = "@!%p3 mad.lo.s64 %d10, %d0, -8, %d1";
        assert_eq!(renamed(line), "@!%bh_gp3 mad.lo.s64 %bh_gd10, %bh_gd0, -8, %bh_gd1");
        assert_eq!(renamed("$L12:"), "__bh_g#_12:");
        assert_eq!(renamed("@%bh_q bra $L0"), "@%bh_q bra __bh_g#_0");
        let special = "mov.u32 %r1, %tid.x";
        assert_eq!(renamed(special), "mov.u32 %bh_gr1, %tid.x");
        let parts = "vmad.s32.s32.s32 %r1, -%r2.h0, %r3.b1, %r4";
        assert_eq!(renamed(parts), "vmad.s32.s32.s32 %bh_gr1, -%bh_gr2.h0, %bh_gr3.b1, %bh_gr4");
        let vector = "ld.global.v2.b32 {%r1, %r2}, [%bh_a]";
        assert_eq!(renamed(vector), "ld.global.v2.b32 {%bh_gr1, %bh_gr2}, [%bh_a]");
    }
}
