//! What the machine is, and whether device nodes can be hidden on it.

use std::path::Path;
use std::process::Command;

use bulkhead_cuda::Cuda;
use bulkhead_gpu::Gpu;

use crate::{Outcome, PRESENT, fact};

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path)
        .map_or_else(|error| error.to_string(), |text| text.lines().next().unwrap_or("").to_owned())
}

pub(crate) fn describe() {
    fact("kernel", first_line("/proc/sys/kernel/osrelease"));
    fact("cores", std::thread::available_parallelism().map_or(0, usize::from));
    fact("memory", first_line("/proc/meminfo"));
    fact("locked memory limit", locked_limit());
    let nodes: Vec<String> = std::fs::read_dir("/dev").map_or_else(
        |_| Vec::new(),
        |entries| {
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            names.filter(|name| name.starts_with("nvidia")).collect()
        },
    );
    fact("device nodes", nodes.join(" "));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = ["unshare", "mount", "nsenter", "bwrap", "setpriv", "taskset", "nvcc", "ptxas"];
    let found: Vec<&str> = tools
        .into_iter()
        .filter(|tool| std::env::split_paths(&path).any(|folder| folder.join(tool).exists()))
        .collect();
    fact("tools on the path", found.join(" "));
}

fn locked_limit() -> String {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max locked memory"));
    line.map_or_else(
        || "unknown".to_owned(),
        |line| line.split_whitespace().skip(3).collect::<Vec<_>>().join(" "),
    )
}

pub(crate) fn device(gpu: &Cuda) {
    let info = gpu.info();
    fact("device", format!("{} sm_{}", info.name, info.architecture));
    fact(
        "driver (CUDA version, module)",
        format!("{} {}", info.driver_version, first_line("/proc/driver/nvidia/version")),
    );
    fact("device memory, granule", format!("{} {}", info.memory_bytes, info.granule_bytes));
    fact("attributes answered", info.attributes.len());
    fact("pageable memory access (HMM or ATS)", gpu.info().pageable_memory_access());
    for (name, number) in [
        ("64-bit stream memory operations", 93),
        ("can use host pointer for registered memory", 91),
        ("asynchronous engines", 40),
        ("multiprocessors", 16),
        ("virtual memory management", 102),
    ] {
        fact(name, info.attribute(number).map_or_else(|| "no answer".to_owned(), |value| value.to_string()));
    }
}

/// Whether a mount namespace can take the device nodes away, and what this program then says.
pub(crate) fn hidden_nodes() -> Outcome {
    let program = std::env::current_exe()?;
    let hide = "for node in /dev/nvidia*; do if [ -c $node ]; then mount --bind /dev/null $node || exit 9; fi; done; exec \"$0\" \"$1\"";
    if !["/usr/bin/unshare", "/bin/unshare"].iter().any(|path| Path::new(path).exists()) {
        fact("device nodes hidden by a mount namespace", "no unshare here");
        return Ok(());
    }
    for (how, flags) in [("as root", "-m"), ("with a user namespace", "-Urm")] {
        let output = Command::new("unshare")
            .arg(flags)
            .args(["sh", "-c", hide])
            .arg(&program)
            .arg(PRESENT)
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let complained = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let name = format!("device nodes hidden by a mount namespace, {how}");
        fact(&name, format!("{}: {said} {complained}", output.status));
    }
    Ok(())
}
