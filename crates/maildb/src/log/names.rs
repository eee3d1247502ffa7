//! Names of the files of a log.

/// The names derived from a base name such as `E00`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogNames {
    base: String,
}

/// Kind of log file that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFileName {
    /// `E00.log`.
    Current,
    /// `E00tmp.log`.
    Temporary,
    /// `E0000000001.log`.
    Archived(u32),
}

/// Hexadecimal digits of an archived generation.
const DIGITS: usize = 8;

impl LogNames {
    /// The names that start with `base`.
    pub fn new(base: &str) -> Self {
        Self { base: base.to_owned() }
    }

    /// The file that the log is written to.
    pub fn current(&self) -> String {
        format!("{}.log", self.base)
    }

    /// The file being prepared for the next generation.
    pub fn temporary(&self) -> String {
        format!("{}tmp.log", self.base)
    }

    /// A filled file.
    pub fn archived(&self, generation: u32) -> String {
        format!("{}{generation:0DIGITS$X}.log", self.base)
    }

    /// A generation that is being copied into the folder; no log file.
    pub(super) fn joining(&self) -> String {
        format!("{}join.tmp", self.base)
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    pub fn checkpoint(&self) -> String {
        format!("{}.chk", self.base)
    }

    /// The flush journal, which is kept beside the log.
    pub fn flush_journal(&self) -> String {
        format!("{}.fj", self.base)
    }

    /// True if a file of that name belongs to the log or is kept beside it.
    pub fn owns(&self, name: &str) -> bool {
        let beside = [self.checkpoint(), self.flush_journal(), self.joining()];
        beside.iter().any(|known| known == name) || self.parse(name).is_some()
    }

    /// Parses a file name; `None` unless it is a log file of this base name.
    pub fn parse(&self, name: &str) -> Option<LogFileName> {
        let middle = name.strip_prefix(self.base.as_str())?.strip_suffix(".log")?;
        match middle {
            "" => Some(LogFileName::Current),
            "tmp" => Some(LogFileName::Temporary),
            digits => {
                let generation = u32::from_str_radix(digits, 16).ok()?;
                (self.archived(generation) == name).then_some(LogFileName::Archived(generation))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_and_others_are_not() {
        let names = LogNames::new("E00");
        assert_eq!(names.archived(0x1A2B), "E0000001A2B.log");
        assert_eq!(names.parse("E0000001A2B.log"), Some(LogFileName::Archived(0x1A2B)));
        assert_eq!(names.parse("E00.log"), Some(LogFileName::Current));
        assert_eq!(names.parse("E00tmp.log"), Some(LogFileName::Temporary));
        for other in
            ["E01.log", "E00.chk", "E001.log", "E00+0001A2B.log", "E0000001a2b.log", "E00res00001.jrs"]
        {
            assert_eq!(names.parse(other), None, "{other}");
        }
        assert!(["E00.chk", "E00.fj", "E00tmp.log", "E00join.tmp"].iter().all(|name| names.owns(name)));
        assert!(!["E01.chk", "E00.fjx", "priv1.edb"].iter().any(|name| names.owns(name)));
    }
}
