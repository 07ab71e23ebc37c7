//! What is derived, and taken back.

use std::time::Duration;

use bulkhead_kernel::{Counted, Quota};
use bulkhead_schema::{
    ErrorCode,
    bulkhead_capnp::{Moment, Uses},
};

use crate::{
    fake::{Asked, Manners},
    handed::{close, derive, derive_buffer, drop_tokens, revoke, token},
    harness::{Client, read, until, with_changed_kernel, with_kernel},
};

const PAGE: u64 = 2 << 20;

#[test]
fn a_part_lies_within_what_it_is_derived_from() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let part = derive(&buffer.view(), 100, 1000).await.unwrap();
        assert_eq!((part.address, part.bytes), (buffer.address + 100, 1000));
        let bound = Asked::Bind { session: session.id, handle: part.handle, writable: false };
        assert!(harness.fake.asked().contains(&bound));
        let smaller = derive(&part.client, 10, 990).await.unwrap();
        assert_eq!(smaller.address, buffer.address + 110);
        for (offset, bytes) in
            [(1, 1000), (1000, 1), (u64::MAX, 1), (1, u64::MAX), (0, 0), (u64::MAX, u64::MAX)]
        {
            let error = derive(&part.client, offset, bytes).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{bytes} at {offset}: {error}");
        }
        let writable = derive_buffer(&buffer.client, 0, 64).await.unwrap();
        let bound = Asked::Bind { session: session.id, handle: writable.handle, writable: true };
        assert!(harness.fake.asked().contains(&bound));
        assert_eq!(client.status().await.sessions[0].capabilities, 4);
    });
}

#[test]
fn a_view_cannot_be_made_writable() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let part = derive(&buffer.view(), 0, PAGE).await.unwrap();
        let forged: bulkhead_schema::bulkhead_capnp::gpu_buffer::Client =
            capnp::capability::FromClientHook::cast_to(part.client.clone());
        let mut request = forged.derive_buffer_request();
        request.get().set_bytes(64);
        let refused = request.send().promise.await.err().unwrap();
        assert_eq!(refused.kind, capnp::ErrorKind::Unimplemented);
        let info = part.client.info_request().send().promise.await.unwrap();
        assert!(!read(info.get().unwrap().get_result()).unwrap().get_writable());
    });
}

#[test]
fn an_executor_that_is_never_done_is_asked_once_for_all_that_ended() {
    let change = |config: &mut bulkhead_kernel::Config| config.limits.second = Duration::from_millis(20);
    with_changed_kernel(Manners { never_drained: true, ..Manners::default() }, change, async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let mut parts = Vec::new();
        for _ in 0..100 {
            parts.push(derive(&buffer.view(), 0, 1000).await.unwrap());
        }
        for part in parts {
            // One after the other, so that they end apart.
            close(&part.client).await.unwrap();
        }
        let drains = || harness.fake.asked().iter().filter(|asked| matches!(asked, Asked::Drain(_))).count();
        until(async || drains() >= 3).await;
        assert!(drains() < 20, "{} times", drains());
        harness.fake.behave(Manners::default());
        // One that ends now comes to its end, and with it those before.
        let last = derive(&buffer.view(), 0, 1000).await.unwrap();
        let revoking = revoke(&last.client).await.unwrap();
        assert_eq!(revoking.wait(Moment::Quiescent, 10_000).await, (true, false));
        assert!(drains() < 30, "{} times", drains());
    });
}

