//! A launch on its way through the device.

use std::sync::Arc;

use super::grid::Grid;
use super::observe::Watched;
use crate::compiled::{Compiled, Engine};

/// A grid, with what runs it.
#[derive(Debug)]
pub(crate) struct Dispatch {
    /// The grid.
    pub(crate) grid: Grid,
    /// What runs it.
    pub(crate) engine: Engine,
    /// The compiled form of its entry.
    pub(crate) compiled: Arc<Compiled>,
    /// Whoever watches it. Then the interpreter runs it.
    pub(crate) watched: Option<Arc<dyn Watched>>,
}
