//! A killed primary, and the time until the other site answers, with a witness and no person. Each round looks at every block that
//! was answered.

use super::{
    nbd_host::{BLOCK_BYTES, NbdHost},
    sites::{Site, Sites, SitesPlan, until},
};
use crate::bench::{
    Setting,
    our_programs::OurPrograms,
    row::{Goal, Measurement, Row},
};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Blocks that are written in turn.
const BLOCKS: u64 = 1024;
/// Time of writing before a kill, and what is added in each round: kills fall at different moments of leases.
const WRITING: Duration = Duration::from_millis(1500);
const LATER: Duration = Duration::from_millis(137);
/// Pause between two tries of a host.
const TRY: Duration = Duration::from_millis(5);
/// The goal, for one host.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(setting: &Setting, ours: &OurPrograms, rows: &mut Vec<Row>) -> Result<()> {
    let rounds = if setting.quick { 4 } else { 20 };
    let witness = Witness::begin(setting, ours)?;
    let mode = format!("--mode sync --hold 2s --auto --witness {}", witness.address);
    let plan = SitesPlan { has_relay: false, groups: vec![("watched", mode)], volume_mib: 64 };
    let Sites { boston, denver, .. } = Sites::begin(setting, ours, &plan)?;
    let mut sites = [boston, denver];
    let mut times = Row::new(
        "killed primary, with a witness: until the other site answers",
        "ms",
        Goal::AtMost(5000.0),
        "killed: SIGKILL under a host that writes one stable block after the other, to the first answer to a host that tries every 5 \
         ms; all blocks that were answered are looked at there, and the run ends with an error if one is lost",
    );
    let mut longest =
        Row::new("killed primary, with a witness: the longest of all rounds", "ms", Goal::AtMost(5000.0), "");
    for round in 0..rounds {
        until("the witness knows that both are in sync", || {
            let row = sites[0].group("watched")?;
            Ok(row["is_alone"] == false && row["witness"]["takes_over"] == true)
        })?;
        let (took, raw) = kill_and_wait(&mut sites, WRITING + LATER * (round % 11))?;
        times.ours.push(Measurement { value: took.as_secs_f64() * 1000.0, raw });
        sites[0].start(ours)?;
        sites[1].wait_for("watched", ("primary", "streaming"), true)?;
        sites.reverse();
    }
    let most = times.ours.iter().max_by(|a, b| a.value.total_cmp(&b.value)).context("rounds")?;
    longest.ours.push(most.clone());
    rows.extend([times, longest]);
    Ok(())
}

/// Kills the first site while a host writes there, and looks for its blocks at the second one.
fn kill_and_wait(sites: &mut [Site; 2], writing: Duration) -> Result<(Duration, Value)> {
    let [primary, other] = sites;
    let mut host = NbdHost::connect(&primary.socket, "watched")?;
    let begun = Instant::now();
    // Of each block, the number of its last write that was answered.
    let mut answered = vec![0_u64; BLOCKS as usize];
    let mut next = 1;
    let ended = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while host.write(offset_of(next), &block_of(next)).is_ok() {
                answered[(next % BLOCKS) as usize] = next;
                next += 1;
            }
        });
        thread::sleep(writing.saturating_sub(begun.elapsed()));
        primary.kill();
        let killed = Instant::now();
        let first = first_answer(other, killed);
        writer.join().expect("it does not panic");
        first.map(|host| (killed.elapsed(), host))
    });
    let (took, mut host) = ended?;
    let writes = answered.iter().max().copied().unwrap_or_default();
    ensure!(writes > 0, "nothing was written before the kill");
    for (index, &number) in answered.iter().enumerate().filter(|(_, number)| **number > 0) {
        let found = number_in(&host.read(index as u64 * BLOCK_BYTES as u64)?);
        // One write was under way.
        ensure!(
            found == number || found == next,
            "write {number} was answered, and block {index} has {found} at the other site"
        );
    }
    Ok((took, json!({ "writes": writes })))
}

/// The first connection that reads a block.
fn first_answer(site: &Site, killed: Instant) -> Result<NbdHost> {
    loop {
        let answer =
            NbdHost::connect(&site.socket, "watched").and_then(|mut host| host.read(0).map(|_| host));
        match answer {
            Ok(host) => return Ok(host),
            Err(error) => ensure!(killed.elapsed() < PATIENCE, "the other site does not answer: {error}"),
        }
        thread::sleep(TRY);
    }
}

fn offset_of(number: u64) -> u64 {
    number % BLOCKS * BLOCK_BYTES as u64
}

fn block_of(number: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_be_bytes()));
    block
}

/// The number of a block that is whole; of any other one a number that none has.
fn number_in(block: &[u8; BLOCK_BYTES]) -> u64 {
    let number = u64::from_be_bytes(block[..8].try_into().expect("8 bytes"));
    if *block == block_of(number) { number } else { u64::MAX }
}

/// A witness at an address that is neither site's; killed when it is dropped.
struct Witness {
    child: Child,
    address: String,
}

impl Witness {
    fn begin(setting: &Setting, ours: &OurPrograms) -> Result<Self> {
        let folder = setting.folder.join("witness");
        fs::create_dir_all(&folder)?;
        let mut command = Command::new(ours.program());
        command.current_dir(&folder).args(["witness", "127.0.0.30:0", "--state", "witness.db", "--json"]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("spindle witness")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("asked for as a pipe")).read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line).context("what the witness says")?;
        let address = said["address"].as_str().context("the address of the witness")?.to_owned();
        Ok(Self { child, address })
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
