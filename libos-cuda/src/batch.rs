//! Many copies, or many prefetches, in one call. They are done in their order, which is one of those that CUDA allows.

use crate::abi::{
    BatchOperand, BatchedCopy3d, Copy3d, CopyAttributes, InSlice, Location, NullStream, OutMaybe, Side3d,
    Wide,
};
use crate::copy::{self, End};
use crate::copy_shaped;
use crate::driver::{Driver, driver_and_current};
use crate::managed;
use crate::memory::Place;
use crate::order::{Order, Target};
use crate::status::{Answer, Status};

/// Operations of one call.
const COUNT_MAX: usize = 1 << 22;

/// `CU_MEMCPY_SRC_ACCESS_ORDER_*`: in the stream's order, during the call, and whenever it suits.
const IN_ORDER: u32 = 1;
const DURING_CALL: u32 = 2;
const ANY: u32 = 3;
/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`, which is a hint.
const OVERLAP: u32 = 1;
const POINTER: u32 = 1;
const ARRAY: u32 = 2;

/// What went wrong, and in which operation.
type Failed = (Option<usize>, Status);

/// A failure of the call as a whole.
fn whole(status: Status) -> Failed {
    (None, status)
}

/// The driver and the stream of a batch, which cannot be the legacy one.
fn stream_of(null: NullStream, stream: u64) -> Result<(&'static Driver, Target), Status> {
    let (driver, _) = driver_and_current()?;
    match driver.target(null, stream)? {
        Target { order: Order::Legacy, .. } => Err(Status::INVALID_VALUE),
        target => Ok((driver, target)),
    }
}

/// For each of `count` operations the number of what is said about it: `firsts` has the first operation of each.
fn groups(firsts: &InSlice<usize>, said: usize, count: usize) -> Result<Vec<usize>, Status> {
    if count == 0 || count > COUNT_MAX || said == 0 || said > count {
        return Err(Status::INVALID_VALUE);
    }
    let firsts = firsts.read(said)?;
    let grow = firsts.windows(2).all(|pair| pair.first() < pair.last());
    if firsts.first() != Some(&0) || !grow || firsts.last().is_none_or(|last| *last >= count) {
        return Err(Status::INVALID_VALUE);
    }
    Ok((0..count).map(|at| firsts.partition_point(|first| *first <= at) - 1).collect())
}

fn check_order(order: u32, flags: u32) -> Answer {
    let is_known = matches!(order, IN_ORDER | DURING_CALL | ANY) && flags & !OVERLAP == 0;
    if is_known { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// Whether a copy may still read its source when its call has returned. The program's own bytes were taken by then.
fn reads_later(driver: &Driver, source: End) -> Result<bool, Status> {
    Ok(!matches!(source.place(driver, 1)?, Place::Pageable))
}

/// Does all operations up to the first that fails. Sources that are there during the call alone are not read later, whatever
/// failed.
fn all<T>(
    driver: &Driver,
    target: Target,
    operations: impl Iterator<Item = T>,
    mut one: impl FnMut(T, &mut bool) -> Answer,
) -> Result<(), Failed> {
    let mut waits = false;
    let failed = operations
        .enumerate()
        .find_map(|(at, operation)| Some((Some(at), one(operation, &mut waits).err()?)));
    let finished = if waits { driver.streams.synchronize(&driver.session, target) } else { Ok(()) };
    failed.map_or(finished.map_err(whole), Err)
}

/// That a source which ends with the call is not asked for where the copy comes later.
fn check_capture(driver: &Driver, target: Target, during_call: bool) -> Answer {
    if during_call { driver.streams.captures.refuse(target) } else { Ok(()) }
}

/// Copies as a call of CUDA 13 gives them.
struct Copies {
    to: InSlice<u64>,
    from: InSlice<u64>,
    sizes: InSlice<usize>,
    count: usize,
    attributes: InSlice<CopyAttributes>,
    firsts: InSlice<usize>,
    attributes_count: usize,
}

fn copy_all(null: NullStream, copies: &Copies, stream: u64) -> Result<(), Failed> {
    let (driver, target) = stream_of(null, stream).map_err(whole)?;
    let groups = groups(&copies.firsts, copies.attributes_count, copies.count).map_err(whole)?;
    let attributes = copies.attributes.read(copies.attributes_count).map_err(whole)?;
    for attributes in &attributes {
        check_order(attributes.order, attributes.flags).map_err(whole)?;
    }
    let [to, from] = [&copies.to, &copies.from].map(|list| list.read(copies.count));
    let (to, from) = (to.map_err(whole)?, from.map_err(whole)?);
    let sizes = copies.sizes.read(copies.count).map_err(whole)?;
    let operations = to.into_iter().zip(from).zip(sizes.into_iter().zip(groups));
    all(driver, target, operations, |((to, from), (bytes, group)), waits| {
        let (to, from) = (End::wide(Wide(to)), End::wide(Wide(from)));
        let during_call = attributes.get(group).is_some_and(|said| said.order == DURING_CALL);
        check_capture(driver, target, during_call)?;
        *waits |= during_call && bytes > 0 && reads_later(driver, from)?;
        copy::in_order_of(driver, target, to, from, bytes)
    })
}

/// Tells which operation failed, where one did.
fn tell(done: Result<(), Failed>, to: &OutMaybe<usize>) -> Answer {
    done.map_err(|(at, status)| {
        to.set(at.unwrap_or(usize::MAX));
        status
    })
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn copy(
    null: NullStream,
    to: InSlice<u64>,
    from: InSlice<u64>,
    sizes: InSlice<usize>,
    count: usize,
    attributes: InSlice<CopyAttributes>,
    firsts: InSlice<usize>,
    attributes_count: usize,
    stream: u64,
) -> Answer {
    let copies = Copies { to, from, sizes, count, attributes, firsts, attributes_count };
    copy_all(null, &copies, stream).map_err(|(_, status)| status)
}

/// The same as CUDA 12.8 has it.
#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn copy_1(
    null: NullStream,
    to: InSlice<u64>,
    from: InSlice<u64>,
    sizes: InSlice<usize>,
    count: usize,
    attributes: InSlice<CopyAttributes>,
    firsts: InSlice<usize>,
    attributes_count: usize,
    failed: OutMaybe<usize>,
    stream: u64,
) -> Answer {
    let copies = Copies { to, from, sizes, count, attributes, firsts, attributes_count };
    tell(copy_all(null, &copies, stream), &failed)
}

/// Bytes of an element, where an operand says: an array does.
fn element(driver: &Driver, operand: &BatchOperand) -> Result<Option<usize>, Status> {
    match operand.kind {
        POINTER => Ok(None),
        ARRAY => Ok(Some(driver.arrays.get(operand.at)?.element_bytes())),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// One side of a copy; lengths in elements.
fn side(operand: &BatchOperand, element: usize, extent: [usize; 3]) -> Result<Side3d, Status> {
    let bytes = |elements: usize| elements.checked_mul(element).ok_or(Status::INVALID_VALUE);
    let [width, height, _] = extent;
    let [first, second, third] = operand.rest;
    if operand.kind == ARRAY {
        return Ok(Side3d::of_array(operand.at, [bytes(first)?, second, third]));
    }
    if (first != 0 && first < width) || (second != 0 && second < height) {
        return Err(Status::INVALID_VALUE);
    }
    Ok(Side3d::of_pointer(operand.at, bytes(first)?, second))
}

fn shaped(driver: &Driver, operation: &BatchedCopy3d) -> Result<Copy3d, Status> {
    let BatchedCopy3d { from, to, extent, .. } = operation;
    let element = match (element(driver, from)?, element(driver, to)?) {
        (Some(one), Some(other)) if one != other => return Err(Status::INVALID_VALUE),
        (one, other) => one.or(other).unwrap_or(1),
    };
    let [width, height, depth] = *extent;
    if extent.contains(&0) {
        return Err(Status::INVALID_VALUE);
    }
    let width = width.checked_mul(element).ok_or(Status::INVALID_VALUE)?;
    Ok(Copy3d { from: side(from, element, *extent)?, to: side(to, element, *extent)?, width, height, depth })
}

fn copy_shapes(
    null: NullStream,
    count: usize,
    operations: &InSlice<BatchedCopy3d>,
    flags: u64,
    stream: u64,
) -> Result<(), Failed> {
    let (driver, target) = stream_of(null, stream).map_err(whole)?;
    if count == 0 || count > COUNT_MAX || flags != 0 {
        return Err(whole(Status::INVALID_VALUE));
    }
    let operations = operations.read(count).map_err(whole)?;
    all(driver, target, operations.iter(), |operation, waits| {
        check_order(operation.order, operation.flags)?;
        let during_call = operation.order == DURING_CALL;
        check_capture(driver, target, during_call)?;
        let copy = shaped(driver, operation)?;
        let from = &operation.from;
        *waits |= during_call && (from.kind == ARRAY || reads_later(driver, End::wide(Wide(from.at)))?);
        copy_shaped::in_order_of(driver, target, copy)
    })
}

pub(crate) fn copy_3d(
    null: NullStream,
    count: usize,
    operations: InSlice<BatchedCopy3d>,
    flags: u64,
    stream: u64,
) -> Answer {
    copy_shapes(null, count, &operations, flags, stream).map_err(|(_, status)| status)
}

/// The same as CUDA 12.8 has it.
pub(crate) fn copy_3d_1(
    null: NullStream,
    count: usize,
    operations: InSlice<BatchedCopy3d>,
    failed: OutMaybe<usize>,
    flags: u64,
    stream: u64,
) -> Answer {
    tell(copy_shapes(null, count, &operations, flags, stream), &failed)
}

/// Ranges of managed memory of one call.
fn ranges(
    addresses: &InSlice<u64>,
    sizes: &InSlice<usize>,
    count: usize,
    flags: u64,
) -> Result<Vec<(u64, usize)>, Status> {
    if count == 0 || count > COUNT_MAX || flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    Ok(addresses.read(count)?.into_iter().zip(sizes.read(count)?).collect())
}

/// What was there may stay: whoever reads it is told anything.
pub(crate) fn discard(
    null: NullStream,
    addresses: InSlice<u64>,
    sizes: InSlice<usize>,
    count: usize,
    flags: u64,
    stream: u64,
) -> Answer {
    stream_of(null, stream)?;
    for (address, bytes) in ranges(&addresses, &sizes, count, flags)? {
        managed::discard(null, address, bytes, stream)?;
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn prefetch(
    null: NullStream,
    addresses: InSlice<u64>,
    sizes: InSlice<usize>,
    count: usize,
    locations: InSlice<Location>,
    firsts: InSlice<usize>,
    locations_count: usize,
    flags: u64,
    stream: u64,
) -> Answer {
    stream_of(null, stream)?;
    let groups = groups(&firsts, locations_count, count)?;
    let locations = locations.read(locations_count)?;
    for ((address, bytes), group) in ranges(&addresses, &sizes, count, flags)?.into_iter().zip(groups) {
        let location = locations.get(group).ok_or(Status::INVALID_VALUE)?;
        managed::prefetch_by_location(null, address, bytes, *location, 0, stream)?;
    }
    Ok(())
}
