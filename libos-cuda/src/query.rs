//! Questions about the device, answered in the process.

use crate::abi::{InSlice, Out, OutBytes, OutMaybe, OutSlice, Text, is_called_by};
use crate::attributes as attribute_numbers;
use crate::device::{Device, Domain};
use crate::driver::{Driver, driver, driver_and_current};
use crate::report;
use crate::status::{Answer, Status};

/// The one device that a session has.
const ORDINAL: i32 = 0;

/// The driver, for a call about `device`.
pub(crate) fn of(device: i32) -> Result<&'static Driver, Status> {
    let driver = driver()?;
    if device == ORDINAL { Ok(driver) } else { Err(Status::INVALID_DEVICE) }
}

/// An attribute of the device as programs see it.
pub(crate) fn attribute_of(driver: &Driver, number: u32) -> Option<i32> {
    let own = driver.device().attribute(number);
    own.map(|value| attribute_numbers::ours(number, driver.domain).unwrap_or(value))
}

/// Domain, bus and device number on the PCI bus.
pub(crate) fn pci(device: &Device) -> [i32; 3] {
    [attribute_numbers::PCI_DOMAIN, attribute_numbers::PCI_BUS, attribute_numbers::PCI_DEVICE]
        .map(|number| device.attribute(number).unwrap_or(0))
}

pub(crate) fn device(to: Out<i32>, ordinal: i32) -> Answer {
    of(ordinal)?;
    to.set(ordinal);
    Ok(())
}

pub(crate) fn count(to: Out<i32>) -> Answer {
    driver()?;
    to.set(1);
    Ok(())
}

/// Writes a string with its NUL into `room` bytes, cut to what fits.
fn write_text(to: &OutBytes, room: i32, text: &str) -> Answer {
    let room = usize::try_from(room).map_err(|_| Status::INVALID_VALUE)?;
    let kept = room.checked_sub(1).ok_or(Status::INVALID_VALUE)?.min(text.len());
    let mut bytes = text.as_bytes().get(..kept).unwrap_or_default().to_vec();
    bytes.push(0);
    to.write(&bytes);
    Ok(())
}

pub(crate) fn name(to: OutBytes, room: i32, device: i32) -> Answer {
    write_text(&to, room, &of(device)?.device().name)
}

pub(crate) fn uuid(to: Out<[u8; 16]>, device: i32) -> Answer {
    to.set(of(device)?.device().uuid);
    Ok(())
}

/// LUIDs are Windows's.
pub(crate) fn luid(_to: OutMaybe<[u8; 8]>, _mask: OutMaybe<u32>, device: i32) -> Answer {
    of(device)?;
    Err(Status::NOT_SUPPORTED)
}

pub(crate) fn total_memory(to: Out<usize>, device: i32) -> Answer {
    let bytes = of(device)?.device().memory_bytes;
    to.set(usize::try_from(bytes).unwrap_or(usize::MAX));
    Ok(())
}

/// Libraries that have PTX of all their kernels, but load machine code where they have some for the device: they are told of
/// a device that is newer than they are.
const LED_TO_PTX: &[&str] = &["libcufft.so", "libcufftw.so"];
/// The compute capability of that device.
const NEWER: (i32, i32) = (13, 0);

/// What is said of an attribute instead of the device's own.
fn instead(number: u32) -> Option<i32> {
    let value = match number {
        attribute_numbers::CAPABILITY_MAJOR => NEWER.0,
        attribute_numbers::CAPABILITY_MINOR => NEWER.1,
        _ => return None,
    };
    LED_TO_PTX.iter().any(|library| is_called_by(library)).then_some(value)
}

pub(crate) fn attribute(to: Out<i32>, number: u32, device: i32) -> Answer {
    let driver = of(device)?;
    let value = attribute_of(driver, number).ok_or(Status::INVALID_VALUE)?;
    // Isolated, libraries load their machine code.
    let value = instead(number).filter(|_| driver.domain == Domain::Guarded).unwrap_or(value);
    to.set(value);
    Ok(())
}

pub(crate) fn compute_capability(major: Out<i32>, minor: Out<i32>, device: i32) -> Answer {
    attribute(major, attribute_numbers::CAPABILITY_MAJOR, device)?;
    attribute(minor, attribute_numbers::CAPABILITY_MINOR, device)
}

pub(crate) fn pci_bus_id(to: OutBytes, room: i32, device: i32) -> Answer {
    write_text(&to, room, &bus_id(of(device)?.device()))
}

fn bus_id(device: &Device) -> String {
    let [domain, bus, number] = pci(device);
    format!("{domain:04X}:{bus:02X}:{number:02X}.0")
}

pub(crate) fn by_pci_bus_id(to: Out<i32>, bus: Text) -> Answer {
    let ours = bus_id(driver()?.device());
    let asked = bus.0.to_ascii_uppercase();
    let short = ours.split_once(':').map_or("", |(_, rest)| rest);
    // Domain and function may be left out.
    if [ours.as_str(), short].iter().any(|known| *known == asked || known.trim_end_matches(".0") == asked) {
        to.set(ORDINAL);
        return Ok(());
    }
    Err(Status::INVALID_DEVICE)
}

