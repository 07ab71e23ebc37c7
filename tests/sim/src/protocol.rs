//! What kernel and executor say to each other, in order per session.

use std::collections::VecDeque;

use bulkhead_schema::Handle;

use crate::PerPlace;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    /// Map a page, for the capability of this handle.
    Map {
        handle: Handle,
        place: u8,
        page: u8,
        deadline_ns: u64,
    },
    Bind {
        handle: Handle,
        place: u8,
    },
    /// Refuse a handle from the answer on; then unmap what only it had mapped, which is answered too.
    Unbind {
        revocation: u32,
        handle: Handle,
        unmap: Option<u8>,
    },
    SwapOut,
    /// Copy in; the session stays held until it is released.
    SwapIn {
        pages: PerPlace<Option<u8>>,
    },
    Release,
    Close,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    Done,
    Refused,
    /// The handle is refused; what was admitted before is counted.
    Unbound {
        admitted: u64,
    },
    Unmapped,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    pub(crate) id: u32,
    pub(crate) answer: Answer,
}

/// A message that has not been answered in full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) id: u32,
    pub(crate) message: Message,
    /// The first of two answers has come.
    pub(crate) unbound: bool,
}

/// What the kernel asked of one session, and what was answered.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// Unanswered, the oldest first. The executor has received all but the last `undelivered`.
    pub(crate) sent: VecDeque<Sent>,
    pub(crate) undelivered: usize,
    pub(crate) replies: VecDeque<Reply>,
    next: u32,
}

impl Channel {
    pub(crate) fn send(&mut self, message: Message) {
        self.sent.push_back(Sent { id: self.next, message, unbound: false });
        self.undelivered += 1;
        self.next = self.next.wrapping_add(1);
    }

    /// The next message, as the executor receives it.
    pub(crate) fn receive(&mut self) -> Option<Sent> {
        let at = self.sent.len().checked_sub(self.undelivered)?;
        let sent = *self.sent.get(at)?;
        self.undelivered -= 1;
        Some(sent)
    }

    /// Whoever was asked is gone, and nobody is asked again: what was not answered.
    pub(crate) fn all_is_lost(&mut self) -> VecDeque<Sent> {
        self.replies.clear();
        self.undelivered = 0;
        std::mem::take(&mut self.sent)
    }

    pub(crate) fn find(&mut self, id: u32) -> Option<&mut Sent> {
        self.sent.iter_mut().find(|sent| sent.id == id)
    }

    pub(crate) fn answered(&mut self, id: u32) {
        self.sent.retain(|sent| sent.id != id);
    }

    pub(crate) fn answer(&mut self, id: u32, answer: Answer) {
        self.replies.push_back(Reply { id, answer });
    }

    /// A move that was not finished, or is of no use any more, is not asked for again.
    pub(crate) fn forget_moves(&mut self) {
        let moves = |message: &Message| {
            matches!(message, Message::SwapOut | Message::SwapIn { .. } | Message::Release)
        };
        self.sent.retain(|sent| !moves(&sent.message));
    }

    /// Another executor is asked: it has received nothing, and what the last one said is gone.
    pub(crate) fn ask_again(&mut self) {
        self.replies.clear();
        self.undelivered = self.sent.len();
    }
}
