//! Programs as the guard writes them, which is what the executor loads.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use bulkhead_gpu::{Gpu, Launch};
use bulkhead_mm::{HALF_BYTES, SINK_BYTES};
use bulkhead_softgpu::Options;
use common::{Machine, Parameters, SLOT, kernel};

fn confined(ptx: &str) -> String {
    let module = bulkhead_guard::parse(ptx).unwrap();
    let confined = bulkhead_guard::print(&bulkhead_guard::confine(&module).unwrap());
    bulkhead_guard::verify(&confined).unwrap().text().to_owned()
}

#[test]
fn everything_the_guard_accepts_loads() {
    let machine = Machine::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guard/filetests/accept");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ptx") {
            continue;
        }
        let text = confined(&std::fs::read_to_string(&path).unwrap());
        if let Err(error) = machine.gpu.load(&text) {
            panic!("{}: {error}\n{text}", path.display());
        }
        count += 1;
    }
    assert!(count > 10, "only {count} files");
}

#[test]
fn a_fault_names_the_entry_as_its_program_does() {
    let places = [
        ("bh_e_k", "of entry k,"),
        ("__bh_fast_k", "of entry k,"),
        ("bh_e_bh_e_k", "of entry bh_e_k,"),
        ("bh_e___bh_fast_k", "of entry __bh_fast_k,"),
        ("k", "of entry k,"),
    ];
    // An access that faults, and a wait that nobody can end.
    for body in ["mov.u64 %at, 64;", "bar.sync 0, 64;"] {
        for (symbol, told) in places {
            let machine = Machine::new();
            let text = kernel("", body);
            let entry = machine.entry(&text.replace(".entry test(", &format!(".entry {symbol}(")));
            assert_eq!(entry.name, symbol, "the device keeps the name of the text");
            let lost = machine.run(entry.id, 1, 32, &0_u64.to_le_bytes()).unwrap_err().to_string();
            assert!(lost.contains(told), "{lost}");
        }
    }
    let undecodable = kernel("", "bogus.u32 %out;").replace(".entry test(", ".entry bh_e_k(");
    let refused = Machine::new().gpu.load(&undecodable).map(drop).unwrap_err().to_string();
    assert!(!refused.contains("bh_e_"), "{refused}");
}

#[test]
fn a_stray_store_of_a_confined_kernel_lands_in_the_sink() {
    let mut machine = Machine::with_sinks();
    let text = confined(&kernel(
        ".reg .b64 %far; .reg .b32 %a;",
        "st.global.u32 [%at], 11;
         mov.u64 %far, 0x123456389abcdef0;
         st.global.u32 [%far], 77;
         ld.global.u32 %out, [%far];
         add.u32 %out, %out, 1;
         add.s64 %at, %at, 4;",
    ));
    let entry = machine.entry(&text);
    assert_eq!(entry.parameters.len(), 4);
    let at = machine.buffer(8);
    machine.run(entry.id, 1, 1, &Parameters::default().u64(at).hidden().0).unwrap();
    assert_eq!(machine.download_u32(at, 2), [11, 78]);
    // The forged address with its high word replaced, and then the chunk it falls on.
    let lands = SLOT.base().0 + (0x1234_5638_9abc_def0 & (HALF_BYTES - 1));
    assert_eq!(machine.download_u32(lands, 1), [77]);
    let in_sink = SLOT.base().0 + lands % SINK_BYTES;
    assert_eq!(machine.download_u32(in_sink, 1), [77]);
}

#[test]
fn a_confined_kernel_computes_what_the_original_computes() {
    let mut machine = Machine::new();
    let ptx = kernel(
        ".reg .pred %p; .reg .b32 %a, %b, %c; .reg .b64 %x; .shared .align 4 .b32 words[64]; .local .b32 depot[8];",
        "mov.u32 %a, words; shl.b32 %b, %lane, 2; add.u32 %a, %a, %b;
         mul.lo.u32 %c, %lane, %lane;
         st.shared.u32 [%a], %c;
         bar.sync 0;
         xor.b32 %b, %b, 12; mov.u32 %a, words; add.u32 %a, %a, %b;
         ld.shared.u32 %out, [%a];
         st.local.u32 [depot+12], %out;
         ld.local.u32 %c, [depot+12];
         shfl.sync.up.b32 %c, %c, 1, 0, 0xffffffff;
         mad.lo.u32 %out, %c, 3, %out;",
    );
    let original = machine.entry(&ptx);
    let guarded = machine.entry(&confined(&ptx));
    let (first, second) = (machine.buffer(256), machine.buffer(256));
    machine.run(original.id, 1, 64, &first.to_le_bytes()).unwrap();
    let parameters = Parameters::default().u64(second).hidden();
    machine.run(guarded.id, 1, 64, &parameters.0).unwrap();
    let expected = machine.download_u32(first, 64);
    assert_eq!(machine.download_u32(second, 64), expected);
    assert_ne!(expected[1], expected[2]);
}

