//! The sets of a site file, checked.

mod schedules;

use array::format::{record::ENTRIES_MAX, row::CUT_POOLS_MAX};
use plan::site::{
    ProtectedSet, SetDrill, SetFreeze, SetRestore, SetRetention, SetVault, SetVerification, SiteIndex,
    Snapshots,
};
use protect::{
    UnixSecond,
    backup::{
        BackupPolicy, Consistency, UncoveredCut,
        hooks::{HookCommand, HookSettings},
    },
    backup_schedule::{FreezeLimit, backup_name, set_and_sequence_of},
    drilling::DrillPolicy,
    retention::{KeepPolicy, KeepSettings},
    schedule_mark::is_schedule_name,
    set_keeper::{SetSettings, SetVolume},
    vault_copies::{VaultPolicy, VaultSettings},
    verification::{VerificationPolicy, VerificationSettings},
};
use report::Refusal;
use schedules::schedules_of;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    path::PathBuf,
    time::Duration,
};

/// Zone of schedules unless the file says another.
const ZONE: &str = "UTC";
/// Longest span of a key, in milliseconds: a year. Each key has closer bounds of its own.
const SPAN_MS_MAX: u64 = 366 * 86_400_000;

/// Time of a hook around a restore, unless the file says another: a mail server takes its time to end.
const RESTORE_HOOK_TIMEOUT: Duration = Duration::from_secs(120);

/// A set as it is to be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedSet {
    /// Its volumes are in the order of the file.
    pub settings: SetSettings,
    pub freeze: WantedFreeze,
    pub restore: RestoreHooks,
}

/// Programs of the mail host around a restore in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreHooks {
    pub before: Option<HookCommand>,
    pub after: Option<HookCommand>,
    /// Time of each.
    pub timeout: Duration,
}

/// The way in which a set is brought to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedFreeze {
    /// Nothing is frozen: the server of the pools keeps the set.
    Nothing,
    /// Databases of Spindle at sockets of the server's host, in this order: the server keeps the set.
    Databases(Vec<PathBuf>),
    /// On the mail host, by the agent that keeps the set there.
    Here {
        hooks: Option<Box<HookSettings>>,
        /// Mount points, in the order in which they are frozen.
        mounts: Vec<PathBuf>,
        /// Sockets of databases of Spindle.
        sockets: Vec<PathBuf>,
    },
}

impl WantedFreeze {
    /// True if the server of the pools keeps the set, and no agent.
    pub fn is_by_server(&self) -> bool {
        !matches!(self, Self::Here { .. })
    }

    /// Sockets of databases of Spindle, on the host of the keeper.
    pub fn sockets(&self) -> &[PathBuf] {
        match self {
            Self::Nothing => &[],
            Self::Databases(sockets) | Self::Here { sockets, .. } => sockets,
        }
    }
}

/// The sets of a site file, wherever their pools are.
///
/// # Errors
///
/// A set says what cannot be done, or too little.
pub fn wanted_sets(index: &SiteIndex) -> Result<Vec<WantedSet>, Refusal> {
    index.site().snapshots.iter().try_for_each(check_snapshots)?;
    index.protected_sets().iter().map(|table| wanted_set(table, index)).collect()
}

/// The sets whose pools are all here, and lines about those of which only some are. Those of other sites are left out.
pub(crate) fn sets_of_pools(
    sets: Vec<WantedSet>,
    is_pool: impl Fn(&str) -> bool,
) -> (Vec<WantedSet>, Vec<String>) {
    let mut notes = Vec::new();
    let is_here = |set: &WantedSet| {
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            set.settings.volumes.iter().partition(|one| is_pool(&one.pool));
        if let (Some(_), Some(other)) = (here.first(), elsewhere.first()) {
            let SetVolume { pool, volume, .. } = other;
            notes.push(format!(
                "protect {:?}: no backups are made, for {pool}/{volume} is at another site: cut each site's volumes as a set \
                 of its own",
                set.settings.name
            ));
        }
        elsewhere.is_empty()
    };
    let sets = sets.into_iter().filter(is_here).collect();
    (sets, notes)
}

/// Refuses snapshots that say two kinds of schedules.
fn check_snapshots(table: &Snapshots) -> Result<(), Refusal> {
    let old_keys = [
        ("every_hours", table.every_hours.is_some()),
        ("at", !table.at.is_empty()),
        ("keep", table.keep.is_some()),
    ];
    let name = &table.name;
    if let Some((key, _)) = old_keys.iter().find(|(_, is_said)| table.is_set() && *is_said) {
        let problem = format!("snapshots {name:?} say schedules and {key}");
        return Err(Refusal::new(problem, "take one of them out"));
    }
    match table.is_set() || table.zone.is_empty() {
        true => Ok(()),
        false => Err(Refusal::new(format!("snapshots {name:?}: zone has no effect without schedules"), "")),
    }
}

