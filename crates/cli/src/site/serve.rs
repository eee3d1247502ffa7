//! `spindle serve`: a site file made real and served, until the program is ended.

use super::{
    api, arguments::ServeArguments, demonstration, folder_of, link, own_folder::OwnFolder, read_site,
    recovery_key, setting, shown_changes, shown_services, state_of, supervision::Supervision,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    notice_lines::{say_end, with_notices},
    protect::{
        vault::copier_thread::start_server_copier, verifier_thread::start_server_verifier,
        worker::ServerWorker,
    },
};
use control::{
    DaemonJournal,
    conditions::ConditionClaim,
    dr::{LinkHandle, LinkThread},
    events::DaemonEventLog,
    notice::{self, NoticeSender},
    notifying::{EventThread, EventThreadSetting},
    site::{
        SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, parse},
    },
    web::WebThread,
};
use report::Refusal;
use std::{path::Path, rc::Rc, sync::Arc, time::Duration};
use world::{
    Network, WallTime, World,
    real::{
        self, Engine, RealOptions, RealThreads, Sockets,
        host_files::{self, PathKind},
        signals::{ReloadRequests, interrupted},
    },
    with_deadline,
};

/// The file of a state folder that is served if none is named.
pub const OWN_FILE: &str = "site.toml";

/// Runs the verb to its end.
pub fn serve(arguments: &ServeArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::of_server(arguments.json, arguments.quiet)?;
    let state = state_of(&arguments.place);
    let file = arguments.file.clone().unwrap_or_else(|| state.join(OWN_FILE));
    let is_missing = matches!(host_files::kind(&file), Ok(PathKind::Missing));
    let is_demonstration = arguments.file.is_none() && is_missing;
    let text = if is_demonstration { demonstration::TEXT.to_owned() } else { read_site(&file)? };
    let options = RealOptions::default();
    let supervision = Supervision::begin(&console);
    // Boxed: without io_uring the executor holds it by value, in several layers, and the stack has no room for them.
    real::run(0, options, |world: World| {
        Box::pin(async move {
            let (notices, reader) = notice::channel("serve");
            supervision.starting(&world).await;
            supervision.watch(&world, &notices);
            // From here on they do not end the process.
            let signal = interrupted();
            let mut ended = Box::pin(async move { _ = signal.await });
            let mut reloads = ReloadRequests::listen();
            let (folder, journal) = OwnFolder::open(&state)?;
            let records = journal.event_records().map_err(|error| error.refusal())?;
            let events = DaemonEventLog::of(records, world.wall());
            let mut reader = reader.keeping(&events, &world);
            let begun = async {
                if is_demonstration {
                    demonstration::begin((&world, &console), (&state, &file), &journal)?;
                }
                let site_folder = folder_of(&file)?;
                let mut setting = setting(&file, &arguments.place, options, (&journal, PortalUse::Listen))?;
                setting.threads = supervision.threads(RealThreads { seed: 0, options });
                let mut server =
                    SiteServer::start(&world, setting, &text, PortalUse::Listen, &notices).await?;
                let link = match link::start(
                    (&world, &server),
                    (&parse(&text)?, &site_folder, &journal),
                    options,
                    &notices,
                )
                .await
                {
                    Ok(link) => link,
                    Err(refusal) => {
                        server.stop().await;
                        return Err(refusal);
                    }
                };
                let handle = link.as_ref().map(|link| link.handle.clone());
                handle.iter().for_each(|link| server.use_link(link.clone()));
                let api =
                    api::start((&world, &server), (&state, &journal), options, (&notices, &events, handle))
                        .await;
                let api = match api {
                    Ok(api) => api,
                    Err(refusal) => {
                        server.stop().await;
                        end_link(link).await;
                        return Err(refusal);
                    }
                };
                let begun = begin(&mut server, &text, &file, &console).await.and_then(|()| {
                    // From here on it is a server that runs, and not one that could not start.
                    let handle = link.as_ref().map(|link| link.handle.clone());
                    let events = event_thread(&world, &server, (journal, events, handle), options, &notices)?;
                    Ok((events, [start_server_verifier(&state)?, start_server_copier(&state)?]))
                });
                match begun {
                    Ok((events, workers)) => Ok(RunningServer { server, api, events, link, workers }),
                    Err(refusal) => {
                        server.stop().await;
                        // It has had no requests yet.
                        let _ = api.stop().await;
                        end_link(link).await;
                        Err(refusal)
                    }
                }
            };
            let begun = with_notices(&mut reader, &console, with_deadline(&mut ended, begun)).await;
            let mut running = match begun {
                Some(Ok(begun)) => begun,
                Some(Err(refusal)) => {
                    if is_demonstration {
                        demonstration::take_back(&state, &file);
                    }
                    folder.leave_as_it_was();
                    return Err(refusal);
                }
                None => {
                    console.say("ended before anything was served; the next start goes on from here");
                    return console.finish(ExitStatus::Pass);
                }
            };
            Engine::current().fallback_notice().iter().for_each(|notice| console.warn(notice));
            let RunningServer { server, api, .. } = &mut running;
            recovery_key::hand_out(server, (&state, arguments.recovery_key_file.as_deref()), &console);
            server.open();
            shown_services::show(server, &console)?;
            if arguments.file.is_none() {
                demonstration::show_use(&file, &console);
            }
            api::show((api, server), &console);
            console.say("serving; Ctrl-C ends it, SIGHUP applies the file again");
            supervision.ready(&world, server).await;
            real::unmap_code_of_start();
            loop {
                // A request of the API, or else a reload.
                let wanted = with_deadline(reloads.requested(), server.next_request());
                let Some(wanted) =
                    with_notices(&mut reader, &console, with_deadline(&mut ended, wanted)).await
                else {
                    break;
                };
                let done = match wanted {
                    None => {
                        supervision.reloading(&world).await;
                        let reloading = reload(server, &file, &console, (&notices, world.wall()));
                        let reloaded = with_notices(&mut reader, &console, reloading).await;
                        // Also if the file is wrong: what was served is served on.
                        supervision.ready(&world, server).await;
                        reloaded
                    }
                    Some(request) => {
                        // An apply that is cut short goes on with the next one.
                        let answering = with_deadline(&mut ended, server.answer(request));
                        let Some(is_changed) = with_notices(&mut reader, &console, answering).await else {
                            break;
                        };
                        if is_changed {
                            supervision.changed(&world, server).await;
                            shown_services::show(server, &console)
                        } else {
                            Ok(())
                        }
                    }
                };
                if let Err(refusal) = done {
                    console.warn(&refusal.to_string());
                }
                recovery_key::hand_out(server, (&state, arguments.recovery_key_file.as_deref()), &console);
            }
            supervision.stopping(&world).await;
            notices.occurred("server_stopped", "the server ends as it was told to");
            say_end(&mut reader, &console, running.stop(&world)).await
        })
    })
}

