//! What a server serves, changed by verbs under QEMU and libiscsi: who loses something is logged out, others notice nothing;
//! and what is served after a kill and a restart.

use crate::{
    exported::{is_here, judge, judged},
    pool_drives::{done, json},
    qemu_io::QemuIo,
    sites_served::{Served, qemu_is_here},
    spindle::Bench,
};
use serde_json::Value;
use std::{fs, time::Duration};
use world::{World, real};

const A: &str = "iqn.2026-11.org.example:a";
const B: &str = "iqn.2026-11.org.example:b";
const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.11
[[volume]]
name = 'store'
gb = 0.0078125
[[volume]]
name = 'log'
gb = 0.0078125
[[volume]]
name = 'new'
gb = 0.0078125
[[target]]
name = 'own'
[[target.unit]]
number = 0
volume = 'store'
[[target]]
name = 'other'
[[target.unit]]
number = 0
volume = 'log'
[[initiator]]
name = 'iqn.2026-11.org.example:a'
uses = ['own']
[[initiator]]
name = 'iqn.2026-11.org.example:b'
uses = ['other']
[[nbd]]
name = 'store'
volume = 'store'
";

/// A verb of the server.
fn spindle(bench: &Bench, arguments: &[&str]) -> String {
    done(&bench.run(&[arguments, &["--state", "state"]].concat()))
}

/// The problem of a verb that is refused.
fn refused(bench: &Bench, arguments: &[&str]) -> String {
    let said = bench.run(&[arguments, &["--state", "state"]].concat());
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    said.stderr
}

fn answer(bench: &Bench, arguments: &[&str]) -> Value {
    json(bench, &[arguments, &["--state", "state"]].concat())
}

fn sessions(bench: &Bench, initiator: &str) -> Vec<Value> {
    let all = answer(bench, &["session", "list", "--initiator", initiator]);
    all.as_array().unwrap().clone()
}

#[test]
fn a_unit_comes_and_goes_under_its_hosts_and_others_notice_nothing() {
    if !qemu_is_here() || !is_here("iscsi-ls", "libiscsi-bin") {
        return;
    }
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let uri = |end: &str| served.uri(end).to_owned();
    let portal = uri(":own/0").split('/').nth(2).unwrap().to_owned();
    let list = |initiator: &str| judge("iscsi-ls", &["-s", "-i", initiator, &format!("iscsi://{portal}")]);
    real::run(0, Default::default(), async |world: World| {
        let mut a = QemuIo::begin_as(&bench, &world, "a", (&uri(":own/0"), A));
        let mut b = QemuIo::begin_as(&bench, &world, "b", (&uri(":other/0"), B));
        a.says("write -P 1 0 1M", "wrote", 1).await;
        b.says("write -P 1 0 1M", "wrote", 1).await;

        // A unit more: its host sees it, and its session goes on.
        let said = spindle(&bench, &["target", "add-unit", "own", "new"]);
        assert!(
            said.contains("+ unit own/1: mail/new") && said.contains("does not say what is served"),
            "{said}"
        );
        assert!(said.contains("[[target]]\nname = \"own\"") && !said.contains("\"other\""), "{said}");
        assert!(list(A).contains("Lun:1") && !list(B).contains("Lun:1"), "{}", list(A));
        a.says("write -P 2 1M 1M", "wrote", 2).await;
        let own = sessions(&bench, A);
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!(own[0]["units"].as_array().unwrap().len(), 2, "{own:?}");
        let b_before = sessions(&bench, B)[0]["id"].clone();

        // A unit in use stays, unless it is forced; then its host is logged out, and finds the rest when it comes back.
        let said = refused(&bench, &["target", "remove-unit", "own", "1"]);
        assert!(said.contains("unit own/1 is used by iqn.2026-11.org.example:a"), "{said}");
        let shown = bench.run(&["target", "remove-unit", "own", "1", "--dry-run", "--state", "state"]);
        assert!(
            shown.code == Some(1) && shown.stdout.contains("would be logged out: iqn.2026-11.org.example:a")
        );
        assert!(list(A).contains("Lun:1"), "nothing was changed");
        let id = own[0]["id"].clone();
        let said = spindle(&bench, &["target", "remove-unit", "own", "1", "--force"]);
        assert!(said.contains("logged out: iqn.2026-11.org.example:a"), "{said}");
        a.says("write -P 3 2M 1M", "wrote", 3).await;
        // Sessions are shown as the pool's last view has them, once a second.
        world.sleep(Duration::from_millis(1_100)).await;
        let again = sessions(&bench, A);
        assert!(again.len() == 1 && again[0]["id"] != id, "{again:?}");

        // A right that is taken away ends its sessions alone.
        // The reason that no force overcomes comes first.
        for force in [&[][..], &["--force"]] {
            let said = refused(&bench, &[&["initiator", "set", A, "--uses", "none"], force].concat());
            assert!(said.contains("target own would be open to every initiator"), "{said}");
        }
        let said = refused(&bench, &["target", "delete", "own"]);
        assert!(said.contains("unit own/0 is used by iqn.2026-11.org.example:a"), "{said}");
        let said = spindle(&bench, &["target", "delete", "own", "--force"]);
        assert!(said.contains("~ initiator iqn.2026-11.org.example:a: uses own → "), "{said}");
        assert!(!list(A).contains(":own"), "{}", list(A));
        b.says("write -P 4 1M 1M", "wrote", 2).await;
        assert_eq!(sessions(&bench, B)[0]["id"], b_before, "the other host noticed nothing");

        // NBD: in use, and ended by its id.
        let mut nbd = QemuIo::begin(&bench, &world, "nbd", &uri("/store"));
        nbd.says("read 0 4k", "read", 1).await;
        world.sleep(Duration::from_millis(1_100)).await;
        assert!(
            refused(&bench, &["export", "delete", "store"])
                .contains("NBD export store is used by the NBD client")
        );
        // A setting of the volume since reaches its clients with the next change that its pool serves; they are counted.
        done(&bench.run(&["volume", "set", "state/pools/mail/store", "--write-cache", "on"]));
        spindle(&bench, &["schedule", "create", "daily", "--every", "24h", "--keep", "2", "--pool", "mail"]);
        nbd.says("read 4k 4k", "read", 2).await;
        assert!(
            refused(&bench, &["export", "create", "log", "mail/log"])
                .contains("NBD export store is used by the NBD client")
        );
        let clients = answer(&bench, &["session", "list", "--service", "store"]);
        let id = clients[0]["id"].as_str().unwrap().to_owned();
        spindle(&bench, &["session", "end", &id]);
        spindle(&bench, &["session", "end", b_before.as_str().unwrap()]);
        b.says("write -P 5 2M 1M", "wrote", 3).await;
        world.sleep(Duration::from_millis(1_100)).await;
        assert_ne!(sessions(&bench, B)[0]["id"], b_before, "it has logged in again");
        assert!(refused(&bench, &["session", "end", &id]).contains("there is no session"));
        b.end().await;
    });
    served.end();
}

