//! Gates of modules that a session accepted.

use std::rc::Rc;

use bulkhead_caps::ObjectId;

use crate::modules::protected::Known;

/// Gates that a session accepted.
pub(crate) struct Accepted {
    pub(crate) object: ObjectId,
    /// What the executor calls their module.
    pub(super) number: u32,
    pub(super) known: Rc<Known>,
    pub(super) badge: u64,
}
