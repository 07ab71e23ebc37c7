use super::*;
use crate::testing::{Choices, seeds};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn window() -> Window {
    Window::new(Slot::new(3).unwrap())
}

/// Plans and commits as the kernel does; answers the buffer and the arena that was needed.
fn allocate(window: &mut Window, bytes: u64) -> Result<(Range, Option<Range>), WindowError> {
    match window.plan(bytes, Growth::Ahead)? {
        Plan::Fits(buffer) => {
            window.take(buffer)?;
            Ok((buffer, None))
        }
        Plan::Grow { arena, buffer } => {
            window.grant(arena)?;
            window.take(buffer)?;
            Ok((buffer, Some(arena)))
        }
    }
}

#[test]
fn planning_changes_nothing() {
    let window = window();
    let first = window.plan(100, Growth::Ahead);
    assert_eq!(first, window.plan(100, Growth::Ahead));
    assert_eq!(window.arena_bytes(), 0);
}

#[test]
fn arenas_grow_in_doubling_steps() {
    let mut window = window();
    let mut steps = Vec::new();
    for _ in 0..400 {
        if let (_, Some(arena)) = allocate(&mut window, 32 * MIB).unwrap() {
            steps.push(arena.bytes() / MIB);
        }
    }
    assert_eq!(steps, [64, 64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
}

#[test]
fn a_request_beyond_the_step_gets_the_arena_it_needs() {
    let mut window = window();
    let (buffer, arena) = allocate(&mut window, 10 * GIB + 1).unwrap();
    assert_eq!(arena.unwrap().bytes(), 10 * GIB + ARENA_GRANULE_BYTES);
    assert_eq!(buffer.bytes(), 10 * GIB + BUFFER_ALIGNMENT);
}

#[test]
fn an_exact_plan_is_no_larger_than_its_buffer_needs() {
    let mut window = window();
    allocate(&mut window, 2 * GIB).unwrap();
    let Plan::Grow { arena, .. } = window.plan(100 * MIB, Growth::Exact).unwrap() else {
        panic!("the arena was taken whole");
    };
    assert_eq!(arena.bytes(), 128 * MIB);
}

#[test]
fn a_buffer_of_up_to_four_gib_does_not_cross_a_segment() {
    let mut window = window();
    for bytes in [3 * GIB, 3 * GIB, 4 * GIB, 2 * GIB, 3 * GIB + 1, GIB] {
        let (buffer, _) = allocate(&mut window, bytes).unwrap();
        let (first, last) = (buffer.start().0, buffer.end().0 - 1);
        assert_eq!(first / SEGMENT_BYTES, last / SEGMENT_BYTES, "{buffer:?}");
    }
}

#[test]
fn a_window_that_is_full_says_so_and_changes_nothing() {
    let mut window = window();
    let all = window.bounds.bytes();
    assert_eq!(window.plan(all + 1, Growth::Ahead), Err(WindowError::Full { bytes: all + 1 }));
    assert_eq!(window.plan(u64::MAX, Growth::Ahead), Err(WindowError::Full { bytes: u64::MAX }));
    assert_eq!(window.plan(0, Growth::Ahead), Err(WindowError::Empty));
    let (buffer, _) = allocate(&mut window, all).unwrap();
    assert_eq!(window.plan(1, Growth::Ahead), Err(WindowError::Full { bytes: 1 }));
    window.release(buffer).unwrap();
    assert_eq!(window.plan(all, Growth::Ahead), Ok(Plan::Fits(buffer)));
}

#[test]
fn a_range_that_is_not_a_buffer_is_not_released() {
    let mut window = window();
    let (buffer, _) = allocate(&mut window, 4096).unwrap();
    let half = Range::new(buffer.start(), 2048).unwrap();
    assert!(matches!(window.release(half), Err(WindowError::Mismatch { .. })));
    window.release(buffer).unwrap();
    assert!(matches!(window.release(buffer), Err(WindowError::Mismatch { .. })));
}

#[test]
fn empty_arenas_are_returned_largest_first_down_to_what_is_kept() {
    let mut window = window();
    let buffers: Vec<_> = (0..64).map(|_| allocate(&mut window, 32 * MIB).unwrap().0).collect();
    assert_eq!(window.arena_bytes(), 2 * GIB);
    assert_eq!(window.returnable(EMPTY_BYTES_KEPT), None);
    for buffer in buffers {
        window.release(buffer).unwrap();
    }
    let mut returned = Vec::new();
    while let Some(arena) = window.returnable(EMPTY_BYTES_KEPT) {
        window.withdraw(arena).unwrap();
        returned.push(arena.bytes() / MIB);
    }
    assert_eq!(returned, [1024, 512, 256]);
    assert_eq!(window.arena_bytes(), EMPTY_BYTES_KEPT);
}

#[test]
fn an_arena_that_holds_a_buffer_is_not_withdrawn() {
    let mut window = window();
    let (_, arena) = allocate(&mut window, 512).unwrap();
    assert!(matches!(window.withdraw(arena.unwrap()), Err(WindowError::Mismatch { .. })));
}

/// Checks a window against lists of ranges that know nothing of free lists.
#[test]
fn a_window_agrees_with_a_naive_model() {
    for seed in seeds() {
        println!("seed {seed}");
        let mut choices = Choices::new(seed);
        let mut window = window();
        let mut arenas: Vec<Range> = Vec::new();
        let mut buffers: Vec<Range> = Vec::new();
        for _ in 0..2_000 {
            match choices.below(10) {
                0..5 => {
                    let magnitude = 9 + choices.below(25);
                    let bytes = 1 + choices.below(1 << magnitude);
                    let Ok((buffer, arena)) = allocate(&mut window, bytes) else { continue };
                    if let Some(arena) = arena {
                        assert!(!arenas.iter().any(|other| other.overlaps(arena)), "{arena:?}");
                        assert!(window.bounds.contains(arena));
                        arenas.push(arena);
                    }
                    let alignment = if bytes >= LARGE_BYTES { LARGE_ALIGNMENT } else { BUFFER_ALIGNMENT };
                    assert!(buffer.bytes() >= bytes && buffer.bytes() < bytes + BUFFER_ALIGNMENT);
                    assert!(buffer.start().0.is_multiple_of(alignment));
                    assert!(arenas.iter().any(|arena| arena.contains(buffer)), "{buffer:?}");
                    assert!(!buffers.iter().any(|other| other.overlaps(buffer)), "{buffer:?}");
                    buffers.push(buffer);
                }
                5..9 if !buffers.is_empty() => {
                    let index = usize::try_from(choices.below(buffers.len() as u64)).unwrap();
                    window.release(buffers.swap_remove(index)).unwrap();
                }
                _ => {
                    if let Some(arena) = window.returnable(EMPTY_BYTES_KEPT) {
                        window.withdraw(arena).unwrap();
                        assert!(!buffers.iter().any(|buffer| buffer.overlaps(arena)));
                        arenas.retain(|held| *held != arena);
                    }
                }
            }
            assert_eq!(window.arena_bytes(), arenas.iter().map(|arena| arena.bytes()).sum::<u64>());
            let free: u64 = window.free.iter().map(|(start, end)| end - start).sum();
            let taken: u64 = buffers.iter().map(|buffer| buffer.bytes()).sum();
            assert_eq!(free + taken, window.arena_bytes());
            assert_eq!(window.free.len(), window.free_by_bytes.len());
        }
        for buffer in buffers.drain(..) {
            window.release(buffer).unwrap();
        }
        assert_eq!(window.free.len(), arenas.len(), "free ranges grow together again");
    }
}
