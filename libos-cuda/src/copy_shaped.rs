//! Copies of rows and slices (`cuMemcpy2D`, `cuMemcpy3D`), between linear memory and arrays.

use crate::abi::{Copy2d, Copy3d, Host, In, NullStream, Side2d, Side3d, Wide};
use crate::copy::{End, Order, Until, copy, done, ordered, overlap, submit};
use crate::device::{ArrayCopy, Bind, DeviceRange, HostSpan};
use crate::driver::{Driver, driver_and_current};
use crate::graph::Work;
use crate::memory::{self, Place};
use crate::order::Target;
use crate::status::{Answer, Status};

const KIND_HOST: u32 = 1;
const KIND_DEVICE: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_UNIFIED: u32 = 4;

/// Fewer rows than this are copied one by one where staging them would need memory of its own.
const ROWS_STAGED_MIN: usize = 4;

/// One end of a shaped copy.
#[derive(Debug, Clone, Copy)]
struct Side {
    end: End,
    /// From a row to the next.
    row_bytes: usize,
    /// From a slice to the next.
    slice_bytes: usize,
}

impl Side {
    /// Row behind row and slice behind slice.
    fn dense(end: End, shape: Shape) -> Side {
        Side { end, row_bytes: shape.width, slice_bytes: shape.width * shape.height }
    }

    fn at(&self, slice: usize, row: usize) -> Result<End, Status> {
        let rows = row.checked_mul(self.row_bytes).ok_or(Status::INVALID_VALUE)?;
        let slices = slice.checked_mul(self.slice_bytes).ok_or(Status::INVALID_VALUE)?;
        Ok(self.end.after(rows.checked_add(slices).ok_or(Status::INVALID_VALUE)?))
    }

    /// From the first byte of a shape, which is not empty, to its last.
    fn extent(&self, shape: Shape) -> Result<usize, Status> {
        let rows = (shape.height - 1).checked_mul(self.row_bytes);
        let slices = (shape.depth - 1).checked_mul(self.slice_bytes);
        let last = rows.zip(slices).and_then(|(rows, slices)| rows.checked_add(slices));
        last.and_then(|last| last.checked_add(shape.width)).ok_or(Status::INVALID_VALUE)
    }
}

/// Columns, rows and slices to copy.
#[derive(Debug, Clone, Copy)]
struct Shape {
    width: usize,
    height: usize,
    depth: usize,
}

impl Shape {
    fn bytes(self) -> Result<usize, Status> {
        let slice = self.width.checked_mul(self.height).ok_or(Status::INVALID_VALUE)?;
        slice.checked_mul(self.depth).ok_or(Status::INVALID_VALUE)
    }
}

fn side(driver: &Driver, from: &Side3d, shape: Shape) -> Result<Side, Status> {
    if from.kind == KIND_ARRAY {
        let array = driver.arrays.get(from.array)?;
        let place = [from.x, from.y, from.z];
        let (end, row_bytes, slice_bytes) = array.side(place, [shape.width, shape.height, shape.depth])?;
        let whole = Side { end, row_bytes, slice_bytes };
        return Ok(Side { end: whole.at(from.z, from.y)?.after(from.x), ..whole });
    }
    let end = match from.kind {
        KIND_HOST => End::Host(Wide(from.host).host()),
        KIND_DEVICE => End::Device(from.device),
        KIND_UNIFIED => End::wide(Wide(from.device)),
        _ => return Err(Status::INVALID_VALUE),
    };
    if from.level != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let reach = from.x.checked_add(shape.width).ok_or(Status::INVALID_VALUE)?;
    let row_bytes = if from.pitch == 0 { reach } else { from.pitch };
    let rows = from.y.checked_add(shape.height).ok_or(Status::INVALID_VALUE)?;
    let slice_rows = if from.height == 0 { rows } else { from.height };
    if row_bytes < reach || (shape.depth > 1 && slice_rows < rows) {
        return Err(Status::INVALID_VALUE);
    }
    let slice_bytes = row_bytes.checked_mul(slice_rows).ok_or(Status::INVALID_VALUE)?;
    let whole = Side { end, row_bytes, slice_bytes };
    Ok(Side { end: whole.at(from.z, from.y)?.after(from.x), ..whole })
}

