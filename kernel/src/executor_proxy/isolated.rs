//! Executors of isolated sessions: each has one session, and ends with it.
//!
//! Such an executor has a proxy of its own, which has the ledger of the device that it is on: its session draws on the same
//! memory.

use std::{
    cell::{Cell, RefCell},
    ffi::OsString,
    rc::Rc,
};

use bulkhead_schema::{Error, ErrorCode};
use tokio::sync::{Notify, oneshot, watch};

use crate::executor_proxy::{DeviceInfo, ExecutorProxy, Incarnation, Output, Pool, State};
use crate::{
    ExecutorSource,
    compile::places::Places,
    principals::{Counted, Party},
    refusal::internal,
};

/// What the driver takes of the device for a process, beside what that allocates: 524 MiB and what PyTorch's libraries add
/// when they are first used (decision 0062).
const CONTEXT_BYTES: u64 = 832 << 20;

/// How an isolated executor ends.
pub(super) struct Ending {
    wanted: Notify,
    ended: watch::Sender<bool>,
    /// What the process writes, once it has started.
    output: RefCell<Option<Rc<Output>>>,
}

impl Ending {
    fn new() -> Self {
        Self { wanted: Notify::new(), ended: watch::Sender::new(false), output: RefCell::default() }
    }

    pub(super) fn reads(&self, output: Rc<Output>) {
        self.output.replace(Some(output));
    }
}

/// What an isolated session is charged for the driver's part of its process on such a device.
pub(crate) fn context_bytes(info: &DeviceInfo) -> u64 {
    if info.backend == "software" { 0 } else { CONTEXT_BYTES }
}

/// What executors are told that is for everybody's alone: where they keep code, and where they tell of kernels.
const FOR_EVERYBODYS: [&str; 5] = ["--cache", "--cache-size", "--profile", "--sanitize", "--sanitize-tools"];

/// The command for an isolated executor.
fn without(command: &[OsString]) -> Vec<OsString> {
    let mut left = Vec::with_capacity(command.len());
    let mut words = command.iter();
    while let Some(word) = words.next() {
        if FOR_EVERYBODYS.iter().any(|option| word == option) {
            // And its value.
            words.next();
        } else {
            left.push(word.clone());
        }
    }
    left
}

/// Says that an executor has ended, however that came about.
struct Ended(Rc<ExecutorProxy>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(ending) = &self.0.isolated {
            ending.ended.send_replace(true);
        }
    }
}

impl ExecutorProxy {
    /// An executor for one session, with what that is charged for it. It is one that waited, or else one that is started when it
    /// is this party's turn. Whatever becomes of who asks, the charges are not given back before the process is gone.
    pub(crate) async fn isolate<C: 'static>(
        self: &Rc<Self>,
        party: &Rc<Party>,
        charges: C,
    ) -> Result<(Rc<Self>, Rc<Incarnation>, C), Error> {
        let (sender, started) = oneshot::channel();
        let (shared, party) = (Rc::clone(self), Rc::clone(party));
        tokio::task::spawn_local(async move {
            let result = match shared.pool.take() {
                Some(waited) => Ok(waited),
                None => match shared.start_in_turn(&party).await {
                    // One that waits by now may have what this one did not get: a user of its own.
                    Err(error) => shared.pool.take_soon().await.ok_or(error),
                    started => started,
                },
            };
            if let Ok((alone, incarnation)) = &result {
                incarnation.link.belongs_to(&party);
                alone.output().iter().for_each(|output| output.belongs_to(&party));
            }
            let result = result.map(|(alone, incarnation)| (alone, incarnation, charges));
            // Whoever asked has gone away: the session will never be.
            if let Err(Ok((alone, _, charges))) = sender.send(result) {
                alone.end_isolated();
                alone.until_ended().await;
                drop(charges);
            }
        });
        started.await.map_err(|_| internal("an executor was not started"))?
    }

    async fn start_in_turn(&self, party: &Rc<Party>) -> Result<(Rc<Self>, Rc<Incarnation>), Error> {
        let _place = self.starting.take(party).await?;
        self.start_alone().await
    }

    /// Starts an executor for one session.
    pub(super) async fn start_alone(&self) -> Result<(Rc<Self>, Rc<Incarnation>), Error> {
        let ExecutorSource::Command(command) = &self.source else {
            return Err(Error::new(ErrorCode::NotSupported, "this kernel starts no executors of its own")
                .remedy("open a guarded session"));
        };
        // Until the first serves nobody knows how much memory there is.
        self.wait().await?;
        let alone = Rc::new(Self {
            index: self.index,
            source: ExecutorSource::Command(without(command)),
            environment: self.environment.clone(),
            limits: self.limits,
            state: watch::Sender::new(State::Starting),
            standby: RefCell::default(),
            failovers: Cell::new(0),
            images: Cell::default(),
            starts: Cell::new(0),
            wanted: Notify::new(),
            local_bytes: Cell::new(0),
            ledger: Rc::clone(&self.ledger),
            starting: Places::new(0, Counted::Waits),
            pool: Pool::new(0),
            cells: Rc::clone(&self.cells),
            isolated: Some(Ending::new()),
            unclaimed: Cell::new(0),
        });
        let started = alone.launch().await?;
        let incarnation = Rc::clone(&started.incarnation);
        let served = Rc::clone(&alone);
        tokio::task::spawn_local(async move {
            let _ended = Ended(Rc::clone(&served));
            let error = served.serve(started).await;
            tracing::debug!(device = served.index, %error, "the executor of an isolated session ended");
        });
        Ok((alone, incarnation))
    }

    /// Whether its executor is one session's alone.
    pub(crate) fn is_isolated(&self) -> bool {
        self.isolated.is_some()
    }

    /// What such an executor's process writes; none for one that is everybody's.
    pub(crate) fn output(&self) -> Option<Rc<Output>> {
        self.isolated.as_ref().and_then(|isolated| isolated.output.borrow().clone())
    }

    /// Ends an executor that is one session's alone.
    pub(crate) fn end_isolated(&self) {
        if let Some(ending) = &self.isolated {
            ending.wanted.notify_one();
        }
    }

    /// Waits until such an executor is to end; for ever where it is everybody's.
    pub(super) async fn told_to_end(&self) {
        match &self.isolated {
            Some(ending) => ending.wanted.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until such an executor's process is gone.
    pub(crate) async fn until_ended(&self) {
        if let Some(ending) = &self.isolated {
            // The sender is a field of `self`, so the wait cannot fail.
            drop(ending.ended.subscribe().wait_for(|ended| *ended).await);
        }
    }
}
