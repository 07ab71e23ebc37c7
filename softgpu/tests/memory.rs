//! Mappings, faults and atomic operations.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use bulkhead_gpu::{Access, DeviceAddress, Error, FillPattern, Gpu, HostRange};
use bulkhead_softgpu::{Options, SoftGpu};
use common::{Host, Machine, Parameters, WINDOW, kernel};

const CHUNK: u64 = bulkhead_mm::SINK_BYTES;
/// Behind the tests' own memory.
const SINKS: u64 = WINDOW + CHUNK;

#[test]
fn thousands_of_mappings_of_one_chunk_alias() {
    let mut machine = Machine::new();
    let sink = machine.gpu.create_memory(CHUNK).unwrap();
    machine.gpu.map(DeviceAddress(SINKS), sink, CHUNK, 6144, Access::ReadWrite).unwrap();
    let entry = machine.entry(&kernel(
        ".reg .b64 %far;",
        "add.s64 %far, %at, 8053063716;
         st.global.u32 [%far], 123;
         add.s64 %far, %at, 402653184036;
         ld.global.u32 %out, [%far];",
    ));
    // 7.5 GiB + 36 and 375 GiB + 36: the same word of the one chunk.
    machine.run(entry.id, 1, 1, &SINKS.to_le_bytes()).unwrap();
    assert_eq!(machine.download_u32(SINKS, 1), [123]);
    assert_eq!(machine.download_u32(SINKS + 4000 * CHUNK + 36, 1), [123]);
    // A granule of sinks gives way to real memory and comes back.
    let real = machine.gpu.create_memory(CHUNK).unwrap();
    let hole = SINKS + 17 * CHUNK;
    machine.gpu.unmap(DeviceAddress(hole), CHUNK).unwrap();
    machine.gpu.map(DeviceAddress(hole), real, CHUNK, 1, Access::ReadWrite).unwrap();
    assert_eq!(machine.download_u32(hole + 36, 1), [0]);
    assert_eq!(machine.download_u32(hole + CHUNK + 36, 1), [123]);
    assert!(machine.gpu.destroy_memory(real).is_err());
    machine.gpu.unmap(DeviceAddress(hole), CHUNK).unwrap();
    machine.gpu.destroy_memory(real).unwrap();
    assert!(machine.gpu.unmap(DeviceAddress(SINKS + CHUNK / 2), CHUNK).is_err());
    machine.gpu.map(DeviceAddress(hole), sink, CHUNK, 1, Access::ReadWrite).unwrap();
    machine.gpu.unmap(DeviceAddress(SINKS), 6144 * CHUNK).unwrap();
    machine.gpu.destroy_memory(sink).unwrap();
}

#[test]
fn a_fault_ends_the_context_and_says_where() {
    let far = 0x7000_0000_0000u64;
    let cases: [(&str, u32, String); 9] = [
        ("mov.u64 %x, 0; st.global.u32 [%x], 1;", 700, "illegal address 0x0".into()),
        ("add.s64 %x, %at, 2; ld.global.u32 %out, [%x];", 716, "misaligned".into()),
        ("add.s64 %x, %at, 8; ld.global.v4.u32 {%a, %a, %a, %a}, [%x];", 716, "misaligned".into()),
        ("mov.u64 %x, 123145302310912; atom.global.add.u32 %a, [%x], 1;", 700, format!("{far:#x}")),
        ("mov.u32 %a, buf; ld.shared.u32 %out, [%a+64];", 700, "shared".into()),
        ("mov.u32 %a, 0; ld.shared.u32 %out, [%a];", 700, "shared".into()),
        ("mov.u32 %a, buf; st.shared.u32 [%a+1], 1;", 716, "shared".into()),
        ("mov.u64 %x, depot; st.local.u32 [%x+16], 1;", 700, "local".into()),
        ("trap;", 719, "trap".into()),
    ];
    for (body, expected, words) in cases {
        let mut machine = Machine::new();
        let declarations = ".reg .b64 %x; .reg .b32 %a; .shared .b32 buf[16]; .local .b32 depot[4];";
        let (code, reason) = machine.fault(1, declarations, body);
        assert_eq!(code, expected, "{body}: {reason}");
        assert!(reason.contains(&words), "{body}: {reason}");
        assert!(reason.contains("entry test") && reason.contains("line 12"), "{body}: {reason}");
        let lost = machine.gpu.check().unwrap_err();
        assert!(matches!(lost, Error::Lost { code, .. } if code == expected));
        assert_eq!(machine.gpu.create_memory(2 << 20), Err(lost.clone()));
        assert_eq!(machine.gpu.synchronize(machine.stream), Err(lost));
    }
}

