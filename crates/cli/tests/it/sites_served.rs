//! Sites made and served as their files say, changed while clients use them, killed, adopted.

use crate::{
    exported::{Exported, is_here, judge},
    judged_exports::until,
    pool_drives::done,
    qemu_io::QemuIo,
    spindle::{Bench, json_of, signal},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};
use world::{World, real};

/// Two pools of two drives, each with a volume that is served over NBD; one also over iSCSI.
pub const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
iscsi = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.11
[[group]]
name = 'logs'
drives = 2
drive_gb = 0.11
[[volume]]
name = 'store'
group = 'mail'
gb = 0.015625
[[volume]]
name = 'log'
group = 'logs'
gb = 0.0078125
[[nbd]]
name = 'store'
volume = 'store'
[[nbd]]
name = 'log'
volume = 'logs/log'
[[target]]
name = 'mail'
[[target.unit]]
number = 3
volume = 'mail/store'
";

/// `spindle serve`, killed when dropped.
pub struct Served {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// The changes at its start, or of the last reload.
    pub changes: Vec<String>,
    pub kept: Vec<String>,
    pub uris: Vec<String>,
}

impl Served {
    pub fn begin(bench: &Bench) -> Self {
        let mut command = bench.command(&["serve", "site.toml", "--state", "state", "--json"]);
        let log = fs::File::create(bench.path("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut served = Self { child, lines, changes: Vec::new(), kept: Vec::new(), uris: Vec::new() };
        served.read(bench);
        served
    }

    /// Reads the changes and what is served.
    fn read(&mut self, bench: &Bench) {
        // Events of pools are among the lines.
        let mut line = || loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            assert!(!line.is_empty(), "{}", fs::read_to_string(bench.path("log")).unwrap());
            let said = json_of(&line);
            if said.get("event").is_none() {
                return said;
            }
        };
        let (changes, services) = (line(), line());
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let words =
            |change: &serde_json::Value| ["action", "kind", "name"].map(|key| text(&change[key])).join(" ");
        self.changes = changes["changes"].as_array().unwrap().iter().map(words).collect();
        self.kept = changes["kept"].as_array().unwrap().iter().map(text).collect();
        self.uris = services.as_array().unwrap().iter().map(|service| text(&service["uri"])).collect();
    }

    pub fn apply_again(&mut self, bench: &Bench) {
        signal(&self.child, "HUP");
        self.read(bench);
    }

    pub fn uri(&self, end: &str) -> &str {
        self.uris.iter().find(|uri| uri.ends_with(end)).unwrap_or_else(|| panic!("{end}: {:?}", self.uris))
    }

    /// Number of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, as a crash does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn end(mut self) {
        signal(&self.child, "TERM");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn qemu_is_here() -> bool {
    is_here("qemu-io", "qemu-utils")
}

#[test]
fn a_site_is_made_served_changed_under_a_client_killed_and_as_it_was() {
    if !qemu_is_here() {
        return;
    }
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let mut served = Served::begin(&bench);
    let made = [
        "create pool mail",
        "create volume mail/store",
        "create pool logs",
        "create volume logs/log",
        "create nbd export log",
        "create nbd export store",
        "create target mail",
        "create unit mail/3",
    ];
    assert_eq!(served.changes, made);
    assert_eq!(served.uris.len(), 3);
    assert!(served.uri(":mail/3").starts_with("iscsi://127.0.0.1:"));
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/store"));
        client.says("write -P 1 0 8M", "wrote", 1).await;
        let changed = SITE
            .replace("gb = 0.015625", "gb = 0.03125\niops_max = 5000")
            .replace("[[nbd]]\nname = 'log'\nvolume = 'logs/log'\n", "")
            .replace("[[target]]", "[[volume]]\nname = 'new'\ngroup = 'mail'\ngb = 0.0078125\n[[target]]")
            .replace("[[target.unit]]", "[[target.unit]]\nnumber = 4\nvolume = 'mail/new'\n[[target.unit]]");
        bench.make_file("site.toml", changed.as_bytes());
        served.apply_again(&bench);
        let wanted = [
            "change volume mail/store",
            "change volume mail/store",
            "create volume mail/new",
            "destroy nbd export log",
            "create unit mail/4",
        ];
        assert_eq!(served.changes, wanted);
        assert_eq!(served.uris.len(), 3, "{:?}", served.uris);
        client.says("write -P 2 8M 4M", "wrote", 2).await;
        client.says("flush", "qemu-io>", 4).await;
        client.end().await;
    });
    let list = judge("nbdinfo", &["--list", served.uri("/store").rsplit_once('/').unwrap().0]);
    assert!(list.contains("\"store\"") && !list.contains("\"log\""), "{list}");
    let size = judge("qemu-img", &["info", "-f", "raw", served.uri("/store")]);
    assert!(size.contains("33554432 bytes"), "{size}");
    // A wrong file changes nothing.
    let right = fs::read_to_string(bench.path("site.toml")).unwrap();
    bench.make_file("site.toml", b"[[volume]\n");
    signal(&served.child, "HUP");
    real::run(0, Default::default(), async |world: World| {
        let log = || fs::read_to_string(bench.path("log")).unwrap();
        for _ in 0..1_000 {
            if log().contains("what is served stays") {
                break;
            }
            world.sleep(Duration::from_millis(10)).await;
        }
        assert!(log().contains("warning: the site file: line 1: "), "{}", log());
    });
    bench.make_file("site.toml", right.as_bytes());
    drop(served);
    let served = Served::begin(&bench);
    assert_eq!((&served.changes[..], &served.kept[..]), (&[][..], &[][..]), "as it was");
    let reads = ["read -P 1 0 8M", "read -P 2 8M 4M"];
    let said = judge("qemu-io", &["-r", "-f", "raw", "-c", reads[0], "-c", reads[1], served.uri("/store")]);
    assert!(!said.contains("failed"), "{said}");
    served.end();
    // The file that is printed says the same.
    let printed = bench.run(&["site", "--state", "state"]);
    done(&printed);
    bench.make_file("printed.toml", printed.stdout.as_bytes());
    let said = bench.run(&["apply", "printed.toml", "--state", "state", "--dry-run"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "printed.toml: nothing to change\n"),
        "{}",
        said.stderr
    );
    for pool in ["mail", "logs"] {
        done(&bench.run(&["pool", "scrub", &format!("state/pools/{pool}")]));
    }
}

