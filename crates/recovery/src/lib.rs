//! Backups opened on this machine: volumes as files, their filesystems mounted, and mailboxes found in them.
//!
//! Reading order: [`partition_table`] and [`device_range`] (parts of a device), [`volume_parts`] (all parts of one volume, with
//! what each holds), [`shown_files`] (devices as files of a FUSE filesystem), [`host`] (mounts, loop devices, and who uses them),
//! [`opening`] (an open backup as a file on this host remembers it), [`mailbox`] (mailboxes in mounted files), [`maildir`] and [`mail_files`] (mails written for mail programs).

pub mod device_range;
pub mod host;
pub mod mail_files;
pub mod mailbox;
pub mod maildir;
pub mod opening;
pub mod partition_table;
pub mod planted;
pub mod shown_files;
pub mod volume_parts;
