//! `spindle volume rollback`.

use super::{
    confirmation::NameConfirmation,
    pool_place::PoolPlace,
    volume::VolumeAnswer,
    volume_access::{ChangeFacts, ChangedVolume, VerbOptions, VolumeAccess},
};
use crate::{console::Console, exit_status::ExitStatus};
use control::web::client::VolumeUses;
use report::Refusal;
use serving::{
    export::WithheldClients,
    pool::{
        branching::RollbackAnswer,
        folder::VolumePath,
        volume_change::{RollbackTo, VolumeChange, VolumeRef},
        withholding::clients_text,
    },
};
use std::path::{Path, PathBuf};
use world::{
    World,
    real::{self, RealOptions},
};

/// The state that a person wants.
#[derive(Clone, Copy)]
pub struct VolumeGoal<'g> {
    pub path: &'g Path,
    /// The same, in its parts.
    pub named: &'g VolumePath,
    pub to_volume: Option<&'g str>,
}

impl VolumeGoal<'_> {
    /// The path of what the volume will be.
    fn shown(self) -> PathBuf {
        match self.to_volume {
            Some(other) => self.named.folder.join(other),
            None => self.path.to_owned(),
        }
    }

    fn rollback(self) -> Result<RollbackTo, Refusal> {
        match (self.named.snapshot.as_deref(), self.to_volume) {
            (Some(_), Some(_)) => Err(Refusal::new(
                format!("{} names a snapshot, and ⟨to-volume⟩ a volume", self.path.display()),
                "say POOL/VOLUME ⟨to-volume⟩ NAME, or POOL/VOLUME@SNAPSHOT alone",
            )),
            (Some(snapshot), None) => Ok(RollbackTo::Snapshot(snapshot.into())),
            (None, Some(other)) => Ok(RollbackTo::Volume(other.into())),
            (None, None) => Ok(RollbackTo::Left),
        }
    }
}

/// Rolls back to a goal, if `yes`, or the answer on the terminal, is the name of the volume in its path.
pub fn roll_back(
    options: VerbOptions<'_>,
    wanted: VolumeGoal<'_>,
    (yes, is_forced): (Option<&str>, bool),
) -> Result<ExitStatus, Refusal> {
    let (to, goal, shown) = (wanted.rollback()?, wanted.named, wanted.shown());
    let path = shown.as_path();
    let console = Console::new(options.json, false);
    let volume = VolumeRef::from(goal.volume.as_str());
    real::run(0, RealOptions::default(), async |world: World| {
        let place = PoolPlace::of(&world, &goal.folder, options.server).await?;
        let uses = match &place {
            PoolPlace::Served(served) => served.uses(&volume).await?,
            PoolPlace::Folder => VolumeUses::default(),
        };
        if !uses.services.is_empty() {
            console.say_progress(&uses_text(&volume_path(goal), &uses, is_forced));
        }
        confirm((path, goal), yes, &console)?;
        let access = VolumeAccess::of(&world, place, &goal.folder, &console).await?;
        let done = access.perform_and_close(&VolumeChange::RollBack { volume, to, is_forced }).await?;
        show(&done, (path, goal), (options, !uses.services.is_empty()), &console)?;
        console.finish(ExitStatus::Pass)
    })
}

/// The volume that is rolled back, as far as its name tells.
fn volume_path(goal: &VolumePath) -> PathBuf {
    goal.folder.join(goal.volume.split('~').next().unwrap_or_default())
}

/// The services and clients that a rollback concerns.
pub(super) fn uses_text(volume: &Path, uses: &VolumeUses, is_forced: bool) -> String {
    let mut text = format!("{} is served as {}", volume.display(), uses.services.join(", "));
    match &uses.initiators[..] {
        [] => {}
        [one] => text += &format!("; {one} is logged in"),
        many => text += &format!("; {} are logged in", many.join(", ")),
    }
    if is_forced {
        text += "; it is withheld from each client until it has let go of what it cached";
    }
    text
}

/// The clients from which a volume is withheld, and the way back. `server` is the argument that names the server.
pub(super) fn withheld_text(volume: &Path, (initiators, nbd): (&[String], bool), server: &str) -> String {
    format!(
        "{volume}: withheld from {}; an initiator gets it when it has logged out and logs in again, or, as NBD clients do, after \
         'spindle volume readmit {volume}{server}'",
        clients_text(initiators, nbd),
        volume = volume.display()
    )
}

fn confirm((path, goal): (&Path, &VolumePath), yes: Option<&str>, console: &Console) -> Result<(), Refusal> {
    let confirmation = NameConfirmation {
        question: &format!(
            "{} will be as of {}; its present state stays as another volume.",
            volume_path(goal).display(),
            path.display()
        ),
        name: &goal.volume,
        meant: &format!("the volume of {}", path.display()),
        unnamed: "a rollback is confirmed with the volume's name",
    };
    confirmation.ask(console, yes)
}

/// Prints the change, from whom the volume is withheld, and the command that undoes it.
fn show(
    done: &ChangedVolume,
    (path, goal): (&Path, &VolumePath),
    (options, is_served): (VerbOptions<'_>, bool),
    console: &Console,
) -> Result<(), Refusal> {
    let ChangeFacts::RolledBack { left_name, size_before, withheld } = &done.facts else {
        unreachable!("a volume was rolled back")
    };
    let WithheldClients { initiators, nbd } = withheld;
    let answer = RollbackAnswer {
        volume: goal.folder.join(&done.name),
        left: goal.folder.join(left_name),
        size: done.size,
        size_before: *size_before,
    };
    if options.json {
        console.json_of(&VolumeAnswer {
            size_bytes: Some(done.size.0),
            left: Some(&answer.left),
            withheld_from: initiators,
            withheld_from_nbd: *nbd,
            ..VolumeAnswer::of(&answer.volume, "rolled back")
        })?;
    }
    let (volume, server) = (answer.volume.display(), options.server.repeated());
    let text = answer.text(path);
    let (change, undo) = text.rsplit_once('\n').expect("the command that undoes it has a line of its own");
    console.say(change);
    if !initiators.is_empty() || *nbd {
        let text = withheld_text(&answer.volume, (initiators, *nbd), &server);
        // The volume has been named.
        console.say(text.strip_prefix(&format!("{volume}: ")).unwrap_or(&text));
    }
    let force = if is_served { " --force" } else { "" };
    console.say(&format!("{undo}{force}{server}"));
    Ok(())
}
