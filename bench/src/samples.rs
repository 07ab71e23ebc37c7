//! What is told of many samples.

use serde_json::{Value, json};

/// Samples of one figure, in its unit.
#[derive(Debug, Default, Clone)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    /// Room for `count` of them, so that taking one allocates nothing.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    pub(super) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// What is told of them; `None` where there are none.
    pub(super) fn summary(mut self) -> Option<Summary> {
        self.0.sort_by(f64::total_cmp);
        Some(Summary {
            count: self.0.len(),
            least: *self.0.first()?,
            lower_quartile: percentile(&self.0, 250)?,
            median: middle(&self.0)?,
            upper_quartile: percentile(&self.0, 750)?,
            p99: percentile(&self.0, 990)?,
            most: *self.0.last()?,
        })
    }
}

/// The distribution of many samples, in the figure's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    pub(super) count: usize,
    pub(super) least: f64,
    pub(super) lower_quartile: f64,
    pub(super) median: f64,
    pub(super) upper_quartile: f64,
    pub(super) p99: f64,
    pub(super) most: f64,
}

impl Summary {
    pub(super) fn json(&self) -> Value {
        json!({
            "count": self.count,
            "min": self.least,
            "p25": self.lower_quartile,
            "p50": self.median,
            "p75": self.upper_quartile,
            "p99": self.p99,
            "max": self.most,
        })
    }
}

/// The median of values in any order; of an even number, the mean of the middle two.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    middle(&sorted)
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(sorted[half - 1], upper)) }
}

/// The least of the sorted values that `per_mille` of them do not exceed (nearest rank).
fn percentile(sorted: &[f64], per_mille: usize) -> Option<f64> {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 100.0, 2.0]), Some(3.0));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_percentile_is_the_nearest_rank() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&sorted, 990), Some(99.0));
        assert_eq!(percentile(&sorted, 500), Some(50.0));
        assert_eq!(percentile(&sorted, 1000), Some(100.0));
        assert_eq!(percentile(&sorted, 0), Some(1.0));
        assert_eq!(percentile(&sorted[..3], 990), Some(3.0));
        assert_eq!(percentile(&[], 990), None);
    }

    #[test]
    fn one_slow_sample_moves_the_tail_and_not_the_median() {
        let mut samples = Samples::with_capacity(50);
        for _ in 0..49 {
            samples.push(2.0);
        }
        samples.push(1000.0);
        let summary = samples.summary().unwrap();
        assert_eq!((summary.median, summary.p99, summary.most), (2.0, 1000.0, 1000.0));
        assert_eq!((summary.count, summary.least), (50, 2.0));
        assert_eq!(Samples::default().summary(), None);
    }
}