fn shaped(driver: &Driver, order: Order, to: &Side3d, from: &Side3d, shape: Shape) -> Answer {
    let bytes = shape.bytes()?;
    if bytes == 0 {
        return Ok(());
    }
    match (of_the_driver(driver, to, shape)?, of_the_driver(driver, from, shape)?) {
        (None, None) => linear(driver, order, side(driver, to, shape)?, side(driver, from, shape)?, shape),
        (Some(array), None) => {
            with_array(driver, order, array, side(driver, from, shape)?, Direction::In, shape)
        }
        (None, Some(array)) => {
            with_array(driver, order, array, side(driver, to, shape)?, Direction::Out, shape)
        }
        (Some(to), Some(from)) => {
            let memory = memory::acquire(driver, bytes as u64)?;
            let between = Side::dense(End::Device(memory), shape);
            let copied = with_array(driver, order, from, between, Direction::Out, shape)
                .and_then(|()| with_array(driver, order, to, between, Direction::In, shape));
            memory::release(driver, memory).and(copied)
        }
    }
}

/// A part of an array of the driver's.
#[derive(Clone, Copy)]
struct InArray {
    number: u64,
    /// From where on it is.
    at: [u32; 3],
}

/// Whether a copy goes into an array or out of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// Which array of the driver's a side is in, if it is.
fn of_the_driver(driver: &Driver, side: &Side3d, shape: Shape) -> Result<Option<InArray>, Status> {
    if side.kind != KIND_ARRAY {
        return Ok(None);
    }
    let array = driver.arrays.get(side.array)?;
    let Some(number) = array.number else { return Ok(None) };
    let at = [side.x, side.y, side.z];
    array.check(at, [shape.width, shape.height, shape.depth])?;
    let half = |at: usize| u32::try_from(at).map_err(|_| Status::INVALID_VALUE);
    Ok(Some(InArray { number, at: [half(at[0])?, half(at[1])?, half(at[2])?] }))
}

/// Copies between an array of the driver's and memory: into the array or out of it. Memory of the host's goes by way of the
/// device's.
fn with_array(
    driver: &Driver,
    order: Order,
    array: InArray,
    side: Side,
    direction: Direction,
    shape: Shape,
) -> Answer {
    let to_array = direction == Direction::In;
    let extent = side.extent(shape)?;
    if side.end.piece(driver, extent)? == extent
        && let Place::Device(range) = side.end.place(driver, extent)?
    {
        let half = |number: usize| u32::try_from(number).map_err(|_| Status::INVALID_VALUE);
        let copy = ArrayCopy {
            array: array.number,
            at: array.at,
            memory: Bind { slot: 0, generation: 0 },
            offset: 0,
            row_bytes: side.row_bytes as u64,
            rows: half(side.slice_bytes.checked_div(side.row_bytes).unwrap_or(0))?,
            shape: [half(shape.width)?, half(shape.height)?, half(shape.depth)?],
            to_array,
        };
        let copied = submit(driver, order, |stream| driver.session.copy_array(stream, range, copy))?;
        // By streams without an order to this one: natively the copy is done before a kernel could begin there.
        let waits = order.until == Until::Done && to_array && driver.streams.may_overtake();
        return if waits { driver.session.wait(copied).map_err(|error| Status::of(&error)) } else { Ok(()) };
    }
    let between = memory::acquire(driver, shape.bytes()? as u64)?;
    let dense = Side::dense(End::Device(between), shape);
    let copied = if to_array {
        linear(driver, order, dense, side, shape)
            .and_then(|()| with_array(driver, order, array, dense, Direction::In, shape))
    } else {
        with_array(driver, order, array, dense, Direction::Out, shape)
            .and_then(|()| linear(driver, order, side, dense, shape))
    };
    // The session keeps the memory until what uses it is done.
    memory::release(driver, between).and(copied)
}

