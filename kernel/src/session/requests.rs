//! What a session has its executor do. Whatever changes the executor's tables goes through [`Session::ask`],
//! [`Session::ask_in_turn`], [`Session::ask_twice`], [`Session::map`] or [`Session::split`], which tell a standby that follows the session too.

use std::{future::Future, os::fd::OwnedFd, rc::Rc};

use bulkhead_caps::Access;
use bulkhead_mm::{DeviceAddress, Range};
use bulkhead_schema::{Error, ErrorCode, Handle, Run, executor_capnp};
use tokio::sync::{oneshot, watch};

use crate::session::{Phase, Session, Told};
use crate::{
    executor_proxy::{Answer, Answering, Incarnation, Link, Passed, Request, length, no_descriptors},
    refusal::internal,
};

/// Pieces of memory that are on their way from one executor to another at a time: each is a descriptor.
const EXPORTS: usize = 64;

/// What a handle means to the executor: memory of the session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) handle: Handle,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// Two executors that are asked the same for a session.
pub(crate) struct Pair {
    session: u32,
    first: Rc<Link>,
    second: Rc<Link>,
    phase: watch::Receiver<Phase>,
    told: watch::Sender<Told>,
    adopting: watch::Sender<usize>,
}

impl Pair {
    /// Notes that the second does not do what the first does: the session does not go on with it from now on, and its
    /// keeper has it closed there. Others keep their standby.
    pub(crate) fn falls_behind(&self, why: &Error) {
        // What is over is closed here first or there first, and then answers differ.
        if self.second.failure().is_none() && *self.phase.borrow() == Phase::Open {
            tracing::warn!(session = self.session, %why, "a standby does not follow a session");
            self.told.send_replace(Told::Behind);
        }
    }

    /// Begins to hand memory over: until that ends, the session does not go on with the second.
    fn adopting(&self) -> Adopting {
        self.adopting.send_modify(|count| *count += 1);
        Adopting(self.adopting.clone())
    }
}

/// Memory that is on its way to a standby.
struct Adopting(watch::Sender<usize>);

impl Drop for Adopting {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// A change of the session's memory or code that is under way.
pub(crate) struct Change<'a>(&'a Session);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.changes.send_modify(|changes| *changes = changes.saturating_sub(1));
    }
}

impl Session {
    /// The executor that serves it.
    pub(crate) fn incarnation(&self) -> Rc<Incarnation> {
        Rc::clone(&self.incarnation.borrow())
    }

    pub(crate) fn link(&self) -> Rc<Link> {
        Rc::clone(&self.incarnation.borrow().link)
    }

    /// Asks its executor alone something that leaves the executor's tables as they are.
    pub(crate) fn ask_alone(
        &self,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        self.link().call(Some(self.id), descriptors, build)
    }

    /// Notes that the executor's tables change.
    pub(crate) fn note_asked(&self) {
        self.asked.set(self.asked.get().wrapping_add(1));
    }

