//! What a host thread has of its own, whichever blocks it runs.

use std::sync::Arc;

use crate::memory::space::AddressSpace;
use crate::memory::tlb::Tlb;
use crate::memory::view::View;

/// Nanoseconds that the device's clocks go on by with each step.
const STEP_NS: u64 = 100;

/// What a host thread brings to the blocks it runs.
#[derive(Debug)]
pub(crate) struct Core {
    /// Its view of device memory.
    pub(crate) view: View,
    /// What compiled code knows of it.
    pub(crate) tlb: Tlb,
    /// For compiled code: who left where.
    pub(crate) out: Vec<u32>,
    /// For `%smid`.
    pub(crate) number: u32,
    /// What the device's clocks go by where the order of warps is drawn.
    pub(crate) steps: Option<Steps>,
}

impl Core {
    /// A host thread's part.
    pub(crate) fn new(space: Arc<AddressSpace>, number: u32) -> Self {
        Self { view: View::new(space), tlb: Tlb::new(), out: Vec::new(), number, steps: None }
    }

    /// Lets go of all memory: a thread without work keeps none that others have destroyed.
    pub(crate) fn forget(&mut self) {
        self.view.forget();
        self.tlb.forget();
    }

    /// Compiled code will find the page of an address by itself.
    pub(crate) fn learn(&mut self, address: u64) {
        let (generation, span) = self.view.mapping(address);
        self.tlb.refresh(generation);
        if let Some(span) = span {
            self.tlb.learn(address, span);
        }
    }
}

/// Time where it is counted in steps.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Steps(u64);

impl Steps {
    /// One more is done.
    pub(super) fn more(&mut self) {
        self.0 += 1;
    }

    /// What the device's clocks tell.
    pub(crate) fn ns(self) -> u64 {
        self.0 * STEP_NS
    }
}
