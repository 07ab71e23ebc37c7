//! The syntax tree of a PTX module, as the guard parses, confines, prints and verifies it.
//!
//! The tree holds meaning, not spelling: comments, white space and debug directives are not in it.
//! (Tools that need the tenant's exact bytes use [`crate::tokens`], which loses nothing.)
//! Names are kept with their sigil (`%r1`, `$L__BB0_1`).

/// Where something stands in the source text: line and column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Place {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

/// A PTX module: one `.version` / `.target` / `.address_size` header and what follows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Module {
    /// `.version major.minor`.
    pub version: (u32, u32),
    /// The operands of `.target`, in order (`sm_90`, `texmode_independent`, ...).
    pub target: Vec<String>,
    /// `.address_size`: 64 is the only one the guard accepts.
    pub address_size: u32,
    /// Module-scope items, in order.
    pub items: Vec<Item>,
}

/// One module-scope item.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A module-scope variable (`.global`, `.const`, `.shared`).
    Variable(Variable),
    /// An `.entry` or `.func`, with or without a body.
    Function(Function),
    /// Any other directive, by name with its operands as text; refused unless the table says otherwise.
    Directive(Directive),
}

/// A directive the tree has no own shape for, for example `.pragma "nounroll";`.
#[derive(Debug, Clone, PartialEq)]
pub struct Directive {
    /// Name with its dot.
    pub name: String,
    /// Operands, each as its canonical text.
    pub operands: Vec<String>,
    /// Where it stands.
    pub place: Place,
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
    /// `.v2` or `.v4` elements; 1 where none is given.
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
    /// Initializer; nested lists are flattened in order.
    pub initializer: Vec<Operand>,
    /// Where it stands.
    pub place: Place,
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
    /// `.maxntid`, `.reqntid`, `.minnctapersm`, `.maxnreg`, `.noreturn`, ...
    pub directives: Vec<Directive>,
    /// The body; `None` for a declaration.
    pub body: Option<Vec<Statement>>,
    /// Where its name stands.
    pub place: Place,
}

/// One statement of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `name:`
    Label(String, Place),
    /// `.reg`, `.local`, `.shared`, `.param` declarations.
    Variable(Variable),
    /// An instruction.
    Instruction(Instruction),
    /// `{ ... }`, a scope of its own.
    Block(Vec<Statement>),
    /// Any other directive inside a body (`.pragma`, `.branchtargets`, `.callprototype`).
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
    /// Where its opcode stands.
    pub place: Place,
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
    /// `-%r1` never appears in PTX; `symbol+4` as a value does.
    SymbolOffset(String, i64),
    /// `_`: a destination that is thrown away.
    Sink,
    /// `%r1.x`, `%r1.h0` and the like: a register with a selector.
    Selected(String, String),
    /// `( ... )` argument lists of `call`.
    List(Vec<Operand>),
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
