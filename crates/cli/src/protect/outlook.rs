//! `spindle protect run --dry-run`: what would be made and deleted now, and what will exist.

use super::{catalogue_file::read_catalogue, run::KeptSet};
use crate::{console::Console, exit_status::ExitStatus, server::connection::ServerConnection};
use control::{
    sets::points::parts_of_id,
    web::{
        client::in_uri,
        differences::{DifferenceEnd, DifferenceSizes},
    },
};
use protect::{
    UnixSecond,
    backup_schedule::{ClockReading, FilledSlots, SchedulePeriod, ScheduleProgress},
    catalogue::{BackupCatalogue, MachineTime},
    retention::{
        BackupProof, ChangeRate, PrognosisRow, RetainedBackup, RetentionOutcome, RoundOutcome, decide,
        prognosis,
    },
};
use report::{Refusal, duration::show_duration};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use world::{ByteCount, World};

/// Least age of a backup for a change rate.
const RATE_SPAN_MIN_S: i64 = 3_600;

/// The outlook of one set.
#[derive(Serialize)]
struct SetOutlook {
    set: String,
    /// Backups that exist.
    backups: usize,
    /// Periods whose slots are due: one backup fills them all.
    due: Vec<String>,
    /// Names of the backups that go after it, with the rules.
    goes: BTreeMap<String, &'static str>,
    /// Bytes that the volumes change in a day, by the change since the newest backup; none without one.
    changes_bytes_a_day: Option<u64>,
    outlook: Vec<OutlookRow>,
}

/// The backups at one time to come.
#[derive(Serialize)]
struct OutlookRow {
    after: &'static str,
    backups: u64,
    oldest_seconds: i64,
    /// Room of all backups at most; none without a change rate.
    room_bytes_max: Option<u64>,
}

/// Prints what would happen, and changes nothing.
pub async fn print_outlook(
    world: &World,
    sets: &[KeptSet],
    server: &ServerConnection,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    for set in sets {
        set.pools.check().await?;
        let outlook = outlook_of(world, set, server).await?;
        match console.is_for_programs() {
            true => console.json_of(&outlook)?,
            false => say(&outlook, set, console),
        }
    }
    console.finish(ExitStatus::Pass)
}

async fn outlook_of(world: &World, set: &KeptSet, server: &ServerConnection) -> Result<SetOutlook, Refusal> {
    let settings = &set.wanted.settings;
    let known = read_catalogue(&set.catalogue)?;
    let now = UnixSecond(world.wall().seconds);
    let progress = known.as_ref().map(progress_of).unwrap_or_default();
    let reading = ClockReading { civil: now, elapsed: Duration::ZERO };
    let due: Vec<SchedulePeriod> =
        settings.schedules.due(&progress, reading).iter().map(|due| due.slot.period).collect();
    let time = MachineTime::of(world);
    let retained = known.as_ref().map(|known| known.retained(known.clock().age_at(&time), &BTreeMap::new()));
    let retained = retained.unwrap_or_default();
    let rate = match &known {
        Some(known) => change_rate(known, (&retained, now), server).await?,
        None => None,
    };
    let name_of = |number: u64| known.as_ref().and_then(|known| Some(known.row(number)?.start.name.clone()));
    let outlook = prognosis(&settings.schedules, &settings.keep, &retained, now, rate);
    Ok(SetOutlook {
        set: settings.name.clone(),
        backups: retained.len(),
        goes: going(&retained, &due, set)
            .into_iter()
            .filter_map(|(number, rule)| Some((name_of(number)?, rule)))
            .collect(),
        due: due.iter().map(ToString::to_string).collect(),
        changes_bytes_a_day: rate.map(|rate| rate.bytes_a_day),
        outlook: outlook.iter().map(OutlookRow::of).collect(),
    })
}

fn progress_of(known: &BackupCatalogue) -> BTreeMap<SchedulePeriod, ScheduleProgress> {
    let progress =
        |filled: &FilledSlots| ScheduleProgress { filled: filled.clone(), ..ScheduleProgress::default() };
    known.filled().iter().map(|(period, filled)| (*period, progress(filled))).collect()
}

