//! Sockets: how connections, packets and descriptors come in.

pub(crate) mod async_fd;
pub(crate) mod awake;
pub(crate) mod descriptors;
pub(crate) mod door;
pub(crate) mod packets;
pub(crate) mod relay;
#[expect(unsafe_code, reason = "socket options that no safe library offers")]
pub(crate) mod sys;
