//! The ESE database format as pure functions of bytes.
//!
//! Nothing here does I/O, except for [`header::read_header`], and nothing uses the log or the engine. A page
//! is a slice of bytes; its size is the slice's length. Integers are
//! little-endian, except in keys, which are big-endian so that comparing bytes compares values.

pub mod page_size;

pub mod checksum;
pub mod page;

mod column_value;
pub mod key;
pub mod record;
mod schema;

pub mod header;
mod log_position;

pub mod space;

pub mod bootstrap;
mod bulk;
pub mod catalog;

#[cfg(test)]
mod reader_test;
