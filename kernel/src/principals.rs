//! Principals: who is behind connections, and how much each may take of what all clients share.
//!
//! A *principal* is a tenant that the operator has named, else a user. What is counted here is what clients take without
//! an account: connections, calls that wait, what their messages hold, places to compile, lines of the log; and sessions,
//! whose accounts say the rest. It is counted three times: for a *process* of a principal, for the principal, for all. A
//! process gets a part of what its principal may have, so that no client locks out others of its user.
//!
//! # Invariants
//! 1. What is taken counts at all three levels until it is given back, once.
//! 2. Nothing is taken beyond a limit of any level, but for the bytes of messages: those are known when they are there,
//!    and then no more is read ([`Party::is_over`]).

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt,
    rc::{Rc, Weak},
    task::Waker,
};

use bulkhead_schema::{Error, ErrorCode, limits};
use tokio::time::Instant;

use crate::transport::door::Peer;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Connections to the clients' socket.
    Connections,
    /// Connections to the socket for descriptors.
    DescriptorConnections,
    /// Sessions that are being opened, are open or have not given everything back.
    Sessions,
    /// Calls that wait for something to happen.
    Waits,
    /// What messages hold of calls that are not answered, in bytes.
    MessageBytes,
    /// Images that are compiled or wait for it.
    Compiles,
    /// Sessions that are gone, and of which clients still hold capabilities.
    GoneSessions,
    /// Calls that were given up before they were answered, each of which is remembered as long as its connection is open.
    GivenUp,
    /// Revocations and tokens that clients hold of what others gave them.
    OfOthers,
}

/// How many things are counted.
const COUNTED: usize = Counted::ALL.len();

impl Counted {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Connections,
        Self::DescriptorConnections,
        Self::Sessions,
        Self::Waits,
        Self::MessageBytes,
        Self::Compiles,
        Self::GoneSessions,
        Self::GivenUp,
        Self::OfOthers,
    ];

    /// What people call it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::DescriptorConnections => "descriptor_connections",
            Self::Sessions => "sessions",
            Self::Waits => "waits",
            Self::MessageBytes => "message_bytes",
            Self::Compiles => "compiles",
            Self::GoneSessions => "gone_sessions",
            Self::GivenUp => "given_up",
            Self::OfOthers => "of_others",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|counted| counted.key() == key)
    }
}

/// How much of everything counted there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota([u64; COUNTED]);

impl Quota {
    /// No limits.
    pub const UNLIMITED: Self = Self([u64::MAX; COUNTED]);
    /// What a principal may have unless its operator says otherwise.
    pub const PRINCIPAL: Self = Self([
        limits::CONNECTIONS_OF_PRINCIPAL_MAX,
        limits::DESCRIPTOR_CONNECTIONS_OF_PRINCIPAL_MAX,
        limits::SESSIONS_MAX as u64,
        limits::WAITS_OF_PRINCIPAL_MAX,
        limits::MESSAGE_BYTES_OF_PRINCIPAL_MAX,
        limits::COMPILES_OF_PRINCIPAL_MAX,
        limits::GONE_SESSIONS_OF_PRINCIPAL_MAX,
        limits::GIVEN_UP_OF_PRINCIPAL_MAX,
        limits::OF_OTHERS_OF_PRINCIPAL_MAX,
    ]);
    /// What one process of it may.
    pub const PROCESS: Self = Self([
        limits::CONNECTIONS_OF_PROCESS_MAX,
        limits::DESCRIPTOR_CONNECTIONS_OF_PROCESS_MAX,
        limits::SESSIONS_OF_PROCESS_MAX,
        limits::WAITS_OF_PROCESS_MAX,
        limits::MESSAGE_BYTES_OF_PROCESS_MAX,
        limits::COMPILES_OF_PROCESS_MAX,
        limits::GONE_SESSIONS_OF_PROCESS_MAX,
        limits::GIVEN_UP_OF_PROCESS_MAX,
        limits::OF_OTHERS_OF_PROCESS_MAX,
    ]);

    /// The same with another limit for one thing.
    #[must_use]
    pub const fn with(mut self, counted: Counted, most: u64) -> Self {
        self.0[counted as usize] = most;
        self
    }

    /// The limit for one thing.
    #[must_use]
    pub const fn get(&self, counted: Counted) -> u64 {
        self.0[counted as usize]
    }
}

/// A principal that the operator has named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// What people call it.
    pub name: String,
    /// Whose processes are its own.
    pub whose: Whose,
}

/// Which processes are a tenant's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// Those of a user.
    Uid(u32),
    /// Those of a cgroup (version 2), and of those below it.
    Cgroup(String),
}

