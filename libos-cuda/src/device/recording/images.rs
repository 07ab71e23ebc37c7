//! Images and their entries.

use std::sync::Arc;

use bulkhead_client::AddressRange;
use bulkhead_schema::RefusedEntry;

use super::super::{Error, ErrorCode, Handle};
use super::values::{DeviceRange, Heap, error};
use super::variables::Variables;

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

impl Image {
    pub(crate) fn ranges(&self) -> Vec<AddressRange> {
        Vec::new()
    }

    pub(crate) fn variable_around(&self, _address: u64) -> Option<(u64, u64)> {
        None
    }
}

/// Offsets and sizes of parameters as in `.param .u64 name, .param .align 4 .b8 name[12]`.
pub(super) fn parameters(list: &str) -> Vec<Parameter> {
    let mut found = Vec::new();
    let mut end = 0u32;
    for parameter in list.split(',').filter(|parameter| parameter.contains(".param")) {
        let word = |prefix: &str| {
            parameter.split_whitespace().find_map(|word| word.strip_prefix(prefix)?.parse::<u32>().ok())
        };
        let element = [".u", ".s", ".b", ".f"].iter().find_map(|prefix| word(prefix)).unwrap_or(64) / 8;
        let count =
            parameter.split_once('[').and_then(|(_, rest)| rest.split(']').next()?.parse().ok()).unwrap_or(1);
        let align = parameter
            .split_once(".align")
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(element);
        let offset = end.next_multiple_of(align);
        found.push(Parameter { offset, bytes: element * count });
        end = offset + element * count;
    }
    found
}
