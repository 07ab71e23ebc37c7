//! What only matters to kernels, of which the recording device runs none.

use bulkhead_client::Violations;

use super::{Error, Parameter, Session};

impl Session {
    pub(crate) fn check_violations(&self) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn take_violations(&self) -> Violations {
        Violations::default()
    }

    pub(crate) fn list_memory(&self, _ranges: Vec<(u64, u64)>) -> Result<(), Error> {
        Ok(())
    }

    pub(crate) fn set_heap_bytes(&self, _bytes: u64) -> Result<(), Error> {
        Ok(())
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
