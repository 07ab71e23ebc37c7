//! The words of an opcode after the first: each must be understood by somebody.

use bulkhead_ptx::ast::Type;

use super::refusal::Refusal;

/// The modifiers of one instruction; those that nobody took are refused in the end.
pub(crate) struct Words<'a> {
    words: Vec<Option<&'a str>>,
}

impl<'a> Words<'a> {
    /// All of them, in order.
    pub(crate) fn new(words: &'a [String]) -> Self {
        Self { words: words.iter().map(|word| Some(word.as_str())).collect() }
    }

    /// Takes a word where it is there.
    pub(crate) fn take(&mut self, wanted: &str) -> bool {
        match self.words.iter_mut().find(|word| **word == Some(wanted)) {
            Some(found) => {
                *found = None;
                true
            }
            None => false,
        }
    }

    /// Takes the first word that means something.
    pub(crate) fn find<T>(&mut self, meaning: impl Fn(&'a str) -> Option<T>) -> Option<T> {
        for word in &mut self.words {
            if let Some(found) = word.and_then(&meaning) {
                *word = None;
                return Some(found);
            }
        }
        None
    }

    /// Takes all words that are in a list.
    pub(crate) fn ignore(&mut self, list: &[&str]) {
        for word in &mut self.words {
            if word.is_some_and(|word| list.contains(&word)) {
                *word = None;
            }
        }
    }

    /// Takes cache eviction and prefetch hints, which have no meaning here.
    pub(crate) fn ignore_hints(&mut self) {
        for word in &mut self.words {
            let hint = word.is_some_and(|word| {
                (word.starts_with("L1::") || word.starts_with("L2::")) && word != "L2::cache_hint"
            });
            if hint {
                *word = None;
            }
        }
    }

    /// Takes the next type.
    pub(crate) fn ty(&mut self) -> Result<Type, Refusal> {
        self.find(type_named).ok_or_else(|| Refusal::new("a type is missing"))
    }

    /// Refuses whatever is left.
    pub(crate) fn finish(&self) -> Result<(), Refusal> {
        match self.words.iter().flatten().next() {
            Some(word) => Err(Refusal::new(format!("modifier `.{word}` is not supported here"))),
            None => Ok(()),
        }
    }
}

/// A PTX type by its word.
pub(crate) fn type_named(word: &str) -> Option<Type> {
    Some(match word {
        "b8" => Type::B8,
        "b16" => Type::B16,
        "b32" => Type::B32,
        "b64" => Type::B64,
        "b128" => Type::B128,
        "u8" => Type::U8,
        "u16" => Type::U16,
        "u32" => Type::U32,
        "u64" => Type::U64,
        "s8" => Type::S8,
        "s16" => Type::S16,
        "s32" => Type::S32,
        "s64" => Type::S64,
        "f16" => Type::F16,
        "f16x2" => Type::F16x2,
        "bf16" => Type::Bf16,
        "bf16x2" => Type::Bf16x2,
        "tf32" => Type::Tf32,
        "f32" => Type::F32,
        "f64" => Type::F64,
        "pred" => Type::Pred,
        _ => return None,
    })
}

/// Width of a type in bits; predicates have one.
pub(crate) fn bits_of(ty: Type) -> u32 {
    match ty {
        Type::Pred => 1,
        Type::B8 | Type::U8 | Type::S8 => 8,
        Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 => 16,
        Type::B32 | Type::U32 | Type::S32 => 32,
        Type::F16x2 | Type::Bf16x2 | Type::Tf32 | Type::F32 => 32,
        Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
        Type::B128 => 128,
        // Handles, which neither memory nor registers hold here.
        Type::Texref | Type::Samplerref | Type::Surfref => 0,
    }
}

/// Whether a type is a signed integer.
pub(crate) fn is_signed(ty: Type) -> bool {
    matches!(ty, Type::S8 | Type::S16 | Type::S32 | Type::S64)
}

/// Whether a type is a floating-point number, or a pair of them.
pub(crate) fn is_float(ty: Type) -> bool {
    use Type::{Bf16, Bf16x2, F16, F16x2, F32, F64, Tf32};
    matches!(ty, F16 | F16x2 | Bf16 | Bf16x2 | Tf32 | F32 | F64)
}

/// The bits of an integer literal; the parser keeps literals within 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bit pattern is what is meant"
)]
pub(crate) fn pattern(value: i128) -> u64 {
    value as u64
}

/// The bits of a decimal literal where a single-precision operand stands.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a decimal literal is rounded to the operand's precision"
)]
pub(crate) fn single_bits(double: u64) -> u64 {
    u64::from((f64::from_bits(double) as f32).to_bits())
}
