//! SCSI commands of a disk (SPC-4 and SBC-3).

pub mod commands;

pub mod copy_list;

pub mod identity;
pub mod properties;

pub mod inquiry;

pub mod mode;

pub mod reservations;

pub mod sense;

pub mod thresholds;

pub mod unit;
pub mod withholding;
