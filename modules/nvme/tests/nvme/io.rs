use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bulkhead_nvme::{
    Access, Config, Latency, Memory, Namespace, RamMemory, Rights, Stepped,
    engine::RamEngine,
    formats::{
        AdminOpcode, AsyncEvent, BlockRange, BlockSize, BusAddress, CommandId, IoOpcode, NamespaceId,
        QueueId, Status, Submission,
        registers::{self, Doorbell},
    },
};

use crate::{
    engines::Held,
    host::Host,
    support::{MIB, ONE, io, io_at, ram, started},
};

fn step_until_idle(host: &mut Host) {
    while host.controller.step(host.now) == Stepped::Worked {}
}

#[test]
fn what_was_written_is_read() {
    let mut host = started();
    let queue = host.create_pair(8);
    let (from, to) = (host.allocate(8192), host.allocate(8192));
    let pattern: Vec<u8> = (0..8192_u32).map(|index| (index % 251).to_le_bytes()[0]).collect();
    host.write(from, &pattern);
    assert!(host.call(queue, io_at(IoOpcode::Write, 1, 5, 16, from)).status.is_success());
    assert!(host.call(queue, io_at(IoOpcode::Read, 2, 5, 16, to)).status.is_success());
    assert_eq!(host.read(to, 8192), pattern);
    // Of the second namespace, with its own blocks.
    let range = BlockRange { first: 3, count: 2, fua: true };
    let command = |opcode, at: BusAddress| {
        Submission::io(opcode, CommandId(3), NamespaceId(2), range).with_prps(at, BusAddress(at.0 + 4096))
    };
    assert!(host.call(queue, command(IoOpcode::Write, from)).status.is_success());
    host.write(to, &vec![0; 8192]);
    assert!(host.call(queue, command(IoOpcode::Read, to)).status.is_success());
    assert_eq!(host.read(to, 8192), pattern);
    assert!(host.call(queue, io(IoOpcode::WriteZeroes, 4, 6, 1)).status.is_success());
    assert!(host.call(queue, io_at(IoOpcode::Read, 5, 5, 16, to)).status.is_success());
    let zeroed = host.read(to, 8192);
    assert_eq!(zeroed[..512], pattern[..512]);
    assert_eq!(zeroed[512..1024], [0; 512]);
    assert_eq!(zeroed[1024..], pattern[1024..]);
    assert_eq!(host.iommu.violation_count(), 0);
}

#[test]
fn what_is_wrong_with_a_command_is_its_status() {
    let mut host = started();
    let queue = host.create_pair(8);
    let data = host.allocate(8192);
    let read = |first, count| io_at(IoOpcode::Read, 1, first, count, data);
    let flush = Submission::flush(CommandId(1), ONE);
    let table = [
        (Submission { opcode: 0x7f, ..flush }, Status::INVALID_OPCODE),
        (Submission { opcode: IoOpcode::DatasetManagement as u8, ..flush }, Status::INVALID_OPCODE),
        (Submission { fused: 1, ..flush }, Status::INVALID_FIELD),
        (Submission { transfer: 1, ..read(0, 1) }, Status::INVALID_FIELD),
        (Submission { namespace: NamespaceId(0), ..flush }, Status::INVALID_NAMESPACE),
        (Submission { namespace: NamespaceId(3), ..flush }, Status::INVALID_NAMESPACE),
        (Submission { namespace: NamespaceId::ALL, ..flush }, Status::INVALID_NAMESPACE),
        (read(2048, 1), Status::LBA_OUT_OF_RANGE),
        (read(2047, 2), Status::LBA_OUT_OF_RANGE),
        (read(u64::MAX, 1), Status::LBA_OUT_OF_RANGE),
        (read(u64::MAX - 3, 65_536), Status::LBA_OUT_OF_RANGE),
        (io(IoOpcode::WriteZeroes, 1, 2048, 1), Status::LBA_OUT_OF_RANGE),
        (read(0, 1).with_prps(BusAddress(data.0 + 2), BusAddress(0)), Status::INVALID_PRP_OFFSET),
        (read(0, 16).with_prps(data, BusAddress(data.0 + 4100)), Status::INVALID_PRP_OFFSET),
        (read(0, 1).with_prps(BusAddress(0x1000), BusAddress(0)), Status::DATA_TRANSFER_ERROR),
        (read(0, 16).with_prps(data, BusAddress(0x1000)), Status::DATA_TRANSFER_ERROR),
        (read(0, 64).with_prps(data, BusAddress(0x1000)), Status::DATA_TRANSFER_ERROR),
    ];
    for (entry, status) in table {
        assert_eq!(host.call(queue, entry).status, status, "{entry:?}");
    }
    let violations = host.iommu.take_violations();
    let seen: Vec<_> = violations.iter().map(|violation| (violation.address.0, violation.length)).collect();
    assert_eq!(seen, [(0x1000, 512), (0x1000, 4096), (0x1000, 56)]);
    assert!(violations.iter().all(|of| of.queue == queue && of.command == Some(CommandId(1))));
    let accesses: Vec<Access> = violations.iter().map(|violation| violation.access).collect();
    assert_eq!(accesses, [Access::Write, Access::Write, Access::Read]);
}