#[test]
fn revoking_ends_what_is_derived_and_nothing_else() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let beside = session.allocate(PAGE).await.unwrap();
        let first = derive(&buffer.view(), 0, 1000).await.unwrap();
        let below = derive(&first.client, 0, 10).await.unwrap();
        let second = derive(&buffer.view(), 0, 1000).await.unwrap();
        let revoking = revoke(&first.client).await.unwrap();
        assert_eq!(revoking.capabilities, 1);
        assert_eq!(revoking.wait(Moment::Reclaimed, 20_000).await, (true, false));
        let error = derive(&below.client, 0, 1).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::Revoked, "{error}");
        derive(&first.client, 0, 1).await.unwrap();
        let revoking = revoke(&buffer.client).await.unwrap();
        assert_eq!(revoking.capabilities, 2, "the one just derived was dropped");
        assert!(revoking.wait(Moment::Quiescent, 20_000).await.0);
        for part in [&first, &second] {
            assert_eq!(revoke(&part.client).await.err().unwrap().code, ErrorCode::Revoked);
        }
        let asked = harness.fake.asked();
        for handle in [first.handle, below.handle, second.handle] {
            assert!(asked.contains(&Asked::Unbind { session: session.id, handle }));
        }
        for kept in [&buffer, &beside] {
            assert!(!asked.contains(&Asked::Unbind { session: session.id, handle: kept.handle }));
            derive(&kept.view(), 0, 1).await.unwrap();
        }
    });
}

#[test]
fn the_three_moments_come_one_after_the_other() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        harness.fake.behave(Manners { holds_unbinds: true, ..Manners::default() });
        let closing = close(&buffer.client).await.unwrap();
        assert_eq!(closing.wait(Moment::Severed, 20).await, (false, false));
        let unmaps = async || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Unmap { .. }));
        assert!(!unmaps().await, "new work could still name it");
        harness.fake.let_go();
        harness.fake.behave(Manners { holds_unmaps: true, ..Manners::default() });
        assert!(closing.wait(Moment::Severed, 20_000).await.0);
        if !closing.wait(Moment::Quiescent, 20).await.0 {
            until(unmaps).await;
            assert!(!closing.wait(Moment::Reclaimed, 20).await.0);
            assert!(client.status().await.sessions[0].buffer_bytes > 0);
        }
        harness.fake.let_go();
        assert!(closing.wait(Moment::Reclaimed, 20_000).await.0);
        assert_eq!(client.status().await.sessions[0].buffer_bytes, 0);
        assert_eq!(harness.fake.mapped(session.id), (0, 0));
    });
}

#[test]
fn what_work_can_reach_is_quiescent_before_it_is_reclaimed() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        harness.fake.behave(Manners { holds_reclaims: true, ..Manners::default() });
        let closing = close(&buffer.client).await.unwrap();
        assert!(closing.wait(Moment::Quiescent, 20_000).await.0);
        assert!(!closing.wait(Moment::Reclaimed, 20).await.0, "it is not scrubbed yet");
        harness.fake.let_go();
        assert!(closing.wait(Moment::Reclaimed, 20_000).await.0);
    });
}

#[test]
fn ten_thousand_parts_end_with_few_requests() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let mut parts = Vec::new();
        for at in 0..10_000 {
            parts.push(derive(&buffer.view(), at, 8).await.unwrap());
        }
        let start = std::time::Instant::now();
        let revoking = revoke(&buffer.client).await.unwrap();
        let marked = start.elapsed();
        assert_eq!(revoking.capabilities, 10_000);
        assert!(revoking.wait(Moment::Severed, 20_000).await.0);
        println!("10,000 parts: answered after {marked:?}, severed after {:?}", start.elapsed());
        assert!(revoking.wait(Moment::Reclaimed, 20_000).await.0);
        let asked = harness.fake.asked();
        let drains = asked.iter().filter(|asked| matches!(asked, Asked::Drain(_))).count();
        assert_eq!(drains, 1, "one for all of them");
        assert_eq!(client.status().await.sessions[0].capabilities, 1);
    });
}

#[test]
fn revocations_that_are_held_have_a_limit() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let mut held = Vec::new();
        let refused = loop {
            match revoke(&buffer.client).await {
                Ok(revoking) => held.push(revoking),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code, ErrorCode::LimitReached);
        assert_eq!(u32::try_from(held.len()), Ok(bulkhead_schema::limits::REVOCATIONS_MAX));
        held.clear();
        until(async || revoke(&buffer.client).await.is_ok()).await;
    });
}

