//! The ring under every interleaving that loom finds: nothing is lost, torn, seen twice, or slept through.
#![cfg(loom)]
#![allow(missing_docs, reason = "a test")]

use std::{sync::Arc, time::Duration};

use bulkhead_ring::{Bind, Consumer, LaunchShape, Producer, Record, memory::Ring};
use loom::thread;

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

#[test]
fn records_arrive_once_in_order_and_no_wake_up_is_lost() {
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
