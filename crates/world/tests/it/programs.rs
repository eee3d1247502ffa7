//! Programs of both worlds: output, exit codes, time limits.

use crate::in_each_engine;
use std::{cell::Cell, fs, rc::Rc, time::Duration};
use world::{
    IoErrorKind, OUTPUT_BYTES_MAX, ProgramCall, ProgramEnd, Programs, World,
    real::{RealOptions, RealPrograms, run},
    sim::{self, SimPrograms},
};

const WITH_OUTPUT: &str = "echo \"$GREETING $0\"; echo problem >&2";
const WITH_EXIT_CODE: &str = "echo no; exit 3";
const LONG_OUTPUT: &str = "head -c 200000 /dev/zero";
const WITH_DESCENDANT: &str = "sleep 60 & echo $!; wait";

fn shell(script: &str, time_limit: Duration) -> ProgramCall {
    ProgramCall {
        program: "sh".to_owned(),
        arguments: ["-c", script, "an argument; exit 9"].map(str::to_owned).to_vec(),
        environment: vec![("GREETING".to_owned(), "hello".to_owned())],
        time_limit,
        grace: Duration::ZERO,
        user: None,
    }
}

/// Holds in both worlds. Returns the output of a program that was killed with its descendant.
async fn programs_keep_their_rules(world: &World, programs: &dyn Programs) -> String {
    let ample = Duration::from_secs(120);
    let result = programs.run(shell(WITH_OUTPUT, ample)).await.unwrap();
    assert_eq!(result.end, ProgramEnd::Exited(0));
    assert_eq!(String::from_utf8_lossy(&result.output.bytes), "hello an argument; exit 9\nproblem\n");
    assert_eq!(result.output.dropped_bytes, 0);

    let result = programs.run(shell(WITH_EXIT_CODE, ample)).await.unwrap();
    assert_eq!((result.end, &result.output.bytes[..]), (ProgramEnd::Exited(3), &b"no\n"[..]));

    let result = programs.run(shell(LONG_OUTPUT, ample)).await.unwrap();
    assert_eq!((result.end, result.output.bytes.len()), (ProgramEnd::Exited(0), OUTPUT_BYTES_MAX));
    assert_eq!(result.output.dropped_bytes, 200_000 - OUTPUT_BYTES_MAX as u64);

    let missing = ProgramCall { program: "no-such-hook".to_owned(), ..shell("", ample) };
    let error = programs.run(missing).await.unwrap_err();
    assert_eq!(error.kind(), IoErrorKind::NotFound);
    assert!(error.to_string().starts_with("starting no-such-hook: "), "{error}");
    assert!(error.to_string().to_lowercase().contains("no such"), "{error}");

    let (began, limit) = (world.now(), Duration::from_millis(700));
    let result = programs.run(shell(WITH_DESCENDANT, limit)).await.unwrap();
    let took = world.now().since(began);
    assert_eq!(result.end, ProgramEnd::TimedOut);
    assert!(took >= limit && took < Duration::from_secs(30), "{took:?}");
    String::from_utf8(result.output.bytes).unwrap()
}

/// The kernel delivers the signal soon after the call; a zombie waits only for its new parent.
async fn expect_dead(world: &World, process: &str) {
    let state = || {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    for _ in 0..100 {
        if state().is_none_or(|state| "ZX".contains(state)) {
            return;
        }
        world.sleep(Duration::from_millis(50)).await;
    }
    panic!("process {process} survived: state {:?}", state());
}

#[test]
fn real_programs_keep_their_rules() {
    in_each_engine(async |world, _| {
        let descendant = programs_keep_their_rules(&world, &RealPrograms::default()).await;
        expect_dead(&world, descendant.trim()).await;
    });
}

#[test]
fn a_real_program_leaves_nothing_of_its_group_and_signals_are_told() {
    in_each_engine(async |world, _| {
        let (programs, began) = (RealPrograms::default(), world.now());
        let ample = Duration::from_secs(50);
        let result = programs.run(shell("sleep 60 & echo $!", ample)).await.unwrap();
        assert_eq!(result.end, ProgramEnd::Exited(0));
        expect_dead(&world, String::from_utf8_lossy(&result.output.bytes).trim()).await;
        let result = programs.run(shell("kill -TERM $$", ample)).await.unwrap();
        assert_eq!(result.end, ProgramEnd::Signalled(15));
        // Output without end does not outlast the limit.
        let result = programs.run(shell("exec cat /dev/zero", Duration::from_millis(300))).await.unwrap();
        assert_eq!(result.end, ProgramEnd::TimedOut);
        assert!(world.now().since(began) < Duration::from_secs(40));
    });
}

/// Sets its flag when the program is dropped.
/// A script with a second of time and as much of grace; the end, the output and the time it took.
async fn with_grace(world: &World, script: &str) -> (ProgramEnd, String, Duration) {
    let second = Duration::from_secs(1);
    let began = world.now();
    let call = ProgramCall { grace: second, ..shell(script, second) };
    let result = RealPrograms::default().run(call).await.unwrap();
    (result.end, String::from_utf8_lossy(&result.output.bytes).into_owned(), world.now().since(began))
}

#[test]
fn at_the_time_limit_a_real_program_may_say_farewell() {
    // Programs do not depend on the engine, and these take their time.
    run(7, RealOptions::default(), async |world| {
        // The shell waits for the sleep, which has ended by the signal as well.
        let (end, output, took) = with_grace(&world, "trap 'echo farewell; exit 0' TERM; sleep 60").await;
        assert!(end == ProgramEnd::TimedOut && output.ends_with("farewell\n"), "{end:?} {output}");
        assert!(took < Duration::from_millis(1900), "{took:?}");

        let stubborn = "trap '' TERM; echo $$; while :; do sleep 0.1; done";
        let (end, process, took) = with_grace(&world, stubborn).await;
        assert_eq!(end, ProgramEnd::TimedOut);
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(8), "{took:?}");
        expect_dead(&world, process.trim()).await;

        // The leader ends at once; its descendant has the time to clean up.
        let script = "(trap 'sleep 0.3; echo cleaned; exit' TERM; while :; do sleep 0.05; done) & sleep 60";
        let (end, output, took) = with_grace(&world, script).await;
        assert!(end == ProgramEnd::TimedOut && output.ends_with("cleaned\n"), "{end:?} {output}");
        assert!(took < Duration::from_millis(1900), "{took:?}");

        let script = "(trap '' TERM; echo $$; exec sleep 60) & sleep 60";
        let (end, _, took) = with_grace(&world, script).await;
        assert_eq!(end, ProgramEnd::TimedOut);
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(8), "{took:?}");

        // One that left the group keeps the pipe, and nobody waits for it.
        let (end, output, took) =
            with_grace(&world, "setsid sleep 20 & trap '' TERM; sleep 0.2; echo out").await;
        assert_eq!((end, &*output), (ProgramEnd::Exited(0), "out\n"));
        assert!(took < Duration::from_secs(1), "{took:?}");
    });
}

