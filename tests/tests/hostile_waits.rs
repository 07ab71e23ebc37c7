//! Hostile acts with calls that wait: very many, very large, given up. Each runs in a process of its own, beside a client
//! that pings and one that computes.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{path::Path, time::Duration};

use bulkhead_client::{Error, ErrorCode};
use bulkhead_schema::{
    bulkhead_capnp::{gpu_copy_session, gpu_session, gpu_signal},
    limits,
};
use bulkhead_tests::{
    apart::{act_apart, hold, tell},
    calls, child,
    fuzz::message::{Body, Pointer, Target},
    kernel::Kernel,
    neighbour::Neighbour,
    process::resident_bytes,
    raw::Raw,
    status::local,
};
use capnp::traits::HasTypeId as _;
use tokio::task::JoinSet;

/// Longer than any act.
const LONG_MS: u32 = 600_000;
/// Long enough for what is not to come.
const A_WHILE: Duration = Duration::from_millis(300);

/// Sessions, each of a connection of its own, whose signals somebody waits for.
const SESSIONS: usize = 14;
/// Waits of each.
const WAITS_OF_EACH: usize = 512;
/// Waits of all: as many as this kernel lets a process have, and almost what a user may have.
const WAITS: usize = SESSIONS * WAITS_OF_EACH;

/// Waits that have not ended.
struct Waits(JoinSet<Result<bool, Error>>);

impl Waits {
    fn add(&mut self, fence: &gpu_signal::Client) {
        self.0.spawn_local(calls::waited(calls::wait(fence, LONG_MS)));
    }

    /// The next that ends was told that there is nothing to wait for any more.
    async fn one_is_told(&mut self, codes: &[ErrorCode]) {
        let told = self.0.join_next().await.unwrap().unwrap().unwrap_err();
        assert!(codes.contains(&told.code), "{told}");
    }

    /// None ends, and there are so many.
    async fn go_on(&mut self, left: usize) {
        let ended = tokio::time::timeout(A_WHILE, self.0.join_next()).await;
        assert!(ended.is_err(), "a wait has ended: {ended:?}");
        assert_eq!(self.0.len(), left);
    }
}

/// Has a process wait as often as it may, and ends what it waits for.
async fn wait_by_the_thousand(socket: &Path) {
    let mut sessions = Vec::new();
    let mut waits = Waits(JoinSet::new());
    for _ in 0..SESSIONS {
        let connection = calls::connect(socket, "waits").await;
        let session = calls::open(&connection, "waits").await.unwrap().copying();
        let signals = calls::signals(&session, WAITS_OF_EACH - 1).await.unwrap();
        signals.iter().for_each(|signal| waits.add(signal));
        // Who waits for a point of a stream waits for the executor.
        waits.add(&gpu_signal::Client { client: beyond(&session).await });
        sessions.push((connection, session, signals));
    }
    // Every one is there before the one that is too many.
    for (connection, ..) in &sessions {
        connection.ping(0).await.unwrap();
    }
    let too_many = calls::waited(calls::wait(&sessions[0].2[0], LONG_MS)).await.unwrap_err();
    assert_eq!(too_many.code, ErrorCode::LimitReached, "{too_many}");
    assert!(too_many.message.contains(&format!("{WAITS} waits")), "{too_many}");
    waits.go_on(WAITS).await;
    tell(&format!("{WAITS} calls wait"));
    hold();
    // One by one: whoever waits for it is told, and nobody else.
    let (_, _, signals) = &mut sessions[0];
    for signal in signals.drain(..) {
        calls::close(signal.client).await.unwrap();
        waits.one_is_told(&[ErrorCode::InvalidHandle]).await;
    }
    waits.go_on(WAITS - WAITS_OF_EACH + 1).await;
    // All of a session at once, and the rest by their connections.
    let (_, session, _) = &sessions[1];
    calls::end(session).await.unwrap();
    for _ in 0..WAITS_OF_EACH {
        waits.one_is_told(&[ErrorCode::InvalidHandle, ErrorCode::SessionLost]).await;
    }
    waits.go_on(WAITS - 2 * WAITS_OF_EACH + 1).await;
}

/// A capability for a point that no work has come to.
async fn beyond(session: &gpu_copy_session::Client) -> capnp::capability::Client {
    let mut fence = session.fence_request();
    fence.get().set_position(1 << 40);
    let response = fence.send().promise.await.unwrap();
    let made = calls::read(response.get().and_then(|response| response.get_result())).unwrap();
    made.get_fence().unwrap().client
}

#[test]
fn thousands_of_waits_end_one_by_one_and_all_at_once() {
    const NAME: &str = "thousands_of_waits_end_one_by_one_and_all_at_once";
    if let Some(socket) = child::role() {
        return local(wait_by_the_thousand(&socket));
    }
    let kernel = Kernel::with(&["--process-limit", &format!("waits={WAITS}")]);
    act_apart(&kernel, "thousands of waits that end", NAME, |_| {});
}

