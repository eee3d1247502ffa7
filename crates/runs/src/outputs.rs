//! The files of a report and its record: checked before the run, written during and after it.

use crate::{location::RunLocation, manifest::is_harmless, record_reader, survey::dangling_link};
use report::{Document, Refusal, calendar::file_stamp, html, json};
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};
use world::{
    WallTime,
    real::host_files::{self, PathKind},
};

/// Runs begun within one second that get names of their own.
const SAME_SECOND_MAX: u32 = 100;

/// The files a run leaves: its report and its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    pub html: PathBuf,
    pub json: PathBuf,
    /// Written while the run goes on.
    pub record: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// At least one file did not exist.
    New,
    /// Both files existed, with the same content.
    Same,
}

/// Checks that the file named by `setting` can be made: its folder exists and is writable, and the file does not exist.
pub fn check_new_file(setting: &str, file: &Path) -> Result<(), Refusal> {
    check_folder_of(setting, file, "name")?;
    refuse_taken(setting, file, "name")
}

/// The folder of `file`, which exists and is writable; the refusal asks for another `called` (name or prefix).
fn check_folder_of<'f>(setting: &str, file: &'f Path, called: &str) -> Result<&'f Path, Refusal> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = folder.display();
    let refusal =
        |problem: String| Refusal::new(format!("{setting}: {problem}"), format!("give another {called}"));
    match host_files::kind(folder) {
        Ok(PathKind::Folder) => {}
        Ok(PathKind::Missing) => {
            return Err(match dangling_link(folder) {
                Some((link, target)) => refusal(format!(
                    "{} is a link to {}, which does not exist",
                    link.display(),
                    target.display()
                )),
                None => Refusal::new(
                    format!("{setting}: {shown} does not exist"),
                    format!("make it first: mkdir -p {shown}"),
                ),
            });
        }
        Ok(_) => return Err(refusal(format!("{shown} is not a folder"))),
        Err(error) => return Err(refusal(error.to_string())),
    }
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Ok(folder),
        Err(error) => {
            let problem = std::io::Error::from(error);
            Err(refusal(format!("nothing can be written to {shown}: {problem}")))
        }
    }
}

/// Refuses to overwrite `file`; the refusal asks for another `called` (name or prefix).
fn refuse_taken(setting: &str, file: &Path, called: &str) -> Result<(), Refusal> {
    match host_files::kind(file) {
        Ok(PathKind::Missing) => Ok(()),
        _ => Err(Refusal::new(
            format!("{setting}: {} exists already", file.display()),
            format!("give another {called}, or remove it"),
        )),
    }
}

impl Outputs {
    /// Chooses the names of a run's report and record, and checks that they can be made: their folder exists
    /// and is writable, and no file is overwritten.
    pub fn choose(prefix: Option<&Path>, now: WallTime, locations: &[RunLocation]) -> Result<Self, Refusal> {
        let outputs = Self::choose_report(prefix, now, locations)?;
        outputs.refuse_taken(&[&outputs.record])?;
        Ok(outputs)
    }

    /// Files in `folder`, named by date; with a number if a run of the same second has left any.
    fn by_date(folder: &Path, now: WallTime) -> Self {
        let stamp = file_stamp(now.seconds);
        let named =
            |suffix: String| Self::with_prefix(&folder.join(format!("spindle-report-{stamp}{suffix}")));
        let first = named(String::new());
        let numbered = (2..=SAME_SECOND_MAX).map(|number| named(format!("-{number}")));
        let mut free = std::iter::once(first.clone()).chain(numbered).filter(|outputs| !outputs.is_taken());
        // If all are taken, the first is refused by its name.
        free.next().unwrap_or(first)
    }

    /// True if any of its files exists.
    fn is_taken(&self) -> bool {
        let all = [&self.html, &self.json, &self.record];
        all.into_iter().any(|file| !matches!(host_files::kind(file), Ok(PathKind::Missing)))
    }

    /// Chooses the name of a report made from records; the records are not touched.
    pub fn choose_report(
        prefix: Option<&Path>,
        now: WallTime,
        locations: &[RunLocation],
    ) -> Result<Self, Refusal> {
        if let Some(prefix) = prefix
            && (prefix.file_name().is_none() || prefix.as_os_str().as_encoded_bytes().ends_with(b"/"))
        {
            return Err(Refusal::new(
                format!("⟨report⟩ {:?} names no file", prefix.display().to_string()),
                "give the beginning of a file name, such as ⟨report⟩ ./result",
            ));
        }
        let outputs = match prefix {
            Some(prefix) => Self::named(prefix),
            None => Self::by_date(Path::new(""), now),
        };
        outputs.check_folder(locations)?;
        outputs.refuse_taken(&[&outputs.html, &outputs.json])?;
        Ok(outputs)
    }

    /// The part that all its names share.
    pub fn prefix(&self) -> PathBuf {
        self.html.with_extension("")
    }

    /// The names of `record`'s report if no prefix is given: beside it. A report that exists must
    /// equal this `document`.
    pub fn beside(record: &Path, document: &Document) -> Result<Self, Refusal> {
        let mut prefix = record.to_owned();
        if prefix.extension().is_some_and(|extension| extension == record_reader::EXTENSION) {
            prefix.set_extension("");
        }
        let outputs = Self::with_prefix(&prefix);
        outputs.check_folder(&[])?;
        let differs = outputs.texts(document).into_iter().find(|(path, text)| {
            !matches!(host_files::kind(path), Ok(PathKind::Missing)) && !holds(path, text)
        });
        match differs {
            Some((path, _)) => Err(Refusal::new(
                format!("{} exists already, and is another report", path.display()),
                "say where this one goes: ⟨report⟩ PREFIX",
            )),
            None => Ok(outputs),
        }
    }

