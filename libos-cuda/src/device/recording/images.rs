//! Images and their entries.

use std::sync::Arc;

use bulkhead_schema::RefusedEntry;

use super::super::{Error, ErrorCode, Handle};
use super::variables::Variables;
use super::{DeviceRange, Heap, error};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) handle: Handle,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameter_bytes: usize,
    pub(crate) data: Option<(u32, u64)>,
    pub(crate) threads_max: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) local_bytes: u32,
    pub(crate) constant_bytes: u32,
    pub(crate) registers: u32,
    pub(crate) ptx_version: u32,
    pub(crate) binary_version: u32,
}

#[derive(Clone)]
pub(crate) struct Image {
    pub(super) entries: Arc<[Entry]>,
    pub(super) refused: Arc<[RefusedEntry]>,
}

impl Entry {
    pub(crate) fn place_data(&self, _block: &mut [u8]) {}

    pub(crate) fn waits_in_stream(&self) -> bool {
        false
    }
}

impl Image {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn refused(&self) -> &[RefusedEntry] {
        &self.refused
    }

    pub(crate) fn variable(&self, name: &str) -> Result<DeviceRange, Error> {
        error(ErrorCode::NotFound, name)
    }

    pub(crate) fn variable_address(&self, name: &str) -> Result<u64, Error> {
        error(ErrorCode::NotFound, name)
    }

    pub(crate) fn variables(&self) -> Option<&Variables> {
        None
    }

    pub(crate) fn is_managed(&self, _address: u64) -> bool {
        false
    }

    pub(crate) fn heap(&self) -> Option<Heap> {
        None
    }
}
