//! Which calls wait for a kernel of another stream, and which of the others wait for those.
//!
//! Every row is one call, made while a kernel of one thread runs: alone, and beside another thread that is in a call
//! which waits for that kernel. What a row prepares and cleans up is not in its time.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bulkhead_gpu::{Access, DeviceAddress, StreamId};

use crate::world::{CHUNK, GIB, HALF_BYTES, Host, Outcome, SLOT, SLOT_BYTES, World, at, told};
use crate::{code, mapped};

/// How long the kernel runs: in the first column, and in the others.
const ALONE: Duration = Duration::from_secs(2);
const BESIDE: Duration = Duration::from_secs(1);
/// Until the kernel runs, and until the other thread is in its call.
const SETTLE: Duration = Duration::from_millis(100);

type Call<'a> = dyn FnMut() -> Outcome + Send + 'a;
/// Prepares, has the call measured, cleans up.
type Row = fn(&World<'_>, Measure<'_>) -> Outcome;
type Measure<'a> = &'a mut dyn FnMut(&mut Call<'_>) -> Outcome;

const ROWS: &[(&str, Row)] = &[
    ("reserve", |world, measure| {
        let next = DeviceAddress(SLOT.0 + 2 * SLOT_BYTES);
        measure(&mut || told("reserve", world.gpu.reserve(next, SLOT_BYTES)))?;
        told("unreserve", world.gpu.unreserve(next, SLOT_BYTES))
    }),
    ("unreserve", |world, measure| {
        let next = DeviceAddress(SLOT.0 + 2 * SLOT_BYTES);
        told("reserve", world.gpu.reserve(next, SLOT_BYTES))?;
        measure(&mut || told("unreserve", world.gpu.unreserve(next, SLOT_BYTES)))
    }),
    ("create_memory", |world, measure| {
        let mut made = None;
        measure(&mut || told("create", world.gpu.create_memory(CHUNK)).map(|memory| made = Some(memory)))?;
        made.map_or(Ok(()), |memory| told("destroy", world.gpu.destroy_memory(memory)))
    }),
    ("destroy_memory", |world, measure| {
        let memory = told("create", world.gpu.create_memory(CHUNK))?;
        measure(&mut || told("destroy", world.gpu.destroy_memory(memory)))
    }),
    ("export_memory", |world, measure| {
        measure(&mut || told("export", world.gpu.export_memory(world.sink)).map(drop))
    }),
    ("import_memory", |world, measure| {
        let mut descriptor = Some(told("export", world.gpu.export_memory(world.sink))?);
        let mut made = None;
        measure(&mut || {
            let descriptor = descriptor.take().ok_or("measured twice")?;
            told("import", world.gpu.import_memory(descriptor, CHUNK)).map(|memory| made = Some(memory))
        })?;
        made.map_or(Ok(()), |memory| told("destroy", world.gpu.destroy_memory(memory)))
    }),
    ("destroy_memory (imported)", |world, measure| {
        let descriptor = told("export", world.gpu.export_memory(world.sink))?;
        let memory = told("import", world.gpu.import_memory(descriptor, CHUNK))?;
        measure(&mut || told("destroy", world.gpu.destroy_memory(memory)))
    }),
    ("map + access", |world, measure| {
        let memory = told("create", world.gpu.create_memory(CHUNK))?;
        measure(&mut || told("map", world.gpu.map(at(FREE), memory, CHUNK, 1, Access::ReadWrite)))?;
        told("unmap", world.gpu.unmap(at(FREE), CHUNK))?;
        told("destroy", world.gpu.destroy_memory(memory))
    }),
    ("map_host", |world, measure| {
        let file = mapped::file(CHUNK)?;
        measure(&mut || told("map", world.gpu.map_host(at(FREE), file.as_fd(), CHUNK)).map(drop))?;
        told("unmap", world.gpu.unmap_host(at(FREE), CHUNK))
    }),
    (UNMAP_HOST, |world, measure| {
        let file = mapped::file(CHUNK)?;
        told("map", world.gpu.map_host(at(FREE), file.as_fd(), CHUNK))?;
        measure(&mut || told("unmap", world.gpu.unmap_host(at(FREE), CHUNK)))
    }),
    ("map + access (a second place, read-only)", |world, measure| {
        let place = at(HALF_BYTES + FREE);
        measure(&mut || told("map", world.gpu.map(place, world.sink, CHUNK, 1, Access::Read)))?;
        told("unmap", world.gpu.unmap(place, CHUNK))
    }),
    ("unmap", |world, measure| {
        let memory = told("create", world.gpu.create_memory(CHUNK))?;
        told("map", world.gpu.map(at(FREE), memory, CHUNK, 1, Access::ReadWrite))?;
        measure(&mut || told("unmap", world.gpu.unmap(at(FREE), CHUNK)))?;
        told("destroy", world.gpu.destroy_memory(memory))
    }),
    ("memory_info", |world, measure| measure(&mut || told("memory_info", world.gpu.memory_info()).map(drop))),
    ("register_host", |world, measure| {
        let host = Host::new(1 << 20);
        measure(&mut || told("register", world.gpu.register_host(host.whole())))?;
        told("unregister", world.gpu.unregister_host(host.whole()))
    }),
    (UNREGISTER, |world, measure| {
        let host = Host::new(1 << 20);
        told("register", world.gpu.register_host(host.whole()))?;
        measure(&mut || told("unregister", world.gpu.unregister_host(host.whole())))
    }),
    ("create_stream", |world, measure| {
        let mut made = None;
        measure(&mut || told("create", world.gpu.create_stream(0)).map(|stream| made = Some(stream)))?;
        made.map_or(Ok(()), |stream| told("destroy", world.gpu.destroy_stream(stream)))
    }),
    ("destroy_stream", |world, measure| {
        let stream = told("create", world.gpu.create_stream(0))?;
        measure(&mut || told("destroy", world.gpu.destroy_stream(stream)))
    }),
    ("create_event", |world, measure| {
        let mut made = None;
        measure(&mut || told("create", world.gpu.create_event()).map(|event| made = Some(event)))?;
        made.map_or(Ok(()), |event| told("destroy", world.gpu.destroy_event(event)))
    }),
    ("destroy_event", |world, measure| {
        let event = told("create", world.gpu.create_event())?;
        measure(&mut || told("destroy", world.gpu.destroy_event(event)))
    }),
    ("launch", |world, measure| {
        measure(&mut || count(world, world.stream))?;
        world.synchronize()
    }),
    ("launch + synchronize", |world, measure| {
        measure(&mut || {
            count(world, world.stream)?;
            world.synchronize()
        })
    }),
    ("fill + synchronize", |world, measure| measure(&mut || world.write(at(0x100), 1))),
    ("copy_to_host + synchronize", |world, measure| measure(&mut || world.read(at(0x100), 4).map(drop))),
    ("write_value + synchronize", |world, measure| {
        measure(&mut || {
            told("value", world.gpu.write_value(world.stream, world.host.at(0), 1))?;
            world.synchronize()
        })
    }),
    ("check", |world, measure| measure(&mut || told("check", world.gpu.check()))),
    (LOAD, |world, measure| {
        let text = code::ptx(world.gpu.info().architecture);
        let mut made = None;
        measure(&mut || told("load", world.gpu.load(&text)).map(|image| made = Some(image.id)))?;
        made.map_or(Ok(()), |image| told("unload", world.gpu.unload(image)))
    }),
    (UNLOAD, |world, measure| {
        let image = told("load", world.gpu.load(&code::ptx(world.gpu.info().architecture)))?;
        measure(&mut || told("unload", world.gpu.unload(image.id)))
    }),
];

const UNREGISTER: &str = "unregister_host";
const LOAD: &str = "load (with compilation)";
const UNLOAD: &str = "unload";
const UNMAP_HOST: &str = "unmap_host";
/// The calls of which it is known that they wait, and beside which others are called.
const WAITERS: [&str; 3] = [UNREGISTER, UNLOAD, LOAD];
/// Where rows map memory.
const FREE: u64 = 32 * GIB;

fn count(world: &World<'_>, stream: StreamId) -> Outcome {
    let values = [&at(0x9000).0.to_le_bytes()[..], &32_u32.to_le_bytes(), &1_u32.to_le_bytes()];
    world.launch_on(stream, "count", [1, 32, 0], &values)
}

/// What a call took, and whether that was so long that it waited.
enum Cell {
    Took(Duration, Duration),
    /// The other thread's call had returned before: it does not wait.
    Alone,
}

impl Cell {
    fn waited(&self) -> bool {
        matches!(self, Self::Took(took, kernel) if *took > *kernel / 3)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Took(took, _) => {
                let mark = if self.waited() { "WAITS" } else { "" };
                f.pad(&format!("{mark:>6}{:>10.3}", took.as_secs_f64() * 1e3))
            }
            Self::Alone => f.pad("               -"),
        }
    }
}

