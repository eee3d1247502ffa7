//! Messages between the helper and its supervisor, over a socket that keeps their bounds. Both ends are one program.

use crate::mount_freeze::MountThaw;
use rustix::io::Errno;

/// Bytes of the longest message.
pub(super) const MESSAGE_BYTES: usize = 9;

/// To the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Freeze until this moment of the monotonic clock, in nanoseconds.
    Freeze {
        deadline_ns: u64,
    },
    Thaw,
}

/// From the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HelperAnswer {
    Ready,
    Frozen,
    Refused(Errno),
    /// The deadline has passed, before or after the freeze was complete, and the helper has thawed.
    Late,
    /// An answer to the thaw; the helper ends.
    Thawed(MountThaw),
}

impl Order {
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        match self {
            Self::Freeze { deadline_ns } => message(b'F', deadline_ns),
            Self::Thaw => message(b'T', 0),
        }
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match parts(bytes)? {
            (b'F', deadline_ns) => Some(Self::Freeze { deadline_ns }),
            (b'T', 0) => Some(Self::Thaw),
            _ => None,
        }
    }
}

impl HelperAnswer {
    pub fn encode(self) -> [u8; MESSAGE_BYTES] {
        match self {
            Self::Ready => message(b'R', 0),
            Self::Frozen => message(b'f', 0),
            Self::Refused(error) => message(b'r', u64::from(error.raw_os_error().unsigned_abs())),
            Self::Late => message(b'l', 0),
            Self::Thawed(thaw) => message(b't', thaw as u64),
        }
    }

    pub fn parse(bytes: &[u8]) -> Option<Self> {
        const THAWS: [MountThaw; 4] =
            [MountThaw::First, MountThaw::DeadlineFirst, MountThaw::OtherFirst, MountThaw::NotFrozen];
        match parts(bytes)? {
            (b'R', 0) => Some(Self::Ready),
            (b'f', 0) => Some(Self::Frozen),
            (b'r', code) => Some(Self::Refused(Errno::from_raw_os_error(i32::try_from(code).ok()?))),
            (b'l', 0) => Some(Self::Late),
            (b't', number) => THAWS.into_iter().find(|&thaw| thaw as u64 == number).map(Self::Thawed),
            _ => None,
        }
    }
}

fn message(kind: u8, number: u64) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [kind; MESSAGE_BYTES];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn parts(bytes: &[u8]) -> Option<(u8, u64)> {
    let (&kind, number) = bytes.split_first()?;
    Some((kind, u64::from_le_bytes(number.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back() {
        for order in [Order::Freeze { deadline_ns: u64::MAX - 1 }, Order::Thaw] {
            assert_eq!(Order::parse(&order.encode()), Some(order));
        }
        let thaws = [MountThaw::First, MountThaw::DeadlineFirst, MountThaw::OtherFirst, MountThaw::NotFrozen];
        let others = [
            HelperAnswer::Ready,
            HelperAnswer::Frozen,
            HelperAnswer::Refused(Errno::BUSY),
            HelperAnswer::Late,
        ];
        for answer in thaws.map(HelperAnswer::Thawed).into_iter().chain(others) {
            assert_eq!(HelperAnswer::parse(&answer.encode()), Some(answer));
        }
        for bytes in [&b""[..], b"F", b"x\0\0\0\0\0\0\0\0", b"t\x09\0\0\0\0\0\0\0"] {
            assert_eq!((Order::parse(bytes), HelperAnswer::parse(bytes)), (None, None));
        }
    }
}
