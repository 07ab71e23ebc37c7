//! Each rule by itself: what an access rests on, what instructions make of addresses, and which lines bound a parameter.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::values::tests::instructions;
use crate::values::value::CheckedPointer;

/// What is known of registers.
#[derive(Default)]
struct Facts(Vec<(&'static str, Fact<'static>)>);

impl Known<'static> for Facts {
    fn of_register(&self, name: &str) -> Option<Fact<'static>> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, fact)| *fact)
    }
}

const ROOT: Base<'_> = Base::Parameter(Root { parameter: "a", offset: 0 });

fn checked(writes: bool, align: u64) -> Base<'static> {
    Base::Checked(CheckedPointer { number: 1, writes, align })
}

fn at(base: Base<'static>, low: i128, high: i128, zeros: u32) -> Fact<'static> {
    Fact::Pointer(Pointer { base, offset: Number::between(low, high).with_zeros(zeros) })
}

fn number(low: i128, high: i128, zeros: u32) -> Fact<'static> {
    Fact::Number(Number::between(low, high).with_zeros(zeros))
}

/// What an access through such a pointer rests on.
fn proof(
    space: Space,
    reads_only: bool,
    bytes: u64,
    known: Fact<'static>,
    offset: i64,
) -> Option<Proof<'static>> {
    let address = Address { base: AddressBase::Register("%d0".to_owned()), offset };
    let access =
        Access { space, reads_only, bytes, extent: bytes, stride: None, address: &address, index: 0 };
    Facts(vec![("%d0", known)]).proof(&access)
}

#[test]
fn a_proven_access_reaches_no_further_from_its_pointer_than_zones_are_wide() {
    let reach = i128::from(REACH_BYTES);
    for base in [ROOT, checked(true, 16)] {
        let fits =
            |low, high, offset| proof(Space::Global, true, 4, at(base, low, high, 2), offset).is_some();
        assert!(fits(-reach, reach - 4, 0) && fits(-reach - 4, 0, 4) && fits(0, reach, -4));
        assert!(
            !fits(-reach - 4, 0, 0) && !fits(0, reach, 0) && !fits(-reach, 0, -4) && !fits(0, reach - 4, 4)
        );
    }
}

#[test]
fn a_proven_access_is_aligned() {
    for base in [ROOT, checked(true, 16), Base::Shared("s")] {
        let space = if base == Base::Shared("s") { Space::Shared } else { Space::Global };
        let fits = |bytes, zeros, offset| proof(space, true, bytes, at(base, 0, 64, zeros), offset).is_some();
        assert!(fits(4, 2, 0) && fits(4, 3, 4) && fits(1, 0, 1) && fits(16, 4, 16));
        assert!(!fits(4, 1, 0) && !fits(4, 2, 2) && !fits(2, 0, 0) && !fits(16, 4, 8) && !fits(2, 1, 1));
    }
}

#[test]
fn what_is_done_through_a_checked_pointer_was_asked_of_it() {
    let fits = |reads_only, bytes, writes, align| {
        let known = at(checked(writes, align), 0, 0, 63);
        proof(Space::Global, reads_only, bytes, known, 0).is_some()
    };
    assert!(fits(true, 4, false, 4) && fits(false, 4, true, 4) && fits(true, 4, true, 8));
    assert!(!fits(false, 4, false, 4) && !fits(true, 8, true, 4) && !fits(false, 8, true, 4));
}

#[test]
fn a_pointer_is_good_for_its_own_memory_only() {
    for (space, base) in [
        (Space::Shared, ROOT),
        (Space::Shared, checked(true, 16)),
        (Space::Global, Base::Shared("s")),
        (Space::Local, ROOT),
        (Space::Constant, Base::Shared("s")),
        (Space::Parameter, ROOT),
    ] {
        assert_eq!(proof(space, true, 4, at(base, 0, 0, 63), 0), None);
    }
    assert_eq!(proof(Space::Global, true, 4, number(0, 0, 32), 0), None);
}