#[test]
fn a_fence_can_be_signalled_by_its_signal_alone() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let signal = session.signal().await.unwrap();
        let response = signal.fence_request().send().promise.await.unwrap();
        let fence = read(response.get().unwrap().get_result()).unwrap().get_fence().unwrap();
        let wait = async |timeout_ms| {
            let mut request = fence.wait_request();
            request.get().set_timeout_ms(timeout_ms);
            let response = request.send().promise.await.unwrap();
            read(response.get().unwrap().get_result()).map(|state| state.get_passed())
        };
        assert_eq!(wait(10).await, Ok(false));
        let forged: bulkhead_schema::bulkhead_capnp::gpu_signal::Client =
            capnp::capability::FromClientHook::cast_to(fence.clone());
        let refused = forged.signal_request().send().promise.await.err().unwrap();
        assert_eq!(refused.kind, capnp::ErrorKind::Unimplemented);
        let signalled = signal.signal_request();
        let (waited, _) = tokio::join!(wait(30_000), signalled.send().promise);
        assert_eq!(waited, Ok(true));
        signal.signal_request().send().promise.await.unwrap();
        assert_eq!(wait(0).await, Ok(true), "once is as good as twice");
    });
}

#[test]
fn fences_and_signals_go_to_other_processes_as_what_they_are() {
    with_kernel(async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let session = giver.open("one").await.unwrap();
        let signal = session.signal().await.unwrap();
        let response = signal.fence_request().send().promise.await.unwrap();
        let fence = read(response.get().unwrap().get_result()).unwrap().get_fence().unwrap();
        let fence = taker.restore(token(&fence, Uses::One).await.unwrap()).await.unwrap().fence();
        let signal = taker.restore(token(&signal, Uses::One).await.unwrap()).await.unwrap().signal();
        let mut request = fence.wait_request();
        request.get().set_timeout_ms(30_000);
        let (waited, signalled) =
            tokio::join!(request.send().promise, signal.signal_request().send().promise);
        signalled.unwrap();
        let waited = waited.unwrap();
        assert!(read(waited.get().unwrap().get_result()).unwrap().get_passed());
    });
}

#[test]
fn who_waits_for_a_fence_that_is_taken_back_is_told() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let signal = session.signal().await.unwrap();
        let response = signal.fence_request().send().promise.await.unwrap();
        let fence = read(response.get().unwrap().get_result()).unwrap().get_fence().unwrap();
        let mut request = fence.wait_request();
        request.get().set_timeout_ms(u32::MAX);
        let (waited, revoked) = tokio::join!(request.send().promise, revoke(&signal));
        assert_eq!(revoked.unwrap().capabilities, 1);
        let waited = waited.unwrap();
        assert_eq!(read(waited.get().unwrap().get_result()).err().unwrap().code, ErrorCode::Revoked);
    });
}

#[test]
fn a_token_restores_a_child_that_ends_with_its_parent() {
    with_kernel(async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let session = giver.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let once = token(&buffer.view(), Uses::One).await.unwrap();
        let often = token(&buffer.view(), Uses::UntilRevoked).await.unwrap();
        let restored = taker.restore(once).await.unwrap();
        assert!(restored.is_buffer());
        assert_eq!(taker.restore(once).await.err().unwrap().code, ErrorCode::NotFound, "it was good once");
        let another = taker.restore(often).await.unwrap();
        drop(taker.restore(often).await.unwrap());
        assert!(taker.alive().await, "that it was let go of came before");
        assert_eq!(revoke(&buffer.client).await.unwrap().capabilities, 2);
        for ended in [&restored, &another] {
            assert_eq!(derive(&ended.view(), 0, 1).await.err().unwrap().code, ErrorCode::Revoked);
        }
        drop(taker.restore(often).await.unwrap());
        drop_tokens(&buffer.client).await.unwrap();
        assert_eq!(taker.restore(often).await.err().unwrap().code, ErrorCode::NotFound);
        let last = token(&buffer.view(), Uses::UntilRevoked).await.unwrap();
        close(&buffer.client).await.unwrap();
        assert_eq!(taker.restore(last).await.err().unwrap().code, ErrorCode::NotFound);
        assert_eq!(taker.restore([1, 2, 3, 4]).await.err().unwrap().code, ErrorCode::NotFound);
        assert_eq!(token(&buffer.view(), Uses::One).await.err().unwrap().code, ErrorCode::InvalidHandle);
    });
}

