//! What each instruction computes, for all 32 lanes of a warp at once.
//!
//! A register is 32 words of 64 bits, one per lane; a value narrower than 64 bits lies in the low bits
//! with zeros above it. The decoder picks one function per instruction; lanes that are not active are
//! computed too and thrown away, so nothing here may panic or have an effect.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "PTX arithmetic is defined on bit patterns: casts between widths and signs are its meaning"
)]

pub(crate) mod approx;
pub(crate) mod bits;
pub(crate) mod carry;
pub(crate) mod compare;
pub(crate) mod convert;
mod double;
pub(crate) mod float;
#[expect(unsafe_code, reason = "calls code compiled for instructions that not every processor has")]
mod fused;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod logic;
pub(crate) mod mbarrier;
pub(crate) mod name;
pub(crate) mod quarter;
pub(crate) mod rounding;
pub(crate) mod update;
pub(crate) mod video;

#[cfg(test)]
mod tests;

use name::Name;

/// Threads of a warp.
pub(crate) const LANES: usize = 32;

/// One register of a warp.
pub(crate) type Lanes = [u64; LANES];

/// What an instruction computes: for all lanes, for one lane, and its name if compiled code knows it.
#[derive(Debug)]
pub(crate) struct Form<L: 'static, O: 'static> {
    /// All lanes.
    pub(crate) lanes: L,
    /// One lane.
    pub(crate) one: O,
    /// What it is.
    pub(crate) name: Option<Name>,
}

/// One operand in, one out.
pub(crate) type Unary = &'static Form<fn(&Lanes, &mut Lanes), extern "C" fn(u64) -> u64>;
/// Two operands in, one out.
pub(crate) type Binary = &'static Form<fn(&Lanes, &Lanes, &mut Lanes), extern "C" fn(u64, u64) -> u64>;
/// Three operands in, one out.
pub(crate) type Ternary = &'static TernaryForm;
/// What a [`Ternary`] points to.
pub(crate) type TernaryForm =
    Form<fn(&Lanes, &Lanes, &Lanes, &mut Lanes), extern "C" fn(u64, u64, u64) -> u64>;
/// A comparison: one bit per lane.
pub(crate) type Test = &'static Form<fn(&Lanes, &Lanes) -> u32, extern "C" fn(u64, u64) -> u64>;
/// A property of one operand: one bit per lane.
pub(crate) type Property = &'static Form<fn(&Lanes) -> u32, extern "C" fn(u64) -> u64>;

/// A value that fits a register's word.
pub(crate) trait Word: Copy {
    /// Reads the low bits of a word.
    fn of(word: u64) -> Self;
    /// The word that holds the value, zero-extended.
    fn word(self) -> u64;
}

macro_rules! unsigned_word {
    ($($ty:ty),*) => {$(
        impl Word for $ty {
            #[inline(always)]
            fn of(word: u64) -> Self { word as $ty }
            #[inline(always)]
            fn word(self) -> u64 { self as u64 }
        }
    )*};
}
macro_rules! signed_word {
    ($($ty:ty as $bits:ty),*) => {$(
        impl Word for $ty {
            #[inline(always)]
            fn of(word: u64) -> Self { word as $bits as $ty }
            #[inline(always)]
            fn word(self) -> u64 { self as $bits as u64 }
        }
    )*};
}
unsigned_word!(u8, u16, u32, u64);
signed_word!(i8 as u8, i16 as u16, i32 as u32, i64 as u64);

