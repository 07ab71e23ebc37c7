//! What the driver of an isolated session answers: clusters of blocks, and tensor maps. Guarded code has neither.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::abi::{In, InSlice, LaunchConfig, Out};
use crate::device::{Domain, Question};
use crate::driver::{Driver, driver};
use crate::function;
use crate::launch::{CLUSTERS, COOPERATIVE};
use crate::report;
use crate::status::{Answer, Status};

/// Answers that are kept: programs ask the same again for each launch.
const KEPT_MAX: usize = 4096;

/// The same of one function's clusters.
const CLUSTERS_KEPT_MAX: usize = 64;

/// A tensor map: what it holds is the driver's.
type TensorMap = [u64; 16];

static TENSOR_MAPS: Mutex<Option<HashMap<Vec<u64>, TensorMap>>> = Mutex::new(None);

/// The driver, where the session is isolated.
fn isolated(call: &str, what: &str) -> Result<&'static Driver, Status> {
    let driver = driver()?;
    if driver.domain == Domain::Isolated {
        return Ok(driver);
    }
    report::refused(call, &format!("{what} in guarded sessions: `bulkhead run --domain isolated`"));
    Err(Status::NOT_SUPPORTED)
}

fn clusters(call: &str, question: Question, to: &Out<i32>, function: u64, config: &LaunchConfig) -> Answer {
    let driver = isolated(call, "thread block clusters are not there")?;
    let function = function::find(&driver.functions, function)?;
    let (mut sides, mut together) = ([0; 3], 0);
    for attribute in config.attributes()? {
        match attribute.id {
            CLUSTERS => sides.copy_from_slice(attribute.value.get(..3).unwrap_or(&[0; 3])),
            COOPERATIVE => together = attribute.value[0],
            _ => {}
        }
    }
    let shape = config.grid.iter().chain(&config.block).chain([&config.shared_bytes]);
    let words: Vec<u64> = shape.chain(&sides).chain([&together]).map(|word| u64::from(*word)).collect();
    let dynamic_shared = function.dynamic_shared_max.load(Ordering::Relaxed);
    let kind = matches!(question, Question::ActiveClusters);
    let asked: Vec<u64> = words.iter().copied().chain([dynamic_shared.into(), kind.into()]).collect();
    if let Some(count) = function.clusters.lock().get(&asked) {
        to.set(*count);
        return Ok(());
    }
    let answered = driver.session.ask_driver(question, Some(&function.entry), &words);
    let answered = answered.map_err(|error| Status::of(&error))?;
    let count = answered.first().and_then(|count| i32::try_from(*count).ok());
    let count = count.ok_or(Status::UNKNOWN)?;
    to.set(count);
    let mut kept = function.clusters.lock();
    if kept.len() >= CLUSTERS_KEPT_MAX {
        kept.clear();
    }
    kept.insert(asked, count);
    Ok(())
}

pub(crate) fn active_clusters(to: Out<i32>, function: u64, config: In<LaunchConfig>) -> Answer {
    clusters("cuOccupancyMaxActiveClusters", Question::ActiveClusters, &to, function, &config.0)
}

pub(crate) fn cluster_size(to: Out<i32>, function: u64, config: In<LaunchConfig>) -> Answer {
    clusters("cuOccupancyMaxPotentialClusterSize", Question::ClusterSize, &to, function, &config.0)
}

/// Puts words into a question, and zeros up to where the next begin.
fn put<T: Copy + Into<u64>>(into: &mut Vec<u64>, words: &[T], room: usize) {
    into.extend(words.iter().map(|word| (*word).into()));
    into.extend(std::iter::repeat_n(0, room - words.len().min(room)));
}

fn rank_of(rank: u32) -> Result<usize, Status> {
    let rank = usize::try_from(rank).map_err(|_| Status::INVALID_VALUE)?;
    if (1..=5).contains(&rank) { Ok(rank) } else { Err(Status::INVALID_VALUE) }
}

fn tensor_map(driver: &Driver, question: Question, to: &Out<TensorMap>, words: Vec<u64>) -> Answer {
    // The questions differ in length.
    let known = TENSOR_MAPS.lock().as_ref().and_then(|maps| maps.get(&words).copied());
    if let Some(map) = known {
        to.set(map);
        return Ok(());
    }
    let made = driver.session.ask_driver(question, None, &words).map_err(|error| Status::of(&error))?;
    let map = TensorMap::try_from(made).map_err(|_| Status::UNKNOWN)?;
    to.set(map);
    let mut maps = TENSOR_MAPS.lock();
    let maps = maps.get_or_insert_with(HashMap::new);
    if maps.len() >= KEPT_MAX {
        maps.clear();
    }
    maps.insert(words, map);
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn tensor_map_tiled(
    to: Out<TensorMap>,
    kind: u32,
    rank: u32,
    address: u64,
    dimensions: InSlice<u64>,
    strides: InSlice<u64>,
    sides: InSlice<u32>,
    elements: InSlice<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> Answer {
    let driver = isolated("cuTensorMapEncodeTiled", "tensor maps and bulk copies (TMA) are not there")?;
    let many = rank_of(rank)?;
    let mut words = vec![u64::from(kind), u64::from(rank), address];
    put(&mut words, &dimensions.read(many)?, 5);
    put(&mut words, &strides.read(many - 1)?, 4);
    put(&mut words, &sides.read(many)?, 5);
    put(&mut words, &elements.read(many)?, 5);
    put(&mut words, &[interleave, swizzle, promotion, fill], 4);
    tensor_map(driver, Question::TensorMapTiled, &to, words)
}

#[expect(clippy::too_many_arguments, reason = "CUDA's signature")]
pub(crate) fn tensor_map_im2col(
    to: Out<TensorMap>,
    kind: u32,
    rank: u32,
    address: u64,
    dimensions: InSlice<u64>,
    strides: InSlice<u64>,
    lower: InSlice<u32>,
    upper: InSlice<u32>,
    channels: u32,
    pixels: u32,
    elements: InSlice<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> Answer {
    let driver = isolated("cuTensorMapEncodeIm2col", "tensor maps and bulk copies (TMA) are not there")?;
    let many = rank_of(rank)?;
    let corners = many.checked_sub(2).ok_or(Status::INVALID_VALUE)?;
    let mut words = vec![u64::from(kind), u64::from(rank), address];
    put(&mut words, &dimensions.read(many)?, 5);
    put(&mut words, &strides.read(many - 1)?, 4);
    put(&mut words, &lower.read(corners)?, 3);
    put(&mut words, &upper.read(corners)?, 3);
    put(&mut words, &[channels, pixels], 2);
    put(&mut words, &elements.read(many)?, 5);
    put(&mut words, &[interleave, swizzle, promotion, fill], 4);
    tensor_map(driver, Question::TensorMapIm2col, &to, words)
}
