//! What gates answer where they do not do what was asked: the same words in every module, here and in
//! `include/bulkhead_module.h`.
//!
//! They are the largest numbers of 32 bits, so that a gate may answer a ticket or a length in the same word.

/// The answer where all is well and there is nothing to be said.
pub const DONE: u32 = 0;
/// There is no such thing, or the caller has not opened it.
pub const NOT_OPEN: u32 = 0xFFFF_FFF0;
/// What the caller had was taken back.
pub const REVOKED: u32 = 0xFFFF_FFF1;
/// An index, a block or an offset lies outside of what the caller may name.
pub const RANGE: u32 = 0xFFFF_FFF2;
/// The caller may not do that with it.
pub const RIGHTS: u32 = 0xFFFF_FFF3;
/// The memory that is named is not the caller's, or not granted to the module.
pub const TARGET: u32 = 0xFFFF_FFF4;
/// A length is none that is served.
pub const LENGTH: u32 = 0xFFFF_FFF5;
/// Not now: ask again.
pub const BUSY: u32 = 0xFFFF_FFF6;
/// The other side has ended.
pub const GONE: u32 = 0xFFFF_FFF7;

/// Codes by the names that the header has for them.
pub const ALL: [(&str, u32); 9] = [
    ("DONE", DONE),
    ("NOT_OPEN", NOT_OPEN),
    ("REVOKED", REVOKED),
    ("RANGE", RANGE),
    ("RIGHTS", RIGHTS),
    ("TARGET", TARGET),
    ("LENGTH", LENGTH),
    ("BUSY", BUSY),
    ("GONE", GONE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_same_codes() {
        let header = include_str!("../include/bulkhead_module.h");
        for (name, code) in ALL {
            let line = if code == DONE {
                format!("constexpr u32 {name} = 0;")
            } else {
                format!("constexpr u32 {name} = 0x{code:08X};")
            };
            assert!(header.contains(&line), "{line}");
        }
        assert_eq!(header.matches("constexpr u32 ").count(), ALL.len());
    }
}
