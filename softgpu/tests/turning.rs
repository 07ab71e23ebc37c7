//! Loops whose pointers are checked before they turn: wherever the pointers are and whatever is added to them, accesses stay
//! in the slot, and a program that stays inside computes what it did.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::sync::mpsc;
use std::time::Duration;

use bulkhead_gpu::{Gpu, Launch};
use bulkhead_guard::Verified;
use bulkhead_mm::WINDOW_BYTES;
use common::{Machine, Parameters, SLOT};

/// Loops that step pointers by numbers and by registers, up and down, load through what they step and store through what
/// they do not.
const SOURCE: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .u32 m)
{
    .reg .pred %q<8>;
    .reg .b32 %i<16>;
    .reg .b64 %x<32>;
    ld.param.u64 %x12, [a];
    xor.b64 %x0, %x12, 0;
    ld.param.u64 %x13, [b];
    xor.b64 %x1, %x13, 0;
    ld.param.u64 %x14, [c];
    xor.b64 %x2, %x14, 0;
    ld.param.u32 %i0, [n];
    ld.param.u32 %i1, [m];
    mov.u32 %i2, 0;
    mov.u32 %i3, 0;
    mul.wide.s32 %x3, %i1, 4;
    mul.wide.s32 %x4, %i1, 8;
    mov.b64 %x5, %x0;
    mov.b64 %x6, %x1;
ONE:
    ld.global.u32 %i4, [%x5+16];
    add.s32 %i2, %i2, %i4;
    ld.global.v2.u32 {%i5, %i6}, [%x5];
    add.s32 %i2, %i2, %i5;
    add.s64 %x5, %x5, 8;
    st.global.u32 [%x6+-4], %i2;
    add.s64 %x6, %x6, -4;
    add.s32 %i3, %i3, 1;
    setp.lt.s32 %q1, %i3, %i0;
    @%q1 bra ONE;
    mov.b64 %x7, %x0;
    mov.b64 %x8, %x1;
    mov.u32 %i3, 0;
TWO:
    add.s64 %x9, %x7, %x3;
    ld.global.u32 %i7, [%x7];
    ld.global.u32 %i8, [%x9];
    add.s64 %x10, %x9, %x3;
    ld.global.u16 %i9, [%x10+2];
    sub.s64 %x7, %x10, %x4;
    sub.s64 %x7, %x7, %x3;
    mad.wide.s32 %x11, %i7, 4, %x8;
    ld.global.u32 %i10, [%x11];
    add.s32 %i2, %i10, %i2;
    add.s32 %i2, %i2, %i9;
    st.global.u32 [%x2+8], %i2;
    add.s32 %i2, %i2, %i8;
    add.s32 %i3, %i3, 1;
    setp.lt.s32 %q2, %i3, %i0;
    @%q2 bra TWO;
    st.global.u32 [%x2], %i2;
    ret;
}
";

fn confined() -> String {
    let confined = bulkhead_guard::parse(SOURCE).and_then(|module| bulkhead_guard::confine(&module));
    bulkhead_guard::print(&confined.unwrap_or_else(|report| panic!("{report}")))
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        let length = u64::try_from(some.len()).unwrap();
        some[usize::try_from(self.word() % length).unwrap()]
    }
}

/// Runs the fast version with pointers in the window, at its ends and anywhere, and steps of every size; none where there
/// is none that asks for nothing.
fn run(
    machine: &Machine,
    verified: &Verified,
    random: &mut Random,
) -> Option<Result<(), bulkhead_gpu::Error>> {
    let [entry] = verified.entries() else { return None };
    let fast = entry.fast.as_ref().filter(|fast| entry.parameters == 8 && fast.pointers.is_empty())?;
    let image = machine.gpu.load(verified.text()).ok()?;
    let info = image.entries.iter().find(|info| info.name == fast.symbol).unwrap();
    let mut pointer = || {
        let any = random.word();
        let (lower, upper) = (SLOT.read_write(), SLOT.read_only());
        let inside = lower.start().0 + any % WINDOW_BYTES;
        random.of(&[
            lower.start().0,
            lower.start().0,
            lower.end().0 - 8,
            lower.end().0 - 4,
            lower.start().0 + 2048,
            inside & !7,
            inside,
            lower.start().0 - 8,
            lower.end().0,
            upper.start().0,
            upper.end().0 - 8,
            SLOT.base().0,
            SLOT.lower_half().end().0 - 4,
            SLOT.lower_half().end().0,
            SLOT.range().end().0 - 4,
            SLOT.reach().end().0,
            0,
            u64::MAX,
            any,
        ])
    };
    let (a, b, c) = (pointer(), pointer(), pointer());
    let any = random.word().to_le_bytes();
    let any = u32::from_le_bytes([any[0], any[1], any[2], any[3]]);
    let m = random.of(&[
        0,
        1,
        4,
        0u32.wrapping_sub(4),
        1 << 18,
        (1 << 18) + 4,
        (1 << 20) - 4,
        1 << 22,
        0x7fff_fffc,
        0x8000_0000,
        any,
        any & 0xffffc,
    ]);
    // As long as a chunk may be, and longer.
    let n = random.of(&[1, 2, 3, 3, 40, 40, 1000, 6000]);
    let parameters = Parameters::default().u64(a).u64(b).u64(c).u32(n).u32(m).hidden();
    let launch = Launch { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0, parameters: &parameters.0 };
    let flag = |word: u32| {
        let stream = machine.gpu.create_stream(0).unwrap();
        machine.flag(stream, word);
        machine.gpu.destroy_stream(stream).unwrap();
    };
    flag(0);
    // What runs on is told to end.
    let (over, ended) = mpsc::channel::<()>();
    Some(std::thread::scope(|scope| {
        let flag = &flag;
        scope.spawn(move || {
            if ended.recv_timeout(Duration::from_millis(50)) == Err(mpsc::RecvTimeoutError::Timeout) {
                flag(u32::MAX);
            }
        });
        machine.gpu.launch(machine.stream, info.id, &launch).unwrap();
        let done = machine.gpu.synchronize(machine.stream);
        drop(over);
        done
    }))
}

