//! `spindle protect run`: the agent of a mail host, with hooks that are shell scripts, a filesystem on a loop device, kills,
//! and a server that is another process.

use crate::{
    online_verbs::{make_token, served_with_port},
    pool_drives::done,
    sites_served::Served,
    spindle::{Bench, ProgramOutput, json_of},
    storage::{LoopDevice, may_mount},
};
use std::{cell::Cell, fs, os::unix::fs::PermissionsExt, process::Stdio, thread, time::Duration};

const MAIL: &str = "state/pools/mail";
const LOGS: &str = "state/pools/logs";
/// A set over both pools.
const SITE: &str = "
[[group]]
name = 'mail'
[[group]]
name = 'logs'
[[volume]]
name = 'box'
group = 'mail'
[[volume]]
name = 'log'
group = 'logs'
[[protect]]
set = 'post'
volumes = ['mail/box', 'logs/log']
schedules = ['3x1h']
";

/// A mail host beside a server with two pools.
struct MailHost {
    bench: Bench,
    served: Cell<Option<Served>>,
    address: String,
    /// Name of the set.
    name: Cell<&'static str>,
}

impl MailHost {
    fn new(freeze: &str) -> Self {
        let (bench, served, address) = served_with_port();
        done(&bench.run(&["volume", "create", &format!("{MAIL}/box"), "4MiB"]));
        make_token(&bench, "agent", &["--role", "operate"]);
        let host = Self { bench, served: Cell::new(Some(served)), address, name: Cell::new("post") };
        host.set(freeze);
        host
    }

    fn end_server(&self) {
        self.served.take().expect("it runs").end();
    }

    /// The set, frozen so.
    fn set(&self, freeze: &str) {
        let site = SITE.replace("'post'", &format!("'{}'", self.name.get()));
        self.bench.make_file("host.toml", format!("{site}[protect.freeze]\n{freeze}").as_bytes());
    }

    /// A shell script, which notes that it ran.
    fn script(&self, name: &str, text: &str) -> String {
        let text = format!("#!/bin/sh\necho \"{name} $SPINDLE_SET $SPINDLE_PHASE\" >> DIR/ran\n{text}\n");
        let text = text.replace("DIR", &self.bench.path("").display().to_string());
        let path = self.bench.make_file(name, text.as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// Hooks of these texts.
    fn hooks(&self, before: &str, after: &str) -> String {
        let (before, after) = (self.script("before", before), self.script("after", after));
        format!("kind = 'hooks'\nbefore = ['{before}']\nafter = ['{after}']\n")
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let place = ["protect", "run", "host.toml", "--server", &self.address, "--token-file", "agent"];
        [&place[..], &["--catalogues", "sets"], more].concat()
    }

    fn once(&self) -> ProgramOutput {
        self.bench.run(&self.arguments(&["--once"]))
    }

    /// Hooks that ran since the last call.
    fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.bench.path("ran")).unwrap_or_default();
        let _ = fs::remove_file(self.bench.path("ran"));
        text.lines().map(str::to_owned).collect()
    }

    /// Names of the snapshots of both volumes.
    fn snapshots(&self) -> [Vec<String>; 2] {
        [(MAIL, "box"), (LOGS, "log")].map(|(pool, volume)| {
            let shown = json_of(&done(&self.bench.run(&["pool", "show", pool, "--json"])));
            let found = shown["volumes"].as_array().unwrap().iter().find(|known| known["name"] == volume);
            let snapshots = found.unwrap()["snapshots"].as_array().unwrap().iter();
            snapshots.map(|name| name.as_str().unwrap().to_owned()).collect()
        })
    }

    /// The last entry of the catalogue with this word.
    fn last_entry(&self, word: &str) -> serde_json::Value {
        let path = self.bench.path("sets").join(self.name.get()).with_extension("catalogue");
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().map(json_of);
        lines
            .rev()
            .find(|line| !line["entry"][word].is_null())
            .map(|line| line["entry"][word].clone())
            .unwrap()
    }
}

