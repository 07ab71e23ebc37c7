//! The program's own objects that an executable graph keeps.

use std::sync::Arc;

use super::super::user_object::{Job, UserObject, later};
use super::super::{Graph, Work};
use crate::device::Fence;

/// What an executable graph keeps until its last launch is done.
pub(super) struct KeptByExec(Vec<Arc<UserObject>>);

impl KeptByExec {
    /// What a graph keeps, and the graphs in it.
    pub(super) fn of(graph: &Graph) -> KeptByExec {
        let mut all = KeptByExec(graph.kept.lock().objects().collect());
        for (_, node) in graph.lock().iter() {
            if let Work::Child(child) = &node.work {
                all.add(KeptByExec::of(child.graph()));
            }
        }
        all
    }

    /// Others as well.
    pub(super) fn add(&mut self, others: KeptByExec) {
        self.0.extend(others.0);
    }

    /// Gives them up once `last` has passed.
    pub(super) fn end(&mut self, last: Option<Fence>) {
        let objects = std::mem::take(&mut self.0);
        if let Some(session) = objects.first().map(|object| object.session) {
            later(session, Job::Release(last, objects));
        }
    }
}
