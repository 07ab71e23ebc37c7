//! From an image, which is hostile bytes, to text that an executor verifies.

pub(crate) mod kept;
pub(crate) mod places;
pub(crate) mod process;
