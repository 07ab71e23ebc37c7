//! Commands of the admin queue.

use std::time::Duration;

use super::{
    Controller,
    events::{ERROR_ENTRIES_MAX, REQUESTS_MAX},
    queues::{CompletionQueue, QueueState, SubmissionQueue},
};
use crate::{
    formats::{
        AdminOpcode, BusAddress, Cns, CommandId, CommandSetController, Feature, IDENTIFY_BYTES,
        IdentifyController, LogPage, NamespaceId, QueueId, Status, Submission, low_u8, low_u16,
        namespace_descriptors, namespace_list, put, registers::VERSION,
    },
    iommu::{Access, Who},
};

/// The model's own vendor number: that of no vendor.
const VENDOR: u16 = 0xffff;
const FIRMWARE: &str = "1.0";

/// What an admin command answers.
enum Answer {
    /// It is done, with dword 0 of its completion.
    Now(u32),
    /// It completes later.
    Later,
}

impl Controller {
    /// Executes an admin command.
    pub(super) fn admin(&mut self, entry: &Submission, now: Duration) {
        match self.execute_admin(entry, now) {
            Ok(Answer::Now(result)) => self.finish(QueueId::ADMIN, entry, Status::SUCCESS, result, now),
            Ok(Answer::Later) => {}
            Err(status) => self.finish(QueueId::ADMIN, entry, status, 0, now),
        }
    }

    fn execute_admin(&mut self, entry: &Submission, now: Duration) -> Result<Answer, Status> {
        let opcode = AdminOpcode::decode(entry.opcode).ok_or(Status::INVALID_OPCODE)?;
        if entry.fused != 0 || entry.transfer != 0 {
            return Err(Status::INVALID_FIELD);
        }
        match opcode {
            AdminOpcode::DeleteSubmissionQueue => self.delete_submission_queue(entry),
            AdminOpcode::CreateSubmissionQueue => self.create_submission_queue(entry),
            AdminOpcode::GetLogPage => self.log_page(entry),
            AdminOpcode::DeleteCompletionQueue => self.delete_completion_queue(entry),
            AdminOpcode::CreateCompletionQueue => self.create_completion_queue(entry),
            AdminOpcode::Identify => self.identify(entry),
            AdminOpcode::Abort => Ok(self.abort(entry, now)),
            AdminOpcode::SetFeatures => self.set_feature(entry),
            AdminOpcode::GetFeatures => self.feature(entry),
            AdminOpcode::AsyncEventRequest => match self.events.request(entry.command) {
                true => Ok(Answer::Later),
                false => Err(Status::ASYNC_EVENT_LIMIT),
            },
        }
    }