#[test]
fn a_store_to_a_page_mapped_read_only_is_a_fault() {
    let mut machine = Machine::new();
    let memory = machine.gpu.create_memory(2 << 20).unwrap();
    machine.gpu.map(DeviceAddress(SINKS), memory, 2 << 20, 1, Access::ReadWrite).unwrap();
    machine.gpu.map(DeviceAddress(SINKS + CHUNK), memory, 2 << 20, 1, Access::Read).unwrap();
    machine.gpu.fill(machine.stream, DeviceAddress(SINKS), FillPattern::Bits32(7), 16).unwrap();
    assert_eq!(machine.download_u32(SINKS + CHUNK, 2), [7, 7]);
    let refused = machine.gpu.fill(machine.stream, DeviceAddress(SINKS + CHUNK), FillPattern::Bits8(7), 1);
    assert!(matches!(refused, Err(Error::Refused(_))));
    let entry = machine.entry(&kernel("", "mov.u32 %out, 1;"));
    let lost = machine.run(entry.id, 1, 1, &(SINKS + CHUNK).to_le_bytes()).unwrap_err();
    assert!(matches!(lost, Error::Lost { code: 700, ref reason } if reason.contains("read-only")), "{lost}");
}

#[test]
fn a_kernel_sees_a_page_that_is_unmapped_under_it() {
    let machine = Machine::new();
    let memory = machine.gpu.create_memory(2 << 20).unwrap();
    machine.gpu.map(DeviceAddress(SINKS), memory, 2 << 20, 1, Access::ReadWrite).unwrap();
    let entry = machine.entry(&kernel("", "$loop: ld.volatile.global.u32 %out, [%at]; bra $loop;"));
    machine.launch(entry.id, 1, 1, &SINKS.to_le_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    machine.gpu.check().unwrap();
    machine.gpu.unmap(DeviceAddress(SINKS), 2 << 20).unwrap();
    assert!(matches!(machine.gpu.synchronize(machine.stream), Err(Error::Lost { code: 700, .. })));
}

#[test]
fn memory_is_counted_and_given_back() {
    let options =
        Options { memory_bytes: 64 << 20, threads: Some(1), lost_after_launches: None, ..common::options() };
    let gpu = SoftGpu::new(options).unwrap();
    let first = gpu.create_memory(62 << 20).unwrap();
    assert_eq!(gpu.create_memory(4 << 20), Err(Error::OutOfMemory));
    assert!(matches!(gpu.create_memory(1000), Err(Error::Refused(_))));
    gpu.destroy_memory(first).unwrap();
    gpu.create_memory(64 << 20).unwrap();
}

#[test]
fn mappings_need_a_reservation_and_do_not_overlap() {
    let gpu = SoftGpu::new(common::options()).unwrap();
    let at = DeviceAddress(WINDOW);
    let memory = gpu.create_memory(4 << 20).unwrap();
    assert!(gpu.map(at, memory, 4 << 20, 1, Access::Read).is_err());
    assert!(gpu.reserve(at, 2 << 20).is_err(), "a device gives so little elsewhere");
    gpu.reserve(at, 64 << 20).unwrap();
    assert!(gpu.reserve(DeviceAddress(WINDOW + (8 << 20)), 64 << 20).is_err());
    assert!(gpu.reserve(DeviceAddress(0x7fff_f400_0000), 64 << 20).is_err());
    gpu.map(at, memory, 4 << 20, 4, Access::Read).unwrap();
    assert!(gpu.map(DeviceAddress(WINDOW + (12 << 20)), memory, 4 << 20, 1, Access::Read).is_err());
    assert!(gpu.map(at, memory, 2 << 20, 1, Access::Read).is_err());
    assert!(gpu.map(at, memory, u64::MAX / 2, 4, Access::Read).is_err());
    assert!(gpu.unreserve(at, 64 << 20).is_err());
    assert!(gpu.unmap(at, 32 << 20).is_err());
    gpu.unmap(at, 16 << 20).unwrap();
    gpu.unreserve(at, 64 << 20).unwrap();
}

#[test]
fn host_memory_is_reached_only_where_it_is_registered() {
    let machine = Machine::new();
    let other = Host::new(8192);
    let gpu = &machine.gpu;
    let copy = |range| gpu.copy_to_device(machine.stream, DeviceAddress(WINDOW), range);
    assert!(matches!(copy(other.range()), Err(Error::Refused(_))));
    gpu.register_host(other.range()).unwrap();
    copy(other.range()).unwrap();
    let beyond = HostRange { bytes: 8193, ..other.range() };
    assert!(matches!(copy(beyond), Err(Error::Refused(_))));
    assert!(gpu.register_host(other.range()).is_err());
    gpu.unregister_host(other.range()).unwrap();
    assert!(copy(other.range()).is_err());
    assert!(gpu.copy_to_device(machine.stream, DeviceAddress(SINKS), machine.host.range()).is_err());
}

#[test]
fn host_memory_in_the_window_is_the_files_own_and_takes_up_no_device_memory() {
    const AT: DeviceAddress = DeviceAddress(0x2100_0000_0000);
    const PAGE: u64 = 2 << 20;
    let machine = Machine::new();
    let gpu = &machine.gpu;
    let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("host", flags).unwrap();
    rustix::fs::ftruncate(&file, PAGE).unwrap();
    gpu.reserve(AT, 32 * PAGE).unwrap();
    assert!(gpu.map_host(AT, file.as_fd(), PAGE).is_err(), "it could become shorter");
    rustix::fs::fcntl_add_seals(&file, rustix::fs::SealFlags::SHRINK).unwrap();
    let before = gpu.memory_info().unwrap();
    for (at, bytes) in [
        (AT, 2 * PAGE),
        (AT, 0),
        (AT, 4096),
        (DeviceAddress(AT.0 + 4096), PAGE),
        (DeviceAddress(AT.0 + 32 * PAGE), PAGE),
        (DeviceAddress(AT.0), u64::MAX - PAGE + 1),
    ] {
        assert!(gpu.map_host(at, file.as_fd(), bytes).is_err(), "{:#x} {bytes:#x}", at.0);
    }
    for round in 1..4u8 {
        let range = gpu.map_host(AT, file.as_fd(), PAGE).unwrap();
        assert_eq!(gpu.memory_info().unwrap(), before);
        gpu.fill(machine.stream, DeviceAddress(AT.0 + 8), FillPattern::Bits8(round), 8).unwrap();
        let part = HostRange { at: bulkhead_gpu::HostAddress(range.at.0 + 64), bytes: 8 };
        gpu.copy_to_host(machine.stream, part, DeviceAddress(AT.0 + 8)).unwrap();
        gpu.synchronize(machine.stream).unwrap();
        let mut seen = [0; 1];
        for offset in [8, 15, 64, 71] {
            rustix::io::pread(&file, &mut seen, offset).unwrap();
            assert_eq!(seen, [round], "at {offset}");
        }
        // It is unmapped as what it is, and as a whole.
        assert!(gpu.map_host(AT, file.as_fd(), PAGE).is_err());
        assert!(gpu.unmap(AT, PAGE).is_err());
        assert!(
            gpu.unmap_host(AT, 2 * PAGE).is_err()
                && gpu.unmap_host(DeviceAddress(AT.0 + 4096), PAGE).is_err()
        );
        gpu.unmap_host(AT, PAGE).unwrap();
        assert!(gpu.fill(machine.stream, AT, FillPattern::Bits8(1), 1).is_err());
        assert!(gpu.copy_to_device(machine.stream, DeviceAddress(WINDOW), part).is_err(), "still registered");
    }
    gpu.unreserve(AT, 32 * PAGE).unwrap();
}

#[test]
fn copies_and_fills_keep_every_byte_at_any_alignment() {
    let mut machine = Machine::new();
    let bytes: Vec<u8> = (0..5000u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let from = machine.upload(&bytes);
    let to = machine.buffer(6000);
    for (skip, shift, len) in [(0, 0, 4096), (3, 3, 77), (1, 2, 1000), (4, 0, 333), (2, 6, 4001), (5, 8, 3)] {
        machine.gpu.fill(machine.stream, DeviceAddress(to), FillPattern::Bits8(0xee), 6000).unwrap();
        let (from, at) = (DeviceAddress(from + skip), DeviceAddress(to + 16 + shift));
        machine.gpu.copy_on_device(machine.stream, at, from, len).unwrap();
        let got = machine.download(to, 6000);
        let start = usize::try_from(16 + shift).unwrap();
        let (skip, len) = (usize::try_from(skip).unwrap(), usize::try_from(len).unwrap());
        assert_eq!(got[start..start + len], bytes[skip..skip + len]);
        assert!(got[..start].iter().chain(&got[start + len..]).all(|byte| *byte == 0xee));
    }
    machine.gpu.fill(machine.stream, DeviceAddress(to + 2), FillPattern::Bits16(0xbeef), 999).unwrap();
    machine.gpu.fill(machine.stream, DeviceAddress(to + 4), FillPattern::Bits32(0x0102_0304), 3).unwrap();
    let got = machine.download(to, 24);
    assert_eq!(got[2..4], [0xef, 0xbe]);
    assert_eq!(got[4..16], [4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1]);
    assert_eq!(got[16..20], [0xef, 0xbe, 0xef, 0xbe]);
    assert!(machine.gpu.fill(machine.stream, DeviceAddress(to + 1), FillPattern::Bits16(1), 1).is_err());
}

#[test]
fn atomics_of_many_blocks_lose_nothing() {
    let mut machine = Machine::new();
    let entry = machine.entry(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p)
{
    .reg .b64 %at, %wide; .reg .b32 %a, %n; .reg .f32 %f; .reg .f64 %d; .reg .b16 %h;
    ld.param.u64 %at, [p];
    mov.u32 %n, %tid.x;
    red.global.add.u32 [%at], 1;
    cvt.u64.u32 %wide, %n;
    atom.global.add.u64 %wide, [%at+8], %wide;
    mov.f32 %f, 0f3F000000;
    red.global.add.f32 [%at+16], %f;
    mov.f64 %d, 0d3FD0000000000000;
    red.global.add.f64 [%at+24], %d;
    red.global.max.s32 [%at+32], %n;
    red.global.min.s32 [%at+36], %n;
    red.global.xor.b32 [%at+40], %n;
    red.global.inc.u32 [%at+44], 9;
    red.global.or.b32 [%at+48], %n;
    ret;
}",
    );
    let at = machine.upload_u32(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
    machine.run(entry.id, 64, 256, &Parameters::default().u64(at).0).unwrap();
    let got = machine.download_u32(at, 13);
    let n = 64 * 256;
    assert_eq!(got[0], n);
    assert_eq!(u64::from(got[2]), 64 * 255 * 128);
    assert_eq!(f32::from_bits(got[4]), 8192.0);
    assert_eq!(f64::from_bits(u64::from(got[7]) << 32 | u64::from(got[6])), 4096.0);
    assert_eq!(got[8..], [255, 0, 0, n % 10, 255]);
}

#[test]
fn compare_and_swap_works_on_16_32_and_64_bits() {
    let mut machine = Machine::new();
    let at = machine.upload_u64(&[0x1111_2222_3333_4444, 5, 7]);
    let entry = machine.entry(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p)
{
    .reg .b64 %at, %wide; .reg .b32 %a; .reg .b16 %h, %new, %old;
    ld.param.u64 %at, [p];
    mov.b16 %old, 0x3333; mov.b16 %new, 0x9999;
    atom.global.cas.b16 %h, [%at+2], %old, %new;
    atom.global.cas.b32 %a, [%at+8], 6, 60;
    atom.relaxed.gpu.global.cas.b64 %wide, [%at+16], 7, 70;
    atom.exch.b32 %a, [%at+12], %a;
    ret;
}",
    );
    machine.run(entry.id, 1, 1, &at.to_le_bytes()).unwrap();
    assert_eq!(machine.download_u64(at, 3), [0x1111_2222_9999_4444, 5 << 32 | 5, 70]);
}

#[test]
fn a_generic_address_finds_its_memory() {
    let mut machine = Machine::new();
    let got = machine.warp(
        ".reg .pred %p; .reg .b64 %s, %l, %x; .reg .b32 %a; .shared .b32 buf[32]; .local .b32 depot[4];",
        "mov.u64 %s, buf; cvta.shared.u64 %s, %s;
         mul.wide.u32 %x, %lane, 4; add.s64 %s, %s, %x;
         mov.u64 %l, depot; cvta.local.u64 %l, %l;
         st.u32 [%s], %lane;
         st.u32 [%l+8], %lane;
         isspacep.shared %p, %s; @%p add.u32 %out, %out, 1000;
         isspacep.local %p, %l; @%p add.u32 %out, %out, 2000;
         isspacep.global %p, %at; @%p add.u32 %out, %out, 4000;
         isspacep.global %p, %s; @%p add.u32 %out, %out, 8000;
         cvta.to.shared.u64 %s, %s;
         ld.shared.u32 %a, [%s]; add.u32 %out, %out, %a;
         ld.local.u32 %a, [depot+8]; add.u32 %out, %out, %a;",
    );
    let expected: Vec<u32> = (0..32).map(|i| 7000 + 2 * i).collect();
    assert_eq!(got, expected);
}

#[test]
fn narrow_loads_extend_and_vectors_keep_their_order() {
    let mut machine = Machine::new();
    let at = machine.upload_u32(&[0x80ff_7f01, 2, 3, 4, 0, 0, 0, 0]);
    let entry = machine.entry(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p)
{
    .reg .b64 %at, %w; .reg .b32 %a, %b, %c, %d; .reg .b16 %h;
    ld.param.u64 %at, [p];
    ld.global.s8 %a, [%at+3];
    ld.global.u8 %b, [%at+3];
    ld.global.s16 %w, [%at+2];
    ld.global.s8 %h, [%at+2];
    cvt.s32.s16 %c, %h;
    st.global.u64 [%at+16], %w;
    st.global.v2.u32 [%at+24], {%a, %c};
    ld.global.v4.u32 {%a, %b, _, %d}, [%at];
    st.global.v4.b32 [%at], {%d, %b, %a, %d};
    ret;
}",
    );
    machine.run(entry.id, 1, 1, &at.to_le_bytes()).unwrap();
    let got = machine.download_u32(at, 8);
    assert_eq!(got, [4, 2, 0x80ff_7f01, 4, 0xffff_80ff, 0xffff_ffff, 0xffff_ff80, 0xffff_ffff]);
}

