//! The figures: what each is, and its bar.
//!
//! A new figure is a row of [`FIGURES`], and a [`super::worker::Findings::add`] with its name in a worker.

use clap::ValueEnum;

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
}

impl Group {
    pub(super) const ALL: [Self; 4] = [Self::Launches, Self::Copies, Self::Allocations, Self::Ping];

    /// As the command line has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Launches => "launches",
            Self::Copies => "copies",
            Self::Allocations => "allocations",
            Self::Ping => "ping",
        }
    }

    /// Whether there is such a thing without Bulkhead.
    pub(super) fn exists_natively(self) -> bool {
        self != Self::Ping
    }
}

/// What a figure counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Nanoseconds,
    Milliseconds,
    /// 10^9 bytes per second.
    Gigabytes,
    PerSecond,
}

impl Unit {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Milliseconds => "ms",
            Self::Gigabytes => "GB/s",
            Self::PerSecond => "/s",
        }
    }

    /// A value for people.
    pub(super) fn show(self, value: f64) -> String {
        let label = self.label();
        match self {
            Self::Nanoseconds if value.abs() < 1000.0 => format!("{value:.1} {label}"),
            Self::Nanoseconds | Self::PerSecond => format!("{value:.0} {label}"),
            Self::Milliseconds | Self::Gigabytes => format!("{value:.2} {label}"),
        }
    }
}

/// What a figure has to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bar {
    /// In the figure's unit.
    AtMost(f64),
    /// No more than this beyond the native figure.
    AtMostNativePlus(f64),
    /// No less than this share of the native figure.
    AtLeastNativeTimes(f64),
    /// For information.
    None,
}

/// Whether a figure reaches its bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Met,
    Missed,
    /// There is no bar, or nothing to hold it against.
    NotJudged,
}

impl Verdict {
    fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::Missed }
    }
}

impl Bar {
    /// For people.
    pub(super) fn show(self, unit: Unit) -> String {
        match self {
            Self::AtMost(most) => format!("<= {most} {}", unit.label()),
            Self::AtMostNativePlus(more) => format!("<= native + {more} {}", unit.label()),
            Self::AtLeastNativeTimes(share) => format!(">= {share:.2} of native"),
            Self::None => "-".to_owned(),
        }
    }

    pub(super) fn judge(self, native: Option<f64>, bulkhead: Option<f64>) -> Verdict {
        match (self, native, bulkhead) {
            (Self::AtMost(most), _, Some(ours)) => Verdict::of(ours <= most),
            (Self::AtMostNativePlus(more), Some(theirs), Some(ours)) => Verdict::of(ours <= theirs + more),
            (Self::AtLeastNativeTimes(share), Some(theirs), Some(ours)) => {
                Verdict::of(ours >= theirs * share)
            }
            (Self::AtMostNativePlus(_) | Self::AtLeastNativeTimes(_) | Self::AtMost(_), _, _)
            | (Self::None, _, _) => Verdict::NotJudged,
        }
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

use Bar::{AtLeastNativeTimes, AtMost, AtMostNativePlus};
use Group::{Allocations, Copies, Launches, Ping};
use Unit::{Gigabytes, Milliseconds, Nanoseconds, PerSecond};

/// Every figure, in the order of the table.
#[rustfmt::skip]
pub(super) static FIGURES: [Figure; 23] = [
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
    figure(Copies, "h2d_4b_ns", Nanoseconds, Bar::None, "cuMemcpyHtoD of 4 bytes, median"),
    figure(Copies, "h2d_4kib_ns", Nanoseconds, Bar::None, "of 4 KiB"),
    figure(Copies, "h2d_64kib_ns", Nanoseconds, Bar::None, "of 64 KiB"),
    figure(Copies, "h2d_1mib_ns", Nanoseconds, Bar::None, "of 1 MiB"),
    figure(Copies, "d2h_4b_ns", Nanoseconds, Bar::None, "cuMemcpyDtoH of 4 bytes, median"),
    figure(Copies, "d2h_4kib_ns", Nanoseconds, Bar::None, "of 4 KiB"),
    figure(Copies, "d2h_64kib_ns", Nanoseconds, Bar::None, "of 64 KiB"),
    figure(Copies, "d2h_1mib_ns", Nanoseconds, Bar::None, "of 1 MiB"),
    figure(Allocations, "alloc_free_ns", Nanoseconds, Bar::None, "cuMemAlloc and cuMemFree of 1 MiB, median"),
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
    }

    #[test]
    fn a_bar_is_met_at_its_edge_and_missed_beyond_it() {
        let plus = AtMostNativePlus(600.0);
        assert_eq!(plus.judge(Some(7800.0), Some(8400.0)), Verdict::Met);
        assert_eq!(plus.judge(Some(7800.0), Some(8400.5)), Verdict::Missed);
        let share = AtLeastNativeTimes(0.5);
        assert_eq!(share.judge(Some(50.0), Some(25.0)), Verdict::Met);
        assert_eq!(share.judge(Some(50.0), Some(24.9)), Verdict::Missed);
        assert_eq!(AtMost(150.0).judge(None, Some(150.0)), Verdict::Met);
        assert_eq!(AtMost(150.0).judge(Some(3000.0), Some(151.0)), Verdict::Missed);
    }

    #[test]
    fn nothing_is_judged_without_both_sides_or_without_a_bar() {
        assert_eq!(AtMostNativePlus(600.0).judge(None, Some(1.0)), Verdict::NotJudged);
        assert_eq!(AtLeastNativeTimes(1.0).judge(Some(1.0), None), Verdict::NotJudged);
        assert_eq!(AtMost(150.0).judge(Some(1.0), None), Verdict::NotJudged);
        assert_eq!(Bar::None.judge(Some(1.0), Some(1.0)), Verdict::NotJudged);
    }

    #[test]
    fn a_figure_that_is_no_number_misses_its_bar() {
        assert_eq!(AtMost(150.0).judge(None, Some(f64::NAN)), Verdict::Missed);
        assert_eq!(AtLeastNativeTimes(1.0).judge(Some(1.0), Some(f64::NAN)), Verdict::Missed);
    }
}
