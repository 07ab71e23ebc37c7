//! UDP sockets, a flow each.

use std::{
    io::{self, ErrorKind, IoSlice},
    net::{SocketAddr, SocketAddrV4, UdpSocket},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    net::{
        MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg,
        sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size},
    },
};

use crate::{Arrived, Outgoing, Taken, Wire};

/// What a socket keeps of what has come while nobody looks; the system doubles it, and may have a limit of its own.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
const SEND_BUFFER_BYTES: usize = 1 << 20;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

struct Socket {
    socket: UdpSocket,
    connected: bool,
}

/// The sockets of a device's flows, by number.
pub struct Sockets {
    sockets: Vec<Socket>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Sockets {
    /// None yet.
    ///
    /// # Errors
    /// Where the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { sockets: Vec::new(), epoll, events: Vec::with_capacity(32) })
    }

    /// Opens a flow's socket, and says which address it got: the port may have been 0. With a remote address it hears that alone.
    ///
    /// # Errors
    /// Where the address is another's or none of this machine's.
    pub fn open(&mut self, local: SocketAddrV4, remote: Option<SocketAddrV4>) -> io::Result<SocketAddrV4> {
        let socket = UdpSocket::bind(local)?;
        socket.set_nonblocking(true)?;
        set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES)?;
        if let Some(remote) = remote {
            socket.connect(remote)?;
        }
        let SocketAddr::V4(local) = socket.local_addr()? else { return Err(ErrorKind::Unsupported.into()) };
        let data = epoll::EventData::new_u64(self.sockets.len() as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        self.sockets.push(Socket { socket, connected: remote.is_some() });
        Ok(local)
    }

    /// Waits until something has come, or this has passed.
    pub fn wait(&mut self, most: Duration) {
        let most = Timespec::try_from(most).unwrap_or(NOW);
        self.look(&most);
    }

    fn look(&mut self, most: &Timespec) {
        self.events.clear();
        // Whatever goes wrong, nothing has come.
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(most)).unwrap_or(0);
    }
}

/// Sends all that the system takes at once. An error that is not for want of room concerns the first, which is lost.
fn send_all(socket: &Socket, datagrams: &[Outgoing<'_>]) -> Taken {
    let addresses: Vec<SocketAddrAny> = datagrams.iter().map(|one| SocketAddr::V4(one.to).into()).collect();
    let slices: Vec<[IoSlice<'_>; 1]> = datagrams.iter().map(|one| [IoSlice::new(one.data)]).collect();
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> = Vec::new();
    controls.resize_with(datagrams.len(), SendAncillaryBuffer::default);
    let parts = addresses.iter().zip(&slices).zip(&mut controls);
    let mut messages: Vec<MMsgHdr<'_>> = parts
        .map(|((address, slice), control)| match socket.connected {
            true => MMsgHdr::new(slice, control),
            false => MMsgHdr::new_with_addr(address, slice, control),
        })
        .collect();
    let mut taken = Taken { count: 0, lost: 0 };
    while taken.count < messages.len() {
        let rest = messages.get_mut(taken.count..).unwrap_or_default();
        match sendmmsg(socket.socket.as_fd(), rest, SendFlags::DONTWAIT) {
            Ok(sent) => taken.count += sent,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => return taken,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                taken.count += 1;
                taken.lost += 1;
            }
        }
    }
    taken
}

impl Wire for Sockets {
    fn send(&mut self, flow: usize, datagrams: &[Outgoing<'_>]) -> Taken {
        match self.sockets.get(flow) {
            Some(socket) => send_all(socket, datagrams),
            None => Taken { count: datagrams.len(), lost: datagrams.len() },
        }
    }

    fn receive(&mut self, flow: usize, into: &mut [u8]) -> Option<Arrived> {
        let socket = &self.sockets.get(flow)?.socket;
        // A peer that is not there answers a datagram of ours by an error, which stands before what has come.
        for _ in 0..2 {
            match socket.recv_from(into) {
                Ok((length, SocketAddr::V4(from))) => return Some(Arrived { length, from }),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Ok(_) | Err(_) => {}
            }
        }
        None
    }

    fn ready(&mut self, flows: usize, into: &mut Vec<usize>) {
        if flows == 1 {
            // To ask the socket itself costs as much.
            return into.push(0);
        }
        self.look(&NOW);
        into.extend(self.events.iter().filter_map(|event| usize::try_from(event.data.u64()).ok()));
    }
}
