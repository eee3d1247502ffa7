//! `spindle witness`: the program is killed, stopped and refused.

use crate::spindle::{Bench, Watchdog, json_of, pause, signal};
use array::format::{EpochId, GroupId, SiteId};
use replication::witness::{
    client::{WitnessClient, WitnessReply, WitnessSilence, WitnessStore},
    group::{WitnessAction, WitnessRefusal, WitnessRequest},
    lease::{LeaseFence, LeaseSpan},
    session::WitnessSecret,
};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    rc::Rc,
};
use world::{
    Address, World,
    real::{self, RealOptions, Sockets},
};

const SECRET: &str = "sixteen bytes or more";

/// A witness on a free port of loopback.
struct RunningWitness {
    child: Child,
    address: String,
    groups: u64,
    _watch: Watchdog,
}

impl RunningWitness {
    fn start(bench: &Bench) -> Self {
        let arguments =
            ["witness", "127.0.0.1:0", "--state", "witness.db", "--secret-file", "secret", "--json"];
        let mut command = bench.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let watch = Watchdog::over(&child);
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let ready = json_of(&line);
        let address = ready["address"].as_str().expect("an address").to_owned();
        Self { child, address, groups: ready["groups"].as_u64().expect("a number"), _watch: watch }
    }

    fn ask(&self, site: u8, fence: u64, action: WitnessAction) -> Result<WitnessReply, WitnessSilence> {
        let address = Address::parse(&self.address, 0).expect("an address");
        real::run(0, RealOptions::default(), async |world: World| {
            let secret = WitnessSecret::new(SECRET.as_bytes());
            let client = WitnessClient::new(&world, Rc::new(Sockets), vec![address], secret);
            let (group, site) = (GroupId([9; 16]), SiteId([site; 16]));
            client.ask(WitnessRequest { group, site, fence: LeaseFence(fence), revision: 0, action }).await
        })
    }

    fn refusal(&self, site: u8, fence: u64, action: WitnessAction) -> Option<WitnessRefusal> {
        self.ask(site, fence, action).expect("it answers").answer.result.err()
    }

    fn end(mut self, name: &str) -> Option<i32> {
        signal(&self.child, name);
        self.child.wait().expect("it ends").code()
    }
}

fn bench_with_secret() -> Bench {
    let bench = Bench::new();
    let path = bench.make_file("secret", SECRET.as_bytes());
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("a mode");
    bench
}

fn acquire() -> WitnessAction {
    let span = LeaseSpan::from_ms(1_000).expect("a valid span");
    WitnessAction::Acquire { span, head: EpochId([7; 16]), by_person: false }
}

#[test]
fn a_witness_that_is_killed_between_operations_forgets_nothing() {
    let bench = bench_with_secret();
    let witness = RunningWitness::start(&bench);
    assert_eq!(witness.groups, 0);
    assert_eq!(witness.refusal(1, 0, acquire()), None);
    assert_eq!(witness.end("KILL"), None);

    let witness = RunningWitness::start(&bench);
    assert_eq!(witness.groups, 1);
    assert_eq!(witness.refusal(2, 1, acquire()), Some(WitnessRefusal::Held), "it waits after a start");
    assert_eq!(witness.refusal(1, 1, WitnessAction::RecordAlone), None);
    assert_eq!(witness.end("KILL"), None);

    let witness = RunningWitness::start(&bench);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    assert_eq!(witness.refusal(2, 1, acquire()), Some(WitnessRefusal::Alone));
    let shown = bench.run(&["witness", "show", &witness.address, "--secret-file", "secret"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    let first = "group 09090909-0909-0909-0909-090909090909: held by 01010101-0101-0101-0101-010101010101, \
                 fence 1, lease ended, alone since ";
    assert!(shown.stdout.starts_with(first), "{}", shown.stdout);
    let held = bench.refused(&["witness", "show", "--state", "witness.db"]);
    assert!(held.contains("another process is using it"), "{held}");
    assert_eq!(witness.end("TERM"), Some(0));

    let shown = bench.run(&["witness", "show", "--state", "witness.db", "--json"]);
    let groups = json_of(&shown.stdout);
    assert_eq!(groups[0]["fence"], 1);
    assert_eq!(groups[0]["holder"], "01010101-0101-0101-0101-010101010101");
    assert!(groups[0]["alone_since"].is_string() && groups[0]["lease_left_ms"].is_null(), "{groups}");
}

#[test]
fn a_stopped_witness_is_one_line_and_goes_on_when_it_is_continued() {
    let bench = bench_with_secret();
    let witness = RunningWitness::start(&bench);
    assert_eq!(witness.refusal(1, 0, acquire()), None);
    pause(&witness.child);
    let silence = witness.ask(1, 1, WitnessAction::RecordAlone).expect_err("it is stopped");
    assert_eq!(silence.to_string(), format!("witness {} not reached: no answer in 500 ms", witness.address));
    signal(&witness.child, "CONT");
    assert_eq!(witness.refusal(1, 1, WitnessAction::RecordAlone), None);
    assert_eq!(witness.end("TERM"), Some(0));
}

#[test]
fn a_witness_is_refused_in_one_line() {
    let bench = bench_with_secret();
    let witness = RunningWitness::start(&bench);
    let serve = |state: &str, address: &str| bench.refused(&["witness", address, "--state", state]);
    let taken = serve("other.db", &witness.address);
    assert!(taken.contains(&witness.address) && taken.contains("say another ADDRESS"), "{taken}");
    assert!(serve("witness.db", "127.0.0.1:0").contains("another process is using it"));
    assert!(serve("other.db", "0.0.0.0:0").contains("is not loopback"));
    bench.make_file("foreign", b"a shopping list");
    assert!(serve("foreign", "127.0.0.1:0").contains("is not the state of a witness, or is damaged"));
    let unsigned = bench.refused(&["witness", "show", &witness.address]);
    assert!(unsigned.contains("one side has a secret"), "{unsigned}");
    let address = witness.address.clone();
    assert_eq!(witness.end("TERM"), Some(0));
    let gone = bench.refused(&["witness", "show", &address]);
    assert!(gone.contains("not reached"), "{gone}");
    bench.refused(&["witness", "show", "--state", "nowhere.db"]);
}
