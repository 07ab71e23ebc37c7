//! What is charged, before it is taken, and that it comes back, once.

use std::time::Duration;

use bulkhead_kernel::Config;
use bulkhead_mm::Resource;
use bulkhead_schema::{Error, ErrorCode, bulkhead_capnp::session_terms, limits};

use crate::{
    fake::{Asked, CODE_BYTES, LOCAL_BYTES, MEMORY_BYTES, Manners, THREADS},
    handed::{open, revoke},
    harness::{
        Client, Harness, Session, columns, everything_given_back, read, until, used, with_changed_kernel,
        with_kernel,
    },
    images::{load, send, two_entries},
};

/// What pieces of device memory are multiples of.
const ARENA_BYTES: u64 = 2 << 20;
/// Local memory of a thread that needs no room of its own.
const USUAL_LOCAL_BYTES: u64 = 12 << 10;

async fn open_on(client: &Client, terms: impl FnOnce(session_terms::Builder<'_>)) -> Result<Session, Error> {
    let mut request = client.bulkhead.open_session_request();
    request.get().set_name("on terms");
    terms(request.get().init_terms());
    let response = request.send().promise.await.unwrap();
    read(response.get().unwrap().get_result()).map(Session::read)
}

fn most(mut terms: session_terms::Builder<'_>, resource: Resource, most: u64) {
    let mut limit = terms.reborrow().init_limits(1).get(0);
    limit.set_name(resource.key());
    limit.set_most(most);
}

/// Reserves, and answers what is reserved.
async fn reserve(session: &Session, streams: u32, events: u32) -> Result<(u32, u32), Error> {
    let mut request = session.copying().reserve_request();
    request.get().set_streams(streams);
    request.get().set_events(events);
    let response = request.send().promise.await.unwrap();
    let reserved = read(response.get().unwrap().get_result())?;
    Ok((reserved.get_streams(), reserved.get_events()))
}

async fn sent(harness: &Harness, session: &Session) -> [u8; 16] {
    let token = session.offer(100).await.unwrap();
    send(harness, token, b"the tenant's bytes");
    token
}

/// What the first session uses of something.
async fn uses(client: &Client, resource: Resource) -> u64 {
    used(&client.status().await.sessions[0].ledger, resource)
}

#[test]
fn a_session_that_may_not_have_what_opening_takes_is_refused_and_leaves_nothing() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        for resource in Resource::ALL {
            match open_on(&client, |terms| most(terms, resource, 0)).await {
                Ok(session) => session.close().await.unwrap(),
                Err(error) => {
                    let code =
                        if resource.is_bytes() { ErrorCode::OutOfMemory } else { ErrorCode::LimitReached };
                    assert_eq!(error.code, code, "{error}");
                    assert!(
                        error.remedy.ends_with(&format!("set the limit of {}", resource.key())),
                        "{error}"
                    );
                    let needed = [
                        Resource::DeviceBytes,
                        Resource::Streams,
                        Resource::Descriptors,
                        Resource::KernelBytes,
                        Resource::Sessions,
                    ];
                    assert!(needed.contains(&resource), "{error}");
                }
            }
            let status = client.status().await;
            assert!(status.ledger.iter().all(|column| column.used == 0), "{status:?}");
        }
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn a_session_that_is_cut_off_while_it_opens_leaves_nothing() {
    let held = Manners { holds_opens: true, ..Manners::default() };
    for dies in [false, true] {
        with_changed_kernel(
            held,
            |_| {},
            async |harness| {
                let client = Client::new(&harness.directory).await;
                let mut request = client.bulkhead.open_session_request();
                request.get().set_name("cut off");
                let opening = tokio::task::spawn_local(request.send().promise);
                let asked = || harness.fake.asked();
                until(async || asked().iter().any(|asked| matches!(asked, Asked::Open { .. }))).await;
                let other = Client::new(&harness.directory).await;
                assert!(
                    used(&other.status().await.ledger, Resource::DeviceBytes) > 0,
                    "charged before it is taken"
                );
                if dies {
                    harness.fake.die();
                    let answer = opening.await.unwrap().unwrap();
                    let error = read(answer.get().unwrap().get_result()).err().unwrap();
                    assert_eq!(error.code, ErrorCode::DeviceLost, "{error}");
                    client.leave();
                } else {
                    client.leave();
                    opening.abort();
                    harness.fake.let_go();
                }
                other.leave();
                everything_given_back(&harness.directory).await;
            },
        );
    }
}

/// Two threads that make streams at once: the second is told only what the executor knows of, as the first is.
#[test]
fn nobody_is_told_of_a_reservation_before_the_executor_knows_of_it() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("two threads").await.unwrap();
        harness.fake.behave(Manners { holds_reserves: true, ..Manners::default() });
        let (first, second) = (reserve(&session, 8, 0), reserve(&session, 8, 0));
        tokio::pin!(first, second);
        let either = async {
            tokio::select! {
                told = &mut first => told.unwrap(),
                told = &mut second => told.unwrap(),
            }
        };
        let early = tokio::time::timeout(Duration::from_millis(200), either).await;
        assert!(early.is_err(), "told {early:?}, and nobody has answered");
        let asked = |asked: &Asked| matches!(asked, Asked::Reserve { .. });
        assert!(harness.fake.asked().iter().any(asked));
        harness.fake.behave(Manners::default());
        harness.fake.let_go();
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.unwrap(), second.unwrap()), ((8, 0), (8, 0)));
        assert_eq!(uses(&client, Resource::Streams).await, 8, "charged once");
    });
}

