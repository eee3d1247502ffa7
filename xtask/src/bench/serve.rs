//! `spindle serve`: what its API costs hosts, and how it does with nothing to do and with many volumes.
//!
//! The peer of a load with requests is the same load without them, on the same server.

use super::{
    Setting,
    fio::Jobs,
    our_programs::OurPrograms,
    record::Record,
    row::{Goal, Measurement, Row, interleave},
    serve_beside,
};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Requests a second beside a load.
pub(super) const REQUESTS_PER_SECOND: u32 = 100;
/// Ticks of the kernel's processor times in a second: the same on every Linux that Spindle ships on.
const TICKS_PER_SECOND: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(120);
const MANY_VOLUMES: usize = 4096;
const APPLIED_VOLUMES: usize = 1000;
/// GETs of which none may reach a pool.
const GETS: usize = 10_000;

/// A server of its own, killed when dropped.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    /// From its start until it was ready.
    ready_within: Duration,
}

impl Server {
    pub(crate) fn begin(ours: &OurPrograms, folder: &Path) -> Result<Self> {
        let started = Instant::now();
        let mut command = Command::new(ours.program());
        command.current_dir(folder).args(["serve", "site.toml", "--state", "state", "--quiet"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("spindle serve")?;
        let mut server = Self { child, folder: folder.to_owned(), ready_within: Duration::ZERO };
        while server.get("/readyz").is_err() {
            ensure!(started.elapsed() < PATIENCE, "spindle serve is not ready");
            ensure!(server.child.try_wait()?.is_none(), "spindle serve has ended");
            thread::sleep(Duration::from_millis(5));
        }
        server.ready_within = started.elapsed();
        Ok(server)
    }

    /// The body of a resource.
    fn get(&self, path: &str) -> Result<String> {
        request(&self.folder, "GET", path, None)
    }

    fn get_json(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.get(path)?)?)
    }

    /// Ends it as a loss of its machine would.
    pub(super) fn kill(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that it has used, in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64> {
        processor_seconds(&fs::read_to_string(format!("/proc/{}/stat", self.pid()))?)
    }

    /// Bytes that it has given to drives so far.
    pub(super) fn written_bytes(&self) -> Result<u64> {
        let io = fs::read_to_string(format!("/proc/{}/io", self.pid()))?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        Ok(line.context("write_bytes")?.trim().parse()?)
    }

    /// Processor time of the threads whose names are wanted, in seconds; fails if there is none.
    pub(super) fn processor_seconds_of(&self, is_wanted: impl Fn(&str) -> bool) -> Result<f64> {
        let mut all = Vec::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))?.flatten() {
            // One that has ended meanwhile has no file any more.
            let Ok(name) = fs::read_to_string(thread.path().join("comm")) else { continue };
            if is_wanted(name.trim()) {
                all.push(processor_seconds(&fs::read_to_string(thread.path().join("stat"))?)?);
            }
        }
        ensure!(!all.is_empty(), "the server has no such thread");
        Ok(all.into_iter().sum())
    }

    fn resident_bytes(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024.0)
    }

    /// Ends it as systemd would; returns how long that took.
    pub(super) fn end(mut self) -> Result<Duration> {
        let asked = Instant::now();
        let status = Command::new("kill").arg(self.pid().to_string()).status()?;
        ensure!(status.success(), "kill");
        while self.child.try_wait()?.is_none() {
            ensure!(asked.elapsed() < PATIENCE, "spindle serve does not end");
            thread::sleep(Duration::from_millis(2));
        }
        Ok(asked.elapsed())
    }
}

/// Of a process or a thread, from its file `stat`.
fn processor_seconds(stat: &str) -> Result<f64> {
    let fields = stat.rsplit_once(')').context("a stat file")?.1;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<f64>().ok()).context("a stat file");
    Ok((next()? + next()?) / TICKS_PER_SECOND)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a request on the socket of a server's folder, and returns the body of a successful answer.
fn request(folder: &Path, method: &str, path: &str, body: Option<&Value>) -> Result<String> {
    let mut stream = UnixStream::connect(folder.join("state/spindle.sock"))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: spindle\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer of HTTP")?;
    let status = head.split_whitespace().nth(1).context("a status")?;
    ensure!(status.starts_with('2'), "{method} {path}: {status}: {body}");
    Ok(body.to_owned())
}

/// A site of pools in files, each with a volume; the first one is an NBD export at `socket`.
fn site(pools: usize, drive_gb: f64, socket: &Path) -> String {
    let mut text = format!("[serve]\nnbd = 'unix:{}'\niscsi = 'none'\n", socket.display());
    for pool in 0..pools {
        text += &format!("[[group]]\nname = 'p{pool}'\ndrives = 2\ndrive_gb = {drive_gb}\n");
        text += &format!("[[volume]]\nname = 'disk{pool}'\ngroup = 'p{pool}'\ngb = 0.5\n");
        text += &format!("[[nbd]]\nname = 'disk{pool}'\nvolume = 'disk{pool}'\n");
    }
    text
}

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    record.method(format!(
        "spindle serve with pools of two drives in files; {REQUESTS_PER_SECOND} requests a second: volumes, a volume, \
         snapshots, metrics, a snapshot made and deleted"
    ));
    let mut rows = Vec::new();
    beside_hosts(setting, ours, &mut rows)?;
    rows.extend(serve_beside::run(setting, ours, record)?);
    idle(setting, ours, &mut rows)?;
    many_volumes(setting, ours, &mut rows)?;
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

