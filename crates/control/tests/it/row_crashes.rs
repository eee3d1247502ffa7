//! Rows of a served site changed without a file, in simulated time: the power fails, or the process is killed, between any two
//! awaits. After each crash the server starts with its file again, which may have changed in another place meanwhile.
//!
//! The model is the site with each answered change made once. What was not answered is served as a whole or not at all, and
//! is named if it is not.

use crate::seeds::Seeds;
use crate::sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of};
use control::{
    notice,
    site::{
        SiteContext, SiteServer,
        file_merge::implicitly_open,
        handle::{OnlineChange, WantedAnswer},
        planning::PlanOccasion,
        row_change::{InitiatorPatch, NewUnit, RowEffect, SiteRowChange, UnitPatch},
        row_refusal::RowRefusalKind,
        server::{PortalUse, SiteServerSetting},
    },
};
use fragile::Fragile;
use plan::site::{Site, SiteExport, SiteInitiator, SiteTarget, SiteUnit, Snapshots};
use report::Refusal;
use std::{cell::RefCell, rc::Rc, sync::Arc};
use world::{
    ByteCount, Random, World,
    sim::{
        DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, SimThreads, Simulation,
    },
};

const SITE: &str = "
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
[[volume]]
name = 'b'
group = 'mail'
gb = 0.001
[[target]]
name = 'disks'
[[target.unit]]
number = 0
volume = 'mail/a'
[[initiator]]
name = 'iqn.x:a'
uses = ['disks']
[[nbd]]
name = 'e0'
volume = 'mail/a'
";
/// Changes of one seed.
const CHANGES: usize = 14;

/// The person at the command line, who outlives the server.
struct Operator {
    random: Random,
    file: String,
    model: Site,
    done: usize,
    refused: usize,
    /// It was asked for, and not answered.
    open: Option<SiteRowChange>,
    crashes: usize,
    /// Open changes that were not made, and said so.
    named: usize,
}

impl Operator {
    /// One that would be refused is often drawn again.
    fn draw(&mut self) -> SiteRowChange {
        let change = draw(&mut self.random);
        let is_refused = change.clone().make(&mut self.model.clone()).is_err();
        if is_refused && self.random.percent(40.0) { draw(&mut self.random) } else { change }
    }
}

fn draw(random: &mut Random) -> SiteRowChange {
    let volume =
        |random: &mut Random| ["logs/a", "mail/a", "mail/b", "b"][random.below(4) as usize].to_owned();
    let target = ["disks", "own"][random.below(2) as usize].to_owned();
    let initiator = format!("iqn.x:{}", ["a", "b", "c"][random.below(3) as usize]);
    let number = random.below(3);
    match random.below(12) {
        0 | 1 => {
            let number = random.percent(50.0).then_some(number);
            let shared = random.percent(30.0);
            let unit = NewUnit { number, volume: volume(random), shared, ..NewUnit::default() };
            SiteRowChange::AddUnit { target, unit }
        }
        2 => SiteRowChange::RemoveUnit { target, number },
        3 => {
            let patch = UnitPatch { read_only: Some(random.percent(50.0)), ..UnitPatch::default() };
            SiteRowChange::SetUnit { target, number, patch }
        }
        4 => {
            let units = vec![SiteUnit { volume: volume(random), ..SiteUnit::default() }];
            let target = SiteTarget { name: "own".to_owned(), units, open: random.percent(50.0) };
            SiteRowChange::CreateTarget { target, initiators: vec![initiator] }
        }
        5 => SiteRowChange::DeleteTarget { target },
        6 | 7 => {
            let initiator = SiteInitiator { name: initiator, uses: vec![target], ..SiteInitiator::default() };
            SiteRowChange::CreateInitiator { initiator }
        }
        8 => {
            let patch = InitiatorPatch { reads: Some(vec![target]), ..InitiatorPatch::default() };
            SiteRowChange::SetInitiator { initiator, patch }
        }
        9 => SiteRowChange::DeleteInitiator { initiator },
        10 => {
            let export = SiteExport { name: format!("e{number}"), volume: volume(random), read_only: false };
            match random.percent(60.0) {
                true => SiteRowChange::CreateExport { export },
                false => SiteRowChange::DeleteExport { export: export.name },
            }
        }
        _ => {
            let name = format!("s{number}");
            let (every_hours, keep, groups) = (Some(24.0), Some(2), vec!["mail".to_owned()]);
            let schedule = Snapshots { name, every_hours, keep, groups, ..Snapshots::default() };
            match random.percent(60.0) {
                true => SiteRowChange::CreateSchedule { schedule },
                false => SiteRowChange::DeleteSchedule { schedule: schedule.name },
            }
        }
    }
}

