//! The way to another executor: a standby is told all of a session, and goes on with it when its own is lost.

use std::{future::Future, os::fd::OwnedFd, rc::Rc, time::Duration};

use bulkhead_caps::Kind;
use bulkhead_mm::{Range, Resource};
use bulkhead_schema::{Error, ErrorCode, Handle, limits};
use futures::future;
use tokio::sync::oneshot;

use crate::{
    executor_proxy::{Answer, Answering, Incarnation, Passed, length, no_descriptors},
    ledger::Charge,
    refusal::internal,
    registry::{Loaded, What},
    session::{
        Bound, Object, Session, Told,
        device::Device,
        memory::mapping::Mapping,
        requests::{write_bindings, write_range},
    },
};

/// Bindings in one packet to an executor.
const BINDINGS_PER_PACKET: usize = 1000;
/// How often it is seen whether sessions are at rest.
const LOOK: Duration = Duration::from_millis(5);

/// Held for whoever waits until a standby knows a session, and dropped once nobody should.
pub(crate) type Awaited = oneshot::Sender<()>;

/// What a session has of others: their memory, by the handles that it was accepted for, and entries of its parent's.
struct Others {
    memory: Vec<(Handle, Rc<Mapping<Session>>)>,
    lent: Vec<(Handle, Handle)>,
}

impl Session {
    /// Keeps a standby told of the session, as long as both are there: as soon as it is at rest, and again where it fell
    /// behind. Nobody waits for that who waits for others: each session is told by a task of its own.
    pub(crate) async fn follow(self: Rc<Self>, standby: Rc<Incarnation>, awaited: Awaited) {
        let same = |known: &Rc<Incarnation>| Rc::ptr_eq(known, &standby);
        // Somebody else tells it of a session that was opened just when it came.
        if self.follows.borrow().as_ref().is_some_and(same) {
            return;
        }
        self.follows.replace(Some(Rc::clone(&standby)));
        let mut awaited = Some(awaited);
        // Where its executor was just lost it moves to the standby before this one first.
        while self.may_move().await
            && self.follows.borrow().as_ref().is_some_and(same)
            && !same(&self.incarnation())
        {
            self.told.send_replace(Told::Nothing);
            match self.tell_all(&standby, &mut awaited).await {
                Err(error) if self.standby.borrow().as_ref().is_some_and(same) => {
                    self.fall_behind(&error.message).await;
                }
                Err(error) if standby.link.failure().is_none() => self.has_no_standby(&error.message),
                Ok(()) | Err(_) => {}
            }
            drop(awaited.take());
            let mut told = self.told.subscribe();
            let behind = async {
                // The sender is a field of `self`, so the wait cannot fail.
                drop(told.wait_for(|told| *told == Told::Nothing).await);
                tokio::time::sleep(self.limits.seconds(limits::STANDBY_REST_SECONDS)).await;
            };
            tokio::select! {
                _ = self.over() => return,
                _ = standby.link.ended() => return,
                () = behind => {}
            }
        }
    }

    /// Tells a standby of the session: first what it has, then, once that is known there, what it has of others.
    async fn tell_all(
        self: &Rc<Self>,
        standby: &Rc<Incarnation>,
        awaited: &mut Option<Awaited>,
    ) -> Result<(), Error> {
        let Some(others) = self.tell_own(standby, awaited).await? else { return Ok(()) };
        if !(others.memory.is_empty() && others.lent.is_empty()) {
            self.knows(Told::Own);
            self.patiently(awaited, self.until_known(&others, standby)).await?;
            self.tell_of_others(&others, standby).await?;
        }
        self.knows(Told::All);
        if awaited.is_none() {
            tracing::info!(session = self.id, pid = standby.pid, "the session has a standby again");
        }
        Ok(())
    }

    /// Says so, at most as often as the session is told.
    fn has_no_standby(&self, why: &str) {
        tracing::warn!(
            target: "bulkhead::audit",
            session = self.id, why, "the session has no standby for now"
        );
    }

    /// Notes what the standby knows, unless the session has fallen behind meanwhile.
    fn knows(&self, more: Told) {
        self.told.send_if_modified(|told| {
            let follows = *told > Told::Nothing;
            if follows {
                *told = more;
            }
            follows
        });
    }

