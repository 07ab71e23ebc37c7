//! The events of a session, by its own numbers.

use std::collections::HashMap;

use bulkhead_gpu::{EventId, Gpu};

/// A session's events that have been recorded.
#[derive(Default)]
pub(crate) struct Events {
    events: HashMap<u32, EventId>,
}

impl Events {
    pub(super) fn get(&self, event: u32) -> Option<EventId> {
        self.events.get(&event).copied()
    }

    /// The device's name for it; it is made where it is new.
    pub(super) fn get_or_create(
        &mut self,
        gpu: &dyn Gpu,
        event: u32,
    ) -> Result<EventId, bulkhead_gpu::Error> {
        if let Some(known) = self.get(event) {
            return Ok(known);
        }
        let made = gpu.create_event()?;
        self.events.insert(event, made);
        Ok(made)
    }

    pub(super) fn destroy(&mut self, gpu: &dyn Gpu, event: u32) -> Result<(), bulkhead_gpu::Error> {
        self.events.remove(&event).map_or(Ok(()), |event| gpu.destroy_event(event))
    }

    pub(crate) fn destroy_all(&mut self, gpu: &dyn Gpu) -> Result<(), bulkhead_gpu::Error> {
        for (_, event) in self.events.drain() {
            gpu.destroy_event(event)?;
        }
        Ok(())
    }
}
