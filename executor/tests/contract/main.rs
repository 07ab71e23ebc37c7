//! An executor on the software GPU, asked for every change of memory that the contract knows, as the kernel asks.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod bindings;
mod client;
mod host;
mod kernel;
mod loading;
mod modules;
mod refusals;
mod sharing;
mod shelf;
mod slots;
mod standby;
mod swap;
