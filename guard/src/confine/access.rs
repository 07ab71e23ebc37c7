//! Memory accesses: proven to stay where they may, or preceded by the sequence that makes them.
//!
//! What each sequence looks like is the contract with the verifier, and written down in the documentation of
//! `bulkhead_verifier`.

use crate::maps::HashMap;

use crate::access::{self, Access};
use crate::ast::{Address, AddressBase, Instruction, Operand, Space, Span, Statement, Variable};
use crate::confine::flatten::Parameters;
use crate::confine::lines::{self, instruction, register};
use crate::confine::roots::Roots;
use crate::confine::shared::{self, Clamp};
use crate::confine::symbols::{Symbol, Symbols};
use crate::confine::variables::Own;
use crate::confine::versions::Known;
use crate::limits::{EXTENT_BOUND, OFFSET_BOUND, SHARED_BYTES_MAX};
use crate::names::{self, Class};
use crate::report::Reason;
use crate::table::{self, Treatment};

/// What is known of the entry whose accesses are confined.
pub(super) struct Tables<'a> {
    symbols: &'a Symbols,
    /// The one local variable.
    local: Option<(&'a str, &'a Symbol)>,
    parameters: &'a Parameters<'a>,
    /// The parameter that is read by its address.
    in_place: Option<&'a Variable>,
    own: HashMap<&'a str, &'a Symbol>,
    roots: Roots,
}

/// How an address by symbol relates to its variable.
enum Static {
    /// Inside, and aligned for the access.
    Proven,
    /// Inside, but perhaps not aligned.
    Unaligned,
}

impl<'a> Tables<'a> {
    pub(super) fn new(
        symbols: &'a Symbols,
        variables: &'a [Own],
        parameters: &'a Parameters<'a>,
        in_place: Option<&'a Variable>,
        roots: Roots,
    ) -> Self {
        let own: HashMap<&str, &Symbol> =
            variables.iter().map(|own| (own.variable.name.as_str(), &own.symbol)).collect();
        let local = own.iter().find(|(_, symbol)| symbol.space == Space::Local);
        let local = local.map(|(name, symbol)| (*name, *symbol));
        Self { symbols, local, own, parameters, in_place, roots }
    }

    /// Appends an instruction in its confined form.
    pub(super) fn confine(
        &self,
        instruction: Instruction,
        clamp: Option<Clamp>,
        known: &dyn Fn(usize) -> Option<Known>,
        into: &mut Vec<Statement>,
    ) -> Result<(), Reason> {
        let row = table::check(&instruction)?;
        let accesses = access::decode(row, &instruction)?;
        let mut confined = instruction.clone();
        for access in accesses.iter().filter(|access| known(access.index) != Some(Known::Proven)) {
            let index = access.index;
            let access = OwnedAccess::of(access, instruction.span);
            let address = match access.space {
                Space::Parameter => self.parameter(&access, into)?,
                Space::Shared => self.shared(&access, clamp, into)?,
                Space::Local => self.local(&access, into)?,
                Space::Constant => self.constant(&access, into)?,
                Space::Global => global(&access, known(index) == Some(Known::Aligned), into)?,
                Space::Register => return Err(Reason::Malformed("registers have no addresses".to_owned())),
            };
            if let Some(operand) = confined.operands.get_mut(index) {
                *operand = Operand::Address(address);
            }
            if let Some((at, mask)) = access.stride
                && let Some(stride) = confined.operands.get_mut(at)
            {
                let lo = register("%bh_lo");
                let operands = vec![lo.clone(), stride.clone(), Operand::Integer(mask.into())];
                into.push(lines::instruction("and", &["b32"], operands, access.span));
                *stride = lo;
            }
        }
        if row.treatment == Treatment::Copy {
            source_bytes(&mut confined, into)?;
        }
        into.push(Statement::Instruction(confined));
        Ok(())
    }

    /// Bytes of a shared variable, 0 for the block's dynamic shared memory.
    pub(super) fn shared_bytes(&self, name: &str) -> Option<u64> {
        self.symbol(name).filter(|symbol| symbol.space == Space::Shared).map(|symbol| symbol.bytes)
    }

    fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.own.get(name).copied().or_else(|| self.symbols.get(name))
    }

    fn parameter(&self, access: &OwnedAccess, into: &mut Vec<Statement>) -> Result<Address, Reason> {
        let name = match (&access.address.base, self.in_place) {
            (AddressBase::Symbol(name), _) => name,
            (AddressBase::Register(name), Some(parameter)) if access.reads_only => {
                let bytes = names::variable_bytes(parameter).unwrap_or_default();
                if !names::variable_align(parameter).is_multiple_of(access.bytes) {
                    let what =
                        format!("`{}` is aligned for no read of {} bytes", parameter.name, access.bytes);
                    return Err(Reason::Malformed(what));
                }
                return clamp(access, name, &parameter.name, bytes, into);
            }
            _ => return Err(Reason::NotImplemented { what: "a parameter read by register".to_owned() }),
        };
        let parameter = self.parameters.get(name.as_str());
        let Some(parameter) = parameter.filter(|_| access.reads_only) else {
            return Err(Reason::Malformed(format!("`{name}` is not a parameter that can be read")));
        };
        let bytes = names::variable_bytes(parameter).unwrap_or_default();
        match within(access, name, bytes, names::variable_align(parameter))? {
            Static::Proven => Ok(access.address.clone()),
            Static::Unaligned => {
                Err(Reason::Malformed(format!("a misaligned read of the parameter `{name}`")))
            }
        }
    }

    fn shared(
        &self,
        access: &OwnedAccess,
        clamp: Option<Clamp>,
        into: &mut Vec<Statement>,
    ) -> Result<Address, Reason> {
        let span = access.span;
        let s = || register("%bh_s");
        if access.stride.is_some() {
            let what = "a matrix in shared memory whose stride is not known".to_owned();
            return Err(Reason::NotImplemented { what });
        }
        let first = match &access.address.base {
            AddressBase::Absolute => {
                return Err(Reason::NotImplemented { what: "an absolute shared address".to_owned() });
            }
            AddressBase::Symbol(name) => {
                let symbol = self.of_space(name, Space::Shared)?;
                let bytes = if symbol.bytes == 0 { SHARED_BYTES_MAX } else { symbol.bytes };
                within(access, name, bytes, symbol.align)?;
                instruction("mov", &["b32"], vec![s(), Operand::Symbol(name.clone())], span)
            }
            AddressBase::Register(name) => match Class::parse(name) {
                Some((Class::Word, _)) => instruction("mov", &["b32"], vec![s(), register(name)], span),
                Some((Class::Double, _)) => {
                    instruction("cvt", &["u32", "u64"], vec![s(), register(name)], span)
                }
                _ => return Err(Reason::Malformed(format!("`{name}` cannot hold a shared address"))),
            },
        };
        let Some(clamp) = clamp else { return Ok(access.address.clone()) };
        into.push(first);
        let offset = shared::clamp(clamp, access.address.offset, access.bytes, span, into);
        Ok(Address { base: AddressBase::Register("%bh_s".to_owned()), offset })
    }

    fn local(&self, access: &OwnedAccess, into: &mut Vec<Statement>) -> Result<Address, Reason> {
        match &access.address.base {
            AddressBase::Absolute => {
                Err(Reason::NotImplemented { what: "an absolute local address".to_owned() })
            }
            AddressBase::Symbol(name) => self.by_symbol(access, name, Space::Local),
            AddressBase::Register(name) => {
                let Some((variable, symbol)) = self.local else {
                    return Err(Reason::Malformed("a local access without a local variable".to_owned()));
                };
                clamp(access, name, variable, symbol.bytes, into)
            }
        }
    }

    fn constant(&self, access: &OwnedAccess, into: &mut Vec<Statement>) -> Result<Address, Reason> {
        match &access.address.base {
            AddressBase::Absolute => {
                Err(Reason::NotImplemented { what: "an absolute constant address".to_owned() })
            }
            AddressBase::Symbol(name) => self.by_symbol(access, name, Space::Constant),
            AddressBase::Register(name) => {
                let symbol = self.roots.of(name).and_then(|root| Some((root, self.symbols.get(root)?)));
                let Some((root, symbol)) = symbol else {
                    let what = "a constant access whose variable cannot be told".to_owned();
                    return Err(Reason::NotImplemented { what });
                };
                clamp(access, name, root, symbol.bytes, into)
            }
        }
    }

    fn of_space(&self, name: &str, space: Space) -> Result<&Symbol, Reason> {
        match self.symbol(name) {
            Some(symbol) if symbol.space == space => Ok(symbol),
            _ => Err(Reason::Malformed(format!("`{name}` does not lie in that state space"))),
        }
    }

    fn by_symbol(&self, access: &OwnedAccess, name: &str, space: Space) -> Result<Address, Reason> {
        let symbol = self.of_space(name, space)?;
        match within(access, name, symbol.bytes, symbol.align)? {
            Static::Proven => Ok(access.address.clone()),
            Static::Unaligned => Err(Reason::Malformed(format!("a misaligned access to `{name}`"))),
        }
    }
}

