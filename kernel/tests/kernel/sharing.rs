//! Memory of one session, mapped in another.

use bulkhead_mm::Resource;
use bulkhead_schema::{
    ErrorCode,
    bulkhead_capnp::{Moment, Uses, gpu_buffer_view},
};

use crate::{
    fake::{Asked, Manners},
    handed::{Any, close, derive, derive_buffer, grant, revoke, token},
    harness::{Buffer, Client, Harness, Session, read, until, used, with_kernel},
};

const PAGE: u64 = 2 << 20;

/// Two processes, and memory of the first that the second has a capability for.
struct Two {
    giver: Client,
    taker: Client,
    from: Session,
    to: Session,
    buffer: Buffer,
}

impl Two {
    async fn new(harness: &Harness, bytes: u64) -> Self {
        let giver = Client::new(&harness.directory).await;
        let taker = Client::new(&harness.directory).await;
        let from = giver.open("giver").await.unwrap();
        let to = taker.open("taker").await.unwrap();
        let buffer = from.allocate(bytes).await.unwrap();
        Self { giver, taker, from, to, buffer }
    }

    /// What the second process has of it then.
    async fn hand(&self, view: &gpu_buffer_view::Client) -> Any {
        let token = token(view, Uses::One).await.unwrap();
        self.taker.restore(token).await.unwrap()
    }
}

#[test]
fn a_view_is_mapped_in_the_half_that_takes_no_stores() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, 2 * PAGE).await;
        let part = derive(&two.buffer.view(), 0, 2 * PAGE).await.unwrap();
        let given = two.hand(&part.client).await;
        let accepted = two.to.accept(given.view()).await.unwrap();
        assert_eq!(accepted.bytes, 2 * PAGE);
        assert_eq!(accepted.address, two.to.base + (256 << 30) + (64 << 30));
        let asked = harness.fake.asked();
        let share = Asked::Share { session: two.to.id, address: accepted.address, bytes: 2 * PAGE };
        assert!(asked.contains(&share));
        let bound = Asked::Bind { session: two.to.id, handle: accepted.handle, writable: false };
        assert!(asked.contains(&bound));
        assert_eq!(two.giver.status().await.sessions[1].granted, 1);
        let info = accepted.client.info_request().send().promise.await.unwrap();
        let info = read(info.get().unwrap().get_result()).unwrap();
        assert_eq!((info.get_session(), info.get_writable()), (two.to.id, false));
    });
}

#[test]
fn a_buffer_is_mapped_in_the_half_that_takes_stores() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let given = two.hand(&two.buffer.view()).await;
        let accepted = two.to.accept(given.view()).await.unwrap();
        assert_eq!(accepted.address, two.to.base + (64 << 30));
        let bound = Asked::Bind { session: two.to.id, handle: accepted.handle, writable: true };
        assert!(harness.fake.asked().contains(&bound));
        assert_eq!(harness.fake.mapped(two.to.id), (1, PAGE), "one memory in two places");
    });
}

#[test]
fn a_part_is_cut_off_before_it_is_shared() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, 8 * PAGE).await;
        let part = derive(&two.buffer.view(), 2 * PAGE, 3 * PAGE).await.unwrap();
        let given = two.hand(&part.client).await;
        let accepted = two.to.accept(given.view()).await.unwrap();
        assert_eq!(accepted.bytes, 3 * PAGE);
        let splits: Vec<_> =
            harness.fake.asked().into_iter().filter(|asked| matches!(asked, Asked::Split { .. })).collect();
        assert_eq!(splits.len(), 2);
        assert_eq!(harness.fake.mapped(two.from.id).0, 3);
        assert_eq!(harness.fake.mapped(two.to.id).0, 1);
        let status = two.giver.status().await;
        let pieces = |of: &Session| {
            let session = status.sessions.iter().find(|session| session.id == of.id).unwrap();
            used(&session.ledger, Resource::Pieces)
        };
        assert_eq!((pieces(&two.from), pieces(&two.to)), (3, 0), "they are whose memory was cut");
        // What is larger is mapped piece by piece, side by side.
        let whole = two.hand(&two.buffer.view()).await;
        let whole = two.to.accept(whole.view()).await.unwrap();
        assert_eq!(whole.bytes, 8 * PAGE);
        assert_eq!(harness.fake.mapped(two.to.id), (4, 8 * PAGE));
        close(&two.buffer.client).await.unwrap().wait(Moment::Reclaimed, 20_000).await;
        assert_eq!(harness.fake.mapped(two.to.id), (0, 0));
    });
}

#[test]
fn a_part_of_what_is_shared_in_one_piece_is_not_cut_off() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, 4 * PAGE).await;
        let whole = two.hand(&two.buffer.view()).await;
        let accepted = two.to.accept(whole.view()).await.unwrap();
        let part = derive(&two.buffer.view(), 0, PAGE).await.unwrap();
        let given = two.hand(&part.client).await;
        let error = two.to.accept(given.view()).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::NotSupported, "{error}");
        close(&accepted.client).await.unwrap().wait(Moment::Reclaimed, 20_000).await;
        until(async || two.to.accept(given.view()).await.is_ok()).await;
    });
}

