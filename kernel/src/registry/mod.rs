//! A device's capabilities: the tree of them, the objects they name, and the way back of both.
//!
//! What ends is *marked* in one step, and from then on nothing of the kernel admits it. Each session that held some of it
//! gets a [`Batch`] of its dead handles, which the session has the executor unbind (*severed*), and then unmap or drain
//! (*quiescent*). An object that nobody names, and that no work can reach, is given back.

pub(crate) mod batch;
pub(crate) mod budget;
pub(crate) mod lending;
pub(crate) mod object;
pub(crate) mod pending;
pub(crate) mod token;

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap, VecDeque},
    rc::{Rc, Weak},
};

use bulkhead_caps::{
    Access, Child, Ended, Extent, Kind, Limits, Line, Moments, Need, ObjectId, ObjectState, Owner,
    RevocationId, Tree, View,
};
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use tokio::{sync::Notify, time::Instant};

pub(crate) use crate::registry::batch::{Batch, Stage};
pub(crate) use crate::registry::budget::{Budget, Spent};
pub(crate) use crate::registry::lending::Lent;
pub(crate) use crate::registry::object::{
    Code, Lingering, Loaded, Memory, Object, Part, Passed, Tally, What,
};
pub(crate) use crate::registry::pending::Asked;
pub(crate) use crate::registry::token::SturdyToken;

use crate::{
    faults::Faults,
    refusal::{self, internal},
};

/// How many objects are given back before others have a turn: a fraction of a millisecond.
const GIVEN_BACK_AT_ONCE: usize = 256;

/// How many revocations are looked at before others have a turn.
const TOLD_AT_ONCE: usize = 256;

/// Who has to let go of what a revocation ends in time, or is ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hurry {
    /// All but whoever takes it back.
    AllBut(Owner),
    /// All but this owner, of whose capability its holder elsewhere takes back what was derived.
    AllButGiver(Owner),
    /// Nobody: who was given something by this owner lets go of it.
    NobodyFor(Owner),
}

impl Hurry {
    fn is_for(self, owner: Owner) -> bool {
        match self {
            Self::AllBut(initiator) | Self::AllButGiver(initiator) => owner != initiator,
            Self::NobodyFor(_) => false,
        }
    }

    /// Whether this is whose capability it was, where its holder elsewhere lets go of it.
    fn is_of_giver(self, owner: Owner) -> bool {
        matches!(self, Self::NobodyFor(giver) | Self::AllButGiver(giver) if giver == owner)
    }
}

/// What was marked.
pub(crate) struct Marked {
    pub(crate) id: RevocationId,
    /// How many capabilities ended.
    pub(crate) count: u32,
    /// How many of them were its giver's, where their holder let go of them: the holder's budget counts these alone.
    pub(crate) of_giver: u32,
    /// What else is on its way back: it was derived of the same capability, ended before, and work may still reach it.
    pub(crate) lingering: Lingering,
}

/// What the registry tells those whose capabilities end: sessions. It holds none of them, and knows no more of them than this.
pub(crate) trait Holder: Sized + 'static {
    /// The batch that takes what of its capabilities ends now.
    fn dying(&self) -> Rc<Batch>;

    /// These capabilities of it have ended.
    fn has_ended(&self, ended: &[Ended]);

    /// So many capabilities are counted as its own until their batch is done.
    fn counts(&self, more: u32);

    /// It is charged so much less of this.
    fn refund(&self, resource: Resource, amount: u64);

    /// Whether it ends with this capability of its own.
    fn is_opened_by(&self, handle: Handle) -> bool;

    /// Its batch is complete for now: its executor is to be told.
    fn wake_reaper(&self);

    /// Ends it, with all its capabilities.
    fn end(&self, why: &Error);

    /// Code of one that nobody names any more, and that no work reaches, is to be unloaded.
    fn unload(code: &Rc<Object<Self>>, object: ObjectId);

    /// The same of a protected module.
    fn remove_module(module: &Rc<Object<Self>>, object: ObjectId);

    /// An object of its own is no more.
    fn gave_back(&self, object: ObjectId, thing: &Object<Self>);
}

