//! Executable graphs, and their launches.

mod calls;
mod changes;
mod kept;
mod lanes;
mod native;

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

pub(crate) use calls::*;
pub(crate) use changes::*;
pub(crate) use lanes::Lanes;

use super::flat::Step;
use super::plan::Plan;
use crate::device::{Fence, Graph};
use kept::KeptByExec;

/// The device's graph of an executable one.
struct Native {
    graph: Graph,
    /// The node of each step.
    nodes: Vec<u32>,
    /// Steps that do something else since the last launch.
    changed: BTreeSet<usize>,
}

impl Native {
    /// Notes that a step does something else.
    fn note(&mut self, step: usize) {
        self.changed.insert(step);
    }
}

/// An executable graph.
pub(crate) struct Exec {
    flags: u64,
    /// The order of its steps, which never changes.
    plan: Plan,
    /// The place of each node's step, or first step.
    places: HashMap<u64, usize>,
    state: Mutex<State>,
    /// The program's objects that the graph keeps, which launches may use.
    kept: Mutex<KeptByExec>,
}

impl Drop for Exec {
    fn drop(&mut self) {
        self.kept.get_mut().end(self.state.get_mut().last);
    }
}

struct State {
    steps: Vec<Step>,
    /// Steps that do nothing, for the time being.
    disabled: Vec<bool>,
    /// The end of the last launch: two never overlap.
    last: Option<Fence>,
    /// The device's graph of it, where it has one.
    native: Option<Native>,
}