#[test]
fn constants_are_read_and_parameters_can_be_addressed() {
    let mut machine = Machine::new();
    let entry = machine.entry(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.const .align 4 .b8 bytes[4] = {1, 2, 3, 4};
.const .f32 pi = 0f40490FDB;
.const .align 8 .u64 wide[3] = {5, 18446744073709551615};
.visible .entry test(.param .u64 p_at, .param .align 4 .b8 p_struct[12])
{
    .reg .b64 %at, %x; .reg .b32 %a, %t; .reg .f32 %f;
    ld.param.u64 %at, [p_at];
    mov.u32 %t, %tid.x;
    mov.u64 %x, bytes;
    ld.const.u8 %a, [%x+2];
    st.global.u32 [%at], %a;
    ld.const.f32 %f, [pi];
    st.global.f32 [%at+4], %f;
    ld.const.u64 %x, [wide+8];
    st.global.u64 [%at+8], %x;
    ld.param.u32 %a, [p_struct+8];
    st.global.u32 [%at+16], %a;
    mov.b64 %x, p_struct;
    cvta.param.u64 %x, %x;
    ld.u32 %a, [%x+4];
    st.global.u32 [%at+20], %a;
    ret;
}",
    );
    assert_eq!((entry.parameters[1].offset, entry.parameters[1].bytes), (8, 12));
    let at = machine.buffer(24);
    let parameters = Parameters::default().u64(at).u32(10).u32(11).u32(12);
    machine.run(entry.id, 1, 1, &parameters.0).unwrap();
    assert_eq!(machine.download_u32(at, 6), [3, 0x4049_0fdb, u32::MAX, u32::MAX, 12, 11]);
}

