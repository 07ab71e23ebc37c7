//! Memory of other sessions, mapped in this one.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bulkhead_caps::{Access, Kind, Need, View};
use bulkhead_mm::{DeviceAddress, PAGE_BYTES, Range, Resource};
use bulkhead_schema::{Error, ErrorCode, limits};
use tokio::{
    sync::{OwnedMutexGuard, OwnedRwLockReadGuard, oneshot, watch},
    time::Instant,
};

use crate::{
    executor_proxy::{Answer, no_descriptors},
    refusal::internal,
    registry::{Part, What},
    session::{
        Bound, Object, Session,
        memory::{
            mapping::{Mapping, Settling, memory_of},
            reserved::Where,
        },
        reference::{Facet, Reference, taken_back},
        requests::write_range,
    },
};

/// How long whoever maps memory waits for its owner's executor, which may be in somebody else's hands.
const EXPORT_PATIENCE: Duration = Duration::from_secs(5);

/// Pieces that are about to be mapped, in order: they are shared, so that nobody cuts them.
struct Sharing {
    thing: Rc<Object>,
    pieces: Vec<Part>,
    /// Whoever unmaps the memory in its own session waits for this.
    _reading: OwnedRwLockReadGuard<()>,
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if let Ok(memory) = memory_of(&self.thing) {
            self.pieces.iter().for_each(|piece| memory.unshare(*piece));
        }
    }
}

/// A capability for memory that was just accepted.
pub(crate) struct Accepted {
    pub(crate) held: Reference,
    pub(crate) facet: Facet,
    pub(crate) range: Range,
}

impl Mapping<Session> {
    /// Waits for somebody else, whom whoever takes the memory back must not wait for: no longer than the capability is there.
    /// Nor than the session that it is mapped in.
    async fn unless_dead<T>(
        &self,
        taker: &Session,
        waited: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut dead = self.dead.subscribe();
        tokio::select! {
            biased;
            _ = dead.wait_for(Option::is_some) => Err(taken_back()),
            over = taker.over() => Err(over),
            done = waited => done,
        }
    }

    /// Whether it is of another session's memory, and not of its own that lies nowhere else.
    pub(crate) fn is_of_another(&self, session: &Session) -> bool {
        self.thing.session.upgrade().is_none_or(|lender| lender.id != session.id)
    }

    /// It is not mapped any more.
    pub(crate) fn release(&self, session: &Session) -> Result<(), Error> {
        session.release_place(self.range, self.access)?;
        let memory = self.memory()?;
        memory.remove_mapping();
        for part in self.parts.take().into_iter().chain(self.uncertain.take()) {
            memory.unshare(part);
        }
        Ok(())
    }
}

impl Session {
    /// Maps memory into this session, for a capability that is derived from what was given: another session's, or its own
    /// that lies nowhere.
    pub(crate) async fn accept(
        self: Rc<Self>,
        given: Rc<Session>,
        parent: bulkhead_schema::Handle,
        facet: Facet,
        place: Where,
    ) -> Result<Accepted, Error> {
        self.again(|| self.accept_once(&given, parent, facet.clone(), place)).await
    }

