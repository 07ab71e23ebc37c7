//! Everything that was measured, as a table and as JSON.

use std::{collections::HashMap, fmt::Write as _};

use serde_json::{Value, json};

use super::{
    bars::{Bar, Seen, Verdict},
    figures::{self, FIGURES, Figure, Group},
    machine,
    samples::median,
    turns::Side,
    worker::Effort,
};

/// Of the JSON document.
const FORMAT: u32 = 1;

/// What a worker found.
#[derive(Debug, Clone)]
pub(super) struct Driver {
    /// The file that the loader found.
    pub(super) library: String,
    /// The first device's name.
    pub(super) device: String,
    /// 13000 for CUDA 13.0.
    pub(super) cuda_version: i64,
}

impl Driver {
    fn json(&self) -> Value {
        json!({"library": self.library, "device": self.device, "cuda_version": self.cuda_version})
    }
}

/// What was measured.
pub(super) struct Report {
    groups: Vec<Group>,
    effort: Effort,
    rounds: usize,
    native: Result<Driver, String>,
    bulkhead: Driver,
    date: String,
    values: HashMap<(&'static str, &'static str), Vec<f64>>,
    failures: Vec<String>,
    raw: Vec<Value>,
}

/// A figure of both sides.
struct Row<'a> {
    figure: &'static Figure,
    native_rounds: &'a [f64],
    bulkhead_rounds: &'a [f64],
    seen: Seen,
    verdict: Verdict,
}

impl Report {
    pub(super) fn new(
        groups: Vec<Group>,
        effort: Effort,
        rounds: usize,
        native: Result<Driver, String>,
        bulkhead: Driver,
    ) -> Self {
        let date = machine::now();
        let (values, failures, raw) = (HashMap::new(), Vec::new(), Vec::new());
        Self { groups, effort, rounds, native, bulkhead, date, values, failures, raw }
    }

    pub(super) fn groups(&self) -> &[Group] {
        &self.groups
    }

    pub(super) fn effort(&self) -> Effort {
        self.effort
    }

    pub(super) fn rounds(&self) -> usize {
        self.rounds
    }

    pub(super) fn has_native(&self) -> bool {
        self.native.is_ok()
    }

    /// A worker's object.
    pub(super) fn add(&mut self, side: Side, round: usize, found: Value) {
        for figure in &FIGURES {
            if let Some(value) = found["figures"][figure.name]["value"].as_f64() {
                self.values.entry((side.name(), figure.name)).or_default().push(value);
            }
        }
        if let Some(failed) = found["failed"].as_object() {
            for (what, why) in failed {
                self.fail(side, round, &format!("{what}: {}", why.as_str().unwrap_or("no reason given")));
            }
        }
        if let Some(absent) = found["absent"].as_str() {
            self.fail(side, round, &format!("the driver is gone: {absent}"));
        }
        self.raw.push(json!({"side": side.name(), "round": round, "found": found}));
    }

    /// What could not be measured.
    pub(super) fn fail(&mut self, side: Side, round: usize, why: &str) {
        self.failures.push(format!("{}, round {round}: {why}", side.name()));
    }

    /// Whether the bars mean anything: the same GPU on both sides.
    fn comparable(&self) -> Result<(), String> {
        match &self.native {
            Err(absent) => Err(format!("no bar is judged: no native driver ({absent})")),
            // The library OS may say more than the name, never less.
            Ok(native) if !self.bulkhead.device.contains(&native.device) => Err(format!(
                "no bar is judged: native is {}, Bulkhead runs on {}",
                native.device, self.bulkhead.device
            )),
            Ok(_) => Ok(()),
        }
    }

    fn of(&self, side: Side, figure: &Figure) -> &[f64] {
        self.values.get(&(side.name(), figure.name)).map_or(&[], Vec::as_slice)
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let judged = self.comparable().is_ok();
        let figures = FIGURES.iter().filter(|figure| self.groups.contains(&figure.group));
        figures
            .map(|figure| {
                let (native_rounds, bulkhead_rounds) =
                    (self.of(Side::Native, figure), self.of(Side::Bulkhead, figure));
                let other = figure.bar.other().and_then(figures::find);
                let seen = Seen {
                    native: median(native_rounds),
                    bulkhead: median(bulkhead_rounds),
                    other: other.and_then(|other| median(self.of(Side::Bulkhead, other))),
                };
                let verdict = if judged { figure.bar.judge(seen) } else { Verdict::NotJudged };
                Row { figure, native_rounds, bulkhead_rounds, seen, verdict }
            })
            .collect()
    }

