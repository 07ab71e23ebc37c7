//! PTX in, confined and verified PTX out.
//!
//! [`parse`] reads a tenant's text, [`confine`] rewrites it so that every access stays where it may,
//! [`print()`] writes the canonical text, and [`verify`] decides, without trusting any of them, whether a text
//! may run beside other sessions. What is compiled is the text in a [`Verified`], byte for byte. [`examine`] goes on
//! after errors and tells people everything that stands against a text and what becomes of each access.
//!
//! To *confine* an access is to make its address lie in the session's window whatever the program computes.
//! The window comes in three hidden launch parameters, [`HIDDEN_PARAMETERS`], appended to every entry: the
//! high word of its base, and the masks that the high word of an address is cut to by loads and by
//! everything that writes. The *confined form* is the text that the verifier accepts.
//!
//! # Invariants
//! What holds for every entry of a [`Verified`] text, but for 2 in fast versions:
//! 1. Only opcodes, modifiers, directives and special registers of the tables are in it.
//! 2. A global access is `[%bh_a+offset]`, where `%bh_a` was computed directly before it, with no label
//!    between, as `high = (high & mask) | base`; the mask is the one for stores unless the access only reads.
//!    The offset is below 8 MiB either way, which the guard zones around a window cover, and keeps the
//!    alignment of the access, to which the low word was cut: a misaligned access ends the context.
//! 3. A local access lies inside the entry's one local variable, by symbol and offset or clamped, so it reaches
//!    neither spilled registers nor return addresses. The variable is zeroed at entry.
//! 4. An access to the constant bank lies inside a declared variable, one to parameters inside a declared
//!    parameter that is not hidden.
//! 5. A shared access is aligned and lies in what the block has allocated, between the first and the last byte of
//!    the entry's shared variables, so it reaches neither beyond that nor the driver's first KiB. All that lies
//!    between is zeroed at entry.
//! 6. No register, predicate or carry flag is read before it is written on every path to it: undefined
//!    registers hold other sessions' values, and the assembler may take one undefined register for two.
//! 7. The guard's registers (`%bh_...`) are written only by the prologue and by the sequences of 2, 3, 4, 5 and 10.
//! 8. The only barrier for a block is number 0 without a count. There are no calls, indirect branches,
//!    generic addresses, traps, clusters or asynchronous copies.
//! 9. The text is its own canonical print: ASCII, one statement a line, none of the tenant's comments, registers
//!    or labels.
//! 10. Every cycle of branches has a poll, which counts down at least what the cycle costs, and a thread whose budget
//!     is spent loads its session's flag and ends where that is negative. The flag is looked at before anything is
//!     written to global memory, and before more is done than [`limits::UNLOOKED_COST_MAX`].
//!
//! # The confined form of an access
//! ```text
//! mov.b64 {%bh_lo, %bh_hi}, %d4;                              global; `add.s64 %bh_a, %d4, imm` goes before
//! lop3.b32 %bh_hi, %bh_hi, %bh_loadmask, %bh_base, 234;       where the offset may not stay outside
//! and.b32 %bh_lo, %bh_lo, -4;                                 not for single bytes
//! mov.b64 %bh_a, {%bh_lo, %bh_hi};
//! ld.global.f32 %r2, [%bh_a+8];                               only the access keeps its predicate
//!
//! mov.b32 %bh_s, %r4;                                         shared; `cvt.u32.u64` from a 64-bit register
//! add.s32 %bh_s, %bh_s, -4;                                   least offset of the run, unless it is 0
//! sub.s32 %bh_lo, %bh_top, 136;                               span of the run: see below
//! min.u32 %bh_s, %bh_s, %bh_lo;
//! max.u32 %bh_s, %bh_s, %bh_low;
//! and.b32 %bh_s, %bh_s, -4;
//! st.shared.f32 [%bh_s+12], %r2;
//!
//! mov.b64 %bh_o, variable;                                    local and constant, by register
//! sub.s64 %bh_a, %d4, %bh_o;
//! min.u64 %bh_a, %bh_a, 60;                                   bytes of the variable less those of the access
//! and.b64 %bh_a, %bh_a, -4;
//! add.s64 %bh_a, %bh_o, %bh_a;
//! ld.const.f32 %r2, [%bh_a];
//! ```
//!
//! The prologue loads the hidden parameters into `%bh_base`, `%bh_loadmask` and `%bh_storemask`, zeroes the local
//! variable, and, where there is shared memory, sets `%bh_low` and `%bh_top` to where the entry's shared
//! variables begin and end, and has all threads of the block zero what lies between, ending with `bar.sync 0`. Shared accesses off one register between which a thread cannot turn away are a
//! *run*: they are clamped together, to where the whole run is inside, so ptxas computes one clamp for all. A
//! run's span is never more than the entry's static variables hold, or, where it has dynamic shared memory, than
//! every launch gives: whoever launches an entry gives it at least [`VerifiedEntry::dynamic_shared_min`].
//!
//! # Fast versions
//! An entry may be followed by its *fast version*, `__bh_fast_` and its name, declared alike. There an access may also be
//! `[register+offset]` where the register's value is known to be a pointer from one parameter and a number, and the two
//! to keep the access aligned and within [`limits::REACH_BYTES`] of where that pointer points. What is known is
//! what follows, in one pass down the text, from registers that one instruction writes. Likewise a shared access may
//! be off a register that is known to be a shared variable and a number. What the pointers and blocks have to be is
//! in [`FastVersion::pointers`] and [`FastVersion::shared`]: whoever launches it checks them, and launches the
//! entry itself where they are not.
//!
//! # Module-scope variables
//! There is no `.global` variable in a confined text. [`confine`] lays those of the tenant out in one block
//! ([`data()`]), whose address every entry takes as its last visible parameter, and writes sums of that and a number
//! for their names. To [`verify`] it is a parameter like any other. `.const` variables lie in the block too where the
//! host has to write one of them or a generic address is made of one; else they stay in the constant bank.
//!
//! # The flag
//! The last [`FLAG_BYTES`] of a window, which lie in the half that takes loads only, hold the session's flag: a word
//! every [`FLAG_LINE_BYTES`], all the same, so that not all multiprocessors ask one place. It says how much a thread
//! may do before it looks again, in the units of the opcode table ([`limits`]); where it is negative, threads end.
//! ```text
//! or.b32 %bh_hi, %bh_base, %bh_loadmask;                      prologue, where there is a poll or a look
//! mov.u32 %bh_lo, %smid;
//! shl.b32 %bh_lo, %bh_lo, 7;
//! lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234;
//! mov.b64 %bh_k, {%bh_lo, %bh_hi};
//! ld.relaxed.sys.global.b32 %bh_n, [%bh_k];
//!
//! setp.lt.s32 %bh_q, %bh_n, 0;                                look
//! @%bh_q exit;
//!
//! $L3:                                                        poll, behind a label that a branch goes back to
//! add.s32 %bh_n, %bh_n, -24;                                  at least what costs most from here to such a branch
//! setp.lt.s32 %bh_q, %bh_n, 0;
//! @%bh_q ld.relaxed.sys.global.b32 %bh_n, [%bh_k];
//! setp.lt.s32 %bh_q, %bh_n, 0;
//! @%bh_q exit;
//! ```
//!
//! # Calls and generic addresses
//! Neither is in a confined text, so that [`verify`] has no rule for them; [`confine`] takes them away:
//! - A function is inlined where it is called, its `.param` variables become registers, and the local variables
//!   of an entry and its functions become one. How much that may add to a module, and how deep calls may nest,
//!   is limited ([`limits`]).
//! - A generic access names the space that its address is followed to: through moves, joins, arithmetic,
//!   `cvta` and calls, all definitions of a register together. Where that leaves it open, `isspacep` tests the
//!   address, and up to three accesses follow, each in the confined form of its space and under the predicate
//!   that the address is of it. What is neither shared nor local is global, whatever it is.
//!
//! # What is not confined yet
//! - `shfl.sync` from a lane that does not take part returns what that lane's register happens to hold. Where the
//!   lane has no thread (a block that does not fill its last warp), or its thread has ended or never wrote the
//!   register, that can be a word of another session's. Nothing in PTX names the lanes that take part *and* costs
//!   less than the shuffle: the register that ptxas chooses cannot be zeroed from here.
//! - `bar.warp.sync`, `shfl.sync`, `vote.sync`, `match.sync` and `redux.sync` with lanes that wait elsewhere wait for
//!   ever: what looks at no flag is ended by ending the executor.
//! - `assert`, managed variables, recursion, indirect calls, addresses of functions, textures and tensor cores are
//!   refused; the message names the isolated domain.
//!
//! # Trust
//! [`verify`], the parser, the print, the opcode table and what follows from instructions (`flow.rs`, `facts.rs`) are trusted; [`confine`] is not. So are ptxas and the
//! driver: the linter of `executor/` holds machine code against a text's [`Footprint`], and does not follow addresses.

pub mod ast;
pub mod data;
pub mod limits;
pub mod tokens;

mod access;
mod confine;
mod examine;
mod facts;
mod flow;
mod footprint;
mod names;
mod operands;
mod parse;
mod print;
mod report;
mod span;
mod table;
mod verify;
mod window;

pub use confine::{confine, confine_recovering, data};
pub use examine::{Doing, Examination, Explained, Handling, examine};
pub use footprint::{Footprint, Uses};
pub use names::{FLAG_BYTES, FLAG_LINE_BYTES, HIDDEN_PARAMETERS, is_fast_version};
pub use parse::{parse, parse_recovering};
pub use print::print;
pub use report::{Finding, Reason, Report};
pub use verify::{FastVersion, PointerTerm, SharedTerm, Verified, VerifiedEntry, verify};
pub use window::Window;
