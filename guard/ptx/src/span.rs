//! Where things stand in a source text.

/// Where something stands in the source text: line and column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Place {
    /// Line, from 1; 0 where it is the text as a whole.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
}

/// The bytes of the source text that something was read from.
///
/// All spans are equal, so that two trees are equal where they say the same, wherever they say it. What was
/// not read but made has the span of what it was made for, or the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span {
    /// Line and column of the first byte.
    pub place: Place,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

impl From<Place> for Span {
    /// A place whose bytes are not known.
    fn from(place: Place) -> Self {
        Self { place, start: 0, end: 0 }
    }
}

impl Span {
    /// The text as a whole.
    pub const WHOLE: Self = Self { place: Place { line: 0, column: 0 }, start: 0, end: 0 };

    /// The bytes of `text` that the span covers; empty where it does not fit.
    #[must_use]
    pub fn of<'a>(&self, text: &'a str) -> &'a str {
        let bounds = (usize::try_from(self.start), usize::try_from(self.end));
        let (Ok(start), Ok(end)) = bounds else { return "" };
        text.get(start..end).unwrap_or_default()
    }
}

/// The spans of an instruction's operands, in order; empty where the instruction was made and not read. As
/// with spans, all are equal.
#[derive(Debug, Clone, Default)]
pub struct Spans(pub Vec<Span>);

impl PartialEq for Spans {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Spans {}
