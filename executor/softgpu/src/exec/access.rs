//! Loads, stores and atomic operations of a warp.

use super::step::region_of;
use super::warp::{Frame, Warp};
use crate::alu::{LANES, Lanes, convert};
use crate::code::{
    At, AtomicOp, CONSTANT_WINDOW, Dst, LOCAL_WINDOW, PARAMETER_WINDOW, Region, SHARED_BASE, SHARED_WINDOW,
    Shape, Src,
};
use crate::fault::Fault;
use crate::memory::Violation;
use crate::memory::view::Intent;

type Result<T> = std::result::Result<T, (Fault, usize)>;

/// Addresses of an access, lane by lane.
fn addresses(at: At, registers: &[Lanes], constants: &[Lanes]) -> Lanes {
    let mut out = *at.base.of(registers, constants);
    if at.offset != 0 {
        for lane in &mut out {
            *lane = lane.wrapping_add_signed(at.offset);
        }
    }
    out
}

fn name(region: Region) -> &'static str {
    match region {
        Region::Global => "global",
        Region::Shared => "shared",
        Region::Local => "local",
        Region::Constant => "constant",
        Region::Parameter => "parameter",
        Region::Generic => "generic",
    }
}

fn fault(violation: Violation, region: Region, address: u64, lane: usize) -> (Fault, usize) {
    (Fault::access(violation, name(region), address), lane)
}

/// The bytes of an access to memory that belongs to one block or launch alone.
#[inline(always)]
fn range(len: usize, base: u64, address: u64, size: u64) -> std::result::Result<usize, Violation> {
    if address & (size - 1) != 0 {
        return Err(Violation::Misaligned);
    }
    let offset = address.wrapping_sub(base);
    match usize::try_from(offset) {
        Ok(offset) if offset < len && len - offset >= size as usize => Ok(offset),
        _ => Err(Violation::Unmapped),
    }
}

#[inline(always)]
fn read(bytes: &[u8], offset: usize, size: u64) -> u64 {
    let mut word = [0; 8];
    let size = size as usize;
    word[..size].copy_from_slice(&bytes[offset..offset + size]);
    u64::from_le_bytes(word)
}

