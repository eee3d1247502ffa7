//! A mapfile of GNU ddrescue: the ranges of a copy that were read, could not be read, or were not tried.
//!
//! The format is in its manual, "Mapfile structure"; `ddrescuelog` and ddrescue itself read it.

use std::{fmt::Write, ops::Range};

/// State of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStatus {
    Finished,
    BadSector,
    NotTried,
}

impl CopyStatus {
    fn symbol(self) -> char {
        match self {
            Self::Finished => '+',
            Self::BadSector => '-',
            Self::NotTried => '?',
        }
    }
}

/// A map of `size` bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapfile {
    size: u64,
    /// Adjacent, from 0 on; neighbours differ.
    parts: Vec<(Range<u64>, CopyStatus)>,
}

impl Mapfile {
    /// A map without any tried range.
    pub fn new(size: u64) -> Self {
        Self { size, parts: Vec::new() }
    }

    /// Sets the status of the next bytes, up to `end`.
    pub fn add(&mut self, end: u64, status: CopyStatus) {
        let begin = self.done();
        assert!(begin <= end && end <= self.size, "{end} of {}", self.size);
        match self.parts.last_mut() {
            _ if begin == end => {}
            Some((last, known)) if *known == status => last.end = end,
            _ => self.parts.push((begin..end, status)),
        }
    }

    /// End of the ranges with a known status.
    pub fn done(&self) -> u64 {
        self.parts.last().map_or(0, |(last, _)| last.end)
    }

    /// Unreadable ranges.
    pub fn bad(&self) -> impl Iterator<Item = &Range<u64>> {
        self.parts.iter().filter(|(_, status)| *status == CopyStatus::BadSector).map(|(range, _)| range)
    }

    /// The content of the file, with a one-line `comment`.
    pub fn text(&self, comment: &str) -> String {
        let mut text = format!("# Mapfile. Created by spindle {}\n# {comment}\n", env!("CARGO_PKG_VERSION"));
        let done = self.done();
        let state = if done == self.size { '+' } else { '?' };
        text.push_str("# current_pos  current_status  current_pass\n");
        let _ = writeln!(text, "0x{done:08X}     {state}               1");
        text.push_str("#      pos        size  status\n");
        let rest = (done < self.size).then_some((done..self.size, CopyStatus::NotTried));
        for (range, status) in self.parts.iter().cloned().chain(rest) {
            let size = range.end - range.start;
            let _ = writeln!(text, "0x{:08X}  0x{size:08X}  {}", range.start, status.symbol());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_the_rest_was_not_tried() {
        let mut map = Mapfile::new(20_480);
        map.add(4096, CopyStatus::Finished);
        map.add(8192, CopyStatus::Finished);
        map.add(12_288, CopyStatus::BadSector);
        assert!(map.bad().eq([&(8192..12_288)]), "{map:?}");
        let text = map.text("mail/store");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "# mail/store",
                "# current_pos  current_status  current_pass",
                "0x00003000     ?               1",
                "#      pos        size  status",
                "0x00000000  0x00002000  +",
                "0x00002000  0x00001000  -",
                "0x00003000  0x00002000  ?",
            ]
        );
        map.add(20_480, CopyStatus::Finished);
        assert!(map.text("").contains("0x00005000     +               1\n"));
    }
}
