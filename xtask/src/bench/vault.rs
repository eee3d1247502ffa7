//! `spindle protect vault` beside restic and borg: the same bytes as a volume and as a file, the first copy, the restore, and
//! copies after pages changed at random.
//!
//! Ours reads a snapshot over NBD, from a server on the same machine; the peers read the file. Each has a repository of its own,
//! encrypted, with its usual compression.

use super::{
    Setting,
    our_programs::{OurPrograms, shown},
    record::Record,
    row::{Goal, Measurement, Row},
    serve::{Server, folder_of},
};
use crate::judges;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// Debian's packages of the peers, and of the programs that write the volume.
const PACKAGES: [(&str, &str); 3] =
    [("restic", "restic"), ("borg", "borgbackup"), ("qemu-img", "qemu-utils")];
const PASSWORD: &str = "bench";
const MB: f64 = 1e6;
/// Writes of one start of qemu-io.
const WRITES_AT_ONCE: usize = 100;

/// Pages that change before a copy: their size, and how many of ten thousand.
#[derive(Clone, Copy)]
struct PageChange {
    page_bytes: usize,
    of_ten_thousand: usize,
}

const CHANGES: [PageChange; 3] = [
    PageChange { page_bytes: 32 << 10, of_ten_thousand: 10 },
    PageChange { page_bytes: 32 << 10, of_ten_thousand: 100 },
    PageChange { page_bytes: 8 << 10, of_ten_thousand: 100 },
];

/// Installs what is missing, if it may.
pub fn prepare(install: bool) -> Result<()> {
    let is_missing = |program: &str| Command::new(program).arg("--help").output().is_err();
    let missing = PACKAGES.iter().filter(|(program, _)| is_missing(program)).map(|(_, package)| *package);
    let missing: Vec<&str> = missing.collect();
    match missing.is_empty() {
        true => Ok(()),
        false if install => judges::packages(&missing),
        false => bail!("missing: install them by apt-get install {}, or --install", missing.join(" ")),
    }
}

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let (rounds, bytes) = if setting.quick { (1, 512 << 20) } else { (3, 2 << 30) };
    record.method(format!(
        "{} MiB that nothing compresses; restic and borg read them as a file, ours as a snapshot over NBD; all from memory as \
         far as the kernel keeps them; {rounds} rounds, each of new repositories",
        bytes >> 20
    ));
    let mut rows = Rows::default();
    for round in 0..rounds {
        println!("   round {}", round + 1);
        let scene = Scene::begin(setting, ours, round, bytes)?;
        scene.measure(&mut rows)?;
        scene.end()?;
    }
    rows.0.retain(|row| setting.wants(&row.what));
    Ok(rows.0)
}

#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    fn add(&mut self, row: Row, (ours, peer): (Measurement, Option<Measurement>)) {
        let known = match self.0.iter_mut().find(|known| known.what == row.what) {
            Some(known) => known,
            None => {
                self.0.push(row);
                self.0.last_mut().expect("it was pushed just now")
            }
        };
        known.ours.push(ours);
        known.peer.extend(peer);
    }
}

/// Time and bytes of one copy by one program.
struct Step {
    seconds: f64,
    stored_bytes: f64,
    raw: Value,
}

impl Step {
    fn measurement(&self, value: f64) -> Measurement {
        Measurement { value, raw: self.raw.clone() }
    }
}

struct Scene<'s> {
    ours: &'s OurPrograms,
    folder: PathBuf,
    server: Server,
    uri: String,
    bytes: usize,
}

