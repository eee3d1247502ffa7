//! The header of a log file. It has one copy; without it the records can still be checked.

use super::{HEADER_BYTES, LogFacts, LogFormat};
use crate::{
    database::FormatVersion,
    fields::{bytes_at, signature_at, time_at, u16_at, u32_at, u64_at},
    finding::{FileFinding, FileLocation, FilePart},
};
use maildb::{PageSize, format::checksum::old_xor, log::file_header::LogFileHeader};
use world::ByteOffset;

/// The newest version known to this code.
const NEWEST: FormatVersion = FormatVersion { major: 8, update_major: 130, update_minor: 280 };
/// Flag of circular logging.
const CIRCULAR: u8 = 2;

/// Parses the header; `None`, and damage, if it does not verify or is invalid.
pub fn read(bytes: &[u8], findings: &mut Vec<FileFinding>) -> Option<LogFacts> {
    let place = FileLocation::new(FilePart::HeaderCopy(0), ByteOffset(0));
    let Some(header) = bytes.get(..HEADER_BYTES) else {
        findings.push(FileFinding::damage(
            FileLocation::FILE,
            format!("{} bytes are too short for a log", bytes.len()),
        ));
        return None;
    };
    let (stored, computed) = (u32_at(header, 0), old_xor(header));
    if stored != computed {
        let what = format!("checksum {stored:x} should be {computed:x}; there is no other copy");
        findings.push(FileFinding::damage(place, what));
        return None;
    }
    let format = match (u16_at(header, 8), u16_at(header, 10)) {
        (4096, 1) => LogFormat::Segments,
        (512, 8) => LogFormat::Sectors,
        (unit, count) => {
            findings.push(FileFinding::note(
                place,
                format!("unknown layout: sectors of {unit} bytes, {count} of them header"),
            ));
            return None;
        }
    };
    let facts = facts_of(header, format);
    if is_newer(&facts) {
        let what = format!("format {} is newer than any known: its new parts are not checked", facts.version);
        findings.push(FileFinding::note(place, what));
    }
    let claimed = u64::from(u16_at(header, 12)) * u64::from(u16_at(header, 8));
    if claimed > bytes.len() as u64 {
        let what = format!("it ends after {} of {claimed} bytes", bytes.len());
        findings.push(FileFinding::damage(
            FileLocation::new(FilePart::Bytes, ByteOffset(bytes.len() as u64)),
            what,
        ));
    }
    Some(facts)
}

/// True if the log may contain record types unknown to this code.
pub fn is_newer(facts: &LogFacts) -> bool {
    facts.version.major > NEWEST.major || facts.format == LogFormat::Segments && facts.version > NEWEST
}

fn facts_of(header: &[u8], format: LogFormat) -> LogFacts {
    let spindle = LogFileHeader::decode(header);
    let version = match format {
        LogFormat::Segments => FormatVersion {
            major: u32_at(header, 32),
            update_major: u32_at(header, 40),
            update_minor: u32_at(header, 648),
        },
        // The old format counts differently, as its minor version shows.
        LogFormat::Sectors => FormatVersion {
            major: u32_at(header, 32),
            update_major: u32_at(header, 36),
            update_minor: u32_at(header, 40),
        },
    };
    let [flags] = bytes_at(header, 639);
    LogFacts {
        format,
        version,
        generation: u32_at(header, 4),
        created: time_at(header, 16),
        previous_created: time_at(header, 24),
        signature: signature_at(header, 44),
        database_page_size: match u16_at(header, 14) {
            0 => Some(PageSize::Kib4),
            page_bytes => PageSize::from_bytes(page_bytes.into()),
        },
        is_circular: flags & CIRCULAR != 0,
        previous_accumulated: Some(u64_at(header, 653))
            .filter(|&xor| xor != 0 && format == LogFormat::Segments),
        previous_end: spindle.and_then(|header| header.previous_end),
        accumulated: Vec::new(),
        is_torn: false,
    }
}
