//! Protected modules: claimed, given, taken back.

use std::{path::Path, time::Duration};

use bulkhead_kernel::{Config, ProtectedModule};
use bulkhead_schema::{
    Error, ErrorCode,
    bulkhead_capnp::{Moment, gpu_gates, gpu_protected_module},
};
use capnp::capability::FromClientHook as _;

use crate::{
    fake::{Asked, Manners},
    handed::{Words, close, revoke},
    harness::{Client, Session, everything_given_back, read, until, with_changed_kernel},
};

pub(crate) const BYTES: u64 = 4 << 20;

pub(crate) fn with_log(config: &mut Config) {
    config.modules =
        vec![ProtectedModule { name: "log".into(), gates: String::new(), bytes: BYTES, host_bytes: 0 }];
}

pub(crate) fn token(directory: &Path) -> Words {
    let text = std::fs::read_to_string(directory.join("log.token")).unwrap();
    let word = |at: usize| u64::from_str_radix(&text[16 * at..][..16], 16).unwrap().swap_bytes();
    [0, 1, 2, 3].map(word)
}

pub(crate) async fn claim(session: &Session, token: Words) -> Result<gpu_protected_module::Client, Error> {
    let mut request = session.copying().claim_module_request();
    let mut words = request.get().init_token();
    words.set_first(token[0]);
    words.set_second(token[1]);
    words.set_third(token[2]);
    words.set_fourth(token[3]);
    let response = request.send().promise.await.unwrap();
    let claimed = read(response.get().unwrap().get_result())?;
    assert_eq!(claimed.get_bytes(), BYTES);
    Ok(claimed.get_module().unwrap())
}

pub(crate) async fn gates(module: &gpu_protected_module::Client) -> gpu_gates::Client {
    let response = module.gates_request().send().promise.await.unwrap();
    read(response.get().unwrap().get_result()).unwrap().get_gates().unwrap()
}

pub(crate) async fn accept(session: &Session, gates: &gpu_gates::Client) -> Result<gpu_gates::Client, Error> {
    let mut request = session.copying().accept_gates_request();
    request.get().set_gates(gates.clone());
    let response = request.send().promise.await.unwrap();
    Ok(read(response.get().unwrap().get_result())?.get_gates().unwrap())
}

/// What was asked about modules, in order.
fn asked(all: Vec<Asked>) -> Vec<Asked> {
    let is_of_module = |asked: &Asked| {
        matches!(
            asked,
            Asked::AddModule { .. }
                | Asked::CloseModule(_)
                | Asked::RemoveModule(_)
                | Asked::Grant { .. }
                | Asked::RevokeGrant { .. }
        )
    };
    all.into_iter().filter(is_of_module).collect()
}

#[test]
fn a_page_that_the_executor_leaves_open_for_writing_is_given_to_nobody() {
    let manners = Manners { leaves_pages_open: true, ..Manners::default() };
    with_changed_kernel(manners, with_log, async |harness| {
        let host = Client::new(&harness.directory).await;
        let owner = host.open("owner").await.unwrap();
        let refused = claim(&owner, token(&harness.directory)).await.err().unwrap();
        assert!(matches!(refused.code, ErrorCode::DeviceLost | ErrorCode::Internal), "{refused}");
    });
}

#[test]
fn the_end_of_a_module_takes_its_grants_back_before_its_window_goes() {
    with_changed_kernel(Manners::default(), with_log, async |harness| {
        let host = Client::new(&harness.directory).await;
        let (owner, other) = (host.open("owner").await.unwrap(), host.open("other").await.unwrap());
        let before = host.status().await.charged_bytes;
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        assert_eq!(host.status().await.charged_bytes, before + BYTES);
        let given = gates(&module).await;
        // By the session that has the module, and by another.
        let _accepted = accept(&owner, &given).await.unwrap();
        let _others = accept(&other, &given).await.unwrap();
        close(&module).await.unwrap();
        until(async || asked(harness.fake.asked()).contains(&Asked::RemoveModule(1))).await;
        let asked = asked(harness.fake.asked());
        assert_eq!(asked.first(), Some(&Asked::AddModule { module: 1, bytes: BYTES }));
        assert_eq!(asked.last(), Some(&Asked::RemoveModule(1)));
        // Kernels that run find nothing open, before it is waited for them.
        assert!(asked.contains(&Asked::CloseModule(1)), "{asked:?}");
        for session in [owner.id, other.id] {
            let granted = asked.iter().position(|one| *one == Asked::Grant { module: 1, session });
            let revoked = asked.iter().position(|one| *one == Asked::RevokeGrant { module: 1, session });
            assert!(granted.unwrap() < revoked.unwrap(), "{asked:?}");
        }
        until(async || host.status().await.charged_bytes == before).await;
        // Under a new number: what was loaded for the old one is not good for it.
        let _again = claim(&owner, token(&harness.directory)).await.unwrap();
        assert!(harness.fake.asked().contains(&Asked::AddModule { module: 2, bytes: BYTES }));
        host.leave();
        everything_given_back(&harness.directory).await;
        assert!(harness.fake.asked().contains(&Asked::RemoveModule(2)));
    });
}

