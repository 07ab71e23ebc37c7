//! One image in the device serves every session that loads its text.

use std::time::{Duration, Instant};

use bulkhead_client::Stream;
use bulkhead_tests::{
    kernel::Kernel,
    tenant::{ONE, Tenant},
};

fn store(tenant: &Tenant, value: u32) -> u32 {
    let word = tenant.session.allocate(4).expect("memory");
    let parameters = bulkhead_client::Parameters::new().buffer(&word).u32(value);
    let fence =
        tenant.session.launch(Stream::DEFAULT, &tenant.entry("store"), &ONE, &parameters).expect("a launch");
    tenant.session.wait(fence).expect("it passes");
    let mut found = [0; 4];
    tenant.session.read(Stream::DEFAULT, &mut found, word.all()).expect("a word");
    u32::from_ne_bytes(found)
}

#[test]
fn a_text_that_is_loaded_serves_the_next_session_in_its_own_window() {
    let kernel = Kernel::start();
    let first = Tenant::new(&kernel, "first");
    assert_eq!(kernel.status().images, [1, 0, 0]);
    let second = Tenant::new(&kernel, "second");
    assert_eq!(kernel.status().images, [1, 0, 1]);
    // The same code, and hidden parameters of each session's own: each stores where it may.
    assert_eq!((store(&first, 1), store(&second, 2)), (1, 2));
    let codes =
        kernel.status().ledger.iter().find(|column| column.name == "code_bytes").map(|column| column.used);
    assert!(codes.is_some_and(|bytes| bytes > 0));
    // Who loaded it goes: the other has it still.
    drop(first);
    wait_until(|| kernel.status().sessions.len() == 1);
    assert_eq!(store(&second, 3), 3);
    let third = Tenant::new(&kernel, "third");
    assert_eq!(kernel.status().images, [1, 0, 2]);
    assert_eq!(store(&third, 4), 4);
    // With its last session it is unloaded, and the next loads it anew.
    drop((second, third));
    wait_until(|| kernel.status().sessions.is_empty());
    let fourth = Tenant::new(&kernel, "fourth");
    wait_until(|| kernel.status().images[0] == 2);
    assert_eq!(store(&fourth, 5), 5);
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}
