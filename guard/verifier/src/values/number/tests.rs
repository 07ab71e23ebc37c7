//! Every rule for numbers, tried on all numbers of a narrow register.

use super::*;

const WIDTH: Width = Width(8);
const ORDERS: [Order; 6] =
    [Order::Equal, Order::Differs, Order::Less, Order::LessOrEqual, Order::Greater, Order::GreaterOrEqual];

/// The number that a register of 8 bits holds, with a sign.
fn signed(value: i128) -> i128 {
    let low = value.rem_euclid(WIDTH.count());
    if low > WIDTH.most() { low - WIDTH.count() } else { low }
}

fn unsigned(value: i128) -> i128 {
    value.rem_euclid(WIDTH.count())
}

/// Whether a register may hold a value, of which that is known.
fn admits(known: Number, value: i128) -> bool {
    let value = unsigned(value);
    let multiple = value % (1 << known.zeros.min(8)) == 0;
    multiple && known.low <= value && value <= known.high && value <= known.most.constant
}

/// All that may be known of a register of 8 bits, with ends near the powers of two.
fn all_known() -> Vec<Number> {
    let ends = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 65, 100, 126, 127];
    let mut known = Vec::new();
    for (index, low) in ends.iter().enumerate() {
        for high in &ends[index..] {
            for zeros in [0, 1, 2, 4] {
                let number = Number::between(*low, *high).with_zeros(zeros);
                if (*low..=*high).any(|value| admits(number, value)) {
                    known.push(number);
                }
            }
        }
    }
    known.extend([0, 1, 2, 5, 8].map(|zeros| Sign::Unsigned.all(WIDTH).with_zeros(zeros)));
    known.push(Number::exactly(0));
    known
}

/// The values that a register may hold.
fn values(known: Number) -> Vec<i128> {
    (0..WIDTH.count()).filter(|value| admits(known, *value)).collect()
}

/// What an instruction computes of two registers, without a sign.
fn compute(op: Op, one: i128, other: i128) -> Option<i128> {
    Some(unsigned(match op {
        Op::Add => one + other,
        Op::Sub => one - other,
        Op::Mul => one * other,
        Op::ShrUnsigned | Op::ShrSigned => {
            let by = u32::try_from(other).ok().filter(|by| by.is_power_of_two())?.trailing_zeros();
            if op == Op::ShrUnsigned { one >> by } else { signed(one) >> by }
        }
        Op::And => one & other,
        Op::Or => one | other,
        Op::MinUnsigned => one.min(other),
        Op::MinSigned => signed(one).min(signed(other)),
        Op::MaxSigned => signed(one).max(signed(other)),
        Op::Select => one,
    }))
}

