//! Instruction families against arithmetic written another way.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use bulkhead_ptx::ast::Type;

use super::convert::{Conversion, Integral, Side};
use super::float::{Extreme, Mode};
use super::half::After;
use super::integer::Part;
use super::rounding::{self, Exact, Rounding};
use super::*;

mod floats;

const EDGES_32: [u32; 16] = [
    0,
    1,
    2,
    31,
    32,
    33,
    0x7f,
    0x80,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xdead_beef,
    0xffff_fffe,
    0xffff_ffff,
];

/// All pairs of edge cases, 32 at a time.
fn pairs_32(check: impl Fn(&Lanes, &Lanes)) {
    let pairs: Vec<(u32, u32)> =
        EDGES_32.iter().flat_map(|a| EDGES_32.iter().map(move |b| (*a, *b))).collect();
    for chunk in pairs.chunks_exact(LANES) {
        check(
            &std::array::from_fn(|i| u64::from(chunk[i].0)),
            &std::array::from_fn(|i| u64::from(chunk[i].1)),
        );
    }
}

fn one(f: Unary, a: u64) -> u64 {
    let mut out = [0; LANES];
    (f.lanes)(&[a; LANES], &mut out);
    out[17]
}

fn two(f: Binary, a: u64, b: u64) -> u64 {
    let mut out = [0; LANES];
    (f.lanes)(&[a; LANES], &[b; LANES], &mut out);
    out[17]
}

fn three(f: Ternary, a: u64, b: u64, c: u64) -> u64 {
    let mut out = [0; LANES];
    (f.lanes)(&[a; LANES], &[b; LANES], &[c; LANES], &mut out);
    out[17]
}

fn bits(x: f32) -> u64 {
    u64::from(x.to_bits())
}

fn single(word: u64) -> f32 {
    f32::from_bits(word as u32)
}

/// A generator of bit patterns that reach every exponent.
fn patterns(count: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
    .take(count)
}

#[test]
fn sums_and_products_wrap_at_every_width() {
    pairs_32(|a, b| {
        let mut out = [0; LANES];
        (integer::add_sub("sub", Type::S32).unwrap().lanes)(a, b, &mut out);
        for i in 0..LANES {
            assert_eq!(out[i], (a[i] + (1 << 32) - b[i]) & 0xffff_ffff);
        }
        (integer::mul(Part::High, Type::S32).unwrap().lanes)(a, b, &mut out);
        for i in 0..LANES {
            let product = i128::from(a[i] as u32 as i32) * i128::from(b[i] as u32 as i32);
            assert_eq!(out[i], (product >> 32) as u64 & 0xffff_ffff);
        }
        (integer::mul(Part::Wide, Type::S32).unwrap().lanes)(a, b, &mut out);
        for i in 0..LANES {
            let product = i128::from(a[i] as u32 as i32) * i128::from(b[i] as u32 as i32);
            assert_eq!(out[i], product as u64);
        }
    });
    assert_eq!(two(integer::add_sub("add", Type::U16).unwrap(), 0xffff, 2), 1);
    assert_eq!(two(integer::mul(Part::High, Type::U64).unwrap(), u64::MAX, u64::MAX), u64::MAX - 1);
    assert_eq!(two(integer::mul(Part::High, Type::S64).unwrap(), u64::MAX, 5), u64::MAX);
    assert_eq!(three(integer::mad(Part::Wide, Type::S16, false).unwrap(), 0xffff, 3, 1), 0xffff_fffe);
}

#[test]
fn saturating_sums_stop_at_the_ends() {
    let add = integer::saturating("add").unwrap();
    let sub = integer::saturating("sub").unwrap();
    assert_eq!(two(add, 0x7fff_ffff, 1), 0x7fff_ffff);
    assert_eq!(two(add, 0x8000_0000, 0xffff_ffff), 0x8000_0000);
    assert_eq!(two(sub, 0x8000_0000, 1), 0x8000_0000);
}

#[test]
fn a_product_of_24_bits_ignores_what_is_above() {
    assert_eq!(two(integer::mul24(Part::Low, Type::U32).unwrap(), 0xff00_0003, 0xee00_0005), 15);
    assert_eq!(two(integer::mul24(Part::High, Type::U32).unwrap(), 0xff_ffff, 0xff_ffff), 0xffff_fe00);
    assert_eq!(two(integer::mul24(Part::Low, Type::S32).unwrap(), 0x00ff_ffff, 7), 0xffff_fff9);
}

