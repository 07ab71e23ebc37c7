//! The figures: what each is, and its bar.
//!
//! A new figure is a row of [`FIGURES`], and a `Findings::add` with its name in a worker.

use clap::ValueEnum;

use super::bars::{Bar, Unit};

/// What a worker measures in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Opening a context, kernel launches and waiting for them.
    Launches,
    /// Copies between host and device.
    Copies,
    /// Device memory.
    Allocations,
    /// Round trips to the kernel process.
    Ping,
    /// Opening and closing sessions.
    Sessions,
    /// Taking capabilities, and the memory behind them, back.
    Revocation,
    /// What a client that is killed held.
    Cleanup,
    /// Four sessions that hand their results on.
    Dataflow,
    /// Losing the executor.
    Failover,
    /// More memory than the device has.
    Swapping,
    /// Loading code.
    Loading,
    /// Checking and revoking capabilities, in one process.
    Capabilities,
}

/// Where a group is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On whatever driver the loader finds: on both sides.
    Driver,
    /// On the kernel that Bulkhead's side of the driver's figures runs on.
    Kernel,
    /// On a kernel of its own, with a standby.
    Standby,
    /// On a kernel of its own, with little device memory and some to swap to.
    LittleMemory,
    /// On a kernel of its own, with a cache of its own.
    Cache,
    /// In the worker alone.
    Worker,
}

impl Group {
    pub(super) const ALL: [Self; 12] = [
        Self::Launches,
        Self::Copies,
        Self::Allocations,
        Self::Ping,
        Self::Sessions,
        Self::Revocation,
        Self::Cleanup,
        Self::Dataflow,
        Self::Failover,
        Self::Swapping,
        Self::Loading,
        Self::Capabilities,
    ];

    /// As the command line has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Launches => "launches",
            Self::Copies => "copies",
            Self::Allocations => "allocations",
            Self::Ping => "ping",
            Self::Sessions => "sessions",
            Self::Revocation => "revocation",
            Self::Cleanup => "cleanup",
            Self::Dataflow => "dataflow",
            Self::Failover => "failover",
            Self::Swapping => "swapping",
            Self::Loading => "loading",
            Self::Capabilities => "capabilities",
        }
    }

    pub(super) fn place(self) -> Place {
        match self {
            Self::Launches | Self::Copies | Self::Allocations => Place::Driver,
            Self::Ping | Self::Sessions | Self::Revocation | Self::Cleanup | Self::Dataflow => Place::Kernel,
            Self::Failover => Place::Standby,
            Self::Swapping => Place::LittleMemory,
            Self::Loading => Place::Cache,
            Self::Capabilities => Place::Worker,
        }
    }

    /// Whether there is such a thing without Bulkhead.
    pub(super) fn exists_natively(self) -> bool {
        self.place() == Place::Driver
    }
}

/// A figure.
#[derive(Debug)]
pub(super) struct Figure {
    /// Scripts know it by this.
    pub(super) name: &'static str,
    pub(super) group: Group,
    pub(super) unit: Unit,
    pub(super) bar: Bar,
    pub(super) meaning: &'static str,
}

const fn figure(group: Group, name: &'static str, unit: Unit, bar: Bar, meaning: &'static str) -> Figure {
    Figure { name, group, unit, bar, meaning }
}

use Bar::{AtLeast, AtLeastNativeTimes, AtLeastOther, AtMost, AtMostNativePlus};
use Group::{
    Allocations, Capabilities, Cleanup, Copies, Dataflow, Failover, Launches, Loading, Ping, Revocation,
    Sessions, Swapping,
};
use Unit::{Gigabytes, Microseconds, Milliseconds, Nanoseconds, PerSecond, Times};

