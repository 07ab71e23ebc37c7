//! What a sanitizer found, and the bytes in which it goes from process to process.

use crate::wire::{In, Malformed, Out};

/// The first word of a report: its format.
const FORMAT: u64 = 0x0002_6e61_736b_6862;

/// A mistake of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mistake {
    /// It read global memory that nobody has written.
    GlobalUnwritten,
    /// It read shared memory that no thread of the block has written.
    SharedUnwritten,
    /// It read what another thread had written, with nothing between that orders them.
    ReadAfterWrite,
    /// It wrote what another thread had written, likewise.
    WriteAfterWrite,
    /// It wrote what another thread had read, likewise.
    WriteAfterRead,
    /// A barrier of the block opened, and threads had exited.
    BarrierExited,
    /// Threads of a block met at one barrier, and came to it in different places.
    BarrierApart,
    /// Threads wait that nobody can ever join.
    NeverMet,
    /// Lanes that an operation names had exited since others came to it.
    LanesExited,
    /// A lane came to an operation whose mask does not name it.
    OwnLane,
    /// Lanes that meet do not name the same lanes.
    Masks,
    /// It read global memory that another thread of the launch had written, with nothing between that orders them.
    GlobalReadAfterWrite,
    /// It wrote what another thread had written, likewise.
    GlobalWriteAfterWrite,
    /// It wrote what another thread had read, likewise.
    GlobalWriteAfterRead,
}

/// All of them, by the number that stands for each.
const MISTAKES: [Mistake; 14] = [
    Mistake::GlobalUnwritten,
    Mistake::SharedUnwritten,
    Mistake::ReadAfterWrite,
    Mistake::WriteAfterWrite,
    Mistake::WriteAfterRead,
    Mistake::BarrierExited,
    Mistake::BarrierApart,
    Mistake::NeverMet,
    Mistake::LanesExited,
    Mistake::OwnLane,
    Mistake::Masks,
    Mistake::GlobalReadAfterWrite,
    Mistake::GlobalWriteAfterWrite,
    Mistake::GlobalWriteAfterRead,
];

/// The other thread of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other {
    /// Line and column of what it did in the confined text.
    pub at: (u32, u32),
    /// Its block.
    pub block: [u32; 3],
    /// The thread.
    pub thread: [u32; 3],
}

/// A mistake in one place of a kernel, as it was made first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub mistake: Mistake,
    /// The entry, by its name in the text: in a confined one not the tenant's ([`bulkhead_verifier::entry_of`]).
    pub kernel: String,
    /// Which text it is in, see [`crate::text_number`].
    pub text: u64,
    /// Line and column in the confined text.
    pub at: (u32, u32),
    /// The block.
    pub block: [u32; 3],
    /// The thread.
    pub thread: [u32; 3],
    /// Another thread that had a part in it.
    pub other: Option<Other>,
    /// Where: an address of global memory, or how far into the block's shared memory; for lanes their mask.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// First address and bytes of the allocation, where it lies in one.
    pub allocation: Option<(u64, u64)>,
    /// How often it was made, by threads.
    pub count: u64,
}

impl Finding {
    /// Whether two are the same mistake in the same place.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |of: &Self| (of.mistake, of.text, of.at, of.other.map(|other| other.at));
        place(self) == place(other) && self.kernel == other.kernel
    }
}

/// Memory that nobody freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// Which of all allocations it is; the first is 1.
    pub number: u64,
    /// Its address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What a sanitizer found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Mistakes of kernels.
    pub list: Vec<Finding>,
    /// Mistakes in places that were too many to be told apart.
    pub left_out: u64,
    /// Memory that is allocated yet.
    pub leaks: Vec<Leak>,
    /// What of it is too much to be told: how many allocations.
    pub leaks_left_out: u64,
    /// Allocations that were made.
    pub allocations: u64,
    /// There was another sanitizer before, which was lost with what it knew.
    pub is_rest: bool,
}

fn triple(words: &mut In<'_>) -> Result<[u32; 3], Malformed> {
    Ok([words.half()?, words.half()?, words.half()?])
}

impl Finding {
    pub(super) fn put(&self, out: &mut Out) {
        let number = MISTAKES.iter().position(|mistake| *mistake == self.mistake).unwrap_or(0);
        out.word(number as u64);
        out.text(&self.kernel);
        out.words([self.text, self.at.0.into(), self.at.1.into()]);
        out.words(self.block.map(u64::from));
        out.words(self.thread.map(u64::from));
        out.word(self.other.is_some().into());
        if let Some(Other { at, block, thread }) = self.other {
            out.words([at.0.into(), at.1.into()]);
            out.words(block.map(u64::from));
            out.words(thread.map(u64::from));
        }
        out.words([self.address, self.bytes]);
        let (address, bytes) = self.allocation.unwrap_or_default();
        out.words([address, bytes, self.count]);
    }

