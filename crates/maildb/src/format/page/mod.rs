//! One page: a header, byte strings that grow up from it, and an array of tags that grows down from the end
//! and locates each string.
//!
//! ```text
//! 0        header (40 or 80)                       ibMicFree            4*tags before the end
//! | header | tag 0's bytes | node | hole | node |  | contiguous free |  | tag n-1 … tag 1 tag 0 |
//! ```
//!
//! Tag 0 is the *external header*: on the root of a tree its space header, elsewhere the prefix that the
//! page's keys may share. Tag `i + 1` is node `i`. Invariants of a sound page, which
//! [`PageView::check_structure`] checks and every operation of [`PageMut`] keeps:
//!
//! - every string lies between the header and the tags, and no two overlap;
//! - `cbFree` is exactly the bytes in no header, string or tag, in one piece or not;
//! - no string ends beyond `ibMicFree`, and `ibMicFree` does not reach into the tags;
//! - keys ascend strictly (in a non-unique tree they may repeat);
//! - on a branch page every node holds one page number, and only the last key may be empty: it is the separator
//!   in the parent, and there is none above the rightmost page of a level.
//!
//! A node is `[u16 prefix length, if compressed] u16 suffix length, suffix, data`. Small pages keep a
//! node's three flag bits in its tag, large pages in the top of the node's first `u16`.

mod edit;
mod flags;
mod image;
mod prefix;
mod search;
mod structure;
mod view;

#[cfg(test)]
mod model_test;

pub use edit::{PageFull, PageMut};
pub use flags::{NodeFlags, PageFlags};
pub use image::{ImageError, restore_image};
pub use prefix::choose_prefix;
pub use structure::StructureError;
pub use view::{NodeView, PageView};

/// Bytes of one tag.
pub const TAG_BYTES: usize = 4;
/// Longest key of a node: its lengths have 13 bits.
pub const KEY_BYTES_MAX: usize = NODE_LENGTH_MASK as usize;

/// Offsets in the page header. The first 40 bytes are the same for all page sizes.
mod field {
    pub const DBTIME: usize = 8;
    pub const PREVIOUS: usize = 16;
    pub const NEXT: usize = 20;
    pub const OBJECT_ID: usize = 24;
    pub const FREE_BYTES: usize = 28;
    pub const USED_END: usize = 32;
    pub const TAG_COUNT: usize = 34;
    pub const FLAGS: usize = 36;
    /// Large pages only.
    pub const PAGE_NUMBER: usize = 64;
}

/// The upper bits of the tag count's `u16` count reserved tags, which only newer formats have.
const TAG_COUNT_MASK: u16 = 0x0FFF;
/// Mask for length and offset in the tags of small pages; the upper three bits of the offset are node flags.
const SMALL_TAG_MASK: u16 = 0x1FFF;
/// Mask for length and offset in the tags of large pages.
const LARGE_TAG_MASK: u16 = 0x7FFF;
/// Prefix and suffix lengths in nodes; on large pages the upper three bits of the first are node flags.
const NODE_LENGTH_MASK: u16 = 0x1FFF;
/// Node flags are the top three bits of the `u16` that carries them.
const NODE_FLAGS_SHIFT: u32 = 13;
/// Bytes that store a shared prefix's length; a shorter prefix saves nothing.
const PREFIX_OVERHEAD_BYTES: usize = 2;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Number of leading bytes that two strings share.
fn common_prefix_bytes(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
