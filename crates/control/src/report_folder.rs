//! Reports that a server keeps: `reports/NAME.json` in its state folder, as `report::json` writes them.
//!
//! Invariants:
//!
//! 1. A name leads to no file outside the folder, and a file that a request makes is whole or not there.
//! 2. A list has [`LISTED_MAX`] reports at most, and reads 64 MiB of files that are new to it; the others are named.
//! 3. A file that cannot be read is in the list with the reason.

use report::{Refusal, RefusalCause, json, json::DocumentSummary};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Mutex,
};
use world::{
    ByteCount, IoErrorKind, IoResult, WallTime,
    real::host_files::{self, PathKind},
};

/// Name of the folder in the state folder.
const FOLDER: &str = "reports";
const END: &str = ".json";
/// Most characters of a name.
const NAME_BYTES_MAX: usize = 120;
/// Most bytes of a report: a day of `prove` with its samples has a tenth.
pub const REPORT_BYTES_MAX: u64 = 8 << 20;
/// Most reports that requests make, and that a list has.
pub const LISTED_MAX: usize = 256;
/// Most bytes that one list reads: about a second of one processor.
const READ_BYTES_MAX: u64 = 64 << 20;

/// The reports in a state folder.
pub struct ReportFolder {
    folder: PathBuf,
    /// Facts of the files that were read, by name.
    known: Mutex<BTreeMap<String, KnownReport>>,
}

/// Facts of a file, as long as it stays as it is.
#[derive(Clone)]
struct KnownReport {
    version: (u64, WallTime),
    facts: Result<DocumentSummary, String>,
}

/// A report in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptReport {
    pub name: String,
    pub size: ByteCount,
    /// The last change of its file.
    pub kept_at: WallTime,
    /// The reason if it is not known.
    pub facts: Result<DocumentSummary, String>,
}

/// The newest reports of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptReports {
    /// The newest first.
    pub reports: Vec<KeptReport>,
    /// Older ones.
    pub left_out: usize,
}

/// The outcome of keeping a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepingOutcome {
    New,
    /// There is the same one already.
    Same,
}

