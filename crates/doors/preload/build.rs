//! Link options of the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Link the unwinder, which Rust's standard library needs, from an archive. Otherwise every process would load
    // another shared library.
    println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    // Resolve all symbols at load time, not at a first call in a signal handler.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,now,-z,relro");
}
