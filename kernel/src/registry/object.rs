//! What capabilities name, as the kernel knows it.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashSet, btree_map::Entry},
    os::fd::OwnedFd,
    rc::{Rc, Weak},
    sync::Arc,
};

use bulkhead_mm::{DeviceAddress, Range};
use bulkhead_schema::{Error, Handle};
use tokio::sync::{Mutex, RwLock, watch};

use crate::{
    executor_proxy::EntryInfo,
    ledger::Charge,
    modules::Owned,
    registry::{Batch, Stage},
};

/// Whether a completion point has passed, or why nobody will know.
pub(crate) type Passed = Option<Result<(), Error>>;

/// What a capability names, and whose it is. Enough to make it again in another executor.
pub(crate) struct Object<S> {
    pub(crate) session: Weak<S>,
    pub(crate) what: What,
    /// Capabilities of it that ended, on their way back: by the nearest capability above them that is there.
    ending: RefCell<BTreeMap<Handle, Lingering>>,
}

/// What ended and can still be reached by work, or is mapped still: all batches of which that is so, and as many again at most that
/// were let go of since. Copies have their chunks in common: a session may have very many batches on their way, and as many
/// revocations that wait for all of them.
#[derive(Default, Clone)]
pub(crate) struct Lingering {
    /// Each of [`CHUNK`].
    chunks: Vec<Rc<[Rc<Batch>]>>,
    rest: Vec<Rc<Batch>>,
    /// With so many it is looked which are still held.
    look_at: usize,
}

/// What it is.
pub(crate) enum What {
    /// Device memory.
    Memory(Memory),
    /// Host memory shared with the device.
    Host {
        bytes: u64,
        memory: Rc<OwnedFd>,
        /// Where kernels reach it in its session.
        place: Option<Range>,
        /// Whether it is mapped there.
        mapped: Cell<bool>,
        charges: RefCell<Vec<Charge>>,
    },
    /// Loaded code.
    Code(Code),
    /// A completion point, of a stream or of whoever signals it.
    Point(watch::Sender<Passed>),
    /// Entries for others to launch.
    Program,
    /// The authority to give its session things.
    Peer,
    /// A protected module.
    Module(Owned),
}

/// What a session's device memory comes to, for whoever looks for room: that is every few milliseconds, and a session may
/// have very many objects.
#[derive(Default)]
pub(crate) struct Tally {
    mapped_bytes: Cell<u64>,
    lent: Cell<usize>,
}

impl Tally {
    /// Bytes of its memory that are mapped in it.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes.get()
    }

    /// How many of its memories are mapped in a session for a capability that was accepted.
    pub(crate) fn lent(&self) -> usize {
        self.lent.get()
    }
}

/// Device memory of a session.
pub(crate) struct Memory {
    /// Where it lies in its own session.
    pub(crate) range: Range,
    /// Of all memory of its session.
    tally: Rc<Tally>,
    /// Whether it is mapped there.
    mapped: Cell<bool>,
    /// Whether its content lies in host memory. Then it is charged for no device memory.
    pub(crate) away: Cell<bool>,
    /// How many other sessions' mappings there are.
    mappings: Cell<u32>,
    /// Where its pieces start, in bytes from its own start.
    pieces: RefCell<Vec<u64>>,
    /// Parts that others have mapped, once for each time.
    shared: RefCell<BTreeMap<(u64, u64), u32>>,
    /// Held while it is cut up.
    pub(crate) cutting: Arc<Mutex<()>>,
    /// Held by those who share it; who unmaps it in its own session waits for them.
    pub(crate) sharing: Arc<RwLock<()>>,
}

/// A part of a memory, from its start on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) end: u64,
}

impl Part {
    pub(crate) fn bytes(self) -> u64 {
        self.end - self.offset
    }

    /// Where it lies when the memory starts at `start`.
    pub(crate) fn at(self, start: DeviceAddress) -> Option<Range> {
        Range::new(DeviceAddress(start.0.checked_add(self.offset)?), self.bytes())
    }
}

/// Loaded code.
pub(crate) struct Code {
    pub(crate) handle: Cell<Option<Handle>>,
    pub(crate) text: Option<OwnedFd>,
    pub(crate) entries: RefCell<Vec<(Handle, Rc<EntryInfo>)>>,
    pub(crate) state: Cell<Loaded>,
    /// Local memory that one of its kernels needs on the whole device.
    pub(crate) local_bytes: Cell<u64>,
    pub(crate) charges: RefCell<Vec<Charge>>,
}

