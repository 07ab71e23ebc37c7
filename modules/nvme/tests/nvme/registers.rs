use bulkhead_nvme::{
    Config, ConfigError, Controller, Iommu, Stepped,
    formats::{
        AdminOpcode, AsyncEvent, BusAddress, CommandId, QueueId, Submission,
        registers::{
            self, Capabilities, Configuration, Doorbell, FATAL, READY, SHUTDOWN_DONE, SHUTDOWN_RUNS,
        },
    },
};
use std::{sync::Arc, time::Duration};

use crate::{host::Host, support::started};

fn status(host: &Host) -> u32 {
    host.controller.read_register(registers::CSTS)
}

fn step_until_idle(host: &mut Host) {
    while host.controller.step(host.now) == Stepped::Worked {}
}

#[test]
fn capabilities_and_version_are_those_of_the_configuration() {
    let host = started();
    let capabilities = Capabilities::decode(host.controller.read_register_64(registers::CAP));
    assert_eq!(capabilities.queue_entries_max_less_one, 1023);
    assert!(capabilities.contiguous_queues);
    assert_eq!(host.controller.read_register(registers::VS), registers::VERSION);
    for offset in [0x18, 0x1001, 0x38, u64::MAX, 0x1000] {
        assert_eq!(host.controller.read_register(offset), 0);
    }
}

#[test]
fn the_controller_is_ready_after_it_was_enabled_and_not_after_a_reset() {
    let mut host = started();
    assert_eq!(status(&host), READY);
    host.controller.write_register(registers::CC, 0);
    step_until_idle(&mut host);
    assert_eq!(status(&host), 0);
    host.enable();
    assert_eq!(status(&host), READY);
    host.create_pair(8);
}

#[test]
fn registers_of_the_admin_queue_do_not_change_while_it_is_enabled() {
    let mut host = started();
    let before = host.controller.read_register_64(registers::ASQ);
    host.controller.write_register_64(registers::ASQ, 0xdead_f000);
    host.controller.write_register(registers::AQA, 0);
    host.controller
        .write_register(registers::CC, Configuration { page_shift: 3, ..Configuration::START }.encode());
    assert_eq!(host.controller.read_register_64(registers::ASQ), before);
    assert_eq!(host.controller.read_register(registers::AQA), 31 << 16 | 31);
    assert_eq!(host.controller.read_register(registers::CC), Configuration::START.encode());
}

#[test]
fn what_it_cannot_start_with_is_fatal_until_a_reset() {
    let start = Configuration::START;
    let wrong = [
        (Configuration { command_set: 1, ..start }, 0x1f_001f, 0x1000),
        (Configuration { page_shift: 5, ..start }, 0x1f_001f, 0x1000),
        (Configuration { arbitration: 1, ..start }, 0x1f_001f, 0x1000),
        (Configuration { submission_shift: 7, ..start }, 0x1f_001f, 0x1000),
        (Configuration { completion_shift: 5, ..start }, 0x1f_001f, 0x1000),
        (Configuration { page_shift: 1, ..start }, 0x1f_001f, 0x1000),
        (start, 0x1f_0000, 0x1000),
        (start, 0x00_001f, 0x1000),
    ];
    for (configuration, attributes, base) in wrong {
        let mut controller = Controller::new(Config::default(), Vec::new(), Arc::new(Iommu::new())).unwrap();
        controller.write_register(registers::AQA, attributes);
        controller.write_register_64(registers::ASQ, base);
        controller.write_register_64(registers::ACQ, base);
        controller.write_register(registers::CC, configuration.encode());
        assert_eq!(controller.read_register(registers::CSTS), 0);
        controller.step(Duration::ZERO);
        assert_eq!(controller.read_register(registers::CSTS), FATAL, "{configuration:?}");
        controller.write_register(registers::CC, 0);
        controller.step(Duration::ZERO);
        assert_eq!(controller.read_register(registers::CSTS), 0);
    }
}

#[test]
fn an_admin_queue_that_cannot_be_read_is_fatal() {
    let mut host = started();
    assert!(host.iommu.unmap(BusAddress(crate::host::BASE)));
    host.ring(Doorbell::SubmissionTail(QueueId::ADMIN), 1);
    step_until_idle(&mut host);
    assert_eq!(status(&host), READY | FATAL);
    let violations = host.iommu.take_violations();
    assert_eq!(violations.len(), 1);
    assert_eq!((violations[0].length, violations[0].command), (64, None));
}

#[test]
fn a_shutdown_flushes_and_takes_no_more_commands() {
    let mut host = started();
    let queue = host.create_pair(8);
    let shutdown = Configuration { shutdown: 1, ..Configuration::START };
    host.controller.write_register(registers::CC, shutdown.encode());
    assert_eq!(status(&host), READY | SHUTDOWN_RUNS);
    step_until_idle(&mut host);
    assert_eq!(status(&host), READY | SHUTDOWN_DONE);
    host.submit(queue, Submission::flush(CommandId(1), crate::support::ONE));
    step_until_idle(&mut host);
    assert!(host.peek(queue).is_none());
    host.controller.write_register(registers::CC, 0);
    step_until_idle(&mut host);
    assert_eq!(status(&host), 0);
}

