//! Windows of a session's modules: in the executor that serves, and in a standby, which adopts their memory as it is.

use std::{
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use bulkhead_mm::Resource;
use bulkhead_ring::ActivityEnd;
use bulkhead_schema::{Error, ErrorCode};

use crate::session::Session;
use crate::{
    executor_proxy::{self, Answer, Incarnation, Link, Passed, no_descriptors},
    modules::{Owned, Window},
    refusal::internal,
    registry::{Loaded, What},
};

impl Session {
    /// Has an executor make the window of a module, or adopt it from another.
    pub(crate) async fn make_window(
        &self,
        owned: &Owned,
        executor: &Rc<Incarnation>,
        adopted: Option<Passed>,
    ) -> Result<(), Error> {
        let copied = |error: std::io::Error| internal(format!("a descriptor cannot be copied: {error}"));
        let unmade = |error| internal(format!("no memory for an activity page: {error}"));
        let text = owned.known.text.try_clone().map_err(copied)?;
        let host = owned.host.as_ref().map(OwnedFd::try_clone).transpose().map_err(copied)?;
        let charge = self.charge(Resource::Descriptors, 1)?;
        let page = bulkhead_ring::create_activity().map_err(unmade)?;
        let end = ActivityEnd::map(page.as_fd()).map_err(unmade)?;
        let for_executor = page.try_clone().map_err(copied)?;
        // Whatever comes of it: it is removed there before the module is given back.
        let window = owned.begin_window(Window::new(executor, page, end, charge));
        let (link, number) = (&executor.link, owned.number);
        let added = link.call(None, vec![text], |request| {
            let mut add = request.init_add_module();
            add.set_module(number);
            add.set_bytes(owned.known.protected.bytes);
            add.set_host_bytes(owned.known.protected.host_bytes);
            add.set_adopts(adopted.is_some());
        });
        is_done(link, &added.await?)?;
        if let Some(memory) = adopted {
            let adopted =
                link.call_with_passed(self.id, memory, None, |mut request| request.set_adopt_module(number));
            is_done(link, &adopted.await?)?;
        }
        if let Some(memory) = host {
            let mapped = link.call(None, vec![memory], |mut request| request.set_map_module(number));
            is_done(link, &mapped.await?)?;
        }
        let watched = link.call(None, vec![for_executor], |mut request| request.set_watch_module(number));
        let watched = watched.await?;
        // Whoever has the page maps it for reading only.
        if !executor_proxy::is_sealed(&window.page) {
            return Err(nonsense(link, &watched));
        }
        is_done(link, &watched)?;
        window.is_whole.set(true);
        Ok(())
    }

    /// Has a standby adopt the windows of the session's modules.
    pub(crate) async fn tell_windows(&self, standby: &Rc<Incarnation>) -> Result<(), Error> {
        for thing in self.things() {
            if let What::Module(owned) = &thing.what {
                self.tell_window(owned, standby).await?;
            }
        }
        Ok(())
    }

    /// Has a standby adopt a module's window, unless it has that.
    pub(crate) async fn tell_window(&self, owned: &Owned, standby: &Rc<Incarnation>) -> Result<(), Error> {
        let _turn = owned.telling.lock().await;
        let own = self.incarnation();
        // One that is not there yet, or not any more, is in no executor whole.
        if owned.state.get() != Loaded::Yes || !owned.is_in(&own) || owned.is_in(standby) {
            return Ok(());
        }
        // What a try before this has left.
        for window in owned.windows_in(standby) {
            self.remove_window(owned, &window).await;
        }
        let exported = own.link.call(None, Vec::new(), |mut request| request.set_export_module(owned.number));
        let memory = match exported.await? {
            Answer::Exported(memory) => memory.ok_or_else(no_descriptors)?,
            other => return Err(nonsense(&own.link, &other)),
        };
        self.make_window(owned, standby, Some(memory)).await
    }

    /// Whether a standby has the windows of all modules that its executor has.
    pub(crate) fn has_windows_in(&self, standby: &Rc<Incarnation>) -> bool {
        let own = self.incarnation();
        self.things().iter().all(|thing| match &thing.what {
            What::Module(owned) => owned.is_in(standby) || !owned.is_in(&own),
            What::Memory(_)
            | What::Host { .. }
            | What::Code(_)
            | What::Point(_)
            | What::Program
            | What::Peer => true,
        })
    }

    /// Whether a standby has the windows of all modules whose gates the session may call.
    pub(crate) fn can_call_in(&self, standby: &Rc<Incarnation>) -> bool {
        let is_in = |object| match self.registry().thing(object).as_ref().map(|thing| &thing.what) {
            Ok(What::Module(owned)) => owned.is_in(standby),
            // It is gone, and so are its gates in a moment.
            Ok(_) | Err(_) => false,
        };
        self.gates.borrow().values().all(|gates| is_in(gates.object))
    }

    /// Tells the host halves of its modules that the executor before this one is lost.
    pub(crate) fn has_left_windows(&self) {
        for thing in self.things() {
            if let What::Module(owned) = &thing.what {
                owned.forget_lost();
            }
        }
    }

    /// Has an executor remove the window of a module.
    pub(crate) async fn remove_window(&self, owned: &Owned, window: &Rc<Window>) {
        let link = &window.executor.link;
        loop {
            let removed = link.call(None, Vec::new(), |mut request| request.set_remove_module(owned.number));
            match removed.await {
                Ok(Answer::Done) => break,
                Err(error) if error.code == ErrorCode::NotFound => break,
                // All that the executor had is gone.
                _ if link.failure().is_some() => break,
                Ok(other) => drop(nonsense(link, &other)),
                Err(error) => {
                    tracing::warn!(module = owned.known.protected.name, %error, "a module is not removed");
                    tokio::time::sleep(self.limits.second).await;
                }
            }
        }
        owned.forget_window(window);
    }
}

fn is_done(link: &Link, answer: &Answer) -> Result<(), Error> {
    if matches!(answer, Answer::Done) { Ok(()) } else { Err(nonsense(link, answer)) }
}

fn nonsense(link: &Link, answer: &Answer) -> Error {
    link.fail_with(format!("it gave the wrong kind of answer: {}", answer.kind()));
    internal("the executor gave the wrong kind of answer")
}