#[test]
fn a_transfer_is_no_longer_than_the_controller_says() {
    let config = Config { transfer_pages_shift_max: 1, ..Config::default() };
    let mut host = Host::start(config, vec![ram(MIB, BlockSize::B512)], 4 * MIB);
    let queue = host.create_pair(8);
    let data = host.allocate(16_384);
    assert!(host.call(queue, io_at(IoOpcode::Read, 1, 0, 16, data)).status.is_success());
    assert_eq!(host.call(queue, io_at(IoOpcode::Read, 2, 0, 17, data)).status, Status::INVALID_FIELD);
    assert_eq!(host.call(queue, io(IoOpcode::WriteZeroes, 3, 0, 17)).status, Status::INVALID_FIELD);
}

#[test]
fn phases_flip_and_heads_go_around() {
    let mut host = started();
    let queue = host.create_pair(3);
    for id in 0..20 {
        let completion = host.call(queue, Submission::flush(CommandId(id), ONE));
        assert_eq!(completion.queue, queue);
        assert_eq!(completion.phase, (id / 3) % 2 == 0);
        assert_eq!(completion.queue_head, (id + 1) % 3);
    }
}

#[test]
fn a_full_completion_queue_is_not_overwritten_and_stops_its_submission_queue() {
    let mut host = started();
    let queue = host.create_pair(4);
    let flush = |id| Submission::flush(CommandId(id), ONE);
    (0..3).for_each(|id| host.submit(queue, flush(id)));
    step_until_idle(&mut host);
    (3..6).for_each(|id| host.submit(queue, flush(id)));
    step_until_idle(&mut host);
    let counters = host.controller.counters();
    // 2 admin commands made the queues.
    assert_eq!((counters.taken, counters.completed), (2 + 3, 2 + 3));
    for id in 0..6 {
        assert_eq!(host.wait(queue).command, CommandId(id));
    }
}

#[test]
fn a_queue_that_is_not_served_keeps_no_other_waiting() {
    let mut host = started();
    let (one, two) = (host.create_pair(64), host.create_pair(64));
    (0..63).for_each(|id| host.submit(one, Submission::flush(CommandId(id), ONE)));
    host.submit(two, Submission::flush(CommandId(1), ONE));
    // One from each in turn: the second queue's is among the first two.
    host.controller.step(host.now);
    assert!(host.peek(two).is_some());
}

#[test]
fn a_command_id_that_is_in_use_completes_twice_once_with_an_error() {
    let mut host = started();
    let queue = host.create_pair(8);
    let latency = Latency { base: Duration::from_secs(1), jitter: Duration::ZERO };
    host.controller.faults().set_latency(latency);
    host.submit(queue, Submission::flush(CommandId(9), ONE));
    host.submit(queue, Submission::flush(CommandId(9), ONE));
    assert_eq!(host.wait(queue).status, Status::COMMAND_ID_CONFLICT);
    host.now = Duration::from_secs(1);
    assert!(host.wait(queue).status.is_success());
    // It may be used again.
    host.submit(queue, Submission::flush(CommandId(9), ONE));
    host.controller.step(host.now);
    host.now = Duration::from_secs(2);
    assert!(host.wait(queue).status.is_success());
}

#[test]
fn a_submission_queue_that_cannot_be_read_halts_with_an_event() {
    let mut host = started();
    let completions = host.allocate(4096);
    let create = Submission::create_completion_queue(CommandId(1), QueueId(1), 4, completions);
    assert!(host.call(QueueId::ADMIN, create).status.is_success());
    let nowhere = BusAddress(0x7000_0000_0000);
    let create = Submission::create_submission_queue(CommandId(1), QueueId(1), 4, nowhere, QueueId(1));
    assert!(host.call(QueueId::ADMIN, create).status.is_success());
    host.submit(QueueId::ADMIN, Submission::admin(AdminOpcode::AsyncEventRequest, CommandId(2), 0, 0));
    host.ring(Doorbell::SubmissionTail(QueueId(1)), 2);
    let told = host.wait(QueueId::ADMIN);
    assert_eq!(AsyncEvent::decode(told.result), Some(AsyncEvent::PersistentInternalError));
    step_until_idle(&mut host);
    let violations = host.iommu.take_violations();
    assert_eq!(violations.len(), 1);
    assert_eq!((violations[0].address, violations[0].length), (nowhere, 64));
}

