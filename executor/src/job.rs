//! What the kernel asks of one session.

use std::os::fd::OwnedFd;

use bulkhead_schema::Handle;

use crate::{bindings::Entry, piece::Mapping};

/// A range of device addresses, as the kernel says it: unchecked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
}

impl Span {
    /// Whether it is a part of the swap area whose memory is no more.
    pub(crate) fn is_gap(self) -> bool {
        self.at == 0
    }
}

/// What a handle is to mean.
pub(crate) enum Target {
    Buffer { span: Span, writable: bool },
    Entry(Box<Entry>),
}

/// A change of pages, which pauses the session.
pub(crate) enum Change {
    Map(Span),
    Unmap(Span),
    Share { at: u64, mapping: Mapping },
    Split { arena: Span, at: u64 },
    Adopt { span: Span, descriptor: OwnedFd },
    SwapOut { arenas: Vec<Span>, copy: bool },
    SwapIn { arenas: Vec<Span> },
}

/// Whether a session's last executor lost what it had taken from the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Passed,
    Lost,
}

/// Records may name streams and events below these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) streams: u32,
    pub(crate) events: u32,
}

/// What is asked.
pub(crate) enum Ask {
    Change(Change),
    Export(Span),
    Bind(Vec<(Handle, Target)>),
    Unbind(Vec<Handle>),
    RegisterHost { handle: Handle, bytes: u64, descriptor: OwnedFd },
    Drain,
    Fence { stream: u32, position: u64 },
    Load { handle: Handle, entries: Vec<Handle>, descriptor: OwnedFd, code_bytes_max: u64 },
    Reserve(Reserved),
    Unload(Handle),
    AllowDynamicShared { handle: Handle, bytes: u32 },
    Resume { work: Work, ring: OwnedFd },
    SwapArea { bytes: u64, descriptor: OwnedFd },
    Close,
}

/// One request, and its id for the answer.
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) ask: Ask,
}
