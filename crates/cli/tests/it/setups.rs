//! `spindle setup`: from drives to a host that logs in with the secret that was printed; refusals leave nothing.

use crate::{
    exported::{is_here, judge, judged},
    notifiers::{MAIL_SINK, PythonServer},
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, ProgramOutput, json_of},
    storage::{LoopDevice, may_mount},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

const IQN: &str = "iqn.2026-11.org.example:mail1";

/// A trial in files, at a port that the system chooses.
const TRIAL: [&str; 11] = [
    "setup",
    "--folder",
    "trial",
    "--gb",
    "0.5",
    "--host",
    IQN,
    "--address",
    "127.0.0.1:0",
    "--state",
    "state",
];

fn trial(bench: &Bench, more: &[&str]) -> ProgramOutput {
    bench.run(&[&TRIAL, more].concat())
}

/// The host's commands of a set-up, as a script.
pub fn script_of(said: &str) -> String {
    let lines = said.lines().skip_while(|line| !line.starts_with("on the host mail1, as root")).skip(1);
    lines.map(|line| format!("{}\n", line.strip_prefix("  ").expect("an indent"))).collect()
}

#[test]
fn a_trial_is_written_applied_and_served_to_a_host_with_the_printed_secret() {
    let bench = Bench::new();
    let said = done(&trial(&bench, &["--site", "site.toml", "--yes"]));
    assert!(said.contains("this protects nothing, and is for trying it"), "{said}");
    assert!(said.contains("+ pool mail: 4 drives in files in DIR/trial/mail"), "{said}");
    assert!(said.contains("\n  spindle serve site.toml --state state\n"), "{said}");
    assert!(!bench.path("state").exists() && !bench.path("trial").exists(), "nothing is made yet");
    let secret = bench.path("mail1.chap-secret");
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = fs::read_to_string(secret).unwrap().trim().to_owned();
    assert_eq!(secret.len(), 16);
    let script = script_of(&said);
    assert_eq!(said.matches(&secret).count(), 1, "it is shown once");
    assert!(script.contains(&format!("user=mail1 secret={secret}\n")), "{script}");
    bench.make_file("host.sh", script.as_bytes());
    judge("sh", &["-n", bench.path("host.sh").to_str().unwrap()]);

    done(&bench.run(&["apply", "site.toml", "--state", "state"]));
    let served = Served::begin(&bench);
    assert_eq!(served.changes, [""; 0], "it is as it was applied");
    let sets = done(&bench.run(&["protect", "list", "--state", "state"]));
    assert!(sets.contains("backups"), "{sets}");
    if is_here("iscsi-ls", "libiscsi-bin") && is_here("qemu-io", "qemu-utils") {
        log_in(&bench, &served, &secret);
    }
    served.end();
}

/// Logs in with the secret, and writes and reads a block of each unit; without the secret nothing is reached.
fn log_in(bench: &Bench, served: &Served, secret: &str) {
    let uri = served.uri(":mail/0").to_owned();
    let portal = uri.split('/').nth(2).unwrap();
    let listed = judge("iscsi-ls", &["-i", IQN, "-s", &format!("iscsi://mail1%{secret}@{portal}")]);
    assert!(listed.contains("Target:iqn.2026-11.org.spindle:mail") && listed.contains("Lun:1"), "{listed}");
    let wrong = judged("iscsi-ls", &["-i", IQN, "-s", &format!("iscsi://mail1%not-the-secret-1@{portal}")]);
    assert!(!wrong.status.success() && !String::from_utf8_lossy(&wrong.stdout).contains("Target:"));
    let file = bench.path("mail1.chap-secret");
    let key = bench.make_file("key", secret.as_bytes());
    assert!(fs::exists(file).unwrap());
    for unit in ["0", "1"] {
        let image = format!(
            "driver=iscsi,transport=tcp,portal={portal},target=iqn.2026-11.org.spindle:mail,lun={unit},user=mail1,\
             password-secret=s,initiator-name={IQN}"
        );
        let object = format!("secret,id=s,file={}", key.display());
        let said = judge(
            "qemu-io",
            &[
                "-c",
                "write -P 7 1M 64k",
                "-c",
                "read -P 7 1M 64k",
                "--object",
                &object,
                "--image-opts",
                &image,
            ],
        );
        assert!(said.contains("wrote 65536/65536") && said.contains("read 65536/65536"), "{said}");
    }
}

