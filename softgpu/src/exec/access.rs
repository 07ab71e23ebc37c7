//! Loads, stores and atomic operations of a warp.

use super::frame::Frame;
use super::mask::{first, lanes};
use super::warp::Warp;
use crate::alu::{LANES, Lanes, convert};
use crate::code::{
    At, Atomic, CONSTANT_WINDOW, Dst, LOCAL_WINDOW, PARAMETER_WINDOW, Region, SHARED_BASE, SHARED_WINDOW,
    Shape, Src, region_of,
};
use crate::fault::Fault;
use crate::memory::Violation;
use crate::memory::space::WINDOWS;

/// A fault and the lane it happened in.
type Result<T> = std::result::Result<T, (Fault, usize)>;
/// A violation and the lane it happened in.
pub(crate) type Tried<T> = std::result::Result<T, (Violation, usize)>;

/// Memory of one block, warp or launch alone.
struct Own<T> {
    bytes: T,
    /// Address of its first byte.
    base: u64,
    /// Bytes that each lane sees.
    each: usize,
    /// Distance between what two lanes see; zero where all see the same.
    stride: usize,
}

impl<T: AsRef<[u8]>> Own<T> {
    #[inline(always)]
    fn place<const N: usize>(&self, lane: usize, address: u64) -> std::result::Result<usize, Violation> {
        if address as usize & (N - 1) != 0 {
            return Err(Violation::Misaligned);
        }
        let offset = address.wrapping_sub(self.base) as usize;
        if offset < self.each && self.each - offset >= N {
            Ok(offset + self.stride * lane)
        } else {
            Err(Violation::Unmapped)
        }
    }

    #[inline(always)]
    fn read<const N: usize>(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word[..N].copy_from_slice(&self.bytes.as_ref()[at..at + N]);
        u64::from_le_bytes(word)
    }

    fn gather<const N: usize>(&self, addresses: &Lanes, active: u32, out: &mut Lanes) -> Tried<()> {
        for lane in lanes(active) {
            let at = self.place::<N>(lane, addresses[lane]).map_err(|violation| (violation, lane))?;
            out[lane] = self.read::<N>(at);
        }
        Ok(())
    }
}

impl Own<&mut [u8]> {
    #[inline(always)]
    fn write<const N: usize>(&mut self, at: usize, value: u64) {
        self.bytes[at..at + N].copy_from_slice(&value.to_le_bytes()[..N]);
    }

    fn scatter<const N: usize>(&mut self, addresses: &Lanes, active: u32, values: &Lanes) -> Tried<()> {
        for lane in lanes(active) {
            let at = self.place::<N>(lane, addresses[lane]).map_err(|violation| (violation, lane))?;
            self.write::<N>(at, values[lane]);
        }
        Ok(())
    }

    fn update<const N: usize>(
        &mut self,
        addresses: &Lanes,
        active: u32,
        change: impl Fn(usize, u64) -> u64,
        out: &mut Lanes,
    ) -> Tried<()> {
        for lane in lanes(active) {
            let at = self.place::<N>(lane, addresses[lane]).map_err(|violation| (violation, lane))?;
            let old = self.read::<N>(at);
            self.write::<N>(at, change(lane, old));
            out[lane] = old;
        }
        Ok(())
    }
}