#[test]
fn streams_and_events_are_reserved_before_records_may_name_them() {
    with_changed_kernel(
        Manners::default(),
        |config| config.limits.session = config.limits.session.with(Resource::Events, 300),
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let parent = client.open("parent").await.unwrap();
            assert_eq!(uses(&client, Resource::Streams).await, 1, "the default stream");
            assert_eq!(reserve(&parent, 8, 256).await.unwrap(), (8, 256));
            assert_eq!(reserve(&parent, 2, 3).await.unwrap(), (8, 256), "it stays reserved");
            let (session, asked) = (parent.id, harness.fake.asked());
            assert!(asked.contains(&Asked::Reserve { session, streams: 8, events: 256 }));
            for (streams, events) in [(65, 0), (0, 301), (0, 4097), (u32::MAX, u32::MAX)] {
                let refused = reserve(&parent, streams, events).await.err().unwrap();
                assert_eq!(refused.code, ErrorCode::LimitReached);
            }
            assert_eq!(
                (uses(&client, Resource::Streams).await, uses(&client, Resource::Events).await),
                (8, 256)
            );
            // What a program's session has is its parent's too.
            let program = parent.derive(&[], |terms| most(terms, Resource::Streams, 3)).await.unwrap();
            let child = open(&program).await.unwrap();
            let ask = async |streams, events| {
                let mut request = child.session.reserve_request();
                request.get().set_streams(streams);
                request.get().set_events(events);
                let response = request.send().promise.await.unwrap();
                read(response.get().unwrap().get_result()).map(|got| (got.get_streams(), got.get_events()))
            };
            assert_eq!(ask(4, 0).await.err().unwrap().code, ErrorCode::LimitReached, "its own terms");
            assert_eq!(ask(0, 45).await.err().unwrap().code, ErrorCode::LimitReached, "its parent's limit");
            assert_eq!(ask(3, 44).await.unwrap(), (3, 44));
            assert_eq!(uses(&client, Resource::Streams).await, 11);
            assert_eq!(uses(&client, Resource::Events).await, 300);
            assert_eq!(uses(&client, Resource::Sessions).await, 2);
            drop((program, child));
            until(async || uses(&client, Resource::Events).await == 256).await;
            assert_eq!(uses(&client, Resource::Streams).await, 8);
            drop(parent);
            client.leave();
            everything_given_back(&harness.directory).await;
        },
    );
}

