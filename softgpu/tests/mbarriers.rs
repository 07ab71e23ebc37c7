//! Barrier objects in shared memory: as the software GPU has them, and as the guard writes them with atomic operations.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong"
)]

mod common;

use common::{Machine, Parameters, kernel};

fn confined(ptx: &str) -> String {
    let module = bulkhead_guard::parse(ptx).unwrap();
    let confined = bulkhead_guard::print(&bulkhead_guard::confine(&module).unwrap());
    assert!(!confined.contains("mbarrier"), "{confined}");
    bulkhead_guard::verify(&confined).unwrap().text().to_owned()
}

/// What a block leaves in `%out`, which is the same whether or not the guard wrote it.
fn block(threads: u32, declarations: &str, body: &str) -> Vec<u32> {
    let ptx = kernel(declarations, body);
    let mut machine = Machine::new();
    let (original, guarded) = (machine.entry(&ptx), machine.entry(&confined(&ptx)));
    let bytes = threads as usize * 4;
    let (first, second) = (machine.buffer(bytes), machine.buffer(bytes));
    machine.run(original.id, 1, threads, &first.to_le_bytes()).unwrap();
    let parameters = Parameters::default().u64(second).guarded(&guarded);
    machine.run(guarded.id, 1, threads, &parameters.0).unwrap();
    let found = machine.download_u32(first, threads as usize);
    assert_eq!(machine.download_u32(second, threads as usize), found, "the guard's text does something else");
    found
}

const OBJECT: &str = ".reg .pred %p, %q, %first; .reg .b32 %a, %b, %i; .reg .b64 %t, %u, %g;
    .shared .align 8 .b64 bar; .shared .align 8 .b64 second; .shared .align 4 .b32 words[256];";

/// The first thread makes an object, and the others wait until it has.
fn made(count: &str, rest: &str) -> String {
    format!(
        "setp.eq.u32 %first, %lane, 0;
         @%first mbarrier.init.shared.b64 [bar], {count};
         bar.sync 0;
         {rest}"
    )
}

#[test]
fn a_block_goes_from_phase_to_phase_together() {
    // In each phase a thread adds what its neighbour left in the phase before.
    let body = made(
        "128",
        "mov.u32 %i, 0; mov.u32 %out, %lane;
         $next: shl.b32 %a, %lane, 2; mov.u32 %b, words; add.u32 %a, %a, %b;
         st.shared.u32 [%a], %out;
         mbarrier.arrive.shared.b64 %t, [bar];
         $wait: mbarrier.test_wait.shared.b64 %p, [bar], %t; @!%p bra $wait;
         add.u32 %b, %lane, 1; and.b32 %b, %b, 127; shl.b32 %b, %b, 2; mov.u32 %a, words; add.u32 %a, %a, %b;
         ld.shared.u32 %b, [%a];
         mbarrier.arrive.shared.b64 %t, [bar];
         $again: mbarrier.try_wait.shared::cta.b64 %p, [bar], %t, 1000; @!%p bra $again;
         add.u32 %out, %out, %b;
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 20; @%q bra $next;",
    );
    let mut expected: Vec<u32> = (0..128).collect();
    for _ in 0..20 {
        expected = (0..128).map(|i| expected[i].wrapping_add(expected[(i + 1) % 128])).collect();
    }
    assert_eq!(block(128, OBJECT, &body), expected);
}

