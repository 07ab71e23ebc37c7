//! A module, and what of its gates a session is granted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use bulkhead_gpu::{DeviceAddress, MemoryId};
use bulkhead_ring::ActivityWriter;
use bulkhead_schema::{Error, ErrorCode};
use bulkhead_verifier::{GATE_PARAMETERS, Gates};

/// A module.
pub(crate) struct Module {
    pub(crate) id: u32,
    pub(super) gates: Gates,
    pub(super) base: u64,
    pub(super) bytes: u64,
    /// What its variables take of it, from its first byte on.
    pub(super) variable_bytes: u64,
    /// Of those, host memory, at the end.
    pub(super) host_bytes: u64,
    /// Whether that is there.
    pub(super) has_host: AtomicBool,
    /// Its device memory, once that is there.
    pub(super) memory: OnceLock<MemoryId>,
    /// How many sessions are granted it.
    pub(super) grants: AtomicU32,
    /// Counts launches in flight whose entries call the gates, for the host half to see.
    pub(super) activity: OnceLock<Arc<ActivityWriter>>,
}

impl Module {
    /// Where its host memory begins.
    pub(super) fn host(&self) -> DeviceAddress {
        DeviceAddress(self.base + self.device_bytes())
    }

    /// What of it is device memory, from its first byte on.
    pub(super) fn device_bytes(&self) -> u64 {
        self.bytes - self.host_bytes
    }

    fn is_whole(&self) -> bool {
        self.memory.get().is_some() && (self.host_bytes == 0 || self.has_host.load(Ordering::Acquire))
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("id", &self.id).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// That a session's kernels may call a module's gates.
#[derive(Debug)]
pub(crate) struct Grant {
    module: Arc<Module>,
    caller: u64,
    badge: u64,
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.module.grants.fetch_sub(1, Ordering::AcqRel);
    }
}

/// That a launch is in flight whose entry calls a module's gates.
pub(crate) struct Calling(Arc<ActivityWriter>);

impl Calling {
    fn new(activity: &Arc<ActivityWriter>) -> Self {
        activity.begins();
        Self(Arc::clone(activity))
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.ends();
    }
}

/// A module whose gates an entry calls, and where in the block lies what it is told of that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    pub(crate) module: u32,
    pub(crate) offsets: [u32; GATE_PARAMETERS],
}

/// What a session is granted, by module.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    granted: BTreeMap<u32, Grant>,
    revoked: BTreeSet<u32>,
}

/// What the text of a session may call.
pub(crate) struct Callable {
    pub(crate) gates: Gates,
    /// In order: two sessions that have the same may have the same code.
    pub(crate) modules: Vec<u32>,
}

impl Grants {
    /// `caller` and `badge` are what its gates read.
    pub(crate) fn grant(&mut self, module: Arc<Module>, caller: u64, badge: u64) -> Result<(), Error> {
        if self.granted.contains_key(&module.id) {
            return Err(Error::new(ErrorCode::InvalidArgument, "the session has been granted that module"));
        }
        if !module.is_whole() {
            let message = "some of the memory of the module's window is not there";
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        if let Err(name) = self.gates().and_then(|mut gates| gates.join(&module.gates)) {
            let message = format!("two modules have a gate of the name {name}");
            return Err(Error::new(ErrorCode::InvalidArgument, message));
        }
        module.grants.fetch_add(1, Ordering::AcqRel);
        self.revoked.remove(&module.id);
        self.granted.insert(module.id, Grant { module, caller, badge });
        Ok(())
    }

    pub(crate) fn revoke(&mut self, module: u32) -> Result<(), Error> {
        if self.granted.remove(&module).is_none() {
            return Err(Error::new(ErrorCode::NotFound, "the session was not granted that module"));
        }
        self.revoked.insert(module);
        Ok(())
    }

    /// The gates that a text may call, and the modules that have them.
    pub(crate) fn callable(&self) -> Result<Callable, Error> {
        let gates = self.gates().map_err(|name| {
            Error::new(ErrorCode::Internal, format!("two granted modules have a gate of the name {name}"))
        })?;
        Ok(Callable { gates, modules: self.granted.keys().copied().collect() })
    }

    fn gates(&self) -> Result<Gates, String> {
        let mut gates = Gates::default();
        self.granted.values().try_for_each(|grant| gates.join(&grant.module.gates))?;
        Ok(gates)
    }

    /// What a launch tells an entry of a module: where its window begins, what is one less than its bytes, who calls, with
    /// which badge.
    pub(crate) fn values(&self, module: u32) -> Result<[u64; GATE_PARAMETERS], ErrorCode> {
        match self.granted.get(&module) {
            Some(Grant { module, caller, badge }) => Ok([module.base, module.bytes - 1, *caller, *badge]),
            None if self.revoked.contains(&module) => Err(ErrorCode::Revoked),
            None => Err(ErrorCode::NotPermitted),
        }
    }

    /// Counts a launch, which is about to be submitted, with the modules whose gates its entry calls.
    pub(crate) fn calling(&self, called: &[Called]) -> Vec<Calling> {
        let granted = called.iter().filter_map(|called| self.granted.get(&called.module));
        granted.filter_map(|grant| grant.module.activity.get()).map(Calling::new).collect()
    }
}
