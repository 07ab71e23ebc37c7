use bulkhead_nvme::{
    Effect, Occurrence, Rule,
    formats::{
        AdminOpcode, BlockSize, BusAddress, CommandId, CommandSetController, ERROR_ENTRY_BYTES, ErrorEntry,
        IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IoOpcode, NamespaceId, QueueId, Status,
        Submission,
    },
};
use std::time::Duration;

use crate::{
    host::Host,
    support::{ONE, io_at, started},
};

const ADMIN: QueueId = QueueId::ADMIN;

fn admin(opcode: AdminOpcode, dword10: u32, dword11: u32) -> Submission {
    Submission::admin(opcode, CommandId(5), dword10, dword11)
}

/// Status type and code of an admin command.
fn refused(host: &mut Host, entry: Submission) -> Status {
    host.call(ADMIN, entry).status
}

fn identify(host: &mut Host, cns: u32, namespace: u32) -> Result<[u8; IDENTIFY_BYTES], Status> {
    // The data begins within a page, and goes on in another.
    let (first, second) = (host.allocate(4096), host.allocate(4096));
    let entry = admin(AdminOpcode::Identify, cns, 0)
        .with_prps(BusAddress(first.0 + 0x800), second)
        .with_namespace(NamespaceId(namespace));
    let status = host.call(ADMIN, entry).status;
    if !status.is_success() {
        return Err(status);
    }
    Ok(host.read(BusAddress(first.0 + 0x800), IDENTIFY_BYTES).try_into().unwrap())
}