/// Services of a site, in an order of their own.
fn rows(site: &Site) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for SiteTarget { name, open, units } in &site.targets {
        rows.push(format!("target {name} {open}"));
        rows.extend(units.iter().map(|unit| format!("unit {name} {unit:?}")));
    }
    rows.extend(site.initiators.iter().map(|row| format!("{row:?}")));
    rows.extend(site.exports.iter().map(|row| format!("{row:?}")));
    rows.extend(site.snapshots.iter().map(|row| format!("{row:?}")));
    rows.sort();
    rows
}

/// The pools serve what the site says.
fn check(server: &SiteServer, model: &Site) -> Result<(), String> {
    let view = server.handle().look();
    if rows(&view.site) != rows(model) {
        return Err(format!("{:#?} is served, not {:#?}", rows(&view.site), rows(model)));
    }
    let (mut units, mut exports) = (Vec::new(), Vec::new());
    for pool in view.pools.values() {
        let view = pool.view().ok_or("a pool has stopped")?;
        exports.extend(view.exports.iter().map(|export| export.name.clone()));
        units.extend(view.targets.iter().flat_map(|target| {
            target.units.iter().map(|number| (target.name.clone(), *number)).collect::<Vec<_>>()
        }));
    }
    let (mut wanted_units, mut wanted_exports) = (Vec::new(), Vec::new());
    for target in &model.targets {
        let name = serving::export::name_of(&target.name);
        wanted_units.extend(target.units.iter().map(|unit| (name.clone(), unit.number)));
    }
    wanted_exports.extend(model.exports.iter().map(|export| export.name.clone()));
    [&mut exports, &mut wanted_exports].into_iter().for_each(|names| names.sort());
    [&mut units, &mut wanted_units].into_iter().for_each(|units| units.sort());
    match (units == wanted_units, exports == wanted_exports) {
        (true, true) => Ok(()),
        _ => Err(format!("{units:?} {exports:?} are served, not {wanted_units:?} {wanted_exports:?}")),
    }
}

/// True if a site contradicts itself, or a target is open to all that was not.
fn is_wrong(before: &Site, after: &Site) -> bool {
    after.fault().is_some() || !implicitly_open(after).is_subset(&implicitly_open(before))
}

/// One life of the server, until all changes are answered.
async fn life(
    world: World,
    (network, drives, made): (SimNetwork, Drives, MadePools),
    state: SimStateFile,
    operator: Rc<RefCell<Operator>>,
) -> Result<(), String> {
    let said = |refusal: Refusal| refusal.to_string();
    let network = Fragile::new(network);
    let journal = Arc::new(journal_of(&state)?);
    let under_way = journal.apply_under_way().map_err(|error| error.to_string())?;
    let setting = SiteServerSetting {
        context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
        places: Rc::new(SimPlaces { drives, made }),
        threads: Rc::new(SimThreads(world.clone())),
        network: Box::new(move || network.get().host("server")),
        journal,
        catalogues: Rc::new(SimCatalogues::default()),
    };
    let (notices, mut reader) = notice::channel("serve");
    let file = operator.borrow().file.clone();
    let mut server =
        SiteServer::start(&world, setting, &file, PortalUse::Listen, &notices).await.map_err(said)?;
    let plan = server.plan(&file, &[], PlanOccasion::Start).await.map_err(said)?;
    let is_named = plan.notes().iter().any(|note| note.contains("it was not made"));
    let lost: Vec<_> = plan.notes().iter().filter(|note| note.contains("not served any more")).collect();
    if !lost.is_empty() {
        return Err(format!("lost: {lost:?}"));
    }
    server.apply(plan, |_| ()).await.map_err(said)?;
    if under_way.is_some_and(|apply| apply.online.is_some()) != is_named {
        return Err(format!("an interrupted change was named: {is_named}"));
    }
    server.open();
    let open = operator.borrow_mut().open.take();
    if let Some(open) = open {
        let mut with = operator.borrow().model.clone();
        let is_made = open.make(&mut with).is_ok() && check(&server, &with).is_ok();
        let mut operator = operator.borrow_mut();
        operator.named += usize::from(is_named);
        if is_made {
            operator.model = with;
        }
    }
    check(&server, &operator.borrow().model)?;
    while operator.borrow().done < CHANGES {
        let change = operator.borrow_mut().draw();
        operator.borrow_mut().open = Some(change.clone());
        let wanted = OnlineChange {
            change: change.clone(),
            secret: None,
            if_match: None,
            is_forced: false,
            is_dry_run: false,
        };
        let answer =
            server.handle().ask(WantedAnswer::Change(Box::new(wanted))).map_err(|error| error.to_string())?;
        let request = server.next_request().await;
        server.answer(request).await;
        let answer = answer.await.map_err(|error| error.to_string())?;
        let mut operator = operator.borrow_mut();
        let mut model = operator.model.clone();
        let made = change.clone().make(&mut model);
        match (&answer, &made) {
            (Ok(answer), Ok(effect)) => {
                let row = answer.row.as_ref().ok_or("the answer is of a row")?;
                if row.effect != *effect {
                    return Err(format!("{change:?}: {:?}, not {effect:?}", row.effect));
                }
                if row.effect != RowEffect::None {
                    operator.model = model;
                }
            }
            (Err(refusal), Err(_)) if refusal.kind != RowRefusalKind::InUse => operator.refused += 1,
            (Err(refusal), Ok(_))
                if refusal.kind == RowRefusalKind::Refused && is_wrong(&operator.model, &model) =>
            {
                operator.refused += 1;
            }
            (answer, made) => return Err(format!("{change:?}: {answer:?}, and the model {made:?}")),
        }
        operator.open = None;
        operator.done += 1;
        check(&server, &operator.model).map_err(|why| format!("{change:?}: {why}"))?;
    }
    server.stop().await;
    while let Some(notice) = reader.try_next() {
        if notice.is_warning {
            return Err(format!("warned of {notice:?}"));
        }
    }
    Ok(())
}

