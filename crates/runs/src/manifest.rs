//! `spindle-run.json`: the record a run leaves beside its files, so that a later run knows which files are
//! Spindle's (to attach to, to clean away) and which are not (to leave alone).
//!
//! Rules:
//!
//! 1. The record is written before the first file it names, and removed after the last.
//! 2. A file belongs to Spindle if the record names it, or if it is of a log series the record
//!    names: `E00.log`, `E00.chk`, `E00tmp.log` and generations `E0000000001.log` and on. Logs come and
//!    go by the second, so their series is recorded, not each name.
//! 3. A pristine copy of such a file belongs to Spindle too, while the record has an entry for copies.
//! 4. Everything else in the folder is foreign: never written, never removed.

use crate::pristine::{Pristine, original_of};
use maildb::{log::LogNames, stamps};
use report::Refusal;
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// Name of the record, in each folder and on each device.
pub const MANIFEST_NAME: &str = "spindle-run.json";
/// Name of a new record on a device, until it replaces the old one.
pub const MANIFEST_NEXT: &str = "spindle-run.new";
/// Version of the record's form; a newer one is refused. Form 2 has an entry for pristine copies;
/// a record without one is written in form 1, which an older Spindle reads. Form 3 has pools.
pub const MANIFEST_FORMAT: u32 = 3;
const FORMAT_WITHOUT_POOLS: u32 = 2;
const FORMAT_WITHOUT_COPIES: u32 = 1;

/// Files and settings of a run at one location. Passive data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the record's form.
    pub format: u32,
    /// Program and version that wrote it.
    pub made_by: String,
    /// Civil time, UTC, of the first run.
    pub created: String,
    /// The same at every location of one run.
    pub run: String,
    /// True if the run made the folder itself; then `--clean` removes it too.
    pub folder_made: bool,
    pub shape: Shape,
    /// Names of the database files here.
    pub databases: Vec<String>,
    /// Prefixes of the log series here, such as `E00`.
    pub log_series: Vec<String>,
    /// Names of pool drives here; empty if the run has no pools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<String>,
    /// True once the pools on them were made completely. Until then their content is ignored.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pools_made: bool,
    /// State of the pristine copies here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pristine: Option<Pristine>,
}

/// Settings that must agree for a later run to use the databases of an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub profile: String,
    pub page_size: u32,
    pub record_size: u32,
    /// Storage groups of the run.
    pub groups: u32,
    /// In each group.
    pub databases: u32,
    /// Of all databases together.
    pub size: u64,
    pub seed: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    pub pools: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Manifest {
    pub fn to_bytes(&self) -> Vec<u8> {
        let format = match (self.shape.pools, &self.pristine) {
            (true, _) => MANIFEST_FORMAT,
            (false, Some(_)) => FORMAT_WITHOUT_POOLS,
            (false, None) => FORMAT_WITHOUT_COPIES,
        };
        let record = Self { format, ..self.clone() };
        let mut bytes = serde_json::to_vec_pretty(&record).expect("plain data has a JSON form");
        bytes.push(b'\n');
        bytes
    }

    /// Reads a stored record; the error describes the damage.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        // On a raw device the record is padded with zeroes to whole sectors.
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let manifest: Self = serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
        if !(FORMAT_WITHOUT_COPIES..=MANIFEST_FORMAT).contains(&manifest.format) {
            return Err(format!(
                "it has form {}, this Spindle knows forms up to {MANIFEST_FORMAT}",
                manifest.format
            ));
        }
        let plain = |name: &String| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        let names = manifest.databases.iter().chain(&manifest.log_series).chain(&manifest.drives);
        if !names.into_iter().all(plain) {
            return Err("it names files outside its folder".to_owned());
        }
        let copies = manifest.pristine.iter().flat_map(|pristine| &pristine.files);
        if let Some(foreign) = copies.map(|file| &file.name).find(|name| !manifest.makes(name)) {
            return Err(format!("it names a copy of {foreign}, which no run makes"));
        }
        Ok(manifest)
    }

    pub fn owns(&self, name: &str) -> bool {
        name == MANIFEST_NAME
            || name == MANIFEST_NEXT
            || (name.starts_with(".spindle-run.json.") && name.ends_with(".tmp"))
            || self.makes(name)
            || (self.pristine.is_some() && original_of(name).is_some_and(|original| self.makes(original)))
    }

    /// True if `name` is a database, its page stamps, a log file or a drive of the run.
    fn makes(&self, name: &str) -> bool {
        self.databases.iter().any(|database| database == name || stamps::file_name(database) == name)
            || self.log_series.iter().any(|series| is_of_series(name, series))
            || self.drives.iter().any(|drive| drive == name)
    }
}

