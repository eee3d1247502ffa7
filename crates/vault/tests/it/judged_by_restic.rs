//! Debian's restic over vaults that Spindle made, and Spindle over one that restic made.

use crate::volumes::{MemoryVolume, difference, order, source};
use std::{
    fs,
    num::NonZeroUsize,
    path::Path,
    process::{Command, Output},
    rc::Rc,
};
use tempfile::TempDir;
use vault::{
    VaultError,
    blob_id::BlobId,
    checking::check,
    contents::copied_backups,
    copying::copy,
    forgetting::forget,
    keys::Maker,
    layout::SliceLayout,
    packs::{BlobKind, PACK_BYTES},
    processors::Processors,
    pruning::prune,
    repository::{Repository, VaultAccess},
    store::FolderStore,
};
use world::{
    Job, Random, World,
    real::{self, RealOptions, Workers},
};

const PASSWORD: &str = "a good password";
const USUAL: SliceLayout = SliceLayout::with_chunks(64 << 10);

/// True if restic is installed. If not, prints a line, and fails where judges are required.
fn restic_is_here() -> bool {
    let is_here = Command::new("restic").arg("version").output().is_ok();
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(is_here || !required, "restic is required: apt-get install restic");
    if !is_here {
        println!("skipped: restic is not installed (apt-get install restic)");
    }
    is_here
}

fn restic_in(folder: &Path, vault: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("restic");
    command.arg("--repo").arg(vault).args(["--no-cache", "--quiet"]).args(arguments);
    command.current_dir(folder).env("RESTIC_PASSWORD", PASSWORD).output().unwrap()
}

