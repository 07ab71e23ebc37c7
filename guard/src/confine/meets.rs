//! Waits for lanes of a warp become waits for those that are at the same place, so that none is for ever.
//!
//! A wait for all lanes meets them first, wherever they are, and then waits for those that came to the same place; whoever
//! has ended is not waited for. Each place has a number, and lanes meet by `match.any` on it: `activemask` would tell which
//! lanes the device runs side by side, and it may run lanes apart that are at one place. Lanes of a mask that is not all
//! have come together before ([`groups`]), meet, and find out who is here with the same mask. Where lanes may come to a
//! barrier of the block apart, a meeting is a vote too, which tells who is left; at the barrier all of those have to be,
//! and threads end where they are not. Where nothing waits for lanes, a barrier to which not all may come says so
//! (`barrier.sync`), and waits all the same.

use crate::ast::{Instruction, Operand, Predicate, Span, Statement};
use crate::claims::together::{self, Body, Together};
use crate::confine::copies;
use crate::confine::lines::{instruction, plain, register};
use crate::confine::poll::Variant;
use crate::confine::turns;
use crate::names::LANES;
use crate::table::{self, Row, Treatment};

mod groups;
mod masks;

pub(super) use groups::{Left, gather as gather_groups};

/// What a barrier of the warp says, where the lanes that are left of the warp all come to it, or threads end. No text has
/// it.
pub(super) use crate::table::WHOLE;

/// How all lanes of a warp meet in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// At barriers of the warp, as nothing else waits for lanes.
    Barrier,
    /// By a match, which tells who is at the same place.
    Match,
    /// And by a vote, which tells who is left of the warp.
    Vote,
}

/// The places of a body at which lanes meet.
#[derive(Debug)]
pub(super) struct Meetings {
    kind: Kind,
    /// How many there are.
    places: u32,
}

impl Meetings {
    fn of(statements: &[Statement], together: &Together, left: &Left) -> Self {
        let barriers = |(row, found): (&Row, &Instruction)| {
            !table::is_for_warps(row)
                && (!table::waits_for_lanes(row, found) || row.treatment == Treatment::Barrier)
        };
        let mut alone = false;
        let mut blocks = false;
        for (index, statement) in statements.iter().enumerate() {
            let all = |(row, found): (&Row, &Instruction)| {
                table::waits_for_block(row, found) || table::is_for_all_left(found)
            };
            if waiting(statement).is_some_and(all) {
                blocks = true;
                alone |= !together.holds(index);
            }
        }
        let kind = if !blocks && statements.iter().filter_map(waiting).all(barriers) {
            Kind::Barrier
        } else if alone || left.is_some() {
            Kind::Vote
        } else {
            Kind::Match
        };
        Self { kind, places: 0 }
    }

    /// Where lanes meet next: the lanes at the same place come to stand in `here`, and where there is a vote those that are
    /// left in `left`.
    pub(super) fn next(&mut self, here: &str, left: &str) -> Vec<Statement> {
        let mut lines = vec![self.place(here)];
        if self.kind == Kind::Vote {
            let operands = vec![register(left), Operand::Integer(1), Operand::Integer(-1)];
            lines.push(instruction("vote", &["sync", "ballot", "b32"], operands, Span::default()));
        }
        lines
    }

    /// The same without the vote.
    fn place(&mut self, here: &str) -> Statement {
        self.places += 1;
        let operands = vec![register(here), Operand::Integer(self.places.into()), Operand::Integer(-1)];
        instruction("match", &["any", "sync", "b32"], operands, Span::default())
    }
}

fn known(statement: &Statement) -> Option<(&'static Row, &Instruction)> {
    let Statement::Instruction(instruction) = statement else { return None };
    Some((table::row_of(instruction)?, instruction))
}

