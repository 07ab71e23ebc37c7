//! The way back of what ended: unbound, then out of reach, then unmapped.

use std::rc::Rc;

use bulkhead_caps::{Ended, Extent, ObjectId};
use bulkhead_mm::Range;
use bulkhead_schema::{Error, ErrorCode, Handle, Run, limits};
use tokio::sync::oneshot;

use crate::{
    executor_proxy::Answering,
    refusal::internal,
    registry::{Batch, Budget, Hurry, Marked, Stage, What},
    session::{Object, Phase, Session, memory::mapping::Mapping},
};

/// Runs of handles in one packet to the executor, each of 16 bytes.
const RUNS_PER_PACKET: usize = 4096;

const _: () = assert!(RUNS_PER_PACKET * 16 + 1024 < limits::PACKET_BYTES_MAX);

/// What is mapped in a session for capabilities that ended.
struct Mapped {
    /// Memory of others.
    mappings: Vec<(Handle, Rc<Mapping<Session>>)>,
    /// Memory of its own.
    own: Vec<(ObjectId, Rc<Object>)>,
}

/// Longest pause between two times that an executor is asked for the same, in seconds.
const PAUSE_SECONDS_MAX: u32 = 8;

/// Pauses that grow: an executor may say at once that it takes long.
pub(crate) struct Pauses<'a> {
    session: &'a Session,
    what: &'static str,
    next: std::time::Duration,
}

impl Pauses<'_> {
    /// Waits, and tells of it as often as the session's principal may cause a line.
    pub(crate) async fn pause(&mut self) {
        if let Some(unsaid) = self.session.party.line() {
            tracing::info!(session = self.session.id, unsaid, "{}", self.what);
        }
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(self.session.limits.second * PAUSE_SECONDS_MAX);
    }
}

impl Session {
    /// The batch that takes what ends now.
    pub(crate) fn dying(&self) -> Rc<Batch> {
        let mut dying = self.dying.borrow_mut();
        Rc::clone(dying.get_or_insert_with(|| {
            self.reaping.send_modify(|batches| *batches += 1);
            self.unmapping.update(|batches| batches + 1);
            self.unsevered.send_modify(|batches| *batches += 1);
            self.batches.update(|batches| batches + 1);
            Rc::new(Batch::new(self.owner, self.batches.get()))
        }))
    }

    /// These capabilities of it have ended. Whoever is mapping their memory gives up, and lets go of whoever that is of: its
    /// task that reclaims may have to wait for an executor before it comes to them.
    pub(crate) fn has_ended(&self, ended: &[Ended]) {
        let mappings = self.mappings.borrow();
        ended.iter().filter_map(|one| mappings.get(&one.handle)).for_each(|mapping| mapping.end());
    }

    /// Remembers that so many of its capabilities are on their way, until their batch is done.
    pub(crate) fn counts(&self, more: u32) {
        self.on_their_way.update(|count| count.saturating_add(more));
    }

    /// Refuses new capabilities while very many that ended wait for running work: each of them is remembered until then.
    pub(crate) fn may_end_more(&self) -> Result<(), Error> {
        if self.on_their_way.get() < limits::ENDED_CAPABILITIES_MAX {
            return Ok(());
        }
        let message = format!(
            "{} capabilities that the session has closed wait for work that runs, and no more than {} may",
            self.on_their_way.get(),
            limits::ENDED_CAPABILITIES_MAX
        );
        Err(Error::new(ErrorCode::LimitReached, message).remedy("wait until the kernels that run have ended"))
    }

    /// The same for those to whom something of it was given: each new gift has a budget of its own, and all of them this.
    pub(crate) fn may_others_end_more(&self) -> Result<(), Error> {
        if self.others_on_their_way.get() < limits::ENDED_CAPABILITIES_MAX {
            return Ok(());
        }
        let message = format!(
            "{} capabilities that others made of what this session gave them, and dropped, wait for work that runs",
            self.others_on_their_way.get()
        );
        Err(Error::new(ErrorCode::LimitReached, message)
            .remedy("wait until the kernels of whoever gave it have ended"))
    }

    pub(crate) fn wake_reaper(&self) {
        self.dying_more.notify_one();
    }

