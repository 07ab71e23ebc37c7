//! Launches that never look at the flag, where a device takes long for them.

use super::*;

/// One of so many blocks of a warp.
fn launch_of_blocks(blocks: u32) -> Record {
    let Record::Launch { stream, launch } = launch(0) else { unreachable!("it is a launch") };
    let shape = LaunchShape { grid: [blocks, 1, 1], ..launch.shape };
    Record::Launch { stream, launch: bulkhead_ring::Launch { shape, ..launch } }
}

/// 131,072 blocks whose threads clear 2 KB each took the software GPU a minute, in which nothing ended them.
#[test]
fn the_software_gpu_is_given_little_that_does_not_look_at_the_flag() {
    // What is the most for one launch and for all.
    for (backend, launch_max, all) in [("idle", 1_u32 << 30, 4), ("software", 1 << 22, 4)] {
        let descriptor = bulkhead_ring::memory::create().unwrap();
        let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
        let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
        let (mut state, asked) = state_of(backend);
        let _remains = bind_entry(&mut state);
        let blocks = launch_max / WORK;
        producer.push(&launch_of_blocks(blocks + 1)).unwrap();
        for _ in 0..all {
            producer.push(&launch_of_blocks(blocks)).unwrap();
        }
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!(*asked.launched.lock(), [CONFINED, FAST, FAST, FAST, FAST], "{backend}");
        assert_eq!(state.streams.load().unlooked, u64::from(launch_max) * all);
        producer.push(&launch_of_blocks(1)).unwrap();
        turn_until_nothing_moves(&mut state, &mut consumer);
        assert_eq!((asked.launched.lock().len(), state.streams.held()), (5, 1), "{backend}");
    }
}
