//! Who is swapped out when a session needs room.

use std::cmp::Reverse;

/// How long a session stays where others will do: two that take turns would otherwise spend it all on copying.
pub const QUANTUM_NS: u64 = 100_000_000;

/// A session whose memory is on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resident {
    /// Which.
    pub session: u32,
    /// How much room it makes.
    pub bytes: u64,
    /// The lower, the earlier it goes.
    pub priority: i32,
    /// When it last had work on the device.
    pub last_active_ns: u64,
    /// Since when its memory is there.
    pub since_ns: u64,
    /// Whether it agreed to being swapped out.
    pub swappable: bool,
}

/// A session that needs room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Need {
    /// Which. It is no victim of its own.
    pub session: u32,
    /// Those of a higher priority are no victims of it.
    pub priority: i32,
    /// How much room.
    pub bytes: u64,
}

/// Chooses the sessions to swap out, in that order; `None` where all that may go are not enough.
///
/// Those who have been there for `quantum_ns` go before those who have not, then those of lower priority before those
/// of higher, then those who were idle for longer. Nobody goes where those before are enough, and nobody whom the
/// others make needless: not even the first, where a larger one has to go anyway.
#[must_use]
pub fn choose_victims(residents: &[Resident], need: Need, now_ns: u64, quantum_ns: u64) -> Option<Vec<u32>> {
    let may_go = |resident: &&Resident| {
        resident.swappable && resident.session != need.session && resident.priority <= need.priority
    };
    let mut victims: Vec<&Resident> = residents.iter().filter(may_go).collect();
    victims.sort_by_key(|resident| {
        let fresh = now_ns.saturating_sub(resident.since_ns) < quantum_ns;
        Reverse((fresh, resident.priority, resident.last_active_ns, resident.session))
    });
    let sum: u128 = victims.iter().map(|resident| u128::from(resident.bytes)).sum();
    let mut to_spare = sum.checked_sub(u128::from(need.bytes))?;
    // From the last to the first in the order: whoever can be spared is.
    victims.retain(|resident| {
        let rest = to_spare.checked_sub(u128::from(resident.bytes));
        to_spare = rest.unwrap_or(to_spare);
        rest.is_none()
    });
    Some(victims.into_iter().rev().map(|resident| resident.session).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Choices, seeds};

    const NOW_NS: u64 = 10 * QUANTUM_NS;

    fn resident(session: u32, bytes: u64) -> Resident {
        Resident { session, bytes, priority: 0, last_active_ns: 0, since_ns: 0, swappable: true }
    }

    /// Tries the sets of victims one by one, from the one that is easiest on those who are to go last.
    fn naive(residents: &[Resident], need: Need, now_ns: u64) -> Option<Vec<u32>> {
        let mut order: Vec<Resident> = Vec::new();
        for resident in residents {
            if resident.swappable && resident.session != need.session && resident.priority <= need.priority {
                let before = order.iter().take_while(|other| goes_before(other, resident, now_ns)).count();
                order.insert(before, *resident);
            }
        }
        (0..1u32 << order.len()).find_map(|set| {
            let chosen = || order.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            let room: u64 = chosen().map(|(_, resident)| resident.bytes).sum();
            (room >= need.bytes).then(|| chosen().map(|(_, resident)| resident.session).collect())
        })
    }

    fn goes_before(left: &Resident, right: &Resident, now_ns: u64) -> bool {
        let rested = |resident: &Resident| resident.since_ns + QUANTUM_NS <= now_ns;
        if rested(left) != rested(right) {
            rested(left)
        } else if left.priority != right.priority {
            left.priority < right.priority
        } else if left.last_active_ns != right.last_active_ns {
            left.last_active_ns < right.last_active_ns
        } else {
            left.session < right.session
        }
    }

    /// One of the kinds of residents that there are; one byte, or three.
    fn kind(session: u32, number: u64) -> Resident {
        Resident {
            session,
            bytes: if number & 1 == 0 { 1 } else { 3 },
            priority: if number >> 1 & 1 == 0 { 0 } else { 1 },
            last_active_ns: number >> 2 & 1,
            since_ns: if number >> 3 & 1 == 0 { NOW_NS - QUANTUM_NS } else { NOW_NS - QUANTUM_NS + 1 },
            swappable: number >> 4 & 1 == 0,
        }
    }

    #[test]
    fn every_small_choice_agrees_with_a_naive_model() {
        let (mut made, mut refused) = (0, 0);
        for numbers in 0..1u64 << 15 {
            let residents = [0u32, 1, 2].map(|session| kind(session, numbers >> (5 * session) & 31));
            for (session, priority) in [(0, residents[0].priority), (9, 0), (9, 1), (9, -1)] {
                for bytes in 0..=8 {
                    let need = Need { session, priority, bytes };
                    let chosen = choose_victims(&residents, need, NOW_NS, QUANTUM_NS);
                    assert_eq!(chosen, naive(&residents, need, NOW_NS), "{need:?} of {residents:?}");
                    if chosen.is_some() {
                        made += 1;
                    } else {
                        refused += 1;
                    }
                }
            }
        }
        assert!(made > 1_000 && refused > 1_000, "{made} choices were made and {refused} refused");
    }

    #[test]
    fn choices_agree_with_a_naive_model() {
        for seed in seeds() {
            println!("seed {seed}");
            let mut choices = Choices::new(seed);
            for _ in 0..2_000 {
                let count = u32::try_from(choices.below(9)).unwrap();
                let residents: Vec<Resident> = (0..count)
                    .map(|session| Resident {
                        bytes: choices.below(30),
                        last_active_ns: choices.below(4),
                        ..kind(session, choices.below(32))
                    })
                    .collect();
                let need = Need { session: 0, priority: 1, bytes: choices.below(100) };
                let chosen = choose_victims(&residents, need, NOW_NS, QUANTUM_NS);
                assert_eq!(chosen, naive(&residents, need, NOW_NS), "{need:?} of {residents:?}");
            }
        }
    }

    #[test]
    fn the_lowest_priority_goes_first_then_whoever_was_idle_longest() {
        let residents = [
            Resident { priority: 2, ..resident(1, 10) },
            Resident { priority: 1, last_active_ns: 7, ..resident(2, 10) },
            Resident { priority: 1, last_active_ns: 5, ..resident(3, 10) },
            Resident { priority: 3, ..resident(4, 10) },
        ];
        let choose =
            |bytes| choose_victims(&residents, Need { session: 9, priority: 2, bytes }, NOW_NS, QUANTUM_NS);
        assert_eq!(choose(0), Some(vec![]));
        assert_eq!(choose(10), Some(vec![3]));
        assert_eq!(choose(11), Some(vec![3, 2]));
        assert_eq!(choose(30), Some(vec![3, 2, 1]));
        assert_eq!(choose(31), None, "a higher priority is not swapped out for a lower");
    }

    #[test]
    fn whoever_just_came_goes_only_when_nothing_else_will_do() {
        let residents = [
            Resident { since_ns: NOW_NS - 1, ..resident(1, 10) },
            Resident { priority: 5, ..resident(2, 10) },
        ];
        let choose =
            |bytes| choose_victims(&residents, Need { session: 9, priority: 5, bytes }, NOW_NS, QUANTUM_NS);
        assert_eq!(choose(10), Some(vec![2]));
        assert_eq!(choose(20), Some(vec![2, 1]));
    }

    #[test]
    fn a_victim_that_a_larger_one_makes_needless_is_spared() {
        let residents = [resident(1, 1), Resident { last_active_ns: 1, ..resident(2, 100) }];
        let need = Need { session: 9, priority: 0, bytes: 50 };
        assert_eq!(choose_victims(&residents, need, NOW_NS, QUANTUM_NS), Some(vec![2]));
    }

    #[test]
    fn sums_beyond_what_can_be_counted_are_no_trouble() {
        let residents = [resident(1, u64::MAX), resident(2, u64::MAX)];
        let need = Need { session: 9, priority: 0, bytes: u64::MAX };
        assert_eq!(choose_victims(&residents, need, 0, QUANTUM_NS), Some(vec![1]));
    }
}