/// True for names that are not Spindle's files and no reason to refuse a folder: those a filesystem puts
/// into its root, reports and records.
pub fn is_harmless(name: &str) -> bool {
    let is_report = name.starts_with("spindle-report")
        && [".html", ".json", ".run"].iter().any(|end| name.ends_with(end));
    name == "lost+found" || is_report
}

/// True for the names the engine gives to files of the log series `series`.
fn is_of_series(name: &str, series: &str) -> bool {
    LogNames::new(series).owns(name)
}

/// Settings of the new run, compared with the [`Shape`] of an earlier one. An open setting matches
/// any value.
#[derive(Clone, Debug)]
pub struct RequestedShape {
    pub profile: String,
    pub page_size: u32,
    pub record_size: u32,
    /// Storage groups of the run.
    pub groups: u32,
    /// In each group.
    pub databases: u32,
    /// Of all databases together.
    pub size: Option<u64>,
    pub seed: Option<u64>,
    pub pools: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseAction {
    /// Make new ones in empty locations.
    Create,
    /// Use existing ones, and complete them if their creation was interrupted.
    Attach,
    /// Remove the old ones first.
    Replace,
}

/// The user's choice between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseIntent {
    /// Attach to matching databases, never remove any.
    Unsaid,
    Attach,
    Fresh,
}

/// Chooses how to begin. `locations` are the paths as written, each with the record found there.
pub fn database_action(
    intent: DatabaseIntent,
    locations: &[(String, Option<&Manifest>)],
    requested: &RequestedShape,
) -> Result<DatabaseAction, Refusal> {
    assert!(!locations.is_empty(), "a run has at least one place");
    let found: Vec<&Manifest> = locations.iter().filter_map(|(_, manifest)| *manifest).collect();
    let Some(&first) = found.first() else {
        return match intent {
            DatabaseIntent::Attach => Err(Refusal::new(
                format!("{} holds no databases of Spindle's to attach to", locations[0].0),
                "leave out ⟨attach⟩ to make new ones",
            )),
            DatabaseIntent::Unsaid | DatabaseIntent::Fresh => Ok(DatabaseAction::Create),
        };
    };
    if intent == DatabaseIntent::Fresh {
        return Ok(DatabaseAction::Replace);
    }
    let renew = "give the same settings, or ⟨fresh⟩ to replace those databases";
    if let Some((path, _)) = locations.iter().find(|(_, manifest)| manifest.is_none()) {
        return Err(Refusal::new(format!("{path} was not part of the run found at the other paths"), renew));
    }
    if let Some((path, _)) =
        locations.iter().find(|(_, manifest)| manifest.is_some_and(|manifest| manifest.run != first.run))
    {
        return Err(Refusal::new(format!("{path} holds another run than {}", locations[0].0), renew));
    }
    match first_difference(&first.shape, requested) {
        Some((what, has, requested)) => Err(Refusal::new(
            format!("{} holds databases made with {what} {has}, not {requested}", locations[0].0),
            renew,
        )),
        None => Ok(DatabaseAction::Attach),
    }
}

