//! One run: what happens in each step, and what is said when something is wrong.

use std::{array, collections::VecDeque, fmt};

use bulkhead_caps::{Ended, Limits, ObjectId, Tree};
use bulkhead_mm::{Account, Amounts, DeviceAddress, Ledger, Range, Region, Resource};
use bulkhead_schema::Handle;

use crate::{
    Checked, Event, Fault, PAGES, PLACES, SESSIONS, Tally,
    books::{Books, EMPTY, Phase, Records, Residence, Session},
    choices::Choices,
    device::Pages,
    ensure,
    executor::{Binds, Means, Seat},
    module::Module,
    protocol::Channel,
};

/// Steps that a failure tells of.
const TOLD: usize = 24;

/// What happens in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Push,
    Pump,
    Run,
    Deliver,
    Change,
    Hear,
    Observe,
    LookAround,
    ModuleRuns,
    Transfer,
    Allocate,
    Derive,
    Accept,
    Revoke,
    SwapOut,
    SwapIn,
    Open,
    Die,
    ExecutorDies,
    ModuleDies,
    ProcessEnds,
    TurnsBad,
}

/// What went wrong, and what had happened just before.
#[derive(Debug)]
pub struct Failure {
    /// Of the run.
    pub seed: u64,
    /// Which step it was.
    pub step: u64,
    /// The number of the invariant, and what broke it.
    pub what: &'static str,
    last: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)?;
        self.last.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// One run.
#[derive(Debug)]
pub struct Sim {
    seed: u64,
    step: u64,
    last: [(Act, usize, u64); TOLD],
    pub(crate) tally: Tally,
    pub(crate) now_ns: u64,
    /// When the kernel ended a context last.
    pub(crate) died_ns: u64,
    pub(crate) choices: Choices,
    pub(crate) fault: Option<Fault>,
    pub(crate) tree: Tree,
    pub(crate) ledger: Ledger,
    pub(crate) root: Account,
    pub(crate) sessions: [Session; SESSIONS],
    pub(crate) books: Books,
    pub(crate) pages: Pages,
    pub(crate) module: Module,
    pub(crate) ended: Vec<Ended>,
    pub(crate) quiet: Vec<ObjectId>,
    /// Pages that their owners have given back, and that processes keep.
    pub(crate) kept: Vec<u8>,
}

