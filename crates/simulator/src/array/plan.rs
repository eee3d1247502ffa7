//! What a seed decides before anything happens.
//!
//! Drawn wide: pools of one drive and of six, a table of eight versions, a checkpoint that never rests; mistakes live
//! where settings meet that nobody would combine.

use super::{
    atlas::{Grade, Ill, draw_faults_beyond},
    canary::Bug,
    shortage::Spell,
};
use array::{format::superblock::DATA_START_BYTES_MIN, pool::OpenSetting};
use std::time::Duration;
use world::{
    ByteCount, Random,
    sim::{DriveOptions, FaultPlan, ServiceTime},
};

/// Bytes of a slot.
pub const SLOT_BYTES: u32 = 1 << 20;

/// How runs are made, whatever the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// What drives may do.
    pub grade: Grade,
    /// Whether the trace holds contents, not only places.
    pub trace_contents: bool,
    /// A bug that is planted.
    pub bug: Option<Bug>,
    /// What the drive that is ill has in every cycle in which it is ill; as the seed draws it if none.
    pub ill: Option<Ill>,
    /// All pools are short of room, not only those of which the seed says so.
    pub is_tight: bool,
    /// All pools have so many drives at least.
    pub drives_min: usize,
    /// Every second incarnation is killed, and in the one behind it the power is cut soon.
    pub cuts_behind_replay: bool,
}

/// Everything a seed decides beforehand.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// What drives may do.
    pub grade: Grade,
    /// A bug that is planted.
    pub bug: Option<Bug>,
    /// The drives.
    pub drives: Vec<DriveOptions>,
    /// Copies of everything: one in a pool of one drive, else two or three.
    pub copies: usize,
    /// How the pool is opened.
    pub setting: OpenSetting,
    /// Volumes to begin with.
    pub volumes: u64,
    /// Hosts at work at once.
    pub hosts: u64,
    /// Commands of a host in one incarnation.
    pub commands: u64,
    /// Changes of the catalogue in one incarnation.
    pub verbs: u64,
    /// Sectors of a span that hosts write to: few mean many overwrites.
    pub window_sectors: u64,
    /// Mean pause between two commands.
    pub pause: Duration,
    /// Incarnations that may crash, before the last ones, which do not.
    pub cycles: u64,
    /// A drive that is no member yet, and from which cycle on one asks for it to be taken in.
    pub spare: Option<(DriveOptions, u64)>,
    /// The drive that may be ill; none in a pool of one.
    pub patient: Option<usize>,
    /// What it has in which cycle.
    pub ills: Vec<Option<Ill>>,
    /// Faults of all drives in cycles, beyond what the pool promises.
    pub faults: FaultPlan,
    /// Every second incarnation is killed, and in the one behind it the power is cut soon.
    pub cuts_behind_replay: bool,
    /// Drives may lose what was stable without anybody knowing.
    pub is_untold: bool,
    /// The drives are small, and hosts write much: space runs out.
    pub is_tight: bool,
    /// What several drives have in common for a while, by cycle; nothing where one drive may be ill by itself.
    pub spells: Vec<Option<Spell>>,
    /// Some volumes rest in one copy: where no drive is ill, or nothing is promised.
    pub has_raid0: bool,
}

impl RunPlan {
    /// The plan of a seed.
    pub fn draw(random: &mut Random, options: RunOptions) -> Self {
        let drive_count = [1, 2, 2, 2, 3, 3, 3, 4, 5, 6][random.below(10) as usize];
        let is_tight = (drive_count < 4 && random.percent(25.0)) || options.is_tight;
        let drives = (0..drive_count).map(|_| draw_drive(random, is_tight, options)).collect();
        let copies = if drive_count > 2 && random.percent(30.0) { 3 } else { drive_count.min(2) as usize };
        let cycles = 2 + random.below(4);
        let (faults, is_untold) = match options.grade {
            Grade::Envelope => (FaultPlan::none(), false),
            Grade::Beyond => draw_faults_beyond(random),
        };
        let is_ill = options.grade == Grade::Envelope && drive_count > 1 && random.percent(65.0);
        let patient = is_ill.then(|| random.below(drive_count) as usize);
        let mut draw_ill = || {
            let drawn = (is_ill && random.percent(60.0)).then(|| Ill::draw(random));
            drawn.map(|drawn| options.ill.unwrap_or(drawn))
        };
        let ills: Vec<Option<Ill>> = (0..cycles).map(|_| draw_ill()).collect();
        let swapped = ills.iter().position(|&ill| ill == Some(Ill::Swapped));
        let grows = options.grade == Grade::Envelope && random.percent(20.0);
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
            patient,
            ills,
            faults,
            cuts_behind_replay: options.cuts_behind_replay,
            is_untold,
            is_tight,
            spells: Vec::new(),
            has_raid0: false,
        };
        plan.has_raid0 = plan.patient.is_none() && random.percent(60.0);
        // What came later is drawn last: runs of older seeds stay what they were.
        let more = if plan.drives.len() == 6 && random.percent(50.0) { 2 } else { 0 };
        let more = more.max(options.drives_min.saturating_sub(plan.drives.len()));
        plan.drives.extend((0..more).map(|_| draw_drive(random, is_tight, options)));
        if plan.drives.len() > 1 {
            // One copy is for one drive, and that may have got others.
            plan.copies = plan.copies.max(2);
        }
        let may_fall_short = options.grade == Grade::Envelope && plan.patient.is_none();
        let mut draw_spell = || {
            (may_fall_short && random.percent(40.0))
                .then(|| Spell::draw(random, plan.drives.len(), plan.has_raid0))
        };
        plan.spells = (0..cycles).map(|_| draw_spell()).collect();
        if plan.cuts_behind_replay {
            // What a kill leaves in caches is to be much, and the pool to be well.
            (plan.verbs, plan.patient, plan.spare) = (0, None, None);
            plan.ills.fill(None);
            plan.spells.fill(None);
            plan.setting.log_blocks = 100_000;
            plan.setting.table_entries = 100_000;
        }
        plan
    }
}

fn draw_drive(random: &mut Random, is_tight: bool, options: RunOptions) -> DriveOptions {
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

/// Checkpoints come every few writes, or hardly ever.
fn draw_setting(random: &mut Random) -> OpenSetting {
    OpenSetting {
        forced: false,
        cache_bytes: (64 << 10) << random.below(6),
        table_entries: [8, 64, 1_000, 100_000][random.below(4) as usize],
        log_blocks: [16, 256, 2_048, 100_000][random.below(4) as usize],
        interval: Duration::from_millis([50, 1_000, 30_000][random.below(3) as usize]),
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