#[test]
fn large_local_arrays_begin_as_zero() {
    // A thread fills its array from both ends by computed indices, and reads what it never wrote as zero.
    for bytes in [8208_u32, 20_013, 65_536] {
        let ptx = kernel(
            &format!(
                ".reg .pred %p; .reg .b32 %i, %w; .reg .b64 %l, %f, %x; .local .align 16 .b8 depot[{bytes}];"
            ),
            &format!(
                "mov.u64 %l, depot; mov.u32 %i, 0; and.b32 %w, %lane, 31; shl.b32 %w, %w, 2;
                 cvt.u64.u32 %f, %w; add.s64 %f, %l, %f;
                 $next: ld.local.u32 %w, [%f]; add.u32 %out, %out, %w;
                 mad.lo.u32 %w, %i, 77, %lane; st.local.u32 [%f], %w;
                 add.s64 %f, %f, 132; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, 60; @%p bra $next;
                 mov.u32 %i, {last}; cvt.u64.u32 %x, %i; add.s64 %f, %l, %x;
                 ld.local.u8 %w, [%f]; add.u32 %out, %out, %w; st.local.u8 [%f], %lane;
                 ld.local.u8 %w, [%f]; mad.lo.u32 %out, %w, 1000, %out;
                 ld.local.u32 %w, [depot+8196]; add.u32 %out, %out, %w;
                 ld.local.u32 %w, [depot+1320]; add.u32 %out, %out, %w;",
                last = bytes - 1
            ),
        );
        let mut machine = Machine::new();
        let (original, guarded) = (machine.entry(&ptx), machine.entry(&confined(&ptx)));
        assert!(guarded.local_bytes >= bytes);
        let (first, second) = (machine.buffer(256), machine.buffer(256));
        machine.run(original.id, 1, 64, &first.to_le_bytes()).unwrap();
        machine.run(guarded.id, 1, 64, &Parameters::default().u64(second).hidden().0).unwrap();
        let expected = machine.download_u32(first, 64);
        assert_eq!(machine.download_u32(second, 64), expected);
        // The tenth word of the first lane is all that it finds of its own.
        assert_eq!((expected[0], expected[33]), (770, 33_000), "{bytes}");
    }
}

/// Each thread gathers what its array holds, and leaves sevens in all of it.
fn gathers(bytes: u32) -> String {
    kernel(
        &format!(".reg .pred %p; .reg .b32 %i, %w; .reg .b64 %f; .local .align 16 .b8 depot[{bytes}];"),
        &format!(
            "mul.wide.u32 %lane64, %lane, 4; add.s64 %to, %at, %lane64; ld.global.u32 %out, [%to];
             mov.u64 %f, depot; mov.u32 %i, 0;
             $next: ld.local.u32 %w, [%f]; or.b32 %out, %out, %w; st.local.u32 [%f], 7;
             add.s64 %f, %f, 4; add.u32 %i, %i, 1; setp.lt.u32 %p, %i, {}; @%p bra $next;",
            bytes / 4
        ),
    )
}

#[test]
fn a_confined_block_finds_nothing_that_another_left_in_local_memory() {
    for bytes in [4, 44, 2048, 8212] {
        let mut machine = Machine::with(Options { threads: Some(1), ..common::options() });
        let entry = machine.entry(&confined(&gathers(bytes)));
        let out = machine.upload_u32(&[0; 64]);
        // Blocks of one launch, which have the same memory, and of another.
        for _ in 0..2 {
            machine.run(entry.id, 40, 64, &Parameters::default().u64(out).hidden().0).unwrap();
        }
        assert_eq!(machine.download_u32(out, 64), [0; 64], "{bytes}");
    }
}

#[test]
fn no_launch_finds_what_another_left_in_local_memory() {
    for bytes in [4, 44, 2048, 8212, 65_536] {
        let mut machine = Machine::with(Options { threads: Some(1), ..common::options() });
        let entry = machine.entry(&gathers(bytes));
        let out = machine.upload_u32(&[0; 64]);
        for _ in 0..5 {
            machine.run(entry.id, 1, 64, &out.to_le_bytes()).unwrap();
        }
        assert_eq!(machine.download_u32(out, 64), [0; 64], "{bytes}");
    }
}

