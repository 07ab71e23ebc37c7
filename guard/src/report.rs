//! What the guard has to say against a module: every finding with its place and a typed reason.

use crate::ast::Span;
use crate::limits::FINDINGS_MAX;

/// Why a module is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A byte that the guard does not read as PTX, wherever it stands (in a comment too).
    #[error("byte {0:#04x} is not allowed in PTX text")]
    Byte(u8),
    /// A comment or string without an end.
    #[error("{0} without an end")]
    Unterminated(&'static str),
    /// The text does not have PTX's shape here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What the grammar asks for.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A number that no PTX operand can hold.
    #[error("`{0}` is not a number that PTX has")]
    Number(String),
    /// More of something than the guard reads.
    #[error("more {what} than the limit of {most}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: u64,
    },
    /// A name that is declared twice in one scope.
    #[error("`{0}` is declared twice")]
    Duplicate(String),
    /// A name that is not declared.
    #[error("`{0}` is not declared")]
    Undeclared(String),
    /// A name that belongs to the guard.
    #[error("the name `{0}` is reserved")]
    Reserved(String),
    /// PTX that has a meaning but no rule yet; the isolated domain runs it.
    #[error("a guarded session does not support {what}: run it in an isolated session")]
    NotImplemented {
        /// The construct.
        what: String,
    },
    /// PTX that a guarded session never runs, since it would break its neighbours.
    #[error("a guarded session does not allow {what} ({why}): run it in an isolated session")]
    NotAllowed {
        /// The construct.
        what: String,
        /// What it would break.
        why: &'static str,
    },
    /// Operands that the opcode does not take, or an access outside its variable.
    #[error("{0}")]
    Malformed(String),
    /// The verifier found text that the guard did not write.
    #[error("not verified: {0}")]
    Unverified(String),
}

/// One reason at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where in the text; [`Span::WHOLE`] where it concerns the text as a whole.
    pub span: Span,
    /// Why.
    pub reason: Reason,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.span.place.line, self.span.place.column, self.reason)
    }
}

/// All findings against one module, in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The findings, at most [`FINDINGS_MAX`] of them.
    pub findings: Vec<Finding>,
    /// How many more there were.
    pub left_out: usize,
}

impl Report {
    /// Adds a finding, or counts it where the report is full.
    pub fn add(&mut self, span: Span, reason: Reason) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { span, reason });
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// Replaces the findings after the first `length` by one.
    pub(crate) fn replace_since(&mut self, length: usize, span: Span, reason: Reason) {
        self.findings.truncate(length);
        self.add(span, reason);
    }

    /// Whether there is nothing against the module.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// `value` where nothing was found, else the report.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Report> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, finding) in self.findings.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{finding}")?;
        }
        if self.left_out > 0 {
            write!(f, "\nand {} more", self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

/// The start of a text that a client may have made long.
pub(crate) fn shorten(text: &str) -> &str {
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= 60).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}
