//! `cargo xtask bench NAME`: our speed beside a peer's, on the same path in the same run.
//!
//! A bench is a file here that measures and gives rows; the rest is the same for all: the table, the raw
//! figures under `bench/runs/<date>-<host>/`, the goals. Ours and the peer's runs alternate, and a ratio is the
//! median of the ratios of neighbouring runs, so that a slow minute of the machine meets both sides. The speed of
//! the machine itself comes first.

mod array;
mod btrfs;
mod console;
mod fio;
mod import;
mod latency;
mod machine;
mod machine_speed;
mod mixed;
pub(crate) mod our_programs;
mod plan;
mod protect;
mod prove;
pub(crate) mod prove_report;
mod record;
mod replication;
mod row;
mod serve;
mod serve_beside;
mod storage_daemon;
mod table;
mod targets;
mod vault;
mod verify;

pub(crate) use replication::relay::DelayRelay;
pub(crate) use serve::Server;

use crate::{judges, step};
use anyhow::{Context, Result, bail};
use machine_speed::MachineSpeed;
use record::Record;
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// BenchOptions of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct BenchOptions {
    /// Bench to run
    name: Name,
    /// Smaller sizes and shorter runs: under 5 minutes on an idle machine, once everything is built
    #[arg(long)]
    quick: bool,
    /// End with exit code 1 if a goal is missed
    #[arg(long)]
    check: bool,
    /// Folder on the storage to measure [default: bench/ in the target folder]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Install fio, and what else a bench compares with (Debian packages, through apt-get), if it is missing
    #[arg(long)]
    install: bool,
    /// Measure only rows whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// The benches there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// The mailbox engine beside fio: random page reads, the mixed run, creation, verification
    Prove,
    /// A volume of a pool beside fio on a plain file: reads, the mixed load, latency
    Array,
    /// Our iSCSI and NBD servers beside tgt and qemu-storage-daemon
    Targets,
    /// 'spindle serve': its API beside hosts, idle, and with 4,096 volumes
    Serve,
    /// The cost of a browser that shows the console
    Console,
    /// 'spindle volume import' beside a read of the source and a write into the pool
    Import,
    /// Groups at two sites: writes in sync and async, failover, beside qemu-storage-daemon's mirror
    Replication,
    /// Time of 'spindle plan', without a peer
    Plan,
    /// 'spindle verify' in memory, and on the storage beside fio
    Verify,
    /// 'spindle protect vault' beside restic and borg
    Vault,
    /// Backups: the freeze window beside fsfreeze and btrfs, a load with 24 kept, snapshots verified beside fio
    Protect,
}

/// Setting common to all benches.
struct Setting {
    quick: bool,
    /// Empty, on the storage to measure, and removed afterwards.
    folder: PathBuf,
    only: String,
    /// True if missing packages may be installed.
    install: bool,
}

impl Setting {
    /// True if `--only` selects rows of that name.
    fn wants(&self, what: &str) -> bool {
        what.contains(&self.only)
    }
}

/// Measures, prints the table, keeps the raw figures.
pub fn run(options: &BenchOptions) -> Result<()> {
    let install = options.install || env::var_os("CI").is_some_and(|value| value == "true");
    // A plan is compared with nothing.
    let fio_version = if options.name == Name::Plan { String::new() } else { judges::fio(install)? };
    let parent = match &options.path {
        Some(path) => path.clone(),
        None => step::target_directory()?.join("bench"),
    };
    let scratch = Scratch::make(&parent)?;
    let setting =
        Setting { quick: options.quick, folder: scratch.0.clone(), only: options.only.clone(), install };
    let name = match options.name {
        Name::Prove => "prove",
        Name::Array => "array",
        Name::Targets => "targets",
        Name::Serve => "serve",
        Name::Console => "console",
        Name::Import => "import",
        Name::Replication => "replication",
        Name::Plan => "plan",
        Name::Verify => "verify",
        Name::Vault => "vault",
        Name::Protect => "protect",
    };
    if options.name == Name::Vault {
        vault::prepare(install)?;
    }
    if options.name == Name::Protect {
        protect::prepare(install)?;
    }
    if options.name == Name::Targets {
        targets::prepare(install)?;
    }
    let mut examples = vec![machine_speed::EXAMPLE];
    examples.extend(match options.name {
        Name::Prove => &prove::EXAMPLES[..],
        Name::Array => &array::EXAMPLES,
        Name::Targets => &targets::EXAMPLES,
        Name::Serve => &serve_beside::EXAMPLES,
        Name::Console | Name::Import | Name::Replication | Name::Plan | Name::Vault | Name::Protect => &[],
        Name::Verify => &verify::EXAMPLES,
    });
    let programs = our_programs::OurPrograms::build(options.name != Name::Array, &examples)?;
    let start = Instant::now();
    println!("== bench {name} in {}", parent.display());
    let mut record = Record::new(name, options.quick, &parent, &fio_version)?;
    let speed = MachineSpeed::measure(&setting, &programs, !fio_version.is_empty())?;
    println!("{}", speed.render());
    record.machine_speed(&speed);
    let rows = match options.name {
        Name::Prove => prove::run(&setting, &programs, &mut record)?,
        Name::Array => array::run(&setting, &programs, &mut record)?,
        Name::Targets => targets::run(&setting, &programs, &mut record)?,
        Name::Serve => serve::run(&setting, &programs, &mut record)?,
        Name::Console => console::run(&setting, &programs, &mut record)?,
        Name::Import => import::run(&setting, &programs, &mut record)?,
        Name::Replication => replication::run(&setting, &programs, &mut record)?,
        Name::Plan => plan::run(&setting, &programs, &mut record)?,
        Name::Verify => verify::run(&setting, &programs, &mut record)?,
        Name::Vault => vault::run(&setting, &programs, &mut record)?,
        Name::Protect => protect::run(&setting, &programs, &mut record)?,
    };
    drop(scratch);
    if rows.is_empty() {
        bail!("no row is called {:?}", options.only);
    }
    println!("== bench {name}: {}\n", step::seconds(start.elapsed()));
    print!("{}", table::render(&rows));
    let file = record.write(&rows, &step::workspace_root().join("bench").join("runs"))?;
    println!("\nRaw figures: {}", file.display());
    let missed: Vec<&str> =
        rows.iter().filter(|row| row.met() == Some(false)).map(|row| row.what.as_str()).collect();
    if options.check && !missed.is_empty() {
        bail!("{} goals are missed: {}", missed.len(), missed.join("; "));
    }
    Ok(())
}

/// A folder of our own below the one that was named; removed when the bench ends.
struct Scratch(PathBuf);

impl Scratch {
    fn make(parent: &Path) -> Result<Self> {
        let folder = parent.join("spindle-bench.tmp");
        if folder.exists() {
            // Left by a bench that was killed; no other program uses this name.
            fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Self(folder.canonicalize()?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing more can be done about it here; the next bench removes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
