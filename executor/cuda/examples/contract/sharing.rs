//! Memory in several places, and in several processes, of which one dies.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bulkhead_cuda::{Cuda, Options};
use bulkhead_gpu::{Access, DeviceAddress, Error, FillPattern, Gpu, Launch, MemoryId};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::checks::fault;
use crate::code;
use crate::world::{CHUNK, CHUNKS, GIB, HALF_BYTES, Outcome, SLOT, SLOT_BYTES, World, at, same, told};

/// The argument of the process that exports, and faults.
pub(crate) const EXPORTER: &str = "--exporter";
/// The argument of the process that imports what is no memory.
pub(crate) const NONSENSE: &str = "--import-of-a-socket";
/// The slot behind the checks' own.
pub(crate) const OTHER: DeviceAddress = DeviceAddress(SLOT.0 + SLOT_BYTES);
const WORDS: u32 = 16 << 20;
const SEED: u32 = 0x5eed;
const ANSWER: u32 = 0xa15;
/// An address that nothing maps.
const UNMAPPED: u64 = SLOT.0 + 128 * GIB;

fn place(number: u64) -> DeviceAddress {
    at((CHUNKS + 4 + number) * CHUNK)
}

/// The sink of the checks' slot, read-only in the slot behind it.
pub(crate) fn second_slot(world: &World<'_>) -> Outcome {
    told("reserve", world.gpu.reserve(OTHER, SLOT_BYTES))?;
    told("map", world.gpu.map(OTHER, world.sink, CHUNK, 1, Access::Read))
}

pub(crate) fn two_slots(world: &World<'_>) -> Outcome {
    second_slot(world)?;
    world.write(at(0x700), 4321)?;
    same("by a copy", world.read(DeviceAddress(OTHER.0 + 0x700), 1)?, vec![4321])?;
    // With masks that cover both slots, so that one entry loads from the one and stores to the other.
    let entry = world.entry("move_word")?;
    let hidden = code::hidden(SLOT.0, 2 * SLOT_BYTES, SLOT_BYTES);
    let (to, from) = (at(0x704).0.to_le_bytes(), (OTHER.0 + 0x700).to_le_bytes());
    let parameters = [&to[..], &from, &hidden].concat();
    let launch = Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0, parameters: &parameters };
    told("launch", world.gpu.launch(world.stream, entry.id, &launch))?;
    same("by a kernel", world.read(at(0x700), 2)?, vec![4321, 4321])?;
    told("unmap", world.gpu.unmap(OTHER, CHUNK))?;
    told("unreserve", world.gpu.unreserve(OTHER, SLOT_BYTES))
}

pub(crate) fn info(world: &World<'_>) -> Outcome {
    let (before, total) = told("memory_info", world.gpu.memory_info())?;
    let memory = told("create", world.gpu.create_memory(GIB))?;
    let (with, _) = told("memory_info", world.gpu.memory_info())?;
    told("destroy", world.gpu.destroy_memory(memory))?;
    let (after, _) = told("memory_info", world.gpu.memory_info())?;
    println!("  {total} bytes, free {before}, with 1 GiB more in use {with}, given back {after}");
    if before <= total && with + GIB <= before && after >= with + GIB {
        Ok(())
    } else {
        Err("the counts do not fit".to_owned())
    }
}

/// Tells what the driver says to a map of another length than the memory's; a longer one it must refuse.
pub(crate) fn other_lengths(world: &World<'_>) -> Outcome {
    let gpu = world.gpu;
    let memory = told("create", gpu.create_memory(2 * CHUNK))?;
    let half = gpu.map(place(0), memory, CHUNK, 1, Access::ReadWrite);
    println!("  half of a memory mapped at offset 0: {half:?}");
    if half.is_ok() {
        told("unmap", gpu.unmap(place(0), CHUNK))?;
    }
    let descriptor = told("export", gpu.export_memory(memory))?;
    let imported = gpu.import_memory(descriptor, 4 * CHUNK);
    println!("  imported as twice its length: {imported:?}");
    for memory in [Some(memory), imported.ok()].into_iter().flatten() {
        let longer = gpu.map(place(0), memory, 4 * CHUNK, 1, Access::ReadWrite);
        println!("  mapped as twice its length: {longer:?}");
        if longer.is_ok() {
            return Err("mapped longer than it is".to_owned());
        }
        told("destroy", gpu.destroy_memory(memory))?;
    }
    told("check", gpu.check())
}

