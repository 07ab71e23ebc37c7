//! What a device is, and how it is found. There is one.

use std::ffi::c_void;

use bulkhead_client::uuid_text;

use crate::abi::{
    Device, Out, OutText, PciInfo, PciInfoExt, PciInfoV1, PciInfoV2, Uuid, Versioned, version_of,
};
use crate::seen::facts;
use crate::status::{Answer, Status};

/// `NVML_UUID_TYPE_ASCII` and `NVML_UUID_TYPE_BINARY`.
const ASCII: u32 = 1;
const BINARY: u32 = 2;
/// `NVML_DEVICE_ARCH_UNKNOWN`.
const UNKNOWN_ARCHITECTURE: u32 = u32::MAX;
/// A display controller's base class on the PCI bus, and a 3D controller's sub-class.
const PCI_CLASS: (u32, u32) = (3, 2);

pub(crate) fn count(to: Out<u32>) -> Answer {
    to.set(1);
    Ok(())
}

pub(crate) fn by_index(index: u32, to: Out<*mut c_void>) -> Answer {
    if index != 0 {
        return Err(Status::INVALID_ARGUMENT);
    }
    to.set_device();
    Ok(())
}

pub(crate) fn by_pci_bus_id(bus: crate::abi::Text, to: Out<*mut c_void>) -> Answer {
    let asked = place(&bus.0).ok_or(Status::INVALID_ARGUMENT)?;
    found(asked == facts()?.pci, &to)
}

pub(crate) fn by_uuid(uuid: crate::abi::Text, to: Out<*mut c_void>) -> Answer {
    found(uuid.0.eq_ignore_ascii_case(&uuid_text(&facts()?.uuid)), &to)
}

pub(crate) fn by_uuid_versioned(uuid: Versioned, to: Out<*mut c_void>) -> Answer {
    let asked: Uuid = uuid.read(version_of::<Uuid>(1)).ok_or(Status::VERSION_MISMATCH)?;
    let own = facts()?.uuid;
    let is_it = match asked.kind {
        ASCII => {
            let end = asked.value.iter().position(|byte| *byte == 0).unwrap_or(asked.value.len());
            let text = asked.value.get(..end).unwrap_or_default();
            text.eq_ignore_ascii_case(uuid_text(&own).as_bytes())
        }
        BINARY => asked.value.get(..own.len()) == Some(&own[..]),
        _ => return Err(Status::INVALID_ARGUMENT),
    };
    found(is_it, &to)
}

fn found(is_it: bool, to: &Out<*mut c_void>) -> Answer {
    if !is_it {
        return Err(Status::NOT_FOUND);
    }
    to.set_device();
    Ok(())
}

/// `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal digits; domain and function may be left out.
fn place(text: &str) -> Option<[u32; 3]> {
    let text = text.split_once('.').map_or(text, |(place, _)| place);
    let mut parts = text.rsplit(':').map(|part| u32::from_str_radix(part, 16));
    let device = parts.next()?.ok()?;
    let bus = parts.next()?.ok()?;
    let domain = parts.next().unwrap_or(Ok(0)).ok()?;
    parts.next().is_none().then_some([domain, bus, device])
}

pub(crate) fn index(_device: Device, to: Out<u32>) -> Answer {
    to.set(0);
    Ok(())
}

pub(crate) fn name(_device: Device, to: OutText, room: u32) -> Answer {
    to.write(room, &facts()?.name)
}

pub(crate) fn uuid(_device: Device, to: OutText, room: u32) -> Answer {
    to.write(room, &uuid_text(&facts()?.uuid))
}

/// A text and zeros.
fn filled<const ROOM: usize>(text: &str) -> [u8; ROOM] {
    let mut bytes = [0; ROOM];
    // The last stays a NUL.
    for (to, from) in bytes.iter_mut().take(ROOM - 1).zip(text.bytes()) {
        *to = from;
    }
    bytes
}

fn legacy_bus_id([domain, bus, device]: [u32; 3]) -> [u8; 16] {
    filled(&format!("{domain:04X}:{bus:02X}:{device:02X}.0"))
}

fn bus_id([domain, bus, device]: [u32; 3]) -> [u8; 32] {
    filled(&format!("{domain:08X}:{bus:02X}:{device:02X}.0"))
}

