//! Sites applied in simulated time: the power fails, or the process is killed, between any two awaits.
//!
//! After each crash the same file is applied again, without naming what may be destroyed: what was begun is done to its
//! end. The checker knows the identity of each volume that an apply had acknowledged. The pools keep the site: whole at each
//! moment, and after an apply as it was applied (`site_documents`).

use crate::{
    seeds::Seeds,
    sim_site::{Drives, MIB, MadePools, SimCatalogues, SimPlaces, journal_of},
    site_documents as documents,
};
use array::format::VolumeId;
use control::{
    notice,
    site::{
        SiteContext, SiteServer,
        planning::PlanOccasion,
        server::{PortalUse, ServedUri, SiteServerSetting},
    },
};
use fragile::Fragile;
use report::Refusal;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};
use world::{
    ByteCount, Random, World,
    sim::{
        DriveOptions, NetworkOptions, SimLimits, SimNetwork, SimOutcome, SimStateFile, SimThreads, Simulation,
    },
};

const POOLS: [&str; 2] = ["logs", "mail"];
/// Sites applied one after the other.
const ROUNDS: u64 = 4;

/// A site file, and what it may destroy.
#[derive(Clone, Debug)]
struct SiteDraft {
    text: String,
    destroy: Vec<String>,
    /// Size of each volume in the file, by POOL/VOLUME.
    sizes: BTreeMap<String, u64>,
    /// Names of before, by those of after.
    renamed: BTreeMap<String, String>,
    exports: BTreeSet<String>,
}

/// A volume as it was acknowledged.
#[derive(Clone, Debug, PartialEq)]
struct KnownVolume {
    volume: VolumeId,
    size: u64,
}

impl SiteDraft {
    fn draw(random: &mut Random, known: &BTreeMap<String, KnownVolume>) -> Self {
        let mut wish = Self {
            text: String::new(),
            destroy: Vec::new(),
            sizes: BTreeMap::new(),
            renamed: BTreeMap::new(),
            exports: BTreeSet::new(),
        };
        for pool in POOLS {
            wish.text += &format!("[[group]]\nname = '{pool}'\n");
            // Volumes of before that the file lacks, and that may get another name.
            let mut left = Vec::new();
            let mut free = Vec::new();
            for name in ["a", "b", "c", "d"] {
                let path = format!("{pool}/{name}");
                match known.get(&path) {
                    Some(before) if random.percent(60.0) => wish.volume(&path, before.size, None, random),
                    Some(_) if random.percent(40.0) => wish.destroy.push(path),
                    Some(_) => left.push(path),
                    None => free.push(path),
                }
            }
            for path in free {
                match left.last() {
                    Some(was) if random.percent(50.0) => {
                        let was = was.clone();
                        left.pop();
                        wish.volume(&path, known[&was].size, Some(&was), random);
                    }
                    _ if random.percent(50.0) => wish.volume(&path, MIB, None, random),
                    _ => {}
                }
            }
        }
        wish
    }

    fn volume(&mut self, path: &str, size: u64, was: Option<&str>, random: &mut Random) {
        let (pool, name) = path.split_once('/').unwrap();
        let size = if random.percent(30.0) { size + MIB } else { size };
        let gb = size as f64 / (1u64 << 30) as f64;
        self.text += &format!("[[volume]]\nname = '{name}'\ngroup = '{pool}'\ngb = {gb:?}\n");
        if random.percent(50.0) {
            self.text += &format!("iops_max = {}\n", 100 + random.below(3));
        }
        if let Some(was) = was {
            self.text += &format!("was = '{}'\n", was.split_once('/').unwrap().1);
            self.renamed.insert(path.to_owned(), was.to_owned());
        }
        if random.percent(70.0) {
            let export = path.replace('/', "-");
            self.text += &format!("[[nbd]]\nname = '{export}'\nvolume = '{path}'\n");
            self.exports.insert(export);
        }
        if random.percent(40.0) {
            let (target, number) = (path.replace('/', "."), random.below(4));
            self.text += &format!(
                "[[target]]\nname = '{target}'\n[[target.unit]]\nnumber = {number}\nvolume = '{path}'\n\
                [[initiator]]\nname = 'iqn.x:{target}'\nuses = ['{target}']\n"
            );
        }
        self.sizes.insert(path.to_owned(), size);
    }
}

