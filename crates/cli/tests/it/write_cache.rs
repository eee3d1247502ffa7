//! The write cache of an exported volume, as clients see it.

use crate::{
    exported::{Exported, lines_of},
    spindle::{Bench, ProgramOutput},
};
use std::process::Command;

/// Reads the caching mode page through libiscsi, and prints WCE.
const ASK_LIBISCSI: &str = r#"
import ctypes, sys
try:
    lib = ctypes.CDLL("libiscsi.so.7")
except OSError:
    print("absent"); sys.exit(0)
class Page(ctypes.Structure):
    _fields_ = [("next", ctypes.c_void_p)] + [(name, ctypes.c_int) for name in
        ("ps", "spf", "page_code", "subpage_code", "len", "ic", "abpf", "cap", "disc", "size", "wce")]
for name in ("iscsi_create_context", "iscsi_modesense6_sync", "scsi_datain_unmarshall"):
    getattr(lib, name).restype = ctypes.c_void_p
lib.scsi_modesense_get_page.restype = ctypes.POINTER(Page)
for uri in sys.argv[1:]:
    portal, target, lun = uri[len("iscsi://"):].split("/")
    context = ctypes.c_void_p(lib.iscsi_create_context(b"iqn.2026-11.org.example:judge"))
    lib.iscsi_set_targetname(context, target.encode())
    lib.iscsi_set_session_type(context, 2)
    if lib.iscsi_full_connect_sync(context, portal.encode(), int(lun)) != 0:
        sys.exit("cannot log in to " + uri)
    # The first command hears of the power-on unit attention.
    for attempt in range(3):
        task = ctypes.c_void_p(lib.iscsi_modesense6_sync(context, int(lun), 0, 0, 8, 0, 255))
        modes = lib.scsi_datain_unmarshall(task)
        page = lib.scsi_modesense_get_page(ctypes.c_void_p(modes), 8, 0) if modes else None
        if page: break
    print(page.contents.wce)
    lib.iscsi_logout_sync(context)
"#;

/// WCE of each unit, as libiscsi reads it; nothing where that is not installed.
fn wce(uris: &[String]) -> Option<Vec<bool>> {
    let output = Command::new("python3").args(["-c", ASK_LIBISCSI]).args(uris).output().ok();
    let is_required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    let said = output.map(|output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    });
    match said.filter(|said| said.trim() != "absent") {
        Some(said) => Some(said.lines().map(|line| line.trim() == "1").collect()),
        None => {
            assert!(!is_required, "python3 and libiscsi are required: apt-get install python3 libiscsi7");
            println!("skipped: python3 or libiscsi is not installed");
            None
        }
    }
}

/// A pool with a volume that has a write cache, and one that has none.
fn pool() -> Bench {
    let bench = Bench::new();
    let done = |said: ProgramOutput| assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    done(bench.run(&["pool", "create", "mail", "--drives", "2", "--size", "96MiB"]));
    done(bench.run(&["volume", "create", "mail/cached", "64MiB", "--write-cache"]));
    done(bench.run(&["volume", "create", "mail/stable", "64MiB"]));
    bench.make_file("plain.img", &[0; 1 << 20]);
    bench
}

const PATHS: [&str; 3] = ["mail/cached", "mail/stable", "plain.img"];

/// Output of an export until it is ended: its lines, and its JSON.
fn expect(bench: &Bench, more: &[&str], expected: [bool; 3], why: &str) {
    let arguments = [&["--iscsi", "127.0.0.1:0"], &PATHS[..], more].concat();
    let exported = Exported::begin(bench, &arguments);
    assert_eq!(exported.write_caches, expected, "{why}: what --json says");
    if let Some(wce) = wce(&exported.uris) {
        assert_eq!(wce, expected, "{why}: what libiscsi reads");
    }
    exported.end();
}

#[test]
fn a_volume_is_served_with_the_write_cache_it_was_made_with() {
    let bench = pool();
    expect(&bench, &[], [true, false, false], "each volume as it is set, files without");
    expect(&bench, &["--write-cache"], [true, true, true], "the old spelling still says on");
    expect(&bench, &["--write-cache", "off"], [false; 3], "off for all");
    let set = bench.run(&["volume", "set", "mail/cached", "--write-cache", "off"]);
    assert_eq!(set.code, Some(0), "{}", set.stderr);
    expect(&bench, &[], [false; 3], "as it was set since");
}

#[test]
fn an_export_that_overrides_the_write_cache_of_a_volume_says_so_in_a_line() {
    let bench = pool();
    let told = |more: &[&str]| {
        let lines = lines_of(&bench, &[&["--iscsi", "127.0.0.1:0"], &PATHS[..], more].concat());
        let lines = lines.into_iter().filter(|line| line.starts_with("iscsi://"));
        lines.map(|line| line.split_once("B, ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let (on, off) = ("write cache on: stable after a flush", "write cache off: stable when answered");
    assert_eq!(told(&[]), [on, off, off]);
    assert_eq!(
        told(&["--write-cache", "off"]),
        [&format!("{off} (--write-cache off; the volume's own setting is on)"), off, off]
    );
    assert_eq!(
        told(&["--write-cache", "on"]),
        [on, &format!("{on} (--write-cache on; the volume's own setting is off)"), on]
    );
}

#[test]
fn a_unit_of_an_access_file_has_the_write_cache_that_the_file_says() {
    let bench = pool();
    let access = "[[target]]\nname = \"all\"\nunits = [\"cached\", { export = \"stable\", write-cache = true }, \
                  \"plain.img\"]\n";
    bench.make_file("access.toml", access.as_bytes());
    expect(&bench, &["--access", "access.toml"], [true, true, false], "by the file");
}