    /// Waits for what can take as long as some session likes. After a while nobody waits for this session any more.
    async fn patiently<T>(&self, awaited: &mut Option<Awaited>, rest: impl Future<Output = T>) -> T {
        tokio::pin!(rest);
        if awaited.is_some() {
            tokio::select! {
                biased;
                done = &mut rest => return done,
                () = tokio::time::sleep(self.limits.seconds(limits::STANDBY_REST_SECONDS)) => {}
            }
            drop(awaited.take());
            self.has_no_standby("it does not rest, or one does not whose memory or code it has");
        }
        rest.await
    }

    /// Tells a standby what is the session's own; what it had of others then. `None` where it is over before that.
    async fn tell_own(
        self: &Rc<Self>,
        standby: &Rc<Incarnation>,
        awaited: &mut Option<Awaited>,
    ) -> Result<Option<Others>, Error> {
        if self.live().is_err() {
            return Ok(None);
        }
        // A session that was there before may still be closing. Who has the slot has it until that is answered.
        let lease = tokio::select! {
            lease = standby.lease_same_when_free(self.slot) => lease,
            _ = self.over() => None,
        };
        let Some(lease) = lease else { return Ok(None) };
        let opened = standby.link.call(Some(self.id), Vec::new(), |request| {
            let mut open = request.init_open_session();
            open.set_session(self.id);
            open.set_slot(self.slot.index());
            let (streams, events) = self.reserved();
            open.set_streams(streams);
            open.set_events(events);
        });
        match opened.await? {
            Answer::Opened(_) => {}
            _ => return Err(internal("the standby gave the wrong kind of answer")),
        }
        let (answers, others) = match self.patiently(awaited, self.tell_as_it_is(standby)).await {
            Ok(Some(told)) => {
                self.standby_lease.replace(Some(lease));
                told
            }
            untold => {
                // Nobody else has it closed there, and until it is, its slot is nobody's.
                let closed = self.close_in(standby).await;
                drop(lease);
                return untold.and(closed.map(|()| None));
            }
        };
        for answer in answers {
            answer.await?;
        }
        let allowed: Vec<_> = self.allowed.borrow().iter().map(|(entry, bytes)| (*entry, *bytes)).collect();
        for (entry, bytes) in &allowed {
            let allowed = standby.link.call(Some(self.id), Vec::new(), |request| {
                let mut allow = request.init_allow_dynamic_shared();
                self.write_name(allow.reborrow().init_name(), *entry);
                allow.set_bytes(*bytes);
            });
            allowed.await?;
        }
        Ok(Some(others))
    }

    /// Tells a standby that has it open what the session has, once that is at rest. `None` where it is over before that.
    async fn tell_as_it_is(
        self: &Rc<Self>,
        standby: &Rc<Incarnation>,
    ) -> Result<Option<(Vec<Answering>, Others)>, Error> {
        let own = self.link();
        tokio::select! {
            biased;
            _ = self.over() => Ok(None),
            failure = standby.link.ended() => Err(failure.error()),
            failure = own.ended() => Err(failure.error()),
            told = async {
                // Whether or not it ever rests: others who do may call their gates.
                self.tell_windows(standby).await?;
                self.tell_at_rest(standby).await
            } => told.map(Some),
        }
    }

