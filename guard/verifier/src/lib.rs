//! The verifier: one pass that decides whether a confined PTX text may run beside other sessions.
//!
//! It trusts nobody who wrote the text ([`verify`]), and nobody who claims something of it ([`Claims`]): where lanes of a warp are,
//! what numbers registers hold, and how much a thread may still do before it polls. It checks what is claimed where it uses it, and
//! works out nothing itself; a wrong claim is a refusal. What is compiled is the text in a [`Verified`], byte for byte.
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
//!    between is zeroed at entry. There are at most [`limits::SHARED_VARIABLES_MAX`], and those that are dynamic are
//!    aligned alike, so that they are the same bytes.
//! 6. No register, predicate or carry flag is read before it is written on every path to it: undefined
//!    registers hold other sessions' values, and the assembler may take one undefined register for two. A counter is
//!    asked only where fuel for it is claimed, which it has from where it is set on.
//! 7. The guard's registers (`%bh_...`) are written by no access, and only by the prologue, by the sequences of 2, 3, 4, 5 and 10, in calls
//!    of gates and where a parameter is bounded; what gates have of them (`%bh_g...`) stands nowhere else, nor does a label of theirs.
//! 8. The only barrier for a block is number 0 without a count. There are no calls, indirect branches,
//!    generic addresses, traps, clusters, bulk copies or barrier objects that the device counts on.
//! 9. The text is its own canonical print: ASCII, one statement a line, none of the tenant's comments, registers
//!    or labels. The names of the tenant's entries begin with `bh_e_`, those of its variables and parameters with `bh_v_`.
//! 10. Every cycle of branches has a poll, which loads the session's flag and ends the thread where that is negative, or
//!     is left after so many turns; on no path more is done between two polls than [`limits::PATH_COST_MAX`]. The flag is looked at before anything is written to
//!     global memory, and before more is done than [`limits::UNLOOKED_COST_MAX`]; but in a fast version that does no more
//!     than [`limits::SHORT_COST_MAX`] in all it need not be ([`FastVersion::work`]). What bounds and zeroes shared memory comes
//!     before: whoever launches counts that. A sleep is for a number of nanoseconds, the same in all lanes. A wait for the block
//!     takes [`limits::BLOCK_WAIT_COST`] besides, since between two of them the threads of a block may work one after the other.
//! 11. In a body with asynchronous copies every thread waits for its own directly before it ends, also where a look ends
//!     it; and a copy takes no more from its source than it writes.
//! 12. Instructions for whole warps (`mma`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`) stand where a check that the warp is
//!     whole was passed, with no label and nothing between behind which lanes may go on apart (a sleep, a loop that ptxas
//!     writes, an atomic or a fence under a predicate; where ptxas branches around others, as stores under one predicate, it
//!     joins the lanes again), and have no predicate: of lanes that one leaves out ptxas writes no register which only they read, and the device takes it all the same. The
//!     lines of a matrix in global memory are less than 2^31 bytes, begin at multiples of 16 bytes, and where they are more
//!     than [`limits::EXTENT_BOUND`] the first begins 4 GiB before the end of what the mask lets through.
//! 13. A call of a gate is the text that was verified for it, behind a look at the flag (but in a fast version as short as 10
//!     says), and nothing branches into it or out of it. Only there, and only in what the gate's author marked, an access goes to a protected window, that of
//!     the gate's module, and to no byte besides ([`VerifiedEntry::modules`]).
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
//! mov.b32 %bh_s, %r4;                                         or, where all is one small variable: at most so far
//! add.s32 %bh_s, %bh_s, -4;                                   behind the first byte of its bounds
//! and.b32 %bh_s, %bh_s, 2032;
//! st.shared.f32 [%bh_s+2060], %r2;
//!
//! mov.b32 %bh_s, %r4;                                         or, where all is one variable: how far it is behind
//! sub.s32 %bh_s, %bh_s, %bh_low;                              the first byte, at most so many bytes as are there less
//! min.u32 %bh_s, %bh_s, 8056;                                 the span
//! and.b32 %bh_s, %bh_s, -4;
//! st.shared.f32 [%bh_s+1036], %r2;
//!
//! mov.b32 %bh_s, %r4;                                         or, where all is the dynamic one
//! sub.s32 %bh_s, %bh_s, %bh_low;
//! sub.s32 %bh_lo, %bh_top, %bh_low;
//! sub.s32 %bh_lo, %bh_lo, 136;
//! min.u32 %bh_s, %bh_s, %bh_lo;
//! and.b32 %bh_s, %bh_s, -4;
//! st.shared.f32 [%bh_s+1036], %r2;
//!
//! min.u32 %bh_lo, %r6, 16;                                    a copy: the shared sequence, the global one, and this
//! cp.async.cg.shared.global [%bh_s], [%bh_a], 16, %bh_lo;     where a register says how much it takes
//!
//! and.b32 %bh_lo, %r6, 16777208;                              lines of a matrix: the global sequence, and this where a
//! wmma.load... {...}, [%bh_a], %bh_lo;                        register is the stride; in shared memory it is a number
//!
//! match.any.sync.b32 %bh_lo, 1, -1;                           a check that the warp is whole, on each straight way to an
//! setp.ne.s32 %bh_q, %bh_lo, -1;                              instruction for whole warps; each has a number of its own
//! @%bh_q exit;
//! bar.warp.sync -1;
//! activemask.b32 %bh_lo;
//! setp.ne.s32 %bh_q, %bh_lo, -1;
//! @%bh_q exit;
//!
//! mov.b64 %bh_o, variable;                                    local, constant and parameters, by register
//! sub.s64 %bh_a, %d4, %bh_o;
//! cvt.u32.u64 %bh_lo, %bh_a;
//! min.u32 %bh_lo, %bh_lo, 60;                                 bytes of the variable less those of the access
//! and.b32 %bh_lo, %bh_lo, -4;
//! cvt.u64.u32 %bh_a, %bh_lo;
//! add.s64 %bh_a, %bh_o, %bh_a;
//! ld.const.f32 %r2, [%bh_a];
//! ```
//!
//! The prologue loads the hidden parameters into `%bh_base`, `%bh_loadmask` and `%bh_storemask`, and, where there is
//! shared memory, sets `%bh_low` and `%bh_top` to where the entry's shared
//! variables begin and end, and has all threads of the block zero what lies between, ending with `bar.sync 0`. Shared accesses off one register between which a thread cannot turn away are a
//! *run*: they are clamped together, to where the whole run is inside, so ptxas computes one clamp for all. A
//! run's span is never more than the entry's static variables hold, or, where it has dynamic shared memory, than
//! every launch gives: whoever launches an entry gives it at least [`VerifiedEntry::dynamic_shared_min`].
//! The bounds of a single variable may begin further on than it does: small ones are laid out as one so that their first
//! byte lies at a multiple of a power of two in the block's shared memory, and a mask leaves what is inside as it is.
//!
//! # Fast versions
//! An entry may be followed by its *fast version*, `__bh_fast_` and the tenant's name of it, declared alike. There an access may also be
//! `[register+offset]` where the register's value is known to be a pointer from one parameter and a number, and the two
//! to keep the access aligned and within [`limits::REACH_BYTES`] of where that pointer points. What is known is
//! what follows, in one pass down the text, along the ways of control. Likewise a shared access may
//! be off a register that is known to be a shared variable and a number; and of a pointer that is known to be aligned the
//! low word is left as it is. What the pointers and blocks have to be is
//! in [`FastVersion::pointers`] and [`FastVersion::shared`]: whoever launches it checks them, and launches the
//! entry itself where they are not. A parameter may be bounded, so that a number that is computed from it stays small:
//! ```text
//! ld.param.u32 %bh_lo, [n];
//! setp.gt.u32 %bh_q, %bh_lo, 255;                             the bound
//! @%bh_q exit;
//! ld.param.u32 %r0, [n];                                      as the tenant wrote it
//! ```
//! That is safe in every launch, but does what the tenant wrote only where the parameter is no more ([`FastVersion::bounds`]).
//!
//! # The flag
//! The last [`FLAG_BYTES`] of a window, which lie in the half that takes loads only, hold the session's flag: a word
//! every [`FLAG_LINE_BYTES`], all the same, so that not all multiprocessors ask one place. Where it is negative, threads
//! end.
//! ```text
//! or.b32 %bh_hi, %bh_base, %bh_loadmask;                      start: in the prologue, where there is a look
//! mov.u32 %bh_lo, %smid;
//! shl.b32 %bh_lo, %bh_lo, 7;
//! lop3.b32 %bh_lo, %bh_lo, 65408, -65536, 234;
//! mov.b64 %bh_k, {%bh_lo, %bh_hi};
//! ld.relaxed.sys.global.b32 %bh_n, [%bh_k];
//!
//! setp.lt.s32 %bh_q, %bh_n, 0;                                look; the start and a look directly behind are a poll
//! @%bh_q exit;
//!
//! mov.u32 %bh_c0, 200;                                        a loop with a counter, which nothing enters but here
//! $L4:
//! ...
//! add.s32 %bh_c0, %bh_c0, -1;                                 goes back while the tenant would and turns are left
//! setp.gt.and.s32 %bh_q, %bh_c0, 0, %p1;
//! @%bh_q bra $L4;
//!
//! mad.lo.s32 %bh_c1, %r5, 200, %r2;                           or by a register to which every turn adds %r5:
//! min.s32 %bh_c1, %bh_c1, %r3;                                its bound, cut short; `add.s32 %bh_c1, %r2, 800`
//! $L5:                                                        where the step is a number
//! ...
//! add.s32 %r2, %r2, %r5;
//! ...
//! setp.lt.s32 %bh_q, %r2, %bh_c1;
//! @%bh_q bra $L5;
//!
//! sub.s32 %bh_c2, %r2, %r3;                                   or tested with `setp.ne`: how far it is to the bound,
//! add.s32 %bh_c2, %bh_c2, -1;                                 at most 200 steps, a multiple of the step
//! min.u32 %bh_c2, %bh_c2, 799;
//! or.b32 %bh_c2, %bh_c2, 3;
//! not.b32 %bh_c2, %bh_c2;                                     upwards: `sub.s32 %bh_c2, %r3, %r2`, and
//! add.s32 %bh_c2, %bh_c2, %r2;                                `add.s32 %bh_c2, %bh_c2, 1` behind, no `not`
//! ```
//!
//! # Gates
//! A *gate* is a function of a protected module that a tenant's code may call ([`Gates`]). Its body is confined and verified
//! once, by itself, and stands wherever it is called, statement by statement: to [`verify`] a call is that text and
//! nothing else. In it, what the author marked (`.pragma "bulkhead protected";` before the access) is confined to the protected
//! window of the module, whatever the address is, and so to all the module's author answers for; everything else to the
//! caller's window like the caller's own. Nothing in it ends a thread, waits or looks at the flag, and all it does is
//! bounded: what is called has run when the thread goes on.
//! ```text
//! __bh_g0_append:                                             the call: which of the entry's it is, and the gate's name
//! ld.param.u64 %bh_gbase, [__bh_gate0_base];                  hidden parameters for the gate's module, before the others
//! ld.param.u64 %bh_gmask, [__bh_gate0_mask];
//! ld.param.u64 %bh_gd0, [__bh_gate0_caller];                  who calls
//! mov.b64 %bh_gd1, %d4;                                       what it is called with
//! ...                                                         the body, on registers and labels of its own
//! add.s64 %bh_a, %bh_gd3, 8;                                  a marked access; without the first line at offset 0
//! and.b64 %bh_a, %bh_a, %bh_gmask;
//! and.b64 %bh_a, %bh_a, -8;
//! or.b64 %bh_a, %bh_a, %bh_gbase;
//! st.global.b64 [%bh_a], %bh_gd1;
//! ...
//! mov.b32 %r7, %bh_gr0;                                       what it returns
//! ```
//!
//! # What is not confined yet
//! - `shfl.sync` from a lane that does not take part returns what that lane's register happens to hold. Where the
//!   lane has no thread (a block that does not fill its last warp), or its thread has ended or never wrote the
//!   register, that can be a word of another session's. Nothing in PTX names the lanes that take part *and* costs
//!   less than the shuffle: the register that ptxas chooses cannot be zeroed from here.
//! - Recursion and `wgmma` are
//!   refused; the message names the isolated domain.
//!
//! # Trust
//! This crate and `bulkhead-ptx` are trusted; who confines texts and who claims (`bulkhead-guard`) is not. So are ptxas and the
//! driver: the linter of `executor/` holds machine code against a text's [`Footprint`], and does not follow addresses.

