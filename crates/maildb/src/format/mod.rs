//! The ESE database format: what lies in a database file, as pure functions of bytes.
//!
//! Nothing here reads or writes a device. A page is a slice of bytes; its size is the slice's length.
//! Everything multi-byte is little-endian unless its documentation says otherwise (keys are big-endian,
//! so that comparing bytes compares values).

pub mod checksum;
pub mod header;
mod log_position;
pub mod page;
pub mod page_size;
