//! Barrier objects (PTX ISA, "mbarrier"): words of 64 bits that count arrivals and transactions, phase by phase.
//!
//! | Bits | What they hold |
//! |---|---|
//! | 0 to 19 | how many arrivals a phase takes |
//! | 20 to 40 | transactions that are to come in this phase, signed |
//! | 43 to 62 | how many arrivals are to come in it |
//! | 63 | whether the phase is an odd one |
//!
//! A token is the object as it was. Whatever a program does to an object otherwise, its fields wrap around.

use super::update::Update;
use super::{Test, Unary, test, unary};

const COUNT: u64 = (1 << 20) - 1;
const TRANSACTIONS: u64 = (1 << 21) - 1;
const TRANSACTIONS_SHIFT: u32 = 20;
const PENDING_SHIFT: u32 = 43;
const PHASE: u64 = 1 << 63;

#[derive(Debug, Clone, Copy)]
struct Object {
    expected: u64,
    transactions: u64,
    pending: u64,
    phase: u64,
}

impl Object {
    fn of(word: u64) -> Self {
        Self {
            expected: word & COUNT,
            transactions: word >> TRANSACTIONS_SHIFT & TRANSACTIONS,
            pending: word >> PENDING_SHIFT & COUNT,
            phase: word & PHASE,
        }
    }

    fn word(self) -> u64 {
        self.phase
            | (self.pending & COUNT) << PENDING_SHIFT
            | (self.transactions & TRANSACTIONS) << TRANSACTIONS_SHIFT
            | self.expected & COUNT
    }

    fn init(count: u64) -> Self {
        Self { expected: count, transactions: 0, pending: count, phase: 0 }
    }

    fn arrive(self, count: u64) -> Self {
        Self { pending: self.pending.wrapping_sub(count) & COUNT, ..self }.settled()
    }

    fn drop(self, count: u64) -> Self {
        Self { expected: self.expected.wrapping_sub(count), ..self }
    }

    fn expect(self, transactions: u64) -> Self {
        Self { transactions: self.transactions.wrapping_add(transactions) & TRANSACTIONS, ..self }
    }

    fn complete(self, transactions: u64) -> Self {
        Self { transactions: self.transactions.wrapping_sub(transactions) & TRANSACTIONS, ..self }.settled()
    }

    /// In the next phase where this one is over.
    fn settled(self) -> Self {
        if self.pending == 0 && self.transactions == 0 {
            Self { pending: self.expected, phase: self.phase ^ PHASE, ..self }
        } else {
            self
        }
    }
}

/// The word of a new object, of the arrivals that a phase takes.
pub(crate) fn init() -> Unary {
    unary!(|count: u32| Object::init(count.into()).word())
}

/// What becomes of an object: of `arrive`, `arrive_drop`, `expect_tx` and `complete_tx` with a number of arrivals or
/// transactions, and of the first two with `.expect_tx`, which arrive once.
pub(crate) fn update(name: &str, expects: bool) -> Option<Update> {
    Some(match (name, expects) {
        ("arrive", false) => |word, count| Object::of(word).arrive(count).word(),
        ("arrive", true) => |word, transactions| Object::of(word).expect(transactions).arrive(1).word(),
        ("arrive_drop", false) => |word, count| Object::of(word).drop(count).arrive(count).word(),
        ("arrive_drop", true) => {
            |word, transactions| Object::of(word).expect(transactions).drop(1).arrive(1).word()
        }
        ("expect_tx", false) => |word, transactions| Object::of(word).expect(transactions).word(),
        ("complete_tx", false) => |word, transactions| Object::of(word).complete(transactions).word(),
        _ => return None,
    })
}

/// Whether the phase is over that an object was in when it was this token.
pub(crate) fn is_over() -> Test {
    test!(|word: u64, token: u64| (word ^ token) & PHASE != 0)
}

/// Whether the last phase of this parity is over.
pub(crate) fn is_over_by_parity() -> Test {
    test!(|word: u64, parity: u32| word >> 63 != u64::from(parity & 1))
}

/// The arrivals that were to come when an object was this token.
pub(crate) fn pending() -> Unary {
    unary!(|token: u64| Object::of(token).pending as u32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

    use super::*;

    fn made(count: u64) -> u64 {
        (init().one)(count)
    }

    fn then(word: u64, name: &str, expects: bool, operand: u64) -> u64 {
        update(name, expects).unwrap()(word, operand)
    }

    fn over(word: u64, token: u64) -> bool {
        (is_over().one)(word, token) == 1
    }

    #[test]
    fn a_phase_is_over_when_all_have_arrived_and_the_next_takes_as_many() {
        let first = made(3);
        let one = then(first, "arrive", false, 1);
        assert!(!over(one, first) && (pending().one)(one) == 2);
        let two = then(one, "arrive", false, 2);
        assert!(over(two, first) && over(two, one) && (pending().one)(two) == 3);
        let three = then(two, "arrive", false, 3);
        assert_eq!(three, first);
        assert_eq!((is_over_by_parity().one)(first, 0), 0);
        assert_eq!((is_over_by_parity().one)(first, 1), 1);
        assert_eq!((is_over_by_parity().one)(two, 0), 1);
        assert_eq!((is_over_by_parity().one)(two, 2), 1);
    }

    #[test]
    fn who_drops_out_counts_in_no_later_phase() {
        let first = made(3);
        let left = then(then(first, "arrive_drop", false, 1), "arrive", false, 2);
        assert!(over(left, first) && (pending().one)(left) == 2);
        assert_eq!(then(left, "arrive", false, 2), made(2));
        let expecting = then(made(2), "arrive_drop", true, 5);
        assert_eq!(then(expecting, "complete_tx", false, 5), then(made(2), "arrive_drop", false, 1));
    }

    #[test]
    fn a_phase_waits_for_its_transactions() {
        let first = made(1);
        let waits = then(first, "arrive", true, 64);
        assert!(!over(waits, first) && (pending().one)(waits) == 0);
        assert!(!over(then(waits, "complete_tx", false, 63), first));
        let done = then(waits, "complete_tx", false, 64);
        assert!(over(done, first));
        // They may be done before anybody expects them.
        let early = then(first, "complete_tx", false, 16);
        assert!(!over(early, first));
        assert_eq!(then(early, "arrive", true, 16), done);
        assert_eq!(then(then(first, "expect_tx", false, 8), "complete_tx", false, 8), first);
    }

    #[test]
    fn nothing_that_a_word_holds_goes_wrong() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            for name in ["arrive", "arrive_drop", "expect_tx", "complete_tx"] {
                let word = then(state, name, false, state.rotate_left(17));
                assert_eq!(Object::of(word).word(), word);
            }
        }
    }
}
