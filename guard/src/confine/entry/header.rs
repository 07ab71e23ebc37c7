//! What stands before the body of an entry: its parameters and directives.

use crate::maps::HashSet;

use crate::ast::{Directive, Function, Space, Variable};
use crate::confine::lines;
use crate::confine::slices::Slices;
use crate::confine::symbols::Symbols;
use crate::limits::PARAMETER_BYTES_MAX;
use crate::names::{self};
use crate::report::{Reason, Report, shorten};

/// What a confined entry has before its body.
#[derive(Clone, Default)]
pub(crate) struct Header {
    pub(crate) parameters: Vec<Variable>,
    pub(crate) directives: Vec<Directive>,
}

pub(crate) fn parameters(
    function: &Function,
    ours: &[Variable],
    for_gates: Vec<Variable>,
    slices: Slices,
    symbols: &Symbols,
    report: &mut Report,
) -> Vec<Variable> {
    let hidden = names::SLICE_PARAMETERS.into_iter().filter(|_| slices.any()).chain(names::HIDDEN_PARAMETERS);
    let hidden: Vec<Variable> = hidden.map(|name| lines::hidden_parameter(name, function.span)).collect();
    let mut bytes = (4 * hidden.len() + 8 + 8 * for_gates.len()) as u64;
    let mut parameters: Vec<Variable> = Vec::with_capacity(function.parameters.len() + 4);
    let mut taken = HashSet::default();
    for parameter in &function.parameters {
        match parameter_bytes(parameter) {
            Ok(size) => bytes = bytes.saturating_add(size),
            Err(reason) => report.add(parameter.span, reason),
        }
        if !taken.insert(parameter.name.as_str()) || symbols.contains(&parameter.name) {
            report.add(parameter.span, Reason::Duplicate(parameter.name.clone()));
        }
        // `.ptr .align` is a promise about a value that nobody checks: ptxas would leave out the instruction
        // that makes it true.
        parameters.push(Variable { pointer: None, ..parameter.clone() });
    }
    for parameter in ours {
        bytes = bytes.saturating_add(parameter_bytes(parameter).unwrap_or(u64::MAX));
        parameters.push(parameter.clone());
    }
    if bytes > PARAMETER_BYTES_MAX {
        let what = "bytes of parameters";
        report.add(function.span, Reason::Limit { what, most: PARAMETER_BYTES_MAX });
    }
    parameters.extend(for_gates);
    parameters.extend(hidden);
    parameters
}

/// Bytes that a parameter takes at most, its alignment included.
pub(crate) fn parameter_bytes(parameter: &Variable) -> Result<u64, Reason> {
    names::check_symbol(&parameter.name)?;
    let bytes = names::variable_bytes(parameter).filter(|bytes| *bytes > 0);
    match bytes {
        Some(bytes) if parameter.space == Space::Parameter && parameter.vector == 1 => {
            Ok(bytes.saturating_add(names::variable_align(parameter)))
        }
        _ => Err(Reason::NotImplemented { what: format!("a parameter like `{}`", parameter.name) }),
    }
}

/// Directives that bound the launch; the launch fails where they do not hold.
pub(crate) fn directives(function: &Function, report: &mut Report) -> Vec<Directive> {
    let mut kept: Vec<Directive> = Vec::new();
    for directive in &function.directives {
        if is_droppable(directive) {
            continue;
        }
        if names::is_launch_bound(directive) && kept.iter().all(|other| other.name != directive.name) {
            kept.push(directive.clone());
            continue;
        }
        report.add(directive.span, Reason::NotImplemented { what: named(directive) });
    }
    kept
}

/// Of how many operands a message tells.
pub(crate) const OPERANDS_NAMED: usize = 4;

/// A directive as a message names it; its operands may be long.
pub(crate) fn named(directive: &Directive) -> String {
    let operands: Vec<_> = directive.operands.iter().take(OPERANDS_NAMED).map(|text| shorten(text)).collect();
    let operands = operands.join(", ");
    let text = format!("{} {}", directive.name, shorten(&operands));
    format!("the directive `{}`", text.trim_end())
}

/// Bytes of what only advises: each call of a function looks at that.
pub(crate) const ADVICE_BYTES_MAX: usize = 256;

/// Whether a directive is for debuggers or only advises the compiler: it is left out.
pub(crate) fn is_droppable(directive: &Directive) -> bool {
    if matches!(directive.name.as_str(), ".file" | ".loc") {
        return true;
    }
    let advice = |text: &String| {
        if text.len() > ADVICE_BYTES_MAX {
            return false;
        }
        let text = text.trim_matches('"').trim();
        text == "nounroll" || text.starts_with("used_bytes_mask ")
    };
    directive.name == ".pragma" && !directive.operands.is_empty() && directive.operands.iter().all(advice)
}
