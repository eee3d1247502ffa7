//! Hosts follow a group to the other site: to the same names, rights and secrets although that site's file has none of them, by
//! discovery and redirection of the portals, and with several addresses in the URIs of our own clients.

use crate::{
    exported::{is_here, judge, judged},
    judged_exports::until,
    spindle::{Bench, answered, is_full_run},
    two_sites::{EXPORT, Site, VOLUME, has_clients, paired},
    two_sites_auto::{Witness, is_protected},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

const HOST: &str = "iqn.2026-11.test:host";
const SECRET: &str = "a-secret-of-a-host";
pub const TARGET: &str = "iqn.2026-11.org.spindle:disks";
/// A target with the volume, for one host that has a secret.
const ROWS: &str = "[[target]]\nname = 'disks'\n[[target.unit]]\nnumber = 3\nvolume = 'mail/disk'\n\
                    [[initiator]]\nname = 'iqn.2026-11.test:host'\nuser = 'host'\nsecret_file = 'secret'\nuses = ['disks']\n";
/// The same for everybody on this machine.
pub const OPEN_ROWS: &str = "[[target]]\nname = 'disks'\n[[target.unit]]\nnumber = 3\nvolume = 'mail/disk'\n";

/// Boston serves the volume by these rows, and Denver's file has no row of it.
fn pair_with(rows: &str) -> (Site, Site) {
    pair_in_mode(rows, "sync")
}

fn pair_in_mode(rows: &str, mode: &str) -> (Site, Site) {
    let (boston, denver) = paired();
    let secret = boston.bench.make_file("secret", format!("{SECRET}\n").as_bytes());
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    boston.write("boston", &format!("{VOLUME}{EXPORT}{rows}"));
    boston.verb("apply site.toml");
    boston.verb(&format!("dr create sg1 mail/disk --to denver --mode {mode}"));
    until("the first copy is complete", || boston.is("primary", "streaming"));
    until("denver could serve", || denver.row()["could_serve"]["could_serve"] == true);
    (boston, denver)
}

impl Site {
    pub fn portal(&self) -> String {
        format!("127.0.0.1:{}", self.iscsi)
    }

    /// The serial number of the unit, as libiscsi finds it by this site's portal; `None` if the login is refused.
    fn serial(&self, secret: &str) -> Option<String> {
        let uri = format!("iscsi://host%{secret}@{}/{TARGET}/3", self.portal());
        let said = judged("iscsi-inq", &["-i", HOST, "-e", "1", "-c", "128", &uri]);
        said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned())
    }

    fn has_no_secret(&self) {
        let status = self.bench.run(&["dr", "status", "--json", "--state", "state"]);
        let events = self.bench.run(&["event", "list", "--json", "--server", "unix:state/spindle.sock"]);
        let digits: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        for said in [self.log(), status.stdout, status.stderr, events.stdout, events.stderr] {
            assert!(!said.contains(SECRET) && !said.contains(&digits), "{said}");
        }
    }
}

#[test]
fn hosts_log_in_at_the_other_site_to_the_same_names_although_its_file_has_none_of_them() {
    if !has_clients() || !is_here("iscsi-inq", "libiscsi-bin") {
        return;
    }
    let (mut boston, mut denver) = pair_with(ROWS);
    let serial = boston.serial(SECRET).expect("boston serves it");
    // A secondary shows the portals of both, and sends the host to the primary.
    for site in [&boston, &denver] {
        let uri = format!("iscsi://host%{SECRET}@{}", site.portal());
        let found = judge("iscsi-ls", &["-i", HOST, &uri]);
        for (portal, group) in [(boston.portal(), 1), (denver.portal(), 2)] {
            assert!(found.contains(&format!("{TARGET} Portal:{portal},{group}")), "{found}");
        }
        let stranger = judged("iscsi-ls", &["-i", "iqn.2026-11.test:stranger", &uri]);
        assert!(!String::from_utf8_lossy(&stranger.stdout).contains(TARGET), "it has no right");
        assert_eq!(site.serial(SECRET).as_ref(), Some(&serial));
        assert_eq!(site.serial("another-secret-of"), None);
    }
    denver.is_closed();
    boston.io(&["write -P 17 0 1M"]);
    until("they are in sync", || boston.row()["is_alone"] == false);
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "streaming"));
    denver.io(&["read -P 17 0 1M"]);
    for site in [&denver, &boston] {
        assert_eq!(site.serial(SECRET).as_ref(), Some(&serial));
        assert_eq!(site.serial("another-secret-of"), None);
    }
    denver.refused("dr remove sg1 --yes sg1", "write them into this site's file");
    // The rows are there after a kill, without the other site's server.
    boston.kill();
    denver.kill();
    denver.start();
    denver.verb("failover sg1 --unplanned --accept-loss all");
    until("denver serves", || denver.row()["serves"] == true);
    assert_eq!(denver.serial(SECRET).as_ref(), Some(&serial));
    assert_eq!(denver.serial("another-secret-of"), None);
    denver.io(&["read -P 17 0 1M"]);
    boston.start();
    until("boston follows", || boston.is("secondary", "following"));
    // A row that its owner takes away is gone at both sites.
    boston.write("boston", &format!("{VOLUME}{EXPORT}"));
    boston.verb("apply site.toml");
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming"));
    until("denver has heard of it", || denver.serial(SECRET).is_none());
    boston.io(&["read -P 17 0 1M"]);
    for site in [&boston, &denver] {
        site.has_no_secret();
    }
}