    /// Closes a capability of it without anybody asking what becomes of that. Where it was given away, within a `budget`, it is its
    /// holder who lets go: nobody is in a hurry then, least of all the holder, and the budget is what counts it.
    pub(crate) fn revoke_unasked(&self, handle: Handle, budget: Option<&Rc<Budget>>) -> Result<(), Error> {
        let hurry = budget.map_or(Hurry::AllBut(self.owner), |_| Hurry::NobodyFor(self.owner));
        let marked = self.revoke_within(budget, handle, Extent::Whole, hurry)?;
        self.registry().forget(marked.id);
        Ok(())
    }

    /// The same, or what was derived from it alone, for somebody who asks what becomes of it.
    pub(crate) fn revoke_asked(
        &self,
        handle: Handle,
        extent: Extent,
        budget: Option<&Rc<Budget>>,
    ) -> Result<Marked, Error> {
        let hurry = budget.map_or(Hurry::AllBut(self.owner), |_| Hurry::AllButGiver(self.owner));
        self.revoke_within(budget, handle, extent, hurry)
    }

    fn revoke_within(
        &self,
        budget: Option<&Rc<Budget>>,
        handle: Handle,
        extent: Extent,
        hurry: Hurry,
    ) -> Result<Marked, Error> {
        let patience = self.limits.seconds(limits::DRAIN_SECONDS);
        let marked = self.registry().revoke(self.owner, hurry, handle, extent, patience)?;
        if let (Some(budget), Some(batch)) =
            (budget.filter(|_| marked.of_giver > 0), self.dying.borrow().as_ref())
        {
            batch.keep(budget.let_go(&self.others_on_their_way, marked.of_giver));
        }
        Ok(marked)
    }

    /// Waits a while for what ended to be given back.
    pub(crate) async fn wait_for_reclaim(&self) {
        let mut reaping = self.reaping.subscribe();
        let patience = self.limits.seconds(limits::DRAIN_SECONDS);
        // Out of patience or not, the caller tries again.
        drop(tokio::time::timeout(patience, reaping.wait_for(|batches| *batches == 0)).await);
    }

    /// Severs one batch after the other. Ends with the session.
    pub(crate) async fn reap_what_dies(self: Rc<Self>) {
        loop {
            let batch = self.dying.take();
            match batch {
                Some(batch) => {
                    let refused = self.sever(&batch).await;
                    // How long its work runs on is of no concern to the next.
                    tokio::task::spawn_local(Rc::clone(&self).reap(batch, refused));
                }
                None if self.is_closed() => return,
                None => tokio::select! {
                    () = self.dying_more.notified() => {}
                    () = self.until(Phase::Closed) => {}
                },
            }
        }
    }

    /// Has the executor refuse new records that name what ended; why it does not. An executor in its tenant's hands has no longer
    /// for that than the tenant has to let go.
    async fn sever(&self, batch: &Rc<Batch>) -> Option<Error> {
        let refused = tokio::select! {
            biased;
            refused = self.ask_to_sever(batch) => refused,
            () = self.is_late_with(batch), if self.device.executor.is_isolated() => {
                let error = self.overdue(batch);
                self.end(&error);
                Some(error)
            }
        };
        self.unsevered.send_modify(|batches| *batches = batches.saturating_sub(1));
        if refused.is_none() {
            self.severed(batch);
        }
        refused
    }