    /// Does something again that was lost with an executor, once the session goes on with another.
    pub(crate) async fn again<T, F>(&self, mut work: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            match work().await {
                Err(error) if error.code == ErrorCode::DeviceLost && self.may_move().await => {
                    tracing::debug!(session = self.id, %error, "done again");
                }
                done => return done,
            }
        }
    }

    /// Asks the executor something about this session, and tells a standby.
    pub(crate) fn ask(
        &self,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        self.note_asked();
        let mut request = Request::new(build);
        let Some(standby) = self.standby() else {
            return self.link().send_request(Some(self.id), descriptors, &mut request);
        };
        let copies: Result<Vec<_>, _> = descriptors.iter().map(OwnedFd::try_clone).collect();
        let first = self.link().send_request(Some(self.id), descriptors, &mut request);
        match copies {
            Ok(copies) => {
                let second = standby.link.send_request(Some(self.id), copies, &mut request);
                Box::pin(either(self.pair(&standby), first, second))
            }
            Err(error) => {
                let why = format!("a descriptor for the standby cannot be copied: {error}");
                self.pair(&standby).falls_behind(&Error::new(ErrorCode::LimitReached, why));
                first
            }
        }
    }

    /// The same where the executor may find no room though a standby has some: that is asked when the executor has done it.
    pub(crate) async fn ask_in_turn(
        &self,
        descriptor: OwnedFd,
        build: impl Fn(executor_capnp::request::Builder<'_>),
    ) -> Result<Answer, Error> {
        self.note_asked();
        let standby = self.standby().map(|standby| (self.pair(&standby), descriptor.try_clone()));
        let first = self.link().send_request(Some(self.id), vec![descriptor], &mut Request::new(&build));
        let answer = first.await?;
        let Some((pair, copy)) = standby else { return Ok(answer) };
        let copied = |error| {
            Error::new(
                ErrorCode::LimitReached,
                format!("a descriptor for the standby cannot be copied: {error}"),
            )
        };
        let second = match copy.map_err(copied) {
            Ok(copy) => pair.second.send_request(Some(self.id), vec![copy], &mut Request::new(&build)).await,
            Err(error) => Err(error),
        };
        match second {
            // That is the one that serves now.
            Err(error) if pair.first.failure().is_some() => Err(error),
            Err(error) => {
                pair.falls_behind(&error);
                Ok(answer)
            }
            Ok(_) => Ok(answer),
        }
    }

    /// The same, where two answers come.
    pub(crate) fn ask_twice(
        &self,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> (oneshot::Receiver<()>, Answering) {
        self.note_asked();
        let mut request = Request::new(build);
        let (quiescent, first) = self.link().call_twice(Some(self.id), &mut request);
        let Some(standby) = self.standby() else { return (quiescent, first) };
        let (standing, second) = standby.link.call_twice(Some(self.id), &mut request);
        let (sender, both) = oneshot::channel();
        let (link, other) = (self.link(), Rc::clone(&standby.link));
        tokio::task::spawn_local(async move {
            let (own, theirs) = (quiescent.await.is_ok(), standing.await.is_ok());
            // Either may be lost meanwhile: what counts is whoever goes on.
            let own = own || link.failure().is_some() && theirs;
            let theirs = theirs || other.failure().is_some();
            if own && theirs {
                sender.send(()).unwrap_or_default();
            }
        });
        (both, Box::pin(either(self.pair(&standby), first, second)))
    }

    /// Has its kernels end, and whatever waits for them there. Nobody waits for the answer: the session is closed afterwards.
    pub(crate) fn ask_to_end(&self) {
        let why = self.live().err().unwrap_or_else(|| internal("a session is told to end and is not over"));
        let standby = self.standby.borrow().as_ref().map(|standby| Rc::clone(&standby.link));
        for link in std::iter::once(self.link()).chain(standby) {
            drop(link.call(None, Vec::new(), |request| {
                let mut end = request.init_end_session();
                end.set_session(self.id);
                why.write(end.init_error());
            }));
        }
    }

    /// Has the session closed. The first answer comes where all is gone but the slot, and then the second outlasts the
    /// session.
    pub(crate) fn ask_to_close(&self) -> (oneshot::Receiver<()>, Answering) {
        self.asked.set(self.asked.get().wrapping_add(1));
        let mut request = Request::new(|mut request| request.set_close_session(self.id));
        let (left, first) = self.link().call_twice(None, &mut request);
        let standby = self.standby.borrow().clone();
        let Some(standby) = standby else { return (left, first) };
        let (standing, second) = standby.link.call_twice(None, &mut request);
        let (sender, both) = oneshot::channel();
        tokio::task::spawn_local(async move {
            // An answer that never comes first came last.
            let (own, theirs) = (left.await.is_ok(), standing.await.is_ok());
            if own || theirs {
                sender.send(()).unwrap_or_default();
            }
        });
        (both, Box::pin(either(self.pair(&standby), first, second)))
    }

    pub(crate) fn pair(&self, standby: &Incarnation) -> Pair {
        Pair {
            session: self.id,
            first: self.link(),
            second: Rc::clone(&standby.link),
            phase: self.phase.subscribe(),
            told: self.told.clone(),
            adopting: self.adopting.clone(),
        }
    }

    /// The standby that knows the session.
    pub(crate) fn standby(&self) -> Option<Rc<Incarnation>> {
        let follows = *self.told.borrow() != Told::Behind;
        self.standby.borrow().as_ref().filter(|_| follows).map(Rc::clone)
    }

    /// Begins a change: until it ends, the executor is not asked to close the session.
    pub(crate) fn change(&self) -> Result<Change<'_>, Error> {
        self.live()?;
        self.changes.send_modify(|changes| *changes += 1);
        Ok(Change(self))
    }

    /// Maps new memory.
    pub(crate) fn map(&self, range: Range) -> Answering {
        self.note_asked();
        let mapped =
            self.ask_alone(Vec::new(), |request| write_range(request.init_map_arena(), self.id, range));
        let Some(standby) = self.standby() else { return mapped };
        let pair = self.pair(&standby);
        Box::pin(async move {
            let answer = mapped.await?;
            if matches!(answer, Answer::Done) {
                adopt(&pair, &[range]).await?;
            }
            Ok(answer)
        })
    }

    /// Has a piece of its memory cut in two. Where that fails, it is whole wherever the session goes on.
    pub(crate) fn split(&self, arena: Range, at: DeviceAddress) -> Answering {
        self.note_asked();
        let standby = self.standby();
        let split = self.ask_alone(Vec::new(), |request| {
            let mut split = request.init_split();
            split.set_at(at.0);
            split.set_keep(standby.is_some());
            write_range(split.init_arena(), self.id, arena);
        });
        let Some(standby) = standby else { return split };
        let pair = self.pair(&standby);
        Box::pin(async move {
            let answer = split.await?;
            if !matches!(answer, Answer::Done) {
                return Ok(answer);
            }
            let (head, tail) = (at.0.saturating_sub(arena.start().0), arena.end().0.saturating_sub(at.0));
            let pieces: Vec<_> =
                [Range::new(arena.start(), head), Range::new(at, tail)].into_iter().flatten().collect();
            hand_over_cut(&pair, arena, &pieces).await?;
            let Pair { session, first, second, .. } = &pair;
            let released = first
                .call(Some(*session), Vec::new(), |request| request.init_swap_in().set_session(*session));
            match released.await {
                // The pieces are the standby's now.
                Err(_) if first.failure().is_some() && second.failure().is_none() => Ok(Answer::Done),
                released => released,
            }
        })
    }

    /// Unmaps what lies there; the first answer comes when no work can reach it.
    pub(crate) fn unmap(&self, range: Range) -> (oneshot::Receiver<()>, Answering) {
        self.ask_twice(|request| write_range(request.init_unmap_arena(), self.id, range))
    }

    pub(crate) fn drain(&self) -> Answering {
        self.ask_alone(Vec::new(), |mut request| request.set_drain(self.id))
    }

    /// Tells the executor what handles mean.
    pub(crate) fn bind<'a>(&'a self, bound: &[Bound]) -> impl Future<Output = Result<(), Error>> + use<'a> {
        let asked = self.ask(Vec::new(), |request| {
            write_bindings(request.init_bind(), self.id, bound);
        });
        async move { self.done(&asked.await?) }
    }

    /// Tells the executor that handles are entries which another session loaded.
    pub(crate) fn bind_entries<'a>(
        &'a self,
        of: &Self,
        entries: &[(Handle, Handle)],
    ) -> impl Future<Output = Result<(), Error>> + use<'a> {
        let asked = self.ask(Vec::new(), |request| {
            let mut bind = request.init_bind();
            bind.set_session(self.id);
            let mut bindings = bind.init_bindings(length(entries.len()));
            for (at, (own, theirs)) in (0u32..).zip(entries) {
                let mut binding = bindings.reborrow().get(at);
                own.write(binding.reborrow().init_handle());
                of.write_name(binding.init_entry(), *theirs);
            }
        });
        async move { self.done(&asked.await?) }
    }

    /// Has new records refused that name these.
    pub(crate) fn unbind(&self, runs: &[Run]) -> Answering {
        self.ask(Vec::new(), |request| {
            let mut unbind = request.init_unbind();
            unbind.set_session(self.id);
            let mut list = unbind.init_runs(length(runs.len()));
            for (at, run) in (0u32..).zip(runs) {
                run.write(list.reborrow().get(at));
            }
        })
    }

    pub(crate) fn write_name(&self, mut name: executor_capnp::name::Builder<'_>, handle: Handle) {
        name.set_session(self.id);
        handle.write(name.init_handle());
    }

    /// An answer that was not one of those to what was asked.
    pub(crate) fn nonsense(&self, answer: &Answer) -> Error {
        self.link().fail_with(format!("it gave the wrong kind of answer: {}", answer.kind()));
        internal("the executor gave the wrong kind of answer")
    }

    pub(crate) fn done(&self, answer: &Answer) -> Result<(), Error> {
        match answer {
            Answer::Done => Ok(()),
            Answer::Device(_)
            | Answer::Opened(_)
            | Answer::Loaded(_)
            | Answer::Exported(_)
            | Answer::Activity(_)
            | Answer::Piece(_)
            | Answer::Variable(..)
            | Answer::Words(_)
            | Answer::Names(_) => Err(self.nonsense(answer)),
        }
    }
}

