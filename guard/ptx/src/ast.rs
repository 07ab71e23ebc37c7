//! The syntax tree of a PTX module, as the guard parses, confines, prints and verifies it.
//!
//! The tree holds meaning, not spelling: comments and white space are not in it, and constant expressions
//! are their values. (Tools that need the tenant's exact bytes use [`crate::tokens`], which loses nothing, or
//! the span of each node.) Names are kept with their sigil (`%r1`, `$L__BB0_1`).

pub use crate::span::{Place, Span, Spans};

/// A PTX module: one `.version` / `.target` / `.address_size` header and what follows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    /// `.version major.minor`.
    pub version: (u32, u32),
    /// The operands of `.target`, in order (`sm_90`, `texmode_independent`, ...).
    pub target: Vec<String>,
    /// `.address_size`: 64 is the only one the guard accepts; 32 where none is given.
    pub address_size: u32,
    /// Where these three stand.
    pub header: HeaderSpans,
    /// Module-scope items, in order.
    pub items: Vec<Item>,
}

/// Where the directives stand that a module begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderSpans {
    /// `.version`
    pub version: Span,
    /// `.target`
    pub target: Span,
    /// `.address_size`, where there is one.
    pub address_size: Span,
    /// The whole text; empty where the module was made and not read.
    pub text: Span,
}

/// One module-scope item.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A module-scope variable (`.global`, `.const`, `.shared`).
    Variable(Variable),
    /// An `.entry` or `.func`, with or without a body.
    Function(Function),
    /// `.section name { ... }`: debug information.
    Section(Section),
    /// Any other directive, by name with its operands as text; refused unless the table says otherwise.
    Directive(Directive),
}

/// `.section name { ... }`: debug information, which ptxas reads with `--generate-line-info` only.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Name with its dot.
    pub name: String,
    /// What is in it, in order.
    pub lines: Vec<SectionLine>,
    /// Where it stands.
    pub span: Span,
}

/// One line of a section.
#[derive(Debug, Clone, PartialEq)]
pub enum SectionLine {
    /// `name:`
    Label(String),
    /// `.b32 value, value`: all values of one type that follow one another.
    Data(Type, Vec<Operand>),
}

/// A directive the tree has no own shape for, for example `.pragma "nounroll";`.
#[derive(Debug, Clone, PartialEq)]
pub struct Directive {
    /// Name with its dot.
    pub name: String,
    /// Operands, each as its canonical text.
    pub operands: Vec<String>,
    /// Where it stands.
    pub span: Span,
}

/// Linkage of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Linkage {
    /// None given: visible in this module only.
    #[default]
    Internal,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// PTX state spaces that a variable can be declared in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.reg`
    Register,
    /// `.global`
    Global,
    /// `.shared`
    Shared,
    /// `.local`
    Local,
    /// `.const`
    Constant,
    /// `.param`
    Parameter,
}

/// PTX fundamental types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the PTX type of the same name")]
pub enum Type {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F64,
    Pred,
    Texref,
    Samplerref,
    Surfref,
}

/// A declared variable: `.space .align N .vV .type name[dimensions] = initializer`.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// Linkage; only module scope has any but `Internal`.
    pub linkage: Linkage,
    /// State space.
    pub space: Space,
    /// `.align`, in bytes, where given.
    pub align: Option<u32>,
    /// `.v2`, `.v4` or `.v8` elements; 1 where none is given.
    pub vector: u32,
    /// Element type.
    pub ty: Type,
    /// Name.
    pub name: String,
    /// Array dimensions; an empty first dimension (`a[]`) is 0. Empty for a scalar.
    pub dimensions: Vec<u64>,
    /// `name<count>` register ranges (`.reg .b32 %r<5>` declares %r0..%r4).
    pub range: Option<u32>,
    /// `.ptr .space .align N` attributes of an entry's parameter, in canonical text.
    pub pointer: Option<String>,
    /// Initializer: a value where the variable is no array, else the values of its list; an inner list is
    /// an [`Operand::Vector`].
    pub initializer: Vec<Operand>,
    /// What `.attribute` says, each in canonical text: `.managed`, `.unified ( 19 , 95 )`.
    pub attributes: Vec<String>,
    /// Where it stands.
    pub span: Span,
}