pub(super) fn folder_of(setting: &Setting, name: &str, site: &str) -> Result<PathBuf> {
    let folder = setting.folder.join(name);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("site.toml"), site)?;
    Ok(folder)
}

/// Loads of hosts with requests beside them, and without.
fn beside_hosts(setting: &Setting, ours: &OurPrograms, rows: &mut Vec<Row>) -> Result<()> {
    let (pairs, seconds) = if setting.quick { (3, 2.0) } else { (20, 4.0) };
    let socket = setting.folder.join("nbd.sock");
    let folder = folder_of(setting, "hosts", &site(1, 2.0, &socket))?;
    let server = Server::begin(ours, &folder)?;
    let uri = format!("nbd+unix:///disk0?socket={}", socket.display());
    Jobs::nbd_once(&uri).job_without_file("fill", "rw=write bs=1m iodepth=8").run(&folder)?;
    let mut slowest =
        Row::new("a request beside hosts, p99", "ms", Goal::AtMost(20.0), "all kinds of requests");
    for depth in [1, 32] {
        let mut row = Row::new(
            format!("NBD, mixed 4 KiB, depth {depth}, with {REQUESTS_PER_SECOND} requests a second"),
            "/s",
            Goal::OfPeer(0.98),
            "the peer is the same load without requests",
        );
        let options = format!("rw=randrw rwmixread=70 bs=4k iodepth={depth}");
        let load = || -> Result<Measurement> {
            let done = Jobs::nbd(seconds, &uri).job_without_file("load", &options).run(&folder)?;
            let value = done.total_iops();
            Ok(done.measured(value))
        };
        let with_requests = || -> Result<Measurement> {
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                let calling = scope.spawn(|| call(&folder, &is_over));
                let measured = load();
                is_over.store(true, Ordering::Relaxed);
                let p99 = calling.join().expect("the caller does not panic")?;
                slowest.ours.push(Measurement { value: p99, raw: json!({ "depth": depth }) });
                measured
            })
        };
        interleave(&mut row, pairs, with_requests, load)?;
        rows.push(row);
    }
    rows.push(slowest);
    let mut drain = Row::new("drain after SIGTERM", "s", Goal::AtMost(5.0), "a pool of two drives");
    drain.ours.push(Measurement { value: server.end()?.as_secs_f64(), raw: Value::Null });
    rows.push(drain);
    Ok(())
}

/// Sends mixed requests until it is over; returns the 99th percentile of their times in ms.
pub(super) fn call(folder: &Path, is_over: &AtomicBool) -> Result<f64> {
    let volumes: Value = serde_json::from_str(&request(folder, "GET", "/v1/volumes", None)?)?;
    let id = volumes["volumes"][0]["id"].as_str().context("a volume")?.to_owned();
    let snapshots = format!("/v1/volumes/{id}/snapshots");
    let begun = Instant::now();
    let mut times = Vec::new();
    let mut made = None;
    for number in 0_u32.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let due = begun + Duration::from_secs(1) * number / REQUESTS_PER_SECOND;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let sent = Instant::now();
        match number % 50 {
            // Changes are rarer: two of fifty.
            10 => {
                let body = json!({ "name": format!("s{number}") });
                let row: Value = serde_json::from_str(&request(folder, "POST", &snapshots, Some(&body))?)?;
                made = row["id"].as_str().map(str::to_owned);
            }
            35 => {
                if let Some(id) = made.take() {
                    request(folder, "DELETE", &format!("{snapshots}/{id}"), None)?;
                }
            }
            number if number % 10 == 3 => drop(request(folder, "GET", "/metrics", None)?),
            number if number % 10 == 7 => drop(request(folder, "GET", &snapshots, None)?),
            number if number % 2 == 0 => drop(request(folder, "GET", "/v1/volumes", None)?),
            _ => drop(request(folder, "GET", &format!("/v1/volumes/{id}"), None)?),
        }
        times.push(sent.elapsed().as_secs_f64() * 1000.0);
    }
    if let Some(id) = made {
        request(folder, "DELETE", &format!("{snapshots}/{id}"), None)?;
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() * 99 / 100).copied().context("no request was sent")
}

