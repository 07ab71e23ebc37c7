//! The module-scope variables of loaded code, as the compile process describes them and clients place them.
//!
//! Whoever reads such a description has it from somebody who read hostile bytes: it is bounded here and believed by
//! nobody but the client, whose own memory it describes.

use std::cell::Cell;

use crate::bulkhead_capnp::{data_variable, module_data, refused_entry, relocation};
use crate::{Error, ErrorCode, limits};

/// A module's block of variables; of no bytes where it has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleData {
    /// Its length.
    pub bytes: u64,
    /// What it begins with; the rest is zero.
    pub initial: Vec<u8>,
    /// Addresses in it.
    pub relocations: Vec<Relocation>,
    /// The variables in it.
    pub variables: Vec<DataVariable>,
    /// The entries that were left out.
    pub refused: Vec<RefusedEntry>,
}

/// An entry that was left out of loaded code, since the guard has something against it and nothing against the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedEntry {
    /// Its name.
    pub name: String,
    /// What the guard has against it, for people.
    pub why: String,
}

/// A number that a block holds: the low `bytes` of (address of the block + `to`) >> `shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Where in the block it is.
    pub at: u64,
    /// What it is the address of, from the beginning of the block on.
    pub to: u64,
    /// By how many bits the address is shifted.
    pub shift: u8,
    /// Bytes of the number.
    pub bytes: u8,
}

/// A variable in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataVariable {
    /// Its name.
    pub name: String,
    /// Where in the block it begins.
    pub at: u64,
    /// How long it is.
    pub bytes: u64,
    /// Whether the host uses it where it lies, so that its block has to be host memory.
    pub managed: bool,
}

impl ModuleData {
    /// How much a description is in a message, about.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        let names: usize = self.variables.iter().map(|variable| variable.name.len() + 40).sum();
        let refused: usize =
            self.refused.iter().map(|refused| refused.name.len() + refused.why.len() + 32).sum();
        let relocations = self.relocations.len().saturating_mul(24);
        self.initial.len().saturating_add(names).saturating_add(refused).saturating_add(relocations)
    }

    /// Whether the description is one: everything that it names lies in the block, and it is not too long.
    ///
    /// # Errors
    /// `limitReached` where it is too long, `imageInvalid` where it describes no block.
    pub fn check(&self) -> Result<(), Error> {
        if self.message_bytes() > limits::MODULE_DATA_BYTES_MAX {
            return Err(too_long());
        }
        let inside = |at: u64, bytes: u64| at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        let sound = inside(0, self.initial.len() as u64)
            && self.variables.iter().all(|variable| inside(variable.at, variable.bytes))
            && self.relocations.iter().all(|relocation| {
                // Filled in before the block is sent: not far beyond what it begins with.
                let filled = limits::MODULE_DATA_BYTES_MAX as u64;
                inside(relocation.at, relocation.bytes.into())
                    && relocation.at < filled
                    && (1..=8).contains(&relocation.bytes)
                    && relocation.shift < 64
            });
        if sound { Ok(()) } else { Err(invalid("it reaches beyond its block")) }
    }

    /// Reads it from a message, and checks it.
    ///
    /// # Errors
    /// As [`ModuleData::check`].
    pub fn read(data: module_data::Reader<'_>) -> Result<Self, Error> {
        let nonsense = |error: capnp::Error| invalid(&error.to_string());
        let (initial, relocations, variables, refused) = (
            data.get_initial().map_err(nonsense)?,
            data.get_relocations().map_err(nonsense)?,
            data.get_variables().map_err(nonsense)?,
            data.get_refused().map_err(nonsense)?,
        );
        let described = (initial.len() as u64)
            .saturating_add(u64::from(relocations.len()).saturating_mul(24))
            .saturating_add(u64::from(variables.len()).saturating_mul(40))
            .saturating_add(u64::from(refused.len()).saturating_mul(32));
        if described > limits::MODULE_DATA_BYTES_MAX as u64 {
            let most = limits::MODULE_DATA_BYTES_MAX;
            let message = format!("the module's variables take {described} bytes to describe, not {most}");
            return Err(Error::new(ErrorCode::LimitReached, message));
        }
        let room = Cell::new(limits::MODULE_DATA_BYTES_MAX);
        let text = |text: capnp::Result<capnp::text::Reader<'_>>| {
            let text = text.map_err(nonsense)?;
            room.set(room.get().checked_sub(text.len()).ok_or_else(too_long)?);
            Ok::<_, Error>(text.to_str().map_err(|_| invalid("a name is no text"))?.to_owned())
        };
        let variable = |variable: data_variable::Reader<'_>| {
            let name = text(variable.get_name())?;
            let (at, bytes, managed) = (variable.get_at(), variable.get_bytes(), variable.get_managed());
            Ok(DataVariable { name, at, bytes, managed })
        };
        let entry = |entry: refused_entry::Reader<'_>| {
            Ok(RefusedEntry { name: text(entry.get_name())?, why: text(entry.get_why())? })
        };
        let relocation = |relocation: relocation::Reader<'_>| Relocation {
            at: relocation.get_at(),
            to: relocation.get_to(),
            shift: relocation.get_shift(),
            bytes: relocation.get_bytes(),
        };
        let data = Self {
            bytes: data.get_bytes(),
            initial: initial.to_vec(),
            relocations: relocations.iter().map(relocation).collect(),
            variables: variables.iter().map(variable).collect::<Result<_, Error>>()?,
            refused: refused.iter().map(entry).collect::<Result<_, Error>>()?,
        };
        data.check()?;
        Ok(data)
    }

    /// Writes it into a message.
    pub fn write(&self, mut builder: module_data::Builder<'_>) {
        let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        builder.set_bytes(self.bytes);
        builder.set_initial(&self.initial);
        let mut relocations = builder.reborrow().init_relocations(length(self.relocations.len()));
        for (index, relocation) in (0..).zip(&self.relocations) {
            let mut to = relocations.reborrow().get(index);
            to.set_at(relocation.at);
            to.set_to(relocation.to);
            to.set_shift(relocation.shift);
            to.set_bytes(relocation.bytes);
        }
        let mut refused = builder.reborrow().init_refused(length(self.refused.len()));
        for (index, entry) in (0..).zip(&self.refused) {
            let mut to = refused.reborrow().get(index);
            to.set_name(&entry.name);
            to.set_why(&entry.why);
        }
        let mut variables = builder.init_variables(length(self.variables.len()));
        for (index, variable) in (0..).zip(&self.variables) {
            let mut to = variables.reborrow().get(index);
            to.set_name(&variable.name);
            to.set_at(variable.at);
            to.set_bytes(variable.bytes);
            to.set_managed(variable.managed);
        }
    }

    /// What the block holds at its beginning where it lies at an address.
    #[must_use]
    pub fn content(&self, address: u64) -> Vec<u8> {
        let mut content = self.initial.clone();
        for Relocation { at, to, shift, bytes } in &self.relocations {
            let value = address.wrapping_add(*to) >> shift;
            let Some((at, width)) = usize::try_from(*at).ok().zip(Some(usize::from(*bytes))) else {
                continue;
            };
            if content.len() < at.saturating_add(width) {
                content.resize(at.saturating_add(width), 0);
            }
            if let Some(place) = content.get_mut(at..at.saturating_add(width)) {
                for (to, from) in place.iter_mut().zip(value.to_le_bytes()) {
                    *to = from;
                }
            }
        }
        content
    }
}

