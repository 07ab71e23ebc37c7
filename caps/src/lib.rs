//! Capabilities: who may do what to which object, the tree of derivations between them, and the way back.
//!
//! A *capability* is an object, what may be done to which part of it, and the capability it was derived from. Its
//! *owner* is a session. A *handle* is a client's name for one: a slot and the *generation* of what the slot holds; it
//! is an allegation until it is checked. A *line* is a place where work is done in order (a session's streams, a module's
//! queue); *marks* on it say what used an object last. A *revocation* ends capabilities and is then *severed* (no new
//! work that names them is admitted anywhere), *quiescent* (no work that was admitted runs any more) and *reclaimed*
//! (the objects that nobody names any more are given back), in this order.
//!
//! Everything here is arithmetic on one owner's state, without locks or clocks: callers say what time it is.
//!
//! # Invariants
//! 1. A capability never reaches further than its parent: range and access only shrink.
//! 2. A capability never outlives its parent.
//! 3. A handle resolves only at the generation it was issued at, and only for the owner it was issued to; no handle is
//!    ever issued twice: a slot whose generations are spent is retired.
//! 4. A revocation ends exactly the descendants of what it names, in one step.
//! 5. An object is quiescent only after no capability names it, every revocation that ended one for it is severed, and
//!    every line that used it, as far as this tree or an acknowledgement knows, has passed its mark or is gone. Only a
//!    quiescent object becomes free.
//! 6. No owner holds more capabilities than its limit; no root has more descendants than the limit.

mod ending;
mod error;
mod kind;
mod line;
mod mutant;
mod node;
mod object;
mod opening;
mod owner;
mod revocation;

mod taking;
mod tree;
mod usage;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use kind::{Access, Kind};
pub use line::Line;
#[cfg(any(test, feature = "mutants"))]
pub use mutant::Mutant;
#[cfg(not(any(test, feature = "mutants")))]
use mutant::Mutant;
pub use object::{ObjectId, ObjectState};
pub use owner::Owner;
pub use revocation::{Moments, RevocationId};
pub use tree::{Child, Ended, Extent, Limits, Need, Tree, View};
