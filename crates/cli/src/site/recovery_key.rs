//! The recovery key of a site's secrets: handed out once, and `spindle site recovery-key`.

use super::{arguments::RecoveryKeyArguments, own_folder::StateFolder};
use crate::{console::Console, exit_status::ExitStatus, state_folder::state_folder};
use control::{
    DaemonJournal,
    journal::recovery::{KeptSite, RecoveryRecord},
    recovery::RecoveryKey,
    site::SiteServer,
};
use report::{Refusal, calendar::utc_time};
use serde::Serialize;
use std::path::{Path, PathBuf};
use world::{
    World,
    real::{
        self, RealOptions,
        host_files::{self, PathKind},
    },
};

/// The file of a state folder for a key that could be shown to nobody.
const KEY_FILE: &str = "recovery-key";

#[derive(Serialize)]
struct KeyAnswer {
    is_made: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_at: Option<String>,
    /// Tells keys apart, and says nothing of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    is_shown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

/// Shows a key that was made just now, or by a run that ended before it could: on the terminal, in the file that was named,
/// or in one of the state folder. The server goes on if that fails; the key can be written later.
pub(super) fn hand_out(server: &SiteServer, (state, file): (&Path, Option<&Path>), console: &Console) {
    let left = state.join(KEY_FILE);
    if matches!(host_files::kind(&left), Ok(PathKind::File)) {
        console
            .warn(&format!("the recovery key is still in {}: it is lost with this machine", left.display()));
    }
    let handed = (|| {
        let Some(record) = server.unseen_recovery_key()? else { return Ok(()) };
        match file {
            None if console.wraps => show(&record.key, console)?,
            None => write_and_say(&state.join(KEY_FILE), &record.key, console)?,
            Some(file) => write_and_say(file, &record.key, console)?,
        }
        server.recovery_key_was_shown(record)
    })();
    if let Err(refusal) = handed {
        console.warn(&format!("the recovery key was made, and nobody has it yet: {refusal}"));
    }
}

/// Shows the key, which counts as seen only when it is on the terminal.
fn show(key: &RecoveryKey, console: &Console) -> Result<(), Refusal> {
    console.say_always("the recovery key of the site's secrets, shown this once:");
    console.say_always("");
    console.say_always(&format!("  {}", key.to_text()));
    console.say_always("");
    console.say_always("Keep it away from this machine: with it, 'spindle pool import --all' brings the secrets back from the pools.");
    match console.wait_until_written() {
        true => Ok(()),
        false => Err(Refusal::new("the terminal takes no lines", "let it go on")),
    }
}

fn write_and_say(file: &Path, key: &RecoveryKey, console: &Console) -> Result<(), Refusal> {
    write(file, key)?;
    console.say_always(&format!(
        "the recovery key of the site's secrets is in {}: move it away from this machine. With it, 'spindle pool import \
         --all' brings the secrets back from the pools",
        file.display()
    ));
    Ok(())
}

fn write(file: &Path, key: &RecoveryKey) -> Result<(), Refusal> {
    let there = host_files::read_to_string(file).ok();
    if there.is_some_and(|text| RecoveryKey::parse(&text).is_ok_and(|there| there == *key)) {
        return Ok(());
    }
    if !matches!(host_files::kind(file), Ok(PathKind::Missing)) {
        let problem = format!("{} is there already", file.display());
        return Err(Refusal::new(
            problem,
            "write the key with 'spindle site recovery-key --file FILE' to another file",
        ));
    }
    host_files::write_secret(file, format!("{}\n", key.to_text()).as_bytes())
        .map_err(|error| Refusal::new(error.to_string(), "name another file"))
}

/// Runs `spindle site recovery-key`.
pub(super) fn recovery_key(arguments: &RecoveryKeyArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    let state = arguments.place.state.clone().unwrap_or_else(state_folder);
    real::run(0, RealOptions::default(), async |world: World| {
        let (folder, journal) = match StateFolder::open(&state)? {
            StateFolder::Own(folder, journal) => (folder, journal),
            StateFolder::Served(_) => {
                return Err(Refusal::new(
                    format!("'spindle serve' has {}, and the key is in its journal", state.display()),
                    "end it first: the key never goes through its API",
                ));
            }
        };
        let done = answer(&world, &journal, arguments, &console);
        drop(journal);
        folder.leave_as_it_was();
        console.finish(done?)
    })
}

fn answer(
    world: &World,
    journal: &DaemonJournal,
    arguments: &RecoveryKeyArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let refused = |error: control::JournalError| error.refusal();
    let mut known = journal.recovery_key().map_err(refused)?;
    if arguments.renew && journal.served_site().map_err(refused)?.is_none() {
        return Err(Refusal::new(
            "no site was applied with this state folder",
            "name another one with ⟨state⟩ FOLDER",
        ));
    }
    if arguments.renew {
        let made_unix_s = world.wall().seconds;
        let new = RecoveryRecord { key: RecoveryKey::generate(world), made_unix_s, is_shown: false };
        journal.put_recovery_key(&new).map_err(refused)?;
        if let Some(kept) = journal.kept_site().map_err(refused)? {
            // The pools' documents are written again, whatever the fingerprint says.
            let again = KeptSite { fingerprint: String::new(), ..kept };
            journal.put_kept_site(&again).map_err(refused)?;
        }
        known = Some(new);
    }
    let Some(mut record) = known else {
        if arguments.json {
            let none = KeyAnswer { is_made: false, made_at: None, id: None, is_shown: false, file: None };
            console.json_of(&none)?;
        }
        console.say("no recovery key was made: the site has had no secret to keep in its pools");
        return Ok(ExitStatus::Fail);
    };
    let mut file = None;
    if !record.is_shown {
        match &arguments.file {
            Some(path) => {
                write_and_say(path, &record.key, console)?;
                file = Some(path.clone());
            }
            None if arguments.renew && console.wraps => show(&record.key, console)?,
            None => {}
        }
        if file.is_some() || arguments.renew && console.wraps {
            record.is_shown = true;
            journal.put_recovery_key(&record).map_err(refused)?;
        }
    } else if let Some(path) = &arguments.file {
        return Err(Refusal::new(
            format!(
                "the recovery key {} was shown already, and is not written to {}",
                record.key.id(),
                path.display()
            ),
            "if it is lost, make a new one: spindle site recovery-key --renew --file FILE",
        ));
    }
    let made_at = utc_time(record.made_unix_s);
    if arguments.json {
        let (id, is_shown) = (Some(record.key.id()), record.is_shown);
        console.json_of(&KeyAnswer { is_made: true, made_at: Some(made_at.clone()), id, is_shown, file })?;
    }
    let seen = match record.is_shown {
        true => "it was shown",
        false => "nobody has seen it: 'spindle site recovery-key --file FILE' writes it once",
    };
    console.say(&format!("recovery key {}, made {made_at}: {seen}", record.key.id()));
    if arguments.renew {
        console.say("until the next 'spindle serve' or 'spindle apply', the secrets in the pools open with the old key");
    }
    Ok(ExitStatus::Pass)
}
