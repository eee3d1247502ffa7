//! Identities of exports: two disks never share one, and one disk never has two.

use crate::{exported::Exported, spindle::Bench};
use std::fs;

/// Identities and URIs of what is exported over iSCSI, in the order of the paths.
fn served(bench: &Bench, arguments: &[&str]) -> Vec<(String, String)> {
    let exported = Exported::begin(bench, &[&["--iscsi", "127.0.0.1:0"], arguments].concat());
    let identities = exported.identities.clone();
    let names = exported
        .uris
        .iter()
        .map(|uri| uri.split('/').skip(3).collect::<Vec<_>>().join("/"))
        .collect::<Vec<_>>();
    exported.end();
    identities.into_iter().zip(names).collect()
}

fn make_pool(bench: &Bench) {
    for arguments in [
        &["pool", "create", "pool", "--drives", "2", "--size", "96MiB"][..],
        &["volume", "create", "pool/store", "16MiB"],
        &["volume", "snapshot", "pool/store@monday"],
    ] {
        let made = bench.run(arguments);
        assert_eq!(made.code, Some(0), "{arguments:?}: {}", made.stderr);
    }
}

#[test]
fn two_hosts_that_export_one_name_are_two_disks_and_two_targets() {
    let hosts = [Bench::new(), Bench::new()];
    let exports = hosts.each_ref().map(|host| {
        make_pool(host);
        fs::write(host.path("file.img"), vec![0; 1 << 20]).unwrap();
        served(host, &["pool/store", "file.img", "--name", "store", "--name", "file"])
    });
    let [one, other] = exports;
    for ((identity, name), (other_identity, other_name)) in one.iter().zip(&other) {
        assert_ne!(identity, other_identity, "a multipathing initiator would mix two disks");
        assert_ne!(name, other_name, "names of targets are unique worldwide");
        assert!(name.contains(&identity.replace('-', "")), "{name}");
    }
}

#[test]
fn a_disk_keeps_its_identity_over_starts_and_names_and_a_new_one_gets_another() {
    let bench = Bench::new();
    make_pool(&bench);
    fs::write(bench.path("file.img"), vec![0; 1 << 20]).unwrap();
    let paths = ["pool/store", "pool/store@monday", "file.img"];
    let first = served(&bench, &paths);
    let [volume, snapshot, file] = &first[..] else { panic!("three: {first:?}") };
    assert!(volume.0 != snapshot.0 && snapshot.0 != file.0, "a snapshot is no path to its volume");
    assert_eq!(served(&bench, &paths), first);
    let renamed = bench.run(&["volume", "rename", "pool/store", "mail"]);
    assert_eq!(renamed.code, Some(0), "{}", renamed.stderr);
    let mail = served(&bench, &["pool/mail", "pool/mail@monday"]);
    assert_eq!((&mail[0].0, &mail[1].0), (&volume.0, &snapshot.0));
    for arguments in [
        &["volume", "delete", "pool/mail@monday", "--yes", "monday"][..],
        &["volume", "snapshot", "pool/mail@monday"],
    ] {
        assert_eq!(bench.run(arguments).code, Some(0), "{arguments:?}");
    }
    assert_ne!(served(&bench, &["pool/mail@monday"])[0].0, snapshot.0, "it reads as another point");
    fs::remove_file(bench.path("file.img")).unwrap();
    let anew = served(&bench, &["file.img", "--create", "1MiB"]);
    assert_ne!(anew[0].0, file.0);
    // A copy that was made with what lies beside it would be a path to the original.
    for suffix in ["", ".spindle-id"] {
        fs::copy(bench.path(&format!("file.img{suffix}")), bench.path(&format!("copy.img{suffix}"))).unwrap();
    }
    let refused = bench.refused(&["export", "file.img", "copy.img", "--iscsi", "127.0.0.1:0"]);
    assert!(refused.contains("file.img and copy.img have one identity"), "{refused}");
}

#[test]
fn units_keep_the_numbers_that_the_access_file_gives_them() {
    let bench = Bench::new();
    for name in ["a.img", "b.img"] {
        fs::write(bench.path(name), vec![0; 1 << 20]).unwrap();
    }
    bench.make_file(
        "access.toml",
        b"[[target]]\nname = 'mail'\nunits = [{ export = 'a.img', lun = 300 }, 'b.img']\n",
    );
    let units = served(&bench, &["a.img", "b.img", "--access", "access.toml"]);
    let names: Vec<&str> = units.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["iqn.2026-11.org.spindle:mail/300", "iqn.2026-11.org.spindle:mail/1"]);
    let refused = bench.refused(&["export", "a.img", "--iscsi", "127.0.0.1:0", "--portal", "0.0.0.0:0"]);
    assert!(refused.contains("initiators cannot be redirected to it"), "{refused}");
}
