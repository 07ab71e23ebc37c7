//! What a session has its executor do. Whatever changes the executor's books goes through [`Session::ask`],
//! [`Session::ask_twice`], [`Session::map`] or [`Session::split`], which tell a standby that follows the session too.

use std::{future::Future, os::fd::OwnedFd, rc::Rc};

use bulkhead_caps::Access;
use bulkhead_mm::{DeviceAddress, Range};
use bulkhead_schema::{Error, Handle, executor_capnp};
use tokio::sync::oneshot;

use super::Session;
use crate::{
    executor::{Answer, Answering, Incarnation, Link, Request, length},
    refusal::internal,
};

/// What a handle means to the executor: memory of the session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) handle: Handle,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// A change of the session's memory or code that is under way.
pub(super) struct Change<'a>(&'a Session);

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

    pub(super) fn link(&self) -> Rc<Link> {
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

    /// Asks the executor something about this session, and tells a standby.
    pub(super) fn ask(
        &self,
        descriptors: Vec<OwnedFd>,
        build: impl FnOnce(executor_capnp::request::Builder<'_>),
    ) -> Answering {
        self.asked.set(self.asked.get().wrapping_add(1));
        let mut request = Request::new(build);
        let Some(standby) = self.standby() else {
            return self.link().send_request(Some(self.id), descriptors, &mut request);
        };
        let copies: Result<Vec<_>, _> = descriptors.iter().map(OwnedFd::try_clone).collect();
        let first = self.link().send_request(Some(self.id), descriptors, &mut request);
        match copies {
            Ok(copies) => {
                let second = standby.link.send_request(Some(self.id), copies, &mut request);
                Box::pin(either(self.link(), first, Rc::clone(&standby.link), second))
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
        self.asked.set(self.asked.get().wrapping_add(1));
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
        let link = self.link();
        (both, Box::pin(either(link, first, Rc::clone(&standby.link), second)))
    }

    /// The standby that knows the session.
    pub(super) fn standby(&self) -> Option<Rc<Incarnation>> {
        self.standby.borrow().as_ref().map(Rc::clone)
    }

    /// Begins a change: until it ends, the executor is not asked to close the session.
    pub(super) fn change(&self) -> Result<Change<'_>, Error> {
        self.live()?;
        self.changes.send_modify(|changes| *changes += 1);
        Ok(Change(self))
    }

    /// Maps new memory.
    pub(super) fn map(&self, range: Range) -> Answering {
        self.asked.set(self.asked.get().wrapping_add(1));
        let mapped =
            self.ask_alone(Vec::new(), |request| write_range(request.init_map_arena(), self.id, range));
        let Some(standby) = self.standby() else { return mapped };
        let (id, link) = (self.id, self.link());
        Box::pin(async move {
            let answer = mapped.await?;
            if matches!(answer, Answer::Done) {
                adopt(id, &link, &standby.link, &[range]).await;
            }
            Ok(answer)
        })
    }

    /// Has a piece of its memory cut in two.
    pub(super) fn split(&self, arena: Range, at: DeviceAddress) -> Answering {
        self.asked.set(self.asked.get().wrapping_add(1));
        let split = self.ask_alone(Vec::new(), |request| {
            let mut split = request.init_split();
            split.set_at(at.0);
            write_range(split.init_arena(), self.id, arena);
        });
        let Some(standby) = self.standby() else { return split };
        let (id, link) = (self.id, self.link());
        Box::pin(async move {
            let answer = split.await?;
            let (head, tail) = (at.0.saturating_sub(arena.start().0), arena.end().0.saturating_sub(at.0));
            let pieces: Vec<_> =
                [Range::new(arena.start(), head), Range::new(at, tail)].into_iter().flatten().collect();
            // The pieces are new memory: what the standby has is the old.
            let unmap = Request::new(|request| write_range(request.init_unmap_arena(), id, arena));
            let (_, unmapped) = standby.link.call_twice(Some(id), &mut { unmap });
            match unmapped.await {
                Ok(_) => adopt(id, &link, &standby.link, &pieces).await,
                Err(error) => standby.link.fail_with(format!("it does not follow: {error}")),
            }
            Ok(answer)
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
    pub(super) fn unbind(&self, handles: impl ExactSizeIterator<Item = Handle>) -> Answering {
        self.ask(Vec::new(), |request| {
            let mut unbind = request.init_unbind();
            unbind.set_session(self.id);
            let mut list = unbind.init_handles(length(handles.len()));
            for (at, handle) in (0u32..).zip(handles) {
                handle.write(list.reborrow().get(at));
            }
        })
    }

    pub(super) fn write_name(&self, mut name: executor_capnp::name::Builder<'_>, handle: Handle) {
        name.set_session(self.id);
        handle.write(name.init_handle());
    }

    /// An answer that was not one of those to what was asked.
    pub(super) fn nonsense(&self, answer: &Answer) -> Error {
        self.link().fail_with(format!("it gave the wrong kind of answer: {answer:?}"));
        internal("the executor gave the wrong kind of answer")
    }

    pub(super) fn done(&self, answer: &Answer) -> Result<(), Error> {
        match answer {
            Answer::Done => Ok(()),
            Answer::Device(_)
            | Answer::Opened(_)
            | Answer::Loaded(_)
            | Answer::Exported(_)
            | Answer::Activity(_) => Err(self.nonsense(answer)),
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
/// second goes on. A second that answers otherwise does not follow, and is no standby any more.
async fn either(
    first: Rc<Link>,
    answer: Answering,
    second: Rc<Link>,
    same: Answering,
) -> Result<Answer, Error> {
    let (answer, same) = futures::future::join(answer, same).await;
    match (answer, same) {
        (Err(_), Ok(same)) if first.failure().is_some() => Ok(same),
        (answer, same) => {
            if answer.is_ok() != same.is_ok() && second.failure().is_none() && first.failure().is_none() {
                let why = same.err().map_or_else(|| "it does what was refused".to_owned(), |e| e.to_string());
                second.fail_with(format!("it does not follow: {why}"));
            }
            answer
        }
    }
}

/// Has a standby adopt memory that another executor made. One that does not is no standby any more.
pub(super) async fn adopt(session: u32, from: &Link, to: &Link, ranges: &[Range]) {
    for range in ranges {
        let exported = from.call(Some(session), Vec::new(), |request| {
            write_range(request.init_export_arena(), session, *range);
        });
        let adopted = match exported.await {
            Ok(Answer::Exported(memory)) => {
                let adopted = to.call(Some(session), vec![memory], |request| {
                    write_range(request.init_adopt_arena(), session, *range);
                });
                adopted.await.map(drop)
            }
            Ok(_) => Err(internal("the executor gave the wrong kind of answer")),
            Err(error) => Err(error),
        };
        if let Err(error) = adopted {
            if from.failure().is_none() {
                to.fail_with(format!("it does not adopt memory: {error}"));
            }
            return;
        }
    }
}

pub(super) fn write_range(mut builder: executor_capnp::range::Builder<'_>, session: u32, range: Range) {
    builder.set_session(session);
    builder.set_address(range.start().0);
    builder.set_bytes(range.bytes());
}
