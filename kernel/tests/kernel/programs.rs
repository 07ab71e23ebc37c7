//! Entries that others may launch, in sessions of their own.

use bulkhead_mm::Resource;
use bulkhead_schema::{
    ErrorCode, Handle,
    bulkhead_capnp::{Moment, Uses, gpu_session},
    limits,
};

use crate::{
    fake::{Asked, Manners},
    handed::{close, open, revoke, token},
    harness::{
        Client, Harness, Session, everything_given_back, read, until, used, with_changed_kernel, with_kernel,
    },
    images::{load, send, two_entries},
};

type Loaded = (bulkhead_schema::bulkhead_capnp::gpu_module::Client, Vec<(String, Handle)>);

async fn loaded(harness: &Harness, session: &Session) -> Loaded {
    let token = session.offer(100).await.unwrap();
    send(harness, token, b"bytes");
    load(session, token).await.unwrap()
}

#[test]
fn a_program_opens_sessions_that_launch_its_entries_and_no_others() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let owner = Client::new(&harness.directory).await;
        let user = Client::new(&harness.directory).await;
        let session = owner.open("owner").await.unwrap();
        let (module, entries) = loaded(&harness, &session).await;
        let program = session.derive(&[entries[1].1], |_| {}).await.unwrap();
        let program = user.restore(token(&program, Uses::One).await.unwrap()).await.unwrap();
        let program = program.program();
        let opened = open(&program).await.unwrap();
        assert_eq!(opened.entries.len(), 1);
        assert_eq!(opened.entries[0].0, "entry1");
        let of = (session.id, entries[1].1);
        let bound = Asked::BindEntry { session: opened.id, handle: opened.entries[0].1, of };
        assert!(harness.fake.asked().contains(&bound));
        let status = owner.status().await;
        assert_eq!((status.sessions[1].id, status.sessions[1].parent), (opened.id, session.id));
        // No code can be loaded there, whatever its holder takes it for.
        let forged: gpu_session::Client = capnp::capability::FromClientHook::cast_to(opened.session.clone());
        let refused = forged.offer_image_request().send().promise.await.err().unwrap();
        assert_eq!(refused.kind, capnp::ErrorKind::Unimplemented);
        let refused = forged.derive_request().send().promise.await.err().unwrap();
        assert_eq!(refused.kind, capnp::ErrorKind::Unimplemented);
        drop(module);
        until(async || {
            harness.fake.asked().contains(&Asked::Unbind { session: opened.id, handle: opened.entries[0].1 })
        })
        .await;
    });
}

#[test]
fn an_image_is_unloaded_only_when_nobody_runs_it_any_more() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let (module, entries) = loaded(&harness, &session).await;
        let program = session.derive(&[entries[0].1], |_| {}).await.unwrap();
        let opened = open(&program).await.unwrap();
        harness.fake.behave(Manners { holds_drains: true, ..Manners::default() });
        drop(module);
        until(async || harness.fake.asked().contains(&Asked::Drain(opened.id))).await;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let unloads = async || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Unload { .. }));
        assert!(!unloads().await, "its entries may still run");
        harness.fake.let_go();
        until(unloads).await;
    });
}

#[test]
fn a_program_has_so_many_entries_and_no_more() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let token = session.offer(100).await.unwrap();
        send(&harness, token, b"bytes");
        let (_module, entries) = load(&session, token).await.unwrap();
        let most = usize::try_from(limits::PROGRAM_ENTRIES_MAX).unwrap();
        let named = |count: usize| vec![entries[0].1; count];
        let program = session.derive(&named(most), |_| {}).await.unwrap();
        let refused = session.derive(&named(most + 1), |_| {}).await.err().unwrap();
        assert_eq!(refused.code, ErrorCode::LimitReached);
        assert!(refused.message.contains("1024"), "{refused}");
        let mut request = program.derive_request();
        let mut list = request.get().init_entries(limits::PROGRAM_ENTRIES_MAX + 1);
        for at in 0..limits::PROGRAM_ENTRIES_MAX + 1 {
            entries[0].1.write(list.reborrow().get(at));
        }
        let response = request.send().promise.await.unwrap();
        let refused = read(response.get().unwrap().get_result()).err().unwrap();
        assert_eq!(refused.code, ErrorCode::LimitReached);
    });
}

#[test]
fn the_list_of_a_programs_entries_is_charged_and_given_back() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let (_module, entries) = loaded(&harness, &session).await;
        let kernel_bytes = async || used(&client.status().await.sessions[0].ledger, Resource::KernelBytes);
        let before = kernel_bytes().await;
        let program = session.derive(&[entries[0].1, entries[1].1], |_| {}).await.unwrap();
        let two = kernel_bytes().await - before;
        assert!(two > 0, "a program's entries are charged to nobody");
        let part = session.derive(&[entries[0].1], |_| {}).await.unwrap();
        assert_eq!(kernel_bytes().await - before, two + two / 2);
        drop((program, part));
        until(async || kernel_bytes().await == before).await;
    });
}

