//! The demo: an attacker's stores stay in its own slot, and one screen says so.

use std::time::Duration;

use bulkhead_tests::process::{bulkhead, run};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(180);

#[test]
fn every_store_of_the_demos_attacker_is_contained_and_its_neighbours_are_intact() {
    let done = run(&mut bulkhead(&["demo", "--backend", "software", "--json"]), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["safe"], true, "{report:#}");
    assert_eq!(report["backend"], "software");
    for neighbour in ["alice", "bob"] {
        let neighbour = &report["tenants"][neighbour];
        assert_eq!(
            (&neighbour["results"], &neighbour["vault_intact"]),
            (&Value::Bool(true), &Value::Bool(true))
        );
        assert!(neighbour["rounds"].as_u64().unwrap() >= 20, "{report:#}");
    }
    let attacker = &report["tenants"]["mallory"];
    assert_eq!(attacker["alive"], true);
    let stores = attacker["stores"].as_array().unwrap();
    assert!(stores.len() >= 5, "forged addresses of both neighbours, null and nobody's");
    let slot = attacker["slot"].as_u64().unwrap();
    for store in stores {
        for holds in ["in_own_slot", "seen", "sink"] {
            assert_eq!(store[holds], true, "{holds}: {store:#}");
        }
        let (forged, landed) = (store["forged"].as_u64().unwrap(), store["landed"].as_u64().unwrap());
        assert!(landed >= slot && landed - slot < 512 << 30, "{store:#}");
        assert_ne!(forged, landed, "an address of the attacker's own is no attack");
    }
}

#[test]
fn the_demo_fits_a_screen() {
    let done = run(&mut bulkhead(&["demo", "--backend", "software"]), PATIENCE);
    assert_eq!(done.code(), Some(0), "{}", done.told());
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines.len() <= 40, "{} lines", lines.len());
    assert!(lines.iter().all(|line| line.chars().count() <= 120), "{}", done.stdout);
    for told in ["alice", "bob", "mallory", "sink"] {
        assert!(done.stdout.contains(told), "{told} is not told of:\n{}", done.stdout);
    }
    assert!(!done.stdout.contains("NO"), "{}", done.stdout);
}