#[inline(always)]
fn write(bytes: &mut [u8], offset: usize, size: u64, value: u64) {
    let size = size as usize;
    bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Turns a generic address into a region and an address in it.
#[inline(always)]
fn resolve(region: Region, address: u64) -> (Region, u64) {
    if region != Region::Generic {
        return (region, address);
    }
    let region = region_of(address);
    let window = match region {
        Region::Shared => SHARED_WINDOW,
        Region::Local => LOCAL_WINDOW,
        Region::Constant => CONSTANT_WINDOW,
        Region::Parameter => PARAMETER_WINDOW,
        Region::Global | Region::Generic => 0,
    };
    (region, address - window)
}

impl Warp {
    /// A loaded word, or why not.
    #[inline(always)]
    fn load_word(
        local: &[u8],
        frame: &mut Frame<'_>,
        lane: usize,
        (region, address): (Region, u64),
        size: u64,
    ) -> std::result::Result<u64, Violation> {
        let (bytes, base): (&[u8], u64) = match region {
            Region::Global | Region::Generic => {
                let (bytes, offset) = frame.core.view.locate(address, size, Intent::Load)?;
                return Ok(bytes.load(offset, size as usize));
            }
            Region::Shared => (frame.shared, SHARED_BASE),
            Region::Local => {
                let each = local.len() / LANES;
                (&local[each * lane..each * (lane + 1)], 0)
            }
            Region::Constant => (&frame.grid.constants.bytes, 0),
            Region::Parameter => (&frame.grid.parameters, 0),
        };
        Ok(read(bytes, range(bytes.len(), base, address, size)?, size))
    }

    #[inline(always)]
    fn store_word(
        local: &mut [u8],
        frame: &mut Frame<'_>,
        lane: usize,
        (region, address): (Region, u64),
        size: u64,
        value: u64,
    ) -> std::result::Result<(), Violation> {
        let (bytes, base): (&mut [u8], u64) = match region {
            Region::Global | Region::Generic => {
                let (bytes, offset) = frame.core.view.locate(address, size, Intent::Store)?;
                bytes.store(offset, size as usize, value);
                return Ok(());
            }
            Region::Shared => (frame.shared, SHARED_BASE),
            Region::Local => {
                let each = local.len() / LANES;
                (&mut local[each * lane..each * (lane + 1)], 0)
            }
            Region::Constant | Region::Parameter => return Err(Violation::ReadOnly),
        };
        let offset = range(bytes.len(), base, address, size)?;
        write(bytes, offset, size, value);
        Ok(())
    }

    /// `ld`
    pub(crate) fn load(
        &mut self,
        frame: &mut Frame<'_>,
        active: u32,
        shape: Shape,
        at: At,
        d: [Dst; 4],
    ) -> Result<()> {
        let addresses = addresses(at, &self.registers, &frame.program.constants);
        let size = u64::from(shape.size);
        let whole = size * u64::from(shape.count);
        frame.core.view.refresh();
        let extension = match shape.extend {
            0 => None,
            bits => convert::sign_extend(u32::from(shape.size) * 8, u32::from(bits)),
        };
        let mut out = [[0; LANES]; 4];
        for lane in 0..LANES {
            if active >> lane & 1 == 0 {
                continue;
            }
            let (region, address) = resolve(shape.region, addresses[lane]);
            if address & (whole - 1) != 0 {
                return Err(fault(Violation::Misaligned, region, addresses[lane], lane));
            }
            for (index, out) in out.iter_mut().take(usize::from(shape.count)).enumerate() {
                let address = address.wrapping_add(size * index as u64);
                out[lane] = Self::load_word(&self.local, frame, lane, (region, address), size)
                    .map_err(|violation| fault(violation, region, address, lane))?;
            }
        }
        for (d, out) in d.into_iter().zip(&out).take(usize::from(shape.count)) {
            match extension {
                None => self.write(d, out, active),
                Some(extend) => {
                    let mut extended = [0; LANES];
                    extend(out, &mut extended);
                    self.write(d, &extended, active);
                }
            }
        }
        Ok(())
    }

    /// `st`
    pub(crate) fn store(
        &mut self,
        frame: &mut Frame<'_>,
        active: u32,
        shape: Shape,
        at: At,
        a: [Src; 4],
    ) -> Result<()> {
        let constants = &frame.program.constants;
        let addresses = addresses(at, &self.registers, constants);
        let values = a.map(|a| a.of(&self.registers, constants));
        let size = u64::from(shape.size);
        let whole = size * u64::from(shape.count);
        frame.core.view.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 0 {
                continue;
            }
            let (region, address) = resolve(shape.region, addresses[lane]);
            if address & (whole - 1) != 0 {
                return Err(fault(Violation::Misaligned, region, addresses[lane], lane));
            }
            for (index, value) in values.iter().take(usize::from(shape.count)).enumerate() {
                let address = address.wrapping_add(size * index as u64);
                Self::store_word(&mut self.local, frame, lane, (region, address), size, value[lane])
                    .map_err(|violation| fault(violation, region, address, lane))?;
            }
        }
        Ok(())
    }

    /// `atom` and `red`: one lane after the other, each atomic towards everybody.
    pub(crate) fn atomic(
        &mut self,
        frame: &mut Frame<'_>,
        active: u32,
        (op, region, size): (AtomicOp, Region, u8),
        (d, at, a, b): (Dst, At, Src, Src),
    ) -> Result<()> {
        let constants = &frame.program.constants;
        let addresses = addresses(at, &self.registers, constants);
        let (a, b) = (a.of(&self.registers, constants), b.of(&self.registers, constants));
        let bytes = u64::from(size);
        let mut out = [0; LANES];
        frame.core.view.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 0 {
                continue;
            }
            let change = |old: u64| match op {
                AtomicOp::Update(f) => f(old, a[lane]),
                AtomicOp::CompareSwap => {
                    if old == a[lane] {
                        b[lane]
                    } else {
                        old
                    }
                }
            };
            let (region, address) = resolve(region, addresses[lane]);
            let old = match region {
                Region::Global | Region::Generic => frame
                    .core
                    .view
                    .locate(address, bytes, Intent::Store)
                    .map(|(memory, offset)| memory.update(offset, usize::from(size), change)),
                Region::Shared => range(frame.shared.len(), SHARED_BASE, address, bytes).map(|offset| {
                    let old = read(frame.shared, offset, bytes);
                    write(frame.shared, offset, bytes, change(old));
                    old
                }),
                Region::Local | Region::Constant | Region::Parameter => Err(Violation::ReadOnly),
            };
            out[lane] = old.map_err(|violation| fault(violation, region, address, lane))?;
        }
        self.write(d, &out, active);
        Ok(())
    }

    /// `cp.async`: from global to shared memory.
    pub(crate) fn copy(
        &mut self,
        frame: &mut Frame<'_>,
        active: u32,
        bytes: u8,
        (to, from): (At, At),
        valid: Src,
    ) -> Result<()> {
        let constants = &frame.program.constants;
        let targets = addresses(to, &self.registers, constants);
        let sources = addresses(from, &self.registers, constants);
        let valid = valid.of(&self.registers, constants);
        let whole = u64::from(bytes);
        frame.core.view.refresh();
        for lane in 0..LANES {
            if active >> lane & 1 == 0 {
                continue;
            }
            let (source, target) = (sources[lane], targets[lane]);
            if source & (whole - 1) != 0 {
                return Err(fault(Violation::Misaligned, Region::Global, source, lane));
            }
            let target = range(frame.shared.len(), SHARED_BASE, target, whole)
                .map_err(|violation| fault(violation, Region::Shared, target, lane))?;
            for index in 0..whole {
                let byte = if index < valid[lane] & 0xffff_ffff {
                    let (memory, offset) = frame
                        .core
                        .view
                        .locate(source + index, 1, Intent::Load)
                        .map_err(|violation| fault(violation, Region::Global, source + index, lane))?;
                    memory.load(offset, 1)
                } else {
                    0
                };
                write(frame.shared, target + index as usize, 1, byte);
            }
        }
        Ok(())
    }
}