#[test]
fn a_program_without_entries_opens_sessions_that_copy() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let program = session.derive(&[], |_| {}).await.unwrap();
        let opened = open(&program).await.unwrap();
        assert!(opened.entries.is_empty());
        let mut request = opened.session.allocate_request();
        request.get().set_bytes(1);
        let response = request.send().promise.await.unwrap();
        assert_eq!(read(response.get().unwrap().get_result()).unwrap().get_bytes(), 2 << 20);
    });
}

#[test]
fn entries_that_are_not_its_own_make_no_program() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let other = client.open("other").await.unwrap();
        let buffer = session.allocate(1).await.unwrap();
        let (_module, entries) = loaded(&harness, &session).await;
        let forged = Handle { slot: entries[0].1.slot, generation: 77 };
        for (from, entry) in [(&session, buffer.handle), (&session, forged), (&other, entries[0].1)] {
            let error = from.derive(&[entry], |_| {}).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::InvalidHandle, "{error}");
        }
        let program = session.derive(&[entries[0].1], |_| {}).await.unwrap();
        let mut request = program.derive_request();
        entries[1].1.write(request.get().init_entries(1).get(0));
        let response = request.send().promise.await.unwrap();
        let error = read(response.get().unwrap().get_result()).err().unwrap();
        assert_eq!(
            error.code,
            ErrorCode::InvalidHandle,
            "a program has no more than what it is derived from"
        );
    });
}

#[test]
fn a_program_that_is_taken_back_ends_what_was_opened_from_it() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let (_module, entries) = loaded(&harness, &session).await;
        let program = session.derive(&[entries[0].1], |_| {}).await.unwrap();
        let response = program.derive_request().send().promise.await.unwrap();
        let weaker = read(response.get().unwrap().get_result()).unwrap().get_program().unwrap();
        let (first, second) = (open(&program).await.unwrap(), open(&weaker).await.unwrap());
        let revoking = revoke(&program).await.unwrap();
        assert_eq!(revoking.wait(Moment::Reclaimed, 20_000).await, (true, false));
        for opened in [&first, &second] {
            let response = opened.session.memory_request().send().promise.await.unwrap();
            let error = read(response.get().unwrap().get_result()).err().unwrap();
            assert_eq!(error.code, ErrorCode::Revoked, "{error}");
            assert!(harness.fake.asked().contains(&Asked::Close(opened.id)));
        }
        assert_eq!(open(&weaker).await.err().unwrap().code, ErrorCode::Revoked);
        let again = open(&program).await.unwrap();
        session.close().await.unwrap();
        let response = again.session.memory_request().send().promise.await.unwrap();
        assert!(read(response.get().unwrap().get_result()).is_err(), "its parent is closed");
        let asked = harness.fake.asked();
        let at = |wanted: Asked| asked.iter().position(|asked| *asked == wanted).unwrap();
        assert!(at(Asked::Close(again.id)) < at(Asked::Close(session.id)), "it runs its parent's code");
    });
}

#[test]
fn a_program_that_is_taken_back_while_a_session_opens_ends_it() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let program = session.derive(&[], |_| {}).await.unwrap();
        harness.fake.behave(Manners { holds_opens: true, ..Manners::default() });
        let (opened, ()) = tokio::join!(open(&program), async {
            let opens =
                async || harness.fake.asked().iter().filter(|a| matches!(a, Asked::Open { .. })).count() == 2;
            until(opens).await;
            close(&program).await.unwrap();
            harness.fake.let_go();
        });
        assert_eq!(opened.err().unwrap().code, ErrorCode::Revoked);
        until(async || client.status().await.charged_bytes == 64 << 20).await;
    });
}

#[test]
fn a_session_that_ends_while_an_image_is_loaded_takes_it_along() {
    with_changed_kernel(Manners::default(), two_entries, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let token = session.offer(100).await.unwrap();
        send(&harness, token, b"bytes");
        harness.fake.behave(Manners { holds_loads: true, ..Manners::default() });
        let (loaded, closed) = tokio::join!(load(&session, token), async {
            until(async || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Load { .. })))
                .await;
            let closed = session.copying().close_request().send().promise;
            until(async || session.memory().await.is_err()).await;
            harness.fake.let_go();
            closed.await
        });
        closed.unwrap();
        assert_eq!(loaded.err().unwrap().code, ErrorCode::SessionLost);
        assert_eq!(client.status().await.charged_bytes, 0);
    });
}

#[test]
fn a_session_that_has_its_programs_memory_mapped_goes_together_with_it() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("owner").await.unwrap();
        let program = session.derive(&[], |_| {}).await.unwrap();
        let opened = open(&program).await.unwrap();
        let mut request = opened.session.allocate_request();
        request.get().set_bytes(2 << 20);
        let response = request.send().promise.await.unwrap();
        let created = read(response.get().unwrap().get_result()).unwrap();
        let memory = capnp::capability::FromClientHook::cast_to(created.get_buffer().unwrap());
        session.accept(memory).await.unwrap();
        assert_eq!(client.status().await.sessions[0].granted, 1);
        // Each of them waits for something of the other's.
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}
