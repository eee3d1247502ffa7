//! The process that serves the images of an open backup, from its file's first line to the end.

use super::{
    place::refused,
    taking_away::{AGAIN_AFTER, take_away_at_last},
};
use crate::console::Console;
use recovery::{
    opening::{Opening, OpeningFolder, OpeningPhase},
    shown_files::ShownFiles,
};
use report::Refusal;
use std::time::Duration;
use world::{
    LocalFuture, World,
    real::{
        companions::Companion,
        signals::{TerminationSignal, interrupted},
    },
    with_deadline,
};

/// Between looks whether the watcher lives, and whether somebody has unmounted the images.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The reason for which an open backup ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpeningEnd {
    Time,
    Signal,
    /// Somebody has unmounted the images.
    Unmounted,
}

/// An open backup of this process.
pub(super) struct OpeningKeeper {
    world: World,
    folder: OpeningFolder,
    pub opening: Opening,
    console: Console,
    watcher: Companion,
    signal: LocalFuture<TerminationSignal>,
}

impl OpeningKeeper {
    /// Writes its file and starts its watcher. Nothing is made before.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or the watcher cannot be started.
    pub fn begin(
        world: &World,
        folder: OpeningFolder,
        opening: Opening,
        console: &Console,
    ) -> Result<Self, Refusal> {
        // From here on a signal ends it in order.
        let signal = interrupted();
        folder.write(&opening).map_err(refused)?;
        let watcher = match start_watcher(&folder, &opening) {
            Ok(watcher) => watcher,
            Err(refusal) => {
                let _ = folder.remove(&opening);
                return Err(refusal);
            }
        };
        let (world, console) = (world.clone(), console.clone());
        Ok(Self { world, folder, opening, console, watcher, signal })
    }

    /// Runs steps of the opening, unless a signal comes first.
    ///
    /// # Errors
    ///
    /// That of the steps, or the signal.
    pub async fn unless_ended<T>(
        &mut self,
        steps: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let signal = async {
            (&mut self.signal).await;
        };
        match with_deadline(signal, steps).await {
            Some(done) => done,
            None => Err(Refusal::new("it was ended before the backup was open", "")),
        }
    }

    /// Writes it down as open.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn show_open(&mut self) -> Result<(), Refusal> {
        self.opening.phase = OpeningPhase::Open;
        self.folder.write(&self.opening).map_err(refused)
    }

    /// Serves until its time, a signal, or the end of the mount.
    pub async fn serve(&mut self, files: &ShownFiles) -> OpeningEnd {
        let (world, until) = (self.world.clone(), self.opening.until);
        loop {
            // By the clock of the wall: a machine that slept is late, not early.
            let left = until - world.wall().seconds;
            if left <= 0 {
                return OpeningEnd::Time;
            }
            if files.is_over() {
                return OpeningEnd::Unmounted;
            }
            if !self.watcher.is_alive() {
                match start_watcher(&self.folder, &self.opening) {
                    Ok(watcher) => self.watcher = watcher,
                    Err(refusal) => self.console.warn(&format!("its watcher was killed: {refusal}")),
                }
            }
            let pause = LOOK_EVERY.min(Duration::from_secs(left.unsigned_abs()));
            let signal = async {
                let _ = (&mut self.signal).await;
            };
            if with_deadline(world.sleep(pause), signal).await.is_some() {
                return OpeningEnd::Signal;
            }
        }
    }

    /// Takes everything away, however long somebody uses it.
    pub async fn close(mut self) {
        // One that was ended while it opened may have orders under way.
        if self.opening.phase == OpeningPhase::Open {
            self.opening.phase = OpeningPhase::Closing;
        }
        let _ = self.folder.write(&self.opening);
        take_away_at_last(&self.world, &self.folder, &mut self.opening, &self.console).await;
        // The watcher finds no file, and ends.
        self.world.sleep(AGAIN_AFTER / 1000).await;
    }
}

fn start_watcher(folder: &OpeningFolder, opening: &Opening) -> Result<Companion, Refusal> {
    let file = folder.file_of(opening);
    let (path, keeper) = (file.display().to_string(), opening.keeper().to_string());
    let arguments = ["protect", "close", "--watch", &path, "--keeper", &keeper].map(str::to_owned);
    Companion::start_tied(&arguments, &file.with_extension("log")).map_err(refused)
}
