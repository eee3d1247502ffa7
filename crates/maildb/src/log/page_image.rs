//! Changed pages on their way to the database file.

use crate::format::{header::LogPosition, page_size::PageNumber};
use std::sync::Arc;
use world::Buffer;

/// A changed page, about to be written in place.
pub struct PageImage {
    pub page: PageNumber,
    /// End of the last log record in it; the log is stable up to here.
    pub last: LogPosition,
    /// Sealed bytes.
    pub bytes: Arc<Buffer>,
}