impl ReportFolder {
    /// `state` is the state folder.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join(FOLDER), known: Mutex::default() }
    }

    /// The newest reports.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn list(&self) -> Result<KeptReports, Refusal> {
        let mut files = self.files().map_err(|error| failed(&error))?;
        files.sort_by(|one, other| (other.1.1, &one.0).cmp(&(one.1.1, &other.0)));
        let left_out = files.len().saturating_sub(LISTED_MAX);
        files.truncate(LISTED_MAX);
        let mut known = self.known.lock().expect("nothing panics with the lock held");
        known.retain(|name, report| files.contains(&(name.clone(), report.version)));
        let mut bytes_left = READ_BYTES_MAX;
        let mut reports = Vec::with_capacity(files.len());
        for (name, version) in files {
            let (size, kept_at) = version;
            let facts = match known.get(&name) {
                Some(report) => report.facts.clone(),
                None if size > bytes_left => Err("it has not been looked at yet: ask again".to_owned()),
                None => {
                    bytes_left -= size;
                    let facts = self.facts(&name);
                    known.insert(name.clone(), KnownReport { version, facts: facts.clone() });
                    facts
                }
            };
            reports.push(KeptReport { name, size: ByteCount(size), kept_at, facts });
        }
        Ok(KeptReports { reports, left_out })
    }

    /// Reports with the sizes and times of their files. Other files are somebody else's.
    fn files(&self) -> IoResult<Vec<(String, (u64, WallTime))>> {
        if host_files::kind(&self.folder)? == PathKind::Missing {
            return Ok(Vec::new());
        }
        let mut files = Vec::new();
        for file in host_files::list(&self.folder)? {
            let Some(name) = file.strip_suffix(END).filter(|name| is_name(name)) else { continue };
            let path = self.folder.join(&file);
            // It may be gone since.
            if host_files::kind(&path)? == PathKind::File
                && let Ok(metadata) = host_files::metadata(&path)
            {
                files.push((name.to_owned(), (metadata.size, metadata.modified)));
            }
        }
        Ok(files)
    }

    fn facts(&self, name: &str) -> Result<DocumentSummary, String> {
        let text = self.text(name).map_err(|refusal| refusal.problem().to_owned())?;
        json::parse_summary(&text).map_err(|error| error.to_string())
    }

    /// A report as it was written; `None` if there is none of this name.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is too large.
    pub fn read(&self, name: &str) -> Result<Option<String>, Refusal> {
        let is_there = is_name(name)
            && host_files::kind(&self.path(name)).map_err(|error| failed(&error))? == PathKind::File;
        if is_there { self.text(name).map(Some) } else { Ok(None) }
    }

    fn text(&self, name: &str) -> Result<String, Refusal> {
        let bytes = host_files::read_file_at_most(&self.path(name), REPORT_BYTES_MAX + 1)
            .map_err(|error| failed(&error))?;
        if bytes.len() as u64 > REPORT_BYTES_MAX {
            return Err(Refusal::new(
                format!("report {name} has more than {}", ByteCount(REPORT_BYTES_MAX)),
                "read it where it was made",
            ));
        }
        String::from_utf8(bytes)
            .map_err(|_| Refusal::new(format!("report {name} is no text"), "put it there again"))
    }

    /// Keeps a report. One of the same name is not replaced.
    ///
    /// # Errors
    ///
    /// It is none, or too large; its name cannot be one, or has another report; there are too many, or the storage failed.
    pub fn keep(&self, name: &str, text: &str) -> Result<KeepingOutcome, Refusal> {
        if !is_name(name) {
            return Err(Refusal::new(
                format!("{name:?} is no name of a report"),
                format!(
                    "use letters, digits, '.', '-' and '_', at most {NAME_BYTES_MAX}, and no '.' at its begin"
                ),
            ));
        }
        if text.len() as u64 > REPORT_BYTES_MAX {
            return Err(Refusal::new(
                format!("the report has more than {}", ByteCount(REPORT_BYTES_MAX)),
                "keep it as a file",
            ));
        }
        json::parse(text).map_err(|error| {
            Refusal::new(
                format!("{name}: {error}"),
                "send the .json that 'spindle prove' wrote beside its report",
            )
        })?;
        match self.read(name)? {
            Some(known) if known == text => return Ok(KeepingOutcome::Same),
            Some(_) => {
                let problem = format!("there is another report {name}");
                return Err(Refusal::new(problem, "use another name, or delete that one"));
            }
            None => {}
        }
        if self.files().map_err(|error| failed(&error))?.len() >= LISTED_MAX {
            let problem = format!("the server keeps {LISTED_MAX} reports already");
            return Err(Refusal::new(problem, "delete one"));
        }
        let write = || {
            host_files::create_private_dir_all(&self.folder)?;
            host_files::write_atomically(&self.path(name), text.as_bytes())
        };
        write().map_err(|error| failed(&error))?;
        Ok(KeepingOutcome::New)
    }

    /// Deletes a report. False if there is none of this name.
    ///
    /// # Errors
    ///
    /// The storage failed.
    pub fn delete(&self, name: &str) -> Result<bool, Refusal> {
        if !is_name(name) {
            return Ok(false);
        }
        match host_files::remove_file(&self.path(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == IoErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed(&error)),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}{END}"))
    }
}

/// Names of reports lead to no other folder, and to no hidden file.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && name.bytes().all(is_plain)
}

