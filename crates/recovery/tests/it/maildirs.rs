//! Maildirs that are written by a process which is killed again and again, while readers move what is new: each mail is there
//! once, and whole. Dovecot reads the same.

use recovery::maildir::MaildirWriter;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use world::Random;

const MAILS: usize = 1_500;
const FOLDER: &str = "SPINDLE_TEST_MAILDIR";

fn name_of(number: usize) -> String {
    format!("{}.12-{number}-0.priv1.edb", 1_795_860_000 + number)
}

fn mail_of(number: usize) -> String {
    let body = format!("line {number}\n").repeat(40 + number % 300);
    format!("From: eve@example.org\nSubject: mail {number}.\nMessage-ID: <{number}@test>\n\n{body}end\n")
}

/// The process that is killed: it runs in the environment of the tests below alone.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let mut maildir = MaildirWriter::open(Path::new(&folder)).unwrap();
    for number in 0..MAILS {
        maildir.add(&name_of(number), mail_of(number).as_bytes()).unwrap();
    }
    maildir.finish().unwrap();
}

/// The user that writes and reads where root is not let in: Dovecot refuses mails of root.
fn mail_user() -> (u32, u32) {
    match (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()) {
        (0, _) => (65_534, 65_534),
        user => user,
    }
}

fn begin_writer(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    let (uid, gid) = mail_user();
    if rustix::process::geteuid().is_root() {
        command.uid(uid).gid(gid);
    }
    command.args(["maildirs::writer", "--exact"]).env(FOLDER, folder);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Moves what is new to `cur`, as mail programs do that show it.
fn read_mails(folder: &Path) {
    let Ok(new) = fs::read_dir(folder.join("new")) else { return };
    for entry in new.flatten() {
        let name = entry.file_name().into_string().unwrap();
        let _ = fs::rename(entry.path(), folder.join("cur").join(format!("{name}:2,S")));
    }
}

/// A folder of the mail user, with a copy of this program that it may run.
fn mail_place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = place.path().join("writer");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    (place, program)
}

/// Runs the writer, kills it at random moments, and lets it run to its end, while `read` reads.
fn write_under_kills((program, folder): (&Path, &Path), seed: u64, read: impl Fn() + Sync) {
    let (mut random, is_over) = (Random::new(seed, "kills"), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                read();
            }
        });
        for _ in 0..40 {
            let mut child = begin_writer(program, folder).spawn().unwrap();
            thread::sleep(Duration::from_micros(random.below(60_000)));
            let _ = child.kill();
            child.wait().unwrap();
        }
        let ended = begin_writer(program, folder).status().unwrap();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.success(), "the last one comes to its end: {ended}");
    });
}

/// Each mail once, and whole. Returns the number of those with flags: a reader has renamed them.
fn check_mails(folder: &Path) -> usize {
    let mut there: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut renamed = 0;
    for part in ["new", "cur"] {
        for entry in fs::read_dir(folder.join(part)).unwrap() {
            let (path, name) = {
                let entry = entry.unwrap();
                (entry.path(), entry.file_name())
            };
            let name = name.into_string().unwrap();
            renamed += usize::from(name.contains(':'));
            let name = name.split(':').next().unwrap().to_owned();
            there.entry(name).or_default().push(fs::read_to_string(path).unwrap());
        }
    }
    let twice: Vec<&String> = there.iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| name).collect();
    assert_eq!(twice, [""; 0], "mails that are there more than once");
    for number in 0..MAILS {
        let found = there.remove(&name_of(number)).unwrap_or_else(|| panic!("mail {number} is missing"));
        assert!(found[0] == mail_of(number), "mail {number} is not whole");
    }
    assert_eq!(there.keys().collect::<Vec<_>>(), [""; 0], "nobody wrote these");
    renamed
}

#[test]
fn each_mail_is_there_once_whenever_the_writer_is_killed_and_readers_move_mails() {
    let (place, program) = mail_place();
    let mut moved = 0;
    for seed in 0..3 {
        let folder = place.path().join(format!("anna{seed}"));
        write_under_kills((&program, &folder), seed, || read_mails(&folder));
        moved += check_mails(&folder);
    }
    assert!(moved > 1_000, "{moved} were moved by a reader");
}

#[test]
fn dovecot_has_each_mail_once_while_it_reads_and_the_writer_is_killed() {
    if Command::new("doveadm").arg("--version").output().is_err() {
        let is_required = std::env::var("SPINDLE_JUDGES").is_ok_and(|judges| judges == "require");
        assert!(!is_required, "doveadm is missing: install dovecot-core");
        println!("skipped: doveadm is not installed (dovecot-core)");
        return;
    }
    let (place, program) = mail_place();
    let (folder, at) = (place.path().join("anna"), place.path().display());
    let conf = place.path().join("dovecot.conf");
    let (uid, gid) = mail_user();
    let settings = format!(
        "mail_location = maildir:{at}/anna:INDEX={at}/index:CONTROL={at}/control\nbase_dir = {at}/base\n\
         first_valid_uid = {uid}\nfirst_valid_gid = {gid}\nmail_uid = {uid}\nmail_gid = {gid}\n\
         log_path = /dev/stderr\nprotocols =\nssl = no\n"
    );
    fs::write(&conf, settings).unwrap();
    let doveadm = |words: &[&str]| {
        let mut command = Command::new("doveadm");
        command.arg("-c").arg(&conf).args(words).env("HOME", place.path()).env("USER", "anna");
        command.output().unwrap()
    };
    let read = || {
        if folder.join("tmp").is_dir() {
            doveadm(&["flags", "add", "\\Seen", "mailbox", "INBOX", "all"]);
        }
    };
    write_under_kills((&program, &folder), 7, read);
    let said = doveadm(&["fetch", "hdr.message-id size.physical", "mailbox", "INBOX", "all"]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success(), "{text}{}", String::from_utf8_lossy(&said.stderr));
    let sizes = text.lines().filter_map(|line| line.strip_prefix("size.physical: ")?.parse::<usize>().ok());
    let ids = text.lines().filter_map(|line| line.strip_prefix("hdr.message-id: ")?.strip_prefix('<'));
    let ids = ids.filter_map(|id| id.strip_suffix("@test>")?.parse::<usize>().ok());
    let mut found: Vec<(usize, usize)> = ids.zip(sizes).collect();
    found.sort_unstable();
    let expected: Vec<(usize, usize)> = (0..MAILS).map(|number| (number, mail_of(number).len())).collect();
    assert!(found == expected, "Dovecot has {} mails of {MAILS}", found.len());
    let moved = check_mails(&folder);
    println!("note: Dovecot renamed {moved} of {MAILS} mails while they came");
    assert!(moved > 0, "Dovecot read while mails came");
}
