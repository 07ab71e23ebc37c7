//! Video instructions.

use bulkhead_ptx::ast::{Instruction, Operand, Type};

use super::entry::Builder;
use super::refusal::Refusal;
use super::words::{Words, is_signed};
use crate::alu::video::{Action, Field, Part, Picks, Second, Video};
use crate::code::Op;

fn not_supported() -> Refusal {
    Refusal::new("this form is not supported")
}

/// Whether a type of a video instruction is signed.
fn sign(words: &mut Words<'_>) -> Result<bool, Refusal> {
    match words.ty()? {
        ty @ (Type::U32 | Type::S32) => Ok(is_signed(ty)),
        _ => Err(not_supported()),
    }
}

/// What an opcode does to its elements.
fn action(name: &str, words: &mut Words<'_>) -> Result<Action, Refusal> {
    Ok(match name {
        "add" => Action::Add,
        "sub" => Action::Subtract,
        "avrg" => Action::Average,
        "absdiff" => Action::Difference,
        "min" => Action::Minimum,
        "max" => Action::Maximum,
        "shl" | "shr" => {
            let wraps = words.take("wrap");
            if !wraps && !words.take("clamp") {
                return Err(Refusal::new("`.clamp` or `.wrap` is missing"));
            }
            if name == "shl" { Action::ShiftLeft { wraps } } else { Action::ShiftRight { wraps } }
        }
        "set" => {
            let relation = |less, equal, greater| Action::Compare { less, equal, greater };
            let found = words.find(|word| match word {
                "eq" => Some(relation(false, true, false)),
                "ne" => Some(relation(true, false, true)),
                "lt" => Some(relation(true, false, false)),
                "le" => Some(relation(true, true, false)),
                "gt" => Some(relation(false, false, true)),
                "ge" => Some(relation(false, true, true)),
                _ => None,
            });
            found.ok_or_else(not_supported)?
        }
        _ => return Err(not_supported()),
    })
}

/// The operand that a selector stands behind, and the selector.
fn selected(operand: &Operand) -> (Operand, Option<&str>) {
    match operand {
        Operand::Selected(name, selector) => (Operand::Register(name.clone()), Some(selector)),
        other => (other.clone(), None),
    }
}

/// The part of a word that a selector of one part names.
fn field(selector: &str) -> Result<Field, Refusal> {
    Ok(match selector {
        "b0" => Field { at: 0, bits: 8 },
        "b1" => Field { at: 8, bits: 8 },
        "b2" => Field { at: 16, bits: 8 },
        "b3" => Field { at: 24, bits: 8 },
        "h0" => Field { at: 0, bits: 16 },
        "h1" => Field { at: 16, bits: 16 },
        _ => return Err(Refusal::new(format!("there is no part `.{selector}` of a word"))),
    })
}

fn part(selector: Option<&str>, signed: bool) -> Result<Part, Refusal> {
    let field = selector.map_or(Ok(Field::WORD), field)?;
    Ok(Part { field, signed })
}

/// The digits behind the letter of a selector of elements, the last of them first.
fn digits(selector: &str, bits: u32) -> Result<Vec<u8>, Refusal> {
    let letter = if bits == 8 { 'b' } else { 'h' };
    let named = selector.strip_prefix(letter).filter(|digits| !digits.is_empty());
    let digits = named.and_then(|digits| {
        let digit = |byte: u8| byte.is_ascii_digit().then(|| byte - b'0');
        digits.bytes().rev().map(digit).collect::<Option<Vec<u8>>>()
    });
    digits.ok_or_else(|| Refusal::new(format!("there are no parts `.{selector}` of words")))
}

/// The elements of two words that a selector names; where there is none, those from `first` on.
fn picks(selector: Option<&str>, bits: u32, first: u8) -> Result<Picks, Refusal> {
    let count = if bits == 8 { 4 } else { 2 };
    let Some(selector) = selector else { return Ok([first, first + 1, first + 2, first + 3]) };
    let digits = digits(selector, bits)?;
    if digits.len() != count || digits.iter().any(|digit| usize::from(*digit) >= 2 * count) {
        return Err(Refusal::new(format!("there are no parts `.{selector}` of words")));
    }
    let mut picks = [0; 4];
    picks.iter_mut().zip(digits).for_each(|(pick, digit)| *pick = digit);
    Ok(picks)
}

/// The elements of a result that a selector names; all where there is none.
fn mask(selector: Option<&str>, bits: u32) -> Result<u8, Refusal> {
    let count = if bits == 8 { 4 } else { 2 };
    let Some(selector) = selector else { return Ok((1 << count) - 1) };
    let digits = digits(selector, bits)?;
    if digits.iter().any(|digit| *digit >= count) || !digits.is_sorted_by(|one, next| one < next) {
        return Err(Refusal::new(format!("there are no parts `.{selector}` of a word")));
    }
    Ok(digits.into_iter().fold(0, |mask, digit| mask | 1 << digit))
}

