//! Two servers and a witness: a site takes over from one that was killed or paused, and from no other.

use crate::{
    judged_exports::{BLOCK, Endpoint, JOBS, PART, answered_lengths, fio, until},
    spindle::{Bench, is_full_run, json_of, pause, signal},
    two_sites::{EXPORT, Site, VOLUME, has_clients, pair_over},
    two_sites_hosts::{OPEN_ROWS, TARGET, UriLoad},
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A witness at an address that is neither site's; killed when it is dropped.
pub struct Witness {
    bench: Bench,
    address: String,
    child: Option<Child>,
}

impl Witness {
    pub fn begin() -> Self {
        let mut witness = Self { bench: Bench::new(), address: "127.0.0.30:0".to_owned(), child: None };
        witness.start();
        witness
    }

    fn start(&mut self) {
        let mut command = self.bench.command(&["witness", &self.address, "--state", "witness.db", "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.address = json_of(&line)["address"].as_str().unwrap().to_owned();
        self.child = Some(child);
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn mode(&self, hold: &str) -> String {
        format!("sync --hold {hold} --auto --witness {}", self.address)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The line between both sites, which can be cut: connections end, and new ones are refused.
struct Line {
    port: u16,
    is_cut: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Line {
    fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = Self {
            port: listener.local_addr().unwrap().port(),
            is_cut: Arc::default(),
            ends: Arc::default(),
        };
        let (is_cut, ends) = (Arc::clone(&line.is_cut), Arc::clone(&line.ends));
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    ends.lock().unwrap().push(from.try_clone().unwrap());
                    thread::spawn(move || carry(from, to));
                }
            }
        });
        line
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
        self.ends.lock().unwrap().drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }

    fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The other site takes over if this one is lost now.
pub fn is_protected(site: &Site) -> bool {
    site.row()["witness"]["takes_over"] == true
}

/// Boston and Denver over a line, in sync and watched by a witness.
fn watched(witness: &Witness, hold: &str) -> (Site, Site, Line) {
    let mut line = None;
    let (boston, denver) = pair_over(&witness.mode(hold), |port| line.insert(Line::to(port)).port);
    boston.io(&["write -P 17 0 1M"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    until("the witness knows it", || is_protected(&boston));
    (boston, denver, line.unwrap())
}

/// Kills the primary under fio: the other site serves all that fio was answered, and nobody was asked.
fn kill_the_primary(program: &Path, round: u64) -> Duration {
    let witness = Witness::begin();
    let (mut boston, denver, _line) = watched(&witness, "2s");
    let by = |site: &Site, options: &str, lengths| {
        fio((&site.bench, program), &Endpoint::Socket(site.bench.path("socket")), options, lengths)
    };
    let sent = || boston.row()["sent_bytes"].as_u64().unwrap();
    let before = sent();
    let mut writing = by(&boston, "do_verify=0", [PART; JOBS as usize]).spawn().unwrap();
    thread::sleep(Duration::from_millis(800 + round * 97 % 700));
    // The view is a second old at most.
    until("fio has written enough to look at", || sent() > before + 100 * BLOCK);
    boston.kill();
    let killed = Instant::now();
    until("fio hears of it", || writing.try_wait().unwrap().is_some());
    let lengths = answered_lengths(&boston.bench);
    assert!(lengths.iter().sum::<u64>() > 50 * BLOCK, "{lengths:?}");
    until("denver serves", || denver.answers("read 0 4k"));
    let took = killed.elapsed();
    let verified = by(&denver, "verify_only=1", lengths).status().unwrap();
    assert!(verified.success(), "{}\n{}", denver.fio_output(), denver.log());
    until("the log says so", || denver.log().contains("this site took over"));
    denver.io(&["write -P 44 0 1M"]);
    // The old primary returns and follows; then each takes over from the other once more, in order and not.
    boston.start();
    until("boston follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    boston.is_closed();
    until("they are in sync", || denver.row()["is_alone"] == false && is_protected(&denver));
    denver.verb("failover sg1");
    until("boston serves", || boston.is("primary", "streaming") && is_protected(&boston));
    boston.io(&["read -P 44 0 1M", "write -P 45 0 4k"]);
    until("it is in sync", || boston.row()["is_alone"] == false);
    took
}

#[test]
fn a_killed_primary_is_taken_over_without_a_person_and_nothing_answered_is_lost() {
    if !has_clients() {
        return;
    }
    let rounds = if std::env::var_os("SPINDLE_FULL").is_some() { 20 } else { 1 };
    for round in 0..rounds {
        println!(
            "round {round}: served again {:?} after the kill",
            kill_the_primary(Path::new("fio"), round)
        );
    }
}

#[test]
fn an_iscsi_host_of_a_killed_primary_goes_on_at_the_other_site_without_a_person() {
    if !is_full_run("an iSCSI host of a killed primary") {
        return;
    }
    let witness = Witness::begin();
    let (mut boston, denver, _line) = watched(&witness, "2s");
    boston.write("boston", &format!("{VOLUME}{EXPORT}{OPEN_ROWS}"));
    boston.verb("apply site.toml");
    // Databases are made on an empty volume alone.
    boston.io(&["write -P 0 0 1M"]);
    until("the target came with the group", || denver.row()["rows"][0] == "unit disks/3");
    let uri = format!("iscsi://{},{}/{TARGET}/3", boston.portal(), denver.portal());
    let load = UriLoad::begin(&witness.bench, &uri, "15s");
    boston.kill();
    until("denver serves", || denver.row()["serves"] == true);
    load.end(&denver);
}

/// QEMU's client, which does one command after the other as they are typed.
pub struct Typed {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Drop for Typed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Typed {
    pub fn at(uri: &str) -> Self {
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw", "-t", "none", uri]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    fn type_in(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Types a command, and waits. True once it is done; false if it failed, or nothing more is said.
    pub fn answers(&mut self, line: &str) -> bool {
        if writeln!(self.child.stdin.as_mut().unwrap(), "{line}").is_err() {
            return false;
        }
        let mut said = String::new();
        while !said.contains("/sec") {
            match self.output.read_line(&mut said) {
                Ok(count) if count > 0 && !said.contains("failed") => {}
                _ => return false,
            }
        }
        true
    }

    /// Everything that it says until its end.
    fn rest(mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.output.read_to_string(&mut said).unwrap();
        self.child.wait().unwrap();
        said
    }
}

#[test]
fn a_paused_primary_answers_nothing_old_after_the_other_site_took_over() {
    if !has_clients() {
        return;
    }
    let witness = Witness::begin();
    let (boston, denver, _line) = watched(&witness, "15s");
    let mut host = Typed::at(&boston.uri());
    host.type_in("read -P 17 0 4k");
    let mut first = String::new();
    host.output.read_line(&mut first).unwrap();
    assert!(first.contains("4096/4096"), "{first}");
    pause(boston.server());
    host.type_in("read -P 17 0 4k");
    until("denver serves", || denver.answers("read -P 17 0 1M"));
    denver.io(&["write -P 55 0 4k"]);
    signal(boston.server(), "CONT");
    let said = host.rest();
    let answered = said.matches("4096/4096").count();
    assert!(answered == 0 && said.contains("read failed"), "an old read was answered: {said}");
    until("boston follows", || boston.is("secondary", "following") && denver.is("primary", "streaming"));
    boston.is_closed();
    denver.io(&["read -P 55 0 4k"]);
}

#[test]
fn a_cut_line_a_lost_witness_and_both_stop_no_host_and_make_no_second_primary() {
    if !is_full_run("a cut line beside a lost witness") {
        return;
    }
    if !has_clients() {
        return;
    }
    let mut witness = Witness::begin();
    let (boston, mut denver, line) = watched(&witness, "1s");
    // The line alone: boston goes on alone, which the witness knows, and denver waits for a person.
    line.cut();
    boston.io(&["write -P 18 0 4k"]);
    until("boston went on alone", || boston.row()["is_alone"] == true);
    thread::sleep(Duration::from_secs(4));
    assert!(denver.is("secondary", "connecting"), "{}", denver.row());
    denver.is_closed();
    denver.refused("failover sg1 --unplanned --accept-loss all", "it is alive");
    line.mend();
    until("they are in sync", || boston.row()["is_alone"] == false && is_protected(&boston));
    // The witness alone: hosts notice nothing, and people see that nobody takes over.
    witness.kill();
    thread::sleep(Duration::from_secs(4));
    boston.io(&["read -P 18 0 4k", "write -P 19 0 4k"]);
    assert!(boston.is("primary", "streaming") && boston.row()["is_alone"] == false, "{}", boston.row());
    assert!(!is_protected(&boston), "{}", boston.row());
    // Both: nobody serves, until a person says that the other site is off.
    denver.kill();
    until("hosts are held, then refused", || boston.row()["serves"] == false);
    // A host that is connected at that moment gets an error.
    until("the export is closed", || boston.refusal_of_hosts().contains("there is no export"));
    let said = boston.row()["summary"].as_str().unwrap().to_owned();
    assert!(said.contains("dr alone sg1 --peer-is-off"), "{said}");
    boston.verb("dr alone sg1 --peer-is-off");
    boston.io(&["read -P 19 0 4k", "write -P 20 0 4k"]);
    // All return, and nothing was lost.
    witness.start();
    denver.start();
    until("they are in sync", || boston.row()["is_alone"] == false && is_protected(&boston));
    boston.verb("failover sg1");
    until("denver serves", || denver.is("primary", "streaming"));
    denver.io(&["read -P 20 0 4k", "read -P 17 4k 1020k"]);
}

#[test]
fn groups_with_a_witness_are_refused_in_one_line() {
    let witness = Witness::begin();
    let (boston, _denver) = crate::two_sites::paired();
    let refused = |rest: &str, why: &str| {
        boston.refused(&format!("dr create sg1 mail/disk --to denver --mode {rest}"), why);
    };
    refused(&format!("async --auto --witness {}", witness.address), "not in sync");
    refused(
        &format!("sync --failsafe --auto --witness {}", witness.address),
        "refuses writes without its peer",
    );
    refused("sync --auto --witness 127.0.0.1:7790", "on the machine of one of both sites");
    refused("sync --auto --witness 127.0.0.30:9", "witness 127.0.0.30:9 not reached");
    refused("sync --auto", "--witness");
    boston.refused("dr alone sg1", "--peer-is-off");
    assert!(boston.row().is_null(), "{}", boston.row());
}
