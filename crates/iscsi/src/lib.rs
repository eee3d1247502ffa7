//! iSCSI (RFC 7143): a target that serves any [`BlockDevice`](world::BlockDevice) as a disk, and an initiator
//! that presents a logical unit of any target as a `BlockDevice`.
//!
//! Reading order: [`scsi`] (the SCSI commands of a disk), [`wire`] (protocol data units), [`session`] (login
//! and negotiation), [`target`], [`initiator`].

pub mod wire;

pub mod scsi;

pub mod session;

pub mod target;

pub mod initiator;

/// The port IANA assigned to iSCSI.
pub const PORT: u16 = 3260;