#[test]
fn who_was_given_a_capability_takes_no_place_for_revocations_or_tokens_of_its_owner() {
    let quota = Quota::PROCESS.with(Counted::OfOthers, 100);
    let change = |config: &mut bulkhead_kernel::Config| config.limits.process = quota;
    with_changed_kernel(Manners::default(), change, async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let session = giver.open("one").await.unwrap();
        let (buffer, other) = (session.allocate(PAGE).await.unwrap(), session.allocate(PAGE).await.unwrap());
        let often = token(&buffer.view(), Uses::UntilRevoked).await.unwrap();
        let restored = taker.restore(often).await.unwrap();
        let mut held = Vec::new();
        let refused = loop {
            match revoke(&restored.view()).await {
                Ok(revoking) => held.push(revoking),
                Err(error) => break error,
            }
        };
        assert_eq!((held.len(), refused.code), (100, ErrorCode::LimitReached), "{refused}");
        assert_eq!(token(&restored.view(), Uses::One).await.unwrap_err().code, ErrorCode::LimitReached);
        // The owner's are its own.
        let own: Vec<_> =
            [revoke(&other.client).await.unwrap(), revoke(&buffer.client).await.unwrap()].into();
        assert_eq!(own[1].capabilities, 1);
        token(&other.client, Uses::One).await.unwrap();
        drop(held);
        until(async || match taker.restore(often).await {
            Ok(again) => token(&again.view(), Uses::One).await.is_ok(),
            Err(_) => false,
        })
        .await;
    });
}

#[test]
fn what_ends_behind_running_work_has_a_limit_and_comes_back() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        harness.fake.behave(Manners { holds_drains: true, ..Manners::default() });
        let mut ended = 0;
        let refused = loop {
            match derive(&buffer.view(), 0, 64).await {
                Ok(part) => drop(part),
                Err(error) => break error,
            }
            ended += 1;
        };
        assert_eq!(refused.code, ErrorCode::LimitReached, "{refused}");
        assert!(refused.remedy.contains("kernels that run"), "{refused}");
        // What was let go of last may not have ended yet.
        let most = bulkhead_schema::limits::ENDED_CAPABILITIES_MAX;
        assert!((most..most + 16).contains(&ended), "{ended} capabilities");
        harness.fake.let_go();
        until(async || derive(&buffer.view(), 0, 64).await.is_ok()).await;
    });
}

#[test]
fn tokens_have_a_limit_and_come_back() {
    with_kernel(async |harness| {
        let client = Client::new(&harness.directory).await;
        let session = client.open("one").await.unwrap();
        let signal = session.signal().await.unwrap();
        for _ in 0..bulkhead_schema::limits::STURDY_TOKENS_MAX {
            token(&signal, Uses::One).await.unwrap();
        }
        assert_eq!(token(&signal, Uses::One).await.unwrap_err().code, ErrorCode::LimitReached);
        drop_tokens(&signal).await.unwrap();
        token(&signal, Uses::One).await.unwrap();
    });
}

#[test]
fn who_was_given_a_capability_cannot_use_up_its_owners() {
    with_kernel(async |harness| {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let session = giver.open("one").await.unwrap();
        let buffer = session.allocate(PAGE).await.unwrap();
        let often = token(&buffer.view(), Uses::UntilRevoked).await.unwrap();
        let mut held = Vec::new();
        let refused = loop {
            let restored = taker.restore(often).await;
            let restored = match restored {
                Ok(restored) => restored,
                Err(error) => break error,
            };
            if let Ok(part) = derive(&restored.view(), 0, 1).await {
                held.push(part.client);
            }
            held.push(restored.view());
        };
        assert_eq!(refused.code, ErrorCode::LimitReached);
        assert_eq!(u32::try_from(held.len()), Ok(bulkhead_schema::limits::DERIVED_ELSEWHERE_MAX));
        assert_eq!(giver.status().await.sessions[0].capabilities, 1 + 256);
        derive(&buffer.view(), 0, 1).await.unwrap();
        held.clear();
        until(async || giver.status().await.sessions[0].capabilities == 1).await;
    });
}
