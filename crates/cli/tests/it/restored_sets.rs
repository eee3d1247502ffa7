//! Sets taken back to a backup: QEMU's client writes and reads the volumes, the built program restores them.

use crate::{
    exported::{is_here, judge},
    judged_exports::until,
    pool_drives::done,
    qemu_io::QemuIo,
    sites_served::{SITE, Served},
    spindle::{Bench, json_of},
};
use std::{fs, os::unix::fs::PermissionsExt};
use world::real::{self, RealOptions};

const SET: &str = "
[[protect]]
set = 'post'
volumes = ['mail/store', 'logs/log']
logs = ['logs/log']
schedules = ['24x1h']
";

struct Scene {
    bench: Bench,
    served: Served,
}

impl Scene {
    fn begin() -> Option<Self> {
        if !is_here("qemu-io", "qemu-utils") {
            return None;
        }
        let bench = Bench::new();
        bench.make_file("site.toml", format!("{SITE}{SET}").as_bytes());
        let served = Served::begin(&bench);
        Some(Self { bench, served })
    }

    fn write(&self, pattern: u8) {
        for export in ["/store", "/log"] {
            let write = format!("write -P {pattern} 0 1M");
            judge("qemu-io", &["-f", "raw", "-c", &write, "-c", "flush", self.served.uri(export)]);
        }
    }

    /// Checks the contents of both volumes.
    fn expect(&self, pattern: u8) {
        for export in ["/store", "/log"] {
            let read = format!("read -P {pattern} 0 1M");
            let said = judge("qemu-io", &["-r", "-f", "raw", "-c", &read, self.served.uri(export)]);
            assert!(!said.contains("Pattern verification failed"), "{export} {pattern}: {said}");
        }
    }

    fn run(&self, arguments: &[&str]) -> String {
        done(&self.bench.run(&[arguments, &["--state", "state"]].concat()))
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let said = self.bench.run(&[arguments, &["--state", "state"]].concat());
        assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
        said.stderr
    }

    fn back_up(&self) -> String {
        json_of(&self.run(&["protect", "now", "post", "--hold", "test", "--json"]))["number"].to_string()
    }

    /// Clients that the restore could not see the end of are let in again.
    fn readmit(&self) {
        for volume in ["state/pools/mail/store", "state/pools/logs/log"] {
            done(&self.bench.run(&["volume", "readmit", volume, "--all"]));
        }
    }
}

#[test]
fn a_set_goes_back_as_one_and_what_it_held_stays() {
    let Some(scene) = Scene::begin() else { return };
    scene.write(1);
    let first = scene.back_up();
    scene.write(2);
    let second = scene.back_up();
    scene.write(3);
    let shown = scene.run(&["protect", "restore", "post", &first, "--dry-run"]);
    assert!(shown.contains("mail/store: post-") && shown.contains("logs/log: post-"), "{shown}");
    assert!(scene.refused(&["protect", "restore", "post", &first]).contains("say --yes post"));
    assert!(
        scene
            .refused(&["protect", "restore", "post", "99", "--yes", "post"])
            .contains("there is no backup 99")
    );
    let wrong = scene.refused(&["protect", "restore", "post", &first, "--yes", "mail"]);
    assert!(wrong.contains("\"mail\" is not the name of the set"), "{wrong}");
    scene.expect(3);
    let answer = json_of(&scene.run(&["protect", "restore", "post", &first, "--yes", "post", "--json"]));
    assert_eq!(answer["volumes"].as_array().unwrap().len(), 2, "{answer}");
    scene.readmit();
    scene.expect(1);
    // The same command again finds nothing to do.
    let again = json_of(&scene.run(&["protect", "restore", "post", &first, "--yes", "post", "--json"]));
    assert!(again["volumes"].as_array().unwrap().iter().all(|row| row["made"].is_null()), "{again}");
    // The second backup and the state of before are there still.
    scene.run(&["protect", "restore", "post", &second, "--yes", "post"]);
    scene.readmit();
    scene.expect(2);
    for (pool, left) in [("mail", "store~1"), ("logs", "log~1")] {
        let path = format!("state/pools/{pool}/{left}");
        done(&scene.bench.run(&["volume", "rollback", &path, "--yes", left, "--force"]));
    }
    scene.readmit();
    scene.expect(3);
    // Beside the live ones.
    let cloned = scene.run(&["protect", "restore", "post", &first, "--as", "trial"]);
    assert!(cloned.contains("as mail/store-trial") && cloned.contains("as logs/log-trial"), "{cloned}");
    let taken = scene.refused(&["protect", "restore", "post", &first, "--as", "trial"]);
    assert!(taken.contains("there is a volume") && taken.contains("nothing was cloned"), "{taken}");
    scene.expect(3);
    scene.served.end();
}

