//! SCSI over TCP (RFC 7143): a target that serves any [`BlockDevice`](world::BlockDevice) as a disk, and an initiator for which
//! the disk of any target is one.
//!
//! Reading order: [`scsi`] (a disk as initiators know it), [`wire`] (what goes over the wire), [`session`] (who logs in, on
//! which terms), [`target`], [`initiator`].

pub mod wire;

pub mod scsi;

pub mod session;

pub mod target;

pub mod initiator;

/// The port iSCSI has (IANA).
pub const PORT: u16 = 3260;
