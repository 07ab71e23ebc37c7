//! How urgent streams may be.

/// Lower is more urgent, as everywhere in CUDA.
pub(crate) const PRIORITY_LEAST: i32 = 0;
/// What NVIDIA's drivers offer.
pub(crate) const PRIORITY_GREATEST: i32 = -5;