#[test]
fn a_real_program_runs_as_another_user_with_its_groups() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can run programs as another user");
    }
    in_each_engine(async |_, _| {
        let script = "id -u; id -g; id -G; pwd; echo $HOME $USER $LOGNAME; cat /proc/self/status";
        let run_as = |user: &str, script| {
            let call = ProgramCall { user: Some(user.to_owned()), ..shell(script, Duration::from_secs(60)) };
            RealPrograms::default().run(call)
        };
        // One that has groups beside its own, if this machine has one.
        let groups = fs::read_to_string("/etc/group").unwrap();
        let members =
            groups.lines().filter_map(|line| line.rsplit(':').next()).filter(|last| !last.is_empty());
        let member = members.flat_map(|members| members.split(',')).find(|member| *member != "root");
        let user = member.unwrap_or("games");
        let result = run_as(user, script).await.unwrap();
        let output = String::from_utf8(result.output.bytes).unwrap();
        let id = |option: &str| {
            let id = std::process::Command::new("id").args([option, user]).output().unwrap();
            String::from_utf8(id.stdout).unwrap().trim().to_owned()
        };
        let lines: Vec<&str> = output.lines().take(5).collect();
        let entry = std::process::Command::new("getent").args(["passwd", user]).output().unwrap();
        let entry = String::from_utf8(entry.stdout).unwrap();
        let home = entry.split(':').nth(5).unwrap();
        let expected = [&*id("-u"), &id("-g"), &id("-G"), "/", &format!("{home} {user} {user}")];
        assert_eq!(lines, expected);
        for capabilities in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            let line = output.lines().find(|line| line.starts_with(capabilities)).unwrap();
            assert!(line.ends_with("\t0000000000000000"), "{line}");
        }

        let missing = run_as("no-such-user", "true").await.unwrap_err();
        assert_eq!(missing.kind(), IoErrorKind::NotFound);
        let line =
            "starting sh: no user \"no-such-user\" on this machine; name one that `getent passwd` shows";
        assert_eq!(missing.to_string(), line);
    });
}

#[test]
fn a_real_file_that_cannot_be_executed_is_refused() {
    in_each_engine(async |_, folder| {
        let path = folder.join("hook");
        fs::write(&path, "#!/bin/sh\ntrue\n").unwrap();
        let program = path.display().to_string();
        let call = ProgramCall { program, ..shell("", Duration::from_secs(60)) };
        let refusal = RealPrograms::default().run(call).await.unwrap_err();
        assert_eq!(refusal.kind(), IoErrorKind::PermissionDenied);
        assert!(refusal.to_string().starts_with("starting /"), "{refusal}");
    });
}

struct DropFlag(Rc<Cell<bool>>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

#[test]
fn simulated_programs_keep_their_rules() {
    let ((), _) = sim::run(7, |world| async move {
        let programs = SimPrograms::new(&world);
        let is_dead = Rc::new(Cell::new(false));
        let (own, seen) = (world.clone(), Rc::clone(&is_dead));
        programs.install("sh", move |call, writer| {
            let (world, is_dead) = (own.clone(), Rc::clone(&seen));
            async move {
                world.sleep(Duration::from_millis(5)).await;
                match call.arguments[1].as_str() {
                    WITH_OUTPUT => {
                        let [(_, greeting)] = &call.environment[..] else { panic!("one variable") };
                        writer.write(format!("{greeting} {}\n", call.arguments[2]).as_bytes());
                        writer.write(b"problem\n");
                        0
                    }
                    WITH_EXIT_CODE => {
                        writer.write(b"no\n");
                        3
                    }
                    LONG_OUTPUT => {
                        (0..20).for_each(|_| writer.write(&[0; 10_000]));
                        0
                    }
                    WITH_DESCENDANT => {
                        let _descendant = DropFlag(is_dead);
                        writer.write(b"1\n");
                        world.sleep(Duration::from_secs(60)).await;
                        0
                    }
                    other => panic!("no script {other}"),
                }
            }
        });
        assert_eq!(programs_keep_their_rules(&world, &programs).await, "1\n");
        assert!(is_dead.get());
    });
}
