//! What a program does over and over asks the kernel for nothing: launches, copies and waits go past it, and what was set or
//! asked once is known.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::{collections::BTreeMap, time::Duration};

use bulkhead_tests::{kernel::Kernel, place::program, process};

/// The remote calls of a run of so many steps, by name.
fn calls(kernel: &Kernel, domain: &str, steps: u32) -> BTreeMap<String, u64> {
    let mut run = kernel.run_command(&program("steady"));
    run.arg(steps.to_string()).env("BULKHEAD_DOMAIN", domain).env("BULKHEAD_COUNT_CALLS", "1");
    let done = process::run(&mut run, Duration::from_secs(120));
    assert_eq!(done.code(), Some(0), "{domain}: {}", done.told());
    let line = done.stderr.lines().find_map(|line| line.split_once(" remote calls: "));
    let (_, list) = line.unwrap_or_else(|| panic!("{}", done.told()));
    list.split(", ")
        .map(|call| call.split_once(' ').unwrap())
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect()
}

#[test]
fn steps_of_a_program_make_no_remote_calls() {
    let kernel = Kernel::start();
    for domain in ["guarded", "isolated"] {
        let (few, many) = (calls(&kernel, domain, 4), calls(&kernel, domain, 40));
        assert!(few.values().sum::<u64>() > 5, "{few:?}");
        assert_eq!(few, many, "{domain}");
    }
}
