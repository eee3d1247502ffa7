//! Owned, aligned memory that a device may read from or write into.
//!
//! Direct I/O needs memory aligned to the device's sector; 4 KiB suits every drive. The caller passes a
//! buffer to the device *by value* (reads) or *shared and immutable* (writes, through `Arc`). So a dropped
//! future never leaves the kernel writing into freed memory, and a page that is being written cannot change
//! under the drive: [`std::sync::Arc::make_mut`] copies it first.
//!
//! A buffer may be part of another, immutable one: so a command of many blocks is written block by block, to
//! wherever each belongs, without a copy.
//!
//! Invariants:
//!
//! 1. All bytes are initialised.
//! 2. Memory that several buffers share is not written: a part copies its bytes before it changes them.

use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error},
    fmt,
    ops::{self, Range},
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

/// Alignment of every buffer, in bytes.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Memory, aligned to [`BUFFER_ALIGNMENT`] and fully initialised.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
    /// The owner of the memory, if this is a part.
    whole: Option<Arc<Buffer>>,
}

// SAFETY: a Buffer owns its memory exclusively, like a Vec<u8>, or shares it with others that only read it,
// like an Arc<[u8]>.
#[allow(unsafe_code)]
unsafe impl Send for Buffer {}
// SAFETY: shared access only hands out `&[u8]`, like a Vec<u8>.
#[allow(unsafe_code)]
unsafe impl Sync for Buffer {}

#[allow(unsafe_code)]
impl Buffer {
    /// A zeroed buffer. Panics if `length` is 0.
    pub fn zeroed(length: usize) -> Self {
        assert!(length > 0, "a buffer holds at least one byte");
        let layout = Self::layout(length);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, length, whole: None }
    }

    /// A copy of `bytes`. Panics if they are empty.
    pub fn copy_of(bytes: &[u8]) -> Self {
        assert!(!bytes.is_empty(), "a buffer holds at least one byte");
        let layout = Self::layout(bytes.len());
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: `start` has room for as many bytes as there are, and no other pointer to it exists yet; all of
        // them are written here.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
        Self { start, length: bytes.len(), whole: None }
    }

    /// The bytes `range` of `whole`, without a copy. They stay in memory as long as the part does.
    ///
    /// # Panics
    ///
    /// The range is empty, ends behind the buffer, or does not begin at a multiple of [`BUFFER_ALIGNMENT`].
    pub fn part_of(whole: &Arc<Self>, range: Range<usize>) -> Self {
        assert!(range.start.is_multiple_of(BUFFER_ALIGNMENT), "a part is aligned: {range:?}");
        let bytes = &whole[range];
        assert!(!bytes.is_empty(), "a buffer holds at least one byte");
        let whole = whole.whole.as_ref().unwrap_or(whole);
        Self { start: NonNull::from(bytes).cast(), length: bytes.len(), whole: Some(Arc::clone(whole)) }
    }

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, BUFFER_ALIGNMENT).expect("buffer length fits the address space")
    }
}

impl Drop for Buffer {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if self.whole.is_none() {
            // SAFETY: `start` came from the allocator with this very layout and is freed once.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl ops::Deref for Buffer {
    type Target = [u8];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `length` initialised bytes, owned by self or by `whole`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl ops::DerefMut for Buffer {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        if self.whole.is_some() {
            *self = Self::copy_of(self);
        }
        // SAFETY: as in deref; the memory is self's alone, and `&mut self` makes the access exclusive.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(length: usize) -> Buffer {
        Buffer::copy_of(&(0..length as u32).map(|number| (number / 7) as u8).collect::<Vec<u8>>())
    }

    #[test]
    fn buffers_are_aligned_zeroed_and_cloned_by_value() {
        let mut first = Buffer::zeroed(8192);
        assert_eq!(first.as_ptr() as usize % BUFFER_ALIGNMENT, 0);
        assert!(first.iter().all(|&byte| byte == 0));
        let second = first.clone();
        first[17] = 9;
        assert_eq!((first[17], second[17]), (9, 0));
        let bytes: Vec<u8> = (0..5003_u32).map(|number| number as u8).collect();
        let copy = Buffer::copy_of(&bytes);
        assert_eq!((copy.as_ptr() as usize % BUFFER_ALIGNMENT, &copy[..]), (0, &bytes[..]));
    }

    #[test]
    fn a_part_shares_the_memory_and_copies_it_before_it_changes() {
        let whole = Arc::new(numbered(4 * BUFFER_ALIGNMENT));
        let mut part = Buffer::part_of(&whole, BUFFER_ALIGNMENT..3 * BUFFER_ALIGNMENT);
        assert_eq!(part.as_ptr(), whole[BUFFER_ALIGNMENT..].as_ptr());
        let inner = Arc::new(Buffer::part_of(
            &Arc::new(Buffer::part_of(&whole, BUFFER_ALIGNMENT..3 * BUFFER_ALIGNMENT)),
            BUFFER_ALIGNMENT..BUFFER_ALIGNMENT + 100,
        ));
        let expected = whole.to_vec();
        part[0] ^= 1;
        assert_ne!(part[0], whole[BUFFER_ALIGNMENT]);
        drop(whole);
        assert_eq!(&inner[..], &expected[2 * BUFFER_ALIGNMENT..][..100]);
        assert_eq!(&part[1..], &expected[BUFFER_ALIGNMENT + 1..3 * BUFFER_ALIGNMENT]);
        let mut shared = Arc::clone(&inner);
        Arc::make_mut(&mut shared)[0] ^= 1;
        assert_ne!(shared[0], inner[0]);
    }

    #[test]
    #[should_panic(expected = "a part is aligned")]
    fn a_part_that_is_not_aligned_is_refused() {
        drop(Buffer::part_of(&Arc::new(Buffer::zeroed(8192)), 512..1024));
    }
}