/// Whether an executor has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loaded {
    No,
    Yes,
    /// It was asked to let go of it.
    Unloading,
}

impl Memory {
    pub(crate) fn new(range: Range, tally: &Rc<Tally>) -> Self {
        Self {
            range,
            tally: Rc::clone(tally),
            mapped: Cell::new(false),
            away: Cell::new(false),
            mappings: Cell::new(0),
            pieces: RefCell::new(vec![0]),
            shared: RefCell::default(),
            cutting: Arc::default(),
            sharing: Arc::default(),
        }
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.mapped.get()
    }

    /// It is mapped in its own session from here on, or is not.
    pub(crate) fn set_mapped(&self, mapped: bool) {
        let bytes = self.range.bytes();
        match (self.mapped.replace(mapped), mapped) {
            (false, true) => self.tally.mapped_bytes.update(|all| all.saturating_add(bytes)),
            (true, false) => self.tally.mapped_bytes.update(|all| all.saturating_sub(bytes)),
            (true, true) | (false, false) => {}
        }
    }

    /// Whether it is mapped for a capability that was accepted.
    pub(crate) fn is_lent(&self) -> bool {
        self.mappings.get() > 0
    }

    pub(crate) fn add_mapping(&self) {
        if !self.is_lent() {
            self.tally.lent.update(|all| all.saturating_add(1));
        }
        self.mappings.update(|mappings| mappings.saturating_add(1));
    }

    pub(crate) fn remove_mapping(&self) {
        let was_lent = self.is_lent();
        self.mappings.update(|mappings| mappings.saturating_sub(1));
        if was_lent && !self.is_lent() {
            self.tally.lent.update(|all| all.saturating_sub(1));
        }
    }

    pub(crate) fn pieces_count(&self) -> usize {
        self.pieces.borrow().len()
    }

    /// Its pieces, in order.
    pub(crate) fn pieces(&self) -> Vec<Part> {
        let starts = self.pieces.borrow();
        let ends = starts.iter().skip(1).copied().chain([self.range.bytes()]);
        starts.iter().zip(ends).map(|(offset, end)| Part { offset: *offset, end }).collect()
    }

    /// The pieces that touch a part.
    pub(crate) fn pieces_of(&self, part: Part) -> Vec<Part> {
        let touches = |piece: &Part| piece.offset < part.end && part.offset < piece.end;
        self.pieces().into_iter().filter(touches).collect()
    }

    /// A piece that a part does not fill, and where to cut it.
    pub(crate) fn cut(&self, part: Part) -> Option<(Part, u64)> {
        let cut = |at: u64| {
            let piece = self.pieces().into_iter().find(|piece| piece.offset < at && at < piece.end)?;
            Some((piece, at))
        };
        cut(part.offset).or_else(|| cut(part.end))
    }

    /// A piece was cut in two.
    pub(crate) fn was_cut(&self, at: u64) {
        let mut pieces = self.pieces.borrow_mut();
        if let Err(place) = pieces.binary_search(&at) {
            pieces.insert(place, at);
        }
    }

    pub(crate) fn is_shared(&self, piece: Part) -> bool {
        let shared = self.shared.borrow();
        shared.range(..(piece.end, 0)).any(|((_, end), _)| piece.offset < *end)
    }

    pub(crate) fn share(&self, part: Part) {
        *self.shared.borrow_mut().entry((part.offset, part.end)).or_default() += 1;
    }

    pub(crate) fn unshare(&self, part: Part) {
        if let Entry::Occupied(mut times) = self.shared.borrow_mut().entry((part.offset, part.end)) {
            *times.get_mut() -= 1;
            if *times.get() == 0 {
                times.remove();
            }
        }
    }
}

impl<S> Object<S> {
    pub(crate) fn new(session: Weak<S>, what: What) -> Self {
        Self { session, what, ending: RefCell::default() }
    }

