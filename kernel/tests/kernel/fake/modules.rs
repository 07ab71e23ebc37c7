//! What an executor without a device knows of modules.

use std::collections::{BTreeMap, BTreeSet};

/// The modules, with their sizes and the sessions that are granted them.
#[derive(Default)]
pub(super) struct Modules {
    known: BTreeMap<u32, (u64, Vec<u32>)>,
    /// Those whose windows are another executor's and were not brought.
    waiting: BTreeSet<u32>,
}

impl Modules {
    pub(super) fn add(&mut self, module: u32, bytes: u64, adopts: bool) -> Result<(), String> {
        if adopts {
            self.waiting.insert(module);
        }
        let known = self.known.insert(module, (bytes, Vec::new()));
        known.map_or(Ok(()), |_| Err(format!("two modules are called {module}")))
    }

    pub(super) fn adopt(&mut self, module: u32) {
        self.waiting.remove(&module);
    }

    pub(super) fn is_known(&self, module: u32) -> bool {
        self.known.contains_key(&module)
    }

    /// Whether its window is there.
    pub(super) fn is_whole(&self, module: u32) -> bool {
        !self.waiting.contains(&module)
    }

    pub(super) fn grant(&mut self, module: u32, session: u32) -> Result<(), String> {
        let known = self.known.get_mut(&module).ok_or_else(|| format!("there is no module {module}"))?;
        if known.1.contains(&session) {
            return Err(format!("session {session} is granted the module {module} twice"));
        }
        known.1.push(session);
        Ok(())
    }

    /// Whether the session was granted it.
    pub(super) fn revoke(&mut self, module: u32, session: u32) -> bool {
        let granted = self.known.get_mut(&module).map(|(_, granted)| granted);
        let at = granted.as_ref().and_then(|granted| granted.iter().position(|known| *known == session));
        let revoked = granted.zip(at).map(|(granted, at)| granted.swap_remove(at));
        revoked.is_some()
    }

    /// A session is closed, and is granted nothing any more.
    pub(super) fn close(&mut self, session: u32) {
        for (_, granted) in self.known.values_mut() {
            granted.retain(|known| *known != session);
        }
    }

    pub(super) fn remove(&mut self, module: u32) -> Result<bool, String> {
        self.waiting.remove(&module);
        match self.known.remove(&module) {
            Some((_, granted)) if !granted.is_empty() => {
                Err(format!("the module {module} is removed under the sessions {granted:?}"))
            }
            known => Ok(known.is_some()),
        }
    }

    pub(super) fn has(&self, module: u32, offset: u64, bytes: u64) -> Result<(), String> {
        let size = self.known.get(&module).map(|(size, _)| *size);
        size.filter(|size| offset <= *size && bytes <= size - offset)
            .map(drop)
            .ok_or_else(|| format!("{bytes} bytes from {offset} on of module {module}, which has {size:?}"))
    }
}
