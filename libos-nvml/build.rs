//! Names the library as programs ask for it, whatever file it lies in, and keeps it loaded.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
    // The thread of a connection that is ending may outlive a `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
