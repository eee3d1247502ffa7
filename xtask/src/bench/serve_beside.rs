//! `spindle serve` beside hosts of iSCSI, how late its events are, and the peer of requests beside hosts: qemu-storage-daemon
//! under queries of its monitor (QMP).

use super::{
    Setting,
    fio::Jobs,
    our_programs::{Example, OurPrograms},
    record::Record,
    row::{Goal, Measurement, Row, interleave},
    serve::{REQUESTS_PER_SECOND, Server, call, folder_of},
    storage_daemon::StorageDaemon,
};
use anyhow::{Context, Result};
use serde_json::json;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) const EXAMPLES: [Example; 1] = [Example { package: "iscsi", name: "unit_load" }];

/// Events that are timed.
const EVENTS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(20);
/// NBD's options (proto.md): the magic of each, and the one that begins the transmission.
const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_GO: u32 = 7;

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    iscsi_hosts(setting, ours, &mut rows)?;
    events(setting, ours, &mut rows)?;
    if crate::step::succeeds(Command::new("qemu-storage-daemon").arg("--version")) {
        qemu(setting, &mut rows)?;
    } else {
        record
            .method("qemu-storage-daemon is not installed: it is not measured under QMP queries".to_owned());
    }
    Ok(rows)
}

/// A site with one volume, as an NBD export at `socket` and a unit at `port`.
fn site(socket: &Path, port: u16) -> String {
    format!(
        "[serve]\nnbd = 'unix:{}'\niscsi = '127.0.0.1:{port}'\n[[group]]\nname = 'p0'\ndrives = 2\ndrive_gb = 2.0\n\
         [[volume]]\nname = 'disk0'\ngroup = 'p0'\ngb = 0.5\n[[nbd]]\nname = 'disk0'\nvolume = 'disk0'\n\
         [[target]]\nname = 'disk0'\n[[target.unit]]\nvolume = 'disk0'\n",
        socket.display()
    )
}

fn iscsi_hosts(setting: &Setting, ours: &OurPrograms, rows: &mut Vec<Row>) -> Result<()> {
    let (pairs, seconds) = if setting.quick { (3, 2.0_f64) } else { (20, 4.0) };
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let socket = setting.folder.join("both.sock");
    let folder = folder_of(setting, "iscsi", &site(&socket, port))?;
    let server = Server::begin(ours, &folder)?;
    let nbd = format!("nbd+unix:///disk0?socket={}", socket.display());
    Jobs::nbd_once(&nbd).job_without_file("fill", "rw=write bs=1m iodepth=8").run(&folder)?;
    let uri = format!("iscsi://127.0.0.1:{port}/iqn.2026-11.org.spindle:disk0/0");
    for depth in [1, 32] {
        let mut row = Row::new(
            format!("iSCSI, mixed 4 KiB, depth {depth}, with {REQUESTS_PER_SECOND} requests a second"),
            "/s",
            Goal::OfPeer(0.98),
            "our initiator; the peer is the same load without requests",
        );
        let arguments = [uri.clone(), "70".into(), "4096".into(), depth.to_string(), seconds.to_string()];
        let load = || -> Result<Measurement> {
            let raw = ours.example("unit_load", |command| command.args(&arguments))?;
            let figure = |name: &str| raw[name].as_f64().context("a figure of unit_load");
            let value = figure("ios")? / figure("seconds")?;
            Ok(Measurement { value, raw })
        };
        let with_requests = || beside(|is_over| call(&folder, is_over).map(drop), load);
        interleave(&mut row, pairs, with_requests, load)?;
        rows.push(row);
    }
    server.end()?;
    Ok(())
}

/// A load with something beside it until it has ended.
fn beside(
    work: impl FnOnce(&AtomicBool) -> Result<()> + Send,
    load: impl FnOnce() -> Result<Measurement>,
) -> Result<Measurement> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let working = scope.spawn(|| work(&is_over));
        let measured = load();
        is_over.store(true, Ordering::Relaxed);
        working.join().expect("it does not panic")?;
        measured
    })
}

/// Time from an event to its line in a stream: a client that has chosen an export is one.
fn events(setting: &Setting, ours: &OurPrograms, rows: &mut Vec<Row>) -> Result<()> {
    let socket = setting.folder.join("events.sock");
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let folder = folder_of(setting, "events", &site(&socket, port))?;
    let server = Server::begin(ours, &folder)?;
    let mut stream = UnixStream::connect(folder.join("state/spindle.sock"))?;
    write!(stream, "GET /v1/events HTTP/1.1\r\nhost: spindle\r\naccept: text/event-stream\r\n\r\n")?;
    let (tell, told) = mpsc::channel();
    let reader = stream.try_clone()?;
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            // The receiver may be gone.
            if line.starts_with("data:") && tell.send((Instant::now(), line)).is_err() {
                break;
            }
        }
    });
    // What happened at the start.
    thread::sleep(Duration::from_secs(1));
    while told.try_recv().is_ok() {}
    let mut times = Vec::new();
    for _ in 0..if setting.quick { EVENTS / 5 } else { EVENTS } {
        let (client, chosen) = choose_export(&socket)?;
        let (seen, _) = told.recv_timeout(PATIENCE).context("no event of a client in the stream")?;
        times.push(seen.saturating_duration_since(chosen).as_secs_f64() * 1000.0);
        drop(client);
        thread::sleep(Duration::from_millis(20));
        // That it has gone may be an event, too.
        while told.try_recv().is_ok() {}
    }
    times.sort_by(f64::total_cmp);
    let value = times[(times.len() * 99).div_ceil(100).saturating_sub(1)];
    let mut row = Row::new(
        "an event in a stream, p99",
        "ms",
        Goal::AtMost(100.0),
        "from a client's choice of an export to the line about it",
    );
    row.ours
        .push(Measurement { value, raw: json!({ "events": times.len(), "median": times[times.len() / 2] }) });
    rows.push(row);
    server.end()?;
    Ok(())
}

