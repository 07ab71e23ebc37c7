//! Commands of I/O queues.

use std::time::Duration;

use super::Controller;
use crate::{
    engine::{Buffer, Done, Durability, Operation, Request},
    formats::{IoOpcode, QueueId, Status, Submission},
    iommu::{Access, Who},
    prp::{self, Segment},
};

/// A command that an engine executes.
#[derive(Debug)]
pub(super) struct Executing {
    queue: QueueId,
    entry: Submission,
    /// Where the data of a read goes.
    segments: Vec<Segment>,
    /// When it completes at the earliest.
    due: Duration,
    bytes: usize,
}

/// How many buffers are kept to be used again, and how large they are at most.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 << 10;

/// The tag of a flush for a shutdown.
const SHUTDOWN_TAG: u64 = 0;

impl Controller {
    /// Begins a command, or finishes it with what is wrong with it.
    pub(super) fn io(&mut self, queue: QueueId, entry: &Submission, now: Duration) {
        let (delay, failure) = self.faults.judge(queue, entry);
        let due = now.saturating_add(delay);
        if let Err(status) = self.begin(queue, entry, due, failure) {
            self.finish(queue, entry, status, 0, due);
        }
    }

    fn begin(
        &mut self,
        queue: QueueId,
        entry: &Submission,
        due: Duration,
        failure: Option<Status>,
    ) -> Result<(), Status> {
        let opcode = match IoOpcode::decode(entry.opcode) {
            None | Some(IoOpcode::DatasetManagement) => return Err(Status::INVALID_OPCODE),
            Some(opcode) => opcode,
        };
        if entry.fused != 0 || entry.transfer != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let index = self.namespace_index(entry.namespace)?;
        let (offset, bytes) = match opcode {
            IoOpcode::Flush => (0, 0),
            _ => self.place(index, entry)?,
        };
        let who = Who { queue, command: Some(entry.command) };
        let segments = match opcode {
            IoOpcode::Read => self.transfer(who, entry, bytes, Access::Write)?,
            IoOpcode::Write => self.transfer(who, entry, bytes, Access::Read)?,
            IoOpcode::Flush | IoOpcode::WriteZeroes | IoOpcode::DatasetManagement => Vec::new(),
        };
        if let Some(status) = failure {
            return Err(status);
        }
        // Without a buffer in between: half of what a read of RAM costs.
        if opcode == IoOpcode::Read
            && let Some(data) = self.namespaces[index].contents(offset, bytes)
        {
            self.scatter(who, &segments, data)?;
            self.finish(queue, entry, Status::SUCCESS, 0, due);
            return Ok(());
        }
        let durability = match entry.blocks().fua || !self.write_cache {
            true => Durability::Forced,
            false => Durability::Flushed,
        };
        let operation = match opcode {
            IoOpcode::Read => Operation::Read { offset, buffer: self.buffer(bytes) },
            IoOpcode::Write => {
                let buffer = self.gather(who, &segments, bytes)?;
                Operation::Write { offset, buffer, durability }
            }
            IoOpcode::WriteZeroes => Operation::Write { offset, buffer: Buffer::zeroed(bytes), durability },
            IoOpcode::Flush | IoOpcode::DatasetManagement => Operation::Flush,
        };
        let tag = self.next_in_sequence();
        self.executing.insert(tag, Executing { queue, entry: *entry, segments, due, bytes });
        self.bounce_bytes += bytes;
        if let Some(queue) = self.submission(queue) {
            queue.executing += 1;
        }
        self.namespaces[index].submit(Request { tag, operation });
        Ok(())
    }

    /// Where the blocks of a command lie in the store of its namespace: offset and length in bytes.
    fn place(&self, index: usize, entry: &Submission) -> Result<(u64, usize), Status> {
        let (offset, bytes) = self.namespaces[index].place(&entry.blocks())?;
        let bytes = usize::try_from(bytes).map_err(|_| Status::INVALID_FIELD)?;
        if bytes > self.config.transfer_bytes_max() {
            return Err(Status::INVALID_FIELD);
        }
        Ok((offset, bytes))
    }

