//! Whole programs of the kinds people write first, against the CPU's answers.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong"
)]

mod common;

use bulkhead_gpu::{Gpu, Launch};
use common::{Machine, Parameters};

const HEAD: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

#[test]
fn a_vector_is_scaled_and_added() {
    let mut machine = Machine::new();
    let entry = machine.entry(&format!(
        "{HEAD}
.visible .entry saxpy(
    .param .u64 p_x, .param .u64 p_y, .param .f32 p_a, .param .u32 p_n
)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [p_x];
    ld.param.u64 %rd2, [p_y];
    ld.param.f32 %f1, [p_a];
    ld.param.u32 %r1, [p_n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $done;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.s32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.nc.f32 %f2, [%rd6];
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd7], %f4;
$done:
    ret;
}}"
    ));
    assert_eq!(entry.parameters.iter().map(|p| p.offset).collect::<Vec<_>>(), [0, 8, 16, 20]);
    let n = 100_001u32;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.25 - 7.0).collect();
    let y: Vec<f32> = (0..n).map(|i| 1.0 / (i as f32 + 1.0)).collect();
    let (dx, dy) = (machine.upload_f32(&x), machine.upload_f32(&y));
    let parameters = Parameters::default().u64(dx).u64(dy).f32(1.5).u32(n);
    machine.run(entry.id, n.div_ceil(256), 256, &parameters.0).unwrap();
    let got = machine.download_f32(dy, n as usize);
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 1.5f32.mul_add(*x, *y)).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_block_reduces_through_shared_memory() {
    let mut machine = Machine::new();
    let entry = machine.entry(&format!(
        "{HEAD}
.extern .shared .align 4 .b8 buffer[];
.visible .entry reduce(.param .u64 p_in, .param .u64 p_out, .param .u32 p_n)
{{
    .reg .pred %p<5>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [p_in];
    ld.param.u64 %rd2, [p_out];
    ld.param.u32 %r1, [p_n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r5, %r4, %r3, %r2;
    mov.u32 %r6, 0;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra $store;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r6, [%rd4];
$store:
    mov.u32 %r7, buffer;
    shl.b32 %r8, %r2, 2;
    add.u32 %r9, %r7, %r8;
    st.shared.u32 [%r9], %r6;
    shr.u32 %r10, %r3, 1;
$loop:
    bar.sync 0;
    setp.eq.u32 %p2, %r10, 0;
    @%p2 bra $end;
    setp.ge.u32 %p3, %r2, %r10;
    @%p3 bra $skip;
    shl.b32 %r11, %r10, 2;
    add.u32 %r12, %r9, %r11;
    ld.shared.u32 %r13, [%r12];
    ld.shared.u32 %r14, [%r9];
    add.u32 %r15, %r13, %r14;
    st.shared.u32 [%r9], %r15;
$skip:
    shr.u32 %r10, %r10, 1;
    bra.uni $loop;
$end:
    setp.ne.u32 %p4, %r2, 0;
    @%p4 bra $done;
    ld.shared.u32 %r16, [buffer];
    atom.global.add.u32 %r17, [%rd2], %r16;
$done:
    ret;
}}"
    ));
    let n = 50_000u32;
    let input: Vec<u32> = (0..n).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let (from, to) = (machine.upload_u32(&input), machine.upload_u32(&[0]));
    let parameters = Parameters::default().u64(from).u64(to).u32(n);
    let launch = Launch {
        grid: [n.div_ceil(512), 1, 1],
        block: [512, 1, 1],
        shared_bytes: 2048,
        parameters: &parameters.0,
    };
    machine.gpu.launch(machine.stream, entry.id, &launch).unwrap();
    machine.gpu.synchronize(machine.stream).unwrap();
    let expected = input.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
    assert_eq!(machine.download_u32(to, 1), [expected]);
}

#[test]
fn tiles_of_two_matrices_are_multiplied() {
    let mut machine = Machine::new();
    let entry = machine.entry(&format!(
        "{HEAD}
.visible .entry matmul(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .u32 p_n)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<24>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<12>;
    .shared .align 4 .b8 tile_a[256];
    .shared .align 4 .b8 tile_b[256];
    ld.param.u64 %rd1, [p_a]; ld.param.u64 %rd2, [p_b]; ld.param.u64 %rd3, [p_c];
    ld.param.u32 %r1, [p_n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %tid.y;
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
    shl.b32 %r6, %r4, 3; add.u32 %r6, %r6, %r2;
    shl.b32 %r7, %r5, 3; add.u32 %r7, %r7, %r3;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r8, 0;
    shl.b32 %r9, %r3, 3; add.u32 %r9, %r9, %r2; shl.b32 %r9, %r9, 2;
    mov.u32 %r10, tile_a; mov.u32 %r11, tile_b;
    add.u32 %r12, %r10, %r9; add.u32 %r13, %r11, %r9;
$tiles:
    mad.lo.u32 %r14, %r7, %r1, %r8; add.u32 %r14, %r14, %r2;
    mul.wide.u32 %rd4, %r14, 4; add.u64 %rd4, %rd1, %rd4;
    ld.global.f32 %f2, [%rd4]; st.shared.f32 [%r12], %f2;
    add.u32 %r15, %r8, %r3; mad.lo.u32 %r15, %r15, %r1, %r6;
    mul.wide.u32 %rd5, %r15, 4; add.u64 %rd5, %rd2, %rd5;
    ld.global.f32 %f3, [%rd5]; st.shared.f32 [%r13], %f3;
    bar.sync 0;
    mov.u32 %r16, 0;
$inner:
    shl.b32 %r17, %r3, 5; shl.b32 %r18, %r16, 2; add.u32 %r17, %r17, %r18; add.u32 %r17, %r17, %r10;
    shl.b32 %r19, %r16, 5; shl.b32 %r20, %r2, 2; add.u32 %r19, %r19, %r20; add.u32 %r19, %r19, %r11;
    ld.shared.f32 %f2, [%r17]; ld.shared.f32 %f3, [%r19];
    fma.rn.f32 %f1, %f2, %f3, %f1;
    add.u32 %r16, %r16, 1;
    setp.lt.u32 %p1, %r16, 8;
    @%p1 bra $inner;
    bar.sync 0;
    add.u32 %r8, %r8, 8;
    setp.lt.u32 %p2, %r8, %r1;
    @%p2 bra $tiles;
    mad.lo.u32 %r21, %r7, %r1, %r6; mul.wide.u32 %rd6, %r21, 4; add.u64 %rd6, %rd3, %rd6;
    st.global.f32 [%rd6], %f1;
    ret;
}}"
    ));
    assert_eq!(entry.shared_bytes, 512);
    let n = 64usize;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 17) as f32 - 8.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 23) as f32 * 0.5).collect();
    let (da, db, dc) = (machine.upload_f32(&a), machine.upload_f32(&b), machine.buffer(n * n * 4));
    let parameters = Parameters::default().u64(da).u64(db).u64(dc).u32(n as u32);
    let launch = Launch { grid: [8, 8, 1], block: [8, 8, 1], shared_bytes: 0, parameters: &parameters.0 };
    machine.gpu.launch(machine.stream, entry.id, &launch).unwrap();
    let got = machine.download_f32(dc, n * n);
    for y in 0..n {
        for x in 0..n {
            let expected: f32 = (0..n).map(|k| a[y * n + k] * b[k * n + x]).sum();
            assert_eq!(got[y * n + x], expected, "row {y} column {x}");
        }
    }
}

