//! Floating-point numbers: rounding, conversions and approximate functions.

use super::*;

const EXACT: Mode = Mode { flush: false, saturate: false, rounding: Rounding::Nearest };

#[test]
fn the_smaller_of_a_number_and_nan_is_the_number() {
    let plain = Extreme { flush: false, keep_nan: false };
    let min = float::min_max("min", Type::F32, plain).unwrap();
    let max = float::min_max("max", Type::F32, plain).unwrap();
    let kept = float::min_max("min", Type::F32, Extreme { keep_nan: true, ..plain }).unwrap();
    assert_eq!(single(two(min, bits(f32::NAN), bits(3.0))), 3.0);
    assert_eq!(single(two(max, bits(3.0), bits(f32::NAN))), 3.0);
    assert_eq!(two(min, bits(f32::NAN), bits(-f32::NAN)), 0x7fff_ffff);
    assert_eq!(two(kept, bits(f32::NAN), bits(3.0)), 0x7fff_ffff);
    assert_eq!(two(min, bits(0.0), bits(-0.0)), bits(-0.0));
    assert_eq!(two(max, bits(-0.0), bits(0.0)), bits(0.0));
}

#[test]
fn arithmetic_has_one_nan_and_flushes_when_told() {
    let add = float::arithmetic("add", Type::F32, EXACT).unwrap();
    assert_eq!(two(add, bits(f32::INFINITY), bits(f32::NEG_INFINITY)), 0x7fff_ffff);
    let flush = float::arithmetic("mul", Type::F32, Mode { flush: true, ..EXACT }).unwrap();
    assert_eq!(two(flush, 1, bits(2.0)), 0);
    assert_eq!(two(flush, bits(-1e-30), bits(1e-10)), bits(-0.0));
    let saturate = float::fma(Type::F32, Mode { saturate: true, ..EXACT }).unwrap();
    assert_eq!(single(three(saturate, bits(2.0), bits(3.0), bits(0.0))), 1.0);
    assert_eq!(single(three(saturate, bits(f32::NAN), bits(3.0), bits(0.0))), 0.0);
}

#[test]
fn a_fused_product_is_rounded_once() {
    let f = float::fma(Type::F32, EXACT).unwrap();
    let a = 1.0 + f32::EPSILON;
    let rest = single(three(f, bits(a), bits(a), bits(-(a * a))));
    assert_eq!(rest, f32::EPSILON * f32::EPSILON);
}

/// The neighbours of the exact result bracket it, so directed rounding can be checked in double
/// precision, where sums and products of singles with near exponents are exact.
#[test]
fn directed_rounding_takes_the_neighbour_on_its_side() {
    for pattern in patterns(20_000) {
        let a = f32::from_bits((pattern as u32 & 0x807f_ffff) | 0x3f00_0000);
        let b = f32::from_bits(((pattern >> 32) as u32 & 0x807f_ffff) | 0x4080_0000);
        let product = f64::from(a) * f64::from(b);
        let sum = f64::from(a) + f64::from(b);
        for (name, exact) in [("mul", product), ("add", sum)] {
            let round = |rounding| {
                let f = float::arithmetic(name, Type::F32, Mode { rounding, ..EXACT }).unwrap();
                f64::from(single(two(f, bits(a), bits(b))))
            };
            let (down, up, zero) = (round(Rounding::Down), round(Rounding::Up), round(Rounding::Zero));
            assert!(down <= exact && exact <= up);
            assert_eq!(down == up, down == exact);
            assert!(down == up || (down as f32).next_up() == up as f32);
            assert_eq!(zero, if exact < 0.0 { up } else { down });
        }
    }
}

