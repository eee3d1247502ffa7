//! The rule for file names in a [`Directory`](crate::Directory).

use crate::{IoError, IoErrorKind, IoResult};

/// Longest name, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 64;

/// Refuses names that are empty, too long, or special to a filesystem.
pub(crate) fn check_plain_name(name: &str) -> IoResult<()> {
    let plain = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0']);
    if plain {
        Ok(())
    } else {
        Err(IoError::new(
            IoErrorKind::Unsupported,
            format!("{name:?} is not a plain file name of 1 to {NAME_BYTES_MAX} bytes"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["E00.log", "mail 1.edb", "ä", &"x".repeat(NAME_BYTES_MAX)] {
            assert!(check_plain_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a\0", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(check_plain_name(bad).unwrap_err().kind(), IoErrorKind::Unsupported, "{bad}");
        }
    }
}
