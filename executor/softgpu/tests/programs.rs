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
