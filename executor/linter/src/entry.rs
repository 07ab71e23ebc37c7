//! One entry: its code, its attributes, and whether they fit its text.

use bulkhead_verifier::{entry_of, is_fast_version};

use crate::{
    Footprint,
    attributes::Attributes,
    code,
    elf::{Elf, Section, Symbol, symbol},
    linted::{ARCHITECTURE, Counts, LintedEntry, SHARED_RESERVED_BYTES, SPILL_BYTES_MAX, named},
    refusal::{Refusal, malformed},
};

/// Bytes of local and shared memory are rounded up to this by the assembler.
const ROUNDED: u64 = 16;
const REGISTERS_MAX: u32 = 255;

/// What is known of all of a cubin when its entries are read.
pub(crate) struct Cubin<'c> {
    pub(crate) elf: &'c Elf<'c>,
    pub(crate) symbols: &'c [Symbol<'c>],
    pub(crate) attributes: &'c Attributes,
}

/// An entry as its cubin has it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entry: LintedEntry,
    /// Its name in the machine code.
    pub(crate) symbol: String,
    pub(crate) code_bytes: u64,
    parameters: usize,
    opcodes_checked: bool,
}

impl Found {
    pub(crate) fn read(
        cubin: &Cubin<'_>,
        name: &str,
        section: &Section<'_>,
        own: &Attributes,
        block_bytes: u64,
        shared_bytes: u64,
    ) -> Result<Self, Refusal> {
        let Cubin { elf, symbols, attributes: module } = *cubin;
        let code = elf.bytes_of(section)?;
        let opcodes_checked = elf.architecture == ARCHITECTURE;
        let counts = if opcodes_checked {
            code::scan(code, elf.architecture, &own.jumps, &own.instructions)
                .map_err(|refusal| in_entry(name, refusal))?
        } else {
            Counts::default()
        };
        // The entry itself, and the functions that the assembler gave it.
        let inside = |symbol: &Symbol<'_>| {
            let place = symbol.section.and_then(|index| elf.sections.get(index));
            symbol.kind == symbol::FUNCTION && place.is_some_and(|place| place.offset == section.offset)
        };
        let functions = symbols.iter().zip(0..).filter(|(symbol, _)| inside(symbol));
        let functions: Vec<u32> = functions.map(|(_, index)| index).collect();
        let lacks = |what: &str| malformed(format!("nothing says what {what} {} has", named(name)));
        let stack_bytes = module.stack_bytes(&functions).ok_or_else(|| lacks("stack"))?;
        let registers = module.registers(&functions).ok_or_else(|| lacks("registers"))?;
        let parameter_bytes = u64::from(own.parameter_bytes.ok_or_else(|| lacks("parameters"))?);
        if let Some((offset, bytes)) = own.block
            && (u64::from(bytes) != parameter_bytes || u64::from(offset) + parameter_bytes != block_bytes)
        {
            return Err(malformed(format!(
                "the parameter block of {} is not what is said of it",
                named(name)
            )));
        }
        if own.block.is_none() && parameter_bytes > 0 {
            return Err(lacks("parameter block"));
        }
        let entry = LintedEntry {
            name: entry_of(name).to_owned(),
            is_fast: is_fast_version(name),
            registers,
            stack_bytes: u64::from(stack_bytes),
            shared_bytes,
            parameter_bytes,
            counts,
        };
        let code_bytes = section.bytes;
        let symbol = name.to_owned();
        Ok(Self { entry, symbol, code_bytes, parameters: own.parameters.len(), opcodes_checked })
    }

    /// Holds the entry against its text, whose module has so many bytes of constants.
    pub(crate) fn check_against(&self, text: &Footprint, constant_bytes: u64) -> Result<(), Refusal> {
        let Self { entry, parameters, opcodes_checked, .. } = self;
        let name = named(&self.symbol);
        if *parameters != text.parameters || entry.parameter_bytes != text.parameter_bytes {
            return Err(Refusal::OtherText(format!(
                "{name} takes {parameters} parameters of {} bytes, in the text {} of {}",
                entry.parameter_bytes, text.parameters, text.parameter_bytes
            )));
        }
        let rounded = |bytes: u64| bytes.checked_next_multiple_of(ROUNDED).unwrap_or(u64::MAX);
        let limits = [
            ("registers", u64::from(entry.registers), u64::from(REGISTERS_MAX)),
            ("bytes of stack", entry.stack_bytes, rounded(text.local_bytes).saturating_add(SPILL_BYTES_MAX)),
            (
                "bytes of shared memory",
                entry.shared_bytes,
                rounded(text.shared_bytes).saturating_add(SHARED_RESERVED_BYTES),
            ),
            ("bytes of constants", constant_bytes, rounded(text.constant_bytes)),
        ];
        for (what, found, most) in limits {
            if found > most {
                return Err(Refusal::Exceeds(format!("{name} has {found} {what} and may have {most}")));
            }
        }
        if !opcodes_checked {
            return Ok(());
        }
        let (global, shared, counts) = (text.global, text.shared, entry.counts);
        // What the device cannot do in one step is done by comparing and exchanging in a loop, which loads.
        let kinds = [
            ("loads from global memory", counts.global_loads, global.loads || global.updates),
            ("stores to global memory", counts.global_stores, global.stores),
            ("updates of global memory", counts.global_updates, global.updates),
            ("loads from shared memory", counts.shared_loads, shared.loads || shared.updates),
            ("stores to shared memory", counts.shared_stores, shared.stores || shared.updates),
            ("updates of shared memory", counts.shared_updates, shared.updates),
        ];
        for (what, count, may) in kinds {
            if count > 0 && !may {
                return Err(Refusal::Exceeds(format!("{name} has {count} {what} and its text has none")));
            }
        }
        Ok(())
    }
}

fn in_entry(name: &str, refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::NotAllowed(what) => Refusal::NotAllowed(format!("in {}: {what}", named(name))),
        Refusal::Malformed(what) => Refusal::Malformed(format!("in {}: {what}", named(name))),
        other @ (Refusal::Architecture { .. } | Refusal::Exceeds(_) | Refusal::OtherText(_)) => other,
    }
}
