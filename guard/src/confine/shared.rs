//! Shared memory: its bounds in this entry, and runs of accesses that share one clamp.
//!
//! A *run* is the accesses of one width off one base between which the thread cannot turn away. Whoever does
//! one of them does them all, so clamping the base to where the whole run is inside changes nothing for a
//! program that stays inside; and since all of a run get the same clamp, ptxas computes it once.

mod eased;
mod runs;

use crate::maps::HashMap;
pub(super) use eased::ease;
use eased::{named, wrapped};
use runs::Runs;

use crate::access::{self, Access};
use crate::ast::{Address, AddressBase, Operand, Predicate, Space, Span, Statement, Type};
use crate::confine::alignment::{self, Alignment};
use crate::confine::lines::{declared, instruction, plain, register};
use crate::confine::region::{self, Region};
use crate::confine::symbols::{Symbol, Symbols};
use crate::confine::variables::Own;
use crate::limits::{DYNAMIC_SPAN_MAX, LITTLE_BYTES_MAX, SHARED_BASE, SHARED_VARIABLES_MAX};
use crate::names;
use crate::table::{self};

/// Widths that an access can have.
const WIDTHS: [u64; 5] = [1, 2, 4, 8, 16];

/// The clamp of one access: the least offset of its run, and the bytes from there to the run's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clamp {
    pub(super) least: i64,
    pub(super) span: u64,
    pub(super) how: How,
}

/// How the base of a run is kept where the run is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Between two addresses.
    Between,
    /// As far as it may be behind the first byte, of which it is known where it lies in the block's shared memory.
    Behind {
        first: i64,
        /// Bytes from there on, where the text says how many.
        bytes: Option<u64>,
    },
    /// In a region, by a mask.
    Masked(Mask),
}

/// A mask that leaves of an address how far it is into a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mask {
    /// Where the region begins in the block's shared memory.
    begin: i64,
    /// Its bytes.
    reach: u64,
    /// Of what the address is a multiple.
    align: u64,
}

/// The shared memory of an entry.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Static variables with their sizes, in order.
    statics: Vec<(String, u64)>,
    /// Where the region begins in the only one.
    start: u64,
    /// A variable that names the block's dynamic shared memory.
    dynamic: Option<String>,
    /// Of what the address of each is a multiple, at most.
    align: u64,
    /// The clamp of each statement that needs one, by its index.
    clamps: HashMap<usize, Clamp>,
    /// Bytes that a clamp may span.
    most: u64,
}