    async fn accept_once(
        self: &Rc<Self>,
        given: &Rc<Session>,
        parent: bulkhead_schema::Handle,
        facet: Facet,
        place: Where,
    ) -> Result<Accepted, Error> {
        let access = facet.access();
        let bytes = self.registry().look(given.owner, parent)?.bytes;
        self.wait_for_place(place, bytes, access).await?;
        self.be_resident().await?;
        let _own_change = self.change()?;
        let _their_change = given.change()?;
        let view = self.registry().look(given.owner, parent)?;
        let thing = self.registry().thing(view.object)?;
        // Where both are about to go on with another executor, one may have and the other not yet.
        if let Some(lender) = thing.session.upgrade() {
            lender.may_move().await;
        }
        self.may_move().await;
        let lender = self.lender(given, &thing, view, access, place)?;
        self.await_lender(&lender, EXPORT_PATIENCE, lender.be_resident_for_another()).await?;
        let _lent = lender.change()?;
        // The child is there first: whatever is revoked from here on revokes it too.
        let charge = self.charge(Resource::Capabilities, 1)?;
        let need = Need { kind: Kind::Buffer, access, offset: 0, bytes: view.bytes };
        let handle = self.registry().derive(given.owner, parent, self.owner, need)?;
        charge.keep();
        let held = Reference::new(Rc::clone(self), handle);
        let range = self.take_place(place, view.bytes, access)?;
        let mapping = Rc::new(Mapping {
            object: view.object,
            thing,
            range,
            access,
            offset: view.offset,
            parts: RefCell::default(),
            uncertain: Cell::new(None),
            bound: Cell::new(false),
            settled: watch::Sender::new(false),
            dead: watch::Sender::new(None),
        });
        let memory = mapping.memory()?;
        memory.add_mapping();
        self.mappings.borrow_mut().insert(handle, Rc::clone(&mapping));
        let settling = Settling(Rc::clone(&mapping));
        // From here on the task that reclaims undoes what was done when `held` goes.
        let part = Part { offset: view.offset, end: view.offset + view.bytes };
        self.share(&lender, &mapping, part, &held).await?;
        let address = range.start().0;
        held.look()?;
        mapping.bound.set(true);
        let bound = self.bind(&[Bound { handle, address, bytes: view.bytes, access }]);
        mapping.unless_dead(self, bound).await?;
        drop(settling);
        held.look()?;
        let facet = match access {
            Access::ReadWrite => Facet::Buffer { address },
            Access::Read => Facet::View { address },
        };
        Ok(Accepted { held, facet, range })
    }

    /// Whose memory it is, where it can be mapped here.
    fn lender(
        &self,
        given: &Session,
        thing: &Object,
        view: View,
        access: Access,
        place: Where,
    ) -> Result<Rc<Session>, Error> {
        let unsupported =
            |message: &str, remedy: &str| Err(Error::new(ErrorCode::NotSupported, message).remedy(remedy));
        let What::Memory(memory) = &thing.what else {
            return unsupported(
                "host memory stays with its session",
                "copy it into device memory, and give that",
            );
        };
        let lender = thing.session.upgrade().ok_or_else(|| internal("memory belongs to nobody"))?;
        let lies_nowhere = lender.is_on_shelf(memory.range);
        if lies_nowhere && view.bytes != memory.range.bytes() {
            return unsupported(
                "a part of memory that was made without a place is not mapped",
                "map all of it",
            );
        }
        let is_own = lender.id == self.id || given.id == self.id;
        if is_own && lies_nowhere && place == Where::Anywhere {
            return Err(Error::new(
                ErrorCode::InvalidArgument,
                "its own memory is mapped where the session says",
            )
            .remedy("reserve addresses, and name one of them"));
        }
        if is_own && !(lies_nowhere && lender.id == self.id) {
            return Err(Error::new(ErrorCode::InvalidArgument, "the session has this memory mapped already")
                .remedy("use it as it is"));
        }
        let is_here = Rc::ptr_eq(&lender.incarnation(), &self.incarnation());
        let both_alone = self.device.executor.is_isolated() && lender.device.executor.is_isolated();
        if !is_here && both_alone && access == Access::Read {
            // Whoever has the descriptor may write.
            return unsupported(
                "an isolated session cannot be kept from writing to what it maps",
                "share a copy, or share it for reading and writing",
            );
        }
        if !is_here && !both_alone {
            let remedy = if self.device.executor.is_isolated() == lender.device.executor.is_isolated() {
                "open a new session"
            } else {
                "guarded and isolated sessions share no memory: run both programs with the same `--domain`"
            };
            return Err(
                Error::new(ErrorCode::NotPermitted, "the memory lies with another executor").remedy(remedy)
            );
        }
        if view.bytes == 0
            || !view.offset.is_multiple_of(PAGE_BYTES)
            || !view.bytes.is_multiple_of(PAGE_BYTES)
        {
            return unsupported(
                "only whole pages of 2 MiB can be mapped in another session",
                "allocate what is given in pages of its own",
            );
        }
        if !memory.is_mapped() {
            return Err(internal("memory is not where it should be"));
        }
        Ok(lender)
    }

