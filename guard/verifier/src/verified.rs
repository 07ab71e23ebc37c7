//! What is known of a text that has been verified: its entries, and what their launches have to give.

use crate::footprint::Footprint;
use crate::most::{self, Parts};

/// An entry of a verified module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedEntry {
    /// What the tenant calls it.
    pub name: String,
    /// Its name in the text, which the device has it under.
    pub symbol: String,
    /// How many parameters the launch gives, hidden ones included.
    pub parameters: usize,
    /// How many of them, the last ones, are hidden: base, mask and caller for each of `modules`; where it reads anything of the
    /// grid that it is a slice of, [`SLICE_PARAMETERS`](crate::SLICE_PARAMETERS); then base, load mask and store mask.
    pub hidden: usize,
    /// Whether its grid may be cut into slices, each a launch of this entry, not its fast version: what it reads of the grid
    /// it reads of all slices.
    pub sliceable: bool,
    /// The modules whose gates it calls, as [`Gates::add`](crate::Gates::add) names them: whoever launches it gives it, for each in
    /// this order, where the module's protected window begins, how many bytes it has less one, and who the caller is.
    /// A window is a power of two long and begins with a multiple of that.
    pub modules: Vec<String>,
    /// How many bytes of dynamic shared memory every launch has to give, at most
    /// [`DYNAMIC_SPAN_MAX`](crate::limits::DYNAMIC_SPAN_MAX). Whoever launches raises a smaller number to this:
    /// it is what the clamps of shared accesses rest on.
    pub dynamic_shared_min: u32,
    /// Its fast version, where there is one.
    pub fast: Option<FastVersion>,
}

/// What a launch gives a fast version by a pointer among its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerTerm {
    /// Which parameter.
    pub parameter: usize,
    /// Where in it the eight bytes of the pointer lie, in bytes.
    pub offset: u32,
    /// Of what it is a multiple, in bytes: a power of two, at most 16.
    pub align: u32,
    /// Whether it points into the part of the window that stores reach; where not, into any part of it.
    pub writes: bool,
}

/// What a word among the parameters of a fast version is at most, as a number without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundTerm {
    /// Which parameter.
    pub parameter: usize,
    /// Where in it the four bytes of the word lie, in bytes.
    pub offset: u32,
    /// What it does not exceed.
    pub most: u32,
}

/// How large a block of a fast version may be: so that what its threads access lies in the block's shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedTerm {
    /// Bytes by where in its block a thread is.
    pub by: Parts,
    /// Bytes besides.
    pub constant: u64,
    /// What all of them together do not exceed; the launch's dynamic shared memory where that is none.
    pub at_most: Option<u64>,
}

impl SharedTerm {
    /// Whether blocks of this shape keep it, which have so many bytes of dynamic shared memory.
    #[must_use]
    pub fn admits(&self, block: [u32; 3], dynamic_bytes: u64) -> bool {
        most::of_last(&self.by, block) + u128::from(self.constant)
            <= u128::from(self.at_most.unwrap_or(dynamic_bytes))
    }
}

/// Another version of an entry, for launches that keep its terms: what follows from them is not confined again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FastVersion {
    /// Its name in the text, which the device has it under; its parameters are those of the entry.
    pub symbol: String,
    /// What every launch of it gives.
    pub pointers: Vec<PointerTerm>,
    /// And how large its blocks are: at most [`SHARED_TERMS_MAX`](crate::limits::SHARED_TERMS_MAX) terms.
    pub shared: Vec<SharedTerm>,
    /// And what words among its parameters are: at most [`BOUND_TERMS_MAX`](crate::limits::BOUND_TERMS_MAX) terms.
    pub bounds: Vec<BoundTerm>,
    /// What a thread does that never looks at the flag, in the units of the opcode table, at most
    /// [`SHORT_COST_MAX`](crate::limits::SHORT_COST_MAX) and what the bounds of its shared memory take: whoever launches
    /// bounds what all threads do together. 0 where threads look.
    pub work: u32,
    /// Whether no two rows of a block may have a warp in common: blocks are a multiple of 32 wide, or have one row.
    pub rows: bool,
}

/// A text that has been verified. There is no other way to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub(crate) text: String,
    pub(crate) architecture: u32,
    pub(crate) entries: Vec<VerifiedEntry>,
    pub(crate) footprints: Vec<Footprint>,
}

impl Verified {
    /// The text to compile, byte for byte.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The number of the architecture that its `.target` names: 90 for `sm_90a`.
    #[must_use]
    pub fn architecture(&self) -> u32 {
        self.architecture
    }

    /// The entries, in the order of the text.
    #[must_use]
    pub fn entries(&self) -> &[VerifiedEntry] {
        &self.entries
    }

    /// What the entries ask of the device, in the same order: the bounds of their machine code.
    #[must_use]
    pub fn footprints(&self) -> &[Footprint] {
        &self.footprints
    }
}
