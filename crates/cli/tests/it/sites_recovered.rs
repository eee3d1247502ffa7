//! Sites brought back from their pools alone, after the loss of everything else.

use crate::{
    exported::{is_here, judge, judged},
    pool_drives::{done, json},
    sites_served::{SITE, Served, qemu_is_here},
    spindle::Bench,
    storage::{LoopDevice, may_mount},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

const HOST: &str = "iqn.2026-11.test:host";
const SECRET: &str = "correct-horse-battery";
const SCHEDULE: &str = "[[snapshots]]\nname = 'often'\nvolumes = ['store']\nevery_hours = 1\nkeep = 2\n";

/// The site of two pools outside of the state folder, with a secret and a schedule.
fn make_site(bench: &Bench) {
    let rights = format!(
        "[[initiator]]\nname = '{HOST}'\nuser = 'host'\nsecret_file = 'secrets/host'\nuses = ['mail/3']\n{SCHEDULE}"
    );
    let folders = SITE
        .replace("name = 'mail'\ndrives = 2", "name = 'mail'\nfolder = 'drives/mail'\ndrives = 2")
        .replace("name = 'logs'\ndrives = 2", "name = 'logs'\nfolder = 'drives/logs'\ndrives = 2");
    bench.make_file("site.toml", format!("{folders}{rights}").as_bytes());
    bench.make_folder("secrets");
    let secret = bench.make_file("secrets/host", SECRET.as_bytes());
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Removes everything but the drives. Returns the recovery key.
fn lose_the_machine(bench: &Bench) -> PathBuf {
    let key = bench.path("key");
    fs::rename(bench.path("state/recovery-key"), &key).unwrap();
    fs::remove_file(bench.path("site.toml")).unwrap();
    for folder in ["state", "secrets"] {
        fs::remove_dir_all(bench.path(folder)).unwrap();
    }
    for pool in ["mail", "logs"] {
        for entry in fs::read_dir(bench.path("drives").join(pool)).unwrap() {
            let path = entry.unwrap().path();
            if fs::metadata(&path).unwrap().len() < 1 << 20 {
                fs::remove_file(path).unwrap();
            }
        }
    }
    key
}

fn fio(served: &Served, more: &[&str]) -> String {
    let uri = format!("--uri={}", served.uri("/store"));
    let usual = [
        "--name=v",
        "--verify_state_save=0",
        "--ioengine=nbd",
        "--bs=4k",
        "--size=4m",
        "--verify=crc32c",
        "--iodepth=8",
    ];
    judge("fio", &[&usual[..], &[&uri, "--rw=randwrite", "--randseed=7"], more].concat())
}

/// Serial number and designators of the unit, as an initiator with this secret sees them.
fn inquiry(served: &Served, secret: &str) -> Result<String, String> {
    let uri = served.uri("/3").replacen("://", &format!("://host%{secret}@"), 1);
    let page = |page: &str| {
        let output = judged("iscsi-inq", &["-i", HOST, "-e", "1", "-c", page, &uri]);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() && !text.contains("ailed") { Ok(text) } else { Err(text) }
    };
    Ok(page("0x80")? + &page("0x83")?)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_lost_machine_comes_back_with_rights_secrets_identities_and_data() {
    if !is_here("fio", "fio") || !is_here("iscsi-inq", "libiscsi-bin") {
        return;
    }
    let bench = Bench::new();
    make_site(&bench);
    let served = Served::begin(&bench);
    fio(&served, &["--do_verify=0"]);
    let before = inquiry(&served, SECRET).expect("it may log in");
    inquiry(&served, "wrong-horse-battery").expect_err("a wrong secret");
    served.end();
    assert_eq!(mode(&bench.path("state/recovery-key")), 0o600);
    let log = fs::read_to_string(bench.path("log")).unwrap();
    let shown = fs::read_to_string(bench.path("state/recovery-key")).unwrap();
    assert!(log.contains("state/recovery-key") && !log.contains(shown.trim()), "{log}");
    let key = lose_the_machine(&bench);
    let names: Vec<_> = fs::read_dir(bench.path("drives/mail")).unwrap().collect();
    assert_eq!(names.len(), 2, "the drives alone");

    let arguments = ["pool", "import", "--all", "drives", "--recovery-key-file", "key", "--state", "state"];
    let listed = json(&bench, &[&arguments[..], &["--list"]].concat());
    assert!(!bench.path("state").exists(), "only listed");
    assert_eq!(listed["pools"].as_array().unwrap().len(), 2, "{listed}");
    let found = json(&bench, &[&arguments[..], &["--output", "site.toml"]].concat());
    for pool in found["pools"].as_array().unwrap() {
        assert_eq!(pool["state"], "newest", "{found}");
    }
    assert_eq!(found["secrets"][0]["is_restored"], true, "{found}");
    assert_eq!(found["notes"].as_array().unwrap().len(), 0, "{found}");
    assert_eq!(mode(&bench.path(&format!("secrets/{}", HOST.replace(':', "_")))), 0o600);
    let empty = bench.run(&["apply", "site.toml", "--state", "state", "--dry-run"]);
    assert_eq!((empty.code, &*empty.stdout), (Some(0), "site.toml: nothing to change\n"), "{}", empty.stderr);

    let served = Served::begin(&bench);
    assert_eq!(inquiry(&served, SECRET).expect("the same secret"), before, "the same disk");
    inquiry(&served, "wrong-horse-battery").expect_err("a wrong secret");
    fio(&served, &["--verify_only"]);
    served.end();
    assert!(!bench.path("state/recovery-key").exists(), "the same key goes on");
    let again = bench.run(&["site", "recovery-key", "--state", "state", "--json"]);
    assert!(done(&again).contains("\"is_shown\":true"), "{}", again.stdout);
    fs::remove_file(key).unwrap();
}

#[test]
fn a_machine_with_pools_on_block_devices_comes_back_with_a_volume_that_had_moved() {
    if !qemu_is_here() || !may_mount() {
        return;
    }
    let bench = Bench::new();
    let loops: Option<Vec<_>> = (0..4).map(|_| LoopDevice::new(200 << 20)).collect();
    let Some(loops) = loops else { return };
    let devices: Vec<String> = loops.iter().map(|device| device.path().display().to_string()).collect();
    make_site(&bench);
    let site = fs::read_to_string(bench.path("site.toml")).unwrap();
    let on_devices = |group: &str, own: &[String]| {
        (
            format!("folder = 'drives/{group}'\ndrives = 2\ndrive_gb = 0.11\n"),
            format!("devices = ['{}', '{}']\n", own[0], own[1]),
        )
    };
    let replaced = [on_devices("mail", &devices[..2]), on_devices("logs", &devices[2..])]
        .iter()
        .fold(site, |site, (files, devices)| site.replace(files, devices));
    assert_eq!(replaced.matches("/dev/loop").count(), 4, "{replaced}");
    bench.make_file("site.toml", replaced.as_bytes());
    let served = Served::begin(&bench);
    let write = |command: &str, served: &Served| {
        judge("qemu-io", &["-f", "raw", "-c", command, "-c", "flush", served.uri("/log")])
    };
    write("write -P 7 0 4M", &served);
    let socket = format!("unix:{}", bench.path("state/spindle.sock").display());
    done(&bench.run(&["volume", "move", "logs/log", "mail/log", "--server", &socket]));
    served.kill();
    fs::rename(bench.path("state/recovery-key"), bench.path("key")).unwrap();
    fs::remove_file(bench.path("site.toml")).unwrap();
    ["state", "secrets"].iter().for_each(|folder| fs::remove_dir_all(bench.path(folder)).unwrap());
    let import = [
        "pool",
        "import",
        "--all",
        "--recovery-key-file",
        "key",
        "--state",
        "state",
        "--output",
        "site.toml",
    ];
    let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
    let found = json(&bench, &[&import[..], &devices].concat());
    assert_eq!(found["notes"].as_array().unwrap().len(), 0, "{found}");
    let text = fs::read_to_string(bench.path("site.toml")).unwrap();
    assert!(text.contains("volume = \"mail/log\""), "{text}");
    let served = Served::begin(&bench);
    assert_eq!(served.changes, [""; 0]);
    let read = write("read -P 7 0 4M", &served);
    assert!(!read.contains("verification failed"), "{read}");
    served.end();
}

#[test]
fn what_does_not_come_back_is_named_with_the_next_step() {
    let bench = Bench::new();
    make_site(&bench);
    done(&bench.run(&["apply", "site.toml", "--state", "state", "--recovery-key-file", "first"]));
    fs::write(bench.path("state/recovery-key"), "").unwrap();
    // Only one pool learns of the second unit: the other one is away.
    fs::rename(bench.path("drives/logs"), bench.path("away")).unwrap();
    let text = fs::read_to_string(bench.path("site.toml")).unwrap();
    bench.make_file(
        "site.toml",
        text.replace("number = 3", "number = 5").replace("mail/3", "mail/5").as_bytes(),
    );
    let said = bench.run(&["apply", "site.toml", "--state", "state"]);
    assert!(said.code == Some(2) && said.stderr.contains("pool logs"), "{}", said.stderr);
    let served = Served::begin(&bench);
    served.end();
    fs::rename(bench.path("away"), bench.path("drives/logs")).unwrap();
    lose_the_machine(&bench);

    let key = fs::read_to_string(bench.path("first")).unwrap();
    let other = if key.starts_with('7') { key.replacen('7', "8", 1) } else { format!("7{}", &key[1..]) };
    bench.make_file("typed", other.as_bytes());
    let import = ["pool", "import", "--all", "drives", "--state", "state"];
    let with = |file: &'static str| [&import[..], &["--recovery-key-file", file]].concat();
    let refused = bench.refused(&with("typed"));
    assert!(refused.contains("typed: this is no recovery key: a character is wrong"), "{refused}");

    let said = bench.run(&import);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    for part in ["group mail: newest", "group logs: older"] {
        assert!(said.stdout.contains(part), "{part}: {}", said.stdout);
    }
    for part in [
        "what it keeps is of change 1 of the site, and the last one is 2",
        "secret of initiator iqn.2026-11.test:host: not restored, it belongs into DIR/state/secrets/",
        "import again with --recovery-key-file FILE",
    ] {
        assert!(said.stderr.contains(part), "{part}: {}", said.stderr);
    }
    let site = fs::read_to_string(bench.path("state/site.toml")).unwrap();
    assert!(site.contains("number = 5") && site.contains("name = \"log\""), "{site}");
    // Until the site is used, an import may be repeated.
    let said = bench.run(&with("first"));
    assert!(said.stdout.contains("secret of initiator iqn.2026-11.test:host: restored"), "{}", said.stdout);
    done(&bench.run(&["apply", "state/site.toml", "--state", "state"]));
    let said = bench.run(&import);
    let is_refused =
        said.code == Some(2) && said.stderr.contains("is the folder of a server that has a site");
    assert!(is_refused, "{}", said.stderr);
}

#[test]
fn a_pool_that_may_have_newer_drives_is_not_believed() {
    let bench = Bench::new();
    make_site(&bench);
    done(&bench.run(&["apply", "site.toml", "--state", "state", "--recovery-key-file", "first"]));
    fs::write(bench.path("state/recovery-key"), "").unwrap();
    // The pool goes on with one drive of its two.
    fs::rename(bench.path("drives/mail/drive-2.spindle"), bench.path("old")).unwrap();
    done(&bench.run(&["pool", "force-open", "drives/mail", "--yes", "mail"]));
    done(&bench.run(&["volume", "create", "drives/mail/new", "1MiB"]));
    lose_the_machine(&bench);
    fs::rename(bench.path("drives/mail/drive-1.spindle"), bench.path("newer")).unwrap();
    fs::rename(bench.path("old"), bench.path("drives/mail/drive-2.spindle")).unwrap();
    let import = ["pool", "import", "--all", "drives", "--state", "state"];
    let refused = bench.refused(&import);
    assert!(
        refused.contains("mail")
            && refused.contains("may be older than what is on the drives that are missing"),
        "{refused}"
    );
    let said = bench.run(&[&import[..], &["--partial"]].concat());
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let site = fs::read_to_string(bench.path("state/site.toml")).unwrap();
    assert!(!site.contains("name = \"mail\"") && site.contains("name = \"logs\""), "{site}");
    assert!(!bench.path("drives/mail/spindle-pool.json").exists(), "nothing is written for it");
}