#[test]
fn a_producer_and_its_consumers_pass_a_buffer_to_and_fro() {
    // The first warp fills a word of each, and waits until all have taken theirs.
    let body = "setp.eq.u32 %first, %lane, 0;
         @%first mbarrier.init.shared.b64 [bar], 32;
         @%first mbarrier.init.shared.b64 [second], 96;
         bar.sync 0;
         mov.u32 %i, 0; mov.u32 %b, words;
         setp.ge.u32 %q, %lane, 32; @%q bra $consume;
         $produce: shl.b32 %a, %lane, 2; add.u32 %a, %a, %b; mad.lo.u32 %out, %i, 100, %lane;
         st.shared.u32 [%a], %out;
         mbarrier.arrive.shared.b64 _, [bar];
         and.b32 %a, %i, 1;
         $emptied: mbarrier.try_wait.parity.shared.b64 %p, [second], %a; @!%p bra $emptied;
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 9; @%q bra $produce;
         bra $end;
         $consume: and.b32 %a, %i, 1;
         $filled: mbarrier.try_wait.parity.acquire.cta.shared.b64 %p, [bar], %a; @!%p bra $filled;
         and.b32 %a, %lane, 31; shl.b32 %a, %a, 2; add.u32 %a, %a, %b;
         ld.shared.u32 %a, [%a]; add.u32 %out, %out, %a;
         mbarrier.arrive.release.cta.shared.b64 _, [second];
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 9; @%q bra $consume;
         $end:";
    let got = block(128, OBJECT, body);
    for (lane, sum) in got.iter().enumerate().skip(32) {
        assert_eq!(*sum, 3600 + 9 * (lane as u32 % 32), "{lane}");
    }
}

#[test]
fn arrivals_that_nobody_waits_for_complete_as_many_phases_as_they_take() {
    for (threads, count, odd) in [(32, 2, 0), (96, 32, 1), (33, 3, 1), (64, 1, 0), (128, 200, 0), (35, 5, 1)]
    {
        let rest = "mbarrier.arrive.shared.b64 _, [bar]; bar.sync 0;
             mbarrier.test_wait.parity.shared.b64 %p, [bar], 0; selp.u32 %out, 1, 0, %p;";
        assert_eq!(block(threads, OBJECT, &made(&count.to_string(), rest)), vec![odd; threads as usize]);
    }
}

#[test]
fn who_drops_out_is_waited_for_no_longer() {
    let rest = "mov.u32 %i, 0; setp.ge.u32 %q, %lane, 40; @!%q bra $stay;
         mbarrier.arrive_drop.shared.b64 _, [bar]; mov.u32 %out, 7; bra $end;
         $stay: mbarrier.arrive.shared.b64 %t, [bar];
         $wait: mbarrier.test_wait.shared.b64 %p, [bar], %t; @!%p bra $wait;
         add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 5; @%p bra $stay;
         mov.u32 %out, %i;
         $end:";
    let got = block(64, OBJECT, &made("64", rest));
    assert!(got[..40].iter().all(|phases| *phases == 5) && got[40..].iter().all(|left| *left == 7));
}

#[test]
fn a_token_says_how_many_are_to_come() {
    let rest = "bar.sync 0; @!%first bra $end;
         mbarrier.arrive.noComplete.shared.b64 %t, [bar], 3;
         mbarrier.pending_count.b64 %out, %t;
         mbarrier.arrive.noComplete.release.cta.shared.b64 %t, [bar], 4;
         mbarrier.pending_count.b64 %a, %t; mad.lo.u32 %out, %out, 100, %a;
         mbarrier.arrive_drop.noComplete.shared.b64 %t, [bar], 1;
         mbarrier.pending_count.b64 %a, %t; mad.lo.u32 %out, %out, 100, %a;
         mbarrier.arrive.shared::cta.b64 %t, [bar], 2;
         mbarrier.arrive.noComplete.shared.b64 %u, [bar], 1;
         mbarrier.pending_count.b64 %a, %u; mad.lo.u32 %out, %out, 100, %a;
         mbarrier.test_wait.shared.b64 %p, [bar], %t; selp.u32 %a, 1, 0, %p; mad.lo.u32 %out, %out, 10, %a;
         mbarrier.test_wait.shared.b64 %p, [bar], %u; selp.u32 %a, 1, 0, %p; mad.lo.u32 %out, %out, 10, %a;
         $end:";
    assert_eq!(block(32, OBJECT, &made("10", rest))[0], 1_007_030_910);
}

#[test]
fn objects_are_found_by_generic_addresses_and_counted_by_registers() {
    let rest = "mov.u64 %g, second; cvta.shared.u64 %g, %g; add.u32 %a, %lane, 1;
         @%first mbarrier.init.b64 [%g], 528;
         bar.sync 0;
         mbarrier.arrive.b64 %t, [%g], %a;
         $wait: mbarrier.try_wait.b64 %p, [%g], %t; @!%p bra $wait;
         mbarrier.test_wait.parity.b64 %p, [%g], 1; selp.u32 %out, 1, 2, %p;
         bar.sync 0; @%first mbarrier.inval.b64 [%g];
         mbarrier.inval.shared.b64 [bar];";
    assert_eq!(block(32, OBJECT, &made("1", rest)), vec![2; 32]);
}