/// Returns the numbers of crashes, of interrupted changes that were named, and of refusals.
fn lives(seed: u64) -> Result<(usize, usize, usize), String> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives = ["logs", "mail"]
        .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
        .into();
    let (made, state) = (MadePools::default(), SimStateFile::new("journal", seed));
    let mut random = simulation.random("crashes");
    let operator = Rc::new(RefCell::new(Operator {
        random: simulation.random("operator"),
        file: SITE.to_owned(),
        model: Site::from_toml(SITE).unwrap(),
        done: 0,
        refused: 0,
        open: None,
        crashes: 0,
        named: 0,
    }));
    let mut left = 3 + random.below(4);
    loop {
        let polls = (left > 0).then(|| 40 + random.below(320));
        let limits = SimLimits { polls, ..SimLimits::generous() };
        let (world, drives, made) = ((network.clone(), state.clone()), drives.clone(), Rc::clone(&made));
        let operator_now = Rc::clone(&operator);
        let outcome = simulation.run(limits, |own| life(own, (world.0, drives, made), world.1, operator_now));
        match outcome {
            SimOutcome::Completed(ended) => {
                ended?;
                let operator = operator.borrow();
                return Ok((operator.crashes, operator.named, operator.refused));
            }
            SimOutcome::Crashed if random.percent(50.0) => simulation.kill(),
            SimOutcome::Crashed => {
                simulation.cut_power();
                state.cut_power();
            }
            other => return Err(format!("{other:?}")),
        }
        left -= 1;
        let mut operator = operator.borrow_mut();
        operator.crashes += 1;
        // The file is changed in a place of its own, once something was changed online.
        let is_applied = journal_of(&state)?.served_site().map_err(|error| error.to_string())?.is_some();
        if is_applied && random.percent(40.0) {
            let name = format!("iqn.y:{}", operator.crashes);
            operator.file += &format!("[[initiator]]\nname = '{name}'\n");
            operator.model.initiators.push(SiteInitiator { name, ..SiteInitiator::default() });
        }
    }
}

#[test]
fn a_row_that_is_changed_without_a_file_outlives_every_crash_or_was_not_changed() {
    let seeds = Seeds::of(20, 2_000);
    let (mut crashes, mut named, mut refused) = (0, 0, 0);
    seeds.live_all(|seed| {
        let of_seed = lives(seed)?;
        crashes += of_seed.0;
        named += of_seed.1;
        refused += of_seed.2;
        Ok(())
    });
    seeds.check(crashes > seeds.count(), &format!("{crashes} crashes"));
    let all = seeds.count() * CHANGES;
    let is_mixed = (all / 10..all * 7 / 10).contains(&refused);
    seeds.check(is_mixed, &format!("{refused} of {all} changes were refused"));
    seeds.check(named > 0, "no change was interrupted");
}
