//! Barriers of the block with a number and a count: as the software GPU has them, and as the guard writes them with words
//! that atomic operations count on.
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
    for line in confined.lines().map(str::trim) {
        let counts = line.starts_with("bar.") || line.starts_with("barrier.");
        let alone =
            [" 0;", " -1;", " %bh_m;"].iter().any(|end| line.ends_with(end)) || line.contains(", 0, ");
        assert!(!counts || (alone && !line.contains("arrive")), "{line} in\n{confined}");
    }
    bulkhead_guard::verify(&confined).unwrap().text().to_owned()
}

/// What a block of the guard's text leaves in `%out`.
fn guarded(threads: u32, declarations: &str, body: &str) -> Vec<u32> {
    let mut machine = Machine::new();
    let entry = machine.entry(&confined(&kernel(declarations, body)));
    let at = machine.buffer(threads as usize * 4);
    machine.run(entry.id, 1, threads, &Parameters::default().u64(at).guarded(&entry).0).unwrap();
    machine.download_u32(at, threads as usize)
}

/// What a block leaves in `%out`, which is the same whether or not the guard wrote it.
fn block(threads: u32, declarations: &str, body: &str) -> Vec<u32> {
    let found = Machine::new().block(threads, declarations, body);
    assert_eq!(guarded(threads, declarations, body), found, "the guard's text does something else");
    found
}

const WORDS: &str = ".reg .pred %p, %q, %first; .reg .b32 %a, %b, %i, %n, %c; .reg .b64 %g;
    .shared .align 4 .b32 words[1024];";

/// `%a` becomes where a thread's word is.
const WORD: &str = "mov.u32 %b, words; shl.b32 %a, %lane, 2; add.u32 %a, %a, %b;";

#[test]
fn groups_of_warps_wait_for_their_own() {
    // Each half of a block passes words around among its own, as often as its number.
    let body = format!(
        "{WORD} shr.u32 %n, %lane, 6; add.u32 %n, %n, 1; mov.u32 %i, 0; mov.u32 %out, %lane;
         $next: st.shared.u32 [%a], %out;
         bar.sync %n, 64;
         xor.b32 %c, %lane, 32; shl.b32 %c, %c, 2; add.u32 %c, %c, %b; ld.shared.u32 %c, [%c];
         barrier.sync.aligned %n, 64;
         mad.lo.u32 %out, %c, 3, %out;
         add.u32 %i, %i, 1; mul.lo.u32 %c, %n, 5; setp.lt.u32 %q, %i, %c; @%q bra $next;"
    );
    let mut expected: Vec<u32> = (0..256).collect();
    for turn in 0..20 {
        let before = expected.clone();
        for (lane, word) in expected.iter_mut().enumerate() {
            if turn < (lane / 64 + 1) * 5 {
                *word = word.wrapping_add(before[lane ^ 32].wrapping_mul(3));
            }
        }
    }
    assert_eq!(block(256, WORDS, &body), expected);
}

#[test]
fn producers_arrive_and_go_on_while_consumers_wait() {
    // Two warps fill a buffer that two others empty, in turns: one barrier says that it is full, another that it is empty.
    let body = format!(
        "{WORD} and.b32 %n, %lane, 63; shl.b32 %n, %n, 2; add.u32 %b, %b, %n; mov.u32 %i, 0;
         setp.ge.u32 %q, %lane, 64; @%q bra $consume;
         $produce: bar.sync 2, 128;
         mad.lo.u32 %out, %i, 1000, %lane; st.shared.u32 [%b], %out;
         bar.arrive 1, 128;
         add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 9; @%p bra $produce;
         bra $end;
         $consume: bar.arrive 2, 128;
         bar.sync 1, 128;
         ld.shared.u32 %a, [%b]; add.u32 %out, %out, %a;
         add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 9; @%p bra $consume;
         $end:"
    );
    let got = block(128, WORDS, &body);
    for (lane, sum) in got.iter().enumerate().skip(64) {
        assert_eq!(*sum, 36_000 + 9 * (lane as u32 - 64), "{lane}");
    }
}

