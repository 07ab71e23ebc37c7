//! What one sequence may be, by the access behind it. Those of whole texts are in `guard/tests`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::ast::Address;
use crate::values::tests::instructions;

fn through(register: &str, offset: i64) -> Address {
    Address { base: AddressBase::Register(register.to_owned()), offset }
}

/// A load of so many bytes of global memory.
fn load(address: &Address, bytes: u64) -> Access<'_> {
    let (space, reads_only) = (Space::Global, true);
    Access { space, reads_only, bytes, extent: bytes, stride: None, address, index: 1 }
}

/// Whether instructions are the ones that an access needs, all of them.
fn are(lead: &[&Instruction], lines: Option<Vec<String>>) -> bool {
    lines.is_some_and(|lines| {
        lines.len() == lead.len() && lines.iter().zip(lead).all(|(line, found)| Text(*found).is(line))
    })
}

const GLOBAL: &str =
    "mov.b64 {%bh_lo, %bh_hi}, %d0;\nlop3.b32 %bh_hi, %bh_hi, %bh_loadmask, %bh_base, 234;\n";
const LAST: &str =
    "or.b32 %bh_s, %bh_loadmask, %bh_base;\nadd.s32 %bh_s, %bh_s, -1;\nmin.u32 %bh_hi, %bh_hi, %bh_s;\n";
const CUT: &str = "and.b32 %bh_lo, %bh_lo, -4;\n";
const JOINED: &str = "mov.b64 %bh_a, {%bh_lo, %bh_hi};\n";

#[test]
fn only_what_reaches_far_begins_before_the_last_zone() {
    let address = through("%bh_a", 0);
    let fits = |extent, lines: &str| {
        let access = Access { extent, ..load(&address, 4) };
        let lead = instructions(lines);
        are(&lead, global(&lead, &access, None).map(|(lines, _)| lines))
    };
    let (near, far) = (format!("{GLOBAL}{CUT}{JOINED}"), format!("{GLOBAL}{LAST}{CUT}{JOINED}"));
    for extent in [4, EXTENT_BOUND] {
        assert!(fits(extent, &near) && !fits(extent, &far));
    }
    assert!(fits(EXTENT_BOUND + 1, &far) && !fits(EXTENT_BOUND + 1, &near));
}

#[test]
fn an_address_is_made_a_multiple_unless_it_is_known_to_be_one() {
    let known = instructions("ld.param.u64 %d0, [a];")[0];
    let mut facts = Numbers::default();
    facts.learn(known);
    let address = through("%bh_a", 0);
    let rests = |bytes, facts, lines: &str| {
        let lead = instructions(lines);
        let (lines, rests) = global(&lead, &load(&address, bytes), facts)?;
        are(&lead, Some(lines)).then_some(rests.aligned)
    };
    let (cut, whole) = (format!("{GLOBAL}{CUT}{JOINED}"), format!("{GLOBAL}{JOINED}"));
    let root = Root { parameter: "a", offset: 0 };
    assert_eq!(rests(4, None, &cut), Some(None));
    assert_eq!(rests(4, None, &whole), None);
    // What is cut asks nothing of the parameter.
    assert_eq!(rests(4, Some(&facts), &cut), Some(None));
    assert_eq!(rests(4, Some(&facts), &whole), Some(Some((root, 4))));
    assert_eq!(rests(4, Some(&facts), &whole.replace("%d0", "%d1")), None);
    // Bytes are aligned anyhow.
    for facts in [None, Some(&facts)] {
        assert_eq!(rests(1, facts, &whole), Some(None));
        assert_eq!(rests(1, facts, &cut.replace("-4", "-1")), None);
    }
    let added = |offset: i64| {
        let lead = whole.replace("}, %d0", "}, %bh_a");
        rests(4, Some(&facts), &format!("add.s64 %bh_a, %d0, {offset};\n{lead}"))
    };
    assert_eq!(added(8), Some(Some((root, 4))));
    assert_eq!(added(6), None);
}

#[test]
fn a_sequence_begins_with_a_register_of_the_tenants_that_is_as_wide_as_addresses() {
    let address = through("%bh_a", 0);
    for (from, fits) in [("%d0", true), ("%r0", false), ("%h0", false), ("%bh_o", false), ("%clock64", false)]
    {
        let lead = instructions(&format!("{GLOBAL}{CUT}{JOINED}").replace("%d0", from));
        assert_eq!(global(&lead, &load(&address, 4), None).is_some(), fits, "{from}");
        let lead = instructions(&format!("add.s64 %bh_a, {from}, 4;"));
        assert_eq!(source(lead[0], 1, Class::Double).is_some(), fits, "{from}");
    }
    assert_eq!(source(instructions("mov.b32 %bh_s, 4;")[0], 1, Class::Word), None);
}

