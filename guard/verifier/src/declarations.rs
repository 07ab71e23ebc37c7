//! The top of a body: declarations, then the prologue.

use crate::maps::{HashMap, HashSet};

use crate::ast::{Linkage, Operand, Space, Span, Statement, Variable};
use crate::extents::{Extent, Extents, extent};
use crate::fuel;
use crate::gates;
use crate::limits::{
    LITTLE_BYTES_MAX, LOCAL_BYTES_IN_LINE_MAX, LOCAL_BYTES_MAX, LOCAL_BYTES_PER_TURN, REGISTERS_MAX,
    SHARED_BASE, SHARED_VARIABLES_MAX,
};
use crate::lines::strip;
use crate::names::{self, Class};
use crate::print::Text;
use crate::refusal::refuse;
use crate::report::Report;

/// The registers and variables of a body.
pub(crate) struct Declared<'a> {
    pub(crate) extents: Extents<'a>,
    /// How many registers of each class there are.
    pub(crate) registers: HashMap<Class, u32>,
    /// The one local variable.
    pub(crate) local: Option<(&'a str, Extent)>,
    /// What lies between `%bh_low` and `%bh_top`; none where the prologue sets neither.
    pub(crate) shared: Option<SharedBounds<'a>>,
    /// Whether the prologue loads the flag.
    pub(crate) looks: bool,
    /// How many counters of turns there are.
    pub(crate) counters: u32,
    /// How many registers of each class gates have.
    pub(crate) of_gates: [u32; 4],
    /// Whether it is a gate's own body, where accesses to the protected window may be.
    pub(crate) in_gate: bool,
    /// What the prologue computes of the grid that the launch is a slice of.
    pub(crate) grid: HashSet<&'static str>,
}

impl<'a> Declared<'a> {
    fn of(extents: Extents<'a>) -> Self {
        Self {
            extents,
            registers: HashMap::default(),
            local: None,
            shared: None,
            looks: false,
            counters: 0,
            of_gates: [0; 4],
            in_gate: false,
            grid: HashSet::default(),
        }
    }

    /// Of a gate's own body, which has no variables.
    pub(crate) fn of_gate() -> Self {
        Self { in_gate: true, ..Self::of(Extents::none()) }
    }
}

/// The shared memory that the prologue's bounds cover.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedBounds<'a> {
    /// The static variables, and how many bytes into each the bounds begin.
    pub(crate) names: HashMap<&'a str, u64>,
    /// Instructions that compute them.
    pub(crate) cost: u64,
    /// Bytes that they cover of static variables, all different.
    pub(crate) static_bytes: u64,
    /// Whether the block's dynamic shared memory is covered too.
    pub(crate) dynamic: bool,
    /// Whether its bytes may be no multiple of those of the widest access.
    ragged: bool,
    /// Where they begin in the block's shared memory, where all static variables that there are is one.
    pub(crate) at: Option<u64>,
}

/// Takes the declarations and the prologue off the front of a body; what is left follows them.
pub(crate) fn take<'a>(
    statements: &'a [Statement],
    extents: Extents<'a>,
    sliced: bool,
    report: &mut Report,
) -> (Declared<'a>, &'a [Statement]) {
    let mut declared = Declared::of(extents);
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
    for expected in own_registers(sliced) {
        match left.split_first() {
            Some((first, others)) if Text(*first).to_string() == expected => left = others,
            _ => {
                let span = left.first().map_or_else(Span::default, |variable| variable.span);
                refuse(report, span, &format!("`{expected}` is missing"));
                return (declared, rest);
            }
        }
    }
    if let Some((first, others)) = left.split_first()
        && let Some(count) = first.range
        && Text(*first).to_string() == format!(".reg .b32 {}<{count}>", names::COUNTER)
    {
        declared.counters = count;
        left = others;
    }
    for class in Class::ALL {
        if let Some((first, others)) = left.split_first()
            && let Some(count) = first.range.filter(|count| u64::from(*count) <= REGISTERS_MAX)
            && Text(*first).to_string() == gates::declaration(class, count)
        {
            declared.of_gates[class as usize] = count;
            left = others;
        }
    }
    if let [base, mask, others @ ..] = left
        && [base, mask]
            .iter()
            .zip(gates::WINDOW)
            .all(|(found, expected)| Text(**found).to_string() == format!(".reg .b64 {expected}"))
    {
        left = others;
    }
    for variable in left {
        declare(variable, &mut declared, report);
    }
    let rest = prologue(&mut declared, sliced, rest, report);
    let (shared, rest) = shared_bounds(&declared.extents, rest);
    declared.shared = shared;
    (declared, rest)
}

