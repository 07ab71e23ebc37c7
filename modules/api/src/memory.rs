//! Host memory, as a model of a device reaches it.

use std::sync::{Arc, atomic::Ordering};

use bulkhead_client::{Borrowed, ModuleHost};
use bulkhead_nvme::Memory;

/// Memory that the host half shares with gates, or with host code.
pub struct HostMemory(Of);

enum Of {
    Shared(Arc<ModuleHost>),
    Lent(Arc<Borrowed>),
}

impl HostMemory {
    /// All of it.
    #[must_use]
    pub fn new(host: &Arc<ModuleHost>) -> Self {
        Self(Of::Shared(Arc::clone(host)))
    }

    /// All of what host code lends. It is given back when nobody has this any more.
    #[must_use]
    pub fn lent(lent: &Arc<Borrowed>) -> Self {
        Self(Of::Lent(Arc::clone(lent)))
    }

    fn host(&self) -> &ModuleHost {
        match &self.0 {
            Of::Shared(host) => host,
            Of::Lent(lent) => lent.memory(),
        }
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Memory for HostMemory {
    fn bytes(&self) -> u64 {
        self.host().bytes() as u64
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.host().read(place(offset), into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.host().write(place(offset), from);
    }

    fn publish(&self, offset: u64, word: u32) {
        if let Some(to) = self.host().word(place(offset)) {
            to.store(word, Ordering::Release);
        }
    }

    fn observe(&self, offset: u64) -> u32 {
        self.host().word(place(offset)).map_or(0, |from| from.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_stores_the_other_loads_and_beyond_the_end_is_nothing() {
        let (host, _) = ModuleHost::create(4096).unwrap();
        let host = Arc::new(host);
        let memory = HostMemory::new(&host);
        memory.publish(4092, 7);
        host.word(8).unwrap().store(9, Ordering::Release);
        assert_eq!((memory.bytes(), memory.observe(4092), memory.observe(8)), (4096, 7, 9));
        memory.write(16, &[1, 2, 3]);
        let mut found = [0; 4];
        memory.read(16, &mut found);
        assert_eq!(found, [1, 2, 3, 0]);
        for beyond in [4096, u64::MAX - 3] {
            memory.publish(beyond, 1);
            assert_eq!(memory.observe(beyond), 0);
        }
    }
}
