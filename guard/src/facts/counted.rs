//! How often a loop turns that is left by a test of what it counts.
//!
//! The rewriter alone goes by it: what it claims then, the checker checks edge by edge.

use crate::values::number::{Number, Order, Sign, Width};

/// How often a number that begins as `first` and grows by `step` before each test passes it, and once more. What it
/// begins as is from 0 on, or a step before such a number: one that is further below would wrap around first.
pub(super) fn turns(
    first: Number,
    step: i128,
    order: Order,
    sign: Option<Sign>,
    bound: Number,
    width: Width,
) -> Option<i128> {
    let up = |far: i128| (far + step - 1) / step;
    let down = |far: i128| (far - step - 1) / -step;
    let signed = sign == Some(Sign::Signed);
    let exact = first.low == first.high && bound.low == bound.high;
    let most = width.most();
    // Below zero is less than anything that is counted up, where it is meant so.
    let below = signed && step > 0 && matches!(order, Order::Less | Order::LessOrEqual);
    let from_zero = bound.low >= 0 || below && bound.low >= -most - 1;
    let room = from_zero && bound.high + step.abs() < most && first.high + step < most;
    match order {
        _ if step == 0 || step.abs() > 1 << (width.0 - 2) || !room => None,
        Order::Less if step > 0 && sign.is_some() => Some(up(bound.high - first.low)),
        Order::LessOrEqual if step > 0 && sign.is_some() => Some(up(bound.high + 1 - first.low)),
        Order::Greater if step < 0 && signed => Some(down(first.high - bound.low)),
        Order::GreaterOrEqual if step < 0 && signed => Some(down(first.high + 1 - bound.low)),
        // It has to be met, and not only passed.
        Order::Differs if exact => {
            let far = bound.low - first.low;
            (far % step == 0 && far / step >= 1).then_some(far / step)
        }
        Order::Differs if step == -1 && bound.low == bound.high => {
            (first.low > bound.low).then_some(first.high - bound.low)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: Width = Width(8);
    const ORDERS: [Order; 6] = [
        Order::Equal,
        Order::Differs,
        Order::Less,
        Order::LessOrEqual,
        Order::Greater,
        Order::GreaterOrEqual,
    ];

    /// The number that a register of 8 bits holds, without a sign.
    fn unsigned(value: i128) -> i128 {
        value.rem_euclid(1 << WIDTH.0)
    }

    /// With one.
    fn signed(value: i128) -> i128 {
        let low = unsigned(value);
        if low > WIDTH.most() { low - (1 << WIDTH.0) } else { low }
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
    fn no_loop_turns_more_often_than_is_counted() {
        let ends = [0, 1, 2, 3, 5, 8, 20, 63, 64, 100, 125, 126, 127];
        let mut counted = 0;
        for step in -66..=66 {
            for (low, high) in ends.iter().flat_map(|low| ends.iter().map(move |high| (*low, *high))) {
                if low > high {
                    continue;
                }
                // What is tested first may be a step before what a register was.
                for first in
                    [Number::between(low, high), Number::between(low, high).minus(Number::exactly(step))]
                {
                    for (from, to) in ends
                        .iter()
                        .flat_map(|from| ends.iter().map(move |to| (*from, *to)))
                        .chain([(-128, -100), (-5, 3), (-1, -1)])
                    {
                        if from > to {
                            continue;
                        }
                        let bound = Number::between(from, to);
                        for order in ORDERS {
                            for sign in [Some(Sign::Signed), Some(Sign::Unsigned), None] {
                                let Some(most) = turns(first, step, order, sign, bound, WIDTH) else {
                                    continue;
                                };
                                counted += 1;
                                for begin in [first.low, (first.low + first.high) / 2, first.high] {
                                    for end in [from, (from + to) / 2, to] {
                                        let found = simulate(begin, step, (order, sign), end, most.max(1));
                                        assert!(
                                            found,
                                            "{begin} + {step} {order:?} {sign:?} {end}: more than {most}"
                                        );
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        assert!(counted > 10_000, "{counted} loops were counted");
    }

    /// Whether a loop ends after so many turns at most.
    fn simulate(
        begin: i128,
        step: i128,
        (order, sign): (Order, Option<Sign>),
        bound: i128,
        most: i128,
    ) -> bool {
        let meant = |value| if sign == Some(Sign::Signed) { signed(value) } else { unsigned(value) };
        let mut number = begin;
        for _ in 0..most {
            number = unsigned(number + step);
            if !holds(order, meant(number), meant(bound)) {
                return true;
            }
        }
        false
    }
}
