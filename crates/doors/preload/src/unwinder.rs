//! Substitute for the one function of the C library that the unwinder needs. glibc before 2.35 and other C libraries do
//! not have it.
//!
//! Rust's standard library brings the unwinder along. Nothing is unwound here: a panic ends in `abort`.

core::arch::global_asm!(
    ".globl _dl_find_object",
    ".hidden _dl_find_object",
    ".type _dl_find_object, @function",
    "_dl_find_object:",
    // -1: not found.
    "mov eax, -1",
    "ret",
    ".size _dl_find_object, . - _dl_find_object",
);
