//! Host code's ring, as the host half sees it: it copies each request, checks the copy, and submits that to the instance's queue.
//!
//! Nothing of the shared memory is believed. A request that breaks the rules of the ring ends its instance, and nothing else.

use std::sync::atomic::Ordering;

use bulkhead_client::ModuleHost;
use bulkhead_module::{HostCaller, codes};
use bulkhead_nvme::formats::{
    BlockRange, BusAddress, COMPLETION_BYTES, CommandId, Completion, IoOpcode, NamespaceId, QueueId,
    SUBMISSION_BYTES, Submission, registers::Doorbell,
};
use bulkhead_storage::{
    rules::{self, BLOCK_BYTES, Checked, Extent, FAILED},
    wire::{self, BUFFER_BYTES, BUFFERS},
};

use crate::{
    driver::Driver,
    layout::{ENTRIES, Parts},
};

/// Pages of the controller.
const PAGE_BYTES: u64 = 4096;
/// Requests that are taken, and completions, at one look.
const LOOK_MAX: u32 = 64;

/// A ring, and the queue pair that its requests go to.
pub(crate) struct Ring {
    pub(crate) caller: HostCaller,
    extents: Vec<Extent>,
    /// Where the buffers are on the bus, and the memory that the caller lends.
    buffers: BusAddress,
    lent: BusAddress,
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
    pub(crate) fn new(
        caller: HostCaller,
        extents: Vec<Extent>,
        buffers: BusAddress,
        lent: BusAddress,
    ) -> Self {
        let marks = vec![None; BUFFERS as usize];
        Self { caller, extents, buffers, lent, taken: 0, marks, tail: 0, head: 0, broken: false }
    }