/// One life of the daemon: it starts with the file, applies it and ends. Returns the volumes it leaves.
async fn life(
    world: World,
    (network, drives, made): (SimNetwork, Drives, MadePools),
    file: SimStateFile,
    wish: SiteDraft,
) -> Result<BTreeMap<String, KnownVolume>, String> {
    let network = Fragile::new(network);
    let own_drives = drives.clone();
    let journal = Arc::new(journal_of(&file)?);
    let setting = SiteServerSetting {
        context: SiteContext { folder: "/".into(), state: "/state".into(), site: None },
        places: Rc::new(SimPlaces { drives, made }),
        threads: Rc::new(SimThreads(world.clone())),
        network: Box::new(move || network.get().host("server")),
        journal: Arc::clone(&journal),
        catalogues: Rc::new(SimCatalogues::default()),
    };
    let (notices, mut reader) = notice::channel("serve");
    let said = |refusal: Refusal| refusal.to_string();
    let mut server =
        SiteServer::start(&world, setting, &wish.text, PortalUse::Listen, &notices).await.map_err(said)?;
    let plan = server.plan(&wish.text, &wish.destroy, PlanOccasion::Apply).await.map_err(said)?;
    server.apply(plan, |_| ()).await.map_err(said)?;
    server.open();
    let again = server.plan(&wish.text, &[], PlanOccasion::Reload).await.map_err(said)?;
    if !again.changes.is_empty() {
        return Err(format!("applied, and these changes are left: {:?}", again.changes.steps));
    }
    let served: BTreeSet<String> = server
        .served()
        .into_iter()
        .filter_map(|(_, uri)| match uri {
            ServedUri::Nbd { export, .. } => Some(export),
            ServedUri::Iscsi { .. } => None,
        })
        .collect();
    if served != wish.exports {
        return Err(format!("{served:?} is served, not {:?}", wish.exports));
    }
    let mut volumes = BTreeMap::new();
    for pool in POOLS {
        for known in server.volumes(pool).await.map_err(said)? {
            volumes.insert(
                format!("{pool}/{}", known.name),
                KnownVolume { volume: known.volume, size: known.size.0 },
            );
        }
    }
    server.stop().await;
    documents::check_applied(&own_drives, &journal).await?;
    while let Some(notice) = reader.try_next() {
        if notice.is_warning {
            return Err(format!("warned of {notice:?}"));
        }
    }
    Ok(volumes)
}

