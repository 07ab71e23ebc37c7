//! The wrappers that show every message and every byte to the firewall.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use capnp::{
    Error,
    capability::Promise,
    message::{Builder, HeapAllocator},
};
use capnp_rpc::{
    Connection, FlowController, IncomingMessage, OutgoingMessage, VatNetwork, rpc_capnp::message,
    rpc_twoparty_capnp::Side, twoparty,
};
use futures::{AsyncRead, AsyncWrite, TryFutureExt};

use crate::rpc::firewall::{Firewall, reader_options};

/// What a queued message takes besides its segments, in bytes: its place in queues, its reference counts.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

/// The kernel's side of a connection, behind a firewall.
pub(crate) fn network(
    firewall: &Rc<Firewall>,
    reader: impl AsyncRead + Unpin + 'static,
    writer: impl AsyncWrite + Unpin + 'static,
) -> Box<dyn VatNetwork<Side>> {
    let reader = Counted { stream: reader, firewall: Rc::clone(firewall) };
    let writer = Counted { stream: writer, firewall: Rc::clone(firewall) };
    let inner = twoparty::VatNetwork::new(reader, writer, Side::Server, reader_options());
    Box::new(Guarded { inner, firewall: Rc::clone(firewall) })
}

/// A stream whose bytes are counted.
struct Counted<S> {
    stream: S,
    firewall: Rc<Firewall>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(bytes)) = read {
            self.firewall.read(bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        match &written {
            Poll::Ready(Ok(bytes)) => self.firewall.written(*bytes),
            Poll::Ready(Err(_)) => self.firewall.broke(),
            Poll::Pending => {}
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Err(_))) {
            self.firewall.broke();
        }
        flushed
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}

struct Guarded<N> {
    inner: N,
    firewall: Rc<Firewall>,
}

impl<N: VatNetwork<Side>> VatNetwork<Side> for Guarded<N> {
    fn connect(&mut self, side: Side) -> Option<Box<dyn Connection<Side>>> {
        let firewall = Rc::clone(&self.firewall);
        self.inner.connect(side).map(|inner| GuardedConnection::boxed(inner, firewall))
    }

    fn accept(&mut self) -> Promise<Box<dyn Connection<Side>>, Error> {
        let firewall = Rc::clone(&self.firewall);
        Promise::from_future(
            self.inner.accept().map_ok(move |inner| GuardedConnection::boxed(inner, firewall)),
        )
    }

    fn drive_until_shutdown(&mut self) -> Promise<(), Error> {
        self.inner.drive_until_shutdown()
    }
}

struct GuardedConnection {
    inner: Box<dyn Connection<Side>>,
    firewall: Rc<Firewall>,
    /// Why it ended, to be told once nothing is held any more.
    ended: Rc<RefCell<Option<Error>>>,
}

impl GuardedConnection {
    fn boxed(inner: Box<dyn Connection<Side>>, firewall: Rc<Firewall>) -> Box<dyn Connection<Side>> {
        Box::new(Self { inner, firewall, ended: Rc::default() })
    }
}

/// The next message that the firewall lets in.
async fn admitted(
    received: Promise<Option<Box<dyn IncomingMessage>>, Error>,
    firewall: &Firewall,
) -> Result<Option<Box<dyn IncomingMessage>>, Error> {
    poll_fn(|context| firewall.poll_ready(context.waker())).await?;
    let before = firewall.bytes_read.get();
    let message = received.await?;
    if let Some(message) = &message {
        firewall.admit(message.as_ref(), firewall.bytes_read.get().wrapping_sub(before))?;
    }
    Ok(message)
}

/// Gives up a capability in the name of a peer that has left.
struct Released(capnp::message::Reader<Builder<HeapAllocator>>);

impl Released {
    fn new(id: u32, references: u32) -> Self {
        let mut message = Builder::new(HeapAllocator::new().first_segment_words(8));
        let mut release = message.init_root::<message::Builder<'_>>().init_release();
        release.set_id(id);
        release.set_reference_count(references);
        Self(message.into_reader())
    }
}

impl IncomingMessage for Released {
    fn get_body(&self) -> capnp::Result<capnp::any_pointer::Reader<'_>> {
        self.0.get_root()
    }
}

impl Connection<Side> for GuardedConnection {
    fn get_peer_vat_id(&self) -> Side {
        self.inner.get_peer_vat_id()
    }

    fn new_outgoing_message(&mut self, first_segment_words: u32) -> Box<dyn OutgoingMessage> {
        let inner = self.inner.new_outgoing_message(first_segment_words);
        let reserved_bytes = first_segment_words as usize * 8;
        Box::new(GuardedMessage { inner, reserved_bytes, firewall: Rc::clone(&self.firewall) })
    }

    fn receive_incoming_message(&mut self) -> Promise<Option<Box<dyn IncomingMessage>>, Error> {
        let received = self.inner.receive_incoming_message();
        let firewall = Rc::clone(&self.firewall);
        let ended = Rc::clone(&self.ended);
        Promise::from_future(async move {
            // A peer with much to say waits for its turn like everybody else: one message each, however long that takes.
            tokio::task::yield_now().await;
            if !firewall.leaving.is_cancelled() {
                tokio::select! {
                    biased;
                    () = firewall.leaving.cancelled() => {}
                    admitted = admitted(received, &firewall) => match admitted {
                        Ok(Some(message)) => return Ok(Some(message)),
                        Ok(None) => {}
                        Err(error) => drop(ended.replace(Some(error))),
                    }
                }
                // Whoever serves the connection ends its sessions first.
                firewall.tripped.cancel();
                firewall.leaving.cancelled().await;
            }
            if let Some((id, references)) = firewall.give_up_one() {
                return Ok(Some(Box::new(Released::new(id, references)) as _));
            }
            firewall.empty.notify_one();
            ended.take().map_or(Ok(None), Err)
        })
    }

    fn new_stream(&mut self) -> (Box<dyn FlowController>, Promise<(), Error>) {
        self.inner.new_stream()
    }

    fn shutdown(&mut self, result: capnp::Result<()>) -> Promise<(), Error> {
        self.inner.shutdown(result)
    }
}

struct GuardedMessage {
    inner: Box<dyn OutgoingMessage>,
    /// What it takes however short it is.
    reserved_bytes: usize,
    firewall: Rc<Firewall>,
}

impl OutgoingMessage for GuardedMessage {
    fn get_body(&mut self) -> capnp::Result<capnp::any_pointer::Builder<'_>> {
        self.inner.get_body()
    }

    fn get_body_as_reader(&self) -> capnp::Result<capnp::any_pointer::Reader<'_>> {
        self.inner.get_body_as_reader()
    }

    fn send(self: Box<Self>) -> (Promise<(), Error>, Rc<Builder<HeapAllocator>>) {
        if let Ok(body) = self.inner.get_body_as_reader()
            && let Ok(message) = body.get_as::<message::Reader<'_>>()
        {
            self.firewall.note(message);
        }
        let firewall = self.firewall;
        let (sent, message) = self.inner.send();
        // As the stream framing has it: the words, a count of segments and their lengths, padded to a word.
        let segments = message.get_segments_for_output();
        let bytes: usize = segments.iter().map(|segment| segment.len()).sum();
        let cost = bytes.max(self.reserved_bytes) + MESSAGE_OVERHEAD_BYTES;
        firewall.queued(bytes + (4 + 4 * segments.len()).next_multiple_of(8), cost);
        (sent, message)
    }

    fn take(self: Box<Self>) -> Builder<HeapAllocator> {
        self.inner.take()
    }

    fn size_in_words(&self) -> usize {
        self.inner.size_in_words()
    }
}