#[test]
fn a_place_in_shared_memory_is_from_its_variable_on() {
    let shared = |low, offset| proof(Space::Shared, true, 4, at(Base::Shared("s"), low, 64, 2), offset);
    let parts = Most::constant(64).parts().unwrap();
    let expected =
        |start, end| Some(Proof::Shared(SharedProof { variable: "s", start, end, most: (end, parts) }));
    assert_eq!(shared(0, 0), expected(0, 68));
    assert_eq!(shared(-1024, 1024), expected(0, 1092));
    assert_eq!(shared(-1028, 1028), None);
    assert_eq!(shared(-4, 0), None);
    assert_eq!(shared(0, -4), None);
}

#[test]
fn what_is_aligned_need_not_be_cut() {
    let aligned = |known, offset, bytes| Facts(vec![("%d0", known)]).aligned("%d0", offset, bytes);
    let root = Root { parameter: "a", offset: 0 };
    for (zeros, offset, bytes, fits) in [
        (2, 0, 4, true),
        (2, 4, 4, true),
        (2, -4, 4, true),
        (63, 0, 16, true),
        (1, 0, 4, false),
        (2, 2, 4, false),
        (3, 4, 8, false),
    ] {
        assert_eq!(aligned(at(ROOT, 0, 8, zeros), offset, bytes), fits.then_some(Some(root)));
        assert_eq!(aligned(at(checked(false, 16), 0, 8, zeros), offset, bytes), fits.then_some(None));
    }
    assert_eq!(aligned(at(checked(true, 4), 0, 8, 4), 0, 4), Some(None));
    assert_eq!(aligned(at(checked(true, 4), 0, 8, 4), 0, 8), None);
    assert_eq!(aligned(at(Base::Shared("s"), 0, 8, 4), 0, 4), None);
    assert_eq!(aligned(number(0, 8, 4), 0, 4), None);
}

#[test]
fn a_multiple_is_a_word_with_so_many_zeros_and_an_offset_that_keeps_them() {
    let multiple = |name, known, offset, bytes| Facts(vec![(name, known)]).is_multiple(name, offset, bytes);
    for known in [number(0, 64, 2), at(Base::Shared("s"), 0, 64, 2)] {
        assert!(
            multiple("%r0", known, 0, 4) && multiple("%r0", known, -8, 4) && multiple("%r0", known, 2, 2)
        );
        assert!(
            !multiple("%r0", known, 0, 8) && !multiple("%r0", known, 2, 4) && !multiple("%r0", known, 4, 8)
        );
        assert!(!multiple("%d0", known, 0, 4) && !multiple("%bh_c0", known, 0, 4));
    }
    // A variable is as aligned as the widest access, however far its address is a multiple of more.
    assert!(multiple("%r0", at(Base::Shared("s"), 0, 0, 63), 0, 16));
    assert!(!multiple("%r0", at(Base::Shared("s"), 0, 0, 63), 0, 32));
    assert!(!multiple("%r0", at(ROOT, 0, 0, 63), 0, 4));
    assert!(!Facts::default().is_multiple("%r0", 0, 4));
    assert!(Facts::default().is_multiple("%r0", 0, 1));
}

#[test]
fn zero_and_numbers_between_two_are_small() {
    let facts = |low, high| Facts(vec![("%r0", number(low, high, 0))]);
    assert!(facts(0, 0).is_zero("%r0") && !facts(0, 1).is_zero("%r0") && !Facts::default().is_zero("%r0"));
    assert!(facts(3, 5).is_between("%r0", 3, 5) && facts(4, 4).is_between("%r0", 3, 5));
    assert!(!facts(2, 5).is_between("%r0", 3, 5) && !facts(3, 6).is_between("%r0", 3, 5));
    let whole = facts(0, (1 << 32) - 1);
    assert!(!whole.is_between("%r0", 0, 1 << 40) && !whole.is_from_zero("%r0"));
    assert!(facts(0, (1 << 31) - 1).is_from_zero("%r0") && !facts(0, 1 << 31).is_from_zero("%r0"));
}

/// What one instruction makes of a word or of 64 bits.
fn made(facts: &Facts, line: &str) -> Option<Fact<'static>> {
    let instruction = instructions(line)[0];
    if line.contains(" %d1,") { facts.double(instruction) } else { facts.word(instruction) }
}