#[test]
fn what_cannot_be_mapped_is_refused_and_says_why() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, 4 * PAGE).await;
        for (offset, bytes) in [(0, PAGE - 1), (1, PAGE), (PAGE / 2, PAGE), (0, 1)] {
            let part = derive(&two.buffer.view(), offset, bytes).await.unwrap();
            let given = two.hand(&part.client).await;
            let error = two.to.accept(given.view()).await.err().unwrap();
            assert_eq!(error.code, ErrorCode::NotSupported);
            assert!(error.message.contains("2 MiB"), "{error}");
        }
        let (host, _) = two.from.allocate_host(PAGE).await.unwrap();
        let given = two.hand(&host.view()).await;
        assert_eq!(two.to.accept(given.view()).await.err().unwrap().code, ErrorCode::NotSupported);
        let error = two.from.accept(two.buffer.view()).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "its own: {error}");
        let given = two.hand(&two.buffer.view()).await;
        let accepted = two.to.accept(given.view()).await.unwrap();
        let back = token(&accepted.client, Uses::One).await.unwrap();
        let back = two.giver.restore(back).await.unwrap();
        let error = two.from.accept(back.view()).await.err().unwrap();
        assert_eq!(error.code, ErrorCode::InvalidArgument, "its own, by a detour: {error}");
        assert_eq!(harness.fake.mapped(two.to.id).0, 1);
    });
}

#[test]
fn an_argument_that_is_no_memory_of_this_connection_is_not_permitted() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let peer = two.to.peer().await.unwrap();
        let forged: [gpu_buffer_view::Client; 3] = [
            capnp::capability::FromClientHook::cast_to(peer.clone()),
            capnp::capability::FromClientHook::cast_to(two.to.client.clone()),
            capnp::capability::FromClientHook::cast_to(two.taker.bulkhead.clone()),
        ];
        for view in forged {
            assert_eq!(two.to.accept(view.clone()).await.err().unwrap().code, ErrorCode::NotPermitted);
            assert_eq!(grant(&peer, view).await.err().unwrap().code, ErrorCode::NotPermitted);
        }
    });
}

#[test]
fn a_gift_waits_for_its_session_and_is_its_owners_still() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        assert!(two.to.granted(10).await.unwrap().is_none());
        let peer = two.to.peer().await.unwrap();
        let peer = two.giver.restore(token(&peer, Uses::One).await.unwrap()).await.unwrap().peer();
        let (granted, given) = tokio::join!(two.to.granted(30_000), grant(&peer, two.buffer.view()));
        given.unwrap();
        let granted = granted.unwrap().unwrap();
        assert!(granted.is_buffer());
        let accepted = two.to.accept(granted.view()).await.unwrap();
        let revoking = revoke(&two.buffer.client).await.unwrap();
        assert_eq!(revoking.capabilities, 2, "the gift, and what was accepted of it");
        assert_eq!(revoking.wait(Moment::Reclaimed, 20_000).await, (true, false));
        assert_eq!(harness.fake.mapped(two.to.id).0, 0);
        assert_eq!(derive(&accepted.client, 0, 1).await.err().unwrap().code, ErrorCode::Revoked);
        two.to.memory().await.unwrap();
        // A gift that is taken back before anybody looked is not there.
        grant(&peer, two.buffer.view()).await.unwrap();
        revoke(&two.buffer.client).await.unwrap();
        assert!(two.to.granted(10).await.unwrap().is_none());
        for _ in 0..bulkhead_schema::limits::GRANTS_MAX {
            grant(&peer, two.buffer.view()).await.unwrap();
        }
        assert_eq!(grant(&peer, two.buffer.view()).await.unwrap_err().code, ErrorCode::LimitReached);
    });
}

#[test]
fn revoking_unmaps_wherever_it_is_mapped_and_moves_nothing_else() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let other = two.to.allocate(PAGE).await.unwrap();
        let given = two.hand(&two.buffer.view()).await;
        let accepted = two.to.accept(given.view()).await.unwrap();
        let below = derive(&accepted.client, 0, 100).await.unwrap();
        assert_eq!(below.address, accepted.address);
        let revoking = revoke(&two.buffer.client).await.unwrap();
        assert_eq!(revoking.capabilities, 3);
        assert!(revoking.wait(Moment::Reclaimed, 20_000).await.0);
        let asked = harness.fake.asked();
        let at = |wanted: Asked| asked.iter().position(|asked| *asked == wanted).unwrap();
        let unmap = at(Asked::Unmap { session: two.to.id, bytes: PAGE });
        for handle in [accepted.handle, below.handle] {
            assert!(at(Asked::Unbind { session: two.to.id, handle }) < unmap);
        }
        assert_eq!(harness.fake.mapped(two.from.id), (1, 2 * PAGE));
        derive(&other.view(), 0, 1).await.unwrap();
        derive_buffer(&two.buffer.client, 0, 1).await.unwrap();
    });
}

