//! NVML's drop-in and `bulkhead smi` tell of the session, as `cuMemGetInfo` does, and of nothing that is others'
//! (docs/decisions/0065-nvml-tells-of-the-session.md).

use std::{process::Command, time::Duration};

use bulkhead_client::{Options, Session};
use bulkhead_tests::{
    kernel::Kernel,
    place::repository,
    process::{Done, bulkhead, run, runs},
    skip::skipped,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);
const LOOKS: &str = include_str!("../src/nvml.py");
const GIB: u64 = 1 << 30;

/// Whether the script can be run here.
fn python() -> bool {
    let there = runs(&["python3", "--version"]);
    if !there {
        skipped("there is no python3");
    }
    there
}

/// The script on a kernel.
fn script(kernel: &Kernel, arguments: &[&str]) -> Command {
    let mut command = kernel.run_command("python3".as_ref());
    command.args(["-B", "-c", LOOKS]).args(arguments);
    // Of Python without kernels the library would say that it is isolated, and why.
    command.env("BULKHEAD_DOMAIN", "guarded");
    command
}

fn passed(done: &Done) -> Value {
    assert_eq!(done.code(), Some(0), "{}", done.told());
    serde_json::from_str(&done.stdout).unwrap_or_default()
}

/// `bulkhead smi` of a kernel.
fn smi(kernel: &Kernel, arguments: &[&str]) -> Done {
    let mut command = bulkhead(&["smi", "--socket"]);
    run(command.arg(kernel.socket()).args(arguments), PATIENCE)
}

fn json(done: &Done) -> Value {
    let told = passed(done);
    assert!(told["devices"].is_array(), "{}", done.told());
    told
}

#[test]
fn every_name_of_nvml_is_exported_and_what_is_not_served_writes_nothing() {
    if !python() {
        return;
    }
    let kernel = Kernel::start();
    let table = repository().join("libos-nvml/names.tsv");
    let done = run(&mut script(&kernel, &["names", table.to_str().unwrap()]), PATIENCE);
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""), "{}", done.told());
}

#[test]
fn nvml_tells_what_cu_mem_get_info_tells_to_the_byte_and_refuses_mistakes() {
    if !python() {
        return;
    }
    // Others are there, whose memory is not free, and whose processes are not told.
    let kernel = Kernel::start();
    let neighbour = Session::open(&Options { socket: kernel.socket(), ..Options::default() }).unwrap();
    let _held = neighbour.allocate(192 << 20).unwrap();
    let quiet = run(&mut script(&kernel, &["session"]), PATIENCE);
    passed(&quiet);
    assert_eq!(quiet.stderr, "", "{}", quiet.told());
    let mut limited = script(&kernel, &["session"]);
    limited.env("BULKHEAD_LIMITS", format!("device_bytes={GIB}")).env("BULKHEAD_TRACE", "1");
    let traced = run(&mut limited, PATIENCE);
    assert_eq!(passed(&traced)["total"], GIB, "{}", traced.told());
    // Who asks is told which calls failed.
    let failed = "bulkhead: nvmlDeviceGetUtilizationRates: Not Supported\n";
    assert!(traced.stderr.contains(failed), "{}", traced.told());
}

#[test]
fn nvml_opens_no_session_and_starts_no_executor() {
    if !python() {
        return;
    }
    let kernel = Kernel::start();
    let before = kernel.status();
    let mut alone = script(&kernel, &["alone"]);
    alone.env("BULKHEAD_LIMITS", format!("device_bytes={GIB}")).env("BULKHEAD_DOMAIN", "isolated");
    let told = passed(&run(&mut alone, PATIENCE));
    assert_eq!((&told["total"], &told["free"]), (&GIB.into(), &GIB.into()), "{told}");
    assert_eq!(told["processes"], serde_json::json!([]), "{told}");
    let after = kernel.status();
    assert_eq!((before.executor_pid, before.executor_starts), (after.executor_pid, after.executor_starts));
    // A list that is none limits to nothing that could be told.
    let mut wrong = script(&kernel, &["alone"]);
    let done = run(wrong.env("BULKHEAD_LIMITS", "device_bytes=lots"), PATIENCE);
    assert_eq!(done.code(), Some(1), "{}", done.told());
}

#[test]
fn nvml_says_that_there_is_no_driver_where_no_kernel_serves() {
    if !python() {
        return;
    }
    let kernel = Kernel::start();
    let mut command = script(&kernel, &["alone"]);
    // `run` says where its kernel is; this program looks elsewhere.
    let elsewhere = format!("import os; os.environ['BULKHEAD_SOCKET'] = '/nonexistent/kernel.sock'\n{LOOKS}");
    command = {
        let mut other = kernel.run_command("python3".as_ref());
        other.args(["-B", "-c", &elsewhere]).args(command.get_args().skip_while(|word| *word != "alone"));
        other
    };
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(1), "{}", done.told());
    assert!(done.stderr.contains("init: 9, not 0"), "{}", done.told());
    assert!(
        done.stderr.contains("bulkhead: nvmlInit: no kernel at /nonexistent/kernel.sock"),
        "{}",
        done.told()
    );
}

#[test]
fn a_forked_child_asks_the_kernel_and_has_no_session() {
    if !python() {
        return;
    }
    let kernel = Kernel::start();
    let done = run(&mut script(&kernel, &["forked"]), PATIENCE);
    assert_eq!((done.code(), done.stderr.as_str()), (Some(0), ""), "{}", done.told());
}

