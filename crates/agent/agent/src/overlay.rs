//! Attributes of which the data store has newer ones.

use data_store::Overlay;
use namespace::FileAttributes;

/// Replaces the values for which the data store has newer ones.
pub(crate) fn lay_over(attributes: &mut FileAttributes, overlay: &Overlay) {
    if overlay.ahead {
        (attributes.size, attributes.blocks, attributes.mtime) = (overlay.size, overlay.blocks, overlay.mtime);
    }
    attributes.ctime = match overlay.below {
        Some(below) if below == attributes.ctime => overlay.ctime,
        Some(_) if overlay.ahead => attributes.ctime.max(overlay.ctime),
        Some(_) => attributes.ctime,
        None => overlay.ctime,
    };
}
