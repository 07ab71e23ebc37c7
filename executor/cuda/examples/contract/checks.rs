//! The checks, in the order they run. Each is a sentence about any device behind the trait.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bulkhead_gpu::{
    Access, DeviceAddress, EntryId, Error, EventId, FillPattern, HostAddress, HostRange, ImageId, Launch,
    MemoryId, ParameterLayout, StreamId,
};

use crate::world::{CHUNK, CHUNKS, HALF_BYTES, Outcome, SLOT, SLOT_BYTES, World, at, same, told, wait_until};
use crate::{code, mapped, sharing};

type Check = (&'static str, fn(&World<'_>) -> Outcome);

pub(crate) const CHECKS: &[Check] = &[
    ("the device says what it is", what_it_is),
    ("a reserved range is not reserved again", reserved_twice),
    ("entries come in source order with their layout", entries),
    ("a broken text is an image error, and harms nothing", broken_text),
    ("a store through one alias of the sink is read through another", aliases),
    ("a kernel reads the read-only half", read_only_half),
    ("a confined wild store lands in the sink", confined_store),
    ("memory replaces sinks and the sink comes back", replaced),
    ("what a failed map had mapped is unmapped", failed_map),
    ("copies of odd sizes go both ways", copies),
    ("a copy on the device", device_copy),
    ("fills of one, two and four bytes", fills),
    ("a value is written after everything before it", write_value_order),
    ("two streams run at the same time", two_streams),
    ("events tell the time between them, and not before they are reached", events),
    ("dynamic shared memory up to what was allowed", dynamic_shared),
    ("refused calls leave the context alive", refusals),
    ("handles that were never issued, or destroyed, are refused", stale_handles),
    ("an unloaded image's entries are refused, and it loads again", unload),
    ("another thread launches after binding", other_thread),
    ("too much memory is out of memory", out_of_memory),
    ("host memory is unregistered and registered again", host_again),
    ("kernels and host reach one memory at one address", mapped::kernels_and_host),
    ("memory is counted", sharing::info),
    ("one memory is writable in one slot and readable in another", sharing::two_slots),
    ("memory is mapped no longer than it is", sharing::other_lengths),
    ("what another process stored outlives its context and the process", sharing::outlives_its_maker),
    ("the context lives", alive),
];

fn refused<T: std::fmt::Debug>(what: &str, result: Result<T, Error>) -> Outcome {
    match result {
        Err(Error::Refused(_) | Error::LaunchResources(_)) => Ok(()),
        other => Err(format!("{what}: {other:?}, not refused")),
    }
}

/// One use of everything, with a right result.
fn works(world: &World<'_>) -> Outcome {
    world.launch(
        "count",
        [4, 64, 0],
        &[&at(0x9000).0.to_le_bytes(), &256_u32.to_le_bytes(), &7_u32.to_le_bytes()],
    )?;
    same("count", world.read(at(0x9000), 256)?, (7..263).collect())
}

fn what_it_is(world: &World<'_>) -> Outcome {
    let info = world.gpu.info();
    let sane = info.granule_bytes > 0
        && CHUNK.is_multiple_of(info.granule_bytes)
        && info.memory_bytes >= CHUNK
        && !info.name.is_empty()
        && info.architecture > 0;
    // 1 is MAX_THREADS_PER_BLOCK, 16 MULTIPROCESSOR_COUNT.
    let answered = [1, 16].into_iter().all(|number| info.attribute(number).is_some_and(|value| value > 0));
    if sane && answered { Ok(()) } else { Err(format!("{info:?}")) }
}

fn reserved_twice(world: &World<'_>) -> Outcome {
    refused("reserve the slot", world.gpu.reserve(SLOT, SLOT_BYTES))?;
    let next = DeviceAddress(SLOT.0 + SLOT_BYTES);
    told("reserve the next slot", world.gpu.reserve(next, SLOT_BYTES))?;
    told("give it back", world.gpu.unreserve(next, SLOT_BYTES))?;
    told("reserve it again", world.gpu.reserve(next, SLOT_BYTES))?;
    told("give it back", world.gpu.unreserve(next, SLOT_BYTES))
}