#[test]
fn pieces_of_device_memory_have_a_limit_and_come_back() {
    let few = |config: &mut Config| config.limits.session = config.limits.session.with(Resource::Pieces, 3);
    with_changed_kernel(Manners::default(), few, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let mut buffers = Vec::new();
        for _ in 0..3 {
            buffers.push(session.allocate(1).await.unwrap());
        }
        let error = session.allocate(1).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached, "{error}");
        assert!(error.remedy.ends_with("set the limit of pieces"), "{error}");
        assert_eq!(uses(&client, Resource::Pieces).await, 3);
        buffers.pop();
        until(async || uses(&client, Resource::Pieces).await == 2).await;
        buffers.push(session.allocate(1).await.unwrap());
        drop((buffers, session));
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn an_image_is_charged_its_code_its_text_its_local_memory_and_the_time() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let before = client.status().await.sessions[0].ledger.clone();
        let token = sent(&harness, &session).await;
        assert_eq!(uses(&client, Resource::Uploads).await, 1);
        assert_eq!(uses(&client, Resource::KernelBytes).await, used(&before, Resource::KernelBytes) + 100);
        let (module, _) = load(&session, token).await.unwrap();
        let ledger = client.status().await.sessions[0].ledger.clone();
        let more = |resource| used(&ledger, resource) - used(&before, resource);
        assert_eq!(more(Resource::CodeBytes), CODE_BYTES);
        assert_eq!(more(Resource::KernelBytes), "// canonical\0entry".len() as u64);
        assert_eq!(more(Resource::LocalBytes), u64::from(LOCAL_BYTES) * THREADS);
        assert_eq!((more(Resource::Images), more(Resource::Descriptors)), (1, 1));
        assert_eq!((more(Resource::Uploads), more(Resource::Capabilities)), (0, 3));
        let spent = more(Resource::CompileMilliseconds);
        assert!(spent > 0, "a process was started, which takes time");
        drop(module);
        until(async || uses(&client, Resource::Images).await == 0).await;
        let after = client.status().await.sessions[0].ledger.clone();
        for resource in Resource::ALL {
            let gone = if resource == Resource::CompileMilliseconds { spent } else { 0 };
            assert_eq!(used(&after, resource), used(&before, resource) + gone, "{}", resource.key());
        }
        drop(session);
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn local_memory_beyond_what_is_usual_is_taken_from_all_and_does_not_come_back() {
    let more = 16 << 20;
    let manners = Manners { more_local_bytes: more, ..Manners::default() };
    with_changed_kernel(manners, two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let (session, other) = (client.open("one").await.unwrap(), client.open("other").await.unwrap());
        let local = (u64::from(LOCAL_BYTES + more) - USUAL_LOCAL_BYTES) * THREADS;
        let left = async || {
            let sessions = client.status().await.sessions;
            let all: u64 = sessions.iter().map(|session| used(&session.ledger, Resource::DeviceBytes)).sum();
            MEMORY_BYTES - all
        };
        // Where the rest is taken the driver would have no room.
        let most = left().await / ARENA_BYTES * ARENA_BYTES;
        let buffer = other.allocate(most).await.unwrap();
        let token = sent(&harness, &session).await;
        let error = load(&session, token).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
        assert_eq!(uses(&client, Resource::LocalBytes).await, 0);
        drop(buffer);
        until(async || left().await >= most).await;
        let token = sent(&harness, &session).await;
        let (module, _) = load(&session, token).await.unwrap();
        assert_eq!(other.allocate(most).await.err().unwrap().code, ErrorCode::OutOfMemory);
        drop((module, session));
        until(async || client.status().await.sessions.len() == 1).await;
        // The driver keeps it.
        let most = (left().await - local) / ARENA_BYTES * ARENA_BYTES;
        assert_eq!(other.allocate(most + ARENA_BYTES).await.err().unwrap().code, ErrorCode::OutOfMemory);
        drop(other.allocate(most).await.unwrap());
        drop(other);
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn local_memory_that_an_image_made_grow_which_was_refused_then_is_taken_from_all() {
    let more = 16 << 20;
    let manners = Manners { more_local_bytes: more, refuses_grown: true, ..Manners::default() };
    with_changed_kernel(manners, two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let (session, other) = (client.open("one").await.unwrap(), client.open("other").await.unwrap());
        let local = (u64::from(LOCAL_BYTES + more) - USUAL_LOCAL_BYTES) * THREADS;
        let token = sent(&harness, &session).await;
        assert_eq!(load(&session, token).await.err().unwrap().code, ErrorCode::LimitReached);
        assert_eq!(uses(&client, Resource::LocalBytes).await, 0, "the session has no image");
        let sessions = client.status().await.sessions;
        let used: u64 = sessions.iter().map(|session| used(&session.ledger, Resource::DeviceBytes)).sum();
        let most = (MEMORY_BYTES - used - local) / ARENA_BYTES * ARENA_BYTES;
        assert_eq!(other.allocate(most + ARENA_BYTES).await.err().unwrap().code, ErrorCode::OutOfMemory);
        drop(other.allocate(most).await.unwrap());
        drop((session, other));
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn what_verifying_a_text_takes_is_charged_until_it_is_loaded() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = sent(&harness, &session).await;
        let before = uses(&client, Resource::KernelBytes).await - 100;
        harness.fake.behave(Manners { holds_loads: true, ..Manners::default() });
        let text = "// canonical\0entry".len() as u64;
        let (loaded, ()) = tokio::join!(load(&session, token), async {
            until(async || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Load { .. })))
                .await;
            let verified = text * (1 + limits::VERIFY_BYTES_PER_BYTE);
            assert_eq!(uses(&client, Resource::KernelBytes).await, before + verified);
            harness.fake.let_go();
        });
        let (module, _) = loaded.unwrap();
        assert_eq!(uses(&client, Resource::KernelBytes).await, before + text);
        drop((module, session));
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn an_image_that_needs_more_than_is_left_is_refused_and_leaves_nothing() {
    let needed = [
        (Resource::LocalBytes, u64::from(LOCAL_BYTES) * THREADS - 1),
        (Resource::CodeBytes, CODE_BYTES),
        // Beside what is held back of a session, for which it pays from the start.
        (Resource::KernelBytes, 18 << 20),
        (Resource::Images, 0),
        (Resource::Capabilities, 2),
        (Resource::CompileMilliseconds, 0),
    ];
    for (resource, limit) in needed {
        let little = |config: &mut Config| {
            // The message is there for every try.
            two_entries(config);
            config.limits.session = config.limits.session.with(resource, limit);
        };
        with_changed_kernel(Manners::default(), little, async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            let before = client.status().await.sessions[0].ledger.clone();
            let token = sent(&harness, &session).await;
            let error = load(&session, token).await.err().unwrap();
            let code = if resource.is_bytes() { ErrorCode::OutOfMemory } else { ErrorCode::LimitReached };
            assert_eq!(error.code, code, "{error}");
            assert!(error.remedy.ends_with(&format!("set the limit of {}", resource.key())), "{error}");
            until(async || {
                let after = client.status().await.sessions[0].ledger.clone();
                let others = Resource::ALL.into_iter().filter(|r| *r != Resource::CompileMilliseconds);
                others.into_iter().all(|resource| used(&after, resource) == used(&before, resource))
            })
            .await;
            drop(session);
            client.leave();
            everything_given_back(&harness.directory).await;
        });
    }
}

#[test]
fn compiling_stops_when_the_time_of_its_session_is_used_up() {
    let slow = |config: &mut Config| {
        config.compiler = vec!["/bin/sh".into(), "-c".into(), "exec sleep 600".into()];
        config.limits.session = config.limits.session.with(Resource::CompileMilliseconds, 100);
    };
    with_changed_kernel(Manners::default(), slow, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = sent(&harness, &session).await;
        let error = load(&session, token).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::LimitReached);
        assert!(error.message.contains("compile_ms"), "{error}");
        assert_eq!(uses(&client, Resource::CompileMilliseconds).await, 100, "what failed was compiled too");
        let token = sent(&harness, &session).await;
        assert_eq!(load(&session, token).await.err().unwrap().code, ErrorCode::LimitReached);
    });
}

