//! Handles that end together.

use crate::{Handle, executor_capnp};

/// Handles of slots that follow each other, all of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The one with the least slot.
    pub first: Handle,
    /// How many slots there are.
    pub count: u32,
}

impl Run {
    /// Puts handles into runs. Slots are given out and taken back in turn, so those that end together are mostly a
    /// few runs, up or down.
    #[must_use]
    pub fn of(handles: impl IntoIterator<Item = Handle>) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for handle in handles {
            if !runs.last_mut().is_some_and(|last| last.takes(handle)) {
                runs.push(Self { first: handle, count: 1 });
            }
        }
        runs
    }

    /// Whether a handle is one of these.
    #[must_use]
    pub fn contains(&self, handle: Handle) -> bool {
        let at = handle.slot.checked_sub(self.first.slot);
        handle.generation == self.first.generation && at.is_some_and(|at| at < self.count)
    }

    /// Takes in the handle before its first or after its last.
    fn takes(&mut self, handle: Handle) -> bool {
        if handle.generation != self.first.generation {
            return false;
        }
        if handle.slot.checked_sub(self.first.slot) == Some(self.count) {
            self.count += 1;
            return true;
        }
        let is_before = handle.slot.checked_add(1) == Some(self.first.slot);
        if is_before {
            self.first = handle;
            self.count += 1;
        }
        is_before
    }

    /// Reads one from a message.
    #[must_use]
    pub fn read(reader: executor_capnp::run::Reader<'_>) -> Self {
        let first = Handle { slot: reader.get_slot(), generation: reader.get_generation() };
        Self { first, count: reader.get_count() }
    }

    /// Writes it into a message.
    pub fn write(self, mut builder: executor_capnp::run::Builder<'_>) {
        builder.set_slot(self.first.slot);
        builder.set_generation(self.first.generation);
        builder.set_count(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(handles: &[(u32, u32)]) -> Vec<(u32, u32, u32)> {
        let handles =
            handles.iter().map(|(slot, generation)| Handle { slot: *slot, generation: *generation });
        Run::of(handles).iter().map(|run| (run.first.slot, run.first.generation, run.count)).collect()
    }

    #[test]
    fn neighbours_of_one_generation_are_one_run_up_and_down() {
        assert_eq!(runs(&[(5, 1), (6, 1), (7, 1)]), [(5, 1, 3)]);
        assert_eq!(runs(&[(7, 1), (6, 1), (5, 1)]), [(5, 1, 3)]);
        assert_eq!(runs(&[(5, 1), (6, 2), (7, 2)]), [(5, 1, 1), (6, 2, 2)]);
        assert_eq!(runs(&[(5, 1), (7, 1), (6, 1)]), [(5, 1, 1), (6, 1, 2)]);
        assert_eq!(runs(&[(0, 1), (u32::MAX, 1), (0, 1)]), [(0, 1, 1), (u32::MAX, 1, 1), (0, 1, 1)]);
        assert_eq!(runs(&[]), []);
    }
}
