//! A profile as programs read it.

use bulkhead_softgpu::{Counts, Traffic};
use serde_json::{Value, json};

use super::lines::{Line, Profile, Profiled};

/// Of the document.
const FORMAT: u32 = 1;

/// The document.
pub(super) fn document(profile: &Profile) -> Value {
    json!({ "format": FORMAT, "kernels": profile.kernels.iter().map(kernel).collect::<Vec<_>>() })
}

fn kernel(kernel: &Profiled) -> Value {
    json!({
        "name": kernel.name,
        "launches": kernel.launches,
        "launchesNotCounted": kernel.uncounted,
        "blocks": kernel.blocks,
        "threads": kernel.threads,
        "nanoseconds": kernel.nanoseconds,
        "counts": counts(&kernel.own),
        "guard": counts(&kernel.guard),
        "lines": kernel.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn line(line: &Line) -> Value {
    let (kind, file, number) = line.at.parts();
    json!({
        "in": kind, "file": file, "line": number, "text": line.text, "counts": counts(&line.counts),
    })
}

fn counts(counts: &Counts) -> Value {
    json!({
        "warpInstructions": counts.warps,
        "lanesStanding": counts.standing,
        "threadInstructions": counts.threads,
        "divergentBranches": counts.divergent,
        "global": {
            "loaded": traffic(&counts.loaded),
            "stored": traffic(&counts.stored),
            "updated": traffic(&counts.updated),
        },
        "local": traffic(&counts.local),
        "shared": {
            "requests": counts.shared_requests,
            "bytesAsked": counts.shared_asked,
            "passes": counts.shared_passes,
            "passesLeast": counts.shared_least,
            "waysMost": counts.shared_ways,
        },
        "atomic": {
            "requests": counts.updates,
            "lanes": counts.update_lanes,
            "rounds": counts.update_rounds,
        },
    })
}

fn traffic(traffic: &Traffic) -> Value {
    json!({
        "requests": traffic.requests,
        "bytesAsked": traffic.asked,
        "bytesUseful": traffic.useful,
        "sectors": traffic.sectors,
        "bytesMoved": traffic.moved(),
    })
}
