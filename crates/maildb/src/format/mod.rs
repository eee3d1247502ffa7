//! The ESE database format: what lies in a database file, as pure functions of bytes.
//!
//! Nothing here reads or writes a device. A page is a slice of bytes; its size is the slice's length.
//! Everything multi-byte is little-endian unless its documentation says otherwise (keys are big-endian,
//! so that comparing bytes compares values).

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
