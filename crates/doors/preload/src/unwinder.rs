//! The part of the C library that the unwinder asks for, which those before glibc 2.35, and others than glibc, do not have.
//!
//! Rust's standard library brings the unwinder along. Nothing is unwound here: a panic ends in `abort`.

core::arch::global_asm!(
    ".globl _dl_find_object",
    ".hidden _dl_find_object",
    ".type _dl_find_object, @function",
    "_dl_find_object:",
    // Not found.
    "mov eax, -1",
    "ret",
    ".size _dl_find_object, . - _dl_find_object",
);
