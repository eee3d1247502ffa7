//! Pools whose drives hang, in simulated time: changes of the site end, say what is not done, and go on when the pool answers.
//! And a host that logs in while a change waits for its pool.

use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    notice,
    site::{
        SiteContext, SiteServer,
        handle::{OnlineChange, SiteAnswer, SiteHandle, SiteText, WantedAnswer},
        planning::PlanOccasion,
        row_change::{InitiatorPatch, SiteRowChange},
        row_refusal::{RowRefusal, RowRefusalKind},
        server::{PortalUse, SiteServerSetting},
    },
};
use fragile::Fragile;
use iscsi::initiator::{Initiator, InitiatorOptions, IscsiUri};
use plan::site::Site;
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{
    ByteCount, World,
    sim::{
        DriveOptions, FaultPlan, NetworkOptions, SimDrive, SimLimits, SimNetwork, SimStateFile, SimThreads,
        Simulation,
    },
    with_deadline,
};

pub const SITE: &str = "
[[group]]
name = 'logs'
[[group]]
name = 'mail'
[[volume]]
name = 'a'
group = 'logs'
gb = 0.001
[[volume]]
name = 'a'
group = 'mail'
gb = 0.001
[[target]]
name = 'disks'
[[target.unit]]
number = 0
volume = 'mail/a'
[[target]]
name = 'journal'
[[target.unit]]
number = 0
volume = 'logs/a'
[[initiator]]
name = 'iqn.x:a'
uses = ['disks', 'journal']
[[initiator]]
name = 'iqn.x:b'
uses = ['disks', 'journal']
";
/// Volumes that the next file adds, one in each pool.
pub const MORE: &str = "
[[volume]]
name = 'c'
group = 'logs'
gb = 0.001
[[volume]]
name = 'c'
group = 'mail'
gb = 0.001
[[initiator]]
name = 'iqn.x:c'
uses = ['disks', 'journal']
";

/// Simulated parts that outlive a server.
#[derive(Clone)]
pub struct Parts {
    network: SimNetwork,
    pub drives: Drives,
    pub made: MadePools,
    state: SimStateFile,
}

impl Parts {
    pub fn new(simulation: &mut Simulation, seed: u64) -> Self {
        let network = simulation.add_network(NetworkOptions::rack());
        let options = DriveOptions::new(ByteCount(65 * MIB));
        let drives = ["logs", "mail"]
            .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
            .into();
        Self { network, drives, made: MadePools::default(), state: SimStateFile::new("journal", seed) }
    }

    /// All drives of the pool `mail` take this long for each operation.
    fn slow(&self, span: Duration) {
        let faults = match span.is_zero() {
            true => FaultPlan::none(),
            false => FaultPlan { slow_percent: 100.0, slow_span: span, ..FaultPlan::none() },
        };
        self.drives["mail"].iter().for_each(|drive: &Rc<SimDrive>| drive.set_faults(faults.clone()));
    }

    /// Serves a site file, and has a caller ask the server.
    pub async fn serve<T>(
        self,
        world: World,
        text: &str,
        calling: impl AsyncFnOnce(SiteHandle, World) -> T,
    ) -> T {
        let Self { network, drives, made, state } = self;
        let network = Fragile::new(network);
        let setting = SiteServerSetting {
            context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
            places: Rc::new(SimPlaces { drives, made }),
            threads: Rc::new(SimThreads(world.clone())),
            network: Box::new(move || network.get().host("server")),
            journal: Arc::new(journal_of(&state).unwrap()),
            catalogues: Rc::new(SimCatalogues::default()),
        };
        let (notices, _reader) = notice::channel("serve");
        let mut server = SiteServer::start(&world, setting, text, PortalUse::Listen, &notices).await.unwrap();
        let plan = server.plan(text, &[], PlanOccasion::Start).await.unwrap();
        server.apply(plan, |_| ()).await.unwrap();
        server.open();
        let calling = calling(server.handle(), world.clone());
        let answering = async {
            loop {
                let request = server.next_request().await;
                server.answer(request).await;
            }
        };
        let called = with_deadline(answering, calling).await.expect("answering does not end");
        server.stop().await;
        called
    }
}