#[test]
fn division_never_traps() {
    let div = integer::div_rem("div", Type::S32).unwrap();
    let rem = integer::div_rem("rem", Type::S32).unwrap();
    assert_eq!(two(div, 0x8000_0000, 0xffff_ffff), 0x8000_0000);
    assert_eq!(two(rem, 0x8000_0000, 0xffff_ffff), 0);
    assert_eq!(two(div, 7, 0), 0xffff_ffff);
    assert_eq!(two(rem, 7, 0), 7);
    assert_eq!(two(div, -7i32 as u32 as u64, 2), -3i32 as u32 as u64);
    assert_eq!(two(rem, -7i32 as u32 as u64, 2), -1i32 as u32 as u64);
    assert_eq!(two(integer::div_rem("div", Type::S64).unwrap(), i64::MIN as u64, u64::MAX), i64::MIN as u64);
    assert_eq!(two(integer::div_rem("div", Type::U64).unwrap(), 1, 0), u64::MAX);
}

#[test]
fn shifts_beyond_the_width_give_zero_or_the_sign() {
    let shl = logic::shift("shl", Type::B32).unwrap();
    let shr = logic::shift("shr", Type::U32).unwrap();
    let sar = logic::shift("shr", Type::S32).unwrap();
    for amount in [32, 33, 255, 0xffff_ffff] {
        assert_eq!(two(shl, 0xdead_beef, amount), 0);
        assert_eq!(two(shr, 0xdead_beef, amount), 0);
        assert_eq!(two(sar, 0xdead_beef, amount), 0xffff_ffff);
        assert_eq!(two(sar, 0x5ead_beef, amount), 0);
    }
    assert_eq!(two(shl, 1, 31), 0x8000_0000);
    assert_eq!(two(logic::shift("shr", Type::S64).unwrap(), 1 << 63, 64), u64::MAX);
    assert_eq!(two(logic::shift("shl", Type::B64).unwrap(), 1, 63), 1 << 63);
    assert_eq!(two(logic::shift("shl", Type::B16).unwrap(), 0xffff, 4), 0xfff0);
}

#[test]
fn a_funnel_shift_moves_bits_between_two_words() {
    let (low, high) = (0x8765_4321u64, 0xfedc_ba98u64);
    assert_eq!(three(logic::funnel(true, false), low, high, 8), 0xdcba_9887);
    assert_eq!(three(logic::funnel(false, false), low, high, 8), 0x9887_6543);
    assert_eq!(three(logic::funnel(true, false), low, high, 40), 0xdcba_9887);
    assert_eq!(three(logic::funnel(true, true), low, high, 40), low);
    assert_eq!(three(logic::funnel(false, true), low, high, 99), high);
}

#[test]
fn lop3_computes_every_truth_table() {
    let (a, b, c) = (0xf0u64, 0xcc, 0xaa);
    for table in 0..=255u8 {
        let mut out = [0; LANES];
        logic::lop3(table, &[a; LANES], &[b; LANES], &[c; LANES], &mut out);
        assert_eq!(out[3] & 0xff, u64::from(table), "table {table:#x}");
        assert_eq!(out[3] >> 32, 0);
    }
}

