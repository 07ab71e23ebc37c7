//! Standbys: sessions that do not rest, and memory that cannot be handed over.

use std::{future::Future, sync::Arc};

use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::gpu_protected_module};

use crate::{
    fake::{Asked, Manners},
    handed::close,
    harness::{Client, Harness, Session, read, until, with_changed_kernel},
    images::{load, send, two_entries},
    modules::{BYTES, accept, claim, gates, token, with_log},
};

/// Runs a test with a standby and two sessions that it knows.
fn with_standby<F: Future<Output = ()>>(test: impl FnOnce(Arc<Harness>, [Session; 2]) -> F) {
    with_changed_kernel(
        manners(),
        |config| {
            with_log(config);
            two_entries(config);
            config.limits.standby = true;
        },
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

async fn write(module: &gpu_protected_module::Client) -> Result<(), Error> {
    let mut write = module.write_request();
    write.get().set_offset(BYTES - 8);
    write.get().set_data(&[1; 8]);
    let response = write.send().promise.await.unwrap();
    read(response.get().unwrap().get_result()).map(drop)
}

#[test]
fn a_module_goes_on_in_the_standby_and_in_the_next() {
    with_standby(async |harness, [owner, caller]| {
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        assert_eq!(count(&harness, |asked| *asked == Asked::AdoptModule(1)), 1);
        let given = gates(&module).await;
        let _accepted = accept(&caller, &given).await.unwrap();
        let grants = async || count(&harness, |asked| matches!(asked, Asked::Grant { .. }));
        assert_eq!(grants().await, 2, "where it runs and where it goes on");
        for losses in 1..=2 {
            harness.fake.die_first();
            for session in [&owner, &caller] {
                until(async || resumes(&harness, session) == losses).await;
                until(async || session.allocate(1).await.is_ok()).await;
            }
            write(&module).await.unwrap();
            // It is not made anew, and the next standby adopts it too, with who may call its gates.
            assert_eq!(count(&harness, |asked| matches!(asked, Asked::AddModule { .. })), 1);
            until(async || count(&harness, |asked| *asked == Asked::AdoptModule(1)) == 1 + losses).await;
            until(async || grants().await == 2 + losses).await;
        }
        assert_eq!(accept(&caller, &given).await.err().unwrap().code, ErrorCode::InvalidArgument);
        let closed = close(&module).await.unwrap();
        assert!(closed.wait(bulkhead_schema::bulkhead_capnp::Moment::Reclaimed, 20_000).await.0);
        // Those that serve and stand by let go of it.
        until(async || count(&harness, |asked| *asked == Asked::RemoveModule(1)) == 2).await;
    });
}

#[test]
fn a_module_that_no_standby_can_adopt_is_lost_with_its_executor_and_its_callers_are_not() {
    with_standby(async |harness, [owner, caller]| {
        harness.fake.behave(Manners { adopts_no_windows: true, ..manners() });
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        let given = gates(&module).await;
        let accepted = accept(&caller, &given).await.unwrap();
        until(async || closes(&harness, &owner) >= 1 && closes(&harness, &caller) >= 1).await;
        // It is tried again, and what the try before has left goes first.
        let removes = || count(&harness, |asked| *asked == Asked::RemoveModule(1));
        until(async || count(&harness, |asked| *asked == Asked::AdoptModule(1)) >= 3 && removes() >= 2).await;
        // The caller has a standby again once it has no such gates any more.
        close(&accepted).await.unwrap();
        let adopted = || {
            let of_caller =
                |asked: &Asked| matches!(asked, Asked::Adopt { session, .. } if *session == caller.id);
            count(&harness, of_caller) > 0
        };
        until(async || caller.allocate(1).await.is_ok() && adopted()).await;
        assert_eq!(harness.fake.starts(), 2, "the standby stays");
        harness.fake.die_first();
        is_lost(&owner).await;
        goes_on(&harness, &caller).await;
        harness.fake.behave(manners());
    });
}

#[test]
fn an_image_that_is_loaded_there_when_its_session_closes_costs_nobody_the_standby() {
    with_standby(async |harness, [owner, other]| {
        let token = owner.offer(100).await.unwrap();
        send(&harness, token, b"bytes");
        let _image = load(&owner, token).await.unwrap();
        let loads = || count(&harness, |asked| matches!(asked, Asked::Load { .. }));
        let before = (loads(), opens(&harness, &other));
        harness.fake.behave(Manners { holds_loads: true, ..manners() });
        // The next standby is told.
        harness.fake.die();
        until(async || (loads(), opens(&harness, &other)) == (before.0 + 1, before.1 + 1)).await;
        owner.close().await.unwrap();
        harness.fake.let_go();
        let adopted = || {
            let of_other =
                |asked: &Asked| matches!(asked, Asked::Adopt { session, .. } if *session == other.id);
            count(&harness, of_other)
        };
        until(async || other.allocate(1).await.is_ok() && adopted() > 0).await;
        assert_eq!(harness.fake.starts(), 3);
    });
}
