//! Tokens: what stands for a capability in a process that shares no connection with this one.

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp as rpc};

use crate::connection::{answer, broken};

/// For how long a token is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uses {
    /// For one use.
    One,
    /// Until the capability is revoked, closed, or its tokens are dropped.
    UntilRevoked,
}

/// 256 random bits that stand for a capability, for a process that shares no connection with this one. Whoever knows
/// them has the capability: keep them as secret as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SturdyToken(pub [u8; 32]);

impl std::fmt::Debug for SturdyToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SturdyToken(..)")
    }
}

/// As people and files have it: 64 hexadecimal digits.
impl std::fmt::LowerHex for SturdyToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for SturdyToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // What it is nearly is not told: whoever reads the message need not know the token.
        let wrong = || Error::new(ErrorCode::InvalidArgument, "a token is 64 hexadecimal digits");
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (to, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            let digits = text.get(at..at + 2).ok_or_else(wrong)?;
            *to = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl SturdyToken {
    /// Reads the token in a file, such as the kernel writes for each protected module.
    ///
    /// # Errors
    /// Where the file cannot be read, or holds none.
    pub fn read_file(path: &std::path::Path) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(ErrorCode::InvalidArgument, format!("{}: {error}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        text.trim().parse().map_err(|error: Error| failed(&error.message))
    }

    pub(crate) fn read(token: rpc::sturdy_token::Reader<'_>) -> Self {
        let words = [token.get_first(), token.get_second(), token.get_third(), token.get_fourth()];
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        Self(bytes)
    }

    pub(crate) fn write(self, mut token: rpc::sturdy_token::Builder<'_>) {
        let word = |at: usize| {
            u64::from_le_bytes(std::array::from_fn(|byte| self.0.get(at * 8 + byte).copied().unwrap_or(0)))
        };
        token.set_first(word(0));
        token.set_second(word(1));
        token.set_third(word(2));
        token.set_fourth(word(3));
    }
}

/// A token for a capability.
pub(crate) async fn make(capability: &rpc::gpu_capability::Client, uses: Uses) -> Result<SturdyToken, Error> {
    let mut token = capability.token_request();
    token.get().set_uses(match uses {
        Uses::One => rpc::Uses::One,
        Uses::UntilRevoked => rpc::Uses::UntilRevoked,
    });
    let response = token.send().promise.await.map_err(broken)?;
    let token = answer(response.get().and_then(|r| r.get_result()).map_err(broken)?)?;
    Ok(SturdyToken::read(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written_and_nothing_else_is_one() {
        let token = SturdyToken(std::array::from_fn(|at| u8::try_from(at * 8 + 1).unwrap_or(0)));
        let text = format!("{token:x}");
        assert_eq!((text.len(), &text[..6]), (64, "010911"));
        assert_eq!(text.parse(), Ok(token));
        assert_eq!(text.to_uppercase().parse(), Ok(token));
        for wrong in
            ["", &text[1..], &format!("{text}0"), &text.replace('9', "g"), &"é".repeat(32), &" ".repeat(64)]
        {
            let refused = wrong.parse::<SturdyToken>().expect_err("that is no token");
            assert!(!refused.message.contains("0109"), "what a token nearly is is not told: {refused}");
        }
    }
}
