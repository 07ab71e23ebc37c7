//! Room for sessions whose memory together is more than the device has: others are swapped out for them.
//!
//! Whoever makes room for somebody has the [`Turn`], so that nobody takes it away meanwhile. While something is waited for
//! that takes long, or nobody knows how long, the turn is let go: others make their room with whom they can. A session
//! stands in the queue for it once, however many of its calls want room: those queue behind each other.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
    time::Duration,
};

use bulkhead_mm::{Need, QUANTUM_NS, Resident, Resource, choose_victims};
use bulkhead_schema::{Error, ErrorCode, limits};
use tokio::time::Instant;

use crate::{
    executor_proxy::Activity,
    session::{Session, device::Device, swap::mover::Turn},
};

/// How long room is waited for, in seconds, while those who could make it are changing or have just come.
const PATIENCE_SECONDS: u32 = 2;
/// How soon those are looked at again.
const LOOK: Duration = Duration::from_millis(5);
/// How long the work of a session is waited for, in parts of a second, where others could go instead.
const SHORT_PART: u32 = 10;
/// A session that did nothing for so long has no use for the rest of its quantum.
const IDLE_NS: u64 = QUANTUM_NS / 20;
/// How long a session stays, in seconds, before the host memory is given back that it was swapped to.
const AREA_SECONDS: u32 = 10;

impl Device {
    /// Gives host memory back that nobody was swapped to for a while. Never ends.
    pub(crate) async fn give_back_areas(self: Rc<Self>, second: Duration) {
        loop {
            tokio::time::sleep(second).await;
            for session in self.registry.sessions() {
                // An executor that does not answer keeps its own session's alone.
                tokio::task::spawn_local(session.give_back_area(second * AREA_SECONDS));
            }
        }
    }
}

/// What is done to make room for one session.
pub(crate) struct Eviction<'a, 'b> {
    turn: &'a Turn<'b>,
    asker: &'a Session,
    /// Those whose work did not pass in a short time: others go first.
    busy: HashSet<u32>,
    /// Those that could not be moved.
    stuck: HashSet<u32>,
    deadline: Instant,
}

/// What is waited for.
enum Until {
    /// Somebody has been there for a quantum.
    Stayed,
    /// Somebody does not change any more.
    Rests,
}

/// Somebody who could make room.
struct Candidate {
    session: Rc<Session>,
    resident: Resident,
    /// It has just come.
    is_fresh: bool,
}

/// The more urgent, the higher, as [`choose_victims`] counts.
fn priority(session: &Session) -> i32 {
    session.terms.priority.checked_neg().unwrap_or(i32::MAX)
}

fn no_room(short: u64) -> Error {
    Error::new(ErrorCode::OutOfMemory, format!("nobody makes room for {short} bytes of device memory"))
        .remedy("free memory, or wait until others do")
}

impl<'a, 'b> Eviction<'a, 'b> {
    pub(crate) fn new(turn: &'a Turn<'b>, asker: &'a Session) -> Self {
        let deadline = Instant::now() + asker.limits.second * PATIENCE_SECONDS;
        Self { turn, asker, busy: HashSet::new(), stuck: HashSet::new(), deadline }
    }

