//! What the kernel asks of one session.

use std::{os::fd::OwnedFd, time::Duration};

use bulkhead_gpu::Question;
use bulkhead_schema::{Handle, Run, limits};

use crate::{
    images::Most,
    launch::entry::Entry,
    memory::{
        Old,
        piece::{Mapping, Whose},
    },
};

/// How long a change of pages waits for its session's work at most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(limits::DRAIN_SECONDS);

/// The same for a cut that somebody else needs, who asks again: the session's other streams wait meanwhile.
pub(crate) const CUT_PATIENCE: Duration = Duration::from_millis(100);

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
    Split { arena: Span, at: u64, old: Old },
    Adopt { span: Span, descriptor: OwnedFd, whose: Whose },
    MapHost { span: Span, handle: Handle, descriptor: OwnedFd },
    SwapOut { arenas: Vec<Span>, copy: bool, patience: Duration },
    SwapIn { arenas: Vec<Span>, then: Then },
}

/// What becomes of a session whose memory is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    GoesOn,
    StaysHeld,
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
    Unbind(Vec<Run>),
    RegisterHost {
        handle: Handle,
        bytes: u64,
        descriptor: OwnedFd,
    },
    Drain,
    Fence {
        stream: u32,
        position: u64,
    },
    Load {
        handle: Handle,
        entries: Vec<Handle>,
        descriptor: OwnedFd,
        most: Most,
    },
    /// An image as the driver takes it.
    LoadNative {
        handle: Handle,
        descriptor: OwnedFd,
    },
    /// An entry of such an image, by its name.
    NativeEntry {
        image: Handle,
        name: String,
        handle: Handle,
    },
    /// A variable of such an image, likewise.
    NativeVariable {
        image: Handle,
        name: String,
        handle: Handle,
    },
    /// The names of such an image's entries.
    NativeNames(Handle),
    /// Asks the driver something.
    Question {
        entry: Handle,
        question: Question,
        words: Vec<u64>,
    },
    /// Sets an attribute of such an entry.
    NativeAttribute {
        entry: Handle,
        attribute: u32,
        value: i32,
    },
    Reserve(Reserved),
    Unload(Handle),
    AllowDynamicShared {
        handle: Handle,
        bytes: u32,
    },
    Resume {
        work: Work,
        moves: u32,
        ring: OwnedFd,
    },
    /// Without a descriptor: the one before is given back.
    SwapArea {
        bytes: u64,
        descriptor: Option<OwnedFd>,
    },
    Close,
}

impl Ask {
    /// Whether it registers host memory, for which there may be no room.
    pub(crate) const fn registers_host(&self) -> bool {
        matches!(self, Self::RegisterHost { .. } | Self::Change(Change::MapHost { .. }))
    }

    /// Whether it would bind something that these take back.
    pub(crate) fn binds_any_of(&self, runs: &[Run]) -> bool {
        let handle = match self {
            Self::RegisterHost { handle, .. } | Self::Change(Change::MapHost { handle, .. }) => *handle,
            _ => return false,
        };
        runs.iter().any(|run| run.contains(handle))
    }
}

/// One request, and its id for the answer.
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) ask: Ask,
}