#[test]
fn bit_fields_end_at_the_top_of_the_word() {
    let unsigned = super::bits::extract(Type::U32).unwrap();
    let signed = super::bits::extract(Type::S32).unwrap();
    assert_eq!(three(unsigned, 0xdead_beef, 8, 8), 0xbe);
    assert_eq!(three(signed, 0xdead_beef, 8, 8), 0xffff_ffbe);
    assert_eq!(three(unsigned, 0xdead_beef, 28, 8), 0xd);
    assert_eq!(three(signed, 0xdead_beef, 28, 8), 0xffff_fffd);
    assert_eq!(three(unsigned, 0xdead_beef, 0, 0), 0);
    assert_eq!(three(signed, 0xdead_beef, 40, 8), 0xffff_ffff);
    assert_eq!(three(unsigned, 0xdead_beef, 0, 32), 0xdead_beef);
    assert_eq!(three(super::bits::extract(Type::S64).unwrap(), 1 << 63, 63, 1), u64::MAX);

    let mut out = [0; LANES];
    let put = |a: u64, b: u64, position: u64, length: u64, out: &mut Lanes| {
        super::bits::insert(false, &[a; LANES], &[b; LANES], &[position; LANES], &[length; LANES], out);
    };
    put(0xff, 0, 28, 8, &mut out);
    assert_eq!(out[0], 0xf000_0000);
    put(0x5, 0xffff_ffff, 4, 4, &mut out);
    assert_eq!(out[0], 0xffff_ff5f);
    put(0x5, 0xffff_ffff, 32, 4, &mut out);
    assert_eq!(out[0], 0xffff_ffff);
}

#[test]
fn bits_are_counted_and_found() {
    use super::bits;
    assert_eq!(one(bits::count("clz", Type::B32).unwrap(), 0), 32);
    assert_eq!(one(bits::count("popc", Type::B64).unwrap(), u64::MAX), 64);
    assert_eq!(one(bits::count("brev", Type::B32).unwrap(), 1), 0x8000_0000);
    assert_eq!(one(bits::find(Type::U32, false).unwrap(), 0), 0xffff_ffff);
    assert_eq!(one(bits::find(Type::S32, false).unwrap(), 0xffff_ffff), 0xffff_ffff);
    assert_eq!(one(bits::find(Type::S32, false).unwrap(), 0xffff_fffe), 0);
    assert_eq!(one(bits::find(Type::U32, true).unwrap(), 1), 31);
    assert_eq!(three(bits::nth_set(), 0b1011_0000, 0, 2), 5);
    assert_eq!(three(bits::nth_set(), 0b1011_0000, 6, u64::from(-1i32 as u32)), 5);
    assert_eq!(three(bits::nth_set(), 0b1011_0000, 4, 0), 4);
    assert_eq!(three(bits::nth_set(), 0b1011_0000, 3, 0), 0xffff_ffff);
    assert_eq!(two(bits::extend(Type::S32, true).unwrap(), 0x80, 8), 0xffff_ff80);
    assert_eq!(two(bits::mask(true), 4, 8), 0xff0);
    assert_eq!(two(bits::mask(true), 28, 40), 0xf000_0000);
}

#[test]
fn bytes_are_permuted_in_every_mode() {
    use super::bits::permute;
    let (a, b) = (0x3322_1100, 0x7766_5544);
    assert_eq!(three(permute(None).unwrap(), a, b, 0x7531), 0x7755_3311);
    assert_eq!(three(permute(None).unwrap(), 0x80_00, 0, 0x9801), 0xff00_0080);
    assert_eq!(three(permute(Some("f4e")).unwrap(), a, b, 1), 0x4433_2211);
    assert_eq!(three(permute(Some("b4e")).unwrap(), a, b, 1), 0x6677_0011);
    assert_eq!(three(permute(Some("rc8")).unwrap(), a, b, 2), 0x2222_2222);
    assert_eq!(three(permute(Some("ecl")).unwrap(), a, b, 2), 0x3322_2222);
    assert_eq!(three(permute(Some("ecr")).unwrap(), a, b, 1), 0x1111_1100);
    assert_eq!(three(permute(Some("rc16")).unwrap(), a, b, 1), 0x3322_3322);
}

#[test]
fn dot_products_respect_the_signs() {
    let f = integer::dp4a(Type::S32, Type::U32).unwrap();
    assert_eq!(three(f, 0xff02_0304, 0xff02_0304, 10), u64::from((10 - 255 + 4 + 9 + 16i32) as u32));
    let f = integer::dp2a(Part::High, Type::U32, Type::S32).unwrap();
    assert_eq!(three(f, 0x0003_ffff, 0x02ff_0000, 0), u64::from((-65535i32 + 6) as u32));
}