#[test]
fn asynchronous_copies_fill_shared_memory() {
    let mut machine = Machine::new();
    let from = machine.upload_u32(&[1, 2, 3, 4]);
    let got = machine.warp(
        ".reg .b64 %x; .reg .b32 %s; .shared .align 16 .b8 buf[32];",
        &format!(
            "mov.u64 %x, {from}; mov.u32 %s, buf;
             cp.async.cg.shared.global [%s], [%x], 16;
             cp.async.ca.shared.global [%s+16], [%x+8], 8, 4;
             cp.async.commit_group; cp.async.wait_group 0;
             ld.shared.u32 %out, [buf+8]; ld.shared.u32 %s, [buf+16]; mad.lo.u32 %out, %s, 100, %out;"
        ),
    );
    assert_eq!(got, vec![303; 32]);
}

#[test]
fn an_asynchronous_copy_that_ignores_its_source_writes_zeros() {
    let mut machine = Machine::new();
    let entry = machine.entry(&kernel(
        ".reg .pred %p; .reg .b32 %s; .shared .align 16 .b8 tile[512];",
        "mov.u32 %s, tile; shl.b32 %out, %lane, 2; add.u32 %s, %s, %out;
         setp.lt.u32 %p, %lane, 4;
         cp.async.ca.shared.global [%s], [%at+128], 4, %p;
         cp.async.wait_all; ld.shared.u32 %out, [%s];",
    ));
    let mut words = [0; 33];
    words[32] = 9;
    let at = machine.upload_u32(&words);
    machine.run(entry.id, 1, 32, &at.to_le_bytes()).unwrap();
    let expected: Vec<u32> = (0..32).map(|lane| if lane < 4 { 0 } else { 9 }).collect();
    assert_eq!(machine.download_u32(at, 32), expected);
}

