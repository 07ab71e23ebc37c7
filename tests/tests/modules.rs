//! `bulkhead module`: gates in CUDA C become what `bulkhead serve --module` takes.

use std::{path::PathBuf, time::Duration};

use bulkhead_tests::{
    place::{repository, toolchain_libraries},
    process::{Done, bulkhead, run},
    scratch::Scratch,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// A queue whose place is in an initial value, and what callers give it.
const QUEUE: &str = "\
#include <bulkhead_module.h>

namespace queue {
__device__ unsigned head = 16, tail;
}
static __device__ unsigned long long slots[64];

BULKHEAD_GATE unsigned push(const unsigned long long *from, unsigned count) {
    if (count > 8) return 0;
    const unsigned first = atomicAdd(&queue::head, count);
    for (unsigned at = 0; at < 8; at++) {
        if (at < count) slots[(first + at) % 64] = from[at];
    }
    bulkhead::write_register(bulkhead::at<unsigned>(4096), first);
    return first;
}
";

fn module(arguments: &[&str]) -> Done {
    let compiler = toolchain_libraries().with_file_name("bin").join("nvcc");
    run(bulkhead(&["module"]).args(arguments).env("NVCC", compiler), PATIENCE)
}

fn write(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.path().join(name);
    std::fs::write(&path, text).expect("scratch can be written");
    path
}

#[test]
fn gates_in_cuda_c_become_ptx_and_their_variables_constants() {
    let scratch = Scratch::new();
    let file = write(&scratch, "queue.cu", QUEUE);
    let (file, rust) = (file.display().to_string(), scratch.path().join("window.rs").display().to_string());
    let done = module(&["build", &file, "--rust", &rust, "--json"]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let told: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(told["gates"][0]["name"], "push");
    assert_eq!(told["gates"][0]["arguments_bits"], serde_json::json!([64, 32]));
    let variables = told["window"]["variables"].as_array().expect("variables");
    let mut names: Vec<_> = variables.iter().filter_map(|found| found["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["queue::head", "queue::tail", "slots"]);
    let text = std::fs::read_to_string(&rust).expect("constants");
    for line in [
        "pub const QUEUE_HEAD: u64 = 0;",
        "pub const QUEUE_TAIL_BYTES: u64 = 4;",
        "pub const SLOTS_BYTES: u64 = 512;",
        "pub const INITIAL: &[u8] = &[16];",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // What was made is taken as it is.
    let made = scratch.path().join("queue.ptx").display().to_string();
    let shown = module(&["show", &made]);
    assert!(shown.code() == Some(0) && shown.stdout.contains("queue::head"), "{}", shown.told());
}

#[test]
fn what_is_no_gate_is_refused_by_its_line_and_nothing_is_written() {
    let scratch = Scratch::new();
    for (from, to, line, message) in [
        ("if (count > 8) return 0;", "__syncthreads();", 9, "a barrier in a gate"),
        (
            "from[at]",
            "*(first > 9 ? from : slots)",
            12,
            "an address that may be the module's or the caller's",
        ),
        ("if (count > 8) return 0;", "while (atomicAdd(&queue::tail, 0) != count) {}", 8, "a loop in a gate"),
        ("push(", "push(ulonglong2 pair, ", 8, "of other than 32 or 64 bits"),
        ("return first;", "return blockIdx.x + (unsigned)*__nvvm_get_smem_pointer();", 15, "did not compile"),
    ] {
        assert!(QUEUE.contains(from));
        let file = write(&scratch, "queue.cu", &QUEUE.replacen(from, to, 1)).display().to_string();
        let done = module(&["build", &file]);
        assert_eq!(done.code(), Some(1), "{to}: {}", done.told());
        assert!(done.stderr.contains(message), "{to}: {}", done.told());
        let place = format!("queue.cu:{line}: ");
        assert!(done.stderr.contains(&place) || message == "did not compile", "{place}: {}", done.told());
        assert!(!scratch.path().join("queue.ptx").exists());
    }
}

#[test]
fn the_audit_logs_gates_are_those_of_its_source() {
    let scratch = Scratch::new();
    let folder = repository().join("client/examples/audit_log");
    let (ptx, rust) = (scratch.path().join("gates.ptx"), scratch.path().join("window.rs"));
    let source = folder.join("gates.cu").display().to_string();
    let done =
        module(&["build", &source, "-o", &ptx.display().to_string(), "--rust", &rust.display().to_string()]);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    for made in [ptx, rust] {
        let name = made.file_name().expect("a name");
        let kept = std::fs::read_to_string(folder.join(name)).expect("what is kept");
        let fresh = std::fs::read_to_string(&made).expect("what was made");
        assert!(kept == fresh, "{name:?} is not what `bulkhead module build` makes of gates.cu");
    }
}

#[test]
fn a_window_that_is_too_small_for_the_variables_is_refused_with_the_size_that_is_not() {
    let scratch = Scratch::new();
    let text = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .global .align 8 .b8 table[5000000];\n\
                .visible .func g()\n{\nret;\n}\n";
    let file = write(&scratch, "gates.ptx", text);
    let named = format!("big={}:4MiB", file.display());
    let done = run(&mut bulkhead(&["serve", "--backend", "software", "--module", &named]), PATIENCE);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stderr.contains("has a window of 4194304: give it 8MiB"), "{}", done.told());
}
