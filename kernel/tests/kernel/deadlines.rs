//! Work that runs on beyond the deadline of what was taken back.

use std::time::Duration;

use bulkhead_kernel::Config;
use bulkhead_schema::{
    ErrorCode,
    bulkhead_capnp::{Moment, Uses},
    limits,
};

use crate::{
    fake::{Asked, Manners},
    handed::{close, derive, revoke, token},
    harness::{Client, until, with_changed_kernel},
};

const PAGE: u64 = 2 << 20;
const SINK: u64 = 64 << 20;

fn hasty(config: &mut Config) {
    config.limits.second = Duration::from_millis(20);
}

#[test]
fn a_session_whose_work_keeps_what_was_taken_back_is_ended() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let from = giver.open("giver").await.unwrap();
        let to = taker.open("taker").await.unwrap();
        let neighbour = taker.open("neighbour").await.unwrap();
        let buffer = from.allocate(PAGE).await.unwrap();
        let given = taker.restore(token(&buffer.view(), Uses::One).await.unwrap()).await.unwrap();
        let _accepted = to.accept(given.view()).await.unwrap();
        harness.fake.behave(Manners { holds_unmaps: true, holds_closes: true, ..Manners::default() });
        let revoking = revoke(&buffer.client).await.unwrap();
        assert!(revoking.wait(Moment::Severed, 20_000).await.0);
        assert_eq!(revoking.wait(Moment::Quiescent, 20).await, (false, false));
        until(async || to.memory().await.is_err()).await;
        let error = to.memory().await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Revoked);
        assert!(
            error.message.contains(&limits::DRAIN_SECONDS.to_string()) && !error.remedy.is_empty(),
            "{error}"
        );
        assert_eq!(revoking.wait(Moment::Quiescent, 0).await, (false, true), "overdue");
        from.memory().await.unwrap();
        neighbour.memory().await.unwrap();
        until(async || harness.fake.asked().contains(&Asked::Close(to.id))).await;
        let status = giver.status().await;
        assert_eq!(status.charged_bytes, 3 * SINK + PAGE, "it stays charged");
        assert!(status.sessions[1].quarantined_bytes >= SINK);
        harness.fake.let_go();
        assert!(revoking.wait(Moment::Reclaimed, 20_000).await.0);
        until(async || giver.status().await.charged_bytes == 2 * SINK + PAGE).await;
    });
}

#[test]
fn what_is_mapped_several_times_is_quiescent_when_no_work_reaches_any_of_it() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let from = giver.open("giver").await.unwrap();
        let to = taker.open("taker").await.unwrap();
        let buffer = from.allocate(PAGE).await.unwrap();
        let given = taker.restore(token(&buffer.view(), Uses::One).await.unwrap()).await.unwrap();
        let _accepted = (to.accept(given.view()).await.unwrap(), to.accept(given.view()).await.unwrap());
        // Between two of its pauses the taker launches work, which reaches what is not unmapped yet.
        harness.fake.behave(Manners { holds_later_unmaps: true, ..Manners::default() });
        let revoking = revoke(&buffer.client).await.unwrap();
        until(async || {
            let unmap = Asked::Unmap { session: to.id, bytes: PAGE };
            harness.fake.asked().iter().filter(|asked| **asked == unmap).count() == 2
        })
        .await;
        assert!(!revoking.wait(Moment::Quiescent, 60).await.0, "work reaches the second");
        until(async || to.memory().await.is_err()).await;
        assert_eq!(to.memory().await.unwrap_err().code, ErrorCode::Revoked);
        harness.fake.let_go();
        assert!(revoking.wait(Moment::Reclaimed, 20_000).await.0);
        from.memory().await.unwrap();
    });
}

#[test]
fn memory_that_is_freed_waits_for_whoever_still_uses_it() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let from = giver.open("giver").await.unwrap();
        let to = taker.open("taker").await.unwrap();
        let buffer = from.allocate(PAGE).await.unwrap();
        let given = taker.restore(token(&buffer.view(), Uses::One).await.unwrap()).await.unwrap();
        let accepted = to.accept(given.view()).await.unwrap();
        harness.fake.behave(Manners { holds_unmaps: true, ..Manners::default() });
        // The taker closes first: its own work may run as long as it likes, until somebody else waits.
        let own = close(&accepted.client).await.unwrap();
        assert!(own.wait(Moment::Severed, 20_000).await.0);
        tokio::time::sleep(Duration::from_millis(300)).await;
        to.memory().await.unwrap();
        let closing = close(&buffer.client).await.unwrap();
        assert!(!closing.wait(Moment::Quiescent, 50).await.0, "work of the taker still reaches it");
        until(async || to.memory().await.is_err()).await;
        assert_eq!(to.memory().await.unwrap_err().code, ErrorCode::Revoked);
        harness.fake.let_go();
        assert!(closing.wait(Moment::Reclaimed, 20_000).await.0);
        from.memory().await.unwrap();
    });
}

