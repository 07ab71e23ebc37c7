//! Whom a flow that listens has heard.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddrV4,
};

/// How many it may answer: those that were heard last.
pub const PEERS_MAX: usize = 4096;

/// The peers of a flow.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// By peer: how many were heard when it was heard last.
    last: HashMap<SocketAddrV4, u64>,
    /// The same, by that number.
    order: BTreeMap<u64, SocketAddrV4>,
    heard: u64,
}

impl Peers {
    /// Hears a peer. Where there are too many, whoever was silent for longest is forgotten.
    pub(crate) fn hear(&mut self, peer: SocketAddrV4) {
        self.heard += 1;
        if let Some(before) = self.last.insert(peer, self.heard) {
            self.order.remove(&before);
        }
        self.order.insert(self.heard, peer);
        if self.order.len() > PEERS_MAX
            && let Some((_, silent)) = self.order.pop_first()
        {
            self.last.remove(&silent);
        }
    }

    pub(crate) fn knows(&self, peer: SocketAddrV4) -> bool {
        self.last.contains_key(&peer)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(number: u32) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from_bits(number), 1)
    }

    #[test]
    fn the_last_that_were_heard_are_known_and_no_more() {
        let mut peers = Peers::default();
        for number in 0..3 * 4096 {
            peers.hear(peer(number));
            peers.hear(peer(number));
        }
        assert_eq!((peers.last.len(), peers.order.len()), (PEERS_MAX, PEERS_MAX));
        assert!(
            peers.knows(peer(3 * 4096 - 1))
                && peers.knows(peer(2 * 4096))
                && !peers.knows(peer(2 * 4096 - 1))
        );
    }

    #[test]
    fn who_is_heard_again_is_kept_and_who_is_silent_is_forgotten() {
        let mut peers = Peers::default();
        for number in (0..4096).chain([0, 4096]) {
            peers.hear(peer(number));
        }
        assert!(peers.knows(peer(0)) && !peers.knows(peer(1)) && peers.knows(peer(2)));
        for number in 5000..4 * 5000 {
            peers.hear(peer(number));
            assert!(peers.knows(peer(0)), "{number}");
            peers.hear(peer(0));
        }
        assert_eq!((peers.last.len(), peers.order.len()), (PEERS_MAX, PEERS_MAX));
    }
}