#[test]
fn operands_are_registers_of_the_width_that_the_instruction_has() {
    let facts = Facts(vec![
        ("%r0", number(3, 5, 0)),
        ("%bh_c0", number(3, 5, 0)),
        ("%d0", number(3, 5, 0)),
        ("%h0", number(3, 5, 0)),
        ("%p0", number(3, 5, 0)),
        ("%bh_lo", number(3, 5, 0)),
        ("%bh_a", number(3, 5, 0)),
    ]);
    for line in ["mov.b32 %r1, %r0;", "mov.b32 %r1, %bh_c0;", "mov.b64 %d1, %d0;", "cvt.u64.u32 %d1, %r0;"] {
        assert_eq!(made(&facts, line), Some(number(3, 5, 0)), "{line}");
    }
    for line in [
        "mov.b32 %r1, %d0;",
        "mov.b32 %r1, %h0;",
        "mov.b32 %r1, %p0;",
        "mov.b32 %r1, %bh_lo;",
        "mov.b64 %d1, %r0;",
        "mov.b64 %d1, %bh_c0;",
        "mov.b64 %d1, %bh_a;",
        "cvt.u64.u32 %d1, %d0;",
        "cvt.u64.u32 %d1, %bh_lo;",
        "mul.wide.u16 %d1, %r0, %r0;",
    ] {
        assert_eq!(made(&facts, line), None, "{line}");
    }
    // Of a word nothing needs to be known.
    assert_eq!(made(&Facts::default(), "cvt.u64.u32 %d1, %r0;"), Some(number(0, (1 << 32) - 1, 0)));
    assert_eq!(made(&Facts::default(), "cvt.s64.s32 %d1, %r0;"), Some(number(-(1 << 31), (1 << 31) - 1, 0)));
}

#[test]
fn of_a_conjunction_no_more_is_left_than_of_either_that_is_from_0_on() {
    let anded = |one| made(&Facts(vec![("%d0", one)]), "and.b64 %d1, %d0, 255;");
    assert_eq!(anded(number(0, 7, 0)), Some(number(0, 7, 0)));
    assert_eq!(anded(number(-1, 7, 0)), Some(number(0, 255, 0)));
    assert_eq!(anded(at(ROOT, 0, 7, 0)), Some(number(0, 255, 0)));
    assert_eq!(made(&Facts::default(), "and.b64 %d1, %d0, 255;"), Some(number(0, 255, 0)));
    assert_eq!(made(&Facts::default(), "and.b64 %d1, %d0, -256;"), None);
    assert_eq!(made(&Facts(vec![("%d0", number(0, 7, 0))]), "and.b64 %d1, %d0, -8;"), Some(number(0, 7, 0)));
}

#[test]
fn an_address_of_shared_memory_that_may_have_wrapped_around_is_a_number() {
    let added = |low: i128, high: i128, by: i128| {
        made(&Facts(vec![("%r0", at(Base::Shared("s"), low, high, 5))]), &format!("add.s32 %r1, %r0, {by};"))
    };
    let (least, most) = (i128::from(i32::MIN), i128::from(i32::MAX));
    // As aligned as a variable is.
    let any = Some(number(0, (1 << 32) - 1, 4));
    assert_eq!(added(least + 64, 0, -64), Some(at(Base::Shared("s"), least, -64, 5)));
    assert_eq!(added(least + 32, 0, -64), any);
    assert_eq!(added(0, most - 64, 64), Some(at(Base::Shared("s"), 64, most, 5)));
    assert_eq!(added(0, most - 63, 64), any);
}

#[test]
fn only_addresses_of_shared_memory_are_words() {
    let facts = Facts(vec![("%r0", at(ROOT, 0, 0, 63)), ("%r2", at(Base::Shared("s"), 4, 4, 2))]);
    let any = Some(number(0, (1 << 32) - 1, 0));
    assert_eq!(made(&facts, "mov.b32 %r1, %r0;"), any);
    assert_eq!(made(&facts, "add.s32 %r1, %r0, 4;"), any);
    assert_eq!(made(&facts, "mov.b32 %r1, %r2;"), Some(at(Base::Shared("s"), 4, 4, 2)));
    assert_eq!(made(&facts, "add.s32 %r1, %r2, %r2;"), Some(number(0, (1 << 32) - 1, 0)));
    assert_eq!(made(&facts, "sub.s32 %r1, 4, %r2;"), Some(number(0, (1 << 32) - 1, 0)));
    assert_eq!(made(&facts, "selp.b32 %r1, %r2, 4, %p0;"), Some(number(0, (1 << 32) - 1, 0)));
    // A factor that may be beyond what is small may wrap around.
    assert_eq!(made(&facts, "mad.lo.s32 %r1, 8, 4, %r2;"), Some(at(Base::Shared("s"), 36, 36, 2)));
    assert_eq!(made(&facts, "mad.lo.s32 %r1, %r9, 4, %r2;"), Some(number(0, (1 << 32) - 1, 0)));
}

