//! Programs that serve, and whose lines nobody reads any more: they go on, and end when they have to.

use crate::{
    pool_drives::done,
    sites_served::SITE,
    spindle::{Bench, Watchdog, json_of, signal},
};
use nbd::{Client, ClientOptions, NbdUri};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs,
    io::{BufRead, BufReader, PipeReader, Read, Write, pipe},
    os::fd::AsRawFd,
    process::Child,
    rc::Rc,
    thread,
};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    real::{self, RealOptions, Sockets},
};

/// A page of a pipe, in which there may be room yet when it counts as full. What a program says in these tests is more.
const PIPE_PAGE: usize = 4096;
/// Exports that are created while nobody reads.
const EXPORTS: usize = 12;
/// Clients that come and go meanwhile.
const CLIENTS: usize = 120;

/// A process, killed when dropped.
struct Process(Child);

/// A program with pipes for its outputs.
struct Program {
    process: Process,
    watch: Watchdog,
    stdout: BufReader<PipeReader>,
    stderr: PipeReader,
}

impl Process {
    /// Ends it as a service manager does, and waits until it has.
    fn end(&mut self) {
        signal(&self.0, "TERM");
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn begin(bench: &Bench, arguments: &[&str]) -> Self {
        let ((stdout, out), (stderr, err)) = (pipe().unwrap(), pipe().unwrap());
        let mut command = bench.command(arguments);
        let child = command.stdout(out).stderr(err).spawn().unwrap();
        let watch = Watchdog::over(&child);
        Self { process: Process(child), watch, stdout: BufReader::new(stdout), stderr }
    }

    /// The next line of standard output that begins so.
    fn line(&mut self, beginning: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(beginning) {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        line
    }

    /// Fills the pipes, as those of a program are whose lines nobody reads.
    fn fill(&self) {
        for reader in [self.stdout.get_ref().as_raw_fd(), self.stderr.as_raw_fd()] {
            let mut writer =
                fs::OpenOptions::new().write(true).open(format!("/proc/self/fd/{reader}")).unwrap();
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            while poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&now)).unwrap() > 0 {
                writer.write_all(&[b'\n'; PIPE_PAGE]).unwrap();
            }
        }
    }

    /// Ends it while nobody reads.
    fn end(mut self) {
        self.process.end();
        self.watch.call_off();
    }

    /// Reads all its lines, and ends it. Returns what it said on both outputs.
    fn end_read(mut self) -> [String; 2] {
        let read = |mut from: Box<dyn Read + Send>| {
            thread::spawn(move || {
                let mut said = String::new();
                from.read_to_string(&mut said).unwrap();
                said
            })
        };
        let both = [read(Box::new(self.stdout)), read(Box::new(self.stderr))];
        self.process.end();
        self.watch.call_off();
        both.map(|said| said.join().unwrap())
    }
}

/// A server with full pipes, on which exports were created.
fn changed_server(bench: &Bench) -> Program {
    bench.make_file("site.toml", SITE.as_bytes());
    let mut server = Program::begin(bench, &["serve", "site.toml", "--state", "state", "--json"]);
    server.line("{\"changes\"");
    server.line("[");
    server.fill();
    for number in 0..EXPORTS {
        let name = format!("more-{number}");
        done(&bench.run(&["export", "create", &name, "mail/store", "--state", "state"]));
    }
    server
}

#[test]
fn a_server_whose_lines_nobody_reads_is_changed_and_ends() {
    changed_server(&Bench::new()).end();
}

#[test]
fn lines_that_waited_for_their_reader_come_in_order() {
    let [stdout, stderr] = changed_server(&Bench::new()).end_read();
    let last = format!("/more-{}\"", EXPORTS - 1);
    let served: Vec<&str> = stdout.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(served.len(), EXPORTS, "{stdout}");
    assert!(served.is_sorted_by_key(|line| line.len()) && served[EXPORTS - 1].contains(&last), "{stdout}");
    assert!(
        stderr.lines().last().is_some_and(|line| line.starts_with("ended; all acknowledged")),
        "{stderr}"
    );
}

#[test]
fn an_export_whose_lines_nobody_reads_serves_on() {
    let bench = Bench::new();
    done(&bench.run(&["pool", "create", "mail", "--size", "64MiB"]));
    done(&bench.run(&["volume", "create", "mail/store", "8MiB"]));
    let mut export = Program::begin(&bench, &["export", "mail/store", "--json", "--nbd", "127.0.0.1:0"]);
    let uri = json_of(&export.line("["))[0]["uri"].as_str().unwrap().parse::<NbdUri>().unwrap();
    export.fill();
    real::run(0, RealOptions::default(), async |world: World| {
        for _ in 0..CLIENTS {
            let (network, options) = (Rc::new(Sockets), ClientOptions::default());
            let client = Client::connect(&world, network, uri.clone(), options).await.unwrap();
            client.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
        }
    });
    export.end();
}
