//! Fused multiply-add with the processor's own instruction, where it has one.
//!
//! Without it every lane would cost a call into the C library, which rounds the same way.

use super::name::{Arithmetic, Name};
use super::{Form, LANES, Lanes, Ternary, TernaryForm};

/// `fma.rn.f32` without `.ftz` and `.sat`, if the processor has it.
pub(crate) fn single() -> Option<Ternary> {
    #[cfg(target_arch = "x86_64")]
    if available() {
        static FORM: TernaryForm = Form {
            lanes: |a, b, c, out| {
                // SAFETY: `available` has said that the processor has these instructions.
                unsafe { single_lanes(a, b, c, out) }
            },
            one: single_one,
            name: Some(Name::Float { what: Arithmetic::Fused, bits: 32, flush: false }),
        };
        return Some(&FORM);
    }
    None
}

/// `fma.rn.f64`, if the processor has it.
pub(crate) fn double() -> Option<Ternary> {
    #[cfg(target_arch = "x86_64")]
    if available() {
        static FORM: TernaryForm = Form {
            lanes: |a, b, c, out| {
                // SAFETY: `available` has said that the processor has these instructions.
                unsafe { double_lanes(a, b, c, out) }
            },
            one: double_one,
            name: Some(Name::Float { what: Arithmetic::Fused, bits: 64, flush: false }),
        };
        return Some(&FORM);
    }
    None
}

#[cfg(target_arch = "x86_64")]
fn available() -> bool {
    std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("avx2")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma,avx2")]
fn single_lanes(a: &Lanes, b: &Lanes, c: &Lanes, out: &mut Lanes) {
    for i in 0..LANES {
        let [a, b, c] = [a[i], b[i], c[i]].map(|word| f32::from_bits(word as u32));
        let value = a.mul_add(b, c);
        let value = if value.is_nan() { f32::from_bits(0x7fff_ffff) } else { value };
        out[i] = u64::from(value.to_bits());
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma,avx2")]
fn double_lanes(a: &Lanes, b: &Lanes, c: &Lanes, out: &mut Lanes) {
    for i in 0..LANES {
        let [a, b, c] = [a[i], b[i], c[i]].map(f64::from_bits);
        out[i] = a.mul_add(b, c).to_bits();
    }
}

#[cfg(target_arch = "x86_64")]
extern "C" fn single_one(a: u64, b: u64, c: u64) -> u64 {
    let [a, b, c] = [a, b, c].map(|word| f32::from_bits(word as u32));
    let value = a.mul_add(b, c);
    let value = if value.is_nan() { f32::from_bits(0x7fff_ffff) } else { value };
    u64::from(value.to_bits())
}

#[cfg(target_arch = "x86_64")]
extern "C" fn double_one(a: u64, b: u64, c: u64) -> u64 {
    let [a, b, c] = [a, b, c].map(f64::from_bits);
    a.mul_add(b, c).to_bits()
}