/// The number of registers that a declaration like `.reg .b32 %r<5>` of this class declares.
pub(crate) fn tenant_registers(variable: &Variable, class: Class) -> Option<u32> {
    let count = variable.range.filter(|count| u64::from(*count) <= REGISTERS_MAX)?;
    let expected = match class {
        Class::Predicate => format!(".reg .pred %p<{count}>"),
        Class::Half => format!(".reg .b16 %h<{count}>"),
        Class::Word => format!(".reg .b32 %r<{count}>"),
        Class::Double => format!(".reg .b64 %d<{count}>"),
    };
    (Text(variable).to_string() == expected).then_some(count)
}

fn own_registers(sliced: bool) -> impl Iterator<Item = String> {
    let words = names::HIDDEN_REGISTERS.iter().chain(&names::SCRATCH_32);
    let of_slice = names::SLICE_REGISTERS.iter().filter(move |_| sliced).map(|(name, _)| name);
    let predicates = names::SCRATCH_PREDICATES.iter().map(|name| format!(".reg .pred {name}"));
    predicates
        .chain(words.map(|name| format!(".reg .b32 {name}")))
        .chain(names::SCRATCH_64.iter().map(|name| format!(".reg .b64 {name}")))
        .chain(of_slice.map(|name| format!(".reg .b32 {name}")))
}

fn declare<'a>(variable: &'a Variable, declared: &mut Declared<'a>, report: &mut Report) {
    if Text(variable).to_string() == format!(".shared .align 16 .b8 {}[16]", names::SHARED_PAD) {
        let pad = Extent { space: Space::Shared, bytes: 16, align: 16 };
        if !declared.extents.insert(&variable.name, pad) {
            refuse(report, variable.span, "a name that is declared twice");
        }
        return;
    }
    let plain = variable.linkage == Linkage::Internal && variable.initializer.is_empty();
    let found = extent(variable).filter(|extent| plain && extent.bytes > 0);
    let Some(extent) = found else {
        refuse(report, variable.span, "a variable of this kind in a body");
        return;
    };
    match extent.space {
        Space::Shared => {
            if extent.align < names::WIDEST_ACCESS {
                refuse(report, variable.span, "a shared variable that is not aligned");
            }
        }
        Space::Local => {
            let fits = extent.bytes <= LOCAL_BYTES_MAX && extent.align >= names::WIDEST_ACCESS;
            if declared.local.is_some() || !fits {
                refuse(report, variable.span, "a local variable too many, too large or not aligned");
                return;
            }
            declared.local = Some((&variable.name, extent));
        }
        Space::Global | Space::Constant | Space::Parameter | Space::Register => {
            refuse(report, variable.span, "a declaration of this state space in a body");
        }
    }
    if !declared.extents.insert(&variable.name, extent) {
        refuse(report, variable.span, "a name that is declared twice");
    }
}

/// The hidden parameters are loaded before anything else, then the flag where anything looks at it; then what is read of the
/// grid is computed, where the launch may be a slice of it.
fn prologue<'a>(
    declared: &mut Declared<'_>,
    sliced: bool,
    statements: &'a [Statement],
    report: &mut Report,
) -> &'a [Statement] {
    let hidden = names::HIDDEN_REGISTERS.iter().zip(names::HIDDEN_PARAMETERS);
    let hidden = hidden.map(|(register, parameter)| format!("ld.param.u32 {register}, [{parameter}]"));
    let mut rest = take_lines(hidden.collect(), statements, report);
    if let Some(after) = strip(rest, &fuel::START) {
        declared.looks = true;
        rest = after;
    }
    for (index, (register, _)) in names::SLICE_REGISTERS.iter().enumerate().filter(|_| sliced) {
        let lines = names::slice_lines(index);
        if let Some(after) = strip(rest, &lines.each_ref().map(String::as_str)) {
            declared.grid.insert(register);
            rest = after;
        }
    }
    rest
}

