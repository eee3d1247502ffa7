//! `spindle verify` of volumes and snapshots, exports and images of them.

use crate::{
    spindle::{Bench, inventory, json_of},
    volumes::{connect, done, while_exported},
};
use expect_test::expect;
use nbd::NbdUri;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, ExtentDirectory, Stability, World,
    real::{self, AccessMode, FileDevice, RealOptions},
};

/// Bytes of a page of the databases that `prove` makes here, and of a segment of a log.
const PAGE: u64 = 32 << 10;
const SEGMENT: usize = 4096;

/// Makes the pools `dbs` and `logs` of what `prove --pool` left: its drives are files of one folder.
fn import_pools(bench: &Bench) {
    for (pool, kind) in [("dbs", "db"), ("logs", "log")] {
        bench.make_folder(pool);
        for number in 1..=8 {
            let drive = format!("sg1-{kind}-drive{number}.spindle");
            let from = bench.path("spindle-data").join(&drive);
            fs::rename(from, bench.path(pool).join(&drive)).expect("a drive");
        }
        done(&bench.run(&["pool", "import", pool]));
    }
}

/// The `--json` of a check, with the exit code.
#[track_caller]
fn checked(bench: &Bench, sources: &[String], more: &[&str]) -> (Option<i32>, Value) {
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let said = bench.run(&[&["verify", "--json"], &sources[..], more].concat());
    assert!(said.stdout.starts_with('{'), "{:?} {}", said.code, said.stderr);
    (said.code, json_of(&said.stdout))
}

/// Answer, level, and whether the trees and the recovery were looked at.
fn looked_at(shown: &Value) -> Value {
    let files = shown["files"].as_array().expect("files");
    let database = files.iter().find(|file| file["kind"] == "database").expect("a database");
    json!([
        shown["answer"],
        shown["level"],
        database["checked"].is_object(),
        database["checked"]["walked"].is_object(),
        shown["recoveries"][0]["result"],
    ])
}

/// Verifies the backup `name` that a run of `prove --pool --protect` made: in its pools and over the network, at each
/// level, whole and damaged.
pub fn check_backup(bench: &Bench, name: &str) {
    import_pools(bench);
    let sources = [format!("dbs/sg1-db1.edb@{name}"), format!("logs/E00@{name}")];
    let before = [inventory(&bench.path("dbs")), inventory(&bench.path("logs"))];
    let levels = ["chain", "pages", "deep", "recover"];
    let all: Vec<Value> =
        levels.iter().map(|level| looked_at(&checked(bench, &sources, &["--level", level]).1)).collect();
    let expected = json!([
        ["clean", "chain", false, false, null],
        ["clean", "pages", true, false, null],
        ["clean", "deep", true, true, null],
        ["clean", "recover", true, false, "recovered"],
    ]);
    assert_eq!(json!(all), expected);

    let (code, shown) = checked(bench, &sources, &["--level", "recover"]);
    assert_eq!((code, &shown["findings"], &shown["version"]), (Some(0), &json!([]), &json!("0.1.0")));
    assert_eq!(shown["source"], json!(sources));
    let trial = &shown["recoveries"][0];
    assert_eq!(trial["databases"][0]["path"], format!("{}:sg1-db1.edb", sources[0]));
    assert!(
        trial["databases"][0]["records"].as_u64() > Some(1000) && trial["log_records"].as_u64() > Some(0)
    );
    let required = &shown["sets"][0]["databases"][0]["required"];
    assert!(trial["generation"].as_u64() >= required[1].as_u64() && required[1].is_u64(), "{shown}");
    assert_eq!(shown["sets"][0]["logs_in"], sources[1]);

    let refused = bench.refused(&["verify", &sources[0], "--fix-ecc", "out"]);
    assert!(refused.contains("--fix-ecc copies one file, and dbs/sg1-db1.edb@"), "{refused}");

    // Stopped, and continued: progress of devices is kept as well.
    let part = ["--at-most", "1MiB", "--resume", "state"];
    assert_eq!(checked(bench, &sources, &part).1["answer"], "unfinished");
    assert_eq!(checked(bench, &sources, &part[2..]).1["answer"], "clean");
    assert!(!bench.path("state").exists());

    let snapshots: Vec<&str> = [&["--read-only"], &sources.each_ref().map(String::as_str)[..]].concat();
    while_exported(bench, &snapshots, async |world, uri| {
        let uris = sources.each_ref().map(|path| uri(path.split_once('/').expect("a pool").1));
        let texts = uris.each_ref().map(NbdUri::to_string);
        let (code, over_nbd) = checked(bench, &texts, &["--level", "recover"]);
        assert_eq!((code, looked_at(&over_nbd)), (Some(0), expected[3].clone()), "{over_nbd}");
        let named = over_nbd["recoveries"][0]["databases"][0]["path"].as_str().expect("a path");
        // What the program says is shown without the folder of the bench.
        let uri_shown = texts[0].replace(&bench.path("").display().to_string(), "DIR/");
        assert_eq!(named, format!("{uri_shown}:sg1-db1.edb"));
        assert_eq!(over_nbd["recoveries"][0]["databases"][0]["records"], trial["databases"][0]["records"]);
        // The pool is open in that server.
        let refused = bench.refused(&["verify", "dbs/sg1-db1.edb"]);
        assert!(refused.contains("another Spindle has the pool open; verify what it exports"), "{refused}");
        for (uri, image) in uris.into_iter().zip(["db.image", "log.image"]) {
            copy(&world, uri, &bench.path(image)).await;
        }
    });
    assert!([inventory(&bench.path("dbs")), inventory(&bench.path("logs"))] == before, "nothing is written");
    damaged_images_are_found(bench);
}

