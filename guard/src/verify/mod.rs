//! The verifier: one linear pass that decides whether a text may run beside other sessions.
//!
//! It shares the parser, the opcode table, which registers are written (`flow`) and what follows from one instruction (`values`) with the
//! rewriter and nothing else. What is claimed of where lanes are and of the numbers in registers (`claims`) it checks, and works out nothing
//! of that itself: what it accepts is written down in the crate's documentation as the confined form, and the rewriter's output is to
//! it like anybody's.

mod body;
mod bounds;
pub(crate) mod convergence;
pub(crate) mod declarations;
pub(crate) mod fuel;
mod gates;
mod meets;
pub(crate) mod numbers;
mod opening;
mod sequence;
pub(crate) mod turns;

use crate::maps::{HashMap, HashSet};
use std::borrow::Cow;
use std::sync::LazyLock;

pub(crate) use gates::gate;

use crate::ast::{Function, FunctionKind, Item, Linkage, Module, Place, Space, Span, Statement, Variable};
use crate::claims::fuel::Fuel;
use crate::claims::{Body, Claims};
use crate::footprint::{self, Footprint};
use crate::gates::{Gates, PARAMETERS_OF_MODULE};
use crate::limits::{
    CONSTANT_BYTES_MAX, PARAMETER_BYTES_MAX, PTX_VERSION_MAX, PTX_VERSION_MIN, SHARED_BYTES_MAX,
};
use crate::most::{self, Parts};
use crate::names::{self, HIDDEN_PARAMETERS, SLICE_PARAMETERS};
use crate::print::Text;
use crate::report::{Reason, Report};
use crate::values::Root;

/// An entry of a verified module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedEntry {
    /// What the tenant calls it.
    pub name: String,
    /// Its name in the text, which the device has it under.
    pub symbol: String,
    /// How many parameters the launch gives, hidden ones included.
    pub parameters: usize,
    /// How many of them, the last ones, are hidden: base, mask and caller for each of `modules`; where it reads anything of the
    /// grid that it is a slice of, [`SLICE_PARAMETERS`]; then base, load mask and store mask.
    pub hidden: usize,
    /// Whether its grid may be cut into slices, each a launch of this entry, not its fast version: what it reads of the grid
    /// it reads of all slices.
    pub sliceable: bool,
    /// The modules whose gates it calls, as [`Gates::add`] names them: whoever launches it gives it, for each in
    /// this order, where the module's protected window begins, how many bytes it has less one, and who the caller is.
    /// A window is a power of two long and begins with a multiple of that.
    pub modules: Vec<String>,
    /// How many bytes of dynamic shared memory every launch has to give, at most
    /// [`DYNAMIC_SPAN_MAX`](crate::limits::DYNAMIC_SPAN_MAX). Whoever launches raises a smaller number to this:
    /// it is what the clamps of shared accesses rest on.
    pub dynamic_shared_min: u32,
    /// Its fast version, where there is one.
    pub fast: Option<FastVersion>,
}

/// What a launch gives a fast version by a pointer among its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerTerm {
    /// Which parameter.
    pub parameter: usize,
    /// Where in it the eight bytes of the pointer lie, in bytes.
    pub offset: u32,
    /// Of what it is a multiple, in bytes: a power of two, at most 16.
    pub align: u32,
    /// Whether it points into the part of the window that stores reach; where not, into any part of it.
    pub writes: bool,
}

/// What a word among the parameters of a fast version is at most, as a number without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundTerm {
    /// Which parameter.
    pub parameter: usize,
    /// Where in it the four bytes of the word lie, in bytes.
    pub offset: u32,
    /// What it does not exceed.
    pub most: u32,
}

/// How large a block of a fast version may be: so that what its threads access lies in the block's shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedTerm {
    /// Bytes by where in its block a thread is.
    pub by: Parts,
    /// Bytes besides.
    pub constant: u64,
    /// What all of them together do not exceed; the launch's dynamic shared memory where that is none.
    pub at_most: Option<u64>,
}

impl SharedTerm {
    /// Whether blocks of this shape keep it, which have so many bytes of dynamic shared memory.
    #[must_use]
    pub fn admits(&self, block: [u32; 3], dynamic_bytes: u64) -> bool {
        most::of_last(&self.by, block) + u128::from(self.constant)
            <= u128::from(self.at_most.unwrap_or(dynamic_bytes))
    }
}

