//! What goes over the wire (RFC 7143): frames with their digests, headers, texts.
//!
//! Reading order: `frame`, [`pdu`], [`text`].

pub mod frame;

pub mod pdu;

pub mod text;
