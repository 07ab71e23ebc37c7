//! Names that mean something to the guard: its own registers and parameters, register classes of the
//! confined form, and PTX's special registers.

use bulkhead_ptx::parse::WARP_SIZE;

use crate::ast::{Directive, Operand, Type, Variable};
use crate::limits::NAME_BYTES_MAX;
use crate::report::Reason;

mod class;

pub use class::Class;

/// Prefix of the guard's registers.
pub const RESERVED_REGISTER: &str = "%bh_";

/// Whether a register of a confined text is one of the guard's own.
#[must_use]
pub fn is_own_register(name: &str) -> bool {
    name.starts_with(RESERVED_REGISTER)
}

/// Prefix of the guard's parameters and symbols.
pub const RESERVED_SYMBOL: &str = "__bh_";

/// What the names of a tenant's variables and parameters begin with in the confined form, so that none is a name that means
/// something to the assembler.
pub const TENANTS: &str = "bh_v_";

/// What the names of a tenant's entries begin with in the confined form, for the same reason. Fast versions begin with
/// [`FAST`] in its place, so neither is ever taken for the other.
const ENTRY: &str = "bh_e_";

/// The hidden parameters, in order; each is a `.u32` and they come last.
pub const HIDDEN_PARAMETERS: [&str; 3] = ["__bh_base", "__bh_load", "__bh_store"];
/// Prefix of the parameters that come before those, for the modules whose gates an entry calls.
pub const GATE_PARAMETER: &str = "__bh_gate";
/// The registers that the hidden parameters are loaded into, in the same order.
pub const HIDDEN_REGISTERS: [&str; 3] = ["%bh_base", "%bh_loadmask", "%bh_storemask"];
/// Further hidden parameters of entries that read where in its grid a block is, each a `.u32`; they come before the others.
/// A launch that is a slice of a larger grid gives its first block, and how much more the grid is than the slice, along
/// x, y and z; all of them are 0 in any other launch.
pub const SLICE_PARAMETERS: [&str; 6] =
    ["__bh_first_x", "__bh_first_y", "__bh_first_z", "__bh_more_x", "__bh_more_y", "__bh_more_z"];
/// What is the sum of such a parameter and a special register, and read in its place, in the same order.
pub const SLICE_REGISTERS: [(&str, &str); 6] = [
    ("%bh_bx", "%ctaid.x"),
    ("%bh_by", "%ctaid.y"),
    ("%bh_bz", "%ctaid.z"),
    ("%bh_gx", "%nctaid.x"),
    ("%bh_gy", "%nctaid.y"),
    ("%bh_gz", "%nctaid.z"),
];

/// Whether a register is one of them.
pub fn is_of_slice(name: &str) -> bool {
    SLICE_REGISTERS.iter().any(|(register, _)| *register == name)
}

/// Whether a special register tells of the grid that the device was given, which may be a slice.
pub fn is_of_grid(name: &str) -> bool {
    name == "%gridid" || SLICE_REGISTERS.iter().any(|(_, special)| *special == name)
}

/// The lines that compute one of [`SLICE_REGISTERS`].
pub fn slice_lines(index: usize) -> [String; 3] {
    let ((register, special), parameter) = (SLICE_REGISTERS[index], SLICE_PARAMETERS[index]);
    [
        format!("ld.param.u32 %bh_lo, [{parameter}]"),
        format!("mov.u32 {register}, {special}"),
        format!("add.s32 {register}, {register}, %bh_lo"),
    ]
}

/// The guard's further 32-bit registers.
pub const SCRATCH_32: [&str; 8] =
    ["%bh_lo", "%bh_hi", "%bh_s", "%bh_low", "%bh_top", "%bh_zero", "%bh_n", LANES];
/// The lanes of a warp that are at one place, and come to all that stands behind it.
pub const LANES: &str = "%bh_m";
/// The guard's predicates.
pub const SCRATCH_PREDICATES: [&str; 1] = ["%bh_q"];
/// The guard's counters of turns: a number follows, one for each loop that ends by one.
pub const COUNTER: &str = "%bh_c";
/// The label of the loop that zeroes a large local variable.
pub const CLEARING: &str = "__bh_clearing";
/// A shared variable that the guard adds to entries with less shared memory than the widest access.
pub const SHARED_PAD: &str = "__bh_pad";
/// The guard's 64-bit registers.
pub const SCRATCH_64: [&str; 3] = ["%bh_a", "%bh_o", "%bh_k"];

