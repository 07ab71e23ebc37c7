//! What is told: of all sessions, or of those of one `bulkhead run`.

use std::{env, fs};

use bulkhead_client::{Column, Device, uuid_text};
use bulkhead_schema::{CUDA_VERSION, limits_told};

use crate::{Failure, output::plain, status};

/// The column of device memory.
const DEVICE_BYTES: &str = "device_bytes";
/// What limits the sessions of a program.
const LIMITS: &str = "BULKHEAD_LIMITS";
/// `CUdevice_attribute`: compute capability, and place on the PCI bus.
const CAPABILITY: [u32; 2] = [75, 76];
const PCI: [u32; 3] = [50, 33, 34];
/// Processes between a program and what started it, at most.
const GENERATIONS: usize = 1024;

/// All of it.
pub(super) struct View {
    pub(super) cards: Vec<Card>,
    pub(super) driver_version: String,
    pub(super) cuda_version: String,
}

/// A device as the sessions see it.
pub(super) struct Card {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) bus_id: String,
    pub(super) capability: String,
    /// What may be used, in bytes.
    pub(super) total: u64,
    /// What of that is left.
    pub(super) free: u64,
    pub(super) processes: Vec<Process>,
}

/// A session's process.
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) session: u32,
    /// As the client called the session; shown safely.
    pub(super) name: String,
    /// Charged to it.
    pub(super) bytes: u64,
}

/// How much of the device's memory is used, and how much may be.
fn memory(ledger: &[Column]) -> (u64, u64) {
    let column = ledger.iter().find(|column| column.name == DEVICE_BYTES);
    column.map_or((0, 0), |column| (column.used, column.limit))
}

impl View {
    /// `run` is the process of `bulkhead run`, if only its sessions are meant.
    pub(super) fn of(
        devices: &[Device],
        statuses: &[status::Device],
        sessions: &[status::Session],
        run: Option<u32>,
    ) -> Result<Self, Failure> {
        let most = if run.is_some() { limit()? } else { u64::MAX };
        let card = |device: &Device| {
            let status = statuses.iter().find(|status| status.index == device.index);
            let (used, usable) = status.map_or((0, 0), |status| memory(&status.ledger));
            let shown = |session: &&status::Session| {
                session.device == device.index && run.is_none_or(|run| descends(session.pid, run))
            };
            let shown: Vec<&status::Session> = sessions.iter().filter(shown).collect();
            let total = usable.min(most);
            let (mut total, mut free) = (total, usable.saturating_sub(used).min(total));
            if run.is_some() {
                // Where there are several, of the one with the least.
                for session in &shown {
                    let (used, limit) = memory(&session.ledger);
                    total = total.min(limit);
                    free = free.min(limit.saturating_sub(used));
                }
            }
            let processes = shown.iter().map(|session| Process {
                pid: session.pid,
                session: session.id,
                name: plain(&session.name),
                bytes: memory(&session.ledger).0,
            });
            let number = |number: u32| device.attribute(number).unwrap_or(0);
            let ([major, minor], [domain, bus, place]) = (CAPABILITY.map(number), PCI.map(number));
            Card {
                index: device.index,
                name: plain(&device.name),
                uuid: uuid_text(&device.uuid),
                bus_id: format!("{domain:08X}:{bus:02X}:{place:02X}.0"),
                capability: format!("{major}.{minor}"),
                total,
                free,
                processes: processes.collect(),
            }
        };
        Ok(Self {
            cards: devices.iter().map(card).collect(),
            driver_version: bulkhead_client::driver_version(),
            cuda_version: format!("{}.{}", CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10),
        })
    }
}

impl Card {
    /// What is not free, as NVML's drop-in counts.
    pub(super) fn used(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }

    /// Whether it is called so.
    pub(super) fn is(&self, id: &str) -> bool {
        let short = self.bus_id.get(4..).unwrap_or_default();
        id == self.index.to_string()
            || [self.uuid.as_str(), &self.bus_id, short].iter().any(|known| known.eq_ignore_ascii_case(id))
    }
}

/// The most memory that a session of this environment may have.
fn limit() -> Result<u64, Failure> {
    let text = env::var(LIMITS).unwrap_or_default();
    let told = limits_told(&text).ok_or_else(|| {
        Failure::new(format!("{LIMITS}: {text:?} is no list of COLUMN=AMOUNT, such as `device_bytes=1GiB`"))
    })?;
    Ok(told
        .iter()
        .filter(|(column, _)| *column == DEVICE_BYTES)
        .map(|(_, most)| *most)
        .min()
        .unwrap_or(u64::MAX))
}

/// Whether a process is another one, or was started below it.
fn descends(mut process: u32, ancestor: u32) -> bool {
    for _ in 0..GENERATIONS {
        if process == ancestor {
            return true;
        }
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        match parent(&stat) {
            Some(parent) if parent > 1 => process = parent,
            Some(_) | None => return false,
        }
    }
    false
}

/// The parent in a line of `/proc/PID/stat`: behind the name, which may hold anything, and the state.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent("17 (a) 1 (b) S 42 17 17 0"), Some(42));
        assert_eq!(parent("17 (sh"), None);
        assert_eq!(parent(""), None);
    }

    #[test]
    fn a_process_descends_from_itself_and_from_its_parent_and_not_from_its_child() {
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        assert!(descends(own, own) && descends(own, parent));
        assert!(!descends(parent, own) && !descends(own, u32::MAX));
    }
}