    /// Whether everything was measured.
    pub(super) fn complete(&self) -> bool {
        let native = |row: &Row<'_>| {
            !self.has_native()
                || !row.figure.group.exists_natively()
                || row.native_rounds.len() == self.rounds
        };
        self.failures.is_empty()
            && self.rows().iter().all(|row| native(row) && row.bulkhead_rounds.len() == self.rounds)
    }

    /// How many bars are missed.
    pub(super) fn missed(&self) -> usize {
        self.rows().iter().filter(|row| row.verdict == Verdict::Missed).count()
    }

    /// For people, and for a document.
    pub(super) fn table(&self) -> String {
        let mut lines = vec![["figure", "native", "bulkhead", "compared", "bar", "met"].map(str::to_owned)];
        lines.extend(self.rows().iter().map(Row::cells));
        let mut widths = [0; 6];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.len());
            }
        }
        let rule = widths.map(|width| "-".repeat(width));
        lines.insert(1, rule);
        let mut text = String::new();
        for line in lines {
            for (cell, width) in line.iter().zip(widths) {
                write!(text, "| {cell:<width$} ").expect("a string takes everything");
            }
            text.push_str("|\n");
        }
        self.notes(&mut text);
        text
    }

    fn notes(&self, text: &mut String) {
        let native = match &self.native {
            Ok(native) => format!("native: {}, {}", native.device, native.library),
            Err(absent) => format!("native: {absent}"),
        };
        let mut notes = vec![
            format!(
                "{}; bulkhead {}; {} effort; medians of {} {}",
                self.date,
                env!("CARGO_PKG_VERSION"),
                self.effort.name(),
                self.rounds,
                if self.rounds == 1 { "round" } else { "rounds" }
            ),
            native,
            format!("bulkhead: {}", self.bulkhead.device),
        ];
        match self.comparable() {
            Err(why) => notes.push(why),
            Ok(()) => {
                let bars = self.rows().iter().filter(|row| row.verdict != Verdict::NotJudged).count();
                notes.push(format!("{} of {bars} bars met", bars - self.missed()));
            }
        }
        match self.effort {
            Effort::Quick => {
                notes.push("quick: this shows that everything works, and measures little".to_owned())
            }
            Effort::Brief => notes.push("brief: fewer and smaller samples, for the software GPU".to_owned()),
            Effort::Full => {}
        }
        notes.extend(self.failures.iter().map(|failure| format!("FAILED {failure}")));
        text.push('\n');
        text.push_str(&notes.join("\n"));
        text.push('\n');
    }

    /// For scripts: every number.
    pub(super) fn json(&self) -> Value {
        let command: Vec<String> =
            std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let figures: Vec<Value> = self.rows().iter().map(Row::json).collect();
        let native = match &self.native {
            Ok(native) => native.json(),
            Err(absent) => json!({"absent": absent}),
        };
        json!({
            "format": FORMAT,
            "date": self.date,
            "version": env!("CARGO_PKG_VERSION"),
            "command": command,
            "machine": machine::describe(),
            "native": native,
            "bulkhead": self.bulkhead.json(),
            "effort": self.effort.name(),
            "rounds": self.rounds,
            "judged": self.comparable().is_ok(),
            "complete": self.complete(),
            "missed": self.missed(),
            "failures": self.failures,
            "figures": figures,
            "workers": self.raw,
        })
    }
}

