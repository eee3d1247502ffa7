//! Drives of a pool are levelled, and room for lost drives is kept.

use crate::{
    exported::noise,
    pool_drives::{done, has_letters, json, refused, used_pool},
    pool_verbs::while_exported,
    spindle::Bench,
};
use expect_test::expect;
use std::{fs, sync::Arc};
use world::{BlockDevice, Buffer, ByteOffset, Stability};

const MIB: usize = 1 << 20;

#[test]
fn added_drives_get_their_share_by_a_verb() {
    let bench = Bench::new();
    used_pool(&bench, "3", 100);
    let said = done(&bench.run(&["pool", "add-drive", "mail", "--size", "200MiB"]));
    let advice = "its data will be levelled over all drives while the pool is exported; 'spindle pool level mail' does it now";
    assert!(said.contains(advice), "{said}");
    let said = json(&bench, &["pool", "level", "mail"]);
    assert_eq!(said["outcome"], "level", "{said}");
    let percent = |key: &str| said[key].as_f64().unwrap();
    assert!(percent("fullest_percent") - percent("emptiest_percent") <= 5.0, "{said}");
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!((&shown["levelling"]["is_uneven"], &shown["degraded_segments"]), (&false.into(), &0.into()));
    // An opening takes a few slots of its own.
    let again = json(&bench, &["pool", "level", "mail"]);
    assert!(again["outcome"] == "level" && again["moved_bytes"].as_u64().unwrap() <= 8 << 20, "{again}");
    has_letters(&bench, 100);
    refused(&bench, &["pool", "level", "nobody"], "nobody");
}

#[test]
fn pools_of_eight_drives_keep_room_for_one_and_say_so() {
    let bench = Bench::new();
    let create = |arguments: &[&str]| {
        let said = done(&bench.run(&[&["pool", "create"], arguments].concat()));
        fs::remove_dir_all(bench.path(arguments[0])).unwrap();
        said
    };
    let said = create(&["mail", "--size", "60MiB", "--drives", "8"]);
    expect![[r#"
        mail: a pool of 8 drives, 480 MiB together, everything twice
          sparing single: room for a lost drive is kept on all drives; change it with 'spindle pool set'
    "#]]
    .assert_eq(&said);
    let said = create(&["mail", "--size", "60MiB", "--drives", "8", "--sparing", "none"]);
    expect![[r#"
        mail: a pool of 8 drives, 480 MiB together, everything twice
    "#]]
    .assert_eq(&said);
    let said = create(&["mail", "--size", "60MiB", "--drives", "4", "--sparing", "double"]);
    expect![[r#"
        mail: a pool of 4 drives, 240 MiB together, everything twice
          sparing double: room for two lost drives is kept on all drives; change it with 'spindle pool set'
    "#]]
    .assert_eq(&said);
    refused(
        &bench,
        &["pool", "create", "mail", "--size", "60MiB", "--sparing", "double"],
        "sparing double takes 4 drives with 2 copies, and 3 were given",
    );
    refused(&bench, &["pool", "create", "mail", "--size", "60MiB", "--sparing", "triple"], "triple");
    assert!(!bench.path("mail").exists(), "nothing was made");
}

#[test]
fn a_lost_drive_takes_the_room_that_was_kept_and_another_one_gives_it_back() {
    let bench = Bench::new();
    used_pool(&bench, "4", 24);
    let before = json(&bench, &["pool", "show", "mail"]);
    assert_eq!(before["sparing"]["level"], "none", "{before}");
    let said = json(&bench, &["pool", "set", "mail", "--sparing", "single"]);
    assert_eq!((&said["sparing"]["level"], &said["sparing"]["kept_drives"]), (&"single".into(), &1.into()));
    assert!(said["usable_bytes"].as_u64() < before["usable_bytes"].as_u64(), "{said}");
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("sparing single: room for a lost drive is kept ("), "{shown}");
    refused(&bench, &["pool", "set", "mail"], "--sparing");
    fs::remove_file(bench.path("mail/drive-3.spindle")).unwrap();
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    assert!(shown.contains("sparing single, spent: room for no lost drive is kept; add a drive"), "{shown}");
    let added = json(&bench, &["pool", "add-drive", "mail", "--size", "200MiB"]);
    assert_eq!(
        (&added["degraded_segments"], &added["sparing"]["kept_drives"]),
        (&0.into(), &1.into()),
        "{added}"
    );
    refused(
        &bench,
        &["pool", "set", "mail", "--sparing", "double", "--device", "/dev/null"],
        "unexpected argument",
    );
    let said = json(&bench, &["pool", "set", "mail", "--sparing", "double"]);
    assert_eq!(said["sparing"]["kept_drives"], 2, "{said}");
    refused(
        &bench,
        &["pool", "retire", "mail", "drive-1.spindle"],
        "'spindle pool set mail --sparing none' gives up the room for lost drives",
    );
    has_letters(&bench, 24);
}

#[test]
fn room_that_data_needs_is_not_kept_and_the_message_has_the_bytes_that_lack() {
    let bench = Bench::new();
    used_pool(&bench, "3", 100);
    refused(&bench, &["pool", "set", "mail", "--sparing", "double"], "3 drives are too few: 4 are needed");
    // A snapshot keeps what is overwritten.
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    while_exported(&bench, async |client| {
        for at in 0..90 {
            let data = vec![Arc::new(Buffer::copy_of(&noise(MIB, 100 + at)))];
            client.write(ByteOffset(at * MIB as u64), data, Stability::Stable).await.unwrap();
        }
    });
    let set = ["pool", "set", "mail", "--sparing", "single"];
    refused(&bench, &set, "MiB of data have no room beside that; add a drive, delete data or snapshots");
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!(shown["sparing"], serde_json::json!({ "level": "none", "kept_drives": 0, "kept_bytes": 0 }));
    done(&bench.run(&["volume", "delete", "mail/store@monday", "--yes", "monday"]));
    done(&bench.run(&set));
}
