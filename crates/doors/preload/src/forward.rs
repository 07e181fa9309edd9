//! Exported functions, one for each row of the table.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::mem::transmute;

use libc::{iovec, mode_t, off_t, size_t, ssize_t};

use crate::departure::depart;
use crate::original::{AbsentResult, Original};
use crate::{advice, agent, asynchronous, data, descriptors, lifetime, original, stdio};

macro_rules! calls {
    (
        by_descriptor { $( $call:ident ( $fd:ident : c_int $(, $a:ident : $t:ty)* ) -> $r:ty => $how:tt $(:: $what:ident)?; )* }
        opens { $( $open:ident ( $($c:ident : $v:ty),* ) => $flags:expr; )* }
        always { $( $other:ident ( $($b:ident : $u:ty),* ) -> $s:ty => $by:tt $(:: $it:ident)?; )* }
        departures { $( $leaving:ident )* }
        looked_at { $( $past:ident => $first:ident :: $look:ident; )* }
        own { $( $whole:ident ( $($d:ident : $w:ty),* ) -> $x:ty => $mine:ident :: $does:ident; )* }
    ) => {
        $( exported!($call($fd: c_int $(, $a: $t)*) -> $r, original => {
            by_descriptor!(original, [$how $(:: $what)?], $fd $(, $a)*)
        }); )*
        $( exported!($open($($c: $v),*) -> c_int, original => {
            let announced = lifetime::before_open($flags);
            // SAFETY: the call is forwarded unchanged.
            let fd = unsafe { original($($c),*) };
            lifetime::after_open(announced, fd);
            fd
        }); )*
        $( exported!($other($($b: $u),*) -> $s, original => {
            always!(original, [$by $(:: $it)?], $($b),*)
        }); )*
        $( depart!($leaving, crate::departure::nothing_before); )*
        $( depart!($past, crate::$first::$look); )*
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $whole($($d: $w),*) -> $x {
                // SAFETY: the caller keeps the function's own conditions.
                unsafe { $mine::$does($($d),*) }
            }
        )*

        /// Finds all functions, so that no call from a signal handler must do so, and reads the environment.
        extern "C" fn at_load() {
            $( $call::ORIGINAL.find(); )*
            $( $open::ORIGINAL.find(); )*
            $( $other::ORIGINAL.find(); )*
            $( $leaving::ORIGINAL.find(); )*
            $( $past::ORIGINAL.find(); )*
            original::find_others();
            agent::configure();
            stdio::configure();
        }
    };
}

/// Handles a call by descriptor: unknown ones go straight to the original.
macro_rules! by_descriptor {
    ($original:ident, [$($how:tt)*], $fd:ident $(, $a:ident)*) => {
        if descriptors::is_foreign($fd) {
            // SAFETY: the caller keeps the function's own conditions.
            unsafe { $original($fd $(, $a)*) }
        } else {
            // SAFETY: as above.
            unsafe { $($how)*($original, $fd $(, $a)*) }
        }
    };
}

/// Handles a call whatever its arguments.
macro_rules! always {
    ($original:ident, [$($how:tt)*], $($a:ident),*) => {
        // SAFETY: the caller keeps the function's own conditions.
        unsafe { $($how)*($original, $($a),*) }
    };
}

/// Defines one exported function, and a module of its name with the original.
macro_rules! exported {
    ($name:ident ( $($a:ident : $t:ty),* ) -> $r:ty, $original:ident => $body:block) => {
        mod $name {
            use super::*;
            pub static ORIGINAL: Original = Original::new(crate::forward::c_name!($name));

            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $name($($a: $t),*) -> $r {
                let address = ORIGINAL.known();
                if address.is_null() {
                    // SAFETY: the call is forwarded unchanged.
                    return unsafe { find_first($($a),*) };
                }
                // SAFETY: the C library's function of this name takes and returns these types.
                let $original = unsafe { transmute::<*mut c_void, unsafe extern "C-unwind" fn($($t),*) -> $r>(address) };
                $body
            }

            /// Finds the original at the first call. Separate, so that later calls save no registers for it.
            #[cold]
            #[inline(never)]
            unsafe extern "C-unwind" fn find_first($($a: $t),*) -> $r {
                match ORIGINAL.find().is_null() {
                    true => <$r as AbsentResult>::absent(),
                    // SAFETY: the call is forwarded unchanged.
                    false => unsafe { $name($($a),*) },
                }
            }
        }
    };
}

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

/// Constructor, called by the loader.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