#[test]
fn identify_describes_the_controller_and_its_namespaces() {
    let mut host = started();
    let controller = IdentifyController::decode(&identify(&mut host, 1, 0).unwrap());
    assert_eq!(controller.model, "Bulkhead model controller");
    assert_eq!((controller.namespaces, controller.transfer_pages_shift_max), (2, 8));
    let sizes = [(1, 2048, BlockSize::B512), (2, 256, BlockSize::B4096)];
    for (number, blocks, block) in sizes {
        let namespace = IdentifyNamespace::decode(&identify(&mut host, 0, number).unwrap());
        assert_eq!(namespace, IdentifyNamespace { blocks, block_shift: block.shift() });
        assert_eq!(identify(&mut host, 3, number).unwrap()[..2], [3, 16]);
    }
    assert_eq!(identify(&mut host, 2, 0).unwrap()[..12], [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    let set = CommandSetController::decode(&identify(&mut host, 6, 0).unwrap());
    assert_eq!(set.zeroes_pages_shift_max, 8);
    for (cns, namespace, status) in [
        (0, 0, Status::INVALID_NAMESPACE),
        (0, 3, Status::INVALID_NAMESPACE),
        (0, u32::MAX, Status::INVALID_NAMESPACE),
        (2, u32::MAX, Status::INVALID_NAMESPACE),
        (3, 0, Status::INVALID_NAMESPACE),
        (0x1c, 0, Status::INVALID_FIELD),
    ] {
        assert_eq!(identify(&mut host, cns, namespace), Err(status));
    }
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let mut host = started();
    let page = host.allocate(8192);
    let create =
        |id, entries, base| Submission::create_completion_queue(CommandId(1), QueueId(id), entries, base);
    let discontiguous = {
        let mut entry = create(1, 4, page);
        entry.dwords[1] = 0;
        entry
    };
    let vector = {
        let mut entry = create(1, 4, page);
        entry.dwords[1] |= 1 << 16;
        entry
    };
    let submission = |id, completions| {
        Submission::create_submission_queue(CommandId(1), QueueId(id), 4, page, QueueId(completions))
    };
    let delete = |opcode, id| admin(opcode, id, 0);
    let table = [
        (create(0, 4, page), Status::INVALID_QUEUE_ID),
        (create(65, 4, page), Status::INVALID_QUEUE_ID),
        (create(1, 1, page), Status::INVALID_QUEUE_SIZE),
        (create(1, 1025, page), Status::INVALID_QUEUE_SIZE),
        (create(1, 4, BusAddress(page.0 + 64)), Status::INVALID_PRP_OFFSET),
        (discontiguous, Status::INVALID_FIELD),
        (vector, Status::INVALID_INTERRUPT_VECTOR),
        (submission(1, 1), Status::INVALID_COMPLETION_QUEUE),
        (submission(1, 0), Status::INVALID_QUEUE_ID),
        (submission(0, 1), Status::INVALID_QUEUE_ID),
        (delete(AdminOpcode::DeleteSubmissionQueue, 0), Status::INVALID_QUEUE_ID),
        (delete(AdminOpcode::DeleteSubmissionQueue, 1), Status::INVALID_QUEUE_ID),
        (delete(AdminOpcode::DeleteCompletionQueue, 0), Status::INVALID_QUEUE_ID),
        (delete(AdminOpcode::DeleteCompletionQueue, 1), Status::INVALID_QUEUE_ID),
        (admin(AdminOpcode::Identify, 1, 0), Status::DATA_TRANSFER_ERROR),
        (Submission { opcode: 0x7f, command: CommandId(5), ..Submission::default() }, Status::INVALID_OPCODE),
        (Submission { transfer: 1, ..admin(AdminOpcode::Identify, 1, 0) }, Status::INVALID_FIELD),
        (Submission { fused: 1, ..admin(AdminOpcode::Identify, 1, 0) }, Status::INVALID_FIELD),
    ];
    for (entry, status) in table {
        assert_eq!(refused(&mut host, entry), status, "{entry:?}");
    }
    let queue = host.create_pair(4);
    let again = create(queue.0, 4, page);
    assert_eq!(refused(&mut host, again), Status::INVALID_QUEUE_ID);
    let used = delete(AdminOpcode::DeleteCompletionQueue, queue.0.into());
    assert_eq!(refused(&mut host, used), Status::INVALID_QUEUE_DELETION);
    assert!(refused(&mut host, delete(AdminOpcode::DeleteSubmissionQueue, queue.0.into())).is_success());
    assert!(refused(&mut host, used).is_success());
}

#[test]
fn the_number_of_queues_is_set_before_there_are_any() {
    let mut host = started();
    let set = |dword11| admin(AdminOpcode::SetFeatures, 7, dword11);
    assert_eq!(host.call(ADMIN, set(0x0003_0001)).result, 0x0003_0003);
    assert_eq!(host.call(ADMIN, set(0xfffe_fffe)).result, 0x003f_003f);
    assert_eq!(host.call(ADMIN, admin(AdminOpcode::GetFeatures, 7, 0)).result, 0x003f_003f);
    assert_eq!(refused(&mut host, set(0xffff_0000)), Status::INVALID_FIELD);
    assert_eq!(host.call(ADMIN, set(0)).result, 0);
    host.create_pair(4);
    assert_eq!(refused(&mut host, set(0x0001_0001)), Status::SEQUENCE_ERROR);
    let page = host.allocate(4096);
    let second = Submission::create_completion_queue(CommandId(1), QueueId(2), 4, page);
    assert_eq!(refused(&mut host, second), Status::INVALID_QUEUE_ID);
    assert_eq!(refused(&mut host, admin(AdminOpcode::GetFeatures, 0x80, 0)), Status::INVALID_FIELD);
}

#[test]
fn log_pages_are_read_in_part_and_hold_the_last_errors() {
    let mut host = started();
    let log = host.allocate(4096);
    let read = |page: u32, bytes: u32, offset: u32| {
        let mut entry = admin(AdminOpcode::GetLogPage, (bytes / 4 - 1) << 16 | page, 0);
        entry.dwords[2] = offset;
        entry.with_prps(log, BusAddress(0))
    };
    for id in 0..3 {
        let wrong = Submission { opcode: 0x7f, command: CommandId(id), ..Submission::default() };
        assert_eq!(refused(&mut host, wrong), Status::INVALID_OPCODE);
    }
    assert!(host.call(ADMIN, read(1, 128, 64)).status.is_success());
    for (index, (count, command)) in [(2, 1), (1, 0)].into_iter().enumerate() {
        let bytes = host.read(BusAddress(log.0 + index as u64 * 64), ERROR_ENTRY_BYTES);
        let entry = ErrorEntry::decode(&bytes.try_into().unwrap());
        assert_eq!(
            (entry.count, entry.command, entry.status),
            (count, CommandId(command), Status::INVALID_OPCODE)
        );
    }
    assert!(host.call(ADMIN, read(2, 512, 0)).status.is_success());
    assert_eq!(host.read(log, 180)[176..], [3, 0, 0, 0]);
    assert!(host.call(ADMIN, read(3, 512, 0)).status.is_success());
    assert_eq!(&host.read(log, 16)[8..], b"1.0     ");
    assert_eq!(refused(&mut host, read(0x70, 512, 0)), Status::INVALID_LOG_PAGE);
    assert_eq!(refused(&mut host, read(2, 512, 516)), Status::INVALID_FIELD);
    assert_eq!(refused(&mut host, read(2, 512, 2)), Status::INVALID_FIELD);
}

#[test]
fn event_requests_wait_are_limited_and_can_be_aborted() {
    let mut host = started();
    for id in 10..14 {
        host.submit(ADMIN, Submission::admin(AdminOpcode::AsyncEventRequest, CommandId(id), 0, 0));
    }
    let fifth = Submission::admin(AdminOpcode::AsyncEventRequest, CommandId(14), 0, 0);
    assert_eq!(refused(&mut host, fifth), Status::ASYNC_EVENT_LIMIT);
    host.submit(ADMIN, admin(AdminOpcode::Abort, 11 << 16, 0));
    let completions = [host.wait(ADMIN), host.wait(ADMIN)];
    assert_eq!((completions[0].command, completions[0].status), (CommandId(11), Status::ABORT_REQUESTED));
    assert_eq!((completions[1].command, completions[1].result), (CommandId(5), 0));
    assert_eq!(host.call(ADMIN, admin(AdminOpcode::Abort, 11 << 16, 0)).result, 1);
}

/// A queue whose reads of block 9 take a second.
fn slow(host: &mut Host) -> QueueId {
    let queue = host.create_pair(8);
    let rule = Rule {
        queue: None,
        opcode: Some(IoOpcode::Read),
        blocks: Some(9..=9),
        occurrence: Occurrence::Every,
        effect: Effect::Delay(Duration::from_secs(1)),
    };
    host.controller.faults().add(rule).unwrap();
    queue
}

#[test]
fn a_command_that_waits_is_aborted() {
    let mut host = started();
    let queue = slow(&mut host);
    let data = host.allocate(4096);
    host.submit(queue, io_at(IoOpcode::Read, 3, 9, 1, data));
    host.submit(queue, io_at(IoOpcode::Read, 4, 8, 1, data));
    assert_eq!(host.wait(queue).command, CommandId(4));
    let abort = |id: u32| admin(AdminOpcode::Abort, id << 16 | u32::from(queue.0), 0);
    assert_eq!(host.call(ADMIN, abort(4)).result, 1);
    assert_eq!(host.call(ADMIN, abort(3)).result, 0);
    let aborted = host.wait(queue);
    assert_eq!((aborted.command, aborted.status), (CommandId(3), Status::ABORT_REQUESTED));
}

#[test]
fn deleting_a_queue_aborts_what_waits_in_it() {
    let mut host = started();
    let queue = slow(&mut host);
    let data = host.allocate(4096);
    host.submit(queue, io_at(IoOpcode::Read, 3, 9, 1, data));
    host.submit(queue, Submission::flush(CommandId(4), ONE));
    assert_eq!(host.wait(queue).command, CommandId(4));
    let delete = admin(AdminOpcode::DeleteSubmissionQueue, queue.0.into(), 0);
    assert!(host.call(ADMIN, delete).status.is_success());
    let aborted = host.peek(queue).unwrap();
    assert_eq!((aborted.command, aborted.status), (CommandId(3), Status::ABORTED_QUEUE_DELETION));
    let counters = host.controller.counters();
    assert_eq!((counters.discarded, counters.lost), (0, 0));
    assert_eq!(counters.taken, counters.completed);
}