#[test]
fn a_running_server_applies_a_setup_and_sends_a_test_message() {
    if !is_here("python3", "python3") {
        return;
    }
    let bench = Bench::new();
    bench.make_file("site.toml", b"[serve]\niscsi = '127.0.0.1:0'\nnbd = 'none'\n");
    let served = Served::begin(&bench);
    let sink = PythonServer::begin(MAIL_SINK, 0);
    let port = format!("127.0.0.1:{}", sink.port);
    let mail = ["--mail", "ops@example.org", "--mail-server", &port];
    let said = trial(&bench, &[&["--site", "new.toml", "--yes", "--json"][..], &mail].concat());
    let answer = json_of(&done(&said));
    assert_eq!(
        (&answer["is_applied"], &answer["is_test_delivered"]),
        (&true.into(), &true.into()),
        "{answer}"
    );
    assert_eq!(answer["secret"], fs::read_to_string(bench.path("mail1.chap-secret")).unwrap().trim());
    assert_eq!(sink.until("the test", |_| true)["subject"], "[Spindle] test");
    let targets = done(&bench.run(&["target", "list", "--state", "state"]));
    assert!(targets.contains("mail"), "{targets}");
    // It is the same set-up.
    let said = bench.run(&["apply", "new.toml", "--state", "state", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    served.end();
}

#[test]
fn a_test_message_that_is_not_delivered_ends_with_1_and_a_server_at_another_address_is_left_alone() {
    let bench = Bench::new();
    bench.make_file("site.toml", b"[serve]\niscsi = '127.0.0.1:0'\nnbd = 'none'\n");
    let served = Served::begin(&bench);
    let elsewhere = ["--address", "127.0.0.2:0", "--site", "new.toml", "--yes"];
    let said = bench.run(&[&TRIAL[..7], &TRIAL[9..], &elsewhere].concat());
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    assert!(
        said.stderr.contains("the addresses or the certificates under [serve] are others"),
        "{}",
        said.stderr
    );
    assert!(!bench.path("new.toml").exists() && !bench.path("mail1.chap-secret").exists());
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mail = ["--mail", "ops@example.org", "--mail-server", &closed, "--site", "new.toml", "--yes"];
    let said = trial(&bench, &mail);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("mail: not delivered: "), "{}", said.stdout);
    assert!(said.stdout.contains("applied by the running server"), "{}", said.stdout);
    served.end();
}

#[test]
fn what_is_missing_or_wrong_is_one_line_with_its_flag_and_leaves_nothing() {
    let bench = Bench::new();
    let site = ["--site", "site.toml", "--yes"];
    let all = [&TRIAL[..], &site].concat();
    let without = |from: usize, to: usize| [&all[..from], &all[to..]].concat();
    let with = |index: usize, value: &'static str| {
        let mut changed = all.clone();
        changed[index] = value;
        changed
    };
    for (arguments, problem) in [
        (without(1, 5), "the disks are not said; say --disks DISK,DISK or --disks free"),
        (without(5, 7), "the mail host is not said; say --host IQN"),
        (without(7, 9), "the address for hosts is not said; say --address ADDRESS"),
        (without(all.len() - 1, all.len()), "nobody has confirmed site.toml; say --yes"),
        (with(4, "60000"), "are more than a tenth of the free space below DIR"),
        (with(6, "mail1"), "\"mail1\" is no iSCSI name; say --host IQN"),
        (with(8, "array.example.org"), "\"array.example.org\" is no IP address; say --address IP"),
        ([&all[..], &["--mail", "nobody", "--mail-server", "localhost"]].concat(), "is no mail address"),
        ([&all[..], &["--database-gb", "400"]].concat(), "say a smaller --database-gb"),
        (
            [&without(1, 5)[..], &["--disks", "/dev/null,/dev/zero"]].concat(),
            "/dev/null is no disk of this machine",
        ),
    ] {
        let said = bench.refused(&arguments);
        assert!(said.contains(problem), "{arguments:?}: {said}");
    }
    bench.make_file("site.toml", b"name = 'mine'\n");
    let said = bench.refused(&all);
    assert!(said.contains("site.toml is there already, and stays as it is"), "{said}");
    bench.make_file("mail1.chap-secret", b"of another site\n");
    let said = bench.refused(&with(all.len() - 2, "other.toml"));
    assert!(said.contains("mail1.chap-secret is there already"), "{said}");
}

