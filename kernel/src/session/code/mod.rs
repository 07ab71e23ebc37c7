//! A session's code: images of PTX, images for the driver, entries that others may launch, protected modules.

pub(crate) mod entries;
pub(crate) mod images;
pub(crate) mod modules;
pub(crate) mod native;
