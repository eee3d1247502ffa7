//! Backups of a set copied into a vault by the built program, killed meanwhile, and got back where no server is.

use crate::{
    exported::{is_here, judge, noise},
    judged_exports::until,
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, ProgramOutput, is_full_run, json_of},
};
use nbd::{Client, ClientOptions};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, rc::Rc, sync::Arc, thread, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, Stability,
    real::{self, RealOptions, Sockets},
};

const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.5
[[group]]
name = 'spare'
drives = 2
drive_gb = 0.5
[[volume]]
name = 'store'
group = 'mail'
gb = 0.0625
[[volume]]
name = 'log'
group = 'mail'
gb = 0.0078125
[[nbd]]
name = 'store'
volume = 'store'
[[nbd]]
name = 'log'
volume = 'log'
[[protect]]
set = 'post'
volumes = ['store', 'log']
logs = ['log']
schedules = ['24x1h']
";
const STORE_BYTES: usize = 64 << 20;
const LOG_BYTES: usize = 8 << 20;

struct Scene {
    bench: Bench,
    served: Served,
    /// Contents of the volumes.
    store: Vec<u8>,
    log: Vec<u8>,
}

impl Scene {
    fn begin() -> Self {
        let bench = Bench::new();
        bench.make_file("site.toml", SITE.as_bytes());
        secret(&bench, "secret", "a good password\n");
        let served = Served::begin(&bench);
        let (store, log) = (vec![0; STORE_BYTES], vec![0; LOG_BYTES]);
        let scene = Self { bench, served, store, log };
        done(&scene.bench.run(&["protect", "vault", "init", "vault", "--password-file", "secret"]));
        scene
    }

    fn write(&mut self, export: &str, at: usize, bytes: &[u8]) {
        let volume = if export == "/store" { &mut self.store } else { &mut self.log };
        volume[at..at + bytes.len()].copy_from_slice(bytes);
        let (uri, bytes) = (self.served.uri(export).parse().unwrap(), bytes.to_vec());
        real::run(0, RealOptions::default(), async |world| {
            let options = ClientOptions::default();
            let client = Client::connect(&world, Rc::new(Sockets), uri, options).await.unwrap();
            for (part, chunk) in bytes.chunks(1 << 20).enumerate() {
                let at = ByteOffset((at + (part << 20)) as u64);
                let buffer = vec![Arc::new(Buffer::copy_of(chunk))];
                client.write(at, buffer, Stability::Volatile).await.unwrap();
            }
            client.flush().await.unwrap();
        });
    }

    fn back_up(&self) -> String {
        let made = ["protect", "now", "post", "--hold", "test", "--state", "state", "--json"];
        json_of(&done(&self.bench.run(&made)))["number"].to_string()
    }

    fn copy(&self, backup: &str) -> Value {
        json_of(&done(
            &self.run(&["protect", "vault", "copy", "post", backup, "--to", "vault", "--state", "state"]),
        ))
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        run(&self.bench, arguments)
    }
}

fn run(bench: &Bench, arguments: &[&str]) -> ProgramOutput {
    bench.run(&[arguments, &["--password-file", "secret", "--json"]].concat())
}

