//! A text: its header, its variables and its entries, and what is known of one that has been verified.

use crate::ast::{Function, FunctionKind, Item, Linkage, Module, Space, Variable};
use crate::body::{self, Asked, Version};
use crate::claimant::{Claimant, Somebody};
use crate::claims::Claims;
use crate::extents::{Extent, Extents, ModuleExtents, extent};
use crate::footprint;
use crate::gate_bodies;
use crate::gates::{Gates, PARAMETERS_OF_MODULE};
use crate::limits::{CONSTANT_BYTES_MAX, PARAMETER_BYTES_MAX, PTX_VERSION_MAX, PTX_VERSION_MIN};
use crate::maps::{HashMap, HashSet};
use crate::names::{self, HIDDEN_PARAMETERS, SLICE_PARAMETERS};
use crate::print::Text;
use crate::refusal::{FIRST, refuse, unverified};
use crate::report::{Reason, Report};
use crate::values::Root;
use crate::verified::{BoundTerm, FastVersion, PointerTerm, SharedTerm, Verified, VerifiedEntry};

/// The shortest statements of a canonical print are labels, of which no two are the same: a text with its header has no more
/// statements than one in so many bytes.
const STATEMENT_BYTES_MIN: usize = 7;

/// Verifies a canonical text of which somebody claims this, without trusting whoever wrote either. It may call these gates.
///
/// # Errors
/// What stands against it, and where.
pub fn verify(text: &str, claims: &Claims, gates: &Gates) -> Result<Verified, Report> {
    verify_by(text, gates, &mut Somebody::new(claims))
}

/// As [`verify`], where claims are asked for while the text is gone through.
///
/// # Errors
/// As [`verify`].
pub fn verify_by(text: &str, gates: &Gates, claims: &mut dyn Claimant<'_>) -> Result<Verified, Report> {
    // What is denser is no print, and would take more memory than is charged.
    let module = bulkhead_ptx::parse::parse_short(text, text.len() / STATEMENT_BYTES_MIN)?;
    let mut report = Report::default();
    if !Text(&module).is(text) {
        refuse(&mut report, FIRST, "the text is not its own canonical print");
        return Err(report);
    }
    if let Err(reason) = header(&module) {
        report.add(FIRST, reason);
    }
    let mut extents = ModuleExtents::default();
    let mut entries = Vec::new();
    let mut names = HashSet::default();
    let mut constant_bytes = 0_u64;
    let mut dynamic_align = None;
    for item in &module.items {
        match item {
            Item::Variable(variable) => match module_variable(variable) {
                Ok(extent) => {
                    let align = extent.align;
                    let is_dynamic = extent.space == Space::Shared && extent.bytes == 0;
                    // ptxas has each begin where its own alignment allows: only those that agree name the same bytes.
                    if is_dynamic && *dynamic_align.get_or_insert(align) != align {
                        refuse(&mut report, variable.span, "dynamic shared memory of another alignment");
                    }
                    if extent.space == Space::Constant {
                        constant_bytes = constant_bytes.saturating_add(extent.bytes);
                    }
                    if constant_bytes > CONSTANT_BYTES_MAX || !names.insert(variable.name.as_str()) {
                        refuse(&mut report, variable.span, "a variable too many");
                    }
                    extents.insert(variable.name.as_str(), extent);
                }
                Err(reason) => report.add(variable.span, reason),
            },
            Item::Directive(directive) => refuse(&mut report, directive.span, "a directive"),
            Item::Section(section) => refuse(&mut report, section.span, "a section"),
            Item::Function(_) => {}
        }
    }
    // The entry that a fast version may follow.
    let mut before = None;
    for item in &module.items {
        let Item::Function(function) = item else { continue };
        if !names.insert(function.name.as_str()) {
            refuse(&mut report, function.span, "a name that is declared twice");
        }
        if names::is_fast_version(&function.name) {
            match before.take() {
                Some(before) => {
                    let known = Known { module: &extents, gates, claims };
                    fast(function, before, known, entries.last_mut(), &mut report);
                }
                None => refuse(&mut report, function.span, "a fast version that does not follow its entry"),
            }
            continue;
        }
        if let Some(entry) = entry(function, Known { module: &extents, gates, claims }, &mut report) {
            before = Some(function);
            entries.push(entry);
        }
    }
    let architecture = module.target.first().and_then(|word| names::architecture_number(word)).unwrap_or(0);
    report.or(Verified { text: text.to_owned(), architecture, entries, footprints: footprint::of(&module) })
}