/// What a store to local memory costs, as the table has it.
const STORE_COST: u64 = 8;

/// What is left after the local variable is zeroed, every byte of it, where that stands here; and what that costs.
pub(crate) fn zeroes_local<'a>(
    declared: &Declared<'_>,
    statements: &'a [Statement],
) -> Option<(&'a [Statement], u64)> {
    let (name, extent) = declared.local?;
    let mut rest = strip(statements, &["mov.b32 %bh_zero, 0"])?;
    let (mut at, mut done) = (0, 1);
    if extent.bytes > LOCAL_BYTES_IN_LINE_MAX {
        let turns = extent.bytes / LOCAL_BYTES_PER_TURN;
        rest = clears_local(name, turns, rest)?;
        at = turns * LOCAL_BYTES_PER_TURN;
        done += 2 + turns * (LOCAL_BYTES_PER_TURN / 16 * STORE_COST + 4);
    }
    while at < extent.bytes {
        let address = if at == 0 { format!("[{name}]") } else { format!("[{name}+{at}]") };
        let (bytes, store) = match extent.bytes - at {
            16.. => (16, format!("st.local.v4.b32 {address}, {{%bh_zero, %bh_zero, %bh_zero, %bh_zero}}")),
            4.. => (4, format!("st.local.b32 {address}, %bh_zero")),
            _ => (1, format!("st.local.b8 {address}, %bh_zero")),
        };
        // Each by itself: the first that is another ends it, however many would come.
        rest = strip(rest, &[&store])?;
        at += bytes;
        done += STORE_COST;
    }
    Some((rest, done))
}

/// What is left behind the loop that zeroes a large local variable, in so many turns.
fn clears_local<'a>(name: &str, turns: u64, statements: &'a [Statement]) -> Option<&'a [Statement]> {
    let sets = [format!("mov.b64 %bh_o, {name}"), format!("mov.u32 %bh_lo, {turns}")];
    let rest = strip(statements, &sets.each_ref().map(String::as_str))?;
    let (label, rest) = rest.split_first()?;
    matches!(label, Statement::Label(found, _) if found == names::CLEARING).then_some(())?;
    let mut lines: Vec<String> = Vec::new();
    for at in (0..LOCAL_BYTES_PER_TURN).step_by(16) {
        let address = if at == 0 { "[%bh_o]".to_owned() } else { format!("[%bh_o+{at}]") };
        lines.push(format!("st.local.v4.b32 {address}, {{%bh_zero, %bh_zero, %bh_zero, %bh_zero}}"));
    }
    lines.push(format!("add.s64 %bh_o, %bh_o, {LOCAL_BYTES_PER_TURN}"));
    lines.push("add.s32 %bh_lo, %bh_lo, -1".to_owned());
    lines.push("setp.ne.s32 %bh_q, %bh_lo, 0".to_owned());
    lines.push(format!("@%bh_q bra {}", names::CLEARING));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    strip(rest, &lines)
}

/// The labels in what zeroes shared and local memory, to which nothing else goes.
pub(crate) const ZEROING_LABELS: [&str; 5] =
    ["__bh_more", "__bh_filled", "__bh_rest", "__bh_zeroed", names::CLEARING];

/// Whether a statement is one of them.
pub fn is_of_zeroing(statement: &Statement) -> bool {
    matches!(statement, Statement::Label(name, _) if ZEROING_LABELS.contains(&name.as_str()))
}