/// The first setting in which the shape differs from the request, with both values.
fn first_difference(has: &Shape, requested: &RequestedShape) -> Option<(&'static str, String, String)> {
    let size = |bytes: u64| ByteCount(bytes).to_string();
    let on = |is_on| if is_on { "on".to_owned() } else { "off".to_owned() };
    let rows = [
        ("profile", has.profile.clone(), requested.profile.clone()),
        ("page size", has.page_size.to_string(), requested.page_size.to_string()),
        ("record size", has.record_size.to_string(), requested.record_size.to_string()),
        ("⟨groups⟩", has.groups.to_string(), requested.groups.to_string()),
        ("⟨databases⟩", has.databases.to_string(), requested.databases.to_string()),
        ("⟨size⟩", size(has.size), size(requested.size.unwrap_or(has.size))),
        ("⟨pool⟩", on(has.pools), on(requested.pools)),
        ("⟨seed⟩", has.seed.to_string(), requested.seed.unwrap_or(has.seed).to_string()),
    ];
    rows.into_iter().find(|(_, has, requested)| has != requested)
}

#[cfg(test)]
mod tests {
    use super::{
        super::pristine::{CopiedFile, PristineState},
        *,
    };
    use expect_test::expect;

    fn shape() -> Shape {
        Shape {
            profile: "exchange-2010".to_owned(),
            page_size: 32_768,
            record_size: 1_000,
            groups: 1,
            databases: 2,
            size: 4 << 30,
            seed: 7,
            pools: false,
        }
    }

    fn requested() -> RequestedShape {
        let Shape { profile, page_size, record_size, groups, databases, .. } = shape();
        RequestedShape {
            profile,
            page_size,
            record_size,
            groups,
            databases,
            size: None,
            seed: None,
            pools: false,
        }
    }

    fn manifest() -> Manifest {
        Manifest {
            format: FORMAT_WITHOUT_COPIES,
            run: "abc".to_owned(),
            shape: shape(),
            databases: vec!["sg1-db1.edb".to_owned()],
            log_series: vec!["E00".to_owned()],
            ..Manifest::default()
        }
    }

    #[test]
    fn a_record_owns_its_databases_and_log_series_and_nothing_else() {
        let owned = [
            "sg1-db1.edb",
            "sg1-db1.stamps",
            "E00.log",
            "E00.chk",
            "E00tmp.log",
            "E0000000001.log",
            "E000000A1B2.log",
        ];
        let foreign = [
            "sg1-db2.edb",
            "sg1-db2.stamps",
            "E01.log",
            "E00.txt",
            "E00notes.log",
            "E0000000001.log.bak",
            "E00",
            "E000000001g.log",
        ];
        let manifest = manifest();
        assert_eq!(owned.map(|name| manifest.owns(name)), [true; 7]);
        assert_eq!(foreign.map(|name| manifest.owns(name)), [false; 8]);
    }

    #[test]
    fn copies_belong_to_a_record_that_speaks_of_them() {
        let mut manifest = manifest();
        assert!(!manifest.owns("sg1-db1.edb.pristine"));
        manifest.pristine = Some(Pristine::keeping());
        let owned = ["sg1-db1.edb.pristine", "E00.log.pristine", "E00.chk.pristine"];
        assert_eq!(owned.map(|name| manifest.owns(name)), [true; 3]);
        let foreign = ["letters.pristine", "sg1-db1.edb.pristine.pristine", ".pristine"];
        assert_eq!(foreign.map(|name| manifest.owns(name)), [false; 3]);
        let read = Manifest::from_bytes(&manifest.to_bytes()).expect("it is read again");
        assert_eq!((read.format, read.pristine.clone()), (2, manifest.pristine.clone()));
        let copy = |name: &str| CopiedFile { name: name.to_owned(), bytes: 1, checksum: 2 };
        manifest.pristine = Some(Pristine { state: PristineState::Kept, files: vec![copy("../passwd")] });
        assert_eq!(
            Manifest::from_bytes(&manifest.to_bytes()),
            Err("it names a copy of ../passwd, which no run makes".to_owned())
        );
    }

