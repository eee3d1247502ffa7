//! The program's own code in memory: which of its pages the process has mapped.

use rustix::mm::{Advice, madvise};
use std::{fs, ptr};

/// Unmaps the code of the program, of which pages come back as they are used: from memory, where the kernel keeps the file. A
/// server calls it once it serves: nearly half of what its start used, such as the parser of its command line, is not used
/// again, but counts as its resident memory.
pub fn unmap_code_of_start() {
    // Some sandboxes have no /proc; then the process looks larger.
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
    for range in maps.lines().filter_map(code_of_a_file) {
        // SAFETY: the pages are executable, private and were never writable, so none differs from its file, and the next use of
        // one reads the same bytes there. A program that runs cannot be written to (ETXTBSY), and replacing its file leaves this
        // one as it is.
        #[allow(unsafe_code)]
        let unmapped = unsafe {
            madvise(ptr::with_exposed_provenance_mut(range.start), range.len(), Advice::LinuxDontNeed)
        };
        // A kernel that does not want to keeps them mapped.
        let _ = unmapped;
    }
}

/// The addresses of a row of `/proc/self/maps`, if it is code of a file: the program's and its libraries'.
fn code_of_a_file(row: &str) -> Option<std::ops::Range<usize>> {
    let mut fields = row.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let [_offset, _device, inode] = [fields.next()?, fields.next()?, fields.next()?];
    (rights == "r-xp" && inode != "0").then_some(())?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_unmapped() {
        let code = "1000-3000 r-xp 00f9a000 fe:00 1049 /usr/bin/spindle";
        assert_eq!(code_of_a_file(code), Some(0x1000..0x3000));
        for other in [
            "1000-3000 r--p 00000000 fe:00 1049 /usr/bin/spindle",
            "1000-3000 rw-p 00000000 fe:00 1049 /usr/bin/spindle",
            "1000-3000 rwxp 00000000 fe:00 1049 /usr/bin/spindle",
            "1000-3000 r-xp 00000000 00:00 0 [vdso]",
            "1000-3000 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code_of_a_file(other), None, "{other}");
        }
    }

    #[test]
    fn the_program_goes_on_with_less_of_its_code_mapped() {
        let before = mapped_code_kib();
        unmap_code_of_start();
        let after = mapped_code_kib();
        assert!(after < before, "{after} KiB of {before}");
    }

    /// KiB of code of files that is mapped.
    fn mapped_code_kib() -> u64 {
        let mut total = 0;
        let mut is_code = false;
        for line in fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            if let Some(size) = line.strip_prefix("Rss:").filter(|_| is_code) {
                total += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
            } else if line.contains('-') && !line.contains("kB") {
                is_code = code_of_a_file(line).is_some();
            }
        }
        total
    }
}
