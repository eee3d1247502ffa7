//! The SCSI a disk speaks: SPC-4 and SBC-3.

pub mod reservations;

pub mod sense;
