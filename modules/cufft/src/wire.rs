//! Messages between a caller and its worker: 24 words of 64 bits each way, little-endian; what is not said is 0.
//!
//! A caller asks one thing at a time, and is answered. What comes is a caller's word: [`Request::read`] makes of it what can
//! be checked further, or nothing.

use crate::{
    BUFFERS_MAX, PLANS_MAX, Refused, Status,
    shape::{Kind, Layout, RANK_MAX, Shape, Side, Way},
};

/// Words of a message.
const WORDS: usize = 24;
/// Bytes of a message.
pub const BYTES: usize = 8 * WORDS;
/// Where an answer's text begins.
const TEXT_AT: usize = 16;

/// A message as it travels.
pub type Frame = [u8; BYTES];

/// Names a plan of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanSlot(pub usize);

/// Names a buffer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferSlot(pub usize);

/// A place in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The buffer.
    pub buffer: BufferSlot,
    /// Bytes from its beginning.
    pub offset: u64,
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Prepare a plan in a slot, in the place of what was there.
    Make(PlanSlot, Shape),
    /// Forget a plan.
    Destroy(PlanSlot),
    /// Open a buffer by its IPC handle, in the place of what was there.
    Open(BufferSlot, [u8; 64]),
    /// Close a buffer.
    Close(BufferSlot),
    /// Execute a plan, and answer when it has passed.
    Execute {
        /// Which.
        plan: PlanSlot,
        /// From where.
        input: Place,
        /// To where.
        output: Place,
        /// Which way.
        way: Way,
    },
}

const MAKE: u64 = 1;
const DESTROY: u64 = 2;
const OPEN: u64 = 3;
const CLOSE: u64 = 4;
const EXECUTE: u64 = 5;
const ADVANCED: u64 = 1;

/// Reads words one after the other.
struct Words<'a>(std::slice::ChunksExact<'a, u8>);

impl Words<'_> {
    fn next(&mut self) -> u64 {
        let word = self.0.next().and_then(|bytes| bytes.first_chunk());
        word.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn some<const COUNT: usize>(&mut self) -> [u64; COUNT] {
        std::array::from_fn(|_| self.next())
    }

    fn slot(&mut self, what: &str, most: usize) -> Result<usize, Refused> {
        let slot = self.next();
        usize::try_from(slot).ok().filter(|slot| *slot < most).ok_or_else(|| {
            Refused::new(Status::InvalidPlan, format!("there are {most} {what} of a caller, and no {slot}"))
        })
    }

    fn place(&mut self) -> Result<Place, Refused> {
        Ok(Place { buffer: BufferSlot(self.slot("buffers", BUFFERS_MAX)?), offset: self.next() })
    }

    fn side(&mut self) -> Side {
        let embed = self.some();
        let [stride, distance] = self.some();
        Side { embed, stride, distance }
    }

    fn shape(&mut self) -> Result<Shape, Refused> {
        let [kind, rank, batch] = self.some();
        let sides: [u64; RANK_MAX] = self.some();
        let layout = self.next();
        let (input, output) = (self.side(), self.side());
        let kind = Kind::of(kind).ok_or_else(|| {
            Refused::new(Status::InvalidType, format!("{kind:#x} is no type of transforms"))
        })?;
        let layout = match layout {
            0 => Layout::Basic,
            ADVANCED => Layout::Advanced { input, output },
            _ => return Err(malformed()),
        };
        let sides = usize::try_from(rank).ok().and_then(|rank| sides.get(..rank));
        let sides = sides.ok_or_else(|| {
            Refused::new(
                Status::InvalidValue,
                format!("a transform has 1 to {RANK_MAX} dimensions, and not {rank}"),
            )
        })?;
        Shape::new(kind, sides, batch, layout)
    }
}

fn malformed() -> Refused {
    Refused::new(
        Status::InternalError,
        "no message of this version: the library and the service are of one build",
    )
}

