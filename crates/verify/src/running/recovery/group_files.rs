//! The files of a storage group among those that were checked, and whether a recovery of it can be tried.

use super::{
    RecoveryTrial, TrialContext, TrialEnd,
    prepared_trial::{PreparedTrial, TriedDatabase},
};
use crate::{
    kind::START_BYTES,
    running::{
        file_place::FilePlace,
        outcome::{FileOutcome, SetOutcome},
        places::Candidate,
    },
    set::{FileContents, LogName, parse_log_name},
};
use maildb::{
    InstanceConfig, PageSize, PageStampMode,
    format::header::{HeaderCopies, Signature},
    log::CheckpointFile,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    ByteCount, Directory,
    overlay::{OverlayDirectory, OverlayMemory},
};

/// Page cache of the engine.
const CACHE: ByteCount = ByteCount::mib(64);
/// Sizes of log files that the engine can continue with; otherwise it takes its default.
const LOG_FILE: std::ops::RangeInclusive<u64> = 256 << 10..=64 << 20;

/// The places of a storage group's files, and the engine's settings for them.
pub struct StorageGroupLayout {
    /// Any file of its log.
    pub log: FilePlace,
    /// In their order.
    pub databases: Vec<LaidOutDatabase>,
    pub config: InstanceConfig,
}

pub struct LaidOutDatabase {
    pub place: FilePlace,
    /// Place in the storage group, from 1.
    pub number: u32,
    pub page_size: PageSize,
    pub is_dirty: bool,
}

/// The files of one storage group.
pub struct GroupFiles<'a> {
    signature: Signature,
    databases: Vec<&'a FileOutcome>,
    logs: Vec<&'a FileOutcome>,
}