/// An access apart from its instruction.
struct OwnedAccess {
    space: Space,
    reads_only: bool,
    bytes: u64,
    extent: u64,
    stride: Option<(usize, u32)>,
    address: Address,
    span: Span,
}

impl OwnedAccess {
    fn of(access: &Access<'_>, span: Span) -> Self {
        let Access { space, reads_only, bytes, extent, stride, address, index: _ } = *access;
        Self { space, reads_only, bytes, extent, stride, address: address.clone(), span }
    }

    /// Whether an offset may stay on the access: within the reach of the hardware's field, and not undoing
    /// the alignment of what it is added to.
    fn keeps(&self, offset: i64) -> bool {
        offset.unsigned_abs() < OFFSET_BOUND && offset.unsigned_abs().is_multiple_of(self.bytes)
    }

    /// What a word is masked with to be aligned for the access.
    fn alignment_mask(&self) -> Operand {
        Operand::Integer(-i128::from(self.bytes))
    }
}

fn within(access: &OwnedAccess, name: &str, bytes: u64, align: u64) -> Result<Static, Reason> {
    let offset = u64::try_from(access.address.offset).ok();
    let end = offset.and_then(|offset| offset.checked_add(access.extent));
    match (offset, end) {
        (Some(offset), Some(end)) if end <= bytes => {
            let aligned = align.is_multiple_of(access.bytes) && offset.is_multiple_of(access.bytes);
            Ok(if aligned { Static::Proven } else { Static::Unaligned })
        }
        _ => Err(Reason::Malformed(format!(
            "{} bytes at offset {} lie outside of `{name}`",
            access.extent, access.address.offset
        ))),
    }
}

fn global(access: &OwnedAccess, is_aligned: bool, into: &mut Vec<Statement>) -> Result<Address, Reason> {
    let name = match &access.address.base {
        AddressBase::Register(name) => name,
        AddressBase::Absolute => {
            return Err(Reason::NotImplemented { what: "an absolute global address".to_owned() });
        }
        AddressBase::Symbol(name) => {
            return Err(Reason::NotImplemented { what: format!("a global access by symbol, `{name}`") });
        }
    };
    if !matches!(Class::parse(name), Some((Class::Double, _))) {
        return Err(Reason::Malformed("a global address has to be a 64-bit register".to_owned()));
    }
    let span = access.span;
    let (lo, hi, a) = (|| register("%bh_lo"), || register("%bh_hi"), || register("%bh_a"));
    let mut offset = access.address.offset;
    let mut from = register(name);
    if !access.keeps(offset) {
        let folded = Operand::Integer(i128::from(offset));
        into.push(instruction("add", &["s64"], vec![a(), from, folded], span));
        from = a();
        offset = 0;
    }
    into.push(instruction("mov", &["b64"], vec![Operand::Vector(vec![lo(), hi()]), from], span));
    let mask = register(if access.reads_only { "%bh_loadmask" } else { "%bh_storemask" });
    let confined = vec![hi(), hi(), mask, register("%bh_base"), Operand::Integer(AND_THEN_OR)];
    into.push(instruction("lop3", &["b32"], confined, span));
    if access.extent > EXTENT_BOUND {
        // Lines that reach on for up to 4 GiB begin so far before the end.
        let s = || register("%bh_s");
        let mask = register(if access.reads_only { "%bh_loadmask" } else { "%bh_storemask" });
        into.push(instruction("or", &["b32"], vec![s(), mask, register("%bh_base")], span));
        into.push(instruction("add", &["s32"], vec![s(), s(), Operand::Integer(-1)], span));
        into.push(instruction("min", &["u32"], vec![hi(), hi(), s()], span));
    }
    if access.bytes > 1 && !is_aligned {
        into.push(instruction("and", &["b32"], vec![lo(), lo(), access.alignment_mask()], span));
    }
    into.push(instruction("mov", &["b64"], vec![a(), Operand::Vector(vec![lo(), hi()])], span));
    Ok(Address { base: AddressBase::Register("%bh_a".to_owned()), offset })
}