/// Copies a device into a file.
async fn copy(world: &World, uri: NbdUri, image: &Path) {
    const CHUNK: u64 = 4 << 20;
    let client = connect(world, uri).await;
    let size = client.geometry().size;
    let file = FileDevice::create(image, size).await.expect("room for it");
    for at in (0..size.0).step_by(CHUNK as usize) {
        let length = CHUNK.min(size.0 - at) as usize;
        let read = client.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await.expect("readable");
        let read = read.into_iter().map(Arc::new).collect();
        file.write(ByteOffset(at), read, Stability::Volatile).await.expect("written");
    }
}

/// Changes a file of an image: gets its bytes, and writes them back.
fn change(image: PathBuf, name: &str, change: impl FnOnce(&mut [u8])) {
    real::run(1, RealOptions::default(), async |_: World| {
        let device = FileDevice::open(&image, AccessMode::ReadWrite).expect("it can be written");
        let directory = ExtentDirectory::open(Rc::new(device)).await.expect("a directory");
        let file = directory.open(name).await.expect("it is there");
        let size = file.geometry().size.0 as usize;
        let mut bytes = file.read(ByteOffset(0), vec![Buffer::zeroed(size)]).await.expect("readable");
        let mut bytes = bytes.pop().expect("one buffer");
        change(&mut bytes);
        file.write(ByteOffset(0), vec![Arc::new(bytes)], Stability::Stable).await.expect("written");
    });
}

/// Copies of the backup with changed bytes.
fn damaged_images_are_found(bench: &Bench) {
    let sources = ["db.image".to_owned(), "log.image".to_owned()];
    assert_eq!(looked_at(&checked(bench, &sources, &["--level", "recover"]).1)[4], "recovered");
    let lines = |level: &str| {
        let (code, shown) = checked(bench, &sources, &["--level", level]);
        let findings = shown["findings"].as_array().expect("lines").clone();
        (code, findings.iter().map(|line| line.as_str().expect("a line").to_owned()).collect::<Vec<_>>())
    };
    // A page, by its number and place.
    let mut number = 0;
    change(bench.path("db.image"), "sg1-db1.edb", |bytes| {
        let pages: Vec<&[u8]> = bytes.chunks(PAGE as usize).collect();
        let last = pages.iter().rposition(|page| page.iter().any(|&byte| byte != 0)).expect("a page in use");
        number = last as u64 - 1;
        bytes[last * PAGE as usize + 900] ^= 1 << 5;
    });
    let at = (number + 1) * PAGE;
    assert_eq!(lines("chain"), (Some(0), Vec::new()));
    let (code, found) = lines("pages");
    let begin = format!("db.image:sg1-db1.edb, page {number} (byte {at}): ");
    assert!(code == Some(1) && found.len() == 1 && found[0].starts_with(&begin), "{found:?}");
    assert!(found[0].ends_with(&format!("bit 5 of byte {} is flipped", at + 900)), "{found:?}");
    let (code, found) = lines("recover");
    assert_eq!((code, found.len()), (Some(1), 2));
    expect!["db.image:sg1-db1.edb: its recovery was not tried: sg1-db1.edb is damaged"].assert_eq(&found[1]);
    change(bench.path("db.image"), "sg1-db1.edb", |bytes| bytes[at as usize + 900] ^= 1 << 5);

    // The last segment of a log that has a successor, and its shadow: torn, and acknowledged.
    let said = bench.run(&["verify", "log.image", "--json", "--level", "chain"]);
    let files = json_of(&said.stdout)["files"].as_array().expect("files").clone();
    let path = |file: &Value| file["path"].as_str().expect("a path").to_owned();
    let archived =
        files.iter().map(path).filter(|path| path.contains(":E00000")).max().expect("an archived log");
    let name = archived.strip_prefix("log.image:").expect("its device").to_owned();
    change(bench.path("log.image"), &name, |bytes| {
        let used = bytes.chunks(SEGMENT).rposition(|segment| segment.iter().any(|&byte| byte != 0));
        let torn = (used.expect("segments") - 1) * SEGMENT;
        bytes[torn + 64..torn + 2 * SEGMENT].fill(0x5A);
    });
    let (code, found) = lines("chain");
    assert!(code == Some(1) && found.iter().all(|line| line.contains(&name)), "{found:?}");
    assert!(found[0].starts_with("db.image:sg1-db1.edb: it cannot be recovered: "), "{found:?}");
    assert!(found[1].starts_with(&format!("log.image:{name}: ")), "{found:?}");
}