    /// Waits until a batch is overdue, or what has ended since and comes after it.
    async fn is_late_with(&self, batch: &Batch) {
        let next = || self.dying.borrow().as_ref().map(Rc::clone);
        loop {
            let behind = next();
            let behind = async {
                match behind {
                    Some(next) => next.overdue().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = batch.overdue() => return,
                () = behind => return,
                // Whether there is a next one is looked at now and then.
                () = tokio::time::sleep(self.limits.second) => {}
            }
        }
    }

    async fn ask_to_sever(&self, batch: &Batch) -> Option<Error> {
        let runs = Run::of(batch.dead().iter().map(|dead| dead.handle));
        let asked: Vec<_> = runs.chunks(RUNS_PER_PACKET).map(|runs| self.unbind(runs)).collect();
        let gates = self.revoke_gates(batch);
        let mut refused = self.close_modules(batch).await.err();
        for answer in gates {
            match answer.await.and_then(|answer| self.done(&answer)) {
                // It was never granted there.
                Err(error) if error.code == ErrorCode::NotFound => {}
                answered => refused = answered.err().or(refused),
            }
        }
        for answer in asked {
            refused = answer.await.and_then(|answer| self.done(&answer)).err().or(refused);
        }
        refused
    }

    fn severed(&self, batch: &Rc<Batch>) {
        batch.mark(self.registry().mark_line(batch, self.line));
        if batch.marked().is_some() {
            self.passing.batches.borrow_mut().push_back(Rc::clone(batch));
        }
        self.registry().severed(batch);
    }

    /// The executor does not do what it must: only the end of the session helps.
    async fn give_up(&self, error: Error, what: &'static str) {
        if self.live().is_ok() && self.link().failure().is_none() {
            if let Some(unsaid) = self.party.line() {
                tracing::error!(session = self.id, %error, what, unsaid, "the executor does not let go");
            }
            self.end(&error);
        }
        self.until(Phase::Closed).await;
    }

    /// Sees a batch to its end.
    async fn reap(self: Rc<Self>, batch: Rc<Batch>, refused: Option<Error>) {
        if let Some(error) = refused {
            self.give_up(error, "unbind").await;
            self.severed(&batch);
        }
        let given_back = self.let_go(&batch);
        tokio::pin!(given_back);
        let mut is_given_back = false;
        while !is_given_back || batch.stage() < Stage::Quiescent {
            let another_passes = self.passing.moved.notified();
            tokio::select! {
                biased;
                () = self.until(Phase::Closed) => break,
                () = &mut given_back, if !is_given_back => {
                    is_given_back = true;
                    self.quiescent(&batch);
                }
                () = another_passes, if is_given_back => {}
                () = batch.overdue(), if self.holds(&batch) && self.live().is_ok() => {
                    if self.holds(&batch) {
                        self.end(&self.overdue(&batch));
                    }
                }
            }
        }
        self.device_memory_unmapped(&batch);
        batch.reach(Stage::Done);
        self.reaping.send_modify(|batches| *batches = batches.saturating_sub(1));
        self.on_their_way.update(|count| count.saturating_sub(batch.count()));
        self.registry().settle();
    }

    /// Whether the session has not let go of a batch. Everybody's executor is believed that it unmaps what no work reaches any
    /// more; one in its tenant's hands has to have done it.
    fn holds(&self, batch: &Batch) -> bool {
        batch.stage() < Stage::Quiescent || self.device.executor.is_isolated() && batch.is_held()
    }

    async fn let_go(&self, batch: &Batch) {
        if batch.dead().is_empty() {
            return;
        }
        if self.live().is_err() {
            return self.until(Phase::Closed).await;
        }
        let mapped = self.mapped(batch);
        let (host, own): (Vec<_>, Vec<_>) =
            mapped.own.into_iter().partition(|(_, thing)| matches!(thing.what, What::Host { .. }));
        let mapped = Mapped { mappings: mapped.mappings, own };
        if mapped.mappings.is_empty() && mapped.own.is_empty() {
            self.device_memory_unmapped(batch);
        }
        if self.forget_away(&mapped.own).await {
            // Nothing of it is on the device, and what it submits is refused what was unbound.
            self.quiescent(batch);
            self.unmapped_own(mapped.own);
            self.device_memory_unmapped(batch);
            return self.let_host_go(host).await;
        }
        for (_, mapping) in &mapped.mappings {
            mapping.settled().await;
        }
        // Each of them is of another handle.
        let are_all = mapped.mappings.len() == batch.dead().len();
        if are_all && mapped.mappings.iter().all(|(_, mapping)| mapping.is_untouched()) {
            // What was not mapped, since that was refused, no work reaches.
            self.quiescent(batch);
            for (handle, _) in mapped.mappings {
                let mapping = self.mappings.borrow_mut().remove(&handle);
                mapping.iter().for_each(|mapping| self.unmapped(mapping));
            }
            return self.device_memory_unmapped(batch);
        }
        // One that was asked for, and for whose answer nobody waited, is there or is not: an isolated session's requests are done in
        // order. Where it was there, the first answer has come.
        for range in mapped.mappings.iter().filter_map(|(_, mapping)| mapping.uncertain()) {
            let (mut was_there, unmapped) = self.unmap(range);
            let is_absent = |error: &Error| error.code == ErrorCode::InvalidArgument;
            match unmapped.await.and_then(|answer| self.done(&answer)) {
                Ok(()) => {}
                Err(error) if is_absent(&error) && was_there.try_recv().is_err() => {}
                Err(error) => return self.give_up(error, "unmap").await,
            }
        }
        let ranges = match self.ranges(&mapped).await {
            Ok(ranges) => ranges,
            Err(error) => return self.give_up(error, "find what is mapped").await,
        };
        let (mut reached, answers): (Vec<_>, Vec<_>) =
            ranges.into_iter().map(|range| self.unmap(range)).unzip();
        let host: Vec<_> = host
            .into_iter()
            .map(|(object, thing)| {
                let (quiescent, unmapped) = self.unmap_host(&thing).unzip();
                reached.extend(quiescent);
                (object, thing, unmapped)
            })
            .collect();
        if reached.is_empty()
            && let Err(error) = self.drained().await
        {
            return self.give_up(error, "drain").await;
        }
        // Each of them: the executor may unmap them in different pauses, and what is launched between two reaches those that are left.
        let mut are_quiescent = true;
        for quiescent in reached {
            // Where one does not come, the second answer says why.
            are_quiescent &= quiescent.await.is_ok();
        }
        if are_quiescent {
            self.quiescent(batch);
        }
        for answer in answers {
            if let Err(error) = answer.await.and_then(|answer| self.done(&answer)) {
                return self.give_up(error, "unmap").await;
            }
        }
        for (handle, _) in mapped.mappings {
            let mapping = self.mappings.borrow_mut().remove(&handle);
            if let Some(mapping) = mapping {
                self.unmapped(&mapping);
            }
        }
        self.unmapped_own(mapped.own);
        self.device_memory_unmapped(batch);
        // Last: this may wait for the kernels of others.
        self.host_unmapped(host).await;
    }

    /// Host memory of a session that has no work on the device.
    async fn let_host_go(&self, host: Vec<(ObjectId, Rc<Object>)>) {
        let asked = host.into_iter().map(|(object, thing)| {
            let unmapped = self.unmap_host(&thing).map(|(_, unmapped)| unmapped);
            (object, thing, unmapped)
        });
        self.host_unmapped(asked.collect()).await;
    }

    /// Has host memory unmapped where its kernels reach it.
    fn unmap_host(&self, thing: &Object) -> Option<(oneshot::Receiver<()>, Answering)> {
        match &thing.what {
            What::Host { place, mapped, .. } => place.filter(|_| mapped.get()).map(|place| self.unmap(place)),
            What::Memory(_)
            | What::Code(_)
            | What::Point(_)
            | What::Program
            | What::Peer
            | What::Module(_) => None,
        }
    }

    async fn host_unmapped(&self, host: Vec<(ObjectId, Rc<Object>, Option<Answering>)>) {
        for (object, thing, unmapped) in host {
            let unmapped = match unmapped {
                Some(unmapped) => unmapped.await.and_then(|answer| self.done(&answer)),
                None => Ok(()),
            };
            match unmapped {
                Ok(()) => {}
                // Lost with its executor: the one that goes on was not told of what had ended.
                Err(error) if error.code == ErrorCode::DeviceLost && self.may_move().await => {}
                Err(error) => return self.give_up(error, "unmap host memory").await,
            }
            if let What::Host { mapped, .. } = &thing.what {
                mapped.set(false);
            }
            self.registry().may_give_back(object);
        }
    }

    fn unmapped_own(&self, own: Vec<(ObjectId, Rc<Object>)>) {
        for (object, thing) in own {
            if let What::Memory(memory) = &thing.what {
                memory.set_mapped(false);
            }
            self.registry().may_give_back(object);
        }
    }

    /// No device memory of a batch is mapped any more.
    fn device_memory_unmapped(&self, batch: &Batch) {
        if batch.is_mapped.replace(false) {
            self.unmapping.update(|batches| batches.saturating_sub(1));
        }
    }

    /// No work reaches a batch any more. The line that it stands on passes in order: where something that was severed before is
    /// still mapped, because it was being mapped, this one waits for that.
    fn quiescent(&self, batch: &Batch) {
        batch.has_passed.set(true);
        if batch.marked().is_none() {
            return batch.reach(Stage::Quiescent);
        }
        let mut last = None;
        while let Some(first) = self.first_passed() {
            first.reach(Stage::Quiescent);
            last = first.marked().or(last);
        }
        if let Some((line, mark)) = last {
            self.passing.moved.notify_waiters();
            self.registry().completed(line, mark);
        }
    }

    fn first_passed(&self) -> Option<Rc<Batch>> {
        let mut passing = self.passing.batches.borrow_mut();
        passing.front().is_some_and(|first| first.has_passed.get()).then(|| passing.pop_front()).flatten()
    }

    /// Waits until all that was submitted before has passed, however long that takes. The executor is asked once for all who wait.
    async fn drained(&self) -> Result<(), Error> {
        let begun = self.drains.begun.get();
        let _turn = self.drains.turn.lock().await;
        // What was asked after this had come covers this.
        if self.drains.passed.get() > begun {
            return Ok(());
        }
        let mut pauses = self.pauses("objects wait for running work");
        loop {
            self.drains.begun.update(|begun| begun + 1);
            match self.drain().await.and_then(|answer| self.done(&answer)) {
                Err(error) if error.code == ErrorCode::TimedOut => pauses.pause().await,
                // What was asked of an executor that is lost is asked of the one that goes on.
                Err(error) if error.code == ErrorCode::DeviceLost && self.may_move().await => {}
                Ok(()) => {
                    self.drains.passed.set(self.drains.begun.get());
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Pauses between two times that the executor is asked for the same.
    pub(crate) fn pauses(&self, what: &'static str) -> Pauses<'_> {
        Pauses { session: self, what, next: self.limits.second }
    }

    fn mapped(&self, batch: &Batch) -> Mapped {
        let known = self.mappings.borrow();
        let (mut mappings, mut own) = (Vec::new(), Vec::new());
        for dead in batch.dead().iter() {
            if dead.is_memory {
                own.extend(self.registry().thing(dead.object).ok().map(|thing| (dead.object, thing)));
            } else if let Some(mapping) = known.get(&dead.handle) {
                mappings.push((dead.handle, Rc::clone(mapping)));
            }
        }
        Mapped { mappings, own }
    }

    /// Where the executor has something mapped for them.
    async fn ranges(&self, mapped: &Mapped) -> Result<Vec<Range>, Error> {
        let mut ranges = Vec::new();
        for (_, mapping) in &mapped.mappings {
            ranges.extend(mapping.ranges());
        }
        for (_, thing) in &mapped.own {
            let What::Memory(memory) = &thing.what else { return Err(internal("memory is something else")) };
            // What is being shared is, or is not, first.
            drop(memory.sharing.write().await);
            if memory.is_mapped() {
                ranges.extend(memory.pieces().into_iter().filter_map(|piece| piece.at(memory.range.start())));
            }
        }
        Ok(ranges)
    }

    /// What is mapped here is unmapped.
    pub(crate) fn unmapped(&self, mapping: &Mapping<Session>) {
        let released = mapping.release(self);
        self.registry().expect(released, "unmap");
        self.registry().may_give_back(mapping.object);
    }

    /// Why it ends with what it does not let go of.
    fn overdue(&self, batch: &Batch) -> Error {
        let seconds = limits::DRAIN_SECONDS;
        let is_over = |giver: Rc<Session>| giver.live().is_err();
        let message = match batch.giver.get().map(|giver| self.registry().session(giver).is_none_or(is_over))
        {
            Some(true) => format!(
                "the session that gave memory or gates has ended, and they were still in use {seconds} s later"
            ),
            Some(false) | None => {
                format!("memory or code that was taken back was still in use after {seconds} s")
            }
        };
        Error::new(ErrorCode::Revoked, message)
            .remedy("open a new session, and keep kernels short that use what others gave")
    }
}