/// Every figure, in the order of the table.
#[rustfmt::skip]
pub(super) static FIGURES: [Figure; 49] = [
    figure(Launches, "launch_ns", Nanoseconds, AtMost(150.0), "time in cuLaunchKernel, bursts of 512 from idle"),
    figure(Launches, "launches_per_s", PerSecond, AtLeastNativeTimes(0.95), "launches without a pause, the wait at the end included"),
    figure(Launches, "launch_sync_p50_ns", Nanoseconds, AtMostNativePlus(600.0), "cuLaunchKernel and cuStreamSynchronize, median"),
    figure(Launches, "launch_sync_p99_ns", Nanoseconds, Bar::None, "the same, 99th percentile"),
    figure(Copies, "pinned_h2d", Gigabytes, AtLeastNativeTimes(0.98), "cuMemcpyHtoDAsync of cuMemHostAlloc memory, and the wait"),
    figure(Copies, "pinned_d2h", Gigabytes, AtLeastNativeTimes(0.98), "cuMemcpyDtoHAsync of cuMemHostAlloc memory, and the wait"),
    figure(Copies, "pageable_h2d", Gigabytes, AtLeastNativeTimes(1.0), "cuMemcpyHtoD of ordinary memory, and the wait"),
    figure(Copies, "pageable_d2h", Gigabytes, AtLeastNativeTimes(1.0), "cuMemcpyDtoH of ordinary memory"),
    figure(Ping, "ping_p50_ns", Nanoseconds, AtMost(20_000.0), "round trip to the kernel process over Cap'n Proto, median"),
    figure(Ping, "ping_p99_ns", Nanoseconds, Bar::None, "the same, 99th percentile"),
    figure(Allocations, "alloc_free_4kib_ns", Nanoseconds, AtMost(1000.0), "cuMemAlloc and cuMemFree of 4 KiB, median"),
    figure(Allocations, "alloc_free_1mib_ns", Nanoseconds, AtMost(1000.0), "of 1 MiB"),
    figure(Allocations, "alloc_free_64mib_ns", Nanoseconds, AtMost(1000.0), "of 64 MiB"),
    figure(Sessions, "session_open_ms", Milliseconds, AtMost(5.0), "connecting and opening a session where others were open before; natively, context_open_ms"),
    figure(Sessions, "session_first_use_ms", Milliseconds, Bar::None, "the same, and its first memory, written and read"),
    figure(Sessions, "session_close_ms", Milliseconds, Bar::None, "from dropping such a session until the kernel knows it no more"),
    figure(Revocation, "revoke_severed_ms", Milliseconds, AtMost(1.0), "from revoking 10,000 descendants (1,000 with --quick) until the client knows them severed"),
    figure(Revocation, "revoke_descendant_ns", Nanoseconds, Bar::None, "the same, for each of them"),
    figure(Revocation, "revoke_quiescent_us", Microseconds, AtMost(300.0), "1 GiB that another, idle session had accepted: from severed to quiescent"),
    figure(Revocation, "revoke_to_quiescent_us", Microseconds, Bar::None, "the same, from the call on"),
    figure(Revocation, "revoke_reclaimed_ms", Milliseconds, AtMost(1.0), "1 GiB of a session's own that is closed: from severed to scrubbed and given back"),
    figure(Revocation, "revoke_to_reclaimed_ms", Milliseconds, Bar::None, "the same, from the call on"),
    figure(Cleanup, "cleanup_returned_ms", Milliseconds, AtMost(100.0), "from killing a client with 20,000 capabilities (2,000 with --quick) until all of them are given back"),
    figure(Cleanup, "cleanup_ping_max_ms", Milliseconds, AtMost(10.0), "another client's slowest ping meanwhile"),
    figure(Cleanup, "cleanup_idle_ping_max_ms", Milliseconds, Bar::None, "the same with nothing to clean up"),
    figure(Dataflow, "dataflow_speedup", Times, AtLeast(2.0), "four stages in four sessions: copies through the host, against shared memory"),
    figure(Dataflow, "dataflow_shared_ms", Milliseconds, Bar::None, "the four stages with read-only shares"),
    figure(Dataflow, "dataflow_copied_ms", Milliseconds, Bar::None, "the four stages with copies through the host"),
    figure(Failover, "failover_ms", Milliseconds, AtMost(1000.0), "from killing the executor until every session has its data and has completed a launch"),
    figure(Failover, "failover_moved_ms", Milliseconds, Bar::None, "until every session has moved to the standby"),
    figure(Swapping, "swap_gb_s", Gigabytes, AtLeastOther("pinned_h2d", 0.8), "bytes moved, both ways, over the time that turns of three sessions take longer with a swap"),
    figure(Swapping, "swap_turn_ms", Milliseconds, Bar::None, "a turn with a swap"),
    figure(Loading, "load_cold_ms", Milliseconds, Bar::None, "PTX with a dozen entries that nobody has loaded: confined, verified, compiled, linted, loaded"),
    figure(Loading, "load_kept_ms", Milliseconds, Bar::None, "the same where its machine code is kept; the software GPU has none"),
    figure(Loading, "load_shared_ms", Milliseconds, Bar::None, "the same where another session has it loaded"),
    figure(Capabilities, "caps_check_ns", Nanoseconds, AtMost(10.0), "checking a submission that names three capabilities of 4,096"),
    figure(Capabilities, "caps_revoke_ns", Nanoseconds, AtMost(30.0), "revoking 10,000 descendants, for each of them"),
    figure(Copies, "h2d_4b_ns", Nanoseconds, Bar::None, "cuMemcpyHtoD of 4 bytes, median"),
    figure(Copies, "h2d_4kib_ns", Nanoseconds, Bar::None, "of 4 KiB"),
    figure(Copies, "h2d_64kib_ns", Nanoseconds, Bar::None, "of 64 KiB"),
    figure(Copies, "h2d_1mib_ns", Nanoseconds, Bar::None, "of 1 MiB"),
    figure(Copies, "d2h_4b_ns", Nanoseconds, Bar::None, "cuMemcpyDtoH of 4 bytes, median"),
    figure(Copies, "d2h_4kib_ns", Nanoseconds, Bar::None, "of 4 KiB"),
    figure(Copies, "d2h_64kib_ns", Nanoseconds, Bar::None, "of 64 KiB"),
    figure(Copies, "d2h_1mib_ns", Nanoseconds, Bar::None, "of 1 MiB"),
    figure(Allocations, "host_alloc_free_ns", Nanoseconds, Bar::None, "cuMemHostAlloc and cuMemFreeHost of 1 MiB, median"),
    figure(Launches, "context_open_ms", Milliseconds, Bar::None, "from opening the library to a context that answers"),
    figure(Launches, "module_load_ms", Milliseconds, Bar::None, "from cuModuleLoadData of a small PTX to its entries"),
    figure(Launches, "first_launch_ms", Milliseconds, Bar::None, "the first launch and the wait for it"),
];

