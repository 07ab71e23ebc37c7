//! What clients call: one face for each interface of the contract, in front of what sessions and the registry do.

pub(crate) mod any;
pub(crate) mod buffer;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod copy_session;
pub(crate) mod fence;
pub(crate) mod firewall;
pub(crate) mod image;
pub(crate) mod loan;
pub(crate) mod module;
pub(crate) mod opening;
pub(crate) mod operator;
pub(crate) mod peer;
pub(crate) mod program;
pub(crate) mod revocation;
pub(crate) mod served;
pub(crate) mod session;
