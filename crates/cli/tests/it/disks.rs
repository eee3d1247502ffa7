//! `spindle disks`, over loop devices: free, with a filesystem, mounted, a drive of a pool.

use crate::{
    pool_drives::done,
    spindle::{Bench, json_of},
    storage::{LoopDevice, may_mount},
};
use serde_json::Value;
use std::path::Path;

/// The row of a device.
fn row(bench: &Bench, device: &Path) -> Value {
    let said = bench.run(&["disks", "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let listed = json_of(&said.stdout);
    let is_it = |row: &&Value| row["node"] == device.to_str().unwrap();
    listed["disks"].as_array().unwrap().iter().find(is_it).cloned().expect("it is listed")
}

#[test]
fn a_disk_is_free_until_something_is_on_it_and_the_reason_is_named() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let (Some(first), Some(second)) = (LoopDevice::new(200 << 20), LoopDevice::new(200 << 20)) else {
        return;
    };
    let state = |device: &LoopDevice| {
        let row = row(&bench, device.path());
        (row["state"].as_str().unwrap().to_owned(), row["reason"].as_str().unwrap_or_default().to_owned())
    };
    let free = ("free".to_owned(), String::new());
    assert_eq!((state(&first), state(&second)), (free.clone(), free));
    assert_eq!(row(&bench, first.path())["size_bytes"], 200 << 20);
    let listed = bench.run(&["disks", "--free"]).stdout;
    assert!(listed.contains(first.path().to_str().unwrap()), "{listed}");

    first.make_ext4();
    assert_eq!(state(&first), ("holds-data".to_owned(), "holds ext4".to_owned()));
    let mount = first.mount(&bench, "mail");
    assert_eq!(state(&first), ("in-use".to_owned(), "mounted at DIR/mail".to_owned()));
    drop(mount);

    let device = second.path().to_str().unwrap();
    done(&bench.run(&["pool", "create", "post", "--device", device]));
    let (word, reason) = state(&second);
    assert_eq!(word, "pool-drive");
    assert!(reason.starts_with("drive of the pool \"post\" ("), "{reason}");
    let pool = row(&bench, second.path())["pool"].as_str().unwrap().to_owned();
    assert!(reason.contains(&pool), "{pool}");
    // The same words as those with which a pool refuses it.
    let refused = bench.refused(&["pool", "create", "other", "--device", device]);
    assert!(refused.contains(&format!("is not empty: it is a {reason}")), "{refused}");
    let listed = bench.run(&["disks", "--free"]).stdout;
    assert!(!listed.contains(device), "{listed}");
}
