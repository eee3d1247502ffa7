//! The keeper, and one look at clocks and pools.

use super::{
    BackupPools, SetFreezing, SetNotice, SetProblem, SetSettings, SetView,
    making::{BackupOrder, MadeBackup},
    notice::SaidProblems,
    proving::PutOff,
    releasing::LogReleases,
    replica_proving::ReplicaSite,
};
use crate::{
    TakingPace, UnixSecond,
    backup_schedule::{ClockReading, DueSlot, SchedulePeriod, ScheduleProgress},
    catalogue::{
        BackupCatalogue, CatalogueDetail, CatalogueEntry, CatalogueFile, CatalogueFileError, MachineTime,
        PointUse, SetId,
    },
};
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use world::{IoResult, Moment, StateFile, World};

/// Most time from one look to the next: clocks jump, and pools fill.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Time after a comparison that left something open.
const SETTLE_AGAIN: Duration = Duration::from_secs(15);
/// Time after a round that failed; twice as long after each next one, of sets that freeze something.
const RETRY_MIN: Duration = Duration::from_secs(60);
const RETRY_MAX: Duration = Duration::from_secs(15 * 60);

/// Surroundings of a keeper.
pub struct SetOpening {
    pub settings: SetSettings,
    pub pools: Rc<dyn BackupPools>,
    pub freezing: Rc<dyn SetFreezing>,
    /// Program and version, for a new catalogue.
    pub generator: String,
    /// Program, process and host, for people.
    pub runner: String,
}

/// The keeper of a set.
pub struct SetKeeper {
    pub(super) world: World,
    pub(super) settings: SetSettings,
    pub(super) pools: Rc<dyn BackupPools>,
    pub(super) freezing: Rc<dyn SetFreezing>,
    pub(super) file: CatalogueFile,
    pub(super) said: SaidProblems,
    /// Catalogue and pools agree, as far as is known.
    pub(super) is_settled: bool,
    /// They are compared again from then on.
    settle_from: Moment,
    /// Use of backups, as of the last time the pools were asked.
    pub(super) uses: BTreeMap<u64, PointUse>,
    pub(super) last_freeze: Option<Moment>,
    /// End of the last missed slots that were written down.
    pub(super) missed_until: BTreeMap<SchedulePeriod, UnixSecond>,
    pub(super) looked_for_room_at: Option<Moment>,
    /// The site that follows the set, if it is to verify.
    pub(super) replica: Option<ReplicaSite>,
    /// Backups whose verification did not end.
    pub(super) put_off: BTreeMap<u64, PutOff>,
    /// The last copy to the vault, if it ended early.
    pub(super) copy_put_off: Option<PutOff>,
    pub(super) releases: LogReleases,
    pub(super) detail: CatalogueDetail,
    /// Old lines are summed up from then on.
    pub(super) sum_up_from: Moment,
    paces: BTreeMap<SchedulePeriod, TakingPace>,
    started: Moment,
    failures: u32,
    retry_from: Moment,
}

/// The result of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperLook {
    /// Time to look again.
    pub wait: Duration,
    /// The round that it made, if one was due.
    pub made: Option<MadeBackup>,
}

impl SetKeeper {
    /// Opens the set's catalogue, or makes it if the file is empty.
    ///
    /// # Errors
    ///
    /// The file cannot be read or written, is damaged, or is another set's.
    pub fn open(
        world: &World,
        file: Box<dyn StateFile>,
        opening: SetOpening,
    ) -> Result<Self, CatalogueFileError> {
        let SetOpening { settings, pools, freezing, generator, runner } = opening;
        let mut id = [0; 8];
        world.fill_secret(&mut id);
        let id = SetId::new(u64::from_le_bytes(id));
        let now = MachineTime::of(world);
        let file = CatalogueFile::open(file, &settings.name, id, &generator, &runner, &now)?;
        Ok(Self {
            world: world.clone(),
            settings,
            pools,
            freezing,
            file,
            said: SaidProblems::default(),
            is_settled: false,
            settle_from: Moment(0),
            uses: BTreeMap::new(),
            last_freeze: None,
            missed_until: BTreeMap::new(),
            looked_for_room_at: None,
            replica: None,
            put_off: BTreeMap::new(),
            copy_put_off: None,
            releases: LogReleases::default(),
            detail: CatalogueDetail::default(),
            sum_up_from: Moment(0),
            paces: BTreeMap::new(),
            started: world.now(),
            failures: 0,
            retry_from: Moment(0),
        })
    }

    /// Goes on with other settings of the same set.
    ///
    /// # Panics
    ///
    /// If they are another set's.
    pub fn set(&mut self, settings: SetSettings) {
        assert_eq!(settings.name, self.settings.name, "a catalogue is of one set");
        self.settings = settings;
        (self.is_settled, self.settle_from) = (false, Moment(0));
    }

