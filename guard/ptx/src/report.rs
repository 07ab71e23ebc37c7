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
    #[error("a guarded session does not support {what}")]
    NotImplemented {
        /// The construct.
        what: String,
    },
    /// PTX that a guarded session never runs, since it would break its neighbours.
    #[error("a guarded session does not allow {what} ({why})")]
    NotAllowed {
        /// The construct.
        what: String,
        /// What it would break.
        why: &'static str,
    },
    /// A function that the module does not have, and no gate that may be called.
    #[error(
        "a call of `{0}`, which has no body here and is no gate that the session was granted: link the function, or open the module that has it (`bulkhead run --module NAME`, or `--gates`)"
    )]
    NotGranted(String),
    /// Operands that the opcode does not take, or an access outside its variable.
    #[error("{0}")]
    Malformed(String),
    /// The verifier found text that the guard did not write.
    #[error("not verified: {0}")]
    Unverified(String),
}

/// Kernels that launch kernels.
const LAUNCHES: &str = "launches by kernels (dynamic parallelism): launch from the host instead";

impl Reason {
    /// That a kernel launches kernels.
    #[must_use]
    pub fn launches() -> Self {
        Self::NotImplemented { what: LAUNCHES.to_owned() }
    }

    /// Whether it is that.
    #[must_use]
    pub fn is_of_launches(&self) -> bool {
        matches!(self, Self::NotImplemented { what } if what == LAUNCHES)
    }
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

    /// Adds another's findings.
    pub fn append(&mut self, other: Report) {
        for Finding { span, reason } in other.findings {
            self.add(span, reason);
        }
        self.left_out = self.left_out.saturating_add(other.left_out);
    }

    /// Replaces the findings after the first `length` by one.
    pub fn replace_since(&mut self, length: usize, span: Span, reason: Reason) {
        self.findings.truncate(length);
        self.add(span, reason);
    }

    /// Keeps one of several findings that say the same of one place.
    pub fn forget_repeated(&mut self) {
        let mut kept: Vec<Finding> = Vec::new();
        for finding in self.findings.drain(..) {
            // All spans are equal to one another.
            let same = |other: &Finding| other.span.start == finding.span.start && *other == finding;
            if !kept.iter().any(same) {
                kept.push(finding);
            }
        }
        self.findings = kept;
    }

    /// Whether there is nothing against the module.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// `value` where nothing was found, else the report.
    pub fn or<T>(self, value: T) -> Result<T, Report> {
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

/// Columns of the source that an excerpt shows.
const EXCERPT_COLUMNS: usize = 100;

impl Report {
    /// The findings in the order of the text, each with an excerpt of its line and carets below what it is
    /// about. `name` is what the text is called.
    #[must_use]
    pub fn render(&self, name: &str, text: &str) -> String {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| (finding.span.place, finding.span.start));
        let mut rendered = String::new();
        for finding in findings {
            rendered.push_str(&format!("{name}:{finding}\n"));
            if let Some(excerpt) = excerpt(finding.span, text) {
                rendered.push_str(&excerpt);
            }
        }
        if self.left_out > 0 {
            rendered.push_str(&format!("{name}: and {} more\n", self.left_out));
        }
        rendered
    }
}

/// The line of a span with carets below; none where it has no line. Long lines are cut on both sides, and what
/// does not print shows as a dot.
fn excerpt(span: Span, text: &str) -> Option<String> {
    let place = span.place;
    let column = usize::try_from(place.column).ok()?.checked_sub(1)?;
    let start = usize::try_from(span.start).ok()?;
    let line_start = start.checked_sub(column)?;
    // No line is read further than it is shown: there may be as many findings as its bytes divided by a few.
    let rest = text.as_bytes().get(start..)?;
    let rest = rest.get(..EXCERPT_COLUMNS).unwrap_or(rest);
    let ahead = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let line = text.as_bytes().get(line_start..start + ahead)?;
    let width = usize::try_from(span.end)
        .ok()?
        .saturating_sub(start)
        .clamp(1, line.len().saturating_sub(column).max(1));
    let first = if line.len() <= EXCERPT_COLUMNS { 0 } else { column.saturating_sub(EXCERPT_COLUMNS / 2) };
    let shown = line.iter().skip(first).take(EXCERPT_COLUMNS);
    let shown: String = shown
        .map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { printed(*byte) })
        .collect();
    let carets = "^".repeat(width.min((first + EXCERPT_COLUMNS).saturating_sub(column)).max(1));
    let indent = column - first;
    let number = place.line;
    Some(format!("{number:6} | {}\n       | {:indent$}{carets}\n", shown.trim_end(), ""))
}

fn printed(byte: u8) -> char {
    if byte == b'\t' || byte == b'\r' { ' ' } else { '.' }
}

/// The start of a text that a client may have made long.
pub fn shorten(text: &str) -> &str {
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= 60).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_shown_with_its_line_and_a_caret_under_what_it_is_about() {
        let text = ".version 9.0\n.target sm_90\n.address_size 64\n.entry k() {\n\tadd.u32 %r1, ?;\n}\n";
        let report = crate::parse(text).unwrap_err();
        assert_eq!(
            report.render("k.ptx", text),
            "k.ptx:5:15: expected an operand, found `?`\n     5 |  add.u32 %r1, ?;\n       |               ^\n"
        );
    }

    #[test]
    fn the_excerpt_of_a_line_without_end_is_short() {
        let text = format!(
            ".version 9.0 .target sm_90 .address_size 64 .entry k() {{ {} ? {}",
            " ;".repeat(50_000),
            "x ".repeat(9000)
        );
        let report = crate::parse(&text).unwrap_err();
        let rendered = report.render("k.ptx", &text);
        assert!(rendered.lines().all(|line| line.len() < 200), "{rendered}");
        assert!(rendered.contains("; ? x x"), "{rendered}");
    }

    #[test]
    fn findings_are_rendered_in_the_order_of_the_text() {
        let text = "a\nb\n";
        let at = |line, start| Span { place: crate::ast::Place { line, column: 1 }, start, end: start + 1 };
        let mut report = Report::default();
        report.add(at(2, 2), Reason::Undeclared("b".to_owned()));
        report.add(at(1, 0), Reason::Undeclared("a".to_owned()));
        report.add(Span::WHOLE, Reason::Undeclared("c".to_owned()));
        let lines = report.render("x", text);
        let lines: Vec<&str> = lines.lines().filter(|line| line.starts_with("x:")).collect();
        assert_eq!(
            lines,
            ["x:0:0: `c` is not declared", "x:1:1: `a` is not declared", "x:2:1: `b` is not declared"]
        );
    }
}
