//! That no thread waits for lanes of its warp that wait elsewhere.
//!
//! A wait for lanes names those that are at its own place. They are found there, and nothing leads away between that and
//! the wait: all of them come, or end. Lanes of a warp meet in one way in all of the body, and for all lanes: whoever meets
//! anywhere lets the others go. They do so by a match on the number of the place, which no other place of the body has, so
//! that each knows who came to its own. A vote may follow, which tells who is left of the warp: a barrier of the block
//! beside waits for lanes stands where all those are. The vote may be the tenant's, directly behind the match: it is for all
//! lanes, too. Of lanes that came to a place, those with the same word may wait for each other: a match among them leaves
//! those. In any body a barrier
//! that promises that all lanes of a warp come to it, as `bar.sync` does, stands where they do; others are `barrier.sync`.
//! All barriers of a body are of one kind: threads that wait at one that reduces and at one that does not wait for ever.

use crate::ast::{Instruction, Operand, Span, Statement};
use crate::claims::{self, LanesAt};
use crate::convergence;
use crate::lines::strip;
use crate::maps::HashSet;
use crate::names::{self, LANES};
use crate::refusal::unverified;
use crate::report::Reason;
use crate::table::{self, BarrierKind, Row};

/// How all lanes of a warp meet where nothing waits for lanes but this.
const MEET: &str = "bar.warp.sync -1";
/// Who is left of the warp, after a match into `%bh_m`.
const LEFT: &str = "vote.sync.ballot.b32 %bh_lo, 1, -1";
/// The same, after a match into `%bh_lo`.
const LEFT_OF_WHOLE: &str = "vote.sync.ballot.b32 %bh_hi, 1, -1";
/// Whether the lanes that are here are a whole warp.
const IS_WHOLE: &str = "setp.ne.s32 %bh_q, %bh_lo, -1";
/// Whether they are all that are left.
const ARE_LEFT: &str = "setp.ne.s32 %bh_q, %bh_lo, %bh_m";
/// The lanes that the device runs side by side.
const HERE_OF_WHOLE: &str = "activemask.b32 %bh_lo";
/// Where threads may have copies to wait for.
const WAIT: &str = "@%bh_q cp.async.wait_all";
const END: &str = "@%bh_q exit";

const ROWS: &str = "a claim of launches that are not asked for it";

/// What stands at a place where lanes meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Met {
    /// All lanes of the warp go on together, and there are 32.
    Whole,
    /// Whoever goes on knows who is here, or has met.
    Others,
    /// The same, and threads may have ended, or lanes gone on in parts.
    Fewer,
}

/// Which lanes of a warp come where the pass is, and what the body has waited with.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// Whether `%bh_m` holds lanes all of which come here.
    here: bool,
    /// Where all that are left of the warp come; in how many statements.
    together: Vec<bool>,
    statements: usize,
    /// Where the pass is.
    at: usize,
    /// Where a vote stands that is the tenant's and a meeting's.
    vote: Option<usize>,
    /// Whether that rests on warps being rows of their block.
    rows: bool,
    /// The numbers of the places where lanes have met.
    places: HashSet<i128>,
    by_barrier: bool,
    by_match: bool,
    by_vote: bool,
    /// Whether anything waits for lanes.
    waits: bool,
    /// Whether anything waits for the block; and where not all that are left of the warp come.
    blocks: bool,
    alone: bool,
    /// Of what kind the barriers are.
    kind: Option<Option<BarrierKind>>,
}

impl Lanes {
    /// Of an entry's body, of which this is claimed. A fast version may be launched only where warps are rows of their block.
    ///
    /// # Errors
    /// Where a claim does not follow.
    pub(crate) fn of(
        statements: &[Statement],
        claims: &claims::Lanes,
        is_fast: bool,
    ) -> Result<Self, (Span, Reason)> {
        if claims.rows && !is_fast {
            return Err((Span::default(), unverified(ROWS)));
        }
        let together = convergence::check(statements, LanesAt::Together, claims)?;
        Ok(Self { together, rows: claims.rows, statements: statements.len(), ..Self::default() })
    }

    /// Of a gate's body.
    ///
    /// # Errors
    /// As [`Lanes::of`].
    pub(crate) fn of_gate(statements: &[Statement], claims: &claims::Lanes) -> Result<Self, (Span, Reason)> {
        if claims.rows {
            return Err((Span::default(), unverified(ROWS)));
        }
        let together = convergence::check(statements, LanesAt::Apart, claims)?;
        Ok(Self { together, statements: statements.len(), ..Self::default() })
    }

    /// Whether launches have to have warps that are rows of their block: whatever is claimed, any wait may rest on it.
    pub(crate) fn needs_rows(&self) -> bool {
        self.rows
    }

    /// The pass is where these statements are left.
    pub(crate) fn at(&mut self, left: &[Statement]) {
        self.at = self.statements.saturating_sub(left.len());
    }

    /// Lanes may go different ways from here on, or have come on such.
    pub(crate) fn part(&mut self) {
        self.here = false;
    }

    /// Whether all that are left of the warp come here.
    pub(crate) fn together(&self) -> bool {
        self.together.get(self.at).is_some_and(|here| *here)
    }