impl Variable {
    /// The values of the initializer with the element that each is for, in order: an inner list begins with the
    /// first element of an inner array. None where the lists do not have the shape of the array.
    #[must_use]
    pub fn flat_initializer(&self) -> Option<Vec<(usize, &Operand)>> {
        let vector = (self.vector != 1).then_some(u64::from(self.vector));
        let shape: Vec<u64> = self.dimensions.iter().copied().chain(vector).collect();
        let mut values = Vec::new();
        flatten(&self.initializer, &shape, 0, &mut values)?;
        Some(values)
    }
}

/// Appends the values of a list for an array of this shape that begins with element `first`.
fn flatten<'a>(
    list: &'a [Operand],
    shape: &[u64],
    first: usize,
    into: &mut Vec<(usize, &'a Operand)>,
) -> Option<()> {
    let inner = shape.get(1..).unwrap_or_default();
    let stride = inner.iter().try_fold(1_u64, |product, length| product.checked_mul(*length))?;
    let stride = usize::try_from(stride).ok()?;
    let mut at = first;
    for value in list {
        match value {
            Operand::Vector(list) => {
                if inner.is_empty() || !(at - first).is_multiple_of(stride) {
                    return None;
                }
                flatten(list, inner, at, into)?;
                at = at.checked_add(stride)?;
            }
            value => {
                into.push((at, value));
                at = at.checked_add(1)?;
            }
        }
    }
    Some(())
}

/// Which kind of function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// `.entry`: launched by the host.
    Entry,
    /// `.func`: called by device code.
    Device,
}

/// An `.entry` or `.func`.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// Entry or device function.
    pub kind: FunctionKind,
    /// Linkage.
    pub linkage: Linkage,
    /// Name.
    pub name: String,
    /// Return parameters of a `.func`.
    pub returns: Vec<Variable>,
    /// Parameters.
    pub parameters: Vec<Variable>,
    /// What `.attribute` says, as of variables.
    pub attributes: Vec<String>,
    /// `.maxntid`, `.reqntid`, `.minnctapersm`, `.maxnreg`, `.noreturn`, ...
    pub directives: Vec<Directive>,
    /// The body; `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// Where its name stands.
    pub span: Span,
}

/// One statement of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `name:`
    Label(String, Span),
    /// `.reg`, `.local`, `.shared`, `.param` declarations.
    Variable(Variable),
    /// An instruction.
    Instruction(Instruction),
    /// `{ ... }`, a scope of its own; the span is that of its opening brace.
    Block(Vec<Statement>, Span),
    /// Any other directive inside a body (`.pragma`, `.loc`, `.branchtargets`, `.callprototype`).
    Directive(Directive),
}

/// A guard predicate: `@%p` or `@!%p`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Predicate {
    /// The predicate register.
    pub register: String,
    /// Whether the sense is inverted.
    pub negated: bool,
}

/// One instruction: `@!%p ld.global.v2.f32 {%f1, %f2}, [%rd1+8];`
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// Guard predicate.
    pub predicate: Option<Predicate>,
    /// First word of the opcode: `ld`.
    pub opcode: String,
    /// The words after it, without dots, in order: `global`, `v2`, `f32`. `shared::cta` is one word.
    pub modifiers: Vec<String>,
    /// Operands, in order.
    pub operands: Vec<Operand>,
    /// Where it stands, from its predicate on and without the semicolon.
    pub span: Span,
    /// Where its operands stand.
    pub operand_spans: Spans,
}

impl Instruction {
    /// Its modifiers, to be compared with shorter lists: of a longer one the first.
    pub fn words(&self) -> Words<'_> {
        let mut words = Words { words: [""; WORDS], count: self.modifiers.len().min(WORDS) };
        words.words.iter_mut().zip(&self.modifiers).for_each(|(word, modifier)| *word = modifier);
        words
    }
}

