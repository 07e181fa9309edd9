//! Structures that can be read from and written as plain bytes.

/// Structure for which any bytes are valid and that has no padding.
///
/// # Safety
/// The type is `repr(C)`, every bit pattern is a value, and its fields leave no gap.
pub(crate) unsafe trait Plain: Copy + Default {}

/// Takes a `T` off the front of `bytes`. Returns `None` if there are too few.
pub(crate) fn take<T: Plain>(bytes: &[u8]) -> Option<(T, &[u8])> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    let (head, rest) = bytes.split_at(size_of::<T>());
    // SAFETY: `head` has the size of `T`, the read needs no alignment, and any bytes are a `T` (`Plain`).
    let value = unsafe { head.as_ptr().cast::<T>().read_unaligned() };
    Some((value, rest))
}

/// Returns the bytes of `value`.
pub(crate) fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `Plain` has no padding, so every one of its bytes is initialised; the borrow keeps it alive.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
