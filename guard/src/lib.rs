//! PTX in, confined PTX out, with what can be claimed of it.
//!
//! [`parse()`] reads a tenant's text, [`confine`] rewrites it so that every access stays where it may,
//! [`print()`] writes the canonical text, and [`claims()`] says of it what the verifier then checks. Nothing here is trusted:
//! [`bulkhead_verifier`] decides whether a text may run, and says what the confined form is. [`examine`] goes on
//! after errors and tells people everything that stands against a text and what becomes of each access.
//!
//! # Module-scope variables
//! There is no `.global` variable in a confined text. [`confine`] lays those of the tenant out in one block
//! ([`data()`]), whose address every entry takes as its last visible parameter, and writes sums of that and a number
//! for their names. To [`verify`] it is a parameter like any other. Where a module asks the driver's registers where its
//! grid waits (`%envreg1`, `%envreg2`), that address comes in one more parameter behind it, 0 unless all blocks are there
//! together. `.const` variables lie in the block too, where the
//! host can write them; those stay in the constant bank that a compiler's own library brings, where a module has no other.
//!
//! # Calls, generic addresses and barriers that count
//! None is in a confined text, so that [`verify`] has no rule for them; [`confine`] takes them away:
//! - A barrier of the block with a count of threads becomes a word of shared memory that atomic operations count on and that
//!   is waited for in a loop; one without is number 0.
//! - A function is inlined where it is called, its `.param` variables become registers, and the local variables
//!   of an entry and its functions become one. How much that may add to a module, and how deep calls may nest,
//!   is limited ([`limits`]).
//! - A function whose address is taken has a number in its module, which stands wherever its address did. A call
//!   through a pointer compares it with the numbers of the functions that take and return as many bytes, each of which
//!   is inlined behind its comparison; what is nobody's number ends the thread. A branch by an index halves its list.
//! - A generic access names the space that its address is followed to: through moves, joins, arithmetic,
//!   `cvta` and calls, all definitions of a register together. Where that leaves it open, `isspacep` tests the
//!   address, and up to three accesses follow, each in the confined form of its space and under the predicate
//!   that the address is of it. What is neither shared nor local is global, whatever it is.
//!
//! # Threads that cannot go on
//! `trap`, `brkpt` and the handler of failed assertions are in no confined text either. [`confine`] puts a record in
//! the module's block in their place (`__bh_faults`, see `confine/faults.ptx`), and the end of the thread. The
//! block is the session's own memory, so whoever reads records trusts them with nothing but their text.
//!
//! With [`Stray::Told`] every access is looked at before it is confined: where it goes to what the session's client
//! does not list (`__bh_ranges`, `confine/check.ptx`), is misaligned or leaves shared memory, it leaves a record too, and goes on.

pub mod data;
pub mod limits;

mod claims;
mod confine;
mod examine;
mod facts;
mod module_gates;
mod spent;
mod sums;
mod verify;
mod window;

use bulkhead_ptx::{maps, report, table};
use bulkhead_verifier::{access, anchors, flow, gates, most, names, operands, values};

pub use bulkhead_ptx::{Finding, Reason, Report, ast, parse, parse_recovering, print, tokens};
pub use bulkhead_verifier::{
    BoundTerm, Claims, FLAG_BYTES, FLAG_LINE_BYTES, FastVersion, Footprint, GATE_PARAMETERS, GateSummary,
    Gates, HIDDEN_PARAMETERS, LANES, Part, Parts, PointerTerm, SLICE_PARAMETERS, SharedTerm, Uses, Verified,
    VerifiedEntry, along, entry_of, in_tenants_names, is_fast_version, is_own_register,
};
pub use confine::{
    Refused, Stray, confine, confine_as, confine_each, confine_verified, confine_with, data, data_as,
    drop_fast_versions,
};
pub use examine::{Doing, Examination, Explained, Handling, examine, examine_with};
pub use module_gates::{GateWindow, add_gates};
pub use verify::{claims, verify, verify_claimed, verify_with};
pub use window::Window;
