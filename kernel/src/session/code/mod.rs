//! A session's code: images of PTX, images for the driver, entries that others may launch, protected modules.

pub(crate) mod entries;
pub(super) mod gates;
pub(crate) mod images;
pub(crate) mod modules;
pub(crate) mod native;
pub(super) mod offer;
