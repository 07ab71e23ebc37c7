//! PTX literals.

/// PTX's name for the number of threads in a warp.
pub const WARP_SIZE: &str = "WARP_SZ";

/// The value of a literal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Literal {
    Integer(u64),
    Float32(u32),
    Float64(u64),
}

/// The value of an integer literal: decimal, `0x`, `0b` or octal, with an optional `U`.
pub(super) fn integer(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (digits.get(2..)?, 16),
        [b'0', b'b' | b'B', ..] => (digits.get(2..)?, 2),
        [b'0', _, ..] => (digits.get(1..)?, 8),
        _ => (digits, 10),
    };
    // `from_str_radix` would take a sign.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, radix).ok()
}

/// The value of any literal.
pub(super) fn literal(text: &str) -> Option<Literal> {
    match text.as_bytes() {
        [b'0', b'f' | b'F', bits @ ..] if bits.len() == 8 => {
            hexadecimal(text).and_then(|bits| u32::try_from(bits).ok()).map(Literal::Float32)
        }
        [b'0', b'd' | b'D', bits @ ..] if bits.len() == 16 => hexadecimal(text).map(Literal::Float64),
        _ => match integer(text) {
            Some(value) => Some(Literal::Integer(value)),
            None => decimal(text),
        },
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.get(2..)?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, 16).ok()
}

fn decimal(text: &str) -> Option<Literal> {
    let shape =
        text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    let float = text.contains(['.', 'e', 'E']);
    (shape && float).then_some(())?;
    let value: f64 = text.parse().ok()?;
    value.is_finite().then_some(Literal::Float64(value.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_an_integer_is_read() {
        for (text, value) in
            [("12", 12), ("0x1fU", 31), ("017", 15), ("0b101", 5), ("0", 0), ("0xffffffffffffffff", u64::MAX)]
        {
            assert_eq!(integer(text), Some(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_integer_is_not_read_as_one() {
        for text in ["09", "0x", "0xg", "12a", "18446744073709551616", "0b2", "1UU", ""] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn floats_are_read_by_their_bits() {
        assert_eq!(literal("0f3F800000"), Some(Literal::Float32(0x3f80_0000)));
        assert_eq!(literal("0dBFF0000000000000"), Some(Literal::Float64((-1.0_f64).to_bits())));
        assert_eq!(literal("1.5e+3"), Some(Literal::Float64(1500.0_f64.to_bits())));
        for text in ["0f3F80000", "0f3F8000000", "1e999", "1.5f", "0d0"] {
            assert_eq!(literal(text), None, "{text}");
        }
    }
}