#[test]
fn directed_rounding_of_doubles_brackets_the_nearest() {
    for pattern in patterns(5_000) {
        let a = f64::from_bits((pattern & 0x800f_ffff_ffff_ffff) | 0x3fe0_0000_0000_0000);
        let b = f64::from_bits((pattern.rotate_left(20) & 0x800f_ffff_ffff_ffff) | 0x4010_0000_0000_0000);
        for (name, near) in [("add", a + b), ("mul", a * b), ("sub", a - b)] {
            let round = |rounding| {
                let f = float::arithmetic(name, Type::F64, Mode { rounding, ..EXACT }).unwrap();
                f64::from_bits(two(f, a.to_bits(), b.to_bits()))
            };
            let (down, up) = (round(Rounding::Down), round(Rounding::Up));
            assert!(down == near || up == near);
            assert!(down == up || down.next_up() == up);
        }
        let f = float::div(Type::F64, Mode { rounding: Rounding::Down, ..EXACT }).unwrap();
        let quotient = f64::from_bits(two(f, a.to_bits(), b.to_bits()));
        // quotient * b <= a for positive b: the residual of the lower quotient is not negative.
        let residual = (-quotient).mul_add(b, a);
        assert!(if b > 0.0 { residual >= 0.0 } else { residual <= 0.0 });
    }
    let f = float::arithmetic("add", Type::F64, Mode { rounding: Rounding::Zero, ..EXACT }).unwrap();
    assert_eq!(f64::from_bits(two(f, f64::MAX.to_bits(), f64::MAX.to_bits())), f64::MAX);
    let f = float::arithmetic("add", Type::F32, Mode { rounding: Rounding::Down, ..EXACT }).unwrap();
    assert_eq!(two(f, bits(1.0), bits(-1.0)), bits(-0.0));
}

#[test]
fn rounding_to_nearest_agrees_with_the_processor() {
    for pattern in patterns(50_000) {
        let value = f64::from_bits(pattern);
        // Around single precision's range, subnormals included.
        let near =
            f64::from_bits((pattern & 0x800f_ffff_ffff_ffff) | ((pattern >> 52) % 0x120 + 0x360) << 52);
        for value in [value, near] {
            let ours = Exact::of(value).to_f32(Rounding::Nearest);
            if value.is_nan() {
                assert!(ours.is_nan());
            } else {
                assert_eq!(ours.to_bits(), (value as f32).to_bits(), "{value:e}");
            }
        }
    }
}

#[test]
fn halves_survive_a_round_trip_and_round_to_even() {
    for half in 0..=u16::MAX {
        let value = rounding::f16_to_f32(half);
        if !value.is_nan() {
            assert_eq!(Exact::of(value.into()).narrow(rounding::F16, Rounding::Nearest), u32::from(half));
        }
    }
    let narrow = |value: f64, rounding| Exact::of(value).narrow(rounding::F16, rounding);
    assert_eq!(narrow(65519.0, Rounding::Nearest), 0x7bff);
    assert_eq!(narrow(65520.0, Rounding::Nearest), 0x7c00);
    assert_eq!(narrow(65520.0, Rounding::Zero), 0x7bff);
    assert_eq!(narrow(2f64.powi(-25), Rounding::Nearest), 0);
    assert_eq!(narrow(2f64.powi(-25), Rounding::Up), 1);
    assert_eq!(narrow(-(2f64.powi(-25)), Rounding::Down), 0x8001);
    assert_eq!(narrow(1.0 + 2f64.powi(-11), Rounding::Nearest), 0x3c00);
    assert_eq!(narrow(1.0 + 3.0 * 2f64.powi(-11), Rounding::Nearest), 0x3c02);
}

#[test]
fn arithmetic_on_halves_is_rounded_once() {
    let add = half::arithmetic("add", Type::F16, false).unwrap();
    // 2048 + 1.0009765625: a double rounding by way of single precision is not possible here.
    assert_eq!(two(add, 0x6800, 0x3c00), 0x6800);
    assert_eq!(two(add, 0x6800, 0x3c01), 0x6801);
    let fma = half::fma(Type::F16x2, After::Relu).unwrap();
    assert_eq!(three(fma, 0x4000_bc00, 0x4000_3c00, 0x3c00_0000), 0x4500_0000);
    let min = half::min_max("min", Type::Bf16, false).unwrap();
    assert_eq!(two(min, 0x7fc0, 0x3f80), 0x3f80);
    assert_eq!(one(half::abs_neg("neg", Type::F16x2).unwrap(), 0x3c00_bc00), 0xbc00_3c00);
}

fn conversion(from: Type, to: Type) -> Conversion {
    Conversion {
        from: Side::of(from).unwrap(),
        to: Side::of(to).unwrap(),
        rounding: Rounding::Nearest,
        integral: None,
        flush: false,
        saturate: false,
        relu: false,
    }
}

