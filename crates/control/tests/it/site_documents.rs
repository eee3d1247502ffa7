//! Documents of a site in its pools, read from the drives alone and compared with the journal.

use crate::sim_site::{Drives, journal_of};
use array::pool::{ReadOnlyPool, open_read_only};
use control::{
    DaemonJournal,
    recovery::{
        PoolDocument,
        merging::{KeptPart, RecoveredPart, RecoveredPool, merged},
    },
    site::{SiteContext, WantedSite, adoption::FoundPool, server::parse},
    view::VolumeView,
};
use std::{collections::BTreeSet, rc::Rc};
use world::{
    BlockDevice,
    sim::{SimLimits, SimOutcome, SimStateFile, Simulation},
};

const CACHE_BYTES: usize = 1 << 20;

/// The pools that can be read, with what they keep.
async fn read(drives: &Drives) -> Vec<RecoveredPool> {
    let mut pools = Vec::new();
    for drives in drives.values() {
        let devices: Vec<Rc<dyn BlockDevice>> =
            drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
        // One that was never made whole.
        let Ok(pool) = open_read_only(&devices, CACHE_BYTES).await else { continue };
        pools.push(recovered(&pool));
    }
    pools
}

fn recovered(pool: &ReadOnlyPool) -> RecoveredPool {
    let id = pool.condition().pool;
    let kept = match pool.site_document() {
        Err(error) => panic!("a document is whole at each moment: {error}"),
        Ok(None) => KeptPart::Nothing,
        Ok(Some(kept)) => KeptPart::Document {
            site: kept.site,
            generation: kept.generation,
            document: Box::new(PoolDocument::decode(&kept.bytes, id).expect("it is a document")),
        },
    };
    let found = FoundPool {
        presented: Default::default(),
        name: pool.condition().name.clone(),
        folder: format!("/{}", pool.condition().name).into(),
        devices: Vec::new(),
        drives: 2,
        volumes: pool.volumes().into_iter().map(VolumeView::of).collect(),
    };
    RecoveredPool { pool: id, found, kept }
}

/// Fails unless the pools keep the site that the journal says is served.
pub async fn check_applied(drives: &Drives, journal: &DaemonJournal) -> Result<(), String> {
    let pools = read(drives).await;
    let kept = journal.kept_site().map_err(|error| error.to_string())?.ok_or("it knows of no document")?;
    let site = merged(&pools, None, None).map_err(|refusal| refusal.to_string())?;
    if !site.pools.iter().all(|part| matches!(part, RecoveredPart::Newest { .. })) || !site.lines.is_empty() {
        return Err(format!("applied, and the pools keep {:?}: {:?}", site.pools, site.lines));
    }
    if site.kept.map(|(site, generation)| (site.0, generation)) != Some((kept.site, kept.generation)) {
        return Err(format!(
            "the journal has change {}, and the pools keep {:?}",
            kept.generation, site.kept
        ));
    }
    let context = SiteContext { folder: "/".into(), state: "/state".into(), site: None };
    let served = journal.served_site().map_err(|error| error.to_string())?.expect("it was applied");
    let described = |site| WantedSite::described(site, &context).map_err(|refusal| refusal.to_string());
    let (applied, found) = (described(&parse(&served).unwrap())?, described(&site.site)?);
    if applied.services != found.services {
        return Err(format!("{:?} is served, and the pools keep {:?}", applied.services, found.services));
    }
    Ok(())
}

/// The number of the last change, as the journal knows it.
pub fn last_change(file: &SimStateFile) -> Result<u64, String> {
    let kept = journal_of(file)?.kept_site().map_err(|error| error.to_string())?;
    Ok(kept.map_or(0, |kept| kept.generation))
}

/// Fails unless each pool keeps nothing, or a whole document of a change that the journal knows; one of a change behind
/// `before` with all its volumes.
pub fn check_after_crash(
    simulation: &mut Simulation,
    drives: &Drives,
    (file, before): (&SimStateFile, u64),
) -> Result<(), String> {
    let known = journal_of(file)?.kept_site().map_err(|error| error.to_string())?;
    let drives = drives.clone();
    let outcome = simulation.run(SimLimits::generous(), |_| async move { read(&drives).await });
    let SimOutcome::Completed(pools) = outcome else {
        return Err("reading the pools does not end".to_owned());
    };
    let mut generations = BTreeSet::new();
    for pool in pools {
        let KeptPart::Document { site, generation, document } = pool.kept else { continue };
        let is_there = |meant: &str| {
            pool.found.volumes.iter().any(|volume| meant.ends_with(&format!("/{}", volume.name)))
        };
        if generation > before
            && let Some(export) = document.site.exports.iter().find(|export| !is_there(&export.volume))
        {
            return Err(format!(
                "pool {} keeps an export of {}, and has not made that yet",
                pool.pool, export.volume
            ));
        }
        let is_known =
            known.as_ref().is_some_and(|known| known.site == site.0 && generation <= known.generation);
        if !is_known {
            return Err(format!(
                "pool {} keeps change {generation}, and the journal knows {known:?}",
                pool.pool
            ));
        }
        generations.insert(generation);
    }
    let newest = known.map_or(0, |known| known.generation);
    match generations.iter().find(|generation| **generation + 1 < newest) {
        Some(older) => Err(format!("a pool keeps change {older}, and the last one is {newest}")),
        None => Ok(()),
    }
}
