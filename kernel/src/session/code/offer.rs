//! Images that a client was given memory for, and has not loaded yet.

use std::os::fd::OwnedFd;

use tokio::time::Instant;

use crate::ledger::Charge;

/// Memory that a client was given to write an image to.
pub(crate) struct Offer {
    /// A description of its own, which only reads.
    pub(super) image: OwnedFd,
    pub(super) expires: Instant,
    pub(super) charges: OfferCharges,
}

/// What an offered image is charged: itself, its descriptor, its bytes.
pub(crate) struct OfferCharges {
    pub(super) _charges: [Charge; 3],
}