#[test]
fn floats_saturate_when_they_become_integers() {
    let to = |ty| conversion(Type::F32, ty);
    assert_eq!(to(Type::S32).lane(bits(3e9)), 0x7fff_ffff);
    assert_eq!(to(Type::S32).lane(bits(-3e9)), 0x8000_0000);
    assert_eq!(to(Type::U32).lane(bits(-1.0)), 0);
    assert_eq!(to(Type::U8).lane(bits(300.0)), 255);
    assert_eq!(to(Type::S8).lane(bits(-300.0)), 0x80);
    assert_eq!(to(Type::S32).lane(bits(f32::NAN)), 0);
    assert_eq!(to(Type::S64).lane(bits(f32::NAN)), 1 << 63);
    assert_eq!(conversion(Type::F64, Type::S32).lane(f64::NAN.to_bits()), 0x8000_0000);
    assert_eq!(to(Type::U64).lane(bits(f32::INFINITY)), u64::MAX);
}

#[test]
fn integral_rounding_has_four_directions() {
    let round = |integral, value: f32| {
        let conversion = Conversion { integral: Some(integral), ..conversion(Type::F32, Type::S32) };
        conversion.lane(bits(value)) as u32 as i32
    };
    for (value, expected) in
        [(2.5, [2, 2, 2, 3]), (-2.5, [-2, -2, -3, -2]), (3.5, [4, 3, 3, 4]), (-0.5, [0, 0, -1, 0])]
    {
        let modes = [Integral::Nearest, Integral::Zero, Integral::Down, Integral::Up];
        assert_eq!(modes.map(|mode| round(mode, value)), expected, "{value}");
    }
    let kept = Conversion { integral: Some(Integral::Nearest), ..conversion(Type::F32, Type::F32) };
    assert_eq!(single(kept.lane(bits(2.5))), 2.0);
}

#[test]
fn integers_are_extended_truncated_and_clamped() {
    assert_eq!(conversion(Type::S8, Type::S32).lane(0x80), 0xffff_ff80);
    assert_eq!(conversion(Type::U8, Type::S32).lane(0x80), 0x80);
    assert_eq!(conversion(Type::S64, Type::U16).lane(0x1_2345), 0x2345);
    let clamp = |from, to| Conversion { saturate: true, ..conversion(from, to) };
    assert_eq!(clamp(Type::S32, Type::U8).lane(0xffff_ffff), 0);
    assert_eq!(clamp(Type::S32, Type::S8).lane(1000), 127);
    assert_eq!(clamp(Type::U64, Type::S64).lane(u64::MAX), i64::MAX as u64);
    for from in [Type::U8, Type::S8, Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64] {
        for to in [Type::U8, Type::S8, Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64] {
            let conversion = conversion(from, to);
            let fast = conversion.fast().unwrap();
            for pattern in patterns(50) {
                assert_eq!(one(fast, pattern), conversion.lane(pattern), "{from:?} to {to:?}");
            }
        }
    }
}

#[test]
fn the_fast_conversions_agree_with_the_general_one() {
    let zero = Some(Integral::Zero);
    let cases = [
        (Type::S32, Type::F32, None),
        (Type::U32, Type::F32, None),
        (Type::U32, Type::F64, None),
        (Type::S64, Type::F32, None),
        (Type::U64, Type::F64, None),
        (Type::F32, Type::S32, zero),
        (Type::F32, Type::U32, zero),
        (Type::F32, Type::F64, None),
        (Type::F64, Type::F32, None),
    ];
    for (from, to, integral) in cases {
        let conversion = Conversion { integral, ..conversion(from, to) };
        let fast = conversion.fast().unwrap();
        for pattern in patterns(5_000) {
            let (fast, general) = (one(fast, pattern), conversion.lane(pattern));
            let both_nan =
                to == Type::F64 && f64::from_bits(fast).is_nan() && f64::from_bits(general).is_nan();
            assert!(
                fast == general || both_nan,
                "{from:?} to {to:?} of {pattern:#x}: {fast:#x} {general:#x}"
            );
        }
    }
}

