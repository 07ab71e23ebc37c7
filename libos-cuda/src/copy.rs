//! Copies between any two places.

use crate::abi::{Host, NullStream, Wide};
use crate::copy_shaped;
use crate::device::{DeviceRange, Fence};
use crate::driver::{Driver, driver_and_current};
use crate::graph::Work;
use crate::memory::Place;
use crate::order::Target;
use crate::printf;
use crate::status::{Answer, Status};

/// When a copy's call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the copy is done, as far as the host can tell the difference.
    Done,
    /// When it has its place in the stream's order.
    Ordered,
}

/// One end of a copy: what the call says it is, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// An address that has to be the device's.
    Device(u64),
    /// Memory of the program's, or what it turns out to be.
    Host(Host),
}

impl End {
    /// An address of which only the map knows what it is.
    pub(crate) fn wide(address: Wide) -> End {
        End::Host(address.host())
    }

    /// The same `bytes` further on.
    pub(crate) fn after(self, bytes: usize) -> End {
        match self {
            End::Device(address) => End::Device(address.wrapping_add(bytes as u64)),
            End::Host(host) => End::Host(host.after(bytes)),
        }
    }

    /// How many of `bytes` lie in one piece.
    pub(crate) fn piece(self, driver: &Driver, bytes: usize) -> Result<usize, Status> {
        let address = match self {
            End::Device(address) => address,
            End::Host(host) => host.address(),
        };
        usize::try_from(driver.memory.piece(address, bytes as u64)?).map_err(|_| Status::INVALID_VALUE)
    }

    pub(crate) fn place(self, driver: &Driver, bytes: usize) -> Result<Place, Status> {
        match self {
            End::Device(address) => match driver.memory.place(address, bytes as u64)? {
                Place::Pageable => Err(Status::INVALID_VALUE),
                place @ (Place::Device(_) | Place::Pinned(_)) => Ok(place),
            },
            End::Host(host) => driver.memory.place(host.address(), bytes as u64),
        }
    }

    /// The program's memory there; of a pinned place that a device address named as well.
    pub(crate) fn host(self) -> Host {
        match self {
            End::Device(address) => Wide(address).host(),
            End::Host(host) => host,
        }
    }
}

/// Where a copy goes, or where to, in the order of which stream, and until when its call waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) target: Target,
    pub(crate) until: Until,
}

/// The driver, and the order of a call that names no stream.
pub(crate) fn done(null: NullStream) -> Result<(&'static Driver, Order), Status> {
    let (driver, _) = driver_and_current()?;
    let target = driver.target(null, 0)?;
    driver.streams.captures.refuse(target)?;
    Ok((driver, Order { target, until: Until::Done }))
}

/// The driver, and the order of a call that names a stream.
pub(crate) fn ordered(null: NullStream, stream: u64) -> Result<(&'static Driver, Order), Status> {
    let (driver, _) = driver_and_current()?;
    Ok((driver, Order { target: driver.target(null, stream)?, until: Until::Ordered }))
}

pub(crate) fn overlap(a: DeviceRange, b: DeviceRange) -> bool {
    a.handle == b.handle && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes
}

/// Copies `bytes`, piece by piece where the program mapped several side by side.
pub(crate) fn copy(driver: &Driver, order: Order, to: End, from: End, bytes: usize) -> Answer {
    let mut done = 0;
    while done < bytes {
        let (to, from, left) = (to.after(done), from.after(done), bytes - done);
        let piece = to.piece(driver, left)?.min(from.piece(driver, left)?);
        copy_piece(driver, order, to, from, piece)?;
        done += piece;
    }
    if order.until == Until::Done {
        printf::flush(driver);
    }
    Ok(())
}

/// Copies `bytes`, at most one of whose ends is split over allocations by nobody.
fn copy_piece(driver: &Driver, order: Order, to: End, from: End, bytes: usize) -> Answer {
    let session = &driver.session;
    let fence: Option<Fence> = match (to.place(driver, bytes)?, from.place(driver, bytes)?) {
        (Place::Device(to), Place::Device(from)) => {
            if overlap(to, from) {
                return Err(Status::INVALID_VALUE);
            }
            submit(driver, order, |stream| session.copy_on_device(stream, to, from))?;
            // The host cannot see when a copy on the device is done, so it need not wait.
            None
        }
        (Place::Device(to), Place::Pinned(from)) => {
            Some(submit(driver, order, |stream| session.copy_to_device(stream, to, from))?)
        }
        (Place::Pinned(to), Place::Device(from)) => {
            Some(submit(driver, order, |stream| session.copy_to_host(stream, to, from))?)
        }
        (Place::Device(to), Place::Pageable) => {
            let host = from.host();
            let content = host.bytes(bytes)?;
            let written = submit(driver, order, |stream| {
                session.write(stream, to, content)?;
                Ok(session.fence(stream))
            })?;
            // The program's bytes were copied, so nobody sees when the device has them, but for streams without an order to this
            // one: natively the copy is done before a kernel could begin there.
            driver.streams.may_overtake().then_some(written)
        }
        (Place::Pageable, Place::Device(from)) => {
            let mut host = to.host();
            let room = host.bytes_mut(bytes)?;
            submit(driver, order, |stream| session.read(stream, room, from))?;
            None
        }
        (Place::Pinned(_) | Place::Pageable, Place::Pinned(_) | Place::Pageable) => {
            driver.streams.synchronize(session, order.target)?;
            from.host().copy_to(to.host(), bytes)?;
            None
        }
    };
    match (fence, order.until) {
        (Some(fence), Until::Done) => session.wait(fence).map_err(|error| Status::of(&error)),
        (Some(_), Until::Ordered) | (None, _) => Ok(()),
    }
}

