//! Guarded texts that were made before, by the images that they were made of.
//!
//! A compile process takes ten milliseconds to start and to guard a small image, and what it makes of the same bytes is the same. So
//! the kernel keeps what came of small images, as long as there is room, and reads no more of an image than its digest takes.
//! What is kept is charged to nobody, which is why there is little of it; a session that loads it is charged as if it were new,
//! and for the time of the digest.
//!
//! # Invariants
//! 1. What is kept was answered by a compile process for exactly these bytes, architecture and handling of stray accesses: images
//!    are sealed before they are read, texts when they are written.
//! 2. Texts with calls of gates are not kept: what those are may change.

use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt as _};

use bulkhead_schema::{Digest, Hasher, Stray};

use crate::compile::process::{Compiled, Way};

/// Largest image that is looked up.
const IMAGE_BYTES_MAX: u64 = 4 << 20;
/// How many texts are kept, and bytes of them and of what begins their variables.
const TEXTS_MAX: usize = 128;
const BYTES_MAX: u64 = 64 << 20;
/// How much of an image is read before others get their turn: about a millisecond's worth.
const CHUNK_BYTES: usize = 128 << 10;

/// What a text was made of, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(Digest);

impl Key {
    /// The key of a sealed image; `None` for one that is too large.
    pub(crate) async fn of(image: &File, way: Way) -> io::Result<Option<Self>> {
        let bytes = image.metadata()?.len();
        if bytes > IMAGE_BYTES_MAX {
            return Ok(None);
        }
        let mut hasher = Hasher::default();
        hasher.add(&way.architecture.to_le_bytes());
        hasher.add(&[u8::from(way.stray == Stray::Told)]);
        let (mut chunk, mut at) = (vec![0; CHUNK_BYTES], 0);
        while at < bytes {
            let length = usize::try_from(bytes - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let piece = chunk.get_mut(..length).unwrap_or_default();
            image.read_exact_at(piece, at)?;
            hasher.add(piece);
            at += length as u64;
            tokio::task::yield_now().await;
        }
        Ok(Some(Self(hasher.end())))
    }
}

/// What is kept, the one that was used last behind.
#[derive(Default)]
pub(crate) struct Kept {
    texts: VecDeque<(Key, Compiled)>,
    bytes: u64,
}

fn size(compiled: &Compiled) -> u64 {
    compiled.bytes.saturating_add(compiled.data.message_bytes() as u64)
}

impl Kept {
    /// What was made of this, if it is still there.
    pub(crate) fn find(&mut self, key: Key) -> Option<Compiled> {
        let at = self.texts.iter().position(|(known, _)| *known == key)?;
        let found = self.texts.remove(at)?;
        let copy = found.1.copy().ok();
        self.texts.push_back(found);
        copy
    }

    /// Keeps what was made of this, and forgets what was not used for longest where there is no room.
    pub(crate) fn keep(&mut self, key: Key, compiled: &Compiled) {
        let bytes = size(compiled);
        if bytes > BYTES_MAX / 4 || self.texts.iter().any(|(known, _)| *known == key) {
            return;
        }
        // Where no descriptor is left nothing is kept.
        let Ok(copy) = compiled.copy() else { return };
        self.texts.push_back((key, copy));
        self.bytes += bytes;
        while self.texts.len() > TEXTS_MAX || self.bytes > BYTES_MAX {
            let Some((_, forgotten)) = self.texts.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(size(&forgotten));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use bulkhead_schema::ModuleData;
    use rustix::fs::MemfdFlags;

    use super::*;

    fn memory(content: &[u8]) -> File {
        let mut file = File::from(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(content).unwrap();
        file
    }

    fn key(number: u8) -> Key {
        Key(Digest([number; 32]))
    }

    fn compiled(bytes: u64) -> Compiled {
        Compiled {
            text: memory(b"text").into(),
            bytes,
            text_bytes: bytes,
            entries: 1,
            data: ModuleData::default(),
        }
    }

    fn way(architecture: u32, stray: Stray) -> Way {
        Way { architecture, stray }
    }

    async fn key_of(content: &[u8], way: Way) -> Option<Key> {
        Key::of(&memory(content), way).await.unwrap()
    }

    #[tokio::test]
    async fn bytes_architecture_and_handling_of_strays_make_the_key_and_large_images_have_none() {
        let own = key_of(b"abc", way(90, Stray::Silent)).await;
        assert!(own.is_some());
        assert_eq!(own, key_of(b"abc", way(90, Stray::Silent)).await);
        for (content, other) in [
            (&b"abd"[..], way(90, Stray::Silent)),
            (b"abc", way(80, Stray::Silent)),
            (b"abc", way(90, Stray::Told)),
        ] {
            assert_ne!(own, key_of(content, other).await);
        }
        let mut large = vec![7; 3 * CHUNK_BYTES + 5];
        let one = key_of(&large, way(90, Stray::Silent)).await;
        large[3 * CHUNK_BYTES + 4] = 8;
        assert_ne!(one, key_of(&large, way(90, Stray::Silent)).await);
        let file = memory(b"");
        file.set_len(IMAGE_BYTES_MAX + 1).unwrap();
        assert_eq!(Key::of(&file, way(90, Stray::Silent)).await.unwrap(), None);
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let mut kept = Kept::default();
        assert!(kept.find(key(0)).is_none());
        for number in 0..TEXTS_MAX {
            kept.keep(key(u8::try_from(number).unwrap()), &compiled(1000));
        }
        assert!(kept.find(key(0)).is_some(), "it is used");
        kept.keep(key(200), &compiled(1000));
        assert!(kept.find(key(0)).is_some() && kept.find(key(1)).is_none() && kept.find(key(2)).is_some());
        // What takes much room takes it from others, and too much is not kept.
        kept.keep(key(201), &compiled(BYTES_MAX / 4 + 1));
        assert!(kept.find(key(201)).is_none());
        for number in 210..214 {
            kept.keep(key(number), &compiled(BYTES_MAX / 4));
        }
        assert!(kept.find(key(0)).is_none() && kept.find(key(213)).is_some());
        assert!(kept.bytes <= BYTES_MAX);
    }
}
