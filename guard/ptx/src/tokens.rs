//! A lossless tokenizer: every byte of the text is in exactly one token, so the tokens' texts, one after
//! the other, are the text.
//!
//! Where lexers are known to differ (what ends a comment, bytes beyond ASCII, NUL, `#`), the byte becomes an
//! [`TokenKind::Invalid`] token and the parser refuses the text: it need not matter who is right.

use crate::ast::{Place, Span};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// Blanks, tabs and line ends.
    Space,
    /// `// ...` up to the line feed.
    LineComment,
    /// `/* ... */`; they do not nest.
    BlockComment,
    /// A name or opcode: `ld`, `%r1`, `$L__BB0_1`, `_`.
    Word,
    /// A dot and what it names: `.global`, `.shared::cta`, `.1d`.
    DotWord,
    /// A number: `12`, `0x1F`, `0f3F800000`, `9.0`.
    Number,
    /// `"..."` on one line, without escapes.
    Text,
    /// One of `( ) [ ] { } < > , ; : @ ! | = + - * / % . & ^ ~ ?`.
    Punctuation,
    /// A byte that PTX text may not hold.
    Invalid,
    /// A comment without an end, up to the end of the text.
    UnterminatedComment,
    /// A string without an end, up to the end of its line.
    UnterminatedText,
}

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: TokenKind,
    /// Its bytes, as they stand in the text.
    pub text: &'a str,
    /// Offset of its first byte.
    pub start: usize,
    /// Line and column of its first byte.
    pub place: Place,
}

impl Token<'_> {
    /// Offset behind its last byte; [`u32::MAX`] where that does not fit.
    pub fn end(&self) -> u32 {
        u32::try_from(self.start + self.text.len()).unwrap_or(u32::MAX)
    }

    /// Where it stands.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { place: self.place, start: u32::try_from(self.start).unwrap_or(u32::MAX), end: self.end() }
    }

    /// Whether the token carries no meaning: white space or a comment.
    #[must_use]
    pub fn is_trivia(&self) -> bool {
        matches!(self.kind, TokenKind::Space | TokenKind::LineComment | TokenKind::BlockComment)
    }
}

/// The tokens of a text, in order.
#[must_use]
pub fn tokens(text: &str) -> Tokens<'_> {
    Tokens { text, at: 0, line: 1, line_start: 0 }
}

/// The iterator that [`tokens`] returns.
#[derive(Debug, Clone)]
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..)?;
        let first = *rest.first()?;
        let (kind, mut length) = scan(first, rest);
        // A token of bytes beyond ASCII takes the whole character, so that its text can be borrowed.
        while !self.text.is_char_boundary(start + length) {
            length += 1;
        }
        let place = self.here();
        self.at = start + length;
        let text = self.text.get(start..self.at).unwrap_or_default();
        if matches!(kind, TokenKind::Space | TokenKind::BlockComment | TokenKind::UnterminatedComment) {
            self.count_lines(start, text);
        }
        Some(Token { kind, text, start, place })
    }
}

impl Tokens<'_> {
    /// The place of the next token, which is the end of the text where there is none.
    #[must_use]
    pub fn here(&self) -> Place {
        let column = self.at - self.line_start + 1;
        Place { line: self.line, column: u32::try_from(column).unwrap_or(u32::MAX) }
    }

    /// The empty span before the next token.
    pub fn span_here(&self) -> Span {
        let at = u32::try_from(self.at).unwrap_or(u32::MAX);
        Span { place: self.here(), start: at, end: at }
    }

    fn count_lines(&mut self, start: usize, text: &str) {
        for (index, byte) in text.bytes().enumerate() {
            if byte == b'\n' {
                self.line = self.line.saturating_add(1);
                self.line_start = start + index + 1;
            }
        }
    }
}

