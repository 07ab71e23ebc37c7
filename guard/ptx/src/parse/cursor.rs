//! Where the parser is in the text: a window of two tokens, the report, and recovery after an error.

use crate::ast::Span;
use crate::limits::{NAME_BYTES_MAX, STATEMENTS_MAX, TOKENS_MAX};
use crate::report::{Reason, Report, shorten};
use crate::tokens::{Token, TokenKind, Tokens, tokens};

/// The error has been reported: recover and go on.
#[derive(Debug)]
pub(super) struct Stop;

pub(super) type Parsed<T> = Result<T, Stop>;

pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: Tokens<'a>,
    window: [Option<Token<'a>>; 2],
    read: usize,
    statements: usize,
    statements_max: usize,
    /// A limit of the whole text was passed: nothing more is read.
    exhausted: bool,
    /// Offset behind the last token that was taken.
    last_end: u32,
    /// Braces of an operand that are open.
    pub(super) vectors: usize,
    /// Whether the operands are those of a call, where parentheses hold lists.
    pub(super) calls: bool,
    pub(super) report: Report,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, statements_max: usize) -> Self {
        let mut cursor = Self {
            text,
            tokens: tokens(text),
            window: [None, None],
            read: 0,
            statements: 0,
            statements_max: statements_max.min(STATEMENTS_MAX),
            exhausted: false,
            last_end: 0,
            vectors: 0,
            calls: false,
            report: Report::default(),
        };
        cursor.window = [cursor.fetch(), cursor.fetch()];
        cursor
    }

    /// The next token that carries meaning; bytes that PTX does not have are reported on the way.
    fn fetch(&mut self) -> Option<Token<'a>> {
        if self.exhausted {
            return None;
        }
        loop {
            let token = self.tokens.next()?;
            let reason = match token.kind {
                TokenKind::Space | TokenKind::LineComment | TokenKind::BlockComment => continue,
                TokenKind::Invalid => Reason::Byte(token.text.bytes().next().unwrap_or_default()),
                TokenKind::UnterminatedComment => Reason::Unterminated("a comment"),
                TokenKind::UnterminatedText => Reason::Unterminated("a string"),
                TokenKind::Word
                | TokenKind::DotWord
                | TokenKind::Number
                | TokenKind::Text
                | TokenKind::Punctuation => {
                    self.read += 1;
                    if self.read > TOKENS_MAX {
                        self.exhaust(token.span(), "tokens", TOKENS_MAX);
                        return None;
                    }
                    return Some(token);
                }
            };
            self.report.add(token.span(), reason);
        }
    }

    fn exhaust(&mut self, span: Span, what: &'static str, most: usize) {
        self.exhausted = true;
        self.window = [None, None];
        self.report.add(span, Reason::Limit { what, most: most as u64 });
    }

    pub(super) fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Counts one statement, or one list of operands, against the limit of the text.
    pub(super) fn count_statement(&mut self) -> Parsed<()> {
        self.statements += 1;
        if self.statements <= self.statements_max {
            return Ok(());
        }
        let span = self.here();
        self.exhaust(span, "statements", self.statements_max);
        Err(Stop)
    }

    pub(super) fn at_end(&self) -> bool {
        self.window[0].is_none()
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.window[0]
    }

    pub(super) fn peek_kind(&self) -> Option<TokenKind> {
        self.window[0].map(|token| token.kind)
    }

    /// The next token's text; empty at the end.
    pub(super) fn peek_text(&self) -> &'a str {
        self.window[0].map_or("", |token| token.text)
    }

    /// The text of the token after the next.
    pub(super) fn second_text(&self) -> &'a str {
        self.window[1].map_or("", |token| token.text)
    }

    /// Whether the token after the next ends an operand.
    pub(super) fn second_ends(&self) -> bool {
        matches!(self.second_text(), "," | ";" | "}" | "]" | ")" | "")
    }

    /// The span of the next token, which is empty at the end of the text.
    pub(super) fn here(&self) -> Span {
        self.window[0].map_or_else(|| self.tokens.span_here(), |token| token.span())
    }

    /// Offset behind the last token that was taken.
    pub(super) fn last_end(&self) -> u32 {
        self.last_end
    }

    /// The text of a span.
    pub(super) fn text_of(&self, span: Span) -> &'a str {
        span.of(self.text)
    }

    /// From the first byte of `first` to the last token that was taken.
    pub(super) fn since(&self, first: Span) -> Span {
        Span { end: self.last_end.max(first.start), ..first }
    }

    pub(super) fn bump(&mut self) -> Option<Token<'a>> {
        let token = self.window[0].take()?;
        self.last_end = token.end();
        self.window[0] = self.window[1].take();
        self.window[1] = self.fetch();
        Some(token)
    }

    /// Takes the next token where it is a dotted word that touches the one before it.
    pub(super) fn take_touching_dot(&mut self, before: Token<'a>) -> Option<Token<'a>> {
        let next = self.window[0]?;
        (next.kind == TokenKind::DotWord && next.start == before.start + before.text.len())
            .then(|| self.bump())
            .flatten()
    }

    pub(super) fn fail<T>(&mut self, span: Span, reason: Reason) -> Parsed<T> {
        if !self.exhausted {
            self.report.add(span, reason);
        }
        Err(Stop)
    }

    /// Reports the next token as not what was expected.
    pub(super) fn unexpected<T>(&mut self, expected: &'static str) -> Parsed<T> {
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some(token) => format!("`{}`", shorten(token.text)),
        };
        self.fail(self.here(), Reason::Expected { expected, found })
    }

    pub(super) fn take_punctuation(&mut self, text: &str) -> bool {
        let there = self.is_punctuation(text);
        if there {
            self.bump();
        }
        there
    }

    /// Whether the next token is this punctuation.
    pub(super) fn is_punctuation(&self, text: &str) -> bool {
        self.peek_kind() == Some(TokenKind::Punctuation) && self.peek_text() == text
    }

    pub(super) fn expect_punctuation(&mut self, text: &str, expected: &'static str) -> Parsed<()> {
        if self.take_punctuation(text) { Ok(()) } else { self.unexpected(expected) }
    }

    pub(super) fn expect_dot(&mut self, text: &str, expected: &'static str) -> Parsed<()> {
        if self.peek_text() != text {
            return self.unexpected(expected);
        }
        self.bump();
        Ok(())
    }

    pub(super) fn expect_kind(&mut self, kind: TokenKind, expected: &'static str) -> Parsed<(&'a str, Span)> {
        match self.peek() {
            Some(token) if token.kind == kind => {
                self.bump();
                Ok((token.text, token.span()))
            }
            _ => self.unexpected(expected),
        }
    }

    /// A declared or used name.
    pub(super) fn name(&mut self, expected: &'static str) -> Parsed<String> {
        let (text, span) = self.expect_kind(TokenKind::Word, expected)?;
        self.check_name(text, span)?;
        Ok(text.to_owned())
    }

    pub(super) fn check_name(&mut self, text: &str, span: Span) -> Parsed<()> {
        if text.len() > NAME_BYTES_MAX {
            let reason = Reason::Limit { what: "bytes of a name", most: NAME_BYTES_MAX as u64 };
            return self.fail(span, reason);
        }
        Ok(())
    }

    /// An integer without a sign.
    pub(super) fn unsigned(&mut self, expected: &'static str) -> Parsed<u64> {
        let (text, span) = self.expect_kind(TokenKind::Number, expected)?;
        match super::number::integer(text) {
            Some(value) => Ok(value),
            None => self.fail(span, Reason::Number(shorten(text).to_owned())),
        }
    }

    /// An integer without a sign that fits in 32 bits.
    pub(super) fn unsigned32(&mut self, expected: &'static str) -> Parsed<u32> {
        let span = self.here();
        let text = self.peek_text();
        let value = self.unsigned(expected)?;
        match u32::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => self.fail(span, Reason::Number(shorten(text).to_owned())),
        }
    }

    /// The punctuation that the next two tokens make where they touch, else the next one.
    pub(super) fn operator(&self) -> (&'a str, &'a str) {
        let Some(first) = self.peek().filter(|token| token.kind == TokenKind::Punctuation) else {
            return ("", "");
        };
        let touching = self.window[1]
            .filter(|second| second.kind == TokenKind::Punctuation && second.start == first.start + 1);
        (first.text, touching.map_or("", |second| second.text))
    }

    /// After an error in a body: to the end of the statement.
    pub(super) fn skip_statement(&mut self) {
        let mut open = std::mem::take(&mut self.vectors);
        loop {
            match self.peek_text() {
                "" => return,
                ";" => {
                    self.bump();
                    return;
                }
                "{" => open += 1,
                "}" if open == 0 => return,
                "}" => open -= 1,
                _ => {}
            }
            self.bump();
        }
    }

    /// After an error at module scope: to the end of the item.
    pub(super) fn skip_item(&mut self) {
        let mut open = std::mem::take(&mut self.vectors);
        loop {
            let text = self.peek_text();
            match text {
                "" => return,
                "{" => open += 1,
                "}" => open = open.saturating_sub(1),
                ".entry" | ".func" | ".visible" | ".extern" | ".weak" | ".common" if open == 0 => return,
                _ => {}
            }
            self.bump();
            if open == 0 && matches!(text, ";" | "}") {
                return;
            }
        }
    }
}