/// The threads of a server.
struct RunningServer {
    server: SiteServer,
    api: WebThread,
    events: EventThread,
    link: Option<LinkThread>,
    workers: [ServerWorker; 2],
}

/// Time in which the last lines are read, so that the journal has them.
const LAST_LINES: Duration = Duration::from_millis(20);

/// Time for verifications and copies to end; one that hangs on a pool ends with the process.
const WORKERS_WITHIN: Duration = Duration::from_secs(5);

impl RunningServer {
    /// Returns the threads that had panicked, with the messages.
    async fn stop(self, world: &World) -> Vec<(String, String)> {
        let Self { server, api, events, link, workers } = self;
        // They take their exports away while the API answers.
        workers.iter().for_each(ServerWorker::tell_to_end);
        let ending = async {
            for worker in workers {
                worker.stop().await;
            }
        };
        with_deadline(world.sleep(WORKERS_WITHIN), Box::pin(ending)).await;
        let api = api.stop().await.err().map(|panic| ("api".to_owned(), panic));
        end_link(link).await;
        let mut panicked = server.stop().await;
        panicked.extend(api);
        world.sleep(LAST_LINES).await;
        panicked.extend(events.stop().await.err().map(|panic| ("events".to_owned(), panic)));
        panicked
    }
}

/// Ends the link to other sites, before the pools: a panic of it was said when it happened.
async fn end_link(link: Option<LinkThread>) {
    if let Some(link) = link {
        let _ = link.stop().await;
    }
}

fn event_thread(
    world: &World,
    server: &SiteServer,
    (journal, log, link): (Arc<DaemonJournal>, DaemonEventLog, Option<LinkHandle>),
    options: RealOptions,
    notices: &NoticeSender,
) -> Result<EventThread, Refusal> {
    let setting = EventThreadSetting {
        network: Box::new(|| Rc::new(Sockets) as Rc<dyn Network>),
        site: server.handle(),
        watched: server.watched(),
        link,
        journal,
        log,
    };
    EventThread::start(world, &RealThreads { seed: 0, options }, setting, notices.of("serve"))
}

/// A site file with an error lasts until one is applied without.
fn note_broken(refusal: &Refusal, file: &Path, (notices, now): (&NoticeSender, WallTime)) {
    let text = format!("{}: {}", file.display(), refusal.problem());
    let claim = ConditionClaim::new("site_file_broken", "serve", text);
    notices.raise(&claim.with_next(refusal.remedy()), now);
}

/// Shows the changes at the start, and does them. One that fails does not keep what is there from being served.
async fn begin(server: &mut SiteServer, text: &str, file: &Path, console: &Console) -> Result<(), Refusal> {
    let plan = server.plan(text, &[], PlanOccasion::Start).await?;
    shown_changes::show(&shown_changes::shown(&plan), &file.display().to_string(), console)?;
    let applied = server.apply(plan, |step| shown_changes::show_step(step, console)).await;
    let has_pools = !server.daemon().pools().is_empty();
    match (applied, server.stopped().iter().next()) {
        (Err(refusal), _) if has_pools => console.warn(&refusal.to_string()),
        (Err(refusal), _) => return Err(refusal),
        (Ok(()), Some((pool, refusal))) if !has_pools => {
            return Err(Refusal::new(format!("pool {pool}: {refusal}"), ""));
        }
        (Ok(()), _) => {}
    }
    Ok(())
}

/// Applies the file again.
async fn reload(
    server: &mut SiteServer,
    file: &Path,
    console: &Console,
    noting: (&NoticeSender, WallTime),
) -> Result<(), Refusal> {
    let planned = async {
        let text = read_site(file)?;
        server.plan(&text, &[], PlanOccasion::Reload).await
    };
    let plan = planned.await.map_err(|refusal| {
        note_broken(&refusal, file, noting);
        Refusal::new(refusal.to_string(), "what is served stays")
    })?;
    shown_changes::show(&shown_changes::shown(&plan), &file.display().to_string(), console)?;
    server.apply(plan, |step| shown_changes::show_step(step, console)).await?;
    shown_services::show(server, console)
}