#[test]
fn a_completion_that_cannot_be_written_is_lost_and_told() {
    let mut host = started();
    let submissions = host.allocate(4096);
    let nowhere = BusAddress(0x7000_0000_0000);
    let create = Submission::create_completion_queue(CommandId(1), QueueId(1), 4, nowhere);
    assert!(host.call(QueueId::ADMIN, create).status.is_success());
    let create = Submission::create_submission_queue(CommandId(1), QueueId(1), 4, submissions, QueueId(1));
    assert!(host.call(QueueId::ADMIN, create).status.is_success());
    host.write(submissions, &Submission::flush(CommandId(77), ONE).encode());
    host.submit(QueueId::ADMIN, Submission::admin(AdminOpcode::AsyncEventRequest, CommandId(2), 0, 0));
    host.ring(Doorbell::SubmissionTail(QueueId(1)), 1);
    let told = host.wait(QueueId::ADMIN);
    assert_eq!(AsyncEvent::decode(told.result), Some(AsyncEvent::PersistentInternalError));
    assert_eq!(host.controller.counters().lost, 1);
    assert_eq!(host.iommu.take_violations()[0].command, Some(CommandId(77)));
}

#[test]
fn rights_are_those_of_the_direction_of_the_data() {
    let mut host = started();
    let queue = host.create_pair(8);
    let other = Arc::new(RamMemory::zeroed(4096));
    let at = BusAddress(0x5000);
    host.iommu.map(at, 4096, other.clone(), 0, Rights::Read).unwrap();
    // Reading the media writes memory, which this range does not allow.
    assert_eq!(host.call(queue, io_at(IoOpcode::Read, 1, 0, 1, at)).status, Status::DATA_TRANSFER_ERROR);
    assert!(host.call(queue, io_at(IoOpcode::Write, 2, 0, 1, at)).status.is_success());
    assert!(host.iommu.unmap(at));
    assert_eq!(host.call(queue, io_at(IoOpcode::Write, 3, 0, 1, at)).status, Status::DATA_TRANSFER_ERROR);
    host.iommu.map(at, 4096, other.clone(), 0, Rights::Write).unwrap();
    assert_eq!(host.call(queue, io_at(IoOpcode::Write, 4, 0, 1, at)).status, Status::DATA_TRANSFER_ERROR);
    assert_eq!(host.iommu.violation_count(), 3);
    let mut bytes = [1; 4096];
    other.read(0, &mut bytes);
    assert_eq!(bytes, [0; 4096]);
}

/// A host whose one namespace gives nothing back while the flag is set.
fn held() -> (Host, Arc<AtomicBool>) {
    let held = Arc::new(AtomicBool::new(true));
    let engine = Held { inner: RamEngine::zeroed(MIB), held: Arc::clone(&held) };
    let namespace = Namespace::new(Box::new(engine), BlockSize::B512).unwrap();
    (Host::start(Config::default(), vec![namespace], MIB), held)
}

#[test]
fn memory_that_is_unmapped_while_a_read_executes_is_not_written() {
    let (mut host, held) = held();
    let queue = host.create_pair(8);
    let memory = Arc::new(RamMemory::zeroed(4096));
    memory.write(0, &[9; 4096]);
    let at = BusAddress(0x5000);
    host.iommu.map(at, 4096, memory.clone(), 0, Rights::ReadWrite).unwrap();
    host.submit(queue, io_at(IoOpcode::Read, 1, 0, 1, at));
    step_until_idle(&mut host);
    assert!(host.iommu.unmap(at));
    held.store(false, Ordering::Relaxed);
    assert_eq!(host.wait(queue).status, Status::DATA_TRANSFER_ERROR);
    let mut bytes = [0; 4096];
    memory.read(0, &mut bytes);
    assert_eq!(bytes, [9; 4096]);
    assert_eq!(host.iommu.take_violations()[0].command, Some(CommandId(1)));
}

#[test]
fn a_queue_is_deleted_and_a_reset_done_when_nothing_executes_any_more() {
    let (mut host, held) = held();
    let (one, two) = (host.create_pair(8), host.create_pair(8));
    host.submit(one, Submission::flush(CommandId(1), ONE));
    host.submit(two, Submission::flush(CommandId(1), ONE));
    step_until_idle(&mut host);
    let delete = Submission::admin(AdminOpcode::DeleteSubmissionQueue, CommandId(2), one.0.into(), 0);
    host.submit(QueueId::ADMIN, delete);
    step_until_idle(&mut host);
    assert_eq!(host.peek(QueueId::ADMIN), None);
    held.store(false, Ordering::Relaxed);
    assert!(host.wait(QueueId::ADMIN).status.is_success());
    // What executed is done, and says so.
    assert!(host.wait(one).status.is_success() && host.wait(two).status.is_success());

    held.store(true, Ordering::Relaxed);
    host.submit(two, Submission::flush(CommandId(3), ONE));
    step_until_idle(&mut host);
    host.controller.write_register(registers::CC, 0);
    step_until_idle(&mut host);
    assert_eq!(host.controller.read_register(registers::CSTS), registers::READY);
    held.store(false, Ordering::Relaxed);
    step_until_idle(&mut host);
    assert_eq!(host.controller.read_register(registers::CSTS), 0);
    assert_eq!(host.controller.counters().discarded, 1);
}