fn header(module: &Module) -> Result<(), Reason> {
    let version = (PTX_VERSION_MIN..=PTX_VERSION_MAX).contains(&module.version);
    let target = matches!(module.target.as_slice(), [word] if names::is_new_architecture(word));
    if version && target && module.address_size == 64 { Ok(()) } else { Err(unverified("the header")) }
}

fn module_variable(variable: &Variable) -> Result<Extent, Reason> {
    let numbers = names::are_numbers(&variable.initializer);
    let dynamic = variable.dimensions.as_slice() == [0];
    let fits = match (variable.space, variable.linkage) {
        (Space::Shared, Linkage::Internal | Linkage::Visible) => !dynamic && variable.initializer.is_empty(),
        (Space::Shared, Linkage::Extern) => dynamic && variable.initializer.is_empty(),
        (Space::Constant, Linkage::Internal | Linkage::Visible) => !dynamic,
        _ => false,
    };
    let aligned = names::variable_align(variable) >= names::WIDEST_ACCESS;
    if !(fits && numbers && aligned) {
        return Err(unverified("a module-scope variable of this kind"));
    }
    extent(variable)
        .filter(|extent| dynamic || extent.bytes > 0)
        .ok_or_else(|| unverified("a variable without a size"))
}

/// What the entries of a module are verified with.
struct Known<'a, 'c, 'd> {
    module: &'a ModuleExtents<'a>,
    gates: &'a Gates,
    claims: &'c mut dyn Claimant<'d>,
}

fn entry(function: &Function, known: Known<'_, '_, '_>, report: &mut Report) -> Option<VerifiedEntry> {
    let terms = version(function, known, false, report)?;
    let name = names::tenants_entry(&function.name).filter(|name| names::check_entry(name).is_ok());
    let Some(name) = name else {
        refuse(report, function.span, "an entry with a name of another kind");
        return None;
    };
    Some(VerifiedEntry {
        name: name.to_owned(),
        symbol: function.name.clone(),
        parameters: function.parameters.len(),
        hidden: HIDDEN_PARAMETERS.len()
            + without_slices(&function.parameters).1
            + terms.modules.len() * PARAMETERS_OF_MODULE,
        sliceable: !terms.reads_grid,
        modules: terms.modules.iter().map(|module| (*module).to_owned()).collect(),
        dynamic_shared_min: u32::try_from(terms.dynamic_shared_min).unwrap_or(u32::MAX),
        fast: None,
    })
}

/// The fast version of the entry before it, which is given the same parameters under the same directives.
fn fast(
    function: &Function,
    before: &Function,
    known: Known<'_, '_, '_>,
    entry: Option<&mut VerifiedEntry>,
    report: &mut Report,
) {
    let Some(entry) = entry else { return };
    let declared = |function: &Function| {
        let (parameters, directives) = (function.parameters.iter(), function.directives.iter());
        let parameters = parameters.map(|parameter| Text(parameter).to_string());
        parameters.chain(directives.map(|directive| Text(directive).to_string())).collect::<Vec<_>>()
    };
    if function.name != names::fast(&entry.name) || declared(function) != declared(before) {
        return refuse(report, function.span, "a fast version that is not declared as its entry");
    }
    let Some(terms) = version(function, known, true, report) else { return };
    if terms.modules != entry.modules {
        return refuse(report, function.span, "a fast version that calls gates of other modules");
    }
    let dynamic = u32::try_from(terms.dynamic_shared_min).unwrap_or(u32::MAX);
    entry.dynamic_shared_min = entry.dynamic_shared_min.max(dynamic);
    let work = u32::try_from(terms.work).unwrap_or(u32::MAX);
    let rows = terms.rows;
    // Claims are made at labels that nobody comes to as well: what is told of parameters lies in them.
    let place = |root: Root<'_>, bytes: u64| {
        let parameter = function.parameters.iter().position(|found| found.name == root.parameter)?;
        let end = u64::try_from(root.offset).ok()?.checked_add(bytes)?;
        let all = names::variable_bytes(function.parameters.get(parameter)?)?;
        (end <= all).then_some((parameter, u32::try_from(root.offset).ok()?))
    };
    let bounds = terms.bounds.into_iter().map(|(root, most)| {
        let (parameter, offset) = place(root, 4)?;
        Some(BoundTerm { parameter, offset, most })
    });
    let pointers = terms.pointers.into_iter().map(|(root, (align, writes))| {
        let (parameter, offset) = place(root, 8)?;
        Some(PointerTerm { parameter, offset, align: u32::try_from(align).ok()?, writes })
    });
    let shared = terms.shared.into_iter();
    let shared = shared.map(|((by, at_most), constant)| SharedTerm { by, constant, at_most }).collect();
    match (pointers.collect(), bounds.collect()) {
        (Some(pointers), Some(bounds)) => {
            let symbol = function.name.clone();
            entry.fast = Some(FastVersion { symbol, pointers, shared, bounds, work, rows });
        }
        _ => refuse(report, function.span, "a term on what is not in the parameters"),
    }
}

