//! Sessions that measurements open through the SDK, and their code.

use std::{path::Path, time::Duration};

use bulkhead_client::{
    Buffer, DeviceRange, Entry, Error, Fence, Launch, Options, Parameters, Pattern, Received, Session, Share,
    Stream, SturdyToken,
};

use super::findings::Trouble;

const STAGES: &[u8] = include_bytes!("stages.ptx");
/// Threads of a block.
const BLOCK: u32 = 256;
/// Bytes that are read to be compared.
const PIECE_BYTES: usize = 64 << 20;

/// What memory is shared in.
pub(super) const PAGE_BYTES: u64 = 2 << 20;
/// Longer than anything takes that works.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A session of a measurement's.
pub(super) fn open(socket: &Path, name: &str) -> Result<Session, Error> {
    Session::open(&Options { socket: socket.to_owned(), name: name.to_owned(), ..Options::default() })
}

/// One with code.
pub(super) struct Tenant {
    pub(super) session: Session,
    stage: Entry,
    _image: bulkhead_client::Image,
}

impl Tenant {
    pub(super) fn open(socket: &Path, name: &str) -> Result<Self, Error> {
        let session = open(socket, name)?;
        let image = session.load_image(STAGES)?;
        Ok(Self { stage: image.entry("stage")?, session, _image: image })
    }

    /// A kernel that goes through `bytes` bytes: what [`after_stage`] makes of each word at `from` is then at `to`.
    pub(super) fn stage(&self, from: u64, to: u64, bytes: u64) -> Result<Fence, Error> {
        let words = u32::try_from(bytes / 4).expect("stages go through a few GiB");
        let parameters = Parameters::new().u32(words).u64(from).u64(to);
        self.session.launch(Stream::DEFAULT, &self.stage, &Launch::linear(words, BLOCK), &parameters)
    }

    /// The same, waited for.
    pub(super) fn staged(&self, from: u64, to: u64, bytes: u64) -> Result<(), Error> {
        self.stage(from, to, bytes).and_then(|fence| self.session.wait(fence))
    }

    /// Memory of its own, every word of it `value`.
    pub(super) fn arena(&self, bytes: u64, value: u32) -> Result<Buffer, Error> {
        let arena = self.session.allocate_arena(bytes)?;
        self.fill(arena.all(), value)?;
        Ok(arena)
    }

    /// Fills a range, and waits for it.
    pub(super) fn fill(&self, range: DeviceRange, value: u32) -> Result<(), Error> {
        let filled = self.session.fill(Stream::DEFAULT, range, Pattern::Bits32(value))?;
        self.session.wait(filled)
    }

    /// The first word of a range.
    pub(super) fn word(&self, range: DeviceRange) -> Result<u32, Error> {
        let mut word = [0; 4];
        let first = DeviceRange { bytes: 4, ..range };
        self.session.read(Stream::DEFAULT, &mut word, first)?;
        Ok(u32::from_le_bytes(word))
    }

    /// That every word of a range is `value`.
    pub(super) fn check(&self, range: DeviceRange, value: u32) -> Result<(), Trouble> {
        let mut piece = Vec::new();
        for begin in (0..range.bytes).step_by(PIECE_BYTES) {
            let bytes = (PIECE_BYTES as u64).min(range.bytes - begin);
            piece.resize(usize::try_from(bytes).expect("a piece is small"), 0);
            let part = DeviceRange { offset: range.offset + begin, bytes, ..range };
            self.session.read(Stream::DEFAULT, &mut piece, part)?;
            if let Some(at) = piece.chunks_exact(4).position(|word| word != value.to_le_bytes()) {
                return Err(Trouble::Said(format!(
                    "the word at offset {} is {:02x?}, not {value:#x}",
                    begin + at as u64 * 4,
                    &piece[at * 4..][..4],
                )));
            }
        }
        Ok(())
    }
}

/// What a stage makes of a word.
pub(super) fn after_stage(word: u32) -> u32 {
    word.wrapping_mul(3).wrapping_add(1)
}

/// The memory that a token stands for, mapped.
pub(super) fn accept(session: &Session, token: SturdyToken) -> Result<Share, Trouble> {
    match session.restore(token)? {
        Received::Share(share) => Ok(session.accept(&share)?),
        Received::Program(_)
        | Received::Peer(_)
        | Received::Fence(_)
        | Received::Signal(_)
        | Received::Module(_)
        | Received::Gates(_) => Err(Trouble::Said("a token of memory stands for something else".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_changes_every_word_and_wraps() {
        assert_eq!(after_stage(after_stage(7)), 67);
        assert_eq!(after_stage(u32::MAX), u32::MAX - 1);
    }
}