/// Zeroing 400 MB takes a block a tenth of a second; ending takes it some microseconds.
#[test]
fn a_block_that_is_told_to_end_takes_no_longer_the_more_local_memory_it_has() {
    let mut machine = Machine::with(Options { threads: Some(1), ..common::options() });
    let entry = machine.entry(&confined(&gathers(400_000)));
    let out = machine.upload_u32(&[1; 1024]);
    let parameters = Parameters::default().u64(out).hidden();
    machine.flag(machine.stream, u32::MAX);
    let since = Instant::now();
    machine.run(entry.id, 200, 1024, &parameters.0).unwrap();
    // Each launch has memory of its own.
    for _ in 0..100 {
        machine.launch(entry.id, 1, 1024, &parameters.0).unwrap();
    }
    machine.gpu.synchronize(machine.stream).unwrap();
    let took = since.elapsed();
    assert_eq!(machine.download_u32(out, 1024), [1; 1024], "they ended before they stored");
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// Rounds after which a block ought to have got what another left.
const ROUNDS_MAX: usize = 1000;

#[test]
fn a_confined_block_finds_nothing_that_another_left_in_shared_memory() {
    let mut machine = Machine::new();
    let at_own_word = "mov.u32 %a, words; shl.b32 %b, %lane, 2; add.u32 %a, %a, %b;";
    // 65 words: what is zeroed by 16 bytes, and a rest.
    let fill = kernel(
        ".reg .b32 %a, %b; .shared .align 4 .b32 words[65];",
        &format!("{at_own_word} st.shared.u32 [%a], 0x5ec2e7;"),
    );
    let fill = machine.entry(&fill);
    let buffer = machine.buffer(65 * 4);
    // Little that is a multiple of 16 bytes and that is not; much; and what the launch says.
    for (module, declared, count) in [
        ("", ".shared .align 4 .b32 words[32];", 32),
        ("", ".shared .align 4 .b32 words[33];", 33),
        ("", ".shared .align 4 .b32 words[65];", 65_u32),
        (".extern .shared .align 4 .b32 words[];", "", 65),
    ] {
        // A block of so many threads along x, y and z listens to the last words that there are.
        for block in [[count, 1, 1], [7, 1, 1], [1, 1, 1], [5, 3, 1], [1, 7, 2], [8, 2, 3]] {
            let [threads, ..] = block;
            let first = count - threads;
            let listen = kernel(
                &format!(".reg .b32 %a, %b; {declared}"),
                &format!("{at_own_word} ld.shared.u32 %out, [%a+{}];", first * 4),
            );
            let listen = listen.replace(".visible", &format!("{module}\n.visible"));
            let original = machine.entry(&listen);
            let guarded = machine.entry(&confined(&listen));
            let words = threads as usize;
            let hear = |machine: &mut Machine, entry, parameters: &[u8]| {
                machine.run(fill.id, 1, 65, &buffer.to_le_bytes()).unwrap();
                let grid = [1, 1, 1];
                let shared_bytes = if module.is_empty() { 0 } else { 65 * 4 };
                let launch = Launch { grid, block, shared_bytes, parameters };
                machine.gpu.launch(machine.stream, entry, &launch).unwrap();
                machine.download_u32(buffer, words)
            };
            // Without the guard it does hear something, so that there is something to be heard.
            let heard = (0..ROUNDS_MAX)
                .any(|_| hear(&mut machine, original.id, &buffer.to_le_bytes()).contains(&0x5e_c2e7));
            assert!(heard, "{block:?} {count} {module}");
            let parameters = Parameters::default().u64(buffer).hidden();
            for _ in 0..20 {
                assert_eq!(
                    hear(&mut machine, guarded.id, &parameters.0),
                    vec![0; words],
                    "{block:?} {count} {module}"
                );
            }
        }
    }
}

#[test]
fn a_call_through_a_pointer_takes_and_returns_8_bits() {
    let mut machine = Machine::with_sinks();
    let text = confined(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .func (.param .b8 r) f(.param .b8 a)\n{\n.reg .b16 %h<3>;\n\
         ld.param.u8 %h1, [a]; add.u16 %h1, %h1, 1; st.param.b8 [r], %h1; ret;\n}\n\
         .visible .entry k(.param .u64 out, .param .u32 n)\n{\n\
         .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .b8 %b<4>;\n\
         ld.param.u64 %rd1, [out];\nld.param.u32 %r1, [n];\ncvt.u8.u32 %b1, %r1;\n\
         call (%b2), f, (%b1);\ncvt.u32.u8 %r2, %b2;\nmov.u64 %rd2, f;\n\
         P: .callprototype (.param .b8 _) _ (.param .b8 _);\ncall (%b3), %rd2, (%b1), P;\ncvt.u32.u8 %r3, %b3;\n\
         st.global.v2.u32 [%rd1], {%r2, %r3};\nret;\n}\n",
    );
    let entry = machine.entry(&text);
    let out = machine.upload_u32(&[0; 2]);
    let parameters = Parameters::default().u64(out).u32(41).guarded(&entry);
    machine.run(entry.id, 1, 1, &parameters.0).unwrap();
    assert_eq!(machine.download_u32(out, 2), [42, 42]);
}