/// Blocks write vectors of one number each, and other blocks look for one of several; how many they found.
fn torn(machine: &mut Machine, vector: &str, ty: &str) -> u32 {
    let count: usize = vector.trim_start_matches('v').parse().unwrap();
    let bits: usize = ty.trim_start_matches(|letter: char| letter.is_alphabetic()).parse().unwrap();
    let class = if ty.starts_with('f') { "f" } else { "b" };
    let held = bits.max(16);
    let names: Vec<String> = (0..count).map(|index| format!("%v{index}")).collect();
    let list = names.join(", ");
    let bits_of = |name: &str, to: &str| format!("mov.b{held} {to}, {name};");
    let differs: String = names[1..]
        .iter()
        .map(|name| {
            let other = bits_of(name, "%y");
            format!("{other} xor.b{held} %y, %y, %x; and.b{held} %y, %y, %mask; setp.ne.s{held} %p, %y, 0; @%p add.u32 %torn, %torn, 1;\n")
        })
        .collect();
    let sets: String = names.iter().map(|name| format!("mov.b{held} {name}, %x;\n")).collect();
    let entry = machine.entry(&format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p, .param .u64 found)
{{
    .reg .b64 %at, %wide, %found; .reg .b32 %i, %n, %torn, %block; .reg .pred %p, %q;
    .reg .b{held} %x, %y, %mask; .reg .{class}{held} {list};
    ld.param.u64 %at, [p]; ld.param.u64 %found, [found];
    mov.u32 %n, %tid.x; mul.wide.u32 %wide, %n, {}; add.s64 %at, %at, %wide;
    mov.u32 %block, %ctaid.x; and.b32 %block, %block, 1; setp.eq.u32 %q, %block, 0;
    mov.u32 %i, 0; mov.u32 %torn, 0; mov.b{held} %mask, {};
$turn:
    add.u32 %i, %i, 1; cvt.u{held}.u32 %x, %i; @!%q bra $look;
    {sets}
    st.volatile.global.{vector}.{ty} [%at], {{{list}}};
    bra $done;
$look:
    ld.volatile.global.{vector}.{ty} {{{list}}}, [%at];
    {}
    {differs}
$done:
    setp.lt.u32 %p, %i, 300; @%p bra $turn;
    red.global.add.u32 [%found], %torn;
    ret;
}}",
        bits / 8 * count,
        if bits == 64 { -1 } else { (1 << bits) - 1_i64 },
        bits_of("%v0", "%x"),
    ));
    let at = machine.buffer(256 * 16);
    let found = machine.upload_u32(&[0]);
    for _ in 0..100 {
        machine.launch(entry.id, 4, 128, &Parameters::default().u64(at).u64(found).0).unwrap();
    }
    machine.gpu.synchronize(machine.stream).unwrap();
    machine.download_u32(found, 1)[0]
}

