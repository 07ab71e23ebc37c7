//! What figures count in, and what they have to reach.

/// What a figure counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Nanoseconds,
    Microseconds,
    Milliseconds,
    /// 10^9 bytes per second.
    Gigabytes,
    PerSecond,
    /// How many times as fast.
    Times,
}

impl Unit {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Gigabytes => "GB/s",
            Self::PerSecond => "/s",
            Self::Times => "times",
        }
    }

    /// A value for people.
    pub(super) fn show(self, value: f64) -> String {
        let label = self.label();
        match self {
            Self::Nanoseconds if value.abs() < 1000.0 => format!("{value:.1} {label}"),
            Self::Nanoseconds | Self::PerSecond => format!("{value:.0} {label}"),
            Self::Microseconds => format!("{value:.1} {label}"),
            Self::Milliseconds | Self::Gigabytes | Self::Times => format!("{value:.2} {label}"),
        }
    }
}

/// What a figure has to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bar {
    /// In the figure's unit.
    AtMost(f64),
    /// In the figure's unit.
    AtLeast(f64),
    /// No more than this beyond the native figure.
    AtMostNativePlus(f64),
    /// No less than this share of the native figure.
    AtLeastNativeTimes(f64),
    /// No less than this share of the figure of this name, as Bulkhead has it in the same run.
    AtLeastOther(&'static str, f64),
    /// For information.
    None,
}

/// What there is to judge a figure by.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) native: Option<f64>,
    pub(super) bulkhead: Option<f64>,
    /// Bulkhead's value of the [`Bar::other`] figure.
    pub(super) other: Option<f64>,
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
            Self::AtLeast(least) => format!(">= {least} {}", unit.label()),
            Self::AtMostNativePlus(more) => format!("<= native + {more} {}", unit.label()),
            Self::AtLeastNativeTimes(share) => format!(">= {share:.2} of native"),
            Self::AtLeastOther(name, share) => format!(">= {share:.2} of {name}"),
            Self::None => "-".to_owned(),
        }
    }

    /// The figure that this one is held against, where that is not its native self.
    pub(super) fn other(self) -> Option<&'static str> {
        match self {
            Self::AtLeastOther(name, _) => Some(name),
            Self::AtMost(_)
            | Self::AtLeast(_)
            | Self::AtMostNativePlus(_)
            | Self::AtLeastNativeTimes(_)
            | Self::None => None,
        }
    }

    pub(super) fn judge(self, seen: Seen) -> Verdict {
        let Some(ours) = seen.bulkhead else { return Verdict::NotJudged };
        let met = match self {
            Self::AtMost(most) => Some(ours <= most),
            Self::AtLeast(least) => Some(ours >= least),
            Self::AtMostNativePlus(more) => seen.native.map(|theirs| ours <= theirs + more),
            Self::AtLeastNativeTimes(share) => seen.native.map(|theirs| ours >= theirs * share),
            Self::AtLeastOther(_, share) => seen.other.map(|other| ours >= other * share),
            Self::None => None,
        };
        met.map_or(Verdict::NotJudged, Verdict::of)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Bar::{AtLeast, AtLeastNativeTimes, AtLeastOther, AtMost, AtMostNativePlus},
        *,
    };

    fn judge(bar: Bar, native: impl Into<Option<f64>>, bulkhead: impl Into<Option<f64>>) -> Verdict {
        bar.judge(Seen { native: native.into(), bulkhead: bulkhead.into(), other: None })
    }

    #[test]
    fn a_bar_is_met_at_its_edge_and_missed_beyond_it() {
        let plus = AtMostNativePlus(600.0);
        assert_eq!(judge(plus, 7800.0, 8400.0), Verdict::Met);
        assert_eq!(judge(plus, 7800.0, 8400.5), Verdict::Missed);
        let share = AtLeastNativeTimes(0.5);
        assert_eq!(judge(share, 50.0, 25.0), Verdict::Met);
        assert_eq!(judge(share, 50.0, 24.9), Verdict::Missed);
        assert_eq!(judge(AtMost(150.0), None, 150.0), Verdict::Met);
        assert_eq!(judge(AtMost(150.0), 3000.0, 151.0), Verdict::Missed);
        assert_eq!(judge(AtLeast(2.0), None, 2.0), Verdict::Met);
        assert_eq!(judge(AtLeast(2.0), 0.1, 1.99), Verdict::Missed);
    }

    #[test]
    fn a_share_of_another_figure_is_judged_by_that_figure_and_not_by_the_native_one() {
        let bar = AtLeastOther("pinned_h2d", 0.5);
        assert_eq!(bar.other(), Some("pinned_h2d"));
        assert_eq!(bar.show(Unit::Gigabytes), ">= 0.50 of pinned_h2d");
        let seen = |other| Seen { native: Some(1.0), bulkhead: Some(25.0), other };
        assert_eq!(bar.judge(seen(Some(50.0))), Verdict::Met);
        assert_eq!(bar.judge(seen(Some(50.1))), Verdict::Missed);
        assert_eq!(bar.judge(seen(None)), Verdict::NotJudged);
        assert_eq!(AtLeast(2.0).other(), None);
    }

    #[test]
    fn nothing_is_judged_without_both_sides_or_without_a_bar() {
        assert_eq!(judge(AtMostNativePlus(600.0), None, 1.0), Verdict::NotJudged);
        assert_eq!(judge(AtLeastNativeTimes(1.0), 1.0, None), Verdict::NotJudged);
        assert_eq!(judge(AtMost(150.0), 1.0, None), Verdict::NotJudged);
        assert_eq!(judge(AtLeast(1.0), 1.0, None), Verdict::NotJudged);
        assert_eq!(judge(Bar::None, 1.0, 1.0), Verdict::NotJudged);
    }

    #[test]
    fn a_figure_that_is_no_number_misses_its_bar() {
        assert_eq!(judge(AtMost(150.0), None, f64::NAN), Verdict::Missed);
        assert_eq!(judge(AtLeast(0.0), None, f64::NAN), Verdict::Missed);
        assert_eq!(judge(AtLeastNativeTimes(1.0), 1.0, f64::NAN), Verdict::Missed);
    }
}
