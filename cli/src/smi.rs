//! `bulkhead smi`: the device, its memory and its processes, as `nvidia-smi` tells of them.
//!
//! In a program that `bulkhead run` started it is called `nvidia-smi`, and tells of the sessions of that run alone. What the
//! card as a whole does it never tells (docs/decisions/0065-nvml-tells-of-the-session.md).

mod csv;
mod table;
mod view;

use std::{env, path::Path, path::PathBuf, process::ExitCode};

use bulkhead_client::{Connection, Device};
use bulkhead_schema::bulkhead_capnp::{device, result};
use clap::{Args, Parser};
use serde_json::{Value, json};

use crate::{Failure, output, place, run::RUN, status};
use view::{Card, View};

/// Show the device, its memory and its processes as nvidia-smi does.
///
/// Within `bulkhead run` it is there as `nvidia-smi` too. It tells then of the sessions of that run: how much memory they may
/// have, how much of that is not free, and what their processes hold. Elsewhere it tells of all sessions, as `bulkhead
/// status` does. Utilization, power, temperature and clocks belong to the whole card and read [N/A].
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("shown").multiple(false))]
pub(crate) struct Arguments {
    /// The socket of the kernel to ask.
    #[arg(long, value_parser = place::clients_socket)]
    socket: Option<PathBuf>,
    /// List the devices, one a line.
    #[arg(short = 'L', long, group = "shown")]
    list_gpus: bool,
    /// Show these properties of devices as CSV: index, name, uuid, memory.total, memory.used, memory.free, driver_version,
    /// compute_cap, pci.bus_id, count, and others of nvidia-smi's, which read [N/A].
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', group = "shown")]
    query_gpu: Vec<String>,
    /// Show these properties of processes as CSV: pid, process_name, used_memory, gpu_uuid, gpu_name, gpu_bus_id.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', group = "shown")]
    query_compute_apps: Vec<String>,
    /// How to show them: csv, and noheader, nounits.
    #[arg(long, value_name = "csv,...", value_delimiter = ',', value_enum)]
    format: Vec<Format>,
    /// Only this device, by its index, UUID or PCI address.
    #[arg(short = 'i', long, value_name = "DEVICE")]
    id: Option<String>,
    /// Print JSON, in bytes.
    #[arg(long, group = "shown")]
    json: bool,
}

/// How CSV is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Values with commas between them.
    Csv,
    /// Without the line that names them.
    Noheader,
    /// Without `MiB`.
    Nounits,
}

/// Show the device, its memory and its processes, of this run's sessions (Bulkhead's).
///
/// This is `bulkhead smi`. It tells how much memory the sessions of this run may have, how much of that is not free, and what
/// their processes hold. Utilization, power, temperature and clocks belong to the whole card and read [N/A].
#[derive(Debug, Parser)]
#[command(name = place::SMI, version)]
struct Alone {
    #[command(flatten)]
    arguments: Arguments,
}

/// What `nvidia-smi` does, where this is called so.
pub(crate) fn alone() -> Option<Result<ExitCode, Failure>> {
    let called = env::args_os().next()?;
    (Path::new(&called).file_name()? == place::SMI).then(|| run(&Alone::parse().arguments))
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let queries = !arguments.query_gpu.is_empty() || !arguments.query_compute_apps.is_empty();
    if queries != arguments.format.contains(&Format::Csv) {
        return Err(Failure::new(
            "--query-gpu and --query-compute-apps need `--format=csv`, and it needs one of them",
        ));
    }
    let view = look(arguments)?;
    let told = if queries {
        let shown = csv::Shown(&arguments.format);
        match arguments.query_gpu.as_slice() {
            [] => csv::processes(&view, &arguments.query_compute_apps, shown)?,
            fields => csv::devices(&view, fields, shown)?,
        }
    } else if arguments.list_gpus {
        let line = |card: &Card| format!("GPU {}: {} (UUID: {})\n", card.index, card.name, card.uuid);
        view.cards.iter().map(line).collect()
    } else if arguments.json {
        output::plain_json(&format!("{:#}\n", as_json(&view)))
    } else {
        table::of(&view)
    };
    output::print(&told)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks as any client may.
fn look(arguments: &Arguments) -> Result<View, Failure> {
    let socket = arguments.socket.clone().unwrap_or_else(bulkhead_client::default_socket);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::doing("starting a runtime"))?;
    let (devices, (statuses, sessions)) = tokio::task::LocalSet::new().block_on(&runtime, async {
        let connection = Connection::open(&socket, "bulkhead smi").await?;
        // First, since it waits for an executor: without one there is no memory to tell of.
        let devices = list(&connection).await?;
        Ok::<_, Failure>((devices, status::ask(&connection).await?))
    })?;
    let run = env::var(RUN)
        .ok()
        .map(|run| run.parse().map_err(|_| Failure::new(format!("{RUN}: {run:?} is no process"))));
    let mut view = View::of(&devices, &statuses, &sessions, run.transpose()?)?;
    if let Some(id) = &arguments.id {
        view.cards.retain(|card| card.is(id));
        if view.cards.is_empty() {
            return Err(Failure::new(format!("no device {id:?}: `bulkhead smi -L` lists them")));
        }
    }
    Ok(view)
}

async fn list(connection: &Connection) -> Result<Vec<Device>, Failure> {
    let response = connection.kernel.list_devices_request().send().promise.await.map_err(status::broken)?;
    let result = response.get().and_then(|response| response.get_result()).map_err(status::broken)?;
    match result.which().map_err(|error| status::broken(error.into()))? {
        result::Ok(devices) => {
            let devices = devices.and_then(|devices| devices.get_devices()).map_err(status::broken)?;
            let read = |device: device::Reader<'_>| Ok(Device::read(device)?);
            devices.iter().map(read).collect()
        }
        result::Error(error) => Err(bulkhead_client::Error::read(error.map_err(status::broken)?).into()),
    }
}

fn as_json(view: &View) -> Value {
    let card = |card: &Card| {
        let processes = card.processes.iter().map(|process| {
            json!({
                "pid": process.pid, "session": process.session, "name": process.name, "used_bytes": process.bytes,
            })
        });
        json!({
            "index": card.index,
            "name": card.name,
            "uuid": card.uuid,
            "pci_bus_id": card.bus_id,
            "compute_capability": card.capability,
            "memory_total_bytes": card.total,
            "memory_used_bytes": card.used(),
            "memory_free_bytes": card.free,
            "processes": processes.collect::<Vec<_>>(),
        })
    };
    json!({
        "driver_version": view.driver_version,
        "cuda_version": view.cuda_version,
        "devices": view.cards.iter().map(card).collect::<Vec<_>>(),
    })
}
