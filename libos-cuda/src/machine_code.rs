//! Whether the program has code that only an isolated session runs: machine code without PTX, in the libraries that are loaded.
//!
//! What is read are headers alone, of files that the process has mapped already: the program's own business, and nobody's
//! else, and small containers whole. A file that is no ELF file, or is damaged, has no such code.

use std::{
    collections::BTreeSet,
    fs::File,
    ops::Range,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use bulkhead_fatbin::{Image, Kind};

/// The section in which compilers keep fat binaries, one after the other.
const SECTION: &[u8] = b".nv_fatbin";
/// The same of units that the linker has put together: what it made of them is machine code, and the library OS links their PTX.
const SECTION_OF_UNITS: &[u8] = b"__nv_relfatbin";
const CONTAINER_MAGIC: u32 = 0xBA55_ED50;
/// What an entry of a container holds.
const PTX: u16 = 1;
const MACHINE_CODE: u16 = 2;
/// Headers read of one file at most.
const HEADERS_MAX: usize = 1 << 16;
/// Sections of one file at most, and the bytes of their names.
const SECTIONS_MAX: u16 = 4096;
const NAMES_BYTES_MAX: u64 = 1 << 20;

/// What is to be said of the kernels of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This loaded file has machine code without PTX.
    MachineCode(PathBuf),
    /// None is loaded, and Python brings what its program makes: numba links machine code at run time.
    Later,
    /// PTX, or nothing that is known of.
    Ptx,
}

/// What the files that are loaded say.
pub(crate) fn found() -> Found {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files: BTreeSet<&str> =
        maps.lines().filter_map(|line| line.split_once(" /").map(|(_, path)| path)).collect();
    judge(files.into_iter().map(|path| PathBuf::from(format!("/{path}"))))
}

/// Whether an image is machine code that can be launched, without PTX.
pub(crate) fn is_alone(content: &[u8]) -> bool {
    let Ok(image) = Image::read(content) else { return false };
    match &image {
        Image::Cubin { .. } => true,
        Image::Containers(entries) => {
            !entries.iter().any(|entry| entry.kind == Kind::Ptx) && can_launch(&image)
        }
        _ => false,
    }
}

/// Whether the entries of a container have anything that could be launched.
fn can_launch(image: &Image<'_>) -> bool {
    image.entries().iter().any(|entry| {
        // The code of each kernel is a section of its own.
        entry.content().map_or(true, |code| code.windows(6).any(|bytes| bytes == b".text."))
    })
}

fn judge(files: impl Iterator<Item = PathBuf>) -> Found {
    let (mut has_ptx, mut has_python) = (false, false);
    for file in files {
        match kernels(&file) {
            Some(Kernels::MachineCodeAlone) => return Found::MachineCode(file),
            Some(Kernels::WithPtx) => has_ptx = true,
            Some(Kernels::None) | None => {}
        }
        has_python |= is_python(&file);
    }
    if has_python && !has_ptx { Found::Later } else { Found::Ptx }
}

/// Whether a file is Python's interpreter, as a program or as a library.
fn is_python(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.trim_end_matches(" (deleted)");
    ["python", "libpython", "pypy", "libpypy"].iter().any(|start| {
        let version = name.strip_prefix(start).map(|rest| rest.trim_end_matches(".so.1.0"));
        version.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || ".-_cdmot".contains(c)))
    })
}

/// The kernels of a file that has a section for them.
#[derive(Debug, PartialEq, Eq)]
enum Kernels {
    None,
    WithPtx,
    MachineCodeAlone,
}

fn kernels(path: &Path) -> Option<Kernels> {
    // Nothing but files is read: opening a device may do something.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let section_of_all = section(&file, SECTION)?;
    if let Some(units) = section(&file, SECTION_OF_UNITS)
        && containers(&file, units, |first, next| kinds(&file, first, next).0)
    {
        return Some(Kernels::WithPtx);
    }
    let mut has_ptx = false;
    let is_alone = containers(&file, section_of_all, |first, next| {
        let kinds = kinds(&file, first, next);
        has_ptx |= kinds.0;
        kinds == (false, true) && has_kernels(&file, first, next)
    });
    Some(match (is_alone, has_ptx) {
        (true, _) => Kernels::MachineCodeAlone,
        (false, true) => Kernels::WithPtx,
        (false, false) => Kernels::None,
    })
}

