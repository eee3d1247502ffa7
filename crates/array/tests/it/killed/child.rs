//! The child: writers and an administrator that work until they are killed.

use super::{
    FOLDER, ROUND, VOLUME,
    model::{SECTOR, Script, WRITERS},
    open_pool,
};
use array::{format::SnapshotId, pool::Pool, volume::VolumeDevice};
use std::{io::Write, path::Path, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Stability, World,
    real::{self, RealOptions},
};

/// Snapshots to keep.
const KEPT: usize = 2;

/// The main function of the child, which the parent runs as a test.
#[test]
#[ignore = "the child of killed_processes_lose_nothing_that_was_answered"]
fn works_until_it_is_killed() {
    let folder = std::env::var(FOLDER).expect("the parent names the folder");
    let round: u64 = std::env::var(ROUND).expect("and the round").parse().expect("a number");
    // A panic ends the child, so that the parent notices a writer that is refused.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    real::run(round, RealOptions::default(), async |world| {
        let pool = open_pool(&world, Path::new(&folder)).await;
        let volume = VolumeDevice(pool.volume(VOLUME).expect("it exists"));
        // The test harness begins the line with its own output.
        tell("ready");
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            writers.push(world.spawn("writer", write(volume.clone(), round, writer)));
        }
        administrate(&world, &pool, round).await;
    });
}

/// Prints one line with a single write, so that a kill does not truncate it. The last word marks the end.
fn tell(what: &str) {
    let end = if what == "ready" { "" } else { " ." };
    let mut out = std::io::stdout().lock();
    writeln!(out, "killed {what}{end}").and_then(|()| out.flush()).expect("the parent listens");
}

async fn write(volume: VolumeDevice, round: u64, writer: u64) {
    let mut script = Script::new(round, writer);
    loop {
        let (number, command) = script.next();
        tell(&format!("begin {writer} {number}"));
        let at = ByteOffset(command.first * SECTOR as u64);
        let done = match command.is_discard() {
            true => volume.discard(at, ByteCount(command.count * SECTOR as u64)).await,
            false => {
                let data = Arc::new(Buffer::copy_of(&command.bytes()));
                let stability = if number % 4 == 0 { Stability::Stable } else { Stability::Volatile };
                volume.write(at, vec![data], stability).await
            }
        };
        done.expect("there is room, and there are drives");
        if number % 16 == 15 {
            volume.flush().await.expect("there are drives");
        }
        tell(&format!("done {writer} {number}"));
    }
}

/// Takes snapshots, and deletes the oldest or the newest if there are too many.
async fn administrate(world: &World, pool: &Rc<Pool>, round: u64) {
    let mut random = world.random("administrator");
    for number in 0_u64.. {
        world.sleep(Duration::from_millis(1 + random.below(30))).await;
        let name = format!("r{round}-{number}");
        let mut id = [1; 16];
        id[..8].copy_from_slice(&(round << 32 | number).to_le_bytes());
        tell(&format!("snap {name}"));
        pool.snapshot(&[VOLUME], &name, SnapshotId(id)).await.expect("it is taken");
        tell(&format!("snapped {name}"));
        let mut there = pool.snapshots(VOLUME).expect("the volume exists");
        while there.len() > KEPT {
            let chosen = there.remove(random.below(there.len() as u64) as usize);
            tell(&format!("delete {}", chosen.name));
            pool.delete_snapshot(VOLUME, &chosen.name).await.expect("it is deleted");
            tell(&format!("deleted {}", chosen.name));
        }
    }
}
