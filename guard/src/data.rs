//! A module's block: what lies in it, and what it holds before the first launch.
//!
//! The confined form declares no `.global` variable. Those of the tenant lie side by side in one *block* of the
//! session's own memory, which whoever loads the image allocates and fills; every entry takes its address as its
//! last visible parameter. To the verifier that is a parameter like any other: an access through it is confined
//! as all global accesses are, so a wrong address or a wrong content harms nobody but the session.

use crate::maps::HashMap;

use crate::ast::{Operand, Variable};
use crate::confine::Stray;
use crate::limits::{DATA_ALIGN_MAX, DATA_BYTES_MAX, DATA_INITIAL_BYTES_MAX};
use crate::names;
use crate::report::{Reason, Report};

/// The block of a module; of no bytes where it has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Data {
    /// Its length. It begins at a multiple of [`DATA_ALIGN_MAX`].
    pub bytes: u64,
    /// What it begins with; the rest is zero.
    pub initial: Vec<u8>,
    /// Addresses in it, which are known when the block has one.
    pub relocations: Vec<Relocation>,
    /// The variables in it, in the order of the block.
    pub variables: Vec<DataVariable>,
}

/// A number that the block holds: the low `bytes` of (address of the block + `to`) >> `shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// Where the number begins.
    pub at: u64,
    /// What it is the address of, from the beginning of the block on. It may lie outside.
    pub to: u64,
    /// By how many bits the address is shifted.
    pub shift: u8,
    /// Bytes of the number.
    pub bytes: u8,
}

/// A variable of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataVariable {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub at: u64,
    /// How long it is.
    pub bytes: u64,
    /// Whether the host uses it where it lies.
    pub managed: bool,
}

/// What the compiler says of a managed variable.
const MANAGED: &str = ".managed";

/// Whether a variable is managed, which is all that is said of it.
pub(crate) fn is_managed(variable: &Variable) -> bool {
    variable.attributes.as_slice() == [MANAGED]
}

/// Behind a variable lies as much as it has, but no less than the first and no more than the second.
const ZONE_BYTES: u64 = 16;
const ZONE_BYTES_MAX: u64 = 256;

/// A variable with its size and alignment.
type Measured<'a> = (&'a Variable, u64, u64);

/// Where each variable lies.
#[derive(Debug, Default)]
pub(crate) struct Layout<'a> {
    places: HashMap<&'a str, u64>,
    /// Where what has an initializer ends.
    initial: u64,
    bytes: u64,
}

