//! What kernels print: read from the ring in their image's block, and printed as C prints it.
//!
//! A kernel's `printf` puts its format's address and its arguments into the ring (`guard/src/confine/printf.ptx`).
//! All of it is the program's own memory: what is wrong in it garbles the program's own output.

pub(crate) mod native;

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::abi::Print;
use crate::check;
use crate::device::{DeviceRange, Session, Stream};
use crate::driver::Driver;
use crate::image::Loaded;
use crate::report;

/// The variable that the ring is.
const RING: &str = "__bh_printf";
/// Before the first entry.
const HEADER_BYTES: usize = 16;
/// Before an entry's arguments: its length, how many words they have, the format's address. Behind them come their strings.
const ENTRY_BYTES: usize = 16;
/// Longest string that is printed, format or argument.
const STRING_BYTES_MAX: u64 = 4096;
/// Widest field, and most digits.
const FIELD_MAX: u32 = 1024;

static PRINTING: AtomicBool = AtomicBool::new(false);
/// The images whose kernels print. Held while they are read and printed.
static IMAGES: Mutex<Vec<Weak<Loaded>>> = Mutex::new(Vec::new());

/// Notes an image whose kernels may print. `content` is the image as the program gave it.
pub(crate) fn note(loaded: &Arc<Loaded>, content: &[u8]) {
    if loaded.is_by_name() {
        if native::may_print(content, loaded.architecture()) {
            native::PRINTS.store(true, Ordering::Release);
            PRINTING.store(true, Ordering::Release);
        }
        return;
    }
    if loaded.range(RING).is_ok() {
        IMAGES.lock().push(Arc::downgrade(loaded));
        PRINTING.store(true, Ordering::Release);
    }
}

/// Prints what kernels have printed, if none runs that may still do so.
pub(crate) fn flush(driver: &Driver) {
    check::tell(driver);
    if PRINTING.load(Ordering::Acquire) && driver.streams.are_done(&driver.session) {
        native::flush(driver);
        let mut images = IMAGES.lock();
        images.retain(|image| image.strong_count() > 0);
        for loaded in images.iter().filter_map(Weak::upgrade) {
            if let Ok(ring) = loaded.range(RING) {
                drain(driver, ring);
            }
        }
    }
}

fn part(range: DeviceRange, bytes: usize) -> DeviceRange {
    DeviceRange { bytes: range.bytes.min(bytes as u64), ..range }
}

fn read(session: &Session, range: DeviceRange) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.bytes).ok()?];
    session.read(session.aside(Stream::DEFAULT), &mut bytes, range).ok()?;
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Prints the entries of a ring, and empties it.
fn drain(driver: &Driver, ring: DeviceRange) {
    let session = &driver.session;
    let used =
        read(session, part(ring, HEADER_BYTES)).and_then(|header| word(&header, 0)).unwrap_or_default();
    if used == 0 {
        return;
    }
    let used = (used as usize).saturating_add(HEADER_BYTES);
    if used as u64 > ring.bytes {
        report::once(
            "some of what kernels printed is lost: 1 MiB is kept between two moments at which the host waits, whatever \
             cudaLimitPrintfFifoSize says",
        );
    }
    let Some(bytes) = read(session, part(ring, used)) else { return };
    // Zero again, lengths too: what does not fit is counted, and its place not written.
    let zeros = vec![0; bytes.len()];
    if session.write(session.aside(Stream::DEFAULT), part(ring, used), &zeros).is_err() {
        return;
    }
    let mut at = HEADER_BYTES;
    while let Some(length) = word(&bytes, at).map(|length| length as usize)
        && length >= ENTRY_BYTES
        && let Some(entry) = bytes.get(at..at.saturating_add(length))
    {
        if let (Some(words), Some(format), Some(rest)) =
            (word(entry, 4), long(entry, 8), entry.get(ENTRY_BYTES..))
            && let Some((arguments, strings)) = rest.split_at_checked((words as usize).saturating_mul(4))
        {
            let mut strings = (!strings.is_empty()).then_some(strings);
            print(&string(driver, format), arguments, |address| match &mut strings {
                Some(strings) => next_string(strings, address),
                None => string(driver, address),
            });
        }
        at += length;
    }
    Print::flush();
}