#[test]
fn barriers_that_count_reduce_over_those_who_come() {
    let body = "shr.u32 %n, %lane, 6; mov.u32 %i, 0;
         $next: add.u32 %c, %lane, %i; rem.u32 %c, %c, 3; setp.eq.u32 %p, %c, 0;
         bar.red.popc.u32 %a, %n, 64, %p; mad.lo.u32 %out, %out, 7, %a;
         barrier.red.popc.u32 %a, 5, 128, !%p; mad.lo.u32 %out, %out, 7, %a;
         setp.lt.u32 %q, %lane, %i; barrier.cta.red.or.pred %q, %n, 64, %q; selp.u32 %a, 1, 0, %q;
         mad.lo.u32 %out, %out, 7, %a;
         setp.ge.u32 %q, %lane, %i; bar.red.and.pred %q, 7, 128, %q; selp.u32 %a, 1, 0, %q;
         mad.lo.u32 %out, %out, 7, %a;
         add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 5; @%q bra $next;";
    let mut expected = Vec::new();
    for lane in 0..128_u32 {
        let mut out = 0_u32;
        for i in 0..5 {
            let own = lane / 64 * 64..lane / 64 * 64 + 64;
            let third = |lane: &u32| (lane + i).is_multiple_of(3);
            let mut tell = |word: u32| out = out.wrapping_mul(7).wrapping_add(word);
            tell(own.clone().filter(third).count() as u32);
            tell((0..128).filter(|lane| !third(lane)).count() as u32);
            tell(u32::from(own.clone().any(|lane| lane < i)));
            tell(u32::from((0..128).all(|lane| lane >= i)));
        }
        expected.push(out);
    }
    assert_eq!(block(128, WORDS, body), expected);
}

#[test]
fn numbers_and_counts_come_from_memory() {
    // The last warp has few threads: it counts whole all the same.
    let body = format!(
        "{WORD} mov.u32 %n, 9; mov.u32 %c, 96; st.shared.v2.u32 [words+512], {{%n, %c}};
         bar.sync 0;
         ld.shared.v2.u32 {{%n, %c}}, [words+512];
         mul.lo.u32 %out, %lane, 3; st.shared.u32 [%a], %out;
         barrier.sync %n, %c;
         sub.u32 %out, 69, %lane; shl.b32 %out, %out, 2; add.u32 %out, %out, %b; ld.shared.u32 %out, [%out];"
    );
    let declarations = WORDS.replace(".align 4", ".align 16");
    assert_eq!(block(70, &declarations, &body), (0..70).map(|lane| (69 - lane) * 3).collect::<Vec<u32>>());
}

#[test]
fn a_count_of_none_is_all_of_the_block() {
    let body = format!(
        "{WORD} mov.u32 %n, 3; mov.u32 %c, 0; mul.lo.u32 %out, %lane, 3; st.shared.u32 [%a], %out;
         barrier.sync %n, %c;
         xor.b32 %out, %lane, 127; shl.b32 %out, %out, 2; add.u32 %out, %out, %b; ld.shared.u32 %out, [%out];
         bar.sync 4, 0;"
    );
    assert_eq!(guarded(128, WORDS, &body), (0..128).map(|lane| (lane ^ 127) * 3).collect::<Vec<u32>>());
}

#[test]
fn barriers_without_a_count_are_for_all_whatever_their_numbers_and_count_who_has_ended() {
    let body = format!(
        "{WORD} setp.ge.u32 %p, %lane, 96; @%p bra $leave;
         mov.u32 %n, 5; mov.u32 %out, 1; st.shared.u32 [%a], %lane;
         bar.sync 1;
         xor.b32 %c, %lane, 32; shl.b32 %c, %c, 2; add.u32 %c, %c, %b; ld.shared.u32 %out, [%c];
         barrier.sync %n; st.shared.u32 [%a], %out; bar.sync 15;
         setp.lt.u32 %q, %out, 50; bar.red.popc.u32 %c, %n, %q; add.u32 %out, %out, %c;
         bra $end;
         $leave: ret;
         $end:"
    );
    // What the third warp finds nobody has written.
    let found = |lane: u32| if lane < 64 { lane ^ 32 } else { 0 };
    let few = (0..96).filter(|lane| found(*lane) < 50).count() as u32;
    let expected: Vec<u32> = (0..128).map(|lane| if lane < 96 { found(lane) + few } else { 0 }).collect();
    assert_eq!(guarded(128, WORDS, &body), expected);
}

