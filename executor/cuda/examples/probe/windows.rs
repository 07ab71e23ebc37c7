//! What it costs to set up a session's window, and to change it.

use bulkhead_cuda::Cuda;
use bulkhead_gpu::{Access, DeviceAddress, FillPattern, Gpu};

use crate::{Outcome, fact, milliseconds};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SLOT: DeviceAddress = DeviceAddress(0x2000_0000_0000);
const SLOT_BYTES: u64 = 512 * GIB;
const HALF_BYTES: u64 = 256 * GIB;

fn at(offset: u64) -> DeviceAddress {
    DeviceAddress(SLOT.0 + offset)
}

pub(crate) fn measure(gpu: &Cuda) -> Outcome {
    for chunk in [64 * MIB, 128 * MIB, 256 * MIB] {
        slot(gpu, chunk)?;
    }
    Ok(())
}

/// A whole slot: lower half read-write, upper half read-only, all of it one sink.
fn slot(gpu: &Cuda, chunk: u64) -> Outcome {
    let name = |what: &str| format!("512 GiB slot, {} MiB sink: {what}", chunk / MIB);
    let (reserve, ()) = milliseconds(|| Ok(gpu.reserve(SLOT, SLOT_BYTES)?))?;
    let (create, sink) = milliseconds(|| Ok(gpu.create_memory(chunk)?))?;
    let (lower, ()) =
        milliseconds(|| Ok(gpu.map(SLOT, sink, chunk, HALF_BYTES / chunk, Access::ReadWrite)?))?;
    let (upper, ()) =
        milliseconds(|| Ok(gpu.map(at(HALF_BYTES), sink, chunk, HALF_BYTES / chunk, Access::Read)?))?;
    fact(
        &name("reserve, create, map lower, map upper, all"),
        format!("{reserve:.2} {create:.2} {lower:.1} {upper:.1} {:.1} ms", reserve + create + lower + upper),
    );
    let stream = gpu.create_stream(0)?;
    for count in [1, 16, 64] {
        replace(gpu, chunk, count, sink, stream, &name(""))?;
    }
    gpu.destroy_stream(stream)?;
    let (lower, ()) = milliseconds(|| Ok(gpu.unmap(SLOT, HALF_BYTES)?))?;
    let (upper, ()) = milliseconds(|| Ok(gpu.unmap(at(HALF_BYTES), HALF_BYTES)?))?;
    let (rest, ()) = milliseconds(|| {
        gpu.destroy_memory(sink)?;
        Ok(gpu.unreserve(SLOT, SLOT_BYTES)?)
    })?;
    fact(&name("unmap lower, unmap upper, rest"), format!("{lower:.1} {upper:.1} {rest:.2} ms"));
    Ok(())
}

/// Real memory for `count` chunks in the middle of the lower half, and sinks again. Twice: the first mapping calls
/// of a context are slower.
fn replace(
    gpu: &Cuda,
    chunk: u64,
    count: u64,
    sink: bulkhead_gpu::MemoryId,
    stream: bulkhead_gpu::StreamId,
    name: &str,
) -> Outcome {
    let (from, bytes) = (at(64 * GIB), chunk * count);
    for round in ["first", "second"] {
        let (unmap, ()) = milliseconds(|| Ok(gpu.unmap(from, bytes)?))?;
        let (create, memory) = milliseconds(|| Ok(gpu.create_memory(bytes)?))?;
        let (map, ()) = milliseconds(|| Ok(gpu.map(from, memory, bytes, 1, Access::ReadWrite)?))?;
        let (scrub, ()) = milliseconds(|| {
            gpu.fill(stream, from, FillPattern::Bits32(0), bytes / 4)?;
            Ok(gpu.synchronize(stream)?)
        })?;
        let (unmap_memory, ()) = milliseconds(|| Ok(gpu.unmap(from, bytes)?))?;
        let (sinks, ()) = milliseconds(|| Ok(gpu.map(from, sink, chunk, count, Access::ReadWrite)?))?;
        let (destroy, ()) = milliseconds(|| Ok(gpu.destroy_memory(memory)?))?;
        fact(
            &format!("{name}{count} chunks ({round}): unmap create map scrub | unmap sinks destroy"),
            format!(
                "{unmap:.3} {create:.3} {map:.3} {scrub:.3} | {unmap_memory:.3} {sinks:.3} {destroy:.3} ms"
            ),
        );
    }
    Ok(())
}
