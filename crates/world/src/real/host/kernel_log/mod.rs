//! The kernel log, searched for errors of the devices under test.
//!
//! The kernel reports failures that a retry hides from the caller, and failures of devices below the one that
//! was used. [`KernelLog`] starts at the end of the log, so only later messages count; each read takes the
//! new messages without waiting. Pure functions classify the text: [`DeviceNames`] matches the devices under
//! test, and [`error_in`] matches failed or troubled I/O.
//!
//! Only the kernel's own messages count: programs that write to /dev/kmsg have another facility.

mod devices;
mod phrases;
mod record;

pub use devices::DeviceNames;
pub use phrases::{Phrase, error_in};
pub use record::{KernelRecord, MalformedRecord};

use crate::{IoError, IoErrorKind, IoResult};
use rustix::{
    fs::{Mode, OFlags, SeekFrom, open, seek},
    io::{Errno, read},
};
use std::os::fd::OwnedFd;

const PATH: &str = "/dev/kmsg";
/// Longest record the kernel returns (its CONSOLE_EXT_LOG_MAX, later PRINTK_MESSAGE_MAX, is smaller).
const RECORD_BYTES_MAX: usize = 16 << 10;
/// Records of one read, at most: a storm of messages must not delay the caller.
const RECORDS_MAX: usize = 10_000;

/// A kernel message that reports an error of a device under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelDeviceError {
    /// The device's name in the message.
    pub device: String,
    /// The kind of error, in one or two words.
    pub what: &'static str,
    /// The kernel source file that prints it.
    pub source: &'static str,
    /// The message, its lines joined.
    pub text: String,
    /// Kernel clock, in microseconds since boot.
    pub at_us: u64,
}

/// The new messages of one read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLogUpdate {
    /// Error messages, oldest first.
    pub errors: Vec<KernelDeviceError>,
    /// The kernel overwrote messages before they were read.
    pub lost: bool,
}

/// The kernel log from one moment on, filtered for some devices.
#[derive(Debug)]
pub struct KernelLog {
    log: OwnedFd,
    names: DeviceNames,
}

impl KernelLog {
    /// Starts at the end of the log and reports errors of the devices called `names`. `PermissionDenied`
    /// where only root may read the log, `NotFound` in a container that hides it.
    pub fn from_now(names: DeviceNames) -> IoResult<Self> {
        let fail = |error: Errno| IoError::from_os(error.into(), format!("opening the kernel log {PATH}"));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let log = open(PATH, flags, Mode::empty()).map_err(fail)?;
        seek(&log, SeekFrom::End(0)).map_err(fail)?;
        // Some containers put another file in its place; a real log returns EAGAIN at its end.
        match read(&log, &mut [0; RECORD_BYTES_MAX]) {
            Err(Errno::AGAIN | Errno::PIPE) => Ok(Self { log, names }),
            Ok(length) if length > 0 => Ok(Self { log, names }),
            Ok(_) => Err(IoError::new(IoErrorKind::Unsupported, format!("{PATH} is not a kernel log"))),
            Err(error) => Err(fail(error)),
        }
    }

    pub fn names(&self) -> &DeviceNames {
        &self.names
    }

    /// Reads the new messages about the devices. Does not wait.
    pub fn read_new(&mut self) -> IoResult<KernelLogUpdate> {
        let mut news = KernelLogUpdate::default();
        let mut bytes = [0; RECORD_BYTES_MAX];
        for _ in 0..RECORDS_MAX {
            match read(&self.log, &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(length) => news.errors.extend(device_error(&bytes[..length], &self.names)),
                // The next read continues with the oldest record left.
                Err(Errno::PIPE) => news.lost = true,
                Err(Errno::INTR) => {}
                Err(error) => return Err(IoError::from_os(error.into(), format!("reading {PATH}"))),
            }
        }
        Ok(news)
    }
}

/// Classifies one record; `None` if it reports no error of these devices, or is malformed.
pub fn device_error(bytes: &[u8], names: &DeviceNames) -> Option<KernelDeviceError> {
    let record = KernelRecord::parse(bytes).ok()?;
    if !record.is_of_kernel() {
        return None;
    }
    let phrase = error_in(&record.text)?;
    let device = names.named_in(&record)?;
    Some(KernelDeviceError {
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
    fn a_log_starts_at_its_end_and_ignores_messages_of_programs() {
        let names = DeviceNames::of_names(["spindle-test-disk".to_owned()]);
        let mut log = match KernelLog::from_now(names) {
            Ok(log) => log,
            Err(error) => return println!("skipped: {error}"),
        };
        assert_eq!(log.read_new().unwrap(), KernelLogUpdate::default(), "earlier messages do not count");
        let line = "<3>spindle test: I/O error, dev spindle-test-disk, sector 0\n";
        if std::fs::write(PATH, line).is_err() {
            return println!("skipped: the kernel log cannot be written");
        }
        assert_eq!(log.read_new().unwrap().errors, [], "a program wrote the message");
    }
}