fn linear(driver: &Driver, order: Order, to: Side, from: Side, shape: Shape) -> Answer {
    let bytes = shape.bytes()?;
    let rows_touch = to.row_bytes == shape.width && from.row_bytes == shape.width;
    let slice = shape.width * shape.height;
    if rows_touch && (shape.depth == 1 || (to.slice_bytes == slice && from.slice_bytes == slice)) {
        return copy(driver, order, to.end, from.end, bytes);
    }
    let in_one =
        |side: &Side| Ok::<_, Status>(side.end.piece(driver, side.extent(shape)?)? == side.extent(shape)?);
    if !in_one(&to)? || !in_one(&from)? {
        return row_by_row(driver, order, to, from, shape);
    }
    let staged = shape.height.saturating_mul(shape.depth) >= ROWS_STAGED_MIN;
    match (to.end.place(driver, shape.width)?, from.end.place(driver, shape.width)?) {
        (Place::Device(_), Place::Pageable) if staged => stage_out(driver, order, to, from, shape),
        (Place::Pageable, Place::Device(_)) if staged => stage_in(driver, order, to, from, shape),
        _ => row_by_row(driver, order, to, from, shape),
    }
}

fn row_by_row(driver: &Driver, order: Order, to: Side, from: Side, shape: Shape) -> Answer {
    for z in 0..shape.depth {
        for y in 0..shape.height {
            copy(driver, order, to.at(z, y)?, from.at(z, y)?, shape.width)?;
        }
    }
    Ok(())
}

/// Gathers the program's rows into pinned memory and sends them off in one go.
fn stage_out(driver: &Driver, order: Order, to: Side, from: Side, shape: Shape) -> Answer {
    let staging = driver.session.allocate_host(shape.bytes()?).map_err(|error| Status::of(&error))?;
    let pinned = Wide(staging.as_ptr().expose_provenance() as u64).host();
    let mut last = None;
    let mut at = 0;
    for z in 0..shape.depth {
        for y in 0..shape.height {
            from.at(z, y)?.host().copy_to(pinned.after(at), shape.width)?;
            let span = HostSpan { handle: staging.handle(), offset: at as u64, bytes: shape.width as u64 };
            let range = device(driver, to.at(z, y)?, shape.width)?;
            last = Some(submit(driver, order, |stream| driver.session.copy_to_device(stream, range, span))?);
            at += shape.width;
        }
    }
    last.map_or(Ok(()), |fence| driver.session.wait(fence).map_err(|error| Status::of(&error)))
}

/// Fetches the device's rows into pinned memory in one go and scatters them.
fn stage_in(driver: &Driver, order: Order, to: Side, from: Side, shape: Shape) -> Answer {
    let staging = driver.session.allocate_host(shape.bytes()?).map_err(|error| Status::of(&error))?;
    let pinned = Wide(staging.as_ptr().expose_provenance() as u64).host();
    let mut last = None;
    let mut at = 0;
    for z in 0..shape.depth {
        for y in 0..shape.height {
            let span = HostSpan { handle: staging.handle(), offset: at as u64, bytes: shape.width as u64 };
            let range = device(driver, from.at(z, y)?, shape.width)?;
            last = Some(submit(driver, order, |stream| driver.session.copy_to_host(stream, span, range))?);
            at += shape.width;
        }
    }
    if let Some(fence) = last {
        driver.session.wait(fence).map_err(|error| Status::of(&error))?;
    }
    let mut at = 0;
    for z in 0..shape.depth {
        for y in 0..shape.height {
            pinned.after(at).copy_to(to.at(z, y)?.host(), shape.width)?;
            at += shape.width;
        }
    }
    Ok(())
}

