#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the images built here are small, and the fuzz arithmetic wraps"
)]

use crate::{Compression, Error, Image, Kind, Needed, Wrapper, needed};

const PTX: &str = ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry f() { ret; }\n";

fn entry(kind: u16, sm: u32, flags: u64, stored: &[u8], compressed: u32, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0..2].copy_from_slice(&kind.to_le_bytes());
    bytes[2..4].copy_from_slice(&0x101u16.to_le_bytes());
    bytes[4..8].copy_from_slice(&64u32.to_le_bytes());
    bytes[8..16].copy_from_slice(&(stored.len() as u64).to_le_bytes());
    bytes[16..20].copy_from_slice(&compressed.to_le_bytes());
    bytes[28..32].copy_from_slice(&sm.to_le_bytes());
    bytes[40..48].copy_from_slice(&flags.to_le_bytes());
    bytes[56..64].copy_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(stored);
    bytes
}

fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

fn plain(kind: u16, sm: u32, content: &[u8]) -> Vec<u8> {
    entry(kind, sm, 1, &padded(content.to_vec()), 0, 0)
}

fn zstd(sm: u32, content: &[u8]) -> Vec<u8> {
    let packed = ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest);
    let size = packed.len() as u32;
    entry(1, sm, 0x8001, &padded(packed), size, content.len() as u64)
}

fn lz4(sm: u32, content: &[u8]) -> Vec<u8> {
    let packed = lz4_flex::block::compress(content);
    let size = packed.len() as u32;
    entry(1, sm, 0x2001, &padded(packed), size, content.len() as u64)
}

fn container(entries: &[Vec<u8>]) -> Vec<u8> {
    let content = entries.concat();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&0xBA55_ED50u32.to_le_bytes());
    bytes.extend_from_slice(&1u16.to_le_bytes());
    bytes.extend_from_slice(&16u16.to_le_bytes());
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&content);
    bytes
}

/// A cubin: an ELF header, one section of 24 bytes at 64, and a section table at 88 with one row.
fn cubin() -> Vec<u8> {
    let mut bytes = vec![0; 64 + 24 + 64];
    bytes[0..4].copy_from_slice(b"\x7FELF");
    bytes[4..8].copy_from_slice(&[2, 1, 1, 0x41]);
    bytes[8] = 8;
    bytes[40..48].copy_from_slice(&88u64.to_le_bytes());
    bytes[48..52].copy_from_slice(&(90u32 << 8).to_le_bytes());
    bytes[58..60].copy_from_slice(&64u16.to_le_bytes());
    bytes[60..62].copy_from_slice(&1u16.to_le_bytes());
    bytes[88 + 4..88 + 8].copy_from_slice(&1u32.to_le_bytes());
    bytes[88 + 24..88 + 32].copy_from_slice(&64u64.to_le_bytes());
    bytes[88 + 32..88 + 40].copy_from_slice(&24u64.to_le_bytes());
    bytes
}

#[test]
fn the_highest_ptx_that_the_device_can_run_is_picked() {
    let newer = PTX.replace("sm_75", "sm_80");
    let newest = PTX.replace("sm_75", "sm_100");
    let image = container(&[
        plain(2, 75, b"\x7FELF"),
        zstd(75, PTX.as_bytes()),
        lz4(80, newer.as_bytes()),
        plain(1, 100, newest.as_bytes()),
    ]);
    let image = Image::read(&image).unwrap();
    assert_eq!(image.entries().len(), 4);
    assert_eq!(image.entries()[1].compression, Compression::Zstd);
    assert_eq!(image.ptx_for(75).unwrap(), PTX);
    assert_eq!(image.ptx_for(90).unwrap(), newer);
    assert_eq!(image.ptx_for(120).unwrap(), newest);
}

#[test]
fn a_payload_ends_before_its_nul_and_padding() {
    let image = container(&[plain(1, 75, format!("{PTX}\0\0\0").as_bytes())]);
    assert_eq!(Image::read(&image).unwrap().ptx_for(75).unwrap(), PTX);
    let text = format!("{PTX}\0");
    assert_eq!(Image::read(text.as_bytes()).unwrap().ptx_for(75).unwrap(), PTX);
}

#[test]
fn containers_in_a_row_are_one_image() {
    let mut image = container(&[plain(2, 75, b"\x7FELF")]);
    image.extend_from_slice(&[0; 8]);
    image.extend(container(&[zstd(75, PTX.as_bytes())]));
    let image = Image::read(&image).unwrap();
    assert_eq!(image.entries().iter().map(|entry| entry.kind).collect::<Vec<_>>(), [Kind::Cubin, Kind::Ptx]);
    assert_eq!(image.ptx_for(75).unwrap(), PTX);
}