/// The next of the strings that an entry has, and what C prints for a null pointer.
fn next_string(strings: &mut &[u8], address: u64) -> Vec<u8> {
    let end = strings.iter().position(|byte| *byte == 0).unwrap_or(strings.len());
    let (text, rest) = strings.split_at_checked(end).unwrap_or_default();
    *strings = rest.get(1..).unwrap_or_default();
    if address == 0 { b"(null)".to_vec() } else { text.to_vec() }
}

/// The string at an address of the device's memory; what is there up to its NUL.
fn string(driver: &Driver, address: u64) -> Vec<u8> {
    let Some((start, bytes, _)) = driver.memory.region(address) else { return b"(null)".to_vec() };
    let bytes = (bytes - (address - start)).min(STRING_BYTES_MAX);
    let Ok(range) = driver.memory.reached(address, bytes) else { return b"(null)".to_vec() };
    let mut text = read(&driver.session, range).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(end);
    text
}

/// Arguments as the compiler lays them out: each at a multiple of its size.
struct Arguments<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Arguments<'_> {
    fn four(&mut self) -> u32 {
        self.at = self.at.next_multiple_of(4);
        let value = word(self.bytes, self.at).unwrap_or_default();
        self.at += 4;
        value
    }

    fn eight(&mut self) -> u64 {
        self.at = self.at.next_multiple_of(8);
        let value = long(self.bytes, self.at).unwrap_or_default();
        self.at += 8;
        value
    }
}

/// Prints one entry.
fn print(format: &[u8], arguments: &[u8], mut string: impl FnMut(u64) -> Vec<u8>) {
    let mut arguments = Arguments { bytes: arguments, at: 0 };
    let mut rest = format;
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| *byte == b'%').unwrap_or(rest.len());
        let (text, from) = rest.split_at(plain);
        Print::text(&c_string(text));
        let Some(conversion) = from.get(1..) else { return };
        rest = match Conversion::parse(conversion, &mut arguments) {
            Some((conversion, rest)) => {
                conversion.print(&mut arguments, &mut string);
                rest
            }
            // As it stands.
            None => {
                Print::text(c"%");
                conversion
            }
        };
    }
}

fn c_string(text: &[u8]) -> CString {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    CString::new(text.get(..end).unwrap_or_default()).unwrap_or_default()
}

/// How an integer is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Byte,
    Short,
    Word,
    Long,
}

/// One `%...`.
#[derive(Debug, PartialEq, Eq)]
struct Conversion {
    /// Flags, width and precision.
    field: String,
    length: Length,
    letter: u8,
}

