//! Names of log files. Content determines a file's type; names serve to list missing files.

use super::{FileContents, FileFacts};

/// A parsed log file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogName {
    /// `E00.log`, with its base.
    Current(String),
    /// `E00tmp.log`, with its base.
    Temporary(String),
    /// `E0000000012.log`: base and generation.
    Archived(String, u32),
}

/// Length of a base: `E00`, `edb`, `jet`.
const BASE_CHARS: usize = 3;

/// Parses a name; `None` if it is not a log's.
pub fn parse(name: &str) -> Option<LogName> {
    let (stem, extension) = name.rsplit_once('.')?;
    let is_log = ["log", "jtx"].iter().any(|known| extension.eq_ignore_ascii_case(known));
    let (base, rest) = stem.split_at_checked(BASE_CHARS).filter(|_| is_log)?;
    let base = base.to_owned();
    let is_hex = matches!(rest.len(), 5 | 8) && rest.bytes().all(|byte| byte.is_ascii_hexdigit());
    match rest {
        "" => Some(LogName::Current(base)),
        rest if rest.eq_ignore_ascii_case("tmp") => Some(LogName::Temporary(base)),
        digits if is_hex => Some(LogName::Archived(base, u32::from_str_radix(digits, 16).ok()?)),
        _ => None,
    }
}

/// The naming scheme of a folder's logs.
pub struct NamePattern {
    base: String,
    digits: usize,
    extension: String,
}

impl NamePattern {
    /// The scheme of the existing files; Exchange's, if there are none.
    pub fn of(files: &[FileFacts]) -> Self {
        let mut pattern = Self { base: "E00".to_owned(), digits: 8, extension: "log".to_owned() };
        let logs = files
            .iter()
            .filter(|file| matches!(file.facts, FileContents::Log(_) | FileContents::PreparedLog));
        for file in logs {
            let extension = file.name.rsplit_once('.').map_or("log", |(_, extension)| extension);
            match parse(&file.name) {
                Some(LogName::Archived(base, _)) => {
                    let digits = file.name.len() - base.len() - 1 - extension.len();
                    return Self { base, digits, extension: extension.to_owned() };
                }
                Some(LogName::Current(base) | LogName::Temporary(base)) => {
                    pattern = Self { base, extension: extension.to_owned(), ..pattern };
                }
                None => {}
            }
        }
        pattern
    }

    /// The names of these generations.
    pub fn range(&self, first: u32, last: u32) -> String {
        let Self { base, digits, extension } = self;
        let name = |generation: u32| format!("{base}{generation:0digits$X}.{extension}");
        if first == last { name(first) } else { format!("{} to {}", name(first), name(last)) }
    }

    /// Like [`NamePattern::range`], followed by the matching verb.
    pub fn are(&self, first: u32, last: u32) -> String {
        format!("{} {}", self.range(first, last), if first == last { "is" } else { "are" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_versions_parse_and_others_do_not() {
        let archived = |base: &str, generation| Some(LogName::Archived(base.to_owned(), generation));
        assert_eq!(parse("E00.log"), Some(LogName::Current("E00".to_owned())));
        assert_eq!(parse("edbtmp.jtx"), Some(LogName::Temporary("edb".to_owned())));
        assert_eq!(parse("E000001A.log"), archived("E00", 0x1A));
        assert_eq!(parse("E0100000012.LOG"), archived("E01", 0x12));
        for other in ["E00.chk", "E00res00001.jrs", "E00", "setup.log", "E0000001.log.bak", "é.log", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
