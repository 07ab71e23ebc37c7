//! The SDK's examples do what they say, on a kernel that serves.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use bulkhead_tests::{
    kernel::Kernel,
    patience::until,
    place::{example, host_half, repository, toolchain_libraries},
    process::{Done, bulkhead, run, signal},
    storage::{PATIENCE, Served},
};

fn ran(kernel: &Kernel, name: &str) -> Done {
    let mut command = Command::new(example(name));
    let done = run(command.env("BULKHEAD_SOCKET", kernel.socket()), Duration::from_secs(60));
    assert_eq!(done.code(), Some(0), "{name}: {}", done.told());
    done
}

#[test]
fn saxpy_computes_what_the_cpu_computes() {
    let kernel = Kernel::start();
    let done = ran(&kernel, "saxpy");
    assert!(done.stdout.contains("as the CPU computes it"), "{}", done.told());
    assert_eq!(kernel.without(&["saxpy example"]).charged_bytes, 0);
}

#[test]
fn two_sessions_work_side_by_side_and_apart() {
    let kernel = Kernel::start();
    let done = ran(&kernel, "two_sessions");
    for told in ["first  session: 50 rounds", "second session: 50 rounds", "by the first one's handle: "] {
        assert!(done.stdout.contains(told), "{}", done.told());
    }
    assert_eq!(kernel.without(&["first", "second"]).charged_bytes, 0);
}

#[test]
fn tenants_append_to_the_audit_log_and_cannot_forge_it() {
    let gates = repository().join("client/examples/audit_log/gates.ptx");
    let kernel = Kernel::with(&["--module", &format!("audit={}:2MiB", gates.display())]);
    let done = ran(&kernel, "audit_log");
    for told in [
        "the log has 2097152 bytes",
        "first appends record 0 and reads 500 there",
        "second reads 0 in the first one's record",
        "says 500\nrecord 1: session",
        "second is refused: ",
        "first appends record 2",
    ] {
        assert!(done.stdout.contains(told), "{told}: {}", done.told());
    }
    assert_eq!(kernel.without(&["audit log", "first", "second"]).charged_bytes, 0);
}

#[test]
fn without_a_kernel_an_example_says_how_to_get_one() {
    let mut command = Command::new(example("saxpy"));
    let done = run(command.env("BULKHEAD_SOCKET", "/nonexistent/kernel.sock"), Duration::from_secs(60));
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stderr.contains("bulkhead serve"), "{}", done.told());
}

/// Tones of a tenth, a fifth and three tenths of the rate, one after the other.
fn recording(samples: usize) -> Vec<u8> {
    let tone = |at: usize| 0.1 * (1 + at * 3 / samples) as f32;
    // A tenth of the rate returns after ten samples.
    let sample = |at: usize| (std::f32::consts::TAU * tone(at) * (at % 10) as f32).sin();
    (0..samples).flat_map(|at| sample(at).to_le_bytes()).collect()
}

#[test]
fn a_spectrogram_of_a_file_has_the_tones_that_are_in_it() {
    const SAMPLES: usize = 300_000;
    let served = Served::on(Kernel::start(), &repository().join("modules/storage/gates.ptx"), "2MiB");
    let folder = served.scratch.path();
    let mut bytes = recording(SAMPLES);
    bytes.resize(2 << 20, 0);
    fs::write(folder.join("data.img"), bytes).expect("a file");

    let manifest = folder.join("cufft.toml");
    let (half, library) = (host_half("cufft"), host_half("libcufft.so"));
    fs::write(&manifest, format!("name = \"cufft\"\nkind = \"service\"\nhost = [{half:?}, \"serve\"]\n"))
        .expect("a file");
    let mut command = bulkhead(&["module", "start", "--socket"]);
    command.arg(served.kernel.socket()).arg(&manifest).stderr(Stdio::null());
    let mut starting = command.spawn().expect("it starts");
    let socket = served.kernel.socket().with_file_name("cufft.module.sock");
    until("the service listens", || socket.exists());

    let program = folder.join("spectrogram");
    let mut command = Command::new(toolchain_libraries().with_file_name("bin").join("nvcc"));
    command.args(["-std=c++17", "-gencode", "arch=compute_75,code=compute_75", "-I"]);
    command.arg(repository().join("modules/storage/include")).arg("-I");
    command.arg(repository().join("modules/cufft/include")).arg("-o").arg(&program);
    command.arg(repository().join("modules/examples/spectrogram.cu")).arg("-L");
    let done = run(command.arg(library.with_file_name("")).arg("-l:libcufft.so"), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());

    let picture = folder.join("picture.pgm");
    let mut command = bulkhead(&["run", "--module", "storage=read:data", "--module", "cufft", "--socket"]);
    command.arg(served.kernel.socket()).arg("--").arg(&program);
    command.args([&SAMPLES.to_string(), "1000"]).arg(&picture).env("TMPDIR", folder);
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let mut lines = done.stdout.lines();
    assert_eq!(lines.next(), Some("599 columns of 501 tones"));
    let mut seen = 0;
    for line in lines {
        let (column, tone) =
            line.strip_prefix("column ").and_then(|rest| rest.split_once(": ")).expect("a column");
        let (column, tone): (usize, f64) =
            (column.parse().expect("a number"), tone.parse().expect("a number"));
        // A column in which one tone ends and the next begins has either.
        let (first, last) = (column * 500, column * 500 + 999);
        let own = |at: usize| 0.1 * (1 + at * 3 / SAMPLES) as f64;
        assert!((tone - own(first)).abs() < 0.002 || (tone - own(last)).abs() < 0.002, "{line}");
        seen += 1;
    }
    assert_eq!(seen, 16);
    let picture = fs::read(&picture).expect("a picture");
    assert!(picture.starts_with(b"P5\n599 501\n255\n"));
    assert_eq!(picture.len(), "P5\n599 501\n255\n".len() + 599 * 501);
    // Too many samples are refused by name.
    let mut command = bulkhead(&["run", "--module", "storage=read:data", "--module", "cufft", "--socket"]);
    command.arg(served.kernel.socket()).arg("--").arg(&program);
    command.args(["600000", "1000"]).arg(folder.join("none.pgm")).env("TMPDIR", folder);
    let done = run(&mut command, PATIENCE);
    assert!(done.code() == Some(1) && done.stderr.contains("it has fewer samples"), "{}", done.told());
    signal(starting.id(), rustix::process::Signal::TERM);
    starting.wait().expect("it ends");
}
