//! The one table of what a session may use up, and all sessions together.

use bulkhead_mm::{Amounts, Resource};
use bulkhead_schema::limits;

use crate::{Limits, executor_proxy::DeviceInfo};

/// What a session may use unless its operator, its parent or its terms say less. As much as there is of device memory
/// and of swap, which have limits for all together.
const SESSION: Amounts = Amounts::UNLIMITED
    .with(Resource::HostBytes, limits::HOST_BYTES_MAX)
    .with(Resource::CodeBytes, limits::CODE_BYTES_MAX)
    .with(Resource::KernelBytes, limits::KERNEL_BYTES_MAX)
    .with(Resource::Capabilities, limits::CAPABILITIES_MAX as u64)
    .with(Resource::Images, limits::IMAGES_MAX as u64)
    .with(Resource::Streams, limits::STREAMS_MAX as u64)
    .with(Resource::Events, limits::EVENTS_MAX as u64)
    .with(Resource::Fences, limits::FENCES_MAX)
    .with(Resource::Tokens, limits::STURDY_TOKENS_MAX)
    .with(Resource::Descriptors, limits::SESSION_DESCRIPTORS_MAX)
    .with(Resource::Revocations, limits::REVOCATIONS_MAX as u64)
    .with(Resource::Uploads, limits::UPLOADS_MAX)
    .with(Resource::Gifts, limits::GRANTS_MAX)
    .with(Resource::Sessions, limits::SESSIONS_MAX as u64)
    .with(Resource::Pieces, limits::PIECES_MAX)
    .with(Resource::CompileMilliseconds, limits::COMPILE_MILLISECONDS_MAX);

/// So many sessions have to be there to use all pieces of device memory up.
const SESSIONS_FOR_ALL_PIECES: u64 = 4;
/// Local memory of a thread that needs no room of its own on the device, in bytes: small arrays, and what is spilled.
const USUAL_LOCAL_BYTES: u64 = 12 << 10;
/// A connection's socket and process, and its relay's two.
const DESCRIPTORS_PER_CONNECTION: u64 = 4;

impl Limits {
    /// What a session of a device may use at most.
    pub(crate) fn session_amounts(&self, device: &DeviceInfo) -> Amounts {
        let total = self.total_amounts(device);
        let pieces = total.get(Resource::Pieces) / SESSIONS_FOR_ALL_PIECES;
        let local = (device.memory_bytes / 8).max(limits::LOCAL_BYTES_MAX);
        let fixed = SESSION.with(Resource::LocalBytes, local);
        self.session.min(fixed).min(total.with(Resource::Pieces, pieces))
    }

    /// What all sessions may use together once the driver has taken so many bytes of the device for local memory. It keeps
    /// them, whoever they were for; what kernels usually need is of what is reserved for it.
    pub(crate) fn total_amounts_beside(
        &self,
        device: &DeviceInfo,
        local_bytes: u64,
        other_bytes: u64,
    ) -> Amounts {
        let usual = device.threads().saturating_mul(USUAL_LOCAL_BYTES);
        let more = match device.backend.as_str() {
            // A block has it while it runs, from the host.
            "software" => 0,
            _ => local_bytes.saturating_mul(self.contexts()).saturating_sub(usual),
        };
        let left = self.usable_bytes(device).saturating_sub(more).saturating_sub(other_bytes);
        self.total_amounts(device).min(Amounts::UNLIMITED.with(Resource::DeviceBytes, left))
    }

    /// How many bytes of local memory the driver may take beside so many that are taken of the device.
    pub(crate) fn local_bytes_beside(&self, device: &DeviceInfo, taken_bytes: u64) -> u64 {
        let usual = device.threads().saturating_mul(USUAL_LOCAL_BYTES);
        match device.backend.as_str() {
            "software" => u64::MAX,
            _ => {
                let left = self.usable_bytes(device).saturating_sub(taken_bytes);
                usual.saturating_add(left) / self.contexts()
            }
        }
    }

    /// How many contexts there are that have local memory of their own: a standby loads what is loaded.
    fn contexts(&self) -> u64 {
        1 + u64::from(self.standby)
    }

