//! BAR0: the registers, what enabling, reset and shutdown do, and doorbells.

use super::{
    Controller,
    queues::{CompletionQueue, SubmissionQueue},
};
use crate::{
    engine::{Operation, Request},
    formats::{
        AsyncEvent, BusAddress, QueueId, low_u16, low_u32,
        registers::{
            ACQ, AQA, ASQ, CAP, CC, CSTS, Configuration, Doorbell, FATAL, INTMC, INTMS, READY, SHUTDOWN_DONE,
            SHUTDOWN_RUNS, VERSION, VS,
        },
    },
};

/// Bits of AQA that exist.
const AQA_BITS: u32 = 0x0fff_0fff;
/// Bits of ASQ and ACQ that exist: they are bases of pages.
const BASE_BITS: u64 = !0xfff;

/// Where the controller is between disabled and ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    /// CC.EN is 0.
    #[default]
    Disabled,
    /// CC.EN became 1; the next step makes it ready, or fails.
    Enabling,
    /// It takes commands.
    Ready,
    /// CC.EN became 0; it is disabled when the engines have nothing left.
    Resetting,
    /// CSTS.CFS is 1; only a reset helps.
    Failed,
}

/// How far a shutdown is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Shutdown {
    #[default]
    None,
    /// Commands that execute come to their end.
    Draining,
    /// So many namespaces are still flushed.
    Flushing(usize),
    Done,
}

/// What the registers hold.
#[derive(Debug, Default)]
pub(super) struct Registers {
    configuration: u32,
    interrupt_mask: u32,
    admin_attributes: u32,
    admin_submission_base: u64,
    admin_completion_base: u64,
    pub(super) state: State,
    /// CSTS.RDY.
    ready: bool,
    shutdown: Shutdown,
}

impl Registers {
    pub(super) fn configuration(&self) -> Configuration {
        Configuration::decode(self.configuration)
    }

    /// Size of a memory page.
    pub(super) fn page_bytes(&self) -> usize {
        4096 << self.configuration().page_shift
    }

    /// The controller fails, until it is reset.
    pub(super) fn fail(&mut self) {
        self.state = State::Failed;
    }

    /// Whether the host wants no more commands to be taken.
    pub(super) fn shutdown_asked(&self) -> bool {
        self.shutdown != Shutdown::None
    }

    /// A namespace was flushed for the shutdown.
    pub(super) fn flushed(&mut self, success: bool) {
        if !success {
            self.fail();
        }
        if let Shutdown::Flushing(left) = &mut self.shutdown {
            *left = left.saturating_sub(1);
        }
    }

    fn status(&self) -> u32 {
        let shutdown = match self.shutdown {
            Shutdown::None => 0,
            Shutdown::Draining | Shutdown::Flushing(_) => SHUTDOWN_RUNS,
            Shutdown::Done => SHUTDOWN_DONE,
        };
        let fatal = if self.state == State::Failed { FATAL } else { 0 };
        let ready = if self.ready { READY } else { 0 };
        ready | fatal | shutdown
    }

    fn configure(&mut self, value: u32) {
        let (old, new) = (self.configuration(), Configuration::decode(value));
        if old.enable {
            // While it is enabled, EN and SHN alone can be changed.
            self.configuration = Configuration { enable: new.enable, shutdown: new.shutdown, ..old }.encode();
        } else {
            self.configuration = new.encode();
        }
        if new.shutdown != 0 && self.shutdown == Shutdown::None && self.state == State::Ready {
            self.shutdown = Shutdown::Draining;
        }
        match (old.enable, new.enable) {
            (false, true) if self.state == State::Disabled => self.state = State::Enabling,
            (true, false) => {
                self.state = State::Resetting;
                self.shutdown = Shutdown::None;
            }
            _ => {}
        }
    }

    /// Whether the controller can start with what the registers hold.
    fn can_start(&self, page_shift_max: u8) -> bool {
        let Configuration {
            command_set,
            page_shift,
            arbitration,
            submission_shift,
            completion_shift,
            enable: _,
            shutdown: _,
        } = self.configuration();
        let page_aligned = |base: u64| base.is_multiple_of(4096 << page_shift.min(page_shift_max));
        let sizes = [self.admin_submission_entries(), self.admin_completion_entries()];
        command_set == 0
            && arbitration == 0
            && page_shift <= page_shift_max
            && submission_shift == 6
            && completion_shift == 4
            && page_aligned(self.admin_submission_base)
            && page_aligned(self.admin_completion_base)
            && sizes.iter().all(|entries| *entries >= 2)
    }

    fn admin_submission_entries(&self) -> u32 {
        (self.admin_attributes & 0xfff) + 1
    }

    fn admin_completion_entries(&self) -> u32 {
        (self.admin_attributes >> 16 & 0xfff) + 1
    }
}

/// `whole` with its lower or upper half replaced.
fn with_half(whole: u64, upper: bool, half: u32) -> u64 {
    if upper {
        u64::from(low_u32(whole)) | u64::from(half) << 32
    } else {
        whole >> 32 << 32 | u64::from(half)
    }
}

impl Controller {
    /// What a read of 32 bits at this offset of BAR0 gives: 0 where there is no register, and for doorbells.
    #[must_use]
    pub fn read_register(&self, offset: u64) -> u32 {
        let registers = &self.registers;
        let halves = |whole: u64| [low_u32(whole), low_u32(whole >> 32)];
        let capabilities = self.config.capabilities().encode();
        match offset {
            CAP => halves(capabilities)[0],
            0x04 => halves(capabilities)[1],
            VS => VERSION,
            INTMS | INTMC => registers.interrupt_mask,
            CC => registers.configuration,
            CSTS => registers.status(),
            AQA => registers.admin_attributes,
            ASQ => halves(registers.admin_submission_base)[0],
            0x2c => halves(registers.admin_submission_base)[1],
            ACQ => halves(registers.admin_completion_base)[0],
            0x34 => halves(registers.admin_completion_base)[1],
            _ => 0,
        }
    }

