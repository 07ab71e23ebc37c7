use std::{collections::BTreeSet, time::Duration};

use bulkhead_nvme::{
    Config, Effect, FaultError, Faults, Latency, Namespace, Occurrence, RULES_MAX, Rule, Stepped,
    engine::{Done, Engine, Operation, RamEngine, Request},
    formats::{BlockSize, CommandId, IoOpcode, NamespaceId, QueueId, Status, Submission},
};

use crate::{
    host::Host,
    support::{self, ONE, io_at, started},
};

fn fail(opcode: IoOpcode, blocks: Option<std::ops::RangeInclusive<u64>>, occurrence: Occurrence) -> Rule {
    let effect = Effect::Fail(Status::UNRECOVERED_READ_ERROR);
    Rule { queue: None, opcode: Some(opcode), blocks, occurrence, effect }
}

#[test]
fn commands_complete_out_of_order_when_they_are_due() {
    let mut host = started();
    let queue = host.create_pair(64);
    let mut faults = Faults::new(7);
    faults.set_latency(Latency { base: Duration::from_micros(10), jitter: Duration::from_micros(100) });
    host.controller.set_faults(faults);
    (0..40).for_each(|id| host.submit(queue, Submission::flush(CommandId(id), ONE)));
    while host.controller.step(host.now) == Stepped::Worked {}
    assert!(host.peek(queue).is_none());
    assert!(host.controller.next_due().is_some_and(|due| due >= Duration::from_micros(10)));
    let mut order = Vec::new();
    while let Some(due) = host.controller.next_due() {
        assert!(due < Duration::from_micros(110));
        host.now = due;
        host.controller.step(host.now);
        while let Some(completion) = host.poll(queue) {
            order.push(completion.command.0);
        }
    }
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 40);
    assert!(!order.is_sorted());
}

#[test]
fn errors_hit_the_commands_they_were_made_for() {
    let mut host = started();
    let queue = host.create_pair(8);
    let data = host.allocate(4096);
    host.controller.faults().add(fail(IoOpcode::Read, Some(100..=109), Occurrence::Nth(2))).unwrap();
    let table = [(95, 5, true), (95, 6, true), (109, 1, false), (100, 1, true), (110, 1, true)];
    for (first, count, success) in table {
        let read = io_at(IoOpcode::Read, 1, first, count, data);
        let status = host.call(queue, read).status;
        assert_eq!(status.is_success(), success, "{first}");
        assert!(success || status == Status::UNRECOVERED_READ_ERROR);
        assert!(host.call(queue, io_at(IoOpcode::Write, 2, first, count, data)).status.is_success());
    }
}

#[test]
fn a_write_that_fails_writes_nothing() {
    let mut host = started();
    let queue = host.create_pair(8);
    let (from, to) = (host.allocate(4096), host.allocate(4096));
    host.write(from, &[7; 512]);
    host.controller.faults().add(fail(IoOpcode::Write, None, Occurrence::EachNth(2))).unwrap();
    assert!(host.call(queue, io_at(IoOpcode::Write, 1, 0, 1, from)).status.is_success());
    assert!(!host.call(queue, io_at(IoOpcode::Write, 1, 1, 1, from)).status.is_success());
    host.controller.faults().clear();
    assert!(host.call(queue, io_at(IoOpcode::Read, 2, 0, 2, to)).status.is_success());
    assert_eq!(host.read(to, 1024), [[7; 512], [0; 512]].concat());
}

#[test]
fn a_stuck_queue_is_not_served_until_it_is_released() {
    let mut host = started();
    let (stuck, other) = (host.create_pair(8), host.create_pair(8));
    host.controller.faults().stick(stuck).unwrap();
    host.submit(stuck, Submission::flush(CommandId(1), ONE));
    assert!(host.call(other, Submission::flush(CommandId(1), ONE)).status.is_success());
    assert!(host.peek(stuck).is_none());
    assert!(host.controller.faults().release(stuck));
    assert!(host.wait(stuck).status.is_success());
}

#[test]
fn rules_are_limited() {
    let mut faults = Faults::default();
    for rule in 0..=RULES_MAX {
        let added = faults.add(fail(IoOpcode::Read, None, Occurrence::Every));
        assert_eq!(added, if rule < RULES_MAX { Ok(()) } else { Err(FaultError::Rules) });
    }
    assert!(!faults.release(QueueId(1)));
}

/// Whose first flush fails, as `fdatasync` does once where writes were lost.
struct LosesOnce(RamEngine, bool);

impl Engine for LosesOnce {
    fn name(&self) -> &'static str {
        "loses once"
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn submit(&mut self, request: Request) -> Result<(), Request> {
        self.0.submit(request)
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        let first = done.len();
        self.0.poll(done);
        for done in &mut done[first..] {
            if matches!(done.operation, Operation::Flush) && !std::mem::replace(&mut self.1, true) {
                done.result = Err(std::io::Error::other("lost"));
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}

#[test]
fn once_a_flush_has_failed_no_other_says_that_all_is_well() {
    let engine = LosesOnce(RamEngine::zeroed(1 << 20), false);
    let doubtful = Namespace::new(Box::new(engine), BlockSize::B512).unwrap();
    let other = support::ram(1 << 20, BlockSize::B512);
    let mut host = Host::start(Config::default(), vec![doubtful, other], 1 << 20);
    let queues = [host.create_pair(8), host.create_pair(8)];
    // Of two queues: the first that asks, and whoever asks behind it.
    for queue in [queues[0], queues[1], queues[0]] {
        let flushed = host.call(queue, Submission::flush(CommandId(1), ONE));
        assert_eq!(flushed.status, Status::WRITE_FAULT);
    }
    let flushed = host.call(queues[0], Submission::flush(CommandId(1), NamespaceId(2)));
    assert!(flushed.status.is_success());
}