/// What is left after all shared memory is zeroed, where that stands here.
pub(crate) fn zeroes_shared<'a>(
    declared: &Declared<'_>,
    statements: &'a [Statement],
) -> Option<&'a [Statement]> {
    let mut rest = statements;
    for line in zeroing(declared.shared.as_ref()?) {
        let (first, others) = rest.split_first()?;
        let same = match first {
            Statement::Instruction(found) => Text(found).is(line),
            Statement::Label(found, _) => line.strip_suffix(':') == Some(found),
            Statement::Variable(_) | Statement::Block(..) | Statement::Directive(_) => false,
        };
        rest = same.then_some(others)?;
    }
    Some(rest)
}

/// Takes these lines off the front of a body, which has to begin with them.
fn take_lines<'a>(lines: Vec<String>, statements: &'a [Statement], report: &mut Report) -> &'a [Statement] {
    let mut rest = statements;
    for line in lines {
        match rest.split_first() {
            Some((Statement::Instruction(found), others)) if Text(found).is(&line) => rest = others,
            Some((Statement::Label(found, _), others)) if line.strip_suffix(':') == Some(found) => {
                rest = others
            }
            Some((Statement::Instruction(found), _)) => {
                refuse(report, found.span, &format!("the prologue lacks `{line}`"));
                return rest;
            }
            _ => {
                refuse(report, Span::default(), &format!("the prologue lacks `{line}`"));
                return rest;
            }
        }
    }
    rest
}

/// All that lies between the bounds of shared memory is zeroed, and all threads of the block wait for that. The threads along
/// x and y zero all of it, whatever z they have; of little those along x, whatever y.
fn zeroing(bounds: &SharedBounds<'_>) -> Vec<&'static str> {
    let along_both = [
        "mov.u32 %bh_hi, %ntid.x",
        "mov.u32 %bh_s, %tid.y",
        "mov.u32 %bh_zero, %tid.x",
        "mad.lo.s32 %bh_s, %bh_s, %bh_hi, %bh_zero",
        "mov.u32 %bh_lo, %ntid.y",
        "mul.lo.s32 %bh_lo, %bh_lo, %bh_hi",
    ];
    let along_x = ["mov.u32 %bh_lo, %ntid.x", "mov.u32 %bh_s, %tid.x"];
    let fill = [
        "shl.b32 %bh_lo, %bh_lo, 4",
        "shl.b32 %bh_s, %bh_s, 4",
        "add.s32 %bh_s, %bh_s, %bh_low",
        "and.b32 %bh_hi, %bh_top, -16",
        "mov.b32 %bh_zero, 0",
        "__bh_more:",
        "setp.ge.u32 %bh_q, %bh_s, %bh_hi",
        "@%bh_q bra __bh_filled",
        "st.shared.v4.b32 [%bh_s], {%bh_zero, %bh_zero, %bh_zero, %bh_zero}",
        "add.s32 %bh_s, %bh_s, %bh_lo",
        "bra __bh_more",
        "__bh_filled:",
    ];
    let rest = [
        "mov.u32 %bh_s, %tid.x",
        "add.s32 %bh_s, %bh_s, %bh_hi",
        "mov.u32 %bh_lo, %ntid.x",
        "__bh_rest:",
        "setp.ge.u32 %bh_q, %bh_s, %bh_top",
        "@%bh_q bra __bh_zeroed",
        "st.shared.b8 [%bh_s], %bh_zero",
        "add.s32 %bh_s, %bh_s, %bh_lo",
        "bra __bh_rest",
        "__bh_zeroed:",
    ];
    // Several variables may lie apart, with more between them than they have together.
    let is_little = bounds.names.len() == 1 && !bounds.dynamic && bounds.static_bytes <= LITTLE_BYTES_MAX;
    let mut lines: Vec<&str> = if is_little { along_x.to_vec() } else { along_both.to_vec() };
    lines.extend(fill);
    lines.extend(rest.iter().filter(|_| bounds.ragged));
    lines.push("bar.sync 0");
    lines
}

/// Takes the lines that compute where shared memory begins and ends, over variables that must be different:
/// then at least the sum of their sizes lies between.
fn shared_bounds<'a>(
    extents: &Extents<'_>,
    statements: &'a [Statement],
) -> (Option<SharedBounds<'a>>, &'a [Statement]) {
    let mut rest = statements;
    let mut bounds: Option<SharedBounds<'a>> = None;
    while let Some(Statement::Instruction(first)) = rest.first() {
        let (name, start) = match first.operands.get(1) {
            Some(Operand::Symbol(name)) => (name, 0),
            Some(Operand::SymbolOffset(name, start)) => (name, u64::try_from(*start).unwrap_or(u64::MAX)),
            _ => break,
        };
        let Some(extent) = extents.get(name).filter(|extent| extent.space == Space::Shared) else { break };
        let dynamic = extent.bytes == 0;
        let first_of_all = bounds.is_none();
        // Only the first may begin further on, as aligned as it is.
        let apart = start > 0;
        if apart && !(first_of_all && start < extent.bytes && start.is_multiple_of(names::WIDEST_ACCESS)) {
            break;
        }
        let expected = bound_lines(name, start, extent.bytes, first_of_all);
        let Some((lines, others)) = rest.split_at_checked(expected.len()) else { break };
        let same = lines
            .iter()
            .zip(&expected)
            .all(|(found, line)| matches!(found, Statement::Instruction(found) if Text(found).is(line)));
        let mut so_far = bounds.take().unwrap_or_default();
        // What is not the next lines of the bounds is the body's: there it has to be a sequence. All names
        // of dynamic shared memory name the same bytes. Nothing looks at the flag before all of them.
        let full = so_far.names.len() >= SHARED_VARIABLES_MAX;
        let again = full || so_far.names.contains_key(name.as_str()) || (dynamic && so_far.dynamic);
        if !same || again {
            bounds = (!first_of_all).then_some(so_far);
            break;
        }
        so_far.names.insert(name, start);
        so_far.cost = so_far.cost.saturating_add(expected.len() as u64);
        so_far.static_bytes = so_far.static_bytes.saturating_add(extent.bytes - start);
        so_far.dynamic |= dynamic;
        so_far.ragged |= dynamic || !extent.bytes.is_multiple_of(names::WIDEST_ACCESS);
        so_far.at = SHARED_BASE.checked_add(start).filter(|_| extents.is_first_shared(name));
        bounds = Some(so_far);
        rest = others;
    }
    (bounds, rest)
}