fn version<'a>(
    function: &'a Function,
    Known { module, gates, claims }: Known<'a, '_, '_>,
    is_fast: bool,
    report: &mut Report,
) -> Option<body::Terms<'a>> {
    let plain = function.kind == FunctionKind::Entry
        && matches!(function.linkage, Linkage::Internal | Linkage::Visible)
        && function.returns.is_empty()
        && function.attributes.is_empty();
    let Some(statements) = function.body.as_ref().filter(|_| plain) else {
        refuse(report, function.span, "something other than an entry with a body");
        return None;
    };
    for (index, directive) in function.directives.iter().enumerate() {
        let again = function.directives.iter().take(index).any(|other| other.name == directive.name);
        if again || !names::is_launch_bound(directive) {
            refuse(report, directive.span, "a directive that does not bound the launch");
        }
    }
    let mut extents = Extents { module, own: HashMap::default() };
    let (own, of_slice) = match function.parameters.split_last_chunk::<3>() {
        Some((_, hidden)) if are_hidden(hidden, HIDDEN_PARAMETERS) => without_slices(&function.parameters),
        _ => {
            refuse(report, function.span, "an entry whose last parameters are not the hidden ones");
            return None;
        }
    };
    let (own, modules) = gate_bodies::slots(own);
    let hidden = 4 * (HIDDEN_PARAMETERS.len() + of_slice) + 8 + 8 * modules * PARAMETERS_OF_MODULE;
    let mut bytes = hidden as u64;
    for parameter in own {
        let extent = extent(parameter)
            .filter(|extent| extent.space == Space::Parameter && extent.bytes > 0)
            .filter(|_| parameter.vector == 1 && parameter.initializer.is_empty());
        let Some(extent) = extent else {
            refuse(report, parameter.span, "a parameter of this kind");
            continue;
        };
        bytes = bytes.saturating_add(extent.bytes).saturating_add(extent.align);
        if !extents.insert(&parameter.name, extent) {
            refuse(report, parameter.span, "a name that is declared twice");
        }
    }
    if bytes > PARAMETER_BYTES_MAX {
        refuse(report, function.span, "too many bytes of parameters");
    }
    // The grid of a fast version is not cut.
    let version = Version { is_fast, is_sliced: of_slice > 0 && !is_fast, modules };
    let asked = Asked { claimant: claims, name: &function.name };
    Some(body::verify(statements, extents, version, gates, asked, report))
}

fn are_hidden<const COUNT: usize>(parameters: &[Variable; COUNT], names: [&str; COUNT]) -> bool {
    let expected = |name: &str| format!(".param .u32 {name}");
    parameters.iter().zip(names).all(|(found, name)| Text(found).to_string() == expected(name))
}

/// The parameters that are not hidden, and how many of the hidden ones tell of a slice; the last three are hidden.
fn without_slices(parameters: &[Variable]) -> (&[Variable], usize) {
    let (own, _) = parameters.split_at(parameters.len().saturating_sub(HIDDEN_PARAMETERS.len()));
    match own.split_last_chunk() {
        Some((own, hidden)) if are_hidden(hidden, SLICE_PARAMETERS) => (own, hidden.len()),
        _ => (own, 0),
    }
}