/// More than any list that modifiers are compared with.
const WORDS: usize = 6;

/// The modifiers of an instruction.
pub struct Words<'a> {
    words: [&'a str; WORDS],
    count: usize,
}

impl<'a> Words<'a> {
    /// Them in order.
    pub fn as_slice(&self) -> &[&'a str] {
        self.words.get(..self.count).unwrap_or_default()
    }
}

/// One operand.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register or special register: `%r1`, `%tid.x` (one name, with the dot).
    Register(String),
    /// A variable, function or label: `smem`, `$L__BB0_2`.
    Symbol(String),
    /// An integer literal, sign-extended (`0xffffffffffffffffU` is kept as its 64-bit pattern).
    Integer(i128),
    /// A 32-bit floating-point literal, by its bits (`0f3F800000`).
    Float32(u32),
    /// A 64-bit floating-point literal, by its bits (`0d...` or decimal).
    Float64(u64),
    /// `[base+offset]`.
    Address(Address),
    /// `{a, b, c, d}`.
    Vector(Vec<Operand>),
    /// `a|b`: two destinations (`setp`, `shfl`, `match`).
    Pair(Box<Operand>, Box<Operand>),
    /// `!%p`.
    Not(String),
    /// `symbol+4` as a value.
    SymbolOffset(String, i64),
    /// `_`: a destination that is thrown away.
    Sink,
    /// `%r1.x`, `%r1.h0` and the like: a register with a selector.
    Selected(String, String),
    /// `( ... )` argument lists of `call`.
    List(Vec<Operand>),
    /// `[base+offset, ...]`: an address with what selects an element of the object that lies there, such as
    /// `[map, {%r1, %r2}]` or `[texture, sampler, {%f1, %f2}]`.
    Coordinates(Address, Vec<Operand>),
    /// `array[%r1+4]`, `array[3]`: an element of a variable.
    Subscript(String, Address),
    /// `-%r1`, `-%r1.h0`: only some video instructions take it.
    Negated(Box<Operand>),
    /// `generic(symbol)+4` in an initializer.
    Generic(String, i64),
    /// `0xff00(symbol)` in an initializer: the bytes of an address that the mask selects.
    Masked(u64, Box<Operand>),
    /// `label-label` in a section.
    Difference(String, String),
    /// `name = value` in the initializer of a texture, sampler or surface.
    Field(String, Box<Operand>),
}

impl Operand {
    /// The operands directly inside this one: of a vector, list, pair and the like.
    pub fn inner(&self) -> impl Iterator<Item = &Operand> {
        let (list, first, second): (&[Operand], Option<&Operand>, Option<&Operand>) = match self {
            Operand::Vector(list) | Operand::List(list) | Operand::Coordinates(_, list) => (list, None, None),
            Operand::Pair(first, second) => (&[], Some(first), Some(second)),
            Operand::Negated(inner) | Operand::Masked(_, inner) | Operand::Field(_, inner) => {
                (&[], Some(inner), None)
            }
            Operand::Register(_)
            | Operand::Symbol(_)
            | Operand::Integer(_)
            | Operand::Float32(_)
            | Operand::Float64(_)
            | Operand::Address(_)
            | Operand::Not(_)
            | Operand::SymbolOffset(..)
            | Operand::Sink
            | Operand::Selected(..)
            | Operand::Subscript(..)
            | Operand::Generic(..)
            | Operand::Difference(..) => (&[], None, None),
        };
        list.iter().chain(first).chain(second)
    }
}

/// The inside of `[ ]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// What the offset is added to.
    pub base: AddressBase,
    /// Immediate offset in bytes.
    pub offset: i64,
}

/// What an address starts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AddressBase {
    /// A register.
    Register(String),
    /// A variable or parameter.
    Symbol(String),
    /// Nothing: the offset is the address.
    Absolute,
}
