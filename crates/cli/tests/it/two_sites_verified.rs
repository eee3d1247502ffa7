//! Two servers compared while fio writes: alike, and not after somebody changed a block of the replica; all groups moved by
//! one command.

use crate::{
    judged_exports::{Endpoint, JOBS, PART, fio, until},
    own_server::silent,
    pool_drives::done,
    spindle::{is_full_run, json_of},
    two_sites::{EXPORT, Site, VOLUME, has_clients, pair, paired_with},
};
use array::{format::Stamp, pool::VolumeKey};
use serving::pool::folder::OpenPool;
use std::{path::Path, sync::Arc, time::Instant};
use world::{
    Buffer, ByteOffset, World,
    real::{self, RealOptions},
};

/// Writes a block of the replica at a site that is down, as no primary ever sent it.
fn change_replica(site: &Site, block: u64) {
    real::run(0, RealOptions::default(), async |world: World| {
        let open = OpenPool::open(&world, &site.bench.path("state/pools/mail"), &silent()).await.unwrap();
        let volume = open.pool.volumes().into_iter().find(|info| info.name == "disk").unwrap().volume;
        let last = open.pool.last_stamp(VolumeKey::Id(volume)).unwrap();
        let device = open.pool.volume(VolumeKey::Id(volume)).unwrap();
        let data = vec![Arc::new(Buffer::copy_of(&[0xd1; 4096]))];
        device.ensure_write(ByteOffset(block * 4096), &data, Stamp(last.0 + 1)).await.unwrap();
        drop(device);
        open.close().await.unwrap();
    });
}

#[test]
fn both_sites_are_compared_under_fio_and_a_changed_block_is_named() {
    if !is_full_run("a comparison of both sites under fio") {
        return;
    }
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = pair("sync");
    boston.io(&["write -P 17 0 32M"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    denver.refused("dr verify sg1", "say it at the site that is primary");
    let endpoint = Endpoint::Socket(boston.bench.path("socket"));
    let lengths = [PART; JOBS as usize];
    let mut writing =
        fio((&boston.bench, Path::new("fio")), &endpoint, "do_verify=0", lengths).spawn().unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        let said = json_of(&done(&boston.bench.run(&["dr", "verify", "sg1", "--json", "--state", "state"])));
        println!("compared {} bytes in {:?}", said["compared_bytes"], begun.elapsed());
        assert_eq!((&said["outcome"], &said["different_blocks"]), (&"equal".into(), &0.into()), "{said}");
        assert_eq!(said["compared_bytes"], said["total_bytes"], "{said}");
    }
    assert!(writing.try_wait().unwrap().is_none(), "hosts write meanwhile");
    writing.kill().unwrap();
    writing.wait().unwrap();
    boston.wait_until_confirmed();
    denver.kill();
    change_replica(&denver, 5_000);
    denver.start();
    until("it streams", || boston.is("primary", "streaming") && denver.is("secondary", "following"));
    // Until the next write the last one is in doubt after a restart.
    boston.refused("dr verify sg1", "try again");
    boston.io(&["write -P 21 0 4k"]);
    boston.wait_until_confirmed();
    let said = boston.bench.run(&["dr", "verify", "sg1", "--state", "state"]);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("disk: 4096 bytes at 20480000 differ"), "{}", said.stdout);
    // It has changed nothing: it differs still.
    let again = boston.bench.run(&["dr", "verify", "sg1", "--json", "--state", "state"]);
    assert_eq!(json_of(&again.stdout)["different"][0]["offset"], 20_480_000);
    denver.kill();
    boston.refused("dr verify sg1", "does not stream");
}

const SECOND: &str =
    "[[volume]]\nname = 'more'\ngroup = 'mail'\ngb = 0.125\n[[nbd]]\nname = 'more'\nvolume = 'mail/more'\n";

#[test]
fn all_groups_are_moved_by_one_command_and_those_that_stay_are_named() {
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = paired_with(&format!("{VOLUME}{EXPORT}{SECOND}"));
    for (group, volume) in [("sg1", "mail/disk"), ("sg2", "mail/more")] {
        boston.verb(&format!("dr create {group} {volume} --to denver --mode sync --hold 1s"));
    }
    let rows = |site: &Site| {
        let said = site.bench.run(&["dr", "status", "--state", "state", "--json"]);
        json_of(&said.stdout)["groups"].as_array().unwrap().clone()
    };
    let all = |site: &Site, state: &str| rows(site).iter().all(|row| row["state"] == state);
    until("both stream", || all(&boston, "streaming"));
    denver.write("denver", &format!("{VOLUME}{EXPORT}{SECOND}"));
    denver.verb("apply site.toml");
    boston.refused("failover --all --from paris", "there is no site \"paris\"");
    boston.refused("failover sg1 --all", "cannot be used with");
    boston.refused("failover --all --unplanned --accept-loss all", "at the site that takes over");
    let said = boston.verb("failover --all --dry-run");
    assert!(said.contains("sg1  would move from boston to denver"), "{said}");
    assert!(all(&boston, "streaming"), "nothing was moved");
    assert!(boston.verb("failover --all --from denver").contains("nothing is left to do"));

    // One was moved before the command was killed: said again, it does the rest.
    boston.verb("failover sg1");
    until("both are in order", || {
        all(&boston, "following") || rows(&boston).iter().any(|row| row["role"] == "secondary")
    });
    let said = done(&boston.bench.run(&["failover", "--all", "--json", "--state", "state"]));
    let moved = json_of(&said);
    assert_eq!(moved.as_array().unwrap().len(), 1, "{moved}");
    assert_eq!((&moved[0]["group"], &moved[0]["fate"]), (&"sg2".into(), &"moved".into()));
    until("denver serves both", || {
        all(&denver, "streaming") && rows(&denver).iter().all(|row| row["serves"] == true)
    });
    // Back, said at the other side.
    let said = boston.verb("failover --all --from denver");
    assert!(said.contains("sg1  moved to boston in") && said.contains("sg2  moved to boston in"), "{said}");
    until("boston serves both", || all(&boston, "streaming"));

    // One that cannot be moved does not keep the other.
    boston.verb("dr suspend sg1");
    let said = boston.bench.run(&["failover", "--all", "--state", "state"]);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    assert!(
        said.stdout.contains("sg1  stayed at boston") && said.stdout.contains("sg2  moved to denver"),
        "{}",
        said.stdout
    );
    // The site that has sg2 is lost.
    until("boston follows sg2", || rows(&boston)[1]["state"] == "following");
    denver.kill();
    until("boston hears of it", || rows(&boston)[1]["connected_since"].is_null());
    let said = boston.verb("failover --all --from denver --unplanned --accept-loss all");
    assert!(said.contains("sg2  moved to boston"), "{said}");
}
