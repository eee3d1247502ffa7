//! The kernel log, read for what it says of the devices under test.
//!
//! The kernel knows of failures that a retry hides from whoever waits, and of devices below the one
//! that was asked. [`KernelLog`] begins at the end of the log, so only what is said from then on
//! counts; each look takes what has come since, without waiting. What a message means is decided by pure
//! functions on its text: [`DeviceNames`] says whether it is about the devices under test, and
//! [`trouble_in`] whether it tells of a failed or troubled I/O.
//!
//! Only the kernel's own messages count: what programs write to /dev/kmsg carries another facility.

mod devices;
mod phrases;
mod record;

pub use devices::DeviceNames;
pub use phrases::{Phrase, trouble_in};
pub use record::{KernelRecord, Malformed};

use crate::{IoError, IoErrorKind, IoResult};
use rustix::{
    fs::{Mode, OFlags, SeekFrom, open, seek},
    io::{Errno, read},
};
use std::os::fd::OwnedFd;

const PATH: &str = "/dev/kmsg";
/// The longest record the kernel hands out (its CONSOLE_EXT_LOG_MAX, later PRINTK_MESSAGE_MAX, is smaller).
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Records of one look: a storm of messages must not hold up whoever looks.
const RECORDS_MAX: usize = 10_000;

/// A message that tells of trouble with a device under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTrouble {
    /// Name of the device, as the message has it.
    pub device: String,
    /// What it tells, in a word or two.
    pub what: &'static str,
    /// Part of the kernel that says so.
    pub source: &'static str,
    /// The message, its lines joined.
    pub text: String,
    /// When, in microseconds of the kernel's own clock since boot.
    pub at_us: u64,
}

/// What one look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelNews {
    /// Messages of trouble, oldest first.
    pub troubles: Vec<KernelTrouble>,
    /// Messages were overwritten before they could be read.
    pub lost: bool,
}

/// The kernel log from some moment on, for some devices.
#[derive(Debug)]
pub struct KernelLog {
    log: OwnedFd,
    names: DeviceNames,
}

impl KernelLog {
    /// The log from now on, for the devices called `names`. `PermissionDenied` where only root may read
    /// it, `NotFound` in a container that hides it.
    pub fn from_now(names: DeviceNames) -> IoResult<Self> {
        let fail = |error: Errno| IoError::from_os(error.into(), format!("opening the kernel log {PATH}"));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = open(PATH, flags, Mode::empty()).map_err(fail)?;
        seek(&log, SeekFrom::End(0)).map_err(fail)?;
        // Some containers put something else in its place; a log answers "nothing yet" now.
        match read(&log, &mut [0; RECORD_BYTES_MAX]) {
            Err(Errno::AGAIN | Errno::PIPE) => Ok(Self { log, names }),
            Ok(length) if length > 0 => Ok(Self { log, names }),
            Ok(_) => Err(IoError::new(IoErrorKind::Unsupported, format!("{PATH} is not a kernel log"))),
            Err(error) => Err(fail(error)),
        }
    }

    /// The devices it looks for.
    pub fn names(&self) -> &DeviceNames {
        &self.names
    }

    /// What has been said of the devices since the last look. Does not wait.
    pub fn look(&mut self) -> IoResult<KernelNews> {
        let mut news = KernelNews::default();
        let mut bytes = [0; RECORD_BYTES_MAX];
        for _ in 0..RECORDS_MAX {
            match read(&self.log, &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(length) => news.troubles.extend(trouble(&bytes[..length], &self.names)),
                // The next read goes on with the oldest record that is left.
                Err(Errno::PIPE) => news.lost = true,
                Err(Errno::INTR) => {}
                Err(error) => return Err(IoError::from_os(error.into(), format!("reading {PATH}"))),
            }
        }
        Ok(news)
    }
}

/// What one record tells of trouble with the devices, if it does. What is no record tells nothing.
pub fn trouble(bytes: &[u8], names: &DeviceNames) -> Option<KernelTrouble> {
    let record = KernelRecord::parse(bytes).ok()?;
    if !record.is_of_kernel() {
        return None;
    }
    let phrase = trouble_in(&record.text)?;
    let device = names.named_in(&record)?;
    Some(KernelTrouble {
        device,
        what: phrase.what,
        source: phrase.source,
        text: record.text,
        at_us: record.at_us,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_now_and_programs_do_not_speak_for_the_kernel() {
        let names = DeviceNames::of_names(["spindle-test-disk".to_owned()]);
        let mut log = match KernelLog::from_now(names) {
            Ok(log) => log,
            Err(error) => return println!("skipped: {error}"),
        };
        assert_eq!(log.look().unwrap(), KernelNews::default(), "what was said before does not count");
        let line = "<3>spindle test: I/O error, dev spindle-test-disk, sector 0\n";
        if std::fs::write(PATH, line).is_err() {
            return println!("skipped: the kernel log cannot be written");
        }
        assert_eq!(log.look().unwrap().troubles, [], "it was not the kernel that said so");
    }
}
