//! Versions of rows.

use crate::hexadecimal::hexadecimal;
use ring::digest::{SHA256, digest};
use serde::Serialize;

/// The version of a row, as `ETag` and `If-Match` have it.
pub(crate) fn row_tag(row: &impl Serialize) -> String {
    let text = serde_json::to_string(row).expect("plain fields");
    let hash = digest(&SHA256, text.as_bytes());
    format!("\"{}\"", hexadecimal(&hash.as_ref()[..8]))
}