fn word<const N: usize>(file: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Where a section begins and ends in an ELF file of 64 bits.
fn section(file: &File, wanted: &[u8]) -> Option<Range<u64>> {
    let header: [u8; 64] = word(file, 0)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (sections, size) = (u64_at(&header, 40)?, u16_at(&header, 58)?);
    let (count, names) = (u16_at(&header, 60)?, u16_at(&header, 62)?);
    if size < 64 || count > SECTIONS_MAX {
        return None;
    }
    let of = |index: u16| {
        let at = sections.checked_add(u64::from(index) * u64::from(size))?;
        let header: [u8; 64] = word(file, at)?;
        Some((u32_at(&header, 0)?, u64_at(&header, 24)?, u64_at(&header, 32)?))
    };
    let (_, names_at, names_bytes) = of(names)?;
    let mut names = vec![0; usize::try_from(names_bytes.min(NAMES_BYTES_MAX)).ok()?];
    file.read_exact_at(&mut names, names_at).ok()?;
    (0..count).find_map(|index| {
        let (name, at, bytes) = of(index)?;
        let name = names.get(usize::try_from(name).ok()?..)?;
        let is_it = name.strip_prefix(wanted).is_some_and(|rest| rest.first() == Some(&0));
        is_it.then_some(at..at.checked_add(bytes)?)
    })
}

/// Whether one of the containers there is such a one, by where its entries begin and it ends.
fn containers(file: &File, place: Range<u64>, mut is_one: impl FnMut(u64, u64) -> bool) -> bool {
    let Range { start: mut at, end } = place;
    for _ in 0..HEADERS_MAX {
        let Some(header) = word::<16>(file, at).filter(|_| at < end) else { return false };
        let (magic, header_bytes, content) = (u32_at(&header, 0), u16_at(&header, 6), u64_at(&header, 8));
        let (Some(header_bytes), Some(content)) = (header_bytes, content) else { return false };
        if magic != Some(CONTAINER_MAGIC) {
            // Zeros come between containers.
            at = at.saturating_add(8);
            continue;
        }
        let first = at.saturating_add(u64::from(header_bytes));
        let next = first.saturating_add(content).min(end);
        if is_one(first, next) {
            return true;
        }
        let Some(behind) = next.max(at.saturating_add(16)).checked_next_multiple_of(8) else { return false };
        at = behind;
    }
    false
}

/// Longer containers hold kernels: what nvcc's linker leaves for a program without relocatable code has some hundred bytes.
const STUB_BYTES_MAX: u64 = 64 << 10;

/// Whether the entries of a container of machine code have anything that could be launched.
fn has_kernels(file: &File, first: u64, end: u64) -> bool {
    // With its header, as it is where nothing else stands in that.
    let at = first.saturating_sub(16);
    let bytes = end.saturating_sub(at);
    let mut container = vec![0; usize::try_from(bytes.min(STUB_BYTES_MAX)).unwrap_or_default()];
    if bytes > STUB_BYTES_MAX || file.read_exact_at(&mut container, at).is_err() {
        return true;
    }
    Image::read(&container).map_or(true, |image| can_launch(&image))
}

/// Whether the entries there have PTX, and machine code.
fn kinds(file: &File, mut at: u64, end: u64) -> (bool, bool) {
    let (mut ptx, mut machine_code) = (false, false);
    for _ in 0..HEADERS_MAX {
        let Some(header) = word::<64>(file, at).filter(|_| at < end) else { break };
        match u16_at(&header, 0) {
            Some(PTX) => ptx = true,
            Some(MACHINE_CODE) => machine_code = true,
            _ => {}
        }
        let (Some(header_bytes), Some(stored)) = (u32_at(&header, 4), u64_at(&header, 8)) else { break };
        at = at.saturating_add(u64::from(header_bytes)).saturating_add(stored).max(at.saturating_add(16));
    }
    (ptx, machine_code)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn entry(kind: u16, bytes: u64) -> Vec<u8> {
        let mut entry = vec![0; 64 + usize::try_from(bytes).unwrap()];
        if bytes >= 40 {
            entry[80..87].copy_from_slice(b".text.k");
        }
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[4..8].copy_from_slice(&64_u32.to_le_bytes());
        entry[8..16].copy_from_slice(&bytes.to_le_bytes());
        entry
    }

    fn container(entries: &[Vec<u8>]) -> Vec<u8> {
        let content = entries.concat();
        let mut container = CONTAINER_MAGIC.to_le_bytes().to_vec();
        container.extend([1, 0, 16, 0]);
        container.extend((content.len() as u64).to_le_bytes());
        container.extend(content);
        container
    }

    #[test]
    fn an_image_of_machine_code_is_told_from_others() {
        let code = entry(MACHINE_CODE, 100);
        assert!(is_alone(&container(std::slice::from_ref(&code))));
        assert!(!is_alone(&container(&[code, entry(PTX, 100)])));
        assert!(!is_alone(&container(&[entry(MACHINE_CODE, 8)])), "it has nothing to launch");
        let mut cubin = vec![0; 64];
        cubin[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        assert!(is_alone(&cubin));
        assert!(!is_alone(b".version 9.0\n") && !is_alone(b"nothing"));
    }

    /// An ELF file with nothing but a section of fat binaries of that name.
    fn elf(name: &[u8], content: &[u8]) -> tempfile::Scratch {
        let names = [b"\0", name, b"\0"].concat();
        let (names_at, content_at) = (64, 64 + names.len().next_multiple_of(8));
        let sections_at = content_at + content.len().next_multiple_of(8);
        let mut file = vec![0; sections_at + 2 * 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40..48].copy_from_slice(&(sections_at as u64).to_le_bytes());
        for (at, value) in [(58, 64_u16), (60, 2), (62, 0)] {
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        file[names_at..names_at + names.len()].copy_from_slice(&names);
        file[content_at..content_at + content.len()].copy_from_slice(content);
        for (index, name, at, bytes) in [(0, 0, names_at, names.len()), (1, 1_u32, content_at, content.len())]
        {
            let header = &mut file[sections_at + index * 64..][..64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(bytes as u64).to_le_bytes());
        }
        tempfile::Scratch::new(&file)
    }

    mod tempfile {
        use super::*;

        /// A file that is removed with this.
        pub(super) struct Scratch(pub(super) PathBuf);

        impl Scratch {
            pub(super) fn new(bytes: &[u8]) -> Self {
                use std::sync::atomic::{AtomicU32, Ordering};
                static NUMBER: AtomicU32 = AtomicU32::new(0);
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let path =
                    std::env::temp_dir().join(format!("bulkhead-machine-{}-{number}", std::process::id()));
                File::create(&path).unwrap().write_all(bytes).unwrap();
                Self(path)
            }
        }

        impl Drop for Scratch {
            fn drop(&mut self) {
                std::fs::remove_file(&self.0).unwrap();
            }
        }
    }

    #[test]
    fn a_container_with_machine_code_alone_is_found_behind_others() {
        let both = container(&[entry(PTX, 24), entry(MACHINE_CODE, 40)]);
        let alone = container(&[entry(MACHINE_CODE, 40), entry(MACHINE_CODE, 8)]);
        let (alone_there, with_ptx) = (Some(Kernels::MachineCodeAlone), Some(Kernels::WithPtx));
        let of = |content: &[u8]| kernels(&elf(SECTION, content).0);
        assert_eq!(of(&both), with_ptx);
        assert_eq!(of(&alone), alone_there);
        assert_eq!(of(&[both.clone(), vec![0; 24], alone.clone()].concat()), alone_there);
        assert_eq!(of(&[both.clone(), both.clone()].concat()), with_ptx);
        // nvcc's linker leaves one without kernels in every program.
        let stub = container(&[entry(MACHINE_CODE, 24)]);
        assert_eq!(of(&stub), Some(Kernels::None));
        assert_eq!(of(&[stub.clone(), both].concat()), with_ptx);
        assert_eq!(of(&[stub, alone.clone()].concat()), alone_there);
        assert_eq!(kernels(&elf(b".rodata", &alone).0), None);
        // A file of units alone has no section that is looked for.
        assert_eq!(kernels(&elf(SECTION_OF_UNITS, &alone).0), None);
    }

    #[test]
    fn python_without_kernels_brings_them_later() {
        let both = elf(SECTION, &container(&[entry(PTX, 24), entry(MACHINE_CODE, 40)]));
        let alone = elf(SECTION, &container(&[entry(MACHINE_CODE, 40)]));
        let stub = elf(SECTION, &container(&[entry(MACHINE_CODE, 24)]));
        let python = PathBuf::from("/usr/bin/python3.12");
        let judged = |files: &[&Path]| judge(files.iter().map(|path| path.to_path_buf()));
        assert_eq!(judged(&[&python, &stub.0]), Found::Later);
        assert_eq!(judged(&[&python, &both.0]), Found::Ptx);
        assert_eq!(judged(&[&both.0, &alone.0, &python]), Found::MachineCode(alone.0.clone()));
        assert_eq!(judged(&[&stub.0]), Found::Ptx);
        assert_eq!(judged(&[]), Found::Ptx);
        for name in [
            "python",
            "python3",
            "python3.11d",
            "libpython3.11.so.1.0",
            "pypy3",
            "python3.13t",
            "python3.12 (deleted)",
        ] {
            assert!(is_python(Path::new(name)), "{name}");
        }
        for name in ["python-config.sh", "libpythonic.so", "pythonize", "py", "lib"] {
            assert!(!is_python(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn damaged_files_have_none() {
        let whole = std::fs::read(&elf(SECTION, &container(&[entry(MACHINE_CODE, 40)])).0).unwrap();
        for length in 0..whole.len() {
            let cut = tempfile::Scratch::new(&whole[..length]);
            kernels(&cut.0);
        }
        // Whatever a header says of sizes, reading ends.
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] = 0xff;
            kernels(&tempfile::Scratch::new(&bent).0);
        }
        assert_eq!(kernels(Path::new("/dev/null")), None);
    }
}
