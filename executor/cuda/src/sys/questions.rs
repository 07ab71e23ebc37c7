//! What the driver is asked that changes nothing.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use bulkhead_gpu::Question;
use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1, CUlaunchConfig,
};

use super::{Code, Driver, Function};

/// A tensor map: opaque, at a multiple of its size.
#[repr(C, align(128))]
struct TensorMap([u64; 16]);

/// As many of the words from one on as an array has, each cut to what it holds.
fn array<T: Default + Copy, const N: usize>(words: &[u64], first: usize, of: impl Fn(u64) -> T) -> [T; N] {
    let mut array = [T::default(); N];
    for (to, word) in array.iter_mut().zip(words.get(first..).unwrap_or_default()) {
        *to = of(*word);
    }
    array
}

fn half(word: u64) -> u32 {
    u32::try_from(word).unwrap_or(u32::MAX)
}

fn signed(word: u64) -> c_int {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is the integer")]
    let low = word as u32;
    low.cast_signed()
}

impl Driver {
    /// Sets a limit of the current context.
    pub(crate) fn limit(&self, words: &[u64]) -> Result<(), Code> {
        let [limit] = array::<u32, 1>(words, 0, half);
        let [value] = array::<usize, 1>(words, 1, |word| usize::try_from(word).unwrap_or(usize::MAX));
        // SAFETY: it is asked with numbers only, which the driver checks.
        Code::check(unsafe { (self.set_limit)(limit, value) })
    }

    /// Asks about a launch: how many of its clusters fit, or how large one may be.
    pub(crate) fn ask_clusters(
        &self,
        question: Question,
        function: Function,
        words: &[u64],
    ) -> Result<u64, Code> {
        let [grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, x, y, z, together] =
            array::<u32, 11>(words, 0, half);
        let cooperative = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
            pad: [0; 4],
            value: CUlaunchAttributeValue { cooperative: c_int::from(together != 0) },
        };
        let clusters = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: CUlaunchAttributeValue {
                clusterDim: CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z },
            },
        };
        let mut attributes = [cooperative, clusters];
        let config = CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: shared,
            hStream: null_mut(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: if x == 0 { 1 } else { 2 },
        };
        let mut count = 0;
        let call = if question == Question::ClusterSize { self.cluster_size } else { self.active_clusters };
        // SAFETY: all pointers outlive the call, the configuration names no more attributes than there are, and the function
        // is in its table, pinned by the caller.
        Code::check(unsafe { call(&raw mut count, function.pointer(), &raw const config) })?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Has a tensor map made.
    pub(crate) fn tensor_map(&self, question: Question, words: &[u64]) -> Result<[u64; 16], Code> {
        let [kind, rank] = array::<u32, 2>(words, 0, half);
        // What it names is not looked at.
        let [address] = array::<usize, 1>(words, 2, |word| usize::try_from(word).unwrap_or(usize::MAX));
        let address: *mut c_void = with_exposed_provenance_mut(address);
        if rank > 5 {
            return Err(Code::INVALID_VALUE);
        }
        let (dimensions, strides) =
            (array::<u64, 5>(words, 3, |word| word), array::<u64, 4>(words, 8, |word| word));
        let mut map = TensorMap([0; 16]);
        let to: *mut c_void = (&raw mut map).cast();
        let made = if question == Question::TensorMapTiled {
            let (sides, elements) = (array::<u32, 5>(words, 12, half), array::<u32, 5>(words, 17, half));
            let [interleave, swizzle, promotion, fill] = array::<u32, 4>(words, 22, half);
            // SAFETY: `to` has the size and alignment of a map; each array has as many elements as the largest rank needs.
            unsafe {
                (self.tensor_map_tiled)(
                    to,
                    kind,
                    rank,
                    address,
                    dimensions.as_ptr(),
                    strides.as_ptr(),
                    sides.as_ptr(),
                    elements.as_ptr(),
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                )
            }
        } else {
            let (lower, upper) = (array::<c_int, 3>(words, 12, signed), array::<c_int, 3>(words, 15, signed));
            let [channels, pixels] = array::<u32, 2>(words, 18, half);
            let elements = array::<u32, 5>(words, 20, half);
            let [interleave, swizzle, promotion, fill] = array::<u32, 4>(words, 25, half);
            // SAFETY: as above; the corners have two elements less than the rank.
            unsafe {
                (self.tensor_map_im2col)(
                    to,
                    kind,
                    rank,
                    address,
                    dimensions.as_ptr(),
                    strides.as_ptr(),
                    lower.as_ptr(),
                    upper.as_ptr(),
                    channels,
                    pixels,
                    elements.as_ptr(),
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                )
            }
        };
        Code::check(made)?;
        Ok(map.0)
    }
}
