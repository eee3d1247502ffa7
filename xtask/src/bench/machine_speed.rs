//! Speed of the machine, measured before each bench: a round trip, a turn of the executor, reads of the path.
//!
//! They are the floor under every figure of a server: a command over a network costs at least a round trip, one
//! that reads costs a direct read besides. They differ from machine to machine and from hour to hour, so they are
//! kept with each result.

use super::{
    Setting,
    fio::{self, Jobs},
    latency::Latency,
    our_programs::{Example, OurPrograms, number},
    row::figure,
};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process, thread,
    time::{Duration, Instant},
};

/// The program that measures turns of the executor.
pub(super) const EXAMPLE: Example = Example { package: "world", name: "ring_turn" };
/// A command, and the data it asks for.
const REQUEST_BYTES: usize = 64;
const REPLY_BYTES: usize = 4096;
const READ_BYTES: u64 = 4096;
const DEPTHS: [u32; 2] = [1, 32];
const HEADINGS: [&str; 4] = ["the machine", "median, µs", "p99, µs", "a second"];

/// Durations of each measurement, and the size of the file that is read.
struct Scale {
    seconds: f64,
    turn_seconds: f64,
    file_mib: u64,
}

const FULL: Scale = Scale { seconds: 2.0, turn_seconds: 1.0, file_mib: 1024 };
const QUICK: Scale = Scale { seconds: 1.0, turn_seconds: 0.5, file_mib: 256 };

/// Speed of one operation.
struct OperationSpeed {
    operation: String,
    latency: Latency,
    per_second: f64,
}

/// Speeds of all operations, measured one after the other.
pub(super) struct MachineSpeed(Vec<OperationSpeed>);

impl MachineSpeed {
    /// Measures all operations; those of the path with fio only.
    pub fn measure(setting: &Setting, ours: &OurPrograms, has_fio: bool) -> Result<Self> {
        let scale = if setting.quick { QUICK } else { FULL };
        let mut speeds = vec![round_trips(scale.seconds)?, turns(ours, scale.turn_seconds)?];
        if has_fio {
            speeds.extend(reads(setting, &scale)?);
        }
        Ok(Self(speeds))
    }

    /// A table for the terminal.
    pub fn render(&self) -> String {
        let mut lines = vec![HEADINGS.map(str::to_owned)];
        lines.extend(self.0.iter().map(OperationSpeed::cells));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3].map(width);
        let laid_out = |line: &[String; 4]| {
            let [operation, median, p99, per_second] = line;
            let [first, second, third, fourth] = widths;
            format!("{operation:<first$}  {median:>second$}  {p99:>third$}  {per_second:>fourth$}\n")
        };
        lines.iter().map(laid_out).collect()
    }

    pub fn to_json(&self) -> Value {
        self.0.iter().map(OperationSpeed::to_json).collect()
    }
}

impl OperationSpeed {
    fn cells(&self) -> [String; 4] {
        let Latency { median_us, p99_us } = self.latency;
        [self.operation.clone(), figure(median_us), figure(p99_us), figure(self.per_second)]
    }

    fn to_json(&self) -> Value {
        let mut all = self.latency.to_json();
        all["operation"] = json!(self.operation);
        all["per_second"] = json!(self.per_second);
        all
    }
}

/// Round trips between two threads of this process that block in `read`, one at a time.
fn round_trips(seconds: f64) -> Result<OperationSpeed> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    client.set_nodelay(true)?;
    let server = thread::spawn(move || reply_to_all(&listener));
    let (request, mut reply) = ([0; REQUEST_BYTES], [0; REPLY_BYTES]);
    let mut values = Vec::new();
    let start = Instant::now();
    let span = Duration::from_secs_f64(seconds);
    while start.elapsed() < span {
        let begun = Instant::now();
        client.write_all(&request)?;
        client.read_exact(&mut reply)?;
        values.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    let per_second = values.len() as f64 / start.elapsed().as_secs_f64();
    drop(client);
    server.join().expect("a thread that only replies")?;
    Ok(OperationSpeed {
        operation: format!("TCP round trip, loopback, {REQUEST_BYTES} B and {} KiB", REPLY_BYTES / 1024),
        latency: Latency::of(values).context("no round trip in that time")?,
        per_second,
    })
}

/// Serves one connection until its client closes it.
fn reply_to_all(listener: &TcpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let (mut request, reply) = ([0; REQUEST_BYTES], [0; REPLY_BYTES]);
    loop {
        match stream.read_exact(&mut request) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            outcome => outcome?,
        }
        stream.write_all(&reply)?;
    }
}

fn turns(ours: &OurPrograms, seconds: f64) -> Result<OperationSpeed> {
    // The name of a socket is short; the folder of the bench may not be.
    let socket: PathBuf = std::env::temp_dir().join(format!("spindle-bench-{}.socket", process::id()));
    let raw = ours.example(EXAMPLE.name, |command| command.arg(&socket).arg(seconds.to_string()))?;
    let way = if raw["io_uring"] == json!(true) { "io_uring" } else { "epoll" };
    Ok(OperationSpeed {
        operation: format!("turn of the executor, {way}"),
        latency: Latency::from_json(&raw)?,
        per_second: number(&raw, "turns")? / number(&raw, "seconds")?,
    })
}

fn reads(setting: &Setting, scale: &Scale) -> Result<Vec<OperationSpeed>> {
    let file = setting.folder.join("machine");
    fio::lay_out(&file, scale.file_mib << 20, &setting.folder)?;
    let mut speeds = Vec::new();
    for depth in DEPTHS {
        let options = format!("rw=randread bs={READ_BYTES} iodepth={depth}");
        let outcome = Jobs::new(Some(scale.seconds)).job("reads", &file, &options).run(&setting.folder)?;
        let (_, job) = outcome.jobs.first().context("fio ran one job")?;
        speeds.push(OperationSpeed {
            operation: format!("direct random read, {} KiB, depth {depth}", READ_BYTES / 1024),
            latency: job.latency.context("fio left out percentiles")?,
            per_second: job.read_iops,
        });
    }
    fs::remove_file(&file)?;
    Ok(speeds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_table_has_a_line_for_each_operation() {
        let speed = |operation: &str, median_us, p99_us, per_second| OperationSpeed {
            operation: operation.to_owned(),
            latency: Latency { median_us, p99_us },
            per_second,
        };
        let speeds = MachineSpeed(vec![
            speed("TCP round trip", 12.54, 41.0, 75_123.4),
            speed("direct random read, 4 KiB, depth 1", 78.2, 203.0, 12_001.0),
        ]);
        expect![[r#"
            the machine                         median, µs  p99, µs  a second
            TCP round trip                            12.5     41.0     75123
            direct random read, 4 KiB, depth 1        78.2      203     12001
        "#]]
        .assert_eq(&speeds.render());
        assert_eq!(speeds.to_json()[1]["p99_us"], 203.0);
    }

    #[test]
    fn round_trips_are_measured() {
        let speed = round_trips(0.02).unwrap();
        assert!(speed.latency.median_us > 0.0 && speed.latency.median_us <= speed.latency.p99_us);
        assert!(speed.per_second > 0.0);
    }
}
