//! Launches: the hot path. Nothing here allocates, locks or asks anybody.

use std::sync::atomic::Ordering;

use crate::abi::{Extra, In, LaunchAttribute, LaunchConfig, NullStream, Parameters};
use crate::check as accesses;
use crate::context::current;
use crate::device::Launch;
use crate::driver::driver;
use crate::function::{self, Function};
use crate::occupancy;
use crate::query::Limits;
use crate::report;
use crate::status::{Answer, Status};

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
const COOPERATIVE: u32 = 2;

/// Where a launch's parameters come from.
enum Source<'a> {
    /// One pointer for each.
    Pointers(&'a Parameters),
    /// A block that is packed already.
    Block(&'a [u8]),
}

impl Source<'_> {
    /// Puts the parameters where the function's layout says.
    #[inline]
    fn pack(&self, function: &Function, block: &mut [u8]) {
        match self {
            Source::Pointers(pointers) => {
                if function.has_gaps {
                    block.fill(0);
                }
                for (index, slot) in function.parameters.iter().enumerate() {
                    if let Some(place) = block.get_mut(slot.offset..slot.offset + slot.bytes) {
                        pointers.copy(index, place);
                    }
                }
            }
            Source::Block(content) => {
                let own = function.own_bytes.min(block.len());
                if let (Some(block), Some(content)) = (block.get_mut(..own), content.get(..own)) {
                    block.copy_from_slice(content);
                }
            }
        }
        function.entry.place_data(block);
    }
}

/// The launch is one that the device can do.
#[inline]
fn check(function: &Function, limits: &Limits, launch: &Launch) -> Answer {
    let within = |sizes: &[u32; 3], most: &[u32; 3]| {
        sizes.iter().zip(most).all(|(size, most)| (1..=*most).contains(size))
    };
    let threads = launch.block.iter().fold(1u64, |product, size| product.saturating_mul((*size).into()));
    if !within(&launch.grid, &limits.grid)
        || !within(&launch.block, &limits.block)
        || threads > u64::from(limits.block_threads)
    {
        return Err(Status::INVALID_VALUE);
    }
    if launch.shared_bytes > function.dynamic_shared_max.load(Ordering::Relaxed) {
        return Err(Status::INVALID_VALUE);
    }
    if threads > u64::from(function.entry.threads_max) {
        return Err(Status::LAUNCH_OUT_OF_RESOURCES);
    }
    Ok(())
}

/// Whether a launch's blocks may wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocks {
    Apart,
    Together,
}

#[inline]
fn launch_one(
    null: NullStream,
    handle: u64,
    (launch, blocks): (&Launch, Blocks),
    stream: u64,
    parameters: &Parameters,
    extra: &Extra,
) -> Answer {
    let driver = driver()?;
    current()?;
    let function = function::find(driver, handle)?;
    let target = driver.streams.target(null, stream)?;
    check(function, &driver.limits, launch)?;
    if blocks == Blocks::Together && !occupancy::fits_at_once(driver.device(), function, launch) {
        return Err(Status::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    let source = if !parameters.is_null() {
        if !extra.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        Source::Pointers(parameters)
    } else if function.parameters.is_empty() {
        Source::Block(&[])
    } else if extra.is_null() {
        return Err(Status::INVALID_VALUE);
    } else {
        Source::Block(extra.block()?)
    };
    if matches!(source, Source::Block(block) if block.len() < function.own_bytes) {
        return Err(Status::INVALID_VALUE);
    }
    let _listed = accesses::before_launch(driver);
    driver.streams.submit(&driver.session, target, |stream| {
        let bytes = function.parameter_bytes;
        let write = |block: &mut [u8]| source.pack(function, block);
        let launched = match blocks {
            Blocks::Apart => driver.session.launch_with(stream, function.handle, launch, bytes, write),
            Blocks::Together => driver.session.launch_together_with(stream, &function.entry, launch, write),
        };
        match launched {
            Ok(_) => Ok(()),
            Err(error) => Err(Status::of(&error)),
        }
    })
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn launch(
    null: NullStream,
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: u64,
    parameters: Parameters,
    extra: Extra,
) -> Answer {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch = Launch { grid, block, shared_bytes };
    launch_one(null, function, (&launch, Blocks::Apart), stream, &parameters, &extra)
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn launch_cooperative(
    null: NullStream,
    function: u64,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: u64,
    parameters: Parameters,
) -> Answer {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let launch = Launch { grid, block, shared_bytes };
    launch_one(null, function, (&launch, Blocks::Together), stream, &parameters, &Extra::none())
}

pub(crate) fn launch_with(
    null: NullStream,
    config: In<LaunchConfig>,
    function: u64,
    parameters: Parameters,
    extra: Extra,
) -> Answer {
    let config = config.0;
    let mut blocks = Blocks::Apart;
    for attribute in config.attributes()? {
        if attribute.id == COOPERATIVE && attribute.value[0] != 0 {
            blocks = Blocks::Together;
        }
        if let Err(why) = allowed(&attribute) {
            report::refused("cuLaunchKernelEx", why);
            return Err(Status::NOT_SUPPORTED);
        }
    }
    let launch = Launch { grid: config.grid, block: config.block, shared_bytes: config.shared_bytes };
    launch_one(null, function, (&launch, blocks), config.stream, &parameters, &extra)
}

/// Whether a launch with this attribute does what it should without it.
fn allowed(attribute: &LaunchAttribute) -> Result<(), &'static str> {
    let [first, second, third, ..] = attribute.value;
    match attribute.id {
        // Cache and scheduling hints, memory domains, and leave to start early, which a launch need not take.
        0 | 1 | COOPERATIVE | 3 | 5 | 6 | 8 | 9 | 10 | 14 | 16 => Ok(()),
        4 | 11 if [first, second, third].iter().all(|size| *size <= 1) => Ok(()),
        4 | 11 => Err("thread block clusters are not there; run it in an isolated session"),
        13 if first == 0 => Ok(()),
        _ => Err("the launch has an attribute that is not there (events in a launch, device-side updates)"),
    }
}
