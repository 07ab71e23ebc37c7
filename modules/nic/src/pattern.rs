//! Sets of addresses, as operators write them.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddrV4},
    str::FromStr,
};

/// `ADDRESS:PORTS` or `ADDRESS/BITS:PORTS`: addresses that begin with the same bits, and a port, `FIRST-LAST`, or `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    address: Ipv4Addr,
    bits: u8,
    first: u16,
    last: u16,
}

impl Pattern {
    /// Every address.
    pub const ALL: Self = Self { address: Ipv4Addr::UNSPECIFIED, bits: 0, first: 0, last: u16::MAX };

    /// Whether an address is among these.
    #[must_use]
    pub fn has(&self, address: SocketAddrV4) -> bool {
        let differs = address.ip().to_bits() ^ self.address.to_bits();
        let same = differs.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0;
        same && (self.first..=self.last).contains(&address.port())
    }
}

/// What stands there is no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ADDRESS:PORTS or ADDRESS/BITS:PORTS belongs there, such as 127.0.0.1:7000-7099 or 10.0.0.0/8:*")]
pub struct NoPattern;

impl FromStr for Pattern {
    type Err = NoPattern;

    fn from_str(text: &str) -> Result<Self, NoPattern> {
        let (addresses, ports) = text.rsplit_once(':').ok_or(NoPattern)?;
        let (address, bits) = addresses.split_once('/').unwrap_or((addresses, "32"));
        let (first, last) = match ports {
            "*" => ("1", "65535"),
            ports => ports.split_once('-').unwrap_or((ports, ports)),
        };
        let pattern = Self {
            address: address.parse().map_err(|_| NoPattern)?,
            bits: bits.parse().map_err(|_| NoPattern)?,
            first: first.parse().map_err(|_| NoPattern)?,
            last: last.parse().map_err(|_| NoPattern)?,
        };
        (pattern.bits <= 32 && 1 <= pattern.first && pattern.first <= pattern.last)
            .then_some(pattern)
            .ok_or(NoPattern)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}-{}", self.address, self.bits, self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_the_addresses_that_begin_as_they_do() {
        for (pattern, inside, outside) in [
            ("127.0.0.1:7000-7099", "127.0.0.1:7099", "127.0.0.1:7100"),
            ("127.0.0.1:7000", "127.0.0.1:7000", "127.0.0.2:7000"),
            ("10.0.0.0/8:*", "10.255.0.1:1", "11.0.0.0:1"),
            ("192.0.2.129/25:5-6", "192.0.2.128:5", "192.0.2.127:5"),
            ("192.0.2.129/31:5-6", "192.0.2.128:6", "192.0.2.130:5"),
        ] {
            let pattern: Pattern = pattern.parse().unwrap();
            assert!(
                pattern.has(inside.parse().unwrap()) && !pattern.has(outside.parse().unwrap()),
                "{pattern}"
            );
        }
        assert!("0.0.0.0/0:*".parse::<Pattern>().unwrap().has("255.255.255.255:65535".parse().unwrap()));
        assert!(Pattern::ALL.has("0.0.0.0:0".parse().unwrap()));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            ":",
            "1.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:0",
            "1.2.3.4:9-8",
            "1.2.3.4/33:1",
            "1.2.3.4/-1:1",
            "1.2.3:1",
            "a:1",
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text:?}");
        }
    }
}
