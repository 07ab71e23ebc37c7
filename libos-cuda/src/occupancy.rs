//! How many blocks of a function fit on a multiprocessor, from the device's attributes.

use crate::abi::{Out, SharedBytesOf};
use crate::attributes as number;
use crate::device::{Device, Launch};
use crate::driver::driver;
use crate::function::{self, Function};
use crate::status::{Answer, Status};

/// Registers are given to a warp in units of this many.
const REGISTER_UNIT: u32 = 256;
/// Warps of a block are counted in units of this many when registers are given.
const WARP_UNIT: u32 = 4;
/// Shared memory is given in units of this many bytes.
const SHARED_UNIT: u64 = 128;
const FLAGS: u32 = 1;

/// What a multiprocessor has.
#[derive(Debug, Clone, Copy)]
struct Multiprocessor {
    warp_threads: u32,
    threads: u32,
    blocks: u32,
    registers: u32,
    block_registers: u32,
    shared_bytes: u64,
    shared_reserved: u64,
    count: u32,
    block_threads: u32,
}

impl Multiprocessor {
    fn of(device: &Device) -> Multiprocessor {
        let value =
            |number: u32| device.attribute(number).and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
        Multiprocessor {
            warp_threads: value(number::WARP_THREADS).max(1),
            threads: value(number::THREADS_PER_MULTIPROCESSOR),
            blocks: value(number::BLOCKS_PER_MULTIPROCESSOR).max(1),
            registers: value(number::REGISTERS_PER_MULTIPROCESSOR),
            block_registers: value(number::REGISTERS_PER_BLOCK),
            shared_bytes: value(number::SHARED_BYTES_PER_MULTIPROCESSOR).into(),
            shared_reserved: value(number::SHARED_BYTES_RESERVED).into(),
            count: value(number::MULTIPROCESSORS).max(1),
            block_threads: value(number::THREADS_PER_BLOCK_MAX),
        }
    }

    /// Blocks of `threads` threads that fit at a time.
    fn fit(&self, function: &Function, threads: u32, dynamic_shared: u64) -> u32 {
        let shared = u64::from(function.entry.shared_bytes) + dynamic_shared;
        if threads == 0 || threads > function.entry.threads_max.min(self.block_threads) {
            return 0;
        }
        let warps = threads.div_ceil(self.warp_threads);
        let mut fit = self.blocks.min(self.threads / self.warp_threads / warps);
        if function.entry.registers > 0 {
            let warp_registers =
                (function.entry.registers * self.warp_threads).next_multiple_of(REGISTER_UNIT);
            if warp_registers * warps.next_multiple_of(WARP_UNIT) > self.block_registers {
                return 0;
            }
            // Each of the four parts of a multiprocessor has its own registers.
            let warps_fit = self.registers / WARP_UNIT / warp_registers * WARP_UNIT;
            fit = fit.min(warps_fit / warps);
        }
        let block_shared = (shared + self.shared_reserved).next_multiple_of(SHARED_UNIT);
        let shared_fit = self.shared_bytes.checked_div(block_shared).unwrap_or(u64::from(fit));
        fit.min(u32::try_from(shared_fit).unwrap_or(u32::MAX))
    }
}

/// Whether all blocks of a launch are on the device at once, if nobody else has any.
pub(crate) fn fits_at_once(device: &Device, function: &Function, launch: &Launch) -> bool {
    let multiprocessor = Multiprocessor::of(device);
    let threads = launch.block.iter().fold(1_u32, |threads, side| threads.saturating_mul(*side));
    let blocks = launch.grid.iter().fold(1_u64, |blocks, side| blocks.saturating_mul((*side).into()));
    let fit = multiprocessor.fit(function, threads, launch.shared_bytes.into());
    blocks <= u64::from(fit) * u64::from(multiprocessor.count)
}

fn of_function(handle: u64) -> Result<(Multiprocessor, &'static Function), Status> {
    let driver = driver()?;
    Ok((Multiprocessor::of(driver.device()), function::find(&driver.functions, handle)?))
}

fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn blocks(to: Out<i32>, function: u64, block: i32, shared_bytes: usize) -> Answer {
    let (multiprocessor, function) = of_function(function)?;
    let threads = u32::try_from(block).ok().filter(|threads| *threads > 0).ok_or(Status::INVALID_VALUE)?;
    to.set(to_i32(multiprocessor.fit(function, threads, shared_bytes as u64)));
    Ok(())
}

pub(crate) fn blocks_with_flags(
    to: Out<i32>,
    function: u64,
    block: i32,
    shared_bytes: usize,
    flags: u32,
) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    blocks(to, function, block, shared_bytes)
}

/// The block size that keeps most threads on a multiprocessor, and the grid that fills the device with it.
pub(crate) fn block_size(
    grid: Out<i32>,
    block: Out<i32>,
    function: u64,
    shared_of: SharedBytesOf,
    shared_bytes: usize,
    limit: i32,
) -> Answer {
    let (multiprocessor, function) = of_function(function)?;
    let most = function.entry.threads_max.min(multiprocessor.block_threads);
    let most = match u32::try_from(limit).map_err(|_| Status::INVALID_VALUE)? {
        0 => most,
        limit => most.min(limit),
    };
    let mut best = (0, 0, 0);
    let mut threads = most;
    while threads > 0 {
        let shared = shared_of.0.map_or(shared_bytes, |shared| shared(to_i32(threads)));
        let fit = multiprocessor.fit(function, threads, shared as u64);
        if fit * threads > best.0 {
            best = (fit * threads, threads, fit);
        }
        // From the limit down to whole warps, then warp by warp.
        threads = (threads - 1) / multiprocessor.warp_threads * multiprocessor.warp_threads;
    }
    let (_, threads, fit) = best;
    grid.set(to_i32(fit.saturating_mul(multiprocessor.count)));
    block.set(to_i32(threads));
    Ok(())
}

pub(crate) fn block_size_with_flags(
    grid: Out<i32>,
    block: Out<i32>,
    function: u64,
    shared_of: SharedBytesOf,
    shared_bytes: usize,
    limit: i32,
    flags: u32,
) -> Answer {
    if flags & !FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    block_size(grid, block, function, shared_of, shared_bytes, limit)
}

/// Dynamic shared memory that each of `blocks` blocks on one multiprocessor may have.
pub(crate) fn available_shared(to: Out<usize>, function: u64, blocks: i32, block: i32) -> Answer {
    let (multiprocessor, function) = of_function(function)?;
    let blocks = u64::try_from(blocks).ok().filter(|blocks| *blocks > 0).ok_or(Status::INVALID_VALUE)?;
    let threads = u32::try_from(block).map_err(|_| Status::INVALID_VALUE)?;
    if u64::from(multiprocessor.fit(function, threads, 0)) < blocks {
        return Err(Status::INVALID_VALUE);
    }
    let each = multiprocessor.shared_bytes / blocks / SHARED_UNIT * SHARED_UNIT;
    let taken = multiprocessor.shared_reserved + u64::from(function.entry.shared_bytes);
    let most = driver()?.limits.shared_bytes_max.saturating_sub(function.entry.shared_bytes);
    let bytes = each.saturating_sub(taken).min(most.into());
    to.set(usize::try_from(bytes).unwrap_or(usize::MAX));
    Ok(())
}