/// Another version of an entry, for launches that keep its terms: what follows from them is not confined again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastVersion {
    /// Its name in the text, which the device has it under; its parameters are those of the entry.
    pub symbol: String,
    /// What every launch of it gives.
    pub pointers: Vec<PointerTerm>,
    /// And how large its blocks are: at most [`SHARED_TERMS_MAX`](crate::limits::SHARED_TERMS_MAX) terms.
    pub shared: Vec<SharedTerm>,
    /// And what words among its parameters are: at most [`BOUND_TERMS_MAX`](crate::limits::BOUND_TERMS_MAX) terms.
    pub bounds: Vec<BoundTerm>,
    /// What a thread does that never looks at the flag, in the units of the opcode table, at most
    /// [`SHORT_COST_MAX`](crate::limits::SHORT_COST_MAX): whoever launches bounds what all threads do together. 0 where
    /// threads look.
    pub work: u32,
    /// Whether no two rows of a block may have a warp in common: blocks are a multiple of 32 wide, or have one row.
    pub rows: bool,
}

/// A text that has been verified. There is no other way to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    text: String,
    architecture: u32,
    entries: Vec<VerifiedEntry>,
    footprints: Vec<Footprint>,
}

impl Verified {
    /// The text to compile, byte for byte.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of the architecture that its `.target` names: 90 for `sm_90a`.
    #[must_use]
    pub fn architecture(&self) -> u32 {
        self.architecture
    }

    /// The entries, in the order of the text.
    #[must_use]
    pub fn entries(&self) -> &[VerifiedEntry] {
        &self.entries
    }

    /// What the entries ask of the device, in the same order: the bounds of their machine code.
    #[must_use]
    pub fn footprints(&self) -> &[Footprint] {
        &self.footprints
    }
}

/// What is known of a variable.
#[derive(Debug, Clone, Copy)]
struct Extent {
    space: Space,
    /// 0 for the block's dynamic shared memory.
    bytes: u64,
    align: u64,
}

/// Variables and parameters by name: the module's, which all entries share, and an entry's own.
struct Extents<'a> {
    module: &'a HashMap<&'a str, Extent>,
    own: HashMap<&'a str, Extent>,
}

impl<'a> Extents<'a> {
    fn none() -> Self {
        static NONE: LazyLock<HashMap<&str, Extent>> = LazyLock::new(HashMap::default);
        Self { module: &NONE, own: HashMap::default() }
    }

    fn get(&self, name: &str) -> Option<&Extent> {
        self.own.get(name).or_else(|| self.module.get(name))
    }

    /// Whether no other variable takes a place in a block's shared memory that is known before its launch.
    fn is_all_static_shared(&self, name: &str) -> bool {
        let mut others = self.own.iter().chain(self.module).filter(|(other, _)| **other != name);
        others.all(|(_, extent)| extent.space != Space::Shared || extent.bytes == 0)
    }

    /// Declares a name of the entry; false where it is taken.
    fn insert(&mut self, name: &'a str, extent: Extent) -> bool {
        !self.module.contains_key(name) && self.own.insert(name, extent).is_none()
    }
}

/// Who claims something of the bodies of a text.
trait Claimant<'c> {
    /// What is claimed of an entry's body, by its name in the text; whether it is a fast version.
    fn claims(&mut self, entry: &str, statements: &[Statement], is_fast: bool) -> Cow<'c, Body>;

    /// What was worked out of its fuel, where nothing was claimed of that.
    fn fuel(&mut self, _entry: &str, _fuel: Fuel) {}
}

/// All is worked out here.
struct WorkedOut;

impl Claimant<'static> for WorkedOut {
    fn claims(&mut self, _: &str, statements: &[Statement], is_fast: bool) -> Cow<'static, Body> {
        Cow::Owned(Body::of(statements, is_fast))
    }
}

/// The same, and it is written down.
struct WrittenDown(Claims);

impl Claimant<'static> for WrittenDown {
    fn claims(&mut self, entry: &str, statements: &[Statement], is_fast: bool) -> Cow<'static, Body> {
        let body = Body::of(statements, is_fast);
        self.0.0.insert(entry.to_owned(), body.clone());
        Cow::Owned(body)
    }

    fn fuel(&mut self, entry: &str, fuel: Fuel) {
        if let Some(body) = self.0.0.get_mut(entry) {
            body.fuel = Some(fuel);
        }
    }
}