#[test]
fn who_lets_go_of_what_it_was_given_is_in_no_hurry() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let from = giver.open("giver").await.unwrap();
        let to = taker.open("taker").await.unwrap();
        let buffer = from.allocate(PAGE).await.unwrap();
        let given = taker.restore(token(&buffer.view(), Uses::One).await.unwrap()).await.unwrap();
        let accepted = to.accept(given.view()).await.unwrap();
        harness.fake.behave(Manners { holds_unmaps: true, ..Manners::default() });
        // What was given first: the other ends with it, and its owner did not ask for that.
        drop(given);
        drop(accepted);
        until(async || harness.fake.asked().contains(&Asked::Unmap { session: to.id, bytes: PAGE })).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        to.memory().await.unwrap();
        // Its owner may take it back whenever it likes.
        let revoking = close(&buffer.client).await.unwrap();
        until(async || to.memory().await.is_err()).await;
        assert_eq!(to.memory().await.unwrap_err().code, ErrorCode::Revoked);
        harness.fake.let_go();
        assert!(revoking.wait(Moment::Reclaimed, 20_000).await.0);
    });
}

#[test]
fn what_is_let_go_of_later_makes_nothing_quiescent_that_is_still_held() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let (first, second) = (session.allocate(PAGE).await.unwrap(), session.allocate(PAGE).await.unwrap());
        harness.fake.behave(Manners { holds_unmaps: true, ..Manners::default() });
        let held = close(&first.client).await.unwrap();
        assert!(held.wait(Moment::Severed, 20_000).await.0);
        until(async || harness.fake.asked().contains(&Asked::Unmap { session: session.id, bytes: PAGE }))
            .await;
        // Answers come in another order than questions.
        harness.fake.behave(Manners::default());
        let later = close(&second.client).await.unwrap();
        assert!(later.wait(Moment::Severed, 20_000).await.0);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!held.wait(Moment::Quiescent, 0).await.0, "work still reaches it");
        assert!(!later.wait(Moment::Quiescent, 0).await.0, "it waits for what was severed before");
        session.memory().await.unwrap();
        harness.fake.let_go();
        assert!(held.wait(Moment::Reclaimed, 20_000).await.0);
        assert!(later.wait(Moment::Reclaimed, 20_000).await.0);
    });
}

#[test]
fn own_work_may_keep_own_memory_as_long_as_it_likes() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        harness.fake.behave(Manners { holds_unmaps: true, ..Manners::default() });
        let closing = close(&buffer.client).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(closing.wait(Moment::Quiescent, 0).await, (false, true));
        session.memory().await.unwrap();
        assert_eq!(client.status().await.sessions[0].quarantined_bytes, PAGE);
        harness.fake.let_go();
        assert!(closing.wait(Moment::Reclaimed, 20_000).await.0);
        assert_eq!(client.status().await.sessions[0].quarantined_bytes, 0);
    });
}

#[test]
fn an_executor_that_is_lost_holds_nothing_up() {
    with_changed_kernel(
        Manners::default(),
        |_| {},
        async |harness| {
            let giver = Client::new(&harness.directory).await;
            let taker = Client::new(&harness.directory).await;
            let from = giver.open("giver").await.unwrap();
            let to = taker.open("taker").await.unwrap();
            let buffer = from.allocate(PAGE).await.unwrap();
            let given = taker.restore(token(&buffer.view(), Uses::One).await.unwrap()).await.unwrap();
            let _accepted = to.accept(given.view()).await.unwrap();
            harness.fake.behave(Manners { holds_unmaps: true, holds_unbinds: true, ..Manners::default() });
            let revoking = revoke(&buffer.client).await.unwrap();
            assert!(!revoking.wait(Moment::Severed, 10).await.0);
            harness.fake.die();
            assert_eq!(revoking.wait(Moment::Reclaimed, 20_000).await, (true, false));
            until(async || giver.status().await.charged_bytes == 0).await;
            harness.fake.behave(Manners::default());
        },
    );
}

#[test]
fn who_closed_a_part_of_its_own_is_of_no_concern_to_who_revokes_another() {
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let from = giver.open("giver").await.unwrap();
        let (endless, calm) = (taker.open("endless").await.unwrap(), taker.open("calm").await.unwrap());
        let buffer = from.allocate(2 * PAGE).await.unwrap();
        let one = derive(&buffer.view(), 0, PAGE).await.unwrap();
        let two = derive(&buffer.view(), PAGE, PAGE).await.unwrap();
        let given = taker.restore(token(&one.client, Uses::One).await.unwrap()).await.unwrap();
        let endless_has = endless.accept(given.view()).await.unwrap();
        let given = taker.restore(token(&two.client, Uses::One).await.unwrap()).await.unwrap();
        let _calm_has = calm.accept(given.view()).await.unwrap();
        harness.fake.behave(Manners { runs_on: endless.id, ..Manners::default() });
        drop(close(&endless_has.client).await.unwrap());
        // Its work may run as long as it likes: nobody has taken back what it reaches.
        assert_eq!(revoke(&two.client).await.unwrap().wait(Moment::Reclaimed, 20_000).await, (true, false));
        tokio::time::sleep(Duration::from_millis(300)).await;
        endless.memory().await.unwrap();
        // Whoever takes back more than that waits for it.
        let all = revoke(&buffer.client).await.unwrap();
        assert!(!all.wait(Moment::Quiescent, 0).await.0);
        until(async || endless.memory().await.is_err()).await;
        assert_eq!(endless.memory().await.unwrap_err().code, ErrorCode::Revoked);
        harness.fake.let_go();
        assert!(all.wait(Moment::Reclaimed, 20_000).await.0);
    });
}
