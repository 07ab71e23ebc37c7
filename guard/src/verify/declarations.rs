//! The top of a body: declarations, then the prologue.

use std::collections::HashMap;

use super::{Extent, Extents, extent, refuse};
use crate::ast::{Linkage, Place, Space, Statement, Variable};
use crate::limits::{LOCAL_BYTES_MAX, REGISTERS_MAX};
use crate::names::{self, Class};
use crate::print::Text;
use crate::report::Report;

/// The registers and variables of a body.
pub(super) struct Declared<'a> {
    pub(super) extents: Extents<'a>,
    /// How many registers of each class there are.
    pub(super) registers: HashMap<Class, u32>,
    /// The one local variable.
    pub(super) local: Option<(&'a str, Extent)>,
}

/// Takes the declarations and the prologue off the front of a body; what is left follows them.
pub(super) fn take<'a>(
    statements: &'a [Statement],
    extents: Extents<'a>,
    report: &mut Report,
) -> (Declared<'a>, &'a [Statement]) {
    let mut declared = Declared { extents, registers: HashMap::new(), local: None };
    let count = statements.iter().take_while(|found| matches!(found, Statement::Variable(_))).count();
    let (variables, rest) = statements.split_at(count);
    let variables: Vec<&Variable> = variables
        .iter()
        .filter_map(|statement| match statement {
            Statement::Variable(variable) => Some(variable),
            _ => None,
        })
        .collect();
    let mut left = variables.as_slice();
    for class in Class::ALL {
        if let Some((first, others)) = left.split_first()
            && let Some(count) = tenant_registers(first, class)
        {
            declared.registers.insert(class, count);
            left = others;
        }
    }
    for expected in own_registers() {
        match left.split_first() {
            Some((first, others)) if Text(*first).to_string() == expected => left = others,
            _ => {
                let place = left.first().map_or_else(Place::default, |variable| variable.place);
                refuse(report, place, &format!("`{expected}` is missing"));
                return (declared, rest);
            }
        }
    }
    for variable in left {
        declare(variable, &mut declared, report);
    }
    let rest = prologue(&declared, rest, report);
    (declared, rest)
}

/// The number of registers that a declaration like `.reg .b32 %r<5>` of this class declares.
fn tenant_registers(variable: &Variable, class: Class) -> Option<u32> {
    let count = variable.range.filter(|count| u64::from(*count) <= REGISTERS_MAX)?;
    let expected = match class {
        Class::Predicate => format!(".reg .pred %p<{count}>"),
        Class::Half => format!(".reg .b16 %h<{count}>"),
        Class::Word => format!(".reg .b32 %r<{count}>"),
        Class::Double => format!(".reg .b64 %d<{count}>"),
    };
    (Text(variable).to_string() == expected).then_some(count)
}

fn own_registers() -> impl Iterator<Item = String> {
    let words = names::HIDDEN_REGISTERS.iter().chain(&names::SCRATCH_32);
    words
        .map(|name| format!(".reg .b32 {name}"))
        .chain(names::SCRATCH_64.iter().map(|name| format!(".reg .b64 {name}")))
}

fn declare<'a>(variable: &'a Variable, declared: &mut Declared<'a>, report: &mut Report) {
    let plain = variable.linkage == Linkage::Internal && variable.initializer.is_empty();
    let found = extent(variable).filter(|extent| plain && extent.bytes > 0);
    let Some(extent) = found else {
        refuse(report, variable.place, "a variable of this kind in a body");
        return;
    };
    match extent.space {
        Space::Shared => {}
        Space::Local => {
            let fits = extent.bytes <= LOCAL_BYTES_MAX && extent.align >= names::WIDEST_ACCESS;
            if declared.local.is_some() || !fits {
                refuse(report, variable.place, "a local variable too many, too large or not aligned");
                return;
            }
            declared.local = Some((&variable.name, extent));
        }
        Space::Global | Space::Constant | Space::Parameter | Space::Register => {
            refuse(report, variable.place, "a declaration of this state space in a body");
        }
    }
    if !declared.extents.insert(&variable.name, extent) {
        refuse(report, variable.place, "a name that is declared twice");
    }
}

/// The hidden parameters are loaded before anything else, and the local variable is zeroed, every byte of it.
fn prologue<'a>(
    declared: &Declared<'_>,
    statements: &'a [Statement],
    report: &mut Report,
) -> &'a [Statement] {
    let mut expected: Vec<String> = Vec::new();
    for (register, parameter) in names::HIDDEN_REGISTERS.iter().zip(names::HIDDEN_PARAMETERS) {
        expected.push(format!("ld.param.u32 {register}, [{parameter}]"));
    }
    if let Some((name, extent)) = declared.local {
        expected.push("mov.b32 %bh_zero, 0".to_owned());
        let mut at = 0;
        while at < extent.bytes {
            let address = if at == 0 { format!("[{name}]") } else { format!("[{name}+{at}]") };
            let (bytes, store) = match extent.bytes - at {
                16.. => {
                    (16, format!("st.local.v4.b32 {address}, {{%bh_zero, %bh_zero, %bh_zero, %bh_zero}}"))
                }
                4.. => (4, format!("st.local.b32 {address}, %bh_zero")),
                _ => (1, format!("st.local.b8 {address}, %bh_zero")),
            };
            expected.push(store);
            at += bytes;
        }
    }
    let mut rest = statements;
    for line in expected {
        match rest.split_first() {
            Some((Statement::Instruction(found), others)) if Text(found).to_string() == line => rest = others,
            Some((Statement::Instruction(found), _)) => {
                refuse(report, found.place, &format!("the prologue lacks `{line}`"));
                return rest;
            }
            _ => {
                refuse(report, Place::default(), &format!("the prologue lacks `{line}`"));
                return rest;
            }
        }
    }
    rest
}