    /// What is left where lanes meet, or find out who is here.
    pub(crate) fn meets<'a>(
        &mut self,
        statements: &'a [Statement],
        copies: bool,
    ) -> Option<(Met, &'a [Statement])> {
        let ended = |rest| end(rest, copies);
        let found = if let Some(rest) = strip(statements, &[MEET]) {
            // Where all come, it waits for nobody else.
            self.by_barrier |= !self.together();
            (Met::Others, rest)
        } else if let Some(rest) = self.comes_to(statements, "%bh_lo") {
            let rest = self.votes(rest, LEFT_OF_WHOLE);
            let rest = ended(strip(rest, &[IS_WHOLE])?)?;
            // All 32 come here, and wait for each other. The device may run them apart even so.
            (Met::Whole, ended(strip(rest, &[MEET, HERE_OF_WHOLE, IS_WHOLE])?)?)
        } else if let Some(rest) = self.comes_to(statements, LANES) {
            let is_tenants = is_vote_of_all(rest);
            if is_tenants {
                self.by_vote = true;
                self.vote = self.statements.checked_sub(rest.len());
            }
            let voted = if is_tenants { rest } else { self.votes(rest, LEFT) };
            self.here = true;
            let asked = strip(voted, &[ARE_LEFT]).filter(|_| voted.len() < rest.len());
            asked.and_then(ended).map_or((Met::Others, voted), |rest| (Met::Fewer, rest))
        } else {
            // Of the lanes that are here, those with the same word come here, too. A device may run them apart from the others.
            (Met::Fewer, alike(statements).filter(|_| self.here)?)
        };
        self.waits = true;
        Some(found)
    }

    /// What is left behind a match on the number of a place, which no other has.
    fn comes_to<'a>(&mut self, statements: &'a [Statement], here: &str) -> Option<&'a [Statement]> {
        let (first, rest) = statements.split_first()?;
        self.places.insert(convergence::place(first, here)?).then_some(rest)
    }

    /// What is left behind a vote, where there is one.
    fn votes<'a>(&mut self, statements: &'a [Statement], line: &str) -> &'a [Statement] {
        let voted = strip(statements, &[line]);
        self.by_vote |= voted.is_some();
        self.by_match |= voted.is_none();
        voted.unwrap_or(statements)
    }

    /// Whether an instruction waits for the lanes in `%bh_m`; no other that waits for lanes may stand where not all come.
    pub(crate) fn wait(&mut self, row: &Row, instruction: &Instruction) -> Result<bool, Reason> {
        let always = instruction.predicate.is_none();
        if table::waits_for_block(row, instruction) {
            self.blocks = true;
            let kind = table::barrier_kind(row, instruction);
            if self.kind.replace(kind).is_some_and(|before| before != kind) {
                return Err(unverified("barriers of several kinds, of which some threads may wait at each"));
            }
            let all_come = self.together() && always;
            self.alone |= !all_come;
            if table::promises_all_lanes(instruction) && !all_come {
                return Err(unverified("a barrier for all lanes of a warp, to which some may not come"));
            }
            return Ok(false);
        }
        if !table::waits_for_lanes(row, instruction) {
            return Ok(false);
        }
        self.waits = true;
        if self.vote == Some(self.at) {
            return Ok(false);
        }
        let together = self.together();
        match instruction.operands.split_last() {
            Some((Operand::Register(name), others)) if name == LANES && self.here && always => {
                let mut again = false;
                others.iter().for_each(|operand| table::each(operand, &mut |name| again |= name == LANES));
                if again { Err(unverified("a reserved register as data")) } else { Ok(true) }
            }
            Some((mask, _)) if table::names_all_lanes(mask) && together && always => Ok(false),
            _ => Err(unverified("a wait for lanes that may wait elsewhere")),
        }
    }

    /// Whether the waits of a body go together.
    pub(crate) fn end(&self) -> Result<(), Reason> {
        if self.waits && self.alone {
            return Err(unverified("a barrier where lanes of a warp may wait elsewhere"));
        }
        let ways = [self.by_barrier, self.by_match, self.by_vote];
        if ways.into_iter().filter(|by| *by).count() > 1 || (self.by_barrier && self.blocks) {
            return Err(unverified("lanes of a warp that meet in two ways"));
        }
        Ok(())
    }
}

/// What is left behind where a thread ends under `%bh_q`.
fn end(statements: &[Statement], copies: bool) -> Option<&[Statement]> {
    if copies { strip(statements, &[WAIT, END]) } else { strip(statements, &[END]) }
}

/// What is left behind a match among the lanes that are here, on a word.
fn alike(statements: &[Statement]) -> Option<&[Statement]> {
    let (Statement::Instruction(first), rest) = statements.split_first()? else { return None };
    let is_lanes = |operand: &Operand| matches!(operand, Operand::Register(name) if name == LANES);
    let matches =
        first.opcode == "match" && first.modifiers == ["any", "sync", "b32"] && first.predicate.is_none();
    match first.operands.as_slice() {
        [to, Operand::Integer(_), among] if matches && is_lanes(to) && is_lanes(among) => Some(rest),
        [to, Operand::Register(word), among] if matches && is_lanes(to) && is_lanes(among) => {
            (!names::is_reserved(word)).then_some(rest)
        }
        _ => None,
    }
}

/// Whether a vote begins here for which all lanes vote, those that are left of the warp, and that goes to a register of the
/// tenant's. Where some voted against, others would take them for gone.
fn is_vote_of_all(statements: &[Statement]) -> bool {
    let [Statement::Instruction(first), ..] = statements else { return false };
    let votes =
        first.opcode == "vote" && first.modifiers == ["sync", "ballot", "b32"] && first.predicate.is_none();
    let to = match first.operands.as_slice() {
        [Operand::Register(to), Operand::Integer(1), Operand::Integer(-1)] if votes => to,
        _ => return false,
    };
    !names::is_reserved(to)
}
