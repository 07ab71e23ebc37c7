//! Loading code, sealed completion pages, and registered host memory.

use std::time::{Duration, Instant};

use bulkhead_cuda::{Compiler, Cuda};
use bulkhead_gpu::{Access, DeviceAddress, Gpu};

use crate::host::{Mapping, file, seal};
use crate::{Outcome, fact, launches, milliseconds};

pub(crate) fn loading(gpu: &Cuda) -> Outcome {
    let text = launches::text(gpu.info().architecture);
    let compiler = Compiler::default();
    fact("ptxas", compiler.find()?.display());
    for round in 1..=3 {
        let (compile, cubin) = milliseconds(|| Ok(compiler.compile(&text, gpu.info().architecture)?))?;
        let (load, image) = milliseconds(|| Ok(gpu.load(&text)?))?;
        let (unload, ()) = milliseconds(|| Ok(gpu.unload(image.id)?))?;
        fact(
            &format!("tiny image ({} bytes of cubin): ptxas; ptxas + load; unload ({round})", cubin.len()),
            format!("{compile:.1} {load:.1} {unload:.2} ms"),
        );
    }
    Ok(())
}

/// Executor-private marks: a page that only the executor's mapping and the device can write.
pub(crate) fn completion_page(gpu: &Cuda) -> Outcome {
    let bytes = 4096;
    let stream = gpu.create_stream(0)?;
    for order in ["sealed after registering", "sealed before registering"] {
        let file = file(bytes)?;
        let writable = Mapping::new(&file, bytes, true)?;
        let early = order == "sealed before registering";
        if early {
            seal(&file)?;
        }
        let registered = gpu.register_host(writable.range());
        if let Err(error) = registered {
            fact(&format!("completion page {order}: registering"), error);
            continue;
        }
        if !early && let Err(error) = seal(&file) {
            fact(&format!("completion page {order}: sealing"), error);
        }
        let read_only = Mapping::new(&file, bytes, false);
        let again = Mapping::new(&file, bytes, true).map(|_| ());
        let (mine, theirs) = match &read_only {
            Ok(read_only) => {
                gpu.write_value(stream, writable.range().at, 0x5ea1)?;
                gpu.synchronize(stream)?;
                let until = Instant::now() + Duration::from_secs(1);
                while read_only.load(0) != 0x5ea1 && Instant::now() < until {
                    std::hint::spin_loop();
                }
                (writable.load(0) == 0x5ea1, read_only.load(0) == 0x5ea1)
            }
            Err(error) => {
                fact(&format!("completion page {order}: read-only mapping"), error);
                (false, false)
            }
        };
        let again = again.map_or_else(|error| format!("refused ({error})"), |()| "ALLOWED".to_owned());
        fact(
            &format!("completion page {order}"),
            format!(
                "device's write seen: own mapping {mine}, read-only mapping {theirs}; new writable mapping {again}"
            ),
        );
        gpu.unregister_host(writable.range())?;
    }
    gpu.destroy_stream(stream)?;
    Ok(())
}

const DEVICE: DeviceAddress = DeviceAddress(0x3000_0000_0000);

pub(crate) fn host_memory(gpu: &Cuda) -> Outcome {
    for bytes in [4096, 64 << 10, 2 << 20, 64 << 20] {
        let mapping = Mapping::new(file(bytes)?, bytes, true)?;
        let (register, ()) = milliseconds(|| Ok(gpu.register_host(mapping.range())?))?;
        let (unregister, ()) = milliseconds(|| Ok(gpu.unregister_host(mapping.range())?))?;
        fact(
            &format!("memory file of {} KiB: register, unregister", bytes / 1024),
            format!("{register:.2} {unregister:.2} ms"),
        );
    }
    let bytes = 1 << 30;
    let mapping = Mapping::new(file(bytes)?, bytes, true)?;
    let (register, ()) = milliseconds(|| Ok(gpu.register_host(mapping.range())?))?;
    let memory = gpu.create_memory(bytes as u64)?;
    gpu.reserve(DEVICE, bytes as u64)?;
    gpu.map(DEVICE, memory, bytes as u64, 1, Access::ReadWrite)?;
    let stream = gpu.create_stream(0)?;
    for round in 1..=4 {
        let (to_device, ()) = milliseconds(|| {
            gpu.copy_to_device(stream, DEVICE, mapping.range())?;
            Ok(gpu.synchronize(stream)?)
        })?;
        let (to_host, ()) = milliseconds(|| {
            gpu.copy_to_host(stream, mapping.range(), DEVICE)?;
            Ok(gpu.synchronize(stream)?)
        })?;
        let rate = |milliseconds: f64| bytes as f64 / milliseconds / 1e6;
        fact(
            &format!("memory file of 1 GiB: to the device, to the host ({round})"),
            format!("{:.1} {:.1} GB/s", rate(to_device), rate(to_host)),
        );
    }
    gpu.destroy_stream(stream)?;
    gpu.unmap(DEVICE, bytes as u64)?;
    gpu.unreserve(DEVICE, bytes as u64)?;
    gpu.destroy_memory(memory)?;
    let (unregister, ()) = milliseconds(|| Ok(gpu.unregister_host(mapping.range())?))?;
    fact("memory file of 1 GiB: register, unregister", format!("{register:.1} {unregister:.1} ms"));
    Ok(())
}