#[test]
fn where_machine_code_runs_here_ptx_for_a_later_device_is_taken_for_this_one() {
    let later = b".version 9.0\n.target sm_121, debug\n.address_size 64\n// .target sm_121\n".as_slice();
    let image = |cubin: u32| container(&[plain(2, cubin, b"code"), plain(1, 121, later)]);
    for sm in [90, 91] {
        let expected = format!(".version 9.0\n.target sm_{sm}, debug\n.address_size 64\n// .target sm_121\n");
        assert_eq!(Image::read(&image(90)).unwrap().ptx_for(sm).unwrap(), expected);
    }
    for cubin in [80, 91, 100] {
        let error = Image::read(&image(cubin)).unwrap().ptx_for(90).unwrap_err();
        assert_eq!(error, Error::TooNew { lowest: 121, device: 90 });
    }
}

#[test]
fn containers_are_found_inside_of_other_files() {
    let (first, second) = (container(&[plain(1, 80, b"one")]), container(&[plain(1, 90, b"two")]));
    let magic = &first[..4];
    // At odd places, behind what only looks like a beginning, and cut short at the end.
    let file =
        [b"!<arch>\nx".as_slice(), magic, b"rest", &first, b"between", &second, &second[..20]].concat();
    assert_eq!(crate::containers_in(&file), [first.as_slice(), second.as_slice()]);
    assert!(crate::containers_in(b"").is_empty());
}

#[test]
fn an_image_without_ptx_says_what_to_do() {
    let image = container(&[plain(2, 75, b"\x7FELF"), plain(2, 90, b"\x7FELF")]);
    let error = Image::read(&image).unwrap().ptx_for(90).unwrap_err();
    assert_eq!(error, Error::MachineCodeOnly(vec![75, 90]));
    assert!(error.to_string().contains("compile it with PTX"), "{error}");
    let image = cubin();
    let error = Image::read(&image).unwrap().ptx_for(90).unwrap_err();
    assert_eq!(error, Error::MachineCodeOnly(vec![90]));
    let image = container(&[plain(1, 100, PTX.as_bytes())]);
    assert_eq!(Image::read(&image).unwrap().ptx_for(90), Err(Error::TooNew { lowest: 100, device: 90 }));
    let image = container(&[]);
    assert_eq!(Image::read(&image).unwrap().ptx_for(90), Err(Error::Empty));
}

#[test]
fn machine_code_runs_on_its_own_generation_and_not_before_the_device_that_it_is_for() {
    let code = |sm| container(&[plain(2, sm, b"\x7FELF")]);
    let runs = |image: &[u8], sm| Image::read(image).unwrap().has_machine_code_for(sm);
    assert!(runs(&code(80), 80) && runs(&code(80), 86) && runs(&code(120), 121));
    assert!(!runs(&code(86), 80) && !runs(&code(75), 90) && !runs(&code(90), 100));
    assert!(runs(&cubin(), 90) && !runs(&cubin(), 75));
    assert!(!runs(&container(&[plain(1, 80, PTX.as_bytes())]), 80) && !runs(PTX.as_bytes(), 80));
}

