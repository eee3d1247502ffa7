//! The decisions of a seed before the run.
//!
//! Settings are drawn widely: pools of one drive and of six, a table of eight versions, continuous
//! checkpoints. Bugs hide where settings meet that no one would combine.

use super::{
    canary::Bug,
    fault_model::{DriveFault, PoolFaultGrade, draw_faults_beyond},
    shortage::ShortageEpisode,
};
use array::{
    format::{DomainName, SparingLevel, superblock::DATA_START_BYTES_MIN},
    pool::{OpenSetting, SETS_FROM_DRIVES},
};
use std::time::Duration;
use world::{
    ByteCount, Random,
    sim::{DriveOptions, FaultPlan, ServiceTime},
};

pub const SLOT_BYTES: u32 = 1 << 20;

/// Options of runs, independent of the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolRunOptions {
    pub grade: PoolFaultGrade,
    /// The trace covers contents, not only addresses.
    pub trace_contents: bool,
    pub bug: Option<Bug>,
    /// The fault in every cycle with a faulty drive; drawn from the seed if `None`.
    pub drive_fault: Option<DriveFault>,
    /// All pools are short of space, not only those the seed selects.
    pub is_tight: bool,
    /// Minimum number of drives of every pool.
    pub drives_min: usize,
    /// Every second incarnation is killed, and the power is cut early in the next one.
    pub cuts_behind_replay: bool,
    /// A subscriber follows the log, holds answers and pins log.
    pub subscribes: bool,
    /// Points of volumes are compared while hosts work.
    pub compares: bool,
    pub branching: Branching,
    /// Of the runs with clones and rollbacks, those in which clones are filled.
    pub filling: Branching,
    /// Of the runs with clones and rollbacks, those with groups.
    pub grouping: Branching,
    /// Of the runs with clones and rollbacks: rollbacks withhold volumes from clients.
    pub withholds: bool,
    /// Drives are retired, replaced, kept and forgotten while hosts work.
    pub drive_changes: bool,
    /// Of these runs: drives are levelled, and room for lost ones is kept.
    pub levels: bool,
    /// Drives are on other machines, and connections to them break.
    pub remote: bool,
    /// Drives are in three shelves, and one of these may be lost.
    pub domains: bool,
    /// Drives are enough for failure sets, and one of each set may be lost at once.
    pub sets: bool,
    /// Drives become larger while they are in use. Only where drives are changed.
    pub grows: bool,
}

/// The runs in which volumes are cloned and rolled back, filled, or in groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Branching {
    /// Those that the seed selects.
    #[default]
    Drawn,
    Always,
    Never,
}

