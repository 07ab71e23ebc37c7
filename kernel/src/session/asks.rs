//! What a session has its executor do. Whatever changes the executor's books goes through [`Session::ask`],
//! [`Session::ask_twice`], [`Session::map`] or [`Session::split`], which tell a standby that follows the session too.

use std::{future::Future, os::fd::OwnedFd, rc::Rc};

use bulkhead_caps::Access;
use bulkhead_mm::{DeviceAddress, Range};
use bulkhead_schema::{Error, ErrorCode, Handle, Run, executor_capnp};
use tokio::sync::{Notify, oneshot, watch};

use super::{Phase, Session};
use crate::{
    executor::{Answer, Answering, Incarnation, Link, Passed, Request, length, no_descriptors},
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
struct Pair {
    first: Rc<Link>,
    second: Rc<Link>,
    phase: watch::Receiver<Phase>,
    /// Told when the second does otherwise.
    behind: Rc<Notify>,
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
    pub(super) fn incarnation(&self) -> Rc<Incarnation> {
        Rc::clone(&self.incarnation.borrow())
    }

    pub(crate) fn link(&self) -> Rc<Link> {
        Rc::clone(&self.incarnation.borrow().link)
    }

    /// Asks its executor alone something that leaves the executor's books as they are.
    pub(super) fn ask_alone(
        &self,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        self.link().call(Some(self.id), descriptors, build)
    }

    /// Notes that the executor's books change.
    pub(super) fn note_asked(&self) {
        self.asked.set(self.asked.get().wrapping_add(1));
    }

    /// Does something again that was lost with an executor, once the session goes on with another.
    pub(super) async fn again<T, F>(&self, mut work: impl FnMut() -> F) -> Result<T, Error>
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
    pub(super) fn ask(
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
                standby.link.fail_with(format!("it cannot be told: {error}"));
                first
            }
        }
    }

    /// The same, where two answers come.
    pub(super) fn ask_twice(
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

    /// Has the session closed. The first answer comes where all is gone but the slot, and then the second outlasts the
    /// session.
    pub(super) fn ask_to_close(&self) -> (oneshot::Receiver<()>, Answering) {
        self.asked.set(self.asked.get().wrapping_add(1));
        let mut request = Request::new(|mut request| request.set_close_session(self.id));
        let (left, first) = self.link().call_twice(None, &mut request);
        let Some(standby) = self.standby() else { return (left, first) };
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

    fn pair(&self, standby: &Incarnation) -> Pair {
        Pair {
            first: self.link(),
            second: Rc::clone(&standby.link),
            phase: self.phase.subscribe(),
            behind: Rc::clone(&self.behind),
        }
    }

    /// The standby that knows the session.
    pub(super) fn standby(&self) -> Option<Rc<Incarnation>> {
        self.standby.borrow().as_ref().map(Rc::clone)
    }

    /// Begins a change: until it ends, the executor is not asked to close the session.
    pub(crate) fn change(&self) -> Result<Change<'_>, Error> {
        self.live()?;
        self.changes.send_modify(|changes| *changes += 1);
        Ok(Change(self))
    }

    /// Maps new memory.
    pub(super) fn map(&self, range: Range) -> Answering {
        self.note_asked();
        let mapped =
            self.ask_alone(Vec::new(), |request| write_range(request.init_map_arena(), self.id, range));
        let Some(standby) = self.standby() else { return mapped };
        let (id, link) = (self.id, self.link());
        Box::pin(async move {
            let answer = mapped.await?;
            if matches!(answer, Answer::Done) {
                adopt(id, &link, &standby.link, &[range]).await?;
            }
            Ok(answer)
        })
    }

    /// Has a piece of its memory cut in two. Where that fails, it is whole wherever the session goes on.
    pub(super) fn split(&self, arena: Range, at: DeviceAddress) -> Answering {
        self.note_asked();
        let standby = self.standby();
        let split = self.ask_alone(Vec::new(), |request| {
            let mut split = request.init_split();
            split.set_at(at.0);
            split.set_keep(standby.is_some());
            write_range(split.init_arena(), self.id, arena);
        });
        let Some(standby) = standby else { return split };
        let (id, link) = (self.id, self.link());
        Box::pin(async move {
            let answer = split.await?;
            if !matches!(answer, Answer::Done) {
                return Ok(answer);
            }
            let (head, tail) = (at.0.saturating_sub(arena.start().0), arena.end().0.saturating_sub(at.0));
            let pieces: Vec<_> =
                [Range::new(arena.start(), head), Range::new(at, tail)].into_iter().flatten().collect();
            // The standby has the memory as it was until nothing of what it needs is the first's any more; and the session
            // is held until the standby has the pieces.
            if let Some(memory) = exported(id, &link, &standby.link, &pieces).await? {
                let unmap = Request::new(|request| write_range(request.init_unmap_arena(), id, arena));
                let (_, unmapped) = standby.link.call_twice(Some(id), &mut { unmap });
                if let Err(error) = unmapped.await {
                    standby.link.fail_with(format!("it does not follow: {error}"));
                }
                adopted(id, &standby.link, memory).await;
            }
            let released = link.call(Some(id), Vec::new(), |request| request.init_swap_in().set_session(id));
            match released.await {
                // The pieces are the standby's now.
                Err(_) if link.failure().is_some() && standby.link.failure().is_none() => Ok(Answer::Done),
                released => released,
            }
        })
    }

    /// Unmaps what lies there; the first answer comes when no work can reach it.
    pub(super) fn unmap(&self, range: Range) -> (oneshot::Receiver<()>, Answering) {
        self.ask_twice(|request| write_range(request.init_unmap_arena(), self.id, range))
    }

    pub(super) fn drain(&self) -> Answering {
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
    pub(super) fn bind_entries<'a>(
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
    pub(super) fn unbind(&self, runs: &[Run]) -> Answering {
        self.ask(Vec::new(), |request| {
            let mut unbind = request.init_unbind();
            unbind.set_session(self.id);
            let mut list = unbind.init_runs(length(runs.len()));
            for (at, run) in (0u32..).zip(runs) {
                run.write(list.reborrow().get(at));
            }
        })
    }

    pub(super) fn write_name(&self, mut name: executor_capnp::name::Builder<'_>, handle: Handle) {
        name.set_session(self.id);
        handle.write(name.init_handle());
    }

    /// An answer that was not one of those to what was asked.
    pub(crate) fn nonsense(&self, answer: &Answer) -> Error {
        self.link().fail_with(format!("it gave the wrong kind of answer: {answer:?}"));
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
            | Answer::Piece(_) => Err(self.nonsense(answer)),
        }
    }
}

