//! The limit on what a run may write, counted by the kernel and enforced during the run.
//!
//! A closed loop of threads writes as much as the storage allows, so the estimate before the first
//! byte cannot enforce the limit. The kernel counts the bytes this process has sent to storage
//! (`write_bytes` of /proc/self/io, proc(5)): growth, logs and all.

use crate::sizing::show_decimal;
use report::{Finding, Severity};
use std::path::Path;
use world::{ByteCount, real::host_files};

/// A limit on the bytes written, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    most: ByteCount,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Less than the limit was written at the last check.
    Within,
    /// The limit was met when this much was written.
    Spent(ByteCount),
    /// The kernel does not count.
    Uncounted,
}

impl Allowance {
    /// At most `most` bytes from the start of this process on.
    pub fn new(most: ByteCount) -> Self {
        Self { most, state: State::Within }
    }

    /// Reads the counter. True once: when the limit is met.
    pub fn is_met(&mut self) -> bool {
        let text = host_files::read_to_string(Path::new("/proc/self/io"));
        self.count(text.ok().and_then(|text| written_bytes(&text)))
    }

    fn count(&mut self, written: Option<ByteCount>) -> bool {
        if self.state != State::Within {
            return false;
        }
        match written {
            Some(written) if written >= self.most => {
                self.state = State::Spent(written);
                true
            }
            Some(_) => false,
            None => {
                self.state = State::Uncounted;
                false
            }
        }
    }

    /// A finding for the report: the limit ended the run, or could not be enforced.
    pub fn finding(&self) -> Option<Finding> {
        let text = match self.state {
            State::Within => return None,
            State::Spent(written) => format!(
                "The run was ended early: it had written {}, and the limit is {}. A longer run needs a larger limit.",
                show_decimal(written),
                show_decimal(self.most)
            ),
            State::Uncounted => format!(
                "This system does not count what a process writes: the limit of {} was not watched.",
                show_decimal(self.most)
            ),
        };
        Some(Finding { severity: Severity::Warning, text, source: String::new() })
    }
}

/// `write_bytes` of /proc/self/io.
fn written_bytes(text: &str) -> Option<ByteCount> {
    let field = text.lines().find_map(|line| line.strip_prefix("write_bytes:"))?;
    field.trim().parse().ok().map(ByteCount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_met_once_and_told_in_the_report() {
        let mut allowance = Allowance::new(ByteCount::mib(10));
        assert!(!allowance.count(Some(ByteCount::mib(9))));
        assert_eq!(allowance.finding(), None);
        assert!(allowance.count(Some(ByteCount::mib(11))));
        assert!(!allowance.count(Some(ByteCount::mib(12))), "said once");
        let finding = allowance.finding().expect("told");
        assert_eq!(
            finding.text,
            "The run was ended early: it had written 11.6 MB, and the limit is 10.5 MB. A longer run needs a larger limit."
        );
    }

    #[test]
    fn a_system_that_does_not_count_is_named() {
        let mut allowance = Allowance::new(ByteCount::mib(10));
        assert!(!allowance.count(None));
        assert!(allowance.finding().is_some_and(|finding| finding.text.ends_with("was not watched.")));
    }

    #[test]
    fn the_kernels_count_is_understood() {
        let text = "rchar: 7\nwchar: 8\nread_bytes: 1\nwrite_bytes: 4096\ncancelled_write_bytes: 2\n";
        assert_eq!(written_bytes(text), Some(ByteCount(4096)));
        assert_eq!(written_bytes("rchar: 7\n"), None);
    }
}