impl Word for f32 {
    #[inline(always)]
    fn of(word: u64) -> Self {
        f32::from_bits(word as u32)
    }
    #[inline(always)]
    fn word(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Word for f64 {
    #[inline(always)]
    fn of(word: u64) -> Self {
        f64::from_bits(word)
    }
    #[inline(always)]
    fn word(self) -> u64 {
        self.to_bits()
    }
}

/// A [`Unary`] from an expression on one lane; before it may stand its name.
macro_rules! unary {
    (|$a:ident: $ta:ty| $body:expr) => {
        $crate::alu::unary!(None; |$a: $ta| $body)
    };
    ($name:expr; |$a:ident: $ta:ty| $body:expr) => {{
        #[inline(always)]
        fn value(x: u64) -> u64 {
            let $a = <$ta as $crate::alu::Word>::of(x);
            $crate::alu::Word::word($body)
        }
        fn lanes(x: &$crate::alu::Lanes, out: &mut $crate::alu::Lanes) {
            for i in 0..$crate::alu::LANES {
                out[i] = value(x[i]);
            }
        }
        extern "C" fn one(x: u64) -> u64 {
            value(x)
        }
        static FORM: $crate::alu::Form<fn(&$crate::alu::Lanes, &mut $crate::alu::Lanes), extern "C" fn(u64) -> u64> =
            $crate::alu::Form { lanes, one, name: $name };
        &FORM
    }};
}

/// A [`Binary`] from an expression on one lane; before it may stand its name.
macro_rules! binary {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty| $body:expr) => {
        $crate::alu::binary!(None; |$a: $ta, $b: $tb| $body)
    };
    ($name:expr; |$a:ident: $ta:ty, $b:ident: $tb:ty| $body:expr) => {{
        #[inline(always)]
        fn value(x: u64, y: u64) -> u64 {
            let $a = <$ta as $crate::alu::Word>::of(x);
            let $b = <$tb as $crate::alu::Word>::of(y);
            $crate::alu::Word::word($body)
        }
        fn lanes(x: &$crate::alu::Lanes, y: &$crate::alu::Lanes, out: &mut $crate::alu::Lanes) {
            for i in 0..$crate::alu::LANES {
                out[i] = value(x[i], y[i]);
            }
        }
        extern "C" fn one(x: u64, y: u64) -> u64 {
            value(x, y)
        }
        static FORM: $crate::alu::Form<fn(&$crate::alu::Lanes, &$crate::alu::Lanes, &mut $crate::alu::Lanes), extern "C" fn(u64, u64) -> u64> =
            $crate::alu::Form { lanes, one, name: $name };
        &FORM
    }};
}

/// A [`Ternary`] from an expression on one lane; before it may stand its name.
macro_rules! ternary {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty| $body:expr) => {
        $crate::alu::ternary!(None; |$a: $ta, $b: $tb, $c: $tc| $body)
    };
    ($name:expr; |$a:ident: $ta:ty, $b:ident: $tb:ty, $c:ident: $tc:ty| $body:expr) => {{
        #[inline(always)]
        fn value(x: u64, y: u64, z: u64) -> u64 {
            let $a = <$ta as $crate::alu::Word>::of(x);
            let $b = <$tb as $crate::alu::Word>::of(y);
            let $c = <$tc as $crate::alu::Word>::of(z);
            $crate::alu::Word::word($body)
        }
        fn lanes(x: &$crate::alu::Lanes, y: &$crate::alu::Lanes, z: &$crate::alu::Lanes, out: &mut $crate::alu::Lanes) {
            for i in 0..$crate::alu::LANES {
                out[i] = value(x[i], y[i], z[i]);
            }
        }
        extern "C" fn one(x: u64, y: u64, z: u64) -> u64 {
            value(x, y, z)
        }
        static FORM: $crate::alu::Form<fn(&$crate::alu::Lanes, &$crate::alu::Lanes, &$crate::alu::Lanes, &mut $crate::alu::Lanes), extern "C" fn(u64, u64, u64) -> u64> =
            $crate::alu::Form { lanes, one, name: $name };
        &FORM
    }};
}

/// A [`Test`] from a condition on one lane; before it may stand its name.
macro_rules! test {
    (|$a:ident: $ta:ty, $b:ident: $tb:ty| $body:expr) => {
        $crate::alu::test!(None; |$a: $ta, $b: $tb| $body)
    };
    ($name:expr; |$a:ident: $ta:ty, $b:ident: $tb:ty| $body:expr) => {{
        #[inline(always)]
        fn value(x: u64, y: u64) -> bool {
            let $a = <$ta as $crate::alu::Word>::of(x);
            let $b = <$tb as $crate::alu::Word>::of(y);
            $body
        }
        fn lanes(x: &$crate::alu::Lanes, y: &$crate::alu::Lanes) -> u32 {
            let mut mask = 0u32;
            for i in 0..$crate::alu::LANES {
                mask |= u32::from(value(x[i], y[i])) << i;
            }
            mask
        }
        extern "C" fn one(x: u64, y: u64) -> u64 {
            u64::from(value(x, y))
        }
        static FORM: $crate::alu::Form<fn(&$crate::alu::Lanes, &$crate::alu::Lanes) -> u32, extern "C" fn(u64, u64) -> u64> =
            $crate::alu::Form { lanes, one, name: $name };
        &FORM
    }};
}

/// A [`Property`] from a condition on one lane.
macro_rules! property {
    (|$a:ident: $ta:ty| $body:expr) => {
        $crate::alu::property!(None; |$a: $ta| $body)
    };
    ($name:expr; |$a:ident: $ta:ty| $body:expr) => {{
        #[inline(always)]
        fn value(x: u64) -> bool {
            let $a = <$ta as $crate::alu::Word>::of(x);
            $body
        }
        fn lanes(x: &$crate::alu::Lanes) -> u32 {
            let mut mask = 0u32;
            for i in 0..$crate::alu::LANES {
                mask |= u32::from(value(x[i])) << i;
            }
            mask
        }
        extern "C" fn one(x: u64) -> u64 {
            u64::from(value(x))
        }
        static FORM: $crate::alu::Form<fn(&$crate::alu::Lanes) -> u32, extern "C" fn(u64) -> u64> =
            $crate::alu::Form { lanes, one, name: $name };
        &FORM
    }};
}

pub(crate) use {binary, property, ternary, test, unary};
