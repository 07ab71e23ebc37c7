//! What launches and completions cost.

use std::ffi::CString;
use std::sync::Barrier;
use std::time::Instant;

use bulkhead_cuda::Cuda;
use bulkhead_gpu::{EntryId, Gpu, HostAddress, Launch, StreamId};

use crate::host::{Mapping, file};
use crate::raw::Native;
use crate::{Outcome, fact, percentile};

const BURST: u32 = 512;
const BURSTS: u32 = 100;
const SUSTAINED: u64 = 40_000;
const ROUNDS: u64 = 3000;
/// A pointer, a word, and the hidden parameters.
const BLOCK: [u8; 24] = [0; 24];

pub(crate) fn text(architecture: u32) -> String {
    format!(
        ".version 8.0\n.target sm_{architecture}\n.address_size 64\n.visible .entry nothing(\n\t.param .u64 a,\n\
         \t.param .u32 b,\n\t.param .u32 __bh_base,\n\t.param .u32 __bh_load,\n\t.param .u32 __bh_store\n)\n{{\n\tret;\n}}\n"
    )
}

const LAUNCH: Launch<'static> =
    Launch { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0, parameters: &BLOCK };

/// Microseconds per call in a burst from idle, the median of many bursts.
fn burst(mut call: impl FnMut() -> Outcome, mut wait: impl FnMut() -> Outcome) -> Outcome<f64> {
    let mut samples = Vec::new();
    for _ in 0..BURSTS {
        let start = Instant::now();
        for _ in 0..BURST {
            call()?;
        }
        samples.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(BURST));
        wait()?;
    }
    Ok(percentile(&mut samples, 0.5))
}

/// Microseconds per launch over many, the wait at the end included.
fn sustained(mut call: impl FnMut(u64) -> Outcome, wait: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let start = Instant::now();
    for index in 0..SUSTAINED {
        call(index)?;
    }
    wait()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / SUSTAINED as f64)
}

pub(crate) fn measure(gpu: &Cuda) -> Outcome {
    let image = gpu.load(&text(gpu.info().architecture))?;
    let entry = image.entries.first().ok_or("no entry")?.id;
    let stream = gpu.create_stream(0)?;
    let native = Native::new(&CString::new(text(gpu.info().architecture))?, c"nothing")?;
    native.launch_buffer(&BLOCK)?;
    native.synchronize()?;
    gpu.launch(stream, entry, &LAUNCH)?;
    gpu.synchronize(stream)?;

    for round in 1..=2 {
        let ours = burst(|| Ok(gpu.launch(stream, entry, &LAUNCH)?), || Ok(gpu.synchronize(stream)?))?;
        let buffer = burst(|| Ok(native.launch_buffer(&BLOCK)?), || Ok(native.synchronize()?))?;
        let pointers = burst(|| Ok(native.launch_parameters(0, [0; 4])?), || Ok(native.synchronize()?))?;
        fact(
            &format!("burst of {BURST}, us per call: trait, native extra, native kernelParams ({round})"),
            format!("{ours:.3} {buffer:.3} {pointers:.3}"),
        );
        let ours = sustained(|_| Ok(gpu.launch(stream, entry, &LAUNCH)?), || Ok(gpu.synchronize(stream)?))?;
        let buffer = sustained(|_| Ok(native.launch_buffer(&BLOCK)?), || Ok(native.synchronize()?))?;
        let pointers = sustained(|_| Ok(native.launch_parameters(0, [0; 4])?), || Ok(native.synchronize()?))?;
        fact(
            &format!("{SUSTAINED} launches, us each: trait, native extra, native kernelParams ({round})"),
            format!("{ours:.3} {buffer:.3} {pointers:.3}"),
        );
    }

    let page = Mapping::new(file(4096)?, 4096, true)?;
    gpu.register_host(page.range())?;
    completions(gpu, stream, entry, &page)?;
    latencies(gpu, stream, entry, &native, &page)?;
    gpu.unregister_host(page.range())?;
    threads(gpu, entry)?;
    gpu.unload(image.id)?;
    Ok(())
}

fn completions(gpu: &Cuda, stream: StreamId, entry: EntryId, page: &Mapping) -> Outcome {
    for every in [1, 8, 32, 128] {
        let each = sustained(
            |index| {
                gpu.launch(stream, entry, &LAUNCH)?;
                if (index + 1) % every == 0 {
                    gpu.write_value(stream, page.range().at, index)?;
                }
                Ok(())
            },
            || Ok(gpu.synchronize(stream)?),
        )?;
        fact(&format!("a value written every {every} launches, us per launch"), format!("{each:.3}"));
    }
    for marks in [1, 2] {
        let each = burst(
            || {
                for mark in 0..marks {
                    gpu.write_value(stream, HostAddress(page.range().at.0 + mark * 8), 1)?;
                }
                Ok(())
            },
            || Ok(gpu.synchronize(stream)?),
        )?;
        fact(&format!("{marks} values written, burst, us"), format!("{each:.3}"));
    }
    let each = burst(|| Ok(gpu.check()?), || Ok(()))?;
    fact("check, us", format!("{each:.3}"));
    Ok(())
}

fn latencies(gpu: &Cuda, stream: StreamId, entry: EntryId, native: &Native, page: &Mapping) -> Outcome {
    let mut polled = Vec::new();
    let mut synchronized = Vec::new();
    let mut natively = Vec::new();
    for round in 1..=ROUNDS {
        let start = Instant::now();
        gpu.launch(stream, entry, &LAUNCH)?;
        gpu.write_value(stream, page.range().at, round)?;
        while page.load(0) != round {
            std::hint::spin_loop();
            if start.elapsed().as_secs() > 5 {
                return Err("a written value never came".into());
            }
        }
        polled.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        gpu.launch(stream, entry, &LAUNCH)?;
        gpu.synchronize(stream)?;
        synchronized.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        native.launch_parameters(0, [0; 4])?;
        native.synchronize()?;
        natively.push(start.elapsed().as_secs_f64() * 1e6);
    }
    for (name, samples) in [
        ("launch + value polled", &mut polled),
        ("launch + synchronize, trait", &mut synchronized),
        ("launch + cuStreamSynchronize, native", &mut natively),
    ] {
        let (half, most) = (percentile(samples, 0.5), percentile(samples, 0.99));
        fact(&format!("{name}, p50 and p99, us"), format!("{half:.2} {most:.2}"));
    }
    Ok(())
}

/// Threads with a stream each, in one context.
fn threads(gpu: &Cuda, entry: EntryId) -> Outcome {
    const EACH: u32 = 20_000;
    for count in [1_u32, 2, 4, 8] {
        let barrier = Barrier::new(count as usize + 1);
        let elapsed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|_| {
                    scope.spawn(|| {
                        let stream = gpu.bind_thread().and_then(|()| gpu.create_stream(0));
                        barrier.wait();
                        let stream = stream?;
                        (0..EACH).try_for_each(|_| gpu.launch(stream, entry, &LAUNCH))?;
                        gpu.synchronize(stream)?;
                        gpu.destroy_stream(stream)
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            for thread in threads {
                thread.join().map_err(|_| "a thread panicked")??;
            }
            Outcome::Ok(start.elapsed().as_secs_f64())
        })?;
        let rate = f64::from(count * EACH) / elapsed / 1e6;
        fact(&format!("{count} threads with own streams, million launches per second"), format!("{rate:.3}"));
    }
    Ok(())
}
