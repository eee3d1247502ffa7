//! A group with volumes in two pools whose failover is rehearsed, and whose copy is read: databases in one pool and logs in
//! the other are shown as of one moment, while the primary is written.

use crate::{
    exported::{judge, judged},
    judged_exports::until,
    rehearsals::{SHAPE, damage_log},
    spindle::is_full_run,
    two_sites::{Site, has_clients, paired_with_both},
    two_sites_pools::{LOGS, OrderedHost, VOLUMES, are, are_together, rows, writes_in},
};
use nbd::{Client, ClientOptions, NbdUri};
use std::{
    fs,
    process::{Child, Stdio},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    real::{self, RealOptions, Sockets},
};

const LOOKS: &str = "[[nbd]]\nname = 'look'\nvolume = 'mail/disk@replica'\n\
                     [[nbd]]\nname = 'look-log'\nvolume = 'logs/log@replica'\n";

/// Both sites with a group of both pools, which is in sync.
fn joint_pair(more_there: &str) -> (Site, Site) {
    let (boston, denver) = paired_with_both((&format!("{LOGS}{VOLUMES}"), LOGS));
    boston.verb("dr create sg1 mail/disk logs/log --to denver --mode sync");
    until("both parts are in sync", || are_together(&boston) && are(&denver, "secondary", "following"));
    denver.write("denver", &format!("{LOGS}{VOLUMES}{more_there}"));
    denver.verb("apply site.toml");
    (boston, denver)
}

fn clones(site: &Site) -> Vec<String> {
    ["mail", "logs"].iter().flat_map(|pool| site.clones_in(pool)).collect()
}

/// A check that both clones have what it says at their beginning.
fn reads(disk: u8, log: u8) -> String {
    let read = |uri: u8, pattern: u8| {
        format!(
            "said=$(qemu-io -f raw -t none -r -c 'read -P {pattern} 0 4k' \"$SPINDLE_URI_{uri}\"); \
             case \"$said\" in *Pattern*) exit 1;; *4096/4096*) ;; *) exit 2;; esac"
        )
    };
    format!("{}; {}", read(1, disk), read(2, log))
}

