//! Mails written into a Maildir, as mail programs and Dovecot's import read it.
//!
//! Invariants:
//!
//! 1. A mail is in `new` whole or not at all, also after a power cut: it is written in `tmp`, flushed, and renamed.
//! 2. A mail that is there already, also read and moved to `cur`, is left alone. Readers move mails at any moment, from `new` to
//!    `cur` and never back: so `new` is listed first, and a mail that moves meanwhile is seen in `cur`.
//! 3. One process at a time writes a Maildir in this way: its folder is locked. The lock ends with the process.
//! 4. What is counted as written is stable once [`MaildirWriter::finish`] has returned.

use crate::{
    mail_files::{FOLDERS, HostMailFiles, MailFiles},
    planted::{self, RecoveryBug},
};
use std::{collections::BTreeSet, path::Path};
use world::{
    IoError, IoErrorKind, IoResult,
    real::host_files::{self, PathKind},
};

/// Begins the flags in the name of a mail that was read.
const FLAGS: char = ':';
/// Mails, and bytes of them, that wait in `tmp` for one flush.
const WAITING_MAX: usize = 512;
const WAITING_BYTES_MAX: usize = 32 << 20;

/// A Maildir that gets mails.
pub struct MaildirWriter {
    files: Box<dyn MailFiles>,
    /// Names without flags of the mails that are there.
    there: BTreeSet<String>,
    /// Names of those in `tmp`, in the order in which they came.
    waiting: Vec<String>,
    waiting_bytes: usize,
    /// Mails that were written.
    pub written: u64,
    /// Mails that were there before.
    pub kept: u64,
}

impl MaildirWriter {
    /// Refuses a folder that [`Self::open`] would not take. Nothing is changed.
    ///
    /// # Errors
    ///
    /// `WrongType` if the folder has something else in it; or it cannot be read.
    pub fn check(folder: &Path) -> IoResult<()> {
        if host_files::kind(folder)? == PathKind::Missing {
            return Ok(());
        }
        let entries = host_files::list(folder)?;
        let is_maildir = FOLDERS.iter().all(|name| entries.iter().any(|entry| entry == name));
        let is_begun = entries.iter().all(|entry| FOLDERS.contains(&entry.as_str()));
        if !is_maildir && !is_begun {
            let context = format!("{} is neither empty nor a Maildir", folder.display());
            return Err(IoError::new(IoErrorKind::WrongType, context));
        }
        Ok(())
    }

    /// Opens the Maildir at `folder`, and makes it if the folder is empty or missing.
    ///
    /// # Errors
    ///
    /// As of [`Self::check`]; another process writes it in this way; or it cannot be written.
    pub fn open(folder: &Path) -> IoResult<Self> {
        Self::check(folder)?;
        Self::of(Box::new(HostMailFiles::open(folder)?))
    }

    /// Writes a Maildir that is open.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn of(files: Box<dyn MailFiles>) -> IoResult<Self> {
        let mut there = BTreeSet::new();
        let mut folders: Vec<&str> = FOLDERS.into_iter().filter(|name| *name != "tmp").collect();
        if planted::is(RecoveryBug::MovedMailsUnseen) {
            folders.reverse();
        }
        let without_flags = |file: String| match planted::is(RecoveryBug::FlagsNotCutOff) {
            true => file,
            false => file.split(FLAGS).next().unwrap_or_default().to_owned(),
        };
        for name in folders {
            there.extend(files.list(name)?.into_iter().map(without_flags));
        }
        Ok(Self { files, there, waiting: Vec::new(), waiting_bytes: 0, written: 0, kept: 0 })
    }

    /// Adds a mail; `name` is its own each time.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    ///
    /// # Panics
    ///
    /// If the name is no plain name of a file, or has flags.
    pub fn add(&mut self, name: &str, mail: &[u8]) -> IoResult<()> {
        assert!(!name.is_empty() && !name.starts_with('.') && !name.contains(['/', FLAGS]), "{name}");
        if !self.there.insert(name.to_owned()) {
            self.kept += 1;
            return Ok(());
        }
        // One that was killed may have left a part of it.
        self.files.begin(name, mail)?;
        self.waiting.push(name.to_owned());
        self.waiting_bytes += mail.len();
        if self.waiting.len() >= WAITING_MAX || self.waiting_bytes >= WAITING_BYTES_MAX {
            self.deliver_waiting()?;
        }
        Ok(())
    }

    /// Makes all mails stable.
    ///
    /// # Errors
    ///
    /// The filesystem failed: mails may be gone after a power cut.
    pub fn finish(&mut self) -> IoResult<()> {
        self.deliver_waiting()?;
        if planted::is(RecoveryBug::FinishedUnflushed) { Ok(()) } else { self.files.flush() }
    }

    /// Moves what is in `tmp` to `new`, once it is on the drive.
    fn deliver_waiting(&mut self) -> IoResult<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if !planted::is(RecoveryBug::DeliveredUnflushed) {
            self.files.flush()?;
        }
        for name in std::mem::take(&mut self.waiting) {
            self.files.deliver(&name)?;
            self.written += 1;
        }
        self.waiting_bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn mails_are_added_once_also_after_a_reader_moved_them() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("anna");
        let mut maildir = MaildirWriter::open(&place).unwrap();
        maildir.add("1.a", b"one").unwrap();
        maildir.add("2.a", b"two").unwrap();
        let busy = MaildirWriter::open(&place).err().unwrap();
        assert!(busy.to_string().contains("another fetch writes"), "{busy}");
        maildir.finish().unwrap();
        assert_eq!((maildir.written, maildir.kept), (2, 0));
        drop(maildir);
        std::fs::rename(place.join("new/1.a"), place.join("cur/1.a:2,S")).unwrap();
        let mut maildir = MaildirWriter::open(&place).unwrap();
        for name in ["1.a", "2.a", "3.a"] {
            maildir.add(name, b"again").unwrap();
        }
        maildir.finish().unwrap();
        assert_eq!((maildir.written, maildir.kept), (1, 2));
        assert_eq!(host_files::list(&place.join("new")).unwrap(), ["2.a", "3.a"]);
        assert_eq!(host_files::read(&place.join("new/2.a")).unwrap(), b"two");
        assert_eq!(host_files::list(&place.join("tmp")).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_folder_with_other_files_is_refused_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        host_files::write_atomically(&folder.path().join("letter"), b"mine").unwrap();
        let refused = MaildirWriter::open(folder.path()).err().unwrap();
        assert!(refused.to_string().contains("neither empty nor a Maildir"), "{refused}");
        assert_eq!(host_files::list(folder.path()).unwrap(), ["letter"]);
    }
}
