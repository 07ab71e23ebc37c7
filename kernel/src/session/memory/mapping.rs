//! What is known of memory of another session that is mapped in this one.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use bulkhead_caps::{Access, ObjectId};
use bulkhead_mm::Range;
use bulkhead_schema::Error;
use tokio::{sync::watch, time::Instant};

use crate::{
    refusal::internal,
    registry::{Memory, Object, Part, What},
};

/// Memory of another session that is, or is being, mapped in this one.
pub(crate) struct Mapping<S> {
    pub(crate) object: ObjectId,
    pub(super) thing: Rc<Object<S>>,
    /// Where it lies in this session.
    pub(super) range: Range,
    pub(super) access: Access,
    /// Where it starts in the memory, in bytes.
    pub(super) offset: u64,
    /// The pieces that are mapped.
    pub(super) parts: RefCell<Vec<Part>>,
    /// A piece for which nobody waited: it may be mapped.
    pub(super) uncertain: Cell<Option<Part>>,
    /// Records may name it.
    pub(super) bound: Cell<bool>,
    /// Whether nothing is being mapped any more.
    pub(super) settled: watch::Sender<bool>,
    /// When its capability was seen to have ended.
    pub(super) dead: watch::Sender<Option<Instant>>,
}

impl<S> Mapping<S> {
    /// Its capability has ended: nobody waits for it any more.
    pub(crate) fn end(&self) {
        self.dead.send_if_modified(|dead| dead.is_none() && dead.replace(Instant::now()).is_none());
    }

    /// Waits until no more of it is being mapped.
    pub(crate) async fn settled(&self) {
        // The sender is a field of `self`, so the wait cannot fail.
        drop(self.settled.subscribe().wait_for(|settled| *settled).await);
    }

    /// When its capability was seen to have ended.
    pub(crate) fn dead(&self) -> Option<Instant> {
        *self.dead.borrow()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.range.bytes()
    }

    /// Whose memory it is, as long as that is there.
    pub(crate) fn lender(&self) -> Option<Rc<S>> {
        self.thing.session.upgrade()
    }

    /// Whose memory it is, and which piece of that lies where in this session.
    pub(crate) fn pieces(&self) -> Vec<(Rc<S>, Range, Range)> {
        let (Some(lender), Ok(memory)) = (self.lender(), self.memory()) else {
            return Vec::new();
        };
        let piece = |part: &Part| Some((part.at(memory.range.start())?, self.place(*part)?));
        let parts = self.parts.borrow();
        parts.iter().filter_map(piece).map(|(from, to)| (Rc::clone(&lender), from, to)).collect()
    }

    /// Where a part of the memory lies in this session.
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        self.range.start().0.checked_add(offset.checked_sub(self.offset)?)
    }

    /// Where this session has it mapped, piece by piece.
    pub(crate) fn ranges(&self) -> Vec<Range> {
        self.parts.borrow().iter().filter_map(|part| self.place(*part)).collect()
    }

    /// Where a piece may be mapped of which nobody knows.
    pub(crate) fn uncertain(&self) -> Option<Range> {
        self.uncertain.get().and_then(|part| self.place(part))
    }

    /// Whether nothing of it was ever mapped, or named to the executor.
    pub(crate) fn is_untouched(&self) -> bool {
        self.parts.borrow().is_empty() && self.uncertain.get().is_none() && !self.bound.get()
    }

    pub(super) fn place(&self, part: Part) -> Option<Range> {
        Part { offset: part.offset.checked_sub(self.offset)?, end: part.end.checked_sub(self.offset)? }
            .at(self.range.start())
    }

    pub(super) fn memory(&self) -> Result<&Memory, Error> {
        memory_of(&self.thing)
    }
}

/// Says that nothing is being mapped any more, however that came about.
pub(super) struct Settling<S>(pub(super) Rc<Mapping<S>>);

impl<S> Drop for Settling<S> {
    fn drop(&mut self) {
        self.0.settled.send_replace(true);
    }
}

pub(super) fn memory_of<S>(thing: &Object<S>) -> Result<&Memory, Error> {
    match &thing.what {
        What::Memory(memory) => Ok(memory),
        What::Host { .. } | What::Code(_) | What::Point(_) | What::Program | What::Peer | What::Module(_) => {
            Err(internal("a mapping is of something else"))
        }
    }
}