/// A server with nothing to do.
fn idle(setting: &Setting, ours: &OurPrograms, rows: &mut Vec<Row>) -> Result<()> {
    let seconds = if setting.quick { 5 } else { 30 };
    let mut ready =
        Row::new("ready, four pools", "s", Goal::AtMost(1.0), "from the start of the process, pools opened");
    let mut busy = Row::new("idle, four pools", "% of a core", Goal::AtMost(1.0), "");
    let mut memory = Row::new("idle, one pool", "MB resident", Goal::AtMost(60.0), "");
    for (pools, name) in [(4, "four"), (1, "one")] {
        let folder = folder_of(setting, name, &site(pools, 0.7, &setting.folder.join("idle.sock")))?;
        // The first start makes the pools.
        Server::begin(ours, &folder)?.end()?;
        let server = Server::begin(ours, &folder)?;
        let raw = || json!({ "pools": pools });
        thread::sleep(Duration::from_secs(3));
        if pools == 4 {
            let value = server.ready_within.as_secs_f64();
            ready.ours.push(Measurement { value, raw: raw() });
            let before = server.processor_seconds()?;
            thread::sleep(Duration::from_secs(seconds));
            let value = 100.0 * (server.processor_seconds()? - before) / seconds as f64;
            busy.ours.push(Measurement { value, raw: raw() });
        } else {
            memory.ours.push(Measurement { value: server.resident_bytes()? / 1e6, raw: raw() });
        }
        server.end()?;
        fs::remove_dir_all(&folder)?;
    }
    rows.extend([ready, busy, memory]);
    Ok(())
}

/// Thousands of volumes: made by an apply, listed, scraped, planned.
fn many_volumes(setting: &Setting, ours: &OurPrograms, rows: &mut Vec<Row>) -> Result<()> {
    let times = if setting.quick { 3 } else { 11 };
    let socket = setting.folder.join("many.sock");
    let mut text = site(1, 2.0, &socket);
    let folder = folder_of(setting, "many", &text)?;
    let server = Server::begin(ours, &folder)?;
    let add = |text: &mut String, count: usize| {
        let from = text.matches("[[volume]]").count();
        for number in from..count {
            text.push_str(&format!("[[volume]]\nname = 'v{number}'\ngroup = 'p0'\ngb = 0.001953125\n"));
            text.push_str(&format!("[[nbd]]\nname = 'v{number}'\nvolume = 'v{number}'\n"));
        }
    };
    let apply = |text: &str| -> Result<Duration> {
        let begun = Instant::now();
        request(&folder, "POST", "/v1/site/apply", Some(&json!({ "text": text })))?;
        Ok(begun.elapsed())
    };
    add(&mut text, APPLIED_VOLUMES + 1);
    let made = apply(&text)?;
    let mut applied = Row::new("1,000 volumes made and served by an apply", "s", Goal::AtMost(10.0), "");
    applied.ours.push(Measurement { value: made.as_secs_f64(), raw: Value::Null });
    for count in (APPLIED_VOLUMES + 1..MANY_VOLUMES).step_by(1000).chain([MANY_VOLUMES]) {
        add(&mut text, count);
        apply(&text)?;
    }
    let page = server.get_json("/v1/volumes?limit=5000")?;
    let found = page["volumes"].as_array().map_or(0, Vec::len);
    if found != MANY_VOLUMES {
        bail!("{found} volumes are listed, not {MANY_VOLUMES}");
    }
    // Figures are published once a second.
    thread::sleep(Duration::from_secs(2));
    let measured = |what: &str, goal: f64, work: &dyn Fn() -> Result<String>| -> Result<Row> {
        let mut row = Row::new(what, "ms", Goal::AtMost(goal), "over the Unix socket, connection included");
        for _ in 0..times {
            let begun = Instant::now();
            let bytes = work()?.len();
            let value = begun.elapsed().as_secs_f64() * 1000.0;
            row.ours.push(Measurement { value, raw: json!({ "bytes": bytes }) });
        }
        Ok(row)
    };
    let listed = measured("4,096 volumes listed", 50.0, &|| server.get("/v1/volumes?limit=5000"))?;
    let scraped = measured("4,096 volumes scraped", 150.0, &|| server.get("/metrics"))?;
    let planned = measured("4,096 volumes, an empty plan", 200.0, &|| {
        request(&folder, "POST", "/v1/site/plan", Some(&json!({ "text": text })))
    })?;
    let mut size = Row::new("4,096 volumes, bytes of a scrape", "MB", Goal::AtMost(6.0), "");
    size.ours.push(Measurement { value: server.get("/metrics")?.len() as f64 / 1e6, raw: Value::Null });
    let orders = || -> Result<f64> {
        let pools = server.get_json("/v1/pools")?;
        pools[0]["orders_done"].as_f64().context("orders of the pool")
    };
    let before = orders()?;
    for _ in 0..if setting.quick { GETS / 10 } else { GETS } {
        server.get("/v1/volumes?limit=1")?;
    }
    let mut untouched =
        Row::new("orders of a pool by 10,000 GETs", "orders", Goal::AtMost(0.0), "1,000 if quick");
    untouched.ours.push(Measurement { value: orders()? - before, raw: Value::Null });
    server.end()?;
    rows.extend([applied, listed, scraped, size, planned, untouched]);
    Ok(())
}