#[test]
fn carries_chain_to_any_length() {
    use super::carry::{Kind, compute};
    let mut out = [0; LANES];
    let zero = [0; LANES];
    for (a, b) in [(u64::MAX, 1), (0x8000_0000, 0x8000_0000), (12, 30), (0xffff_ffff, 0)] {
        let (a_low, a_high) = ([a & 0xffff_ffff; LANES], [a >> 32; LANES]);
        let (b_low, b_high) = ([b & 0xffff_ffff; LANES], [b >> 32; LANES]);
        let carry = compute(Kind::Add, false, [&a_low, &b_low, &zero], None, &mut out);
        let low = out[0];
        compute(Kind::Add, false, [&a_high, &b_high, &zero], Some(carry), &mut out);
        assert_eq!(out[0] << 32 | low, a.wrapping_add(b));
        let borrow = compute(Kind::Sub, false, [&b_low, &a_low, &zero], None, &mut out);
        let low = out[0];
        compute(Kind::Sub, false, [&b_high, &a_high, &zero], Some(borrow), &mut out);
        assert_eq!(out[0] << 32 | low, b.wrapping_sub(a));
    }
    let max = [u64::MAX; LANES];
    let carry = compute(Kind::MulLow, true, [&max, &max, &max], None, &mut out);
    assert_eq!((out[0], carry), (0, u32::MAX));
    compute(Kind::MulHighSigned, true, [&max, &[5; LANES], &zero], Some(u32::MAX), &mut out);
    assert_eq!(out[0], 0);
}

#[test]
fn fields_of_a_sign_select() {
    let f = compare::select_by_sign(Type::S32, false).unwrap();
    assert_eq!(three(f, 1, 2, 0), 1);
    assert_eq!(three(f, 1, 2, 0xffff_ffff), 2);
    let f = compare::select_by_sign(Type::F32, false).unwrap();
    assert_eq!(three(f, 1, 2, bits(-0.0)), 1);
    assert_eq!(three(f, 1, 2, bits(f32::NAN)), 2);
}

#[test]
fn comparisons_of_integers_see_the_sign() {
    pairs_32(|a, b| {
        let less = (compare::comparison("lt", Type::S32, false).unwrap().lanes)(a, b);
        let lower = (compare::comparison("lo", Type::U32, false).unwrap().lanes)(a, b);
        for i in 0..LANES {
            assert_eq!(less >> i & 1 == 1, (a[i] as i32) < b[i] as i32);
            assert_eq!(lower >> i & 1 == 1, a[i] < b[i]);
        }
    });
    assert!(compare::comparison("lt", Type::B32, false).is_none());
    assert!(compare::comparison("lo", Type::S32, false).is_none());
}

#[test]
fn unordered_comparisons_hold_for_nan() {
    let test = |op, a: f32, b: f32| {
        (compare::comparison(op, Type::F32, false).unwrap().lanes)(&[bits(a); LANES], &[bits(b); LANES])
    };
    for op in ["eq", "ne", "lt", "le", "gt", "ge", "num"] {
        assert_eq!(test(op, f32::NAN, 1.0), 0, "{op}");
    }
    for op in ["equ", "neu", "ltu", "leu", "gtu", "geu", "nan"] {
        assert_eq!(test(op, 1.0, f32::NAN), u32::MAX, "{op}");
    }
    assert_eq!(test("equ", 1.0, 1.0), u32::MAX);
    assert_eq!(test("neu", 1.0, 1.0), 0);
    assert_eq!(test("ltu", 2.0, 1.0), 0);
    assert_eq!(test("ne", 2.0, 1.0), u32::MAX);
    assert_eq!(test("eq", -0.0, 0.0), u32::MAX);
    let flushed = compare::comparison("eq", Type::F32, true).unwrap();
    assert_eq!((flushed.lanes)(&[1; LANES], &[0; LANES]), u32::MAX);
}

#[test]
fn atomic_counters_wrap_at_their_bound() {
    let inc = update::named("inc", Type::U32).unwrap();
    assert_eq!([inc(2, 3), inc(3, 3), inc(9, 3)], [3, 0, 0]);
    let dec = update::named("dec", Type::U32).unwrap();
    assert_eq!([dec(0, 3), dec(3, 3), dec(9, 3)], [3, 2, 3]);
    let min = update::named("min", Type::S32).unwrap();
    assert_eq!(min(0xffff_ffff, 1), 0xffff_ffff);
}