/// Calls a function for the size of an access.
macro_rules! by_size {
    ($size:expr, $object:expr, $f:ident($($argument:expr),*)) => {
        match $size {
            1 => $object.$f::<1>($($argument),*),
            2 => $object.$f::<2>($($argument),*),
            4 => $object.$f::<4>($($argument),*),
            _ => $object.$f::<8>($($argument),*),
        }
    };
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

/// Whether memory is one that all blocks, copies and processes use at the same time.
const fn is_global(region: Region) -> bool {
    matches!(region, Region::Global | Region::Generic)
}

/// So many bits of a vector, 64 at most, from one on.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are what is meant")]
const fn part(whole: u128, from: usize, bits: usize) -> u64 {
    (whole >> from) as u64 & (u64::MAX >> (64 - bits))
}

/// Where generic addresses of a region start.
fn window(region: Region) -> u64 {
    match region {
        Region::Shared => SHARED_WINDOW,
        Region::Local => LOCAL_WINDOW,
        Region::Constant => CONSTANT_WINDOW,
        Region::Parameter => PARAMETER_WINDOW,
        Region::Global | Region::Generic => 0,
    }
}

/// Lanes whose generic addresses mean one region, and the addresses in it.
pub(super) struct Party {
    pub(super) region: Region,
    pub(super) lanes: u32,
    pub(super) addresses: Lanes,
}

/// Splits an access by region: one party, except where lanes of one generic access go to different memory.
pub(super) fn parties(
    region: Region,
    addresses: Lanes,
    active: u32,
    mut each: impl FnMut(Party) -> Result<()>,
) -> Result<()> {
    if region != Region::Generic {
        return each(Party { region, lanes: active, addresses });
    }
    let all_global = addresses.iter().all(|address| !WINDOWS.contains(address));
    if all_global {
        return each(Party { region: Region::Global, lanes: active, addresses });
    }
    let mut left = active;
    while left != 0 {
        let region = region_of(addresses[first(left)]);
        let same = lanes(left).filter(|lane| region_of(addresses[*lane]) == region);
        let party = same.fold(0, |mask, lane| mask | 1 << lane);
        let inside = addresses.map(|address| address.wrapping_sub(window(region)));
        each(Party { region, lanes: party, addresses: inside })?;
        left &= !party;
    }
    Ok(())
}

/// The addresses of an access, lane by lane.
#[inline(always)]
pub(super) fn addresses(at: At, registers: &[Lanes], constants: &[Lanes]) -> Lanes {
    let mut out = *at.base.of(registers, constants);
    if at.offset != 0 {
        advance(&mut out, at.offset);
    }
    out
}

/// The address of an access of one lane.
pub(super) fn address_of(at: At, lane: usize, registers: &[Lanes], constants: &[Lanes]) -> u64 {
    at.base.of(registers, constants)[lane].wrapping_add_signed(at.offset)
}

/// Moves all addresses by one distance.
#[inline(always)]
pub(super) fn advance(addresses: &mut [u64], distance: i64) {
    for address in addresses {
        *address = address.wrapping_add_signed(distance);
    }
}

/// Whether all addresses are multiples of what a vector needs.
pub(super) fn aligned(addresses: &Lanes, active: u32, whole: u64, region: Region) -> Result<()> {
    match lanes(active).find(|lane| addresses[*lane] & (whole - 1) != 0) {
        None => Ok(()),
        Some(lane) => Err((Fault::access(Violation::Misaligned, name(region), addresses[lane]), lane)),
    }
}

impl Warp {
    /// `ld`
    pub(crate) fn load(
        &mut self,
        frame: &mut Frame<'_>,
        active: u32,
        shape: Shape,
        at: At,
        d: [Dst; 4],
    ) -> Result<()> {
        let all = addresses(at, &self.registers, &frame.program.constants);
        let own = matches!(shape.region, Region::Constant | Region::Parameter | Region::Shared);
        if at.base.is_constant() && own {
            // One address for all lanes: one access.
            return self.load_party(
                frame,
                shape,
                Party { region: shape.region, lanes: active, addresses: all },
                d,
                true,
            );
        }
        parties(shape.region, all, active, |party| self.load_party(frame, shape, party, d, false))
    }

    fn load_party(
        &mut self,
        frame: &mut Frame<'_>,
        shape: Shape,
        party: Party,
        d: [Dst; 4],
        uniform: bool,
    ) -> Result<()> {
        let (size, count) = (u64::from(shape.size), usize::from(shape.count));
        let extend = match shape.extend {
            0 => None,
            bits => convert::sign_extend(u32::from(shape.size) * 8, u32::from(bits)),
        };
        if count > 1 {
            aligned(&party.addresses, party.lanes, size * count as u64, party.region)?;
            if is_global(party.region) {
                return self.load_vectors(frame, shape, &party, d);
            }
        }
        let Party { region, lanes: active, mut addresses } = party;
        let one = first(active);
        let asking = if uniform { 1 << one } else { active };
        for (index, d) in d.into_iter().take(count).enumerate() {
            if index > 0 {
                advance(&mut addresses, i64::from(shape.size));
            }
            let mut out = [0; LANES];
            self.gather_words(frame, region, &addresses, asking, size, &mut out).map_err(
                |(violation, lane)| (Fault::access(violation, name(region), addresses[lane]), lane),
            )?;
            if uniform {
                out = [out[one]; LANES];
            }
            if let Some(extend) = extend {
                let narrow = out;
                (extend.lanes)(&narrow, &mut out);
            }
            self.write(d, &out, active);
        }
        Ok(())
    }

    /// Vectors in global memory, each of which is loaded at once.
    fn load_vectors(
        &mut self,
        frame: &mut Frame<'_>,
        shape: Shape,
        party: &Party,
        d: [Dst; 4],
    ) -> Result<()> {
        let Party { region, lanes: active, addresses } = party;
        let bits = usize::from(shape.size) * 8;
        let count = usize::from(shape.count);
        let mut wholes = [0; LANES];
        let done = frame.core.view.gather_whole(addresses, *active, bits / 8 * count, &mut wholes);
        done.map_err(|(violation, lane)| (Fault::access(violation, name(*region), addresses[lane]), lane))?;
        let extend = match shape.extend {
            0 => None,
            to => convert::sign_extend(u32::from(shape.size) * 8, u32::from(to)),
        };
        for (index, d) in d.into_iter().take(count).enumerate() {
            let mut out = wholes.map(|whole| part(whole, index * bits, bits));
            if let Some(extend) = extend {
                let narrow = out;
                (extend.lanes)(&narrow, &mut out);
            }
            self.write(d, &out, *active);
        }
        Ok(())
    }

    /// A word of every lane's own.
    pub(super) fn words_at(
        &self,
        frame: &mut Frame<'_>,
        region: Region,
        places: &Lanes,
        size: u64,
        out: &mut Lanes,
    ) -> Result<()> {
        let done = self.gather_words(frame, region, places, u32::MAX, size, out);
        done.map_err(|(violation, lane)| (Fault::access(violation, name(region), places[lane]), lane))
    }

    /// Stores a word of every lane in global or shared memory.
    pub(super) fn put_words(
        &mut self,
        frame: &mut Frame<'_>,
        region: Region,
        places: &Lanes,
        size: u64,
        values: &Lanes,
    ) -> Result<()> {
        let done = if region == Region::Shared {
            let each = frame.shared.len();
            let mut own = Own { bytes: &mut *frame.shared, base: SHARED_BASE, each, stride: 0 };
            by_size!(size, own, scatter(places, u32::MAX, values))
        } else {
            let view = &mut frame.core.view;
            by_size!(size, view, scatter(places, u32::MAX, values))
        };
        done.map_err(|(violation, lane)| (Fault::access(violation, name(region), places[lane]), lane))
    }

    #[inline(always)]
    fn gather_words(
        &self,
        frame: &mut Frame<'_>,
        region: Region,
        addresses: &Lanes,
        active: u32,
        size: u64,
        out: &mut Lanes,
    ) -> Tried<()> {
        let (bytes, base): (&[u8], u64) = match region {
            Region::Global | Region::Generic => {
                let view = &mut frame.core.view;
                return by_size!(size, view, gather(addresses, active, out));
            }
            Region::Local => {
                let each = self.local.len() / LANES;
                let own = Own { bytes: &self.local[..], base: 0, each, stride: each };
                return by_size!(size, own, gather(addresses, active, out));
            }
            Region::Shared => (frame.shared, SHARED_BASE),
            Region::Constant => (&frame.grid.constants.bytes, 0),
            Region::Parameter => (&frame.grid.parameters, 0),
        };
        let own = Own { bytes, base, each: bytes.len(), stride: 0 };
        by_size!(size, own, gather(addresses, active, out))
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
        let all = addresses(at, &self.registers, constants);
        let size = u64::from(shape.size);
        let count = usize::from(shape.count);
        let registers = &self.registers;
        let local = &mut self.local;
        parties(shape.region, all, active, |party| {
            let Party { region, lanes: active, mut addresses } = party;
            if count > 1 {
                aligned(&addresses, active, size * count as u64, region)?;
            }
            if count > 1 && is_global(region) {
                let bits = usize::from(shape.size) * 8;
                let mut wholes = [0_u128; LANES];
                for (index, a) in a.iter().take(count).enumerate() {
                    for (whole, value) in wholes.iter_mut().zip(a.of(registers, constants)) {
                        *whole |= u128::from(part((*value).into(), 0, bits)) << (index * bits);
                    }
                }
                let whole = usize::from(shape.size) * count;
                let done = frame.core.view.scatter_whole(&addresses, active, whole, &wholes);
                return done.map_err(|(violation, lane)| {
                    (Fault::access(violation, name(region), addresses[lane]), lane)
                });
            }
            for (index, a) in a.iter().take(count).enumerate() {
                if index > 0 {
                    advance(&mut addresses, i64::from(shape.size));
                }
                let values = a.of(registers, constants);
                let done = match region {
                    Region::Global | Region::Generic => {
                        let view = &mut frame.core.view;
                        by_size!(size, view, scatter(&addresses, active, values))
                    }
                    Region::Shared => {
                        let each = frame.shared.len();
                        let mut own = Own { bytes: &mut *frame.shared, base: SHARED_BASE, each, stride: 0 };
                        by_size!(size, own, scatter(&addresses, active, values))
                    }
                    Region::Local => {
                        let each = local.len() / LANES;
                        let mut own = Own { bytes: &mut local[..], base: 0, each, stride: each };
                        by_size!(size, own, scatter(&addresses, active, values))
                    }
                    Region::Constant | Region::Parameter => Err((Violation::ReadOnly, first(active))),
                };
                done.map_err(|(violation, lane)| {
                    (Fault::access(violation, name(region), addresses[lane]), lane)
                })?;
            }
            Ok(())
        })
    }

    /// `atom` and `red`: one lane after the other, each atomic towards everybody.
    pub(crate) fn atomic(&mut self, frame: &mut Frame<'_>, active: u32, atomic: Atomic) -> Result<()> {
        let Atomic { op, region, size, d, at, a, b } = atomic;
        let constants = &frame.program.constants;
        let all = addresses(at, &self.registers, constants);
        let (a, b) = (a.of(&self.registers, constants), b.of(&self.registers, constants));
        let mut out = [0; LANES];
        parties(region, all, active, |party| {
            let Party { region, lanes: active, addresses } = party;
            let change = |lane: usize, old: u64| op.apply(old, a[lane], b[lane]);
            let done = match region {
                Region::Global | Region::Generic => {
                    let view = &mut frame.core.view;
                    by_size!(size, view, update(&addresses, active, change, &mut out))
                }
                Region::Shared => {
                    let each = frame.shared.len();
                    let mut own = Own { bytes: &mut *frame.shared, base: SHARED_BASE, each, stride: 0 };
                    by_size!(size, own, update(&addresses, active, change, &mut out))
                }
                Region::Local | Region::Constant | Region::Parameter => {
                    Err((Violation::ReadOnly, first(active)))
                }
            };
            done.map_err(|(violation, lane)| (Fault::access(violation, name(region), addresses[lane]), lane))
        })?;
        self.write(d, &out, active);
        Ok(())
    }

    /// `cp.async`: from global to shared memory.
    pub(crate) fn copy(
        &mut self,
        frame: &mut Frame<'_>,
        active: u32,
        bytes: u8,
        to: At,
        from: At,
        valid: Src,
    ) -> Result<()> {
        let constants = &frame.program.constants;
        let targets = addresses(to, &self.registers, constants);
        let sources = addresses(from, &self.registers, constants);
        let valid = valid.of(&self.registers, constants);
        let whole = u64::from(bytes);
        aligned(&targets, active, whole, Region::Shared)?;
        aligned(&sources, active, whole, Region::Global)?;
        frame.core.view.refresh();
        let each = frame.shared.len();
        let mut own = Own { bytes: &mut *frame.shared, base: SHARED_BASE, each, stride: 0 };
        let wrong =
            |region, address, lane| move |violation| (Fault::access(violation, region, address), lane);
        for lane in lanes(active) {
            let (source, target) = (sources[lane], targets[lane]);
            let valid = (valid[lane] & 0xffff_ffff).min(whole);
            let mut value = 0_u128;
            if valid == whole {
                let loaded = frame.core.view.load_whole(source, usize::from(bytes));
                value = loaded.map_err(wrong("global", source, lane))?;
            } else {
                for index in 0..valid {
                    let at = source.wrapping_add(index);
                    let byte = frame.core.view.load_whole(at, 1).map_err(wrong("global", at, lane))?;
                    value |= byte << (8 * index);
                }
            }
            for index in 0..whole {
                let at = target.wrapping_add(index);
                let place = own.place::<1>(lane, at).map_err(wrong("shared", at, lane))?;
                own.write::<1>(place, part(value, 8 * index as usize, 8));
            }
        }
        Ok(())
    }
}