    /// Two reads of 32 bits, as of a register of 64.
    #[must_use]
    pub fn read_register_64(&self, offset: u64) -> u64 {
        let upper = offset.checked_add(4).map_or(0, |offset| self.read_register(offset));
        u64::from(self.read_register(offset)) | u64::from(upper) << 32
    }

    /// A write of 32 bits at this offset of BAR0. One that means nothing is ignored.
    pub fn write_register(&mut self, offset: u64, value: u32) {
        if let Some(doorbell) = self.config.stride.doorbell_at(offset) {
            self.ring(doorbell, value);
            return;
        }
        let registers = &mut self.registers;
        let settable = !registers.configuration().enable;
        let base = |whole: &mut u64, upper| *whole = with_half(*whole, upper, value) & BASE_BITS;
        match offset {
            INTMS => registers.interrupt_mask |= value,
            INTMC => registers.interrupt_mask &= !value,
            CC => {
                registers.configure(value);
                if registers.state == State::Resetting {
                    self.discard_all();
                }
            }
            AQA if settable => registers.admin_attributes = value & AQA_BITS,
            ASQ if settable => base(&mut registers.admin_submission_base, false),
            0x2c if settable => base(&mut registers.admin_submission_base, true),
            ACQ if settable => base(&mut registers.admin_completion_base, false),
            0x34 if settable => base(&mut registers.admin_completion_base, true),
            _ => {}
        }
    }

    /// Two writes of 32 bits, as to a register of 64.
    pub fn write_register_64(&mut self, offset: u64, value: u64) {
        self.write_register(offset, low_u32(value));
        if let Some(offset) = offset.checked_add(4) {
            self.write_register(offset, low_u32(value >> 32));
        }
    }

    /// A doorbell was written. The value it had already changes nothing and is no error.
    fn ring(&mut self, doorbell: Doorbell, value: u32) {
        if self.registers.state != State::Ready {
            return;
        }
        let (queue, moved) = match doorbell {
            Doorbell::SubmissionTail(id) => (id, self.submission(id).map(|queue| queue.ring(value))),
            Doorbell::CompletionHead(id) => (id, self.completion(id).map(|queue| queue.ring(value))),
        };
        match moved {
            Some(true) => {}
            Some(false) => self.error_event(AsyncEvent::InvalidDoorbellValue, queue),
            None => self.error_event(AsyncEvent::InvalidDoorbellRegister, queue),
        }
    }

    /// Goes on with enabling, reset and shutdown.
    pub(super) fn settle(&mut self) -> bool {
        match self.registers.state {
            State::Disabled | State::Failed => false,
            State::Enabling => {
                self.start();
                true
            }
            State::Ready => self.settle_shutdown(),
            State::Resetting => {
                if self.namespaces.iter().any(|namespace| namespace.engine.in_flight() > 0) {
                    return false;
                }
                self.registers.ready = false;
                let enabled = self.registers.configuration().enable;
                self.registers.state = if enabled { State::Enabling } else { State::Disabled };
                true
            }
        }
    }

    fn start(&mut self) {
        let page_shift_max = self.config.capabilities().page_shift_max;
        if !self.registers.can_start(page_shift_max) {
            self.registers.fail();
            return;
        }
        let registers = &mut self.registers;
        let submissions = BusAddress(registers.admin_submission_base);
        let completions = BusAddress(registers.admin_completion_base);
        let mut queue = CompletionQueue::new(completions, registers.admin_completion_entries());
        queue.users = 1;
        self.completions[0] = Some(queue);
        let entries = registers.admin_submission_entries();
        self.submissions[0] = Some(SubmissionQueue::new(submissions, entries, QueueId::ADMIN));
        registers.state = State::Ready;
        registers.ready = true;
    }

    fn settle_shutdown(&mut self) -> bool {
        match self.registers.shutdown {
            Shutdown::None | Shutdown::Done => false,
            Shutdown::Draining if self.executing.is_empty() => {
                self.registers.shutdown = Shutdown::Flushing(self.namespaces.len());
                for namespace in &mut self.namespaces {
                    // 0 is the tag of no command.
                    namespace.submit(Request { tag: 0, operation: Operation::Flush });
                }
                true
            }
            Shutdown::Flushing(0) => {
                self.registers.shutdown = Shutdown::Done;
                true
            }
            Shutdown::Draining | Shutdown::Flushing(_) => false,
        }
    }

    /// A reset: all queues end, and no command completes any more.
    fn discard_all(&mut self) {
        for queue in &mut self.submissions {
            if let Some(queue) = queue.take() {
                self.counters.discarded += queue.outstanding_count as u64;
            }
        }
        self.completions.iter_mut().for_each(|queue| *queue = None);
        for namespace in &mut self.namespaces {
            namespace.waiting.clear();
        }
        self.executing.clear();
        self.bounce_bytes = 0;
        self.turn = 0;
        self.queues_used = 1;
        self.events.reset();
        self.queues_allocated = self.config.queues_max;
        self.write_cache = true;
        self.async_event_configuration = 0;
    }

    /// The number of a queue in the low half of a dword.
    pub(super) fn queue_in(dword: u32) -> QueueId {
        QueueId(low_u16(dword))
    }
}