fn device(driver: &Driver, end: End, bytes: usize) -> Result<DeviceRange, Status> {
    match end.place(driver, bytes)? {
        Place::Device(range) => Ok(range),
        Place::Pinned(_) | Place::Pageable => Err(Status::INVALID_VALUE),
    }
}

/// A side of two dimensions as one of three.
fn deep(side: &Side2d) -> Side3d {
    Side3d {
        x: side.x,
        y: side.y,
        z: 0,
        level: 0,
        kind: side.kind,
        host: side.host,
        device: side.device,
        array: side.array,
        context: 0,
        pitch: side.pitch,
        height: 0,
    }
}

/// A copy of two dimensions as one of three.
fn flat(copy: &Copy2d) -> Copy3d {
    Copy3d { from: deep(&copy.from), to: deep(&copy.to), width: copy.width, height: copy.height, depth: 1 }
}

/// A copy of one dimension as one of three.
pub(crate) fn line(to: End, from: End, bytes: usize) -> Copy3d {
    let side = |end: End| {
        let (kind, host, device) = match end {
            End::Device(address) => (KIND_DEVICE, 0, address),
            End::Host(host) => (KIND_UNIFIED, 0, host.address()),
        };
        let plain = Side2d { x: 0, y: 0, kind, host, device, array: 0, pitch: 0 };
        deep(&plain)
    };
    Copy3d { from: side(from), to: side(to), width: bytes, height: 1, depth: 1 }
}

/// That a graph's node is one that can be done.
pub(crate) fn check(driver: &Driver, copy: &Copy3d) -> Answer {
    let shape = Shape { width: copy.width, height: copy.height, depth: copy.depth };
    shape.bytes()?;
    [&copy.to, &copy.from].into_iter().try_for_each(|one| match of_the_driver(driver, one, shape)? {
        Some(_) => Ok(()),
        None => side(driver, one, shape).map(drop),
    })
}

/// Destination and source of a copy on the device, where each is one range of one allocation.
pub(crate) fn on_device(driver: &Driver, copy: &Copy3d) -> Option<(DeviceRange, DeviceRange)> {
    let shape = Shape { width: copy.width, height: copy.height, depth: copy.depth };
    let bytes = shape.bytes().ok().filter(|bytes| *bytes > 0)?;
    let is_in_array = |side| of_the_driver(driver, side, shape).is_ok_and(|array| array.is_some());
    if is_in_array(&copy.to) || is_in_array(&copy.from) {
        return None;
    }
    let (to, from) = (side(driver, &copy.to, shape).ok()?, side(driver, &copy.from, shape).ok()?);
    let slice = shape.width * shape.height;
    let is_plain = |side: &Side| {
        (side.row_bytes == shape.width || (shape.height == 1 && shape.depth == 1))
            && (shape.depth == 1 || side.slice_bytes == slice)
            && side.end.piece(driver, bytes).is_ok_and(|piece| piece == bytes)
    };
    if !is_plain(&to) || !is_plain(&from) {
        return None;
    }
    match (to.end.place(driver, bytes).ok()?, from.end.place(driver, bytes).ok()?) {
        (Place::Device(to), Place::Device(from)) if !overlap(to, from) => Some((to, from)),
        _ => None,
    }
}

/// In a stream's order: done, or written down.
fn in_order(null: NullStream, stream: u64, copy: Copy3d) -> Answer {
    let (driver, order) = ordered(null, stream)?;
    in_order_of(driver, order.target, copy)
}

/// The same for a stream that is looked up already.
pub(crate) fn in_order_of(driver: &Driver, target: Target, copy: Copy3d) -> Answer {
    let order = Order { target, until: Until::Ordered };
    let Some(capturing) = driver.streams.captures.of(order.target)? else {
        return three_in(driver, order, &copy);
    };
    check(driver, &copy)?;
    capturing.add(Work::Copy(Box::new(copy)))
}

pub(crate) fn three_in(driver: &Driver, order: Order, copy: &Copy3d) -> Answer {
    let shape = Shape { width: copy.width, height: copy.height, depth: copy.depth };
    shaped(driver, order, &copy.to, &copy.from, shape)
}

