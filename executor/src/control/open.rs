//! The beginning of a session: its slot, its completion page, its threads.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
        mpsc,
    },
};

use bulkhead_mm::Slot;
use bulkhead_ring::{CompletionWriter, memory::Completion};
use bulkhead_schema::{Error, ErrorCode};
use parking_lot::{Condvar, Mutex};

use super::Control;
use crate::{
    control::job::Reserved,
    device,
    executor::{Executor, Known, Tenancy},
    launch::streams::Streams,
    session::{Session, State, spawn},
    watch::{flag::Flag, remains::Page},
};

/// Opens a session: slot, completion page, threads; without a ring it takes no records until it is resumed. Returns
/// the page's descriptor for the client.
pub(super) fn open(
    executor: &Arc<Executor>,
    id: u32,
    slot: Slot,
    ring: Option<&OwnedFd>,
    reserved: Reserved,
) -> Result<OwnedFd, Error> {
    let device = |error| device::error(&error);
    let gpu = &executor.gpu;
    let memory = executor.slots.take(slot, id).map_err(device)?;
    let made = start(executor, id, slot, memory.flag(), ring, reserved);
    let (mut control, session, descriptor) = match made {
        Ok(made) => made,
        Err(error) => {
            executor.slots.give_back(memory).map_err(device)?;
            return Err(error);
        }
    };
    control.memory = Some(memory);
    let (jobs, receiver) = mpsc::channel();
    let gpu = Arc::clone(gpu);
    spawn(format!("control-{id}"), move || {
        if let Err(error) = gpu.bind_thread() {
            tracing::error!(%error, "control thread");
        }
        control.run(&receiver);
    })?;
    executor.sessions.lock().insert(id, Known { session, jobs });
    Ok(descriptor)
}

fn start(
    executor: &Arc<Executor>,
    id: u32,
    slot: Slot,
    flag: Flag,
    ring: Option<&OwnedFd>,
    reserved: Reserved,
) -> Result<(Control, Arc<Session>, OwnedFd), Error> {
    let device = |error| device::error(&error);
    let gpu = &executor.gpu;
    let broken =
        |error: std::io::Error| Error::new(ErrorCode::Internal, format!("the completion page: {error}"));
    let (completion, descriptor) = Completion::create().map_err(broken)?;
    let ours = descriptor.try_clone().map_err(broken)?;
    let page = Page::register(&**gpu, &executor.reaper, Arc::clone(&completion)).map_err(device)?;
    let page_at = completion.range().0;
    let mut streams = Streams::new(Arc::clone(gpu), CompletionWriter::new(completion), page_at);
    streams.urgency = executor.patience.urgency;
    if let Tenancy::One { runs } = executor.tenancy {
        streams.be_alone(runs, executor.patience.kernel.is_some());
    } else if executor.patience.kernel.is_some() {
        streams.be_timed();
    }
    streams.create(0, 0, gpu.info()).map_err(device)?;
    let mut state = State::new(Arc::clone(gpu), streams, Arc::clone(&executor.gate));
    state.reserved = reserved;
    // Grids of code that nothing confines are not cut.
    let usual = if executor.is_isolated() { u64::MAX } else { state.blocks_max };
    state.blocks_max = executor.patience.blocks.filter(|_| !executor.is_isolated()).unwrap_or(usual);
    let session = Arc::new(Session {
        id,
        slot,
        state: Mutex::new(state),
        resumed: Condvar::new(),
        stopping: AtomicBool::new(false),
        submitted_ns: AtomicU64::new(executor.now_ns()),
        link: executor.link.clone(),
        epoch: executor.epoch,
        flag,
        waker: Mutex::new(None),
    });
    let mut control = Control::new(Arc::clone(executor), Arc::clone(&session), page, ours);
    let started =
        ring.map_or(Ok(()), |ring| control.start(bulkhead_ring::Consumer::new, ring.as_fd()).map(drop));
    if let Err(error) = started {
        session.state.lock().streams.destroy_all().map_err(device)?;
        return Err(error);
    }
    Ok((control, session, descriptor))
}