#[test]
fn a_dry_run_shows_the_file_and_writes_nothing() {
    let bench = Bench::new();
    let said = done(&trial(&bench, &["--site", "site.toml", "--dry-run", "--json"]));
    let answer = json_of(&said);
    assert_eq!((&answer["is_written"], &answer["secret"]), (&false.into(), &serde_json::Value::Null));
    assert_eq!(fs::read_dir(bench.path("")).unwrap().count(), 0);
    bench.make_file("shown.toml", answer["text"].as_str().unwrap().as_bytes());
    let secret = bench.make_file("mail1.chap-secret", b"AbCdEfGhIjKlMnOp\n");
    fs::set_permissions(secret, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(bench.run(&["apply", "shown.toml", "--state", "state", "--dry-run"]).code, Some(1));
}

#[test]
fn disks_become_a_pool_and_one_that_is_not_free_is_refused_with_its_use() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let disks: Vec<LoopDevice> = (0..4).map_while(|_| LoopDevice::new(200 << 20)).collect();
    let [first, second, third, fourth] = &disks[..] else { return };
    let path = |disk: &LoopDevice| disk.path().to_str().unwrap().to_owned();
    let name = path(second).rsplit_once('/').unwrap().1.to_owned();
    let listed = |last: &str| format!("{},{name},{},{last}", path(first), path(third));
    let setup = |disks: &str, more: &[&str]| -> Vec<String> {
        let words =
            [&["setup", "--disks", disks, "--yes", "--site", "site.toml"], &TRIAL[5..], more].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let refused = |words: Vec<String>| bench.refused(&words.iter().map(String::as_str).collect::<Vec<_>>());
    fourth.make_ext4();
    let said = refused(setup(&listed(&path(fourth)), &[]));
    assert!(said.contains(&format!("{} is not free: holds ext4", path(fourth))), "{said}");
    let said = refused(setup(&listed(&path(first)), &[]));
    assert!(said.contains("that disk is named twice"), "{said}");
    let said = refused(setup(&path(first), &[]));
    assert!(said.contains("a pool needs two disks"), "{said}");

    let zeroed = Command::new("blkdiscard").args(["--zeroout", &path(fourth)]).stdout(Stdio::null()).status();
    assert!(zeroed.unwrap().success());
    let words = setup(&listed(&path(fourth)), &[]);
    let said = done(&bench.run(&words.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(said.contains("pool logs: 2 drives"), "{said}");
    done(&bench.run(&["apply", "site.toml", "--state", "state"]));
    let served = Served::begin(&bench);
    assert!(served.uri(":mail/0").starts_with("iscsi://") && served.uri(":logs/0").starts_with("iscsi://"));
    served.end();
    fs::remove_file(bench.path("site.toml")).unwrap();
    let said = refused(setup(&listed(&path(fourth)), &[]));
    assert!(said.contains(&format!("{} is not free: drive of the pool \"", path(first))), "{said}");
}
