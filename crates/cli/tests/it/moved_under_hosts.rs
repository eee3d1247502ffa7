//! A served volume moves to another pool of its server under clients of QEMU, which lose their connections once.

use crate::{
    moved_beside_hosts::{PIECE, PIECES, pattern, write_on},
    pool_drives::done,
    qemu_io::QemuIo,
    sites_served::{SITE, Served, qemu_is_here},
    spindle::{Bench, json_of},
};
use std::{cell::Cell, process::Stdio, rc::Rc, time::Duration};
use world::{World, real};

const MIB: u64 = 1 << 20;
const MAIL: &str = "state/pools/mail";
const LOGS: &str = "state/pools/logs";
/// Offset of the client of iSCSI.
const HALF: u64 = 32 * MIB;

fn id_of(bench: &Bench, pool: &str, name: &str) -> Option<serde_json::Value> {
    let shown = json_of(&done(&bench.run(&["pool", "show", pool, "--json"])));
    let volumes = shown["volumes"].as_array().unwrap().clone();
    volumes.into_iter().find(|volume| volume["name"] == name).map(|volume| volume["id"].clone())
}

/// Each piece has what was written last.
async fn check(bench: &Bench, world: &World, served: &Served, name: &str, from: u64, written: u64) {
    let mut client = QemuIo::begin(bench, world, name, served.uri("/store"));
    for piece in 0..PIECES.min(written) {
        let last = (written - 1 - piece) / PIECES * PIECES + piece;
        let command = format!("read -P {} {} {PIECE}", pattern(last), from + piece * PIECE);
        client.says(&command, "read 65536/65536", piece as usize + 1).await;
    }
    let said = client.end().await;
    assert!(!said.contains("verification failed") && !said.contains("error"), "{said}");
}

#[test]
fn clients_connect_again_and_find_their_volume_in_another_pool() {
    if !qemu_is_here() {
        return;
    }
    let bench = Bench::new();
    let site = SITE.replace("drive_gb = 0.11", "drive_gb = 0.3").replace("gb = 0.015625", "gb = 0.0625");
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    let before = id_of(&bench, MAIL, "store").unwrap();
    done(&bench.run(&["volume", "snapshot", &format!("{MAIL}/store@monday")]));
    let written = real::run(0, Default::default(), async |world: World| {
        let ends = Rc::new(Cell::new(false));
        let by_nbd = QemuIo::begin_reconnecting(&bench, &world, "nbd", served.uri("/store"));
        let by_iscsi = QemuIo::begin(&bench, &world, "iscsi", served.uri("/3"));
        let by_nbd = world.spawn("nbd", write_on(by_nbd, 0, Rc::clone(&ends)));
        let by_iscsi = world.spawn("iscsi", write_on(by_iscsi, HALF, Rc::clone(&ends)));
        world.sleep(Duration::from_secs(1)).await;
        let verb = ["volume", "move", "mail/store", "logs/store", "--json", "--server"];
        let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
        let mut command = bench.command(&[&verb[..], &[&socket]].concat());
        let mut moving = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while moving.try_wait().unwrap().is_none() {
            world.sleep(Duration::from_millis(20)).await;
        }
        let ended = moving.wait_with_output().unwrap();
        let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(ended.status.success(), "{said:?}");
        println!("note: {}", said[0].trim_end());
        world.sleep(Duration::from_secs(1)).await;
        ends.set(true);
        let written = [by_nbd.await, by_iscsi.await];
        println!("note: {written:?} writes of 64 KiB");
        check(&bench, &world, &served, "nbd again", 0, written[0]).await;
        check(&bench, &world, &served, "iscsi again", HALF, written[1]).await;
        written
    });
    assert_eq!((id_of(&bench, MAIL, "store"), id_of(&bench, LOGS, "store")), (None, Some(before.clone())));
    // The file says the old pool: that is known, and nothing is to be done.
    let apply = ["apply", "site.toml", "--dry-run", "--state", "state"];
    let said = bench.run(&apply);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    let stale =
        "mail/store was moved, and the file is read as if it said logs/store: say group = \"logs\" there";
    assert!(format!("{}{}", said.stdout, said.stderr).contains(stale), "{}{}", said.stdout, said.stderr);
    served.kill();
    let served = Served::begin(&bench);
    assert_eq!((id_of(&bench, MAIL, "store"), id_of(&bench, LOGS, "store")), (None, Some(before.clone())));
    real::run(0, Default::default(), async |world: World| {
        check(&bench, &world, &served, "later", HALF, written[1]).await;
    });
    served.end();
    let site = site.replace("name = 'store'\ngroup = 'mail'", "name = 'store'\ngroup = 'logs'");
    let site = site.replace("volume = 'mail/store'", "volume = 'logs/store'");
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    let said = bench.run(&apply);
    assert_eq!((said.code, said.stdout.contains("was moved")), (Some(0), false), "{}", said.stdout);
    // Those of one target lie in one pool.
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    let server = ["--server", &socket];
    done(&bench.run(&[&["target", "add-unit", "mail", "logs/log"], &server[..]].concat()));
    let back = [&["volume", "move", "logs/store", "mail/store"], &server[..]].concat();
    let said = bench.run(&back);
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("target mail has other units as well"), "{}", said.stderr);
    done(&bench.run(&[&["target", "remove-unit", "mail", "0", "--force"], &server[..]].concat()));
    done(&bench.run(&back));
    assert_eq!((id_of(&bench, MAIL, "store"), id_of(&bench, LOGS, "store")), (Some(before), None));
    real::run(0, Default::default(), async |world: World| {
        check(&bench, &world, &served, "back", 0, written[0]).await;
    });
    served.end();
    // Moved while no server runs: the next one, whose file says the old pool, makes no empty one.
    let (before, stopped) = (id_of(&bench, MAIL, "store"), [MAIL, LOGS].map(|pool| format!("{pool}/store")));
    let site = site.replace("name = 'store'\ngroup = 'logs'", "name = 'store'\ngroup = 'mail'");
    bench.make_file("site.toml", site.replace("'logs/store'", "'mail/store'").as_bytes());
    Served::begin(&bench).end();
    done(&bench.run(&["volume", "move", &stopped[0], &stopped[1]]));
    let served = Served::begin(&bench);
    assert_eq!((id_of(&bench, MAIL, "store"), id_of(&bench, LOGS, "store")), (None, before));
    let said = bench.run(&apply);
    assert!(
        said.stderr.contains("volume mail/store is gone, and not made again"),
        "{}{}",
        said.stdout,
        said.stderr
    );
    served.end();
    for pool in [MAIL, LOGS] {
        done(&bench.run(&["pool", "scrub", pool]));
    }
}