#[test]
fn interrupt_masks_are_set_and_cleared() {
    let mut host = started();
    host.controller.write_register(registers::INTMS, 0xff);
    host.controller.write_register(registers::INTMC, 0x0f);
    assert_eq!(host.controller.read_register(registers::INTMS), 0xf0);
    assert_eq!(host.controller.read_register(registers::INTMC), 0xf0);
}

#[test]
fn a_wrong_doorbell_value_is_an_event_and_leaves_the_queue_as_it_was() {
    let mut host = started();
    let queue = host.create_pair(8);
    let request = Submission::admin(AdminOpcode::AsyncEventRequest, CommandId(7), 0, 0);
    let log = host.allocate(4096);
    // Out of range, more than there is room for, more than there is to consume, upper bits, queues that are not there.
    let table = [
        (Doorbell::SubmissionTail(queue), 8, AsyncEvent::InvalidDoorbellValue),
        (Doorbell::SubmissionTail(queue), 0x1_0001, AsyncEvent::InvalidDoorbellValue),
        (Doorbell::CompletionHead(queue), 1, AsyncEvent::InvalidDoorbellValue),
        (Doorbell::CompletionHead(queue), u32::MAX, AsyncEvent::InvalidDoorbellValue),
        (Doorbell::SubmissionTail(QueueId(2)), 0, AsyncEvent::InvalidDoorbellRegister),
        (Doorbell::CompletionHead(QueueId(999)), 0, AsyncEvent::InvalidDoorbellRegister),
    ];
    for (doorbell, value, event) in table {
        host.submit(QueueId::ADMIN, request);
        host.ring(doorbell, value);
        let told = host.wait(QueueId::ADMIN);
        assert_eq!((told.command, AsyncEvent::decode(told.result)), (CommandId(7), Some(event)));
        // Reading the log lets the next event through.
        let read = Submission::admin(AdminOpcode::GetLogPage, CommandId(8), 15 << 16 | 1, 0)
            .with_prps(log, BusAddress(0));
        assert!(host.call(QueueId::ADMIN, read).status.is_success());
        assert_eq!(host.read(log, 14)[10..12], [0xff, 0xff]);
    }
    let flush = Submission::flush(CommandId(1), crate::support::ONE);
    assert!(host.call(queue, flush).status.is_success());
}

#[test]
fn one_event_is_told_until_its_log_page_is_read() {
    let mut host = started();
    for id in [1, 2] {
        host.submit(QueueId::ADMIN, Submission::admin(AdminOpcode::AsyncEventRequest, CommandId(id), 0, 0));
        host.ring(Doorbell::SubmissionTail(QueueId(60)), 0);
    }
    assert_eq!(host.wait(QueueId::ADMIN).command, CommandId(1));
    let log = host.allocate(4096);
    let read = |dword10| {
        Submission::admin(AdminOpcode::GetLogPage, CommandId(8), dword10, 0).with_prps(log, BusAddress(0))
    };
    // With bit 15 the event stays.
    assert!(host.call(QueueId::ADMIN, read(15 << 16 | 1 << 15 | 1)).status.is_success());
    step_until_idle(&mut host);
    assert_eq!(host.peek(QueueId::ADMIN), None);
    host.submit(QueueId::ADMIN, read(15 << 16 | 1));
    let told = [host.wait(QueueId::ADMIN).command, host.wait(QueueId::ADMIN).command];
    assert_eq!(told, [CommandId(8), CommandId(2)]);
}

#[test]
fn a_tail_that_passes_the_head_is_refused() {
    let mut host = started();
    let queue = host.create_pair(4);
    host.controller.faults().stick(queue).unwrap();
    let flush = |id| Submission::flush(CommandId(id), crate::support::ONE);
    (0..3).for_each(|id| host.submit(queue, flush(id)));
    // Tail 3, head 0: full. Any further tail would pass the head.
    for tail in 0..3 {
        host.ring(Doorbell::SubmissionTail(queue), tail);
    }
    assert!(host.controller.faults().release(queue));
    for id in 0..3 {
        assert_eq!(host.wait(queue).command, CommandId(id));
    }
    step_until_idle(&mut host);
    assert_eq!(host.peek(queue), None);
}

#[test]
fn configurations_out_of_their_limits_are_refused() {
    let made = |config| Controller::new(config, Vec::new(), Arc::new(Iommu::new())).err();
    let config = Config::default();
    assert_eq!(made(Config { queues_max: 0, ..config.clone() }), Some(ConfigError::Queues { asked: 0 }));
    assert_eq!(
        made(Config { queue_entries_max: 1, ..config.clone() }),
        Some(ConfigError::QueueEntries { asked: 1 })
    );
    assert_eq!(
        made(Config { transfer_pages_shift_max: 9, ..config.clone() }),
        Some(ConfigError::Transfer { asked: 9 })
    );
    assert_eq!(made(config), None);
}
