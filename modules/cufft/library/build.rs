//! Names the library as programs ask for it, and keeps it loaded.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcufft.so.12");
    // Streams may call into it after a `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
