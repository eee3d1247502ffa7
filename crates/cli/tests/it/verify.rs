//! `spindle verify`, as an administrator meets it.

use crate::{
    mail_files::{MailState, PAGE, change, copy_files, last_used, make, page},
    spindle::{Bench, Watchdog, json_of, names, signal, wait_for_line},
};
use expect_test::expect;
use serde_json::Value;
use std::{fs, io::Read, os::unix::fs::symlink, path::Path, process::Stdio};

/// A bench with a folder `mail`: a database that was shut down, and its logs.
fn bench() -> Bench {
    let bench = Bench::new();
    make(&bench.path("mail"), 0, 900, MailState::default());
    bench
}

/// The `--json` of a check of `mail`, with the exit code.
#[track_caller]
fn checked(bench: &Bench, more: &[&str]) -> (Option<i32>, Value) {
    let said = bench.run(&[&["verify", "mail", "--json"], more].concat());
    assert!(matches!(said.code, Some(0 | 1)), "{:?} {}", said.code, said.stderr);
    (said.code, json_of(&said.stdout))
}

/// The entry of one file.
fn file<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let files = shown["files"].as_array().expect("files");
    let is_it = |file: &&Value| file["path"].as_str().is_some_and(|path| path.ends_with(name));
    files.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {shown}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