#[test]
fn a_name_of_the_other_site_stays_its_own_and_the_clash_is_said() {
    if !has_clients() {
        return;
    }
    let (boston, denver) = pair_with("");
    let own =
        "[[volume]]\nname = 'own'\ngroup = 'mail'\ngb = 0.01\n[[nbd]]\nname = 'disk'\nvolume = 'mail/own'\n";
    denver.write("denver", own);
    denver.verb("apply site.toml");
    until("denver could not serve", || denver.row()["could_serve"]["could_serve"] == false);
    let why = "the name of NBD export disk is taken by own";
    assert_eq!(denver.row()["could_serve"]["reasons"][0], why);
    let status = denver.bench.run(&["dr", "status", "--state", "state"]);
    assert!(status.stdout.contains(&format!("could serve now: no, because {why}")), "{}", status.stdout);
    assert_eq!(status.code, Some(1));
    until("the condition is there", || {
        let open = ["event", "conditions", "--server", "unix:state/spindle.sock"];
        denver.bench.run(&open).stdout.contains("sg1 could not serve its hosts here now")
    });
    boston.verb("failover sg1");
    until("denver is primary", || denver.is("primary", "streaming"));
    let info = judge("qemu-img", &["info", "--output", "json", &denver.uri()]);
    assert!(info.contains("10737664") || info.contains("10739712"), "it is the site's own volume: {info}");
    denver.write("denver", &own.replace("name = 'disk'", "name = 'mine'"));
    denver.verb("apply site.toml");
    until("the row is served", || {
        judge("qemu-img", &["info", "--output", "json", &denver.uri()]).contains("134217728")
    });
}

/// Databases under load, over every address of a URI.
pub struct UriLoad<'s> {
    site: &'s Bench,
    child: Child,
}

impl<'s> UriLoad<'s> {
    /// Begins, and waits until transactions run.
    pub fn begin(site: &'s Bench, uri: &str, duration: &str) -> Self {
        let words = ["prove", uri, "--size", "16MiB", "--cache", "4MiB", "--threads", "2"];
        let said = fs::File::create(site.path("said")).unwrap();
        let mut command =
            site.command(&[&words[..], &["--duration", duration, "--report", "through"]].concat());
        let child = command.stdout(Stdio::null()).stderr(said).spawn().unwrap();
        until("the load begins", || site.path("through.run").exists());
        thread::sleep(Duration::from_secs(2));
        Self { site, child }
    }

    /// It has answered without an error, and its databases are whole at this site.
    pub fn end(mut self, survivor: &Site) {
        let code = self.child.wait().unwrap().code();
        let said = fs::read_to_string(self.site.path("said")).unwrap();
        assert!(matches!(code, Some(0 | 1)), "{code:?} {said}");
        let report = fs::read_to_string(self.site.path("through.json")).unwrap();
        assert!(report.contains("read back and right"), "{report}");
        // Its databases are found there, recovered and read once more.
        let again = ["prove", &survivor.uri(), "--attach", "--cache", "4MiB", "--threads", "2"];
        let again = [&again[..], &["--duration", "1s", "--report", "again"]].concat();
        answered(&survivor.bench.run(&again));
        let report = fs::read_to_string(survivor.bench.path("again.json")).unwrap();
        assert!(report.contains("read back and right"), "{report}");
    }
}

/// A load over both addresses goes on through a planned failover, and through one after a kill that loses nothing, as the
/// witness knows.
fn prove_through(rows: &str, uri: impl Fn(&Site, &Site) -> String) {
    let witness = Witness::begin();
    let (boston, mut denver) = pair_in_mode(rows, &witness.mode("2s"));
    let uri = uri(&boston, &denver);
    let load = UriLoad::begin(&boston.bench, &uri, "25s");
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "streaming"));
    until("they are in sync", || denver.row()["is_alone"] == false && is_protected(&denver));
    thread::sleep(Duration::from_secs(1));
    denver.kill();
    until("boston serves", || boston.row()["serves"] == true);
    assert!(boston.row()["withheld"].is_null(), "{}", boston.row());
    load.end(&boston);
}

#[test]
fn prove_over_nbd_goes_on_at_the_site_that_serves() {
    // Plain runs have it over iSCSI.
    if !is_full_run("prove over NBD at two sites") {
        return;
    }
    prove_through("", |boston, denver| {
        let socket = |site: &Site| site.bench.path("socket").display().to_string();
        format!("nbd+unix:///disk?socket={}&socket={}", socket(boston), socket(denver))
    });
}

#[test]
fn prove_over_iscsi_goes_on_at_the_site_that_serves() {
    if !is_full_run("a run over iSCSI that goes on at the other site") {
        return;
    }
    prove_through(OPEN_ROWS, |boston, denver| {
        format!("iscsi://{},{}/{TARGET}/3", boston.portal(), denver.portal())
    });
}