/// The backups that go once the one that is due is made.
fn going(retained: &[RetainedBackup], due: &[SchedulePeriod], set: &KeptSet) -> Vec<(u64, &'static str)> {
    let settings = &set.wanted.settings;
    let mut after = retained.to_vec();
    if !due.is_empty() {
        after.push(RetainedBackup {
            sequence: retained.last().map_or(0, |last| last.sequence) + 1,
            kind: settings.freeze_limit.kind_of(due, None),
            periods: due.to_vec(),
            proof: BackupProof::Unproven,
            holds: Vec::new(),
            age_s: 0,
            locked_s: settings.keep.lock_s(),
            is_in_use: false,
            is_copy_base: false,
            frees_bytes: None,
            is_own: true,
            needs: None,
        });
    }
    let round = if due.is_empty() { RoundOutcome::Failed } else { RoundOutcome::Succeeded };
    let decisions = decide(&after, settings.schedules.schedules(), &settings.keep, round);
    let goes = decisions.into_iter().filter_map(|decision| match decision.outcome {
        RetentionOutcome::Goes(rule) => Some((decision.sequence, rule.word())),
        RetentionOutcome::Stays(_) => None,
    });
    goes.collect()
}

/// The change of the volumes since the newest full backup, a day.
async fn change_rate(
    known: &BackupCatalogue,
    (retained, now): (&[RetainedBackup], UnixSecond),
    server: &ServerConnection,
) -> Result<Option<ChangeRate>, Refusal> {
    let Some((_, newest)) = known.live().rev().find(|(_, row)| row.start.kind.is_full()) else {
        return Ok(None);
    };
    // Of a clock that was set meanwhile nothing is concluded.
    let age_s = now.0 - newest.at_s;
    if retained.is_empty() || age_s < RATE_SPAN_MIN_S {
        return Ok(None);
    }
    let (mut changed, mut size) = (0_u64, 0_u64);
    for point in &newest.points {
        let (volume, _) = parts_of_id(&point.id);
        let from = in_uri(&newest.start.name);
        let path = format!("/v1/volumes/{}/difference?from={from}&summary=true", in_uri(volume));
        let mut take = |line: &str| {
            if let Ok(sizes) = serde_json::from_str::<DifferenceSizes>(line) {
                size = size.saturating_add(sizes.to_bytes);
            } else if let Ok(end) = serde_json::from_str::<DifferenceEnd>(line) {
                changed = changed.saturating_add(end.totals.data.bytes);
            }
            Ok(())
        };
        server.get_lines(&path, &mut take).await?;
    }
    let a_day = u128::from(changed) * 86_400 / u128::from(age_s.unsigned_abs());
    Ok(Some(ChangeRate { bytes_a_day: u64::try_from(a_day).unwrap_or(u64::MAX), volume_bytes: size }))
}

impl OutlookRow {
    fn of(row: &PrognosisRow) -> Self {
        Self {
            after: row.after,
            backups: row.backups,
            oldest_seconds: row.oldest_s,
            room_bytes_max: row.bytes_max,
        }
    }
}

fn say(outlook: &SetOutlook, set: &KeptSet, console: &Console) {
    console.say(&format!("{}: {}, {} backups", outlook.set, set.wanted.settings.schedules, outlook.backups));
    match outlook.due.is_empty() {
        true => console.say("  nothing is due now"),
        false => console.say(&format!("  due now: one backup, for {}", outlook.due.join(", "))),
    }
    for (name, rule) in &outlook.goes {
        console.say(&format!("  then goes {name} ({rule})"));
    }
    for row in &outlook.outlook {
        let room = row.room_bytes_max.map(|bytes| format!(", at most {}", ByteCount(bytes)));
        let oldest = show_duration(Duration::from_secs(row.oldest_seconds.unsigned_abs()));
        let (after, backups) = (row.after, row.backups);
        console.say(&format!(
            "  after {after}: {backups} backups, the oldest of {oldest}{}",
            room.unwrap_or_default()
        ));
    }
    if outlook.changes_bytes_a_day.is_none() {
        console.say("  how much room they take is known once the newest backup is an hour old");
    }
}
