//! The ring under every interleaving that loom finds: nothing is lost, torn, seen twice, or slept through.
#![cfg(loom)]
#![allow(missing_docs, reason = "a test")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bulkhead_ring::{
    Bind, Consumer, LaunchShape, Producer, Record, bell,
    memory::Ring,
    mutant::{Mutant, switch_on},
};
use loom::{
    sync::{
        Condvar, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

const SHAPE: LaunchShape = LaunchShape { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0 };

fn take(consumer: &mut Consumer) -> Record {
    loop {
        if let Some(record) = consumer.take().expect("an honest producer") {
            return record;
        }
        consumer.park(Duration::from_secs(1));
    }
}

fn push(producer: &mut Producer, record: &Record) {
    while producer.push(record).is_err() {
        thread::yield_now();
    }
}

/// A producer and a consumer that sleeps whenever it finds nothing.
fn producer_and_consumer() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Ring::fresh();
        let mut producer = Producer::new(Arc::clone(&ring));
        let mut consumer = Consumer::new(ring);
        let taker = thread::spawn(move || {
            for position in 0..3 {
                let record = take(&mut consumer);
                assert_eq!(record, Record::WaitOn { stream: 0, on: 1, position });
                consumer.release();
            }
        });
        for position in 0..3 {
            push(&mut producer, &Record::WaitOn { stream: 0, on: 1, position });
        }
        taker.join().expect("no panic");
    });
}

/// A pump, as the executor has it: it listens, looks at what was asked of it and at the ring, and sleeps since it
/// listened. Somebody asks something of it once or twice, and beside that a producer may push a record.
fn pump_and_waker(asks: u32, records: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let ring = Ring::fresh();
        let mut producer = Producer::new(Arc::clone(&ring));
        let mut consumer = Consumer::new(ring);
        let waker = consumer.waker();
        // Relaxed: what carries it over is the bell.
        let asked = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&asked);
        let pump = thread::spawn(move || {
            let mut taken = 0;
            loop {
                let bell = consumer.listen();
                if seen.load(Ordering::Relaxed) == asks && taken == records {
                    return;
                }
                if consumer.take().expect("an honest producer").is_some() {
                    consumer.release();
                    taken += 1;
                } else {
                    consumer.park_since(bell, Duration::from_secs(1));
                }
            }
        });
        let control = thread::spawn(move || {
            for count in 1..=asks {
                asked.store(count, Ordering::Relaxed);
                waker.wake();
            }
        });
        for position in 0..records {
            push(&mut producer, &Record::WaitOn { stream: 0, on: 1, position: position.into() });
        }
        control.join().expect("no panic");
        pump.join().expect("no panic");
    });
}

/// Whether a model finds something wrong with a bug switched on. Each test has a thread of its own, and so has each bug.
fn is_noticed(mutant: Mutant, model: fn()) -> bool {
    let noticing = std::thread::spawn(move || {
        switch_on(mutant);
        catch_unwind(AssertUnwindSafe(model)).is_err()
    });
    noticing.join().expect("the panic was caught")
}

#[test]
fn records_arrive_once_in_order_and_no_wake_up_is_lost() {
    producer_and_consumer();
}

#[test]
fn what_was_asked_before_a_wake_up_is_not_slept_through() {
    pump_and_waker(2, 0);
}

#[test]
fn a_record_and_a_wake_up_at_once_are_both_seen() {
    pump_and_waker(1, 1);
}

/// A host half that sleeps where it finds no work, and host code that leaves some, twice.
fn sleeper_and_waker() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (work, sleeps) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        // What wakes: a byte in a socket, which stays there until it is read.
        let socket = Arc::new((Mutex::new(false), Condvar::new()));
        let (found, says, reads) = (Arc::clone(&work), Arc::clone(&sleeps), Arc::clone(&socket));
        let sleeper = thread::spawn(move || {
            for turn in 1..=2 {
                while found.load(Ordering::Acquire) < turn {
                    bell::say(&says, true);
                    if found.load(Ordering::Acquire) < turn {
                        let mut rung = reads.0.lock().expect("nobody panics");
                        while !*rung {
                            rung = reads.1.wait(rung).expect("nobody panics");
                        }
                        *rung = false;
                    }
                    bell::say(&says, false);
                }
            }
        });
        for turn in 1..=2 {
            work.store(turn, Ordering::Release);
            if bell::has_to_wake(&sleeps) {
                *socket.0.lock().expect("nobody panics") = true;
                socket.1.notify_one();
            }
        }
        sleeper.join().expect("no panic");
    });
}

#[test]
fn work_that_is_left_for_a_sleeper_is_not_slept_through() {
    sleeper_and_waker();
}

#[test]
fn every_bug_of_sleeping_and_waking_is_noticed() {
    for mutant in [Mutant::NoFenceOfTheProducer, Mutant::NoFenceOfTheConsumer] {
        assert!(is_noticed(mutant, producer_and_consumer), "{mutant:?}");
        assert!(is_noticed(mutant, || pump_and_waker(1, 1)), "{mutant:?} beside a waker");
        assert!(is_noticed(mutant, sleeper_and_waker), "{mutant:?} of a bell");
    }
    for mutant in [Mutant::WakeWithoutTheBell, Mutant::BellWithoutTheWake, Mutant::RelaxedBell] {
        assert!(is_noticed(mutant, || pump_and_waker(2, 0)), "{mutant:?}");
    }
}

#[test]
fn long_parameters_are_not_overwritten_before_they_are_taken() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let ring = Ring::fresh();
        let mut producer = Producer::new(Arc::clone(&ring));
        let mut consumer = Consumer::new(ring);
        let entry = Bind { slot: 1, generation: 1 };
        let taker = thread::spawn(move || {
            let mut block = Vec::new();
            for round in 0..2 {
                let Record::Launch { launch, .. } = take(&mut consumer) else {
                    panic!("a launch was pushed")
                };
                assert_eq!(**consumer.parameters(&launch, &mut block), [u64::from_ne_bytes([round; 8]); 11]);
                consumer.release();
            }
        });
        for round in 0..2 {
            // Eleven words: one more than a record holds, so they lie in the arena.
            while producer.push_launch(0, entry, SHAPE, 88, |bytes| bytes.fill(round)).is_err() {
                thread::yield_now();
            }
        }
        taker.join().expect("no panic");
    });
}