fn secret(bench: &Bench, name: &str, text: &str) {
    let path = bench.make_file(name, text.as_bytes());
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Restores a backup to files, and compares them.
fn expect(bench: &Bench, (backup, folder): (&str, &str), contents: &[(&str, &Vec<u8>)]) -> Value {
    let restored =
        run(bench, &["protect", "vault", "restore", "post", backup, "--from", "vault", "--to-file", folder]);
    let restored = json_of(&done(&restored));
    for (volume, expected) in contents {
        let image = fs::read(bench.path(&format!("{folder}/mail/{volume}.img"))).unwrap();
        assert!(image == **expected, "{volume} of {backup}");
    }
    restored
}

fn check(bench: &Bench) -> Value {
    json_of(&done(&run(bench, &["protect", "vault", "check", "vault", "--read-data"])))
}

/// Debian's restic over the vault, if it is there.
fn judge_by_restic(bench: &Bench) {
    if is_here("restic", "restic") {
        let [vault, secret] = ["vault", "secret"].map(|name| bench.path(name).display().to_string());
        judge("restic", &["-r", &vault, "--password-file", &secret, "--no-cache", "check", "--read-data"]);
    }
}

#[test]
fn a_set_is_copied_by_its_difference_and_got_back_where_no_server_is() {
    let mut scene = Scene::begin();
    scene.write("/store", 1 << 20, &noise(3 << 20, 1));
    scene.write("/log", 0, &noise(1 << 20, 2));
    let first = scene.back_up();
    let (store, log) = (scene.store.clone(), scene.log.clone());
    let copied = scene.copy(&first);
    assert_eq!((&copied["read_bytes"], &copied["is_noted"]), (&(4 << 20).into(), &true.into()), "{copied}");
    assert_eq!(copied["read_whole"].as_array().unwrap().len(), 2, "{copied}");
    scene.write("/store", (2 << 20) + 4096, &noise(4096, 3));
    let second = scene.back_up();
    let copied = scene.copy(&second);
    assert_eq!((&copied["read_bytes"], &copied["read_whole"]), (&(64 << 10).into(), &Value::Array(vec![])));
    let stored = copied["stored_bytes"].as_u64().unwrap();
    assert!((64 << 10..80 << 10).contains(&stored), "{copied}");
    assert_eq!(scene.copy(&second)["was_there"], true);
    let catalogue = fs::read_to_string(scene.bench.path("state/sets/post.catalogue")).unwrap();
    assert_eq!(catalogue.matches("\"copied\"").count(), 2, "{catalogue}");
    // Nothing is left of it.
    let exports = json_of(&done(&scene.bench.run(&["export", "list", "--state", "state", "--json"])));
    assert_eq!(exports.as_array().unwrap().len(), 2, "{exports}");

    let Scene { bench, served, store: later, log: log_later } = scene;
    served.end();
    let listed = json_of(&done(&run(&bench, &["protect", "vault", "list", "vault"])));
    let numbers: Vec<String> =
        listed.as_array().unwrap().iter().map(|row| row["backup"].to_string()).collect();
    assert_eq!(numbers, [&*first, &*second], "{listed}");
    assert_eq!(
        (&listed[0]["label"], &listed[0]["volumes"][1]["size_bytes"]),
        (&"crash".into(), &STORE_BYTES.into())
    );
    expect(&bench, (&first, "images"), &[("store", &store), ("log", &log)]);
    expect(&bench, (&second, "later"), &[("store", &later), ("log", &log_later)]);
    // The same again finds it done; another backup is not written over it.
    let again = expect(&bench, (&first, "images"), &[("store", &store)]);
    assert!(again["volumes"].as_array().unwrap().iter().all(|row| row["written_bytes"] == 0), "{again}");
    let over = run(
        &bench,
        &["protect", "vault", "restore", "post", &second, "--from", "vault", "--to-file", "images"],
    );
    assert_eq!(over.code, Some(2));
    assert!(
        over.stderr.contains("holds other data at") && over.stderr.contains("nothing was written"),
        "{}",
        over.stderr
    );
    assert!(fs::read(bench.path("images/mail/store.img")).unwrap() == store);
    assert_eq!(check(&bench)["result"], "whole");
    judge_by_restic(&bench);
}

/// The number of a backup that the vault alone has may be given again: that is another backup.
#[test]
fn a_lost_catalogue_has_the_copies_in_the_vault_again() {
    let mut scene = Scene::begin();
    scene.write("/store", 1 << 20, &noise(1 << 20, 1));
    let (first, second) = (scene.back_up(), scene.back_up());
    let names: Vec<Value> = [&first, &second].map(|backup| scene.copy(backup)["backup"].clone()).into();
    let verb = |scene: &Scene, words: &[&str]| {
        json_of(&done(&scene.bench.run(&[words, &["--state", "state", "--json"]].concat())))
    };
    // The set keeps it as the base of the next copy; an administrator does not.
    let name = names[1].as_str().unwrap();
    for volume in ["store", "log"] {
        let point = format!("state/pools/mail/{volume}@{name}");
        done(&scene.bench.run(&["volume", "delete", &point, "--yes", name]));
    }
    let Scene { bench, served, store, log } = scene;
    served.end();
    fs::remove_file(bench.path("state/sets/post.catalogue")).unwrap();
    let served = Served::begin(&bench);
    let mut scene = Scene { bench, served, store, log };
    let strays = || verb(&scene, &["protect", "list", "post"])["problems"]["strays"].is_string();
    until("the lost catalogue is missed", strays);
    let rebuild = ["protect", "rebuild", "post", "--vault", "vault", "--state", "state"];
    let no_password = scene.bench.run(&rebuild);
    assert_eq!(no_password.code, Some(2), "{}", no_password.stdout);
    let rebuilt = json_of(&done(&scene.run(&rebuild)));
    assert_eq!(rebuilt["copies"]["noted"], Value::Array(vec![names[0].clone()]), "{rebuilt}");
    assert_eq!(rebuilt["copies"]["in_vault_alone"], Value::Array(vec![names[1].clone()]), "{rebuilt}");
    let row_of = |scene: &Scene, number: &str| {
        let rows = verb(scene, &["protect", "list", "post"])["backups"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["number"].as_u64() == number.parse().ok()).unwrap_or_default()
    };
    until("the copy is shown", || {
        row_of(&scene, &first)["copies"].as_array().is_some_and(|all| all.len() == 1)
    });

    scene.write("/store", 9 << 20, &noise(1 << 20, 2));
    let mut next = scene.back_up();
    while next.parse::<u64>().unwrap() < second.parse().unwrap() {
        next = scene.back_up();
    }
    let copied = scene.copy(&next);
    // Within a minute it even has the same name.
    assert_eq!(copied["was_there"], false, "{copied}");
    let Scene { bench, served, .. } = scene;
    served.end();
    let listed = json_of(&done(&run(&bench, &["protect", "vault", "list", "vault"])));
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    assert_eq!(check(&bench)["result"], "whole");
}

/// The first backup is copied at once; the next one waits for its slot.
#[test]
fn the_server_copies_what_is_due_and_says_what_it_could_not_copy() {
    let bench = Bench::new();
    secret(&bench, "secret", "a good password\n");
    done(&bench.run(&["protect", "vault", "init", "vault", "--password-file", "secret"]));
    let [vault, away, password] =
        ["vault", "away", "secret"].map(|name| bench.path(name).display().to_string());
    let site = format!(
        "{SITE}[protect.vault]\nto = '{vault}'\ncopy = '2x1d'\npassword_file = '{password}'\n\
         [[protect]]\nset = 'queue'\nvolumes = ['store']\nschedules = ['24x1h']\n\
         [protect.vault]\nto = '{away}'\ncopy = '2x1d'\npassword_file = '{password}'\nthrottle = '900MB/s'\n"
    );
    bench.make_file("site.toml", site.as_bytes());
    let served = Served::begin(&bench);
    let row = |set: &str| json_of(&done(&bench.run(&["protect", "list", set, "--state", "state", "--json"])));
    let row_when = |set: &str, holds: &dyn Fn(&Value) -> bool| {
        for _ in 0..300 {
            let row = row(set);
            if holds(&row) {
                return row;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("it stays so: {}", row(set));
    };
    // As the harness shows paths.
    let (shown, shown_away) = ("DIR/vault", "DIR/away");
    let has_copy =
        |row: &Value| row["backups"].as_array().unwrap().iter().any(|one| one["copies"][0] == shown);
    let copied = row_when("post", &has_copy);
    let newest = copied["backups"].as_array().unwrap().iter().find(|one| one["copies"][0] == shown).unwrap();
    assert!(newest["stays"].as_array().unwrap().contains(&"base of a copy".into()), "{newest}");
    assert!(copied["vault"]["due"].is_null(), "{copied}");
    let away_row = row_when("queue", &|row| !row["vault"]["not_copied"].is_null());
    let why = away_row["vault"]["not_copied"].as_str().unwrap();
    assert!(why.contains("has no vault; 'spindle protect vault init"), "{why}");
    assert!(away_row["vault"]["due"].is_null(), "it is put off: {away_row}");
    let listed = bench.run(&["protect", "list", "--state", "state"]);
    for expected in [format!("  copied: 2x1d to {shown}"), format!(", copied to {shown};")] {
        assert!(listed.stdout.contains(&expected), "{expected}: {}", listed.stdout);
    }
    assert!(listed.stderr.contains("set queue: the last copy did not end: "), "{}", listed.stderr);
    // By hand it is copied all the same, and then nothing is due any more.
    done(&run(&bench, &["protect", "vault", "init", "away"]));
    let backup = away_row["backups"][0]["number"].to_string();
    done(&run(&bench, &["protect", "vault", "copy", "queue", &backup, "--to", "away", "--state", "state"]));
    let after = row("queue");
    assert!(
        after["vault"]["not_copied"].is_null() && after["backups"][0]["copies"][0] == shown_away,
        "{after}"
    );
    done(&bench.run(&["protect", "now", "post", "--state", "state"]));
    served.end();
    let copies = json_of(&done(&run(&bench, &["protect", "vault", "list", "vault", "--set", "post"])));
    assert_eq!(copies.as_array().unwrap().len(), 1, "one a day: {copies}");
    let pruned = json_of(&done(&run(&bench, &["protect", "vault", "prune", "vault"])));
    assert_eq!((&pruned["snapshots"], &pruned["packs_removed"]), (&1.into(), &0.into()), "{pruned}");
    judge_by_restic(&bench);
}

#[test]
fn a_wrong_password_and_a_flipped_bit_are_named_and_no_secret_is_said() {
    let mut scene = Scene::begin();
    scene.write("/store", 1 << 20, &noise(1 << 20, 1));
    let backup = scene.back_up();
    scene.copy(&backup);
    let bench = &scene.bench;
    secret(bench, "wrong", "another one");
    bench.make_file("open", b"a good password");
    bench.make_folder("empty");
    for (vault, file, expected) in [
        ("vault", "wrong", "the password opens none of the 1 keys"),
        ("vault", "open", "others may read this password"),
        ("vault", "none", "No such file"),
        ("empty", "secret", "has no vault"),
    ] {
        let refused = bench.run(&["protect", "vault", "list", vault, "--password-file", file]);
        assert_eq!(refused.code, Some(2), "{}", refused.stdout);
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        assert!(
            !refused.stderr.contains("another one") && !refused.stderr.contains("good"),
            "{}",
            refused.stderr
        );
    }
    let twice = bench.run(&["protect", "vault", "init", "vault", "--password-file", "secret"]);
    assert!(twice.stderr.contains("has a vault already"), "{}", twice.stderr);
    // The largest pack holds the data.
    let packs =
        judge("find", &[&bench.path("vault/data").display().to_string(), "-type", "f", "-size", "+900k"]);
    let pack = packs.lines().next().unwrap();
    let mut bytes = fs::read(pack).unwrap();
    bytes[500_000] ^= 1;
    fs::write(pack, bytes).unwrap();
    let checked = run(bench, &["protect", "vault", "check", "vault", "--read-data"]);
    assert_eq!(checked.code, Some(1), "{}", checked.stderr);
    let findings = json_of(&checked.stdout)["findings"].to_string();
    let place = format!("backup {backup} of post, mail/store: bytes ");
    assert!(findings.contains(&place) && findings.contains("its SHA-256 is not its name"), "{findings}");
    let restored =
        run(bench, &["protect", "vault", "restore", "post", &backup, "--from", "vault", "--to-file", "out"]);
    assert_eq!(restored.code, Some(2), "{}", restored.stdout);
    assert!(!bench.path("out/mail/store.img").exists());
    scene.served.end();
}

#[test]
fn a_copy_comes_back_into_a_pool_and_over_nbd_where_nothing_is_overwritten() {
    let mut scene = Scene::begin();
    scene.write("/store", 1 << 20, &noise(1 << 20, 1));
    scene.write("/log", 0, &noise(1 << 20, 2));
    let backup = scene.back_up();
    scene.copy(&backup);
    let restore = |more: &[&str]| {
        let start = ["protect", "vault", "restore", "post", &backup, "--from", "vault", "--state", "state"];
        scene.run(&[&start, more].concat())
    };
    // The live volumes hold what the backup has: nothing is written.
    let same = json_of(&done(&restore(&["--to-pool", "mail"])));
    assert!(same["volumes"].as_array().unwrap().iter().all(|row| row["written_bytes"] == 0), "{same}");
    // In a pool without them they are made.
    for expected in ["written_bytes", "found_bytes"] {
        let made = json_of(&done(&restore(&["--to-pool", "spare"])));
        let bytes: Vec<u64> =
            made["volumes"].as_array().unwrap().iter().filter_map(|row| row[expected].as_u64()).collect();
        assert_eq!(bytes, [1 << 20, 1 << 20], "{expected}: {made}");
    }
    let none = restore(&["--to-pool", "none"]);
    assert!(none.stderr.contains("the server has no open pool none"), "{}", none.stderr);
    let refused = restore(&["--volume", "mail/log", "--to", scene.served.uri("/store")]);
    assert!(refused.stderr.contains("holds other data"), "{}", refused.stderr);
    let two = restore(&["--to", scene.served.uri("/store")]);
    assert!(two.stderr.contains("say --volume POOL/VOLUME: mail/log, mail/store"), "{}", two.stderr);
    let exports = json_of(&done(&scene.bench.run(&["export", "list", "--state", "state", "--json"])));
    assert_eq!(exports.as_array().unwrap().len(), 2, "{exports}");
    done(&scene.bench.run(&["volume", "create", "state/pools/mail/other", "64MiB"]));
    done(&scene.bench.run(&["export", "create", "other", "mail/other", "--state", "state"]));
    let uri = scene.served.uri("/store").replace("/store", "/other");
    let restored = json_of(&done(&restore(&["--volume", "mail/store", "--to", &uri])));
    assert_eq!(restored["volumes"][0]["written_bytes"], 1 << 20, "{restored}");
    let again = json_of(&done(&restore(&["--volume", "mail/store", "--to", &uri])));
    assert_eq!(again["volumes"][0]["found_bytes"], 1 << 20, "{again}");
    scene.served.end();
}

#[test]
fn a_killed_copy_harms_no_earlier_one_and_the_next_goes_on() {
    if !is_full_run("kills of copies") {
        return;
    }
    let mut scene = Scene::begin();
    scene.write("/log", 0, &noise(1 << 20, 2));
    let first = scene.back_up();
    let log = scene.log.clone();
    scene.copy(&first);
    scene.write("/store", 0, &noise(40 << 20, 1));
    let second = scene.back_up();
    let kills = if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 5 };
    let mut killed = 0;
    for kill in 0..kills {
        let copy = ["protect", "vault", "copy", "post", &second, "--to", "vault", "--state", "state"];
        let mut child = scene
            .bench
            .command(&[&copy[..], &["--password-file", "secret", "--throttle", "80MB/s"]].concat());
        let mut child = child.spawn().unwrap();
        thread::sleep(Duration::from_millis(200 + 700 * kill / kills));
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        let checked = done(&scene.run(&["protect", "vault", "check", "vault"]));
        assert_eq!(json_of(&checked)["result"], "whole", "{checked}");
    }
    assert!(killed >= 3, "{killed}");
    let copied = scene.copy(&second);
    assert!(copied["was_there"] == true || copied["stored_bytes"].as_u64().unwrap() < 41 << 20, "{copied}");
    let Scene { bench, served, store, log: log_later } = scene;
    expect(&bench, (&first, "first"), &[("log", &log)]);
    expect(&bench, (&second, "second"), &[("store", &store), ("log", &log_later)]);
    let exports = json_of(&done(&bench.run(&["export", "list", "--state", "state", "--json"])));
    assert_eq!(exports.as_array().unwrap().len(), 2, "{exports}");
    served.end();
    assert_eq!(check(&bench)["result"], "whole");
    judge_by_restic(&bench);
}