impl Request {
    /// What a message asks for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(frame: &Frame) -> Result<Self, Refused> {
        let mut words = Words(frame.chunks_exact(8));
        let request = match words.next() {
            MAKE => Self::Make(PlanSlot(words.slot("plans", PLANS_MAX)?), words.shape()?),
            DESTROY => Self::Destroy(PlanSlot(words.slot("plans", PLANS_MAX)?)),
            OPEN => {
                let buffer = BufferSlot(words.slot("buffers", BUFFERS_MAX)?);
                let handle = words.some::<8>().map(u64::to_le_bytes).concat();
                Self::Open(buffer, handle.first_chunk().copied().ok_or_else(malformed)?)
            }
            CLOSE => Self::Close(BufferSlot(words.slot("buffers", BUFFERS_MAX)?)),
            EXECUTE => Self::Execute {
                plan: PlanSlot(words.slot("plans", PLANS_MAX)?),
                input: words.place()?,
                output: words.place()?,
                way: Way::of(words.next().cast_signed()).ok_or_else(|| {
                    Refused::new(Status::InvalidValue, "a transform goes forward (-1) or back (1)")
                })?,
            },
            _ => return Err(malformed()),
        };
        let rest = std::iter::from_fn(|| words.0.next()).flatten().any(|byte| *byte != 0);
        if rest { Err(malformed()) } else { Ok(request) }
    }

    /// The message that asks for it.
    #[must_use]
    pub fn frame(&self) -> Frame {
        let slot = |slot: usize| slot as u64;
        let words = match self {
            Self::Make(plan, shape) => {
                let mut sides = [0; RANK_MAX];
                for (to, from) in sides.iter_mut().zip(shape.sides()) {
                    *to = *from;
                }
                let rank = shape.sides().len();
                let mut words = vec![MAKE, slot(plan.0), shape.kind().code(), slot(rank), shape.batch()];
                words.extend(sides);
                if let Layout::Advanced { input, output } = shape.layout() {
                    words.push(ADVANCED);
                    for side in [input, output] {
                        // As many as there are dimensions, from the first on.
                        let mut embed = [0; RANK_MAX];
                        for (to, from) in embed.iter_mut().zip(side.embed.iter().skip(RANK_MAX - rank)) {
                            *to = *from;
                        }
                        words.extend(embed);
                        words.extend([side.stride, side.distance]);
                    }
                }
                words
            }
            Self::Destroy(plan) => vec![DESTROY, slot(plan.0)],
            Self::Open(buffer, handle) => {
                let mut words = vec![OPEN, slot(buffer.0)];
                words.extend(
                    handle
                        .chunks_exact(8)
                        .filter_map(|word| word.first_chunk())
                        .map(|word| u64::from_le_bytes(*word)),
                );
                words
            }
            Self::Close(buffer) => vec![CLOSE, slot(buffer.0)],
            Self::Execute { plan, input, output, way } => vec![
                EXECUTE,
                slot(plan.0),
                slot(input.buffer.0),
                input.offset,
                slot(output.buffer.0),
                output.offset,
                i64::from(way.code()).cast_unsigned(),
            ],
        };
        let mut frame = [0; BYTES];
        for (to, from) in frame.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        frame
    }
}

/// What a worker answers: a status, a number, and what a person is told.
pub type Answer = Result<u64, Refused>;

/// The message that answers.
#[must_use]
pub fn answer_frame(answer: &Answer) -> Frame {
    let mut frame = [0; BYTES];
    let (status, number, text) = match answer {
        Ok(number) => (Status::Success, *number, ""),
        Err(refused) => (refused.status, 0, refused.message.as_str()),
    };
    let code = u64::from(status.code()).to_le_bytes();
    let bytes = code.into_iter().chain(number.to_le_bytes()).chain(text.bytes());
    for (to, from) in frame.iter_mut().zip(bytes) {
        *to = from;
    }
    frame
}

/// What a message answers.
///
/// # Errors
/// The refusal that it says.
pub fn read_answer(frame: &Frame) -> Answer {
    let mut words = Words(frame.chunks_exact(8));
    let [code, number] = words.some();
    if code == 0 {
        return Ok(number);
    }
    let text = frame.get(TEXT_AT..).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text).replace(|letter: char| letter.is_control(), " ");
    Err(Refused::new(Status::of(code), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Request> {
        let side = |stride| Side { embed: [1, 6, 7], stride, distance: 1000 };
        let place = |buffer, offset| Place { buffer: BufferSlot(buffer), offset };
        let advanced = Layout::Advanced { input: side(2), output: side(3) };
        let flat = Side { embed: [1, 1, 1], stride: 4, distance: 9 };
        vec![
            Request::Make(PlanSlot(3), Shape::new(Kind::Z2d, &[4, 5, 6], 7, advanced).expect("a shape")),
            Request::Make(
                PlanSlot(0),
                Shape::new(Kind::C2c, &[4], 7, Layout::Advanced { input: flat, output: flat })
                    .expect("a shape"),
            ),
            Request::Make(PlanSlot(8191), Shape::new(Kind::R2c, &[1021], 1, Layout::Basic).expect("a shape")),
            Request::Destroy(PlanSlot(4)),
            Request::Open(BufferSlot(255), std::array::from_fn(|at| u8::try_from(at).expect("small"))),
            Request::Close(BufferSlot(0)),
            Request::Execute {
                plan: PlanSlot(1),
                input: place(2, 3),
                output: place(4, u64::MAX),
                way: Way::Inverse,
            },
        ]
    }

    #[test]
    fn a_message_says_what_was_put_into_it() {
        for request in some() {
            assert_eq!(Request::read(&request.frame()), Ok(request));
        }
        let refused = Refused::new(Status::InvalidSize, "a reason, and what to do");
        for answer in [Ok(7), Err(refused)] {
            assert_eq!(read_answer(&answer_frame(&answer)), answer);
        }
        let long = Err(Refused::new(Status::ExecFailed, "long ".repeat(100)));
        assert_eq!(
            read_answer(&answer_frame(&long)).map_err(|refused| refused.message.len()),
            Err(BYTES - 16)
        );
    }

    #[test]
    fn no_message_is_read_as_more_than_it_says() {
        // Each word is made nonsense in turn: whatever is read of it is checked, or the same as without.
        for request in some() {
            let frame = request.frame();
            for at in 0..WORDS {
                for word in [u64::MAX, 1 << 63, 1 << 40, 99_999, 0] {
                    let mut damaged = frame;
                    damaged[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
                    if let Ok(read) = Request::read(&damaged) {
                        let again = Request::read(&read.frame());
                        assert_eq!(again, Ok(read), "word {at} of {request:?}");
                    }
                }
            }
        }
        assert!(Request::read(&[0; BYTES]).is_err() && Request::read(&[0xFF; BYTES]).is_err());
    }
}