impl Branching {
    fn applies(self, is_drawn: bool) -> bool {
        match self {
            Self::Drawn => is_drawn,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// The decisions of a seed.
#[derive(Clone, Debug)]
pub struct PoolRunPlan {
    pub grade: PoolFaultGrade,
    pub bug: Option<Bug>,
    pub drives: Vec<DriveOptions>,
    /// Copies of all data: one in a pool of one drive, else two or three.
    pub copies: usize,
    /// Options for opening the pool.
    pub setting: OpenSetting,
    /// Initial number of volumes.
    pub volumes: u64,
    /// Concurrent hosts.
    pub hosts: u64,
    /// Commands of a host in one incarnation.
    pub commands: u64,
    /// Catalogue changes in one incarnation.
    pub verbs: u64,
    /// Sectors of a window that hosts write to: small windows cause many overwrites.
    pub window_sectors: u64,
    /// Mean pause between two commands.
    pub pause: Duration,
    /// Incarnations that may crash, before the final ones, which do not.
    pub cycles: u64,
    /// A drive that is no member at first, and the cycle from which on it is added.
    pub spare: Option<(DriveOptions, u64)>,
    /// The drive that may be faulty; `None` in a pool of one.
    pub faulty_drive: Option<usize>,
    /// Its fault in each cycle.
    pub drive_faults: Vec<Option<DriveFault>>,
    /// Faults of all drives in cycles, beyond the tolerance of the pool.
    pub faults: FaultPlan,
    /// Every second incarnation is killed, and the power is cut early in the next one.
    pub cuts_behind_replay: bool,
    /// A subscriber follows the log, holds answers and pins log.
    pub subscribes: bool,
    /// Volumes are cloned and rolled back.
    pub branches: bool,
    /// Clones are filled.
    pub fills: bool,
    /// Some snapshots have notes.
    pub notes: bool,
    /// Volumes are in groups.
    pub groups: bool,
    /// Rollbacks withhold volumes from clients.
    pub withholds: bool,
    /// Points of volumes are compared while hosts work.
    pub compares: bool,
    /// Drives are retired, replaced, kept and forgotten while hosts work.
    pub drive_changes: bool,
    /// Drives are levelled, and the level of sparing changes.
    pub levels: bool,
    /// Drives are on other machines, and connections to them break. One may be away at openings.
    pub remote: bool,
    /// Level of sparing at first.
    pub sparing: SparingLevel,
    /// Drives for that, which are no members at first.
    pub extras: Vec<DriveOptions>,
    /// Drives may lose stable data without detection.
    pub is_untold: bool,
    /// The drives are small and hosts write much: space runs out.
    pub is_tight: bool,
    /// Shortages by cycle; `None` where one drive may be faulty.
    pub shortages: Vec<Option<ShortageEpisode>>,
    /// Some volumes are stored in one copy: only where no drive is faulty, or nothing is guaranteed.
    pub has_raid0: bool,
    /// Drives are in failure domains.
    pub has_domains: bool,
    /// The domain of which all drives are lost, and the cycle.
    pub lost_shelf: Option<(usize, usize)>,
    /// Drives are in failure sets.
    pub has_sets: bool,
    /// The cycle in which a drive of each failure set is lost.
    pub one_of_each_lost: Option<usize>,
    /// Bytes by which each drive may become larger, by index; empty if none does.
    pub growth: Vec<u64>,
}

/// Failure domains of a pool that has any; its drives are at least twice as many.
pub const SHELVES: usize = 3;

impl PoolRunPlan {
    pub fn draw(random: &mut Random, options: PoolRunOptions) -> Self {
        let drive_count = [1, 2, 2, 2, 3, 3, 3, 4, 5, 6][random.below(10) as usize];
        let is_tight = (drive_count < 4 && random.percent(25.0)) || options.is_tight;
        // Where room is short, copies lie across failure sets.
        let is_tight = is_tight && !options.sets;
        let drives = (0..drive_count).map(|_| draw_drive(random, is_tight, options)).collect();
        let copies = if drive_count > 2 && random.percent(30.0) { 3 } else { drive_count.min(2) as usize };
        let cycles = 2 + random.below(4);
        let (faults, is_untold) = match options.grade {
            PoolFaultGrade::Envelope => (FaultPlan::none(), false),
            PoolFaultGrade::Beyond => draw_faults_beyond(random),
        };
        let is_ill = options.grade == PoolFaultGrade::Envelope && drive_count > 1 && random.percent(65.0);
        let faulty_drive = is_ill.then(|| random.below(drive_count) as usize);
        let mut draw_ill = || {
            let drawn = (is_ill && random.percent(60.0)).then(|| DriveFault::draw(random));
            drawn.map(|drawn| options.drive_fault.unwrap_or(drawn))
        };
        let drive_faults: Vec<Option<DriveFault>> = (0..cycles).map(|_| draw_ill()).collect();
        let swapped = drive_faults.iter().position(|&drive_fault| drive_fault == Some(DriveFault::Swapped));
        let grows = options.grade == PoolFaultGrade::Envelope && random.percent(20.0);
        let added = swapped.map(|cycle| cycle as u64).or_else(|| grows.then(|| random.below(cycles)));
        let spare = added.map(|cycle| (draw_drive(random, is_tight, options), cycle));
        let mut plan = Self {
            grade: options.grade,
            bug: options.bug,
            drives,
            copies,
            setting: draw_setting(random),
            volumes: 1 + random.below(4),
            hosts: if is_tight { 4 } else { 1 + random.below(4) },
            commands: if is_tight { 60 } else { 5 + random.below(50) },
            verbs: random.below(20),
            window_sectors: if is_tight { 1 << 15 } else { [16, 64, 256, 1024][random.below(4) as usize] },
            pause: Duration::from_micros([0, 100, 5_000, 40_000][random.below(4) as usize]),
            cycles,
            spare,
            faulty_drive,
            drive_faults,
            faults,
            cuts_behind_replay: options.cuts_behind_replay,
            subscribes: options.subscribes,
            branches: false,
            fills: false,
            notes: false,
            groups: false,
            withholds: false,
            compares: options.compares,
            drive_changes: options.drive_changes,
            levels: options.levels,
            remote: options.remote,
            sparing: SparingLevel::None,
            extras: Vec::new(),
            is_untold,
            is_tight,
            shortages: Vec::new(),
            has_raid0: false,
            has_domains: options.domains,
            lost_shelf: None,
            has_sets: options.sets,
            one_of_each_lost: None,
            growth: Vec::new(),
        };
        plan.has_raid0 = plan.faulty_drive.is_none() && random.percent(60.0);
        // Later additions are drawn last, so that runs of older seeds stay the same.
        let more = if plan.drives.len() == 6 && random.percent(50.0) { 2 } else { 0 };
        let drives_min = options.drives_min.max(if options.domains { 2 * SHELVES } else { 0 });
        let drives_min = if options.sets { SETS_FROM_DRIVES + random.below(3) as usize } else { drives_min };
        let more = more.max(drives_min.saturating_sub(plan.drives.len()));
        plan.drives.extend((0..more).map(|_| draw_drive(random, is_tight, options)));
        if plan.drives.len() > 1 {
            // One copy is for a single drive, and the pool may have got others.
            plan.copies = plan.copies.max(2);
        }
        let may_fall_short = options.grade == PoolFaultGrade::Envelope && plan.faulty_drive.is_none();
        let mut draw_spell = || {
            (may_fall_short && random.percent(40.0))
                .then(|| ShortageEpisode::draw(random, plan.drives.len(), plan.has_raid0))
        };
        plan.shortages = (0..cycles).map(|_| draw_spell()).collect();
        // A subscriber does not follow a volume to another branch.
        let may_branch = !plan.subscribes && !plan.cuts_behind_replay;
        let is_drawn = random.percent(40.0);
        plan.branches = may_branch && options.branching.applies(is_drawn);
        let is_drawn = random.percent(50.0);
        plan.fills = plan.branches && options.filling.applies(is_drawn);
        plan.notes = plan.branches;
        plan.withholds = plan.branches && options.withholds;
        let is_drawn = random.percent(50.0);
        // A comparer deletes snapshots on its own.
        plan.groups = plan.branches && !plan.compares && options.grouping.applies(is_drawn);
        if plan.groups {
            // Groups of one volume show little.
            plan.volumes = plan.volumes.max(3);
            plan.verbs = plan.verbs.max(16);
        }
        if plan.branches && options.branching == Branching::Always {
            plan.verbs = plan.verbs.max(if plan.withholds { 30 } else { 10 });
        }
        if plan.drive_changes {
            plan.extras = (0..random.below(3)).map(|_| draw_drive(random, is_tight, options)).collect();
        }
        if plan.levels {
            let sparable = plan.drives.len().saturating_sub(plan.copies);
            let levels = [SparingLevel::None, SparingLevel::Single, SparingLevel::Double];
            plan.sparing = levels[random.below(3).min(sparable as u64) as usize];
            // Something must be on the drives before others are added.
            (plan.extras, plan.commands) = (
                (0..1 + random.below(3)).map(|_| draw_drive(random, is_tight, options)).collect(),
                plan.commands.max(30),
            );
            plan.window_sectors = plan.window_sectors.max(1 << 13);
            // Slow enough that crashes fall into a levelling.
            plan.setting.throttle.ceiling_bytes_per_second = [0, 4 << 20, 16 << 20][random.below(3) as usize];
        }
        if plan.remote {
            // A server may be away when the pool is opened, too, and is waited for.
            plan.drive_faults.iter_mut().flatten().for_each(|fault| *fault = DriveFault::Absent);
            plan.shortages.fill(None);
            plan.setting.copies_after =
                Duration::from_millis([0, 1, 1_000, 300_000][random.below(4) as usize]);
        }
        if plan.has_domains {
            // A faulty drive beside a lost shelf may have the last copy of something.
            (plan.faulty_drive, plan.spare) = (None, None);
            plan.drive_faults.fill(None);
            plan.shortages.fill(None);
            let lost = (random.below(SHELVES as u64) as usize, random.below(cycles) as usize);
            // Where room is short, both copies may lie there.
            let may_lose = plan.keeps_apart() && !plan.has_raid0 && random.percent(70.0);
            plan.lost_shelf = may_lose.then_some(lost);
        }
        if plan.has_sets {
            // A faulty drive beside another lost one of its set may have the last copy of something.
            (plan.faulty_drive, plan.spare) = (None, None);
            plan.drive_faults.fill(None);
            plan.shortages.fill(None);
            if random.percent(60.0) {
                // Else the largest drives get most segments, and they are in one set.
                let size = plan.drives[0].size;
                plan.drives.iter_mut().for_each(|drive| drive.size = size);
            }
            let cycle = random.below(cycles) as usize;
            let may_lose =
                plan.keeps_sets() && !plan.has_raid0 && plan.lost_shelf.is_none() && random.percent(80.0);
            plan.one_of_each_lost = may_lose.then_some(cycle);
        }
        if options.grows {
            // With a size that is not its own, a drive would show for one opening what it has not grown to.
            let is_larger = |fault: &&mut DriveFault| **fault == DriveFault::Larger;
            plan.drive_faults
                .iter_mut()
                .flatten()
                .filter(is_larger)
                .for_each(|fault| *fault = DriveFault::Absent);
            let count = plan.drives.len() + usize::from(plan.spare.is_some()) + plan.extras.len();
            let more = |_| (random.below(80 * u64::from(SLOT_BYTES))) >> 12 << 12;
            plan.growth = (0..count).map(more).collect();
        }
        if plan.cuts_behind_replay {
            // A kill should leave much in caches, and the pool should have no faults.
            (plan.verbs, plan.faulty_drive, plan.spare) = (0, None, None);
            plan.drive_faults.fill(None);
            plan.shortages.fill(None);
            plan.setting.log_blocks = 100_000;
            plan.setting.table_entries = 100_000;
        }
        plan
    }

    /// The failure domain of a drive.
    pub fn domain(&self, drive: usize) -> Option<DomainName> {
        let name = || DomainName::new(&format!("shelf-{}", drive % SHELVES + 1)).expect("it is a name");
        self.has_domains.then(name)
    }

    /// True if no copies may share a failure domain: there is room enough, and no drive leaves.
    pub fn keeps_apart(&self) -> bool {
        self.has_domains && !self.is_tight && !self.drive_changes
    }

    /// True if no copies may lie across failure sets: there is room enough, and no drive comes or goes.
    pub fn keeps_sets(&self) -> bool {
        self.has_sets && !self.drive_changes
    }

    /// The drives of a shelf at the start.
    pub fn drives_in(&self, shelf: usize) -> Vec<usize> {
        (0..self.drives.len()).filter(|drive| drive % SHELVES == shelf).collect()
    }

    /// True if what the faulty drive has stored stays as it was, and all of it can be read again.
    pub fn faulty_drive_recovers(&self) -> bool {
        let recovers = |fault| {
            matches!(
                fault,
                DriveFault::Absent
                    | DriveFault::Dies
                    | DriveFault::FailsWrites
                    | DriveFault::FailsFlushes
                    | DriveFault::Slow
                    | DriveFault::Stuck
            )
        };
        self.drive_faults.iter().flatten().all(|&fault| recovers(fault))
    }
}

fn draw_drive(random: &mut Random, is_tight: bool, options: PoolRunOptions) -> DriveOptions {
    let slots = if is_tight { 48 + random.below(4) } else { 120 + random.below(80) };
    let sector = if random.percent(75.0) { 512 } else { 4096 };
    DriveOptions {
        sector,
        atomic_unit: ByteCount(u64::from(sector)),
        queue_depth: [1, 2, 8, 32][random.below(4) as usize],
        read: draw_time(random),
        write: draw_time(random),
        flush: draw_time(random),
        trace_contents: options.trace_contents,
        ..DriveOptions::new(ByteCount(DATA_START_BYTES_MIN + slots * u64::from(SLOT_BYTES)))
    }
}

/// Checkpoints every few writes, or hardly ever.
fn draw_setting(random: &mut Random) -> OpenSetting {
    OpenSetting {
        forced: false,
        cache_bytes: (64 << 10) << random.below(6),
        table_entries: [8, 64, 1_000, 100_000][random.below(4) as usize],
        log_blocks: [16, 256, 2_048, 100_000][random.below(4) as usize],
        interval: Duration::from_millis([50, 1_000, 30_000][random.below(3) as usize]),
        // Runs are short: nothing would be rebuilt.
        copies_after: Duration::ZERO,
        ..OpenSetting::default()
    }
}

/// From a fast flash drive to a busy disk.
fn draw_time(random: &mut Random) -> ServiceTime {
    let scale = [10, 100, 1_000, 5_000][random.below(4) as usize];
    ServiceTime {
        least: Duration::from_micros(scale),
        mean_above: Duration::from_micros(random.below(2 * scale)),
        per_mib: Duration::from_micros(10 * scale),
    }
}
