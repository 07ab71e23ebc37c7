//! Callers: who opens an instance, and who gives it back.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

use bulkhead_client::{Error, ErrorCode, ModuleHost, Moment, Reached, SturdyToken, Uses};

use super::{AGAIN, Caller, Event, Has, HostHalf, LEAVING, LEAVING_OF_A_PROCESS, Opening, watch};
use crate::door::Answer;
use crate::{Badge, Closed, HostCaller, Service, host};

impl<S: Service> HostHalf<S> {
    /// Opens the service for somebody. Where another has what is wanted it is tried again for a while: who has just ended is told of
    /// by a thread of its own.
    pub(super) fn attempt(&mut self, opening: Opening) {
        let (caller, process) = (opening.caller, opening.process);
        let opened = match &opening.host {
            None => self.open(caller, process, &opening.words),
            Some((connection, lends)) => match connection.try_clone() {
                Ok(connection) => self.open_host(caller, process, &opening.words, connection, *lends),
                Err(error) => Err(Error::new(ErrorCode::LimitReached, error.to_string())),
            },
        };
        match opened {
            Err(error) if error.code == ErrorCode::Unavailable && Instant::now() < opening.until => {
                // Where too many wait, this one does not.
                let full = self.waiting.push(opening.process, opening);
                full.unwrap_or_else(|opening| opening.answer.send(Err(error)).unwrap_or_default());
            }
            // Whoever has hung up meanwhile is over, which is told next.
            opened => opening.answer.send(opened).unwrap_or_default(),
        }
    }

    /// Tells host code whether it has to ring.
    pub(super) fn tell_sleep(&mut self, sleeps: bool) {
        self.sleeps = sleeps;
        for caller in &self.callers {
            if let Has::Memory(memory) = &caller.has {
                host::tell_sleep(memory, sleeps);
            }
        }
    }

    fn next_badge(&mut self) -> Result<Badge, Error> {
        self.instances.next().ok_or_else(|| {
            Error::new(ErrorCode::LimitReached, "all instances of the module are in use")
                .remedy("try again when another caller has ended, or give the module more `instances`")
        })
    }

    fn open_host(
        &mut self,
        caller: u64,
        process: i32,
        words: &str,
        connection: UnixStream,
        lends: Option<SturdyToken>,
    ) -> Result<Answer, Error> {
        if S::SHARED_BYTES == 0 {
            return Err(crate::refuse("the service is for kernels, and not for host code"));
        }
        let badge = self.next_badge()?;
        let broken = |error| Error::new(ErrorCode::OutOfMemory, format!("memory for host code: {error}"));
        let (memory, descriptor) = ModuleHost::create(S::SHARED_BYTES).map_err(broken)?;
        let memory = Arc::new(memory);
        if lends.is_some() && !S::BORROWS {
            return Err(crate::refuse("the service borrows no memory"));
        }
        let own = connection.try_clone().map_err(broken)?;
        let shared = HostCaller::new(Arc::clone(&memory), connection);
        let (shared, recall) = match lends.map(|token| self.session.borrow_host(token)).transpose()? {
            Some((lent, recall)) => (shared.lending(lent), Some(recall)),
            None => (shared, None),
        };
        let instance = self.service.open_host(&self.window, badge, words, shared)?;
        self.instances.insert(badge, instance);
        host::tell_sleep(&memory, self.sleeps);
        self.callers.push(Caller { number: caller, process, badge, has: Has::Memory(memory) });
        if let Some(recall) = recall {
            watch(recall, own);
        }
        tracing::info!(?badge, words, "opened by host code");
        Ok(Answer::Memory(descriptor, S::SHARED_BYTES))
    }

    fn open(&mut self, caller: u64, process: i32, words: &str) -> Result<Answer, Error> {
        let badge = self.next_badge()?;
        let instance = self.service.open(&self.window, badge, words)?;
        self.instances.insert(badge, instance);
        let given = self.window.module().gates_with_badge(badge.value());
        let given = given.and_then(|gates| gates.token(Uses::UntilRevoked).map(|token| (gates, token)));
        match given {
            Ok((gates, token)) => {
                self.callers.push(Caller { number: caller, process, badge, has: Has::Gates(gates) });
                tracing::info!(?badge, words, "opened");
                Ok(Answer::Gates(token))
            }
            Err(error) => {
                // Nobody ever had gates with this badge.
                if let Some(instance) = self.instances.closes(badge) {
                    self.service.quiesce(&self.window, badge, instance)?;
                }
                self.closing.push(badge);
                Err(error)
            }
        }
    }

    /// Has what revoked instances had given back, as far as nothing uses it any more.
    pub(super) fn give_back(&mut self) {
        let Self { service, window, instances, closing, .. } = self;
        closing.retain(|badge| {
            let Some(instance) = instances.closing(*badge) else { return false };
            let closed = service.close(window, *badge, instance);
            if closed == Closed::Done {
                drop(instances.take(*badge));
            }
            closed == Closed::NotYet
        });
    }

    /// Takes a caller's gates back: what they look at first, then the gates. What the instance has is kept until no kernel is
    /// in a gate any more.
    pub(super) fn over(&mut self, caller: u64, events: &Sender<Event>) -> Result<(), Error> {
        let Some(at) = self.callers.iter().position(|one| one.number == caller) else { return Ok(()) };
        let caller = self.callers.swap_remove(at);
        if let Some(instance) = self.instances.closes(caller.badge) {
            self.service.quiesce(&self.window, caller.badge, instance)?;
        }
        match &caller.has {
            Has::Gates(gates) => {
                // Nobody accepts them any more.
                gates.drop_tokens()?;
                self.take_back(caller, events)
            }
            // It is not looked at any more, and no kernel ever did.
            Has::Memory(_) => {
                self.closing.push(caller.badge);
                Ok(())
            }
        }
    }

    /// Has the gates of a caller revoked, and it told when no kernel is in one.
    pub(super) fn take_back(&mut self, caller: Caller, events: &Sender<Event>) -> Result<(), Error> {
        let Has::Gates(gates) = &caller.has else { return Ok(()) };
        let of_process = self.revoking.iter().filter(|(_, process)| *process == caller.process).count();
        if of_process >= LEAVING_OF_A_PROCESS {
            self.leaving.push(caller);
            return Ok(());
        }
        let revoked = match gates.revoke() {
            Err(error) if error.code == ErrorCode::LimitReached => {
                self.leaving.push(caller);
                return Ok(());
            }
            revoked => revoked?,
        };
        let (events, badge) = (events.clone(), caller.badge);
        self.revoking.push((badge, caller.process));
        let waiting = thread::Builder::new().spawn(move || {
            // The kernel ends sessions whose kernels run on for longer than it lets them.
            let left = loop {
                match revoked.wait(Moment::Quiescent, LEAVING) {
                    Ok(Reached { reached: false, .. }) => {}
                    Ok(_) => break Ok(()),
                    // Others have all waits of this user: gates are not given back meanwhile, and nothing else stops.
                    Err(error) if matches!(error.code, ErrorCode::LimitReached | ErrorCode::TimedOut) => {
                        thread::sleep(AGAIN);
                    }
                    Err(error) => break Err(error),
                }
            };
            // There is room for another revocation first.
            drop((revoked, caller));
            events.send(Event::Left { badge, left }).unwrap_or_default();
        });
        let broken =
            |error| Error::new(ErrorCode::OutOfMemory, format!("no thread that waits for kernels: {error}"));
        waiting.map(drop).map_err(broken)
    }
}