impl Row<'_> {
    fn ratio(&self) -> Option<f64> {
        Some(self.seen.bulkhead? / self.seen.native?)
    }

    fn difference(&self) -> Option<f64> {
        Some(self.seen.bulkhead? - self.seen.native?)
    }

    /// To the figure that the bar names.
    fn share_of_other(&self) -> Option<f64> {
        Some(self.seen.bulkhead? / self.seen.other?)
    }

    /// As the bar compares: by difference, by ratio to another figure, else by ratio to the native one.
    fn compared(&self) -> Option<String> {
        match self.figure.bar {
            Bar::AtMostNativePlus(_) => {
                let difference = self.difference()?;
                let sign = if difference < 0.0 { '-' } else { '+' };
                Some(format!("{sign}{}", self.figure.unit.show(difference.abs())))
            }
            Bar::AtLeastOther(..) => Some(format!("{:.3}", self.share_of_other()?)),
            Bar::AtMost(_) | Bar::AtLeast(_) | Bar::AtLeastNativeTimes(_) | Bar::None => {
                Some(format!("{:.3}", self.ratio()?))
            }
        }
    }

    fn cells(&self) -> [String; 6] {
        let dash = || "-".to_owned();
        let show = |value: Option<f64>| value.map_or_else(dash, |value| self.figure.unit.show(value));
        let met = match self.verdict {
            Verdict::Met => "yes",
            Verdict::Missed => "NO",
            Verdict::NotJudged => "-",
        };
        [
            self.figure.name.to_owned(),
            show(self.seen.native),
            show(self.seen.bulkhead),
            self.compared().unwrap_or_else(dash),
            self.figure.bar.show(self.figure.unit),
            met.to_owned(),
        ]
    }

    fn json(&self) -> Value {
        let met = match self.verdict {
            Verdict::Met => Value::Bool(true),
            Verdict::Missed => Value::Bool(false),
            Verdict::NotJudged => Value::Null,
        };
        let other = self
            .figure
            .bar
            .other()
            .map(|name| json!({"name": name, "median": self.seen.other, "ratio": self.share_of_other()}));
        json!({
            "name": self.figure.name,
            "group": self.figure.group.name(),
            "meaning": self.figure.meaning,
            "unit": self.figure.unit.label(),
            "native": {"median": self.seen.native, "rounds": self.native_rounds},
            "bulkhead": {"median": self.seen.bulkhead, "rounds": self.bulkhead_rounds},
            "ratio": self.ratio(),
            "difference": self.difference(),
            "other": other,
            "bar": (self.figure.bar != Bar::None).then(|| self.figure.bar.show(self.figure.unit)),
            "met": met,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(device: &str) -> Driver {
        Driver { library: format!("/lib/{device}"), device: device.to_owned(), cuda_version: 13_000 }
    }

    fn found(figures: &[(&str, f64)]) -> Value {
        let mut found = json!({"figures": {}, "failed": {}});
        for (name, value) in figures {
            found["figures"][*name] = json!({"value": value});
        }
        found
    }

    fn line<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
        let line = table.lines().find(|line| line.contains(&format!("| {name} "))).unwrap();
        line.trim_matches('|').split('|').map(str::trim).collect()
    }

    fn pings(values: &[f64]) -> Report {
        let mut report =
            Report::new(vec![Group::Ping], Effort::Full, values.len(), Ok(driver("H200")), driver("H200"));
        for (round, value) in values.iter().enumerate() {
            report.add(Side::Bulkhead, round + 1, found(&[("ping_p50_ns", *value), ("ping_p99_ns", 1.0)]));
        }
        report
    }

    #[test]
    fn a_bar_that_is_missed_is_shown_as_missed() {
        let report = pings(&[19_000.0, 20_001.0, 25_000.0]);
        let table = report.table();
        assert_eq!(line(&table, "ping_p50_ns"), ["ping_p50_ns", "-", "20001 ns", "-", "<= 20000 ns", "NO"]);
        assert!(table.contains("0 of 1 bars met"), "{table}");
        assert_eq!(report.missed(), 1);
        assert_eq!(report.json()["figures"][0]["met"], false);
    }

    #[test]
    fn a_bar_that_is_met_is_shown_as_met_by_the_median_of_the_rounds() {
        let report = pings(&[19_000.0, 10_000.0, 25_000.0]);
        assert_eq!(line(&report.table(), "ping_p50_ns")[2..], ["19000 ns", "-", "<= 20000 ns", "yes"]);
        assert_eq!(report.missed(), 0);
        assert!(report.complete());
        assert_eq!(report.json()["figures"][0]["bulkhead"]["rounds"], json!([19_000.0, 10_000.0, 25_000.0]));
    }

    fn both(native: &[(&str, f64)], bulkhead: &[(&str, f64)]) -> Report {
        let mut report =
            Report::new(vec![Group::Launches], Effort::Full, 1, Ok(driver("H200")), driver("NVIDIA H200"));
        report.add(Side::Native, 1, found(native));
        report.add(Side::Bulkhead, 1, found(bulkhead));
        report
    }

    #[test]
    fn figures_are_compared_as_their_bar_compares_them() {
        let report = both(
            &[("launch_sync_p50_ns", 7_800.0), ("launches_per_s", 340_000.0)],
            &[("launch_sync_p50_ns", 8_500.0), ("launches_per_s", 330_000.0)],
        );
        let table = report.table();
        assert_eq!(
            line(&table, "launch_sync_p50_ns")[1..],
            ["7800 ns", "8500 ns", "+700.0 ns", "<= native + 600 ns", "NO"]
        );
        assert_eq!(
            line(&table, "launches_per_s")[1..],
            ["340000 /s", "330000 /s", "0.971", ">= 0.95 of native", "yes"]
        );
    }

    #[test]
    fn a_figure_is_held_against_another_of_the_same_run() {
        let groups = vec![Group::Copies, Group::Swapping];
        let mut report = Report::new(groups, Effort::Full, 1, Ok(driver("H200")), driver("H200"));
        report.add(Side::Native, 1, found(&[("pinned_h2d", 10.0)]));
        report.add(Side::Bulkhead, 1, found(&[("pinned_h2d", 50.0)]));
        report.add(Side::Bulkhead, 1, found(&[("swap_gb_s", 39.0)]));
        let expected = ["-", "39.00 GB/s", "0.780", ">= 0.80 of pinned_h2d", "NO"];
        assert_eq!(line(&report.table(), "swap_gb_s")[1..], expected);
        let json = report.json();
        let figure = json["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == "swap_gb_s");
        assert_eq!(figure.unwrap()["other"], json!({"name": "pinned_h2d", "median": 50.0, "ratio": 0.78}));
    }

    #[test]
    fn a_figure_that_one_round_lacks_makes_the_report_incomplete() {
        let report = both(&[("launch_ns", 2_900.0)], &[("launch_ns", 90.0)]);
        assert!(!report.complete());
        assert_eq!(line(&report.table(), "launches_per_s")[1..], ["-", "-", "-", ">= 0.95 of native", "-"]);
    }

    #[test]
    fn what_failed_is_told() {
        let mut report = pings(&[1.0]);
        report.add(Side::Bulkhead, 2, json!({"figures": {}, "failed": {"copies": "cuMemAlloc answered 2"}}));
        assert!(report.table().contains("FAILED bulkhead, round 2: copies: cuMemAlloc answered 2"));
        assert!(!report.complete());
    }

    #[test]
    fn without_a_native_driver_nothing_is_judged_and_the_table_says_why() {
        let mut report = Report::new(
            vec![Group::Launches],
            Effort::Quick,
            1,
            Err("libcuda.so.1: no such file".to_owned()),
            driver("Software"),
        );
        report.add(Side::Bulkhead, 1, found(&[("launch_ns", 9_000.0)]));
        let table = report.table();
        assert_eq!(line(&table, "launch_ns")[1..], ["-", "9000 ns", "-", "<= 150 ns", "-"]);
        assert!(table.contains("libcuda.so.1: no such file"), "{table}");
        assert_eq!(report.missed(), 0);
        assert_eq!(report.json()["figures"][0]["met"], Value::Null);
    }

    #[test]
    fn another_gpu_on_the_other_side_is_no_comparison() {
        let mut report =
            Report::new(vec![Group::Launches], Effort::Full, 1, Ok(driver("H200")), driver("Software"));
        report.add(Side::Bulkhead, 1, found(&[("launch_ns", 9_000.0)]));
        assert_eq!(report.missed(), 0);
        assert!(report.table().contains("native is H200, Bulkhead runs on Software"));
    }

    #[test]
    fn the_columns_of_the_table_are_aligned() {
        let table = pings(&[1.0]).table();
        let widths: Vec<usize> = table.lines().take_while(|line| !line.is_empty()).map(str::len).collect();
        assert_eq!(widths.len(), 4);
        assert!(widths.iter().all(|width| *width == widths[0]), "{table}");
    }
}
