//! That each turn of a loop takes one step.
//!
//! The one instruction that writes the register stands where each turn comes by once: before anything branches or is
//! branched to inside the loop, or behind the last label and before whatever goes back.

use super::turns::Way;
use crate::ast::Instruction;
use crate::print::Text;

/// A loop that is to end by steps, as far as it has been read.
pub(super) struct Stepping<'a> {
    pub(super) number: u32,
    /// Which label it is, in the order of the text.
    pub(super) at: usize,
    register: &'a str,
    way: Way<'a>,
    /// For how many turns its step is good, where that has come.
    taken: Option<u64>,
    /// Whether that is where nothing has branched inside yet; and whether this is.
    first: bool,
    straight: bool,
    /// Whether anything forbids to trust it.
    broken: bool,
}

impl<'a> Stepping<'a> {
    pub(super) const fn new(number: u32, at: usize, register: &'a str, way: Way<'a>) -> Self {
        Self { number, at, register, way, taken: None, first: false, straight: true, broken: false }
    }

    /// A label stands here.
    pub(super) const fn label(&mut self) {
        self.broken |= self.taken.is_some() && !self.first;
        self.straight = false;
    }

    /// Control may go elsewhere: on, or back to a label with this number.
    pub(super) fn branch(&mut self, back: Option<usize>) {
        let again = back.is_some_and(|at| at > self.at);
        self.broken |= again && self.taken.is_some() && !self.first;
        self.straight = false;
    }

    /// An instruction writes these registers.
    pub(super) fn instruction(&mut self, instruction: &Instruction, writes: &[&str]) {
        let of_step = matches!(self.way, Way::Times(step, _) if writes.contains(&step));
        self.broken |= of_step;
        if writes.contains(&self.register) {
            let turns = self.step(instruction);
            self.broken |= self.taken.is_some() || turns.is_none();
            (self.taken, self.first) = (turns, self.straight);
        }
    }

    /// In how many turns it is at the counter: with this step directly before it goes back, or with the one that came before.
    pub(super) fn turns(&self, last: Option<&Instruction>) -> Option<u64> {
        let turns = match (last, self.taken) {
            (Some(step), None) => self.step(step),
            (None, taken) => taken,
            (Some(_), Some(_)) => None,
        };
        turns.filter(|_| !self.broken)
    }

    /// In how many turns this step leads to the counter, if it is one.
    fn step(&self, instruction: &Instruction) -> Option<u64> {
        let by = instruction.operands.get(2)?;
        let plain = Instruction { predicate: None, ..instruction.clone() };
        let (text, register) = (Text(&plain).to_string(), self.register);
        let is = |ty: &str| text == format!("add.{ty} {register}, {register}, {}", Text(by));
        (instruction.predicate.is_none() && (is("s32") || is("u32"))).then_some(())?;
        self.way.turns(by)
    }
}