#[test]
fn an_agent_freezes_by_hooks_and_labels_what_it_cut() {
    let host = MailHost::new("");
    host.set(&host.hooks("true", "true"));
    let outlook = json_of(&done(&host.bench.run(&host.arguments(&["--dry-run", "--json"]))));
    assert_eq!(
        (&outlook["due"][0], &outlook["outlook"][0]["backups"]),
        (&"1h".into(), &3.into()),
        "{outlook}"
    );
    assert!(!host.bench.path("sets").exists() && host.ran().is_empty(), "nothing is changed");
    let said = host.once();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("was made: application"), "{}", said.stderr);
    assert_eq!(host.ran(), ["before post freeze", "after post thaw"]);
    let [of_box, of_log] = host.snapshots();
    assert_eq!((of_box.len(), &of_box), (1, &of_log), "both volumes, at one moment");
    let cut = host.last_entry("cut");
    assert_eq!((&cut["label"], cut["points"].as_array().unwrap().len()), (&"application".into(), 2), "{cut}");
    // A restart in the same hour makes none, and hooks do not run.
    let said = host.once();
    assert_eq!((said.code, &*said.stderr, host.ran()), (Some(0), "", vec![]));
    // A catalogue that is lost: nobody takes its backups for their own, and nobody is silent about them.
    fs::remove_file(host.bench.path("sets/post.catalogue")).unwrap();
    let said = host.once();
    assert!(
        said.stderr.contains("2 points are of another catalogue of a set called post"),
        "{}",
        said.stderr
    );
    let rebuild = ["protect", "rebuild", "post", "--server", &host.address, "--token-file", "agent"];
    let rebuilt = host.bench.run(&[&rebuild[..], &["--catalogue", "sets/post.catalogue"]].concat());
    assert_eq!(rebuilt.code, Some(0), "{}", rebuilt.stderr);
    assert!(rebuilt.stdout.contains("was made again, with 1 backups"), "{}", rebuilt.stdout);
    // The note was written before the thaw, and nobody knows any more how that ended.
    let found = host.last_entry("found");
    assert_eq!((&found["label"], &found["backup"]), (&"crash".into(), &1.into()), "{found}");
    // The hook says that the application was thawed before: the cut is nothing that anyone wanted.
    host.name.set("letters");
    host.set(&host.hooks("true", "exit 3"));
    let before = host.snapshots();
    let said = host.once();
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("something else had thawed it before the cut was known"), "{}", said.stderr);
    assert_eq!(host.snapshots(), before, "the cut is gone");
    // A policy that keeps it, and says why it is worth less.
    host.name.set("parcels");
    host.set(&format!("{}uncovered = 'crash'\n", host.hooks("echo queue is busy; exit 4", "true")));
    let said = host.once();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let cut = host.last_entry("cut");
    assert_eq!(cut["label"], "crash");
    assert!(cut["reason"].as_str().unwrap().contains("exited with 4: queue is busy"), "{cut}");
    host.end_server();
}

#[test]
fn an_agent_that_is_killed_in_a_freeze_goes_on_from_its_catalogue() {
    let host = MailHost::new("");
    // The cut comes while the hook that freezes has ended, and the one that thaws hangs.
    host.set(&host.hooks("true", "[ -e DIR/calm ] || sleep 5"));
    let mut agent = host.bench.command(&host.arguments(&[]));
    let mut agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_cut = || host.snapshots().iter().all(|of_volume| of_volume.len() == 1);
    for _ in 0..500 {
        if is_cut() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(is_cut(), "{:?}", host.ran());
    agent.kill().unwrap();
    agent.wait().unwrap();
    let begun = host.last_entry("begun")["name"].as_str().unwrap().to_owned();
    assert_eq!(host.snapshots()[0], [&*begun]);
    host.bench.make_file("calm", b"");
    // Nobody knows whether its freeze held: it goes, and the next one is made.
    let said = host.once();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("the runner ended before it had noted the cut"), "{}", said.stderr);
    let [of_box, of_log] = host.snapshots();
    assert_eq!((of_box.len(), &of_box), (1, &of_log));
    assert_ne!(of_box[0], begun);
    assert_eq!(host.last_entry("cut")["label"], "application");
    host.end_server();
    let said = host.once();
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("see whether 'spindle serve' runs"), "{}", said.stderr);
}

#[test]
fn what_an_agent_cannot_do_is_said_before_the_first_round() {
    let host = MailHost::new("");
    let refused = |freeze: &str, why: &str| {
        host.set(freeze);
        let said = host.once();
        assert_eq!(said.code, Some(2), "{}", said.stderr);
        assert!(said.stderr.contains(why) && said.stderr.lines().count() == 1, "{why}: {}", said.stderr);
    };
    refused("kind = 'none'", "set \"post\" needs no agent: the server of its pools keeps it");
    let hooks = host.hooks("true", "true");
    refused(
        &format!("{hooks}user = 'nobody-of-that-name'"),
        "no user \"nobody-of-that-name\" on this machine",
    );
    refused("kind = 'filesystem'\nmounts = ['/proc']", "/proc is a proc, which has no drive");
    refused("kind = 'filesystem'\nmounts = ['/usr']", "/usr is no mount point");
    host.set(&hooks.replace("before", "bevor"));
    assert!(host.once().stderr.contains("did you mean \"before\"?"));
    make_token(&host.bench, "reader", &["--role", "read"]);
    host.set(&hooks);
    let mut arguments = host.arguments(&["--once"]);
    let place = arguments.iter().position(|word| *word == "agent").unwrap();
    arguments[place] = "reader";
    let said = host.bench.run(&arguments);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("it takes the role operate"), "{}", said.stderr);
    host.end_server();
}

#[test]
fn an_agent_freezes_a_filesystem_and_leaves_nothing_frozen() {
    if !may_mount() {
        return;
    }
    let host = MailHost::new("");
    let Some(device) = LoopDevice::new(64 << 20) else { return };
    device.make_ext4();
    let mounted = device.mount(&host.bench, "maildir");
    let point = mounted.path("").display().to_string().trim_end_matches('/').to_owned();
    // The catalogue may not lie where writes wait.
    host.set(&format!("kind = 'filesystem'\nmounts = ['{point}']"));
    let mut arguments = host.arguments(&["--once"]);
    let inside = format!("{point}/sets");
    let place = arguments.iter().position(|word| *word == "sets").unwrap();
    arguments[place] = &inside;
    let said = host.bench.run(&arguments);
    assert!(said.stderr.contains("the folder of the catalogues"), "{}", said.stderr);
    assert_eq!(said.code, Some(2));
    let said = host.once();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let cut = host.last_entry("cut");
    assert_eq!(cut["label"], "filesystem", "{cut}");
    fs::write(mounted.path("after"), b"writes go on").unwrap();
    host.end_server();
}