fn start(world: &World<'_>, stream: StreamId, kernel: Duration) -> Outcome {
    let ns = u64::try_from(kernel.as_nanos()).unwrap_or(u64::MAX);
    world.launch_on(stream, "spin", [1, 1, 0], &[&at(0xa000).0.to_le_bytes(), &ns.to_le_bytes()])?;
    std::thread::sleep(SETTLE);
    Ok(())
}

fn alone(world: &World<'_>, busy: StreamId, row: Row) -> Outcome<Cell> {
    let mut cell = Cell::Alone;
    row(world, &mut |call| {
        start(world, busy, ALONE)?;
        let since = Instant::now();
        let answer = call();
        cell = Cell::Took(since.elapsed(), ALONE);
        told("synchronize", world.gpu.synchronize(busy))?;
        answer
    })?;
    Ok(cell)
}

fn beside(world: &World<'_>, busy: StreamId, waiter: Row, row: Row) -> Outcome<Cell> {
    let mut cell = Cell::Alone;
    waiter(world, &mut |waiting| {
        row(world, &mut |call| {
            start(world, busy, BESIDE)?;
            let returned = AtomicBool::new(false);
            let answers = std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    told("bind", world.gpu.bind_thread())?;
                    let answer = waiting();
                    returned.store(true, Ordering::Release);
                    answer
                });
                std::thread::sleep(SETTLE);
                let early = returned.load(Ordering::Acquire);
                let since = Instant::now();
                let answer = call();
                if !early {
                    cell = Cell::Took(since.elapsed(), BESIDE);
                }
                other.join().map_err(|_| "the other thread panicked".to_owned())?.and(answer)
            });
            told("synchronize", world.gpu.synchronize(busy))?;
            answers
        })
    })?;
    Ok(cell)
}

/// Prints the table. Fails where a call waits of which the trait promises that it does not.
pub(crate) fn table(world: &World<'_>) -> Outcome {
    let busy = told("create a stream", world.gpu.create_stream(0))?;
    println!(
        "\n        ms per call while another stream's kernel runs ({ALONE:?}, beside a waiting call {BESIDE:?})"
    );
    println!(
        "        {:<42}{:>16}{:>20}{:>20}{:>20}",
        "call", "alone", "beside unregister", "unload", "load"
    );
    let mut broken = Vec::new();
    for (name, row) in ROWS {
        let first = alone(world, busy, *row)?;
        if first.waited() && !WAITERS.contains(name) && *name != UNMAP_HOST {
            broken.push(*name);
        }
        let mut line = format!("        {name:<42}{first}");
        for waiter in WAITERS {
            let found = ROWS.iter().find(|(name, _)| *name == waiter);
            let (_, waiter) = found.ok_or("no such row")?;
            line += &format!("    {}", beside(world, busy, *waiter, *row)?);
        }
        println!("{line}");
    }
    told("destroy the stream", world.gpu.destroy_stream(busy))?;
    if broken.is_empty() { Ok(()) } else { Err(format!("waited: {}", broken.join(", "))) }
}
