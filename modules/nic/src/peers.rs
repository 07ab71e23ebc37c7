//! Whom a flow that listens has heard.

use std::{
    collections::{HashSet, VecDeque},
    net::SocketAddrV4,
};

/// How many it may answer: those that were heard last.
pub const PEERS_MAX: usize = 4096;

/// The peers of a flow.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: HashSet<SocketAddrV4>,
    order: VecDeque<SocketAddrV4>,
}

impl Peers {
    /// Hears a peer. Whoever was heard first, and is not known to have come again, is forgotten where there are too many.
    pub(crate) fn hear(&mut self, peer: SocketAddrV4) {
        if !self.known.insert(peer) {
            return;
        }
        self.order.push_back(peer);
        if self.order.len() > PEERS_MAX
            && let Some(first) = self.order.pop_front()
        {
            self.known.remove(&first);
        }
    }

    pub(crate) fn knows(&self, peer: SocketAddrV4) -> bool {
        self.known.contains(&peer)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_last_that_were_heard_are_known_and_no_more() {
        let mut peers = Peers::default();
        let peer = |number: u32| SocketAddrV4::new(Ipv4Addr::from_bits(number), 1);
        for number in 0..3 * 4096 {
            peers.hear(peer(number));
            peers.hear(peer(number));
        }
        assert_eq!((peers.known.len(), peers.order.len()), (PEERS_MAX, PEERS_MAX));
        assert!(
            peers.knows(peer(3 * 4096 - 1))
                && peers.knows(peer(2 * 4096))
                && !peers.knows(peer(2 * 4096 - 1))
        );
    }
}