/// The capabilities of one device, and of the sessions `S` that hold them. They outlive executors.
pub(crate) struct Registry<S> {
    tree: RefCell<Tree>,
    /// By the index of the object.
    things: RefCell<Vec<Option<Rc<Object<S>>>>>,
    sessions: RefCell<HashMap<Owner, Weak<S>>>,
    /// Owners that are no sessions: what processes have borrowed.
    loans: lending::Loans,
    started: Instant,
    /// Revocations that clients hold, and may wait for.
    asked: RefCell<BTreeMap<RevocationId, Weak<Asked>>>,
    /// Told when some of them may be further than before.
    settled: Notify,
    /// Room for what a revocation ends: thousands, and memory that is new costs as much as marking them.
    ended: RefCell<Vec<Ended>>,
    /// Objects that may have to be given back.
    returning: RefCell<VecDeque<ObjectId>>,
    /// Told where more of them wait than are given back in one go.
    many_return: Notify,
    faults: Rc<Faults>,
}

impl<S: Holder> Registry<S> {
    pub(crate) fn new(faults: Rc<Faults>) -> Self {
        let limits = Limits { nodes_per_root: limits::DERIVED_MAX, last_generation: u32::MAX - 1 };
        Self {
            tree: RefCell::new(Tree::new(limits)),
            things: RefCell::default(),
            sessions: RefCell::default(),
            loans: lending::Loans::default(),
            started: Instant::now(),
            asked: RefCell::default(),
            settled: Notify::new(),
            ended: RefCell::default(),
            returning: RefCell::default(),
            many_return: Notify::new(),
            faults,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes a failure that nobody waits for: our fault.
    pub(crate) fn expect<T>(&self, result: Result<T, Error>, what: &'static str) {
        self.faults.note(result, what);
    }

    fn note<T>(&self, result: Result<T, bulkhead_caps::Error>, what: &'static str) {
        self.expect(result.map_err(refusal::tree), what);
    }

    /// What is there although every session is gone.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let capabilities = self.tree.borrow().live();
        let objects = self.things.borrow().iter().flatten().count();
        let (sessions, wrong) = (self.sessions.borrow().len(), self.faults.count());
        (capabilities > 0 || objects > 0 || sessions > 0 || wrong > 0).then(|| {
            format!(
                "{capabilities} capabilities, {objects} objects, {sessions} sessions; {wrong} times the registry was wrong"
            )
        })
    }

    // ---- sessions ----

    /// A new owner and its line.
    pub(crate) fn open(&self, capabilities: u32) -> (Owner, Line) {
        let mut tree = self.tree.borrow_mut();
        let owner = tree.open_owner(capabilities);
        let line = tree.open_line(Some(owner));
        (owner, line)
    }

    /// Says which session an owner is.
    pub(crate) fn know(&self, owner: Owner, session: Weak<S>) {
        self.sessions.borrow_mut().insert(owner, session);
    }

    pub(crate) fn session(&self, owner: Owner) -> Option<Rc<S>> {
        self.sessions.borrow().get(&owner).and_then(Weak::upgrade)
    }

    /// Every session that is not gone.
    pub(crate) fn sessions(&self) -> Vec<Rc<S>> {
        self.sessions.borrow().values().filter_map(Weak::upgrade).collect()
    }

    /// No work of a line runs any more, nor ever will.
    pub(crate) fn close_line(&self, line: Line) {
        let closed = self.tree.borrow_mut().close_line(line);
        self.note(closed, "close a line");
        self.settle();
    }

    /// An owner that holds nothing and does nothing any more.
    pub(crate) fn close_owner(&self, owner: Owner) {
        self.sessions.borrow_mut().remove(&owner);
        let closed = self.tree.borrow_mut().close_owner(owner);
        self.note(closed, "close an owner");
        self.settle();
    }

    // ---- module I/O ----

    /// A line of a module's, whose work counts as use whoever it is done for.
    #[cfg_attr(not(test), expect(dead_code, reason = "for modules"))]
    pub(crate) fn open_module_line(&self) -> Line {
        self.tree.borrow_mut().open_line(None)
    }

    /// Notes that an object is in use on a line until the mark that is answered has passed there.
    pub(crate) fn uses(&self, line: Line, object: ObjectId) -> Result<u64, Error> {
        self.tree.borrow_mut().uses(line, object).map_err(refusal::tree)
    }

    /// Everything up to a mark has passed on a line.
    pub(crate) fn completed(&self, line: Line, mark: u64) {
        let completed = self.tree.borrow_mut().completed(line, mark);
        self.note(completed, "complete");
        self.settle();
    }

    // ---- capabilities ----

    /// A new object and its first capability.
    pub(crate) fn create(
        &self,
        owner: Owner,
        kind: Kind,
        bytes: u64,
        thing: Object<S>,
    ) -> Result<(Handle, ObjectId, Rc<Object<S>>), Error> {
        let (handle, object) = self.tree.borrow_mut().create(owner, kind, bytes).map_err(refusal::tree)?;
        let thing = Rc::new(thing);
        let mut things = self.things.borrow_mut();
        let index = object.index() as usize;
        if things.len() <= index {
            things.resize_with(index + 1, || None);
        }
        if let Some(place) = things.get_mut(index) {
            *place = Some(Rc::clone(&thing));
        }
        Ok((handle, object, thing))
    }

    /// A weaker capability for the same object, for `owner` or for another.
    pub(crate) fn derive(
        &self,
        owner: Owner,
        parent: Handle,
        to: Owner,
        need: Need,
    ) -> Result<Handle, Error> {
        self.tree.borrow_mut().derive(owner, parent, Child { owner: to, need }).map_err(refusal::tree)
    }

    pub(crate) fn look(&self, owner: Owner, handle: Handle) -> Result<View, Error> {
        self.tree.borrow().look(owner, handle).map_err(refusal::tree)
    }

    /// Every capability of an owner.
    pub(crate) fn of_owner(&self, owner: Owner) -> Vec<(Handle, View)> {
        self.tree.borrow().of_owner(owner).collect()
    }

    /// Whether a handle names an entry of its owner's.
    pub(crate) fn is_entry(&self, owner: Owner, handle: Handle) -> Result<(), Error> {
        let need = Need { kind: Kind::Entry, access: Access::Read, offset: 0, bytes: 0 };
        self.tree.borrow().get(owner, handle, need).map(drop).map_err(refusal::tree)
    }

    pub(crate) fn thing(&self, object: ObjectId) -> Result<Rc<Object<S>>, Error> {
        let things = self.things.borrow();
        let thing = things.get(object.index() as usize).and_then(Option::as_ref);
        thing.map(Rc::clone).ok_or_else(|| internal("a capability names nothing"))
    }

    // ---- the way back ----

    /// Ends what was derived from a capability, and itself where that is asked for.
    pub(crate) fn revoke(
        &self,
        owner: Owner,
        hurry: Hurry,
        handle: Handle,
        extent: Extent,
        patience: std::time::Duration,
    ) -> Result<Marked, Error> {
        // What holders of its descendants have let go of by themselves may be in use by their work still: it is waited for
        // that too. What ends with its own descendants is found with those.
        let lingering = self.thing(self.look(owner, handle)?.object)?.lingering(handle);
        self.mark(hurry, patience, lingering, |tree, deadline_ns, ended| {
            tree.revoke(owner, handle, extent, deadline_ns, |one| ended.push(one))
        })
    }

    /// Ends all that an owner holds, and what was derived from that.
    pub(crate) fn revoke_owner(&self, owner: Owner, patience: std::time::Duration) -> Result<Marked, Error> {
        self.mark(Hurry::AllBut(owner), patience, Lingering::default(), |tree, deadline_ns, ended| {
            tree.revoke_owner(owner, deadline_ns, |one| ended.push(one))
        })
    }

    fn mark(
        &self,
        hurry: Hurry,
        patience: std::time::Duration,
        lingering: Lingering,
        revoke: impl FnOnce(&mut Tree, u64, &mut Vec<Ended>) -> Result<RevocationId, bulkhead_caps::Error>,
    ) -> Result<Marked, Error> {
        let deadline_ns =
            self.now_ns().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        let mut ended = self.ended.take();
        let begun = revoke(&mut self.tree.borrow_mut(), deadline_ns, &mut ended).map_err(refusal::tree);
        let marked = begun.map(|id| self.end_all(id, hurry, patience, &ended, lingering));
        ended.clear();
        self.ended.replace(ended);
        marked
    }

    /// Tells the sessions that held them what a revocation has ended.
    fn end_all(
        &self,
        id: RevocationId,
        hurry: Hurry,
        patience: std::time::Duration,
        ended: &[Ended],
        mut lingering: Lingering,
    ) -> Marked {
        let deadline = Instant::now() + patience;
        let mut over = Vec::new();
        // Those of one owner come in runs.
        for run in ended.chunk_by(|one, next| one.owner == next.owner) {
            let Some(owner) = run.first().map(|one| one.owner) else { continue };
            let session = self.session(owner);
            let batch = session.as_ref().map(|session| session.dying()).or_else(|| self.batch_of_loan(owner));
            for same in run.chunk_by(|one, next| (one.object, one.heir) == (next.object, next.heir)) {
                self.linger(same, batch.as_ref(), &mut lingering);
            }
            let (Some(session), Some(batch)) = (session, &batch) else {
                let severed = self.tree.borrow_mut().severed(id, owner, None);
                self.note(severed, "sever");
                self.recall(owner);
                continue;
            };
            session.refund(Resource::Capabilities, run.len() as u64);
            batch.add(id, run);
            if let Hurry::AllBut(giver) = hurry
                && giver != owner
            {
                batch.giver.set(Some(giver));
            }
            session.has_ended(run);
            // What is its giver's is counted by the holder's budget, so that nobody uses up what the giver may have on the way.
            if !hurry.is_of_giver(owner) {
                session.counts(batch.counts(run.len()));
            }
            if hurry.is_for(owner) {
                batch.set_deadline(deadline);
            }
            if run.iter().any(|one| one.kind == Kind::Program && session.is_opened_by(one.handle)) {
                over.push(Rc::clone(&session));
            }
            for same in run.chunk_by(|one, next| one.object == next.object) {
                self.wake_those_who_wait_for(same);
            }
            session.wake_reaper();
        }
        for batch in lingering.batches().filter(|batch| hurry.is_for(batch.owner)) {
            batch.set_deadline(deadline);
        }
        self.settle();
        // Only now, when all is marked: their own capabilities end in the same way.
        for session in over {
            session.end(
                &Error::new(ErrorCode::Revoked, "the program that the session runs was taken back")
                    .remedy("ask its owner for another"),
            );
        }
        let of_giver = ended.iter().filter(|one| hurry.is_of_giver(one.owner)).count();
        let of_giver = u32::try_from(of_giver).unwrap_or(u32::MAX);
        Marked { id, count: u32::try_from(ended.len()).unwrap_or(u32::MAX), of_giver, lingering }
    }

    /// Notes for whoever revokes what these were derived from that work of their session may still reach their object; they
    /// ended in one walk. What had ended below them before, and can still be reached, is added.
    fn linger(&self, same: &[Ended], batch: Option<&Rc<Batch>>, before: &mut Lingering) {
        let first = same.first().filter(|one| batch::is_reached_by_work(one.kind));
        if let Some((first, Ok(thing))) = first.map(|one| (one, self.thing(one.object))) {
            let below = thing.ended(same.iter().map(|one| one.handle), first.heir, batch);
            before.extend(&below);
        }
    }

    /// Wakes those who wait for a completion point of which capabilities ended: theirs may be one of them.
    fn wake_those_who_wait_for(&self, ended: &[Ended]) {
        let point = ended.iter().find(|one| matches!(one.kind, Kind::Fence | Kind::Signal));
        if let Some(Ok(thing)) = point.map(|one| self.thing(one.object))
            && let What::Point(passed) = &thing.what
        {
            passed.send_modify(|_| {});
        }
    }

    /// An owner admits nothing any more that the revocations of a batch ended.
    pub(crate) fn severed(&self, batch: &Batch) {
        let mut tree = self.tree.borrow_mut();
        for id in batch.revocations() {
            // Those that nobody asked about may have come to their end.
            tree.severed(id, batch.owner, batch.marked()).unwrap_or_default();
        }
        drop(tree);
        batch.reach(Stage::Severed);
        self.settle();
    }

    /// Marks the objects of a batch as used on a line up to now; the last mark.
    pub(crate) fn mark_line(&self, batch: &Batch, line: Line) -> Option<(Line, u64)> {
        let mut tree = self.tree.borrow_mut();
        let marks = batch.objects().into_iter().filter_map(|object| tree.uses(line, object).ok());
        marks.last().map(|mark| (line, mark))
    }

    pub(crate) fn moments(&self, id: RevocationId) -> Result<Moments, Error> {
        let now_ns = self.now_ns();
        self.tree.borrow_mut().moments(id, now_ns).map_err(refusal::tree)
    }

    /// Follows a revocation for whoever asks about it, until that is dropped.
    pub(crate) fn follow(&self, marked: Marked) -> Rc<Asked> {
        let asked = Rc::new(Asked::new(marked));
        self.asked.borrow_mut().insert(asked.id, Rc::downgrade(&asked));
        asked
    }

    pub(crate) fn forget(&self, id: RevocationId) {
        self.asked.borrow_mut().remove(&id);
        self.tree.borrow_mut().forget(id);
    }

    /// Wakes those who wait for a revocation that is further than before, and nobody else: waking all who wait for
    /// anything would let each close cost as much as others wait. Never ends.
    pub(crate) async fn tell_who_waits(&self) {
        loop {
            self.settled.notified().await;
            let asked: Vec<_> = self.asked.borrow().values().filter_map(Weak::upgrade).collect();
            for some in asked.chunks(TOLD_AT_ONCE) {
                for asked in some {
                    asked.tell(self);
                }
                tokio::task::yield_now().await;
            }
        }
    }

    pub(crate) fn state(&self, object: ObjectId) -> ObjectState {
        self.tree.borrow().object(object)
    }

    /// Gives back whatever can be; where that is very much, some of it now and the rest
    /// [in turns with others](Registry::give_back_the_rest).
    pub(crate) fn settle(&self) {
        let now_ns = self.now_ns();
        let mut returning = self.returning.borrow_mut();
        self.tree.borrow_mut().settle(now_ns, |object, state| {
            if state == ObjectState::Quiescent {
                returning.push_back(object);
            }
        });
        drop(returning);
        self.give_back_some();
    }

    /// Gives these back if no work can reach them, as [`Registry::settle`] does.
    pub(crate) fn may_give_back_all(&self, objects: impl IntoIterator<Item = ObjectId>) {
        self.returning.borrow_mut().extend(objects);
        self.give_back_some();
    }

    fn give_back_some(&self) {
        for _ in 0..GIVEN_BACK_AT_ONCE {
            let next = self.returning.borrow_mut().pop_front();
            let Some(object) = next else { break };
            self.return_one(object);
        }
        if !self.returning.borrow().is_empty() {
            self.many_return.notify_one();
        }
        self.settled.notify_one();
    }

    /// Gives back what was too much for one go, and lets everybody else have a turn in between. Never ends.
    pub(crate) async fn give_back_the_rest(&self) {
        loop {
            self.many_return.notified().await;
            tokio::task::yield_now().await;
            self.give_back_some();
        }
    }

    /// Gives an object back if no work can reach it and the executor holds nothing of it.
    pub(crate) fn may_give_back(&self, object: ObjectId) {
        self.return_one(object);
        self.settled.notify_one();
    }

    /// The same without a word to those who wait for revocations.
    fn return_one(&self, object: ObjectId) {
        if self.state(object) != ObjectState::Quiescent {
            return;
        }
        let thing = match self.thing(object) {
            Ok(thing) => thing,
            Err(error) => return self.expect::<()>(Err(error), "give back"),
        };
        if let What::Code(code) = &thing.what
            && code.state.get() != Loaded::No
        {
            return S::unload(&thing, object);
        }
        if let What::Module(owned) = &thing.what
            && owned.state.get() != Loaded::No
        {
            return S::remove_module(&thing, object);
        }
        if thing.is_held() {
            return;
        }
        let freed = self.tree.borrow_mut().free(object);
        self.note(freed, "free");
        if let Some(place) = self.things.borrow_mut().get_mut(object.index() as usize) {
            *place = None;
        }
        if let Some(session) = thing.session.upgrade() {
            session.gave_back(object, &thing);
        }
    }
}

#[cfg(test)]
mod tests;