/// The words that tell a session's kernels how long they may run lie at the end of its window: one every so many
/// bytes, which is one for every multiprocessor, so that they do not all ask the same place.
pub const FLAG_LINE_BYTES: u32 = 1 << FLAG_LINE_SHIFT;
/// The same as a shift.
pub const FLAG_LINE_SHIFT: u32 = 7;
/// Bytes of all of them.
pub const FLAG_BYTES: u32 = 64 << 10;
/// The low word of where they begin.
pub const FLAG_WORDS: i32 = -(64 << 10);
/// The bits of the low word that choose among them.
pub const FLAG_LINE_MASK: u32 = FLAG_BYTES - FLAG_LINE_BYTES;

/// The pragma that the next loop is not unrolled, the only one that is kept: compilers give it to the loops that they have
/// unrolled themselves.
pub const NOUNROLL: &str = "\"nounroll\"";

/// Whether a directive is that pragma, and nothing else.
pub fn is_nounroll(directive: &Directive) -> bool {
    directive.name == ".pragma" && directive.operands == [NOUNROLL]
}

/// Prefix of the names of fast versions.
const FAST: &str = "__bh_fast_";

/// The name in the confined form of an entry that the tenant calls so.
pub fn entry(tenants: &str) -> String {
    format!("{ENTRY}{tenants}")
}

/// The name in the confined form of the fast version of an entry that the tenant calls so.
pub fn fast(tenants: &str) -> String {
    format!("{FAST}{tenants}")
}

/// Whether an entry of a confined module is the fast version of the one before it.
#[must_use]
pub fn is_fast_version(name: &str) -> bool {
    name.starts_with(FAST)
}

/// What the tenant calls an entry that has this name in the confined form and is no fast version.
pub fn tenants_entry(name: &str) -> Option<&str> {
    name.strip_prefix(ENTRY)
}

/// What the tenant calls an entry, of the name that it or its fast version has in the confined form. To be asked once: what
/// it answers may begin like a name of the confined form. A name of a text that is not confined is answered as it is.
#[must_use]
pub fn entry_of(name: &str) -> &str {
    tenants_entry(name).or_else(|| name.strip_prefix(FAST)).unwrap_or(name)
}

/// What the assembler says of a confined text, with the tenant's names of entries, parameters and variables in it.
#[must_use]
pub fn in_tenants_names(message: &str) -> String {
    let in_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$');
    let tenants = |word| [ENTRY, FAST, TENANTS].iter().find_map(|prefix| str::strip_prefix(word, prefix));
    // Each piece is a name, and what ends it.
    message.split_inclusive(|letter| !in_name(letter)).map(|word| tenants(word).unwrap_or(word)).collect()
}

/// Whether a variable is a table of the compiler's own library, which no host knows. Nothing else tells: compilers
/// declare what `__constant__` variables of a program they know to be the host's like their own.
pub fn is_compilers(variable: &str) -> bool {
    variable.starts_with("__cudart_") || variable.starts_with("__nv_")
}

/// Whether a name belongs to the guard.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_REGISTER) || name.starts_with(RESERVED_SYMBOL)
}