pub type ChangeAnswer = Result<SiteAnswer, RowRefusal>;

async fn ask(site: &SiteHandle, wanted: WantedAnswer) -> ChangeAnswer {
    site.ask(wanted).unwrap().await.unwrap()
}

fn text_of(text: &str) -> SiteText {
    SiteText { text: text.to_owned(), destroy: Vec::new() }
}

pub async fn change(site: &SiteHandle, change: SiteRowChange, is_forced: bool) -> ChangeAnswer {
    let wanted = OnlineChange { change, secret: None, if_match: None, is_forced, is_dry_run: false };
    ask(site, WantedAnswer::Change(Box::new(wanted))).await
}

pub fn delete(initiator: &str) -> SiteRowChange {
    SiteRowChange::DeleteInitiator { initiator: initiator.to_owned() }
}

/// Initiators with a right on a pool's target, as the pool's thread serves them.
pub fn users(site: &SiteHandle, pool: &str) -> Vec<String> {
    let target = if pool == "mail" { "disks" } else { "journal" };
    let target = serving::export::name_of(target);
    let access = Arc::clone(&site.look().pools[pool].view().unwrap().access);
    let names = ["a", "b", "c"].map(|name| format!("iqn.x:{name}"));
    names.into_iter().filter(|name| access.right(name, &target, 0).is_some()).collect()
}