fn entries(world: &World<'_>) -> Outcome {
    let names: Vec<&str> = world.image.entries.iter().map(|entry| entry.name.as_str()).collect();
    same("names", names, vec!["count", "move_word", "meet", "last_word", "spin", "wild_store"])?;
    let layout = |offset, bytes| ParameterLayout { offset, bytes };
    let count = world.entry("count")?;
    let expected =
        [(0, 8), (8, 4), (12, 4), (16, 4), (20, 4), (24, 4)].map(|(offset, bytes)| layout(offset, bytes));
    same("parameters", count.parameters.clone(), expected.to_vec())?;
    if count.threads_max == 0 { Err(format!("{count:?}")) } else { Ok(()) }
}

fn broken_text(world: &World<'_>) -> Outcome {
    match world.gpu.load(&code::broken(world.gpu.info().architecture)) {
        Err(Error::Image(_)) => works(world),
        other => Err(format!("{other:?}")),
    }
}

fn aliases(world: &World<'_>) -> Outcome {
    world.write(at(0x100), 0x0a11_a5e5)?;
    for alias in [0, 1, CHUNKS - 1] {
        same("lower half", world.read(at(alias * CHUNK + 0x100), 1)?, vec![0x0a11_a5e5])?;
        same("upper half", world.read(at(HALF_BYTES + alias * CHUNK + 0x100), 1)?, vec![0x0a11_a5e5])?;
    }
    let out = at(3 * CHUNK + 0x2000).0;
    world.launch(
        "count",
        [1, 32, 0],
        &[&out.to_le_bytes(), &32_u32.to_le_bytes(), &100_u32.to_le_bytes()],
    )?;
    same("by a kernel", world.read(at(5 * CHUNK + 0x2000), 32)?, (100..132).collect())
}

fn read_only_half(world: &World<'_>) -> Outcome {
    world.write(at(0x300), 77)?;
    let from = at(HALF_BYTES + 2 * CHUNK + 0x300).0;
    world.launch("move_word", [1, 1, 0], &[&at(0x400).0.to_le_bytes(), &from.to_le_bytes()])?;
    same("moved", world.read(at(0x400), 1)?, vec![77])
}

fn confined_store(world: &World<'_>) -> Outcome {
    world.write(at(0x1230), 0)?;
    for wild in [0x4300_0000_1230_u64, 0x1230, 0xffff_ff00_0000_1230, SLOT.0 + SLOT_BYTES + 0x1230] {
        world.write(at(0x1230), 0)?;
        world.launch(
            "count",
            [1, 1, 0],
            &[&wild.to_le_bytes(), &1_u32.to_le_bytes(), &9_u32.to_le_bytes()],
        )?;
        same("through an alias", world.read(at(4 * CHUNK + 0x1230), 1)?, vec![9])?;
    }
    Ok(())
}

fn replaced(world: &World<'_>) -> Outcome {
    let gpu = world.gpu;
    let memory = told("create memory", gpu.create_memory(2 * CHUNK))?;
    world.write(at(0x500), 1)?;
    told("unmap two sinks", gpu.unmap(at(4 * CHUNK), 2 * CHUNK))?;
    told("map memory there", gpu.map(at(4 * CHUNK), memory, 2 * CHUNK, 1, Access::ReadWrite))?;
    world.write(at(4 * CHUNK + 0x500), 2)?;
    world.write(at(5 * CHUNK + 0x500), 3)?;
    let out = (4 * CHUNK + 0x600, 3_u32);
    world.launch(
        "count",
        [1, 4, 0],
        &[&at(out.0).0.to_le_bytes(), &4_u32.to_le_bytes(), &out.1.to_le_bytes()],
    )?;
    same("the sink", world.read(at(0x500), 1)?, vec![1])?;
    same("the sink beside it", world.read(at(6 * CHUNK + 0x500), 1)?, vec![1])?;
    same("first half", world.read(at(4 * CHUNK + 0x500), 1)?, vec![2])?;
    same("second half", world.read(at(5 * CHUNK + 0x500), 1)?, vec![3])?;
    same("by a kernel", world.read(at(4 * CHUNK + 0x600), 4)?, vec![3, 4, 5, 6])?;
    told("unmap memory", gpu.unmap(at(4 * CHUNK), 2 * CHUNK))?;
    told("map sinks", gpu.map(at(4 * CHUNK), world.sink, CHUNK, 2, Access::ReadWrite))?;
    told("destroy memory", gpu.destroy_memory(memory))?;
    same("the sink again", world.read(at(5 * CHUNK + 0x500), 1)?, vec![1])
}