/// Which model it is by its numbers on the bus is not known: they read 0.
pub(crate) fn pci_v1(_device: Device, to: Out<PciInfoV1>) -> Answer {
    let place @ [domain, bus, device] = facts()?.pci;
    to.set(PciInfoV1 { bus_id: legacy_bus_id(place), domain, bus, device, pci_device_id: 0 });
    Ok(())
}

pub(crate) fn pci_v2(_device: Device, to: Out<PciInfoV2>) -> Answer {
    let place @ [domain, bus, device] = facts()?.pci;
    let bus_id = legacy_bus_id(place);
    to.set(PciInfoV2 {
        bus_id,
        domain,
        bus,
        device,
        pci_device_id: 0,
        pci_subsystem_id: 0,
        reserved: [0; 4],
    });
    Ok(())
}

pub(crate) fn pci(_device: Device, to: Out<PciInfo>) -> Answer {
    let place @ [domain, bus, device] = facts()?.pci;
    let (bus_id_legacy, bus_id) = (legacy_bus_id(place), bus_id(place));
    to.set(PciInfo { bus_id_legacy, domain, bus, device, pci_device_id: 0, pci_subsystem_id: 0, bus_id });
    Ok(())
}

pub(crate) fn pci_extended(_device: Device, to: Versioned) -> Answer {
    let place @ [domain, bus, device] = facts()?.pci;
    let version = version_of::<PciInfoExt>(1);
    let info = PciInfoExt {
        version,
        domain,
        bus,
        device,
        pci_device_id: 0,
        pci_subsystem_id: 0,
        base_class: PCI_CLASS.0,
        sub_class: PCI_CLASS.1,
        bus_id: bus_id(place),
    };
    to.write(version, info).ok_or(Status::VERSION_MISMATCH)
}

pub(crate) fn capability(_device: Device, major: Out<i32>, minor: Out<i32>) -> Answer {
    let [known_major, known_minor] = facts()?.capability;
    major.set(known_major);
    minor.set(known_minor);
    Ok(())
}

pub(crate) fn architecture(_device: Device, to: Out<u32>) -> Answer {
    to.set(architecture_of(facts()?.capability));
    Ok(())
}

/// `nvmlDeviceArchitecture_t`.
fn architecture_of(capability: [i32; 2]) -> u32 {
    match capability {
        [7, 5] => 6,
        [7, _] => 5,
        [8, 9] => 8,
        [8, _] => 7,
        [9, _] => 9,
        [10..=12, _] => 10,
        _ => UNKNOWN_ARCHITECTURE,
    }
}

pub(crate) fn memory_bus_width(_device: Device, to: Out<u32>) -> Answer {
    match facts()?.memory_bus_width {
        0 => Err(Status::NOT_SUPPORTED),
        bits => {
            to.set(bits);
            Ok(())
        }
    }
}

/// The default compute mode; no part of a device, nor any.
pub(crate) fn zero(_device: Device, to: Out<u32>) -> Answer {
    to.set(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_on_the_bus_are_read_as_programs_write_them() {
        for (text, known) in [
            ("0000:17:00.0", Some([0, 0x17, 0])),
            ("00000001:AF:1f.0", Some([1, 0xAF, 0x1F])),
            ("17:00", Some([0, 0x17, 0])),
            ("17:00.0", Some([0, 0x17, 0])),
            ("", None),
            ("17", None),
            ("0:0:0:0", None),
            ("x:17:00.0", None),
            ("-1:17:00.0", None),
        ] {
            assert_eq!(place(text), known, "{text}");
        }
    }

    #[test]
    fn an_architecture_follows_from_the_compute_capability() {
        let all = [([7, 0], 5), ([7, 5], 6), ([8, 6], 7), ([8, 9], 8), ([9, 0], 9), ([12, 1], 10)];
        assert!(all.iter().all(|(capability, known)| architecture_of(*capability) == *known));
        assert_eq!(architecture_of([13, 0]), UNKNOWN_ARCHITECTURE);
    }

    #[test]
    fn a_text_that_fills_its_place_still_ends() {
        assert_eq!(filled::<4>("abcdef"), *b"abc\0");
        assert_eq!(filled::<4>("a"), *b"a\0\0\0");
    }
}