#[test]
fn an_arrival_behind_copies_comes_when_they_are_done() {
    let body = "setp.eq.u32 %first, %lane, 0;
         @%first mbarrier.init.shared.b64 [bar], 64;
         bar.sync 0;
         add.u32 %b, %lane, 500; mul.wide.u32 %g, %lane, 4; add.s64 %g, %at, %g;
         st.global.u32 [%g], %b;
         shl.b32 %a, %lane, 2; mov.u32 %b, words; add.u32 %a, %a, %b;
         cp.async.ca.shared.global [%a], [%g], 4;
         setp.lt.u32 %q, %lane, 32; @!%q bra $other;
         cp.async.mbarrier.arrive.noinc.shared.b64 [bar]; bra $wait;
         $other: cp.async.mbarrier.arrive.shared::cta.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];
         $wait: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @!%p bra $wait;
         mov.u32 %b, 63; sub.u32 %b, %b, %lane; shl.b32 %b, %b, 2; mov.u32 %a, words; add.u32 %a, %a, %b;
         ld.shared.u32 %out, [%a];";
    assert_eq!(block(64, OBJECT, body), (0..64).rev().map(|lane| lane + 500).collect::<Vec<u32>>());
}

#[test]
fn whatever_lies_where_an_object_should_nothing_goes_wrong() {
    // Each thread has an object of its own: single bits, all ones, and anything; and a count that is anything.
    let declarations = format!("{OBJECT} .reg .b64 %x, %y; .shared .align 8 .b64 objects[128];");
    let body = "cvt.u64.u32 %y, %lane; mul.lo.u64 %x, %y, 0x9e3779b97f4a7c15;
         shr.u64 %y, %x, 29; cvt.u32.u64 %a, %y;
         setp.lt.u32 %p, %lane, 64; @!%p bra $there;
         mov.u64 %x, 1; shl.b64 %x, %x, %lane; and.b32 %a, %lane, 3;
         $there: setp.eq.u32 %p, %lane, 127; @%p mov.u64 %x, -1;
         setp.eq.u32 %p, %lane, 126; @%p mov.u32 %a, 0x100000;
         mov.u32 %b, objects; shl.b32 %i, %lane, 3; add.u32 %b, %b, %i;
         st.shared.u64 [%b], %x;
         mbarrier.arrive.shared.b64 %t, [%b];
         mbarrier.arrive.shared.b64 %t, [%b], %a;
         mbarrier.arrive_drop.shared.b64 %t, [%b], %a;
         mbarrier.test_wait.shared.b64 %p, [%b], %x;
         mbarrier.try_wait.parity.shared.b64 %p, [%b], %a;
         mbarrier.pending_count.b64 %i, %x;
         mbarrier.init.shared.b64 [%b], %a;
         mbarrier.init.shared.b64 [%b], 3;
         mbarrier.arrive.shared.b64 %t, [%b], %a;
         mbarrier.inval.shared.b64 [%b]; mbarrier.inval.shared.b64 [%b];
         mbarrier.arrive.shared.b64 _, [%b];
         mov.u32 %out, 5;";
    assert_eq!(block(128, &declarations, body), vec![5; 128]);
}

#[test]
fn transactions_are_waited_for() {
    let mut machine = Machine::new();
    let body = made(
        "1",
        "@!%first bra $wait;
         mbarrier.arrive.expect_tx.shared.b64 _, [bar], 96; mov.u32 %i, 0;
         $spend: mbarrier.test_wait.parity.shared.b64 %p, [bar], 0; @%p bra $early;
         mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 32;
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 3; @%q bra $spend;
         bra $wait;
         $early: mov.u32 %out, 99; bra $end;
         $wait: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @!%p bra $wait;
         mov.u32 %out, 1;
         $end:",
    );
    assert_eq!(machine.block(64, OBJECT, &body), vec![1; 64]);
}