#[track_caller]
fn restic(vault: &Path, arguments: &[&str]) -> String {
    let output = restic_in(Path::new("/"), vault, arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

fn access(world: &World, vault: &Path) -> VaultAccess {
    VaultAccess {
        world: world.clone(),
        store: Rc::new(FolderStore::new(vault)),
        processors: Processors::Threads(Rc::new(Workers::new(NonZeroUsize::new(2).unwrap()))),
        maker: Maker { host: "mail".into(), user: "root".into(), pid: std::process::id(), uid: 0, gid: 0 },
        is_running: Rc::new(|_| true),
        pack_bytes: PACK_BYTES,
    }
}

/// The bytes of a volume that restic restored: its files one behind the other.
fn joined(folder: &Path) -> Vec<u8> {
    let sorted = |folder: &Path| {
        let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let slices = sorted(folder).into_iter().flat_map(|folder| sorted(&folder));
    slices.flat_map(|slice| fs::read(slice).unwrap()).collect()
}

#[test]
fn restic_checks_and_restores_what_spindle_copied_and_prunes_it() {
    if !restic_is_here() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let vault = folder.path().join("vault");
    real::run(0, RealOptions::default(), async |world: World| {
        let access = access(&world, &vault);
        let repository = Rc::new(Repository::make(&access, PASSWORD.as_bytes()).await.unwrap());
        let mut store = vec![0; (5 << 20) + 4096];
        Random::new(1, "store").fill(&mut store[1 << 20..3 << 20]);
        let log = vec![7; 1 << 20];
        let job = Job::under_way(&world);
        let [one, log_volume] = [&store, &log].map(|bytes| MemoryVolume::new(&world, bytes.clone()));
        let sources = vec![source(&one, "store", 1, USUAL), source(&log_volume, "log", 1, USUAL)];
        // Of writes that were cut off: one of long ago, and one that may be under way.
        let [old, new] = ["data/00/.old.1.tmp", "index/.new.1.tmp"].map(|name| vault.join(name));
        fs::write(&new, "").unwrap();
        fs::File::create(&old).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let first = copy(&repository, order(1, sources), &job).await.unwrap();
        assert_eq!((old.exists(), new.exists()), (false, true));
        let mut later = store.clone();
        later[(2 << 20) + 512..(2 << 20) + 1024].fill(1);
        let two = MemoryVolume::new(&world, later.clone());
        let mut changed = source(&two, "store", 2, USUAL);
        changed.since = Some(difference(first.snapshot, &store, &later));
        let mut same = source(&log_volume, "log", 2, USUAL);
        same.since = Some(difference(first.snapshot, &log, &log));
        let second = copy(&repository, order(2, vec![changed, same]), &job).await.unwrap();
        assert_eq!(second.read_bytes, 64 << 10);

        restic(&vault, &["check", "--read-data"]);
        let listed = restic(&vault, &["snapshots", "--tag", "backup=2", "--json"]);
        let has = |snapshot: BlobId| listed.contains(&format!("\"short_id\":\"{}\"", snapshot.short()));
        assert!(has(second.snapshot) && !has(first.snapshot), "{listed}");
        for (snapshot, bytes) in [(first.snapshot, &store), (second.snapshot, &later)] {
            let out = folder.path().join(snapshot.short());
            restic(&vault, &["restore", &snapshot.to_string(), "--target", out.to_str().unwrap()]);
            assert!(joined(&out.join("post/mail/store")) == *bytes);
            assert!(joined(&out.join("post/mail/log")) == log);
        }
        // Another password beside, as restic makes it.
        let secret = folder.path().join("secret");
        fs::write(&secret, "another one\n").unwrap();
        restic(&vault, &["key", "add", "--new-password-file", secret.to_str().unwrap()]);
        Repository::open(&access, b"another one").await.unwrap();
        let wrong = Repository::open(&access, b"A good password").await;
        assert!(matches!(wrong, Err(VaultError::WrongPassword(2))));

        restic(&vault, &["forget", &first.snapshot.to_string(), "--prune"]);
        let repository = Rc::new(Repository::open(&access, PASSWORD.as_bytes()).await.unwrap());
        let checked = check(&repository, true, None, &job).await.unwrap();
        assert_eq!((checked.findings, checked.snapshots, checked.unindexed_packs), (Vec::new(), 1, 0));
        let left = copied_backups(&repository).await.unwrap();
        assert_eq!(left.iter().map(|copy| copy.record.backup).collect::<Vec<_>>(), [2]);
        // A lock of restic's kind is seen, and ours by restic.
        let lock = vault::locks::VaultLock::take(&repository, vault::locks::LockKind::Shared).await.unwrap();
        let refused = restic_in(Path::new("/"), &vault, &["prune"]);
        assert!(
            !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("already locked")
        );
        lock.release().await.unwrap();
        restic(&vault, &["prune"]);
    });
}

#[test]
fn spindle_reads_what_restic_backed_up() {
    if !restic_is_here() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let (vault, files) = (folder.path().join("vault"), folder.path().join("files"));
    fs::create_dir(&files).unwrap();
    let mut bytes = vec![5; 3 << 20];
    Random::new(2, "file").fill(&mut bytes[..2 << 20]);
    fs::write(files.join("mail.edb"), &bytes).unwrap();
    restic(&vault, &["init", "--repository-version", "2"]);
    assert!(restic_in(&files, &vault, &["backup", "mail.edb"]).status.success());
    real::run(0, RealOptions::default(), async |world: World| {
        let repository =
            Rc::new(Repository::open(&access(&world, &vault), PASSWORD.as_bytes()).await.unwrap());
        let snapshots = repository.snapshots().await.unwrap();
        let tree = repository.read_tree(snapshots[0].1.tree).await.unwrap();
        let mut read = Vec::new();
        for id in tree.node("mail.edb").unwrap().content.as_ref().unwrap() {
            let plain = repository.read_blob(BlobKind::Data, *id).await.unwrap();
            assert_eq!(BlobId::of(&plain), *id);
            read.extend(plain);
        }
        assert!(read == bytes);
        let checked = check(&repository, true, None, &Job::under_way(&world)).await.unwrap();
        assert_eq!((checked.findings, checked.snapshots), (Vec::new(), 1));
        assert!(copied_backups(&repository).await.unwrap().is_empty());
    });
}

#[test]
fn restic_finds_nothing_missing_after_spindle_has_removed_old_copies() {
    if !restic_is_here() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let vault = folder.path().join("vault");
    real::run(0, RealOptions::default(), async |world: World| {
        let access = access(&world, &vault);
        let repository = Rc::new(Repository::make(&access, PASSWORD.as_bytes()).await.unwrap());
        let mut content = vec![0; 4 << 20];
        let mut random = Random::new(1, "store");
        random.fill(&mut content);
        let job = Job::under_way(&world);
        let mut last = Vec::new();
        for number in 1..=6 {
            // A quarter of it changes from copy to copy.
            let quarter = (number as usize % 4) << 20;
            random.fill(&mut content[quarter..quarter + (1 << 20)]);
            let device = MemoryVolume::new(&world, content.clone());
            let mut order = order(number, vec![source(&device, "store", number, USUAL)]);
            // The second one is by hand.
            order.record.is_scheduled = number != 2;
            copy(&repository, order, &job).await.unwrap();
            last.clone_from(&content);
        }
        let removed = forget(&repository, "0123456789abcdef", 2).await.unwrap();
        assert_eq!(removed.into_iter().collect::<Vec<_>>(), [1, 3, 4]);
        let before = size_of_packs(&vault);
        let outcome = prune(&repository, &job).await.unwrap();
        assert_eq!((outcome.snapshots, outcome.packs_removed > 0), (3, true), "{outcome:?}");
        let after = size_of_packs(&vault);
        assert_eq!(before + outcome.stored_bytes - outcome.removed_bytes, after);
        // Eight MiB that 2, 5 and 6 have, of nine.
        assert!(after < (8 << 20) + (200 << 10), "{after} of {before}");
        restic(&vault, &["check", "--read-data"]);
        assert_eq!(restic(&vault, &["snapshots", "--json"]).matches("short_id").count(), 3);
        let tagged = restic(&vault, &["snapshots", "--tag", "scheduled", "--json"]);
        assert_eq!(tagged.matches("short_id").count(), 2, "{tagged}");
        let out = folder.path().join("out");
        restic(&vault, &["restore", "latest", "--tag", "backup=6", "--target", out.to_str().unwrap()]);
        assert!(joined(&out.join("post/mail/store")) == last);
        // Restic has nothing to add.
        let said = restic_in(Path::new("/"), &vault, &["prune", "--dry-run", "--max-unused", "5%"]);
        assert!(said.status.success(), "{said:?}");
        assert_eq!(prune(&repository, &job).await.unwrap().packs_removed, 0);
    });
}

fn size_of_packs(vault: &Path) -> u64 {
    let folders = fs::read_dir(vault.join("data")).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}