    /// Checks that files can be made there.
    fn check_folder(&self, locations: &[RunLocation]) -> Result<(), Refusal> {
        let folder = check_folder_of("⟨report⟩", &self.html, "prefix")?;
        self.keep_out_of(folder, locations)
    }

    /// Refuses to overwrite any of `files`.
    fn refuse_taken(&self, files: &[&PathBuf]) -> Result<(), Refusal> {
        files.iter().try_for_each(|file| refuse_taken("⟨report⟩", file, "prefix"))
    }

    /// A report among the databases would be taken for a foreign file by the next run.
    fn keep_out_of(&self, folder: &Path, locations: &[RunLocation]) -> Result<(), Refusal> {
        let Ok(canonical) = host_files::canonical(folder) else { return Ok(()) };
        let name = self.html.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match locations
            .iter()
            .find(|location| canonical.starts_with(location.canonical()) && !is_harmless(&name))
        {
            Some(location) => Err(Refusal::new(
                format!("⟨report⟩: {} lies inside {}", self.html.display(), location.given.display()),
                "give a prefix outside the folders under test",
            )),
            None => Ok(()),
        }
    }

    fn named(prefix: &Path) -> Self {
        let mut prefix = prefix.to_owned();
        if prefix.extension().is_some_and(|extension| {
            [Some("html"), Some("json"), Some(record_reader::EXTENSION)].contains(&extension.to_str())
        }) {
            prefix.set_extension("");
        }
        Self::with_prefix(&prefix)
    }

    fn with_prefix(prefix: &Path) -> Self {
        // Not with_extension, which would take "db.example" for "db".
        let with = |extension: &str| {
            let mut name = prefix.as_os_str().to_owned();
            name.push(".");
            name.push(extension);
            PathBuf::from(name)
        };
        Self { html: with("html"), json: with("json"), record: with(record_reader::EXTENSION) }
    }

    fn texts(&self, document: &Document) -> [(&PathBuf, String); 2] {
        [(&self.html, html::render(document)), (&self.json, json::render(document))]
    }

    /// Writes both files of the report.
    pub fn write(&self, document: &Document) -> Result<WriteOutcome, Refusal> {
        let texts = self.texts(document);
        if texts.iter().all(|(path, text)| holds(path, text)) {
            return Ok(WriteOutcome::Same);
        }
        for (path, text) in texts {
            host_files::write_atomically(path, text.as_bytes()).map_err(|error| {
                Refusal::new(format!("the report could not be written: {error}"), "the verdict above stands")
            })?;
        }
        Ok(WriteOutcome::New)
    }
}

/// True if the file at `path` exists and holds exactly `text`.
fn holds(path: &Path, text: &str) -> bool {
    matches!(host_files::kind(path), Ok(PathKind::File))
        && host_files::read(path).is_ok_and(|bytes| bytes == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime { seconds: 1_795_298_700, nanos: 0 };

    #[track_caller]
    fn check(prefix: &str, html: &str) {
        assert_eq!(Outputs::named(Path::new(prefix)).html, Path::new(html));
    }

    #[test]
    fn reports_are_named_by_prefix_or_by_date() {
        let by_date = Outputs::by_date(Path::new(""), NOW);
        assert_eq!(by_date.html, Path::new("spindle-report-2026-11-21-220500.html"));
        check("/tmp/db.example", "/tmp/db.example.html");
        check("result.html", "result.html");
        check("result.json", "result.html");
        check("result.run", "result.html");
    }

    #[test]
    fn a_record_left_by_a_killed_run_does_not_block_another_in_the_same_second() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let named = |name: &str| folder.path().join(format!("spindle-report-2026-11-21-220500{name}"));
        host_files::write_atomically(&named(".run"), b"killed").expect("a file");
        assert_eq!(Outputs::by_date(folder.path(), NOW).record, named("-2.run"));
        host_files::write_atomically(&named("-2.json"), b"{}").expect("a file");
        assert_eq!(Outputs::by_date(folder.path(), NOW).html, named("-3.html"));
    }

    #[test]
    fn a_report_that_could_not_be_written_is_known_before_the_run() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let base = folder.path().display().to_string();
        let choose = |prefix: &str| {
            let path = folder.path().join(prefix);
            Outputs::choose(Some(&path), NOW, &[])
                .map(|_| ())
                .map_err(|refusal| refusal.to_string().replace(&base, "DIR"))
        };
        assert_eq!(choose("report"), Ok(()));
        assert_eq!(
            choose("none/report"),
            Err("⟨report⟩: DIR/none does not exist; make it first: mkdir -p DIR/none".to_owned())
        );
        host_files::write_atomically(&folder.path().join("taken.json"), b"{}").expect("a file");
        assert_eq!(
            choose("taken"),
            Err("⟨report⟩: DIR/taken.json exists already; give another prefix, or remove it".to_owned())
        );
        assert_eq!(
            choose("taken.json/report"),
            Err("⟨report⟩: DIR/taken.json is not a folder; give another prefix".to_owned())
        );
    }
}