    /// How much device memory it is.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.what {
            What::Memory(memory) => memory.range.bytes(),
            What::Host { .. }
            | What::Code(_)
            | What::Point(_)
            | What::Program
            | What::Peer
            | What::Module(_) => 0,
        }
    }

    /// Whether the executor holds something of it.
    pub(crate) fn is_held(&self) -> bool {
        match &self.what {
            What::Memory(memory) => memory.is_mapped() || memory.is_lent(),
            What::Code(code) => code.state.get() != Loaded::No,
            What::Host { mapped, .. } => mapped.get(),
            What::Module(owned) => owned.state.get() != Loaded::No,
            What::Point(_) | What::Program | What::Peer => false,
        }
    }

    /// Capabilities of it have ended in one walk, into a batch where their session is still there. What had ended below them
    /// and can still be reached is answered; whoever revokes their heir waits for all of it.
    pub(crate) fn ended(
        &self,
        handles: impl Iterator<Item = Handle>,
        heir: Option<Handle>,
        batch: Option<&Rc<Batch>>,
    ) -> Lingering {
        let mut ending = self.ending.borrow_mut();
        let mut before = Lingering::default();
        if !ending.is_empty() {
            let below = handles.filter_map(|handle| ending.remove(&handle));
            below.for_each(|below| before.extend(&below));
        }
        // Nobody names what has no heir.
        if let Some(heir) = heir {
            // As many are looked at as were put there since this was done last.
            if ending.len().is_power_of_two() && !ending.contains_key(&heir) {
                ending.retain(|_, lingering| lingering.lingers());
            }
            let lingering = ending.entry(heir).or_default();
            lingering.extend(&before);
            batch.into_iter().for_each(|batch| lingering.add(batch));
        }
        before
    }

    /// What ended below a capability and can still be reached.
    pub(crate) fn lingering(&self, below: Handle) -> Lingering {
        self.ending.borrow().get(&below).cloned().unwrap_or_default()
    }
}

/// So few are kept however many of them were let go of.
const LINGERING_MIN: usize = 8;
/// Batches that copies have in common.
const CHUNK: usize = 256;

impl Lingering {
    fn len(&self) -> usize {
        self.chunks.len() * CHUNK + self.rest.len()
    }

    /// Forgets what is not held any more. Answers whether anything is.
    fn lingers(&mut self) -> bool {
        let (chunks, rest) = (std::mem::take(&mut self.chunks), std::mem::take(&mut self.rest));
        let mut known = HashSet::new();
        for batch in chunks.iter().flat_map(|chunk| chunk.iter()).chain(&rest) {
            if batch.is_held() && known.insert((batch.owner, batch.number)) {
                self.push(batch);
            }
        }
        self.look_at = LINGERING_MIN.max(2 * self.len());
        self.len() > 0
    }

    fn push(&mut self, batch: &Rc<Batch>) {
        self.rest.push(Rc::clone(batch));
        if self.rest.len() == CHUNK {
            self.chunks.push(self.rest.drain(..).collect());
        }
    }

    /// Adds a batch, unless its session has let go of it.
    pub(crate) fn add(&mut self, batch: &Rc<Batch>) {
        let is_last = self.rest.last().is_some_and(|last| Rc::ptr_eq(last, batch));
        if is_last || !batch.is_held() {
            return;
        }
        if self.len() >= self.look_at {
            self.lingers();
        }
        self.push(batch);
    }

    /// Adds all of others.
    pub(crate) fn extend(&mut self, others: &Self) {
        if self.len() == 0 {
            self.clone_from(others);
            return;
        }
        self.chunks.extend(others.chunks.iter().cloned());
        others.rest.iter().for_each(|batch| self.add(batch));
        if self.len() >= self.look_at {
            self.lingers();
        }
    }

    /// The first, from one on, that is not as far as this; how many there are where all are.
    pub(crate) fn first_before(&self, from: usize, stage: Stage) -> usize {
        let (chunk, at) = (from / CHUNK, from % CHUNK);
        let chunks = self.chunks.get(chunk..).unwrap_or_default();
        let left = chunks.iter().flat_map(|chunk| chunk.iter()).chain(&self.rest).skip(at);
        from + left.take_while(|batch| batch.stage() >= stage).count()
    }

    pub(crate) fn batches(&self) -> impl Iterator<Item = &Rc<Batch>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).chain(&self.rest)
    }

    pub(crate) fn count(&self) -> usize {
        self.len()
    }
}
