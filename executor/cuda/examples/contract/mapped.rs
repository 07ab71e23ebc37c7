//! Host memory in a slot.

use std::os::fd::{AsFd, OwnedFd};

use bulkhead_gpu::{Access, DeviceAddress, HostRange};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::world::{CHUNK, CHUNKS, Outcome, World, at, same, told};

/// What the driver maps at least.
const PAGE: u64 = 2 << 20;
/// Where nothing is mapped in the slot.
const PLACE: u64 = (CHUNKS + 40) * CHUNK;

pub(crate) fn file(bytes: u64) -> Outcome<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = told("memfd", rustix::fs::memfd_create("contract", flags))?;
    told("ftruncate", rustix::fs::ftruncate(&file, bytes))?;
    told("seal", rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW))?;
    Ok(file)
}

/// What another process would see, or store: by the file, which has the same pages.
fn word(file: &OwnedFd, offset: u64) -> Outcome<u32> {
    let mut word = [0; 4];
    told("pread", rustix::io::pread(file, &mut word, offset))?;
    Ok(u32::from_le_bytes(word))
}

fn set(file: &OwnedFd, offset: u64, word: u32) -> Outcome {
    told("pwrite", rustix::io::pwrite(file, &word.to_le_bytes(), offset)).map(drop)
}

fn move_word(world: &World<'_>, to: DeviceAddress, from: DeviceAddress) -> Outcome {
    world.launch("move_word", [1, 1, 0], &[&to.0.to_le_bytes(), &from.0.to_le_bytes()])?;
    world.synchronize()
}

pub(crate) fn kernels_and_host(world: &World<'_>) -> Outcome {
    let (gpu, place, file) = (world.gpu, at(PLACE), file(2 * PAGE)?);
    set(&file, 0, 7)?;
    let range = told("map_host", gpu.map_host(place, file.as_fd(), 2 * PAGE))?;
    let beside = told("create", gpu.create_memory(PAGE))?;
    told("map beside", gpu.map(at(PLACE + 2 * PAGE), beside, PAGE, 1, Access::ReadWrite))?;
    move_word(world, at(PLACE + 2 * PAGE), place)?;
    same("the host's store, by a kernel", world.read(at(PLACE + 2 * PAGE), 1)?, vec![7])?;
    world.write(at(PLACE + 2 * PAGE), 8)?;
    move_word(world, at(PLACE + 2 * PAGE - 4), at(PLACE + 2 * PAGE))?;
    same("a kernel's store, by the file", word(&file, 2 * PAGE - 4)?, 8)?;
    set(&file, 64, 9)?;
    move_word(world, at(PLACE + 128), at(PLACE + 64))?;
    same("from host memory to host memory", word(&file, 128)?, 9)?;
    // As a device address, and as host memory.
    world.write(at(PLACE + 256), 10)?;
    same("a fill", word(&file, 256)?, 10)?;
    let part = HostRange { at: bulkhead_gpu::HostAddress(range.at.0 + 512), bytes: 4 };
    told("copy to it", gpu.copy_to_host(world.stream, part, at(PLACE + 2 * PAGE)))?;
    world.synchronize()?;
    same("a copy to host memory", word(&file, 512)?, 8)?;
    told("copy on the device", gpu.copy_on_device(world.stream, at(PLACE + 768), place, 4))?;
    world.synchronize()?;
    same("a copy on the device", word(&file, 768)?, 7)?;

    for (what, done) in [
        ("memory over it", gpu.map(place, beside, PAGE, 1, Access::ReadWrite)),
        ("host memory over it", gpu.map_host(place, file.as_fd(), 2 * PAGE).map(drop)),
        ("a part of it unmapped", gpu.unmap_host(place, PAGE)),
        ("host memory in no reservation", gpu.map_host(DeviceAddress(1 << 30), file.as_fd(), PAGE).map(drop)),
        ("more than the file has", gpu.map_host(at(PLACE + 4 * PAGE), file.as_fd(), 4 * PAGE).map(drop)),
    ] {
        if done.is_ok() {
            return Err(format!("{what} is allowed"));
        }
    }
    move_word(world, at(PLACE + 1024), place)?;
    same("after what was refused", word(&file, 1024)?, 7)?;

    told("unmap_host", gpu.unmap_host(place, 2 * PAGE))?;
    told("unmap beside", gpu.unmap(at(PLACE + 2 * PAGE), PAGE))?;
    told("map in its place", gpu.map(place, beside, PAGE, 1, Access::ReadWrite))?;
    world.write(place, 11)?;
    same("memory in its place", world.read(place, 1)?, vec![11])?;
    same("the file, from then on", word(&file, 0)?, 7)?;
    told("unmap", gpu.unmap(place, PAGE))?;
    let again = told("map_host again", gpu.map_host(place, file.as_fd(), 2 * PAGE))?;
    same("where it is", again.at.0 as u64, place.0)?;
    told("unmap_host", gpu.unmap_host(place, 2 * PAGE))?;
    told("destroy", gpu.destroy_memory(beside))?;
    told("check", gpu.check())
}