pub(crate) fn two(null: NullStream, shape: In<Copy2d>) -> Answer {
    let (driver, order) = done(null)?;
    three_in(driver, order, &flat(&shape.0))
}

pub(crate) fn two_ordered(null: NullStream, shape: In<Copy2d>, stream: u64) -> Answer {
    in_order(null, stream, flat(&shape.0))
}

pub(crate) fn three(null: NullStream, shape: In<Copy3d>) -> Answer {
    let (driver, order) = done(null)?;
    three_in(driver, order, &shape.0)
}

pub(crate) fn three_ordered(null: NullStream, shape: In<Copy3d>, stream: u64) -> Answer {
    in_order(null, stream, shape.0)
}

/// That the contexts of both sides are there: all are of one device. An array has its own.
fn check_contexts(driver: &Driver, copy: &Copy3d) -> Answer {
    for side in [&copy.to, &copy.from] {
        if side.kind != KIND_ARRAY {
            driver.contexts.check(side.context)?;
        }
    }
    Ok(())
}

pub(crate) fn peers(null: NullStream, shape: In<Copy3d>) -> Answer {
    let (driver, order) = done(null)?;
    check_contexts(driver, &shape.0)?;
    three_in(driver, order, &shape.0)
}

pub(crate) fn peers_ordered(null: NullStream, shape: In<Copy3d>, stream: u64) -> Answer {
    check_contexts(driver_and_current()?.0, &shape.0)?;
    in_order(null, stream, shape.0)
}

/// Bytes of an array's first row, from `x` on.
fn in_array(array: u64, x: usize) -> Side3d {
    deep(&Side2d { x, y: 0, kind: KIND_ARRAY, host: 0, device: 0, array, pitch: 0 })
}

/// A copy between bytes of arrays' first rows, or between those and plain memory.
fn row(to: Side3d, from: Side3d, bytes: usize) -> Copy3d {
    Copy3d { from, to, width: bytes, height: 1, depth: 1 }
}

fn plain(end: End, bytes: usize) -> Side3d {
    line(end, end, bytes).from
}

pub(crate) fn host_to_array(null: NullStream, to: u64, offset: usize, from: Host, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    three_in(driver, order, &row(in_array(to, offset), plain(End::Host(from), bytes), bytes))
}

pub(crate) fn array_to_host(null: NullStream, to: Host, from: u64, offset: usize, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    three_in(driver, order, &row(plain(End::Host(to), bytes), in_array(from, offset), bytes))
}

pub(crate) fn device_to_array(null: NullStream, to: u64, offset: usize, from: u64, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    three_in(driver, order, &row(in_array(to, offset), plain(End::Device(from), bytes), bytes))
}

pub(crate) fn array_to_device(null: NullStream, to: u64, from: u64, offset: usize, bytes: usize) -> Answer {
    let (driver, order) = done(null)?;
    three_in(driver, order, &row(plain(End::Device(to), bytes), in_array(from, offset), bytes))
}

pub(crate) fn array_to_array(
    null: NullStream,
    to: u64,
    to_offset: usize,
    from: u64,
    from_offset: usize,
    bytes: usize,
) -> Answer {
    let (driver, order) = done(null)?;
    three_in(driver, order, &row(in_array(to, to_offset), in_array(from, from_offset), bytes))
}

pub(crate) fn host_to_array_ordered(
    null: NullStream,
    to: u64,
    offset: usize,
    from: Host,
    bytes: usize,
    stream: u64,
) -> Answer {
    in_order(null, stream, row(in_array(to, offset), plain(End::Host(from), bytes), bytes))
}

pub(crate) fn array_to_host_ordered(
    null: NullStream,
    to: Host,
    from: u64,
    offset: usize,
    bytes: usize,
    stream: u64,
) -> Answer {
    in_order(null, stream, row(plain(End::Host(to), bytes), in_array(from, offset), bytes))
}
