//! Failure sets of a pool: made at creation, shown with what may be lost, and set later.

use crate::{
    pool_drives::{done, has_letters, json, refused, used_pool},
    spindle::Bench,
};
use expect_test::expect;
use std::fs;

/// The lines of `pool show` about failure sets.
fn set_lines(bench: &Bench) -> String {
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    let lines = shown.lines().map(str::trim);
    lines.filter(|line| line.starts_with("set ") || line.starts_with("failure sets")).fold(
        String::new(),
        |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        },
    )
}

#[test]
fn pools_of_twelve_drives_have_sets_and_say_what_may_be_lost() {
    let bench = Bench::new();
    let create = ["pool", "create", "mail", "--size", "60MiB", "--drives", "12", "--sparing", "none"];
    let shelves = ["--domain", "one=1,2,3,4,5,6", "--domain", "two=7,8,9,10,11,12"];
    let said = done(&bench.run(&[&create[..], &shelves].concat()));
    expect![[r#"
        mail: a pool of 12 drives, 720 MiB together, everything twice
          2 failure sets: all copies of a segment lie in one; change it with 'spindle pool set'
    "#]]
    .assert_eq(&said);
    expect![[r#"
        set 1: drive-4.spindle, drive-5.spindle, drive-6.spindle, drive-7.spindle, drive-8.spindle, drive-9.spindle
        set 2: drive-1.spindle, drive-2.spindle, drive-3.spindle, drive-10.spindle, drive-11.spindle, drive-12.spindle
        failure sets: mirrored data survives the loss of 2 drives at once unless they are in one set: 1 of each set, 2 together
    "#]].assert_eq(&set_lines(&bench));
    let shown = json(&bench, &["pool", "show", "mail"]);
    let sets = &shown["failure_sets"];
    assert_eq!((&sets["wanted"], &sets["across_segments"]), (&true.into(), &0.into()), "{shown}");
    assert_eq!((&sets["losses_per_set"], &sets["losses_at_once"]), (&1.into(), &2.into()), "{shown}");
    assert_eq!(sets["sets"].as_array().unwrap().len(), 2, "{shown}");
    let of_drive = |index: usize| shown["drives"][index]["set"].as_u64().unwrap();
    let of_shelf = |first: usize| (first..first + 6).filter(|&index| of_drive(index) == 1).count();
    assert_eq!((of_shelf(0), of_shelf(6)), (3, 3), "half of each shelf in each set: {shown}");
    // One of each set is taken out at once.
    for set in [1, 2] {
        let index = (0..12).find(|&index| of_drive(index) == set).unwrap();
        fs::remove_file(bench.path(&format!("mail/drive-{}.spindle", index + 1))).unwrap();
    }
    let shown = json(&bench, &["pool", "show", "mail"]);
    assert_eq!((&shown["damaged"], &shown["drives_in_use"]), (&false.into(), &10.into()), "{shown}");
}

#[test]
fn sets_are_set_later_and_copies_are_moved_into_them() {
    let bench = Bench::new();
    used_pool(&bench, "11", 60);
    assert_eq!(set_lines(&bench), "");
    done(&bench.run(&["pool", "add-drive", "mail", "--size", "200MiB"]));
    expect![[r#"
        failure sets: none, so drives that are lost at once may hold all copies of some data; see 'spindle pool set'
    "#]].assert_eq(&set_lines(&bench));
    let said = done(&bench.run(&["pool", "set", "mail", "--failure-sets", "on"]));
    assert!(
        said.contains("  set 1: ") && said.contains(" lie across sets, so drives of different"),
        "{said}"
    );
    let said = json(&bench, &["pool", "level", "mail"]);
    assert_eq!(said["outcome"], "level", "{said}");
    let lines = set_lines(&bench);
    assert!(lines.contains("survives the loss of 2 drives at once unless they are in one set"), "{lines}");
    let off = json(&bench, &["pool", "set", "mail", "--failure-sets", "off"]);
    assert_eq!(
        (&off["failure_sets"]["wanted"], &off["failure_sets"]["sets"]),
        (&false.into(), &serde_json::json!([]))
    );
    refused(&bench, &["pool", "set", "mail"], "required");
    refused(&bench, &["pool", "set", "mail", "--failure-sets", "maybe"], "invalid value");
    has_letters(&bench, 60);
}

#[test]
fn a_pool_of_fewer_drives_waits_for_the_twelfth() {
    let bench = Bench::new();
    used_pool(&bench, "11", 24);
    let said = done(&bench.run(&["pool", "set", "mail", "--failure-sets", "on"]));
    assert!(said.contains("failure sets: none yet, they begin at 12 drives"), "{said}");
    done(&bench.run(&["pool", "add-drive", "mail", "--size", "200MiB"]));
    assert_eq!(set_lines(&bench).matches("set ").count(), 3, "{}", set_lines(&bench));
    let retired = done(&bench.run(&["pool", "retire", "mail", "drive-2.spindle"]));
    assert!(retired.contains("has left"), "{retired}");
    assert_eq!(set_lines(&bench), "failure sets: none yet, they begin at 12 drives\n");
    has_letters(&bench, 24);
}