/// Connections that bring much along.
const STUFFED: usize = 8;
/// What one call brings along, in bytes: almost the largest message.
const BROUGHT: usize = 1_000_000;
/// How many calls of one connection do. More are refused by that connection's own limit.
const CALLS: usize = 16;

/// Calls that wait and bring much along, until the kernel does not read on; how many bytes it took.
fn stuff(client: &mut Raw) -> usize {
    let name = gpu_session::Client::TYPE_ID;
    let (opened, path) = client.open_session("stuffed");
    client.receive();
    client.stream.set_write_timeout(Some(A_WHILE)).unwrap();
    // It waits until somebody gives the session something, which nobody does.
    let body = || {
        let pointers = vec![(0, Pointer::Bytes(vec![b'x'; BROUGHT]))];
        Body { data: vec![(32, 0, u64::from(LONG_MS))], pointers }
    };
    let mut waiting = None;
    for call in 0..CALLS {
        // Every second is a call on what one of these answers: all of it is kept, for as long as that waits.
        let target = match waiting {
            Some(question) if call % 2 == 1 => Target::Answer(question, vec![0, 0, 0]),
            Some(_) | None => Target::Answer(opened, path.clone()),
        };
        let (question, message) = client.ask(target, name, "granted", body());
        if client.send(&message).is_err() {
            return call * BROUGHT;
        }
        waiting.get_or_insert(question);
    }
    CALLS * BROUGHT
}

/// Brings along all that a user may.
fn bring_very_much(socket: &Path) {
    let mut clients: Vec<_> = (0..STUFFED).map(|_| Raw::connect(socket, "stuffed")).collect();
    let taken: usize = clients.iter_mut().map(stuff).sum();
    let most = usize::try_from(limits::MESSAGE_BYTES_OF_PRINCIPAL_MAX).unwrap();
    assert!(taken > most - BROUGHT, "{taken} bytes are less than what is allowed");
    assert!(taken < STUFFED * CALLS * BROUGHT, "everything was read");
    // Whoever has little of its own is read from.
    drop(Raw::connect(socket, "small"));
    tell(&format!("{taken} bytes were sent"));
    hold();
}

#[test]
fn calls_that_wait_bring_along_all_that_a_user_may() {
    const NAME: &str = "calls_that_wait_bring_along_all_that_a_user_may";
    if let Some(socket) = child::role() {
        return bring_very_much(&socket);
    }
    let most = limits::MESSAGE_BYTES_OF_PRINCIPAL_MAX;
    let kernel = Kernel::with(&["--process-limit", &format!("message_bytes={most}")]);
    let before = resident_bytes(kernel.pid());
    act_apart(&kernel, "parameters that fill what a user may bring along", NAME, |kernel| {
        // They are of the same user, and little.
        Neighbour::new(kernel, "newcomer").work();
        let grown = resident_bytes(kernel.pid()).saturating_sub(before);
        println!("  the kernel grew by {grown} bytes");
        assert!(grown < 4 * most, "it keeps more than it counts");
    });
}

/// Connections that give up calls: all but one give up as many as one may, which is what their process may.
const GIVING_UP: usize = 5;
/// How many calls are given up at a time.
const AT_ONCE: usize = 256;

/// Gives up as many calls as a process may, and more.
async fn give_up(socket: &Path) {
    let mut given_up = Vec::new();
    for _ in 0..GIVING_UP {
        let connection = calls::connect(socket, "gives up").await;
        let session = calls::open(&connection, "gives up").await.unwrap().copying();
        let signal = calls::signals(&session, 1).await.unwrap().remove(0);
        let mut lives = true;
        for _ in (0..limits::CANCELLED_MAX).step_by(AT_ONCE) {
            drop((0..AT_ONCE).map(|_| calls::wait(&signal, LONG_MS)).collect::<Vec<_>>());
            lives = lives && connection.ping(0).await.is_ok();
        }
        given_up.push((connection, session, signal, lives));
    }
    let mut ended = Vec::new();
    for (connection, .., lived) in &given_up {
        ended.push(!lived || connection.ping(0).await.is_err());
    }
    assert_eq!(ended, [false, false, false, false, true], "who goes beyond what the process may is ended");
    hold();
}

#[test]
fn calls_are_given_up_as_often_as_a_process_may() {
    const NAME: &str = "calls_are_given_up_as_often_as_a_process_may";
    if let Some(socket) = child::role() {
        return local(give_up(&socket));
    }
    let kernel = Kernel::start();
    act_apart(&kernel, "calls that are given up", NAME, |kernel| Neighbour::new(kernel, "newcomer").work());
}