#[test]
fn a_session_that_is_closed_while_the_executor_loads_its_image_leaves_nothing() {
    let held = Manners { holds_loads: true, ..Manners::default() };
    for leaves in [false, true] {
        with_changed_kernel(held, two_entries, async |harness| {
            let client = Client::new(&harness.directory).await;
            let session = client.open("one").await.unwrap();
            let token = sent(&harness, &session).await;
            let mut request = session.client.load_image_request();
            crate::harness::set_token(request.get().init_image(), token);
            let loading = tokio::task::spawn_local(request.send().promise);
            let loads = |asked: &Asked| matches!(asked, Asked::Load { .. });
            until(async || harness.fake.asked().iter().any(loads)).await;
            let other = Client::new(&harness.directory).await;
            assert!(uses(&other, Resource::CodeBytes).await > CODE_BYTES, "charged before it is known");
            // A load may wait for its own session's kernels: they are told to end before it is waited for.
            let kernels_end = async || {
                let asked = |wanted| harness.fake.asked().contains(&wanted);
                until(async || asked(Asked::End(1))).await;
                assert!(!asked(Asked::Close(1)), "the image is still loaded");
            };
            if leaves {
                client.leave();
                loading.abort();
                until(async || other.status().await.sessions.iter().all(|session| session.lost)).await;
                kernels_end().await;
                harness.fake.let_go();
            } else {
                let closing = session.copying().close_request().send().promise;
                let closing = tokio::task::spawn_local(closing);
                until(async || other.status().await.sessions[0].lost).await;
                kernels_end().await;
                harness.fake.let_go();
                closing.await.unwrap().unwrap();
                let loaded = loading.await.unwrap().unwrap();
                let error = read(loaded.get().unwrap().get_result()).err().unwrap();
                assert_eq!(error.code, ErrorCode::SessionLost);
                client.leave();
            }
            other.leave();
            everything_given_back(&harness.directory).await;
        });
    }
}

