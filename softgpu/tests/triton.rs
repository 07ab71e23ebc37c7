//! What Triton's compiler prints of the kernels of `tests/triton/kernels.py`: guarded, verified, and right.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

mod common;

use std::path::Path;

use bulkhead_gpu::{Gpu as _, Launch};
use common::{Machine, Parameters};

const CAPABILITIES: [u32; 2] = [80, 90];

/// The text of a kernel, and its threads and bytes of shared memory.
fn text(kernel: &str, capability: u32) -> (String, u32, u32) {
    let name = format!("../tests/triton/{kernel}_sm_{capability}.ptx");
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let number = |word: &str| {
        let (_, rest) = text.lines().next().unwrap().split_once(word).unwrap();
        rest.trim_start().split(',').next().unwrap().parse().unwrap()
    };
    let (threads, shared) = (number("threads"), number("shared"));
    (text, threads, shared)
}

/// Runs a kernel as the guard confines it, and its fast version where it has one.
fn run(machine: &mut Machine, kernel: &str, capability: u32, grid: [u32; 2], parameters: Parameters) {
    let (text, threads, shared_bytes) = text(kernel, capability);
    let module = bulkhead_guard::parse(&text).unwrap();
    let confined = bulkhead_guard::confine(&module).unwrap_or_else(|report| panic!("{kernel}:\n{report}"));
    let verified = bulkhead_guard::verify(&bulkhead_guard::print(&confined)).unwrap();
    // Two pointers that Triton adds, to memory of which these kernels need none; then those of the guard.
    let parameters = parameters.u64(0).u64(0);
    let entries = machine.gpu.load(verified.text()).unwrap_or_else(|error| panic!("{error}")).entries;
    let parameters = parameters.guarded(&entries[0]);
    let block = [threads, 1, 1];
    let launch = Launch { grid: [grid[0], grid[1], 1], block, shared_bytes, parameters: &parameters.0 };
    for entry in entries {
        machine.gpu.launch(machine.stream, entry.id, &launch).unwrap();
        machine.gpu.synchronize(machine.stream).unwrap();
    }
}

/// Small numbers, of which products and short sums are exact.
fn number(index: usize) -> f32 {
    let mixed = (index as u32).wrapping_add(1).wrapping_mul(0x9e37_79b9) >> 16;
    (mixed % 17) as f32 / 8.0 - 1.0
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|index| number(index * 3 + seed)).collect()
}

/// The bits of numbers that halves hold exactly.
fn halves(numbers: &[f32]) -> Vec<u8> {
    let half = |number: &f32| {
        let bits = number.to_bits();
        if *number == 0.0 {
            return 0_u16;
        }
        let exponent = (bits >> 23 & 0xff) - 112;
        ((bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff)) as u16
    };
    numbers.iter().flat_map(|number| half(number).to_le_bytes()).collect()
}

#[track_caller]
fn near(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (f64::from(*found) - expected).abs();
        assert!(off <= tolerance * expected.abs().max(1.0), "[{index}] is {found}, not {expected}");
    }
}

#[test]
fn vectors_are_added() {
    for capability in CAPABILITIES {
        let mut machine = Machine::new();
        let (x, y) = (numbers(5000, 0), numbers(5000, 1));
        let (at, also, out) = (machine.upload_f32(&x), machine.upload_f32(&y), machine.buffer(5120 * 4));
        let parameters = Parameters::default().u64(at).u64(also).u64(out).u32(5000);
        run(&mut machine, "vector_add", capability, [5, 1], parameters);
        let expected: Vec<f64> = x.iter().zip(&y).map(|(x, y)| f64::from(x + y)).collect();
        near(&machine.download_f32(out, 5000), &expected, 0.0);
        assert_eq!(machine.download_f32(out + 5000 * 4, 120), [0.0; 120]);
    }
}