#[test]
fn a_decompressed_size_that_lies_is_refused() {
    let packed =
        ruzstd::encoding::compress_to_vec(PTX.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    let size = packed.len() as u32;
    let short = container(&[entry(1, 75, 0x8001, &packed, size, 10)]);
    assert!(Image::read(&short).unwrap().ptx_for(75).is_err());
    let huge = container(&[entry(1, 75, 0x8001, &packed, size, u64::MAX)]);
    assert!(matches!(Image::read(&huge).unwrap().ptx_for(75), Err(Error::Limit { .. })));
    let bomb = container(&[entry(1, 75, 0x2001, &[0; 8], 8, 200 << 20)]);
    assert!(matches!(Image::read(&bomb).unwrap().ptx_for(75), Err(Error::Malformed { .. })));
}

#[test]
fn the_beginning_of_an_entry_is_that_of_its_content() {
    let content: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    for entry in [plain(2, 90, &content), zstd(90, &content), lz4(90, &content)] {
        let image = container(&[entry]);
        let image = Image::read(&image).unwrap();
        let [entry] = image.entries() else { panic!("one entry") };
        for most in [0, 1, 1000, content.len(), usize::MAX] {
            assert_eq!(entry.beginning(most).unwrap(), content[..most.min(content.len())]);
        }
    }
}

#[test]
fn too_many_entries_are_refused() {
    let image = container(&vec![plain(1, 75, b""); crate::ENTRIES_MAX + 1]);
    assert!(matches!(Image::read(&image), Err(Error::Limit { .. })));
}

/// What a reader of raw memory does: it asks for more until it knows, and never gets bytes it did not ask for.
fn size_of(memory: &[u8]) -> Result<Needed, Error> {
    let mut have = 0;
    loop {
        match needed(&memory[..have])? {
            Needed::More(more) => {
                assert!(more > have, "asked for {more} with {have} there");
                assert!(more <= memory.len(), "asked for {more}, beyond the image's end");
                have = more;
            }
            known => return Ok(known),
        }
    }
}

#[test]
fn an_image_without_a_length_is_sized_from_its_own_headers() {
    let image = container(&[zstd(75, PTX.as_bytes())]);
    assert_eq!(size_of(&image), Ok(Needed::Exactly(image.len())));
    let image = cubin();
    assert_eq!(size_of(&image), Ok(Needed::Exactly(image.len())));
    assert_eq!(size_of(b".version 9.0\0"), Ok(Needed::UpToNul));
    assert_eq!(size_of(b"//\n.version 9.0\0"), Ok(Needed::UpToNul));
    assert_eq!(size_of(b"P\0"), Ok(Needed::UpToNul));
    assert_eq!(size_of(b"\x01"), Err(Error::Unknown));
    let mut wrapper = 0x4662_43B1u32.to_le_bytes().to_vec();
    wrapper.extend_from_slice(&1u32.to_le_bytes());
    wrapper.extend_from_slice(&0x1234u64.to_le_bytes());
    wrapper.extend_from_slice(&0u64.to_le_bytes());
    let expected = Wrapper { version: 1, data: 0x1234, extra: 0 };
    assert_eq!(size_of(&wrapper), Ok(Needed::Wrapper(expected)));
}

#[test]
fn a_size_beyond_all_reason_is_refused() {
    let mut image = container(&[]);
    image[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(needed(&image).is_err());
    image[8..16].copy_from_slice(&(u64::MAX - 16).to_le_bytes());
    assert!(matches!(needed(&image), Err(Error::Limit { .. })));
    let mut image = cubin();
    image[88 + 32..88 + 40].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(matches!(needed(&image), Err(Error::Limit { .. })));
}

/// xorshift64*: the same bytes on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Reads all there is, and says whether any PTX came out.
fn read_everything(bytes: &[u8]) -> bool {
    for cut in [0, 1, 2, 4, 16, 24, 64, bytes.len()] {
        if let Ok(Needed::Exactly(size) | Needed::More(size)) = needed(bytes.get(..cut).unwrap_or(bytes)) {
            assert!(size <= crate::IMAGE_BYTES_MAX);
        }
    }
    let Ok(image) = Image::read(bytes) else { return false };
    [75, 90, 120].into_iter().any(|sm| image.ptx_for(sm).is_ok_and(|text| !text.is_empty()))
}

#[test]
fn damaged_images_never_panic() {
    let good = [
        container(&[plain(2, 75, b"\x7FELF"), zstd(75, PTX.as_bytes())]),
        container(&[lz4(80, PTX.repeat(40).as_bytes())]),
        container(&[zstd(80, PTX.repeat(40).as_bytes()), plain(1, 90, PTX.as_bytes())]),
        cubin(),
        PTX.as_bytes().to_vec(),
    ];
    let mut random = Random(0x5EED);
    let (mut accepted, mut refused) = (0, 0);
    for round in 0..20_000u64 {
        let mut bytes = good[(round % good.len() as u64) as usize].clone();
        for _ in 0..=random.next() % 4 {
            let at = (random.next() % bytes.len() as u64) as usize;
            // Headers matter most: half of the damage goes there, much of it to extreme values.
            let at = if random.next().is_multiple_of(2) { at } else { at % 96.min(bytes.len()) };
            bytes[at] = match random.next() % 4 {
                0 => 0,
                1 => 0xFF,
                2 => bytes[at] ^ (1 << (random.next() % 8)),
                _ => random.next() as u8,
            };
        }
        if random.next().is_multiple_of(3) {
            bytes.truncate((random.next() % (bytes.len() as u64 + 1)) as usize);
        }
        match read_everything(&bytes) {
            true => accepted += 1,
            false => refused += 1,
        }
    }
    assert!(accepted > 1_000 && refused > 1_000, "{accepted} images were read and {refused} refused");
}