impl Whose {
    fn is(&self, peer: Peer, cgroup: Option<&str>) -> bool {
        match self {
            Self::Uid(uid) => *uid == peer.uid,
            Self::Cgroup(top) => cgroup
                .and_then(|path| path.strip_prefix(top.trim_end_matches('/')))
                .is_some_and(|below| below.is_empty() || below.starts_with('/')),
        }
    }
}

/// Whose count it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    Everybody,
    Principal(String),
    Process(Option<i32>),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("all clients together have"),
            Self::Principal(name) => write!(f, "{name} has"),
            Self::Process(Some(pid)) => write!(f, "process {pid} has"),
            Self::Process(None) => f.write_str("processes that the kernel cannot name have together"),
        }
    }
}

/// Lines that somebody may still cause in the log: so many at once, and so many a second.
pub(crate) struct Lines {
    left: Cell<u32>,
    since: Cell<Instant>,
    dropped: Cell<u64>,
}

impl Lines {
    pub(crate) fn new() -> Self {
        let (left, since) = (Cell::new(limits::LOG_LINES_AT_ONCE), Cell::new(Instant::now()));
        Self { left, since, dropped: Cell::new(0) }
    }

    /// Whether one more may be written, and how many were not since the last.
    pub(crate) fn take(&self) -> Option<u64> {
        let earned =
            self.since.get().elapsed().as_secs().saturating_mul(u64::from(limits::LOG_LINES_PER_SECOND));
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left.set(self.left.get().saturating_add(earned).min(limits::LOG_LINES_AT_ONCE));
            self.since.set(Instant::now());
        }
        match self.left.get().checked_sub(1) {
            Some(left) => {
                self.left.set(left);
                Some(self.dropped.take())
            }
            None => {
                self.dropped.set(self.dropped.get().saturating_add(1));
                None
            }
        }
    }
}

/// Whoever something is counted for.
pub(crate) struct Party {
    level: Level,
    above: Option<Rc<Party>>,
    most: Quota,
    used: [Cell<u64>; COUNTED],
    /// Connections that are not read from until there is room for messages again.
    stalled: RefCell<Vec<Waker>>,
    lines: Lines,
    /// When it last had a turn where there are turns, as a count of them.
    turn: Cell<u64>,
}

impl Party {
    fn new(level: Level, above: Option<&Rc<Self>>, most: Quota) -> Rc<Self> {
        Rc::new(Self {
            level,
            above: above.map(Rc::clone),
            most,
            used: Default::default(),
            stalled: RefCell::default(),
            lines: Lines::new(),
            turn: Cell::new(0),
        })
    }