#[test]
fn what_bounds_a_parameter_is_four_lines_one_behind_the_other() {
    const LOAD: &str = "ld.param.u32 %bh_lo, [a+4];";
    const TEST: &str = "setp.gt.u32 %bh_q, %bh_lo, 7;";
    const END: &str = "@%bh_q exit;";
    const OWN: &str = "ld.param.u32 %r0, [a+4];";
    let bound = |lines: &[&str]| {
        let mut bounding = Bounding::default();
        instructions(&lines.join("\n")).into_iter().map(|line| bounding.next(line)).collect::<Vec<_>>()
    };
    assert_eq!(bound(&[LOAD, TEST, END, OWN]), [None, None, None, Some(7)]);
    // Once.
    assert_eq!(bound(&[LOAD, TEST, END, OWN, OWN])[4], None);
    for (place, others) in [
        (
            0,
            &[
                "ld.param.u32 %bh_hi, [a+4];",
                "ld.param.u32 %r0, [a+4];",
                "ld.param.u32 %bh_lo, [a];",
                "ld.param.u32 %bh_lo, [b+4];",
                "ld.param.u32 %bh_lo, [%d0+4];",
                "ld.param.s32 %bh_lo, [a+4];",
                "ld.param.u16 %bh_lo, [a+4];",
                "ld.const.u32 %bh_lo, [a+4];",
                "@%bh_q ld.param.u32 %bh_lo, [a+4];",
            ][..],
        ),
        (
            1,
            &[
                "setp.gt.u32 %p0, %bh_lo, 7;",
                "setp.gt.u32 %bh_q, %r0, 7;",
                "setp.gt.u32 %bh_q, %bh_lo, %r0;",
                "setp.gt.u32 %bh_q, %bh_lo, -1;",
                "setp.gt.u32 %bh_q, %bh_lo, 2147483648;",
                "setp.gt.s32 %bh_q, %bh_lo, 7;",
                "setp.lt.u32 %bh_q, %bh_lo, 7;",
                "setp.ne.u32 %bh_q, %bh_lo, 7;",
                "@%bh_q setp.gt.u32 %bh_q, %bh_lo, 7;",
                LOAD,
                END,
            ],
        ),
        (2, &["@%p0 exit;", "@!%bh_q exit;", "exit;", "@%bh_q ret;", "@%bh_q trap;", TEST, LOAD]),
        (
            3,
            &[
                "ld.param.u32 %r0, [a];",
                "ld.param.u32 %r0, [b+4];",
                "ld.param.s32 %r0, [a+4];",
                "ld.param.b32 %r0, [a+4];",
                "@%p0 ld.param.u32 %r0, [a+4];",
                "mov.u32 %r0, 3;",
            ],
        ),
    ] {
        for other in others {
            let mut lines = [LOAD, TEST, END, OWN];
            lines[place] = other;
            assert_eq!(bound(&lines), [None; 4], "{lines:?}");
        }
        for between in ["mov.u32 %r3, 3;", END, LOAD] {
            let mut lines = vec![LOAD, TEST, END, OWN];
            lines.insert(place, between);
            // Loaded a second time, it is what is tested, or what was bounded.
            let is_loaded_again = place == 0 || place % 2 == 1 && between == LOAD;
            assert_eq!(bound(&lines).iter().any(Option::is_some), is_loaded_again, "{lines:?}");
        }
    }
    // What lies behind a register may be another word the second time.
    let behind = |line: &str| line.replace("[a+4]", "[%d0+4]");
    assert_eq!(bound(&[&behind(LOAD), TEST, END, &behind(OWN)]), [None; 4]);
    // The most that a number may be that is the same signed and unsigned.
    assert_eq!(
        bound(&[LOAD, "setp.gt.u32 %bh_q, %bh_lo, 2147483647;", END, OWN])[3],
        Some(i128::from(i32::MAX))
    );
}
