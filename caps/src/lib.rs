//! Capability tables.
//!
//! A *capability* is an object of a session and its kind. A *handle* is a client's name for one: a slot of the
//! session's table and the *generation* of what the slot holds. It is an allegation until the table resolves it.
//!
//! The table is flat: every capability is a root. Derivation adds a parent to [`Capability`] and revocation
//! a walk below it; handles and generations stay as they are.
//!
//! # Invariants
//! 1. A handle resolves only at the generation it was issued at, and only as the kind it was issued for.
//! 2. No handle is ever issued twice: a slot whose generations are spent is retired.
//! 3. A table never holds more capabilities than its limit.

mod table;

pub use table::{Capability, Error, Kind, Table};
