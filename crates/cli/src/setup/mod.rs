//! `spindle setup`: the site file of a first installation, from disks and a few answers, applied.

pub mod arguments;
mod choice;
mod disk_choice;
mod division;
mod host_commands;
mod outcome;
mod site_text;
#[cfg(test)]
mod tests;

use crate::{
    command_line::quoted,
    console::Console,
    exit_status::ExitStatus,
    export::new_secret,
    server::{connection::ServerConnection, test_notifiers},
    site::{
        apply_on,
        arguments::{ApplyArguments, SitePlace},
        folder_of, served_socket,
    },
    state_folder::state_folder,
};
use arguments::SetupArguments;
use choice::{Questions, choose};
use control::site::{SiteContext, WantedSite, server::parse};
use host_commands::host_commands;
use outcome::SetupOutcome;
use report::Refusal;
use rustix::process::geteuid;
use serving::pool::disks::{ListedDisk, list_disks};
use site_text::{NOTIFIER, SetupSite};
use std::path::{Path, PathBuf};
use world::{
    Address, IoErrorKind, World,
    real::{
        self, RealOptions,
        host::DiskCatalogue,
        host_files::{self, PathKind},
        user,
    },
};

/// The folder of the installed package, which the service reads.
const PACKAGE_FOLDER: &str = "/etc/spindle";
/// User of the service.
const SERVICE_USER: &str = "spindle";

/// The files that a set-up writes.
struct SetupFiles {
    site: PathBuf,
    secret: PathBuf,
    /// The server's folder.
    state: PathBuf,
    /// It is the file of the service.
    is_of_package: bool,
}

/// Runs the verb to its end.
pub fn setup(arguments: &SetupArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    let file = arguments.site.clone().unwrap_or_else(usual_file);
    refuse_existing(&file)?;
    let folder = folder_of(&file)?;
    let listed = if arguments.folder.is_some() { Vec::new() } else { disks_here()? };
    let questions = Questions { console: &console, is_silent: arguments.yes };
    let site = choose(arguments, &listed, &questions)?;
    let files = SetupFiles {
        secret: folder.join(site.secret_file()),
        is_of_package: folder == Path::new(PACKAGE_FOLDER),
        state: arguments.state.clone().unwrap_or_else(state_folder),
        site: file,
    };
    refuse_existing(&files.secret)?;
    let text = site.to_text();
    let context = SiteContext { folder, state: files.state.clone(), site: None };
    WantedSite::described(&parse(&text)?, &context)?;
    console.say(&format!("{}:\n\n{text}", files.site.display()));
    site.division.reasons.iter().for_each(|reason| console.say(reason));
    let mut outcome = SetupOutcome::of(&site, &files, text);
    if arguments.dry_run {
        console.say("nothing was written");
        return outcome.show(&console, ExitStatus::Pass);
    }
    confirm(&files, &questions)?;
    let secret = real::run(0, RealOptions::default(), async |world: World| new_secret(&world));
    files.write(&outcome.text, &secret)?;
    outcome.is_written = true;
    outcome.is_applied = files.apply(arguments, &console)?;
    outcome.secret = Some(secret.clone());
    outcome.host_commands = host_commands(&site, &secret);
    outcome.start_commands = if outcome.is_applied { Vec::new() } else { files.start_commands(arguments) };
    let mut status = ExitStatus::Pass;
    if site.mail.is_some() && outcome.is_applied {
        let is_delivered = test_mail(&files.state, &console)?;
        outcome.is_test_delivered = Some(is_delivered);
        if !is_delivered {
            status = ExitStatus::Fail;
        }
    }
    show_next(arguments, (&site, &files), &outcome, &console);
    outcome.show(&console, status)
}

/// The file of the service if the package is installed, else one in this folder.
fn usual_file() -> PathBuf {
    match host_files::kind(Path::new(PACKAGE_FOLDER)) {
        Ok(PathKind::Folder) => Path::new(PACKAGE_FOLDER).join("site.toml"),
        _ => PathBuf::from("site.toml"),
    }
}

fn refuse_existing(file: &Path) -> Result<(), Refusal> {
    match host_files::kind(file) {
        Ok(PathKind::Missing) => Ok(()),
        Ok(_) => Err(Refusal::new(
            format!("{} is there already, and stays as it is", file.display()),
            "write another one with ⟨site⟩ FILE, or change this one, and apply it: spindle apply FILE",
        )),
        Err(error) => Err(Refusal::new(error.to_string(), "say ⟨site⟩ FILE")),
    }
}

fn disks_here() -> Result<Vec<ListedDisk>, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let listed = list_disks(&world, &DiskCatalogue::default()).await;
        listed.map_err(|error| Refusal::new(error.to_string(), "mount sysfs at /sys, or say ⟨folder⟩"))
    })
}

