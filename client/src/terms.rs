//! What a session is limited to, and what keeps it apart.

use bulkhead_schema::bulkhead_capnp as rpc;

/// What keeps a session apart from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Domain {
    /// It shares a context with others: its code is PTX, which the guard confines.
    #[default]
    Guarded,
    /// It has an executor and a context of its own, which the GPU keeps apart: its code may be machine code.
    Isolated,
}

/// What a session is limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// Device memory in bytes; 0 for as much as its parent may have.
    pub device_bytes: u64,
    /// Pinned host memory in bytes; 0 likewise.
    pub host_bytes: u64,
    /// Capabilities; 0 likewise.
    pub capabilities: u32,
    /// Lower is more urgent: who is swapped out last. The kernel gives no more than its operator allows.
    pub priority: i32,
    /// Never swapped out.
    pub keep_resident: bool,
    /// Further columns of the [ledger](crate::Session::ledger), by name, and the most of each.
    pub limits: &'static [(&'static str, u64)],
    /// What keeps it apart; a session of a program has its parent's.
    pub domain: Domain,
}

impl Terms {
    pub(crate) fn write(self, mut terms: rpc::session_terms::Builder<'_>) {
        terms.set_device_bytes(self.device_bytes);
        terms.set_host_bytes(self.host_bytes);
        terms.set_capabilities(self.capabilities);
        terms.set_priority(self.priority);
        terms.set_keep_resident(self.keep_resident);
        terms.set_domain(match self.domain {
            Domain::Guarded => rpc::Domain::Guarded,
            Domain::Isolated => rpc::Domain::Isolated,
        });
        let count = u32::try_from(self.limits.len()).unwrap_or(u32::MAX);
        let mut list = terms.init_limits(count);
        for (at, (name, most)) in (0..count).zip(self.limits) {
            let mut limit = list.reborrow().get(at);
            limit.set_name(name);
            limit.set_most(*most);
        }
    }
}