#[test]
fn volumes_are_destroyed_by_name_alone_and_what_the_file_lacks_stays() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let apply = |extra: &[&str]| bench.run(&[&["apply", "site.toml", "--state", "state"], extra].concat());
    assert_eq!(apply(&["--dry-run"]).code, Some(1));
    assert!(!bench.path("state").exists(), "a dry run leaves nothing");
    done(&apply(&[]));
    assert_eq!(apply(&["--dry-run"]).code, Some(0));
    let less = SITE.replace("[[volume]]\nname = 'log'\ngroup = 'logs'\ngb = 0.0078125\n", "");
    let less = less.replace("[[nbd]]\nname = 'log'\nvolume = 'logs/log'\n", "");
    bench.make_file("site.toml", less.as_bytes());
    let said = apply(&[]);
    let kept = "not in the file: volume logs/log, 8.00 MiB: it stays, and is not served";
    assert!(said.code == Some(0) && said.stdout.contains(kept), "{}{}", said.stdout, said.stderr);
    let said = apply(&["--destroy", "mail/store"]);
    let refused =
        "spindle: mail/store is in the file, so it is not destroyed; take it out of the file first\n";
    assert_eq!((said.code, said.stderr.as_str()), (Some(2), refused));
    let said = apply(&["--destroy", "logs/log"]);
    assert!(said.code == Some(0) && said.stdout.contains("- volume logs/log: 8.00 MiB"), "{}", said.stdout);
    let shown = bench.run(&["pool", "show", "state/pools/logs", "--json"]);
    assert_eq!(json_of(&shown.stdout)["volumes"].as_array().unwrap().len(), 0, "{}", shown.stdout);
}

