//! Races between threads, told and not told.

use super::*;

fn touches(warp: usize, lane: usize, how: How, at: usize) -> Touches {
    Touches { warp, lane, pc: 1, how, strong: false, at, bytes: 4, values: None }
}

fn mistake(races: &mut Races, touches: Touches) -> Option<Mistake> {
    races.touch(&touches).map(|race| race.mistake)
}

fn blocks() -> Races {
    Races::new(1024, 4, None)
}

#[test]
fn what_two_threads_do_to_one_byte_is_told_unless_both_read() {
    for (first, second, told) in [
        (How::Read, How::Read, None),
        (How::Write, How::Read, Some(Mistake::ReadAfterWrite)),
        (How::Read, How::Write, Some(Mistake::WriteAfterRead)),
        (How::Write, How::Write, Some(Mistake::WriteAfterWrite)),
        (How::Write, How::Update, Some(Mistake::ReadAfterWrite)),
        (How::Update, How::Read, Some(Mistake::ReadAfterWrite)),
    ] {
        for (warp, lane) in [(0, 1), (1, 0)] {
            let mut races = blocks();
            assert_eq!(mistake(&mut races, touches(0, 0, first, 8)), None);
            // The last byte of four.
            assert_eq!(mistake(&mut races, touches(warp, lane, second, 11)), told, "{first:?} {second:?}");
            assert_eq!(mistake(&mut races, touches(warp, lane, How::Write, 100)), None);
        }
        let mut races = blocks();
        assert_eq!(mistake(&mut races, touches(0, 0, first, 8)), None);
        assert_eq!(mistake(&mut races, touches(0, 0, second, 8)), None);
        assert_eq!(mistake(&mut races, touches(1, 0, second, 12)), None);
    }
}

#[test]
fn a_barrier_of_all_threads_orders_everything() {
    let mut races = blocks();
    assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
    for warp in 0..4 {
        races.arrive(warp, u32::MAX, 0, true);
    }
    assert_eq!(races.waiting(0), 128);
    races.open(0, true);
    assert_eq!(races.waiting(0), 0);
    assert_eq!(mistake(&mut races, touches(1, 0, How::Read, 8)), None);
    assert_eq!(mistake(&mut races, touches(2, 0, How::Write, 8)), Some(Mistake::WriteAfterRead));
    races.restart(1);
    assert_eq!(mistake(&mut races, touches(3, 0, How::Write, 8)), None);
}

#[test]
fn a_barrier_of_some_warps_orders_those_and_whom_they_waited_for() {
    let mut races = blocks();
    assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
    // The first only tells the second, which meets the third.
    races.arrive(0, u32::MAX, 1, false);
    races.arrive(1, u32::MAX, 1, true);
    races.open(1, false);
    races.arrive(1, u32::MAX, 2, true);
    races.arrive(2, u32::MAX, 2, true);
    races.open(2, false);
    assert_eq!(mistake(&mut races, touches(1, 5, How::Read, 8)), None);
    assert_eq!(mistake(&mut races, touches(2, 5, How::Read, 8)), None);
    assert_eq!(mistake(&mut races, touches(3, 5, How::Read, 8)), Some(Mistake::ReadAfterWrite));
    // The first has waited for nobody.
    assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), Some(Mistake::WriteAfterRead));
    assert_eq!(mistake(&mut races, touches(2, 0, How::Write, 100)), None);
    assert_eq!(mistake(&mut races, touches(0, 0, How::Read, 100)), Some(Mistake::ReadAfterWrite));
}

#[test]
fn lanes_that_have_met_are_ordered_and_others_are_not() {
    let mut races = blocks();
    assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
    races.meet(0, 0b0011, u32::MAX);
    races.meet(0, 0b0110, u32::MAX);
    assert_eq!(mistake(&mut races, touches(0, 1, How::Read, 8)), None);
    // By way of lane 1.
    assert_eq!(mistake(&mut races, touches(0, 2, How::Read, 8)), None);
    assert_eq!(mistake(&mut races, touches(0, 3, How::Read, 8)), Some(Mistake::ReadAfterWrite));
    races.meet(0, 0b1111, 0b1111);
    assert_eq!(mistake(&mut races, touches(0, 3, How::Write, 8)), None);
    assert_eq!(mistake(&mut races, touches(1, 3, How::Write, 8)), Some(Mistake::WriteAfterWrite));
}