    /// Waits for another session's executor; where that is its tenant's, no longer than this.
    async fn await_lender<T>(
        &self,
        lender: &Self,
        patience: Duration,
        waited: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if lender.id == self.id || !lender.device.executor.is_isolated() {
            return waited.await;
        }
        tokio::time::timeout(patience, waited).await.unwrap_or_else(|_| {
            let message = "the executor of whoever gave the memory does not hand it over";
            Err(Error::new(ErrorCode::Unavailable, message).remedy("try again: it may be busy"))
        })
    }

    /// Has its executor map what another isolated session's executor has made. Whatever that passes, nobody but this session maps
    /// it.
    async fn import(
        &self,
        lender: &Session,
        mapping: &Mapping<Self>,
        piece: Part,
        from: Range,
        to: Range,
    ) -> Result<Answer, Error> {
        // It may wait for long until this session's executor reads it.
        let on_the_way = self.charge(Resource::Descriptors, 1)?;
        let exported = lender.ask_alone(Vec::new(), |request| {
            write_range(request.init_export_arena(), lender.id, from);
        });
        let exported = self.await_lender(lender, EXPORT_PATIENCE, exported);
        let descriptor = match mapping.unless_dead(self, exported).await? {
            Answer::Exported(Some(descriptor)) => descriptor,
            Answer::Exported(None) => return Err(no_descriptors()),
            other => return Err(lender.nonsense(&other)),
        };
        if !descriptor.is_memory() {
            return Err(Error::new(ErrorCode::Protocol, "an executor hands over something else than memory"));
        }
        self.note_asked();
        // Where nobody waits for the answer it may be mapped all the same.
        mapping.uncertain.set(Some(piece));
        let imported = self.link().call_with_passed(self.id, descriptor, Some(on_the_way), |request| {
            write_range(request.init_import_arena(), self.id, to);
        });
        let answer = mapping
            .unless_dead(self, async { Ok(imported.await) })
            .await
            .inspect_err(|_| mapping.memory().map(|memory| memory.share(piece)).unwrap_or_default())?;
        mapping.uncertain.set(None);
        answer
    }

    /// Has every piece mapped; pieces that reach further are cut first. Others wait for the cuts and not for the mapping,
    /// which takes as long as this session's kernels run.
    async fn share(
        self: &Rc<Self>,
        lender: &Rc<Session>,
        mapping: &Mapping<Self>,
        part: Part,
        held: &Reference,
    ) -> Result<(), Error> {
        let start = mapping.memory()?.range.start();
        let nowhere = || internal("a piece lies nowhere");
        // What its owner's executor has begun is seen to its end, whoever waits for that.
        let (sender, receiver) = oneshot::channel();
        let (lent, thing) = (Rc::clone(lender), Rc::clone(&mapping.thing));
        tokio::task::spawn_local(Rc::clone(self).cut(lent, thing, part, sender));
        let cut = async { receiver.await.map_err(|_| internal("nobody cuts the memory"))? };
        let cut = self.await_lender(lender, self.limits.request(), cut);
        let mut sharing = mapping.unless_dead(self, cut).await?;
        while let Some(piece) = sharing.pieces.first().copied() {
            held.look()?;
            let from = piece.at(start).ok_or_else(nowhere)?;
            let to = mapping.place(piece).ok_or_else(nowhere)?;
            let shared = if Rc::ptr_eq(&lender.incarnation(), &self.incarnation()) {
                let shared = self.ask(Vec::new(), |request| {
                    let mut share = request.init_share();
                    write_range(share.reborrow().init_from(), lender.id, from);
                    write_range(share.init_to(), self.id, to);
                });
                shared.await?
            } else {
                self.import(lender, mapping, piece, from, to).await?
            };
            self.done(&shared)?;
            mapping.parts.borrow_mut().push(piece);
            sharing.pieces.remove(0);
        }
        Ok(())
    }

