//! What a program that is sanitized tells the software GPU of its memory, by a socket of their own.

/// What a client tells. Each is answered with one byte, but for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It has allocated memory.
    Allocated {
        /// Its address.
        address: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// It has freed what it allocated at an address.
    Freed(u64),
    /// A context ended, and what was allocated at an address with it.
    Left(u64),
    /// Other processes may write what it allocated at an address.
    Exported(u64),
    /// It asks for what was found, which is the answer.
    Asked,
}

impl Told {
    /// Bytes of each.
    pub const BYTES: usize = 17;

    /// The bytes of it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let (kind, address, bytes) = match self {
            Self::Allocated { address, bytes } => (1, address, bytes),
            Self::Freed(address) => (2, address, 0),
            Self::Exported(address) => (3, address, 0),
            Self::Left(address) => (4, address, 0),
            Self::Asked => (5, 0, 0),
        };
        let mut message = [kind; Self::BYTES];
        message[1..9].copy_from_slice(&address.to_le_bytes());
        message[9..].copy_from_slice(&bytes.to_le_bytes());
        message
    }

    /// What bytes tell, if anything.
    #[must_use]
    pub fn from_bytes(message: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&message[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Some(match message[0] {
            1 => Self::Allocated { address: word(1), bytes: word(9) },
            2 => Self::Freed(word(1)),
            3 => Self::Exported(word(1)),
            4 => Self::Left(word(1)),
            5 => Self::Asked,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood_and_nothing_else_is() {
        let all = [
            Told::Allocated { address: u64::MAX, bytes: 3 },
            Told::Freed(4),
            Told::Exported(5),
            Told::Left(6),
            Told::Asked,
        ];
        for told in all {
            assert_eq!(Told::from_bytes(&told.to_bytes()), Some(told));
        }
        for kind in [0, 6, 255] {
            assert_eq!(Told::from_bytes(&[kind; Told::BYTES]), None);
        }
    }
}