/// Says what handles mean.
pub(super) fn write_bindings(mut bind: executor_capnp::bind::Builder<'_>, session: u32, bound: &[Bound]) {
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
    let Pair { first, second, phase, behind } = pair;
    match (answer, same) {
        (Err(_), Ok(same)) if first.failure().is_some() => Ok(same),
        (answer, same) => {
            let both_are_there = second.failure().is_none() && first.failure().is_none();
            // What is over is closed here first or there first, and then answers differ.
            if answer.is_ok() != same.is_ok() && both_are_there && *phase.borrow() == Phase::Open {
                let why = same.err().map_or_else(|| "it does what was refused".to_owned(), |e| e.to_string());
                tracing::warn!(%why, "a standby does not follow a session");
                behind.notify_one();
            }
            answer
        }
    }
}

/// Has a standby adopt memory that another executor made: it does, or is no standby any more. An error says that the
/// other was lost before; the standby has nothing of it then.
pub(super) async fn adopt(session: u32, from: &Link, to: &Link, ranges: &[Range]) -> Result<(), Error> {
    for (at, chunk) in (0..).step_by(EXPORTS).zip(ranges.chunks(EXPORTS)) {
        match exported(session, from, to, chunk).await {
            Ok(Some(memory)) => adopted(session, to, memory).await,
            Ok(None) => return Ok(()),
            Err(error) => {
                forget(session, to, ranges.get(..at).unwrap_or_default()).await;
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Memory on its way to a standby; `None` where that cannot follow, and is no standby any more.
async fn exported(
    session: u32,
    from: &Link,
    to: &Link,
    ranges: &[Range],
) -> Result<Option<Vec<(Range, Passed)>>, Error> {
    let export = |range: &Range| {
        let asked = from.call(Some(session), Vec::new(), |request| {
            write_range(request.init_export_arena(), session, *range);
        });
        (*range, asked)
    };
    let asked: Vec<_> = ranges.iter().map(export).collect();
    let mut memory = Vec::with_capacity(asked.len());
    for (range, exported) in asked {
        let error = match exported.await {
            Ok(Answer::Exported(Some(descriptor))) => {
                memory.push((range, descriptor));
                continue;
            }
            Ok(Answer::Exported(None)) => no_descriptors(),
            Ok(_) => internal("the executor gave the wrong kind of answer"),
            Err(error) => error,
        };
        if from.failure().is_some() {
            return Err(error);
        }
        to.fail_with(format!("it does not adopt memory: {error}"));
        return Ok(None);
    }
    Ok(Some(memory))
}

async fn adopted(session: u32, to: &Link, memory: Vec<(Range, Passed)>) {
    let adopt = |(range, descriptor)| {
        to.call_with_passed(session, descriptor, |request| {
            write_range(request.init_adopt_arena(), session, range);
        })
    };
    let asked: Vec<_> = memory.into_iter().map(adopt).collect();
    for adopted in asked {
        if let Err(error) = adopted.await {
            to.fail_with(format!("it does not adopt memory: {error}"));
        }
    }
}

/// Has a standby give up mappings, without touching what is there.
pub(super) async fn forget(session: u32, standby: &Link, ranges: &[Range]) {
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

pub(super) fn write_range(mut builder: executor_capnp::range::Builder<'_>, session: u32, range: Range) {
    builder.set_session(session);
    builder.set_address(range.start().0);
    builder.set_bytes(range.bytes());
}