impl Sim {
    /// A run that has not begun.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut choices = Choices::new(seed);
        let last_generation = if choices.one_in(2) { 2 + choices.below(6) } else { u32::MAX };
        let nodes_per_root = if choices.one_in(2) { 5 } else { 30 };
        let mut tree = Tree::new(Limits { nodes_per_root, last_generation });
        let mut ledger = Ledger::new(Amounts::UNLIMITED);
        let root = ledger.open(Amounts::UNLIMITED);
        let module = Module::new(tree.open_line(None));
        let nobody = tree.open_owner(0);
        let no_line = tree.open_line(Some(nobody));
        let nowhere = Range::new(DeviceAddress(0), 0).map(Region::new);
        let sessions = array::from_fn(|_| Session {
            phase: Phase::Shut,
            owner: nobody,
            alone: false,
            mute: false,
            lies: false,
            passing: VecDeque::new(),
            work: no_line,
            control: no_line,
            account: root,
            region: nowhere.clone().unwrap_or_else(|| unreachable!("no bytes fit everywhere")),
            residence: Residence::In,
            area: [0; PLACES as usize],
            kept: [0; PLACES as usize],
            coming: [None; PLACES as usize],
            closing_deadline_ns: 0,
            limit: 0,
            channel: Channel::default(),
            seat: Seat::new(),
            table: EMPTY,
            binds: Binds::default(),
            ring: VecDeque::new(),
            records: Records::default(),
            remembered: [Handle { slot: 0, generation: 0 }; 8],
            capabilities: 0,
            pages: 0,
            swapped: 0,
        });
        Self {
            seed,
            step: 0,
            last: [(Act::Observe, 0, 0); TOLD],
            tally: Tally::default(),
            now_ns: 0,
            died_ns: 0,
            choices,
            fault: None,
            tree,
            ledger,
            root,
            sessions,
            books: Books::default(),
            pages: Pages::new(),
            module,
            ended: Vec::new(),
            quiet: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// The tree under test: a test may switch a bug of it on.
    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Switches a bug of the model on.
    pub fn set_fault(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// What has happened so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Steps done.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Does so many steps, then has every client go and waits until everything is back.
    ///
    /// # Errors
    /// What went wrong first.
    pub fn run(&mut self, steps: u64) -> Result<(), Failure> {
        for _ in 0..steps {
            let act = self.any_act();
            self.step(act)?;
        }
        self.wind_up(steps)
    }

    fn any_act(&mut self) -> Act {
        match self.choices.below(1_024) {
            0..230 => Act::Push,
            230..430 => Act::Pump,
            430..700 => Act::Run,
            700..760 => Act::Deliver,
            760..840 => Act::Change,
            840..900 => Act::Hear,
            900..920 => Act::Observe,
            920..935 => Act::LookAround,
            935..965 => Act::ModuleRuns,
            965..975 => Act::Transfer,
            975..985 => Act::Allocate,
            985..998 => Act::Derive,
            998..1_006 => Act::Accept,
            1_006..1_012 => Act::Revoke,
            1_012..1_014 => Act::SwapOut,
            1_014..1_018 => Act::SwapIn,
            1_018..1_023 => Act::Open,
            _ => match self.choices.below(18) {
                0..8 => Act::Die,
                8 | 9 => Act::ExecutorDies,
                10 => Act::ModuleDies,
                11 | 12 => Act::ProcessEnds,
                13..17 => Act::TurnsBad,
                _ => Act::Die,
            },
        }
    }

    fn step(&mut self, act: Act) -> Result<(), Failure> {
        let at = self.choices.index(SESSIONS);
        self.now_ns += u64::from(self.choices.below(4));
        self.last[usize::try_from(self.step % TOLD as u64).unwrap_or(0)] = (act, at, self.now_ns);
        self.step += 1;
        let done = self.act(act, at).and_then(|()| self.count(at));
        done.map_err(|what| self.failure(what))
    }

    #[inline]
    fn act(&mut self, act: Act, at: usize) -> Checked {
        match act {
            Act::Push => {
                self.push(at);
                Ok(())
            }
            Act::Pump => self.pump(at),
            Act::Run => self.device_runs(at),
            Act::Deliver | Act::Change if self.sessions[at].mute => Ok(()),
            Act::Deliver => {
                let session = &mut self.sessions[at];
                session.seat.receive(&mut session.channel, session.lies, self.fault)
            }
            Act::Change => {
                let Session { seat, channel, area, kept, .. } = &mut self.sessions[at];
                let mut means = Means { pages: &mut self.pages, area, kept, fault: self.fault };
                seat.change(channel, self.now_ns, &mut means)
            }
            Act::Hear => self.hear(at),
            Act::Observe => self.observe(at),
            Act::LookAround => self.look_around(),
            Act::ModuleRuns => self.module_runs(),
            Act::Transfer => self.transfer(at),
            Act::Allocate => self.allocate(at),
            Act::Derive => self.derive(at),
            Act::Accept => self.accept(at),
            Act::Revoke => self.revoke(at),
            Act::SwapOut => self.swap_out(at),
            Act::SwapIn => self.swap_in(at),
            Act::Open => self.open(at),
            Act::Die => self.die(at),
            Act::ExecutorDies => {
                self.tally.note(Event::ExecutorDied);
                self.executor_dies()
            }
            Act::ModuleDies => self.module_dies(),
            Act::ProcessEnds => self.process_ends(at),
            Act::TurnsBad => {
                self.turns_bad(at);
                Ok(())
            }
        }
    }

    fn failure(&self, what: &'static str) -> Failure {
        let first = self.step.saturating_sub(TOLD as u64);
        let told = (first..self.step).map(|step| {
            let (act, at, now_ns) = self.last[usize::try_from(step % TOLD as u64).unwrap_or(0)];
            format!("step {step}, {now_ns} ns: {act:?}, session {at}")
        });
        Failure { seed: self.seed, step: self.step, what, last: told.collect() }
    }

    /// Everybody goes; the simulated time runs on until everything is back.
    fn wind_up(&mut self, steps: u64) -> Result<(), Failure> {
        for turn in 0..100_000_u32 {
            let is_open = |session: &Session| session.phase != Phase::Shut;
            let nothing_waits = self.books.takings.is_empty() && self.kept.is_empty();
            if !self.sessions.iter().any(is_open) && nothing_waits {
                let done = self.all_is_back();
                return done.map_err(|what| self.failure(what));
            }
            let acts =
                [Act::Run, Act::Deliver, Act::Change, Act::Hear, Act::Observe, Act::LookAround, Act::Die];
            let act = acts[turn as usize % acts.len()];
            self.step(act)?;
            self.step(Act::ModuleRuns)?;
        }
        debug_assert!(self.step > steps);
        Err(self.failure("8: not everything came back after every client had gone"))
    }

    fn all_is_back(&self) -> Checked {
        ensure(self.tree.live() == 0, "5: a capability outlived every client")?;
        ensure(self.books.things.iter().all(Option::is_none), "8: an object outlived every client")?;
        ensure(self.pages.free.len() == usize::from(PAGES), "8: a page outlived every client")?;
        let used = self.ledger.used();
        let is_zero = Resource::ALL.into_iter().all(|resource| used.get(resource) == 0);
        ensure(is_zero, "6: something is charged after every client has gone")
    }
}
