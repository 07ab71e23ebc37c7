//! The bytes in which what was found out about kernels goes from process to process.
//!
//! Words are of 64 bits, lowest byte first; a list is preceded by its length.

/// Bytes that are no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no report of what kernels did")
    }
}

impl std::error::Error for Malformed {}

/// Words on their way out.
#[derive(Default)]
pub(crate) struct Out(Vec<u8>);

impl Out {
    /// A word.
    pub(crate) fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    /// Several, one after the other.
    pub(crate) fn words(&mut self, words: impl IntoIterator<Item = u64>) {
        words.into_iter().for_each(|word| self.word(word));
    }

    /// A list.
    pub(crate) fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.word(list.len() as u64);
        for item in list {
            each(self, item);
        }
    }

    /// A text.
    pub(crate) fn text(&mut self, text: &str) {
        self.list(text.as_bytes(), |out, byte| out.0.push(*byte));
    }

    /// All bytes.
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Words on their way in.
pub(crate) struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    /// Those of these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether there are no more.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A word.
    pub(crate) fn word(&mut self) -> Result<u64, Malformed> {
        let (word, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    /// A word of which half is used.
    pub(crate) fn half(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.word()?).map_err(|_| Malformed)
    }

    /// A list whose items take at least so many bytes: no length is believed that does not fit.
    pub(crate) fn list<T>(
        &mut self,
        least_bytes: usize,
        mut each: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = usize::try_from(self.word()?).map_err(|_| Malformed)?;
        if count > self.0.len() / least_bytes {
            return Err(Malformed);
        }
        (0..count).map(|_| each(self)).collect()
    }

    /// A text.
    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let text = self.list(1, |words| {
            let (byte, rest) = words.0.split_first().ok_or(Malformed)?;
            words.0 = rest;
            Ok(*byte)
        })?;
        String::from_utf8(text).map_err(|_| Malformed)
    }
}