#[test]
fn every_instruction_makes_what_is_said_of_its_result() {
    let known = all_known();
    let ops = [
        Op::Add,
        Op::Sub,
        Op::Mul,
        Op::And,
        Op::Or,
        Op::MinUnsigned,
        Op::MinSigned,
        Op::MaxSigned,
        Op::Select,
    ];
    let sets: Vec<Vec<i128>> = known.iter().map(|known| values(*known)).collect();
    for (one, ones) in known.iter().zip(&sets).step_by(3) {
        for (other, others) in known.iter().zip(&sets).step_by(5) {
            for op in ops {
                let result = op.of(*one, *other, WIDTH).unwrap();
                for first in ones {
                    for second in others {
                        let value = compute(op, *first, *second).unwrap();
                        assert!(
                            admits(result, value),
                            "{op:?} {first} {second}: {value}, {one:?} {other:?} {result:?}"
                        );
                        let exclusive = op != Op::Or || admits(result, first ^ second);
                        assert!(exclusive, "xor {first} {second}, {one:?} {other:?} {result:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_value_is_told_from_what_is_known_of_it_exactly_or_by_one_end() {
    let forms = |value: i128| {
        let zeros = value.trailing_zeros().min(8);
        let small = value <= WIDTH.most();
        let least = Number::between(0, value).with_zeros(zeros);
        let most = Number::between(value, WIDTH.most()).with_zeros(zeros);
        [Some(Number::exactly(value).settled(WIDTH)), small.then_some(least), small.then_some(most)]
    };
    for one in 0..WIDTH.count() {
        for other in 0..WIDTH.count() {
            for first in forms(one).into_iter().flatten() {
                for second in forms(other).into_iter().flatten() {
                    for op in [
                        Op::Add,
                        Op::Sub,
                        Op::Mul,
                        Op::And,
                        Op::Or,
                        Op::MinSigned,
                        Op::MaxSigned,
                        Op::MinUnsigned,
                    ] {
                        let (result, value) =
                            (op.of(first, second, WIDTH).unwrap(), compute(op, one, other).unwrap());
                        assert!(
                            admits(result, value),
                            "{op:?} {one} {other}: {value}, {first:?} {second:?} {result:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_shift_makes_what_is_said_of_its_result() {
    for known in all_known() {
        for shift in 0..8 {
            for op in [Op::Mul, Op::ShrUnsigned, Op::ShrSigned] {
                let Some(result) = op.of(known, Number::exactly(1 << shift), WIDTH) else { continue };
                for value in values(known) {
                    let shifted = compute(op, value, 1 << shift).unwrap();
                    assert!(
                        admits(result, shifted),
                        "{op:?} {value} by {shift}: {shifted}, {known:?} {result:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_number_of_a_sign_is_the_same_register() {
    for known in all_known() {
        for sign in [Sign::Signed, Sign::Unsigned] {
            let meant = known.meant(sign, WIDTH);
            for value in values(known) {
                let value = if sign == Sign::Signed { signed(value) } else { value };
                assert!(meant.low <= value && value <= meant.high, "{value} {known:?} {meant:?}");
                assert!(value % (1 << meant.zeros.min(8)) == 0);
            }
        }
    }
}

#[test]
fn what_a_test_leaves_is_all_that_passes_it() {
    let known = all_known();
    for (one, bound) in known.iter().flat_map(|one| known.iter().step_by(7).map(move |bound| (*one, *bound)))
    {
        for sign in [Sign::Signed, Sign::Unsigned] {
            let meant = |value| if sign == Sign::Signed { signed(value) } else { value };
            let against = bound.meant(sign, WIDTH);
            // Where no small number is known, any of the sign.
            let begin = if one.is_small(WIDTH) { one } else { sign.all(WIDTH) };
            for order in ORDERS {
                let cut = order.cut((begin.low, begin.high), (against.low, against.high));
                let left = refined(Some(one), cut, WIDTH);
                let swapped = order.swapped().cut((against.low, against.high), (begin.low, begin.high));
                for first in values(one) {
                    for second in values(bound) {
                        if !holds(order, meant(first), meant(second)) {
                            assert!(holds(order.not(), meant(first), meant(second)));
                            continue;
                        }
                        let ok = left.is_none_or(|left| admits(left, first));
                        assert!(ok, "{first} {order:?} {second} {sign:?}: {one:?} {bound:?} {left:?}");
                        let second = meant(second);
                        assert!(swapped.0 <= second && second <= swapped.1);
                    }
                }
            }
        }
    }
}

fn holds(order: Order, one: i128, other: i128) -> bool {
    match order {
        Order::Equal => one == other,
        Order::Differs => one != other,
        Order::Less => one < other,
        Order::LessOrEqual => one <= other,
        Order::Greater => one > other,
        Order::GreaterOrEqual => one >= other,
    }
}

#[test]
fn an_immediate_is_what_its_low_bits_are() {
    for value in -300..300 {
        let fits = (-128..256).contains(&value);
        assert_eq!(Sign::Signed.immediate(value, WIDTH), fits.then(|| signed(value)));
        assert_eq!(Sign::Unsigned.immediate(value, WIDTH), fits.then(|| unsigned(value)));
    }
}

/// Where a thread is along x, in blocks of 1,024.
fn thread() -> Number {
    Number { most: Most::thread(0), ..Number::between(0, 1023) }
}

#[test]
fn a_multiple_of_where_a_thread_is_says_where_that_is() {
    let times = |factor| Number { most: Most::thread(0).times(factor), ..Number::between(0, 1023 * factor) };
    for factor in [3, 5] {
        assert_eq!(thread().times(Number::exactly(factor)), times(factor));
        assert_eq!(Number::exactly(factor).times(thread()), times(factor));
    }
    assert_eq!(thread().times(Number::between(2, 3)), Number::between(0, 3 * 1023));
    assert_eq!(Number::between(2, 3).times(thread()), Number::between(0, 3 * 1023));
    assert_eq!(thread().times(Number::between(-3, -3)), Number::between(-3 * 1023, 0));
    assert_eq!(thread().times(thread()), Number::between(0, 1023 * 1023));
}

#[test]
fn of_either_number_is_known_what_is_known_of_both() {
    assert_eq!(thread().or(thread()), thread());
    assert_eq!(thread().or(Number::between(0, 7)), Number::between(0, 1023));
    assert_eq!(Number::exactly(4).or(Number::exactly(8)), Number::between(4, 8).with_zeros(2));
}

#[test]
fn of_one_number_is_known_what_either_says() {
    let between = Number::between;
    assert_eq!(between(0, 5).with(between(3, 9)), between(3, 5));
    assert_eq!(between(0, 5).with(between(5, 9)), between(5, 5));
    assert_eq!(between(0, 5).with_zeros(1).with(between(0, 9).with_zeros(2)), between(0, 5).with_zeros(2));
    // Nobody comes there.
    assert_eq!(between(0, 5).with(between(6, 9)), between(0, 5));
    assert_eq!(thread().with(between(1, 1023)), Number { low: 1, ..thread() });
    assert_eq!(thread().with(between(0, 7)), between(0, 7));
}

#[test]
fn what_says_no_more_holds_the_other() {
    let known = Number::between(2, 8).with_zeros(1);
    for (low, high, zeros, holds) in [
        (2, 8, 1, true),
        (1, 8, 1, true),
        (2, 9, 1, true),
        (2, 8, 0, true),
        (3, 8, 1, false),
        (2, 7, 1, false),
        (2, 8, 2, false),
    ] {
        assert_eq!(Number::between(low, high).with_zeros(zeros).holds(known), holds);
        assert_eq!(Number::between(low, high).with_zeros(zeros).implied_by(known), holds);
    }
    let claimed = Number { most: Most::thread(0), ..Number::between(0, 1023) };
    assert!(claimed.implied_by(thread()) && claimed.plain().implied_by(thread()));
    assert!(!claimed.implied_by(Number::between(0, 1023)) && claimed.holds(Number::between(0, 1023)));
    assert!(!claimed.implied_by(Number { high: 1024, ..thread() }));
}

#[test]
fn what_does_not_depend_on_where_a_thread_is_is_plain() {
    assert!(Number::between(0, 7).is_plain() && thread().plain().is_plain());
    assert!(!thread().is_plain());
    assert!(!Number { most: Most::constant(6), ..Number::between(0, 7) }.is_plain());
}

#[test]
fn nothing_further_off_than_far_is_looked_at() {
    let (fits, whole) = (|number: Number| number.fits() == Some(number), Number::between(-FAR, FAR - 1));
    assert!(fits(whole) && fits(Number { high: FAR, ..whole }));
    assert!(!fits(Number { low: -FAR - 1, ..whole }) && !fits(Number { high: FAR + 1, ..whole }));
    let most = |constant| Number { most: Most::constant(constant), ..whole };
    assert!(fits(most(-FAR)) && !fits(most(-FAR - 1)));
    assert!(!fits(most(FAR + 1)));
}