    /// Has a part of another session's memory cut out, for as long as somebody waits for it, and answers its pieces.
    async fn cut(
        self: Rc<Self>,
        lender: Rc<Session>,
        thing: Rc<Object>,
        part: Part,
        mut answer: oneshot::Sender<Result<Sharing, Error>>,
    ) {
        let cut = tokio::select! {
            biased;
            () = answer.closed() => return,
            locks = locks(&thing) => match locks {
                Ok((reading, _cutting)) => {
                    let cut = self.cut_up(&lender, &thing, part, &mut answer).await;
                    cut.map(|pieces| Sharing { thing: Rc::clone(&thing), pieces, _reading: reading })
                }
                Err(error) => Err(error),
            },
        };
        // What nobody waits for any more is not shared.
        drop(answer.send(cut));
    }

    async fn cut_up(
        &self,
        lender: &Session,
        thing: &Object,
        part: Part,
        answer: &mut oneshot::Sender<Result<Sharing, Error>>,
    ) -> Result<Vec<Part>, Error> {
        let memory = memory_of(thing)?;
        let start = memory.range.start();
        let _lent = lender.change()?;
        let deadline = Instant::now() + self.limits.seconds(limits::DRAIN_SECONDS);
        while let Some((piece, at)) = memory.cut(part).filter(|_| !answer.is_closed()) {
            if memory.is_shared(piece) {
                let message = "a larger part of the same memory is mapped in a session already";
                return Err(Error::new(ErrorCode::NotSupported, message)
                    .remedy("give the smaller part first, or take the larger one back"));
            }
            if memory.pieces_count() >= limits::PIECES_FOR_OTHERS_MAX && lender.id != self.id {
                let message = format!("it was cut into {} pieces for others", limits::PIECES_FOR_OTHERS_MAX);
                return Err(Error::new(ErrorCode::LimitReached, message)
                    .remedy("have allocations of their own given, or larger parts"));
            }
            let arena = piece.at(start).ok_or_else(|| internal("a piece lies nowhere"))?;
            let cut = DeviceAddress(start.0.saturating_add(at));
            let one_more = lender.charge(Resource::Pieces, 1)?;
            let pace = tokio::select! {
                biased;
                () = answer.closed() => break,
                over = lender.over() => return Err(over),
                pace = tokio::time::timeout_at(deadline, lender.cuts.turn()) => pace.map_err(|_| cut_up_for_others())?,
            };
            // However long that takes: until it is answered nobody knows what became of the piece.
            let split = lender.split(arena, cut).await.and_then(|answer| lender.done(&answer));
            drop(pace);
            match split {
                // Its kernels run: once more, after a pause.
                Err(error) if error.code == ErrorCode::TimedOut && Instant::now() < deadline => continue,
                split => split?,
            }
            memory.was_cut(at);
            one_more.keep();
        }
        if answer.is_closed() {
            return Err(taken_back());
        }
        let pieces = memory.pieces_of(part);
        pieces.iter().for_each(|piece| memory.share(*piece));
        Ok(pieces)
    }
}

fn cut_up_for_others() -> Error {
    let message = "memory of its owner's is being cut for others";
    Error::new(ErrorCode::TimedOut, message).remedy("try again, or have whole allocations given")
}

/// What keeps others from unmapping a memory in its own session, and from cutting it.
async fn locks(thing: &Object) -> Result<(OwnedRwLockReadGuard<()>, OwnedMutexGuard<()>), Error> {
    let memory = memory_of(thing)?;
    let reading = Arc::clone(&memory.sharing).read_owned().await;
    Ok((reading, Arc::clone(&memory.cutting).lock_owned().await))
}