#[test]
fn a_clean_folder_is_reported_clean_with_the_limits_of_that_answer() {
    let bench = bench();
    let before = bench.inventory("mail");
    let said = bench.run(&["verify", "mail", "--deep"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    for expected in [
        "▌ PASS  headers, checksums, logs and their records, trees",
        "nothing is damaged, and every database can be recovered",
        "it was shut down cleanly, and needs no log",
        "Tables of priv1.edb",
        "What this does not prove",
        "eseutil",
    ] {
        assert!(said.stdout.contains(expected), "{expected}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("What to do") && !said.stdout.contains('\x1b'), "{}", said.stdout);
    assert_eq!(bench.inventory("mail"), before, "what is verified is not touched");
    let (_, shown) = checked(&bench, &["--deep"]);
    let walked = &file(&shown, "priv1.edb")["checked"]["walked"];
    let tables = walked["tables"].as_array().expect("tables");
    let mail = tables.iter().find(|table| table["name"] == "Mail").expect("the table");
    assert_eq!(mail["records"], 901, "{walked}");
}

#[test]
fn programs_get_a_format_that_stays() {
    let bench = bench();
    let (code, shown) = checked(&bench, &[]);
    assert_eq!((code, text(&shown["format"])), (Some(0), "spindle-verify-1"));
    let keys =
        |value: &Value| value.as_object().expect("fields").keys().cloned().collect::<Vec<_>>().join(" ");
    let database = file(&shown, "priv1.edb");
    let set = &shown["sets"][0];
    let all =
        [&shown, database, &database["facts"], &database["checked"], set, &set["databases"][0]].map(keys);
    expect![[r#"
        answer bytes_read deep failures files findings format level passed_over processor_seconds seconds sets source stopped unproven version
        bytes checked damage facts findings findings_more kind notes path result warnings why
        committed dirty headers page_bytes repairs required state version
        blank correctable damaged good owned pages slack stamped torn trailers unchecked unreadable walked
        databases findings folder logs_in
        missing name recovery required why"#]]
    .assert_eq(&all.join("\n"));
}

#[test]
fn one_flipped_bit_is_named_and_fixed_in_a_copy() {
    let bench = bench();
    let path = bench.path("mail/priv1.edb");
    let whole = fs::read(&path).expect("a file");
    let number = last_used(&whole);
    let at = (number + 1) * PAGE + 900;
    change(&path, |bytes| bytes[at] ^= 1 << 5);
    let (code, shown) = checked(&bench, &[]);
    let finding = &file(&shown, "priv1.edb")["findings"][0];
    assert_eq!((code, text(&shown["answer"])), (Some(1), "damaged"));
    assert_eq!((text(&finding["part"]), &finding["number"]), ("page", &Value::from(number)));
    assert_eq!(finding["bit"], serde_json::json!({ "byte": at, "bit": 5 }));
    let said = bench.run(&["verify", "mail"]);
    assert!(said.stdout.contains(&format!("bit 5 of byte {at} is flipped")), "{}", said.stdout);
    assert!(said.stdout.contains("--fix-ecc OUT"), "{}", said.stdout);

    let damaged = fs::read(&path).expect("a file");
    let said = bench.run(&["verify", "mail/priv1.edb", "--fix-ecc", "repaired.edb"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(fs::read(bench.path("repaired.edb")).expect("a copy") == whole, "the copy is what it was before");
    assert!(fs::read(&path).expect("a file") == damaged, "the file is as it was");
    expect!["spindle: --fix-ecc: repaired.edb exists already; give another name, or remove it"]
        .assert_eq(&bench.refused(&["verify", "mail/priv1.edb", "--fix-ecc", "repaired.edb"]));
    expect!["spindle: --fix-ecc: mail/priv1.edb exists already; give another name, or remove it"]
        .assert_eq(&bench.refused(&["verify", "mail/priv1.edb", "--fix-ecc", "mail/priv1.edb"]));
}

#[test]
fn more_than_one_bit_is_not_fixed() {
    let bench = bench();
    let path = bench.path("mail/priv1.edb");
    let at = (last_used(&fs::read(&path).expect("a file")) + 1) * PAGE + 900;
    change(&path, |bytes| bytes[at..at + 8].copy_from_slice(b"overlaid"));
    let said = bench.run(&["verify", "mail/priv1.edb", "--fix-ecc", "copy.edb"]);
    assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("no bit could be fixed: the copy is identical"), "{}", said.stdout);
    assert!(fs::read(bench.path("copy.edb")).expect("a copy") == fs::read(&path).expect("a file"));
    assert_eq!(names(&bench.path(".")), ["copy.edb", "mail"]);
}

#[test]
fn a_page_in_the_place_of_another_is_damage() {
    let bench = bench();
    let path = bench.path("mail/priv1.edb");
    let number = last_used(&fs::read(&path).expect("a file"));
    change(&path, |bytes| {
        let other = page(bytes, number - 1).to_vec();
        bytes[(number + 1) * PAGE..(number + 2) * PAGE].copy_from_slice(&other);
    });
    let (code, shown) = checked(&bench, &[]);
    let finding = &file(&shown, "priv1.edb")["findings"][0];
    assert_eq!((code, &finding["number"], &finding["bit"]), (Some(1), &Value::from(number), &Value::Null));
}

#[test]
fn one_header_is_a_warning_and_none_is_the_end() {
    let bench = bench();
    let path = bench.path("mail/priv1.edb");
    change(&path, |bytes| bytes[700] ^= 1);
    let (code, shown) = checked(&bench, &[]);
    let database = file(&shown, "priv1.edb");
    assert_eq!((code, text(&database["result"])), (Some(0), "warned"));
    assert_eq!(database["facts"]["headers"], serde_json::json!(["bad", "good"]));
    change(&path, |bytes| bytes[..2 * PAGE].fill(0xA5));
    let (code, shown) = checked(&bench, &[]);
    let finding = &file(&shown, "priv1.edb")["findings"][0];
    assert_eq!((code, text(&finding["part"])), (Some(1), "file"), "{finding}");
    // // Damage that looks like another state is not skipped.
    assert!(text(&finding["what"]).contains("headers are gone"), "{finding}");
}

#[test]
fn pages_behind_the_last_owned_one_are_no_damage() {
    let bench = bench();
    change(&bench.path("mail/priv1.edb"), |bytes| bytes.extend([0x5A; 3 * PAGE]));
    let (code, shown) = checked(&bench, &["--deep"]);
    assert_eq!((code, &file(&shown, "priv1.edb")["checked"]["slack"]), (Some(0), &Value::from(3)));
}

#[test]
fn a_snapshot_of_a_running_database_can_be_recovered_with_all_its_logs_alone() {
    let bench = Bench::new();
    make(&bench.path("mail"), 0, 900, MailState { dirty: true, ..MailState::default() });
    let (code, shown) = checked(&bench, &[]);
    let database = &shown["sets"][0]["databases"][0];
    assert_eq!((code, text(&database["recovery"])), (Some(0), "possible"), "{shown}");
    // Its logs may lie elsewhere.
    for name in names(&bench.path("mail")) {
        if !name.ends_with(".edb") {
            fs::create_dir_all(bench.path("logs")).expect("a folder");
            fs::rename(bench.path("mail").join(&name), bench.path("logs").join(&name)).expect("moved");
        }
    }
    let (code, shown) = checked(&bench, &["logs"]);
    let set = &shown["sets"][0];
    assert_eq!((code, text(&set["logs_in"])), (Some(0), "logs"), "{set}");
    assert_eq!(text(&set["databases"][0]["recovery"]), "possible", "{set}");
    let lost = "E0000000001.log";
    fs::remove_file(bench.path("logs").join(lost)).expect("removed");
    let said = bench.run(&["verify", "mail", "logs"]);
    assert_eq!(said.code, Some(1), "{}", said.stdout);
    assert!(said.stdout.contains("it cannot be recovered") && said.stdout.contains(lost), "{}", said.stdout);
}

#[test]
fn a_page_of_an_earlier_day_is_found_by_the_stamps_alone() {
    let bench = Bench::new();
    let how = MailState { stamps: true, ..MailState::default() };
    make(&bench.path("mail"), 0, 600, how);
    let old = fs::read(bench.path("mail/priv1.edb")).expect("a file");
    make(&bench.path("mail"), 10_000, 300, how);
    let (code, shown) = checked(&bench, &[]);
    assert_eq!(code, Some(0), "{shown}");
    let path = bench.path("mail/priv1.edb");
    let new = fs::read(&path).expect("a file");
    let number = (1..=last_used(&old)).rev().find(|&number| page(&old, number) != page(&new, number));
    let number = number.expect("a page that was written in both");
    change(&path, |bytes| {
        bytes[(number + 1) * PAGE..(number + 2) * PAGE].copy_from_slice(page(&old, number));
    });
    let (code, shown) = checked(&bench, &[]);
    let finding = &file(&shown, "priv1.edb")["findings"][0];
    assert_eq!((code, &finding["number"]), (Some(1), &Value::from(number)), "{shown}");
}

#[test]
fn databases_on_a_device_without_a_filesystem_are_found() {
    let bench = bench();
    let read = |name: &str| fs::read(bench.path("mail").join(name)).expect("a file");
    let (database, log) = (read("priv1.edb"), read("E00.log"));
    // Neither begins where a page of memory does, and between them lies something else.
    let mut image = vec![0x5A; 512 * 7];
    image.extend(&database);
    image.extend([0x33; 512 * 5]);
    image.extend(&log);
    let piece = 4 * PAGE..9 * PAGE;
    image.extend(&database[piece]);
    image.extend([0; 8192]);
    bench.make_file("disk.img", &image);
    let said = bench.run(&["verify", "disk.img", "--scan", "--json"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    let shown = json_of(&said.stdout);
    let at = |offset: usize| format!("disk.img@{offset}");
    let found = file(&shown, &at(512 * 7));
    assert_eq!((text(&found["kind"]), text(&found["result"])), ("database", "clean"), "{found}");
    let found = file(&shown, &at(512 * 12 + database.len()));
    assert_eq!((text(&found["kind"]), text(&found["result"])), ("log", "clean"), "{found}");
    let runs = shown["pieces"]["runs"].as_array().expect("runs");
    assert_eq!((runs.len(), &runs[0]["first"], &runs[0]["last"]), (1, &Value::from(3), &Value::from(7)));
    let at_byte = 512 * 12 + database.len() + log.len();
    assert_eq!((&runs[0]["offset"], &runs[0]["page_bytes"]), (&Value::from(at_byte), &Value::from(PAGE)));

    bench.make_file("empty.img", &[0x5A; 1 << 20]);
    let said = bench.run(&["verify", "empty.img", "--scan", "--quiet"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "Pass: nothing of a mail database was found\n"));
}

#[test]
fn an_ended_check_continues_unless_the_file_was_replaced() {
    let bench = bench();
    let path = bench.path("mail/priv1.edb");
    let number = 3;
    change(&path, |bytes| bytes[(number + 1) * PAGE + 100..][..8].copy_from_slice(b"overlaid"));
    let night = ["verify", "mail", "--resume", "night.state", "--json"];
    let said = bench.run(&[&night[..], &["--at-most", "1MiB"]].concat());
    let shown = json_of(&said.stdout);
    assert_eq!((said.code, &shown["stopped"]), (Some(1), &Value::from(true)), "{shown}");
    assert!(said.stderr.contains("The same command continues it from night.state"), "{}", said.stderr);
    let kept = fs::read(bench.path("night.state")).expect("a state");

    expect!["spindle: --resume: night.state belongs to a verification of other paths or with other options; give the same paths, or another file with --resume"]
        .assert_eq(&bench.refused(&["verify", "mail", "--deep", "--resume", "night.state"]));
    let whole = fs::read(&path).expect("a file");
    change(&path, |bytes| bytes[whole.len() - 1] ^= 1);
    let refused = bench.refused(&night);
    assert!(refused.contains("has changed since it was partly checked"), "{refused}");
    assert!(fs::read(bench.path("night.state")).expect("a state") == kept);

    // The same file at the same time of change.
    fs::remove_file(bench.path("night.state")).expect("removed");
    fs::write(&path, &whole).expect("written");
    bench.run(&[&night[..], &["--at-most", "1MiB"]].concat());
    let said = bench.run(&night);
    let shown = json_of(&said.stdout);
    let (code, all) = checked(&bench, &[]);
    assert_eq!((said.code, code, &shown["stopped"]), (Some(1), Some(1), &Value::from(false)));
    let database = |shown: &Value| {
        let file = file(shown, "priv1.edb");
        (file["checked"].clone(), file["findings"].clone())
    };
    assert_eq!(database(&shown), database(&all), "in two parts as in one");
    assert!(!bench.path("night.state").exists(), "there is nothing left to go on with");
}

#[test]
fn an_interrupted_check_reports_its_findings_and_how_to_continue() {
    let bench = bench();
    // The next chunk would be read in some hours.
    let arguments = ["verify", "mail/priv1.edb", "--throttle", "100", "--resume", "night.state"];
    let mut command = bench.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let mut errors = wait_for_line(&mut child, "check");
    signal(&child, "INT");
    errors.read_to_string(&mut String::new()).expect("text");
    let said = bench.said(child.wait_with_output().expect("ends"));
    watch.call_off();
    assert_eq!(said.code, Some(2), "{}", said.stdout);
    assert!(said.stdout.contains("no damage was found so far"), "{}", said.stdout);
    assert!(said.stdout.contains("continues it from night.state"), "{}", said.stdout);
    let said = bench.run(&["verify", "mail/priv1.edb", "--resume", "night.state", "-q"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "Pass: 1 file checked, nothing is damaged\n"));
}

#[test]
fn a_page_of_the_answer_is_written_once() {
    let bench = bench();
    let said = bench.run(&["verify", "mail", "--html", "answer.html", "-q"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let page = fs::read_to_string(bench.path("answer.html")).expect("a page");
    assert!(page.contains("priv1.edb") && page.contains("What this does not prove"), "{}", &page[..300]);
    expect!["spindle: --html: answer.html exists already; give another name, or remove it"]
        .assert_eq(&bench.refused(&["verify", "mail", "--html", "answer.html"]));
}

#[test]
fn unreadable_paths_are_refused_in_a_line() {
    let bench = Bench::new();
    bench.make_folder("empty");
    bench.make_file("words.txt", b"not of a mail server");
    let refusals = [
        &["verify", "gone"][..],
        &["verify", "empty"],
        &["verify", "words.txt"],
        &["verify", "/dev/null"],
        &["verify", "empty", "words.txt", "--fix-ecc", "copy"],
        &["verify", "empty", "--fix-ecc", "copy"],
        &["verify", "words.txt", "--resume", "words.txt"],
        &["verify", "words.txt", "--throttle", "fast"],
        &["verify", "words.txt", "--jobs", "0"],
        &["verify", "words.txt", "--html", "none/page.html"],
    ];
    let lines: Vec<String> = refusals.iter().map(|arguments| bench.refused(arguments)).collect();
    expect![[r#"
        spindle: gone does not exist; give files, folders or block devices that are there
        spindle: empty: no mail database found: no database, log or checkpoint; give the folder they are in, or --scan a device that no filesystem can be mounted from
        spindle: words.txt: no mail database found: no database, log or checkpoint; give the folder they are in, or --scan a device that no filesystem can be mounted from
        spindle: /dev/null is neither a file nor a folder nor a device; give files, folders or block devices that are there
        spindle: --fix-ecc copies one file; give one PATH
        spindle: --fix-ecc copies one file, and empty is a folder; give the file
        spindle: words.txt: no mail database found: no database, log or checkpoint; give the folder they are in, or --scan a device that no filesystem can be mounted from
        spindle: invalid value 'fast' for '--throttle <RATE>': "fast" is not a rate; write a number and a unit, such as 200MB/s; see 'spindle verify --help'
        spindle: invalid value '0' for '--jobs <N>': "0" is not a number of threads; give 1 to 1024; see 'spindle verify --help'
        spindle: --html: none does not exist; make it first: mkdir -p none"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_file_of_another_program_is_no_state() {
    let bench = bench();
    bench.make_file("words.txt", b"not a state");
    let refused = bench.refused(&["verify", "mail", "--resume", "words.txt"]);
    assert!(refused.contains("words.txt is not a verification state file"), "{refused}");
}

#[test]
fn a_backup_below_a_folder_is_a_set_of_its_own() {
    let bench = bench();
    copy_files(&bench.path("mail"), &bench.path("backup"));
    fs::rename(bench.path("backup"), bench.path("mail/backup")).expect("moved");
    change(&bench.path("mail/backup/E00.log"), |bytes| bytes[8192..12288].fill(0x11));
    let (code, shown) = checked(&bench, &[]);
    let sets = shown["sets"].as_array().expect("sets");
    let folders: Vec<&Path> = sets.iter().map(|set| Path::new(text(&set["folder"]))).collect();
    assert_eq!((code, folders), (Some(1), vec![Path::new("mail"), Path::new("mail/backup")]));
    assert_eq!(text(&file(&shown, "mail/E00.log")["result"]), "clean");
    assert_eq!(text(&file(&shown, "backup/E00.log")["result"]), "damaged");
}

#[test]
fn links_to_a_folder_are_followed_once_however_many_ways_lead_there() {
    let bench = bench();
    // Two links in each of 40 folders to the next: 2^40 paths to the last.
    for number in 0..40 {
        let folder = bench.path(&format!("mail/links/{number}"));
        fs::create_dir_all(&folder).unwrap();
        for name in ["one", "other"] {
            symlink(format!("../{}", number + 1), folder.join(name)).unwrap();
        }
    }
    symlink("../..", bench.path("mail/links/0/back")).unwrap();
    fs::create_dir_all(bench.path("mail/links/40")).unwrap();
    let (code, shown) = checked(&bench, &[]);
    assert_eq!(code, Some(0), "{shown}");
    let databases = shown["files"].as_array().expect("files").iter();
    assert_eq!(databases.filter(|file| text(&file["path"]).ends_with("priv1.edb")).count(), 1, "{shown}");
}

#[test]
fn a_log_that_version_7_of_the_engine_prepared_is_no_damage() {
    let bench = bench();
    let prepared = bench.path("mail/E00tmp.log");
    fs::write(&prepared, vec![0xDA; 256 << 10]).unwrap();
    let (code, shown) = checked(&bench, &[]);
    assert_eq!((code, text(&file(&shown, "E00tmp.log")["kind"])), (Some(0), "blank"), "{shown}");
    let mut bytes = vec![0xDA; 256 << 10];
    bytes[200_000] = 1;
    fs::write(&prepared, bytes).unwrap();
    assert_eq!(checked(&bench, &[]).0, Some(1), "what goes on with something else has lost its header");
}

#[test]
fn a_database_whose_name_is_long_is_judged_like_any_other() {
    let bench = bench();
    let long = format!("{}.edb", "x".repeat(90));
    fs::create_dir(bench.path("long")).unwrap();
    fs::copy(bench.path("mail/priv1.edb"), bench.path("long").join(&long)).unwrap();
    let said = bench.run(&["verify", "long", "--deep"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
}

/// The engine's database for sorts: marked as any database, of no log, its pages without checksums.
fn temporary_database(whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes[52..56].copy_from_slice(&1_u32.to_le_bytes());
    bytes[104..136].fill(0);
    bytes[208] |= 1;
    bytes[PAGE..2 * PAGE].fill(0);
    let checksum = maildb::format::checksum::old_xor(&bytes[..PAGE]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    for page in bytes[2 * PAGE..].chunks_exact_mut(PAGE) {
        page[..8].fill(0x5A);
    }
    bytes
}

#[test]
fn a_temporary_database_is_skipped_and_never_counted_as_verified() {
    let bench = bench();
    let whole = fs::read(bench.path("mail/priv1.edb")).expect("a file");
    fs::write(bench.path("mail/tmp.edb"), temporary_database(&whole)).expect("written");
    for deep in [&[][..], &["--deep"]] {
        let (code, shown) = checked(&bench, deep);
        let passed = file(&shown, "tmp.edb");
        let said = (text(&passed["kind"]), text(&passed["result"]), &passed["checked"], &passed["notes"]);
        assert_eq!(code, Some(0), "{shown}");
        assert_eq!(said, ("temporary_database", "passed_over", &Value::Null, &Value::from(1)));
        assert!(text(&passed["why"]).contains("have no checksums"), "{passed}");
        let unproven = shown["unproven"].as_array().expect("sentences");
        assert!(unproven.iter().any(|one| text(one).starts_with("tmp.edb was skipped")), "{unproven:?}");
    }
    let said = bench.run(&["verify", "mail"]);
    let files = names(&bench.path("mail")).len() - 1;
    assert!(said.stdout.contains(&format!("{files} files checked, 1 skipped")), "{}", said.stdout);
    assert!(said.stdout.contains("tmp.edb: skipped: it is a temporary database"), "{}", said.stdout);
    // Alone it is no pass.
    let said = bench.run(&["verify", "mail/tmp.edb", "-q"]);
    assert_eq!(said.code, Some(2), "{}", said.stdout);
    assert!(said.stdout.contains("nothing was verified: 1 file skipped"), "{}", said.stdout);
}