fn wanted_set(table: &ProtectedSet, index: &SiteIndex) -> Result<WantedSet, Refusal> {
    let name = &table.set;
    let checked = CheckedTable { set: name };
    let is_read_back = set_and_sequence_of(&backup_name(name, UnixSecond(0), 1)) == Some((name, 1));
    if !is_schedule_name(name) || !is_read_back {
        let remedy = "choose one of at most 64 bytes without /, @ and ~";
        return Err(checked.refusal("its backups cannot be named by this name", remedy));
    }
    let volumes = checked.volumes(table, index)?;
    let zone = if table.zone.is_empty() { ZONE } else { &table.zone };
    let schedules =
        schedules_of(table, zone).map_err(|(problem, remedy)| checked.refusal(problem, remedy))?;
    let keep = KeepPolicy::new(&keep_settings(&table.keep)).map_err(|error| checked.refusal(error, ""))?;
    let freeze = checked.freeze(&table.freeze)?;
    let verification = checked.verification(&table.verify, &freeze)?;
    // People note results where the server has the catalogue; an agent notes its own.
    keep.check_set(&schedules, freeze.is_by_server() || verification.is_some())
        .map_err(|error| checked.refusal(error, ""))?;
    let usual = FreezeLimit::default();
    let freeze_limit = FreezeLimit {
        every: checked.span("freeze_every", &table.freeze_every)?.unwrap_or(usual.every),
        has_freeze: freeze != WantedFreeze::Nothing,
        has_logs: !table.logs.is_empty(),
    };
    let policy = checked.policy(&table.freeze, &freeze)?;
    let drill = checked.drill(&table.drill, &freeze)?;
    let vault = checked.vault(&table.vault)?;
    let restore = checked.restore(&table.restore)?;
    let settings = SetSettings {
        name: name.clone(),
        volumes,
        schedules,
        keep,
        freeze_limit,
        policy,
        verification,
        drill,
        vault,
    };
    match settings.fault() {
        Some(fault) => Err(checked.refusal(fault, "")),
        None => Ok(WantedSet { settings, freeze, restore }),
    }
}

/// The value of a key; `None` if it is left out.
fn said(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

fn keep_settings(table: &SetRetention) -> KeepSettings {
    KeepSettings {
        at_least: table.at_least,
        not_before: said(&table.not_before),
        at_most: said(&table.at_most),
        only_after: said(&table.only_after),
        on_full: said(&table.on_full),
        lock: said(&table.lock),
    }
}

/// The checks of one table; refusals name its set.
struct CheckedTable<'s> {
    set: &'s str,
}