fn too_long() -> Error {
    let most = limits::MODULE_DATA_BYTES_MAX;
    let message = format!(
        "what is to be said of the module's variables and refused entries is longer than {most} bytes"
    );
    Error::new(ErrorCode::LimitReached, message).remedy("fill large tables from the host, or split the image")
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorCode::ImageInvalid, format!("the description of the module's variables is wrong: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> ModuleData {
        ModuleData {
            bytes: 64,
            initial: vec![1, 2, 3],
            relocations: vec![Relocation { at: 8, to: 0x20, shift: 0, bytes: 8 }],
            variables: vec![DataVariable { name: "x".into(), at: 0, bytes: 64, managed: true }],
            refused: vec![RefusedEntry { name: "k".into(), why: "it is too long".into() }],
        }
    }

    #[test]
    fn a_description_comes_out_of_a_message_as_it_went_in() {
        let mut message = capnp::message::Builder::new_default();
        block().write(message.init_root());
        assert_eq!(ModuleData::read(message.get_root_as_reader().unwrap()).unwrap(), block());
    }

    #[test]
    fn a_description_that_leaves_its_block_is_refused() {
        let changes: [fn(&mut ModuleData); 8] = [
            |data| data.bytes = 2,
            |data| data.variables[0].at = 1,
            |data| data.variables[0].bytes = u64::MAX,
            |data| data.relocations[0].at = 57,
            |data| data.relocations[0].at = u64::MAX,
            |data| data.relocations[0].bytes = 0,
            |data| data.relocations[0].bytes = 9,
            |data| data.relocations[0].shift = 64,
        ];
        block().check().unwrap();
        for change in changes {
            let mut data = block();
            change(&mut data);
            let mut message = capnp::message::Builder::new_default();
            data.write(message.init_root());
            let read = ModuleData::read(message.get_root_as_reader().unwrap());
            assert_eq!(read.unwrap_err().code, ErrorCode::ImageInvalid, "{data:?}");
        }
    }

    #[test]
    fn a_description_is_not_longer_than_a_message_may_be() {
        let mut data = block();
        data.bytes = 1 << 30;
        data.initial = vec![1; limits::MODULE_DATA_BYTES_MAX + 1];
        assert_eq!(data.check().unwrap_err().code, ErrorCode::LimitReached);
        data.initial.clear();
        data.relocations = vec![data.relocations[0]; limits::MODULE_DATA_BYTES_MAX / 24 + 1];
        let mut message = capnp::message::Builder::new_default();
        data.write(message.init_root());
        let read = ModuleData::read(message.get_root_as_reader().unwrap());
        assert_eq!(read.unwrap_err().code, ErrorCode::LimitReached);
    }

    #[test]
    fn names_are_not_read_beyond_what_may_be_said() {
        let mut data = block();
        data.variables[0].name = "x".repeat(limits::MODULE_DATA_BYTES_MAX + 1);
        data.variables.push(DataVariable { name: "y".into(), at: 0, bytes: 1, managed: false });
        let mut message = capnp::message::Builder::new_default();
        data.write(message.init_root());
        let root: module_data::Builder<'_> = message.get_root().unwrap();
        let last = root.get_variables().unwrap().get(1).init_name(1);
        // No text: whoever gets that far says so.
        last.as_bytes_mut().fill(0xff);
        let read = ModuleData::read(message.get_root_as_reader().unwrap());
        assert_eq!(read.unwrap_err().code, ErrorCode::LimitReached);
    }

    #[test]
    fn addresses_are_filled_in_where_the_block_lies() {
        let mut data = block();
        data.relocations.push(Relocation { at: 20, to: u64::MAX, shift: 8, bytes: 1 });
        let content = data.content(0x1_0000_0000);
        assert_eq!(content[..3], [1, 2, 3]);
        assert_eq!(content[8..16], 0x1_0000_0020_u64.to_le_bytes());
        assert_eq!(content[20], 0xff);
        assert_eq!(content.len(), 21);
    }
}