#[test]
fn what_is_revoked_while_an_image_is_loaded_goes_and_the_image_stays() {
    let held = Manners { holds_loads: true, ..Manners::default() };
    with_changed_kernel(held, two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let (giver, taker) = (client.open("giver").await.unwrap(), client.open("taker").await.unwrap());
        let memory = giver.allocate(2 << 20).await.unwrap();
        let accepted = taker.accept(memory.view()).await.unwrap();
        let token = sent(&harness, &taker).await;
        let mut request = taker.client.load_image_request();
        crate::harness::set_token(request.get().init_image(), token);
        let loading = tokio::task::spawn_local(request.send().promise);
        let loads = |asked: &Asked| matches!(asked, Asked::Load { .. });
        until(async || harness.fake.asked().iter().any(loads)).await;
        let revoking = revoke(&memory.client).await.unwrap();
        let (reached, quarantined) =
            revoking.wait(bulkhead_schema::bulkhead_capnp::Moment::Quiescent, 20_000).await;
        assert!(reached && !quarantined, "a load keeps nobody's memory");
        harness.fake.let_go();
        let loaded = loading.await.unwrap().unwrap();
        assert!(read(loaded.get().unwrap().get_result()).is_ok());
        drop((accepted, loaded, revoking, memory, giver, taker));
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn nobody_is_more_urgent_than_the_operator_allows() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let pushy = client.open_with("pushy", -1000, false).await;
        let modest = client.open_with("modest", 3, false).await;
        let given: Vec<_> = client.status().await.sessions.iter().map(|session| session.priority).collect();
        assert_eq!(given, [0, 3]);
        let response = pushy.copying().ledger_request().send().promise.await.unwrap();
        let ledger = read(response.get().unwrap().get_result()).unwrap();
        assert_eq!(ledger.get_priority(), 0);
        assert_eq!(columns(ledger.get_columns().unwrap()), client.status().await.sessions[0].ledger);
        let program = modest.derive(&[], |mut terms| terms.set_priority(1)).await.unwrap();
        let _child = open(&program).await.unwrap();
        assert_eq!(client.status().await.sessions[2].priority, 3, "nor than its parent");
    });
}

#[test]
fn revocations_gifts_and_descriptors_are_charged_while_they_are_there() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let (giver, taker) = (client.open("giver").await.unwrap(), client.open("taker").await.unwrap());
        let memory = giver.allocate(2 << 20).await.unwrap();
        let before = uses(&client, Resource::Descriptors).await;
        let (host, token) = giver.allocate_host(4096).await.unwrap();
        assert_eq!(uses(&client, Resource::Descriptors).await, before + 2, "its own, and that on its way");
        let socket = crate::harness::descriptor_socket(&harness.directory);
        crate::harness::exchange(&socket, &token, None).unwrap();
        until(async || uses(&client, Resource::Descriptors).await == before + 1).await;
        drop(host);
        until(async || uses(&client, Resource::Descriptors).await == before).await;
        let peer = taker.peer().await.unwrap();
        crate::handed::grant(&peer, memory.view()).await.unwrap();
        let gifts = async || used(&client.status().await.sessions[1].ledger, Resource::Gifts);
        assert_eq!(gifts().await, 1);
        let revoking = revoke(&memory.client).await.unwrap();
        assert_eq!(uses(&client, Resource::Revocations).await, 1);
        assert!(taker.granted(10).await.unwrap().is_none());
        assert_eq!(gifts().await, 0);
        drop(revoking);
        until(async || uses(&client, Resource::Revocations).await == 0).await;
    });
}

#[test]
fn what_no_process_has_of_the_device_is_not_promised_to_sessions() {
    let own = 480 << 20;
    let tells = |taken_bytes| Manners { taken_bytes, ..Manners::default() };
    with_changed_kernel(
        tells(own),
        |config| config.limits.second = Duration::from_millis(20),
        async |harness| {
            let client = Client::new(&harness.directory).await;
            let limit = async || {
                let status = client.status().await;
                let key = Resource::DeviceBytes.key();
                let column = status.ledger.into_iter().find(|column| column.name == key).unwrap();
                (status.unclaimed_bytes, column.limit)
            };
            let session = client.open("victim").await.unwrap();
            let (_, all) = limit().await;
            // Until a full round of readings has told what the driver has for itself.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(limit().await, (0, all), "what the driver has is nobody's");
            harness.fake.behave(tells(own + (3 << 30)));
            until(async || limit().await == (3 << 30, all - (3 << 30))).await;
            let error = session.allocate(all - (2 << 30)).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::OutOfMemory, "{error}");
            harness.fake.behave(tells(own));
            until(async || limit().await == (0, all)).await;
            drop(session.allocate(all - (2 << 30)).await.unwrap());
        },
    );
}
