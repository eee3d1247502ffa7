//! A failover rehearsed at the secondary, while the primary is written: databases that recover, a damaged log, checks of a
//! person's own, and rehearsals that are killed.

use crate::{
    exported::is_here,
    judged_exports::until,
    spindle::{ProgramOutput, is_full_run, json_of},
    two_sites::{Site, pair},
};
use nbd::{Client, ClientOptions, NbdUri};
use std::{
    fs,
    process::{Child, Stdio},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
use world::{
    BlockDevice, Buffer, ByteOffset, Directory, Stability, World,
    extent_directory::ExtentDirectory,
    real::{self, RealOptions, Sockets},
};

pub const SHAPE: [&str; 6] = ["--size", "16MiB", "--cache", "4MiB", "--threads", "2"];

impl Site {
    pub fn said(&self, verb: &[&str]) -> ProgramOutput {
        self.bench.run(&[verb, &["--state", "state"]].concat())
    }

    /// The answer of a rehearsal, with its exit code.
    pub fn rehearsed(&self, options: &[&str]) -> (Option<i32>, serde_json::Value) {
        let said = self.said(&[&["failover", "sg1", "--rehearse", "--json"], options].concat());
        assert!(said.code != Some(2), "{}", said.stderr);
        (said.code, json_of(&said.stdout))
    }

    pub fn starts(&self, verb: &[&str]) -> Child {
        let mut command = self.bench.command(&[verb, &["--state", "state"]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Volumes of the pool that a rehearsal made.
    fn clones(&self) -> Vec<String> {
        self.clones_in("mail")
    }

    pub fn clones_in(&self, pool: &str) -> Vec<String> {
        let said = self.bench.run(&["pool", "show", pool, "--json", "--server", "unix:state/spindle.sock"]);
        let all = said.stdout.split('"').filter(|word| word.contains("-rehearsal"));
        all.map(str::to_owned).collect()
    }

    fn prove(&self, options: &[&str]) -> Child {
        let uri = self.uri();
        let words = [&["prove", &uri], &SHAPE[..], options].concat();
        self.bench.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

fn are_in_sync((boston, denver): (&Site, &Site)) {
    until("they are in sync", || {
        let (primary, secondary) = (boston.row(), denver.row());
        primary["state"] == "streaming"
            && primary["is_alone"] == false
            && primary["unconfirmed_bytes"] == 0
            && secondary["state"] == "following"
    });
}

/// Overwrites a segment in the middle of the longest log file on a volume. Returns the name of the file.
pub fn damage_log(uri: &str) -> String {
    let uri: NbdUri = uri.parse().unwrap();
    real::run(7, RealOptions::default(), async |world: World| {
        let client = Client::connect(&world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap();
        let device: Rc<dyn BlockDevice> = Rc::new(client);
        let files = ExtentDirectory::open(Rc::clone(&device)).await.unwrap();
        let (mut longest, mut target) = (0, None);
        for entry in files.list().await.unwrap() {
            if !entry.name.starts_with("E00") || !entry.name.ends_with(".log") || entry.name.contains("tmp") {
                continue;
            }
            let file = files.open(&entry.name).await.unwrap();
            let length = file.geometry().size.0 as usize / 4096 * 4096;
            let bytes = file.read(ByteOffset(0), vec![Buffer::zeroed(length)]).await.unwrap();
            let used = bytes[0].iter().rposition(|&byte| byte != 0).unwrap_or_default();
            if used > longest {
                (longest, target) = (used, Some((entry.name, file)));
            }
        }
        let (name, file) = target.expect("there is a log");
        let middle = longest / 2 / 4096 * 4096;
        let noise = vec![Arc::new(Buffer::copy_of(&[0xA5; 4096]))];
        file.write(ByteOffset(middle as u64), noise, Stability::Stable).await.unwrap();
        device.flush().await.unwrap();
        name
    })
}

#[test]
fn a_rehearsal_recovers_the_databases_while_the_primary_is_written_and_finds_a_damaged_log() {
    if !is_full_run("a rehearsal under load") {
        return;
    }
    let (boston, denver) = pair("sync");
    boston.prove(&["--duration", "1s", "--report", "made"]).wait().unwrap();
    are_in_sync((&boston, &denver));
    let (code, answer) = denver.rehearsed(&["--report", "drill.html"]);
    assert_eq!((code, &answer["outcome"]), (Some(0), &"passed".into()), "{answer}");
    let steps: Vec<&str> =
        answer["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(steps.len(), 5, "{steps:?}");
    assert_eq!(answer["steps"][2]["published"]["minutes_max"], 5, "{answer}");
    let files = answer["files"].as_array().unwrap();
    // The last log file may have just begun.
    let good = |index: usize| files[index]["good"].as_u64().unwrap();
    assert!(files.len() == 2 && good(0) > 10 && good(1) > 0, "{answer}");
    let page = fs::read_to_string(denver.bench.path("drill.html")).unwrap();
    assert!(page.contains("Rehearsal of the failover of sg1") && page.contains("3–5 min"), "{page}");
    assert_eq!(denver.row()["last_rehearsal"]["outcome"], "passed");
    let status = denver.said(&["dr", "status"]);
    assert!(status.stdout.contains("rehearsed"), "{}", status.stdout);
    assert_eq!(boston.row()["last_rehearsal"], serde_json::Value::Null);
    // While a load goes on: the log has to be replayed, and the group stays in sync.
    let mut load = boston.prove(&["--attach", "--duration", "60s", "--report", "load"]);
    until("the load begins", || boston.bench.path("load.run").exists());
    std::thread::sleep(Duration::from_secs(2));
    let rounds = if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 2 };
    for _ in 0..rounds {
        let (code, answer) = denver.rehearsed(&[]);
        assert_eq!(code, Some(0), "{answer}");
        let headline = answer["headline"].as_str().unwrap();
        assert!(!headline.contains("(no log") && !headline.contains("(0 log"), "{headline}");
        assert_eq!(denver.clones(), [""; 0]);
    }
    assert_eq!((&boston.row()["state"], &boston.row()["is_alone"]), (&"streaming".into(), &false.into()));
    load.kill().unwrap();
    load.wait().unwrap();
    let name = damage_log(&boston.uri());
    are_in_sync((&boston, &denver));
    let (code, answer) = denver.rehearsed(&[]);
    assert_eq!((code, &answer["outcome"]), (Some(1), &"failed".into()), "{answer}");
    assert!(answer["problems"][0].as_str().unwrap().contains(&name), "{name}: {answer}");
    assert_eq!(denver.row()["last_rehearsal"]["outcome"], "failed");
    assert_eq!(denver.clones(), [""; 0]);
    boston.verb("failover sg1");
    until("denver serves", || denver.row()["serves"] == true);
}

#[test]
fn a_check_of_ones_own_judges_and_refusals_have_one_line() {
    if !is_here("qemu-img", "qemu-utils") {
        return;
    }
    let (boston, denver) = pair("async");
    until("denver follows", || denver.row()["state"] == "following");
    let refused = |site: &Site, options: &[&str], why: &str| {
        let said = site.said(&[&["failover", "sg1"], options].concat());
        assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
        let last = said.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("spindle: ") && last.contains(why), "{}", said.stderr);
        assert_eq!(site.clones(), [""; 0]);
    };
    refused(&denver, &["--rehearse"], "no database of ours was found on these volumes: disk is blank");
    refused(&boston, &["--rehearse"], "is primary here");
    refused(&denver, &["--check", "true"], "--rehearse");
    refused(&denver, &["--rehearse", "--unplanned"], "--unplanned");
    refused(&denver, &["--rehearse", "--report", "none/drill.html"], "none does not exist");
    assert_eq!(denver.row()["last_rehearsal"], serde_json::Value::Null);
    let check = "test \"$SPINDLE_GROUP\" = sg1 && test \"$1\" = \"$SPINDLE_URI_1\" && qemu-img info \"$1\" | grep 'virtual size'";
    let (code, answer) = denver.rehearsed(&["--check", check]);
    assert_eq!(code, Some(0), "{answer}");
    assert!(answer["command_output"].as_str().unwrap().contains("virtual size"), "{answer}");
    // The clone is written, and the replica is not.
    let write = "qemu-io -f raw -t none -c 'write -P 9 0 4k' \"$1\"";
    assert_eq!(denver.rehearsed(&["--check", write]).0, Some(0));
    let (code, answer) = denver.rehearsed(&["--check", "echo so not; exit 7"]);
    assert_eq!((code, &answer["command_output"]), (Some(1), &"so not".into()), "{answer}");
    assert!(answer["problems"][0].as_str().unwrap().contains("ended with 7"), "{answer}");
    let (code, answer) = denver.rehearsed(&["--check", "sleep 60", "--within", "1s"]);
    assert_eq!(code, Some(1), "{answer}");
    assert_eq!(denver.row()["last_rehearsal"]["outcome"], "failed");
    assert_eq!((denver.clones(), &boston.row()["state"]), (Vec::new(), &"streaming".into()));
    boston.verb("failover sg1");
    until("denver serves", || denver.row()["serves"] == true);
    denver.io(&["read -P 0 0 4k"]);
}

#[test]
fn a_rehearsal_that_is_killed_leaves_nothing() {
    if !is_full_run("rehearsals that are killed") {
        return;
    }
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let (boston, mut denver) = pair("sync");
    let hangs = ["failover", "sg1", "--rehearse", "--check", "sleep 15"];
    let mut verb = denver.starts(&hangs);
    until("the clone is there", || !denver.clones().is_empty());
    denver.refused("failover sg1 --rehearse", "is being rehearsed already");
    assert!(denver.row()["rehearsing_since"].is_string(), "{}", denver.row());
    let begun = Instant::now();
    verb.kill().unwrap();
    verb.wait().unwrap();
    until("the clone goes", || denver.clones().is_empty());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(denver.row()["rehearsing_since"].is_null(), "{}", denver.row());
    // The server is killed: it deletes what it finds when it is started again.
    let mut verb = denver.starts(&["failover", "sg1", "--rehearse", "--check", "sleep 5"]);
    until("the clone is there", || !denver.clones().is_empty());
    denver.kill();
    denver.start();
    until("the clone goes", || denver.clones().is_empty());
    are_in_sync((&boston, &denver));
    assert_eq!(verb.wait().unwrap().code(), Some(2), "its clones were gone");
    assert_eq!(denver.row()["last_rehearsal"], serde_json::Value::Null);
    // It has all of the last write again once the next one has come; then twice without a write between.
    boston.io(&["write -P 3 0 4k"]);
    are_in_sync((&boston, &denver));
    denver.verb("failover sg1 --rehearse --check true");
    denver.verb("failover sg1 --rehearse --check true");
}
