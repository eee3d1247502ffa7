//! Backups of a set proven through a server: databases that `prove` made on a volume, checked in the snapshots of backups.

use crate::{
    exported::{is_here, judge},
    sites_served::Served,
    spindle::{Bench, ProgramOutput, answered, json_of, short},
};
use serde_json::Value;

const SITE: &str = "
[serve]
nbd = '127.0.0.1:0'
[[group]]
name = 'mail'
drives = 2
drive_gb = 0.5
[[volume]]
name = 'store'
group = 'mail'
gb = 0.125
[[nbd]]
name = 'store'
volume = 'store'
[[protect]]
set = 'post'
volumes = ['store']
schedules = ['24x1h']
";

fn run(bench: &Bench, arguments: &[&str]) -> ProgramOutput {
    bench.run(&[arguments, &["--state", "state", "--json"]].concat())
}

fn back_up(bench: &Bench) -> u64 {
    let made = run(bench, &["protect", "now", "post", "--hold", "test"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    json_of(&made.stdout)["number"].as_u64().unwrap()
}

/// The row of a backup in the list.
fn row(bench: &Bench, number: u64) -> Value {
    let listed = json_of(&run(bench, &["protect", "list", "post"]).stdout);
    let rows = listed["backups"].as_array().unwrap();
    rows.iter().find(|row| row["number"] == number).unwrap().clone()
}

#[test]
fn a_backup_is_proven_or_damaged_by_what_its_snapshots_hold() {
    if !is_here("qemu-io", "qemu-utils") {
        return;
    }
    let bench = Bench::new();
    bench.make_file("site.toml", SITE.as_bytes());
    let served = Served::begin(&bench);
    answered(&bench.run(&short(&[served.uri("/store")])));
    let good = back_up(&bench);
    assert_eq!(row(&bench, good)["proof"], "unproven");
    for level in ["pages", "recover"] {
        let verified = run(&bench, &["protect", "verify", "post", &good.to_string(), "--level", level]);
        assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
        let answer = json_of(&verified.stdout);
        assert_eq!((&answer["result"], &answer["is_noted"]), (&"proven".into(), &true.into()), "{answer}");
        assert_eq!(
            (&row(&bench, good)["proof"], &row(&bench, good)["verified_level"]),
            (&"proven".into(), &level.into())
        );
    }
    // Every fourth MiB of the volume is another's.
    let writes: Vec<String> = (8..120).step_by(4).map(|at| format!("write -P 238 {at}M 64k")).collect();
    let commands = writes.iter().flat_map(|write| ["-c", write]);
    let arguments: Vec<&str> =
        ["-f", "raw"].into_iter().chain(commands).chain([served.uri("/store")]).collect();
    judge("qemu-io", &arguments);
    let bad = back_up(&bench);
    let verified = run(&bench, &["protect", "verify", "post"]);
    assert_eq!(verified.code, Some(1), "{}{}", verified.stdout, verified.stderr);
    let answer = json_of(&verified.stdout);
    assert_eq!(answer["result"], "damaged", "{answer}");
    assert!(!answer["findings"].as_array().unwrap().is_empty(), "{answer}");
    assert_eq!(
        (&row(&bench, bad)["proof"], &row(&bench, good)["proof"]),
        (&"damaged".into(), &"proven".into())
    );
    // The proven one is the last of its kind.
    let number = &*good.to_string();
    for why in ["held: test", "last proven one"] {
        let refused = run(&bench, &["protect", "delete", "post", number]);
        assert_eq!(refused.code, Some(2), "{}", refused.stdout);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
        run(&bench, &["protect", "release", "post", number, "test"]);
    }
    // Nothing is left of it.
    let exports = json_of(&run(&bench, &["export", "list"]).stdout);
    assert_eq!(exports.as_array().unwrap().len(), 1, "{exports}");
    let none = run(&bench, &["protect", "verify", "post", "99"]);
    assert!(none.stderr.contains("there is no backup 99"), "{}", none.stderr);
    served.end();
}