/// Of what may wait for others: of most that is enough to say that they do not.
fn waiting(statement: &Statement) -> Option<(&'static Row, &Instruction)> {
    let Statement::Instruction(instruction) = statement else { return None };
    let waits = matches!(
        instruction.opcode.as_str(),
        "bar"
            | "barrier"
            | "elect"
            | "ldmatrix"
            | "match"
            | "mma"
            | "movmatrix"
            | "redux"
            | "shfl"
            | "stmatrix"
            | "vote"
            | "wmma"
    );
    if waits { known(statement) } else { None }
}

/// Branches around waits and instructions for whole warps that have a predicate: lanes without it do not wait, and a device
/// takes registers of theirs that ptxas has not written, since only what has the predicate reads them.
pub(super) fn branch_around(statements: &mut Vec<Statement>) {
    let of_lanes =
        |row: &Row, found: &Instruction| table::waits_for_lanes(row, found) || table::is_for_warps(row);
    let lanes = statements.iter().filter_map(waiting).any(|(row, found)| of_lanes(row, found));
    let predicated = |statement: &Statement| {
        waiting(statement).is_some_and(|(row, found)| {
            found.predicate.is_some()
                && (of_lanes(row, found) || (lanes && table::waits_for_block(row, found)))
        })
    };
    if !statements.iter().any(predicated) {
        return;
    }
    let mut fresh = statements.iter().filter_map(turns::number).max().map_or(0, |most| most + 1);
    let mut around = Vec::with_capacity(statements.len() + 8);
    for mut statement in statements.drain(..) {
        let found = predicated(&statement);
        let Statement::Instruction(instruction) = &mut statement else {
            around.push(statement);
            continue;
        };
        let Some(predicate) = instruction.predicate.take_if(|_| found) else {
            around.push(statement);
            continue;
        };
        let (label, span) = (format!("$L{fresh}"), instruction.span);
        fresh += 1;
        let mut branch = plain("bra", &[], vec![Operand::Symbol(label.clone())], span);
        branch.predicate = Some(Predicate { negated: !predicate.negated, ..predicate });
        around.extend([Statement::Instruction(branch), statement, Statement::Label(label, span)]);
    }
    *statements = around;
}

/// Has lanes meet in a confined body that looks at the flag already, and in which groups come together; and where they do.
/// In a fast version warps are rows.
pub(super) fn gather(
    statements: Vec<Statement>,
    left: Left,
    variant: Variant,
    copies: bool,
) -> (Vec<Statement>, Meetings) {
    let any = |waits: fn(&Row, &Instruction) -> bool| {
        statements.iter().filter_map(waiting).any(|(row, found)| waits(row, found))
    };
    if !any(table::waits_for_lanes) && !any(table::waits_for_block) {
        return (statements, Meetings { kind: Kind::Match, places: 0 });
    }
    let statements = match &left {
        Some(left) => groups::meet_at_polls(statements, left),
        None => statements,
    };
    let out = Vec::with_capacity(statements.len() + 32);
    let lanes = statements.iter().any(together::waits_for_lanes);
    let together = if lanes {
        Together::of(&statements, Body::Unasked, variant == Variant::Proven)
    } else {
        // Nobody is asked before a barrier.
        Together::of(&statements, Body::Entry, false)
    };
    let meetings = Meetings::of(&statements, &together, &left);
    let mut pass = Pass { meetings, left, lanes, copies, out, here: Here::Unknown, together: false };
    for (index, statement) in statements.into_iter().enumerate() {
        pass.together = together.holds(index);
        pass.statement(statement);
    }
    (pass.out, pass.meetings)
}

/// What `%bh_m` holds.
#[derive(Debug, Clone, PartialEq)]
enum Here {
    Unknown,
    /// The lanes that are here.
    All,
    /// Those of a mask.
    Of(Operand),
}

struct Pass {
    meetings: Meetings,
    left: Left,
    /// Whether anything waits for lanes.
    lanes: bool,
    copies: bool,
    out: Vec<Statement>,
    here: Here,
    /// Whether all that are left of the warp come here.
    together: bool,
}

