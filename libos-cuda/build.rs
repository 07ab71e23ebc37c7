//! Names the library as programs ask for it, whatever file it lies in, and keeps it loaded.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Threads of the session outlive a `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-check-cfg=cfg(recording_device)");
    println!("cargo::rerun-if-changed=build.rs");
}