fn failed_map(world: &World<'_>) -> Outcome {
    // The last of these three is mapped already.
    told("unmap two sinks", world.gpu.unmap(at((CHUNKS - 3) * CHUNK), 2 * CHUNK))?;
    let from = at((CHUNKS - 3) * CHUNK);
    if let Ok(()) = world.gpu.map(from, world.sink, CHUNK, 3, Access::ReadWrite) {
        return Err("mapped over a mapping".to_owned());
    }
    told("map the two", world.gpu.map(from, world.sink, CHUNK, 2, Access::ReadWrite))?;
    world.read(from, 1).map(|_| ())
}

fn copies(world: &World<'_>) -> Outcome {
    let gpu = world.gpu;
    world.host.set(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // From the first MiB of host memory to the device and back to the second one.
    for (from, bytes, device) in
        [(0, 1 << 20, 0x10_0000), (3, 1021, 0x10_0001), (4095, 4098, 0x10_0ff3), (8, 1, 0x10_0007)]
    {
        told("to the device", gpu.copy_to_device(world.stream, at(device), world.host.part(from, bytes)))?;
        told("to the host", gpu.copy_to_host(world.stream, world.host.part(2 << 20, bytes), at(device)))?;
        world.synchronize()?;
        let wrong = (0..bytes).find(|byte| world.host.byte(from + byte) != world.host.byte((2 << 20) + byte));
        same("first wrong byte", wrong, None)?;
    }
    Ok(())
}

fn device_copy(world: &World<'_>) -> Outcome {
    let count = [&at(0x20_0000).0.to_le_bytes()[..], &1000_u32.to_le_bytes(), &5_u32.to_le_bytes()];
    world.launch("count", [8, 128, 0], &count)?;
    told("copy", world.gpu.copy_on_device(world.stream, at(0x30_0004), at(0x20_0000), 4000))?;
    same("copied", world.read(at(0x30_0004), 1000)?, (5..1005).collect())
}

fn fills(world: &World<'_>) -> Outcome {
    world.launch(
        "count",
        [1, 32, 0],
        &[&at(0x800).0.to_le_bytes(), &32_u32.to_le_bytes(), &0_u32.to_le_bytes()],
    )?;
    let fill = |offset: u64, pattern, count| {
        told("fill", world.gpu.fill(world.stream, at(0x800 + offset), pattern, count))
    };
    fill(4, FillPattern::Bits8(0xab), 3)?;
    fill(10, FillPattern::Bits16(0xcdef), 3)?;
    fill(20, FillPattern::Bits32(0x0123_4567), 2)?;
    fill(32, FillPattern::Bits8(1), 0)?;
    let expected = vec![0, 0x00ab_abab, 0xcdef_0002, 0xcdef_cdef, 4, 0x0123_4567, 0x0123_4567, 7, 8];
    same("filled", world.read(at(0x800), 9)?, expected)
}

fn write_value_order(world: &World<'_>) -> Outcome {
    let (data, mark) = (1 << 20, 3 << 20);
    for round in 1..=200_u32 {
        let count = [&at(0x40_0000).0.to_le_bytes()[..], &0x1_0000_u32.to_le_bytes(), &round.to_le_bytes()];
        world.launch("count", [256, 256, 0], &count)?;
        let to = world.host.part(data, 0x4_0000);
        told("copy", world.gpu.copy_to_host(world.stream, to, at(0x40_0000)))?;
        told("value", world.gpu.write_value(world.stream, world.host.at(mark), u64::from(round) << 32 | 1))?;
        let word = &world.host.words()[mark / 8];
        wait_until("the value", Duration::from_secs(10), || {
            word.load(Ordering::Acquire) == u64::from(round) << 32 | 1
        })?;
        for index in [0, 1, 0x7fff, 0xffff] {
            same("what came before", world.host.word(data / 4 + index as usize), index + round)?;
        }
    }
    Ok(())
}

fn two_streams(world: &World<'_>) -> Outcome {
    let other = told("create a stream", world.gpu.create_stream(-1))?;
    let (mine, its) = (at(0x50_0000), at(0x50_1000));
    for flag in [mine, its] {
        told("fill", world.gpu.fill(world.stream, flag, FillPattern::Bits32(0), 2))?;
    }
    world.synchronize()?;
    let most = 1_u32 << 22;
    // Each waits for a word that only the other writes.
    let meet = |here: DeviceAddress, there: DeviceAddress, stream| {
        let values = [&here.0.to_le_bytes()[..], &there.0.to_le_bytes(), &most.to_le_bytes()];
        world.launch_on(stream, "meet", [1, 1, 0], &values)
    };
    meet(mine, its, world.stream)?;
    meet(its, mine, other)?;
    told("synchronize", world.gpu.synchronize(other))?;
    world.synchronize()?;
    same("the first saw the second", world.read(mine, 2)?, vec![1, 1])?;
    same("the second saw the first", world.read(its, 2)?, vec![1, 1])?;
    told("destroy the stream", world.gpu.destroy_stream(other))
}

fn events(world: &World<'_>) -> Outcome {
    let gpu = world.gpu;
    let other = told("create a stream", gpu.create_stream(0))?;
    let (start, end) = (told("event", gpu.create_event())?, told("event", gpu.create_event())?);
    same("never recorded", told("elapsed", gpu.elapsed_ns(start, end))?, None)?;
    let (mine, flag) = (at(0x51_0000), at(0x51_1000));
    told("fill", gpu.fill(world.stream, flag, FillPattern::Bits32(0), 1))?;
    world.synchronize()?;
    told("record", gpu.record(start, world.stream))?;
    let values = [&mine.0.to_le_bytes()[..], &flag.0.to_le_bytes(), &(1_u32 << 24).to_le_bytes()];
    world.launch("meet", [1, 1, 0], &values)?;
    told("record", gpu.record(end, world.stream))?;
    same("not reached yet", told("elapsed", gpu.elapsed_ns(start, end))?, None)?;
    told("fill", gpu.fill(other, flag, FillPattern::Bits32(1), 1))?;
    world.synchronize()?;
    same("ended by the other stream", world.read(mine, 2)?, vec![1, 1])?;
    match told("elapsed", gpu.elapsed_ns(start, end))? {
        Some(ns) if ns > 0.0 && ns < 60e9 => {}
        other => return Err(format!("elapsed: {other:?}")),
    }
    told("destroy", gpu.destroy_event(start))?;
    told("destroy", gpu.destroy_event(end))?;
    told("destroy", gpu.destroy_stream(other))
}

fn dynamic_shared(world: &World<'_>) -> Outcome {
    let bytes = 96_u32 << 10;
    let values = [&at(0x60_0000).0.to_le_bytes()[..], &bytes.to_le_bytes()];
    if world.launch("last_word", [1, 64, bytes], &values).is_ok() {
        return Err("launched with more than it was allowed".to_owned());
    }
    told("allow", world.gpu.allow_dynamic_shared(world.id("last_word")?, bytes))?;
    world.write(at(0x60_0000), 0)?;
    world.launch("last_word", [1, 64, bytes], &values)?;
    same("the last word", world.read(at(0x60_0000), 1)?, vec![12345])?;
    refused("4 GiB", world.gpu.allow_dynamic_shared(world.id("last_word")?, u32::MAX))
}

fn refusals(world: &World<'_>) -> Outcome {
    let gpu = world.gpu;
    let entry = world.entry("count")?;
    let values = [&at(0).0.to_le_bytes()[..], &0_u32.to_le_bytes(), &0_u32.to_le_bytes()];
    let parameters = World::block(entry, &values);
    let good = Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0, parameters: &parameters };
    for (what, bad) in [
        ("an empty grid", Launch { grid: [0, 1, 1], ..good }),
        ("an empty block", Launch { block: [1, 0, 1], ..good }),
        ("a huge grid", Launch { grid: [1, 1 << 17, 1], ..good }),
        ("a huge block", Launch { block: [2048, 1, 1], ..good }),
        ("a deep block", Launch { block: [1, 1, 65], ..good }),
        ("a block whose product wraps", Launch { block: [1 << 16, 1 << 16, 1], ..good }),
        ("much shared memory", Launch { shared_bytes: 1 << 20, ..good }),
        ("no parameters", Launch { parameters: &[], ..good }),
        ("short parameters", Launch { parameters: &parameters[..parameters.len() - 1], ..good }),
        ("long parameters", Launch { parameters: &[&parameters[..], &[0]].concat(), ..good }),
    ] {
        refused(what, gpu.launch(world.stream, entry.id, &bad))?;
    }
    let host = world.host.part(0, 64);
    let outside = DeviceAddress(SLOT.0 + SLOT_BYTES - 32);
    refused("a copy across the slot's end", gpu.copy_to_device(world.stream, outside, host))?;
    refused(
        "a copy to host addresses",
        gpu.copy_to_device(world.stream, DeviceAddress(host.at.0 as u64), host),
    )?;
    let beside =
        HostRange { at: HostAddress(world.host.whole().at.0 + world.host.whole().bytes - 8), bytes: 16 };
    refused("a copy across the host memory's end", gpu.copy_to_host(world.stream, beside, at(0)))?;
    refused("a fill that wraps", gpu.fill(world.stream, at(0), FillPattern::Bits32(0), u64::MAX / 2))?;
    refused("an unaligned value", gpu.write_value(world.stream, world.host.at(4), 0))?;
    refused("a value elsewhere", gpu.write_value(world.stream, HostAddress(0x1000), 0))?;
    refused("unmap outside", gpu.unmap(DeviceAddress(0x1000_0000), CHUNK))?;
    told("check", gpu.check())?;
    works(world)
}

