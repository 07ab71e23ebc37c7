//! Calls and generic addresses: what the guard makes of them computes what the original computes.
//!
//! The software GPU does not run calls. What a program with calls means is what the compiler makes of the same
//! source where it inlines everything.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong"
)]

mod common;

use std::path::Path;

use bulkhead_gpu::{EntryInfo, Gpu, Launch};
use common::{Machine, Parameters, WINDOW, kernel};

fn confined(ptx: &str) -> String {
    let confined = bulkhead_guard::parse(ptx).and_then(|module| bulkhead_guard::confine(&module));
    let printed = bulkhead_guard::print(&confined.unwrap_or_else(|report| panic!("{report}\n{ptx}")));
    let verified = bulkhead_guard::verify(&printed);
    verified.unwrap_or_else(|report| panic!("{report}\n{printed}")).text().to_owned()
}

fn accepted(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guard/filetests/accept");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn named(machine: &Machine, ptx: &str, name: &str) -> EntryInfo {
    let image = machine.gpu.load(ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
    image.entries.into_iter().find(|entry| bulkhead_guard::entry_of(&entry.name) == name).unwrap()
}

fn run(machine: &Machine, entry: &EntryInfo, threads: u32, parameters: &Parameters) {
    let parameters = parameters.0.as_slice();
    let launch = Launch { grid: [1, 1, 1], block: [threads, 1, 1], shared_bytes: 0, parameters };
    machine.gpu.launch(machine.stream, entry.id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
}

/// What `calls` leaves: structures, small integers and a loop go through functions.
fn calls(ptx: &str, guarded: bool) -> Vec<u32> {
    let mut machine = Machine::new();
    let entry = named(&machine, ptx, "calls");
    let word =
        |index: u32| if index % 4 == 3 { index % 5 } else { ((index * 37 % 101) as f32 - 50.0).to_bits() };
    let a = machine.upload_u32(&(0..4 * 64).map(word).collect::<Vec<_>>());
    let b = machine.upload_u32(&(7..4 * 64 + 7).map(|index| word(index ^ 3)).collect::<Vec<_>>());
    let out = machine.upload_u32(&[0; 64]);
    let parameters = Parameters::default().u64(out).u64(a).u64(b).u32(50);
    run(&machine, &entry, 64, &if guarded { parameters.guarded(&entry) } else { parameters });
    machine.download_u32(out, 64)
}

/// What `spaces` leaves: one pointer leads to shared, local and global memory, thread by thread.
fn spaces(ptx: &str, guarded: bool) -> Vec<u32> {
    let mut machine = Machine::new();
    let entry = named(&machine, ptx, "spaces");
    let input = machine.upload_u32(&(0..64).map(|index| index * index + 11).collect::<Vec<_>>());
    let out = machine.upload_u32(&[0; 66]);
    let parameters = Parameters::default().u64(out).u64(input).u32(48);
    run(&machine, &entry, 48, &if guarded { parameters.guarded(&entry) } else { parameters });
    machine.download_u32(out, 66)
}

#[test]
fn functions_that_are_called_compute_what_they_compute_inlined() {
    let expected = calls(&accepted("nvcc_device_functions_inlined.ptx"), false);
    assert!(expected.iter().take(50).all(|word| *word != 0));
    for name in ["nvcc_device_functions.ptx", "nvcc_debug_build.ptx", "nvcc_device_functions_inlined.ptx"] {
        assert_eq!(calls(&confined(&accepted(name)), true), expected, "{name}");
    }
}

#[test]
fn a_pointer_of_unknown_space_leads_where_it_led() {
    let expected = spaces(&accepted("nvcc_device_functions_inlined.ptx"), false);
    // The even threads add up in global memory, the odd ones on top of the first input in shared memory.
    assert_eq!(expected[48], (0..48).filter(|thread| thread % 2 == 0).sum::<u32>());
    assert_eq!(expected[49], 11 + (0..48).filter(|thread| thread % 2 == 1).sum::<u32>());
    for name in ["nvcc_device_functions.ptx", "nvcc_debug_build.ptx", "nvcc_device_functions_inlined.ptx"] {
        assert_eq!(spaces(&confined(&accepted(name)), true), expected, "{name}");
    }
}

/// Runs one warp of a body, which has generic pointers to shared (`%s`), local (`%l`) and global (`%g`) memory and
/// one of them (`%x`) by the thread's number, kept where its space cannot be told; confined and not.
fn both(body: &str) -> (Vec<u32>, Vec<u32>) {
    let ptx = kernel(
        ".reg .pred %p, %q; .reg .b32 %a, %b; .reg .b64 %s, %l, %g, %x, %o; .shared .align 8 .b8 words[512];
         .local .align 8 .b8 depot[64];",
        &format!(
            "mov.u64 %s, words; cvta.shared.u64 %s, %s; mov.u64 %l, depot; cvta.local.u64 %l, %l;
             mul.wide.u32 %o, %lane, 16; add.s64 %s, %s, %o; add.s64 %g, %at, 4096; add.s64 %g, %g, %o;
             rem.u32 %a, %lane, 3; setp.eq.u32 %p, %a, 0; selp.b64 %x, %s, %l, %p;
             setp.eq.u32 %p, %a, 1; selp.b64 %x, %g, %x, %p;
             st.local.u64 [depot+56], %x; ld.local.u64 %x, [depot+56];
             {body}"
        ),
    );
    let run_one = |ptx: &str, guarded: bool| {
        let mut machine = Machine::new();
        let entry = machine.entry(ptx);
        let at = machine.upload_u32(&[0; 2048]);
        let parameters = Parameters::default().u64(at);
        run(&machine, &entry, 32, &if guarded { parameters.guarded(&entry) } else { parameters });
        machine.download_u32(at, 2048)
    };
    let text = confined(&ptx);
    assert!(text.contains("isspacep.shared") && text.contains("isspacep.local"), "{text}");
    (run_one(&ptx, false), run_one(&text, true))
}

#[test]
fn split_accesses_leave_what_generic_accesses_leave() {
    let bodies = [
        // Every width, vectors, offsets of both signs.
        "st.v4.u32 [%x], {%lane, %a, 7, 9}; ld.u8 %b, [%x+8]; ld.v2.u32 {%a, %out}, [%x]; mad.lo.u32 %out, %out, 100, %b;
         add.s64 %x, %x, 12; ld.u16 %b, [%x+-4]; add.u32 %out, %out, %b; ld.u64 %o, [%x+-12]; cvt.u32.u64 %b, %o;
         add.u32 %out, %out, %b;",
        // Under a predicate, either way round; what is not loaded stays.
        "st.u32 [%x+4], %lane; and.b32 %b, %lane, 4; setp.ne.u32 %q, %b, 0; mov.u32 %out, 99;
         @%q ld.u32 %out, [%x+4]; @!%q st.u32 [%x+4], 5; ld.u32 %b, [%x+4]; mad.lo.u32 %out, %b, 1000, %out;",
        // The destination is the address.
        "st.u64 [%x], %x; ld.u64 %x, [%x]; st.u32 [%x+8], 3; ld.volatile.u32 %out, [%x+8];",
        // Atomics, where the address may be of local memory by its type, and is not.
        "selp.b64 %x, %g, %s, %p; st.local.u64 [depot+48], %x; ld.local.u64 %x, [depot+48]; st.u32 [%x], 40;
         atom.add.u32 %b, [%x], %lane; red.max.u32 [%x], 50; atom.cas.b32 %b, [%x], 50, %b; ld.u32 %out, [%x];
         mad.lo.u32 %out, %b, 1000, %out; ld.u32 %b, [%l]; add.u32 %out, %out, %b;",
    ];
    for body in bodies {
        let (original, guarded) = both(body);
        assert_eq!(guarded, original, "{body}");
        assert!(original.iter().take(32).any(|word| *word != 0), "{body}");
    }
}

/// Accesses through pointers far from all that they may reach. Shared and local memory end with the variables, so that an
/// access which gets out ends the context.
fn hostile() -> String {
    kernel(
        ".reg .pred %p; .reg .b64 %s, %l, %x; .reg .b32 %a, %b; .shared .align 8 .b8 words[64];
         .local .align 8 .b8 depot[64];",
        "mov.u64 %s, words; cvta.shared.u64 %s, %s; mov.u64 %l, depot; cvta.local.u64 %l, %l;
         and.b32 %a, %lane, 3; setp.eq.u32 %p, %a, 0; selp.b64 %x, %s, %l, %p;
         setp.eq.u32 %p, %a, 1; selp.b64 %x, 0x123456789abcdef0, %x, %p;
         st.local.u64 [depot], %x; ld.local.u64 %x, [depot];
         add.s64 %x, %x, 65537; st.u32 [%x], 5; ld.u32 %out, [%x+-65535]; ld.u32 %b, [%x+16777215];
         st.u64 [%x+-131072], %x; red.add.u32 [%x+3], 1; st.v2.u64 [%x+9223372036854775807], {%x, %x};
         mov.u32 %out, 77;",
    )
}

#[test]
fn a_forged_generic_pointer_stays_in_the_window_the_depot_and_the_blocks_memory() {
    let mut machine = Machine::with_sinks();
    let entry = machine.entry(&confined(&hostile()));
    let out = machine.upload_u32(&[0; 32]);
    run(&machine, &entry, 32, &Parameters::default().u64(out).guarded(&entry));
    assert_eq!(machine.download_u32(out, 32), [77; 32]);
    // Without the guard the same kernel does not survive.
    let entry = machine.entry(&hostile());
    assert!(machine.run(entry.id, 1, 32, &out.to_le_bytes()).is_err());
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound as u64) as usize
    }
}