#[test]
fn atomic_and_strong_accesses_do_not_race_with_each_other() {
    let mut races = blocks();
    let strong = |lane, how| Touches { strong: true, ..touches(0, lane, how, 8) };
    assert_eq!(mistake(&mut races, strong(0, How::Update)), None);
    assert_eq!(mistake(&mut races, strong(1, How::Update)), None);
    assert_eq!(mistake(&mut races, strong(2, How::Read)), None);
    assert_eq!(mistake(&mut races, strong(3, How::Write)), None);
    assert_eq!(mistake(&mut races, touches(0, 4, How::Read, 8)), Some(Mistake::ReadAfterWrite));
}

#[test]
fn a_word_that_is_passed_on_between_fences_orders_what_came_before_and_what_comes_behind() {
    let flag = |warp, lane, how| Touches { strong: true, ..touches(warp, lane, how, 512) };
    // Who releases, and who acquires: a thread of another warp, and of the same.
    for (warp, lane) in [(2, 3), (0, 3)] {
        for (releases, acquires, update) in
            [(true, true, false), (true, true, true), (false, true, false), (true, false, true)]
        {
            let mut races = blocks();
            assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
            if releases {
                races.fence(0, 1, Fence::Device);
            }
            let (write, read) = if update { (How::Update, How::Update) } else { (How::Write, How::Read) };
            assert_eq!(mistake(&mut races, flag(0, 0, write)), None);
            assert_eq!(mistake(&mut races, flag(warp, lane, read)), None);
            if acquires {
                races.fence(warp, 1 << lane, Fence::Device);
            }
            let ordered = releases && acquires;
            let told = (!ordered).then_some(Mistake::ReadAfterWrite);
            assert_eq!(mistake(&mut races, touches(warp, lane, How::Read, 8)), told);
            // Another lane has heard nothing; one that it has met then has.
            let third = touches(warp, lane + 1, How::Read, 8);
            if ordered {
                races.meet(warp, 0b11 << lane, u32::MAX);
                assert_eq!(mistake(&mut races, third), None);
            } else {
                assert_eq!(mistake(&mut races, third), Some(Mistake::ReadAfterWrite));
            }
            // What the first does behind its fence is not ordered.
            assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 100)), None);
            assert_eq!(
                mistake(&mut races, touches(warp, lane, How::Read, 100)),
                Some(Mistake::ReadAfterWrite)
            );
        }
    }
}

#[test]
fn what_was_heard_is_passed_on_by_words_and_barriers() {
    let flag = |warp, how, at| Touches { strong: true, ..touches(warp, 0, how, at) };
    let mut races = blocks();
    assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
    races.fence(0, 1, Fence::Device);
    assert_eq!(mistake(&mut races, flag(0, How::Write, 512)), None);
    assert_eq!(mistake(&mut races, flag(1, How::Update, 512)), None);
    races.fence(1, 1, Fence::Device);
    assert_eq!(mistake(&mut races, flag(1, How::Write, 520)), None);
    assert_eq!(mistake(&mut races, flag(2, How::Read, 520)), None);
    races.fence(2, 1, Fence::Device);
    for warp in [2, 3] {
        races.arrive(warp, u32::MAX, 1, true);
    }
    races.open(1, false);
    for warp in 1..4 {
        assert_eq!(mistake(&mut races, touches(warp, 0, How::Read, 8)), None, "{warp}");
    }
    assert_eq!(mistake(&mut races, touches(1, 1, How::Read, 8)), Some(Mistake::ReadAfterWrite));
    // Another block's words are its own.
    races.restart(1);
    assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 8)), None);
    assert_eq!(mistake(&mut races, flag(2, How::Read, 520)), None);
    races.fence(2, 1, Fence::Device);
    assert_eq!(mistake(&mut races, touches(2, 0, How::Read, 8)), Some(Mistake::ReadAfterWrite));
}

#[test]
fn the_same_value_may_be_written_by_many() {
    let mut races = blocks();
    let write = |lane, value: u32| {
        let mut values = [0; 16];
        values[..4].copy_from_slice(&value.to_le_bytes());
        Touches { values: Some(values), ..touches(0, lane, How::Write, 8) }
    };
    assert_eq!(mistake(&mut races, write(0, 1)), None);
    assert_eq!(mistake(&mut races, write(1, 1)), None);
    let told = races.touch(&write(2, 257)).unwrap();
    assert_eq!((told.mistake, told.at, told.lane), (Mistake::WriteAfterWrite, 9, 1));
}

#[test]
fn bytes_beyond_the_memory_and_warps_that_are_not_there_are_nobodys() {
    let mut races = blocks();
    assert_eq!(mistake(&mut races, touches(0, 0, How::Write, 1022)), None);
    assert_eq!(mistake(&mut races, touches(40, 0, How::Write, 0)), None);
    races.arrive(0, 1, 99, true);
    races.open(99, false);
}