/// Whether a register is a counter of a loop's turns.
pub fn is_counter(name: &str) -> bool {
    name.strip_prefix(COUNTER).is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Special registers that a guarded session may read. The others tell about the driver or the cluster.
pub fn is_special(name: &str) -> bool {
    matches!(
        name,
        "%tid.x"
            | "%tid.y"
            | "%tid.z"
            | "%ntid.x"
            | "%ntid.y"
            | "%ntid.z"
            | "%ctaid.x"
            | "%ctaid.y"
            | "%ctaid.z"
            | "%nctaid.x"
            | "%nctaid.y"
            | "%nctaid.z"
            | "%laneid"
            | "%warpid"
            | "%nwarpid"
            | "%smid"
            | "%nsmid"
            | "%gridid"
            | "%lanemask_eq"
            | "%lanemask_le"
            | "%lanemask_lt"
            | "%lanemask_ge"
            | "%lanemask_gt"
            | "%clock"
            | "%clock_hi"
            | "%clock64"
            | "%globaltimer"
            | "%globaltimer_lo"
            | "%globaltimer_hi"
            | "%dynamic_smem_size"
            | "%total_smem_size"
    )
}

/// The most that a special register holds, where that is less than its type says, or what is read in its place. From the
/// limits on grids and blocks (CUDA C++ Programming Guide, "Compute Capabilities"), which the driver checks at every launch, and
/// whoever cuts a grid into slices for all of it.
pub fn most(name: &str) -> Option<u32> {
    Some(match name {
        "%tid.x" | "%tid.y" => 1023,
        "%tid.z" => 63,
        "%ntid.x" | "%ntid.y" => 1024,
        "%ntid.z" => 64,
        "%ctaid.x" | "%bh_bx" => 0x7FFF_FFFE,
        "%nctaid.x" | "%bh_gx" => 0x7FFF_FFFF,
        "%ctaid.y" | "%ctaid.z" | "%bh_by" | "%bh_bz" => 65_534,
        "%nctaid.y" | "%nctaid.z" | "%bh_gy" | "%bh_gz" => 65_535,
        "%laneid" => 31,
        _ => return None,
    })
}

/// The least that it holds: blocks and grids are not empty.
pub fn least(name: &str) -> i128 {
    let counts = ["%ntid.", "%nctaid."].iter().any(|count| name.starts_with(count));
    i128::from(counts || matches!(name, "%bh_gx" | "%bh_gy" | "%bh_gz"))
}

/// Whether a name is a special register of PTX that a guarded session may not read.
pub fn is_special_elsewhere(name: &str) -> bool {
    let known = [
        "%envreg",
        "%pm",
        "%cluster",
        "%ncluster",
        "%is_explicit_cluster",
        "%reserved_smem",
        "%aggr_smem_size",
        "%current_graph_exec",
        "%tid",
        "%ntid",
        "%ctaid",
        "%nctaid",
    ];
    known.iter().any(|prefix| name.starts_with(prefix))
}

/// Bytes of a type in memory; predicates have none.
pub fn type_bytes(ty: Type) -> Option<u64> {
    Some(match ty {
        Type::B8 | Type::U8 | Type::S8 => 1,
        Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 2,
        Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 => 4,
        Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
        Type::B128 => 16,
        Type::Pred | Type::Texref | Type::Samplerref | Type::Surfref => return None,
    })
}

/// Bytes of the widest access.
pub const WIDEST_ACCESS: u64 = 16;

/// Bytes of a variable; 0 where its first dimension is empty, none where it has no size.
pub fn variable_bytes(variable: &Variable) -> Option<u64> {
    let element = type_bytes(variable.ty)?.checked_mul(u64::from(variable.vector))?;
    variable.dimensions.iter().try_fold(element, |bytes, dimension| bytes.checked_mul(*dimension))
}

/// A name like one that is wanted, which nothing has yet: with a number from `first` on behind it, that is told too.
///
/// # Errors
/// Where a thousand are taken: only a text that is made for it does that.
pub fn unused(
    wanted: &str,
    first: usize,
    is_taken: impl Fn(&str) -> bool,
) -> Result<(String, usize), Reason> {
    let named = (first..first + NAMES_TRIED_MAX).map(|number| match number {
        0 => (wanted.to_owned(), 0),
        number => (format!("{wanted}${number}"), number),
    });
    let limit = Reason::Limit { what: "names like one another", most: NAMES_TRIED_MAX as u64 };
    named.into_iter().find(|(name, _)| !is_taken(name)).ok_or(limit)
}

/// How many names are tried.
const NAMES_TRIED_MAX: usize = 1000;

/// The alignment of a variable: what it asks for, else its element's size.
pub fn variable_align(variable: &Variable) -> u64 {
    let element = type_bytes(variable.ty).unwrap_or(1).saturating_mul(u64::from(variable.vector));
    variable.align.map_or(element, u64::from)
}

/// Whether an initializer holds numbers only; the parser bounds how deep its lists nest.
pub fn are_numbers(values: &[Operand]) -> bool {
    values.iter().all(|value| match value {
        Operand::Vector(values) => are_numbers(values),
        value => matches!(value, Operand::Integer(_) | Operand::Float32(_) | Operand::Float64(_)),
    })
}

/// Whether a name may stand in a tenant's text for a variable or a parameter.
pub fn check_symbol(name: &str) -> Result<(), Reason> {
    if is_reserved(name) {
        return Err(Reason::Reserved(name.to_owned()));
    }
    if name.starts_with('%') || name == "_" || name == WARP_SIZE || is_canonical_label(name) {
        return Err(Reason::Malformed(format!("`{name}` is not a name for this")));
    }
    Ok(())
}

/// Bytes of a tenant's name of an entry: with what goes before it, it is a name too.
const ENTRY_BYTES_MAX: usize = NAME_BYTES_MAX - ENTRY.len();

/// Whether a tenant may call an entry so. It may be any name but a register's: with what goes before it, none means anything
/// to the assembler.
pub fn check_entry(tenants: &str) -> Result<(), Reason> {
    if tenants.is_empty() || tenants.starts_with('%') {
        return Err(Reason::Malformed(format!("`{tenants}` is not a name for an entry")));
    }
    if tenants.len() > ENTRY_BYTES_MAX {
        return Err(Reason::Limit { what: "bytes of an entry's name", most: ENTRY_BYTES_MAX as u64 });
    }
    Ok(())
}

/// Whether a name is one that a tenant's variables and parameters have in the confined form.
pub fn is_tenants(name: &str) -> bool {
    name.starts_with(TENANTS)
}

/// What the tenant calls what has this name in the confined form.
pub fn of_tenant(name: &str) -> &str {
    name.strip_prefix(TENANTS).unwrap_or(name)
}

/// Whether a directive bounds what an entry may be launched with or compiled to, in numbers.
pub fn is_launch_bound(directive: &Directive) -> bool {
    let most = match directive.name.as_str() {
        ".maxntid" | ".reqntid" => 3,
        ".minnctapersm" | ".maxnreg" => 1,
        _ => return false,
    };
    let number = |text: &String| text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 10;
    (1..=most).contains(&directive.operands.len()) && directive.operands.iter().all(number)
}

/// Whether a tenant may give a label this name.
pub fn check_label(name: &str) -> Result<(), Reason> {
    if is_reserved(name) {
        return Err(Reason::Reserved(name.to_owned()));
    }
    if name.starts_with('%') || name == "_" {
        return Err(Reason::Malformed(format!("`{name}` is not a name for a label")));
    }
    Ok(())
}

/// Whether a name is one that labels have in the confined form: `$L0`.
pub fn is_canonical_label(name: &str) -> bool {
    name.strip_prefix("$L")
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a word of `.target` is an architecture: `sm_75`, `sm_90a`.
pub fn is_architecture(word: &str) -> bool {
    let digits = word.strip_prefix("sm_").unwrap_or_default();
    let digits = digits.strip_suffix(['a', 'f']).unwrap_or(digits);
    (2..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The oldest architecture that has what the confined form is written in: `ld.relaxed`, and waits for lanes.
const OLDEST: (&str, u32) = ("sm_70", 70);

/// Whether a word of `.target` is an architecture that the confined form may be for.
pub fn is_new_architecture(word: &str) -> bool {
    architecture_number(word).is_some_and(|number| number >= OLDEST.1)
}

/// The number of an architecture: 90 for `sm_90a`.
pub fn architecture_number(word: &str) -> Option<u32> {
    let digits = word.strip_prefix("sm_").unwrap_or_default().trim_end_matches(['a', 'f']);
    digits.parse().ok().filter(|_| is_architecture(word))
}

/// The architecture that a confined text is for where the tenant's is for this one: what an older one can, a newer one can.
pub fn architecture(word: &str) -> &str {
    if is_architecture(word) && !is_new_architecture(word) { OLDEST.0 } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_an_old_architecture_becomes_what_is_for_the_oldest() {
        for (word, for_what) in [
            ("sm_20", "sm_70"),
            ("sm_61", "sm_70"),
            ("sm_70", "sm_70"),
            ("sm_75", "sm_75"),
            ("sm_90a", "sm_90a"),
            ("sm_100f", "sm_100f"),
            ("texmode_unified", "texmode_unified"),
        ] {
            assert_eq!(architecture(word), for_what);
            assert_eq!(is_new_architecture(word), word == for_what && word.starts_with("sm_"), "{word}");
        }
    }

    #[test]
    fn an_entry_and_its_fast_version_have_one_name_of_the_tenants() {
        for name in ["k", "A7", "bh_e_k", "__bh_fast_k", "bh_e_", "$L0", "_"] {
            assert_eq!((entry_of(&entry(name)), entry_of(&fast(name))), (name, name));
            assert!(is_fast_version(&fast(name)) && !is_fast_version(&entry(name)));
            assert_eq!((tenants_entry(&entry(name)), tenants_entry(&fast(name))), (Some(name), None));
        }
        assert_eq!(entry_of("k"), "k", "of a text that is not confined");
    }

    #[test]
    fn what_the_assembler_says_is_told_with_the_tenants_names() {
        for (said, told) in [
            ("Entry function 'bh_e_k' uses too much", "Entry function 'k' uses too much"),
            ("'__bh_fast_bh_e_k', bh_e_bh_v_x bh_v_bh_e_y", "'bh_e_k', bh_v_x bh_e_y"),
            ("bh_e_$x+4;\nno_bh_e_ 'é'", "$x+4;\nno_bh_e_ 'é'"),
        ] {
            assert_eq!(in_tenants_names(said), told);
        }
    }

    #[test]
    fn a_register_of_the_confined_form_has_one_spelling() {
        assert_eq!(Class::parse("%r12"), Some((Class::Word, 12)));
        assert_eq!(Class::parse("%p0"), Some((Class::Predicate, 0)));
        for name in ["%r", "%r01", "%r1x", "%bh_a", "%tid.x", "r1", "%r+1", "%d99999999999"] {
            assert_eq!(Class::parse(name), None, "{name}");
        }
    }
}