#[test]
fn what_cannot_be_made_or_served_is_refused_in_a_line_and_leaves_all_as_it_was() {
    let bench = Bench::new();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let first_address = "nbd = '127.0.0.1:0'";
    for (from, to, problem) in [
        (first_address, format!("nbd = '{taken}'"), taken.as_str()),
        ("name = 'logs'\n", "name = 'logs'\nraid = 'raid5'\n".to_owned(), "do not have raid5 yet"),
        (
            "name = 'logs'\n",
            "name = 'logs'\ndevices = ['/dev/null']\n".to_owned(),
            "and 1 devices are listed",
        ),
        ("iscsi = '127.0.0.1:0'", "iscsi = '0.0.0.0:0'".to_owned(), "no initiator uses it"),
        ("number = 3", "number = 3\nlun = 4".to_owned(), "no key is called \"lun\" here"),
        ("name = 'logs'\n", "name = 'logs'\nfolder = 'state/pools/mail'\n".to_owned(), "have one folder"),
        ("gb = 0.015625", "gb = 20000000000".to_owned(), "are more than a volume has"),
    ] {
        bench.make_file("site.toml", SITE.replacen(from, &to, 1).as_bytes());
        let said = bench.refused(&["serve", "site.toml", "--state", "state"]);
        assert!(said.contains(problem), "{to}: {said}");
    }
    let said = bench.refused(&["serve", "none.toml", "--state", "state"]);
    assert!(said.contains("none.toml"), "{said}");
    bench.make_file("site.toml", SITE.as_bytes());
    done(&bench.run(&["apply", "site.toml", "--state", "state"]));
    let served = Served::begin(&bench);
    let said = bench.run(&["serve", "site.toml", "--state", "state"]);
    assert_eq!(said.code, Some(2));
    assert!(
        said.stderr.contains("'spindle serve' or 'spindle apply' runs with this state folder"),
        "{}",
        said.stderr
    );
    served.end();
    // A pool that another process has open.
    let exported = Exported::begin(&bench, &["state/pools/mail/store", "--nbd", "127.0.0.1:0"]);
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    assert!(
        said.code == Some(2) && said.stderr.contains("another Spindle has the pool open"),
        "{}",
        said.stderr
    );
    let served = Served::begin(&bench);
    assert_eq!(served.uris.len(), 1, "the other pool is served: {:?}", served.uris);
    // Its condition is open a moment later.
    until("a condition of the pool", || {
        bench.run(&["event", "conditions", "--state", "state"]).stdout.contains("another Spindle")
    });
    let log = || fs::read_to_string(bench.path("log")).unwrap();
    until("it is said", || log().contains("pool mail is not as the file says: "));
    let log = log();
    assert_eq!(log.matches("another Spindle has the pool open").count(), 1, "said once: {log}");
    served.end();
    exported.end();
}

#[test]
fn nothing_is_made_in_the_place_of_a_pool_that_was_there() {
    let bench = Bench::new();
    let text = SITE.replacen("name = 'mail'\n", "name = 'mail'\nfolder = 'srv/mail'\n", 1);
    bench.make_file("site.toml", text.as_bytes());
    bench.make_folder("srv");
    done(&bench.run(&["apply", "site.toml", "--state", "state"]));
    // As if a filesystem was not mounted.
    fs::rename(bench.path("srv/mail"), bench.path("srv/elsewhere")).unwrap();
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    let problem = "it was in DIR/srv/mail, and is not there; nothing is made in its place; mount it; if it is gone for good, \
                   use --destroy mail with 'spindle apply'";
    assert!(said.code == Some(2) && said.stderr.contains(problem), "{}", said.stderr);
    let served = Served::begin(&bench);
    let has = |end: &str| served.uris.iter().any(|uri| uri.ends_with(end));
    assert!(has("/log") && !has("/store"), "the other pool is served: {:?}", served.uris);
    served.end();
    assert!(!bench.path("srv/mail").exists());
    // Another folder in the file does not make another pool, either.
    fs::rename(bench.path("srv/elsewhere"), bench.path("srv/mail")).unwrap();
    bench.make_file("site.toml", text.replace("srv/mail", "srv/other").as_bytes());
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    let problem = "it is in DIR/srv/mail, and the file says DIR/srv/other";
    assert!(said.code == Some(2) && said.stderr.contains(problem), "{}", said.stderr);
    fs::rename(bench.path("srv/mail"), bench.path("srv/other")).unwrap();
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "site.toml: nothing to change\n"),
        "{}",
        said.stderr
    );
    fs::remove_dir_all(bench.path("srv/other")).unwrap();
    let said = bench.run(&["apply", "site.toml", "--state", "state", "--destroy", "mail"]);
    assert!(said.code == Some(0) && said.stdout.contains("+ pool mail: "), "{}{}", said.stdout, said.stderr);
}

