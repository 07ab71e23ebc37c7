//! Room for sessions whose memory together is more than the device has: others are swapped out for them.
//!
//! One session moves at a time: whoever moves any, or needs that none moves, has the [`Turn`].

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    rc::Rc,
    time::Duration,
};

use bulkhead_mm::{Need, QUANTUM_NS, Resident, Resource, choose_victims};
use bulkhead_schema::{Error, ErrorCode};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use crate::{executor::Activity, session::Session};

/// How long room is waited for, in seconds, while those who could make it are changing or have just come.
const PATIENCE_SECONDS: u32 = 2;
/// How soon those are looked at again.
const LOOK: Duration = Duration::from_millis(5);
/// A session that did nothing for so long has no use for the rest of its quantum.
const IDLE_NS: u64 = QUANTUM_NS / 20;

/// Moves the sessions of one device.
pub(crate) struct Mover {
    turn: Mutex<()>,
    started: Instant,
    outs: Cell<u32>,
    ins: Cell<u32>,
    moved_bytes: Cell<u64>,
}

/// The only one that moves sessions.
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);

impl Mover {
    pub(crate) fn new() -> Self {
        Self {
            turn: Mutex::new(()),
            started: Instant::now(),
            outs: Cell::new(0),
            ins: Cell::new(0),
            moved_bytes: Cell::new(0),
        }
    }

    /// Waits until no session moves.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        Turn(self.turn.lock().await)
    }

    /// Nanoseconds since the mover began.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn note_out(&self, bytes: u64) {
        self.outs.set(self.outs.get().saturating_add(1));
        self.moved_bytes.set(self.moved_bytes.get().saturating_add(bytes));
    }

    pub(crate) fn note_in(&self, bytes: u64) {
        self.ins.set(self.ins.get().saturating_add(1));
        self.moved_bytes.set(self.moved_bytes.get().saturating_add(bytes));
    }

    /// How often sessions were swapped out and in, and how much was moved in all.
    pub(crate) fn counts(&self) -> (u32, u32, u64) {
        (self.outs.get(), self.ins.get(), self.moved_bytes.get())
    }
}

/// What is done to make room for one session.
pub(crate) struct Eviction<'a> {
    turn: &'a Turn<'a>,
    asker: &'a Session,
    /// Those that could not be moved.
    stuck: HashSet<u32>,
    deadline: Instant,
}

/// The more urgent, the higher, as [`choose_victims`] counts.
fn priority(session: &Session) -> i32 {
    session.terms.priority.checked_neg().unwrap_or(i32::MAX)
}

fn no_room(short: u64) -> Error {
    Error::new(ErrorCode::OutOfMemory, format!("nobody makes room for {short} bytes of device memory"))
        .remedy("free memory, or wait until others do")
}

impl<'a> Eviction<'a> {
    pub(crate) fn new(turn: &'a Turn<'a>, asker: &'a Session) -> Self {
        let deadline = Instant::now() + asker.limits.second * PATIENCE_SECONDS;
        Self { turn, asker, stuck: HashSet::new(), deadline }
    }

    /// Swaps others out until so much device memory is left for all sessions.
    pub(crate) async fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        loop {
            let room = self.asker.device.ledger.borrow().room(Resource::DeviceBytes);
            match bytes.saturating_sub(room) {
                0 => return Ok(()),
                short => self.evict(short).await?,
            }
        }
    }

    /// Swaps others out to make this much room. There may be less of it afterwards, but never none.
    pub(crate) async fn evict(&mut self, short: u64) -> Result<(), Error> {
        loop {
            self.asker.live()?;
            let residents = self.residents().await?;
            let need = Need { session: self.asker.id, priority: priority(self.asker), bytes: short };
            let known: Vec<Resident> = residents.iter().map(|(_, resident)| *resident).collect();
            let now_ns = self.asker.device.mover.now_ns();
            let victims = choose_victims(&known, need, now_ns, QUANTUM_NS);
            let victims = victims.filter(|victims| !victims.is_empty()).ok_or_else(|| no_room(short))?;
            let (mut moved, mut waits) = (0u64, false);
            for victim in victims {
                let found = residents.iter().find(|(session, _)| session.id == victim);
                let Some((session, resident)) = found else { continue };
                let fresh = now_ns.saturating_sub(resident.since_ns) < QUANTUM_NS;
                if fresh || session.is_changing() {
                    waits = true;
                    continue;
                }
                match session.move_out(self.turn).await {
                    Ok(bytes) => moved += bytes,
                    Err(error) => {
                        tracing::info!(session = victim, %error, "a session is not swapped out");
                        self.stuck.insert(victim);
                    }
                }
            }
            if moved > 0 {
                return Ok(());
            }
            if waits {
                if Instant::now() > self.deadline {
                    return Err(no_room(short));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Those who could make room, and how they compare.
    async fn residents(&self) -> Result<Vec<(Rc<Session>, Resident)>, Error> {
        let activity = self.asker.activity().await?;
        let activity: HashMap<u32, Activity> =
            activity.into_iter().map(|activity| (activity.session, activity)).collect();
        let device = &self.asker.device;
        let now_ns = device.mover.now_ns();
        let resident = |session: Rc<Session>| {
            let bytes = session.movable_bytes()?;
            let since_ns = session.resident_since_ns();
            let (idle_ns, in_flight) =
                activity.get(&session.id).map_or((0, 0), |activity| (activity.idle_ns, activity.in_flight));
            let idle_ns = idle_ns.min(now_ns.saturating_sub(since_ns));
            let rests = in_flight == 0 && idle_ns >= IDLE_NS;
            let resident = Resident {
                session: session.id,
                bytes,
                priority: priority(&session),
                last_active_ns: now_ns.saturating_sub(idle_ns),
                since_ns: if rests { now_ns.saturating_sub(QUANTUM_NS) } else { since_ns },
                swappable: !self.stuck.contains(&session.id),
            };
            Some((session, resident))
        };
        Ok(device.books.sessions().into_iter().filter_map(resident).collect())
    }
}
