//! `cuModule*`: images of one context.

mod calls;
mod logs;

use std::sync::Arc;

pub(crate) use calls::*;
pub(crate) use logs::{Logs, OPTIONS_MAX};

use crate::image::Loaded;

/// The context of a module that is the view of a library, and ends with that.
pub(crate) const OF_A_LIBRARY: u64 = 0;

/// A module.
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) loaded: Arc<Loaded>,
}