#[test]
fn a_barrier_is_used_again_with_other_counts() {
    // The first warp meets each of the others, then all meet.
    let body = format!(
        "{WORD} shr.u32 %n, %lane, 5; st.shared.u32 [%a], %lane; mov.u32 %i, 1;
         setp.eq.u32 %first, %n, 0; @!%first bra $other;
         $next: barrier.sync 3, 64; shl.b32 %c, %i, 7; add.u32 %c, %c, %a; ld.shared.u32 %c, [%c];
         add.u32 %out, %out, %c; bar.sync 4, 64; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 4; @%q bra $next;
         bra $all;
         $other: setp.eq.u32 %p, %i, %n; @%p bra $now; bar.sync 5, 96; add.u32 %i, %i, 1; bra $other;
         $now: mad.lo.u32 %c, %lane, 2, 1; st.shared.u32 [%a], %c;
         bar.sync 3, 64; bar.sync 4, 64;
         $rest: setp.ge.u32 %p, %i, 3; @%p bra $all; bar.sync 5, 96; add.u32 %i, %i, 1; bra $rest;
         $all: bar.sync 0; bar.sync 3, 128; ld.shared.u32 %c, [words]; add.u32 %out, %out, %c;"
    );
    let got = block(128, WORDS, &body);
    for lane in 0..32 {
        let sum: u32 = (1..4).map(|warp| (warp * 32 + lane) * 2 + 1).sum();
        assert_eq!(got[lane as usize], sum);
    }
}

#[test]
fn warps_meet_in_pairs_whoever_comes() {
    // Each warp meets whichever comes next, as often: two for each phase, and nobody is left.
    let body = "mov.u32 %i, 0;
         $next: bar.sync 1, 64; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 30; @%q bra $next;
         mov.u32 %out, %i;";
    assert_eq!(block(64, WORDS, body), [30; 64]);
    // Of eight warps two at a time: whoever goes on finds that as many have come as there are in full phases.
    let body = "atom.shared.add.u32 %a, [words], 1; bar.sync 1, 64; ld.volatile.shared.u32 %out, [words];
         shr.u32 %out, %out, 5; bar.sync 0;";
    for _ in 0..10 {
        let mut found: Vec<u32> = guarded(256, WORDS, body).chunks(32).map(|warp| warp[0]).collect();
        found.sort_unstable();
        let least = [2, 2, 4, 4, 6, 6, 8, 8];
        assert!(found.iter().zip(least).all(|(found, least)| *found >= least), "{found:?}");
    }
    let body = "mov.u32 %i, 0;
         $next: bar.sync 1, 32; add.u32 %i, %i, 1; setp.lt.u32 %q, %i, 300; @%q bra $next;
         mov.u32 %out, %i;";
    assert_eq!(block(512, WORDS, body), [300; 512]);
}

#[test]
fn a_warp_arrives_once_whichever_of_its_lanes_are_left() {
    let body = format!(
        "{WORD} and.b32 %c, %lane, 31; setp.lt.u32 %p, %c, 7; @%p ret;
         st.shared.u32 [%a], %lane;
         barrier.sync 1, 64;
         xor.b32 %c, %lane, 32; shl.b32 %c, %c, 2; add.u32 %c, %c, %b; ld.shared.u32 %out, [%c];
         setp.lt.u32 %q, %lane, 40; bar.red.popc.u32 %c, 1, 64, %q; add.u32 %out, %out, %c;"
    );
    let expected = |lane: u32| if lane % 32 < 7 { 0 } else { (lane ^ 32) + 25 + 1 };
    let got = block(64, WORDS, &body);
    assert_eq!(got, (0..64).map(expected).collect::<Vec<u32>>());
}
