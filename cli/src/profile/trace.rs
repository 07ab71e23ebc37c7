//! What streams did as a trace that Chrome's and Perfetto's viewers load: trace events, as JSON.

use std::collections::BTreeMap;

use bulkhead_guard::entry_of;
use bulkhead_softgpu::{Event, Report, What};
use serde_json::{Value, json};

/// The process that all tracks belong to.
const PROCESS: u32 = 1;

/// The document.
pub(super) fn document(report: &Report) -> Value {
    let tracks = tracks(report);
    let mut events = vec![json!({
        "ph": "M", "name": "process_name", "pid": PROCESS, "tid": 0, "args": {"name": "Bulkhead software GPU"},
    })];
    for track in tracks.values() {
        events.push(json!({
            "ph": "M", "name": "thread_name", "pid": PROCESS, "tid": track,
            "args": {"name": format!("stream {}", track - 1)},
        }));
    }
    events.extend(report.events.iter().filter_map(|event| {
        let track = tracks.get(&event.stream)?;
        slice(report, event, *track)
    }));
    json!({
        "displayTimeUnit": "ns",
        "otherData": {"eventsLeftOut": report.events_left_out},
        "traceEvents": events,
    })
}

/// The streams of programs, in the order of their making: those that tell a host how far they are, or launch. The executor
/// has others, on which it clears memory.
fn tracks(report: &Report) -> BTreeMap<u64, u32> {
    let of_programs = |event: &&Event| matches!(event.what, What::Publish | What::Launch { .. });
    let mut tracks: BTreeMap<u64, u32> =
        report.events.iter().filter(of_programs).map(|event| (event.stream, 0)).collect();
    for (number, track) in (1..).zip(tracks.values_mut()) {
        *track = number;
    }
    tracks
}

fn slice(report: &Report, event: &Event, track: u32) -> Option<Value> {
    let (name, category, arguments) = match event.what {
        What::Launch { kernel, grid, block, shared_bytes } => {
            let kernel = report.kernels.get(usize::try_from(kernel).ok()?)?;
            let name = entry_of(&kernel.name);
            let arguments = json!({"grid": grid, "block": block, "sharedBytes": shared_bytes});
            (name, "kernel", arguments)
        }
        What::ToDevice(bytes) => ("copy to device", "copy", json!({"bytes": bytes})),
        What::ToHost(bytes) => ("copy to host", "copy", json!({"bytes": bytes})),
        What::OnDevice(bytes) => ("copy on device", "copy", json!({"bytes": bytes})),
        What::Fill(bytes) => ("fill", "copy", json!({"bytes": bytes})),
        What::Record => {
            return Some(json!({
                "ph": "i", "s": "t", "name": "event", "cat": "event", "pid": PROCESS, "tid": track,
                "ts": microseconds(event.until_ns),
            }));
        }
        What::Publish => return None,
    };
    Some(json!({
        "ph": "X", "name": name, "cat": category, "pid": PROCESS, "tid": track,
        "ts": microseconds(event.from_ns),
        "dur": microseconds(event.until_ns.saturating_sub(event.from_ns)),
        "args": arguments,
    }))
}

#[expect(clippy::cast_precision_loss, reason = "a run of days still has its nanoseconds")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use bulkhead_softgpu::Kernel;

    #[test]
    fn streams_are_tracks_and_their_work_is_slices() {
        let kernel = |name: &str| Kernel { name: name.into(), ..Kernel::default() };
        let kernels = vec![kernel("__bh_fast_add"), kernel("bh_e_bh_e_add")];
        let launched = |kernel| What::Launch { kernel, grid: [2, 1, 1], block: [32, 1, 1], shared_bytes: 8 };
        let launch = launched(0);
        let event = |stream, what, from_ns| Event { stream, what, from_ns, until_ns: from_ns + 500 };
        let events = vec![
            event(4, What::Fill(9), 0),
            event(7, launch, 1000),
            event(5, What::Record, 2000),
            event(5, What::Publish, 2000),
            event(5, launched(1), 3000),
        ];
        let report = Report { kernels, events, events_left_out: 3 };
        let document = document(&report);
        let events = document["traceEvents"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
        assert_eq!(named("thread_name").len(), 2);
        assert_eq!(named("fill").len(), 0, "the executor's own stream");
        assert_eq!(named("bh_e_add").len(), 1, "a program may call an entry so");
        let add = named("add");
        assert_eq!((add.len(), &add[0]["ph"], &add[0]["tid"]), (1, &json!("X"), &json!(2)));
        assert_eq!((&add[0]["ts"], &add[0]["dur"]), (&json!(1.0), &json!(0.5)));
        assert_eq!(add[0]["args"], json!({"grid": [2, 1, 1], "block": [32, 1, 1], "sharedBytes": 8}));
        assert_eq!((&named("event")[0]["ph"], &named("event")[0]["tid"]), (&json!("i"), &json!(1)));
        assert_eq!(document["otherData"]["eventsLeftOut"], 3);
    }
}