/// A client of NBD that has chosen the export, and when it sent that.
fn choose_export(socket: &Path) -> Result<(UnixStream, Instant)> {
    let mut client = UnixStream::connect(socket)?;
    client.set_read_timeout(Some(PATIENCE))?;
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting)?;
    // Fixed newstyle, without zeroes.
    client.write_all(&3_u32.to_be_bytes())?;
    let name = b"disk0";
    let mut option = OPTION_MAGIC.to_vec();
    option.extend(OPTION_GO.to_be_bytes());
    option.extend((4 + name.len() as u32 + 2).to_be_bytes());
    option.extend((name.len() as u32).to_be_bytes());
    option.extend(name);
    option.extend(0_u16.to_be_bytes());
    let sent = Instant::now();
    client.write_all(&option)?;
    let mut reply = [0; 20];
    client.read_exact(&mut reply)?;
    Ok((client, sent))
}

/// qemu-storage-daemon with a queue of queries.
struct QemuDaemon {
    daemon: StorageDaemon,
    monitor: PathBuf,
}

impl QemuDaemon {
    fn begin(folder: &Path) -> Result<Self> {
        let (file, monitor, socket) = (folder.join("disk"), folder.join("qmp"), folder.join("qsd.sock"));
        let disk = fs::File::create(&file)?;
        disk.set_len(1 << 29)?;
        let node =
            format!("driver=file,node-name=f,filename={},cache.direct=on,aio=io_uring", file.display());
        let monitored = format!("socket,id=m,path={},server=on,wait=off", monitor.display());
        let disk = ["--blockdev", &node, "--blockdev", "driver=raw,node-name=r,file=f"];
        let export = ["--export", "type=nbd,id=e,node-name=r,name=disk,writable=on"];
        let monitoring = ["--chardev", &monitored, "--monitor", "chardev=m"];
        let options = [&disk[..], &export, &monitoring].concat();
        Ok(Self { daemon: StorageDaemon::begin(&socket, &options, &monitor)?, monitor })
    }

    /// Sends queries until it is over.
    fn query(&self, is_over: &AtomicBool) -> Result<()> {
        let stream = UnixStream::connect(&self.monitor)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (mut sender, mut lines) = (stream.try_clone()?, BufReader::new(stream).lines());
        let mut next = || lines.next().context("an answer of QMP")?.context("QMP");
        next()?;
        writeln!(sender, "{}", json!({ "execute": "qmp_capabilities" }))?;
        next()?;
        let begun = Instant::now();
        let queries = ["query-block-exports", "query-named-block-nodes"];
        for number in 0_u32.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let due = begun + Duration::from_secs(1) * number / REQUESTS_PER_SECOND;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            writeln!(sender, "{}", json!({ "execute": queries[number as usize % queries.len()] }))?;
            next()?;
        }
        Ok(())
    }
}

fn qemu(setting: &Setting, rows: &mut Vec<Row>) -> Result<()> {
    let (pairs, seconds) = if setting.quick { (3, 2.0) } else { (20, 4.0) };
    let folder = folder_of(setting, "qemu", "")?;
    let daemon = QemuDaemon::begin(&folder)?;
    Jobs::nbd_once(&daemon.daemon.uri).job_without_file("fill", "rw=write bs=1m iodepth=8").run(&folder)?;
    for depth in [1, 32] {
        let mut row = Row::new(
            format!(
                "qemu-storage-daemon, NBD, mixed 4 KiB, depth {depth}, with {REQUESTS_PER_SECOND} QMP queries a second"
            ),
            "/s",
            Goal::None,
            "both sides are its own: with queries, and without",
        );
        let options = format!("rw=randrw rwmixread=70 bs=4k iodepth={depth}");
        let load = || -> Result<Measurement> {
            let done =
                Jobs::nbd(seconds, &daemon.daemon.uri).job_without_file("load", &options).run(&folder)?;
            let value = done.total_iops();
            Ok(done.measured(value))
        };
        interleave(&mut row, pairs, || beside(|is_over| daemon.query(is_over), load), load)?;
        rows.push(row);
    }
    Ok(())
}
