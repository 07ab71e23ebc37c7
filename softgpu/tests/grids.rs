//! Grids whose blocks are there together and wait for one another.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use bulkhead_gpu::{Error, Gpu, Launch};
use bulkhead_softgpu::Options;
use common::{Machine, kernel};

/// As many blocks of a warp as two multiprocessors hold.
const FIT: u32 = 64;

/// Ten barriers for the whole grid, each a count of its own.
fn barriers() -> String {
    kernel(
        ".reg .pred %p; .reg .b32 %a, %n, %round; .reg .b64 %x;",
        "mov.u32 %n, %nctaid.x; mov.u32 %round, 0; mov.u64 %x, %at;
         $next: setp.ne.u32 %p, %lane, 0; @%p bra $over;
         atom.global.add.u32 %a, [%x], 1;
         $spin: ld.volatile.global.u32 %a, [%x]; setp.lt.u32 %p, %a, %n; @%p bra $spin;
         $over: bar.sync 0;
         add.s64 %x, %x, 4; add.u32 %round, %round, 1; setp.lt.u32 %p, %round, 10; @%p bra $next;
         add.s64 %at, %at, 256;",
    )
}

#[test]
fn blocks_of_a_grid_that_come_together_wait_for_one_another() {
    let mut machine = Machine::with(Options { threads: Some(2), ..common::options() });
    let counts = machine.upload_u32(&[0; 128]);
    let entry = machine.entry(&barriers());
    let parameters = counts.to_le_bytes();
    let launch = Launch { grid: [FIT, 1, 1], block: [32, 1, 1], shared_bytes: 0, parameters: &parameters };
    machine.gpu.launch_together(machine.stream, entry.id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    assert_eq!(machine.download_u32(counts, 10), [FIT; 10]);
}

#[test]
fn more_blocks_than_fit_at_once_are_refused() {
    let mut machine = Machine::with(Options { threads: Some(2), ..common::options() });
    let counts = machine.upload_u32(&[0; 128]);
    let entry = machine.entry(&barriers());
    let parameters = counts.to_le_bytes();
    let launch = Launch { grid: [FIT, 1, 1], block: [32, 1, 1], shared_bytes: 0, parameters: &parameters };
    for (grid, block) in
        [([FIT + 1, 1, 1], [32, 1, 1]), ([5, 1, 1], [1024, 1, 1]), ([1 << 16, 1 << 15, 1], [1; 3])]
    {
        let refused =
            machine.gpu.launch_together(machine.stream, entry.id, &Launch { grid, block, ..launch });
        assert!(matches!(refused, Err(Error::LaunchResources(_))), "{grid:?} {block:?}: {refused:?}");
    }
    machine.gpu.synchronize(machine.stream).unwrap();
    assert_eq!(machine.download_u32(counts, 10), [0; 10]);
}