    fn take(words: &mut In<'_>) -> Result<Self, Malformed> {
        let number = usize::try_from(words.word()?).map_err(|_| Malformed)?;
        let mistake = *MISTAKES.get(number).ok_or(Malformed)?;
        let kernel = words.text()?;
        let text = words.word()?;
        let at = (words.half()?, words.half()?);
        let (block, thread) = (triple(words)?, triple(words)?);
        let other = match words.word()? {
            0 => None,
            1 => Some(Other {
                at: (words.half()?, words.half()?),
                block: triple(words)?,
                thread: triple(words)?,
            }),
            _ => return Err(Malformed),
        };
        let (address, bytes) = (words.word()?, words.word()?);
        let allocation = Some((words.word()?, words.word()?)).filter(|(_, bytes)| *bytes > 0);
        let count = words.word()?;
        Ok(Self { mistake, kernel, text, at, block, thread, other, address, bytes, allocation, count })
    }

    /// The findings that a journal holds, up to where it was cut off.
    #[must_use]
    pub fn journal(bytes: &[u8]) -> Vec<Self> {
        let mut words = In::new(bytes);
        std::iter::from_fn(|| Self::take(&mut words).ok()).collect()
    }
}

impl Findings {
    /// The bytes of them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.word(FORMAT);
        out.list(&self.list, |out, finding| finding.put(out));
        out.word(self.left_out);
        out.list(&self.leaks, |out, leak| out.words([leak.number, leak.address, leak.bytes]));
        out.words([self.leaks_left_out, self.allocations, self.is_rest.into()]);
        out.bytes()
    }

    /// What these bytes are.
    ///
    /// # Errors
    /// Where they are none, or more than that.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut words = In::new(bytes);
        if words.word()? != FORMAT {
            return Err(Malformed);
        }
        let list = words.list(17 * 8, Finding::take)?;
        let left_out = words.word()?;
        let leaks = words.list(24, |words| {
            Ok(Leak { number: words.word()?, address: words.word()?, bytes: words.word()? })
        })?;
        let (leaks_left_out, allocations) = (words.word()?, words.word()?);
        let is_rest = words.word()? != 0;
        let findings = Self { list, left_out, leaks, leaks_left_out, allocations, is_rest };
        if words.is_empty() { Ok(findings) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        let finding = |(number, mistake): (u32, Mistake)| Finding {
            mistake,
            kernel: "k".repeat(number as usize),
            text: 1 << 63,
            at: (number, 2),
            block: [3, 4, 5],
            thread: [6, 7, 8],
            other: (number % 2 == 1).then_some(Other {
                at: (9, 10),
                block: [25, 26, 27],
                thread: [11, 12, 13],
            }),
            address: 14,
            bytes: 15,
            allocation: (number % 3 == 1).then_some((16, 17)),
            count: 18,
        };
        Findings {
            list: (0..).zip(MISTAKES).map(finding).collect(),
            left_out: 19,
            leaks: vec![Leak { number: 20, address: 21, bytes: 22 }],
            leaks_left_out: 23,
            allocations: 24,
            is_rest: true,
        }
    }

    #[test]
    fn findings_are_read_as_they_were_written() {
        let findings = findings();
        assert_eq!(Findings::from_bytes(&findings.to_bytes()), Ok(findings));
    }

    #[test]
    fn bytes_that_are_cut_or_lie_about_a_length_are_none() {
        let bytes = findings().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Findings::from_bytes(&bytes[..len]), Err(Malformed), "{len}");
        }
        assert_eq!(Findings::from_bytes(&[&bytes[..], &[0]].concat()), Err(Malformed));
        let mut many = bytes.clone();
        many[8..16].fill(0xff);
        assert_eq!(Findings::from_bytes(&many), Err(Malformed));
    }

    #[test]
    fn a_journal_is_read_up_to_where_it_was_cut_off() {
        let Findings { list, .. } = findings();
        let mut out = Out::default();
        list.iter().for_each(|finding| finding.put(&mut out));
        let bytes = out.bytes();
        assert_eq!(Finding::journal(&bytes), list);
        assert_eq!(Finding::journal(&bytes[..bytes.len() - 1]), list[..list.len() - 1]);
    }
}
