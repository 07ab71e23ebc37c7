//! Finds places in a cubin, without the linter's own reader, and chooses them.

/// A section, as its header has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) is_code: bool,
    kind: u32,
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

pub(crate) fn sections(cubin: &[u8]) -> Vec<Section> {
    let (table, count) = (number(cubin, 0x28, 8), number(cubin, 0x3c, 2));
    let read = |index| {
        let header = table + 64 * index;
        Section {
            offset: number(cubin, header + 24, 8),
            bytes: number(cubin, header + 32, 8),
            is_code: number(cubin, header + 8, 8) & 4 != 0,
            kind: u32::try_from(number(cubin, header + 4, 4)).unwrap(),
        }
    };
    (0..count).map(read).collect()
}

/// Where the instructions are whose opcode is wanted.
pub(crate) fn in_code(cubin: &[u8], wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    let code = sections(cubin).into_iter().filter(|section| section.is_code);
    let places = code.flat_map(|section| (section.offset..section.offset + section.bytes).step_by(16));
    places.filter(|at| wanted(number(cubin, *at, 2) & 0xfff)).collect()
}

/// Where the first record of an attribute is.
pub(crate) fn attribute(cubin: &[u8], wanted: u8) -> Option<usize> {
    for section in sections(cubin).into_iter().filter(|section| section.kind == 0x7000_0000) {
        let mut at = section.offset;
        while at < section.offset + section.bytes {
            if cubin[at + 1] == wanted {
                return Some(at);
            }
            at += 4 + if cubin[at] == 4 { number(cubin, at + 2, 2) } else { 0 };
        }
    }
    None
}

/// Numbers that come in the same order for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }
}