#[test]
fn what_verbs_changed_outlives_kills_and_starts_with_the_same_file_and_a_file_that_is_applied_undoes_it() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    bench.make_file("secret", b"a-secret-of-a-host\n");
    let served = Served::begin(&bench);
    let said = refused(
        &bench,
        &["initiator", "create", "iqn.2026-11.org.example:c", "--user", "c", "--secret-file", "secret"],
    );
    assert!(said.contains("others may read this secret; chmod 600 it"), "{said}");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(bench.path("secret"), mode).unwrap();
    let c = "iqn.2026-11.org.example:c";
    spindle(&bench, &["initiator", "create", c, "--user", "c", "--secret-file", "secret"]);
    spindle(&bench, &["target", "create", "third", "--unit", "7=mail/new", "--initiator", c]);
    spindle(&bench, &["export", "create", "log", "mail/log", "--read-only"]);
    spindle(&bench, &["export", "delete", "store"]);
    spindle(
        &bench,
        &[
            "schedule", "create", "nightly", "--every", "24h", "--at", "03:00", "--keep", "7", "--pool",
            "mail",
        ],
    );
    let progress = answer(&bench, &["schedule", "show", "nightly"]);
    assert_eq!(progress["progress"][0]["volumes"].as_array().unwrap().len(), 3, "{progress}");
    let kept = [
        "target third",
        "unit third/7",
        "initiator iqn.2026-11.org.example:c",
        "NBD export log",
        "NBD export store: it was deleted",
        "snapshots nightly",
    ];
    drop(served);

    // What a server that does not run served last is shown; it takes no changes.
    let said = bench.run(&["target", "list", "--state", "state"]);
    assert!(said.stdout.contains("third  pool mail, 1 unit, 1 initiator"), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("no server runs"), "{}", said.stderr);
    assert!(refused(&bench, &["target", "delete", "third"]).contains("nothing was changed; start it with"));

    // The same file: nothing is lost, and all that it lacks is named.
    let served = Served::begin(&bench);
    assert_eq!(served.changes, [""; 0]);
    let said: Vec<&str> =
        served.kept.iter().map(|line| line.rsplit_once(": it was changed online").unwrap().0).collect();
    assert_eq!(said.len(), kept.len(), "{said:?}");
    kept.iter().for_each(|row| assert!(said.contains(row), "{row}: {said:?}"));
    assert!(served.uris.iter().any(|uri| uri.ends_with(":third/7")), "{:?}", served.uris);
    assert!(served.uris.iter().any(|uri| uri.ends_with("/log")), "{:?}", served.uris);
    // Secrets never come out.
    let printed = spindle(&bench, &["site"]);
    let audit = spindle(&bench, &["audit", "export"]);
    for text in [&printed, &audit, &answer(&bench, &["initiator", "list"]).to_string()] {
        assert!(!text.contains("a-secret-of-a-host"), "{text}");
    }
    assert!(
        audit.contains("(not recorded)") && audit.contains("201: + nbd export log: mail/log, read-only"),
        "{audit}"
    );
    let journal = fs::read(bench.path("state/journal.redb")).unwrap();
    assert!(!journal.windows(18).any(|bytes| bytes == b"a-secret-of-a-host"), "nor are they in the journal");

    // What blocks is named to the server, which goes on.
    assert!(
        std::process::Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(bench.path("fifo"))
            .status()
            .unwrap()
            .success()
    );
    let blocking = SITE.replace("uses = ['own']", "uses = ['own']\nuser = 'a'\nsecret_file = 'fifo'");
    bench.make_file("blocking.toml", blocking.as_bytes());
    assert!(refused(&bench, &["apply", "blocking.toml", "--dry-run"]).contains("it is no file"));

    // The file that is printed says all of it; the file of before undoes it, and says so first.
    // With the paths that messages of tests do not have.
    let printed = bench.command(&["site", "--state", "state"]).output().unwrap();
    bench.make_file("printed.toml", &printed.stdout);
    let said = bench.run(&["apply", "printed.toml", "--state", "state", "--dry-run"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "printed.toml: nothing to change\n"),
        "{}",
        said.stderr
    );
    let said = bench.run(&["apply", "site.toml", "--state", "state", "--dry-run"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("the file undoes what was changed online: unit third/7"), "{}", said.stderr);
    assert!(
        said.stderr.contains("the file gives back what was taken away online: NBD export store"),
        "{}",
        said.stderr
    );
    spindle(&bench, &["apply", "site.toml"]);
    assert_eq!(answer(&bench, &["target", "list"]).as_array().unwrap().len(), 2);
    spindle(&bench, &["export", "create", "log", "log"]);
    // The file that was printed names the secret, whether anybody has applied it or not.
    assert_eq!(fs::read_dir(bench.path("state/secrets")).unwrap().count(), 1);
    served.end();
    bench.make_file("site.toml", &printed.stdout);
    Served::begin(&bench).end();
}

