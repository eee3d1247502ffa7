//! Pools that are not there when the server starts, and come while it serves: a file system that is mounted late, drives that come
//! late. In simulated time.

use crate::{
    hanging_pools::{MORE, Parts, SITE, change, delete, users},
    sim_site::MIB,
};
use control::site::handle::SiteHandle;
use std::{rc::Rc, time::Duration};
use world::sim::{SimDrive, SimLimits, Simulation};

/// Obstacle to opening the pool `mail`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Away {
    /// Its folder is not mounted.
    Folder,
    /// In the places of its drives there are blank ones.
    Drives,
}

impl Away {
    /// Returns the begins of the drives.
    fn begin(self, parts: &Parts) -> Vec<Vec<u8>> {
        let begin_of = |drive: &Rc<SimDrive>| {
            let mut begin = vec![0; MIB as usize];
            drive.peek(0, &mut begin);
            begin
        };
        let begins = parts.drives["mail"].iter().map(begin_of).collect();
        match self {
            Self::Folder => drop(parts.made.borrow_mut().remove("mail")),
            Self::Drives => {
                parts.drives["mail"].iter().for_each(|drive| drive.poke(0, &vec![0; MIB as usize]));
            }
        }
        begins
    }

    fn end(self, parts: &Parts, begins: &[Vec<u8>]) {
        match self {
            Self::Folder => drop(parts.made.borrow_mut().insert("mail".to_owned())),
            Self::Drives => {
                parts.drives["mail"].iter().zip(begins).for_each(|(drive, begin)| drive.poke(0, begin));
            }
        }
    }
}

fn volumes(site: &SiteHandle, pool: &str) -> Vec<String> {
    let view = site.look().pools[pool].view().unwrap();
    view.volumes.iter().map(|volume| volume.name.clone()).collect()
}

#[test]
fn a_pool_that_comes_after_the_server_is_served_with_what_the_file_wants_and_what_was_changed_online() {
    for (away, seed) in [(Away::Folder, 81), (Away::Drives, 82)] {
        comes_back(away, seed);
    }
}

fn comes_back(away: Away, seed: u64) {
    let mut simulation = Simulation::new(seed);
    let parts = Parts::new(&mut simulation, seed);
    let (first, second, third) = (parts.clone(), parts.clone(), parts.clone());
    let limits = SimLimits::generous;
    simulation
        .run(limits(), |world| async move { first.serve(world, SITE, async |_, _| ()).await })
        .completed();
    let with_more = format!("{SITE}{MORE}");
    let text = with_more.clone();
    let run = simulation.run(limits(), |world| async move {
        let begins = away.begin(&parts);
        let comes = parts.clone();
        second
            .serve(world, &text, async move |site, world| {
                assert!(!site.look().pools.contains_key("mail"), "{away:?}");
                assert_eq!(users(&site, "logs").len(), 3, "the other pool is served");
                change(&site, delete("iqn.x:a"), false).await.unwrap();
                world.sleep(Duration::from_secs(300)).await;
                assert!(site.look().stopped.contains_key("mail"), "{away:?}");
                away.end(&comes, &begins);
                // Tries are a minute apart by now.
                world.sleep(Duration::from_secs(65)).await;
                assert!(site.look().stopped.is_empty(), "{away:?}: {:?}", site.look().stopped);
                assert_eq!(users(&site, "mail"), ["iqn.x:b", "iqn.x:c"], "{away:?}");
                assert_eq!(users(&site, "logs"), ["iqn.x:b", "iqn.x:c"], "{away:?}");
                assert_eq!(volumes(&site, "mail"), ["a", "c"], "the file has added one: {away:?}");
            })
            .await;
    });
    run.completed();
    let run = simulation.run(limits(), |world| async move {
        third
            .serve(world, &with_more, async move |site, _| {
                assert_eq!(users(&site, "mail"), ["iqn.x:b", "iqn.x:c"], "a start keeps it: {away:?}");
                assert_eq!(volumes(&site, "mail"), ["a", "c"], "{away:?}");
            })
            .await;
    });
    run.completed();
}
