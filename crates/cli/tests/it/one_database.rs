//! One database of a set restored by `protect restore --database` after it was lost: the records of all databases are those that
//! an ordinary recovery found before the loss.

use crate::{
    brought_forward::{MailServer, drives_in, records},
    judged_exports::until,
    sites_served::Served,
    spindle::{Bench, is_full_run},
};
use array::{
    pool::{OpenSetting, open},
    volume::VolumeDevice,
};
use std::{fs, rc::Rc, sync::Arc};
use world::{
    Buffer, ByteOffset, Directory, ExtentDirectory, Stability,
    real::{self, RealOptions},
};

const TWO: [&str; 2] = ["--databases", "2"];
const LOST: &str = "sg1-db2.edb";

/// A loss of a file.
#[derive(Clone, Copy)]
pub enum Loss {
    Deleted,
    /// Its first MiB is of letters.
    Overwritten,
}

/// Loses a file on the volume `mail/store` of a stopped server.
pub fn lose(bench: &Bench, file: &'static str, loss: Loss) {
    let drives = bench.path("state/pools/mail");
    real::run(0, RealOptions::default(), async |world| {
        let pool = open(&world, &drives_in(&drives), OpenSetting::default()).await.expect("it opens");
        let device = VolumeDevice(pool.volume("store").expect("there"));
        let directory = ExtentDirectory::open(Rc::new(device)).await.expect("a directory");
        match loss {
            Loss::Deleted => directory.remove(file).await.expect("it was there"),
            Loss::Overwritten => {
                let letters = Arc::new(Buffer::copy_of(&[0x5A; 1 << 20]));
                let file = directory.open(file).await.expect("it is there");
                file.write(ByteOffset(0), vec![letters], Stability::Stable).await.expect("written");
            }
        }
        directory.sync().await.expect("stable");
        drop(directory);
        pool.close().await.expect("it closes");
    });
}

fn kill_between(server: &MailServer, words: &[&str]) {
    // A kill that comes late finds a restore that has ended.
    let is_early = (0..20).any(|_| {
        server.kill_at(words, "change places");
        server.volumes().iter().any(|name| name.contains("-database-"))
    });
    assert!(is_early, "no kill came before the end");
}

#[test]
fn a_lost_database_comes_back_up_to_the_minute_beside_others_that_stay_as_they_are() {
    if !is_full_run("one database that comes back") {
        return;
    }
    let server = MailServer::begin();
    server.create_databases_with(&TWO);
    let first = server.back_up();
    server.load_and_kill_with(&TWO, &first, 20);
    let MailServer { bench, served } = server;
    served.end();
    let head = records(&bench, ["store", "log"]);
    assert!(head.len() > 100, "{} records", head.len());
    lose(&bench, LOST, Loss::Deleted);

    let served = Served::begin(&bench);
    let server = MailServer { bench, served };
    let restore = ["protect", "restore", "post", &first, "--database", "sg1-db2"];
    let in_place = [&restore[..], &["--yes", "post"]].concat();
    for (words, why) in [
        (&["--logs", "none"][..], "a database alone comes back up to the minute"),
        (&["--to-time", "2026-01-01T00:00:00Z"], "cannot be attached beside them"),
        (&["--logs", &first], "leave out --database and say --as NAME"),
    ] {
        let refused = server.refused(&[&in_place[..], words].concat());
        assert!(refused.contains(why), "{words:?} {refused}");
    }
    let unknown = server.refused(&["protect", "restore", "post", &first, "--database", "priv9"]);
    assert!(unknown.contains("has no database priv9") && unknown.contains("sg1-db1.edb"), "{unknown}");
    let looked_at = server.answer(&[&restore[..], &["--dry-run"]].concat());
    assert_eq!(
        (&looked_at["database"], &looked_at["done"]),
        (&LOST.into(), &"looked at".into()),
        "{looked_at}"
    );
    assert!(looked_at["logs"][0]["commits"].as_u64().unwrap() > 20, "{looked_at}");
    assert_eq!(looked_at["logs"][0]["databases"].as_array().unwrap().len(), 1, "{looked_at}");

    let beside = server.answer(&[&restore[..], &["--as", "trial"]].concat());
    let mut made: Vec<&str> =
        beside["volumes"].as_array().unwrap().iter().filter_map(|row| row["made"].as_str()).collect();
    made.sort_unstable();
    assert_eq!(made, ["logs/log-trial", "mail/store-trial"], "{beside}");
    // Killed when it is decided: nothing else takes the places, and the same command completes it.
    kill_between(&server, &in_place);
    let other = server.refused(&["protect", "restore", "post", &first, "--yes", "post"]);
    assert!(other.contains("sg1-db2-of-") && other.contains("has not taken the place"), "{other}");
    let completed = server.answer(&in_place);
    assert!(
        completed["volumes"].as_array().unwrap().iter().any(|row| row["made"].is_string()),
        "{completed}"
    );
    assert!(!server.volumes().iter().any(|name| name.contains("-database-")), "{completed}");

    let MailServer { bench, served } = server;
    served.end();
    assert!(records(&bench, ["store-trial", "log-trial"]) == head, "beside");
    assert!(records(&bench, ["store", "log"]) == head, "in place");
    // Both are lost: one of them alone does not recover beside the other, and both do.
    lose(&bench, LOST, Loss::Deleted);
    lose(&bench, "sg1-db1.edb", Loss::Overwritten);
    let served = Served::begin(&bench);
    let server = MailServer { bench, served };
    let alone = server.refused(&in_place);
    assert!(alone.contains("name all that are lost, each with --database"), "{alone}");
    let both = [&in_place[..], &["--database", "sg1-db1.edb"]].concat();
    let restored = server.answer(&both);
    assert_eq!(restored["databases"], serde_json::json!(["sg1-db1.edb", LOST]), "{restored}");
    let MailServer { bench, served } = server;
    served.end();
    assert!(records(&bench, ["store", "log"]) == head, "both in place");
    // Overwritten, and restored again from the same backup over the log that the recovery wrote on.
    lose(&bench, LOST, Loss::Overwritten);
    let served = Served::begin(&bench);
    let server = MailServer { bench, served };
    server.answer(&in_place);
    server.readmit();
    // The mail server reads every record of both, and works on.
    server.create_databases_with(&TWO);
    // Nobody writes while the live volumes are cloned one after the other.
    let second = server.back_up();
    let mut load = server.begin_load_with(&TWO);
    until("the mail server works", || {
        let said = || fs::read_to_string(server.bench.path("load.log")).unwrap();
        assert!(load.try_wait().unwrap().is_none(), "the load has ended: {}", said());
        said().contains("sg1-db2.edb: attached")
    });
    let dry_run = ["protect", "restore", "post", &second, "--database", "sg1-db1", "--dry-run"];
    let looked_at = server.answer(&dry_run);
    assert!(
        looked_at["volumes"].as_array().unwrap().iter().all(|row| row["used_by"].is_array()),
        "{looked_at}"
    );
    for of in [&["--yes", "post"][..], &["--as", "used"]] {
        let used =
            server.refused(&[&["protect", "restore", "post", &second, "--database", "sg1-db1"], of].concat());
        assert!(used.contains("is used by") && used.contains("nothing was"), "{used}");
    }
    load.kill().unwrap();
    load.wait().unwrap();
    let MailServer { bench, served } = server;
    served.end();
    // The load deletes, too.
    assert!(records(&bench, ["store", "log"]).len() > head.len() / 2, "the group goes on");
}
