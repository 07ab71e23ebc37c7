//! Classes of registers.

use crate::ast::Type;

/// The class of a register in the confined form, where a register's name says how wide it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// `%p`: predicates.
    Predicate,
    /// `%h`: 16 bits.
    Half,
    /// `%r`: 32 bits.
    Word,
    /// `%d`: 64 bits.
    Double,
}

impl Class {
    /// All classes, in the order in which they are declared.
    pub const ALL: [Class; 4] = [Class::Predicate, Class::Half, Class::Word, Class::Double];

    /// What the names of the class start with.
    pub fn prefix(self) -> &'static str {
        match self {
            Class::Predicate => "%p",
            Class::Half => "%h",
            Class::Word => "%r",
            Class::Double => "%d",
        }
    }

    /// The type that registers of the class are declared with.
    pub fn ty(self) -> Type {
        match self {
            Class::Predicate => Type::Pred,
            Class::Half => Type::B16,
            Class::Word => Type::B32,
            Class::Double => Type::B64,
        }
    }

    /// How wide registers of the class are.
    pub fn bits(self) -> usize {
        match self {
            Class::Predicate => 1,
            Class::Half => 16,
            Class::Word => 32,
            Class::Double => 64,
        }
    }

    /// The modifier of a `mov` within the class.
    pub fn mov(self) -> &'static str {
        match self {
            Class::Predicate => "pred",
            Class::Half => "b16",
            Class::Word => "b32",
            Class::Double => "b64",
        }
    }

    /// The class that holds registers of a type; none for 8 and 128 bits, which only a few opcodes take.
    pub fn of(ty: Type) -> Option<Class> {
        Some(match ty {
            Type::Pred => Class::Predicate,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => Class::Half,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 => {
                Class::Word
            }
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => Class::Double,
            Type::B8 | Type::U8 | Type::S8 | Type::B128 | Type::Texref | Type::Samplerref | Type::Surfref => {
                return None;
            }
        })
    }

    /// The class and number of a register named in the confined form.
    pub fn parse(name: &str) -> Option<(Class, u32)> {
        let (class, digits) = match name.as_bytes() {
            [b'%', b'p', digits @ ..] => (Class::Predicate, digits),
            [b'%', b'h', digits @ ..] => (Class::Half, digits),
            [b'%', b'r', digits @ ..] => (Class::Word, digits),
            [b'%', b'd', digits @ ..] => (Class::Double, digits),
            _ => return None,
        };
        if !matches!(digits, [b'0'] | [b'1'..=b'9', ..]) {
            return None;
        }
        let number = digits.iter().try_fold(0_u32, |number, byte| {
            let digit = byte.is_ascii_digit().then(|| u32::from(byte - b'0'))?;
            number.checked_mul(10)?.checked_add(digit)
        });
        number.map(|number| (class, number))
    }
}
