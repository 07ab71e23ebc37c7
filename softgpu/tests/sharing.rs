//! Memory with several mappings, several holders, and holders in several processes.
#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

mod common;

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Stdio};

use bulkhead_gpu::{Access, DeviceAddress, Error, FillPattern, Gpu};
use bulkhead_softgpu::{Options, SoftGpu};
use common::{Machine, Parameters, kernel};

const CHUNK: u64 = 4 << 20;
/// Beside the tests' own window, in reservations of their own.
const SLOT: u64 = 0x1000_0000_0000;
const OTHER: u64 = 0x1800_0000_0000;
const SLOT_BYTES: u64 = 1 << 36;

fn slots(machine: &Machine) {
    for slot in [SLOT, OTHER] {
        machine.gpu.reserve(DeviceAddress(slot), SLOT_BYTES).unwrap();
    }
}

/// Maps memory read-write at the bottom of a reservation of its own.
fn mapped(machine: &Machine, memory: bulkhead_gpu::MemoryId) {
    machine.gpu.reserve(DeviceAddress(SLOT), SLOT_BYTES).unwrap();
    machine.gpu.map(DeviceAddress(SLOT), memory, CHUNK, 1, Access::ReadWrite).unwrap();
}

fn fill(machine: &Machine, at: u64, word: u32, count: u64) -> Result<(), Error> {
    machine.gpu.fill(machine.stream, DeviceAddress(at), FillPattern::Bits32(word), count)?;
    machine.gpu.synchronize(machine.stream)
}

fn inode(descriptor: &OwnedFd) -> u64 {
    std::fs::metadata(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).unwrap().ino()
}

/// Whether this process has the memory mapped or open. Numbers alone would not do: other file systems have their own.
fn held(inode: u64) -> bool {
    const NAME: &str = "memfd:bulkhead-device-memory";
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut mappings = maps.lines().filter(|line| line.contains(NAME));
    let mapped = mappings.any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().any(|entry| {
        let path = entry.unwrap().path();
        // Other tests close theirs meanwhile.
        let named = std::fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().contains(NAME));
        named && std::fs::metadata(&path).is_ok_and(|found| found.ino() == inode)
    });
    mapped || open
}

#[test]
fn memory_of_one_slot_is_read_in_another_and_a_store_there_is_a_fault() {
    let mut machine = Machine::new();
    slots(&machine);
    let memory = machine.gpu.create_memory(CHUNK).unwrap();
    machine.gpu.map(DeviceAddress(SLOT), memory, CHUNK, 1, Access::ReadWrite).unwrap();
    machine.gpu.map(DeviceAddress(OTHER + CHUNK), memory, CHUNK, 1, Access::Read).unwrap();
    let writer = machine.entry(&kernel("", "add.u32 %out, %lane, 500;"));
    machine.run(writer.id, 1, 32, &SLOT.to_le_bytes()).unwrap();
    let reader = machine.entry(
        ".version 8.0\n.target sm_90\n.address_size 64\n
.visible .entry test(.param .u64 p_to, .param .u64 p_from)
{
    .reg .b64 %to, %from, %x; .reg .b32 %a;
    ld.param.u64 %to, [p_to]; ld.param.u64 %from, [p_from];
    mov.u32 %a, %tid.x; mul.wide.u32 %x, %a, 4;
    add.s64 %to, %to, %x; add.s64 %from, %from, %x;
    ld.global.u32 %a, [%from]; st.global.u32 [%to], %a;
    ret;
}",
    );
    let out = machine.buffer(128);
    let parameters = Parameters::default().u64(out).u64(OTHER + CHUNK);
    machine.run(reader.id, 1, 32, &parameters.0).unwrap();
    let expected: Vec<u32> = (500..532).collect();
    assert_eq!(machine.download_u32(out, 32), expected);
    // Unmapping the one leaves the other; the memory lives until both are gone.
    machine.gpu.unmap(DeviceAddress(SLOT), CHUNK).unwrap();
    assert_eq!(machine.download_u32(OTHER + CHUNK, 32), expected);
    assert!(matches!(machine.gpu.destroy_memory(memory), Err(Error::Refused(_))));
    let lost = machine.run(writer.id, 1, 1, &(OTHER + CHUNK).to_le_bytes()).unwrap_err();
    assert!(matches!(lost, Error::Lost { code: 700, ref reason } if reason.contains("read-only")), "{lost}");
}