fn confirm(files: &SetupFiles, questions: &Questions<'_>) -> Result<(), Refusal> {
    if questions.is_silent {
        return Ok(());
    }
    let shown = files.site.display();
    let next = match served_socket(&files.state) {
        Some(_) => "the running server makes the pools",
        None => "the pools are made when the server starts",
    };
    let question = format!("Write {shown}? Then {next}.\nType yes to go on: ");
    match questions.ask(&question) {
        Some(answer) if answer == "yes" => Ok(()),
        _ => Err(Refusal::new(format!("nothing was written: nobody has confirmed {shown}"), "say ⟨yes⟩")),
    }
}

impl SetupFiles {
    /// Writes the site file and the secret, for the service if it is the package's.
    fn write(&self, text: &str, secret: &str) -> Result<(), Refusal> {
        let written = (|| {
            host_files::write_secret(&self.secret, format!("{secret}\n").as_bytes())?;
            host_files::write_atomically(&self.site, text.as_bytes())?;
            if !self.is_of_package || !geteuid().is_root() {
                return Ok(());
            }
            let given = user::give_file(&self.secret, SERVICE_USER)
                .and_then(|()| user::share_file(&self.site, SERVICE_USER));
            // Somebody has made the folder without the package.
            given.or_else(|error| if error.kind() == IoErrorKind::NotFound { Ok(()) } else { Err(error) })
        })();
        written.map_err(|error| {
            self.remove();
            Refusal::new(error.to_string(), "say another file with ⟨site⟩ FILE")
        })
    }

    /// Removes both files; the refusal is the news.
    fn remove(&self) {
        let _ = host_files::remove_file(&self.site);
        let _ = host_files::remove_file(&self.secret);
    }

    /// Shows the changes, and has a running server make them: true if one did.
    ///
    /// # Errors
    ///
    /// The changes cannot be made, and the files are removed; or the server has begun to make them, and the files stay.
    fn apply(&self, arguments: &SetupArguments, console: &Console) -> Result<bool, Refusal> {
        let place = SitePlace { state: arguments.state.clone(), site: None };
        let planned = ApplyArguments {
            file: self.site.clone(),
            place,
            dry_run: true,
            destroy: Vec::new(),
            recovery_key_file: None,
            json: arguments.json,
        };
        if let Err(refusal) = apply_on(&planned, console.of_part(false)) {
            self.remove();
            return Err(refusal);
        }
        if served_socket(&self.state).is_none() {
            return Ok(false);
        }
        apply_on(&ApplyArguments { dry_run: false, ..planned }, console.of_part(true)).map_err(
            |refusal| {
                let again = format!("apply it again when that is fixed: {}", self.apply_command(arguments));
                Refusal::new(refusal.to_string(), again)
            },
        )?;
        Ok(true)
    }

    fn apply_command(&self, arguments: &SetupArguments) -> String {
        format!("spindle apply {}{}", self.shown_site(), state_option(arguments))
    }

    fn shown_site(&self) -> String {
        quoted(&self.site.display().to_string())
    }

    /// The commands that start a server with the file.
    fn start_commands(&self, arguments: &SetupArguments) -> Vec<String> {
        if self.is_of_package && self.site.file_name().is_some_and(|name| name == "site.toml") {
            return vec!["systemctl enable --now spindle".to_owned(), "systemctl status spindle".to_owned()];
        }
        vec![format!("spindle serve {}{}", self.shown_site(), state_option(arguments))]
    }
}

fn state_option(arguments: &SetupArguments) -> String {
    let state = arguments.state.as_ref();
    state.map(|state| format!(" --state {}", quoted(&state.display().to_string()))).unwrap_or_default()
}

/// Sends a test message through the server; true if it was delivered.
fn test_mail(state: &Path, console: &Console) -> Result<bool, Refusal> {
    let Some(socket) = served_socket(state) else { return Ok(false) };
    let console = console.of_part(false);
    real::run(0, RealOptions::default(), async |world: World| {
        let server = ServerConnection::new(&world, Address::Unix(socket), None);
        let status = test_notifiers(&server, Some(NOTIFIER), &console).await?;
        Ok(status == ExitStatus::Pass)
    })
}

/// Prints what to do next, here and on the host. It has the secret.
fn show_next(
    arguments: &SetupArguments,
    (site, files): (&SetupSite, &SetupFiles),
    outcome: &SetupOutcome,
    console: &Console,
) {
    let secret = files.secret.display();
    console.say(&format!(
        "written: {}, and the CHAP secret of {} in {secret}",
        files.site.display(),
        site.host.name
    ));
    if outcome.is_applied {
        console.say("applied by the running server");
    } else {
        console.say("\nstart the server, which makes the pools:");
        outcome.start_commands.iter().for_each(|command| console.say(&format!("  {command}")));
        if site.mail.is_some() {
            console.say(&format!("then try the mail:\n  spindle event test{}", state_option(arguments)));
        }
        if files.is_of_package {
            console.say(
                "then take the recovery key of the secrets away from this machine:\n  \
                 cat /var/lib/spindle/recovery-key",
            );
        }
    }
    console.say(&format!(
        "\non the host {}, as root, on Linux with open-iscsi (this shows the secret once; other hosts: docs/hosts.md):",
        site.host.name
    ));
    outcome.host_commands.iter().for_each(|command| console.say(&format!("  {command}")));
}