    /// Takes a bounded number of requests and completions; whether there were any.
    pub(crate) fn look(
        &mut self,
        driver: &mut Driver,
        queues: &ModuleHost,
        parts: Parts,
        queue: QueueId,
    ) -> bool {
        let completed = self.complete(driver, queues, parts, queue);
        let taken = match self.take(queues, parts) {
            Ok(taken) => taken,
            Err(Broken(what)) => {
                bulkhead_module::warn(format_args!(
                    "storage: host code has broken the rules of its ring, and is ended: {what}"
                ));
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

    fn take(&mut self, queues: &ModuleHost, parts: Parts) -> Result<bool, Broken> {
        if self.broken {
            return Ok(false);
        }
        let memory = self.caller.memory().clone();
        let tail = memory.word(wire::TAIL).map_or(self.taken, |word| word.load(Ordering::Acquire));
        let waiting = tail.wrapping_sub(self.taken);
        if waiting > BUFFERS {
            return Err(Broken("more requests than buffers"));
        }
        let lent = self.caller.lent().map_or(0, |lent| lent.memory().bytes() as u64);
        for _ in 0..waiting.min(LOOK_MAX) {
            let request = wire::take(&memory, self.taken);
            self.taken = self.taken.wrapping_add(1);
            let mark = self.marks.get_mut(request.buffer as usize).ok_or(Broken("no such buffer"))?;
            if mark.is_some() {
                return Err(Broken("a buffer has two requests"));
            }
            match rules::check(&self.extents, lent, &request) {
                Err(code) => answer(&memory, request.buffer, request.mark, code),
                Ok(checked) => {
                    *mark = Some(request.mark);
                    let entry = self.command(request.buffer, checked).encode();
                    let place = parts.submissions + u64::from(self.tail) * SUBMISSION_BYTES as u64;
                    queues.write(crate::place(place), &entry);
                    self.tail = (self.tail + 1) % ENTRIES;
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
            Checked::Move { writes, space, first, count, target } => {
                let opcode = if writes { IoOpcode::Write } else { IoOpcode::Read };
                let range = BlockRange { first, count, fua: false };
                let data = target.map_or_else(
                    || self.buffers.0 + u64::from(buffer) * BUFFER_BYTES as u64,
                    |target| self.lent.0 + target,
                );
                let second = second_page(data, u64::from(count) * BLOCK_BYTES as u64);
                Submission::io(opcode, id, NamespaceId(space), range).with_prps(BusAddress(data), second)
            }
        }
    }

    fn complete(&mut self, driver: &mut Driver, queues: &ModuleHost, parts: Parts, queue: QueueId) -> bool {
        let mut found = 0;
        while found < LOOK_MAX {
            let place = parts.completions + u64::from(self.head % ENTRIES) * COMPLETION_BYTES as u64;
            let phase = (self.head / ENTRIES).is_multiple_of(2);
            let Some(last) = queues.word(crate::place(place + 12)).map(|word| word.load(Ordering::Acquire))
            else {
                break;
            };
            if (last >> 16 & 1 == 1) != phase {
                break;
            }
            let mut bytes = [0; COMPLETION_BYTES];
            queues.read(crate::place(place), &mut bytes);
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

/// The page behind the one that data begins in, where the data goes on there. It has no more than a page.
fn second_page(data: u64, bytes: u64) -> BusAddress {
    let next = (data / PAGE_BYTES + 1) * PAGE_BYTES;
    BusAddress(if data + bytes > next { next } else { 0 })
}

fn answer(memory: &ModuleHost, buffer: u32, mark: u32, code: u32) {
    if let Some(word) = memory.wide(wire::answer(buffer)) {
        word.store(u64::from(mark) << 32 | u64::from(code), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixStream,
        sync::Arc,
        time::{Duration, Instant},
    };

    use bulkhead_client::Borrowed;
    use bulkhead_nvme::{Namespace, engine::RamEngine, formats::BlockSize};
    use bulkhead_storage::rules::{READ, Request, Rights, WRITE};

    use super::*;
    use crate::{bus, layout};

    const BLOCKS: u64 = 4096;
    /// Memory that callers lend: some targets lie outside.
    const LENT_BYTES: u64 = 8192;

    /// A controller, and the host memory of a window.
    struct Half {
        driver: Driver,
        queues: Arc<ModuleHost>,
    }

    /// A ring, and the other end of its connection.
    struct Open {
        ring: Ring,
        parts: Parts,
        queue: QueueId,
        end: UnixStream,
    }

    impl Half {
        fn new() -> Self {
            let engine = RamEngine::zeroed(usize::try_from(BLOCKS * 512).unwrap());
            let namespace = Namespace::new(Box::new(engine), BlockSize::B512).unwrap();
            let (queues, _) = ModuleHost::create(crate::window::HOST_WINDOW_BYTES).unwrap();
            Self { driver: Driver::start(vec![namespace], Duration::ZERO).unwrap(), queues: Arc::new(queues) }
        }

        fn open(&mut self, slot: usize, extent: Extent) -> Open {
            let (memory, _) = ModuleHost::create(wire::SHARED_BYTES).unwrap();
            let (own, end) = UnixStream::pair().unwrap();
            let (lent, _) = ModuleHost::create(LENT_BYTES).unwrap();
            let lent = Arc::new(Borrowed::of(lent));
            let caller = HostCaller::new(Arc::new(memory), own).lending(Arc::clone(&lent));
            let parts = layout::parts(slot);
            let queue = QueueId(u16::try_from(slot + 1).unwrap());
            crate::map(&self.driver.iommu, &self.queues, parts, Some(caller.memory())).unwrap();
            crate::map_lent(&self.driver.iommu, crate::lent_bus(slot), &lent).unwrap();
            self.driver.create(queue, bus(parts.submissions), bus(parts.completions)).unwrap();
            let ring = Ring::new(caller, vec![extent], bus(parts.buffers), crate::lent_bus(slot));
            Open { ring, parts, queue, end }
        }

        fn look(&mut self, of: &mut Open) {
            of.ring.look(&mut self.driver, &self.queues, of.parts, of.queue);
            self.driver.step();
        }

        /// Has one request done, and says what was answered.
        fn run(&mut self, of: &mut Open, request: Request) -> u32 {
            let memory = Arc::clone(of.ring.caller.memory());
            let number = of.ring.taken;
            wire::put(&memory, number, &request);
            memory.word(wire::TAIL).unwrap().store(number.wrapping_add(1), Ordering::Release);
            let begun = Instant::now();
            loop {
                self.look(of);
                let word = memory.wide(wire::answer(request.buffer)).unwrap().load(Ordering::Acquire);
                if word >> 32 == u64::from(request.mark) {
                    return u32::try_from(word & 0xFFFF_FFFF).unwrap();
                }
                assert!(begun.elapsed().as_secs() < 10, "{request:?} has no answer");
            }
        }
    }

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    fn write_all(half: &mut Half, of: &mut Open, blocks: std::ops::Range<u64>) {
        for block in blocks {
            of.ring.caller.memory().write(wire::data(3), &block.to_le_bytes().repeat(64));
            let mark = u32::try_from(block).unwrap() + 1;
            let request =
                Request { buffer: 3, operation: WRITE, count: 1, block, mark, ..Request::default() };
            assert_eq!(half.run(of, request), codes::DONE);
        }
    }

    fn check_all(half: &mut Half, of: &mut Open, blocks: std::ops::Range<u64>) {
        for block in blocks {
            let mark = u32::try_from(block).unwrap() + 1_000_000;
            let request = Request { buffer: 5, operation: READ, count: 1, block, mark, ..Request::default() };
            assert_eq!(half.run(of, request), codes::DONE);
            let mut found = [0; 512];
            of.ring.caller.memory().read(wire::data(5), &mut found);
            assert_eq!(
                found.to_vec(),
                block.to_le_bytes().repeat(64),
                "block {block} was written by another"
            );
        }
    }

    #[test]
    fn whatever_stands_in_a_ring_ends_its_instance_at_most_and_reaches_its_extent_only() {
        let mut half = Half::new();
        let extent = |first, blocks| Extent { space: 1, first, blocks, rights: Rights::ReadWrite };
        let mut honest = half.open(7, extent(0, BLOCKS));
        write_all(&mut half, &mut honest, 0..BLOCKS);
        let (mut state, mut ended, mut served) = (0x9E37_79B9_7F4A_7C15, 0, 0);
        for turn in 0..60_u64 {
            let mut hostile = half.open(0, extent(1000, 64));
            let memory = Arc::clone(hostile.ring.caller.memory());
            for step in 0..200 {
                // A word anywhere, or a request that is nearly right; then a tail, near or far.
                if turn % 3 == 0 {
                    let at = usize::try_from(random(&mut state) % (wire::DATA as u64 / 8)).unwrap() * 8;
                    memory.write(at, &random(&mut state).to_le_bytes());
                } else {
                    let request = Request {
                        buffer: u32::try_from(if turn % 3 == 1 { step } else { random(&mut state) % 300 })
                            .unwrap(),
                        operation: u32::try_from(random(&mut state) % 4).unwrap(),
                        extent: u32::try_from(random(&mut state) % 16 / 15).unwrap(),
                        count: u32::try_from(random(&mut state) % 10).unwrap(),
                        block: (random(&mut state) % 80).wrapping_sub(4),
                        mark: 1,
                        target: u32::try_from(random(&mut state) % 24).unwrap(),
                    };
                    wire::put(&memory, hostile.ring.taken, &request);
                }
                let far = random(&mut state).is_multiple_of(100) && turn % 3 != 1;
                let tail =
                    if far { random(&mut state) & 0xFFFF_FFFF } else { u64::from(hostile.ring.taken) + 1 };
                memory
                    .word(wire::TAIL)
                    .unwrap()
                    .store(u32::try_from(tail & 0xFFFF_FFFF).unwrap(), Ordering::Release);
                half.look(&mut hostile);
            }
            served += u32::from(!hostile.ring.broken);
            ended += u32::from(hostile.ring.broken);
            if hostile.ring.broken {
                let mut rest = Vec::new();
                std::io::Read::read_to_end(&mut hostile.end, &mut rest).unwrap();
            }
            let mut deletion = Driver::deletion(hostile.queue);
            while !half.driver.delete(&mut deletion).unwrap() {
                half.driver.step();
            }
            crate::unmap(&half.driver.iommu, hostile.parts, crate::lent_bus(0));
        }
        assert!(ended > 10 && served > 10, "{ended} were ended and {served} served");
        check_all(&mut half, &mut honest, 0..1000);
        check_all(&mut half, &mut honest, 1064..BLOCKS);
        assert_eq!(half.driver.iommu.violation_count(), 0);
    }

    #[test]
    fn what_the_ring_refuses_is_answered_with_the_codes_of_the_gates() {
        let mut half = Half::new();
        let mut open = half.open(0, Extent { space: 1, first: 10, blocks: 20, rights: Rights::Read });
        for (request, code) in [
            (Request { operation: READ, count: 8, ..Request::default() }, codes::DONE),
            (Request { operation: READ, count: 8, block: 13, ..Request::default() }, codes::RANGE),
            (Request { operation: READ, count: 9, ..Request::default() }, codes::LENGTH),
            (Request { operation: READ, count: 1, extent: 1, ..Request::default() }, codes::NOT_OPEN),
            (Request { operation: WRITE, count: 1, ..Request::default() }, codes::RIGHTS),
        ] {
            let mark = open.ring.taken + 1;
            assert_eq!(half.run(&mut open, Request { mark, ..request }), code, "{request:?}");
        }
    }

    #[test]
    fn blocks_go_to_lent_memory_and_come_from_there_whole_or_not_at_all() {
        let mut half = Half::new();
        let mut open = half.open(0, Extent { space: 1, first: 0, blocks: BLOCKS, rights: Rights::ReadWrite });
        write_all(&mut half, &mut open, 0..64);
        let lent = Arc::clone(open.ring.caller.lent().unwrap());
        // At each block, also where that goes on in the next page.
        for at in 0..=16_u32 {
            lent.memory().write(0, &[0xEE; 8192]);
            let mark = open.ring.taken + 100;
            let request =
                Request { operation: READ, count: 8, block: 8, target: at + 1, mark, ..Request::default() };
            let inside = at <= 8;
            let code = if inside { codes::DONE } else { codes::TARGET };
            assert_eq!(half.run(&mut open, request), code, "block {at}");
            let mut found = [0; 8192];
            lent.memory().read(0, &mut found);
            for (block, piece) in (0_u32..).zip(found.chunks(512)) {
                let expected = match block.checked_sub(at) {
                    Some(read @ 0..8) if inside => u64::from(8 + read).to_le_bytes().repeat(64),
                    _ => vec![0xEE; 512],
                };
                assert_eq!(piece.to_vec(), expected, "{at}: block {block}");
            }
        }
        lent.memory().write(512, &[7; 4096]);
        let mark = open.ring.taken + 100;
        let request = Request { operation: WRITE, count: 8, block: 0, target: 2, mark, ..Request::default() };
        assert_eq!(half.run(&mut open, request), codes::DONE);
        let request = Request { operation: READ, count: 8, block: 0, mark: mark + 1, ..Request::default() };
        assert_eq!(half.run(&mut open, request), codes::DONE);
        let mut found = [0; 4096];
        open.ring.caller.memory().read(wire::data(0), &mut found);
        assert_eq!(found, [7; 4096]);
        assert_eq!(half.driver.iommu.violation_count(), 0);
    }
}
