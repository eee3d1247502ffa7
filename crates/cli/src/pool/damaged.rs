//! A pool that does not open, printed as far as it can be read.

use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serving::pool::{
    advice::OpeningAdvice,
    damaged::{DamagedDrive, DamagedPoolAnswer, DamagedVolume, examine, open_as},
    folder::{OpenFailure, OpenReadOnlyPool},
};
use world::{ByteCount, World};

/// Ranges that are printed of one volume.
const RANGES_SHOWN: usize = 4;

/// Prints what can be read of a pool that did not open.
pub async fn show(world: &World, failure: OpenFailure, json: bool) -> Result<ExitStatus, Refusal> {
    let OpenFailure { held, error } = failure;
    let next = OpeningAdvice::after(world, &held.drives.devices(), &error, false).await;
    if next == OpeningAdvice::NameDrives {
        return Err(held.refusal(&error, "connect its drives"));
    }
    let open = OpenReadOnlyPool::of(held).await?;
    let answer = examine(&open, &error).await;
    let console = Console::new(json, false);
    if json {
        console.json_of(&answer)?;
        return console.finish(ExitStatus::Fail);
    }
    say(&console, &open, &answer, next);
    console.finish(ExitStatus::Fail)
}

fn say(console: &Console, open: &OpenReadOnlyPool, answer: &DamagedPoolAnswer, next: OpeningAdvice) {
    let folder = &open.held.folder;
    let pool = folder.display();
    console.say(&format!("{pool}: damaged, and open for reading only: {}", answer.reason));
    open_as(open.pool.condition()).iter().for_each(|line| console.say(&format!("  {line}")));
    for DamagedDrive { name, state, reason, .. } in &answer.drives {
        match (*state, reason) {
            ("up to date", _) => console.say(&format!("  drive {name}")),
            ("fell behind", _) => console.say(&format!(
                "  drive {name}: fell behind; it is read where no other has a copy, so leave it as it is"
            )),
            (state, None) => console.say(&format!("  drive {name}: {state}")),
            (state, Some(reason)) => console.say(&format!("  drive {name}: {state}: {reason}")),
        }
    }
    for volume in &answer.volumes {
        say_volume(console, "  volume ", &volume.name, volume);
        for snapshot in &volume.snapshots {
            say_volume(console, "    snapshot ", &format!("{}@{}", volume.name, snapshot.name), snapshot);
        }
    }
    if let Some(without) = next.without_missing(folder) {
        console.say(&format!("  connect what is missing; {without}"));
    }
    console.say(&format!(
        "  to copy what can be read: spindle pool salvage {pool}/VOLUME OUT; to serve it: spindle export --read-only \
         {pool}/VOLUME"
    ));
}

fn say_volume(console: &Console, what: &str, name: &str, volume: &DamagedVolume) {
    let (size, data) = (ByteCount(volume.size_bytes), ByteCount(volume.data_bytes));
    let lost = match volume.unreadable_bytes {
        0 => "a copy of all of it is there".to_owned(),
        bytes => {
            let ranges = volume.unreadable.iter().take(RANGES_SHOWN);
            let mut ranges: Vec<_> =
                ranges.map(|range| format!("{} at {}", range.length, range.at)).collect();
            if volume.unreadable_ranges > ranges.len() {
                ranges.push(format!("and {} more ranges", volume.unreadable_ranges - ranges.len()));
            }
            format!("{} cannot be read: bytes {}", ByteCount(bytes), ranges.join(", "))
        }
    };
    console.say(&format!("{what}{name}: {size}, {data} of data, {lost}"));
}