fn failed(error: &world::IoError) -> Refusal {
    Refusal::new(error.to_string(), "see the state folder of the server").caused_by(RefusalCause::Storage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Document, Meta, Verdict, VerdictOutcome};

    fn report(title: &str) -> String {
        let mut document = Document::new(title, "on two drives", Meta::default());
        let (class, headline) = ("Smoke test".to_owned(), "it passed".to_owned());
        document.verdict = Some(Verdict { outcome: VerdictOutcome::Pass, class, headline });
        json::render(&document)
    }

    fn folder() -> (tempfile::TempDir, ReportFolder) {
        let state = tempfile::tempdir().unwrap();
        let folder = ReportFolder::new(state.path());
        (state, folder)
    }

    #[test]
    fn a_report_is_kept_once_read_listed_and_deleted() {
        let (state, folder) = folder();
        assert_eq!(folder.list().unwrap(), KeptReports::default(), "there is no folder yet");
        assert_eq!(folder.keep("first", &report("one")).unwrap(), KeepingOutcome::New);
        assert_eq!(folder.keep("first", &report("one")).unwrap(), KeepingOutcome::Same);
        let refused = folder.keep("first", &report("two")).unwrap_err();
        assert!(refused.problem().contains("there is another report first"), "{refused}");
        assert_eq!(folder.read("first").unwrap(), Some(report("one")));
        let list = folder.list().unwrap();
        assert_eq!((list.reports.len(), list.left_out), (1, 0));
        let facts = list.reports[0].facts.clone().unwrap();
        assert_eq!((facts.title.as_str(), facts.verdict.unwrap().outcome), ("one", VerdictOutcome::Pass));
        assert!(folder.delete("first").unwrap() && !folder.delete("first").unwrap());
        assert_eq!(folder.read("first").unwrap(), None);
        assert!(host_files::list(&state.path().join(FOLDER)).unwrap().is_empty());
    }

    #[test]
    fn names_stay_in_the_folder() {
        let (state, folder) = folder();
        folder.keep("a", &report("one")).unwrap();
        host_files::write_atomically(&state.path().join("secret.json"), report("s").as_bytes()).unwrap();
        for name in ["", ".", "..", "../secret", "a/b", ".hidden", "a b", "a\u{0}", &"x".repeat(121)] {
            assert!(folder.keep(name, &report("one")).is_err(), "{name:?}");
            assert_eq!(folder.read(name).unwrap(), None, "{name:?}");
            assert!(!folder.delete(name).unwrap(), "{name:?}");
        }
    }

    #[test]
    fn an_unreadable_file_is_listed_with_the_reason_until_it_is_put_right() {
        let (state, folder) = folder();
        folder.keep("good", &report("one")).unwrap();
        assert!(folder.keep("bad", "{}").unwrap_err().problem().contains("not a Spindle report"));
        let path = state.path().join(FOLDER).join("bad.json");
        for (text, reason) in [
            (&b"{"[..], "not a readable report"),
            (b"\xff", "is no text"),
            (br#"{"format": "spindle-report", "version": 9, "document": {}}"#, "of version 9"),
            (&vec![b' '; REPORT_BYTES_MAX as usize + 1], "has more than 8.00 MiB"),
        ] {
            host_files::write_atomically(&path, text).unwrap();
            let list = folder.list().unwrap();
            let bad = list.reports.iter().find(|report| report.name == "bad").unwrap();
            assert!(bad.facts.clone().unwrap_err().contains(reason), "{reason}: {:?}", bad.facts);
            assert!(list.reports.iter().any(|report| report.facts.is_ok()), "the other one is read");
        }
        host_files::write_atomically(&path, report("two").as_bytes()).unwrap();
        assert!(folder.list().unwrap().reports.iter().all(|report| report.facts.is_ok()));
    }

    #[test]
    fn a_list_is_bounded_and_names_what_it_leaves_out() {
        let (state, folder) = folder();
        for number in 0..LISTED_MAX {
            folder.keep(&format!("r{number}"), &report("one")).unwrap();
        }
        let refused = folder.keep("one-more", &report("one")).unwrap_err();
        assert!(refused.problem().contains("keeps 256 reports already"), "{refused}");
        let path = state.path().join(FOLDER).join("by-hand.json");
        host_files::write_atomically(&path, report("two").as_bytes()).unwrap();
        let list = folder.list().unwrap();
        assert_eq!((list.reports.len(), list.left_out), (LISTED_MAX, 1));
    }
}
