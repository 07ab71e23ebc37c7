//! The contracts between client, kernel and executor.
//!
//! The schemas (`*.capnp`) are the contract; this crate holds the types generated from them, the limits
//! both sides keep to, and the error that travels on every interface.
//!
//! # Invariants
//! 1. Every limit on what a client may send or hold is named in [`limits`], once.
//! 2. Every answer to a client that can fail for the client's reasons is a union of result and [`Error`].

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::allow_attributes_without_reason,
    clippy::let_underscore_must_use,
    reason = "generated"
)]
mod generated {
    capnp::generated_code!(pub mod bulkhead_capnp);
    capnp::generated_code!(pub mod executor_capnp);
    capnp::generated_code!(pub mod compile_capnp);
    capnp::generated_code!(pub mod operator_capnp);
}

mod data;
mod digest;
mod error;
mod handle;
pub mod limits;
mod report;
mod run;
mod stray;
mod terms;
mod told;

/// What tells programs that were built from these contracts and limits from others.
#[must_use]
pub fn contracts() -> String {
    let mut hasher = Hasher::default();
    hasher.add(include_bytes!("../schema.cgr"));
    hasher.add(include_bytes!("limits.rs"));
    hasher.end().0.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub use data::{DataVariable, ModuleData, RefusedEntry, Relocation};
pub use digest::{Digest, Hasher};
pub use error::{Error, ErrorCode};
pub use generated::{bulkhead_capnp, compile_capnp, executor_capnp, operator_capnp};
pub use handle::Handle;
pub use report::{CUDA_VERSION, REPORTED_NAME_BYTES, SESSION_REPORT, SessionReport};
pub use run::Run;
pub use stray::Stray;
pub use terms::limits_told;
pub use told::Told;