/// A copy in a stream's order: done, or written down.
fn in_order(null: NullStream, stream: u64, to: End, from: End, bytes: usize) -> Answer {
    let (driver, order) = ordered(null, stream)?;
    ordered_copy(driver, order, to, from, bytes)
}

/// A copy in the order of a stream that is looked up already.
pub(crate) fn in_order_of(driver: &Driver, target: Target, to: End, from: End, bytes: usize) -> Answer {
    ordered_copy(driver, Order { target, until: Until::Ordered }, to, from, bytes)
}

fn ordered_copy(driver: &Driver, order: Order, to: End, from: End, bytes: usize) -> Answer {
    let Some(capturing) = driver.streams.captures.of(order.target)? else {
        return copy(driver, order, to, from, bytes);
    };
    if bytes == 0 {
        return Ok(());
    }
    // What can be known of it already is an error here, not at each launch.
    for end in [to, from] {
        end.place(driver, end.piece(driver, bytes)?)?;
    }
    capturing.add(Work::Copy(Box::new(copy_shaped::line(to, from, bytes))))
}

/// Submits work in an order, with the client's error as a status.
pub(crate) fn submit<R>(
    driver: &Driver,
    order: Order,
    work: impl FnOnce(crate::device::Stream) -> Result<R, crate::device::Error>,
) -> Result<R, Status> {
    driver
        .streams
        .submit(&driver.session, order.target, |stream| work(stream).map_err(|error| Status::of(&error)))
}

pub(crate) fn any(null: NullStream, to: Wide, from: Wide, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    copy(driver, order, End::wide(to), End::wide(from), bytes)
}

pub(crate) fn any_ordered(null: NullStream, to: Wide, from: Wide, bytes: usize, stream: u64) -> Answer {
    in_order(null, stream, End::wide(to), End::wide(from), bytes)
}

pub(crate) fn to_device(null: NullStream, to: u64, from: Host, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    copy(driver, order, End::Device(to), End::Host(from), bytes)
}

pub(crate) fn to_device_ordered(null: NullStream, to: u64, from: Host, bytes: usize, stream: u64) -> Answer {
    in_order(null, stream, End::Device(to), End::Host(from), bytes)
}

pub(crate) fn to_host(null: NullStream, to: Host, from: u64, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    copy(driver, order, End::Host(to), End::Device(from), bytes)
}

pub(crate) fn to_host_ordered(null: NullStream, to: Host, from: u64, bytes: usize, stream: u64) -> Answer {
    in_order(null, stream, End::Host(to), End::Device(from), bytes)
}

pub(crate) fn on_device(null: NullStream, to: u64, from: u64, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    copy(driver, order, End::Device(to), End::Device(from), bytes)
}

pub(crate) fn on_device_ordered(null: NullStream, to: u64, from: u64, bytes: usize, stream: u64) -> Answer {
    in_order(null, stream, End::Device(to), End::Device(from), bytes)
}

/// All contexts are of one device.
pub(crate) fn peer(
    null: NullStream,
    to: u64,
    to_context: u64,
    from: u64,
    from_context: u64,
    bytes: usize,
) -> Answer {
    let (driver, order) = done(null)?;
    driver.contexts.check(to_context)?;
    driver.contexts.check(from_context)?;
    copy(driver, order, End::Device(to), End::Device(from), bytes)
}

pub(crate) fn peer_ordered(
    null: NullStream,
    to: u64,
    to_context: u64,
    from: u64,
    from_context: u64,
    bytes: usize,
    stream: u64,
) -> Answer {
    let (driver, order) = ordered(null, stream)?;
    driver.contexts.check(to_context)?;
    driver.contexts.check(from_context)?;
    ordered_copy(driver, order, End::Device(to), End::Device(from), bytes)
}