#[test]
fn copies_and_fills_keep_to_the_access_of_every_mapping_they_touch() {
    let machine = Machine::new();
    slots(&machine);
    let memory = machine.gpu.create_memory(CHUNK).unwrap();
    let gpu = &machine.gpu;
    let stream = machine.stream;
    // Writable, then read-only, then a hole, then writable.
    gpu.map(DeviceAddress(SLOT), memory, CHUNK, 1, Access::ReadWrite).unwrap();
    gpu.map(DeviceAddress(SLOT + CHUNK), memory, CHUNK, 1, Access::Read).unwrap();
    gpu.map(DeviceAddress(SLOT + 3 * CHUNK), memory, CHUNK, 1, Access::ReadWrite).unwrap();
    fill(&machine, SLOT, 1, 64).unwrap();
    let host = machine.host.range();
    let host = bulkhead_gpu::HostRange { bytes: 64, ..host };
    for (what, to) in [
        ("read-only", SLOT + CHUNK),
        ("into read-only", SLOT + CHUNK - 32),
        ("a hole", SLOT + 2 * CHUNK),
        ("out of a hole", SLOT + 3 * CHUNK - 32),
        ("no reservation", SLOT + SLOT_BYTES),
    ] {
        let to = DeviceAddress(to);
        let answers = [
            gpu.copy_to_device(stream, to, host),
            gpu.copy_on_device(stream, to, DeviceAddress(SLOT + 1024), 64),
            gpu.fill(stream, to, FillPattern::Bits8(9), 64),
        ];
        for answer in answers {
            assert!(matches!(answer, Err(Error::Refused(_))), "{what}: {answer:?}");
        }
    }
    for from in [SLOT + 2 * CHUNK, SLOT + 2 * CHUNK - 32, SLOT + 3 * CHUNK - 32] {
        let from = DeviceAddress(from);
        assert!(matches!(gpu.copy_to_host(stream, host, from), Err(Error::Refused(_))), "{from:x?}");
        let answer = gpu.copy_on_device(stream, DeviceAddress(SLOT + 1024), from, 64);
        assert!(matches!(answer, Err(Error::Refused(_))), "{from:x?}");
    }
    // From read-only memory everything goes, also across the border of two mappings.
    gpu.copy_to_host(stream, host, DeviceAddress(SLOT + CHUNK - 32)).unwrap();
    gpu.copy_on_device(stream, DeviceAddress(SLOT + 1024), DeviceAddress(SLOT + CHUNK), 64).unwrap();
    gpu.synchronize(stream).unwrap();
    assert_eq!(machine.host.word(4).load(std::sync::atomic::Ordering::Relaxed), 0x1_0000_0001);
}

#[test]
fn queued_work_meets_the_mappings_there_are_when_it_runs() {
    for access in [Some(Access::Read), None] {
        let mut machine = Machine::new();
        slots(&machine);
        let memory = machine.gpu.create_memory(CHUNK).unwrap();
        let file = std::fs::File::from(machine.gpu.export_memory(memory).unwrap());
        let (gpu, slot) = (std::sync::Arc::clone(&machine.gpu), DeviceAddress(SLOT));
        gpu.map(slot, memory, CHUNK, 1, Access::ReadWrite).unwrap();
        let flag = machine.upload_u32(&[0]);
        let waiting = "$loop: ld.volatile.global.u32 %out, [%at]; setp.eq.u32 %p, %out, 0; @%p bra $loop;";
        let entry = machine.entry(&kernel(".reg .pred %p;", waiting));
        machine.launch(entry.id, 1, 1, &flag.to_le_bytes()).unwrap();
        gpu.fill(machine.stream, slot, FillPattern::Bits32(9), 4).unwrap();
        gpu.unmap(slot, CHUNK).unwrap();
        if let Some(access) = access {
            gpu.map(slot, memory, CHUNK, 1, access).unwrap();
        }
        let other = gpu.create_stream(0).unwrap();
        gpu.fill(other, DeviceAddress(flag), FillPattern::Bits32(1), 1).unwrap();
        let lost = gpu.synchronize(machine.stream).unwrap_err();
        assert!(matches!(lost, Error::Lost { code: 700, .. }), "{access:?}: {lost}");
        let mut stored = [1; 16];
        file.read_exact_at(&mut stored, 0).unwrap();
        assert_eq!(stored, [0; 16], "{access:?}");
    }
}

