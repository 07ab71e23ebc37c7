//! Memory that is mapped between isolated sessions, whatever its owner does.

use super::*;

/// What a revocation comes to while the owner of what is taken back does not hand it over to those who map it.
fn revoked_while_mapped(owner: &Tenant, takers: &[Tenant], hold: impl FnOnce()) {
    let arena = owner.arena(4 * PAGE_BYTES, 3);
    let own: Vec<_> = takers.iter().map(|taker| taker.arena(PAGE_BYTES, 7)).collect();
    // A part: the rest has to be cut off.
    let share = arena.share(PAGE_BYTES, PAGE_BYTES, Access::ReadWrite).unwrap();
    let token = share.token(Uses::UntilRevoked).unwrap();
    let given: Vec<_> = takers.iter().map(|taker| taker.restore(token)).collect();
    hold();
    std::thread::scope(|scope| {
        let accepting: Vec<_> = takers
            .iter()
            .zip(&given)
            .map(|(taker, given)| scope.spawn(|| taker.session.accept(given).err()))
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(300));
        // The owner itself is waited for, and may end.
        let revocation = share.revoke().unwrap();
        for accepted in accepting {
            let error = accepted.join().unwrap().unwrap();
            assert!(matches!(error.code, ErrorCode::Revoked | ErrorCode::InvalidHandle), "{error}");
        }
        drop(revocation);
    });
    for (taker, own) in takers.iter().zip(&own) {
        assert_eq!(taker.loads(own.address()), 7, "it goes on");
    }
}

#[test]
fn an_owner_that_is_mute_and_revokes_ends_nobody_who_maps_its_memory() {
    let kernel = Kernel::start();
    let owner = Tenant::over(isolated(&kernel, "owner"));
    let takers: Vec<_> = (0..2).map(|_| Tenant::over(isolated(&kernel, "taker"))).collect();
    let executor = executor_of(&kernel, "owner");
    revoked_while_mapped(&owner, &takers, || process::signal(executor, Signal::STOP));
    process::signal(executor, Signal::CONT);
}

#[test]
fn an_owner_whose_kernels_run_on_and_that_revokes_ends_nobody_who_maps_its_memory() {
    let kernel = Kernel::start();
    let owner = Tenant::new(&kernel, "owner");
    let takers = [Tenant::new(&kernel, "taker")];
    let word = owner.session.allocate(4).unwrap();
    let running = std::cell::OnceCell::new();
    revoked_while_mapped(&owner, &takers, || drop(running.set(owner.runs(word.address()))));
    running.into_inner().unwrap().end();
}

#[test]
fn whoever_maps_and_whose_executor_reads_nothing_has_few_descriptors_of_the_kernels() {
    let kernel = Kernel::start();
    let (owner, taker) = (Tenant::over(isolated(&kernel, "owner")), Tenant::over(isolated(&kernel, "taker")));
    let arena = owner.arena(PAGE_BYTES, 3);
    let shares: Vec<_> = (0..3).map(|_| arena.share(0, PAGE_BYTES, Access::ReadWrite).unwrap()).collect();
    let tokens: Vec<_> = shares.iter().map(|share| share.token(Uses::UntilRevoked).unwrap()).collect();
    // More than what a socket holds.
    let given: Vec<_> = tokens.iter().cycle().take(600).map(|token| taker.restore(*token)).collect();
    let executor = executor_of(&kernel, "taker");
    let count = || std::fs::read_dir(format!("/proc/{}/fd", kernel.pid())).unwrap().count();
    let before = count();
    process::signal(executor, Signal::STOP);
    let refused = std::thread::scope(|scope| {
        let accepting: Vec<_> =
            given.iter().map(|given| scope.spawn(|| taker.session.accept(given).map(drop).err())).collect();
        let most = (0..20).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            count()
        });
        let most = most.max().unwrap();
        assert!(most <= before + 64, "{before} and then {most} descriptors");
        process::signal(executor, Signal::CONT);
        accepting.into_iter().filter_map(|accepted| accepted.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|error| error.code == ErrorCode::LimitReached), "{refused:?}");
    assert!(taker.session.accept(&given[0]).is_ok(), "it goes on");
}
