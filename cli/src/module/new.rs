//! `bulkhead module new`: a module to begin with.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{Failure, output, place};

/// What is written, by its place in the folder: the files of `modules/examples/counter`, which are tested.
const FILES: [(&str, &str); 5] = [
    ("gates.cu", include_str!("../../../modules/examples/counter/gates.cu")),
    ("gates.ptx", include_str!("../../../modules/examples/counter/gates.ptx")),
    ("src/main.rs", include_str!("../../../modules/examples/counter/src/main.rs")),
    ("src/window.rs", include_str!("../../../modules/examples/counter/src/window.rs")),
    ("tenant.cu", include_str!("../../../modules/examples/counter/tenant.cu")),
];
const MANIFEST: &str = include_str!("../../../modules/examples/counter/module.toml");
/// Of the example, by which its name stands in the manifest.
const EXAMPLE: &str = "counter";

#[derive(Debug, Args)]
pub(super) struct New {
    /// The folder, which must not be there yet. The module is called as it is.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Where the kit is: the folder modules/api of Bulkhead's sources (looked for from this folder and the binary upwards).
    #[arg(long, value_name = "FOLDER")]
    kit: Option<PathBuf>,
}

pub(super) fn new(new: &New) -> Result<(), Failure> {
    let folder = std::path::absolute(&new.folder).map_err(Failure::doing(new.folder.display()))?;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    // What cargo, the kernel and C take.
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    if !name.bytes().all(plain) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err(Failure::new(format!(
            "{name:?} is no name for a new module: a lower-case letter, and behind it lower-case letters, digits, _ and -, is"
        )));
    }
    let kit = match &new.kit {
        Some(kit) => std::path::absolute(kit).map_err(Failure::doing(kit.display()))?,
        None => find_kit().ok_or_else(|| {
            Failure::new("the kit is not found: name the folder modules/api of Bulkhead's sources with --kit")
        })?,
    };
    if !kit.join("Cargo.toml").is_file() {
        return Err(Failure::new(format!(
            "{} is no kit: the folder modules/api of Bulkhead's sources is",
            kit.display()
        )));
    }
    match fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::new(format!("{} is there already: name a new folder", folder.display())));
        }
        made => made.map_err(Failure::doing(folder.display()))?,
    }
    let write = |place: &str, text: &str| write(&folder.join(place), text);
    for (place, text) in FILES {
        // What a comment tells to run.
        write(place, &text.replace(&format!("--module {EXAMPLE}="), &format!("--module {name}=")))?;
    }
    let manifest = MANIFEST
        .replace(&format!("\"{EXAMPLE}\""), &format!("\"{name}\""))
        .replace(&format!("../../../target/release/{EXAMPLE}"), &format!("target/release/{name}"));
    write("module.toml", &manifest)?;
    write("Cargo.toml", &cargo_manifest(&name, &kit))?;
    // The versions that Bulkhead itself is built with, which are there where that was built: cargo leaves out what is not needed.
    match fs::read_to_string(kit.join("../../Cargo.lock")) {
        Ok(lock) => write("Cargo.lock", &lock)?,
        Err(error) => eprintln!("bulkhead: no Cargo.lock is written, so cargo chooses the versions: {error}"),
    }
    write(".gitignore", "/target\n/tenant\n")?;
    let place = new.folder.display();
    output::print(&format!(
        "{place}: a counter, to begin with. The gates are in gates.cu, the host half is src/main.rs, tenant.cu calls the gates.\n\n\
         \x20 cd {place}\n\
         \x20 bulkhead module build gates.cu -o gates.ptx --rust src/window.rs    # after a change of gates.cu\n\
         \x20 cargo build --release    # --offline where there is no network\n\
         \x20 bulkhead serve --backend software &\n\
         \x20 bulkhead module start . &\n\
         \x20 nvcc -gencode arch=compute_75,code=compute_75 -o tenant tenant.cu\n\
         \x20 bulkhead run --module {name}=limit=10 -- ./tenant\n"
    ))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(Failure::doing(folder.display()))?;
    }
    fs::write(path, text).map_err(Failure::doing(path.display()))
}

fn cargo_manifest(name: &str, kit: &Path) -> String {
    let client = kit.join("../../client");
    let client = fs::canonicalize(&client).unwrap_or(client);
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n\
         # Not a member of a workspace that it happens to lie in.\n[workspace]\n\n\
         [dependencies]\nbulkhead-client = {{ path = {client:?} }}\nbulkhead-module = {{ path = {kit:?} }}\n"
    )
}

/// `modules/api` of the sources that this folder or the binary lies in.
fn find_kit() -> Option<PathBuf> {
    let here = std::env::current_dir().ok();
    let binary = place::binary().ok();
    let folders = here.iter().chain(&binary).flat_map(|place| place.ancestors());
    let kits = folders.map(|folder| folder.join("modules/api"));
    kits.into_iter().find(|kit| kit.join("include/bulkhead_module.h").is_file())
}
