//! What a fast version leaves as it is stays in its slot, wherever in the windows the pointers point that its terms ask
//! for.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use bulkhead_gpu::{Gpu, Launch};
use bulkhead_guard::{SharedTerm, Verified, along};
use bulkhead_mm::Range;
use common::{Machine, Parameters, SLOT};

/// Pointers with every kind of offset that something is known of.
const SOURCE: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n, .param .u64 m)
{
    .reg .pred %q<3>;
    .reg .b32 %i<16>;
    .reg .b64 %x<32>;
    .reg .b32 %s<16>;
    .shared .align 16 .b8 tile[4224];
    .shared .align 16 .b8 row[512];
    ld.param.u64 %x0, [a];
    ld.param.u64 %x1, [b];
    ld.param.u32 %i0, [n];
    ld.param.u64 %x2, [m];
    cvta.to.global.u64 %x3, %x0;
    mov.u32 %i1, %ctaid.x;
    mov.u32 %i2, %ntid.x;
    mov.u32 %i3, %tid.x;
    mad.lo.s32 %i4, %i1, %i2, %i3;
    xor.b32 %i5, %i4, %i0;
    setp.lt.s32 %q1, %i5, 7;
    mul.wide.s32 %x4, %i5, 4;
    add.s64 %x5, %x3, %x4;
    ld.global.u32 %i6, [%x5];
    mul.wide.u32 %x6, %i5, 16;
    add.s64 %x7, %x1, %x6;
    st.global.v4.u32 [%x7], {%i6, %i5, %i4, %i3};
    mad.wide.s32 %x8, %i5, 8, %x0;
    ld.global.u64 %x9, [%x8+8];
    cvt.s64.s32 %x10, %i0;
    shl.b64 %x11, %x10, 3;
    sub.s64 %x12, %x0, %x11;
    red.global.add.u32 [%x12+-4], %i6;
    and.b64 %x13, %x2, 68719476720;
    add.s64 %x14, %x13, %x1;
    st.global.v2.u64 [%x14], {%x9, %x10};
    selp.b64 %x15, %x5, %x8, %q1;
    ld.global.u16 %i7, [%x15+2];
    and.b32 %i8, %i5, 31;
    shl.b32 %i9, %i8, 7;
    or.b32 %i10, %i9, 96;
    mul.wide.u32 %x16, %i10, %i8;
    add.s64 %x17, %x16, %x3;
    @%q1 atom.global.exch.b64 %x18, [%x17+32], %x9;
    min.u32 %i11, %i0, 4095;
    shr.u32 %i12, %i11, 2;
    add.u32 %i13, %i12, %i8;
    mul.lo.u32 %i14, %i13, 24;
    cvt.u64.u32 %x19, %i14;
    mad.lo.s64 %x20, %x19, -32, %x1;
    mul.wide.s32 %x21, %i5, 32;
    add.s64 %x22, %x1, %x21;
    st.global.u32 [%x22], %i5;
    mov.u32 %s0, %tid.y;
    mov.u32 %s1, tile;
    mad.lo.s32 %s2, %s0, 132, %s1;
    shl.b32 %s3, %i3, 2;
    add.s32 %s4, %s2, %s3;
    st.shared.u32 [%s4], %i5;
    ld.shared.u32 %s5, [%s4+-0];
    and.b32 %s6, %i5, 31;
    shl.b32 %s7, %s6, 4;
    mov.u32 %s8, row;
    add.s32 %s9, %s8, %s7;
    ld.shared.v2.u64 {%x23, %x24}, [%s9];
    mul.lo.s32 %s10, %i3, 8;
    sub.s32 %s11, %s8, %s10;
    add.s32 %s12, %s11, 248;
    selp.b32 %s13, %s9, %s8, %q1;
    atom.shared.add.u32 %s14, [%s13+8], %s5;
    @%q1 bra END;
    st.global.u64 [%x20+-8], %x18;
END:
    st.global.u32 [%x12], %i7;
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

/// Runs the fast version with pointers at the ends of the window where there are terms for them, and anywhere where
/// not; whether there is one.
fn run(
    machine: &Machine,
    verified: &Verified,
    random: &mut Random,
) -> Option<Result<(), bulkhead_gpu::Error>> {
    const BLOCKS: [[u32; 3]; 8] =
        [[1, 1, 1], [32, 1, 1], [32, 32, 1], [33, 31, 1], [1024, 1, 1], [1, 1024, 1], [7, 5, 9], [2, 2, 64]];
    let [entry] = verified.entries() else { return None };
    let fast = entry.fast.as_ref().filter(|_| entry.parameters - entry.hidden == 4)?;
    let image = machine.gpu.load(verified.text()).ok()?;
    let info = image.entries.iter().find(|info| info.name == fast.symbol).unwrap();
    let mut pointer = |parameter: usize| {
        let terms = || fast.pointers.iter().filter(|term| term.parameter == parameter);
        match terms().map(|term| u64::from(term.align)).max() {
            Some(align) => {
                let (lower, upper) = (SLOT.read_write(), SLOT.read_only());
                let ends = |range: Range| [range.start().0, range.end().0 - align];
                let [upper, writes] = [ends(upper), ends(lower)];
                let reads = [upper[0], upper[1], writes[0], writes[1]];
                if terms().any(|term| term.writes) { random.of(&writes) } else { random.of(&reads) }
            }
            None => {
                let any = random.word();
                random.of(&[0, u64::MAX, 1 << 63, any])
            }
        }
    };
    let (a, b, m) = (pointer(0), pointer(1), pointer(3));
    let word = random.word();
    let n = random.of(&[0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, u32::try_from(word >> 32).unwrap()]);
    let parameters = Parameters::default().u64(a).u64(b).u32(n).u32(0).u64(m);
    let parameters = parameters.guarded(info);
    let keeps = |block: &[u32; 3]| fast.shared.iter().all(|term| term.admits(*block, 0));
    let blocks: Vec<[u32; 3]> = BLOCKS.into_iter().filter(keeps).collect();
    if blocks.is_empty() {
        return None;
    }
    let block = random.of(&blocks);
    let launch = Launch { grid: [2, 1, 1], block, shared_bytes: 0, parameters: &parameters.0 };
    machine.gpu.launch(machine.stream, info.id, &launch).unwrap();
    Some(machine.gpu.synchronize(machine.stream))
}

/// The text with one word in another's place, of the same kind; without the rest of the fast version nothing of which
/// is edited.
fn edited(text: &str, random: &mut Random) -> String {
    let start = text.find("__bh_fast_").and_then(|at| Some(at + text[at..].find('{')?)).unwrap();
    let (before, body) = text.split_at(start);
    let mut tokens: Vec<&str> = bulkhead_guard::tokens::tokens(body).map(|token| token.text).collect();
    let kind = |word: &str| {
        let word = word.trim_start_matches('-').as_bytes();
        let first = word.first().map(|byte| if byte.is_ascii_digit() { b'0' } else { *byte });
        (
            first.filter(|byte| !byte.is_ascii_alphabetic()),
            word.get(1).filter(|_| first == Some(b'%')).copied(),
        )
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
fn pointers_at_the_ends_of_the_window_and_any_index_stay_in_the_zones() {
    let (machine, mut random) = (Machine::with_sinks(), Random(7));
    let verified = bulkhead_guard::verify(&confined()).unwrap_or_else(|report| panic!("{report}"));
    let fast = verified.entries()[0].fast.as_ref().unwrap();
    assert_eq!(
        fast.pointers.iter().map(|term| (term.parameter, term.align, term.writes)).collect::<Vec<_>>(),
        [(0, 8, true), (1, 16, true)]
    );
    let body = verified.text().split("__bh_fast_").nth(1).unwrap();
    assert!(
        !body.contains("lop3.b32 %bh_hi, %bh_hi") && !body.contains("max.u32 %bh_s, %bh_s, %bh_low"),
        "something is not proven:\n{body}"
    );
    // The tile and what lies behind it are one variable.
    let tile = SharedTerm { by: along([4, 132, 0]), constant: 4, at_most: Some(4224 + 512) };
    assert_eq!(fast.shared, [tile]);
    for _ in 0..200 {
        run(&machine, &verified, &mut random).unwrap().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn what_the_verifier_lets_through_of_a_broken_fast_version_stays_inside() {
    let seed = std::env::var("BULKHEAD_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let runs = std::env::var("BULKHEAD_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(6000);
    println!("seed {seed}");
    let (machine, mut random, text) = (Machine::with_sinks(), Random(seed), confined());
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..runs {
        // Canonical again, or every edit would be refused for its white space.
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
    assert!(passed > runs / 10 && refused > runs / 10, "{passed} runs, {refused} refused");
}