    async fn tell_at_rest(&self, standby: &Rc<Incarnation>) -> Result<(Vec<Answering>, Others), Error> {
        loop {
            let asked = self.asked.get();
            if self.is_at_rest() {
                let memory = self.export().await;
                // Nothing has changed meanwhile, or is changing: what follows is told in one go.
                if self.asked.get() == asked && self.is_at_rest() && self.can_call_in(standby) {
                    let answers = self.tell(standby, memory?)?;
                    self.standby.replace(Some(Rc::clone(standby)));
                    self.told.send_replace(Told::Some);
                    return Ok((answers, self.others()));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether nothing of it is changing or being unmapped.
    fn is_at_rest(&self) -> bool {
        self.live().is_ok() && *self.changes.borrow() == 0 && self.unmapping.get() == 0
    }

    /// Has a standby close it.
    async fn close_in(&self, standby: &Incarnation) -> Result<(), Error> {
        let closed =
            standby.link.call(None, Vec::new(), |mut request| request.set_close_session(self.id)).await;
        match closed {
            Err(error) if standby.link.failure().is_none() && !is_unknown(&error) => {
                standby.link.fail_with(format!("it does not close a session: {error}"));
                Err(error)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The standby does not know the session after all: it is closed there, and lost with its executor unless it is told
    /// again before. The others keep their standby.
    pub(crate) async fn fall_behind(&self, why: &str) {
        // What is over is closed in both by its keeper.
        if self.live().is_err() {
            return;
        }
        self.told.send_replace(Told::Nothing);
        let Some(standby) = self.standby.take() else { return };
        let lease = self.standby_lease.take();
        if standby.link.failure().is_some() {
            return;
        }
        self.has_no_standby(why);
        drop(self.close_in(&standby).await);
        drop(lease);
    }

    /// Waits until its standby does not do what its executor does.
    pub(crate) async fn until_behind(&self) {
        let mut told = self.told.subscribe();
        // The sender is a field of `self`, so the wait cannot fail.
        drop(told.wait_for(|told| *told == Told::Behind).await);
    }

    fn others(&self) -> Others {
        let mappings = self.mappings.borrow();
        let memory = mappings.iter().map(|(handle, mapping)| (*handle, Rc::clone(mapping))).collect();
        Others { memory, lent: self.lent.borrow().clone() }
    }

    /// Waits until a standby knows those whose memory and code the session has. They need not know of each other's.
    async fn until_known(&self, others: &Others, standby: &Rc<Incarnation>) -> Result<(), Error> {
        let lenders = others.memory.iter().filter_map(|(_, mapping)| mapping.lender());
        let parent = self.parent.iter().map(|parent| Rc::clone(&parent.session));
        for other in lenders.chain(parent) {
            while !other.is_known_to(standby) {
                self.live()?;
                other.live()?;
                if let Some(failure) = standby.link.failure() {
                    return Err(failure.error());
                }
                let fell_behind = *self.told.borrow() <= Told::Nothing;
                let is_too_late = self.link().failure().is_some() && *other.told.borrow() <= Told::Nothing;
                if fell_behind || is_too_late {
                    return Err(internal("the standby does not know what the session has of others"));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// Whether an executor knows what is the session's own.
    fn is_known_to(&self, executor: &Rc<Incarnation>) -> bool {
        let stands_by = self.standby().is_some_and(|standby| Rc::ptr_eq(&standby, executor));
        Rc::ptr_eq(&self.incarnation(), executor) || stands_by && *self.told.borrow() >= Told::Own
    }

    async fn tell_of_others(&self, others: &Others, standby: &Rc<Incarnation>) -> Result<(), Error> {
        // What ended meanwhile was unmapped there already, or will be.
        for (handle, _) in &others.memory {
            self.registry().look(self.owner, *handle)?;
        }
        let mut answers: Vec<Answering> = Vec::new();
        for (lender, from, to) in others.memory.iter().flat_map(|(_, mapping)| mapping.pieces()) {
            answers.push(standby.link.call(Some(self.id), Vec::new(), |request| {
                let mut share = request.init_share();
                write_range(share.reborrow().init_from(), lender.id, from);
                write_range(share.init_to(), self.id, to);
            }));
        }
        if let Some(parent) = &self.parent
            && !others.lent.is_empty()
        {
            answers.push(standby.link.call(Some(self.id), Vec::new(), |request| {
                let mut bind = request.init_bind();
                bind.set_session(self.id);
                let mut bindings = bind.init_bindings(length(others.lent.len()));
                for (at, (own, theirs)) in (0u32..).zip(&others.lent) {
                    let mut binding = bindings.reborrow().get(at);
                    own.write(binding.reborrow().init_handle());
                    parent.session.write_name(binding.init_entry(), *theirs);
                }
            }));
        }
        for answer in answers {
            answer.await?;
        }
        Ok(())
    }

    /// What the session has on the device, object by object.
    pub(crate) fn things(&self) -> Vec<Rc<Object>> {
        let objects: Vec<_> = self.objects.borrow().iter().copied().collect();
        objects.into_iter().filter_map(|object| self.registry().thing(object).ok()).collect()
    }

    /// Its device memory, to be adopted, piece by piece.
    async fn export(&self) -> Result<Vec<(Range, Passed)>, Error> {
        let mut asked = Vec::new();
        for thing in self.things() {
            let What::Memory(memory) = &thing.what else { continue };
            if !memory.is_mapped() || memory.away.get() {
                continue;
            }
            for range in memory.pieces().into_iter().filter_map(|piece| piece.at(memory.range.start())) {
                let exported = self.ask_alone(Vec::new(), |request| {
                    write_range(request.init_export_arena(), self.id, range);
                });
                asked.push((range, exported));
            }
        }
        let mut memory = Vec::with_capacity(asked.len());
        for (range, exported) in asked {
            match exported.await? {
                Answer::Exported(Some(descriptor)) => memory.push((range, descriptor)),
                Answer::Exported(None) => return Err(no_descriptors()),
                other => return Err(self.nonsense(&other)),
            }
        }
        Ok(memory)
    }

    /// Tells a standby, without waiting, of memory, host memory, code and names.
    fn tell(&self, standby: &Incarnation, memory: Vec<(Range, Passed)>) -> Result<Vec<Answering>, Error> {
        let link = &standby.link;
        let copied = |error| internal(format!("a descriptor cannot be copied: {error}"));
        let mut answers: Vec<_> = self.tell_area(standby)?.into_iter().collect();
        for (range, descriptor) in memory {
            answers.push(link.call_with_passed(self.id, descriptor, None, |request| {
                write_range(request.init_adopt_arena(), self.id, range);
            }));
        }
        // Before the code that calls them.
        answers.extend(self.tell_gates(standby));
        let named: Vec<_> = self.registry().of_owner(self.owner);
        for thing in self.things() {
            match &thing.what {
                What::Host { bytes, memory, place, mapped, .. } => {
                    // Host memory has one capability, which is what the executor knows it by.
                    let handle = named.iter().find(|(_, view)| {
                        view.kind == Kind::HostBuffer
                            && self
                                .registry()
                                .thing(view.object)
                                .is_ok_and(|named| Rc::ptr_eq(&named, &thing))
                    });
                    let Some((handle, _)) = handle.filter(|_| place.is_none() || mapped.get()) else {
                        continue;
                    };
                    let descriptor = memory.try_clone().map_err(copied)?;
                    answers.push(link.call(Some(self.id), vec![descriptor], |request| {
                        let mut register = request.init_register_host();
                        self.write_name(register.reborrow().init_name(), *handle);
                        register.set_bytes(*bytes);
                        register.set_address(place.map_or(0, |place| place.start().0));
                    }));
                }
                What::Code(code) => {
                    let (Some(handle), Loaded::Yes) = (code.handle.get(), code.state.get()) else { continue };
                    // An isolated session has no standby.
                    let Some(text) = &code.text else { continue };
                    let descriptor = text.try_clone().map_err(copied)?;
                    // It is answered after the session's close where that comes meanwhile.
                    answers.push(link.call(None, vec![descriptor], |request| {
                        let entries = code.entries.borrow();
                        let mut load = request.init_load_image();
                        self.write_name(load.reborrow().init_name(), handle);
                        let mut list = load.init_entries(length(entries.len()));
                        for (at, (entry, _)) in (0u32..).zip(entries.iter()) {
                            entry.write(list.reborrow().get(at));
                        }
                    }));
                }
                // Modules are told before that.
                What::Memory(_) | What::Point(_) | What::Program | What::Peer | What::Module(_) => {}
            }
        }
        let bound: Vec<Bound> = named.iter().filter_map(|(handle, view)| self.bound(*handle, view)).collect();
        for bound in bound.chunks(BINDINGS_PER_PACKET) {
            answers.push(link.call(Some(self.id), Vec::new(), |request| {
                write_bindings(request.init_bind(), self.id, bound);
            }));
        }
        Ok(answers)
    }

    /// The mapping that a capability was accepted for, or the one that it was derived from.
    fn mapping_of(&self, handle: Handle, parent: Option<Handle>) -> Option<Rc<Mapping<Session>>> {
        let mappings = self.mappings.borrow();
        if mappings.is_empty() {
            return None;
        }
        let (mut at, mut above) = (handle, parent);
        loop {
            if let Some(mapping) = mappings.get(&at) {
                return Some(Rc::clone(mapping));
            }
            at = above?;
            above = self.registry().look(self.owner, at).ok()?.parent;
        }
    }

    /// What a capability for memory means to the executor.
    fn bound(&self, handle: Handle, view: &bulkhead_caps::View) -> Option<Bound> {
        if view.kind != Kind::Buffer {
            return None;
        }
        let thing = self.registry().thing(view.object).ok()?;
        let What::Memory(memory) = &thing.what else { return None };
        let own = self.objects.borrow().contains(&view.object);
        let address = match self.mapping_of(handle, view.parent) {
            Some(mapping) => mapping.address(view.offset)?,
            None if own && !self.is_on_shelf(memory.range) => {
                memory.range.start().0.checked_add(view.offset)?
            }
            None => return None,
        };
        Some(Bound { handle, address, bytes: view.bytes, access: view.access })
    }

    /// Goes on with the standby where there is one that knows the session; tells then when that ends the session.
    pub(crate) async fn go_on(self: &Rc<Self>) -> Option<oneshot::Receiver<Error>> {
        // A move that is under way ends, and so does who tells the standby: what they ask of this executor has failed.
        let rest = self.rest().await;
        // Whether the standby has what it is being handed is known soon: its link ends where it does not answer.
        drop(self.adopting.subscribe().wait_for(|count| *count == 0).await);
        let mut told = self.told.subscribe();
        // The senders are fields of `self`, so the waits cannot fail.
        drop(told.wait_for(|told| matches!(told, Told::Behind | Told::Nothing | Told::All)).await);
        let has_windows = self.standby.borrow().as_ref().is_some_and(|next| self.has_windows_in(next));
        if *told.borrow() != Told::All || !has_windows {
            self.fall_behind("its executor is lost before that was told all of it").await;
            return None;
        }
        self.told.send_replace(Told::Nothing);
        let next = self.standby.take().filter(|next| next.link.failure().is_none())?;
        let ended = next.link.session_ended(self.id);
        self.link().forget_session(self.id);
        self.incarnation.replace(next);
        let lease = self.standby_lease.take();
        self.lease.replace(lease);
        // Nothing is taken from the ring before it is held.
        if let Err(error) = self.stay_away(&rest).await {
            self.end(&error);
            return None;
        }
        let ring = self.ring.borrow().as_ref().and_then(|ring| ring.memory.try_clone().ok())?;
        let resumed = self.ask_alone(vec![ring], |request| {
            let mut resume = request.init_resume();
            resume.set_session(self.id);
            resume.set_lost(true);
            resume.set_times(self.moves.borrow().saturating_add(1));
        });
        match resumed.await {
            Ok(Answer::Opened(Some(page))) => {
                self.page.replace(Some(page));
                self.moves.send_modify(|moves| *moves = moves.saturating_add(1));
                self.has_left_windows();
                tracing::warn!(target: "bulkhead::audit", session = self.id, "session moved to the standby");
                Some(ended)
            }
            Ok(Answer::Opened(None)) => {
                self.end(&no_descriptors());
                None
            }
            Ok(other) => {
                self.end(&self.nonsense(&other));
                None
            }
            Err(error) => {
                self.end(&error);
                None
            }
        }
    }

    /// Waits, where its executor is lost, until the session has moved to another or is over; whether it has moved.
    pub(crate) async fn may_move(&self) -> bool {
        while self.live().is_ok() && self.link().failure().is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.live().is_ok()
    }

    /// Waits until it has moved more than `seen` times: how often it has, and the page since then.
    pub(crate) async fn moved(
        &self,
        seen: u32,
        timeout: Duration,
    ) -> Result<(u32, Option<(OwnedFd, Charge)>), Error> {
        let mut moves = self.moves.subscribe();
        tokio::select! {
            biased;
            error = self.over() => return Err(error),
            _ = moves.wait_for(|moves| *moves > seen) => {}
            () = tokio::time::sleep(timeout) => return Ok((seen, None)),
        }
        let on_the_way = self.charge(Resource::Descriptors, 1)?;
        let page = self.page.borrow();
        let page = page.as_ref().ok_or_else(|| internal("a session moved without its page"))?;
        let page = page.try_clone().map_err(|error| {
            Error::new(ErrorCode::LimitReached, format!("a descriptor cannot be copied: {error}"))
        })?;
        Ok((*self.moves.borrow(), Some((page, on_the_way))))
    }
}

/// Whether an executor says that it knows of no such session.
fn is_unknown(error: &Error) -> bool {
    matches!(error.code, ErrorCode::NotFound | ErrorCode::InvalidHandle | ErrorCode::SessionLost)
}

impl Device {
    /// Has a standby told of every session, from here on; ends once it knows all of them but those that do not rest.
    pub(super) async fn tell(&self, standby: Rc<Incarnation>) {
        let follow = |session: Rc<Session>| {
            let (awaited, told) = oneshot::channel();
            tokio::task::spawn_local(session.follow(Rc::clone(&standby), awaited));
            told
        };
        // An isolated session has an executor of its own, with which it ends.
        let sessions =
            self.registry.sessions().into_iter().filter(|session| !session.device.executor.is_isolated());
        let told: Vec<_> = sessions.map(follow).collect();
        future::join_all(told).await;
    }
}
