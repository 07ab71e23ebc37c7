//! The model controller, driven as a host drives a device.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]
#![expect(unreachable_pub, reason = "modules of one test program")]

mod admin;
mod engines;
mod faults;
mod fuzz;
mod host;
mod io;
mod killed;
mod oracle;
mod registers;
mod support;
mod wild;
