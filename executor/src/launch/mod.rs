//! From a record in a client's ring to work on the device, and back to a fence.
//!
//! [`pump`] takes records and [`records`] checks them; [`launches`] chooses the version of an [`entry`] ([`fast`]) and its
//! slices ([`slices`], [`rest`]); [`moves`] cuts what is to be copied; [`graphs`] has what a client writes down; [`streams`]
//! keeps the order, and makes graphs of what waits ([`runs`]). [`outcome`] is what becomes of a record.

pub(crate) mod entry;
pub(crate) mod events;
pub(crate) mod fast;
pub(crate) mod graphs;
pub(crate) mod launches;
pub(crate) mod moves;
pub(crate) mod outcome;
pub(crate) mod pump;
pub(crate) mod records;
pub(crate) mod rest;
pub(crate) mod runs;
pub(crate) mod slices;
pub(crate) mod streams;
