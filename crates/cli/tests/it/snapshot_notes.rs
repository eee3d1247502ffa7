//! `volume snapshot --note`: the text is kept with the snapshot, and listed.

use crate::{
    spindle::{Bench, json_of},
    volumes::done,
};

#[test]
fn a_note_is_listed_for_people_and_for_programs() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "64MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "8MiB"]));
    done(&bench.run(&["volume", "snapshot", "mail/store@plain"]));
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!(shown["volumes"][0].get("notes"), None, "no note, no list: {shown}");
    let note = "vor dem Update für 2027\nby the job \"nightly\"";
    done(&bench.run(&["volume", "snapshot", "mail/store@monday", "--note", note]));
    let shown = json_of(&done(&bench.run(&["pool", "show", "mail", "--json"])));
    assert_eq!(shown["volumes"][0]["snapshots"], serde_json::json!(["plain", "monday"]));
    let expected = serde_json::json!([{ "snapshot": "monday", "note": note }]);
    assert_eq!(shown["volumes"][0]["notes"], expected);
    let shown = done(&bench.run(&["pool", "show", "mail"]));
    let expected = "    snapshot store@monday: vor dem Update für 2027\\nby the job \"nightly\"\n";
    assert!(shown.contains(expected), "{shown}");
    assert!(shown.contains("    snapshot store@plain\n"), "{shown}");
}

#[test]
fn a_note_of_more_than_768_bytes_is_refused() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "64MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "8MiB"]));
    let long = "ö".repeat(385);
    let refused = bench.run(&["volume", "snapshot", "mail/store@monday", "--note", &long]);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(
        refused.stderr.contains("a note of 770 bytes is too long: it has at most 768"),
        "{}",
        refused.stderr
    );
    done(&bench.run(&["volume", "snapshot", "mail/store@monday", "--note", &long[..768]]));
}
