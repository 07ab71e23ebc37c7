//! Host memory that a process has borrowed: it is mapped there, where nobody can take it away.
//!
//! A loan is an owner of its own in the registry, on a line of its own. What it was borrowed by is not quiescent, nor is the
//! memory given back, before that line has passed; it passes when the process says that it has let go, or has ended. A process
//! that does neither within [`limits::DRAIN_SECONDS`] of being told is killed.
//!
//! The memory is a memfd of the kernel's making, which nobody can make shorter. Its pages are never anybody else's, so a process
//! that says it has let go and has not harms nobody but those who gave it the memory.

use std::{os::fd::OwnedFd, rc::Rc, time::Duration};

use bulkhead_caps::{Access, Kind, Need};
use bulkhead_mm::Resource;
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{borrowed, gpu_loan, result},
    limits,
};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::{io::unix::AsyncFd, sync::watch};

use crate::{
    ledger::Charge,
    principals::{Counted, Taken},
    refusal::internal,
    registry::{
        Lent, Spent, What,
        lending::{State, reach},
    },
    rpc::{
        connection::{Connection, gone},
        served::Served,
    },
    session::device::Device,
    transport::descriptors::{OnTheWay, Token},
};

/// Memory that a process has borrowed, as its client holds it. Dropping it recalls the memory.
struct Loan {
    state: Rc<watch::Sender<State>>,
    connection: Rc<Connection>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        reach(&self.state, State::Recalled);
    }
}

/// What a loan is counted as until it is over: of who gave the memory, and of who has it.
struct Paid {
    _capability: Charge,
    _derived: Option<Spent>,
    _of_others: Taken,
}

/// What follows a loan to its end.
struct Keeper {
    device: Rc<Device>,
    lent: Lent,
    /// The memory, where it was not fetched.
    on_the_way: OnTheWay,
    paid: Paid,
    process: Rc<AsyncFd<OwnedFd>>,
    pid: Option<i32>,
    /// How long the process has once it is told.
    patience: Duration,
}

impl Keeper {
    async fn keep(self) {
        let mut state = self.lent.state.subscribe();
        let mut told = state.clone();
        let overdue = async {
            // The sender is in `self`, so that no wait fails.
            drop(told.wait_for(|state| *state >= State::Recalled).await);
            tokio::time::sleep(self.patience).await;
        };
        let over = async {
            tokio::select! {
                _ = state.wait_for(|state| *state == State::Back) => {}
                () = gone(Some(&self.process)) => {}
            }
        };
        tokio::pin!(over);
        tokio::select! {
            biased;
            () = &mut over => {}
            () = overdue => {
                self.kill();
                over.await;
            }
        }
        let Self { device, lent, on_the_way, paid, .. } = self;
        drop((paid, on_the_way.take()));
        device.registry.is_back(&lent);
    }

    fn kill(&self) {
        let seconds = self.patience.as_secs();
        if self.pid.and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id()) {
            tracing::error!(seconds, "the kernel's own process does not give borrowed memory back");
            return;
        }
        let killed = pidfd_send_signal(self.process.get_ref(), Signal::KILL);
        tracing::warn!(
            target: "bulkhead::audit", pid = self.pid, seconds, ?killed,
            "a process is killed that has not given borrowed memory back"
        );
    }
}

/// Lends all of what was given: the loan, the token that the memory is fetched with, and its bytes.
fn lend(given: &Served) -> Result<(Loan, Token, u64), Error> {
    let (held, connection) = (&given.held, &given.connection);
    let view = held.look()?;
    if view.kind != Kind::HostBuffer {
        return Err(Error::new(ErrorCode::NotSupported, "device memory is not mapped by processes")
            .remedy("give host memory: `Session::allocate_lendable`, then `HostBuffer::lend`"));
    }
    if !held.is_elsewhere() {
        return Err(Error::new(ErrorCode::InvalidArgument, "the memory is the session's own")
            .remedy("borrow what another session gave, by a token"));
    }
    let process = connection.process.clone().ok_or_else(|| {
        Error::new(ErrorCode::NotSupported, "the kernel cannot see when the client's process ends")
            .remedy("run both in one pid namespace")
    })?;
    let (session, registry) = (&held.session, held.session.registry());
    let thing = registry.thing(view.object)?;
    let What::Host { bytes, memory, .. } = &thing.what else {
        return Err(internal("host memory is something else"));
    };
    let paid = Paid {
        _of_others: connection.party.take(Counted::OfOthers, 1)?,
        _derived: held.spend()?,
        _capability: session.charge(Resource::Capabilities, 1)?,
    };
    // It is open for the session in any case, so that nobody takes its descriptors by borrowing.
    let (parcel, on_the_way) = session.parcel_of(vec![Rc::clone(memory)], None);
    let need = Need { kind: Kind::HostBuffer, access: Access::ReadWrite, offset: 0, bytes: view.bytes };
    let lent = registry.lend(session.owner, held.handle, need)?;
    let token = connection.give(parcel).inspect_err(|_| registry.is_back(&lent))?;
    let pid = connection.pid();
    if let Some(unsaid) = connection.party.line() {
        tracing::info!(target: "bulkhead::audit", session = session.id, pid, bytes, unsaid, "host memory borrowed");
    }
    let loan = Loan { state: Rc::clone(&lent.state), connection: Rc::clone(connection) };
    let patience = session.limits.seconds(limits::DRAIN_SECONDS);
    let device = Rc::clone(&session.device);
    tokio::task::spawn_local(Keeper { device, lent, on_the_way, paid, process, pid, patience }.keep());
    Ok((loan, token, *bytes))
}

/// Answers a loan of what was given.
pub(crate) fn write(given: &Served, result: result::Builder<'_, borrowed::Owned>) {
    match lend(given) {
        Ok((loan, token, bytes)) => {
            let mut borrowed = result.init_ok();
            token.write(borrowed.reborrow().init_memory());
            borrowed.set_bytes(bytes);
            borrowed.set_loan(capnp_rpc::new_client(loan));
        }
        Err(error) => error.write(result.init_error()),
    }
}

impl gpu_loan::Server for Loan {
    async fn recalled(
        self: Rc<Self>,
        params: gpu_loan::RecalledParams,
        mut results: gpu_loan::RecalledResults,
    ) -> Result<(), capnp::Error> {
        let timeout = Duration::from_millis(u64::from(params.get()?.get_timeout_ms()));
        drop(params);
        let waits = self.connection.party.take(Counted::Waits, 1);
        let mut state = self.state.subscribe();
        let recalled = match &waits {
            Ok(_) => {
                let recalled = state.wait_for(|state| *state >= State::Recalled);
                // The sender is a field of `self`: it either comes, or the time is up.
                Ok(tokio::time::timeout(timeout, recalled).await.is_ok())
            }
            Err(error) => Err(error.clone()),
        };
        let result = results.get().init_result();
        match recalled {
            Ok(recalled) => result.init_ok().set_recalled(recalled),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn give_back(
        self: Rc<Self>,
        _: gpu_loan::GiveBackParams,
        mut results: gpu_loan::GiveBackResults,
    ) -> Result<(), capnp::Error> {
        reach(&self.state, State::Back);
        results.get().init_result().init_ok();
        Ok(())
    }
}
