//! Standbys: sessions that do not rest, and memory that cannot be handed over.

use std::{future::Future, sync::Arc};

use bulkhead_schema::ErrorCode;

use crate::{
    fake::{Asked, Manners},
    harness::{Client, Harness, Session, until, with_changed_kernel},
};

/// Runs a test with a standby and two sessions that it knows.
fn with_standby<F: Future<Output = ()>>(test: impl FnOnce(Arc<Harness>, [Session; 2]) -> F) {
    with_changed_kernel(
        manners(),
        |config| config.limits.standby = true,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let first = client.open("first").await.unwrap();
            until(async || opens(&harness, &first) == 2).await;
            // From here on who opens a session waits until it is told to the standby.
            let sessions = [client.open("poor").await.unwrap(), client.open("other").await.unwrap()];
            test(Arc::clone(&harness), sessions).await;
            assert!(harness.fake.starts() >= 2);
        },
    );
}

fn manners() -> Manners {
    Manners { has_standby: true, ..Manners::default() }
}

/// How often executors were asked for something.
fn count(harness: &Harness, what: impl Fn(&Asked) -> bool) -> usize {
    harness.fake.asked().iter().filter(|asked| what(asked)).count()
}

fn opens(harness: &Harness, session: &Session) -> usize {
    count(harness, |asked| matches!(asked, Asked::Open { session: of, .. } if *of == session.id))
}

fn closes(harness: &Harness, session: &Session) -> usize {
    count(harness, |asked| *asked == Asked::Close(session.id))
}

fn resumes(harness: &Harness, session: &Session) -> usize {
    count(harness, |asked| *asked == Asked::Resume(session.id))
}

/// The executor is lost, and a session goes on with the standby.
async fn goes_on(harness: &Harness, session: &Session) {
    until(async || resumes(harness, session) == 1).await;
    until(async || session.allocate(1).await.is_ok()).await;
}

async fn is_lost(session: &Session) {
    until(async || session.memory().await.is_err()).await;
    assert_eq!(session.memory().await.unwrap_err().code, ErrorCode::DeviceLost);
}

#[test]
fn who_cannot_hand_memory_over_falls_behind_alone_and_is_told_again() {
    with_standby(async |harness, [poor, other]| {
        harness.fake.behave(Manners { passes_nothing: true, ..manners() });
        let buffer = poor.allocate(1).await.unwrap();
        until(async || closes(&harness, &poor) == 1).await;
        // It is tried again, and in vain, and the standby stays.
        until(async || closes(&harness, &poor) == 2).await;
        assert_eq!(harness.fake.starts(), 2);
        harness.fake.behave(manners());
        let adopts =
            || count(&harness, |asked| matches!(asked, Asked::Adopt { session, .. } if *session == poor.id));
        until(async || adopts() == 1).await;
        poor.allocate(1).await.unwrap();
        assert_eq!((adopts(), harness.fake.starts()), (2, 2), "it has a standby again");
        harness.fake.die_first();
        goes_on(&harness, &poor).await;
        goes_on(&harness, &other).await;
        drop(buffer);
    });
}

#[test]
fn who_is_behind_is_lost_alone() {
    with_standby(async |harness, [poor, other]| {
        harness.fake.behave(Manners { passes_nothing: true, ..manners() });
        let buffer = poor.allocate(1).await.unwrap();
        harness.fake.die_first();
        harness.fake.behave(manners());
        is_lost(&poor).await;
        goes_on(&harness, &other).await;
        assert_eq!(resumes(&harness, &poor), 0);
        drop(buffer);
    });
}

#[test]
fn nobody_goes_on_with_a_standby_that_did_not_get_memory_that_was_on_its_way() {
    with_standby(async |harness, [poor, other]| {
        harness.fake.behave(Manners { holds_adopts: true, ..manners() });
        let (allocated, ()) = tokio::join!(poor.allocate(1), async {
            until(async || count(&harness, |asked| matches!(asked, Asked::Adopt { .. })) == 1).await;
            harness.fake.die_first();
            until(async || resumes(&harness, &other) == 1).await;
            assert_eq!(resumes(&harness, &poor), 0);
            harness.fake.let_go();
        });
        is_lost(&poor).await;
        drop(allocated);
        goes_on(&harness, &other).await;
        assert_eq!(resumes(&harness, &poor), 0);
    });
}

#[test]
fn the_end_of_a_standby_is_noticed_while_a_session_does_not_rest() {
    let manners = Manners { has_standby: true, ..Manners::default() };
    with_changed_kernel(
        manners,
        |config| config.limits.standby = true,
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("restless").await.unwrap();
            until(async || harness.fake.starts() == 2).await;
            let opens = || {
                let open =
                    |asked: &Asked| matches!(asked, Asked::Open { session: of, .. } if *of == session.id);
                harness.fake.asked().iter().filter(|asked| open(asked)).count()
            };
            until(async || opens() == 2).await;
            harness.fake.behave(Manners { holds_maps: true, ..manners });
            let (allocated, ()) = tokio::join!(session.allocate(1), async {
                let maps = || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Map { .. }));
                until(async || maps()).await;
                for standby in 2..5 {
                    // It has the session open, and waits for it to rest.
                    until(async || opens() == standby).await;
                    harness.fake.die();
                    until(async || harness.fake.starts() == u32::try_from(standby).unwrap() + 1).await;
                }
                harness.fake.let_go();
            });
            allocated.unwrap();
        },
    );
}