#[test]
fn an_accept_that_is_overtaken_by_a_revocation_does_not_survive_it() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let given = two.hand(&two.buffer.view()).await;
        harness.fake.behave(Manners { holds_shares: true, ..Manners::default() });
        let (accepted, revoking) = tokio::join!(two.to.accept(given.view()), async {
            let shares =
                async || harness.fake.asked().iter().any(|asked| matches!(asked, Asked::Share { .. }));
            until(shares).await;
            let revoking = revoke(&two.buffer.client).await.unwrap();
            assert_eq!(revoking.capabilities, 2);
            assert!(!revoking.wait(Moment::Quiescent, 20).await.0, "it may be mapped any moment");
            harness.fake.let_go();
            revoking
        });
        assert_eq!(accepted.err().unwrap().code, ErrorCode::Revoked);
        assert!(revoking.wait(Moment::Reclaimed, 20_000).await.0);
        assert_eq!(harness.fake.mapped(two.to.id).0, 0);
        assert!(
            !harness
                .fake
                .asked()
                .iter()
                .any(|asked| matches!(asked, Asked::Bind { session, .. } if *session == two.to.id))
        );
    });
}

#[test]
fn who_waits_for_its_own_kernels_to_accept_memory_holds_up_no_other_taker() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let (slow, quick) = (two.hand(&two.buffer.view()).await, two.hand(&two.buffer.view()).await);
        let other = two.taker.open("other").await.unwrap();
        harness.fake.behave(Manners { holds_shares: true, ..Manners::default() });
        let shares = || {
            let asked = harness.fake.asked();
            asked.iter().filter(|asked| matches!(asked, Asked::Share { .. })).count()
        };
        let both = async {
            until(async || shares() == 1).await;
            let (accepted, ()) = tokio::join!(other.accept(quick.view()), async {
                until(async || shares() == 2).await;
                harness.fake.let_go();
            });
            accepted
        };
        let (first, second) = tokio::join!(two.to.accept(slow.view()), both);
        first.unwrap();
        second.unwrap();
    });
}

#[test]
fn an_accept_that_fails_leaves_nothing_behind() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let given = two.hand(&two.buffer.view()).await;
        for manners in [
            Manners { refuses_shares: true, ..Manners::default() },
            Manners { refuses_binds: true, ..Manners::default() },
        ] {
            harness.fake.behave(manners);
            assert!(two.to.accept(given.view()).await.is_err());
            until(async || {
                let taker = &two.giver.status().await.sessions[1];
                taker.capabilities == 0 && taker.granted == 0
            })
            .await;
            assert_eq!(harness.fake.mapped(two.to.id).0, 0);
        }
        harness.fake.behave(Manners::default());
        two.to.accept(given.view()).await.unwrap();
    });
}

#[test]
fn a_giver_that_closes_takes_its_memory_along_wherever_it_is_mapped() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let given = two.hand(&two.buffer.view()).await;
        let accepted = two.to.accept(given.view()).await.unwrap();
        let second = two.hand(&two.buffer.view()).await;
        harness.fake.behave(Manners { holds_shares: true, ..Manners::default() });
        let (mapped, closed) = tokio::join!(two.to.accept(second.view()), async {
            let shares = async || {
                harness.fake.asked().iter().filter(|a| matches!(a, Asked::Share { .. })).count() == 2
            };
            until(shares).await;
            let close = two.from.copying().close_request().send().promise;
            until(async || two.from.memory().await.is_err()).await;
            harness.fake.let_go();
            close.await
        });
        closed.unwrap();
        assert!(mapped.is_err(), "the giver closed while it was being mapped");
        // The giver is gone from the list, and the taker has nothing of it.
        let granted =
            async || two.giver.status().await.sessions.iter().map(|s| s.granted).collect::<Vec<_>>();
        until(async || granted().await == [0]).await;
        assert_eq!(harness.fake.mapped(two.to.id), (0, 0));
        assert_eq!(derive(&accepted.client, 0, 1).await.err().unwrap().code, ErrorCode::Revoked);
        two.to.memory().await.unwrap();
        drop((given, second));
    });
}

#[test]
fn a_taker_that_closes_leaves_the_giver_its_memory() {
    with_kernel(async |harness| {
        let two = Two::new(&harness, PAGE).await;
        let given = two.hand(&two.buffer.view()).await;
        let _accepted = two.to.accept(given.view()).await.unwrap();
        two.to.close().await.unwrap();
        assert_eq!(harness.fake.mapped(two.from.id), (1, PAGE));
        derive(&two.buffer.view(), 0, 1).await.unwrap();
        assert_eq!(revoke(&two.buffer.client).await.unwrap().capabilities, 1, "what was restored");
    });
}