    /// What all sessions of a device may use together.
    pub(crate) fn total_amounts(&self, device: &DeviceInfo) -> Amounts {
        let fixed = Amounts::UNLIMITED
            .with(Resource::DeviceBytes, self.usable_bytes(device))
            .with(Resource::HostBytes, self.host_bytes)
            .with(Resource::Descriptors, self.descriptors())
            .with(Resource::KernelBytes, self.kernel_bytes)
            .with(Resource::CodeBytes, (device.memory_bytes / 8).max(limits::CODE_BYTES_MAX))
            .with(Resource::SwapBytes, self.swap_bytes)
            .with(Resource::Pieces, self.pieces(device));
        self.total.min(fixed)
    }
}

impl Limits {
    /// How many pieces of device memory all sessions may have together. On the software GPU each is a descriptor and a mapping
    /// of its executor's, which may have as many as this process, and starts sessions and images whatever clients do.
    fn pieces(&self, device: &DeviceInfo) -> u64 {
        if device.backend != "software" {
            return u64::MAX;
        }
        let all = open_files();
        let own = u64::from(self.sessions_max)
            .saturating_mul(limits::EXECUTOR_DESCRIPTORS_PER_SESSION)
            .saturating_add(limits::DESCRIPTORS_RESERVED);
        all.saturating_sub(own).max(all / 4).min(mappings() / 4)
    }

    /// How many descriptors all sessions may have together: what the system lets this process have, less what it needs
    /// for connections, and a reserve, with which it starts executors and compile processes whatever clients do. Each may be
    /// host memory, which an executor maps.
    fn descriptors(&self) -> u64 {
        let all = open_files();
        let connections = self.connections_max.saturating_add(limits::DESCRIPTOR_CONNECTIONS_MAX) as u64;
        let own = connections
            .saturating_mul(DESCRIPTORS_PER_CONNECTION)
            .saturating_add(limits::DESCRIPTORS_RESERVED);
        all.saturating_sub(own).max(all / 4).min(mappings() / 4)
    }
}

/// How many mappings a process may have; what Linux lets it have unless it is told otherwise, where that cannot be read.
fn mappings() -> u64 {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    most.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(65_530)
}

/// How many descriptors this process may have, and each that it starts.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_limit() {
        let device = DeviceInfo {
            backend: "software".into(),
            name: String::new(),
            uuid: Vec::new(),
            memory_bytes: 1 << 30,
            driver_version: 0,
            architecture: 90,
            attributes: Vec::new(),
            strict: false,
        };
        let amounts = Limits::default().session_amounts(&device);
        for resource in Resource::ALL {
            assert!(amounts.get(resource) < u64::MAX, "{}", resource.key());
        }
    }

    #[test]
    fn an_operator_lowers_limits_and_does_not_raise_those_of_the_protocol() {
        let device = DeviceInfo {
            backend: "software".into(),
            name: String::new(),
            uuid: Vec::new(),
            memory_bytes: 1 << 30,
            driver_version: 0,
            architecture: 90,
            attributes: Vec::new(),
            strict: false,
        };
        let session = Amounts::UNLIMITED.with(Resource::Streams, 1000).with(Resource::Images, 3);
        let total = Amounts::UNLIMITED.with(Resource::Events, 5);
        let amounts = Limits { session, total, ..Limits::default() }.session_amounts(&device);
        assert_eq!(amounts.get(Resource::Streams), u64::from(limits::STREAMS_MAX));
        assert_eq!((amounts.get(Resource::Images), amounts.get(Resource::Events)), (3, 5));
    }

    #[test]
    fn pieces_of_memory_leave_an_executor_descriptors_and_one_session_leaves_others_some() {
        let mut device = DeviceInfo {
            backend: "software".into(),
            name: String::new(),
            uuid: Vec::new(),
            memory_bytes: 1 << 40,
            driver_version: 0,
            architecture: 90,
            attributes: Vec::new(),
            strict: false,
        };
        let limits = Limits::default();
        let (one, all) = (limits.session_amounts(&device), limits.total_amounts(&device));
        assert!(all.get(Resource::Pieces) < open_files());
        assert!(one.get(Resource::Pieces) <= all.get(Resource::Pieces) / 4);
        device.backend = "cuda".into();
        assert_eq!(limits.session_amounts(&device).get(Resource::Pieces), limits::PIECES_MAX);
    }
}
