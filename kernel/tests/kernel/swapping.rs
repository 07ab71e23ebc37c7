//! Sessions that do not fit on the device together: who goes, who comes back, and what becomes of those who end.

use std::{future::Future, sync::Arc, time::Duration};

use bulkhead_kernel::{Counted, Quota};
use bulkhead_schema::ErrorCode;

use crate::{
    fake::{Asked, Fake, Manners},
    handed::derive,
    harness::{Client, Harness, Session, everything_given_back, until, with_changed_kernel},
};

const MIB: u64 = 1 << 20;
const SINK: u64 = 64 * MIB;
/// What sessions may use beside their sinks.
const ROOM: u64 = 800 * MIB;

/// A device with room for this many sinks and `ROOM`, where nobody has just come.
fn with_little_memory<F: Future<Output = ()>>(
    sessions: u64,
    swap_bytes: u64,
    test: impl FnOnce(Arc<Harness>, Client) -> F,
) {
    let little = move |config: &mut bulkhead_kernel::Config| {
        config.limits.device_bytes = Some(sessions * SINK + ROOM);
        config.limits.swap_bytes = swap_bytes;
        config.limits.priority_ceiling = -1;
    };
    with_changed_kernel(Manners::default(), little, async |harness| {
        let client = Client::new(&harness.directory).await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        test(Arc::clone(&harness), client).await;
        everything_given_back(&harness.directory).await;
    });
}

/// Which sessions were to be swapped out, in order.
fn swapped_out(fake: &Fake) -> Vec<u32> {
    let out = |asked: &Asked| match asked {
        Asked::SwapOut { session, .. } => Some(*session),
        _ => None,
    };
    fake.asked().iter().filter_map(out).collect()
}

fn came_back(fake: &Fake, session: &Session, bytes: u64) -> bool {
    fake.asked().contains(&Asked::SwapIn { session: session.id, bytes })
}

#[test]
fn whoever_was_idle_for_longest_goes_and_comes_back_when_it_has_something_to_do() {
    with_little_memory(3, 4096 * MIB, async |harness, client| {
        let fake = &harness.fake;
        let mut sessions = Vec::new();
        for (name, idle_ms) in [("one", 20), ("two", 40), ("three", 10)] {
            let session = client.open(name).await.unwrap();
            fake.be_idle(session.id, idle_ms * 1_000_000);
            sessions.push(session);
        }
        let [one, two, three] = &sessions[..] else { unreachable!() };
        let _first = one.allocate(256 * MIB).await.unwrap();
        let _second = two.allocate(256 * MIB).await.unwrap();
        let _third = three.allocate(512 * MIB).await.unwrap();
        assert_eq!(swapped_out(fake), [two.id]);
        let status = client.status().await;
        assert_eq!(status.swaps, (1, 0, 256 * MIB));
        assert_eq!(status.charged_bytes, 3 * SINK + 768 * MIB);
        let session = |id| status.sessions.iter().find(|session| session.id == id).unwrap();
        assert_eq!((session(two.id).swapped_bytes, session(two.id).swaps), (256 * MIB, 1));
        assert_eq!(session(two.id).arena_bytes, SINK);
        assert_eq!((session(one.id).swapped_bytes, session(one.id).swaps), (0, 0));
        fake.want(two.id);
        until(async || came_back(fake, two, 256 * MIB)).await;
        assert_eq!(swapped_out(fake), [two.id, one.id]);
        // Its memory comes back before it changes.
        let _fourth = one.allocate(2 * MIB).await.unwrap();
        assert!(came_back(fake, one, 256 * MIB));
        let status = client.status().await;
        assert!(status.charged_bytes <= 3 * SINK + ROOM, "{status:?}");
        // One of the others went for it, and so nobody else.
        assert_eq!((status.swaps.0, status.swaps.1), (3, 2));
        client.leave();
    });
}

