//! Copies between arrays of the driver's and memory.

use bulkhead_ring::ArrayCopy;

use super::*;

const WHOLE: ArrayCopy = ArrayCopy {
    array: 7,
    at: [0; 3],
    memory: Bind { slot: BUFFER.slot, generation: BUFFER.generation },
    offset: 0,
    row_bytes: 64,
    rows: 8,
    shape: [64, 8, 8],
    to_array: true,
};

fn copied(copies: &[ArrayCopy], is_alone: bool) -> (usize, u64) {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let (mut state, asked) = state_and_launches();
    if is_alone {
        state.streams.be_alone(true, false);
    }
    for copy in copies {
        producer.push(&Record::CopyArray { stream: 0, copy: *copy }).unwrap();
    }
    turn_until_nothing_moves(&mut state, &mut consumer);
    let copied = asked.order.lock().iter().filter(|entry| **entry == COPIED).count();
    let page = asked.page.lock().clone().unwrap();
    (copied, bulkhead_ring::CompletionReader::new(page).refusals() & u64::from(u32::MAX))
}

#[test]
fn copies_reach_what_the_session_has_and_nothing_else() {
    // The buffer has 4,096 bytes, which is what this takes.
    assert_eq!(copied(&[WHOLE, ArrayCopy { to_array: false, ..WHOLE }], true), (2, 0));
    let beyond = [
        ArrayCopy { offset: 1, ..WHOLE },
        ArrayCopy { row_bytes: 65, ..WHOLE },
        ArrayCopy { rows: 9, ..WHOLE },
        ArrayCopy { shape: [65, 8, 8], ..WHOLE },
        ArrayCopy { row_bytes: u64::MAX, ..WHOLE },
        ArrayCopy { rows: u32::MAX, shape: [64, u32::MAX, u32::MAX], row_bytes: 1 << 60, ..WHOLE },
        ArrayCopy { shape: [64, 0, 8], ..WHOLE },
        ArrayCopy { row_bytes: 0, ..WHOLE },
        ArrayCopy { row_bytes: 63, ..WHOLE },
        ArrayCopy { rows: 7, ..WHOLE },
        ArrayCopy { shape: [64, 8, 0], ..WHOLE },
        ArrayCopy { memory: Bind { slot: 99, generation: 1 }, ..WHOLE },
    ];
    assert_eq!(copied(&beyond, true), (0, beyond.len() as u64));
}

#[test]
fn guarded_sessions_have_no_arrays_of_the_drivers() {
    assert_eq!(copied(&[WHOLE], false), (0, 1));
}
