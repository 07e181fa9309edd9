//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The unwinder, which Rust's standard library names, from an archive: every process that we are loaded into would load
    // another shared library otherwise.
    println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    // All symbols are found when the library is loaded, not at a first call in a signal handler.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,now,-z,relro");
}
