//! What was wrong, as programs read it.

use serde_json::{Value, json};

use super::report::{Call, Device, Report, Wrong};
use crate::source::{At, readable};

/// Of the document.
const FORMAT: u32 = 1;

/// The document.
pub(super) fn document(report: &Report, counts_calls: bool) -> Value {
    let leaks = report.leaks.iter().map(|leak| {
        json!({ "allocation": leak.number, "address": format!("{:#x}", leak.address), "bytes": leak.bytes })
    });
    let calls = report.calls.iter().map(|failed| {
        let Call { call, code, name, what, by } = failed;
        json!({ "call": call, "code": code, "name": name, "what": what, "by": by })
    });
    json!({
        "format": FORMAT,
        "errors": report.errors(counts_calls),
        "findings": report.wrong.iter().map(wrong).collect::<Vec<_>>(),
        "findingsNotTold": report.left_out,
        "leaks": leaks.collect::<Vec<_>>(),
        "leaksNotTold": report.leaks_left_out,
        "allocations": report.allocations,
        "failedCalls": calls.collect::<Vec<_>>(),
        "notLookedAt": report.unlooked,
        "deviceUsed": report.device != Device::Unused,
        "executorLost": report.device == Device::Lost,
    })
}

fn place(at: &At, text: &str, thread: [u32; 3]) -> Value {
    let (kind, file, line) = at.parts();
    json!({ "in": kind, "file": file, "line": line, "text": text, "thread": thread })
}

fn wrong(wrong: &Wrong) -> Value {
    let other = wrong.other.as_ref().map(|other| {
        let mut value = place(&other.at, &other.text, other.thread);
        value["block"] = json!(other.block);
        value
    });
    let mut value = place(&wrong.at, &wrong.text, wrong.thread);
    if let Value::Object(members) = &mut value {
        let more = [
            ("tool", json!(wrong.tool)),
            ("kind", json!(wrong.kind)),
            ("kernel", json!(wrong.kernel)),
            ("name", json!(readable(&wrong.kernel))),
            ("block", json!(wrong.block)),
            ("what", json!(wrong.what)),
            ("count", json!(wrong.count)),
            ("other", json!(other)),
        ];
        members.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    value
}
