//! SCSI commands, and later the iSCSI sessions that carry them.
//!
//! What is here so far knows no network: who may do what with a logical unit ([`scsi::reservations`]), and how a unit says
//! what is wrong ([`scsi::sense`]). Nothing serves it yet.

pub mod scsi;