fn stale_handles(world: &World<'_>) -> Outcome {
    let gpu = world.gpu;
    let stream = told("create", gpu.create_stream(0))?;
    told("destroy", gpu.destroy_stream(stream))?;
    let event = told("create", gpu.create_event())?;
    told("destroy", gpu.destroy_event(event))?;
    let memory = told("create", gpu.create_memory(CHUNK))?;
    told("destroy", gpu.destroy_memory(memory))?;
    for id in [0, 1, u64::MAX, stream.0] {
        refused("stream", gpu.synchronize(StreamId(id)))?;
    }
    refused("stream twice", gpu.destroy_stream(stream))?;
    refused("event", gpu.record(event, world.stream))?;
    refused("event twice", gpu.destroy_event(event))?;
    refused("event 0", gpu.destroy_event(EventId(0)))?;
    refused("memory twice", gpu.destroy_memory(memory))?;
    refused("memory", gpu.map(at(CHUNKS * CHUNK), memory, CHUNK, 1, Access::Read))?;
    refused("memory 0", gpu.destroy_memory(MemoryId(0)))?;
    refused("image", gpu.unload(ImageId(u64::MAX)))?;
    let launch = Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0, parameters: &[] };
    refused("entry", gpu.launch(world.stream, EntryId(u64::MAX), &launch))?;
    works(world)
}

