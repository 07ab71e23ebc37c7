//! `--query-gpu` and `--query-compute-apps`.

use super::{
    Format,
    view::{Card, View},
};
use crate::Failure;

/// How values are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a>(pub(super) &'a [Format]);

impl Shown<'_> {
    fn has(self, format: Format) -> bool {
        self.0.contains(&format)
    }
}

/// What is asked for and not told.
const NOT_TOLD: &str = "[N/A]";

/// Of the card as a whole, or of the machine: nvidia-smi's names, by how they begin.
const OF_THE_CARD: &[&str] = &[
    "accounting.",
    "addressing_mode",
    "clocks",
    "clocks_",
    "compute_mode",
    "confidential_",
    "display_",
    "driver_model.",
    "ecc.",
    "encoder.",
    "enforced.",
    "fabric.",
    "fan.",
    "gom.",
    "gpu_recovery_action",
    "gpu_serial",
    "gsp.",
    "hostname",
    "inforom.",
    "memory.reserved",
    "mig.",
    "module_id",
    "pci.",
    "pcie.",
    "persistence_mode",
    "platform.",
    "power.",
    "protected_memory.",
    "pstate",
    "remapped_rows.",
    "reset_status.",
    "retired_pages.",
    "serial",
    "temperature.",
    "timestamp",
    "utilization.",
    "vbios_version",
    "vgpu_",
    "virtualization_",
];

enum Value {
    Text(String),
    Bytes(u64),
    NotTold,
}

fn is_of_the_card(field: &str) -> bool {
    OF_THE_CARD.iter().any(|known| field.starts_with(known))
}

fn of_device(view: &View, card: &Card, field: &str) -> Option<Value> {
    Some(match field {
        "index" => Value::Text(card.index.to_string()),
        "count" => Value::Text(view.cards.len().to_string()),
        "name" | "gpu_name" => Value::Text(card.name.clone()),
        "uuid" | "gpu_uuid" => Value::Text(card.uuid.clone()),
        "pci.bus_id" | "gpu_bus_id" => Value::Text(card.bus_id.clone()),
        "driver_version" => Value::Text(view.driver_version.clone()),
        "compute_cap" => Value::Text(card.capability.clone()),
        "memory.total" => Value::Bytes(card.total),
        "memory.used" => Value::Bytes(card.used()),
        "memory.free" => Value::Bytes(card.free),
        card if is_of_the_card(card) => Value::NotTold,
        _ => return None,
    })
}

/// Whether a field has a unit.
fn is_memory(field: &str) -> bool {
    matches!(field, "memory.total" | "memory.used" | "memory.free" | "used_memory" | "used_gpu_memory")
}

fn written(value: Value, shown: Shown<'_>) -> String {
    match value {
        Value::Text(text) => text,
        Value::Bytes(bytes) if shown.has(Format::Nounits) => (bytes >> 20).to_string(),
        Value::Bytes(bytes) => format!("{} MiB", bytes >> 20),
        Value::NotTold => NOT_TOLD.to_owned(),
    }
}

fn header(fields: &[&str], shown: Shown<'_>) -> String {
    let name = |field: &&str| if is_memory(field) { format!("{field} [MiB]") } else { (*field).to_owned() };
    if shown.has(Format::Noheader) {
        String::new()
    } else {
        fields.iter().map(name).collect::<Vec<_>>().join(", ") + "\n"
    }
}

fn unknown(field: &str, known: &str) -> Failure {
    Failure::new(format!("{field:?} is no field that may be asked for: {known}, ... (see --help)"))
}

fn trimmed(fields: &[String]) -> Vec<&str> {
    fields.iter().map(|field| field.trim()).collect()
}

pub(super) fn devices(view: &View, fields: &[String], shown: Shown<'_>) -> Result<String, Failure> {
    let fields = trimmed(fields);
    let mut text = header(&fields, shown);
    for card in &view.cards {
        let value = |field: &&str| {
            let value =
                of_device(view, card, field).ok_or_else(|| unknown(field, "index, name, memory.total"))?;
            Ok(written(value, shown))
        };
        text += &fields.iter().map(value).collect::<Result<Vec<_>, Failure>>()?.join(", ");
        text.push('\n');
    }
    Ok(text)
}

pub(super) fn processes(view: &View, fields: &[String], shown: Shown<'_>) -> Result<String, Failure> {
    const FIELDS: [&str; 9] = [
        "pid",
        "process_name",
        "name",
        "used_memory",
        "used_gpu_memory",
        "gpu_uuid",
        "gpu_name",
        "gpu_bus_id",
        "gpu_serial",
    ];
    let fields = trimmed(fields);
    if let Some(field) = fields.iter().find(|field| !FIELDS.contains(field)) {
        return Err(unknown(field, "pid, process_name, used_memory"));
    }
    let mut text = header(&fields, shown);
    for card in &view.cards {
        for process in &card.processes {
            let value = |field: &&str| {
                let value = match *field {
                    "pid" => Value::Text(process.pid.to_string()),
                    "process_name" | "name" => Value::Text(process.name.clone()),
                    "used_memory" | "used_gpu_memory" => Value::Bytes(process.bytes),
                    field => of_device(view, card, field).unwrap_or(Value::NotTold),
                };
                written(value, shown)
            };
            text += &fields.iter().map(value).collect::<Vec<_>>().join(", ");
            text.push('\n');
        }
    }
    Ok(text)
}
