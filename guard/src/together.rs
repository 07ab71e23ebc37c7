//! Whether all lanes that are left of a warp come to a place.
//!
//! Where they are together and take different ways further down, they are together again where all those ways have met, if
//! nothing waited on any of them: whoever is not there yet is on the way, and waits for nobody.

use crate::ast::{Instruction, Operand, Statement};
use crate::maps::HashSet;
use crate::table::{self, Row, Treatment};

/// Ways that are followed at once, at most.
const WAYS_MAX: usize = 32;

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unknown,
    /// All are here.
    Here,
    /// All are here or on the way to these labels.
    Apart(Vec<String>),
}

/// What is known of the lanes in a pass over a body, in the order of the text.
#[derive(Debug, Default)]
pub(crate) struct Together {
    /// The labels that something goes back to.
    heads: HashSet<String>,
    state: State,
    /// Labels to which lanes are on their way while others wait.
    waited: Vec<String>,
}

impl Together {
    /// Of a body, in which nothing is known yet.
    pub(crate) fn of(statements: &[Statement]) -> Self {
        let (mut seen, mut heads): (HashSet<&str>, HashSet<String>) =
            (HashSet::default(), HashSet::default());
        for statement in statements {
            match statement {
                Statement::Label(name, _) => {
                    seen.insert(name);
                }
                // Only what names a place goes there.
                Statement::Instruction(instruction)
                    if matches!(instruction.operands.first(), Some(Operand::Symbol(_))) =>
                {
                    let target = table::row_of(instruction).and_then(|row| table::target(row, instruction));
                    heads.extend(target.filter(|target| seen.contains(target)).map(str::to_owned));
                }
                _ => {}
            }
        }
        Self { heads, ..Self::default() }
    }

    /// Whether all come here.
    pub(crate) fn holds(&self) -> bool {
        self.state == State::Here
    }

    /// All that are left of the warp are here.
    pub(crate) fn gathered(&mut self) {
        self.waits();
        self.state = State::Here;
    }

    /// Nothing is known any more.
    pub(crate) fn part(&mut self) {
        self.waits();
        self.state = State::Unknown;
    }

    /// Something waits here: whoever is on another way may come to where all would be together, and wait there.
    pub(crate) fn waits(&mut self) {
        if let State::Apart(labels) = &mut self.state {
            self.waited.append(labels);
            self.state = State::Unknown;
        }
    }

    /// A label.
    pub(crate) fn label(&mut self, name: &str) {
        let waited = self.waited.len();
        self.waited.retain(|label| label != name);
        if self.heads.contains(name) || self.waited.len() < waited {
            return self.part();
        }
        if let State::Apart(labels) = &mut self.state {
            labels.retain(|label| label != name);
            if labels.is_empty() {
                self.state = State::Here;
            }
        }
    }

    /// An instruction behind which lanes may go on apart.
    pub(crate) fn leads(&mut self, row: &Row, instruction: &Instruction) {
        match row.treatment {
            Treatment::Branch => match table::target(row, instruction) {
                Some(target) if !self.heads.contains(target) => self.goes(target),
                _ => self.part(),
            },
            Treatment::Gate => self.part(),
            _ => {}
        }
    }

    fn goes(&mut self, target: &str) {
        match &mut self.state {
            State::Unknown => {}
            State::Here => self.state = State::Apart(vec![target.to_owned()]),
            State::Apart(labels) if labels.iter().any(|label| label == target) => {}
            State::Apart(labels) if labels.len() < WAYS_MAX => labels.push(target.to_owned()),
            State::Apart(_) => self.part(),
        }
    }
}