    /// Where the data of a command lies, if the device may access all of it so.
    pub(super) fn transfer(
        &self,
        who: Who,
        entry: &Submission,
        bytes: usize,
        access: Access,
    ) -> Result<Vec<Segment>, Status> {
        let page = self.registers.page_bytes();
        let segments = prp::segments(&self.iommu, who, entry, bytes, page)?;
        for segment in &segments {
            self.iommu
                .check(who, segment.address, segment.bytes, access)
                .map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        }
        Ok(segments)
    }

    /// A buffer that holds anything: all of it is overwritten before it is read, or the command fails.
    fn buffer(&mut self, bytes: usize) -> Buffer {
        match self.spare.iter().rposition(|buffer| buffer.bytes() == bytes) {
            Some(index) => self.spare.swap_remove(index),
            None => Buffer::zeroed(bytes),
        }
    }

    /// Copies the data of a write from host memory.
    fn gather(&mut self, who: Who, segments: &[Segment], bytes: usize) -> Result<Buffer, Status> {
        let mut buffer = self.buffer(bytes);
        let mut rest = buffer.as_mut_slice();
        for segment in segments {
            let (part, after) = rest.split_at_mut(segment.bytes.min(rest.len()));
            self.iommu.read(who, segment.address, part).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
            rest = after;
        }
        Ok(buffer)
    }

    /// Copies data to host memory.
    pub(super) fn scatter(&self, who: Who, segments: &[Segment], data: &[u8]) -> Result<(), Status> {
        let mut rest = data;
        for segment in segments {
            let (part, after) = rest.split_at(segment.bytes.min(rest.len()));
            self.iommu.write(who, segment.address, part).map_err(|_| Status::DATA_TRANSFER_ERROR)?;
            rest = after;
        }
        Ok(())
    }

    /// Takes from the engines what they have done, and hands them what waits.
    pub(super) fn collect(&mut self) -> bool {
        let mut all = std::mem::take(&mut self.done);
        for namespace in &mut self.namespaces {
            namespace.engine.poll(&mut all);
            namespace.push_waiting();
        }
        let worked = !all.is_empty();
        for done in all.drain(..) {
            self.executed(done);
        }
        self.done = all;
        worked
    }

    fn executed(&mut self, done: Done) {
        if done.tag == SHUTDOWN_TAG {
            self.registers.flushed(done.result.is_ok());
            return;
        }
        // A command that a reset discarded is not there any more.
        let Some(command) = self.executing.remove(&done.tag) else { return };
        let Executing { queue, entry, segments, due, bytes } = command;
        self.bounce_bytes -= bytes;
        if let Some(queue) = self.submission(queue) {
            queue.executing -= 1;
        }
        let who = Who { queue, command: Some(entry.command) };
        let flushes = matches!(done.operation, Operation::Flush);
        let number = usize::try_from(entry.namespace.0).ok().and_then(|number| number.checked_sub(1));
        // The system tells one flush that writes were lost, whoever's they were: no later one may say that all is well.
        let is_doubtful =
            number.and_then(|number| self.namespaces.get_mut(number)).is_some_and(|namespace| {
                namespace.is_doubtful |= flushes && done.result.is_err();
                namespace.is_doubtful
            });
        let status = match (done.result, &done.operation) {
            (Ok(()), Operation::Flush) if is_doubtful => Status::WRITE_FAULT,
            (Ok(()), Operation::Read { buffer, .. }) => {
                self.scatter(who, &segments, buffer.as_slice()).err().unwrap_or(Status::SUCCESS)
            }
            (Ok(()), Operation::Write { .. } | Operation::Flush) => Status::SUCCESS,
            (Err(_), Operation::Read { .. }) => Status::UNRECOVERED_READ_ERROR,
            (Err(_), Operation::Write { .. } | Operation::Flush) => Status::WRITE_FAULT,
        };
        self.finish(queue, &entry, status, 0, due);
        if let Operation::Read { buffer, .. } | Operation::Write { buffer, .. } = done.operation
            && buffer.bytes() <= SPARE_BYTES_MAX
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(buffer);
        }
    }
}