impl Shared {
    /// Looks through a flat body; adds a variable to `own` where there is not enough for the widest access, and makes one
    /// of all where a mask does.
    pub(super) fn find(
        statements: &mut [Statement],
        symbols: &Symbols,
        own: &mut Vec<Own>,
        span: Span,
    ) -> Self {
        let mut shared = Self::default();
        let named = named(statements);
        let among = symbols.shared_among(&named);
        for (name, symbol) in &among {
            shared.include(name, symbol);
        }
        for Own { variable, symbol } in own.iter().filter(|own| own.symbol.space == Space::Shared) {
            shared.include(&variable.name, symbol);
        }
        let only_own = among.is_empty() && symbols.sized_shared() == 0;
        let fits = |most| only_own && region::fits(statements, own, most);
        let region = Region::of(own).filter(|_| fits(region::SPAN_MAX));
        let may_merge = fits(u64::MAX);
        let extents: HashMap<&str, u64> =
            shared.statics.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        let is_proven = |access: &Access<'_>| match &access.address.base {
            AddressBase::Symbol(name) => {
                extents.get(name.as_str()).is_some_and(|bytes| is_within(access, *bytes))
            }
            AddressBase::Register(_) | AddressBase::Absolute => false,
        };
        let widest = names::WIDEST_ACCESS;
        let pad = shared.dynamic.is_none() && shared.static_bytes() < widest;
        // With dynamic shared memory the launch makes sure of the rest: the verifier says how much.
        let bytes = match shared.dynamic {
            Some(_) => shared.static_bytes().max(DYNAMIC_SPAN_MAX),
            None if region.is_some() => region::SPAN_MAX,
            None => shared.static_bytes().max(widest),
        };
        let clamps = Runs {
            statements,
            bytes,
            is_proven: &is_proven,
            open: HashMap::default(),
            clamps: HashMap::default(),
        }
        .find();
        (shared.clamps, shared.most) = (clamps, bytes);
        if let Some(region) = region.filter(|_| !shared.clamps.is_empty()) {
            shared.mask(&region, statements, own);
            return shared;
        }
        if may_merge
            && shared.statics.len() > 1
            && !shared.clamps.is_empty()
            && let Some((all, _)) = Region::all(own)
        {
            all.merge(statements, own, 0);
            let one = own.iter().find(|own| own.variable.name == all.name);
            shared.statics =
                one.map(|one| (one.variable.name.clone(), one.symbol.bytes)).into_iter().collect();
        }
        if pad && !shared.clamps.is_empty() {
            let mut variable = declared(Space::Shared, Type::B8, names::SHARED_PAD, None, span);
            variable.align = u32::try_from(widest).ok();
            variable.dimensions = vec![widest];
            let symbol = Symbol { space: Space::Shared, bytes: widest, align: widest, at: None };
            shared.include(names::SHARED_PAD, &symbol);
            own.push(Own { variable, symbol });
        }
        shared.measure(symbols);
        shared
    }

    /// Has masks keep accesses in a region.
    fn mask(&mut self, region: &Region, statements: &mut [Statement], own: &mut Vec<Own>) {
        let slack = self.clamps.values().map(|clamp| clamp.span).max().unwrap_or(0);
        region.merge(statements, own, slack);
        let bytes = own.iter().find(|own| own.variable.name == region.name);
        let bytes = bytes.map_or(0, |one| one.symbol.bytes - region.start);
        self.statics = vec![(region.name.clone(), bytes)];
        self.start = region.start;
        let alignment = Alignment::find(statements);
        for (index, clamp) in &mut self.clamps {
            let Some(Statement::Instruction(instruction)) = statements.get(*index) else { continue };
            let accesses = table::row_of(instruction).and_then(|row| access::decode(row, instruction).ok());
            let accesses = accesses.unwrap_or_default();
            let Some(access) = accesses.shared() else { continue };
            let zeros = match &access.address.base {
                AddressBase::Register(name) => alignment.of(name),
                AddressBase::Symbol(_) | AddressBase::Absolute => 0,
            };
            let zeros = zeros.min(alignment::of_number(i128::from(clamp.least)));
            let known = 1_u64.checked_shl(zeros).unwrap_or(u64::MAX).min(names::WIDEST_ACCESS);
            let Ok(begin) = i64::try_from(SHARED_BASE + region.start) else { continue };
            let align = known.max(access.bytes);
            clamp.how = How::Masked(Mask { begin, reach: region.reach, align });
        }
    }

    /// Has accesses be kept by how far behind the first byte they are, where it is known where that lies.
    fn measure(&mut self, symbols: &Symbols) {
        let of_module = |name: &str| symbols.get(name).is_some_and(|symbol| symbol.bytes > 0);
        let known = self.statics.iter().filter(|(name, _)| of_module(name)).count();
        let is_one = self.statics.len() + usize::from(self.dynamic.is_some()) == 1;
        if !(known == symbols.sized_shared() && is_one && self.align <= SHARED_BASE) {
            return;
        }
        let bytes = self.statics.first().map(|(_, bytes)| *bytes);
        for clamp in self.clamps.values_mut() {
            clamp.how = How::Behind { first: SHARED_BASE.cast_signed(), bytes };
        }
    }

    fn include(&mut self, name: &str, symbol: &Symbol) {
        self.align = self.align.max(symbol.align);
        if symbol.bytes == 0 {
            self.dynamic.get_or_insert_with(|| name.to_owned());
        } else {
            self.statics.push((name.to_owned(), symbol.bytes));
        }
    }

    fn static_bytes(&self) -> u64 {
        self.statics.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Whether there are more variables than may be zeroed before an entry looks at the flag.
    pub(super) fn are_many(&self) -> bool {
        self.statics.len() + usize::from(self.dynamic.is_some()) > SHARED_VARIABLES_MAX
    }

    /// Where the bounds begin in the entry's variables, in bytes.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The clamp of a statement; none where it was found to need none.
    pub(super) fn clamp(&self, index: usize) -> Option<Clamp> {
        self.clamps.get(&index).copied()
    }

    /// Whether accesses of it need clamps, none of which is dynamic.
    pub(super) fn is_clamped(&self) -> bool {
        self.dynamic.is_none() && !self.clamps.is_empty()
    }

    /// Whether there is as much shared memory as a clamp spans.
    pub(super) fn holds(&self, clamp: Clamp) -> bool {
        clamp.span <= self.most
    }

    /// Zeroes the entry's shared memory: blocks of other sessions left in it what they had there.
    pub(super) fn zeroes(&self, span: Span) -> Vec<Statement> {
        let is_ragged = |(_, bytes): &(String, u64)| !bytes.is_multiple_of(names::WIDEST_ACCESS);
        let ragged = self.dynamic.is_some() || self.statics.iter().any(is_ragged);
        match (self.statics.as_slice(), &self.dynamic) {
            ([], None) => Vec::new(),
            ([(_, bytes)], None) if *bytes <= LITTLE_BYTES_MAX => zeroing(true, ragged, span),
            _ => zeroing(false, ragged, span),
        }
    }

    /// Computes where the entry's shared memory begins and ends.
    pub(super) fn bounds(&self, span: Span) -> Vec<Statement> {
        let mut statements = Vec::new();
        let (low, top, s, lo) =
            (|| register("%bh_low"), || register("%bh_top"), || register("%bh_s"), || register("%bh_lo"));
        let mut push = |opcode: &str, modifier: &str, operands: Vec<Operand>| {
            statements.push(instruction(opcode, &[modifier], operands, span));
        };
        for (index, (name, bytes)) in self.statics.iter().enumerate() {
            let symbol = match i64::try_from(self.start) {
                Ok(start @ 1..) => Operand::SymbolOffset(name.clone(), start),
                _ => Operand::Symbol(name.clone()),
            };
            let bytes = Operand::Integer(i128::from(*bytes));
            if index == 0 {
                push("mov", "b32", vec![low(), symbol]);
                push("add", "s32", vec![top(), low(), bytes]);
            } else {
                push("mov", "b32", vec![s(), symbol]);
                push("min", "u32", vec![low(), low(), s()]);
                push("add", "s32", vec![s(), s(), bytes]);
                push("max", "u32", vec![top(), top(), s()]);
            }
        }
        if let (Some(name), []) = (&self.dynamic, self.statics.as_slice()) {
            push("mov", "b32", vec![low(), Operand::Symbol(name.clone())]);
            push("mov", "u32", vec![lo(), register("%dynamic_smem_size")]);
            push("add", "s32", vec![top(), low(), lo()]);
        } else if let Some(name) = &self.dynamic {
            push("mov", "b32", vec![s(), Operand::Symbol(name.clone())]);
            push("mov", "u32", vec![lo(), register("%dynamic_smem_size")]);
            push("add", "s32", vec![s(), s(), lo()]);
            // Where the launch gives none, its symbol may lie behind a gap that nothing is allocated for.
            let any = register("%bh_q");
            statements.push(instruction(
                "setp",
                &["ne", "u32"],
                vec![any.clone(), lo(), Operand::Integer(0)],
                span,
            ));
            statements.push(instruction("selp", &["b32"], vec![s(), s(), top(), any], span));
            statements.push(instruction("max", &["u32"], vec![top(), top(), s()], span));
        }
        statements
    }
}

