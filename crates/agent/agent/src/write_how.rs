//! Flags of one write.

/// Flags of one write. They may differ from those of the open, because programs change flags (`F_SETFL`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteHow {
    /// Append at the end, whatever the offset.
    pub append: bool,
    /// Make the write durable before it returns.
    pub sync: bool,
    /// The writer may not keep the set-id bits.
    pub clear_set_id: bool,
    /// The kernel writes back pages that programs stored through mappings, by any writer's descriptor. The data comes
    /// once, and no program sees the result.
    pub cached: bool,
}