#[test]
fn a_restore_is_refused_while_a_host_is_connected_and_completed_after_an_early_end() {
    let Some(scene) = Scene::begin() else { return };
    scene.write(1);
    let first = scene.back_up();
    scene.write(2);
    real::run(0, RealOptions::default(), async |world| {
        let mut client = QemuIo::begin(&scene.bench, &world, "client", scene.served.uri("/log"));
        client.says("read -P 2 0 4k", "read 4096", 1).await;
        let refused = scene.refused(&["protect", "restore", "post", &first, "--yes", "post"]);
        assert!(refused.contains("logs/log is used by NBD clients"), "{refused}");
        client.end().await;
    });
    scene.expect(2);
    until("the client is gone", || {
        !scene.run(&["protect", "restore", "post", &first, "--dry-run"]).contains("used by")
    });
    // As if the first restore had been killed after one volume.
    let snapshot = json_of(&scene.run(&["protect", "list", "post", "--json"]))["backups"][0]["name"].clone();
    let goal = format!("state/pools/mail/store@{}", snapshot.as_str().unwrap());
    done(&scene.bench.run(&["volume", "rollback", &goal, "--yes", "store", "--force"]));
    let answer = json_of(&scene.run(&["protect", "restore", "post", &first, "--yes", "post", "--json"]));
    let made: Vec<bool> =
        answer["volumes"].as_array().unwrap().iter().map(|row| !row["made"].is_null()).collect();
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{answer}");
    scene.readmit();
    scene.expect(1);
    scene.served.end();
}

#[test]
fn hooks_of_the_mail_host_disconnect_it_for_a_restore_and_connect_it_again() {
    let Some(scene) = Scene::begin() else { return };
    scene.write(1);
    let first = scene.back_up();
    scene.write(2);
    // It says what it does, and ends the client whose process id is in a file.
    let script = |name: &str, rest: &str| {
        let folder = scene.bench.path("").display().to_string();
        let text = format!("#!/bin/sh\necho $SPINDLE_PHASE $SPINDLE_SET >> {folder}/ran\n{rest}\n");
        let path = scene.bench.make_file(name, text.replace("DIR", &folder).as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let stop = "[ -e DIR/gentle ] || { echo no mail server is here >&2; exit 5; }\n[ ! -e DIR/client.pid ] || kill $(cat DIR/client.pid)";
    let (before, after) = (script("stop", stop), script("start", "true"));
    let hooks = format!("[protect.restore]\nbefore = ['{before}']\nafter = ['{after}']\n");
    scene.bench.make_file("host.toml", format!("{SITE}{SET}{hooks}").as_bytes());
    let restore = ["protect", "restore", "post", &first, "--yes", "post", "--hooks", "host.toml"];
    let ran = || {
        let ran = fs::read_to_string(scene.bench.path("ran")).unwrap_or_default();
        let _ = fs::remove_file(scene.bench.path("ran"));
        ran
    };
    let refused = scene.refused(&restore);
    assert!(
        refused.contains("restore-before: ") && refused.contains("it exited with 5: no mail server"),
        "{refused}"
    );
    assert_eq!(ran(), "restore-before post\nrestore-after post\n", "what was stopped in part is started");
    scene.expect(2);
    let no_hooks =
        scene.refused(&["protect", "restore", "post", &first, "--yes", "post", "--hooks", "site.toml"]);
    assert!(no_hooks.contains("has no hooks under [protect.restore]"), "{no_hooks}");
    scene.bench.make_file("gentle", b"");
    real::run(0, RealOptions::default(), async |world| {
        // One that the hook does not know.
        let mut client = QemuIo::begin(&scene.bench, &world, "client", scene.served.uri("/log"));
        client.says("read -P 2 0 4k", "read 4096", 1).await;
        let refused = scene.refused(&restore);
        assert!(refused.contains("logs/log is used by NBD clients"), "{refused}");
        assert_eq!(ran(), "restore-before post\nrestore-after post\n");
        scene.bench.make_file("client.pid", client.id().to_string().as_bytes());
        scene.run(&[&restore[..], &["--force"]].concat());
        assert_eq!(ran(), "restore-before post\nrestore-after post\n");
    });
    scene.readmit();
    scene.expect(1);
    let report = json_of(&scene.run(&["protect", "report", "post", "--json"]));
    assert_eq!(
        report["restores"].as_array().unwrap().len(),
        1,
        "those that changed nothing are not noted: {report}"
    );
    scene.served.end();
}
