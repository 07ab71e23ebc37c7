//! Host code's ring, as the host half sees it: it copies each request, checks the copy, and submits that to the instance's queue.
//!
//! Nothing of the shared memory is believed. A request that breaks the rules of the ring ends its instance, and nothing else.

use std::sync::atomic::Ordering;

use bulkhead_client::ModuleHost;
use bulkhead_module::{HostCaller, Window, codes};
use bulkhead_nvme::formats::{
    BlockRange, BusAddress, COMPLETION_BYTES, CommandId, Completion, IoOpcode, NamespaceId, SUBMISSION_BYTES,
    Submission, registers::Doorbell,
};
use bulkhead_storage::{
    rules::{self, Checked, Extent, FAILED},
    wire::{self, BUFFER_BYTES, BUFFERS},
};

use crate::{
    driver::Driver,
    layout::{ENTRIES, Parts},
};

/// Requests that are taken, and completions, at one look.
const LOOK_MAX: u32 = 64;

/// A ring, and the queue pair that its requests go to.
pub(crate) struct Ring {
    pub(crate) caller: HostCaller,
    extents: Vec<Extent>,
    /// Where the buffers are on the bus.
    buffers: BusAddress,
    /// How many requests were taken.
    taken: u32,
    /// The mark of each buffer's request, while it is on its way.
    marks: Vec<Option<u32>>,
    tail: u32,
    head: u32,
    broken: bool,
}

/// The caller has broken the rules of the ring.
struct Broken(&'static str);

impl Ring {
    pub(crate) fn new(caller: HostCaller, extents: Vec<Extent>, buffers: BusAddress) -> Self {
        let marks = vec![None; BUFFERS as usize];
        Self { caller, extents, buffers, taken: 0, marks, tail: 0, head: 0, broken: false }
    }

    /// Takes a bounded number of requests and completions; whether there were any.
    pub(crate) fn look(
        &mut self,
        driver: &mut Driver,
        window: &Window,
        parts: Parts,
        queue: bulkhead_nvme::formats::QueueId,
    ) -> bool {
        let completed = self.complete(driver, window, parts, queue);
        let taken = match self.take(window, parts) {
            Ok(taken) => taken,
            Err(Broken(what)) => {
                eprintln!("storage: host code has broken the rules of its ring, and is ended: {what}");
                self.broken = true;
                self.caller.end();
                false
            }
        };
        if taken {
            driver.ring(Doorbell::SubmissionTail(queue), self.tail);
        }
        if completed || taken {
            self.caller.wake();
        }
        completed || taken
    }

    fn take(&mut self, window: &Window, parts: Parts) -> Result<bool, Broken> {
        if self.broken {
            return Ok(false);
        }
        let memory = self.caller.memory().clone();
        let tail = memory.word(wire::TAIL).map_or(self.taken, |word| word.load(Ordering::Acquire));
        let waiting = tail.wrapping_sub(self.taken);
        if waiting > BUFFERS {
            return Err(Broken("more requests than buffers"));
        }
        for _ in 0..waiting.min(LOOK_MAX) {
            let request = wire::take(&memory, self.taken);
            self.taken = self.taken.wrapping_add(1);
            let mark = self.marks.get_mut(request.buffer as usize).ok_or(Broken("no such buffer"))?;
            if mark.is_some() {
                return Err(Broken("a buffer has two requests"));
            }
            match rules::check(&self.extents, &request) {
                Err(code) => answer(&memory, request.buffer, request.mark, code),
                Ok(checked) => {
                    *mark = Some(request.mark);
                    let entry = self.command(request.buffer, checked).encode();
                    let place = parts.submissions + u64::from(self.tail) * SUBMISSION_BYTES as u64;
                    if window.copy_to_host(place, &entry) {
                        self.tail = (self.tail + 1) % ENTRIES;
                    }
                }
            }
        }
        Ok(waiting > 0)
    }

    /// The command for a buffer that there is: there are as many places in the queue as buffers, and more.
    fn command(&self, buffer: u32, checked: Checked) -> Submission {
        let id = CommandId(u16::try_from(buffer).unwrap_or(u16::MAX));
        match checked {
            Checked::Flush { space } => Submission::flush(id, NamespaceId(space)),
            Checked::Move { writes, space, first, count } => {
                let opcode = if writes { IoOpcode::Write } else { IoOpcode::Read };
                let range = BlockRange { first, count, fua: false };
                let data = BusAddress(self.buffers.0 + u64::from(buffer) * BUFFER_BYTES as u64);
                Submission::io(opcode, id, NamespaceId(space), range).with_prps(data, BusAddress(0))
            }
        }
    }

    fn complete(
        &mut self,
        driver: &mut Driver,
        window: &Window,
        parts: Parts,
        queue: bulkhead_nvme::formats::QueueId,
    ) -> bool {
        let mut found = 0;
        while found < LOOK_MAX {
            let place = parts.completions + u64::from(self.head % ENTRIES) * COMPLETION_BYTES as u64;
            let phase = (self.head / ENTRIES) % 2 == 0;
            let Some(last) = window.word(place + 12).map(|word| word.load(Ordering::Acquire)) else { break };
            if (last >> 16 & 1 == 1) != phase {
                break;
            }
            let mut bytes = [0; COMPLETION_BYTES];
            if !window.copy_from_host(place, &mut bytes) {
                break;
            }
            let Completion { command, status, .. } = Completion::decode(&bytes);
            self.head = self.head.wrapping_add(1) % (2 * ENTRIES);
            found += 1;
            let Some(mark) = self.marks.get_mut(usize::from(command.0)).and_then(Option::take) else {
                continue;
            };
            let code = if status.is_success() { codes::DONE } else { FAILED | u32::from(status.bits()) };
            answer(self.caller.memory(), command.0.into(), mark, code);
        }
        if found > 0 {
            driver.ring(Doorbell::CompletionHead(queue), self.head % ENTRIES);
        }
        found > 0
    }
}

fn answer(memory: &ModuleHost, buffer: u32, mark: u32, code: u32) {
    if let Some(word) = memory.wide(wire::answer(buffer)) {
        word.store(u64::from(mark) << 32 | u64::from(code), Ordering::Release);
    }
}