#[test]
fn what_was_taken_away_stays_away_over_a_kill_and_edits_of_the_file() {
    const EVIL: &str = "iqn.2026-11.org.example:evil";
    let bench = Bench::new();
    let file = SITE
        .replace("uses = ['own']", "uses = ['own', 'other']")
        .replace("[[nbd]]", &format!("[[initiator]]\nname = '{EVIL}'\nuses = ['other']\n[[nbd]]"));
    bench.make_file("site.toml", file.as_bytes());
    let served = Served::begin(&bench);
    spindle(&bench, &["initiator", "delete", EVIL]);
    spindle(&bench, &["initiator", "set", A, "--uses", "own"]);
    spindle(&bench, &["export", "create", "nx", "mail/store"]);
    spindle(&bench, &["target", "create", "third", "--unit", "0=mail/new", "--initiator", B]);
    drop(served);
    // The file renames a volume, and changes another part of the row.
    let edited = file
        .replace("name = 'store'\ngb", "name = 'archive'\nwas = 'store'\ngb")
        .replace("volume = 'store'", "volume = 'archive'")
        .replace("uses = ['own', 'other']", "uses = ['own', 'other']\nreads = ['other/0']");
    for text in [&file, &edited, &edited] {
        bench.make_file("site.toml", text.as_bytes());
        let served = Served::begin(&bench);
        let names: Vec<Value> = answer(&bench, &["initiator", "list"]).as_array().unwrap().clone();
        let uses =
            |name: &str| names.iter().find(|row| row["name"] == name).map(|row| row["uses"].to_string());
        assert_eq!(uses(EVIL), None, "{names:?}");
        assert_eq!(uses(A).as_deref(), Some("[\"own\"]"), "{names:?}");
        assert_eq!(uses(B).as_deref(), Some("[\"other\",\"third\"]"), "{names:?}");
        assert_eq!(names[0]["reads"], serde_json::json!([]), "{names:?}");
        let exports = answer(&bench, &["export", "list"]);
        assert_eq!(exports.as_array().unwrap().len(), 2, "{exports}");
        if is_here("iscsi-ls", "libiscsi-bin") {
            let portal = served.uri(":own/0").split('/').nth(2).unwrap().to_owned();
            let list = |host: &str| judge("iscsi-ls", &["-i", host, &format!("iscsi://{portal}")]);
            assert!(list(B).contains(":other") && !list(A).contains(":other"), "{}", list(A));
            let refused = judged("iscsi-ls", &["-i", EVIL, &format!("iscsi://{portal}")]);
            let complaint = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && complaint.contains("Authorization failure"), "{complaint}");
        }
    }
}
