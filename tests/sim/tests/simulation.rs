//! Kernel, executor and clients in one deterministic world: the promises hold, and the checks notice when they do not.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{SystemTime, UNIX_EPOCH},
};

use bulkhead_caps::Mutant;
use bulkhead_sim::{Event, Fault, Sim, Tally};

const STEPS: u64 = 50_000;

#[test]
fn five_million_steps_break_no_promise() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seeds = match std::env::var("BULKHEAD_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=70).chain((0..70).map(|more| u64::from(now) + more)).collect::<Vec<u64>>(),
    };
    let (mut steps, mut tally) = (0, Tally::default());
    for seed in &seeds {
        let mut sim = Sim::new(*seed);
        if let Err(failure) = sim.run(STEPS) {
            panic!("{failure}");
        }
        steps += sim.steps();
        tally.add(sim.tally());
    }
    println!("{} seeds, the last {:?}; {steps} steps", seeds.len(), seeds.last());
    println!("{tally:#?}");
    if seeds.len() > 1 {
        assert!(steps >= 5_000_000);
        for event in Event::ALL {
            assert!(tally.of(event) >= 50, "{event:?} hardly ever happened");
        }
    }
}

/// Runs with a bug until it is noticed, and says where.
fn is_noticed(name: &str, switch: impl Fn(&mut Sim)) -> bool {
    let mut steps = 0;
    for seed in 1..=40 {
        let mut sim = Sim::new(seed);
        switch(&mut sim);
        let outcome = catch_unwind(AssertUnwindSafe(|| sim.run(STEPS)));
        steps += sim.steps();
        let what = match outcome {
            Ok(Ok(())) => continue,
            Ok(Err(failure)) => failure.what,
            Err(_) => "an assertion of the parts under test",
        };
        println!("{name}: noticed with seed {seed}, after {steps} steps: {what}");
        return true;
    }
    println!("{name}: not noticed in {steps} steps");
    false
}

#[test]
fn every_mutant_of_the_tree_breaks_a_promise() {
    let noticed = |mutant: &Mutant| is_noticed(&format!("{mutant:?}"), |sim| sim.tree_mut().mutate(*mutant));
    let missed: Vec<Mutant> = Mutant::ALL.into_iter().filter(|mutant| !noticed(mutant)).collect();
    assert_eq!(missed, []);
}

#[test]
fn every_bug_of_the_executor_breaks_a_promise() {
    let noticed = |fault: &Fault| is_noticed(&format!("{fault:?}"), |sim| sim.set_fault(*fault));
    let missed: Vec<Fault> = Fault::ALL.into_iter().filter(|fault| !noticed(fault)).collect();
    assert_eq!(missed, []);
}

#[test]
fn a_run_is_repeated_by_its_seed() {
    let told = || {
        let mut sim = Sim::new(7);
        sim.set_fault(Fault::UnmapWithoutPause);
        sim.run(STEPS).unwrap_err().to_string()
    };
    assert_eq!(told(), told());
}
