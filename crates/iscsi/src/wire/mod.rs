//! The wire format of RFC 7143: PDUs and their digests, headers, text keys.
//!
//! Reading order: [`pdu`], [`header`], [`text`], [`encoded_pdu`] (outgoing PDUs).

pub mod pdu;

pub mod encoded_pdu;

pub mod header;

pub mod text;