impl<'a> Layout<'a> {
    /// Lays variables out, those with an initializer first. Where what goes beyond one is to be told, nothing lies right behind it.
    pub(crate) fn of(variables: &[Measured<'a>], stray: Stray, report: &mut Report) -> Self {
        let mut layout = Self::default();
        for initialized in [true, false] {
            for (variable, bytes, align) in variables {
                if variable.initializer.is_empty() == initialized {
                    continue;
                }
                let zone = match stray {
                    Stray::Silent => 0,
                    Stray::Told => (*bytes).clamp(ZONE_BYTES, ZONE_BYTES_MAX),
                };
                let placed = layout.place(*bytes, *align, zone);
                match placed {
                    Ok(at) => {
                        layout.places.insert(&variable.name, at);
                    }
                    Err(reason) => report.add(variable.span, reason),
                }
            }
            if initialized {
                layout.initial = layout.bytes;
            }
        }
        layout
    }

    fn place(&mut self, bytes: u64, align: u64, zone: u64) -> Result<u64, Reason> {
        if !align.is_power_of_two() || align > DATA_ALIGN_MAX {
            let what = "alignment of a module-scope variable, a power of two";
            return Err(Reason::Limit { what, most: DATA_ALIGN_MAX });
        }
        let at = self.bytes.checked_next_multiple_of(align);
        let end = at.and_then(|at| at.checked_add(bytes)).filter(|end| *end <= DATA_BYTES_MAX);
        let (Some(at), Some(end)) = (at, end) else {
            return Err(Reason::Limit { what: "bytes of module-scope variables", most: DATA_BYTES_MAX });
        };
        self.bytes = end.saturating_add(zone);
        Ok(at)
    }

    /// Where a variable begins; none where it has no place.
    pub(crate) fn place_of(&self, name: &str) -> Option<u64> {
        self.places.get(name).copied()
    }

    /// What the block holds.
    ///
    /// What a value made of a function's address is comes from `function`.
    pub(crate) fn fill(
        &self,
        variables: &[Measured<'a>],
        function: &dyn Fn(&Operand) -> Option<u64>,
        report: &mut Report,
    ) -> Data {
        let mut data = Data { bytes: self.bytes, ..Data::default() };
        let initial = usize::try_from(self.initial).ok().filter(|_| self.initial <= DATA_INITIAL_BYTES_MAX);
        let Some(initial) = initial else {
            let span = variables.first().map(|(variable, ..)| variable.span).unwrap_or_default();
            let what = "bytes of initialized module-scope variables";
            report.add(span, Reason::Limit { what, most: DATA_INITIAL_BYTES_MAX });
            return data;
        };
        data.initial = vec![0; initial];
        for (variable, bytes, _) in variables {
            let Some(at) = self.places.get(variable.name.as_str()).copied() else { continue };
            let managed = is_managed(variable);
            data.variables.push(DataVariable { name: variable.name.clone(), at, bytes: *bytes, managed });
            if let Err(reason) = self.initialize(variable, at, *bytes, function, &mut data) {
                report.add(variable.span, reason);
            }
        }
        data.variables.sort_by_key(|variable| variable.at);
        let used = data.initial.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        data.initial.truncate(used);
        data
    }

    fn initialize(
        &self,
        variable: &Variable,
        at: u64,
        bytes: u64,
        function: &dyn Fn(&Operand) -> Option<u64>,
        data: &mut Data,
    ) -> Result<(), Reason> {
        let name = &variable.name;
        let values = variable.flat_initializer();
        let element = names::type_bytes(variable.ty);
        let (Some(values), Some(element)) = (values, element) else {
            return Err(Reason::Malformed(format!("the initializer of `{name}` has another shape")));
        };
        for (index, value) in values {
            let offset = (index as u64).checked_mul(element);
            let offset = offset.filter(|offset| offset.saturating_add(element) <= bytes);
            let Some(offset) = offset else {
                return Err(Reason::Malformed(format!("`{name}` has more values than room")));
            };
            let at = at + offset;
            let of_function = || Some(u128::from(function(value)?).to_le_bytes());
            match number(value, element).or_else(of_function) {
                Some(word) => {
                    let room = usize::try_from(at).ok().and_then(|at| data.initial.get_mut(at..));
                    for (to, byte) in room.into_iter().flatten().zip(word).take(width(element)) {
                        *to = byte;
                    }
                }
                None => data.relocations.push(self.relocation(variable, value, at, element)?),
            }
        }
        Ok(())
    }

    fn relocation(
        &self,
        variable: &Variable,
        value: &Operand,
        at: u64,
        element: u64,
    ) -> Result<Relocation, Reason> {
        let unlike = || Reason::NotImplemented {
            what: format!("such a value in the initializer of `{}`", variable.name),
        };
        let (mask, address) = match value {
            Operand::Masked(mask, address) => (*mask, &**address),
            address => (u64::MAX, address),
        };
        let shift = mask.trailing_zeros();
        let bits = mask.count_ones();
        let contiguous = mask.checked_shr(shift).is_some_and(|low| low.trailing_ones() == bits);
        if !contiguous || u64::from(bits) != element * 8 || !shift.is_multiple_of(8) {
            return Err(unlike());
        }
        let (name, offset) = match address {
            Operand::Symbol(name) => (name, 0),
            Operand::SymbolOffset(name, offset) | Operand::Generic(name, offset) => (name, *offset),
            _ => return Err(unlike()),
        };
        let Some(to) = self.places.get(name.as_str()) else {
            return Err(Reason::NotImplemented {
                what: format!("the address of `{name}` in the initializer of `{}`", variable.name),
            });
        };
        let narrow = |value: u64| u8::try_from(value).map_err(|_| unlike());
        Ok(Relocation {
            at,
            to: to.wrapping_add_signed(offset),
            shift: narrow(u64::from(shift))?,
            bytes: narrow(element)?,
        })
    }
}

/// The bytes of a number of an initializer, in memory's order; none where it is none.
pub(crate) fn number(value: &Operand, element: u64) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    match (value, element) {
        (Operand::Integer(value), _) => bytes = value.to_le_bytes(),
        (Operand::Float32(bits), 4) => bytes[..4].copy_from_slice(&bits.to_le_bytes()),
        (Operand::Float64(bits), 8) => bytes[..8].copy_from_slice(&bits.to_le_bytes()),
        (Operand::Float64(bits), 4) => bytes[..4].copy_from_slice(&single(*bits).to_le_bytes()),
        _ => return None,
    }
    Some(bytes)
}

fn width(element: u64) -> usize {
    usize::try_from(element).unwrap_or(usize::MAX)
}

/// A decimal number as the single-precision one that is nearest.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what is meant")]
fn single(double: u64) -> f32 {
    f64::from_bits(double) as f32
}
