//! What a profiler found, and the bytes in which it goes from process to process.

use super::count::Counts;
use crate::wire::{In, Malformed, Out};

/// The first word of a report: its format.
const FORMAT: u64 = 0x0001_6670_6b68_6c62;

/// Bytes of a report at most.
pub const REPORT_BYTES_MAX: u64 = 512 << 20;

/// What a profiler found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Entries that were launched, each with its image.
    pub kernels: Vec<Kernel>,
    /// What streams did, in the order in which it ended.
    pub events: Vec<Event>,
    /// Events that were too many to be kept.
    pub events_left_out: u64,
}

/// One entry of one image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kernel {
    /// Its name in that text: in a confined one not the tenant's ([`bulkhead_verifier::entry_of`]).
    pub name: String,
    /// Which text it is in, see [`text_number`].
    pub text: u64,
    /// Launches.
    pub launches: u64,
    /// Launches that were not counted: the entry is too long, or there are too many.
    pub uncounted: u64,
    /// Blocks of all launches.
    pub blocks: u64,
    /// Threads of all launches.
    pub threads: u64,
    /// Nanoseconds that launches took.
    pub nanoseconds: u64,
    /// What was done, by instruction; those that never ran are left out.
    pub rows: Vec<Row>,
}

impl Kernel {
    /// Everything together.
    #[must_use]
    pub fn total(&self) -> Counts {
        self.rows.iter().fold(Counts::default(), |mut total, row| {
            total.add(&row.counts);
            total
        })
    }
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Row {
    /// Where it stands in the text.
    pub line: u32,
    /// Where in the line.
    pub column: u32,
    /// What it did.
    pub counts: Counts,
}

/// One piece of a stream's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The stream.
    pub stream: u64,
    /// What it was.
    pub what: What,
    /// When it began, in nanoseconds since the profiler was made.
    pub from_ns: u64,
    /// When it ended.
    pub until_ns: u64,
}

/// What a stream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A launch of a kernel.
    Launch {
        /// Which of [`Report::kernels`].
        kernel: u64,
        /// Blocks in x, y, z.
        grid: [u32; 3],
        /// Threads of a block in x, y, z.
        block: [u32; 3],
        /// Bytes of shared memory of a block.
        shared_bytes: u32,
    },
    /// So many bytes were copied to device memory.
    ToDevice(u64),
    /// So many bytes were copied from device memory.
    ToHost(u64),
    /// So many bytes were copied inside of device memory.
    OnDevice(u64),
    /// So many bytes were filled.
    Fill(u64),
    /// An event was recorded.
    Record,
    /// The stream told the host how far it is.
    Publish,
}

/// Tells texts apart: a number of this program's own.
#[must_use]
pub fn text_number(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hasher as _};
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