impl CheckedTable<'_> {
    fn refusal(&self, problem: impl Display, remedy: &str) -> Refusal {
        Refusal::new(format!("protect {:?}: {problem}", self.set), remedy)
    }

    fn volumes(&self, table: &ProtectedSet, index: &SiteIndex) -> Result<Vec<SetVolume>, Refusal> {
        let key_of = |meant: &String| index.volume(meant).map(|volume| (&volume.group, &volume.name));
        let logs: BTreeSet<_> = table.logs.iter().filter_map(key_of).collect();
        let mut volumes = Vec::new();
        let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
        for meant in &table.volumes {
            let (pool, volume) = key_of(meant).expect("a site refers to what is there");
            if pool.is_empty() {
                let problem = format!("volume {volume:?} says no group, so it is in no pool");
                return Err(self.refusal(problem, "say its group, or take it out of the set"));
            }
            *counts.entry(pool).or_default() += 1;
            let is_log = logs.contains(&(pool, volume));
            volumes.push(SetVolume { pool: pool.clone(), volume: volume.clone(), is_log });
        }
        if let Some((pool, count)) = counts.iter().find(|(_, count)| **count > ENTRIES_MAX) {
            let problem =
                format!("{count} volumes of {pool} are too many; one cut has {ENTRIES_MAX} of a pool");
            return Err(self.refusal(problem, "make two sets of them"));
        }
        if counts.len() > CUT_POOLS_MAX {
            let problem =
                format!("volumes of {} pools are too many; one cut has {CUT_POOLS_MAX}", counts.len());
            return Err(self.refusal(problem, "make two sets of them"));
        }
        Ok(volumes)
    }

    fn freeze(&self, table: &SetFreeze) -> Result<WantedFreeze, Refusal> {
        let hook_keys = [
            ("prepare", !table.prepare.is_empty()),
            ("before", !table.before.is_empty()),
            ("after", !table.after.is_empty()),
            ("finally", !table.finally.is_empty()),
            ("timeout", !table.timeout.is_empty()),
            ("user", !table.user.is_empty()),
            ("worth", !table.worth.is_empty()),
        ];
        let other_keys = [("mounts", !table.mounts.is_empty()), ("budget", !table.budget.is_empty())];
        let socket_keys = [("sockets", !table.sockets.is_empty()), ("by", !table.by.is_empty())];
        let refuse_said = |keys: &[(&str, bool)], kind: &str| match keys.iter().find(|(_, is_said)| *is_said)
        {
            None => Ok(()),
            Some((key, _)) => {
                let problem = format!("freeze: {key} has no effect with kind = {kind:?}");
                let remedy = "say kind = \"hooks\", \"filesystem\" or \"maildb\", or take it out";
                Err(self.refusal(problem, remedy))
            }
        };
        if table.kind != "maildb" {
            refuse_said(&socket_keys, if table.kind.is_empty() { "none" } else { &table.kind })?;
        }
        match table.kind.as_str() {
            "" | "none" => {
                refuse_said(&hook_keys, "none")?;
                refuse_said(&other_keys, "none")?;
                refuse_said(&[("uncovered", !table.uncovered.is_empty())], "none")?;
                Ok(WantedFreeze::Nothing)
            }
            "hooks" => Ok(WantedFreeze::Here {
                hooks: Some(Box::new(self.hooks(table)?)),
                mounts: self.mounts(table)?,
                sockets: Vec::new(),
            }),
            "maildb" => {
                refuse_said(&hook_keys, "maildb")?;
                refuse_said(&other_keys[..1], "maildb")?;
                self.databases(table)
            }
            "filesystem" => {
                refuse_said(&hook_keys, "filesystem")?;
                if table.mounts.is_empty() {
                    let remedy = "name the mount points of its filesystems: mounts = [\"/srv/mail\"]";
                    return Err(self.refusal("freeze: kind = \"filesystem\" needs mounts", remedy));
                }
                Ok(WantedFreeze::Here { hooks: None, mounts: self.mounts(table)?, sockets: Vec::new() })
            }
            other => {
                let problem = format!("freeze: kind = {other:?} is unknown");
                Err(self.refusal(problem, "say \"none\", \"hooks\", \"filesystem\" or \"maildb\""))
            }
        }
    }

    fn databases(&self, table: &SetFreeze) -> Result<WantedFreeze, Refusal> {
        if table.sockets.is_empty() {
            let remedy = "name those of the databases, which prove makes: sockets = [\"/run/mail.sock\"]";
            return Err(self.refusal("freeze: kind = \"maildb\" needs sockets", remedy));
        }
        let sockets = self.paths("sockets", &table.sockets, "socket")?;
        match table.by.as_str() {
            "" | "server" => Ok(WantedFreeze::Databases(sockets)),
            "agent" => Ok(WantedFreeze::Here { hooks: None, mounts: Vec::new(), sockets }),
            other => {
                let problem = format!("freeze: by = {other:?} is unknown");
                Err(self.refusal(problem, "say \"server\" or \"agent\""))
            }
        }
    }

    fn restore(&self, table: &SetRestore) -> Result<RestoreHooks, Refusal> {
        let SetRestore { before, after, timeout } = table;
        Ok(RestoreHooks {
            before: self.optional_hook("restore: before", before)?,
            after: self.optional_hook("restore: after", after)?,
            timeout: self.span("restore: timeout", timeout)?.unwrap_or(RESTORE_HOOK_TIMEOUT),
        })
    }

    fn hook(&self, key: &str, words: &[String]) -> Result<HookCommand, Refusal> {
        HookCommand::new(words).map_err(|error| self.refusal(format!("{key}: {error}"), ""))
    }

    fn optional_hook(&self, key: &str, words: &[String]) -> Result<Option<HookCommand>, Refusal> {
        (!words.is_empty()).then(|| self.hook(key, words)).transpose()
    }

    fn hooks(&self, table: &SetFreeze) -> Result<HookSettings, Refusal> {
        for (key, words) in [("before", &table.before), ("after", &table.after)] {
            if words.is_empty() {
                let problem = format!("freeze: kind = \"hooks\" needs {key}");
                return Err(self.refusal(problem, &format!("name the program: {key} = [\"/etc/mail/hook\"]")));
            }
        }
        let before = self.hook("freeze: before", &table.before)?;
        let mut settings = HookSettings::new(before, self.hook("freeze: after", &table.after)?);
        settings.prepare = self.optional_hook("freeze: prepare", &table.prepare)?;
        settings.after = self.optional_hook("freeze: finally", &table.finally)?;
        settings.user = Some(table.user.clone()).filter(|user| !user.is_empty());
        settings.consistency = match table.worth.as_str() {
            "" | "application" => Consistency::Application,
            "filesystem" => Consistency::Filesystem,
            other => {
                let problem = format!("freeze: worth = {other:?} is unknown");
                return Err(self.refusal(problem, "say \"application\" or \"filesystem\""));
            }
        };
        match self.span("timeout", &table.timeout)? {
            None => Ok(settings),
            Some(timeout) => settings
                .with_timeout(timeout)
                .map_err(|error| self.refusal(format!("freeze: timeout: {error}"), "")),
        }
    }

    fn mounts(&self, table: &SetFreeze) -> Result<Vec<PathBuf>, Refusal> {
        self.paths("mounts", &table.mounts, "mount point")
    }

    fn paths(&self, key: &str, paths: &[String], what: &str) -> Result<Vec<PathBuf>, Refusal> {
        let mut seen = BTreeSet::new();
        for path in paths {
            if !path.starts_with('/') {
                let problem = format!("freeze: {key} has {path:?}, which is no absolute path");
                return Err(self.refusal(problem, &format!("name the {what} from / on")));
            }
            if !seen.insert(path) {
                return Err(self.refusal(format!("freeze: {key} has {path:?} twice"), "take one of them out"));
            }
        }
        Ok(paths.iter().map(PathBuf::from).collect())
    }

    fn policy(&self, table: &SetFreeze, freeze: &WantedFreeze) -> Result<BackupPolicy, Refusal> {
        let policy = match self.span("budget", &table.budget)? {
            None => BackupPolicy::default(),
            Some(budget) => BackupPolicy::with_budget(budget)
                .map_err(|error| self.refusal(format!("freeze: budget: {error}"), ""))?,
        };
        let uncovered = match table.uncovered.as_str() {
            // No freeze was to cover it: a cut of a set without one is what is wanted.
            "" if *freeze == WantedFreeze::Nothing => UncoveredCut::KeepAsCrash,
            "" | "remove" => UncoveredCut::Remove,
            "crash" => UncoveredCut::KeepAsCrash,
            other => {
                let problem = format!("freeze: uncovered = {other:?} is unknown");
                return Err(self.refusal(problem, "say \"remove\" or \"crash\""));
            }
        };
        Ok(policy.with_uncovered(uncovered))
    }

    fn verification(
        &self,
        table: &SetVerification,
        freeze: &WantedFreeze,
    ) -> Result<Option<VerificationPolicy>, Refusal> {
        if *table == SetVerification::default() {
            return Ok(None);
        }
        let settings = VerificationSettings {
            level: table.level.clone(),
            at: said(&table.at),
            until: said(&table.until),
            throttle: said(&table.throttle),
            is_elsewhere: table.elsewhere,
        };
        if table.elsewhere && !freeze.is_by_server() {
            let problem =
                "verify: elsewhere has no effect: the agent that keeps the set notes its own results alone";
            return Err(self.refusal(problem, "leave it out; the agent verifies on its host"));
        }
        let policy = VerificationPolicy::new(&settings).map_err(|error| self.refusal(error, ""))?;
        if policy.is_at_replica() && !freeze.is_by_server() {
            let problem =
                "verify: at = \"replica\" has no effect: a set that an agent keeps follows no DR group";
            return Err(self.refusal(problem, "leave it out; the agent verifies on its host"));
        }
        Ok(Some(policy))
    }

    fn drill(&self, table: &SetDrill, freeze: &WantedFreeze) -> Result<Option<DrillPolicy>, Refusal> {
        if *table == SetDrill::default() {
            return Ok(None);
        }
        if !freeze.is_by_server() {
            let problem = "drill: the agent that keeps the set may not delete the clones of a drill";
            return Err(self
                .refusal(problem, "run 'spindle protect drill' by a timer, with a token of the role admin"));
        }
        let at = Some(&*table.at).filter(|at| !at.is_empty());
        DrillPolicy::new(&table.every, at).map(Some).map_err(|error| self.refusal(error, ""))
    }

    fn vault(&self, table: &SetVault) -> Result<Option<VaultPolicy>, Refusal> {
        if *table == SetVault::default() {
            return Ok(None);
        }
        let settings = VaultSettings {
            to: table.to.clone(),
            copy: table.copy.clone(),
            password_file: said(&table.password_file),
            throttle: said(&table.throttle),
        };
        VaultPolicy::new(&settings).map(Some).map_err(|error| self.refusal(error, ""))
    }

    /// The span that a key says; `None` if it is left out.
    fn span(&self, key: &str, text: &str) -> Result<Option<Duration>, Refusal> {
        if text.is_empty() {
            return Ok(None);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit_ms = match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "min" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };
        let ms = unit_ms.and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit));
        match ms.filter(|ms| (1..=SPAN_MS_MAX).contains(ms)) {
            Some(ms) => Ok(Some(Duration::from_millis(ms))),
            None => {
                let problem = format!("{key} = {text:?} is no span");
                Err(self.refusal(problem, "say a number and ms, s, min, h or d, such as \"8s\""))
            }
        }
    }
}

#[cfg(test)]
mod tests;