#[test]
fn bytes_are_counted_with_atomics_in_shared_memory() {
    let mut machine = Machine::new();
    let entry = machine.entry(&format!(
        "{HEAD}
.visible .entry histogram(.param .u64 p_in, .param .u64 p_out, .param .u32 p_n)
{{
    .reg .pred %p<3>; .reg .b32 %r<12>; .reg .b16 %rs<3>; .reg .b64 %rd<8>;
    .shared .align 4 .b32 bins[256];
    ld.param.u64 %rd1, [p_in]; ld.param.u64 %rd2, [p_out]; ld.param.u32 %r1, [p_n];
    mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %nctaid.x;
    shl.b32 %r6, %r2, 2; mov.u32 %r7, bins; add.u32 %r6, %r6, %r7;
    st.shared.u32 [%r6], 0;
    bar.sync 0;
    mad.lo.u32 %r8, %r3, %r4, %r2; mul.lo.u32 %r9, %r4, %r5;
$loop:
    setp.ge.u32 %p1, %r8, %r1;
    @%p1 bra $done;
    cvt.u64.u32 %rd3, %r8; add.u64 %rd3, %rd1, %rd3;
    ld.global.u8 %rs1, [%rd3];
    mul.wide.u16 %r10, %rs1, 4; add.u32 %r10, %r10, %r7;
    atom.shared.add.u32 %r11, [%r10], 1;
    add.u32 %r8, %r8, %r9;
    bra.uni $loop;
$done:
    bar.sync 0;
    ld.shared.u32 %r10, [%r6];
    mul.wide.u32 %rd4, %r2, 4; add.u64 %rd4, %rd2, %rd4;
    red.global.add.u32 [%rd4], %r10;
    ret;
}}"
    ));
    let input: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let (from, to) = (machine.upload(&input), machine.upload_u32(&[0; 256]));
    let parameters = Parameters::default().u64(from).u64(to).u32(input.len() as u32);
    machine.run(entry.id, 7, 256, &parameters.0).unwrap();
    let mut expected = [0u32; 256];
    for byte in input {
        expected[usize::from(byte)] += 1;
    }
    assert_eq!(machine.download_u32(to, 256), expected);
}