/// Says what handles mean.
pub(crate) fn write_bindings(mut bind: executor_capnp::bind::Builder<'_>, session: u32, bound: &[Bound]) {
    bind.set_session(session);
    let mut bindings = bind.init_bindings(length(bound.len()));
    for (at, one) in (0u32..).zip(bound) {
        let mut binding = bindings.reborrow().get(at);
        one.handle.write(binding.reborrow().init_handle());
        let mut buffer = binding.init_buffer();
        buffer.set_address(one.address);
        buffer.set_bytes(one.bytes);
        buffer.set_writable(one.access == Access::ReadWrite);
    }
}

/// The answer of two executors that were asked the same: the first's, or the second's where the first is lost and the
/// second goes on. Where the second answers otherwise, the session has no standby any more.
async fn either(pair: Pair, answer: Answering, same: Answering) -> Result<Answer, Error> {
    let (answer, same) = futures::future::join(answer, same).await;
    match (answer, same) {
        (Err(_), Ok(same)) if pair.first.failure().is_some() => Ok(same),
        (answer, same) => {
            if answer.is_ok() != same.is_ok() && pair.first.failure().is_none() {
                pair.falls_behind(&same.err().unwrap_or_else(|| internal("it does what was refused")));
            }
            answer
        }
    }
}