    /// The number, base and size of a queue that is to be made, which the host may make now.
    fn new_queue(&self, entry: &Submission, exists: bool) -> Result<(QueueId, BusAddress, u32), Status> {
        let id = Self::queue_in(entry.dwords[0]);
        if id == QueueId::ADMIN || id.0 > self.queues_allocated || exists {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let entries = u32::from(low_u16(entry.dwords[0] >> 16)) + 1;
        if entries < 2 || entries > self.config.queue_entries_max {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // Queues are contiguous (CAP.CQR), and begin with a page.
        if entry.dwords[1] & 1 == 0 {
            return Err(Status::INVALID_FIELD);
        }
        if !entry.prp1.0.is_multiple_of(self.registers.page_bytes() as u64) {
            return Err(Status::INVALID_PRP_OFFSET);
        }
        Ok((id, entry.prp1, entries))
    }

    fn create_completion_queue(&mut self, entry: &Submission) -> Result<Answer, Status> {
        let exists = self.completion(Self::queue_in(entry.dwords[0])).is_some();
        let (id, base, entries) = self.new_queue(entry, exists)?;
        // There are no interrupts, so that no vector but the first is one.
        if entry.dwords[1] >> 16 != 0 {
            return Err(Status::INVALID_INTERRUPT_VECTOR);
        }
        self.completions[usize::from(id.0)] = Some(CompletionQueue::new(base, entries));
        self.queues_used = self.queues_used.max(usize::from(id.0) + 1);
        Ok(Answer::Now(0))
    }

    fn create_submission_queue(&mut self, entry: &Submission) -> Result<Answer, Status> {
        let exists = self.submission(Self::queue_in(entry.dwords[0])).is_some();
        let (id, base, entries) = self.new_queue(entry, exists)?;
        let completions = Self::queue_in(entry.dwords[1] >> 16);
        if completions == QueueId::ADMIN || completions.0 > self.queues_allocated {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let queue = self.completion(completions).ok_or(Status::INVALID_COMPLETION_QUEUE)?;
        queue.users += 1;
        self.submissions[usize::from(id.0)] = Some(SubmissionQueue::new(base, entries, completions));
        self.queues_used = self.queues_used.max(usize::from(id.0) + 1);
        Ok(Answer::Now(0))
    }

    fn delete_submission_queue(&mut self, entry: &Submission) -> Result<Answer, Status> {
        let id = Self::queue_in(entry.dwords[0]);
        if id == QueueId::ADMIN {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let queue = self.submission(id).ok_or(Status::INVALID_QUEUE_ID)?;
        match queue.state {
            QueueState::Running | QueueState::Halted => {
                queue.state = QueueState::Deleting(entry.command);
                Ok(Answer::Later)
            }
            QueueState::Deleting(_) => Err(Status::INVALID_QUEUE_ID),
        }
    }

    fn delete_completion_queue(&mut self, entry: &Submission) -> Result<Answer, Status> {
        let id = Self::queue_in(entry.dwords[0]);
        if id == QueueId::ADMIN {
            return Err(Status::INVALID_QUEUE_ID);
        }
        let queue = self.completion(id).ok_or(Status::INVALID_QUEUE_ID)?;
        if queue.users > 0 {
            return Err(Status::INVALID_QUEUE_DELETION);
        }
        self.completions[usize::from(id.0)] = None;
        Ok(Answer::Now(0))
    }

    /// Aborts a command that waits for its time, or for an event. Bit 0 of the answer says that it was not aborted.
    fn abort(&mut self, entry: &Submission, now: Duration) -> Answer {
        let id = Self::queue_in(entry.dwords[0]);
        let command = CommandId(low_u16(entry.dwords[0] >> 16));
        let status = Status::ABORT_REQUESTED;
        let aborted = if id == QueueId::ADMIN {
            let waited = self.events.abort(command);
            if waited {
                self.queue_completion(QueueId::ADMIN, command, status, 0, now);
            }
            waited
        } else {
            let completions = self.submission(id).map(|queue| queue.completions);
            let queue = completions.and_then(|completions| self.completion(completions));
            queue.is_some_and(|queue| queue.abort(id, command, now, status))
        };
        Answer::Now(u32::from(!aborted))
    }

    fn set_feature(&mut self, entry: &Submission) -> Result<Answer, Status> {
        let value = entry.dwords[1];
        match Feature::decode(low_u8(entry.dwords[0])).ok_or(Status::INVALID_FIELD)? {
            Feature::VolatileWriteCache => self.write_cache = value & 1 == 1,
            Feature::AsyncEventConfiguration => self.async_event_configuration = value,
            Feature::NumberOfQueues => {
                let (submissions, completions) = (low_u16(value), low_u16(value >> 16));
                if submissions == u16::MAX || completions == u16::MAX {
                    return Err(Status::INVALID_FIELD);
                }
                let submissions_made = self.submissions.iter().skip(1).any(Option::is_some);
                if submissions_made || self.completions.iter().skip(1).any(Option::is_some) {
                    return Err(Status::SEQUENCE_ERROR);
                }
                // As many of either kind.
                let asked = submissions.max(completions) + 1;
                self.queues_allocated = asked.min(self.config.queues_max);
                return Ok(Answer::Now(self.number_of_queues()));
            }
        }
        Ok(Answer::Now(0))
    }

    fn feature(&self, entry: &Submission) -> Result<Answer, Status> {
        let value = match Feature::decode(low_u8(entry.dwords[0])).ok_or(Status::INVALID_FIELD)? {
            Feature::VolatileWriteCache => u32::from(self.write_cache),
            Feature::AsyncEventConfiguration => self.async_event_configuration,
            Feature::NumberOfQueues => self.number_of_queues(),
        };
        Ok(Answer::Now(value))
    }

    fn number_of_queues(&self) -> u32 {
        let less_one = u32::from(self.queues_allocated) - 1;
        less_one << 16 | less_one
    }

    fn identify_controller(&self) -> IdentifyController {
        IdentifyController {
            vendor: VENDOR,
            serial: self.config.serial.clone(),
            model: self.config.model.clone(),
            firmware: FIRMWARE.to_owned(),
            transfer_pages_shift_max: self.config.transfer_pages_shift_max,
            controller: 1,
            version: VERSION,
            aborts_max_less_one: 3,
            async_events_max_less_one: less_one(REQUESTS_MAX),
            error_entries_less_one: less_one(ERROR_ENTRIES_MAX),
            commands_max: u16::try_from(super::OUTSTANDING_MAX).unwrap_or(u16::MAX),
            namespaces: u32::try_from(self.namespaces.len()).unwrap_or(0),
            // Write zeroes.
            optional_commands: 1 << 3,
            // There is one, and flush does not take all namespaces at once.
            volatile_write_cache: 0b101,
        }
    }

    fn identify(&mut self, entry: &Submission) -> Result<Answer, Status> {
        let data = match Cns::decode(low_u8(entry.dwords[0])).ok_or(Status::INVALID_FIELD)? {
            Cns::Controller => self.identify_controller().encode(),
            Cns::Namespace => {
                let index = self.namespace_index(entry.namespace)?;
                self.namespaces[index].identify().encode()
            }
            Cns::ActiveNamespaces => {
                if entry.namespace.0 >= NamespaceId::ALL.0 - 1 {
                    return Err(Status::INVALID_NAMESPACE);
                }
                namespace_list(entry.namespace, self.identify_controller().namespaces)
            }
            Cns::NamespaceDescriptors => {
                self.namespace_index(entry.namespace)?;
                namespace_descriptors(entry.namespace)
            }
            Cns::CommandSetController => {
                // Bits 31:24 are the command set: 0 is NVM.
                if entry.dwords[1] >> 24 != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                let shift = self.config.transfer_pages_shift_max;
                CommandSetController { zeroes_pages_shift_max: shift }.encode()
            }
        };
        debug_assert_eq!(data.len(), IDENTIFY_BYTES);
        self.give(entry, &data)
    }

    fn log_page(&mut self, entry: &Submission) -> Result<Answer, Status> {
        let [dword10, dword11, offset_low, offset_high, ..] = entry.dwords;
        let page = LogPage::decode(low_u8(dword10)).ok_or(Status::INVALID_LOG_PAGE)?;
        let dwords = u64::from(dword10 >> 16) | u64::from(low_u16(dword11)) << 16;
        let bytes = usize::try_from((dwords + 1) * 4).map_err(|_| Status::INVALID_FIELD)?;
        let offset = u64::from(offset_low) | u64::from(offset_high) << 32;
        let log = match page {
            LogPage::ErrorInformation => self.events.error_log(),
            LogPage::Health => self.health(),
            LogPage::FirmwareSlots => firmware_slots(),
        };
        let offset = usize::try_from(offset).map_err(|_| Status::INVALID_FIELD)?;
        if bytes > self.config.transfer_bytes_max() || offset > log.len() || !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        let mut data = log[offset..].to_vec();
        data.resize(bytes, 0);
        let answer = self.give(entry, &data)?;
        let retain_event = dword10 & 1 << 15 != 0;
        if page == LogPage::ErrorInformation && !retain_event {
            self.events.unmask();
        }
        Ok(answer)
    }

    fn health(&self) -> Vec<u8> {
        let mut log = vec![0; 512];
        // Composite temperature in kelvin, available spare and its threshold in percent.
        put(&mut log, 1, &300_u16.to_le_bytes());
        log[3] = 100;
        log[4] = 10;
        put(&mut log, 176, &u128::from(self.events.error_count()).to_le_bytes());
        log
    }

    /// Copies what a command returns to host memory.
    fn give(&self, entry: &Submission, data: &[u8]) -> Result<Answer, Status> {
        let who = Who { queue: QueueId::ADMIN, command: Some(entry.command) };
        let segments = self.transfer(who, entry, data.len(), Access::Write)?;
        self.scatter(who, &segments, data)?;
        Ok(Answer::Now(0))
    }
}

fn less_one(count: usize) -> u8 {
    u8::try_from(count - 1).unwrap_or(u8::MAX)
}

fn firmware_slots() -> Vec<u8> {
    let mut log = vec![0; 512];
    // The active slot is the first.
    log[0] = 1;
    put(&mut log, 8, b"1.0     ");
    log
}