#[test]
fn every_block_of_a_grid_in_three_dimensions_runs_once() {
    let mut machine = Machine::new();
    let entry = machine.entry(&format!(
        "{HEAD}
.visible .entry visit(.param .u64 p_out)
{{
    .reg .b32 %r<10>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p_out];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z;
    mov.u32 %r4, %nctaid.x; mov.u32 %r5, %nctaid.y;
    mad.lo.u32 %r6, %r3, %r5, %r2; mad.lo.u32 %r6, %r6, %r4, %r1;
    mul.wide.u32 %rd2, %r6, 4; add.u64 %rd2, %rd1, %rd2;
    mov.u32 %r7, %tid.z; mov.u32 %r8, %tid.y; shl.b32 %r7, %r7, 8; add.u32 %r7, %r7, %r8;
    red.global.add.u32 [%rd2], %r7;
    ret;
}}"
    ));
    let (x, y, z) = (5, 7, 3);
    let at = machine.upload_u32(&[0; 105]);
    let parameters = at.to_le_bytes();
    let launch = Launch { grid: [x, y, z], block: [2, 3, 4], shared_bytes: 0, parameters: &parameters };
    machine.gpu.launch(machine.stream, entry.id, &launch).unwrap();
    // Each block adds what its 24 threads say of themselves.
    let each: u32 = (0..24).map(|t| ((t / 6) << 8) + t / 2 % 3).sum();
    assert_eq!(machine.download_u32(at, 105), vec![each; 105]);
}

#[test]
fn numbers_of_64_bits_are_added_in_two_halves() {
    let mut machine = Machine::new();
    let entry = machine.entry(&format!(
        "{HEAD}
.visible .entry halves(.param .u64 p_a, .param .u64 p_b, .param .u64 p_out)
{{
    .reg .b32 %r<20>; .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [p_a]; ld.param.u64 %rd2, [p_b]; ld.param.u64 %rd3, [p_out];
    mov.b64 {{%r1, %r2}}, %rd1; mov.b64 {{%r3, %r4}}, %rd2;
    add.cc.u32 %r5, %r1, %r3; addc.u32 %r6, %r2, %r4;
    mov.b64 %rd4, {{%r5, %r6}}; st.global.u64 [%rd3], %rd4;
    sub.cc.u32 %r5, %r1, %r3; subc.u32 %r6, %r2, %r4;
    mov.b64 %rd4, {{%r5, %r6}}; st.global.u64 [%rd3+8], %rd4;
    mul.lo.u32 %r7, %r1, %r3; mul.hi.u32 %r8, %r1, %r3;
    mad.lo.cc.u32 %r8, %r1, %r4, %r8; madc.hi.u32 %r9, %r1, %r4, 0;
    mad.lo.cc.u32 %r8, %r2, %r3, %r8; madc.hi.u32 %r9, %r2, %r3, %r9;
    mov.b64 %rd4, {{%r7, %r8}}; st.global.u64 [%rd3+16], %rd4;
    ret;
}}"
    ));
    let at = machine.buffer(24);
    for (a, b) in [(u64::MAX, 2), (0xffff_ffff, 0xffff_ffff), (0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321)]
    {
        machine.run(entry.id, 1, 1, &Parameters::default().u64(a).u64(b).u64(at).0).unwrap();
        let expected = [a.wrapping_add(b), a.wrapping_sub(b), a.wrapping_mul(b)];
        assert_eq!(machine.download_u64(at, 3), expected);
    }
}