/// A copy takes no more bytes from its source than it writes: what would come of that PTX leaves open.
fn source_bytes(copy: &mut Instruction, into: &mut Vec<Statement>) -> Result<(), Reason> {
    let (Some(Operand::Integer(bytes)), Some(taken)) =
        (copy.operands.get(2).cloned(), copy.operands.get_mut(3))
    else {
        return Ok(());
    };
    match taken {
        Operand::Integer(taken) if (0..=bytes).contains(taken) => {}
        Operand::Register(name) if matches!(Class::parse(name), Some((Class::Word, _))) => {
            let lo = register("%bh_lo");
            let operands = vec![lo.clone(), taken.clone(), Operand::Integer(bytes)];
            into.push(instruction("min", &["u32"], operands, copy.span));
            *taken = lo;
        }
        Operand::Register(name) | Operand::Not(name)
            if matches!(Class::parse(name), Some((Class::Predicate, _))) => {}
        _ => return Err(Reason::Malformed(format!("a copy of {bytes} bytes of a source that has more"))),
    }
    Ok(())
}

/// `lop3`'s table for `(first & second) | third`.
const AND_THEN_OR: i128 = 0xEA;

/// Keeps an access by register inside one variable, whose alignment is that of the widest access.
fn clamp(
    access: &OwnedAccess,
    name: &str,
    variable: &str,
    bytes: u64,
    into: &mut Vec<Statement>,
) -> Result<Address, Reason> {
    if !matches!(Class::parse(name), Some((Class::Double, _))) {
        return Err(Reason::Malformed("an address here has to be a 64-bit register".to_owned()));
    }
    let Some(last) = bytes.checked_sub(access.extent) else {
        return Err(Reason::Malformed(format!("`{variable}` is smaller than {} bytes", access.bytes)));
    };
    let span = access.span;
    let (o, a) = (|| register("%bh_o"), || register("%bh_a"));
    into.push(instruction("mov", &["b64"], vec![o(), Operand::Symbol(variable.to_owned())], span));
    into.push(instruction("sub", &["s64"], vec![a(), register(name), o()], span));
    if access.address.offset != 0 {
        let offset = Operand::Integer(i128::from(access.address.offset));
        into.push(instruction("add", &["s64"], vec![a(), a(), offset], span));
    }
    // Variables are small: words suffice, which is half as many instructions for the device.
    let lo = || register("%bh_lo");
    into.push(instruction("cvt", &["u32", "u64"], vec![lo(), a()], span));
    into.push(instruction("min", &["u32"], vec![lo(), lo(), Operand::Integer(i128::from(last))], span));
    if access.bytes > 1 {
        into.push(instruction("and", &["b32"], vec![lo(), lo(), access.alignment_mask()], span));
    }
    into.push(instruction("cvt", &["u64", "u32"], vec![a(), lo()], span));
    into.push(instruction("add", &["s64"], vec![a(), o(), a()], span));
    Ok(Address { base: AddressBase::Register("%bh_a".to_owned()), offset: 0 })
}