#[test]
fn a_change_that_fails_leaves_what_clients_use() {
    if !qemu_is_here() {
        return;
    }
    let bench = Bench::new();
    let text = SITE.replacen("[[nbd]]", "[[volume]]\nname = 'old'\ngroup = 'mail'\ngb = 0.0078125\n[[nbd]]\nname = 'old'\nvolume = 'old'\n[[nbd]]", 1);
    bench.make_file("site.toml", text.as_bytes());
    let mut served = Served::begin(&bench);
    real::run(0, Default::default(), async |world: World| {
        let mut client = QemuIo::begin(&bench, &world, "client", served.uri("/old"));
        client.says("write -P 1 0 1M", "wrote", 1).await;
        let mut gone = QemuIo::begin(&bench, &world, "gone", served.uri("/log"));
        gone.says("write -P 1 0 1M", "wrote", 1).await;
        // More than the pool has.
        let wrong = text
            .replacen("gb = 0.015625", "gb = 0.015625\nreserve_gb = 500", 1)
            .replacen("name = 'old'\ngroup", "name = 'new'\nwas = 'old'\ngroup", 1)
            .replacen("volume = 'old'", "volume = 'new'", 1)
            .replacen("[[nbd]]\nname = 'log'\nvolume = 'logs/log'\n", "", 1);
        bench.make_file("site.toml", wrong.as_bytes());
        signal(&served.child, "HUP");
        let log = || fs::read_to_string(bench.path("log")).unwrap();
        for _ in 0..1_000 {
            if log().contains("changes are done") {
                break;
            }
            world.sleep(Duration::from_millis(10)).await;
        }
        assert!(log().contains("changes are done; pool mail: "), "{}", log());
        client.says("write -P 2 1M 1M", "wrote", 2).await;
        client.end().await;
        // The other pool follows the file: its client is ended with its next request.
        gone.says("write -P 2 1M 1M", "failed", 1).await;
        bench.make_file("site.toml", wrong.replacen("reserve_gb = 500", "reserve_gb = 0.001", 1).as_bytes());
        // The changes that failed.
        let mut line = String::new();
        served.lines.read_line(&mut line).unwrap();
        served.apply_again(&bench);
        let reads = ["read -P 1 0 1M", "read -P 2 1M 1M"];
        let said = judge("qemu-io", &["-r", "-f", "raw", "-c", reads[0], "-c", reads[1], served.uri("/old")]);
        assert!(!said.contains("failed"), "{said}");
    });
    served.end();
}