    pub fn settings(&self) -> &SetSettings {
        &self.settings
    }

    pub fn catalogue(&self) -> &BackupCatalogue {
        self.file.catalogue()
    }

    /// Makes catalogue and pools agree, makes the backup that is due, and removes what the rules do not want.
    ///
    /// # Errors
    ///
    /// The catalogue cannot be written: drop the keeper, and open it again later.
    pub async fn look(&mut self) -> Result<KeeperLook, CatalogueFileError> {
        if !self.is_settled && self.world.now() >= self.settle_from {
            self.settle().await?;
        }
        let mut made = None;
        let due = self.due();
        let is_open = self.catalogue().begun().is_none();
        if !due.is_empty() && is_open && self.world.now() >= self.retry_from {
            made = Some(self.make(BackupOrder::of_schedule(due)).await?);
        } else {
            self.delete_too_old().await?;
        }
        self.thin_out().await?;
        self.release_logs().await?;
        self.look_for_verification();
        self.look_for_drill();
        self.look_for_copy();
        self.sum_up().await?;
        Ok(KeeperLook { wait: self.wait(), made })
    }

    /// Whole lines of the catalogue's file from an offset on; empty at its end.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn read_catalogue(&self, offset: u64) -> IoResult<Vec<u8>> {
        self.file.read_part(offset)
    }

    /// Lines since the last call.
    pub fn take_notices(&mut self) -> Vec<SetNotice> {
        std::mem::take(&mut self.said.news)
    }

    /// The set as it is now.
    pub fn view(&self) -> SetView {
        let next = self.settings.schedules.next_due(&self.progress(), self.reading());
        let next = next.max(self.retry_from.since(self.world.now()));
        SetView::of(self, UnixSecond(self.world.wall().seconds + next.as_secs() as i64))
    }

    pub(super) fn problems(&self) -> &BTreeMap<SetProblem, String> {
        self.said.lasting()
    }

    /// The slots that one backup fills now.
    pub(super) fn due(&self) -> Vec<DueSlot> {
        self.settings.schedules.due(&self.progress(), self.reading())
    }

    /// The confirmed age of the catalogue now.
    pub(super) fn age_s(&self) -> u64 {
        self.catalogue().clock().age_at(&MachineTime::of(&self.world))
    }

    pub(super) fn append(&mut self, entry: CatalogueEntry) -> Result<(), CatalogueFileError> {
        self.file.append(entry, &MachineTime::of(&self.world))
    }

    /// Notes the end of a round.
    pub(super) fn note_round(&mut self, periods: &[SchedulePeriod], has_succeeded: bool) {
        if has_succeeded {
            (self.failures, self.retry_from) = (0, Moment(0));
            let elapsed = self.world.now().since(self.started);
            for period in periods {
                self.paces.entry(*period).or_default().note_taken(elapsed);
            }
        } else {
            // An application that cannot be frozen is left alone for longer and longer.
            let doublings = if self.settings.freeze_limit.has_freeze { self.failures } else { 0 };
            let pause = (RETRY_MIN * 2_u32.saturating_pow(doublings)).min(RETRY_MAX);
            self.failures = (self.failures + 1).min(10);
            self.retry_from = self.world.now() + pause;
        }
    }

    fn progress(&self) -> BTreeMap<SchedulePeriod, ScheduleProgress> {
        let pace = |period| self.paces.get(period).copied().unwrap_or_default();
        let filled = self.catalogue().filled().iter();
        filled
            .map(|(period, filled)| {
                (*period, ScheduleProgress { filled: filled.clone(), pace: pace(period) })
            })
            .collect()
    }

    fn reading(&self) -> ClockReading {
        let civil = UnixSecond(self.world.wall().seconds);
        ClockReading { civil, elapsed: self.world.now().since(self.started) }
    }

    /// Notes whether a comparison of catalogue and pools left something open.
    pub(super) fn note_settled(&mut self, is_settled: bool) {
        self.is_settled = is_settled;
        self.settle_from = self.world.now() + SETTLE_AGAIN;
    }

    fn wait(&self) -> Duration {
        let now = self.world.now();
        let next = self.settings.schedules.next_due(&self.progress(), self.reading());
        let next = match self.catalogue().begun() {
            Some(_) => self.settle_from.since(now),
            None => next.max(self.retry_from.since(now)),
        };
        let again = if self.is_settled { LOOK_EVERY } else { self.settle_from.since(now) };
        next.min(again).clamp(Duration::from_secs(1), LOOK_EVERY)
    }
}