/// The kind and length of the token that `rest` starts with; `first` is its first byte.
fn scan(first: u8, rest: &[u8]) -> (TokenKind, usize) {
    match first {
        b' ' | b'\t' | b'\r' | b'\n' => {
            (TokenKind::Space, run(rest, |byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')))
        }
        b'/' if rest.get(1) == Some(&b'/') => line_comment(rest),
        b'/' if rest.get(1) == Some(&b'*') => block_comment(rest),
        b'"' => string(rest),
        b'0'..=b'9' => (TokenKind::Number, number(rest)),
        b'.' if rest.get(1).copied().is_some_and(in_word) => (TokenKind::DotWord, dot_word(rest)),
        b'%' if !rest.get(1).copied().is_some_and(in_word) => (TokenKind::Punctuation, 1),
        b'%' => (TokenKind::Word, 1 + run(rest.get(1..).unwrap_or_default(), in_word)),
        byte if in_word(byte) => (TokenKind::Word, run(rest, in_word)),
        b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b',' | b';' | b':' | b'@' | b'!' | b'|'
        | b'=' | b'+' | b'-' | b'*' | b'/' | b'.' | b'&' | b'^' | b'~' | b'?' => (TokenKind::Punctuation, 1),
        _ => (TokenKind::Invalid, 1),
    }
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

/// Whether a byte may stand in a comment or string: printing ASCII and white space.
fn in_comment(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\r' | b' '..=b'~')
}

fn run(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !belongs(*byte)).unwrap_or(bytes.len())
}

/// A comment ends early, before a byte that no comment may hold; the rest of it is then read as PTX, which
/// only matters for the number of findings: the text is refused for that byte.
fn line_comment(rest: &[u8]) -> (TokenKind, usize) {
    (TokenKind::LineComment, run(rest, in_comment))
}

fn block_comment(rest: &[u8]) -> (TokenKind, usize) {
    let mut at = 2;
    loop {
        match rest.get(at) {
            None => return (TokenKind::UnterminatedComment, rest.len()),
            Some(b'*') if rest.get(at + 1) == Some(&b'/') => return (TokenKind::BlockComment, at + 2),
            Some(&byte) if in_comment(byte) || byte == b'\n' => at += 1,
            Some(_) => return (TokenKind::BlockComment, at),
        }
    }
}

fn string(rest: &[u8]) -> (TokenKind, usize) {
    let inside = run(rest.get(1..).unwrap_or_default(), |byte| {
        in_comment(byte) && !matches!(byte, b'"' | b'\\' | b'\r')
    });
    if rest.get(1 + inside) == Some(&b'"') {
        (TokenKind::Text, inside + 2)
    } else {
        (TokenKind::UnterminatedText, inside + 1)
    }
}

fn dot_word(rest: &[u8]) -> usize {
    let mut length = 1;
    loop {
        length += run(rest.get(length..).unwrap_or_default(), in_word);
        let colons = rest.get(length..length + 2) == Some(b"::");
        if !(colons && rest.get(length + 2).copied().is_some_and(in_word)) {
            return length;
        }
        length += 2;
    }
}

fn number(rest: &[u8]) -> usize {
    let digit = |at: usize| rest.get(at).is_some_and(u8::is_ascii_digit);
    let whole = run(rest, |byte| byte.is_ascii_digit());
    let mut length = whole;
    // `1.` is a number too, but not the first half of `1.x`.
    let fraction = rest.get(length) == Some(&b'.');
    if fraction && (digit(length + 1) || !rest.get(length + 1).copied().is_some_and(in_word)) {
        length += 1 + run(rest.get(length + 1..).unwrap_or_default(), |byte| byte.is_ascii_digit());
    }
    let exponent = matches!(rest.get(length), Some(b'e' | b'E'));
    if exponent && matches!(rest.get(length + 1), Some(b'+' | b'-')) && digit(length + 2) {
        length += 2;
    }
    // Hexadecimal digits, suffixes, and whatever else clings to the number: the parser judges them.
    length + run(rest.get(length..).unwrap_or_default(), in_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, &str)> {
        tokens(text).filter(|token| !token.is_trivia()).map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn the_texts_of_all_tokens_are_the_text() {
        let texts = [
            "ld.global.u32 %r1, [%rd1+-4]; // x\n",
            "/* a /* b */ \"un\nst \u{a0} \0 # \x0c // \u{e9}\n0x1F 1.5e+3 0f3F800000 .L2::128B ::",
            "/* without an end",
            "",
        ];
        for text in texts {
            let joined: String = tokens(text).map(|token| token.text).collect();
            assert_eq!(joined, text);
        }
    }

    #[test]
    fn places_count_lines_and_columns_from_one() {
        let places: Vec<Place> =
            tokens("a\n  b/*\n*/c").filter(|t| !t.is_trivia()).map(|t| t.place).collect();
        let place = |line, column| Place { line, column };
        assert_eq!(places, [place(1, 1), place(2, 3), place(3, 3)]);
    }

    #[test]
    fn opcodes_fall_into_words() {
        use TokenKind::{DotWord, Word};
        assert_eq!(
            kinds("cp.async .shared::cta.L2::128B"),
            [(Word, "cp"), (DotWord, ".async"), (DotWord, ".shared::cta"), (DotWord, ".L2::128B")]
        );
    }

    #[test]
    fn numbers_keep_their_suffix_and_sign_of_the_exponent() {
        let text = "0x1FU 1.5e-3 9.0 0dBFF0000000000000 1e5 1.,2.";
        let words: Vec<&str> = kinds(text).iter().map(|k| k.1).collect();
        assert_eq!(words, ["0x1FU", "1.5e-3", "9.0", "0dBFF0000000000000", "1e5", "1.", ",", "2."]);
    }

    #[test]
    fn a_carriage_return_does_not_end_a_comment() {
        assert_eq!(kinds("// x \rst.global\nret"), [(TokenKind::Word, "ret")]);
    }

    #[test]
    fn bytes_that_lexers_read_differently_are_invalid_also_in_comments() {
        for text in ["// \0", "// \u{a0}", "/* \x0b */", "#", "`", "// \x0c"] {
            assert!(tokens(text).any(|token| token.kind == TokenKind::Invalid), "{text:?}");
        }
    }
}
