//! What is left of a launch that goes to the device in slices.

use crate::{
    launch::{entry::Entry, slices::Slices},
    modules::grants::Calling,
};

/// What is left of a launch some slices of which were submitted.
pub(crate) struct Rest {
    /// With the parameters; nobody can take it back before the launch is over.
    pub(crate) entry: Entry,
    pub(crate) slices: Slices,
    /// Which slice comes next.
    pub(crate) next: u64,
    /// That it calls gates, until its last slice is submitted.
    pub(crate) calls: Vec<Calling>,
}
