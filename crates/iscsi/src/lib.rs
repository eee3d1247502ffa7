//! SCSI over TCP (RFC 7143), so far without the connections that carry it.
//!
//! [`scsi`] is a disk as initiators know it, over any block device; [`wire`] what goes over the wire; [`session`] what two ends
//! agree on. Nothing serves it yet.

pub mod wire;

pub mod scsi;

pub mod session;
