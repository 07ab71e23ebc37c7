//! What is known of addresses: by what they are relative to.

use super::*;
use crate::most::Most;

const ROOT: Base<'_> = Base::Parameter(Root { parameter: "a", offset: 0 });
const OTHER: Base<'_> = Base::Parameter(Root { parameter: "a", offset: 8 });

fn at(base: Base<'static>, low: i128, high: i128) -> Fact<'static> {
    Fact::Pointer(Pointer { base, offset: Number::between(low, high) })
}

fn number(low: i128, high: i128) -> Fact<'static> {
    Fact::Number(Number::between(low, high))
}

#[test]
fn only_addresses_of_the_same_are_one() {
    let checked = |number| Base::Checked(CheckedPointer { number, writes: true, align: 8 });
    for (one, other) in [
        (ROOT, OTHER),
        (Base::Shared("s"), Base::Shared("t")),
        (checked(1), checked(2)),
        (ROOT, Base::Shared("a")),
    ] {
        assert_eq!(at(one, 0, 4).or(at(one, 8, 9)), Some(at(one, 0, 9)));
        assert_eq!(at(one, 0, 4).or(at(other, 8, 9)), None);
        assert_eq!(at(one, 0, 4).with(at(one, 2, 9)), at(one, 2, 4));
        assert_eq!(at(one, 0, 4).with(at(other, 2, 9)), at(one, 0, 4));
        assert!(at(one, 0, 4).holds(at(one, 1, 4)) && at(one, 0, 4).implied_by(at(one, 1, 4)));
        assert!(!at(one, 0, 4).holds(at(other, 1, 4)) && !at(one, 0, 4).implied_by(at(other, 1, 4)));
        assert!(!at(one, 0, 4).holds(at(one, 0, 5)) && !at(one, 0, 4).implied_by(at(one, 0, 5)));
    }
}

#[test]
fn an_address_is_no_number() {
    let (address, one) = (at(ROOT, 0, 4), number(0, 4));
    assert_eq!((address.or(one), one.or(address)), (None, None));
    assert_eq!((address.with(one), one.with(address)), (address, one));
    assert!(!address.holds(one) && !one.holds(address));
    assert!(!address.implied_by(one) && !one.implied_by(address));
    assert_eq!((address.small(), one.small()), (None, Some(Number::between(0, 4))));
    assert_eq!((number(0, 1 << 31).small(), number(-1, 4).small()), (None, None));
    assert_eq!(
        (address.plus(address), address.times(one), one.times(address), one.minus(address)),
        (None, None, None, None)
    );
    assert_eq!((address.plus(one), one.plus(address)), (Some(at(ROOT, 0, 8)), Some(at(ROOT, 0, 8))));
    assert_eq!((address.minus(one), address.minus(address)), (Some(at(ROOT, -4, 4)), None));
    assert!(one.holds(number(1, 4)) && !one.holds(number(0, 5)));
}

#[test]
fn what_is_too_far_is_not_known_and_where_a_thread_is_is_not_plain() {
    let far = 1 << 62;
    assert_eq!(
        (at(ROOT, 0, far).fits(), number(0, far).fits()),
        (Some(at(ROOT, 0, far)), Some(number(0, far)))
    );
    assert_eq!((at(ROOT, 0, far + 1).fits(), number(-far - 1, 0).fits()), (None, None));
    let thread = Number { most: Most::thread(0), ..Number::between(0, 7) };
    assert!(at(ROOT, 0, 7).is_plain() && number(0, 7).is_plain());
    let pointer = Fact::Pointer(Pointer { base: ROOT, offset: thread });
    assert!(!Fact::Number(thread).is_plain() && !pointer.is_plain());
}

#[test]
fn an_access_of_shared_memory_stays_in_its_variable_ever_or_asks_how_large_a_block_is() {
    let by = Parts::default();
    let term =
        |end, constant, bytes| SharedProof { variable: "s", start: 0, end, most: (constant, by) }.term(bytes);
    // Whatever the block.
    assert_eq!((term(64, 4, 64), term(63, 64, 64)), (Some(None), Some(None)));
    // In a block that is small enough.
    assert_eq!(term(65, 4, 64), Some(Some(((by, Some(64)), 4))));
    assert_eq!(term(65, 64, 64), Some(Some(((by, Some(64)), 64))));
    // In none.
    assert_eq!((term(65, 65, 64), term(64, 65, 64)), (None, None));
    // Of dynamic shared memory the launch says how much there is.
    assert_eq!((term(4, 4, 0), term(65, 65, 0)), (Some(Some(((by, None), 4))), Some(Some(((by, None), 65)))));
}
