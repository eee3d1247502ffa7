//! A page without its free bytes, as log records store it.
//!
//! ```text
//! u16 page size in 512-byte units | page header | tags, last first | strings, in tag order, unpadded
//! ```
//!
//! Strings are restored to exactly where they were, so the page and its restored copy behave the same in
//! every later operation; free bytes are restored as zero.

use thiserror::Error;

use super::{PageView, TAG_BYTES, u16_at};

/// Unit of the page size in an image, so that 32 KiB fits a `u16`.
const SIZE_UNIT_BYTES: usize = 512;
const SIZE_FIELD_BYTES: usize = 2;

/// Reasons why bytes cannot be restored as an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The image is shorter or longer than the page it describes.
    #[error("a page image of {image_bytes} bytes has the wrong length")]
    Length {
        /// Length of the image.
        image_bytes: usize,
    },
    /// The image is of another page size.
    #[error("the image is of a page of {image_page_bytes} bytes, not {page_bytes}")]
    PageSize {
        /// Page size stored in the image.
        image_page_bytes: usize,
        /// Size of the page to restore.
        page_bytes: usize,
    },
    /// A tag points outside the page.
    #[error("tag {tag} of the image points outside the page")]
    TagOutside { tag: usize },
}

impl PageView<'_> {
    /// The page without its free bytes. The page's structure must be sound.
    pub fn used_image(self) -> Vec<u8> {
        let tags = self.tag_count();
        let used = self.bytes.len() - self.free_bytes();
        let mut image = Vec::with_capacity(SIZE_FIELD_BYTES + used);
        image.extend_from_slice(&((self.bytes.len() / SIZE_UNIT_BYTES) as u16).to_le_bytes());
        image.extend_from_slice(&self.bytes[..self.size.header_bytes()]);
        image.extend_from_slice(&self.bytes[self.bytes.len() - tags * TAG_BYTES..]);
        for tag in 0..tags {
            image.extend_from_slice(self.string(tag));
        }
        image
    }
}

/// Restores an image made by [`PageView::used_image`] into `page`. Accepts any bytes; if their origin is
/// doubtful, call [`PageView::check_structure`] on the result. After an error the page is all zero.
pub fn restore_image(page: &mut [u8], image: &[u8]) -> Result<(), ImageError> {
    page.fill(0);
    let result = restore(page, image);
    if result.is_err() {
        page.fill(0);
    }
    result
}

fn restore(page: &mut [u8], image: &[u8]) -> Result<(), ImageError> {
    let wrong_length = ImageError::Length { image_bytes: image.len() };
    let size = PageView::new(page).size;
    let (units, rest) = image.split_first_chunk::<SIZE_FIELD_BYTES>().ok_or(wrong_length)?;
    let image_page_bytes = usize::from(u16::from_le_bytes(*units)) * SIZE_UNIT_BYTES;
    if image_page_bytes != page.len() {
        return Err(ImageError::PageSize { image_page_bytes, page_bytes: page.len() });
    }
    let (header, rest) = rest.split_at_checked(size.header_bytes()).ok_or(wrong_length)?;
    page[..header.len()].copy_from_slice(header);

    let tags = usize::from(u16_at(page, super::field::TAG_COUNT) & super::TAG_COUNT_MASK);
    let strings_end = page.len().checked_sub(tags * TAG_BYTES).filter(|&end| end >= header.len());
    let strings_end = strings_end.ok_or(wrong_length)?;
    let (tag_bytes, mut strings) = rest.split_at_checked(tags * TAG_BYTES).ok_or(wrong_length)?;
    page[strings_end..].copy_from_slice(tag_bytes);

    for tag in 0..tags {
        let place = PageView::new(page).tag(tag);
        let (string, after) = strings.split_at_checked(place.length).ok_or(wrong_length)?;
        let from = header.len() + place.start;
        if from + place.length > strings_end {
            return Err(ImageError::TagOutside { tag });
        }
        page[from..from + place.length].copy_from_slice(string);
        strings = after;
    }
    if strings.is_empty() { Ok(()) } else { Err(wrong_length) }
}