#[test]
fn smi_tells_as_nvidia_smi_does() {
    let kernel = Kernel::with(&["--device-memory", "2GiB"]);
    let session =
        Session::open(&Options { socket: kernel.socket(), name: "a,b".into(), ..Options::default() })
            .unwrap();
    let _held = session.allocate(192 << 20).unwrap();

    let told = json(&smi(&kernel, &["--json"]));
    let device = &told["devices"][0];
    let number = |name: &str| device[name].as_u64().unwrap();
    let (total, used, free) =
        (number("memory_total_bytes"), number("memory_used_bytes"), number("memory_free_bytes"));
    assert_eq!((total, used), (2 * GIB, total - free), "{told:#}");
    let process = &device["processes"][0];
    assert_eq!((&process["pid"], &process["name"]), (&std::process::id().into(), &"a,b".into()), "{told:#}");
    assert_eq!(process["used_bytes"], used, "{told:#}");
    assert!(used >= 192 << 20, "{told:#}");

    let (name, uuid) = (device["name"].as_str().unwrap(), device["uuid"].as_str().unwrap());
    let list = smi(&kernel, &["-L"]);
    assert_eq!(list.stdout, format!("GPU 0: {name} (UUID: {uuid})\n"), "{}", list.told());

    let fields = "index,name,uuid,memory.total,memory.used,memory.free,driver_version,compute_cap,pci.bus_id,count,utilization.gpu";
    let query = format!("--query-gpu={fields}");
    let csv = smi(&kernel, &[&query, "--format=csv"]);
    let text = |name: &str| told[name].as_str().or(device[name].as_str()).unwrap().to_owned();
    let (mib, rest) = (
        |bytes: u64| (bytes >> 20).to_string(),
        [text("driver_version"), text("compute_capability"), text("pci_bus_id")].join(", "),
    );
    let line = |unit: &str| {
        let memory = [total, used, free].map(|bytes| mib(bytes) + unit).join(", ");
        format!("0, {name}, {uuid}, {memory}, {rest}, 1, [N/A]\n")
    };
    let header = fields.replace(',', ", ").replace("total", "total [MiB]").replace("used", "used [MiB]");
    let header = header.replace("free", "free [MiB]");
    assert_eq!(csv.stdout, format!("{header}\n{}", line(" MiB")), "{}", csv.told());
    let plain = smi(&kernel, &[&query, "--format=csv,noheader,nounits", "-i", uuid]);
    assert_eq!(plain.stdout, line(""), "{}", plain.told());

    let apps = smi(&kernel, &["--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader"]);
    let wanted = format!("{}, {} MiB, {uuid}\n", std::process::id(), mib(used));
    assert_eq!(apps.stdout, wanted, "{}", apps.told());

    let table = smi(&kernel, &[]);
    let version = format!("Driver Version: {} ", text("driver_version"));
    for part in [&*version, "CUDA Version: 13.0", name, &format!("{}MiB / 2048MiB", mib(used)), "a,b"] {
        assert!(table.stdout.contains(part), "{part}: {}", table.told());
    }
    let widths: Vec<usize> = table.stdout.lines().map(str::len).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{}", table.told());

    for (arguments, code, said) in [
        (&["--query-gpu=index,colour", "--format=csv"][..], 1, "colour"),
        (&["--query-gpu=index"], 1, "--format=csv"),
        (&["--format=csv"], 1, "--query-gpu"),
        (&["-i", "1"], 1, "no device"),
        (&["-q"], 2, "-q"),
    ] {
        let refused = smi(&kernel, arguments);
        assert_eq!((refused.code(), refused.stdout.as_str()), (Some(code), ""), "{}", refused.told());
        assert!(refused.stderr.contains(said), "{}", refused.told());
    }
    let help = smi(&kernel, &["--help"]);
    assert!(help.stdout.contains("--query-gpu") && help.stdout.contains("[N/A]"), "{}", help.told());
}

/// Within a run the tool has NVIDIA's name, and tells of the sessions of that run.
#[test]
fn nvidia_smi_in_a_run_tells_of_that_runs_sessions() {
    if !python() {
        return;
    }
    let kernel = Kernel::start();
    let neighbour = Session::open(&Options { socket: kernel.socket(), ..Options::default() }).unwrap();
    let _held = neighbour.allocate(192 << 20).unwrap();
    // A program of the run that has a session until its input ends, and beside it one that asks.
    let mut command = kernel.run_command("sh".as_ref());
    let both = r#"mkfifo "$2/hold"; python3 -B -c "$1" session < "$2/hold" > "$2/told" & exec 3> "$2/hold"
        while ! [ -s "$2/told" ] && kill -0 $!; do sleep 0.05; done
        cat "$2/told"; nvidia-smi --json | tr -d '\n'; echo; nvidia-smi -L; exec 3>&-; wait $!"#;
    let scratch = bulkhead_tests::scratch::Scratch::new();
    command.args(["-c", both, "sh", LOOKS]).arg(scratch.path());
    command.env("BULKHEAD_LIMITS", format!("device_bytes={GIB}"));
    let done = run(&mut command, PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let lines: Vec<&str> = done.stdout.lines().collect();
    let (program, told): (Value, Value) =
        (serde_json::from_str(lines[0]).unwrap(), serde_json::from_str(lines[1]).unwrap());
    let device = &told["devices"][0];
    assert_eq!(device["memory_total_bytes"], program["total"], "{}", done.told());
    assert_eq!((&device["name"], &device["uuid"]), (&program["name"], &program["uuid"]), "{}", done.told());
    let processes = device["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1, "{}", done.told());
    assert_eq!(processes[0]["pid"], program["pid"], "{}", done.told());
    assert!(lines[2].starts_with("GPU 0: "), "{}", done.told());
    // From outside the neighbour is seen, as `bulkhead status` tells of it.
    let outside = json(&smi(&kernel, &["--json"]));
    let seen = outside["devices"][0]["processes"].as_array().unwrap();
    assert!(seen.iter().any(|process| process["pid"] == std::process::id()), "{outside:#}");
}