#[test]
fn nobody_goes_who_must_stay_or_is_more_urgent_and_who_cannot_go_is_passed_over() {
    with_little_memory(5, 4096 * MIB, async |harness, client| {
        let fake = &harness.fake;
        let urgent = client.open_with("urgent", -1, false).await;
        let resident = client.open_with("resident", 5, true).await;
        let busy = client.open_with("busy", 4, false).await;
        let calm = client.open("calm").await.unwrap();
        let mut held = Vec::new();
        for session in [&urgent, &resident, &busy, &calm] {
            held.push(session.allocate(200 * MIB).await.unwrap());
        }
        fake.behave(Manners { refuses_swap_out_of: busy.id, ..Manners::default() });
        let asker = client.open("asker").await.unwrap();
        held.push(asker.allocate(200 * MIB).await.unwrap());
        // The least urgent first.
        assert_eq!(swapped_out(fake), [busy.id, calm.id]);
        assert_eq!(client.status().await.swaps.0, 1);
        let refused = asker.allocate(300 * MIB).await.err().unwrap();
        assert_eq!(refused.code, ErrorCode::OutOfMemory);
        assert_eq!(client.status().await.swaps, (1, 0, 200 * MIB));
        client.leave();
    });
}

#[test]
fn what_is_freed_or_ends_while_it_is_away_does_not_come_back() {
    with_little_memory(2, 4096 * MIB, async |harness, client| {
        let fake = &harness.fake;
        let (one, two) = (client.open("one").await.unwrap(), client.open("two").await.unwrap());
        let freed = one.allocate(256 * MIB).await.unwrap();
        let kept = one.allocate(128 * MIB).await.unwrap();
        let taken = two.allocate(700 * MIB).await.unwrap();
        assert_eq!(swapped_out(fake), [one.id]);
        let of_one = async || {
            let status = client.status().await;
            let session = status.sessions.into_iter().find(|session| session.id == one.id);
            session.map(|session| (session.buffer_bytes, session.swapped_bytes))
        };
        assert_eq!(of_one().await, Some((384 * MIB, 384 * MIB)));
        drop(freed);
        until(async || of_one().await == Some((128 * MIB, 128 * MIB))).await;
        fake.want(one.id);
        until(async || came_back(fake, &one, 128 * MIB)).await;
        assert_eq!(swapped_out(fake), [one.id, two.id]);
        // The place of what was freed is taken by something else, in an area that has to be larger.
        let more = one.allocate(512 * MIB).await.unwrap();
        drop(taken);
        let again = two.allocate(400 * MIB).await.unwrap();
        assert_eq!(swapped_out(fake), [one.id, two.id, one.id]);
        let areas = fake
            .asked()
            .into_iter()
            .filter(|asked| matches!(asked, Asked::Area { session, .. } if *session == one.id));
        assert_eq!(areas.count(), 2);
        one.close().await.unwrap();
        until(async || client.status().await.charged_bytes == SINK + 400 * MIB).await;
        assert!(!came_back(fake, &one, 640 * MIB));
        drop((kept, more, again));
        client.leave();
    });
}

#[test]
fn nobody_goes_without_a_place_to_go() {
    with_little_memory(2, 1024 * MIB, async |harness, client| {
        let (one, two) = (client.open("one").await.unwrap(), client.open("two").await.unwrap());
        // More than there is to swap to, together with what comes next.
        let _held = one.allocate(700 * MIB).await.unwrap();
        let _first = two.allocate(512 * MIB).await.unwrap();
        assert_eq!(swapped_out(&harness.fake), [one.id]);
        harness.fake.want(one.id);
        tokio::time::sleep(Duration::from_millis(300)).await;
        // It waits for its room, and goes on waiting: the other has nowhere to go.
        assert!(!came_back(&harness.fake, &one, 700 * MIB));
        two.close().await.unwrap();
        until(async || came_back(&harness.fake, &one, 700 * MIB)).await;
        client.leave();
    });
}

#[test]
fn who_runs_on_keeps_nobody_from_making_room_with_others() {
    with_little_memory(4, 4096 * MIB, async |harness, client| {
        let fake = &harness.fake;
        let (busy, calm) = (client.open("busy").await.unwrap(), client.open("calm").await.unwrap());
        let (asker, other) = (client.open("asker").await.unwrap(), client.open("other").await.unwrap());
        fake.be_idle(busy.id, 40_000_000);
        fake.be_idle(calm.id, 20_000_000);
        let _held = (busy.allocate(400 * MIB).await.unwrap(), calm.allocate(200 * MIB).await.unwrap());
        fake.behave(Manners { runs_on: busy.id, ..Manners::default() });
        let (asked, made) = tokio::join!(asker.allocate(500 * MIB), async {
            until(async || swapped_out(fake) == [busy.id, busy.id]).await;
            // The first asker waits for the busy one, and nobody waits for the first asker.
            let made = other.allocate(300 * MIB).await;
            assert_eq!(swapped_out(fake), [busy.id, busy.id, calm.id]);
            assert_eq!(client.status().await.swaps.0, 1);
            fake.let_go();
            made
        });
        drop((asked.unwrap(), made.unwrap()));
        assert_eq!(client.status().await.swaps.0, 2);
        client.leave();
    });
}