fn initiators(site: &Site) -> Vec<&str> {
    site.initiators.iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn an_apply_ends_although_a_pool_hangs_and_goes_on_when_it_answers() {
    let mut simulation = Simulation::new(71);
    let parts = Parts::new(&mut simulation, 71);
    let own = parts.clone();
    let run = simulation.run(SimLimits::generous(), |world| async move {
        parts
            .serve(world, SITE, async |site, world| {
                own.slow(Duration::from_secs(70));
                let more = format!("{SITE}{MORE}");
                let applying = world.spawn("apply", {
                    let (site, more) = (site.clone(), more.clone());
                    async move { ask(&site, WantedAnswer::Apply(text_of(&more))).await }
                });
                world.sleep(Duration::from_secs(2)).await;
                // A plan waits for nothing.
                let begun = world.now();
                let plan = ask(&site, WantedAnswer::Plan(text_of(&more))).await.unwrap();
                assert!(world.now().since(begun) < Duration::from_millis(1));
                let progress = plan.apply_under_way.unwrap();
                assert!(progress.starts_with("an apply is under way: 1 of "), "{progress}");
                let refused = applying.await.unwrap_err();
                let took = world.now().since(begun);
                assert!((20..30).contains(&took.as_secs()), "{took:?}");
                assert_eq!(refused.kind, RowRefusalKind::NoAnswer);
                let said = refused.to_string();
                let parts =
                    ["pool mail did not answer within 25 s (create volume)", "not done: + volume mail/c"];
                assert!(parts.iter().all(|part| said.contains(part)), "{said}");
                assert!(said.ends_with("the server goes on by itself when it answers"), "{said}");
                // The other pool has all of it.
                assert_eq!(users(&site, "logs").len(), 3);
                assert_eq!(users(&site, "mail").len(), 2);
                let plan = ask(&site, WantedAnswer::Plan(text_of(&more))).await.unwrap();
                assert!(
                    plan.notes.iter().any(|note| note.starts_with("pool mail does not answer")),
                    "{plan:?}"
                );
                own.slow(Duration::ZERO);
                world.sleep(Duration::from_secs(400)).await;
                assert_eq!(users(&site, "mail").len(), 3);
                let plan = ask(&site, WantedAnswer::Plan(text_of(&more))).await.unwrap();
                assert!(plan.changes.is_empty() && plan.notes.is_empty(), "{plan:?}");
            })
            .await;
    });
    run.completed();
}

#[test]
fn a_right_that_is_taken_away_while_a_pool_hangs_is_gone_there_when_it_answers() {
    let mut simulation = Simulation::new(72);
    let parts = Parts::new(&mut simulation, 72);
    let own = parts.clone();
    let run = simulation.run(SimLimits::generous(), |world| async move {
        parts
            .serve(world, SITE, async |site, world| {
                own.slow(Duration::from_secs(70));
                // Something that hangs: the pool does nothing else before it has ended.
                let hung = world.spawn("apply", {
                    let site = site.clone();
                    let more = SITE.replacen("gb = 0.001", "gb = 0.001\niops_max = 5", 2);
                    async move { ask(&site, WantedAnswer::Apply(text_of(&more))).await }
                });
                assert_eq!(hung.await.unwrap_err().kind, RowRefusalKind::NoAnswer);
                let refused = change(&site, delete("iqn.x:a"), false).await.unwrap_err();
                assert!(refused.to_string().contains("nobody knows which hosts use it; nothing was changed"));
                assert_eq!(users(&site, "logs").len(), 2);
                let late = change(&site, delete("iqn.x:a"), true).await.unwrap_err();
                assert_eq!(late.kind, RowRefusalKind::NoAnswer);
                assert!(late.to_string().contains("pool mail did not answer and serves as before"), "{late}");
                assert_eq!(users(&site, "logs"), ["iqn.x:b"]);
                assert_eq!(initiators(&site.look().site), ["iqn.x:b"]);
                own.slow(Duration::ZERO);
                world.sleep(Duration::from_secs(400)).await;
                assert_eq!(users(&site, "mail"), ["iqn.x:b"]);
            })
            .await;
    });
    run.completed();
}

#[test]
fn a_pool_whose_drives_hang_at_the_start_holds_up_no_other_one_and_joins_when_it_is_open() {
    let mut simulation = Simulation::new(73);
    let parts = Parts::new(&mut simulation, 73);
    let (again, own) = (parts.clone(), parts.clone());
    simulation
        .run(SimLimits::generous(), |world| async move { parts.serve(world, SITE, async |_, _| ()).await })
        .completed();
    let run = simulation.run(SimLimits::generous(), |world| async move {
        own.slow(Duration::from_secs(20));
        let begun = world.now();
        let late = own.clone();
        again
            .serve(world, SITE, async move |site, world| {
                let took = world.now().since(begun);
                assert!((25..28).contains(&took.as_secs()), "{took:?}");
                assert_eq!(users(&site, "logs").len(), 2, "the other pool is served");
                let why = site.look().stopped["mail"].to_string();
                assert!(why.starts_with("it is not open after 25 s: its drives hang"), "{why}");
                // The same file once more does not open it a second time.
                ask(&site, WantedAnswer::Apply(text_of(SITE))).await.unwrap();
                assert!(!site.look().pools.contains_key("mail"));
                change(&site, delete("iqn.x:a"), false).await.unwrap();
                late.slow(Duration::ZERO);
                world.sleep(Duration::from_secs(400)).await;
                assert!(site.look().stopped.is_empty(), "{:?}", site.look().stopped);
                assert_eq!(
                    users(&site, "mail"),
                    ["iqn.x:b"],
                    "a right that went meanwhile is gone there, too"
                );
                assert_eq!(users(&site, "logs"), ["iqn.x:b"]);
            })
            .await;
    });
    run.completed();
}

/// Rights are taken away while a file is applied to a part: by the same file once more, by the server that goes on, or by the
/// next start they do not come back.
#[test]
fn a_right_that_is_taken_away_during_an_apply_is_not_brought_back_by_it() {
    for (seed, ending) in ["apply", "go on", "start"].into_iter().enumerate() {
        let seed = 80 + seed as u64;
        let mut simulation = Simulation::new(seed);
        let parts = Parts::new(&mut simulation, seed);
        let (own, again, last) = (parts.clone(), parts.clone(), parts.clone());
        let more = format!("{SITE}{MORE}");
        let file = more.clone();
        let run = simulation.run(SimLimits::generous(), |world| async move {
            parts
                .serve(world, SITE, async |site, world| {
                    own.slow(Duration::from_secs(70));
                    let refused = ask(&site, WantedAnswer::Apply(text_of(&file))).await.unwrap_err();
                    assert_eq!(refused.kind, RowRefusalKind::NoAnswer);
                    // One that both have, and one that the file alone has.
                    for name in ["iqn.x:a", "iqn.x:c"] {
                        assert_eq!(
                            change(&site, delete(name), true).await.unwrap_err().kind,
                            RowRefusalKind::NoAnswer
                        );
                    }
                    assert_eq!(
                        change(&site, delete("iqn.x:d"), true).await.unwrap_err().kind,
                        RowRefusalKind::NotFound
                    );
                    assert_eq!(users(&site, "logs"), ["iqn.x:b"]);
                    if ending == "start" {
                        own.slow(Duration::ZERO);
                        return;
                    }
                    own.slow(Duration::ZERO);
                    world.sleep(Duration::from_secs(if ending == "apply" { 30 } else { 400 })).await;
                    if ending == "apply" {
                        // The pool may not have answered yet.
                        let _ = ask(&site, WantedAnswer::Apply(text_of(&file))).await;
                        world.sleep(Duration::from_secs(400)).await;
                    }
                    for pool in ["logs", "mail"] {
                        assert_eq!(users(&site, pool), ["iqn.x:b"], "{ending} {pool}");
                    }
                    assert_eq!(initiators(&site.look().site), ["iqn.x:b"]);
                    // The row is changed as before.
                    let patch = InitiatorPatch {
                        reads: Some(vec!["disks".into()]),
                        uses: Some(Vec::new()),
                        ..Default::default()
                    };
                    let initiator = "iqn.x:b".to_owned();
                    let refused =
                        change(&site, SiteRowChange::SetInitiator { initiator, patch }, false).await;
                    assert!(refused.unwrap_err().to_string().contains("target journal would be open"));
                })
                .await;
        });
        run.completed();
        // Whatever happened, the next start with the file keeps it.
        drop(again);
        let run = simulation.run(SimLimits::generous(), |world| async move {
            last.serve(world, &more, async |site, _| {
                for pool in ["logs", "mail"] {
                    assert_eq!(users(&site, pool), ["iqn.x:b"], "{ending} {pool}");
                }
            })
            .await;
        });
        run.completed();
    }
}

/// The pool is busy when it is asked who uses the unit, and again before it takes the unit away: a host logs in between.
#[test]
fn a_host_that_logs_in_after_the_question_who_uses_a_unit_keeps_it() {
    let mut simulation = Simulation::new(90);
    let parts = Parts::new(&mut simulation, 90);
    let network = parts.network.clone();
    let run = simulation.run(SimLimits::generous(), |world| async move {
        parts
            .serve(world, SITE, async |site, world| {
                let pool = site.look().pools["mail"].clone();
                let hold = || {
                    drop(pool.begin("hold", |served| {
                        Box::pin(async move { served.world.sleep(Duration::from_secs(4)).await })
                    }));
                };
                let remove = SiteRowChange::RemoveUnit { target: "disks".to_owned(), number: 0 };
                hold();
                let removing = world.spawn("remove", {
                    let (site, remove) = (site.clone(), remove.clone());
                    async move { change(&site, remove, false).await }
                });
                world.sleep(Duration::from_secs(1)).await;
                // After the question, before the removal.
                hold();
                world.sleep(Duration::from_secs(4)).await;
                let uri = format!("iscsi://server:3260/{}/0", serving::export::name_of("disks"));
                let uri = uri.parse::<IscsiUri>().unwrap();
                let options = InitiatorOptions { name: "iqn.x:a".to_owned(), ..InitiatorOptions::default() };
                let host = Initiator::connect(&world, network.host("host"), uri, options).await.unwrap();
                let refused = removing.await.unwrap_err();
                assert_eq!(refused.kind, RowRefusalKind::InUse, "{refused}");
                assert!(refused.to_string().contains("unit disks/0 is used by iqn.x:a"), "{refused}");
                assert!(refused.to_string().contains("nothing was changed"), "{refused}");
                world.sleep(Duration::from_secs(2)).await;
                let sessions = pool.view().unwrap().sessions.len();
                assert_eq!(sessions, 1, "the host has its session");
                let done = change(&site, remove, true).await.unwrap().row.unwrap();
                assert_eq!(done.ended.len(), 1, "{done:?}");
                drop(host);
            })
            .await;
    });
    run.completed();
}