fn unload(world: &World<'_>) -> Outcome {
    let text = code::ptx(world.gpu.info().architecture);
    let image = told("load", world.gpu.load(&text))?;
    let entry = image.entries.first().ok_or("no entries")?;
    let parameters = vec![0; 28];
    let launch = Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0, parameters: &parameters };
    told("launch", world.gpu.launch(world.stream, entry.id, &launch))?;
    world.synchronize()?;
    told("unload", world.gpu.unload(image.id))?;
    refused("launch", world.gpu.launch(world.stream, entry.id, &launch))?;
    refused("unload twice", world.gpu.unload(image.id))?;
    let again = told("load again", world.gpu.load(&text))?;
    told("unload", world.gpu.unload(again.id))?;
    works(world)
}

fn other_thread(world: &World<'_>) -> Outcome {
    world.write(at(0x70_0000), 0)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            told("bind", world.gpu.bind_thread())?;
            let stream = told("create", world.gpu.create_stream(0))?;
            let values = [&at(0x70_0000).0.to_le_bytes()[..], &1_u32.to_le_bytes(), &55_u32.to_le_bytes()];
            world.launch_on(stream, "count", [1, 1, 0], &values)?;
            told("synchronize", world.gpu.synchronize(stream))?;
            told("destroy", world.gpu.destroy_stream(stream))
        });
        thread.join().map_err(|_| "the thread panicked".to_owned())?
    })?;
    same("stored", world.read(at(0x70_0000), 1)?, vec![55])
}

