//! The C symbols of `libcuda.so.1`: the only unsafe code of this crate.
//!
//! Each export is one row: the symbol, the name and version by which `cuGetProcAddress` finds it, its arguments
//! as [`args`] reads them, and the safe function that serves it. What a C caller promises (a pointer is null or
//! good for what the call's documentation says) is relied on in [`args`], and nowhere else.

mod args;
mod callbacks;
mod code;
mod exported;
mod graph_layouts;
mod graphs;
mod layouts;
mod memory;
mod packed;
mod pages;
mod platform;
mod pools;
mod queries;
mod refused;
mod reported;
mod row;
mod rows;
mod streams;
mod tables;
mod texture_layouts;
mod textures;
mod virtual_memory;

pub(crate) use args::{
    Argument, Host, ImagePointer, In, InMaybe, InOut, InOutMaybe, InSlice, Out, OutBytes, OutList, OutMaybe,
    OutSlice, Room, ShareableHandle, Text, Wide,
};
pub(crate) use callbacks::{Callback, Destructor, HostFunction, LogCallback, SharedBytesOf, StreamCallback};
pub(crate) use graph_layouts::{
    AllocationNode, EdgeData, HostNode, InstantiateParameters, KernelNode, KernelNodeOfContext, MemsetNode,
    NodeParameters, UpdateResult,
};
pub(crate) use layouts::{
    AccessDescription, BatchOperand, BatchedCopy3d, Copy2d, Copy3d, CopyAttributes, IpcHandle,
    LaunchAttribute, LaunchConfig, Location, PoolProperties, Properties, Side2d, Side3d,
};
pub(crate) use packed::{Extra, Parameters};
pub(crate) use pages::{PAGE_BYTES, Pages, Spare};
pub(crate) use platform::{Print, at_exit, is_called_by, on_fork_in_child, thread_id};
pub(crate) use refused::{FAMILIES, Lookup};
pub(crate) use row::{Function, NullStream, Row};
pub(crate) use rows::rows;
pub(crate) use tables::export_table;
pub(crate) use texture_layouts::{ArrayDescription, ArrayDescription3d, Resource, TextureDescription};

#[cfg(test)]
mod tests;
