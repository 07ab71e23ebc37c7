//! The model NIC, as a driver sees it.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]
#![expect(unreachable_pub, reason = "shared by the tests and an example")]

mod driver;
mod fuzz;
mod model;
