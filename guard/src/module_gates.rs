//! Gates of protected modules, from the text of their author.

use bulkhead_verifier::Gates;

use crate::claims::Claiming;
use crate::confine;
use crate::data::Data;
use crate::report::Report;

/// The variables of a module's gates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GateWindow {
    /// Those in the device's memory, from the window's first byte on.
    pub device: Data,
    /// Managed ones, from the first byte of the host memory on that the window ends with.
    pub host: Data,
}

impl GateWindow {
    /// Bytes of host memory that the window ends with: whole pages of 2 MiB, 0 where no variable is managed.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        self.host.bytes.next_multiple_of(WINDOW_PAGE_BYTES)
    }

    /// Bytes that a window has at least: a power of two that both parts fit in.
    #[must_use]
    pub fn bytes_min(&self) -> u64 {
        let device = self.device.bytes.max(1).next_multiple_of(WINDOW_PAGE_BYTES);
        (device + self.host_bytes()).next_power_of_two()
    }
}

/// Pages of a module's window.
const WINDOW_PAGE_BYTES: u64 = 2 << 20;

/// Adds the gates of a module, which are the `.visible` functions of its author's text, and answers what lies in its window:
/// what that holds at first the module's host half writes there. `module` is what an entry that calls them says it needs
/// ([`VerifiedEntry::modules`](crate::VerifiedEntry::modules)).
///
/// # Errors
/// What stands against the text. Some of its gates may have been added then.
pub fn add_gates(gates: &mut Gates, module: &str, text: &str) -> Result<GateWindow, Report> {
    let (images, window) = confine::gate_images(&crate::parse(text)?)?;
    for image in images {
        gates.add(module, image, &mut Claiming::default())?;
    }
    Ok(window)
}