#[test]
fn revoked_gates_are_taken_back_from_those_that_have_them_and_no_others() {
    with_changed_kernel(Manners::default(), with_log, async |harness| {
        let client = Client::new(&harness.directory).await;
        let owner = client.open("owner").await.unwrap();
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        let (mine, theirs) = (gates(&module).await, gates(&module).await);
        let (one, two) = (client.open("one").await.unwrap(), client.open("two").await.unwrap());
        let _one = accept(&one, &mine).await.unwrap();
        let _two = accept(&two, &theirs).await.unwrap();
        assert_eq!(accept(&two, &mine).await.err().unwrap().code, ErrorCode::InvalidArgument);
        assert_eq!(revoke(&mine).await.unwrap().capabilities, 1);
        until(async || asked(harness.fake.asked()).len() == 4).await;
        let last = asked(harness.fake.asked()).pop();
        assert_eq!(last, Some(Asked::RevokeGrant { module: 1, session: one.id }));
        close(&mine).await.unwrap();
        assert_eq!(accept(&one, &mine).await.err().unwrap().code, ErrorCode::InvalidHandle);
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn a_caller_whose_kernel_runs_on_holds_up_whoever_revokes_its_own_gates_and_no_others() {
    with_changed_kernel(Manners::default(), with_log, async |harness| {
        let client = Client::new(&harness.directory).await;
        let owner = client.open("owner").await.unwrap();
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        let [of_endless, of_calm, of_third] =
            [gates(&module).await, gates(&module).await, gates(&module).await];
        let names = ["endless", "calm", "third"];
        let [endless, calm, third] =
            futures::future::join_all(names.map(|name| client.open(name))).await.try_into().ok().unwrap();
        let [endless, calm, third] = [endless.unwrap(), calm.unwrap(), third.unwrap()];
        let endless_has = accept(&endless, &of_endless).await.unwrap();
        let _calm_has = accept(&calm, &of_calm).await.unwrap();
        let third_has = accept(&third, &of_third).await.unwrap();
        harness.fake.behave(Manners { runs_on: endless.id, ..Manners::default() });
        // It gives its gates up, and its kernel stays in one.
        let own = close(&endless_has).await.unwrap();
        assert!(own.wait(Moment::Severed, 20_000).await.0);
        assert!(!own.wait(Moment::Quiescent, 0).await.0);
        // Another's instance closes, before the endless one's does and after.
        let calms = revoke(&of_calm).await.unwrap();
        assert_eq!(calms.wait(Moment::Reclaimed, 20_000).await, (true, false));
        let endlesss = revoke(&of_endless).await.unwrap();
        assert_eq!(endlesss.capabilities, 0, "it had given them up");
        assert!(close(&third_has).await.unwrap().wait(Moment::Reclaimed, 20_000).await.0);
        assert_eq!(close(&of_third).await.unwrap().wait(Moment::Reclaimed, 20_000).await, (true, false));
        // Under the badge of the endless one a kernel still calls.
        assert_eq!(endlesss.wait(Moment::Quiescent, 0).await, (false, false));
        // With the capability that was revoked all it was waited for goes to the module's.
        let all = close(&of_endless).await.unwrap();
        assert!(!all.wait(Moment::Quiescent, 0).await.0);
        drop((all, endlesss, own));
        let whole = close(&module).await.unwrap();
        assert!(whole.wait(Moment::Severed, 20_000).await.0);
        assert!(!whole.wait(Moment::Quiescent, 0).await.0, "kernels may still be in the gates");
        assert!(!asked(harness.fake.asked()).contains(&Asked::RemoveModule(1)));
        endless.memory().await.unwrap();
        harness.fake.let_go();
        assert_eq!(whole.wait(Moment::Reclaimed, 20_000).await, (true, false));
        assert!(asked(harness.fake.asked()).contains(&Asked::RemoveModule(1)));
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn who_gave_its_gates_up_is_ended_for_its_own_badge_and_not_for_a_neighbours() {
    let hasty = |config: &mut Config| {
        with_log(config);
        config.limits.second = Duration::from_millis(20);
    };
    with_changed_kernel(Manners::default(), hasty, async |harness| {
        let client = Client::new(&harness.directory).await;
        let owner = client.open("owner").await.unwrap();
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        let (of_endless, of_calm) = (gates(&module).await, gates(&module).await);
        let (endless, calm) = (client.open("endless").await.unwrap(), client.open("calm").await.unwrap());
        let endless_has = accept(&endless, &of_endless).await.unwrap();
        let _calm_has = accept(&calm, &of_calm).await.unwrap();
        harness.fake.behave(Manners { runs_on: endless.id, ..Manners::default() });
        drop(close(&endless_has).await.unwrap());
        drop(revoke(&of_calm).await.unwrap());
        calm.close().await.unwrap();
        // That long after somebody waits for it, its session is over; nobody does.
        tokio::time::sleep(2 * 10 * Duration::from_millis(20)).await;
        endless.memory().await.unwrap();
        let revoking = revoke(&of_endless).await.unwrap();
        until(async || endless.memory().await.is_err()).await;
        assert_eq!(endless.memory().await.unwrap_err().code, ErrorCode::Revoked);
        harness.fake.let_go();
        assert!(revoking.wait(Moment::Reclaimed, 20_000).await.0);
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn a_client_that_leaves_while_it_claims_leaves_nothing() {
    let manners = Manners { holds_modules: true, ..Manners::default() };
    with_changed_kernel(manners, with_log, async |harness| {
        let client = Client::new(&harness.directory).await;
        let owner = client.open("owner").await.unwrap();
        let token = token(&harness.directory);
        let claiming = tokio::task::spawn_local(async move { claim(&owner, token).await.map(drop) });
        until(async || !asked(harness.fake.asked()).is_empty()).await;
        let rival = Client::new(&harness.directory).await;
        let session = rival.open("rival").await.unwrap();
        assert_eq!(claim(&session, token).await.err().unwrap().code, ErrorCode::Unavailable);
        claiming.abort();
        client.leave();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!asked(harness.fake.asked()).contains(&Asked::RemoveModule(1)), "it is not there yet");
        harness.fake.let_go();
        until(async || claim(&session, token).await.is_ok()).await;
        assert!(asked(harness.fake.asked()).contains(&Asked::RemoveModule(1)));
        rival.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn a_module_that_the_executor_refuses_is_nobodys_and_charged_to_nobody() {
    let manners = Manners { refuses_modules: true, ..Manners::default() };
    with_changed_kernel(manners, with_log, async |harness| {
        let client = Client::new(&harness.directory).await;
        let owner = client.open("owner").await.unwrap();
        let before = client.status().await;
        let token = token(&harness.directory);
        for _ in 0..2 {
            until(async || {
                let code = claim(&owner, token).await.err().unwrap().code;
                assert!(matches!(code, ErrorCode::OutOfMemory | ErrorCode::Unavailable), "{code:?}");
                code == ErrorCode::OutOfMemory
            })
            .await;
        }
        until(async || {
            let status = client.status().await;
            (status.charged_bytes, &status.ledger) == (before.charged_bytes, &before.ledger)
        })
        .await;
        harness.fake.behave(Manners::default());
        claim(&owner, token).await.unwrap();
    });
}

#[test]
fn a_module_is_lost_with_its_executor_and_made_again_with_the_next() {
    with_changed_kernel(Manners::default(), with_log, async |harness| {
        let client = Client::new(&harness.directory).await;
        let owner = client.open("owner").await.unwrap();
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        let _accepted = accept(&owner, &gates(&module).await).await.unwrap();
        harness.fake.die();
        until(async || client.status().await.sessions.iter().all(|session| session.id != owner.id)).await;
        let mut read_gone = module.read_request();
        read_gone.get().set_bytes(8);
        let response = read_gone.send().promise.await.unwrap();
        let gone = read(response.get().unwrap().get_result()).map(drop).unwrap_err();
        assert_eq!(gone.code, ErrorCode::DeviceLost);
        let next = client.open("next").await.unwrap();
        let module = claim(&next, token(&harness.directory)).await.unwrap();
        let mut write = module.write_request();
        write.get().set_offset(BYTES - 8);
        write.get().set_data(&[1; 8]);
        let response = write.send().promise.await.unwrap();
        read(response.get().unwrap().get_result()).map(drop).unwrap();
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}

#[test]
fn what_is_not_gates_of_the_clients_own_is_not_accepted() {
    with_changed_kernel(Manners::default(), with_log, async |harness| {
        let client = Client::new(&harness.directory).await;
        let owner = client.open("owner").await.unwrap();
        let module = claim(&owner, token(&harness.directory)).await.unwrap();
        let buffer = owner.allocate(2 << 20).await.unwrap();
        let forged: [gpu_gates::Client; 3] =
            [buffer.client.clone().cast_to(), module.clone().cast_to(), owner.client.clone().cast_to()];
        for gates in &forged {
            assert_eq!(accept(&owner, gates).await.err().unwrap().code, ErrorCode::NotPermitted);
        }
        // Gates have no window, whatever their holder calls them.
        let gates: gpu_protected_module::Client = gates(&module).await.cast_to();
        let refused = gates.read_request().send().promise.await.err().unwrap();
        assert_eq!(refused.kind, capnp::ErrorKind::Unimplemented);
        assert!(!asked(harness.fake.asked()).iter().any(|asked| matches!(asked, Asked::Grant { .. })));
        client.leave();
        everything_given_back(&harness.directory).await;
    });
}