/// Applies several sites, with crashes; the first violation ends it.
fn lives(seed: u64) -> Result<u64, String> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let options = DriveOptions::new(ByteCount(65 * MIB));
    let drives: Drives = POOLS
        .map(|pool| (pool.to_owned(), (0..2).map(|_| simulation.add_drive(options.clone())).collect()))
        .into();
    let made = MadePools::default();
    let file = SimStateFile::new("journal", seed);
    let mut random = simulation.random("sites");
    let mut known = BTreeMap::new();
    let mut crashes = 0;
    for round in 0..ROUNDS {
        let wish = SiteDraft::draw(&mut random, &known);
        let mut asked = wish.clone();
        let mut left = random.below(4);
        let mut begun_to_destroy = Vec::new();
        let before = documents::last_change(&file)?;
        let served = journal_of(&file)?.served_site().map_err(|error| error.to_string())?;
        let found = loop {
            let to_destroy = [&asked.destroy[..], &begun_to_destroy].concat();
            let polls = (left > 0).then(|| 1 + random.below(1_200));
            let limits = SimLimits { polls, ..SimLimits::generous() };
            let (network, drives_now, file_now) = (network.clone(), drives.clone(), file.clone());
            let made = Rc::clone(&made);
            let outcome = simulation
                .run(limits, |world| life(world, (network, drives_now, made), file_now, asked.clone()));
            match outcome {
                SimOutcome::Completed(found) => {
                    break found.map_err(|why| format!("round {round}: {why}\n{asked:?}"))?;
                }
                SimOutcome::Crashed if random.percent(50.0) => simulation.kill(),
                SimOutcome::Crashed => {
                    simulation.cut_power();
                    file.cut_power();
                }
                other => return Err(format!("round {round}: {other:?}")),
            }
            crashes += 1;
            left -= 1;
            documents::check_after_crash(&mut simulation, &drives, (&file, before))
                .map_err(|why| format!("round {round}: {why}"))?;
            // The journal knows what was begun; the person does not name it again.
            asked.destroy.clear();
            let journal = journal_of(&file)?;
            let begun = journal.apply_under_way().map_err(|error| error.to_string())?;
            // An apply that has ended has done all.
            let has_ended = journal.served_site().map_err(|error| error.to_string())? != served;
            begun_to_destroy = match begun {
                Some(apply) => apply.destroy,
                None if has_ended => to_destroy,
                None => Vec::new(),
            };
        };
        check(&wish, &known, &found)
            .map_err(|why| format!("round {round}: {why}\n{wish:?}\n{known:?}\n{found:?}"))?;
        if let Some(path) = begun_to_destroy.iter().find(|path| found.contains_key(*path)) {
            return Err(format!(
                "round {round}: {path} was to be destroyed by an apply that had begun, and is there"
            ));
        }
        known = found;
    }
    Ok(crashes)
}

fn check(
    wish: &SiteDraft,
    known: &BTreeMap<String, KnownVolume>,
    found: &BTreeMap<String, KnownVolume>,
) -> Result<(), String> {
    for (path, size) in &wish.sizes {
        let now = found.get(path).ok_or_else(|| format!("{path} is in the file, and not there"))?;
        if now.size != *size {
            return Err(format!("{path} has {} bytes, not {size}", now.size));
        }
        let was = wish.renamed.get(path).unwrap_or(path);
        if known.get(was).is_some_and(|before| before.volume != now.volume) {
            return Err(format!("{path} is another volume than {was} was"));
        }
    }
    let renamed: BTreeSet<&String> = wish.renamed.values().collect();
    for (path, before) in known.iter().filter(|(path, _)| !renamed.contains(path)) {
        let is_there = found.get(path).is_some_and(|now| now.volume == before.volume);
        if !is_there && !wish.destroy.contains(path) {
            return Err(format!("{path} is gone, and nobody asked for that"));
        }
    }
    Ok(())
}

#[test]
fn a_site_is_applied_to_its_end_whenever_it_is_interrupted() {
    let seeds = Seeds::of(20, 2_000);
    let mut crashes = 0;
    seeds.live_all(|seed| {
        crashes += lives(seed)?;
        Ok(())
    });
    seeds.check(crashes > seeds.count() as u64 / 2, &format!("{crashes} crashes"));
}

#[cfg(debug_assertions)]
#[test]
fn each_planted_bug_of_an_apply_is_noticed_within_a_few_seeds() {
    use control::planted::{ApplyBug, with_bug};
    const SEEDS_MAX: u64 = 200;
    for bug in ApplyBug::ALL {
        let remembered = match bug {
            ApplyBug::DocumentBeforeItsSteps => 20,
            ApplyBug::MadeInsteadOfRenamed => 1,
            ApplyBug::EndedBeforeItsLastStep => 35,
            _ => 0,
        };
        let fails = |seed| with_bug(bug, || lives(seed)).err();
        let found = crate::planted::noticed(bug, (remembered, SEEDS_MAX), fails);
        let (seed, violation) =
            found.unwrap_or_else(|| panic!("{bug:?} was not noticed by {SEEDS_MAX} seeds"));
        println!(
            "note: {bug:?} was noticed by seed {seed}: {}",
            violation.lines().next().unwrap_or_default()
        );
    }
}
