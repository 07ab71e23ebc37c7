//! The linter and the cache around the real assembler. Skipped where there is none.

use std::{cell::Cell, path::PathBuf};

use bulkhead_cuda::Compiler;

use super::*;
use crate::images::cache::{CACHE_BYTES, CacheOptions};

const ARCHITECTURE: u32 = 90;

fn verified(addend: u32) -> Verified {
    verified_text(&format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\t.reg .b64 %rd<2>;\n\
         \t.reg .b32 %r<3>;\n\tld.param.u64 %rd1, [p];\n\tld.global.u32 %r1, [%rd1];\n\tadd.u32 %r2, %r1, {addend};\n\
         \tst.global.u32 [%rd1], %r2;\n\tret;\n}}\n"
    ))
}

fn verified_text(text: &str) -> Verified {
    let confined = bulkhead_guard::confine(&bulkhead_guard::parse(text).unwrap()).unwrap();
    bulkhead_guard::verify(&bulkhead_guard::print(&confined)).unwrap()
}

fn assembler() -> Option<Compiler> {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.toolchain/cuda/bin/ptxas");
    let ptxas = installed.is_file().then_some(installed);
    let named = std::env::var_os("BULKHEAD_PTXAS").map(PathBuf::from);
    let compiler = Compiler { ptxas: named.or(ptxas), ..Compiler::default() };
    let found = compiler.find().is_ok();
    if !found {
        println!("skipped: no ptxas (set BULKHEAD_PTXAS, or install the compiler into .toolchain)");
    }
    found.then_some(compiler)
}

/// A cache, and a count of what was compiled beside it.
struct Bench {
    folder: PathBuf,
    cache: Cache,
    compiler: Compiler,
    compiled: Cell<u32>,
}

impl Bench {
    fn new(name: &str) -> Option<Self> {
        let compiler = assembler()?;
        let folder = std::env::temp_dir().join(format!("bulkhead-images-{name}-{}", std::process::id()));
        std::fs::remove_dir_all(&folder).ok();
        let cache = Cache::open(CacheOptions { folder: folder.clone(), bytes_max: CACHE_BYTES }).unwrap();
        Some(Self { folder, cache, compiler, compiled: Cell::new(0) })
    }

    fn make(&self, verified: &Verified, version: &str) -> (Vec<u8>, Origin) {
        let compile = || {
            self.compiled.set(self.compiled.get() + 1);
            self.compiler.compile(verified.text(), ARCHITECTURE)
        };
        let text = Digest::of(&[verified.text().as_bytes()]);
        machine_code(verified, text, version, ARCHITECTURE, Some(&self.cache), compile).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

#[test]
fn a_text_is_compiled_once_and_again_for_another_assembler() {
    let Some(bench) = Bench::new("once") else { return };
    let (one, other) = (verified(1), verified(2));
    let (code, origin) = bench.make(&one, "13.0");
    assert_eq!(origin, Origin::Compiled);
    assert_eq!(bench.make(&one, "13.0"), (code, Origin::Kept));
    assert_eq!(bench.make(&other, "13.0").1, Origin::Compiled);
    assert_eq!(bench.make(&one, "13.1").1, Origin::Compiled);
    assert_eq!(bench.compiled.get(), 3);
}

#[test]
fn code_that_is_kept_under_the_name_of_another_text_is_refused_and_made_again() {
    let Some(bench) = Bench::new("another") else { return };
    let one = verified(1);
    let key = |verified: &Verified| key(Digest::of(&[verified.text().as_bytes()]), "13.0", ARCHITECTURE);
    let (code, _) = bench.make(&one, "13.0");
    let other = Verified::clone(&one);
    assert_eq!(key(&one), key(&other));
    // Whoever can write the folder can write a digest that fits: the linter is what is left.
    let at = code.windows(4).position(|bytes| bytes == b".nv.").unwrap();
    let mut changed = code.clone();
    changed[at + 1] = b'x';
    bench.cache.put(key(&one), &changed);
    assert_eq!(bench.make(&one, "13.0"), (code.clone(), Origin::Compiled));
    assert_eq!(bench.make(&one, "13.0"), (code, Origin::Kept));
}

#[test]
fn what_the_linter_refuses_is_neither_loaded_nor_kept() {
    let Some(bench) = Bench::new("refused") else { return };
    let (one, text) = (verified(1), Digest::of(&[b"one"]));
    let made = machine_code(&one, text, "13.0", ARCHITECTURE, Some(&bench.cache), || Ok(b"\x7fELF".to_vec()));
    assert!(matches!(&made, Err(DeviceError::Image(what)) if what.contains("linter")), "{made:?}");
    assert_eq!(bench.cache.contents().unwrap().entries, 0);
}

#[test]
fn what_the_assembler_says_of_an_entry_names_it_as_its_program_does() {
    let Some(bench) = Bench::new("said") else { return };
    for name in ["k", "bh_e_k", "__bh_fast_k"] {
        let text = verified_text(&format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {name}()\n{{\n\
             \t.shared .align 16 .b8 tile[240000];\n\tst.shared.u32 [tile], 1;\n\tret;\n}}\n"
        ));
        let compile = || bench.compiler.compile(text.text(), ARCHITECTURE);
        let digest = Digest::of(&[text.text().as_bytes()]);
        let made = machine_code(&text, digest, "13.0", ARCHITECTURE, None, compile);
        let Err(DeviceError::Image(said)) = made else { panic!("{made:?}") };
        assert!(said.contains(&format!("'{name}'")) && !said.contains("bh_e_bh_e_"), "{said}");
    }
}

#[test]
fn a_launch_counts_the_zeroing_of_whichever_version_has_more_to_zero() {
    let verified = verified(1);
    let entry = &verified.entries()[0];
    let fast = entry.fast.as_ref().unwrap();
    let parameters: Vec<_> = (0..entry.parameters)
        .map(|index| bulkhead_gpu::ParameterLayout {
            offset: if index == 0 { 0 } else { 4 + 4 * u32::try_from(index).unwrap() },
            bytes: if index == 0 { 8 } else { 4 },
        })
        .collect();
    let info = |name: &str, shared_bytes| bulkhead_gpu::EntryInfo {
        name: name.to_owned(),
        id: bulkhead_gpu::EntryId(1),
        parameters: parameters.clone(),
        threads_max: 1024,
        shared_bytes,
        local_bytes: 0,
        constant_bytes: 0,
        registers: 16,
        ptx_version: 90,
        binary_version: 90,
    };
    for (plain, other) in [(0, 48 << 10), (48 << 10, 0)] {
        let infos = [info(&entry.symbol, plain), info(&fast.symbol, other)];
        let (templates, told) = load::describe(&verified, &infos, 1).unwrap();
        assert_eq!((templates[0].static_shared, told[0].shared_bytes), (48 << 10, 48 << 10));
    }
}