fn prove(site: &Site, options: &[&str]) -> Child {
    let (disk, log) = (site.uri(), site.uri_of("log"));
    let words = [&["prove", &disk, "--logs", &log], &SHAPE[..], options].concat();
    site.bench.command(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn databases_whose_logs_lie_in_another_pool_are_recovered_and_a_damaged_log_is_found() {
    if !is_full_run("a rehearsal over two pools under load") {
        return;
    }
    let (boston, denver) = joint_pair("");
    prove(&boston, &["--duration", "1s", "--report", "made"]).wait().unwrap();
    until("both parts are in sync", || are_together(&boston));
    let (code, answer) = denver.rehearsed(&["--report", "drill.html"]);
    assert_eq!((code, &answer["outcome"]), (Some(0), &"passed".into()), "{answer}");
    assert_eq!(answer["volumes"], serde_json::json!(["mail/disk", "logs/log"]), "{answer}");
    assert!(fs::read_to_string(denver.bench.path("drill.html")).unwrap().contains("logs/log"));
    assert!(
        rows(&denver).iter().all(|row| row["last_rehearsal"]["outcome"] == "passed"),
        "{:?}",
        rows(&denver)
    );
    let mut load = prove(&boston, &["--attach", "--duration", "120s", "--report", "load"]);
    until("the load begins", || boston.bench.path("load.run").exists());
    thread::sleep(Duration::from_secs(2));
    for _ in 0..20 {
        let (code, answer) = denver.rehearsed(&[]);
        assert_eq!(code, Some(0), "{answer}");
        let headline = answer["headline"].as_str().unwrap();
        assert!(!headline.contains("(no log") && !headline.contains("(0 log"), "{headline}");
        assert_eq!(clones(&denver), [""; 0]);
    }
    assert!(are_together(&boston), "the primary goes on in sync: {:?}", rows(&boston));
    load.kill().unwrap();
    load.wait().unwrap();
    let name = damage_log(&boston.uri_of("log"));
    until("both parts are in sync", || are_together(&boston));
    boston.wait_until_confirmed();
    let (code, answer) = denver.rehearsed(&[]);
    assert_eq!((code, &answer["outcome"]), (Some(1), &"failed".into()), "{answer}");
    assert!(answer["problems"][0].as_str().unwrap().contains(&name), "{name}: {answer}");
    assert!(rows(&denver).iter().all(|row| row["last_rehearsal"]["outcome"] == "failed"));
    assert_eq!(clones(&denver), [""; 0]);
}

#[test]
fn a_check_of_ones_own_gets_both_pools_as_of_one_moment_also_while_the_parts_are_apart() {
    if !has_clients() {
        return;
    }
    let (boston, denver) = joint_pair("");
    boston.io(&["write -P 17 0 4k"]);
    boston.io_of("log", &["write -P 27 0 4k"]);
    until("both parts are in sync", || are_together(&boston));
    boston.refused("failover sg1 --rehearse", "is primary here");
    denver.refused("failover sg1 --rehearse", "no database of ours was found on these volumes");
    let (code, answer) = denver.rehearsed(&["--check", &reads(17, 27)]);
    assert_eq!(code, Some(0), "{answer}");
    assert_eq!(denver.rehearsed(&["--check", &reads(17, 28)]).0, Some(1), "the check judges");
    // A snapshot of both pools at one moment is a state that can be rehearsed.
    boston.verb("volume snapshot mail/disk logs/log --as before");
    // Apart, the other site shows the state at which they came apart.
    boston.verb("dr suspend sg1");
    boston.io(&["write -P 18 0 4k"]);
    boston.io_of("log", &["write -P 28 0 4k"]);
    let (code, answer) = denver.rehearsed(&["--check", &reads(17, 27)]);
    assert_eq!(code, Some(0), "{answer}");
    boston.verb("dr resume sg1");
    until("the parts are together again", || are_together(&boston));
    let (code, answer) = denver.rehearsed(&["--check", &reads(18, 28)]);
    assert_eq!(code, Some(0), "{answer}");
    let (code, answer) = denver.rehearsed(&["--at", "before", "--check", &reads(17, 27)]);
    assert_eq!(code, Some(0), "{answer}");
    assert_eq!(clones(&denver), [""; 0]);
    boston.verb("failover sg1");
    until("denver serves", || are_together(&denver));
    denver.io(&["read -P 18 0 4k"]);
}

#[test]
fn a_rehearsal_of_two_pools_that_is_killed_leaves_nothing_in_either() {
    if !is_full_run("rehearsals of two pools that are killed") {
        return;
    }
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = joint_pair("");
    let hangs = ["failover", "sg1", "--rehearse", "--check", "sleep 15"];
    let mut verb = denver.starts(&hangs);
    until("the clones are there", || clones(&denver).len() == 2);
    denver.refused("failover sg1 --rehearse", "is being rehearsed already");
    let begun = Instant::now();
    verb.kill().unwrap();
    verb.wait().unwrap();
    until("the clones go", || clones(&denver).is_empty());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // The server is killed: it deletes what it finds when it is started again.
    let mut verb = denver.starts(&["failover", "sg1", "--rehearse", "--check", "sleep 5"]);
    until("the clones are there", || clones(&denver).len() == 2);
    denver.kill();
    denver.start();
    until("the clones go", || clones(&denver).is_empty());
    assert_eq!(verb.wait().unwrap().code(), Some(2), "its clones were gone");
    until("both parts are in sync", || are_together(&boston) && are(&denver, "secondary", "following"));
    // It has all of the last write again once the next one has come.
    boston.io(&["write -P 3 0 4k"]);
    boston.io_of("log", &["write -P 4 0 4k"]);
    until("both parts are in sync", || are_together(&boston));
    denver.verb("failover sg1 --rehearse --check true");
    denver.verb("failover sg1 --rehearse --check true");
}

async fn first_byte(client: &Client) -> u8 {
    client.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap()[0][0]
}

async fn reader(world: &World, site: &Site, export: &str) -> Client {
    let uri: NbdUri = site.uri_of(export).parse().unwrap();
    Client::connect(world, Rc::new(Sockets), uri, ClientOptions::default()).await.unwrap()
}

/// Volumes of both pools that are there for readers alone.
fn views(site: &Site) -> usize {
    let of = |pool: &&str| {
        let said =
            site.bench.run(&["pool", "show", pool, "--json", "--server", "unix:state/spindle.sock"]).stdout;
        said.split('"').filter(|word| word.ends_with("-replica")).count()
    };
    ["mail", "logs"].iter().map(of).sum()
}

#[test]
fn readers_of_both_pools_see_one_cut_and_later_readers_a_newer_one() {
    if !has_clients() {
        return;
    }
    let (boston, mut denver) = joint_pair(LOOKS);
    boston.io(&["write -P 17 0 4k"]);
    boston.io_of("log", &["write -P 27 0 4k"]);
    assert_eq!(views(&denver), 0, "nobody reads");
    real::run(1, RealOptions::default(), async |world: World| {
        let one = reader(&world, &denver, "look").await;
        assert_eq!(first_byte(&one).await, 17);
        boston.io(&["write -P 18 0 4k"]);
        boston.io_of("log", &["write -P 28 0 4k"]);
        let other = reader(&world, &denver, "look-log").await;
        assert_eq!((first_byte(&one).await, first_byte(&other).await), (17, 27), "one cut for all readers");
        // The reader of one pool keeps the cut in both.
        drop(other);
        thread::sleep(Duration::from_secs(3));
        let other = reader(&world, &denver, "look-log").await;
        assert_eq!(first_byte(&other).await, 27);
    });
    assert!(views(&denver) >= 2);
    until("nothing is kept for readers that are gone", || views(&denver) == 0);
    // A killed server leaves nothing.
    real::run(1, RealOptions::default(), async |world: World| {
        first_byte(&reader(&world, &denver, "look").await).await;
    });
    denver.kill();
    denver.start();
    until("what it left is deleted", || views(&denver) == 0);
    until("it follows again", || are_together(&boston) && are(&denver, "secondary", "following"));
    // A primary's volume is read as itself.
    boston.verb("failover sg1");
    until("denver serves", || are_together(&denver));
    assert!(!judged("qemu-img", &["info", &denver.uri_of("look")]).status.success());
    judge("qemu-img", &["info", &denver.uri()]);
}

#[test]
fn both_pools_are_read_as_of_one_moment_whatever_is_written_meanwhile() {
    const WRITES: u64 = 10_000;
    if !is_full_run("readers of two pools under load") {
        return;
    }
    if !has_clients() {
        return;
    }
    let (boston, denver) = joint_pair(LOOKS);
    let host = OrderedHost::at(&boston, 0);
    let writing = thread::spawn(move || host.write(WRITES));
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(100));
        let read = real::run(1, RealOptions::default(), async |world: World| {
            // The view stays open from the first copy to the second one.
            let reader = reader(&world, &denver, "look").await;
            first_byte(&reader).await;
            writes_in(&denver, ["look", "look-log"])
        });
        println!("{read} writes are read");
        until("nothing is kept for readers that are gone", || views(&denver) == 0);
    }
    assert_eq!(writing.join().unwrap(), WRITES);
    boston.wait_until_confirmed();
    assert_eq!(writes_in(&denver, ["look", "look-log"]), WRITES);
}