#[test]
fn what_is_no_source_is_refused_in_one_line() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "96MiB"]));
    done(&bench.run(&["volume", "create", "mail/blank", "16MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "16MiB"]));
    while_exported(&bench, &["mail/store"], async |world, uri| {
        let client = connect(&world, uri("store")).await;
        let data = vec![Arc::new(Buffer::copy_of(&[7; 65_536]))];
        client.write(ByteOffset(0), data, Stability::Stable).await.expect("written");
    });
    done(&bench.run(&["volume", "snapshot", "mail/store@monday"]));
    let mut refusals = String::new();
    for arguments in [
        &["mail"][..],
        &["mail/blank"],
        &["mail/store@monday"],
        &["mail/store@tuesday"],
        &["mail/absent"],
        &["nothing/store@monday"],
        &["nbd+unix:///store?socket=/nowhere/socket"],
        &["mail/store@monday", "--fix-ecc", "out"],
        &["mail/store@monday", "--level", "thorough"],
        &["mail/store@monday", "--scratch", "1GiB"],
    ] {
        refusals += &bench.refused(&[&["verify"], arguments].concat());
        refusals.push('\n');
    }
    expect![[r#"
        spindle: mail is the folder of a pool, not of databases; name a volume or a snapshot of it: mail/VOLUME@SNAPSHOT
        spindle: mail/blank is blank: no database was ever put there; give the device that the databases are on
        spindle: mail/store@monday holds no extent directory of Spindle, or both copies of its file table are damaged; if it has a filesystem, mount it read-only and give the folder; or look for databases with --scan
        spindle: mail: volume "store" has no snapshot "tuesday"; see 'spindle pool show mail'
        spindle: mail: the pool has no volume "absent"; see 'spindle pool show mail'
        spindle: nothing/store@monday does not exist; give files, folders or block devices that are there
        spindle: nbd+unix:///store?socket=/nowhere/socket: connecting to unix:/nowhere/socket: No such file or directory (os error 2); check its address, and that it is served
        spindle: mail/store@monday holds no extent directory of Spindle, or both copies of its file table are damaged; if it has a filesystem, mount it read-only and give the folder; or look for databases with --scan
        spindle: invalid value 'thorough' for '--level <LEVEL>': "thorough" is no level; say chain, pages, deep or recover; see 'spindle verify --help'
        spindle: --scratch is for recoveries, and none was asked for; say --level recover, or leave it out
    "#]].assert_eq(&refusals);
    // What cannot be divided into files can be searched for them.
    let said = bench.run(&["verify", "mail/store@monday", "--scan"]);
    assert!(said.stdout.contains("nothing of a mail database was found"), "{}{}", said.stdout, said.stderr);
}

#[test]
fn an_image_without_an_extent_directory_is_looked_at_as_a_file() {
    let bench = Bench::new();
    bench.make_file("image", &vec![7; 4 << 20]);
    let refused = bench.refused(&["verify", "image"]);
    assert!(refused.contains("image: no mail database found"), "{refused}");
    let path = bench.path("empty");
    real::run(1, RealOptions::default(), async move |_: World| {
        let device = FileDevice::create(&path, ByteCount::mib(8)).await.expect("room for it");
        ExtentDirectory::format(Rc::new(device)).await.expect("a directory");
    });
    let refused = bench.refused(&["verify", "empty"]);
    assert!(refused.contains("empty: no mail database found"), "{refused}");
}