/// The threads along x and y zero what lies between `%bh_low` and `%bh_top`, 16 bytes at a time; where that may not
/// be a multiple of 16 they zero the rest by bytes. All wait until it is done. Of little, those along x zero all.
fn zeroing(little: bool, ragged: bool, span: Span) -> Vec<Statement> {
    let mut statements = Vec::new();
    let mut push = |opcode: &str, modifiers: &[&str], names: &[&str], last: Option<Operand>| {
        let operands = names.iter().map(|name| register(name)).chain(last).collect();
        statements.push(instruction(opcode, modifiers, operands, span));
    };
    let number = |value: i128| Some(Operand::Integer(value));
    if little {
        push("mov", &["u32"], &["%bh_lo", "%ntid.x"], None);
        push("mov", &["u32"], &["%bh_s", "%tid.x"], None);
    } else {
        push("mov", &["u32"], &["%bh_hi", "%ntid.x"], None);
        push("mov", &["u32"], &["%bh_s", "%tid.y"], None);
        push("mov", &["u32"], &["%bh_zero", "%tid.x"], None);
        push("mad", &["lo", "s32"], &["%bh_s", "%bh_s", "%bh_hi", "%bh_zero"], None);
        push("mov", &["u32"], &["%bh_lo", "%ntid.y"], None);
        push("mul", &["lo", "s32"], &["%bh_lo", "%bh_lo", "%bh_hi"], None);
    }
    push("shl", &["b32"], &["%bh_lo", "%bh_lo"], number(4));
    push("shl", &["b32"], &["%bh_s", "%bh_s"], number(4));
    push("add", &["s32"], &["%bh_s", "%bh_s", "%bh_low"], None);
    push("and", &["b32"], &["%bh_hi", "%bh_top"], number(-16));
    push("mov", &["b32"], &["%bh_zero"], number(0));
    let zero = || register("%bh_zero");
    let four = Operand::Vector(vec![zero(), zero(), zero(), zero()]);
    store_until(
        "%bh_hi",
        &["shared", "v4", "b32"],
        four,
        ["__bh_more", "__bh_filled"],
        span,
        &mut statements,
    );
    if ragged {
        let mut push = |opcode: &str, modifier: &str, names: &[&str]| {
            let operands = names.iter().map(|name| register(name)).collect();
            statements.push(instruction(opcode, &[modifier], operands, span));
        };
        push("mov", "u32", &["%bh_s", "%tid.x"]);
        push("add", "s32", &["%bh_s", "%bh_s", "%bh_hi"]);
        push("mov", "u32", &["%bh_lo", "%ntid.x"]);
        store_until(
            "%bh_top",
            &["shared", "b8"],
            zero(),
            ["__bh_rest", "__bh_zeroed"],
            span,
            &mut statements,
        );
    }
    statements.push(instruction("bar", &["sync"], vec![Operand::Integer(0)], span));
    statements
}