/// The text with one word of the fast version in another's place, of the same kind.
fn edited(text: &str, random: &mut Random) -> String {
    let start = text.find("__bh_fast_").and_then(|at| Some(at + text[at..].find('{')?)).unwrap();
    let (before, body) = text.split_at(start);
    let mut tokens: Vec<&str> = bulkhead_guard::tokens::tokens(body).map(|token| token.text).collect();
    let kind = |word: &str| {
        let word = word.trim_start_matches('-').as_bytes();
        let first = word.first().map(|byte| if byte.is_ascii_digit() { b'0' } else { *byte });
        let first = first.filter(|byte| !byte.is_ascii_alphabetic());
        (first, word.get(1).filter(|_| first == Some(b'%')).copied())
    };
    loop {
        let at = usize::try_from(random.word()).unwrap() % tokens.len();
        let new = random.of(&tokens);
        if tokens[at] != new && !new.trim().is_empty() && kind(tokens[at]) == kind(new) {
            tokens[at] = new;
            return format!("{before}{}", tokens.concat());
        }
    }
}

#[test]
fn wherever_pointers_are_and_however_they_step_accesses_stay_in_the_zones() {
    let (machine, mut random) = (Machine::with_sinks(), Random(3));
    let text = confined();
    let verified = bulkhead_guard::verify(&text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    let fast = verified.text().split("__bh_fast_").nth(1).unwrap();
    let left = fast.lines().filter(|line| line.contains(".global.") && line.contains("[%d")).count();
    assert_eq!(left, 8, "the first version of each loop is left as it is\n{fast}");
    assert!(fast.contains("add.s64 %bh_a, %d"), "a step is checked\n{fast}");
    for _ in 0..200 {
        run(&machine, &verified, &mut random).unwrap().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn what_the_verifier_lets_through_of_broken_versions_stays_inside() {
    let seed = std::env::var("BULKHEAD_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let runs = std::env::var("BULKHEAD_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(2000);
    println!("seed {seed}");
    let (machine, mut random, text) = (Machine::with_sinks(), Random(seed), confined());
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..runs {
        let Ok(module) = bulkhead_guard::parse(&edited(&text, &mut random)) else { continue };
        let printed = bulkhead_guard::print(&module);
        let Ok(verified) = bulkhead_guard::verify(&printed) else {
            refused += 1;
            continue;
        };
        for _ in 0..3 {
            match run(&machine, &verified, &mut random) {
                Some(done) => assert!(done.is_ok(), "{done:?}\n{printed}"),
                None => break,
            }
            passed += 1;
        }
    }
    println!("{passed} runs, {refused} edits refused, of {runs}");
    assert!(passed > runs / 20 && refused > runs / 10, "{passed} runs, {refused} refused");
}

/// What both loops leave, of a program that stays inside.
fn results(text: &str, entry: &str, guarded: bool, offset: u64) -> Vec<u32> {
    let mut machine = Machine::new();
    let words: Vec<u32> = (0..4096).map(|word| word % 61).collect();
    let a = machine.upload_u32(&words);
    let b = machine.upload_u32(&vec![1; 4096]);
    let c = machine.upload_u32(&[0; 4]);
    let image = machine.gpu.load(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let info = image.entries.iter().find(|info| info.name == entry).unwrap();
    // The first loop stores downwards from the middle, which is where the second looks things up.
    let parameters =
        Parameters::default().u64(a + 64).u64(b + 8192 + offset).u64(c).u32(700).u32(0u32.wrapping_sub(4));
    let parameters = if guarded { parameters.hidden() } else { parameters };
    let launch = Launch { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0, parameters: &parameters.0 };
    machine.gpu.launch(machine.stream, info.id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    [machine.download_u32(b, 4096), machine.download_u32(c, 4)].concat()
}

#[test]
fn programs_that_stay_inside_compute_the_same_in_either_version() {
    let expected = results(SOURCE, "k", false, 0);
    assert!(expected.iter().filter(|word| **word > 1).count() > 600);
    assert_eq!(results(&confined(), "__bh_fast_k", true, 0), expected);
    assert_eq!(results(&confined(), "bh_e_k", true, 0), expected);
    // Where the check never passes.
    let never = confined().replace("setp.ne.s32 %bh_q, %bh_s, 0;", "setp.eq.s32 %bh_q, %bh_s, 0;");
    assert_eq!(results(&never, "__bh_fast_k", true, 0), expected);
    // And where it does not because nothing is aligned: as if there had been no check.
    assert_eq!(results(&confined(), "__bh_fast_k", true, 2), results(&confined(), "bh_e_k", true, 2));
}
