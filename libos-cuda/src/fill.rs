//! `cuMemset*`.

use crate::abi::{MemsetNode, NullStream};
use crate::copy::{Order, done, ordered, submit};
use crate::device::{DeviceRange, Pattern};
use crate::driver::Driver;
use crate::graph::Work;
use crate::status::{Answer, Status};

/// `count` elements in each of `rows` rows, `pitch` bytes apart.
#[derive(Debug, Clone, Copy)]
struct Area {
    to: u64,
    pitch: usize,
    count: usize,
    rows: usize,
}

impl Area {
    fn line(to: u64, count: usize) -> Area {
        Area { to, pitch: 0, count, rows: 1 }
    }
}

fn size_of(pattern: Pattern) -> usize {
    match pattern {
        Pattern::Bits8(_) => 1,
        Pattern::Bits16(_) => 2,
        Pattern::Bits32(_) => 4,
    }
}

fn fill(driver: &Driver, order: Order, area: Area, pattern: Pattern) -> Answer {
    let element = size_of(pattern);
    let width = area.count.checked_mul(element).ok_or(Status::INVALID_VALUE)?;
    if width == 0 || area.rows == 0 {
        return Ok(());
    }
    if !area.to.is_multiple_of(element as u64) {
        return Err(Status::INVALID_VALUE);
    }
    let (width, rows) = if area.rows > 1 && area.pitch == width {
        (width.checked_mul(area.rows).ok_or(Status::INVALID_VALUE)?, 1)
    } else {
        (width, area.rows)
    };
    if rows > 1 && (area.pitch < width || !area.pitch.is_multiple_of(element)) {
        return Err(Status::INVALID_VALUE);
    }
    for row in 0..rows {
        let offset = area.pitch.checked_mul(row).ok_or(Status::INVALID_VALUE)?;
        let at = area.to.checked_add(offset as u64).ok_or(Status::INVALID_VALUE)?;
        let (mut at, mut left) = (at, width as u64);
        while left > 0 {
            let piece = driver.memory.piece(at, left)?;
            let range = driver.memory.reached(at, piece)?;
            submit(driver, order, |stream| driver.session.fill(stream, range, pattern))?;
            (at, left) = (at.saturating_add(piece), left - piece);
        }
    }
    Ok(())
}

/// In a stream's order: done, or written down.
fn in_order(null: NullStream, stream: u64, area: Area, pattern: Pattern) -> Answer {
    let (driver, order) = ordered(null, stream)?;
    let Some(capturing) = driver.streams.captures.of(order.target)? else {
        return fill(driver, order, area, pattern);
    };
    let width = area.count.checked_mul(size_of(pattern)).ok_or(Status::INVALID_VALUE)?;
    if width == 0 || area.rows == 0 {
        return Ok(());
    }
    // What can be known of it already is an error here, not at each launch.
    let piece = driver.memory.piece(area.to, width as u64)?;
    driver.memory.reached(area.to, piece)?;
    capturing.add(Work::Fill(node(area, pattern)))
}

fn node(area: Area, pattern: Pattern) -> MemsetNode {
    let (element_bytes, value) = match pattern {
        Pattern::Bits8(value) => (1, value.into()),
        Pattern::Bits16(value) => (2, value.into()),
        Pattern::Bits32(value) => (4, value),
    };
    let Area { to, pitch, count, rows } = area;
    MemsetNode { to, pitch, value, element_bytes, width: count, height: rows }
}

/// What is written, and where, of a graph's node.
fn parts(node: &MemsetNode) -> Result<(Area, Pattern), Status> {
    let [first, second, ..] = node.value.to_le_bytes();
    let pattern = match node.element_bytes {
        1 => Pattern::Bits8(first),
        2 => Pattern::Bits16(u16::from_le_bytes([first, second])),
        4 => Pattern::Bits32(node.value),
        _ => return Err(Status::INVALID_VALUE),
    };
    Ok((Area { to: node.to, pitch: node.pitch, count: node.width, rows: node.height }, pattern))
}

/// That a graph's node is one that can be done.
pub(crate) fn check(node: &MemsetNode) -> Answer {
    if node.width == 0 || node.height == 0 {
        return Err(Status::INVALID_VALUE);
    }
    parts(node).map(drop)
}

/// Does what a graph's node says.
pub(crate) fn run(driver: &Driver, order: Order, node: &MemsetNode) -> Answer {
    let (area, pattern) = parts(node)?;
    fill(driver, order, area, pattern)
}

/// What a graph's node fills, where that is one range of one allocation.
pub(crate) fn in_one(driver: &Driver, node: &MemsetNode) -> Option<(DeviceRange, Pattern)> {
    let (area, pattern) = parts(node).ok()?;
    let width = area.count.checked_mul(size_of(pattern))?;
    let rows_touch = area.rows == 1 || area.pitch == width;
    let bytes = width.checked_mul(area.rows).filter(|bytes| *bytes > 0 && rows_touch)? as u64;
    let is_aligned = area.to.is_multiple_of(size_of(pattern) as u64);
    let is_one = is_aligned && driver.memory.piece(area.to, bytes).ok()? == bytes;
    driver.memory.reached(area.to, bytes).ok().filter(|_| is_one).map(|range| (range, pattern))
}

macro_rules! fills {
    ($($value:ident $pattern:ident $line:ident $line_ordered:ident $rows:ident $rows_ordered:ident;)*) => {$(
        pub(crate) fn $line(null: NullStream, to: u64, value: $value, count: usize) -> Answer {
            let (driver, order) = done(null)?;
            fill(driver, order, Area::line(to, count), Pattern::$pattern(value))
        }

        pub(crate) fn $line_ordered(
            null: NullStream,
            to: u64,
            value: $value,
            count: usize,
            stream: u64,
        ) -> Answer {
            in_order(null, stream, Area::line(to, count), Pattern::$pattern(value))
        }

        pub(crate) fn $rows(
            null: NullStream,
            to: u64,
            pitch: usize,
            value: $value,
            count: usize,
            rows: usize,
        ) -> Answer {
            let (driver, order) = done(null)?;
            fill(driver, order, Area { to, pitch, count, rows }, Pattern::$pattern(value))
        }

        pub(crate) fn $rows_ordered(
            null: NullStream,
            to: u64,
            pitch: usize,
            value: $value,
            count: usize,
            rows: usize,
            stream: u64,
        ) -> Answer {
            in_order(null, stream, Area { to, pitch, count, rows }, Pattern::$pattern(value))
        }
    )*};
}

fills! {
    u8 Bits8 bytes bytes_ordered rows_of_bytes rows_of_bytes_ordered;
    u16 Bits16 halves halves_ordered rows_of_halves rows_of_halves_ordered;
    u32 Bits32 words words_ordered rows_of_words rows_of_words_ordered;
}

/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`: what the stream wrote before need not be seen before the value. It is, all the same.
const NO_BARRIER: u32 = 1;

/// `cuStreamWriteValue32`: one word, in the stream's order.
pub(crate) fn write_value(null: NullStream, stream: u64, to: u64, value: u32, flags: u32) -> Answer {
    if flags & !NO_BARRIER != 0 || !to.is_multiple_of(4) {
        return Err(Status::INVALID_VALUE);
    }
    words_ordered(null, to, value, 1, stream)
}
