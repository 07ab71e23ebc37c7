//! Where variables lie: parameters, constants, shared and local memory.

use bulkhead_gpu::ParameterLayout;
use bulkhead_ptx::ast::{Operand, Variable};

use super::refusal::Refusal;
use super::words::{bits_of, pattern, single_bits};
use crate::code::ConstantBank;

/// Constant memory of one image, as on NVIDIA's devices.
const CONSTANT_BYTES_MAX: u64 = 64 << 10;
/// Parameters of one entry (since sm_70).
const PARAMETER_BYTES_MAX: u64 = 32_764;

/// Size and alignment of a variable; an array without a length has size 0.
pub(crate) fn extent(variable: &Variable) -> Result<(u64, u64), Refusal> {
    let bits = bits_of(variable.ty);
    if bits < 8 || !matches!(variable.vector, 1 | 2 | 4 | 8) {
        return Err(Refusal::new(format!("`{}` has a type that memory does not hold", variable.name)));
    }
    let element = u64::from(bits / 8) * u64::from(variable.vector);
    let size = variable
        .dimensions
        .iter()
        .try_fold(element, |size, dimension| size.checked_mul(*dimension))
        .filter(|size| *size < 1 << 32)
        .ok_or_else(|| Refusal::new(format!("`{}` is too large", variable.name)))?;
    let align = variable.align.map_or(element, u64::from);
    if !align.is_power_of_two() || align > 1 << 16 {
        return Err(Refusal::new(format!("the alignment of `{}` is not a power of two", variable.name)));
    }
    Ok((size, align))
}

/// Lays variables out one behind the other.
#[derive(Debug, Default, Clone)]
pub(crate) struct Cursor {
    /// First free byte.
    pub(crate) end: u64,
}

impl Cursor {
    /// Places one more variable.
    pub(crate) fn place(&mut self, size: u64, align: u64) -> u64 {
        let at = self.end.next_multiple_of(align);
        self.end = at + size;
        at
    }
}

/// The parameter block of an entry.
pub(crate) fn parameters(list: &[Variable]) -> Result<(Vec<ParameterLayout>, u32), Refusal> {
    let mut cursor = Cursor::default();
    let mut layout = Vec::with_capacity(list.len());
    for parameter in list {
        let (size, align) = extent(parameter)?;
        let at = cursor.place(size, align);
        if cursor.end > PARAMETER_BYTES_MAX {
            return Err(Refusal::new("the parameters are too long"));
        }
        let narrow =
            |value: u64| u32::try_from(value).map_err(|_| Refusal::new("the parameters are too long"));
        layout.push(ParameterLayout { offset: narrow(at)?, bytes: narrow(size)? });
    }
    let end = u32::try_from(cursor.end).map_err(|_| Refusal::new("the parameters are too long"))?;
    Ok((layout, end))
}

/// Adds a `.const` variable to the bank.
pub(crate) fn constant(bank: &mut ConstantBank, variable: &Variable) -> Result<(), Refusal> {
    let (mut size, align) = extent(variable)?;
    let element = bits_of(variable.ty) as usize / 8;
    let values = variable.flat_initializer().ok_or_else(|| {
        Refusal::new(format!("the initializer of `{}` does not have the shape of the array", variable.name))
    })?;
    let count = values.last().map_or(0, |(index, _)| index + 1);
    if size == 0 {
        // `.const .b8 a[] = {...}` takes its length from the initializer.
        size = (element * count) as u64;
    }
    let mut cursor = Cursor { end: bank.bytes.len() as u64 };
    let at = cursor.place(size, align);
    if cursor.end > CONSTANT_BYTES_MAX {
        return Err(Refusal::new("the constants are larger than 64 KiB"));
    }
    let index = |at: u64| usize::try_from(at).map_err(|_| Refusal::new("the constants are too large"));
    let (start, end) = (index(at)?, index(cursor.end)?);
    bank.bytes.resize(end, 0);
    if count * element > end - start {
        return Err(Refusal::new(format!("`{}` has more values than room", variable.name)));
    }
    for (index, value) in values {
        let word: u64 = match (value, element) {
            (Operand::Integer(value), _) => pattern(*value),
            (Operand::Float32(bits), 4) => u64::from(*bits),
            (Operand::Float64(bits), 8) => *bits,
            (Operand::Float64(bits), 4) => single_bits(*bits),
            _ => {
                return Err(Refusal::new(format!(
                    "`{}` has an initializer that is not a number",
                    variable.name
                )));
            }
        };
        let to = start + index * element;
        bank.bytes[to..to + element].copy_from_slice(&word.to_le_bytes()[..element]);
    }
    bank.symbols.insert(variable.name.clone(), at);
    Ok(())
}
