//! SCSI over TCP (RFC 7143): a target that serves any [`BlockDevice`](world::BlockDevice) as a disk.
//!
//! Reading order: [`scsi`] (a disk as initiators know it), [`wire`] (what goes over the wire), [`session`] (who logs in, on
//! which terms), [`target`].

pub mod wire;

pub mod scsi;

pub mod session;

pub mod target;

/// The port iSCSI has (IANA).
pub const PORT: u16 = 3260;
