//! Databases brought up in memory, for verbs that read what they hold; storage groups, for verbs that open them where they lie.

use super::{
    VerifyWatch, arguments::VerifyArguments, cannot_look, refused_state, settings, sources::OpenSources,
};
use crate::console::Console;
use ::verify::running::{self, BroughtUp, RateLimiter, StorageGroupPlaces};
use report::Refusal;
use world::World;

/// Databases for reading, as they are after a recovery. Their sources are only read.
pub struct OpenDatabases {
    pub found: BroughtUp,
    watch: VerifyWatch,
    pace: RateLimiter,
    /// They stay open as long as the databases.
    _sources: OpenSources,
}

impl OpenDatabases {
    /// Brings up all databases in the sources that `arguments` name.
    ///
    /// # Errors
    ///
    /// The sources cannot be read, or Ctrl-C ended it. What cannot be brought up is among the problems.
    pub async fn bring_up(
        world: &World,
        arguments: &VerifyArguments,
        console: &Console,
    ) -> Result<Self, Refusal> {
        let (sources, refused) = OpenSources::open_some(world, arguments, console).await;
        let found = running::find(&sources.paths, &sources.devices).await;
        let found = found.map_err(|error| cannot_look(&error))?;
        let pace = RateLimiter::new(world, arguments.throttle, None);
        let watch = VerifyWatch::begin(world, console, &pace);
        let brought_up = running::bring_up(world, &settings(arguments), found, &pace).await;
        let mut open = match brought_up {
            Ok(found) => Self { found, watch, pace, _sources: sources },
            Err(error) => {
                watch.end().await;
                return Err(refused_state(error));
            }
        };
        open.found.problems.extend(refused.iter().map(|refusal| refusal.problem().to_owned()));
        match open.check_not_ended() {
            Ok(()) => Ok(open),
            Err(refusal) => {
                open.close().await;
                Err(refusal)
            }
        }
    }

    /// Refuses to go on after Ctrl-C.
    ///
    /// # Errors
    ///
    /// It was pressed.
    pub fn check_not_ended(&self) -> Result<(), Refusal> {
        match self.pace.is_stopped() {
            true => Err(Refusal::new("ended by Ctrl-C", "")),
            false => Ok(()),
        }
    }

    /// Lets go of them.
    pub async fn close(self) {
        self.watch.end().await;
    }
}

/// Finds the storage groups in the sources that `arguments` name, which are only read.
///
/// # Errors
///
/// The sources cannot be read, or Ctrl-C ended it. Sources without databases are among the problems.
pub async fn storage_groups(
    world: &World,
    arguments: &VerifyArguments,
    console: &Console,
) -> Result<StorageGroupPlaces, Refusal> {
    let (sources, refused) = OpenSources::open_some(world, arguments, console).await;
    let found = running::find(&sources.paths, &sources.devices).await;
    let found = found.map_err(|error| cannot_look(&error))?;
    let pace = RateLimiter::new(world, arguments.throttle, None);
    let watch = VerifyWatch::begin(world, console, &pace);
    let places = running::storage_groups(world, &settings(arguments), found, &pace).await;
    watch.end().await;
    let mut places = places.map_err(refused_state)?;
    if pace.is_stopped() {
        return Err(Refusal::new("ended by Ctrl-C", ""));
    }
    places.problems.extend(refused.iter().map(|refusal| refusal.problem().to_owned()));
    Ok(places)
}
