//! The ring between two mappings of one memfd, and against a producer that lies.
#![cfg(not(loom))]
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use std::{os::fd::AsFd, thread, time::Duration};

use bulkhead_ring::{
    Bind, CompletionReader, CompletionWriter, Consumer, Control, Ended, Full, LaunchShape, Park, Producer,
    ProtocolError, Record, layout,
    memory::{self, Completion, Ring},
};

const SHAPE: LaunchShape = LaunchShape { grid: [1, 1, 1], block: [1, 1, 1], shared_bytes: 0 };
const ENTRY: Bind = Bind { slot: 1, generation: 1 };

fn pair() -> (Producer, Consumer, Control) {
    let descriptor = memory::create().unwrap();
    let map = || Ring::map(descriptor.as_fd()).unwrap();
    (Producer::new(map()), Consumer::new(map()), Control::new(map()))
}

#[test]
fn a_hundred_thousand_records_arrive_in_order_with_their_parameters() {
    let (mut producer, mut consumer, _) = pair();
    let taker = thread::spawn(move || {
        let (mut block, mut taken) = (Vec::new(), 0_u64);
        while taken < 100_000 {
            let Some(record) = consumer.take().unwrap() else {
                if !consumer.spin(100) {
                    consumer.park(Duration::from_millis(100));
                }
                continue;
            };
            let Record::Launch { launch, .. } = record else { panic!("only launches are pushed") };
            let words = consumer.parameters(&launch, &mut block);
            assert!(words.iter().all(|word| word.to_ne_bytes() == [taken as u8; 8]), "at {taken}");
            assert_eq!(words.len() as u64, taken % 700);
            consumer.release();
            taken += 1;
        }
    });
    for count in 0..100_000_u64 {
        let bytes = usize::try_from(count % 700 * 8).unwrap();
        while producer.push_launch(3, ENTRY, SHAPE, bytes, |bytes| bytes.fill(count as u8)).is_err() {
            thread::yield_now();
        }
    }
    taker.join().unwrap();
}

#[test]
fn a_full_ring_refuses_and_takes_again_once_released() {
    let (mut producer, mut consumer, _) = pair();
    let record = Record::DestroyStream { stream: 1 };
    for position in 1..=layout::RECORDS as u64 {
        assert_eq!(producer.push(&record), Ok(position));
    }
    assert_eq!(producer.push(&record), Err(Full));
    assert_eq!(consumer.take(), Ok(Some(record)));
    assert_eq!(producer.push(&record), Err(Full), "taken but not released");
    consumer.release();
    consumer.publish();
    assert!(producer.push(&record).is_ok());
}

#[test]
fn a_full_arena_refuses_and_nothing_is_pushed() {
    let (mut producer, mut consumer, _) = pair();
    let mut pushed = 0;
    while producer.push_launch(0, ENTRY, SHAPE, 32_760, |bytes| bytes.fill(7)).is_ok() {
        pushed += 1;
    }
    assert_eq!(pushed, layout::ARENA_WORDS / 4095);
    assert_eq!(producer.position(), pushed as u64);
    assert!(matches!(consumer.take(), Ok(Some(Record::Launch { .. }))));
    consumer.release();
    consumer.publish();
    assert!(producer.push_launch(0, ENTRY, SHAPE, 32_760, |bytes| bytes.fill(7)).is_ok());
}

#[test]
fn a_tail_that_runs_away_is_a_protocol_error() {
    let descriptor = memory::create().unwrap();
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let file = std::fs::File::from(descriptor);
    for lie in [layout::RECORDS as u64 + 1, u64::MAX] {
        std::os::unix::fs::FileExt::write_at(&file, &lie.to_ne_bytes(), 0).unwrap();
        assert!(matches!(consumer.take(), Err(ProtocolError::Tail { .. })), "{lie}");
        consumer = Consumer::new(Ring::map(file.as_fd()).unwrap());
    }
}

#[test]
fn a_record_of_garbage_is_a_protocol_error() {
    let descriptor = memory::create().unwrap();
    let mut consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let file = std::fs::File::from(descriptor);
    std::os::unix::fs::FileExt::write_at(&file, &[0xff; 128], layout::HEADER_BYTES as u64).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, &1_u64.to_ne_bytes(), 0).unwrap();
    assert!(consumer.take().is_err());
}

#[test]
fn a_parked_consumer_times_out_and_is_woken() {
    let (mut producer, mut consumer, _) = pair();
    assert_eq!(consumer.park(Duration::from_millis(5)), Park::TimedOut);
    let waker = consumer.waker();
    let sleeper = thread::spawn(move || {
        let park = consumer.park(Duration::from_secs(60));
        (park, consumer.is_ready())
    });
    thread::sleep(Duration::from_millis(20));
    producer.push(&Record::DestroyStream { stream: 1 }).unwrap();
    assert_eq!(sleeper.join().unwrap(), (Park::Ready, true));
    waker.wake();
}

#[test]
fn the_kernel_can_end_a_session() {
    let (producer, _, control) = pair();
    assert_eq!(producer.ended(), None);
    control.end(11, 700);
    assert_eq!(producer.ended(), Some(Ended { code: 11, device: 700 }));
}