/// A descriptor of something else. In a process of its own: what the driver answers is not documented.
pub(crate) fn nonsense() -> Outcome<bool> {
    let gpu = told("open", Cuda::open(0, Options::default()))?;
    let (socket, _peer) = told("socket", UnixStream::pair())?;
    match gpu.import_memory(socket.into(), CHUNK) {
        Err(Error::Refused(why)) => println!("  {why}"),
        other => return Err(format!("{other:?}")),
    }
    told("check", gpu.check()).map(|()| true)
}

/// Work that a device does not do: what is asked for, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Undone {
    CopyIntoHole,
    FillOfHole,
    CopyIntoReadOnly,
    FillOfReadOnly,
}

pub(crate) const UNDONE: [(&str, Undone); 4] = [
    ("--copy-into-a-hole", Undone::CopyIntoHole),
    ("--fill-of-a-hole", Undone::FillOfHole),
    ("--copy-into-read-only", Undone::CopyIntoReadOnly),
    ("--fill-of-read-only", Undone::FillOfReadOnly),
];

/// Tells what the device answers: an error of the call, or of the stream. In a process of its own, as the context may end.
pub(crate) fn undone(work: Undone) -> Outcome<bool> {
    let gpu = told("open", Cuda::open(0, Options::default()))?;
    let world = World::new(&*gpu)?;
    world.write(at(0x100), 5)?;
    let to = match work {
        Undone::CopyIntoHole | Undone::FillOfHole => place(0),
        Undone::CopyIntoReadOnly | Undone::FillOfReadOnly => at(HALF_BYTES + 0x100),
    };
    let asked = match work {
        Undone::CopyIntoHole | Undone::CopyIntoReadOnly => {
            gpu.copy_to_device(world.stream, to, world.host.part(0, 64))
        }
        Undone::FillOfHole | Undone::FillOfReadOnly => gpu.fill(world.stream, to, FillPattern::Bits32(9), 16),
    };
    let done = gpu.synchronize(world.stream);
    println!("  {work:?}: the call {asked:?}, the stream {done:?}");
    if gpu.check().is_ok() {
        same("the memory", world.read(at(0x100), 1)?, vec![5])?;
    }
    if asked.is_err() || done.is_err() {
        Ok(true)
    } else {
        Err("nobody said that it was not done".to_owned())
    }
}

fn send(socket: &UnixStream, descriptor: &OwnedFd) -> Outcome {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err("no room for a descriptor".to_owned());
    }
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(b"M")], &mut ancillary, SendFlags::empty());
    told("send", sent).map(drop)
}

fn receive(socket: &UnixStream) -> Outcome<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    );
    told("receive", received)?;
    let found = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    found.ok_or_else(|| "the exporter ended".to_owned())
}

fn hear(socket: &UnixStream, expected: u8) -> Outcome {
    let mut byte = [0];
    told("hear", (&mut &*socket).read_exact(&mut byte))?;
    same("heard", byte[0], expected)
}

fn say(socket: &UnixStream, byte: u8) -> Outcome {
    told("say", (&mut &*socket).write_all(&[byte]))
}

fn counted(world: &World<'_>, at: DeviceAddress, first: u32) -> Outcome {
    let values = [&at.0.to_le_bytes()[..], &WORDS.to_le_bytes(), &first.to_le_bytes()];
    world.launch("count", [WORDS / 256, 256, 0], &values)?;
    world.synchronize()
}