#[test]
fn a_vector_is_one_access() {
    let mut machine = Machine::new();
    for (vector, ty) in [
        ("v2", "u64"),
        ("v4", "u32"),
        ("v4", "f32"),
        ("v2", "f64"),
        ("v2", "u32"),
        ("v4", "u16"),
        ("v2", "u16"),
        ("v4", "u8"),
        ("v2", "u8"),
    ] {
        assert_eq!(torn(&mut machine, vector, ty), 0, "{vector}.{ty}");
    }
}

#[test]
fn a_copy_takes_vectors_whole() {
    let mut machine = Machine::new();
    let entry = machine.entry(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p, .param .u64 stop)
{
    .reg .b64 %at, %wide, %stop; .reg .b32 %i, %s; .reg .pred %p;
    ld.param.u64 %at, [p]; ld.param.u64 %stop, [stop];
    mov.u32 %i, %tid.x; mul.wide.u32 %wide, %i, 16; add.s64 %at, %at, %wide;
    mov.u32 %i, 0;
$turn:
    add.u32 %i, %i, 1;
    st.volatile.global.v4.u32 [%at], {%i, %i, %i, %i};
    ld.volatile.global.u32 %s, [%stop];
    setp.eq.u32 %p, %s, 0; @%p bra $turn;
    ret;
}",
    );
    let bytes = 32 * 16;
    let (at, stop) = (machine.upload_u64(&[0; 64]), machine.upload_u32(&[0]));
    machine.launch(entry.id, 1, 32, &Parameters::default().u64(at).u64(stop).0).unwrap();
    let other = machine.gpu.create_stream(0).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1000 {
        let range = HostRange { bytes, ..machine.host.range() };
        machine.gpu.copy_to_host(other, range, DeviceAddress(at)).unwrap();
        machine.gpu.synchronize(other).unwrap();
        for vector in (0..bytes / 8).step_by(2) {
            let [low, high] =
                [vector, vector + 1].map(|index| machine.host.word(index).load(Ordering::Relaxed));
            assert_eq!((low.rotate_left(32), high), (low, low), "a vector is of two numbers");
            seen.insert(low);
        }
    }
    machine.gpu.fill(other, DeviceAddress(stop), FillPattern::Bits32(1), 1).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
}
