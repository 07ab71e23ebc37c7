//! What was measured, and what could not be.

use std::{fmt, time::Instant};

use bulkhead_cuda::native::{Driver, Refusal};
use serde_json::{Map, Value, json};

use crate::{
    figures,
    samples::{Samples, Summary},
};

/// Why something could not be measured.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The driver refused a call.
    Refused(Refusal),
    /// Everything else, in words.
    Said(String),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<bulkhead_client::Error> for Trouble {
    fn from(error: bulkhead_client::Error) -> Self {
        Self::Said(error.to_string())
    }
}

impl From<capnp::Error> for Trouble {
    fn from(error: capnp::Error) -> Self {
        Self::Said(format!("the kernel does not answer: {error}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Said(text) => f.write_str(text),
        }
    }
}

impl Trouble {
    /// In words, with the driver's name for its code.
    pub(super) fn explain(&self, driver: &Driver) -> String {
        let name = match self {
            Self::Refused(refusal) => driver.name(*refusal),
            Self::Said(_) => None,
        };
        name.map_or_else(|| self.to_string(), |name| format!("{self} ({name})"))
    }
}

/// What was measured so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) figures: Map<String, Value>,
    pub(super) failed: Map<String, Value>,
}

impl Findings {
    /// The median of samples, under a figure's name.
    pub(super) fn add(&mut self, name: &str, samples: Samples) {
        self.distribution(name, samples, |summary| summary.median);
    }

    /// What a figure tells of its samples, where that is not the median.
    pub(super) fn distribution(&mut self, name: &str, samples: Samples, value: fn(&Summary) -> f64) {
        assert!(figures::find(name).is_some(), "{name} is in the table");
        match samples.summary() {
            Some(summary) => {
                let figure = json!({"value": value(&summary), "samples": summary.json()});
                self.figures.insert(name.to_owned(), figure);
            }
            None => self.fail(name, "nothing was measured"),
        }
    }

    /// A figure that was measured once.
    pub(super) fn once(&mut self, name: &str, value: f64) {
        let mut samples = Samples::with_capacity(1);
        samples.push(value);
        self.add(name, samples);
    }

    pub(super) fn fail(&mut self, what: &str, why: &str) {
        self.failed.insert(what.to_owned(), why.into());
    }
}

pub(super) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