impl<'a> GroupFiles<'a> {
    pub fn all(files: &'a [FileOutcome]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for file in files {
            let Some(FileContents::Database(facts)) = &file.facts else { continue };
            if facts.is_temporary {
                continue;
            }
            let signature = facts.log_signature;
            match groups.iter_mut().find(|group| group.signature == signature) {
                Some(group) => group.databases.push(file),
                None => groups.push(Self { signature, databases: vec![file], logs: Vec::new() }),
            }
        }
        for group in &mut groups {
            let is_own = |file: &&FileOutcome| matches!(&file.facts, Some(FileContents::Log(log)) if log.signature == group.signature);
            group.logs = files.iter().filter(is_own).collect();
        }
        groups
    }

    pub fn trial(&self, end: TrialEnd) -> RecoveryTrial {
        let databases = self.databases.iter().map(|file| file.path.clone()).collect();
        RecoveryTrial { base_name: self.base_name().unwrap_or_default(), databases, end }
    }

    fn base_name(&self) -> Option<String> {
        let base = |file: &&FileOutcome| match parse_log_name(&file.name)? {
            LogName::Current(base) | LogName::Temporary(base) | LogName::Archived(base, _) => Some(base),
        };
        self.logs.iter().find_map(base)
    }

    /// Names of its databases.
    pub fn names(&self) -> Vec<&str> {
        self.databases.iter().map(|file| file.name.as_str()).collect()
    }

    /// The reason why it cannot be brought up, if there is one. One that was shut down cleanly is, too, if its log is here.
    pub fn why_not(&self, sets: &[SetOutcome]) -> Option<String> {
        match self.obstacle(sets)? {
            TrialEnd::NotNeeded => Some("its log is not here".to_owned()),
            TrialEnd::Open(why) => Some(why),
            TrialEnd::Recovered(_) | TrialEnd::Failed(..) => unreachable!("it was not tried"),
        }
    }

    /// The reason not to try it, if there is one.
    pub fn obstacle(&self, sets: &[SetOutcome]) -> Option<TrialEnd> {
        let open = |why: String| Some(TrialEnd::Open(why));
        let is_dirty = |file: &&FileOutcome| matches!(&file.facts, Some(FileContents::Database(facts)) if facts.is_dirty());
        if self.logs.is_empty() {
            return match self.databases.iter().find(|file| is_dirty(file)) {
                None => Some(TrialEnd::NotNeeded),
                Some(dirty) => open(format!("the log that {} needs is not here", dirty.name)),
            };
        }
        let is_foreign = |file: &&FileOutcome| matches!(&file.facts, Some(FileContents::Log(log)) if log.previous_end.is_none());
        if let Some(foreign) = self.logs.iter().find(|file| is_foreign(file)) {
            return open(format!(
                "Spindle did not write {}: only the server that wrote it can recover its databases",
                foreign.name
            ));
        }
        if let Some(damaged) = self.databases.iter().chain(&self.logs).find(|file| file.is_damaged()) {
            return open(format!("{} is damaged", damaged.name));
        }
        let own = |set: &&SetOutcome| {
            set.is_beyond_recovery() && self.databases.iter().any(|file| file.folder == set.folder)
        };
        if sets.iter().any(|set| own(&set)) {
            return open("its files do not go together".to_owned());
        }
        let folder = &self.logs[0].folder;
        if let Some(other) = self.logs.iter().find(|file| file.folder != *folder) {
            let (one, other) = (folder.display(), other.folder.display());
            return open(format!("its logs lie in two folders, {one} and {other}"));
        }
        None
    }

    pub async fn try_recovery(
        &self,
        context: &TrialContext<'_>,
        candidates: &BTreeMap<&Path, &Candidate>,
    ) -> RecoveryTrial {
        let prepared = match self.prepare(context, candidates).await {
            Ok(prepared) => prepared,
            Err(why) => return self.trial(TrialEnd::Open(why)),
        };
        let mut end = prepared.end(context).await;
        if let TrialEnd::Failed(..) = end
            && let Some(name) = self.changed(candidates).await
        {
            let why =
                format!("{name} changed meanwhile: the databases are in use; verify a snapshot of them");
            end = TrialEnd::Open(why);
        }
        let databases = prepared.databases.into_iter().map(|database| database.place.path().to_owned());
        RecoveryTrial { base_name: prepared.config.base_name, databases: databases.collect(), end }
    }

    /// The name of a file that somebody has written to since it was found.
    async fn changed(&self, candidates: &BTreeMap<&Path, &Candidate>) -> Option<String> {
        for file in self.databases.iter().chain(&self.logs) {
            if candidates[file.path.as_path()].has_changed().await {
                return Some(file.name.clone());
            }
        }
        None
    }

    /// Overlays and settings for the engine; or the reason why it cannot be tried.
    pub async fn prepare(
        &self,
        context: &TrialContext<'_>,
        candidates: &BTreeMap<&Path, &Candidate>,
    ) -> Result<PreparedTrial, String> {
        let layout = self.layout(candidates).await?;
        let memory = OverlayMemory::new(context.memory);
        let mut overlays: BTreeMap<PathBuf, Rc<dyn Directory>> = BTreeMap::new();
        let mut databases = Vec::new();
        for LaidOutDatabase { place, page_size, is_dirty, .. } in layout.databases {
            let directory =
                overlay_of(&place, &mut overlays, &memory).await.map_err(|error| error.to_string())?;
            databases.push(TriedDatabase { place, directory, page_size, is_dirty });
        }
        let log_place = layout.log;
        let log = overlay_of(&log_place, &mut overlays, &memory).await.map_err(|error| error.to_string())?;
        // An existing journal is used all the same. No power cut tears what is in memory.
        let config = InstanceConfig { torn_page_protection: false, ..layout.config };
        Ok(PreparedTrial { memory, log, log_place, databases, config })
    }

    /// The places of its files, and the engine's settings for them; or the reason why the engine cannot open it.
    pub async fn layout(
        &self,
        candidates: &BTreeMap<&Path, &Candidate>,
    ) -> Result<StorageGroupLayout, String> {
        let mut databases = Vec::new();
        let place_of = |file: &FileOutcome| candidates[file.path.as_path()].place.clone();
        for file in &self.databases {
            let place = place_of(file);
            let start = place.open().await.map_err(|error| error.to_string())?;
            let start = start.read_any(0, START_BYTES).await.map_err(|error| error.to_string())?;
            let copies = HeaderCopies::decode(&start);
            let header = copies.best().map_err(|error| format!("{}: {error}", file.name))?;
            let is_dirty = matches!(&file.facts, Some(FileContents::Database(facts)) if facts.is_dirty());
            let (number, page_size) = (header.database_id, header.page_size);
            databases.push(LaidOutDatabase { place, number, page_size, is_dirty });
        }
        databases.sort_by_key(|database| database.number);
        let log_place = place_of(self.logs[0]);
        let log = log_place.directory().map_err(|error| error.to_string())?;
        let base_name = self.base_name().ok_or("its logs have names of no log")?;
        let checkpoint = CheckpointFile::read(&log, &base_name).await.map_err(|error| error.to_string())?;
        let known = checkpoint.map_or(0, |checkpoint| usize::from(checkpoint.databases)).max(databases.len());
        let is_each_there = databases.iter().zip(1..).all(|(database, number)| database.number == number);
        if known != databases.len() || !is_each_there {
            return Err(format!(
                "its storage group has {known} databases or more, and {} of them are here: give all of them",
                databases.len()
            ));
        }
        let page_size = databases[0].page_size;
        if databases.iter().any(|database| database.page_size != page_size) {
            return Err("its databases have pages of different sizes".to_owned());
        }
        let are_stamps_required =
            checkpoint.is_some_and(|checkpoint| checkpoint.stamps.iter().any(|&flush| flush > 0));
        let plain = InstanceConfig::new(page_size, CACHE);
        let log_file = self.logs.iter().map(|file| file.size).find(|size| LOG_FILE.contains(&size.0));
        let config = InstanceConfig {
            base_name,
            page_stamps: if are_stamps_required { PageStampMode::Durable } else { PageStampMode::WhileOpen },
            log_file: log_file.unwrap_or(plain.log_file),
            ..plain
        };
        Ok(StorageGroupLayout { log: log_place, databases, config })
    }
}

/// The overlay of the folder of a file.
async fn overlay_of(
    place: &FilePlace,
    overlays: &mut BTreeMap<PathBuf, Rc<dyn Directory>>,
    memory: &Rc<OverlayMemory>,
) -> world::IoResult<Rc<dyn Directory>> {
    if let Some(known) = overlays.get(&place.folder()) {
        return Ok(Rc::clone(known));
    }
    let overlay: Rc<dyn Directory> = Rc::new(OverlayDirectory::open(place.directory()?, memory).await?);
    overlays.insert(place.folder(), Rc::clone(&overlay));
    Ok(overlay)
}