#[test]
fn a_kernel_that_meets_a_hole_between_mappings_ends_the_context() {
    for (body, hole) in [
        ("ld.global.u32 %out, [%x];", 1),
        ("st.global.u32 [%x], 1;", 1),
        ("atom.global.add.u32 %out, [%x], 1;", 1),
        ("ld.global.u32 %out, [%x];", SLOT_BYTES / CHUNK - 1),
    ] {
        let mut machine = Machine::new();
        slots(&machine);
        let memory = machine.gpu.create_memory(CHUNK).unwrap();
        for chunk in [0, 2] {
            let at = DeviceAddress(SLOT + chunk * CHUNK);
            machine.gpu.map(at, memory, CHUNK, 1, Access::ReadWrite).unwrap();
        }
        let address = SLOT + hole * CHUNK;
        let body = format!("mov.u64 %x, {address}; {body}");
        let (code, reason) = machine.fault(1, ".reg .b64 %x;", &body);
        assert_eq!(code, 700, "{body}: {reason}");
        assert!(reason.contains(&format!("{address:#x}")), "{body}: {reason}");
    }
}

#[test]
fn what_one_device_stores_another_reads_until_the_last_holder_goes() {
    let (mut first, mut second) = (Machine::new(), Machine::new());
    let memory = first.gpu.create_memory(CHUNK).unwrap();
    mapped(&first, memory);
    let imported = second.gpu.import_memory(first.gpu.export_memory(memory).unwrap(), CHUNK).unwrap();
    mapped(&second, imported);
    fill(&first, SLOT + CHUNK - 64, 41, 16).unwrap();
    assert_eq!(second.download_u32(SLOT + CHUNK - 64, 16), [41; 16]);
    fill(&second, SLOT, 42, 1).unwrap();
    assert_eq!(first.download_u32(SLOT, 2), [42, 0]);

    // The exporter's context dies; it ends without giving anything back.
    let lost = first.fault(1, ".reg .b64 %x;", "mov.u64 %x, 0; st.global.u32 [%x], 1;");
    assert_eq!(lost.0, 700);
    assert!(matches!(first.gpu.export_memory(memory), Err(Error::Lost { .. })));
    drop(first);
    assert_eq!(second.download_u32(SLOT, 2), [42, 0]);
    assert_eq!(second.download_u32(SLOT + CHUNK - 64, 16), [41; 16]);

    let inode = inode(&second.gpu.export_memory(imported).unwrap());
    assert!(held(inode));
    second.gpu.unmap(DeviceAddress(SLOT), CHUNK).unwrap();
    second.gpu.destroy_memory(imported).unwrap();
    assert!(!held(inode), "the host's pages are still held");
}

#[test]
fn memory_that_kernels_used_goes_back_to_the_host_when_it_is_destroyed() {
    let machine = Machine::new();
    let memory = machine.gpu.create_memory(CHUNK).unwrap();
    mapped(&machine, memory);
    let entry = machine.entry(&kernel("", "mov.u32 %out, 5;"));
    machine.run(entry.id, 64, 32, &SLOT.to_le_bytes()).unwrap();
    let inode = inode(&machine.gpu.export_memory(memory).unwrap());
    machine.gpu.unmap(DeviceAddress(SLOT), CHUNK).unwrap();
    machine.gpu.destroy_memory(memory).unwrap();
    assert!(!held(inode), "a thread that has nothing to do still holds the memory");
}

#[test]
fn only_exported_memory_of_the_right_length_is_imported() {
    let gpu = SoftGpu::new(common::options()).unwrap();
    let refused = |descriptor: OwnedFd, bytes: u64| {
        let answer = gpu.import_memory(descriptor, bytes);
        assert!(matches!(answer, Err(Error::Refused(_))), "{bytes:#x}: {answer:?}");
    };
    let memory = gpu.create_memory(CHUNK).unwrap();
    for bytes in [0, 1, 4096, CHUNK - 1, CHUNK / 2, 2 * CHUNK, u64::MAX, 1 << 63] {
        refused(gpu.export_memory(memory).unwrap(), bytes);
    }
    let exported = gpu.export_memory(memory).unwrap();
    assert!(rustix::fs::ftruncate(&exported, 0).is_err());
    assert!(rustix::fs::ftruncate(&exported, 2 * CHUNK).is_err());
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    refused(socket.into(), CHUNK);
    refused(std::fs::File::open("/dev/zero").unwrap().into(), CHUNK);
    // Long enough, but its owner could make it shorter under the device.
    let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
    let loose = rustix::fs::memfd_create("loose", flags).unwrap();
    rustix::fs::ftruncate(&loose, CHUNK).unwrap();
    refused(loose, CHUNK);
    assert!(matches!(gpu.export_memory(bulkhead_gpu::MemoryId(77)), Err(Error::Refused(_))));
    assert_eq!(gpu.memory_info().unwrap().0, (8 << 30) - CHUNK);
}