#[test]
fn an_apply_that_is_killed_goes_on_where_it_was() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let mut random = world::Random::new(7, "kills");
    let mut killed = 0;
    for attempt in 0.. {
        let mut command = bench.command(&["apply", "site.toml", "--state", "state"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(random.below(40 * (attempt + 1))));
        if child.try_wait().unwrap().is_some_and(|status| status.success()) {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
    }
    assert!(killed > 0);
    let said = bench.run(&["apply", "site.toml", "--state", "state", "--dry-run"]);
    assert_eq!(
        (said.code, said.stdout.as_str()),
        (Some(0), "site.toml: nothing to change\n"),
        "{}",
        said.stderr
    );
    for pool in ["mail", "logs"] {
        done(&bench.run(&["pool", "scrub", &format!("state/pools/{pool}")]));
    }
}

#[test]
fn adopted_pools_are_the_same_disks_to_initiators() {
    let bench = Bench::new();
    for (pool, volume) in [("mail", "mail/store"), ("logs", "logs/log")] {
        done(&bench.run(&["pool", "create", pool, "--size", "100MiB", "--drives", "2"]));
        done(&bench.run(&["volume", "create", volume, "8MiB"]));
    }
    let access = "[[target]]\nname = 'disks'\nunits = [{ export = 'store', lun = 7 }]\n\
        [[initiator]]\nname = 'iqn.2026-11.test:host'\nuses = ['disks/7']\nreads = ['log']\n";
    bench.make_file("access.toml", access.as_bytes());
    let arguments = ["mail/store", "logs/log", "--iscsi", "127.0.0.1:0", "--access", "access.toml"];
    let exported = Exported::begin(&bench, &arguments);
    let places = |uris: &[String]| {
        let mut places: Vec<String> =
            uris.iter().map(|uri| uri.splitn(4, '/').nth(3).unwrap().to_owned()).collect();
        places.sort();
        places
    };
    let before = places(&exported.uris);
    exported.end();
    let pools = bench.inventory("mail");
    let adopted = bench.run(&["site", "--adopt", "mail", "logs", "--access", "access.toml"]);
    done(&adopted);
    assert_eq!(bench.inventory("mail"), pools, "pools are not written to");
    let text = adopted.stdout.replace("DIR", &bench.path("").display().to_string()).replacen(
        "version = 1\n",
        "version = 1\nserve = { iscsi = '127.0.0.1:0', nbd = 'none' }\n",
        1,
    );
    bench.make_file("site.toml", text.as_bytes());
    let served = Served::begin(&bench);
    assert_eq!(places(&served.uris), before);
    let data: Vec<_> = served
        .changes
        .iter()
        .filter(|change| change.contains(" pool ") || change.contains(" volume "))
        .collect();
    assert!(data.is_empty(), "{data:?}");
    served.end();
    let said = bench.run(&["apply", "site.toml", "--state", "state", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
}

#[test]
fn without_a_file_a_demonstration_is_shown_with_its_use() {
    let bench = Bench::new();
    // Its ports are the usual ones, which another program may have.
    let said = {
        let mut command = bench.command(&["serve", "--state", "state"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let lines: Vec<String> = lines.take_while(|line| !line.starts_with("serving")).collect();
        signal(&child, "INT");
        let ended = child.wait().unwrap();
        if ended.code() == Some(2) {
            println!("skipped: port 3260 or 10809 is taken");
            return;
        }
        lines.join("\n")
    };
    assert!(said.contains("a demonstration is written to state/site.toml"), "{said}");
    assert!(
        said.contains("+ pool demonstration: 8 drives in files in ")
            && said.contains("/state/pools/demonstration"),
        "{said}"
    );
    assert!(said.contains("try it:\n  nbdinfo nbd://127.0.0.1/store\n  iscsi-ls -i "), "{said}");
    let mode = fs::metadata(bench.path("state/demonstration-secret")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
}

#[test]
fn a_schedule_takes_its_first_snapshot_at_once_and_none_at_the_next_start() {
    let bench = Bench::new();
    let site = format!(
        "{SITE}[[snapshots]]\nname = 'monthly'\nevery_hours = 744\nkeep = 2\ngroups = ['logs']\nvolumes = ['store']\n"
    );
    bench.make_file("site.toml", site.as_bytes());
    let snapshots = || {
        let shown = bench.run(&["pool", "show", "state/pools/mail", "--json"]);
        let shown = json_of(&done(&shown));
        (shown["volumes"][0]["snapshots"].clone(), shown["volumes"][0]["notes"][0]["note"].clone())
    };
    let live = |seconds: u64| {
        let served = Served::begin(&bench);
        let changes = served.changes.clone();
        real::run(0, Default::default(), async |world: World| {
            world.sleep(Duration::from_secs(seconds)).await
        });
        served.end();
        changes
    };
    assert!(live(1).contains(&"create snapshots monthly".to_owned()));
    // On a machine that is busy it may take longer.
    if snapshots().0.as_array().is_none_or(Vec::is_empty) {
        live(10);
    }
    let (taken, note) = snapshots();
    let [name] = &taken.as_array().unwrap()[..] else { panic!("{taken}") };
    assert!(name.as_str().unwrap().starts_with("monthly-2"), "{name}");
    assert_eq!(note, "spindle-schedule: monthly");
    assert_eq!(live(1), Vec::<String>::new(), "nothing to change");
    assert_eq!(snapshots().0, taken);
}

#[test]
fn a_site_that_is_served_gets_the_advice_of_its_file() {
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    let advice = |arguments: &[&str]| {
        let said = bench.run(&[&["advise", "--json"], arguments].concat());
        let mut said = json_of(&said.stdout);
        said.as_object_mut().unwrap().remove("site");
        said
    };
    let of_server = advice(&["--server", "unix:state/spindle.sock"]);
    assert!(of_server["findings"].as_array().is_some_and(|found| !found.is_empty()), "{of_server}");
    assert_eq!(of_server, advice(&["site.toml"]));
    let both = bench.run(&["advise", "site.toml", "--server", "unix:state/spindle.sock"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
    served.end();
}
