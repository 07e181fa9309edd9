//! Functions by which a program copies or replaces itself, or bypasses the C library. Forwarded with any arguments.

use core::ffi::c_void;

use crate::original::{AbsentResult, Original};

/// Target of the jump if the C library does not have the function.
extern "C" fn nowhere() -> i32 {
    i32::absent()
}

/// Returns the address of the original function, or of `nowhere` if there is none.
pub extern "C" fn destination(original: &Original) -> *mut c_void {
    let address = original.address();
    if address.is_null() { nowhere as *mut c_void } else { address }
}

/// Does nothing. Most departures need no preparation.
pub extern "C" fn nothing_before() {}

/// Makes an exported function that calls `$before` with the first arguments and then jumps to the original. All
/// registers and the stack are as they were. `execl` has any number of arguments, and `vfork` returns twice, to a frame
/// that must not be ours.
macro_rules! depart {
    ($name:ident, $before:path) => {
        #[allow(non_snake_case)] // the C library's name
        mod $name {
            use super::*;
            pub static ORIGINAL: Original = Original::new(crate::forward::c_name!($name));

            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C-unwind" fn $name() {
                core::arch::naked_asm!(
                    ".cfi_startproc",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax", // of a variadic call: how many vector registers
                    ".cfi_adjust_cfa_offset 56",
                    "call {before}",
                    "lea rdi, [rip + {original}]",
                    "call {destination}",
                    "mov r11, rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    ".cfi_adjust_cfa_offset -56",
                    "jmp r11",
                    ".cfi_endproc",
                    before = sym $before,
                    original = sym ORIGINAL,
                    destination = sym crate::departure::destination,
                )
            }
        }
    };
}

pub(crate) use depart;
