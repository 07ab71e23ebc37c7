//! Capabilities of one session that ended together, on their way back.

use std::cell::{Cell, RefCell};

use bulkhead_caps::{Ended, Kind, Line, ObjectId, Owner, RevocationId};
use bulkhead_schema::Handle;
use tokio::{sync::watch, time::Instant};

use crate::registry::budget::LetGo;

/// How far they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The kernel admits them no more.
    Marked,
    /// Nor does the executor.
    Severed,
    /// No work of the session can reach what they named.
    Quiescent,
    /// Nothing of it is mapped there any more.
    Done,
}

/// Whether work can reach what a capability of this kind names. Completion points and peers are the kernel's alone.
pub(super) fn is_reached_by_work(kind: Kind) -> bool {
    match kind {
        Kind::Buffer
        | Kind::HostBuffer
        | Kind::Image
        | Kind::Entry
        | Kind::Program
        | Kind::Module
        | Kind::Gates => true,
        Kind::Fence | Kind::Signal | Kind::Peer => false,
    }
}

/// A capability that the executor may know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dead {
    pub(crate) handle: Handle,
    pub(crate) object: ObjectId,
    /// Whether it is the first capability of memory.
    pub(crate) is_memory: bool,
}

/// Capabilities of one session that ended together.
pub(crate) struct Batch {
    pub(crate) owner: Owner,
    /// Of its owner's batches, from the first on.
    pub(super) number: u64,
    stage: Cell<Stage>,
    /// When the session's patience with its own work ends, where somebody else waits.
    deadline: watch::Sender<Option<Instant>>,
    dead: RefCell<Vec<Dead>>,
    revocations: RefCell<Vec<RevocationId>>,
    objects: RefCell<Vec<ObjectId>>,
    /// Protected modules whose host halves ended.
    modules: RefCell<Vec<ObjectId>>,
    /// How many capabilities ended, whatever they were for, that its session is counted.
    count: Cell<u32>,
    /// What of it the budgets of others count, until it is done.
    spent: RefCell<Vec<LetGo>>,
    /// Where its session's line stood when it was severed.
    mark: Cell<Option<(Line, u64)>>,
    /// Who took some of it back last, of whom the session had it.
    pub(crate) giver: Cell<Option<Owner>>,
    /// Whether device memory of it may be mapped still.
    pub(crate) is_mapped: Cell<bool>,
    /// No work reaches any of it; it is quiescent once that is so of all that its session severed before.
    pub(crate) has_passed: Cell<bool>,
}

impl Batch {
    pub(crate) fn new(owner: Owner, number: u64) -> Self {
        Self {
            owner,
            number,
            stage: Cell::new(Stage::Marked),
            deadline: watch::Sender::new(None),
            dead: RefCell::default(),
            revocations: RefCell::default(),
            objects: RefCell::default(),
            modules: RefCell::default(),
            count: Cell::new(0),
            spent: RefCell::default(),
            mark: Cell::new(None),
            giver: Cell::new(None),
            is_mapped: Cell::new(true),
            has_passed: Cell::new(false),
        }
    }

    /// Adds what one revocation ended.
    pub(super) fn add(&self, id: RevocationId, ended: &[Ended]) {
        let mut revocations = self.revocations.borrow_mut();
        if revocations.last() != Some(&id) {
            revocations.push(id);
        }
        let (mut dead, mut objects) = (self.dead.borrow_mut(), self.objects.borrow_mut());
        dead.reserve(ended.len());
        for one in ended {
            let is_memory = match one.kind {
                Kind::Buffer | Kind::HostBuffer => one.is_first,
                // The executor knows gates by their session: the name is of what was accepted here.
                Kind::Entry | Kind::Gates => false,
                Kind::Module => {
                    self.modules.borrow_mut().push(one.object);
                    continue;
                }
                // The executor knows none of these by a handle of a record.
                Kind::Image | Kind::Fence | Kind::Signal | Kind::Program | Kind::Peer => continue,
            };
            dead.push(Dead { handle: one.handle, object: one.object, is_memory });
            if objects.last() != Some(&one.object) {
                objects.push(one.object);
            }
        }
    }

    pub(crate) fn modules(&self) -> Vec<ObjectId> {
        self.modules.borrow().clone()
    }

    /// So many of them are counted as its session's. Answers as many.
    pub(super) fn counts(&self, ended: usize) -> u32 {
        let more = u32::try_from(ended).unwrap_or(u32::MAX);
        self.count.update(|count| count.saturating_add(more));
        more
    }

    /// Counts a part of somebody's budget until it is done.
    pub(crate) fn keep(&self, spent: LetGo) {
        self.spent.borrow_mut().push(spent);
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }

    pub(crate) fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Whether work may reach it, or memory of it may be mapped: its session has not let go of it.
    pub(crate) fn is_held(&self) -> bool {
        self.stage() < Stage::Quiescent || self.stage() < Stage::Done && self.is_mapped.get()
    }

    pub(crate) fn reach(&self, stage: Stage) {
        self.stage.set(stage.max(self.stage.get()));
        if stage == Stage::Done {
            drop(self.spent.take());
        }
    }

    /// The earliest of the deadlines counts.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        self.deadline.send_if_modified(|known| {
            let sooner = known.is_none_or(|known| deadline < known);
            if sooner {
                *known = Some(deadline);
            }
            sooner
        });
    }

    pub(crate) fn mark(&self, mark: Option<(Line, u64)>) {
        self.mark.set(mark);
    }

    pub(crate) fn marked(&self) -> Option<(Line, u64)> {
        self.mark.get()
    }

    /// Waits until the deadline, for ever where there is none.
    pub(crate) async fn overdue(&self) {
        let mut deadline = self.deadline.subscribe();
        loop {
            let at = *deadline.borrow_and_update();
            let passed = async {
                match at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                // The sender is a field of `self`.
                _ = deadline.changed() => {}
            }
        }
    }

    pub(crate) fn dead(&self) -> std::cell::Ref<'_, Vec<Dead>> {
        self.dead.borrow()
    }

    /// What it concerns, each once.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        let mut objects = self.objects.borrow().clone();
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    pub(super) fn revocations(&self) -> Vec<RevocationId> {
        let mut revocations = self.revocations.borrow().clone();
        revocations.sort_unstable();
        revocations.dedup();
        revocations
    }
}