impl<'s> Scene<'s> {
    /// A server with a volume, the file beside it, and empty repositories.
    fn begin(setting: &Setting, ours: &'s OurPrograms, round: usize, bytes: usize) -> Result<Self> {
        let socket = setting.folder.join("vault.sock");
        let (gb, drive_gb) = (bytes as f64 / f64::from(1 << 30), bytes as f64 / 1e9 * 2.5 + 1.0);
        let site = format!(
            "[serve]\nnbd = 'unix:{}'\n[[group]]\nname = 'mail'\ndrives = 2\ndrive_gb = {drive_gb}\n[[volume]]\nname = 'store'\n\
             group = 'mail'\ngb = {gb}\n[[nbd]]\nname = 'store'\nvolume = 'store'\n[[protect]]\nset = 'post'\n\
             volumes = ['store']\nschedules = ['24x1h']\n",
            socket.display()
        );
        let folder = folder_of(setting, &format!("vault-{round}"), &site)?;
        let mut noise = File::open("/dev/urandom")?.take(bytes as u64);
        std::io::copy(&mut noise, &mut File::create(folder.join("image"))?)?;
        let server = Server::begin(ours, &folder)?;
        let uri = format!("nbd+unix:///store?socket={}", socket.display());
        let scene = Self { ours, folder, server, uri, bytes };
        scene.run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "image", &scene.uri])?;
        scene.spindle(&["protect", "vault", "init", "vault"])?;
        scene.run("restic", &["-r", "restic", "init", "--repository-version", "2"])?;
        scene.run("borg", &["init", "-e", "repokey", "borg"])?;
        Ok(scene)
    }

    fn measure(&self, rows: &mut Rows) -> Result<()> {
        let [ours, restic, borg] = self.copies("first")?;
        let rate = |step: &Step| step.measurement(self.bytes as f64 / step.seconds / MB);
        for (name, peer, goal) in [("restic", &restic, Goal::OfPeer(1.0)), ("borg", &borg, Goal::None)] {
            rows.add(
                Row::new(format!("first copy, beside {name}"), "MB/s", goal, ""),
                (rate(&ours), Some(rate(peer))),
            );
        }
        self.restores(rows)?;
        for (number, change) in CHANGES.into_iter().enumerate() {
            let changed = self.change(change, number as u64)? as f64;
            let [ours, restic, borg] = self.copies(&format!("changed-{number}"))?;
            let (kib, percent) = (change.page_bytes >> 10, change.of_ten_thousand as f64 / 100.0);
            let what = format!("{percent} % of {kib} KiB pages changed");
            let goal = match (kib, change.of_ten_thousand) {
                (32, 10) => Goal::AtMostOfPeer(0.1),
                (32, _) => Goal::AtMostOfPeer(1.0 / 3.0),
                _ => Goal::None,
            };
            for (name, peer) in [("restic", &restic), ("borg", &borg)] {
                let sides = (ours.measurement(ours.seconds), Some(peer.measurement(peer.seconds)));
                rows.add(Row::new(format!("{what}, beside {name}"), "s", goal, ""), sides);
            }
            let goal =
                if (kib, change.of_ten_thousand) == (32, 100) { Goal::AtMost(3.0) } else { Goal::None };
            let stored = |step: &Step| step.measurement(step.stored_bytes / changed);
            let row = Row::new(format!("{what}: stored"), "bytes a changed byte", goal, "the peer is restic");
            rows.add(row, (stored(&ours), Some(stored(&restic))));
        }
        Ok(())
    }

    /// A copy by each: ours, restic, borg.
    fn copies(&self, name: &str) -> Result<[Step; 3]> {
        self.spindle(&["protect", "now", "post", "--hold", "bench", "--state", "state"])?;
        let ours = ["protect", "vault", "copy", "post", "--to", "vault", "--state", "state", "--json"];
        Ok([
            self.step("vault", || self.spindle(&ours))?,
            self.step("restic", || self.run("restic", &["-r", "restic", "backup", "image"]))?,
            self.step("borg", || self.run("borg", &["create", &format!("borg::{name}"), "image"]))?,
        ])
    }

    fn restores(&self, rows: &mut Rows) -> Result<()> {
        let list = self.spindle(&["protect", "vault", "list", "vault", "--json"])?;
        let list: Value = serde_json::from_str(&list)?;
        let number = list[0]["backup"].to_string();
        for folder in ["ours-out", "restic-out", "borg-out"] {
            fs::create_dir(self.folder.join(folder))?;
        }
        let ours =
            ["protect", "vault", "restore", "post", &number, "--from", "vault", "--to-file", "ours-out"];
        let ours = self.step("ours-out", || self.spindle(&ours))?;
        let restic = ["-r", "restic", "restore", "latest", "--target", "restic-out"];
        let restic = self.step("restic-out", || self.run("restic", &restic))?;
        let borg =
            self.step("borg-out", || self.run_in("borg-out", "borg", &["extract", "../borg::first"]))?;
        for restored in ["ours-out/mail/store.img", "restic-out/image", "borg-out/image"] {
            self.run("cmp", &["image", restored])?;
        }
        let rate = |step: &Step| step.measurement(self.bytes as f64 / step.seconds / MB);
        for (name, peer, goal) in [("restic", &restic, Goal::OfPeer(1.0)), ("borg", &borg, Goal::None)] {
            let row = Row::new(format!("restore to a file, beside {name}"), "MB/s", goal, "");
            rows.add(row, (rate(&ours), Some(rate(peer))));
        }
        for folder in ["ours-out", "restic-out", "borg-out"] {
            fs::remove_dir_all(self.folder.join(folder))?;
        }
        Ok(())
    }

    /// Changes pages at random, in the file and in the volume. Returns the bytes.
    fn change(&self, change: PageChange, seed: u64) -> Result<usize> {
        let pages = self.bytes / change.page_bytes;
        let image = File::options().write(true).open(self.folder.join("image"))?;
        let (mut noise, mut random) = (File::open("/dev/urandom")?, seed.wrapping_mul(2).wrapping_add(1));
        let count = pages * change.of_ten_thousand / 10_000;
        // Distinct pages, spread by a step that shares no factor with a power of two.
        let mut at: Vec<usize> = Vec::with_capacity(count);
        while at.len() < count {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let page = (random >> 33) as usize % pages;
            if !at.contains(&page) {
                at.push(page);
            }
        }
        for some in at.chunks(WRITES_AT_ONCE) {
            let mut arguments = vec!["-f".to_owned(), "raw".to_owned()];
            for page in some {
                let mut bytes = vec![0; change.page_bytes];
                noise.read_exact(&mut bytes)?;
                let offset = page * change.page_bytes;
                image.write_all_at(&bytes, offset as u64)?;
                let file = self.folder.join(format!("page-{page}"));
                fs::write(&file, bytes)?;
                let write = format!("write -s {} {offset} {}", file.display(), change.page_bytes);
                arguments.extend(["-c".to_owned(), write]);
            }
            arguments.push(self.uri.clone());
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            self.run("qemu-io", &arguments)?;
            for page in some {
                fs::remove_file(self.folder.join(format!("page-{page}")))?;
            }
        }
        ensure!(count > 0, "no page changes");
        Ok(count * change.page_bytes)
    }

    fn step(&self, stores_in: &str, work: impl FnOnce() -> Result<String>) -> Result<Step> {
        let place = self.folder.join(stores_in);
        let before = bytes_of(&place)?;
        let begun = Instant::now();
        let said = work()?;
        let seconds = begun.elapsed().as_secs_f64();
        let stored = bytes_of(&place)? - before;
        let raw = json!({ "seconds": seconds, "stored_bytes": stored, "said": said });
        Ok(Step { seconds, stored_bytes: stored as f64, raw })
    }

    fn spindle(&self, arguments: &[&str]) -> Result<String> {
        let program = self.ours.program();
        self.run(program.to_str().context("a path of text")?, arguments)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.run_in(".", program, arguments)
    }

    fn run_in(&self, folder: &str, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.join(folder));
        for variable in ["SPINDLE_VAULT_PASSWORD", "RESTIC_PASSWORD", "BORG_PASSPHRASE"] {
            command.env(variable, PASSWORD);
        }
        command.env("RESTIC_CACHE_DIR", self.folder.join("restic-cache"));
        command.env("BORG_BASE_DIR", self.folder.join("borg-base"));
        let output = command.output().with_context(|| format!("starting {program}"))?;
        if !output.status.success() {
            bail!("{}: {}", shown(&command), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn end(self) -> Result<()> {
        self.server.end()?;
        Ok(fs::remove_dir_all(&self.folder)?)
    }
}

/// Bytes of all files below a folder.
fn bytes_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_of(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
