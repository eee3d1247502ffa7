//! `spindle volume fill`, and the wait for a clone that is to be independent.

use super::{
    volume::VolumeAnswer,
    volume_access::{VerbOptions, VolumeAccess},
};
use crate::{console::Console, exit_status::ExitStatus, progress::ProgressView};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serving::pool::{
    filling::{FillEnd, FillProgress, wait},
    folder::{OpenPool, VolumePath},
    volume_change::{VolumeChange, VolumeRef},
};
use std::path::Path;
use world::{
    ByteCount, World,
    real::{self, RealOptions},
};

/// Fills a clone, or gives its filling up.
pub fn fill(
    options: VerbOptions<'_>,
    (path, clone): (&Path, &VolumePath),
    is_given_up: bool,
) -> Result<ExitStatus, Refusal> {
    let volume = VolumeRef::from(clone.volume.as_str());
    let change =
        if is_given_up { VolumeChange::CancelFilling { volume } } else { VolumeChange::Fill { volume } };
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let access = VolumeAccess::open(&world, &clone.folder, options.server, &console).await?;
        let filled = match (access.perform(&change).await, &access) {
            (Ok(_), VolumeAccess::Stopped(open)) if !is_given_up => {
                wait_until_filled(&world, open, path, &clone.volume, &console).await
            }
            (Ok(_), _) => Ok(None),
            (Err(refusal), _) => Err(refusal),
        };
        let is_served = matches!(access, VolumeAccess::Served(_));
        let closed = access.close().await;
        let filled = filled?;
        closed?;
        let (done, text) = match &filled {
            _ if is_given_up => ("given up", format!("{}: not being filled", path.display())),
            None if is_served => ("being filled", going_on(path)),
            None => ("independent", format!("{}: independent already, it has no source", path.display())),
            Some(end) => (end.word(), end.text(path)),
        };
        if options.json {
            let waits_for = filled.as_ref().and_then(FillEnd::waits_for);
            console.json_of(&VolumeAnswer { waits_for, ..VolumeAnswer::of(path, done) })?;
        }
        console.say(&text);
        console.finish(ExitStatus::Pass)
    })
}

/// A filling that was begun in a server.
pub fn going_on(path: &Path) -> String {
    format!("{}: being filled, unless it shares nothing; that goes on in the server", path.display())
}

/// Waits while a volume is being filled, and shows the progress. None if it is not.
///
/// # Errors
///
/// It does not go on at present; the pool has stopped.
pub async fn wait_until_filled(
    world: &World,
    open: &OpenPool,
    path: &Path,
    volume: &str,
    console: &Console,
) -> Result<Option<FillEnd>, Refusal> {
    let begun = world.now();
    let mut view = ProgressView::new(console);
    let mut show = |progress: FillProgress| {
        let status = ProgressStatus {
            phase: "fill".to_owned(),
            fraction: progress.fraction(),
            figures: vec![format!("{}/s", ByteCount(progress.bytes_per_second as u64))],
            left: progress.time_left,
        };
        view.tell(world.now().since(begun), Some(&status), &[]);
    };
    wait(world, &open.pool, path, volume, &mut show).await
}
