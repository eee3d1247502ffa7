//! The cost of a browser with every page of the console open for the path of hosts' data: processor time of the threads of the
//! pools an I/O, under a load of a fixed rate. The peer is the same load on the same server without a browser.

use super::{
    Setting,
    fio::Jobs,
    our_programs::OurPrograms,
    record::Record,
    row::{Goal, Measurement, Row, interleave},
    serve::{Server, folder_of},
};
use crate::{judges, step};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{
    cell::RefCell,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

/// I/O a second of the load.
const RATE: u32 = 2000;
/// A browser that has just opened its pages still asks for their parts.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// A browser with pages open, closed when dropped.
struct Browser {
    python: Child,
    pages: usize,
}

impl Browser {
    fn open(python: &Path, folder: &Path, url: &str) -> Result<Self> {
        let script = step::workspace_root().join("xtask/src/bench/open_pages.py");
        let mut command = Command::new(python);
        command.arg(script).arg(url).arg(folder.join("state/admin-token"));
        let mut python = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("python")?;
        let mut said = String::new();
        BufReader::new(python.stdout.take().context("its output")?).read_line(&mut said)?;
        let counts: Vec<usize> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [pages, hidden] = counts[..] else { anyhow::bail!("the browser opened no pages: {said}") };
        // A hidden page asks for nothing.
        ensure!(pages > 10 && hidden == 0, "{pages} pages are open, {hidden} of them hidden");
        thread::sleep(SETTLED_AFTER);
        Ok(Self { python, pages })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.python.stdin.take());
        let _ = self.python.wait();
    }
}

/// Measures the rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let (rounds, seconds) = if setting.quick { (3, 5.0) } else { (9, 20.0) };
    let python = judges::playwright(setting.install)?;
    record.method(format!(
        "spindle serve with two pools of two drives in files and 64 volumes; fio reads and writes 4 KiB of one over NBD at {RATE} \
         a second, depth 4; Chromium shows every kind of page"
    ));
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let socket = setting.folder.join("console.sock");
    let folder = folder_of(setting, "console", &site(port, &socket))?;
    let server = Server::begin(ours, &folder)?;
    let uri = format!("nbd+unix:///disk0?socket={}", socket.display());
    Jobs::nbd_once(&uri).job_without_file("fill", "rw=write bs=1m iodepth=8").run(&folder)?;

    let mut row = Row::new(
        "threads of pools, with a browser open on every page",
        "µs an I/O",
        Goal::AtMostOfPeer(1.01),
        "the peer is the same load without a browser",
    );
    let whole = RefCell::new([Vec::new(), Vec::new()]);
    let load = |is_beside: bool| -> Result<Measurement> {
        let before = (server.processor_seconds_of(is_of_pool)?, server.processor_seconds()?);
        let options =
            format!("rw=randrw rwmixread=70 bs=4k iodepth=4 rate_iops={0},{1}", RATE * 7 / 10, RATE * 3 / 10);
        let done = Jobs::nbd(seconds, &uri).job_without_file("load", &options).run(&folder)?;
        let after = (server.processor_seconds_of(is_of_pool)?, server.processor_seconds()?);
        let count = done.total_iops() * seconds;
        whole.borrow_mut()[usize::from(is_beside)].push(100.0 * (after.1 - before.1) / seconds);
        Ok(done.measured(1e6 * (after.0 - before.0) / count))
    };
    let mut pages = 0;
    let with_browser = || -> Result<Measurement> {
        let browser = Browser::open(&python, &folder, &format!("http://127.0.0.1:{port}"))?;
        pages = browser.pages;
        load(true)
    };
    interleave(&mut row, rounds, with_browser, || load(false))?;
    row.note = format!("{}; {pages} pages", row.note);
    server.end()?;

    let [without, with] = whole.into_inner();
    let mut server_row = Row::new(
        "the whole server, with a browser open on every page",
        "% of a core",
        Goal::None,
        "as above",
    );
    let measured =
        |values: Vec<f64>| values.into_iter().map(|value| Measurement { value, raw: json!(null) }).collect();
    (server_row.ours, server_row.peer) = (measured(with), measured(without));
    let rows = [row, server_row];
    Ok(rows.into_iter().filter(|row| setting.wants(&row.what)).collect())
}

/// Threads that have hosts' data.
fn is_of_pool(thread: &str) -> bool {
    thread.starts_with("pool ")
}

fn site(port: u16, socket: &Path) -> String {
    let mut text = format!(
        "[serve]\napi = '127.0.0.1:{port}'\nnbd = 'unix:{}'\niscsi = 'none'\n[[group]]\nname = 'p0'\ndrives = 2\ndrive_gb = 2.0\n\
         [[group]]\nname = 'p1'\ndrives = 2\ndrive_gb = 0.7\n[[nbd]]\nname = 'disk0'\nvolume = 'disk0'\n\
         [[snapshots]]\nname = 'hourly'\ngroups = ['p0']\nevery_hours = 1\nkeep = 24\n",
        socket.display()
    );
    for number in 0..64 {
        let (group, gb) = if number == 0 { ("p0", 0.5) } else { ("p1", 0.001953125) };
        text += &format!("[[volume]]\nname = 'disk{number}'\ngroup = '{group}'\ngb = {gb}\n");
    }
    text
}
