//! The process that serves the images of an open backup, from its file's first line to the end.

use super::{
    place::refused,
    taking_away::{remove_log, take_away_at_last},
};
use crate::console::Console;
use recovery::{
    opening::{Opening, OpeningFolder, OpeningPhase},
    shown_files::ShownFiles,
};
use report::Refusal;
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    IoErrorKind, World,
    real::{companions::Companion, signals::interrupted},
    with_deadline,
};

/// Between looks whether the watcher lives, and whether somebody has unmounted the images.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const SIGNAL_LOOK_EVERY: Duration = Duration::from_millis(20);

/// The reason for which an open backup ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpeningEnd {
    Time,
    Signal,
    /// Somebody has unmounted the images.
    Unmounted,
}

/// SIGINT or SIGTERM, which ends what this process does in order. A second one ends the process, and watchers take away the rest.
#[derive(Clone)]
pub(super) struct EndSignal(Rc<Cell<bool>>);

impl EndSignal {
    /// From here on the first signal does not kill the process.
    pub fn listen(world: &World) -> Self {
        let (signal, came) = (interrupted(), Rc::new(Cell::new(false)));
        let seen = Rc::clone(&came);
        drop(world.spawn("end signal", async move {
            signal.await;
            seen.set(true);
        }));
        Self(came)
    }

    pub fn has_come(&self) -> bool {
        self.0.get()
    }

    async fn comes(&self, world: &World) {
        while !self.has_come() {
            world.sleep(SIGNAL_LOOK_EVERY).await;
        }
    }
}

/// An open backup of this process.
pub(super) struct OpeningKeeper {
    world: World,
    folder: OpeningFolder,
    pub opening: Opening,
    console: Console,
    watcher: Companion,
    signal: EndSignal,
    /// A command waits for its last words, if it cannot be opened.
    pub leaves_words: bool,
    /// Its end, as time since the machine's start: clocks of the wall jump.
    ends_up: Duration,
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
        (signal, console): (&EndSignal, &Console),
    ) -> Result<Self, Refusal> {
        let span =
            Duration::from_secs(u64::try_from(opening.until - world.wall().seconds).unwrap_or_default());
        let ends_up = world.machine_uptime().up + span;
        folder.create(&opening).map_err(|error| match error.kind() {
            IoErrorKind::AlreadyExists => {
                let problem = format!("{}@{} is open already", opening.set, opening.number);
                Refusal::new(problem, "see 'spindle protect open --list'")
            }
            _ => refused(error),
        })?;
        let watcher = match start_watcher(&folder, &opening) {
            Ok(watcher) => watcher,
            Err(refusal) => {
                let _ = folder.remove(&opening);
                return Err(refusal);
            }
        };
        let (world, signal, console) = (world.clone(), signal.clone(), console.clone());
        Ok(Self { world, folder, opening, console, watcher, signal, leaves_words: false, ends_up })
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
        match with_deadline(self.signal.comes(&self.world), steps).await {
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
        let world = self.world.clone();
        loop {
            let left = self.ends_up.saturating_sub(world.machine_uptime().up);
            if left.is_zero() {
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
            let pause = LOOK_EVERY.min(left);
            if with_deadline(world.sleep(pause), self.signal.comes(&world)).await.is_some() {
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
        // The watcher finds no file then, and ends.
        take_away_at_last(&self.world, &self.folder, &mut self.opening, &self.console).await;
        if !self.leaves_words {
            remove_log(&self.folder, &self.opening);
        }
    }
}

fn start_watcher(folder: &OpeningFolder, opening: &Opening) -> Result<Companion, Refusal> {
    let file = folder.file_of(opening);
    let (path, keeper) = (file.display().to_string(), opening.keeper().to_string());
    let arguments = ["protect", "close", "--watch", &path, "--keeper", &keeper].map(str::to_owned);
    Companion::start_tied(&arguments, &file.with_extension("log")).map_err(refused)
}