/// Every statement once without it, and words at random in the place of others.
fn broken(text: &str, edits: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.contains("ld.param")).unwrap();
    let without = |at: usize| {
        let kept = lines.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, line)| *line);
        kept.flat_map(|line| [line, "\n"]).collect::<String>()
    };
    let mut texts: Vec<String> = (start..lines.len() - 1).map(without).collect();
    let tokens: Vec<&str> = bulkhead_guard::tokens::tokens(text).map(|token| token.text).collect();
    // A register in the place of one of its class, a number for a number, a word for a word.
    let kind = |word: &str| {
        let word = word.as_bytes();
        let first = word.first().copied().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        (first, word.get(1).copied().filter(|_| first == Some(b'%')))
    };
    let alike = |one: &str, other: &str| kind(one) == kind(other);
    let seed = std::env::var("BULKHEAD_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("seed {seed}");
    let mut random = Random(seed);
    while texts.len() < edits {
        let (at, from) = (random.below(tokens.len()), random.below(tokens.len()));
        let (old, new) = (tokens[at], tokens[from]);
        if old != new && !old.trim().is_empty() && !new.trim().is_empty() && alike(old, new) {
            let mut edited = tokens.clone();
            edited[at] = new;
            texts.push(edited.concat());
        }
    }
    texts
}

#[test]
fn what_the_verifier_lets_through_of_a_broken_text_stays_inside() {
    let text = confined(&hostile());
    let (mut passed, machine) = (0, Machine::with_sinks());
    let texts = broken(&text, 3000);
    let all = texts.len();
    for edited in texts {
        // Canonical again, or every edit would be refused for its white space.
        let Ok(module) = bulkhead_guard::parse(&edited) else { continue };
        let printed = bulkhead_guard::print(&module);
        let Ok(verified) = bulkhead_guard::verify(&printed) else { continue };
        let Ok(image) = machine.gpu.load(verified.text()) else { continue };
        let Some(entry) = image.entries.first() else { continue };
        if entry.parameters.len() != 4 {
            continue;
        }
        passed += 1;
        let parameters = Parameters::default().u64(WINDOW).hidden();
        let done = machine.run(entry.id, 1, 32, &parameters.0);
        assert!(done.is_ok(), "{done:?}\n{printed}");
    }
    println!("{passed} of {all} passed");
    assert!(passed > all / 30, "only {passed} of {all} edits pass the verifier");
}
