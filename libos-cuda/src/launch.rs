//! Launches: the hot path. Nothing here allocates, locks or asks anybody.

mod kernel;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use kernel::{Blocks, Kernel};

use crate::abi::{Extra, In, LaunchAttribute, LaunchConfig, NullStream, Parameters};
use crate::check as accesses;
use crate::context::current;
use crate::device::{Domain, GraphWork, Launch};
use crate::driver::{Driver, driver};
use crate::function::{self, Function};
use crate::graph::Work;
use crate::limits::Limits;
use crate::occupancy;
use crate::order::Target;
use crate::report;
use crate::status::{Answer, Status};

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
pub(crate) const COOPERATIVE: u32 = 2;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const EARLY: u32 = 6;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
pub(crate) const CLUSTERS: u32 = 4;

/// Where a launch's parameters come from.
enum Source<'a> {
    /// One pointer for each.
    Pointers(&'a Parameters),
    /// A block that is packed already.
    Block(&'a [u8]),
}

impl<'a> Source<'a> {
    /// The parameters that a call gives, as many as the function takes.
    #[inline]
    fn of(function: &Function, parameters: &'a Parameters, extra: &'a Extra) -> Result<Source<'a>, Status> {
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
        match source {
            Source::Block(block) if block.len() < function.own_bytes => Err(Status::INVALID_VALUE),
            Source::Block(_) | Source::Pointers(_) => Ok(source),
        }
    }

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

/// The same, and its blocks fit there at once where they have to.
#[inline]
fn check_blocks(driver: &Driver, function: &Function, launch: &Launch, blocks: Blocks) -> Answer {
    check(function, &driver.limits, launch)?;
    if blocks.is_together() && !occupancy::fits_at_once(driver.device(), function, launch) {
        return Err(Status::COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// Clusters are told by their sides; the device has none of more blocks than this on one.
const CLUSTER_SIDE_MAX: u32 = 16;

/// The sides of a cluster that an attribute names.
fn sides(value: &[u32]) -> Result<[u8; 3], Status> {
    let side = |at: usize| {
        let side = value.get(at).copied().filter(|side| (1..=CLUSTER_SIDE_MAX).contains(side));
        side.and_then(|side| u8::try_from(side).ok()).ok_or(Status::INVALID_VALUE)
    };
    Ok([side(0)?, side(1)?, side(2)?])
}

/// How an entry is launched, but for its parameters.
#[derive(Clone, Copy)]
struct Setup {
    launch: Launch,
    blocks: Blocks,
    /// Whether it may begin while the kernel before is about to end.
    early: bool,
}

#[inline]
fn launch_one(
    null: NullStream,
    handle: u64,
    setup: &Setup,
    stream: u64,
    parameters: &Parameters,
    extra: &Extra,
) -> Answer {
    let Setup { launch, blocks, early } = setup;
    let driver = driver()?;
    current()?;
    let function = function::find(&driver.functions, handle)?;
    let target = driver.target(null, stream)?;
    check_blocks(driver, function, launch, *blocks)?;
    let source = Source::of(function, parameters, extra)?;
    if let Some(capturing) = driver.streams.captures.of(target)? {
        let kernel = Kernel { early: *early, ..Kernel::pack(function, handle, launch, *blocks, &source) };
        return capturing.add(Work::Kernel(Arc::new(kernel)));
    }
    submit(driver, target, function, launch, *blocks, |block| source.pack(function, block))
}

#[inline]
fn submit(
    driver: &Driver,
    target: Target,
    function: &Function,
    launch: &Launch,
    blocks: Blocks,
    write: impl Fn(&mut [u8]),
) -> Answer {
    let _listed = accesses::before_launch(driver);
    driver.streams.submit(&driver.session, target, |stream| {
        let bytes = function.parameter_bytes;
        let launched = match blocks {
            Blocks::Apart => driver.session.launch_with(stream, function.handle, launch, bytes, &write),
            Blocks::Together => driver.session.launch_together_with(stream, &function.entry, launch, &write),
            Blocks::Clusters(sides, together) => {
                driver.session.launch_clusters_with(stream, &function.entry, launch, sides, together, &write)
            }
        };
        match launched {
            Ok(_) => Ok(()),
            Err(error) => Err(Status::of(&error)),
        }
    })
}

impl Kernel {
    pub(crate) fn new(
        driver: &'static Driver,
        handle: u64,
        launch: &Launch,
        blocks: Blocks,
        parameters: &Parameters,
        extra: &Extra,
    ) -> Result<Kernel, Status> {
        let function = function::find(&driver.functions, handle)?;
        check_blocks(driver, function, launch, blocks)?;
        let source = Source::of(function, parameters, extra)?;
        Ok(Kernel::pack(function, handle, launch, blocks, &source))
    }

    fn pack(
        function: &Function,
        handle: u64,
        launch: &Launch,
        blocks: Blocks,
        source: &Source<'_>,
    ) -> Kernel {
        let mut block: Box<[u8]> = vec![0; function.parameter_bytes].into();
        source.pack(function, &mut block);
        let start = block.as_ptr().expose_provenance();
        let addresses = function.parameters.iter().map(|slot| start + slot.offset).collect();
        Kernel { function: handle, launch: *launch, blocks, early: false, block, addresses }
    }

    /// That the launch can still be done.
    pub(crate) fn check(&self, driver: &'static Driver) -> Answer {
        check_blocks(driver, function::find(&driver.functions, self.function)?, &self.launch, self.blocks)
    }

    /// Calls `then` with it as the work of a device's graph's node.
    pub(crate) fn with_node<R>(
        &self,
        driver: &'static Driver,
        then: impl FnOnce(&GraphWork<'_>) -> R,
    ) -> Result<R, Status> {
        let function = function::find(&driver.functions, self.function)?;
        if self.blocks.is_together() && function.entry.waits_in_stream() {
            return Err(Status::NOT_SUPPORTED);
        }
        let (sides, together) = match self.blocks {
            Blocks::Apart => (None, false),
            Blocks::Together => (None, true),
            Blocks::Clusters(sides, together) => (Some(sides), together),
        };
        Ok(then(&GraphWork::Launch {
            entry: function.handle,
            launch: self.launch,
            sides,
            together,
            early: self.early,
            bytes: function.parameter_bytes,
            fill: &|block| self.write(block),
        }))
    }

    /// Launches it.
    pub(crate) fn run(&self, driver: &'static Driver, target: Target) -> Answer {
        let function = function::find(&driver.functions, self.function)?;
        submit(driver, target, function, &self.launch, self.blocks, |block| self.write(block))
    }
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
    let setup = Setup { launch, blocks: Blocks::Apart, early: false };
    launch_one(null, function, &setup, stream, &parameters, &extra)
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
    let setup = Setup { launch, blocks: Blocks::Together, early: false };
    launch_one(null, function, &setup, stream, &parameters, &Extra::none())
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
    let mut early = false;
    let isolated = driver()?.domain == Domain::Isolated;
    for attribute in config.attributes()? {
        if attribute.id == COOPERATIVE {
            blocks = blocks.with_together(attribute.value[0] != 0);
        }
        early |= attribute.id == EARLY && attribute.value[0] != 0;
        if attribute.id == CLUSTERS && isolated {
            if attribute.value.iter().take(3).any(|side| *side > 1) {
                blocks = blocks.in_clusters(sides(&attribute.value)?);
            }
            continue;
        }
        if let Err(why) = allowed(&attribute) {
            report::refused("cuLaunchKernelEx", why);
            return Err(Status::NOT_SUPPORTED);
        }
    }
    let launch = Launch { grid: config.grid, block: config.block, shared_bytes: config.shared_bytes };
    launch_one(null, function, &Setup { launch, blocks, early }, config.stream, &parameters, &extra)
}

/// Whether a launch with this attribute does what it should without it.
pub(crate) fn allowed(attribute: &LaunchAttribute) -> Result<(), &'static str> {
    let [first, second, third, ..] = attribute.value;
    match attribute.id {
        // Cache and scheduling hints, memory domains, and leave to start early, which a launch need not take.
        0 | 1 | COOPERATIVE | 3 | 5 | 6 | 8 | 9 | 10 | 14 | 16 => Ok(()),
        4 | 11 if [first, second, third].iter().all(|size| *size <= 1) => Ok(()),
        4 | 11 => Err("thread block clusters are not there"),
        13 if first == 0 => Ok(()),
        _ => Err("the launch has an attribute that is not there (events in a launch, device-side updates)"),
    }
}