#[test]
fn memory_counts_once_however_often_one_device_holds_it() {
    let options =
        Options { memory_bytes: 4 * CHUNK, threads: Some(1), lost_after_launches: None, ..common::options() };
    let gpu = SoftGpu::new(options.clone()).unwrap();
    assert_eq!(gpu.memory_info().unwrap(), (4 * CHUNK, 4 * CHUNK));
    let memory = gpu.create_memory(3 * CHUNK).unwrap();
    let again = gpu.import_memory(gpu.export_memory(memory).unwrap(), 3 * CHUNK).unwrap();
    assert_ne!(memory, again);
    assert_eq!(gpu.memory_info().unwrap(), (CHUNK, 4 * CHUNK));
    gpu.destroy_memory(memory).unwrap();
    assert_eq!(gpu.memory_info().unwrap(), (CHUNK, 4 * CHUNK));
    assert_eq!(gpu.create_memory(2 * CHUNK), Err(Error::OutOfMemory));
    let descriptor = gpu.export_memory(again).unwrap();
    gpu.destroy_memory(again).unwrap();
    assert_eq!(gpu.memory_info().unwrap(), (4 * CHUNK, 4 * CHUNK));
    // What another device holds is there already: it can be imported into a full device, not added to.
    let full = SoftGpu::new(options).unwrap();
    full.create_memory(4 * CHUNK).unwrap();
    full.import_memory(descriptor, 3 * CHUNK).unwrap();
    assert_eq!(full.memory_info().unwrap(), (0, 4 * CHUNK));
    assert_eq!(full.create_memory(CHUNK), Err(Error::OutOfMemory));
}

#[test]
fn memory_costs_the_host_nothing_until_it_is_touched() {
    let machine = Machine::new();
    let memory = machine.gpu.create_memory(256 << 20).unwrap();
    let file = std::fs::File::from(machine.gpu.export_memory(memory).unwrap());
    machine.gpu.reserve(DeviceAddress(SLOT), SLOT_BYTES).unwrap();
    machine.gpu.map(DeviceAddress(SLOT), memory, 256 << 20, 1, Access::ReadWrite).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 0);
    fill(&machine, SLOT + (100 << 20), 1, 1).unwrap();
    assert!((1..=(4 << 20) / 512).contains(&file.metadata().unwrap().blocks()));
}

const HOLDER: &str = "BULKHEAD_TEST_HOLDER";

/// Not a test by itself: the other process of the next test, whose memory is its standard input.
#[test]
fn the_other_process_adds_one_and_waits() {
    if std::env::var_os(HOLDER).is_none() {
        return;
    }
    let mut machine = Machine::new();
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let memory = machine.gpu.import_memory(descriptor, CHUNK).unwrap();
    mapped(&machine, memory);
    let seen = machine.download_u32(SLOT, 1)[0];
    fill(&machine, SLOT + 4, seen + 1, 1).unwrap();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn two_processes_share_memory_and_the_death_of_one_leaves_it() {
    let mut machine = Machine::new();
    let memory = machine.gpu.create_memory(CHUNK).unwrap();
    mapped(&machine, memory);
    fill(&machine, SLOT, 1000, 1).unwrap();
    // Where these tests are part of others, it has a longer name.
    let other_test = match module_path!().split_once("::") {
        None => "the_other_process_adds_one_and_waits".to_owned(),
        Some((_, module)) => format!("{module}::the_other_process_adds_one_and_waits"),
    };
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &other_test])
        .env(HOLDER, "1")
        .stdin(Stdio::from(machine.gpu.export_memory(memory).unwrap()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut output = other.stdout.take().unwrap();
    while !said.contains("\nready") {
        let mut byte = [0];
        assert_eq!(output.read(&mut byte).unwrap(), 1, "the other process ended: {said}");
        said.push(char::from(byte[0]));
    }
    assert_eq!(machine.download_u32(SLOT, 3), [1000, 1001, 0]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(machine.download_u32(SLOT, 3), [1000, 1001, 0]);
    fill(&machine, SLOT + 8, 7, 1).unwrap();
    assert_eq!(machine.download_u32(SLOT, 3), [1000, 1001, 7]);
}