fn bound_lines(name: &str, start: u64, bytes: u64, first: bool) -> Vec<String> {
    if start > 0 {
        let covered = bytes.saturating_sub(start);
        return vec![
            format!("mov.b32 %bh_low, {name}+{start}"),
            format!("add.s32 %bh_top, %bh_low, {covered}"),
        ];
    }
    match (first, bytes) {
        (true, 0) => vec![
            format!("mov.b32 %bh_low, {name}"),
            "mov.u32 %bh_lo, %dynamic_smem_size".to_owned(),
            "add.s32 %bh_top, %bh_low, %bh_lo".to_owned(),
        ],
        (true, _) => vec![format!("mov.b32 %bh_low, {name}"), format!("add.s32 %bh_top, %bh_low, {bytes}")],
        (false, 0) => vec![
            format!("mov.b32 %bh_s, {name}"),
            "mov.u32 %bh_lo, %dynamic_smem_size".to_owned(),
            "add.s32 %bh_s, %bh_s, %bh_lo".to_owned(),
            "setp.ne.u32 %bh_q, %bh_lo, 0".to_owned(),
            "selp.b32 %bh_s, %bh_s, %bh_top, %bh_q".to_owned(),
            "max.u32 %bh_top, %bh_top, %bh_s".to_owned(),
        ],
        (false, _) => vec![
            format!("mov.b32 %bh_s, {name}"),
            "min.u32 %bh_low, %bh_low, %bh_s".to_owned(),
            format!("add.s32 %bh_s, %bh_s, {bytes}"),
            "max.u32 %bh_top, %bh_top, %bh_s".to_owned(),
        ],
    }
}