#[test]
fn rows_become_probabilities() {
    for capability in CAPABILITIES {
        let mut machine = Machine::new();
        let (rows, columns, stride) = (16, 200, 208);
        let x = numbers(rows * stride, 2);
        let (at, out) = (machine.upload_f32(&x), machine.buffer(rows * stride * 4));
        let parameters = Parameters::default().u64(out).u64(at).u32(stride as u32).u32(columns as u32);
        run(&mut machine, "softmax", capability, [rows as u32, 1], parameters);
        let found = machine.download_f32(out, rows * stride);
        for (x, found) in x.chunks(stride).zip(found.chunks(stride)) {
            let weights: Vec<f64> = x[..columns].iter().map(|x| f64::from(*x).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let expected: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
            near(&found[..columns], &expected, 1e-6);
            assert!(found[columns..].iter().all(|found| *found == 0.0));
        }
    }
}

#[test]
fn layers_are_normalized() {
    for capability in CAPABILITIES {
        let mut machine = Machine::new();
        let (rows, columns, stride) = (8, 300, 304);
        let (x, weight, bias) = (numbers(rows * stride, 3), numbers(columns, 4), numbers(columns, 5));
        let at = machine.upload_f32(&x);
        let (weights, biases) = (machine.upload_f32(&weight), machine.upload_f32(&bias));
        let out = machine.buffer(rows * stride * 4);
        let parameters = Parameters::default().u64(at).u64(out).u64(weights).u64(biases);
        let parameters = parameters.u32(stride as u32).u32(columns as u32).f32(1e-5);
        run(&mut machine, "layer_norm", capability, [rows as u32, 1], parameters);
        let found = machine.download_f32(out, rows * stride);
        for (x, found) in x.chunks(stride).zip(found.chunks(stride)) {
            let row: Vec<f64> = x[..columns].iter().map(|x| f64::from(*x)).collect();
            let mean = row.iter().sum::<f64>() / columns as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / columns as f64;
            let scale = 1.0 / (variance + 1e-5).sqrt();
            let scaled = row.iter().zip(weight.iter().zip(&bias));
            let expected: Vec<f64> = scaled
                .map(|(x, (weight, bias))| (x - mean) * scale * f64::from(*weight) + f64::from(*bias))
                .collect();
            near(&found[..columns], &expected, 1e-5);
        }
    }
}

#[test]
fn matrices_are_multiplied() {
    let mut machine = Machine::new();
    let (m, n, k) = (128, 192, 96);
    let (a, b) = (numbers(m * k, 6), numbers(k * n, 7));
    let (left, right) = (machine.upload(&halves(&a)), machine.upload(&halves(&b)));
    let out = machine.buffer(m * n * 4);
    let parameters = Parameters::default().u64(left).u64(right).u64(out);
    let parameters = parameters.u32(m as u32).u32(n as u32).u32(k as u32);
    run(&mut machine, "matmul", 80, [(m / 64) as u32, (n / 64) as u32], parameters);
    let product = |index: usize| {
        let (row, column) = (index / n, index % n);
        (0..k).map(|depth| f64::from(a[row * k + depth]) * f64::from(b[depth * n + column])).sum()
    };
    let expected: Vec<f64> = (0..m * n).map(product).collect();
    near(&machine.download_f32(out, m * n), &expected, 1e-6);
}

#[test]
fn queries_attend_to_keys() {
    let mut machine = Machine::new();
    let (length, depth, scale) = (128, 64, 0.125);
    let [q, k, v] = [8, 9, 10].map(|seed| numbers(length * depth, seed));
    let [queries, keys, values] = [&q, &k, &v].map(|numbers| machine.upload(&halves(numbers)));
    let out = machine.buffer(length * depth * 4);
    let parameters = Parameters::default().u64(queries).u64(keys).u64(values).u64(out);
    let parameters = parameters.u32(length as u32).f32(scale);
    run(&mut machine, "attention", 80, [(length / 64) as u32, 1], parameters);
    let row_of = |matrix: &[f32], row: usize| -> Vec<f64> {
        matrix[row * depth..][..depth].iter().map(|x| f64::from(*x)).collect()
    };
    let mut expected = vec![0.0; length * depth];
    for (row, expected) in expected.chunks_mut(depth).enumerate() {
        let query = row_of(&q, row);
        let score = |at: usize| query.iter().zip(row_of(&k, at)).map(|(x, y)| x * y).sum::<f64>();
        let weights: Vec<f64> = (0..length).map(|at| (score(at) * f64::from(scale)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (at, weight) in weights.iter().enumerate() {
            for (expected, value) in expected.iter_mut().zip(row_of(&v, at)) {
                *expected += weight / sum * value;
            }
        }
    }
    // Weights are rounded to halves on the way.
    near(&machine.download_f32(out, length * depth), &expected, 2e-3);
}

#[test]
fn what_only_newer_tensor_cores_do_is_refused_by_its_name() {
    for kernel in ["matmul", "attention"] {
        let module = bulkhead_guard::parse(&text(kernel, 90).0).unwrap();
        let report = bulkhead_guard::confine(&module).unwrap_err().to_string();
        assert!(report.contains("matrix instructions (`wgmma`)"), "{report}");
    }
}
