//! What goes over the wire (RFC 7143): frames with their digests, headers, texts.
//!
//! Reading order: `frame`, [`pdu`], [`text`]; `parcel` (frames on their way out).

pub mod frame;

pub mod parcel;

pub mod pdu;

pub mod text;