impl Conversion {
    /// Reads what follows a percent sign; what follows that is the second result.
    fn parse<'a>(text: &'a [u8], arguments: &mut Arguments<'_>) -> Option<(Self, &'a [u8])> {
        let mut field = String::new();
        let mut rest = text;
        while let Some((flag @ (b'-' | b'+' | b' ' | b'#' | b'0'), after)) = rest.split_first() {
            if field.len() < 5 {
                field.push(char::from(*flag));
            }
            rest = after;
        }
        rest = number(rest, &mut field, arguments)?;
        if let Some((b'.', after)) = rest.split_first() {
            let width = field.len();
            field.push('.');
            rest = number(after, &mut field, arguments)?;
            // As if there were none.
            if field.get(width..).is_some_and(|precision| precision.contains('-')) {
                field.truncate(width);
            }
        }
        let mut length = Length::Word;
        while let Some((letter @ (b'h' | b'l' | b'j' | b'z' | b't' | b'L'), after)) = rest.split_first() {
            length = match (letter, length) {
                (b'h', Length::Short) => Length::Byte,
                (b'h', Length::Byte | Length::Word | Length::Long) => Length::Short,
                _ => Length::Long,
            };
            rest = after;
        }
        let (letter, rest) = rest.split_first()?;
        let known = b"diouxXcsaAeEfFgGp%".contains(letter);
        known.then_some((Self { field, length, letter: *letter }, rest))
    }

    fn print(&self, arguments: &mut Arguments<'_>, string: &mut impl FnMut(u64) -> Vec<u8>) {
        let field = &self.field;
        match self.letter {
            b'%' => Print::text(c"%"),
            b'd' | b'i' => {
                let value = match self.length {
                    Length::Byte => i64::from(arguments.four().to_le_bytes()[0].cast_signed()),
                    Length::Short => i64::from(low(arguments.four()).cast_signed()),
                    Length::Word => i64::from(arguments.four().cast_signed()),
                    Length::Long => arguments.eight().cast_signed(),
                };
                Print::integer(field, self.letter, value);
            }
            b'o' | b'u' | b'x' | b'X' => {
                let value = match self.length {
                    Length::Byte => u64::from(arguments.four().to_le_bytes()[0]),
                    Length::Short => u64::from(low(arguments.four())),
                    Length::Word => u64::from(arguments.four()),
                    Length::Long => arguments.eight(),
                };
                Print::integer(field, self.letter, value.cast_signed());
            }
            b'c' => Print::integer(field, b'c', i64::from(arguments.four().cast_signed())),
            b'p' => Print::pointer(field, arguments.eight()),
            b's' => Print::string(field, &c_string(&string(arguments.eight()))),
            _ => Print::float(field, self.letter, f64::from_bits(arguments.eight())),
        }
    }
}

fn low(word: u32) -> u16 {
    let [a, b, ..] = word.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// Reads a width or precision, which may be an argument; none where it is too large to be meant.
fn number<'a>(text: &'a [u8], field: &mut String, arguments: &mut Arguments<'_>) -> Option<&'a [u8]> {
    if let Some((b'*', rest)) = text.split_first() {
        let value = arguments.four().cast_signed();
        field.push_str(&value.to_string());
        return (value.unsigned_abs() <= FIELD_MAX).then_some(rest);
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let digits = std::str::from_utf8(digits).ok()?;
    let value: u32 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    field.push_str(digits);
    (value <= FIELD_MAX).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(String, Length, u8, usize)> {
        let mut arguments = Arguments { bytes: &[7, 0, 0, 0], at: 0 };
        let parsed = Conversion::parse(text.as_bytes(), &mut arguments);
        parsed.map(|(conversion, rest)| (conversion.field, conversion.length, conversion.letter, rest.len()))
    }

    #[test]
    fn a_conversion_is_read_up_to_its_letter() {
        let expected = |field: &str, length, letter, left| Some((field.to_owned(), length, letter, left));
        assert_eq!(parse("d rest"), expected("", Length::Word, b'd', 5));
        assert_eq!(parse("-08.3lldx"), expected("-08.3", Length::Long, b'd', 1));
        assert_eq!(parse("*.2f"), expected("7.2", Length::Word, b'f', 0));
        assert_eq!(parse("hhu"), expected("", Length::Byte, b'u', 0));
        assert_eq!(parse("%"), expected("", Length::Word, b'%', 0));
    }

    #[test]
    fn what_would_write_to_memory_or_has_no_end_is_no_conversion() {
        for text in ["n", "ln", "5", "", "99999d", ".99999999999999f", "y"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn arguments_lie_at_multiples_of_their_size() {
        let bytes: Vec<u8> = (0..24).collect();
        let mut arguments = Arguments { bytes: &bytes, at: 0 };
        assert_eq!(arguments.four(), 0x0302_0100);
        assert_eq!(arguments.eight(), 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(arguments.four(), 0x1312_1110);
        assert_eq!(arguments.eight(), 0, "beyond the end");
    }
}
