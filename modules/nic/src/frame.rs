//! Frames: Ethernet, IPv4 without options, UDP.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Of Ethernet, of IPv4, and of UDP.
pub const HEADER_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;
const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// Where UDP begins, and where its checksum lies behind that.
pub const UDP_START: u16 = 34;
/// See [`UDP_START`].
pub const UDP_CHECKSUM: u16 = 6;

const UDP: u8 = 17;
const LIVES: u8 = 64;
/// Not to be fragmented.
const WHOLE: u16 = 0x4000;

/// A link address.
pub type Link = [u8; 6];
/// Where all frames go to and come from: the next hop.
pub const HOP: Link = [0x02, 0x42, 0x48, 0xFF, 0xFF, 0xFF];

/// The link address of a flow, which has its number in the last byte: gates know by it which flow a frame is of.
#[must_use]
pub fn link(instance: u8, flow: u8) -> Link {
    [0x02, 0x42, 0x48, 0x00, instance, flow]
}

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The link addresses.
    pub to_link: Link,
    /// See [`to_link`](Self::to_link).
    pub from_link: Link,
    /// Whom from.
    pub from: SocketAddrV4,
    /// Whom to.
    pub to: SocketAddrV4,
    /// What UDP's checksum says.
    pub checksum: u16,
    /// The data.
    pub data: &'a [u8],
}

/// Why bytes are no frame that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It ends within its headers.
    #[error("it ends within its headers")]
    Short,
    /// Not IPv4 in Ethernet.
    #[error("it is not IPv4")]
    Link,
    /// Options, fragments, another protocol than UDP.
    #[error("it is not UDP over IPv4 without options, whole")]
    Protocol,
    /// A length says otherwise.
    #[error("its lengths differ")]
    Length,
    /// The checksum of IPv4 is wrong.
    #[error("the checksum of IPv4 is wrong")]
    Checksum,
}

/// The sum of 16-bit words, as checksums have it, from the sum of others on. A byte that is left counts as if 0 followed.
#[must_use]
pub fn sum(from: u16, bytes: &[u8]) -> u16 {
    let (words, left) = bytes.as_chunks::<2>();
    let mut sum =
        u64::from(from) + words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    if let [last] = left {
        sum += u64::from(u16::from_be_bytes([*last, 0]));
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// The sum of the pseudo header of UDP.
#[must_use]
pub fn pseudo(from: Ipv4Addr, to: Ipv4Addr, udp_bytes: u16) -> u16 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&from.octets());
    bytes[4..8].copy_from_slice(&to.octets());
    bytes[9] = UDP;
    bytes[10..].copy_from_slice(&udp_bytes.to_be_bytes());
    sum(0, &bytes)
}

/// Whom a frame goes from and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Links {
    /// Who sends it.
    pub from: Link,
    /// Whom it is for.
    pub to: Link,
}

/// The headers of a datagram of `data_bytes`, with the checksum of IPv4 and this one of UDP.
#[must_use]
pub fn headers(
    links: Links,
    from: SocketAddrV4,
    to: SocketAddrV4,
    data_bytes: u16,
    checksum: u16,
) -> [u8; HEADER_BYTES] {
    let udp_bytes = data_bytes.saturating_add(8);
    let mut bytes = [0; HEADER_BYTES];
    let (ethernet, rest) = bytes.split_at_mut(ETHERNET_BYTES);
    ethernet[..6].copy_from_slice(&links.to);
    ethernet[6..12].copy_from_slice(&links.from);
    ethernet[12] = 8;
    let (ip, udp) = rest.split_at_mut(IP_BYTES);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&udp_bytes.saturating_add(20).to_be_bytes());
    ip[6..8].copy_from_slice(&WHOLE.to_be_bytes());
    ip[8] = LIVES;
    ip[9] = UDP;
    ip[12..16].copy_from_slice(&from.ip().octets());
    ip[16..].copy_from_slice(&to.ip().octets());
    let whole = !sum(0, ip);
    ip[10..12].copy_from_slice(&whole.to_be_bytes());
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    udp[6..].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn word(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]))
}

fn address(bytes: &[u8], at: usize) -> Ipv4Addr {
    let [a, b] = word(bytes, at).to_be_bytes();
    let [c, d] = word(bytes, at + 2).to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

fn link_at(bytes: &[u8], at: usize) -> Link {
    bytes.get(at..at + 6).and_then(|link| link.try_into().ok()).unwrap_or_default()
}

/// Reads a frame.
///
/// # Errors
/// What is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Datagram<'_>, Malformed> {
    let (headers, data) = bytes.split_at_checked(HEADER_BYTES).ok_or(Malformed::Short)?;
    let (ethernet, rest) = headers.split_at(ETHERNET_BYTES);
    let (ip, udp) = rest.split_at(IP_BYTES);
    if word(ethernet, 12) != 0x0800 {
        return Err(Malformed::Link);
    }
    if ip[0] != 0x45 || word(ip, 6) & !WHOLE != 0 || ip[9] != UDP {
        return Err(Malformed::Protocol);
    }
    let udp_bytes = UDP_BYTES + data.len();
    if usize::from(word(udp, 4)) != udp_bytes || usize::from(word(ip, 2)) != IP_BYTES + udp_bytes {
        return Err(Malformed::Length);
    }
    if sum(0, ip) != 0xFFFF {
        return Err(Malformed::Checksum);
    }
    Ok(Datagram {
        to_link: link_at(ethernet, 0),
        from_link: link_at(ethernet, 6),
        from: SocketAddrV4::new(address(ip, 12), word(udp, 0)),
        to: SocketAddrV4::new(address(ip, 16), word(udp, 2)),
        checksum: word(udp, 6),
        data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 7000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), 53);

    fn whole() -> Vec<u8> {
        let mut bytes = headers(Links { from: link(1, 2), to: HOP }, FROM, TO, 3, 0x1234).to_vec();
        bytes.extend(b"abc");
        bytes
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = whole();
        let read = parse(&bytes).unwrap();
        let links = (read.from_link, read.to_link);
        assert_eq!(
            (read.from, read.to, links, read.checksum, read.data),
            (FROM, TO, (link(1, 2), HOP), 0x1234, &b"abc"[..])
        );
    }

    #[test]
    fn checksums_are_those_of_rfc_1071() {
        assert_eq!(sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(0xFFFF, &[0, 1, 2]), 0x0201);
    }

    #[test]
    fn a_frame_with_one_bit_changed_in_its_headers_is_another_or_none() {
        let bytes = whole();
        let right = parse(&bytes).unwrap();
        for at in 0..HEADER_BYTES {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_ne!(parse(&changed), Ok(right), "byte {at}, bit {bit}");
            }
        }
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_err());
        }
    }
}