#[test]
fn the_completion_page_is_read_by_the_client_and_written_by_nobody_else() {
    let (page, descriptor) = Completion::create().unwrap();
    let writer = CompletionWriter::new(page);
    let reader = CompletionReader::new(Completion::map(descriptor.as_fd()).unwrap());
    writer.answer(5, 17, 42);
    assert_eq!((reader.reply(5, 17), reader.reply(5, 18)), (Some(42), None));
    writer.refuse(9, 10, 701);
    let refusal = reader.refusal().unwrap();
    assert_eq!((refusal.count, refusal.position, refusal.code, refusal.device), (1, 9, 10, 701));
    writer.end(Ended { code: 13, device: 0 });
    assert_eq!(reader.ended(), Some(Ended { code: 13, device: 0 }));
    assert_eq!((reader.mark(1), reader.mark(u32::MAX)), (0, 0));

    assert!(Ring::map(descriptor.as_fd()).is_err(), "no writable mapping");
    let file = std::fs::File::from(descriptor);
    assert!(std::os::unix::fs::FileExt::write_at(&file, &[1], 0).is_err(), "no write");
    assert!(file.set_len(0).is_err(), "no shrinking");
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let reopened = std::fs::OpenOptions::new().read(true).write(true).open(again).unwrap();
    assert!(
        std::os::unix::fs::FileExt::write_at(&reopened, &[1], 0).is_err(),
        "no write through a second opening"
    );
    assert!(memory::Shared::map(reopened.as_fd(), 4096).is_err(), "no writable mapping of it either");
}

#[test]
fn a_descriptor_that_could_shrink_is_not_mapped() {
    let plain = std::fs::File::from(
        rustix::fs::memfd_create("plain", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap(),
    );
    plain.set_len(layout::RING_BYTES as u64).unwrap();
    assert!(Ring::map(plain.as_fd()).is_err());
}

#[test]
fn a_page_that_is_replaced_is_read_in_the_old_ones_place() {
    let (page, descriptor) = Completion::create().unwrap();
    let (first, reading) = (CompletionWriter::new(page), Completion::map(descriptor.as_fd()).unwrap());
    let reader = CompletionReader::new(std::sync::Arc::clone(&reading));
    first.set_mark(3, 7);
    assert_eq!(reader.mark(3), 7);

    let (page, descriptor) = Completion::create().unwrap();
    let second = CompletionWriter::new(page);
    second.set_mark(3, 9);
    let before = reading.range();
    reading.replace(descriptor.as_fd()).unwrap();
    assert_eq!(reading.range(), before);
    assert_eq!(reader.mark(3), 9);
    first.set_mark(3, 100);
    assert_eq!(reader.mark(3), 9, "the old page is out of sight");
    second.set_mark(3, 10);
    assert_eq!(reader.mark(3), 10);

    let short = memory::create_shared(4096).unwrap();
    assert!(reading.replace(short.as_fd()).is_err());
    assert_eq!(reader.mark(3), 10, "what cannot be mapped replaces nothing");
}

#[test]
fn a_ring_goes_on_after_its_last_taken_record_and_a_forged_count_empties_it() {
    let descriptor = memory::create().unwrap();
    let mut producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let wait = |position| Record::WaitOn { stream: 0, on: 1, position };
    for position in 0..5 {
        producer.push(&wait(position)).unwrap();
    }
    let mut first = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    for _ in 0..3 {
        assert!(first.take().unwrap().is_some());
        first.release();
    }
    // The head that the producer knows is behind: places are given back in batches.
    for (stream, priority) in [(1, -5), (7, -1), (8, -3), (63, i32::MIN), (2, 4), (64, -2), (7, 0)] {
        first.note_priority(stream, priority);
    }
    drop(first);
    let mut second = Consumer::resume(Ring::map(descriptor.as_fd()).unwrap());
    let urgent = (0..).zip(second.priorities()).filter(|(_, priority)| *priority != 0);
    assert_eq!(urgent.collect::<Vec<(u32, i32)>>(), [(1, -5), (8, -3), (63, -255)]);
    assert_eq!(second.position(), 3);
    assert_eq!(second.take(), Ok(Some(wait(3))));

    let file = std::fs::File::from(descriptor);
    for forged in [6u64, u64::MAX, 1 << 63] {
        std::os::unix::fs::FileExt::write_at(&file, &forged.to_ne_bytes(), 640).unwrap();
        let mut third = Consumer::resume(Ring::map(file.as_fd()).unwrap());
        assert_eq!((third.position(), third.take()), (5, Ok(None)), "taken said to be {forged}");
    }
}

#[test]
fn a_client_says_how_many_barriers_of_a_stream_are_open() {
    let descriptor = bulkhead_ring::memory::create().unwrap();
    let producer = Producer::new(Ring::map(descriptor.as_fd()).unwrap());
    let consumer = Consumer::new(Ring::map(descriptor.as_fd()).unwrap());
    let opener = producer.opener();
    for (stream, number) in [(0, 1), (63, u64::MAX), (64, 3), (u32::MAX, 4), (0, 2)] {
        opener.open(stream, number);
    }
    let opened: Vec<u64> = [0, 1, 63, 64, u32::MAX].map(|stream| consumer.opened(stream)).into();
    assert_eq!(opened, [2, 0, u64::MAX, 0, 0]);
}