#[test]
fn an_access_goes_through_the_register_that_its_sequence_made() {
    let is = |register: &str, offset| is_through(&load(&through(register, offset), 4), "%bh_a");
    let bound = i64::try_from(OFFSET_BOUND).unwrap();
    assert!(is("%bh_a", 0) && is("%bh_a", -4) && is("%bh_a", bound - 4) && is("%bh_a", 4 - bound));
    assert!(!is("%bh_o", 0) && !is("%bh_a", 2) && !is("%bh_a", bound) && !is("%bh_a", -bound));
}

#[test]
fn of_a_protected_address_the_bits_of_a_place_are_left() {
    const AND: &str = "and.b64 %bh_a, %d0, %bh_gmask;\n";
    const CUT: &str = "and.b64 %bh_a, %bh_a, -4;\n";
    const OR: &str = "or.b64 %bh_a, %bh_a, %bh_gbase;\n";
    let whole = format!("{AND}{CUT}{OR}");
    let fits = |lines: &str, access: &Access<'_>| {
        let lead = instructions(lines);
        is_protected(&lead) && are(&lead, protected(&lead, access))
    };
    let address = through("%bh_a", 0);
    let access = load(&address, 4);
    assert!(fits(&whole, &access));
    let added = format!("add.s64 %bh_a, %d0, 8;\n{}", whole.replace("%d0", "%bh_a"));
    assert!(fits(&added, &access));
    for other in [
        format!("{AND}{OR}"),
        format!("{AND}{CUT}"),
        format!("{CUT}{OR}"),
        whole.replace("-4", "-2"),
        whole.replace("%d0", "%r0"),
        whole.replace("%d0", "%bh_o"),
        whole.replace("%bh_gbase", "%bh_gmask"),
        added.replace("add.s64 %bh_a", "add.s64 %bh_o"),
        added.replace("%bh_a, %bh_gmask", "%d0, %bh_gmask"),
    ] {
        assert!(!fits(&other, &access), "{other}");
    }
    // A byte need not be made a multiple.
    assert!(fits(&format!("{AND}{OR}"), &load(&address, 1)));
    assert!(!fits(&whole.replace("-4", "-1"), &load(&address, 1)));
    // It is as far as the mask reaches, and no further.
    assert!(!fits(&whole, &Access { extent: 8, ..access }));
    for (register, offset) in [("%bh_a", 4), ("%bh_a", -4), ("%bh_o", 0), ("%bh_gbase", 0)] {
        assert!(!fits(&whole, &load(&through(register, offset), 4)), "{register} {offset}");
    }
}

#[test]
fn the_stride_of_a_matrix_is_what_the_last_line_cut() {
    let address = through("%bh_a", 0);
    let fits = |space, by: &str, cut: &str| {
        let store = "wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%bh_a], {%r4, %r5, %r6, %r7}";
        let lead = instructions(cut);
        let store = instructions(&format!("{store}, {by};"))[0];
        let access = Access { space, stride: Some((2, 16_777_208)), ..load(&address, 16) };
        stride(&lead, store, &access).is_ok_and(|left| left.len() + 1 == lead.len())
    };
    let cut = "and.b32 %bh_lo, %r0, 16777208;";
    assert!(fits(Space::Global, "%bh_lo", cut));
    assert!(fits(Space::Global, "%bh_lo", &format!("{cut}\nmov.b32 %bh_s, %r0;")));
    assert!(!fits(Space::Shared, "%bh_lo", cut));
    for other in ["%r0", "%bh_hi", "16777208"] {
        assert!(!fits(Space::Global, other, cut), "{other}");
    }
    for other in [
        "and.b32 %bh_lo, %r0, 16777212;",
        "or.b32 %bh_lo, %r0, 16777208;",
        "and.b32 %bh_hi, %r0, 16777208;",
        "and.b32 %bh_lo, %bh_hi, 16777208;",
        "and.b32 %bh_lo, %d0, 16777208;",
        "@%p0 and.b32 %bh_lo, %r0, 16777208;",
        "",
    ] {
        assert!(!fits(Space::Global, "%bh_lo", other), "{other}");
    }
}
