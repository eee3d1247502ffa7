//! Storage errors: a kind for callers to match on, and a message for people.

use std::{fmt, io, sync::Arc};

pub type IoResult<T> = Result<T, IoError>;

/// Error kinds a caller may treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// No such file or device.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The process may not do this.
    PermissionDenied,
    /// The file, device or filesystem cannot be written.
    ReadOnly,
    /// No space left, or over a quota.
    NoSpace,
    /// Another process holds the device or the listening address.
    Busy,
    /// Beyond the end of the device.
    OutOfRange,
    /// Offset, length or memory is not a multiple of what the device needs.
    Unaligned,
    /// The medium failed to read or write (EIO and its kin).
    Medium,
    /// The connection to a device broke, and writes that it acknowledged and did not flush may be lost.
    CacheLost,
    /// The device or filesystem cannot do this at all.
    Unsupported,
    /// Neither file nor folder, or a file where a folder is needed and vice versa.
    WrongType,
    /// Content that does not parse (a damaged directory on a raw device).
    Damaged,
    /// The peer is unreachable or closed the connection, or the device was removed.
    Disconnected,
    /// The data are on another device now, which has the name of this one. Nobody is answered: who connects again finds it.
    Moved,
    /// Any other cause; the source names it.
    Other,
}

/// A failed storage operation: its kind, the operation and its target, and the cause.
#[derive(Clone)]
pub struct IoError {
    kind: IoErrorKind,
    context: Arc<str>,
    source: Option<Arc<io::Error>>,
}

impl IoError {
    /// An error detected by Spindle itself.
    pub fn new(kind: IoErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into().into(), source: None }
    }

    /// An error the operating system reported while doing `context`.
    pub fn from_os(source: io::Error, context: impl Into<String>) -> Self {
        Self { kind: kind_of(&source), context: context.into().into(), source: Some(Arc::new(source)) }
    }

    pub fn kind(&self) -> IoErrorKind {
        self.kind
    }
}

fn kind_of(source: &io::Error) -> IoErrorKind {
    use rustix::io::Errno;
    let Some(code) = source.raw_os_error() else {
        return match source.kind() {
            io::ErrorKind::NotFound => IoErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => IoErrorKind::PermissionDenied,
            io::ErrorKind::UnexpectedEof => IoErrorKind::OutOfRange,
            io::ErrorKind::ConnectionReset => IoErrorKind::Disconnected,
            _ => IoErrorKind::Other,
        };
    };
    match Errno::from_raw_os_error(code) {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => IoErrorKind::NotFound,
        Errno::EXIST => IoErrorKind::AlreadyExists,
        Errno::PERM | Errno::ACCESS => IoErrorKind::PermissionDenied,
        Errno::ROFS => IoErrorKind::ReadOnly,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoErrorKind::NoSpace,
        Errno::BUSY | Errno::TXTBSY | Errno::ADDRINUSE => IoErrorKind::Busy,
        Errno::INVAL => IoErrorKind::Unaligned,
        Errno::IO | Errno::ILSEQ | Errno::REMOTEIO | Errno::TIMEDOUT => IoErrorKind::Medium,
        Errno::CONNREFUSED
        | Errno::CONNRESET
        | Errno::CONNABORTED
        | Errno::PIPE
        | Errno::HOSTUNREACH
        | Errno::NETUNREACH => IoErrorKind::Disconnected,
        Errno::NOTSUP | Errno::NOSYS => IoErrorKind::Unsupported,
        Errno::NOTDIR | Errno::ISDIR => IoErrorKind::WrongType,
        _ => IoErrorKind::Other,
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.context),
            None => write!(f, "{}", self.context),
        }
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IoError({:?}, {self})", self.kind)
    }
}

impl std::error::Error for IoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_os_error_keeps_its_kind_and_its_message() {
        let error = IoError::from_os(io::Error::from_raw_os_error(28), "growing mail.edb");
        assert_eq!(error.kind(), IoErrorKind::NoSpace);
        assert_eq!(error.to_string(), "growing mail.edb: No space left on device (os error 28)");
    }
}
