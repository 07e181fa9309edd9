//! The `slowfs` program; its code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    slowfs::main()
}
