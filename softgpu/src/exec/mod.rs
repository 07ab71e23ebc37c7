//! Execution: blocks of warps of 32 lanes.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lane numbers are below 32, access sizes at most 16, and offsets are checked against memory of this process"
)]

mod access;
mod block;
mod collective;
mod cores;
mod dispatch;
mod frame;
mod grid;
mod mask;
mod matrix;
mod native;
mod observe;
mod plain;
mod schedule;
mod step;
mod tell;
mod warp;

pub(crate) use block::{Block, Progress};
pub(crate) use cores::Core;
pub(crate) use dispatch::Dispatch;
pub(crate) use frame::Frame;
pub(crate) use grid::Grid;
pub(crate) use mask::lanes;
pub(crate) use observe::{Access, Did, Observer, Touch, Watch, Watched};
pub(crate) use schedule::Random;
pub(crate) use warp::{Group, State, Warp};