/// Which verifier this is: a digest of its sources, in hexadecimal. What was made of a text that another one verified is not
/// good for this one.
pub const VERSION: &str = env!("BULKHEAD_VERIFIER_SOURCES");

pub mod access;
pub mod anchors;
pub mod claims;
pub mod convergence;
pub mod declarations;
pub mod flow;
pub mod fuel;
pub mod gates;
pub mod limits;
pub mod most;
pub mod names;
pub mod numbers;
pub mod operands;
pub mod turns;
pub mod values;

mod body;
mod bounds;
mod claimant;
mod extents;
mod footprint;
mod gate_bodies;
mod lines;
mod meets;
mod refusal;
mod sequence;
mod text;
mod verified;

use bulkhead_ptx::{ast, maps, print, report, table};

pub use claimant::Claimant;
pub use claims::Claims;
pub use footprint::{Footprint, Uses};
pub use gates::{GateSummary, Gates, PARAMETERS_OF_MODULE as GATE_PARAMETERS};
pub use most::{Part, Parts, along};
pub use names::{
    FLAG_BYTES, FLAG_LINE_BYTES, HIDDEN_PARAMETERS, LANES, SLICE_PARAMETERS, entry_of, in_tenants_names,
    is_fast_version, is_own_register,
};
pub use text::{verify, verify_by};
pub use verified::{BoundTerm, FastVersion, PointerTerm, SharedTerm, Verified, VerifiedEntry};

// What tests try claims with: those that the guard makes, and others made of these. The files are the guard's.
#[cfg(test)]
extern crate self as bulkhead_verifier;
#[cfg(test)]
#[expect(dead_code, reason = "the guard uses more of it")]
#[path = "../../src/facts/mod.rs"]
mod facts;
#[cfg(test)]
#[expect(dead_code, reason = "the guard uses more of it")]
#[path = "../../src/claims/mod.rs"]
mod made;
#[cfg(test)]
#[expect(dead_code, reason = "the guard uses more of it")]
#[path = "../../src/spent.rs"]
mod spent;