impl Builder<'_> {
    /// Arithmetic on bytes and halves of words.
    pub(crate) fn decode_video(&mut self, instruction: &Instruction) -> Result<bool, Refusal> {
        let Some(name) = instruction.opcode.strip_prefix('v') else { return Ok(false) };
        if instruction.opcode == "vote" {
            return Ok(false);
        }
        let mut words = Words::new(&instruction.modifiers);
        let words = &mut words;
        let operands = instruction.operands.as_slice();
        if name == "mad" {
            self.video_product(words, operands)?;
        } else if let Some(name) = name.strip_suffix('2') {
            self.video_parallel(name, 16, words, operands)?;
        } else if let Some(name) = name.strip_suffix('4') {
            self.video_parallel(name, 8, words, operands)?;
        } else if name == "avrg" {
            return Ok(false);
        } else {
            self.video_scalar(name, words, operands)?;
        }
        Ok(true)
    }

    fn video_scalar(
        &mut self,
        name: &str,
        words: &mut Words<'_>,
        operands: &[Operand],
    ) -> Result<(), Refusal> {
        let action = action(name, words)?;
        let saturates = name != "set" && words.take("sat");
        let second = words.find(|word| match word {
            "add" => Some(Second::Add),
            "min" => Some(Second::Minimum),
            "max" => Some(Second::Maximum),
            _ => None,
        });
        let signed = if name == "set" { false } else { sign(words)? };
        let (a_signed, b_signed) = (sign(words)?, sign(words)?);
        words.finish()?;
        if b_signed && matches!(name, "shl" | "shr") {
            return Err(not_supported());
        }
        let [d, a, b, c @ ..] = operands else { return Err(not_supported()) };
        let ((d, merged), (a, part_a), (b, part_b)) = (selected(d), selected(a), selected(b));
        let second = match (second, merged, c) {
            (None, None, []) => Second::None,
            (Some(second), None, [_]) => second,
            (None, Some(selector), [_]) => Second::Merge(field(selector)?),
            _ => return Err(not_supported()),
        };
        let (a_part, b_part) = (part(part_a, a_signed)?, part(part_b, b_signed)?);
        let what = Video::Scalar { action, a: a_part, b: b_part, signed, saturates, second };
        self.video(what, &d, [&a, &b, c.first().unwrap_or(&Operand::Integer(0))])
    }

    fn video_product(&mut self, words: &mut Words<'_>, operands: &[Operand]) -> Result<(), Refusal> {
        let (saturates, plus_one) = (words.take("sat"), words.take("po"));
        let shift = words.find(|word| match word {
            "shr7" => Some(7),
            "shr15" => Some(15),
            _ => None,
        });
        sign(words)?;
        let signs = [sign(words)?, sign(words)?];
        words.finish()?;
        let [d, factors @ .., c] = operands else { return Err(not_supported()) };
        let negation = |operand: &Operand| match operand {
            Operand::Negated(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let [a, b] = factors else { return Err(not_supported()) };
        let ((a, negated_a), (b, negated_b), (c, negated_c)) = (negation(a), negation(b), negation(c));
        let negated = negated_a != negated_b;
        if negated && negated_c || plus_one && (negated_a || negated_b || negated_c) {
            return Err(Refusal::new("these operands are not negated together"));
        }
        let ((a, part_a), (b, part_b)) = (selected(&a), selected(&b));
        let (a_part, b_part) = (part(part_a, signs[0])?, part(part_b, signs[1])?);
        let shift = shift.unwrap_or(0);
        let what = Video::Product { a: a_part, b: b_part, negated, negated_c, plus_one, saturates, shift };
        self.video(what, d, [&a, &b, &c])
    }

    fn video_parallel(
        &mut self,
        name: &str,
        bits: u32,
        words: &mut Words<'_>,
        operands: &[Operand],
    ) -> Result<(), Refusal> {
        if matches!(name, "shl" | "shr") {
            return Err(not_supported());
        }
        let action = action(name, words)?;
        let (sums, saturates) = (words.take("add"), name != "set" && words.take("sat"));
        if sums && saturates {
            return Err(not_supported());
        }
        let signed = if name == "set" { false } else { sign(words)? };
        let (a_signed, b_signed) = (sign(words)?, sign(words)?);
        words.finish()?;
        let [d, a, b, c] = operands else { return Err(not_supported()) };
        let ((d, merged), (a, picks_a), (b, picks_b)) = (selected(d), selected(a), selected(b));
        let what = Video::Parallel {
            action,
            bits,
            a: (picks(picks_a, bits, 0)?, a_signed),
            b: (picks(picks_b, bits, if bits == 8 { 4 } else { 2 })?, b_signed),
            signed,
            saturates,
            mask: mask(merged, bits)?,
            sums,
        };
        self.video(what, &d, [&a, &b, c])
    }

    fn video(&mut self, what: Video, d: &Operand, operands: [&Operand; 3]) -> Result<(), Refusal> {
        let [a, b, c] = operands;
        let operands = [self.src(a, Type::B32)?, self.src(b, Type::B32)?, self.src(c, Type::B32)?];
        let d = self.dst(d, Type::B32)?;
        let video = u32::try_from(self.videos.len()).map_err(|_| not_supported())?;
        self.videos.push(what);
        self.emit(Op::Video { video, d, operands })
    }
}
