//! Owned, aligned memory that a device may read from or write into.
//!
//! Direct I/O needs memory aligned to the device's sector; 4 KiB suits every drive. The caller passes a
//! buffer to the device *by value* (reads) or *shared and immutable* (writes, through `Arc`). So a dropped
//! future never leaves the kernel writing into freed memory, and a page that is being written cannot change
//! under the drive: [`std::sync::Arc::make_mut`] copies it first.

use std::{
    alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error},
    fmt, ops,
    ptr::{self, NonNull},
    slice,
};

/// Alignment of every buffer, in bytes.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Owned memory, aligned to [`BUFFER_ALIGNMENT`] and fully initialised.
pub struct Buffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a Buffer owns its memory exclusively, like a Vec<u8>.
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
        Self { start, length }
    }

    /// A copy of `bytes`. Panics if they are empty.
    pub fn copy_of(bytes: &[u8]) -> Self {
        assert!(!bytes.is_empty(), "a buffer holds at least one byte");
        let layout = Self::layout(bytes.len());
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: `start` has room for as many bytes as there are, and no other pointer to it exists yet; all of them are written here.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len()) };
        Self { start, length: bytes.len() }
    }

    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, BUFFER_ALIGNMENT).expect("buffer length fits the address space")
    }
}

impl Drop for Buffer {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: `start` came from the allocator with this very layout and is freed once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
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
        // SAFETY: `start` points to `length` initialised bytes owned by self.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl ops::DerefMut for Buffer {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref, and `&mut self` makes the access exclusive.
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
}
