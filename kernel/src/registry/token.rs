//! Tokens that stand for capabilities.

use std::fmt;

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::sturdy_token};

/// 256 random bits that stand for a capability.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SturdyToken([u64; 4]);

impl SturdyToken {
    pub(crate) fn random() -> Result<Self, Error> {
        let mut words = [0; 4];
        for word in &mut words {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).map_err(|error| {
                Error::new(ErrorCode::Internal, format!("the system gives no random numbers: {error}"))
            })?;
            *word = u64::from_le_bytes(bytes);
        }
        Ok(Self(words))
    }

    pub(crate) fn read(reader: sturdy_token::Reader<'_>) -> Self {
        Self([reader.get_first(), reader.get_second(), reader.get_third(), reader.get_fourth()])
    }

    pub(crate) fn write(self, mut builder: sturdy_token::Builder<'_>) {
        let [first, second, third, fourth] = self.0;
        builder.set_first(first);
        builder.set_second(second);
        builder.set_third(third);
        builder.set_fourth(fourth);
    }
}

/// As files and people have it: the bytes in order, in hexadecimal digits.
impl fmt::Display for SturdyToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().flat_map(|word| word.to_le_bytes()).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