impl Pass {
    fn statement(&mut self, statement: Statement) {
        let Statement::Instruction(mut found) = statement else {
            if matches!(&statement, Statement::Label(..)) {
                self.here = Here::Unknown;
            }
            self.out.push(statement);
            return;
        };
        let Some(row) = table::row_of(&found) else {
            self.out.push(Statement::Instruction(found));
            return;
        };
        if table::waits_for_lanes(row, &found) {
            if table::is_for_all_left(&found) {
                found.modifiers.retain(|word| word != WHOLE);
                self.block();
            }
            self.wait(row, &mut found);
        } else if table::waits_for_block(row, &found) {
            if self.lanes {
                self.block();
            }
            let all_come = self.lanes || (self.together && found.predicate.is_none());
            found.modifiers.retain(|word| word != "aligned");
            // Only where all come, ptxas may know that.
            found.opcode = if all_come { "bar" } else { "barrier" }.to_owned();
        }
        if let Here::Of(Operand::Register(mask)) = &self.here {
            let mut changes = false;
            table::written(row, &found, &mut |name| changes |= name == mask);
            if changes {
                self.here = Here::Unknown;
            }
        }
        if matches!(row.treatment, Treatment::Branch | Treatment::Gate) {
            self.here = Here::Unknown;
        }
        self.out.push(Statement::Instruction(found));
    }

    fn put(&mut self, opcode: &str, modifiers: &[&str], operands: Vec<Operand>) {
        self.out.push(instruction(opcode, modifiers, operands, Span::default()));
    }

    /// Ends the threads for which `%bh_q` holds.
    fn end(&mut self) {
        let predicate = || Some(Predicate { register: "%bh_q".to_owned(), negated: false });
        if self.copies {
            self.out.push(copies::wait(predicate(), Span::default()));
        }
        let exit = plain("exit", &[], Vec::new(), Span::default());
        self.out.push(Statement::Instruction(Instruction { predicate: predicate(), ..exit }));
    }

    /// A barrier of the block: all that are left of the warp are here.
    fn block(&mut self) {
        if self.together {
            return;
        }
        self.out.extend(self.meetings.next(LANES, "%bh_lo"));
        let operands = vec![register("%bh_q"), register("%bh_lo"), register(LANES)];
        self.put("setp", &["ne", "s32"], operands);
        self.end();
        self.here = Here::All;
    }

    fn wait(&mut self, row: &Row, found: &mut Instruction) {
        // The vote by which a group asks who is left is that of a meeting.
        if let (Some(Operand::Register(to)), Some(left)) = (found.operands.first(), &self.left)
            && to == left
        {
            let place = self.meetings.place(LANES);
            self.out.push(place);
            self.here = Here::All;
            return;
        }
        let Some(mask) = found.operands.last_mut() else { return };
        let all = table::names_all_lanes(mask);
        let barrier = self.meetings.kind == Kind::Barrier && row.treatment == Treatment::Barrier;
        if all && (self.together || barrier) {
            *mask = Operand::Integer(-1);
            return;
        }
        let mask = std::mem::replace(mask, register(LANES));
        if !all {
            self.some(mask);
        } else if self.here != Here::All {
            self.out.extend(self.meetings.next(LANES, "%bh_lo"));
            self.here = Here::All;
        }
    }

    /// Of the lanes that are here, those with this mask.
    fn some(&mut self, mask: Operand) {
        let mask = match mask {
            Operand::Integer(value) => Operand::Integer(i128::from(low(value))),
            mask => mask,
        };
        if self.here == Here::Of(mask.clone()) {
            return;
        }
        if self.here != Here::All {
            self.out.extend(self.meetings.next(LANES, "%bh_lo"));
        }
        let lanes = || register(LANES);
        self.put("match", &["any", "sync", "b32"], vec![lanes(), mask.clone(), lanes()]);
        self.here = Here::Of(mask);
    }
}

/// The 32 bits of a mask, as a comparison takes them.
fn low(value: i128) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "what is further up names no lane")]
    let low = value as i32;
    low
}
