//! What C has of arrays, textures and surfaces: its structures.

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescription {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}
const _: () = assert!(size_of::<ArrayDescription>() == 24);

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescription3d {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}
const _: () = assert!(size_of::<ArrayDescription3d>() == 40);

/// `CUDA_RESOURCE_DESC`: `words` hold an array's handle; or an address, the format (low half) and the channels (high half)
/// of texels, and then bytes, or width, height and bytes of a row.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Resource {
    pub(crate) kind: u32,
    padding: u32,
    pub(crate) words: [u64; 16],
    flags: u32,
    padding_behind: u32,
}
const _: () = assert!(size_of::<Resource>() == 144 && std::mem::offset_of!(Resource, flags) == 136);

/// `CUDA_TEXTURE_DESC`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct TextureDescription {
    pub(crate) address: [u32; 3],
    pub(crate) filter: u32,
    pub(crate) flags: u32,
    anisotropy: u32,
    mipmaps: [u32; 4],
    pub(crate) border: [u32; 4],
    reserved: [u32; 12],
}

impl TextureDescription {
    /// As it lies in memory, in words.
    pub(crate) fn words(&self) -> [u64; 13] {
        let plain = [self.filter, self.flags, self.anisotropy];
        let parts: [&[u32]; 5] = [&self.address, &plain, &self.mipmaps, &self.border, &self.reserved];
        let mut halves = parts.into_iter().flatten().map(|half| u64::from(*half));
        std::array::from_fn(|_| halves.next().unwrap_or(0) | halves.next().unwrap_or(0) << 32)
    }
}
const _: () =
    assert!(size_of::<TextureDescription>() == 104 && std::mem::offset_of!(TextureDescription, border) == 40);