    /// It, its principal, and everybody.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |party| party.above.as_deref())
    }

    fn used(&self, counted: Counted) -> &Cell<u64> {
        &self.used[counted as usize]
    }

    /// Takes so much, until the result is dropped.
    pub(crate) fn take(self: &Rc<Self>, counted: Counted, amount: u64) -> Result<Taken, Error> {
        let full = self
            .levels()
            .find(|party| party.used(counted).get().saturating_add(amount) > party.most.get(counted));
        match full {
            Some(party) => Err(party.refuse(counted)),
            None => Ok(self.count(counted, amount)),
        }
    }

    /// Whether one more of what nobody can refuse may come to be counted.
    pub(crate) fn is_below(self: &Rc<Self>, counted: Counted) -> Result<(), Error> {
        self.take(counted, 1).map(drop)
    }

    /// As [`take`](Self::take), whatever the limits are.
    pub(crate) fn count(self: &Rc<Self>, counted: Counted, amount: u64) -> Taken {
        for party in self.levels() {
            party.used(counted).set(party.used(counted).get().saturating_add(amount));
        }
        Taken { party: Rc::clone(self), counted, amount }
    }

    fn give_back(&self, counted: Counted, amount: u64) {
        for party in self.levels() {
            party.used(counted).set(party.used(counted).get().saturating_sub(amount));
            if counted == Counted::MessageBytes {
                party.stalled.take().into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Whether as much is taken as may be, of it, its principal or all.
    pub(crate) fn is_over(&self, counted: Counted) -> bool {
        self.levels().any(|party| party.used(counted).get() >= party.most.get(counted))
    }

    /// Wakes when messages went.
    pub(crate) fn wake_when_there_is_room(&self, waker: &Waker) {
        for party in self.levels() {
            let mut stalled = party.stalled.borrow_mut();
            if !stalled.iter().any(|known| known.will_wake(waker)) {
                stalled.push(waker.clone());
            }
        }
    }

    fn refuse(&self, counted: Counted) -> Error {
        let key = counted.key();
        let (most, flag) = (
            self.most.get(counted),
            match self.level {
                Level::Everybody => None,
                Level::Principal(_) => Some("user"),
                Level::Process(_) => Some("process"),
            },
        );
        let what = match counted {
            Counted::OfOthers => "revocations and tokens of what others gave".to_owned(),
            Counted::GivenUp => "calls that were given up".to_owned(),
            Counted::GoneSessions => "closed sessions of which capabilities are held".to_owned(),
            Counted::Connections
            | Counted::DescriptorConnections
            | Counted::Sessions
            | Counted::Waits
            | Counted::MessageBytes
            | Counted::Compiles => key.replace('_', " "),
        };
        let message = format!("{} {most} {what}, which is the limit", self.level);
        let raise = flag.map_or_else(
            || "its operator sees who has them with `bulkhead status`, and ends sessions with `bulkhead evict`".to_owned(),
            |flag| format!("`bulkhead serve --{flag}-limit {key}=N` sets the limit"),
        );
        Error::new(ErrorCode::LimitReached, message)
            .remedy(format!("give some up, or try again later; {raise}"))
    }

    /// Whether its principal may have one more line in the log now; then how many lines it did not get since the last.
    pub(crate) fn line(&self) -> Option<u64> {
        let principal = self.levels().find(|party| matches!(party.level, Level::Principal(_)));
        principal.unwrap_or(self).lines.take()
    }

    /// What its principal is called.
    pub(crate) fn principal(&self) -> &str {
        let name = |party: &Self| matches!(party.level, Level::Principal(_));
        match self.levels().find(|party| name(party)).map(|party| &party.level) {
            Some(Level::Principal(name)) => name,
            Some(Level::Everybody | Level::Process(_)) | None => "everybody",
        }
    }

    /// It had a turn, and so had its principal.
    pub(crate) fn had_a_turn(&self, turn: u64) {
        self.levels().for_each(|party| party.turn.set(turn));
    }

    /// When its principal last had a turn, and when it had.
    pub(crate) fn turns(&self) -> (u64, u64) {
        (self.above.as_ref().map_or(0, |principal| principal.turn.get()), self.turn.get())
    }

    /// Whether both are processes of one principal.
    pub(crate) fn is_of_the_same(&self, other: &Self) -> bool {
        match (&self.above, &other.above) {
            (Some(own), Some(theirs)) => Rc::ptr_eq(own, theirs),
            (None, _) | (_, None) => false,
        }
    }
}

/// Something that was taken, given back on drop.
#[must_use]
pub(crate) struct Taken {
    party: Rc<Party>,
    counted: Counted,
    amount: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.party.give_back(self.counted, self.amount);
    }
}

/// The process of a principal: its name, its number.
type Named = (String, Option<i32>);

/// Every principal that was seen, and the processes that are there.
pub(crate) struct Principals {
    everybody: Rc<Party>,
    principal: Quota,
    process: Quota,
    tenants: Vec<Tenant>,
    /// By name. They are few, and what they wrote to the log counts on after their last process.
    known: RefCell<HashMap<String, Rc<Party>>>,
    processes: RefCell<HashMap<Named, Weak<Party>>>,
}

/// So many processes are remembered before those that are gone are forgotten.
const PROCESSES_PER_SWEEP: usize = 1024;

impl Principals {
    pub(crate) fn new(everybody: Quota, principal: Quota, process: Quota, tenants: Vec<Tenant>) -> Self {
        Self {
            everybody: Party::new(Level::Everybody, None, everybody),
            principal,
            process,
            tenants,
            known: RefCell::default(),
            processes: RefCell::default(),
        }
    }

    /// The process at the other end of a socket.
    pub(crate) fn of(&self, peer: Peer) -> Rc<Party> {
        let name = self.name(peer);
        let mut processes = self.processes.borrow_mut();
        let key = (name.clone(), peer.pid);
        if let Some(process) = processes.get(&key).and_then(Weak::upgrade) {
            return process;
        }
        if processes.len() >= PROCESSES_PER_SWEEP {
            processes.retain(|_, process| process.strong_count() > 0);
        }
        let mut known = self.known.borrow_mut();
        let principal = known
            .entry(name.clone())
            .or_insert_with(|| Party::new(Level::Principal(name), Some(&self.everybody), self.principal));
        let process = Party::new(Level::Process(peer.pid), Some(principal), self.process);
        processes.insert(key, Rc::downgrade(&process));
        process
    }

    fn name(&self, peer: Peer) -> String {
        let asks = self.tenants.iter().any(|tenant| matches!(tenant.whose, Whose::Cgroup(_)));
        let cgroup = peer.pid.filter(|_| asks).and_then(cgroup);
        let tenant = self.tenants.iter().find(|tenant| tenant.whose.is(peer, cgroup.as_deref()));
        tenant.map_or_else(|| format!("user {}", peer.uid), |tenant| format!("tenant {}", tenant.name))
    }
}

/// The cgroup (version 2) of a process.
fn cgroup(pid: i32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A process that may have as much as one may.
    pub(crate) fn somebody() -> Rc<Party> {
        principals().of(peer(1))
    }

    fn peer(pid: i32) -> Peer {
        Peer { uid: 1000, pid: Some(pid) }
    }

    fn principals() -> Principals {
        Principals::new(Quota::UNLIMITED, Quota::PRINCIPAL, Quota::PROCESS, Vec::new())
    }

    #[test]
    fn a_process_takes_its_part_and_leaves_others_of_its_user_theirs() {
        let principals = principals();
        let greedy = principals.of(peer(1));
        let mut taken = Vec::new();
        let error = loop {
            match greedy.take(Counted::Sessions, 1) {
                Ok(one) => taken.push(one),
                Err(error) => break error,
            }
        };
        assert_eq!(taken.len() as u64, limits::SESSIONS_OF_PROCESS_MAX);
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert!(error.message.contains("process 1 has 8 sessions"), "{error}");
        assert!(error.remedy.contains("--process-limit sessions="), "{error}");
        assert!(principals.of(peer(2)).take(Counted::Sessions, 1).is_ok());
        drop(greedy);
        assert!(principals.of(peer(1)).take(Counted::Sessions, 1).is_err(), "it is the same process");
        taken.pop();
        assert!(principals.of(peer(1)).take(Counted::Sessions, 1).is_ok());
    }

    #[test]
    fn processes_of_a_user_leave_others_a_reserve() {
        let everybody = Quota::UNLIMITED.with(Counted::Connections, limits::CONNECTIONS_MAX as u64);
        let principals = Principals::new(everybody, Quota::PRINCIPAL, Quota::PROCESS, Vec::new());
        let mut taken = Vec::new();
        let refused =
            (1..1000).find_map(|pid| match principals.of(peer(pid)).take(Counted::Connections, 1) {
                Ok(one) => {
                    taken.push(one);
                    None
                }
                Err(error) => Some(error),
            });
        assert!(refused.unwrap().message.contains("user 1000 has"));
        let root = principals.of(Peer { uid: 0, pid: Some(1) });
        let left = limits::CONNECTIONS_MAX as u64 - limits::CONNECTIONS_OF_PRINCIPAL_MAX;
        assert!(root.take(Counted::Connections, left).is_ok());
        assert!(root.take(Counted::Connections, left + 1).is_err());
        drop(taken);
        assert_eq!(principals.everybody.used(Counted::Connections).get(), 0);
    }

    #[test]
    fn tenants_are_named_by_user_or_cgroup() {
        let tenant = |name: &str, whose| Tenant { name: name.into(), whose };
        let tenants = vec![tenant("blue", Whose::Cgroup("/pods/blue/".into())), tenant("red", Whose::Uid(7))];
        let is = |uid, cgroup: &str| {
            let peer = Peer { uid, pid: Some(1) };
            tenants
                .iter()
                .find(|tenant| tenant.whose.is(peer, Some(cgroup)))
                .map(|tenant| tenant.name.as_str())
        };
        assert_eq!(is(1, "/pods/blue"), Some("blue"));
        assert_eq!(is(1, "/pods/blue/inner"), Some("blue"));
        assert_eq!(is(1, "/pods/bluebeard"), None);
        assert_eq!(is(7, "/"), Some("red"));
        let principals = Principals::new(Quota::UNLIMITED, Quota::PRINCIPAL, Quota::PROCESS, tenants.clone());
        let (one, other) =
            (principals.of(Peer { uid: 7, pid: Some(1) }), principals.of(Peer { uid: 7, pid: Some(2) }));
        assert_eq!(one.principal(), "tenant red");
        assert!(one.is_of_the_same(&other) && !one.is_of_the_same(&principals.of(peer(1))));
    }

    #[test]
    fn lines_have_a_rate_that_a_new_process_does_not_reset() {
        let principals = principals();
        let written = (0..10_000).filter(|pid| principals.of(peer(*pid)).line().is_some()).count();
        let most = limits::LOG_LINES_AT_ONCE + 2 * limits::LOG_LINES_PER_SECOND;
        assert!(written <= most as usize, "{written} lines");
        let root = principals.of(Peer { uid: 0, pid: Some(1) });
        assert_eq!(root.line(), Some(0), "others have lines of their own");
    }

    #[test]
    fn processes_that_are_gone_are_forgotten() {
        let principals = principals();
        for pid in 0..10_000 {
            drop(principals.of(peer(pid)));
        }
        assert!(principals.processes.borrow().len() <= PROCESSES_PER_SWEEP);
    }
}