/// The figure of a name.
pub(super) fn find(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_group_has_figures() {
        for (index, figure) in FIGURES.iter().enumerate() {
            assert!(FIGURES[..index].iter().all(|other| other.name != figure.name), "{}", figure.name);
            assert!(find(figure.name).is_some_and(|found| std::ptr::eq(found, figure)));
        }
        for group in Group::ALL {
            assert!(FIGURES.iter().any(|figure| figure.group == group), "{group:?}");
            let shown = group.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(shown.as_deref(), Some(group.name()));
        }
        assert_eq!(Group::ALL.len(), Group::value_variants().len());
    }

    #[test]
    fn what_a_figure_is_held_against_is_a_figure_of_the_same_unit() {
        for figure in &FIGURES {
            if let Some(other) = figure.bar.other() {
                assert_eq!(find(other).map(|other| other.unit), Some(figure.unit), "{}", figure.name);
            }
        }
    }

    #[test]
    fn the_bars_are_those_that_were_agreed() {
        let bar = |name: &str| find(name).map(|figure| figure.bar.show(figure.unit)).unwrap_or_default();
        assert_eq!(bar("launch_ns"), "<= 150 ns");
        assert_eq!(bar("launches_per_s"), ">= 0.95 of native");
        assert_eq!(bar("launch_sync_p50_ns"), "<= native + 600 ns");
        for name in ["pinned_h2d", "pinned_d2h"] {
            assert_eq!(bar(name), ">= 0.98 of native");
        }
        for name in ["pageable_h2d", "pageable_d2h"] {
            assert_eq!(bar(name), ">= 1.00 of native");
        }
        assert_eq!(bar("ping_p50_ns"), "<= 20000 ns");
        for size in ["4kib", "1mib", "64mib"] {
            assert_eq!(bar(&format!("alloc_free_{size}_ns")), "<= 1000 ns");
        }
        assert_eq!(bar("session_open_ms"), "<= 5 ms");
        assert_eq!(bar("revoke_severed_ms"), "<= 1 ms");
        assert_eq!(bar("revoke_quiescent_us"), "<= 300 us");
        assert_eq!(bar("revoke_reclaimed_ms"), "<= 1 ms");
        assert_eq!(bar("cleanup_returned_ms"), "<= 100 ms");
        assert_eq!(bar("cleanup_ping_max_ms"), "<= 10 ms");
        assert_eq!(bar("dataflow_speedup"), ">= 2 times");
        assert_eq!(bar("failover_ms"), "<= 1000 ms");
        assert_eq!(bar("swap_gb_s"), ">= 0.80 of pinned_h2d");
        assert_eq!(bar("caps_check_ns"), "<= 10 ns");
        assert_eq!(bar("caps_revoke_ns"), "<= 30 ns");
    }
}