#[test]
fn large_integers_round_in_the_direction_asked_for() {
    let round = |rounding| {
        let conversion = Conversion { rounding, ..conversion(Type::U64, Type::F32) };
        single(conversion.lane((1 << 40) + 1))
    };
    assert_eq!(round(Rounding::Nearest), 2f32.powi(40));
    assert_eq!(round(Rounding::Up), 2f32.powi(40).next_up());
    assert_eq!(round(Rounding::Zero), 2f32.powi(40));
    let down = Conversion { rounding: Rounding::Down, ..conversion(Type::U64, Type::F64) };
    assert_eq!(f64::from_bits(down.lane(u64::MAX)), 2f64.powi(64).next_down());
}

#[test]
fn approximate_functions_stay_within_the_isa_bounds() {
    let f = |name| approx::function(name, Type::F32, false).unwrap();
    for step in 1..2000 {
        let x = step as f32 * 0.01;
        let close = |name, expected: f64, bound: f64| {
            let got = f64::from(single(one(f(name), bits(x))));
            assert!((got - expected).abs() <= bound, "{name} {x}: {got} {expected}");
        };
        let wide = f64::from(x);
        close("rsqrt", 1.0 / wide.sqrt(), 2f64.powi(-22) / wide.sqrt());
        close("ex2", wide.exp2(), 2f64.powi(-22) * wide.exp2());
        close("sin", wide.sin(), 2f64.powi(-20));
        close("lg2", wide.log2(), 2f64.powi(-20));
    }
    let seed = approx::function("rcp", Type::F64, true).unwrap();
    let word = one(seed, 3f64.to_bits());
    assert_eq!(word & 0xffff_ffff, 0);
    assert!((f64::from_bits(word) * 3.0 - 1.0).abs() < 2f64.powi(-19));
}

#[test]
fn powers_and_logarithms_are_right_where_results_are_extreme() {
    let f = |name, x: f32| single(one(approx::function(name, Type::F32, false).unwrap(), bits(x)));
    let near = |got: f32, expected: f64| {
        let error = (f64::from(got) - expected).abs();
        assert!(error <= 2f64.powi(-23) * expected.abs() + 2f64.powi(-150), "{got} {expected}");
    };
    for step in -16_000..16_000i16 {
        let x = (f32::from(step) * 0.009_771).min(127.9);
        near(f("ex2", x), f64::from(x).exp2());
        let x = f32::from_bits(0x3f80_0000u32.wrapping_add_signed(i32::from(step) * 7));
        near(f("lg2", x), f64::from(x).log2());
    }
    for power in -149..128i16 {
        let whole = 2f64.powi(power.into());
        assert_eq!(f64::from(f("ex2", power.into())), whole);
        assert_eq!(f("lg2", whole as f32), f32::from(power));
    }
    assert_eq!(
        [f32::INFINITY, f32::NEG_INFINITY, 129.0, -160.0, -0.0].map(|x| f("ex2", x)),
        [f32::INFINITY, 0.0, f32::INFINITY, 0.0, 1.0]
    );
    assert_eq!(
        [0.0, -0.0, f32::INFINITY].map(|x| f("lg2", x)),
        [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::INFINITY]
    );
    for (name, x) in [("ex2", f32::NAN), ("lg2", f32::NAN), ("lg2", -1.0), ("lg2", f32::NEG_INFINITY)] {
        assert_eq!(f(name, x).to_bits(), 0x7fff_ffff, "{name} {x}");
    }
}

#[test]
fn the_number_beside_the_nearest_is_what_rounding_bit_by_bit_gives() {
    let mut values =
        vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, 1e39, -1e39, 3.4e38];
    for word in patterns(3000) {
        let wide = f64::from(single(word));
        values.extend([
            wide,
            wide.next_up(),
            wide.next_down(),
            wide * 1.5,
            wide * 1e-20,
            wide * 2f64.powi(-24),
        ]);
    }
    for value in values {
        for rest in [0.0, value.abs() * 1e-20, value.abs() * -1e-20, f64::NAN] {
            let exact = Exact { value, rest };
            for rounding in [Rounding::Zero, Rounding::Down, Rounding::Up] {
                let got = exact.to_f32(rounding).to_bits();
                assert_eq!(got, exact.narrow(rounding::F32, rounding), "{value:e} {rest:e} {rounding:?}");
            }
        }
    }
}
