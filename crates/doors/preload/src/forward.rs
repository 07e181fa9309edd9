//! Makes of each row of the table an exported function that jumps to the C library's.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::transmute;

use libc::{iovec, mode_t, off_t, size_t, ssize_t};

use crate::departure::depart;
use crate::original::{Absent, Original};

/// Expands the table.
macro_rules! calls {
    (
        by_descriptor { $( $call:ident ( $($a:ident : $t:ty),* ) -> $r:ty; )* }
        always { $( $other:ident ( $($b:ident : $u:ty),* ) -> $s:ty; )* }
        departures { $( $leaving:ident )* }
    ) => {
        $( forwarded!($call($($a: $t),*) -> $r); )*
        $( forwarded!($other($($b: $u),*) -> $s); )*
        $( depart!($leaving); )*

        /// Finds every function, so that no call from a signal handler has to.
        extern "C" fn find_all() {
            $( $call::ORIGINAL.find(); )*
            $( $other::ORIGINAL.find(); )*
            $( $leaving::ORIGINAL.find(); )*
        }
    };
}

/// One function, and a module of its name that holds the original.
macro_rules! forwarded {
    ($name:ident ( $($a:ident : $t:ty),* ) -> $r:ty) => {
        mod $name {
            use super::*;
            pub static ORIGINAL: Original = Original::new(crate::forward::c_name!($name));

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($a: $t),*) -> $r {
                let address = ORIGINAL.address();
                if address.is_null() {
                    return <$r as Absent>::absent();
                }
                // SAFETY: the C library's function of this name takes and returns these types.
                let original = unsafe { transmute::<*mut c_void, unsafe extern "C-unwind" fn($($t),*) -> $r>(address) };
                // SAFETY: what the caller owes to that function, it owes to us.
                unsafe { original($($a),*) }
            }
        }
    };
}

/// The name as a C string.
macro_rules! c_name {
    ($name:ident) => {
        match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    };
}

pub(crate) use c_name;

crate::table::table!(calls);

/// Called by the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = find_all;