impl Report {
    /// The bytes of it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.word(FORMAT);
        out.list(&self.kernels, |out, kernel| {
            out.text(&kernel.name);
            for word in [
                kernel.text,
                kernel.launches,
                kernel.uncounted,
                kernel.blocks,
                kernel.threads,
                kernel.nanoseconds,
            ] {
                out.word(word);
            }
            out.list(&kernel.rows, |out, row| {
                out.word(row.line.into());
                out.word(row.column.into());
                let mut counts = row.counts;
                counts.each().into_iter().for_each(|count| out.word(*count));
            });
        });
        out.list(&self.events, |out, event| {
            out.word(event.stream);
            out.word(event.from_ns);
            out.word(event.until_ns);
            let (kind, words) = match event.what {
                What::Launch { kernel, grid: [a, b, c], block: [d, e, f], shared_bytes } => {
                    let small = [a, b, c, d, e, f, shared_bytes].map(u64::from);
                    (0, [&[kernel], &small[..]].concat())
                }
                What::ToDevice(bytes) => (1, vec![bytes]),
                What::ToHost(bytes) => (2, vec![bytes]),
                What::OnDevice(bytes) => (3, vec![bytes]),
                What::Fill(bytes) => (4, vec![bytes]),
                What::Record => (5, Vec::new()),
                What::Publish => (6, Vec::new()),
            };
            out.word(kind);
            words.into_iter().for_each(|word| out.word(word));
        });
        out.word(self.events_left_out);
        out.bytes()
    }

    /// The report that these bytes are.
    ///
    /// # Errors
    /// Where they are none, or more than one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut words = In::new(bytes);
        if words.word()? != FORMAT {
            return Err(Malformed);
        }
        let kernels = words.list(64, |words| {
            let name = words.text()?;
            let [text, launches, uncounted, blocks, threads, nanoseconds] =
                [words.word()?, words.word()?, words.word()?, words.word()?, words.word()?, words.word()?];
            let rows = words.list(30 * 8, |words| {
                let mut row = Row { line: words.half()?, column: words.half()?, counts: Counts::default() };
                for count in row.counts.each() {
                    *count = words.word()?;
                }
                Ok(row)
            })?;
            Ok(Kernel { name, text, launches, uncounted, blocks, threads, nanoseconds, rows })
        })?;
        let events = words.list(32, |words| {
            let (stream, from_ns, until_ns) = (words.word()?, words.word()?, words.word()?);
            let what = match words.word()? {
                0 => What::Launch {
                    kernel: words.word()?,
                    grid: [words.half()?, words.half()?, words.half()?],
                    block: [words.half()?, words.half()?, words.half()?],
                    shared_bytes: words.half()?,
                },
                1 => What::ToDevice(words.word()?),
                2 => What::ToHost(words.word()?),
                3 => What::OnDevice(words.word()?),
                4 => What::Fill(words.word()?),
                5 => What::Record,
                6 => What::Publish,
                _ => return Err(Malformed),
            };
            Ok(Event { stream, what, from_ns, until_ns })
        })?;
        let events_left_out = words.word()?;
        let known = |event: &Event| match event.what {
            What::Launch { kernel, .. } => kernel < kernels.len() as u64,
            What::ToDevice(_)
            | What::ToHost(_)
            | What::OnDevice(_)
            | What::Fill(_)
            | What::Record
            | What::Publish => true,
        };
        let whole = words.is_empty() && events.iter().all(known);
        if whole { Ok(Self { kernels, events, events_left_out }) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut counts = Counts::default();
        for (value, count) in (1..).zip(counts.each()) {
            *count = value;
        }
        let rows = vec![Row { line: 7, column: 5, counts }, Row { line: 9, column: 1, counts }];
        let kernel = Kernel {
            name: "add".into(),
            text: 1 << 63,
            launches: 2,
            uncounted: 1,
            blocks: 3,
            threads: 4,
            nanoseconds: 5,
            rows,
        };
        let whats = [
            What::Launch { kernel: 1, grid: [1, 2, 3], block: [4, 5, 6], shared_bytes: 7 },
            What::ToDevice(1),
            What::ToHost(2),
            What::OnDevice(3),
            What::Fill(4),
            What::Record,
            What::Publish,
        ];
        let events = whats.map(|what| Event { stream: 3, what, from_ns: 10, until_ns: 11 }).to_vec();
        Report { kernels: vec![Kernel::default(), kernel], events, events_left_out: 12 }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = report();
        assert_eq!(Report::from_bytes(&report.to_bytes()), Ok(report));
    }

    #[test]
    fn bytes_that_are_cut_or_lie_about_a_length_are_no_report() {
        let bytes = report().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Report::from_bytes(&bytes[..len]), Err(Malformed), "{len}");
        }
        assert_eq!(Report::from_bytes(&[&bytes[..], &[0]].concat()), Err(Malformed));
        let mut many = bytes.clone();
        many[8..16].fill(0xff);
        assert_eq!(Report::from_bytes(&many), Err(Malformed));
    }

    #[test]
    fn a_launch_of_a_kernel_that_is_not_told_is_no_report() {
        let mut wrong = report();
        wrong.kernels.pop();
        assert_eq!(Report::from_bytes(&wrong.to_bytes()), Err(Malformed));
    }
}