/// Somebody else has claimed something. It goes to the first entry of a name: others of it are refused in any case, and would
/// read all of it again.
struct Somebody<'c> {
    claims: &'c Claims,
    said: HashSet<&'c str>,
}

impl<'c> Claimant<'c> for Somebody<'c> {
    fn claims(&mut self, entry: &str, _: &[Statement], _: bool) -> Cow<'c, Body> {
        match self.claims.0.get_key_value(entry) {
            Some((name, claimed)) if self.said.insert(name.as_str()) => Cow::Borrowed(claimed),
            _ => Cow::Owned(Body::nothing()),
        }
    }
}

/// Verifies a canonical text, without trusting whoever wrote it. It may call no gates.
pub fn verify(text: &str) -> Result<Verified, Report> {
    verify_with(text, &Gates::default())
}

/// As [`verify`], of a text that may call these gates.
pub fn verify_with(text: &str, gates: &Gates) -> Result<Verified, Report> {
    verify_as(text, gates, &mut WorkedOut)
}

/// As [`verify_with`], of a text of which somebody claims this.
pub fn verify_claimed(text: &str, claims: &Claims, gates: &Gates) -> Result<Verified, Report> {
    verify_as(text, gates, &mut Somebody { claims, said: HashSet::default() })
}

/// What [`verify_with`] takes a text to claim, whether it is accepted or not.
pub fn claims(text: &str, gates: &Gates) -> Claims {
    let mut claims = WrittenDown(Claims::default());
    let verified = verify_as(text, gates, &mut claims);
    drop(verified);
    claims.0
}

fn verify_as(text: &str, gates: &Gates, claims: &mut dyn Claimant<'_>) -> Result<Verified, Report> {
    let module = crate::parse(text)?;
    let mut report = Report::default();
    if !Text(&module).is(text) {
        refuse(&mut report, FIRST, "the text is not its own canonical print");
        return Err(report);
    }
    if let Err(reason) = header(&module) {
        report.add(FIRST, reason);
    }
    let mut extents = HashMap::default();
    let mut entries = Vec::new();
    let mut names = HashSet::default();
    let mut constant_bytes = 0_u64;
    for item in &module.items {
        match item {
            Item::Variable(variable) => match module_variable(variable) {
                Ok(extent) => {
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
                    fast(function, before, (&extents, gates, claims), entries.last_mut(), &mut report);
                }
                None => refuse(&mut report, function.span, "a fast version that does not follow its entry"),
            }
            continue;
        }
        if let Some(entry) = entry(function, (&extents, gates, claims), &mut report) {
            before = Some(function);
            entries.push(entry);
        }
    }
    let architecture = module.target.first().and_then(|word| names::architecture_number(word)).unwrap_or(0);
    report.or(Verified { text: text.to_owned(), architecture, entries, footprints: footprint::of(&module) })
}

fn refuse(report: &mut Report, span: Span, what: &str) {
    report.add(span, Reason::Unverified(what.to_owned()));
}

fn unverified(what: &str) -> Reason {
    Reason::Unverified(what.to_owned())
}

/// The text's first character.
const FIRST: Span = Span { place: Place { line: 1, column: 1 }, start: 0, end: 1 };

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

fn extent(variable: &Variable) -> Option<Extent> {
    names::is_tenants(&variable.name).then_some(())?;
    let plain = variable.pointer.is_none() && variable.range.is_none() && variable.attributes.is_empty();
    let fits = |bytes: &u64| variable.space != Space::Shared || *bytes <= SHARED_BYTES_MAX;
    let bytes = names::variable_bytes(variable).filter(|_| plain).filter(fits)?;
    Some(Extent { space: variable.space, bytes, align: names::variable_align(variable) })
}

fn entry(
    function: &Function,
    known: (&HashMap<&str, Extent>, &Gates, &mut dyn Claimant<'_>),
    report: &mut Report,
) -> Option<VerifiedEntry> {
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
    known: (&HashMap<&str, Extent>, &Gates, &mut dyn Claimant<'_>),
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
    (module, gates, claims): (&'a HashMap<&'a str, Extent>, &'a Gates, &mut dyn Claimant<'_>),
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
    let (own, modules) = gates::slots(own);
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
    let sliced = of_slice > 0 && !is_fast;
    let claims = (claims, function.name.as_str());
    Some(body::verify(statements, extents, (is_fast, sliced), (gates, modules), (claims, report)))
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