pub(crate) fn can_access_peer(to: Out<i32>, device: i32, peer: i32) -> Answer {
    of(device)?;
    of(peer)?;
    to.set(0);
    Ok(())
}

/// It is the same for all formats here.
pub(crate) fn linear_texture_width(to: Out<usize>, _format: u32, _channels: u32, device: i32) -> Answer {
    let width = attribute_of(of(device)?, attribute_numbers::TEXTURE1D_LINEAR_WIDTH_MAX);
    to.set(width.and_then(|width| usize::try_from(width).ok()).ok_or(Status::NOT_SUPPORTED)?);
    Ok(())
}

/// There are no peers: every context is of the same device.
pub(crate) fn enable_peer(context: u64, flags: u32) -> Answer {
    driver()?.contexts.check(context)?;
    Err(if flags == 0 { Status::PEER_ACCESS_UNSUPPORTED } else { Status::INVALID_VALUE })
}

pub(crate) fn disable_peer(context: u64) -> Answer {
    driver()?.contexts.check(context)?;
    Err(Status::PEER_ACCESS_NOT_ENABLED)
}

/// There are no peers: the only pair is a device and itself, which is refused as on NVIDIA's driver.
pub(crate) fn peer_attribute(_to: Out<i32>, _attribute: u32, device: i32, peer: i32) -> Answer {
    of(device)?;
    of(peer)?;
    Err(Status::INVALID_DEVICE)
}

/// `CUdevprop`: what CUDA 1 asked of a device, in the order of its fields.
const PROPERTIES: [u32; 14] = [
    attribute_numbers::THREADS_PER_BLOCK_MAX,
    attribute_numbers::BLOCK_X_MAX,
    attribute_numbers::BLOCK_X_MAX + 1,
    attribute_numbers::BLOCK_X_MAX + 2,
    attribute_numbers::GRID_X_MAX,
    attribute_numbers::GRID_X_MAX + 1,
    attribute_numbers::GRID_X_MAX + 2,
    attribute_numbers::SHARED_BYTES_PER_BLOCK,
    // `TOTAL_CONSTANT_MEMORY`
    9,
    attribute_numbers::WARP_THREADS,
    // `MAX_PITCH`
    11,
    attribute_numbers::REGISTERS_PER_BLOCK,
    // `CLOCK_RATE`
    13,
    // `TEXTURE_ALIGNMENT`
    14,
];

pub(crate) fn properties(to: Out<[i32; 14]>, device: i32) -> Answer {
    let device = of(device)?;
    to.set(PROPERTIES.map(|number| attribute_of(device, number).unwrap_or(0)));
    Ok(())
}

/// `CU_EXEC_AFFINITY_TYPE_SM_COUNT`, the only kind.
const AFFINITY_KINDS: u32 = 1;

/// No context is bound to some of the multiprocessors.
pub(crate) fn affinity_support(to: Out<i32>, kind: u32, device: i32) -> Answer {
    of(device)?;
    if kind >= AFFINITY_KINDS {
        return Err(Status::INVALID_VALUE);
    }
    to.set(0);
    Ok(())
}

/// No context was made with it.
pub(crate) fn affinity(_to: Out<[u32; 2]>, kind: u32) -> Answer {
    driver_and_current()?;
    Err(if kind < AFFINITY_KINDS { Status::UNSUPPORTED_EXEC_AFFINITY } else { Status::INVALID_VALUE })
}

/// `HOST_NATIVE_ATOMIC_SUPPORTED`.
const HOST_ATOMICS: u32 = 86;
/// `CUatomicOperation`: how many there are.
const ATOMICS: u32 = 13;

fn check_atomics(operations: &InSlice<u32>, count: u32) -> Answer {
    // More would be some of them again, and again.
    if count == 0 || count > 1 << 16 {
        return Err(Status::INVALID_VALUE);
    }
    let known = operations.read(count as usize)?.into_iter().all(|operation| operation < ATOMICS);
    if known { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// Over PCIe there are none.
pub(crate) fn host_atomics(to: OutSlice<u32>, operations: InSlice<u32>, count: u32, device: i32) -> Answer {
    let device = of(device)?;
    check_atomics(&operations, count)?;
    if attribute_of(device, HOST_ATOMICS).unwrap_or(0) != 0 {
        report::refused(
            "cuDeviceGetHostAtomicCapabilities",
            "which of the host's link is not known here: ask cuDeviceGetAttribute whether it has any (HOST_NATIVE_ATOMIC_SUPPORTED)",
        );
        return Err(Status::NOT_SUPPORTED);
    }
    to.write(&vec![0; count as usize]);
    Ok(())
}

/// There are no peers, as for [`peer_attribute`].
pub(crate) fn peer_atomics(
    _to: OutSlice<u32>,
    operations: InSlice<u32>,
    count: u32,
    device: i32,
    peer: i32,
) -> Answer {
    of(device)?;
    of(peer)?;
    check_atomics(&operations, count)?;
    Err(Status::INVALID_DEVICE)
}
