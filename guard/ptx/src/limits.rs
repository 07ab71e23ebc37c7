//! The limits of what is read: everything that a client can make large has one.

/// Bytes of one PTX text.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
/// Tokens of one PTX text, white space and comments not counted.
pub const TOKENS_MAX: usize = 16 << 20;
/// Statements of one PTX text, declarations, labels and lists of operands included.
pub const STATEMENTS_MAX: usize = 2 << 20;
/// Braces inside one another in a body.
pub const NESTING_MAX: usize = 32;
/// Lists inside one another in an operand.
pub const OPERAND_NESTING_MAX: usize = 3;
/// Operands of one instruction, elements of its lists included.
pub const OPERANDS_MAX: usize = 256;
/// Modifiers of one opcode.
pub const MODIFIERS_MAX: usize = 24;
/// Entries and functions of one module.
pub const ENTRIES_MAX: usize = 16 << 10;
/// Parameters of one entry or function.
pub const PARAMETERS_MAX: usize = 4096;
/// Bytes of one name.
pub const NAME_BYTES_MAX: usize = 4096;
/// Dimensions of one array.
pub const DIMENSIONS_MAX: usize = 8;
/// Findings that a report holds; the rest is only counted.
pub const FINDINGS_MAX: usize = 1000;