#[test]
fn who_waits_for_a_session_that_changes_holds_up_nobody() {
    with_little_memory(4, 4096 * MIB, async |harness, client| {
        let fake = &harness.fake;
        let (changing, calm) = (client.open("changing").await.unwrap(), client.open("calm").await.unwrap());
        let asker = client.open("asker").await.unwrap();
        fake.be_idle(calm.id, 40_000_000);
        let buffer = changing.allocate(400 * MIB).await.unwrap();
        let _held = calm.allocate(200 * MIB).await.unwrap();
        // It closes something while its kernel runs.
        fake.behave(Manners { holds_drains: true, ..Manners::default() });
        drop(derive(&buffer.view(), 0, 64).await.unwrap());
        let answered = std::cell::Cell::new(0);
        let asked = futures::future::join_all((0..10).map(async |_| {
            drop(asker.allocate(700 * MIB).await);
            answered.set(answered.get() + 1);
        }));
        let back = async {
            until(async || swapped_out(fake) == [calm.id]).await;
            fake.want(calm.id);
            until(async || came_back(fake, &calm, 200 * MIB)).await;
            answered.get()
        };
        let before = tokio::select! {
            _ = asked => panic!("room cannot be made"),
            before = back => before,
        };
        assert_eq!(before, 0, "it came back only after others had given up");
        fake.let_go();
        client.leave();
    });
}

#[test]
fn a_process_has_no_more_calls_that_wait_for_room_than_others() {
    let change = |config: &mut bulkhead_kernel::Config| {
        config.limits.device_bytes = Some(2 * SINK + ROOM);
        config.limits.process = Quota::PROCESS.with(Counted::Waits, 4);
    };
    with_changed_kernel(Manners::default(), change, async |harness| {
        let (client, fake) = (Client::new(&harness.directory).await, &harness.fake);
        let (changing, asker) = (client.open("changing").await.unwrap(), client.open("asker").await.unwrap());
        let buffer = changing.allocate(400 * MIB).await.unwrap();
        fake.behave(Manners { holds_drains: true, ..Manners::default() });
        drop(derive(&buffer.view(), 0, 64).await.unwrap());
        let asked = (0..20).map(async |_| asker.allocate(700 * MIB).await.err().unwrap());
        let (first, _) = tokio::select! {
            biased;
            error = futures::future::select_all(asked.map(Box::pin)) => (error.0, error.1),
            () = tokio::time::sleep(Duration::from_secs(10)) => panic!("nobody is refused"),
        };
        assert_eq!(first.code, ErrorCode::LimitReached, "{first}");
        fake.let_go();
        client.leave();
    });
}

#[test]
fn host_memory_that_nobody_was_swapped_to_for_a_while_goes_back() {
    let hasty = |config: &mut bulkhead_kernel::Config| {
        config.limits.device_bytes = Some(2 * SINK + ROOM);
        config.limits.swap_bytes = 4096 * MIB;
        config.limits.second = Duration::from_millis(20);
    };
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let (client, fake) = (Client::new(&harness.directory).await, &harness.fake);
        let (one, two) = (client.open("one").await.unwrap(), client.open("two").await.unwrap());
        tokio::time::sleep(Duration::from_millis(150)).await;
        let _held = (one.allocate(500 * MIB).await.unwrap(), two.allocate(500 * MIB).await.unwrap());
        fake.want(one.id);
        let given_back =
            |session: &Session| fake.asked().contains(&Asked::Area { session: session.id, bytes: 0 });
        until(async || given_back(&one)).await;
        assert!(came_back(fake, &one, 500 * MIB));
        assert!(!given_back(&two), "its memory lies there");
        // It has to be there again before it is swapped to.
        fake.want(two.id);
        until(async || came_back(fake, &two, 500 * MIB)).await;
        assert_eq!(swapped_out(fake), [one.id, two.id, one.id]);
        let areas = |asked: &Asked| matches!(asked, Asked::Area { session, .. } if *session == one.id);
        assert_eq!(fake.asked().iter().filter(|asked| areas(asked)).count(), 3);
        client.leave();
    });
}