/// Stores at `%bh_s`, which moves on by `%bh_lo`, until it has reached `end`.
fn store_until(
    end: &str,
    modifiers: &[&str],
    value: Operand,
    [again, done]: [&str; 2],
    span: Span,
    into: &mut Vec<Statement>,
) {
    let (q, s) = (|| register("%bh_q"), || register("%bh_s"));
    let to = |label: &str| vec![Operand::Symbol(label.to_owned())];
    let address = Address { base: AddressBase::Register("%bh_s".to_owned()), offset: 0 };
    let mut leave = plain("bra", &[], to(done), span);
    leave.predicate = Some(Predicate { register: "%bh_q".to_owned(), negated: false });
    into.push(Statement::Label(again.to_owned(), span));
    into.push(instruction("setp", &["ge", "u32"], vec![q(), s(), register(end)], span));
    into.push(Statement::Instruction(leave));
    into.push(instruction("st", modifiers, vec![Operand::Address(address), value], span));
    into.push(instruction("add", &["s32"], vec![s(), s(), register("%bh_lo")], span));
    into.push(instruction("bra", &[], to(again), span));
    into.push(Statement::Label(done.to_owned(), span));
}

/// Whether an access at an offset into a variable is inside it and aligned, as the variable is.
pub(super) fn is_within(access: &Access<'_>, bytes: u64) -> bool {
    u64::try_from(access.address.offset).ok().is_some_and(|offset| {
        offset.is_multiple_of(access.bytes)
            && offset.checked_add(access.extent).is_some_and(|end| end <= bytes)
    })
}

/// Clamps `%bh_s`, which holds a run's base, for one access of it; returns the offset that stays outside.
pub(super) fn clamp(clamp: Clamp, offset: i64, bytes: u64, span: Span, into: &mut Vec<Statement>) -> i64 {
    let (s, lo) = (|| register("%bh_s"), || register("%bh_lo"));
    let integer = |value: i128| Operand::Integer(value);
    if clamp.least != 0 {
        into.push(instruction("add", &["s32"], vec![s(), s(), wrapped(clamp.least)], span));
    }
    let outside = offset.saturating_sub(clamp.least);
    let reach = integer(i128::from(clamp.span));
    match clamp.how {
        How::Masked(Mask { begin, reach, align }) => {
            let mask = integer(i128::from(reach) - i128::from(align));
            into.push(instruction("and", &["b32"], vec![s(), s(), mask], span));
            return outside.saturating_add(begin);
        }
        How::Behind { bytes: Some(all), .. } => {
            let last = all.saturating_sub(clamp.span) / bytes * bytes;
            into.push(instruction("sub", &["s32"], vec![s(), s(), register("%bh_low")], span));
            into.push(instruction("min", &["u32"], vec![s(), s(), integer(last.into())], span));
        }
        How::Behind { bytes: None, .. } => {
            into.push(instruction("sub", &["s32"], vec![s(), s(), register("%bh_low")], span));
            into.push(instruction(
                "sub",
                &["s32"],
                vec![lo(), register("%bh_top"), register("%bh_low")],
                span,
            ));
            into.push(instruction("sub", &["s32"], vec![lo(), lo(), reach], span));
            into.push(instruction("min", &["u32"], vec![s(), s(), lo()], span));
        }
        How::Between => {
            into.push(instruction("sub", &["s32"], vec![lo(), register("%bh_top"), reach], span));
            into.push(instruction("min", &["u32"], vec![s(), s(), lo()], span));
            into.push(instruction("max", &["u32"], vec![s(), s(), register("%bh_low")], span));
        }
    }
    if bytes > 1 {
        into.push(instruction("and", &["b32"], vec![s(), s(), integer(-i128::from(bytes))], span));
    }
    match clamp.how {
        How::Behind { first, .. } => outside.saturating_add(first),
        How::Between | How::Masked(_) => outside,
    }
}