    #[test]
    fn the_record_of_form_2_as_it_is_stored() {
        let files = vec![CopiedFile { name: "E00.log".to_owned(), bytes: 1 << 20, checksum: 0x1234_5678 }];
        let record =
            Manifest { pristine: Some(Pristine { state: PristineState::Kept, files }), ..manifest() };
        let stored = String::from_utf8(record.to_bytes()).expect("UTF-8");
        let copies = stored.find("  \"pristine\"").expect("it speaks of copies");
        expect![[r#"
              "pristine": {
                "stand": "kept",
                "files": [
                  {
                    "name": "E00.log",
                    "bytes": 1048576,
                    "checksum": 305419896
                  }
                ]
              }
            }
        "#]]
        .assert_eq(&stored[copies..]);
    }

    #[test]
    fn a_record_without_copies_is_one_that_an_older_program_reads() {
        let text = String::from_utf8(manifest().to_bytes()).expect("UTF-8");
        assert!(text.contains("\"format\": 1") && !text.contains("pristine"), "{text}");
    }

    #[test]
    fn a_record_survives_storage_with_padding() {
        let mut bytes = manifest().to_bytes();
        bytes.resize(4096, 0);
        assert_eq!(Manifest::from_bytes(&bytes), Ok(manifest()));
    }

    #[test]
    fn a_record_that_reaches_out_of_its_folder_or_comes_from_the_future_is_refused() {
        let mut outside = manifest();
        outside.databases.push("../../etc/passwd".to_owned());
        assert_eq!(
            Manifest::from_bytes(&outside.to_bytes()),
            Err("it names files outside its folder".to_owned())
        );
        let future = String::from_utf8(manifest().to_bytes())
            .expect("UTF-8")
            .replace("\"format\": 1", "\"format\": 9");
        assert_eq!(
            Manifest::from_bytes(future.as_bytes()),
            Err("it has form 9, this Spindle knows forms up to 3".to_owned())
        );
        assert!(Manifest::from_bytes(b"{").is_err());
    }

    #[track_caller]
    fn check(intent: DatabaseIntent, found: &[Option<Manifest>], expected: Result<DatabaseAction, &str>) {
        let locations: Vec<_> =
            found.iter().enumerate().map(|(i, manifest)| (format!("/mnt/{i}"), manifest.as_ref())).collect();
        let outcome =
            database_action(intent, &locations, &requested()).map_err(|refusal| refusal.to_string());
        assert_eq!(outcome, expected.map_err(str::to_owned));
    }

    #[test]
    fn a_run_begins_as_its_places_and_the_user_allow() {
        check(DatabaseIntent::Unsaid, &[None, None], Ok(DatabaseAction::Create));
        check(DatabaseIntent::Unsaid, &[Some(manifest()), Some(manifest())], Ok(DatabaseAction::Attach));
        check(DatabaseIntent::Fresh, &[Some(manifest()), None], Ok(DatabaseAction::Replace));
        check(
            DatabaseIntent::Attach,
            &[None],
            Err("/mnt/0 holds no databases of Spindle's to attach to; leave out ⟨attach⟩ to make new ones"),
        );
        check(
            DatabaseIntent::Unsaid,
            &[Some(manifest()), None],
            Err(
                "/mnt/1 was not part of the run found at the other paths; give the same settings, or ⟨fresh⟩ to replace those databases",
            ),
        );
    }

    #[test]
    fn databases_of_another_shape_are_neither_used_nor_removed() {
        let mut other = manifest();
        other.shape.databases = 5;
        check(
            DatabaseIntent::Attach,
            &[Some(other)],
            Err(
                "/mnt/0 holds databases made with ⟨databases⟩ 5, not 2; give the same settings, or ⟨fresh⟩ to replace those databases",
            ),
        );
    }
}