/// Has a standby adopt memory that another executor made: it does, or the session falls behind. An error says that the
/// other was lost before; the standby has nothing of it then.
pub(crate) async fn adopt(pair: &Pair, ranges: &[Range]) -> Result<(), Error> {
    let _adopting = pair.adopting();
    for (at, chunk) in (0..).step_by(EXPORTS).zip(ranges.chunks(EXPORTS)) {
        let adopted = match exported(pair, chunk).await {
            Ok(memory) => adopted(pair, memory).await,
            Err(error) if pair.first.failure().is_some() => {
                forget(pair.session, &pair.second, ranges.get(..at).unwrap_or_default()).await;
                return Err(error);
            }
            Err(error) => Err(error),
        };
        if let Err(error) = adopted {
            pair.falls_behind(&error);
            return Ok(());
        }
    }
    Ok(())
}

/// The same for the pieces of memory that was cut. The standby has it as it was until nothing of what it needs is the
/// other's any more; and the session is held until the standby has the pieces.
async fn hand_over_cut(pair: &Pair, arena: Range, pieces: &[Range]) -> Result<(), Error> {
    let _adopting = pair.adopting();
    let adopted = match exported(pair, pieces).await {
        Ok(memory) => {
            let mut unmap =
                Request::new(|request| write_range(request.init_unmap_arena(), pair.session, arena));
            let (_, unmapped) = pair.second.call_twice(Some(pair.session), &mut unmap);
            match unmapped.await {
                Ok(_) => adopted(pair, memory).await,
                Err(error) => Err(error),
            }
        }
        Err(error) if pair.first.failure().is_some() => return Err(error),
        Err(error) => Err(error),
    };
    if let Err(error) = adopted {
        pair.falls_behind(&error);
    }
    Ok(())
}

/// Memory on its way to a standby.
async fn exported(pair: &Pair, ranges: &[Range]) -> Result<Vec<(Range, Passed)>, Error> {
    let export = |range: &Range| {
        let asked = pair.first.call(Some(pair.session), Vec::new(), |request| {
            write_range(request.init_export_arena(), pair.session, *range);
        });
        (*range, asked)
    };
    let asked: Vec<_> = ranges.iter().map(export).collect();
    let mut memory = Vec::with_capacity(asked.len());
    for (range, exported) in asked {
        match exported.await? {
            Answer::Exported(Some(descriptor)) => memory.push((range, descriptor)),
            Answer::Exported(None) => return Err(no_descriptors()),
            _ => return Err(internal("the executor gave the wrong kind of answer")),
        }
    }
    Ok(memory)
}

async fn adopted(pair: &Pair, memory: Vec<(Range, Passed)>) -> Result<(), Error> {
    let adopt = |(range, descriptor)| {
        pair.second.call_with_passed(pair.session, descriptor, None, |request| {
            write_range(request.init_adopt_arena(), pair.session, range);
        })
    };
    let asked: Vec<_> = memory.into_iter().map(adopt).collect();
    for adopted in asked {
        adopted.await?;
    }
    Ok(())
}

/// Has a standby give up mappings, without touching what is there.
pub(crate) async fn forget(session: u32, standby: &Link, ranges: &[Range]) {
    if ranges.is_empty() {
        return;
    }
    let forgotten = standby.call(Some(session), Vec::new(), |request| {
        let mut swap = request.init_swap_out();
        swap.set_session(session);
        let mut list = swap.init_arenas(length(ranges.len()));
        for (at, range) in (0u32..).zip(ranges) {
            let mut span = list.reborrow().get(at);
            span.set_address(range.start().0);
            span.set_bytes(range.bytes());
        }
    });
    if let Err(error) = forgotten.await {
        standby.fail_with(format!("it does not give up memory: {error}"));
    }
}

pub(crate) fn write_range(mut builder: executor_capnp::range::Builder<'_>, session: u32, range: Range) {
    builder.set_session(session);
    builder.set_address(range.start().0);
    builder.set_bytes(range.bytes());
}