fn out_of_memory(world: &World<'_>) -> Outcome {
    match world.gpu.create_memory(1 << 46) {
        Err(Error::OutOfMemory) => works(world),
        other => Err(format!("{other:?}")),
    }
}

fn host_again(world: &World<'_>) -> Outcome {
    let host = crate::world::Host::new(1 << 16);
    told("register", world.gpu.register_host(host.whole()))?;
    if world.gpu.register_host(host.whole()).is_ok() {
        return Err("registered twice".to_owned());
    }
    told("value", world.gpu.write_value(world.stream, host.at(8), 5))?;
    world.synchronize()?;
    same("value", host.words()[1].load(Ordering::Acquire), 5)?;
    told("unregister", world.gpu.unregister_host(host.whole()))?;
    refused("value", world.gpu.write_value(world.stream, host.at(8), 6))?;
    refused("unregister twice", world.gpu.unregister_host(host.whole()))?;
    told("register again", world.gpu.register_host(host.whole()))?;
    told("unregister", world.gpu.unregister_host(host.whole()))
}

fn alive(world: &World<'_>) -> Outcome {
    told("check", world.gpu.check())?;
    works(world)
}

/// A kernel that faults, and then every call answers `Lost` with this code.
pub(crate) fn fault(world: &World<'_>, address: u64) -> Outcome<u32> {
    world.launch("wild_store", [1, 1, 0], &[&address.to_le_bytes()])?;
    let mut lost = None;
    let took = wait_until("check reports the fault", Duration::from_secs(20), || {
        lost = world.gpu.check().err();
        lost.is_some()
    });
    let (code, seen) = match (lost, took) {
        (Some(Error::Lost { code, reason }), Ok(took)) => {
            (code, format!("check said \"{reason}\" after {took:?}"))
        }
        (Some(other), _) => return Err(format!("check: {other:?}")),
        (None, _) => match world.gpu.synchronize(world.stream) {
            Err(Error::Lost { code, .. }) => (code, "check never said so, synchronize did".to_owned()),
            other => return Err(format!("neither check nor synchronize saw it: {other:?}")),
        },
    };
    println!("  {seen}");
    after_loss(world, code)?;
    Ok(code)
}

fn after_loss(world: &World<'_>, code: u32) -> Outcome {
    let gpu = world.gpu;
    let (host, stream, entry) = (world.host.part(0, 64), world.stream, world.id("count")?);
    let launch = Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0, parameters: &[0; 28] };
    let answers: [(&str, Result<(), Error>); 20] = [
        ("bind_thread", gpu.bind_thread()),
        ("reserve", gpu.reserve(DeviceAddress(SLOT.0 + SLOT_BYTES), SLOT_BYTES)),
        ("unreserve", gpu.unreserve(SLOT, SLOT_BYTES)),
        ("create_memory", gpu.create_memory(CHUNK).map(|_| ())),
        ("export_memory", gpu.export_memory(world.sink).map(|_| ())),
        ("memory_info", gpu.memory_info().map(|_| ())),
        ("map", gpu.map(at(CHUNKS * CHUNK), world.sink, CHUNK, 1, Access::Read)),
        ("unmap", gpu.unmap(SLOT, CHUNK)),
        ("create_stream", gpu.create_stream(0).map(|_| ())),
        ("synchronize", gpu.synchronize(stream)),
        ("create_event", gpu.create_event().map(|_| ())),
        ("load", gpu.load(&code::ptx(gpu.info().architecture)).map(|_| ())),
        ("unload", gpu.unload(world.image.id)),
        ("allow_dynamic_shared", gpu.allow_dynamic_shared(entry, 1024)),
        ("launch", gpu.launch(stream, entry, &launch)),
        ("copy_to_device", gpu.copy_to_device(stream, SLOT, host)),
        ("copy_to_host", gpu.copy_to_host(stream, host, SLOT)),
        ("fill", gpu.fill(stream, SLOT, FillPattern::Bits8(0), 1)),
        ("write_value", gpu.write_value(stream, host.at, 1)),
        ("check", gpu.check()),
    ];
    for (call, answer) in answers {
        match answer {
            Err(Error::Lost { code: again, .. }) if again == code => {}
            other => return Err(format!("{call} answers {other:?}")),
        }
    }
    Ok(())
}