/// The other process: exports two memories, faults, and waits for its end.
pub(crate) fn exporter() -> Outcome<bool> {
    let socket = UnixStream::from(told("standard input", std::io::stdin().as_fd().try_clone_to_owned())?);
    let gpu = told("open", Cuda::open(0, Options::default()))?;
    let world = World::new(&*gpu)?;
    for (number, first) in [(0, SEED), (1, 2 * SEED)] {
        let memory = told("create", gpu.create_memory(CHUNK))?;
        told("map", gpu.map(place(number), memory, CHUNK, 1, Access::ReadWrite))?;
        counted(&world, place(number), first)?;
        send(&socket, &told("export", gpu.export_memory(memory))?)?;
    }
    hear(&socket, b'I')?;
    same("the importer's store", world.read(place(0), 1)?, vec![ANSWER])?;
    same("code", fault(&world, UNMAPPED)?, 700)?;
    say(&socket, b'F')?;
    // Until it is killed; or, where nobody is left to do that, until the socket ends.
    hear(&socket, b'E').map(|()| true)
}

/// A child that is ended with this process's interest in it.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

fn words(world: &World<'_>, from: DeviceAddress, first: u32) -> Outcome {
    const STEP: u32 = 1 << 19;
    for start in (0..WORDS).step_by(STEP as usize) {
        let place = DeviceAddress(from.0 + u64::from(start) * 4);
        let found = world.read(place, STEP as usize)?;
        let wrong = (start + first..).zip(found).find(|(expected, word)| expected != word);
        same("first wrong word", wrong, None)?;
    }
    Ok(())
}

fn import(world: &World<'_>, socket: &UnixStream) -> Outcome<MemoryId> {
    told("import", world.gpu.import_memory(receive(socket)?, CHUNK))
}

pub(crate) fn outlives_its_maker(world: &World<'_>) -> Outcome {
    let gpu = world.gpu;
    let (socket, other) = told("socket", UnixStream::pair())?;
    told("timeout", socket.set_read_timeout(Some(Duration::from_secs(60))))?;
    let program = told("this program", std::env::current_exe())?;
    let child = Command::new(program).arg(EXPORTER).stdin(Stdio::from(OwnedFd::from(other))).spawn();
    let mut child = Ended(told("start the exporter", child)?);
    // The one is mapped before the death, the other after it.
    let (early, late) = (import(world, &socket)?, import(world, &socket)?);
    told("map", gpu.map(place(0), early, CHUNK, 1, Access::ReadWrite))?;
    words(world, place(0), SEED)?;
    world.write(place(0), ANSWER)?;
    say(&socket, b'I')?;
    hear(&socket, b'F')?;

    let killed = Instant::now();
    told("kill", child.0.kill())?;
    let first = world.read(DeviceAddress(place(0).0 + 4), 1)?;
    let read = killed.elapsed();
    told("wait", child.0.wait())?;
    let gone = killed.elapsed();
    let again = world.read(DeviceAddress(place(0).0 + 4), 1)?;
    let reread = killed.elapsed() - gone;
    let mapping = Instant::now();
    told("map", gpu.map(place(1), late, CHUNK, 1, Access::ReadWrite))?;
    let mapped = mapping.elapsed();
    let late_first = world.read(place(1), 1)?;
    println!(
        "  killed; first read done after {read:?}; process gone after {gone:?}; read after that in {reread:?}\n  \
         the other memory: mapped in {mapped:?}, mapped and read in {:?}",
        mapping.elapsed()
    );
    same("first read", first, vec![SEED + 1])?;
    same("read after the end", again, vec![SEED + 1])?;
    same("mapped after the end", late_first, vec![2 * SEED])?;
    same("the importer's own store", world.read(place(0), 1)?, vec![ANSWER])?;
    world.write(place(0), SEED)?;
    words(world, place(0), SEED)?;
    words(world, place(1), 2 * SEED)?;
    // It is memory like any other: kernels store to it.
    counted(world, place(1), 7)?;
    words(world, place(1), 7)?;
    for (number, memory) in [(0, early), (1, late)] {
        told("unmap", gpu.unmap(place(number), CHUNK))?;
        told("destroy", gpu.destroy_memory(memory))?;
    }
    Ok(())
}