    /// Swaps others out until so much device memory is left for all sessions.
    pub(crate) async fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        loop {
            let room = self.asker.device.executor.ledger.borrow().room(Resource::DeviceBytes);
            match bytes.saturating_sub(room) {
                0 => return Ok(()),
                short => self.evict(short).await?,
            }
        }
    }

    /// Swaps others out to make this much room. There may be less of it afterwards, but never none.
    pub(crate) async fn evict(&mut self, short: u64) -> Result<(), Error> {
        if self.asker.device.executor.is_isolated() {
            // It knows only its own executor's word for who is idle.
            let message = format!("{short} bytes are missing, and nobody makes room for an isolated session");
            return Err(Error::new(ErrorCode::OutOfMemory, message).remedy(
                "suspend or end another session (`bulkhead status` tells who has how much), and try again",
            ));
        }
        loop {
            self.asker.live()?;
            let candidates = self.candidates().await?;
            let is_free =
                |one: &Candidate| !self.busy.contains(&one.session.id) && !one.session.is_changing();
            let victims = self
                .choose(&candidates, short, is_free)
                .or_else(|| self.choose(&candidates, short, |_| true));
            let Some(victims) = victims.filter(|victims| !victims.is_empty()) else {
                if !self.somebody_leaves() {
                    return Err(no_room(short));
                }
                self.wait(short, Until::Rests).await?;
                continue;
            };
            let (mut moved, mut waits) = (0u64, None);
            for victim in victims {
                let Some(candidate) = candidates.iter().find(|one| one.session.id == victim) else {
                    continue;
                };
                if candidate.session.is_changing() {
                    waits = Some(Until::Rests);
                    continue;
                }
                if candidate.is_fresh {
                    waits = waits.or(Some(Until::Stayed));
                    continue;
                }
                match self.move_out(&candidate.session).await {
                    Ok(bytes) => moved += bytes,
                    // It goes on with another executor in a moment.
                    Err(error) if error.code == ErrorCode::DeviceLost => waits = Some(Until::Rests),
                    Err(error) if error.code == ErrorCode::OutOfMemory && self.busy.insert(victim) => {}
                    Err(error) => {
                        if let Some(unsaid) = candidate.session.party.line() {
                            tracing::info!(session = victim, %error, unsaid, "a session is not swapped out");
                        }
                        self.stuck.insert(victim);
                    }
                }
            }
            if moved > 0 {
                return Ok(());
            }
            if let Some(until) = waits {
                self.wait(short, until).await?;
            }
        }
    }

    /// Swaps somebody out. Whoever was found busy before is waited for, and everybody else goes on meanwhile.
    async fn move_out(&self, victim: &Rc<Session>) -> Result<u64, Error> {
        if !self.busy.contains(&victim.id) {
            return victim.move_out(self.asker.limits.second / SHORT_PART).await;
        }
        // Nobody takes the asker's own memory away for which it has the turn.
        let _stays = self.asker.change()?;
        let patience = self.asker.limits.seconds(limits::DRAIN_SECONDS);
        self.turn.let_go_for(victim.move_out(patience)).await
    }

    /// Waits a moment for somebody to be ready to go. The asker may have been swapped out afterwards.
    async fn wait(&self, short: u64, until: Until) -> Result<(), Error> {
        let leaving = self.asker.limits.seconds(limits::DRAIN_SECONDS);
        let deadline = if self.somebody_leaves() { self.deadline + leaving } else { self.deadline };
        if Instant::now() > deadline {
            return Err(no_room(short));
        }
        let look = tokio::time::sleep(LOOK);
        match until {
            Until::Stayed => look.await,
            // That may be as long as a kernel runs.
            Until::Rests => self.turn.let_go_for(look).await,
        }
        Ok(())
    }

    fn somebody_leaves(&self) -> bool {
        let may_go =
            |session: &Rc<Session>| session.is_leaving() && priority(session) <= priority(self.asker);
        self.asker.device.registry.sessions().iter().any(may_go)
    }

    /// Who goes of those that `may`; `None` where they are not enough.
    fn choose(
        &self,
        candidates: &[Candidate],
        short: u64,
        may: impl Fn(&Candidate) -> bool,
    ) -> Option<Vec<u32>> {
        let need = Need { session: self.asker.id, priority: priority(self.asker), bytes: short };
        let known: Vec<Resident> = candidates
            .iter()
            .map(|one| Resident { swappable: one.resident.swappable && may(one), ..one.resident })
            .collect();
        choose_victims(&known, need, self.asker.device.mover.now_ns(), QUANTUM_NS)
    }

    /// Those who could make room, and how they compare.
    async fn candidates(&self) -> Result<Vec<Candidate>, Error> {
        let activity = self.asker.activity().await?;
        let activity: HashMap<u32, Activity> =
            activity.into_iter().map(|activity| (activity.session, activity)).collect();
        let device = &self.asker.device;
        let now_ns = device.mover.now_ns();
        let candidate = |session: Rc<Session>| {
            let bytes = session.movable_bytes()?;
            let since_ns = session.resident_since_ns();
            let (idle_ns, in_flight) =
                activity.get(&session.id).map_or((0, 0), |activity| (activity.idle_ns, activity.in_flight));
            let idle_ns = idle_ns.min(now_ns.saturating_sub(since_ns));
            let rests = in_flight == 0 && idle_ns >= IDLE_NS;
            let is_fresh = !rests && now_ns.saturating_sub(since_ns) < QUANTUM_NS;
            let resident = Resident {
                session: session.id,
                bytes,
                priority: priority(&session),
                last_active_ns: now_ns.saturating_sub(idle_ns),
                since_ns: if rests { now_ns.saturating_sub(QUANTUM_NS) } else { since_ns },
                swappable: !self.stuck.contains(&session.id),
            };
            Some(Candidate { session, resident, is_fresh })
        };
        Ok(device.registry.sessions().into_iter().filter_map(candidate).collect())
    }
}
