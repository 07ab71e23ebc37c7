//! Names the library as programs ask for it, whatever file it lies in.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo::rustc-check-cfg=cfg(recording_device)");
    println!("cargo::rerun-if-changed=build.rs");
}
