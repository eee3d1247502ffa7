//! `spindle apply`: makes a site as its file says, without serving it.

use super::{
    arguments::ApplyArguments, own_folder::StateFolder, read_site, recovery_key, served_site, setting,
    shown_changes, state_of,
};
use crate::{console::Console, exit_status::ExitStatus, notice_lines::with_notices};
use control::{
    notice,
    site::{SiteServer, planning::PlanOccasion, server::PortalUse},
};
use report::Refusal;
use world::{
    World,
    real::{self, RealOptions},
};

/// Runs the verb to its end.
pub fn apply(arguments: &ApplyArguments) -> Result<ExitStatus, Refusal> {
    apply_on(arguments, Console::new(arguments.json, false))
}

/// The same on the console of another verb.
pub fn apply_on(arguments: &ApplyArguments, console: Console) -> Result<ExitStatus, Refusal> {
    let text = read_site(&arguments.file)?;
    let options = RealOptions::default();
    real::run(0, options, async |world: World| {
        let (notices, mut reader) = notice::channel("apply");
        let (folder, journal) = match StateFolder::open(&state_of(&arguments.place))? {
            StateFolder::Own(folder, journal) => (folder, journal),
            StateFolder::Served(socket) if arguments.recovery_key_file.is_some() => {
                return Err(Refusal::new(
                    format!(
                        "a server makes the changes ({}), and its API never gives the key away",
                        socket.display()
                    ),
                    "leave ⟨recovery-key-file⟩ out here, and give it to 'spindle serve'",
                ));
            }
            StateFolder::Served(socket) => {
                return served_site::apply((&world, &socket), (arguments, &text), &console).await;
            }
        };
        let setting = setting(&arguments.file, &arguments.place, options, (&journal, PortalUse::None))?;
        // It is opened again at the end.
        drop(journal);
        let work = async {
            let mut server = SiteServer::start(&world, setting, &text, PortalUse::None, &notices).await?;
            let done = apply_with(&mut server, &text, arguments, &console).await;
            server.stop().await;
            done
        };
        let done = with_notices(&mut reader, &console, work).await;
        if arguments.dry_run || done.is_err() {
            folder.leave_as_it_was();
        }
        console.finish(done?)
    })
}

async fn apply_with(
    server: &mut SiteServer,
    text: &str,
    arguments: &ApplyArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    // One that is gone for good is named to be forgotten.
    let mut stopped = server.stopped().iter().filter(|(pool, _)| !arguments.destroy.contains(pool));
    if let Some((pool, refusal)) = stopped.next() {
        // Nobody waits to be served: better nothing than a part.
        return Err(Refusal::new(format!("pool {pool}: {refusal}"), ""));
    }
    let plan = server.plan(text, &arguments.destroy, PlanOccasion::Apply).await?;
    shown_changes::show(&shown_changes::shown(&plan), &arguments.file.display().to_string(), console)?;
    let has_changes = !plan.changes.is_empty();
    if arguments.dry_run {
        return Ok(if has_changes { ExitStatus::Fail } else { ExitStatus::Pass });
    }
    server.apply(plan, |step| shown_changes::show_step(step, console)).await?;
    let state = state_of(&arguments.place);
    recovery_key::hand_out(server, (&state, arguments.recovery_key_file.as_deref()), console);
    if has_changes {
        console.say("done");
    }
    Ok(ExitStatus::Pass)
}
