//! Sessions of initiators that do not keep to the protocol: a thousand, ten thousand under `SPINDLE_FULL`. No one of them
//! ends the target, or leaves anything in its memory.

use crate::sessions::{TARGET, address, frame, login, start, with_target};
use iscsi::{
    initiator::{Initiator, InitiatorOptions, Uri},
    scsi::commands::KNOWN,
    target::Event,
    wire::{
        frame::HEADER_BYTES,
        pdu::{DataOut, FINAL, Header, IMMEDIATE, NO_TAG, NopOut, ScsiCommand, TaskManagement, Text},
        text,
    },
};
use std::{env, process::Command};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    BlockDevice, Buffer, ByteOffset, Random, Stream, World, real::host::process_use, sim::SimNetwork,
};

/// Set for the process that is measured.
const MEASURED: &str = "SPINDLE_SPOILED_SESSIONS";
/// By so much the memory of a process may grow over all sessions. The simulated network alone remembers some 400 bytes of
/// each connection.
const GROWTH_MAX: u64 = 10 << 20;
/// Sessions before which nothing is measured: until then buffers grow to what they will be.
const WARMING: u64 = 200;

/// How many are tried.
fn sessions() -> u64 {
    if env::var_os("SPINDLE_FULL").is_some() { 10_000 } else { 1000 }
}

fn some_command(random: &mut Random, task: u32, number: u32) -> Vec<u8> {
    let known = &KNOWN[random.below(KNOWN.len() as u64) as usize];
    let mut cdb = [0; 16];
    for (byte, usage) in cdb.iter_mut().zip(known.usage) {
        *byte = if random.percent(30.0) { random.below(256) as u8 & usage & 0x1f } else { 0 };
    }
    (cdb[0], cdb[1]) = (known.code, known.service_action.unwrap_or(0) as u8);
    let data = vec![7; [0, 0, 24, 512, 4096][random.below(5) as usize]];
    let expected = [0, 24, 512, 4096, 70_000, u32::MAX][random.below(6) as usize];
    let header = ScsiCommand {
        flags: FINAL | [0, 0x20, 0x40, 0x60][random.below(4) as usize],
        task: task.into(),
        expected_bytes: expected.into(),
        command_number: number.into(),
        cdb,
        ..ScsiCommand::empty()
    };
    frame(&header, data)
}

/// What an initiator may send: a login, then commands, data, and what concerns the session.
fn whole_session(random: &mut Random) -> Vec<u8> {
    let keys = [("MaxBurstLength", "65536"), ("InitialR2T", "No"), ("HeaderDigest", "None"), ("X-y", "z")];
    let mut bytes = login("iqn.x:wild", &keys[..random.below(5) as usize]);
    for task in 0..random.below(16) as u32 {
        let number = 1 + task;
        bytes.extend(match random.below(10) {
            0 => frame(
                &TaskManagement {
                    first: IMMEDIATE,
                    flags: FINAL | random.below(9) as u8,
                    task: task.into(),
                    referenced_task: (random.below(16) as u32).into(),
                    command_number: number.into(),
                    ..TaskManagement::empty()
                },
                Vec::new(),
            ),
            1 => {
                let offset = [0, 512, u32::MAX][random.below(3) as usize];
                let tag = [NO_TAG, 1, 2][random.below(3) as usize];
                let header = DataOut {
                    flags: FINAL,
                    task: (random.below(16) as u32).into(),
                    transfer: tag.into(),
                    offset: offset.into(),
                    ..DataOut::empty()
                };
                frame(&header, vec![1; 512 * random.below(3) as usize])
            }
            2 => {
                let header =
                    Text { flags: FINAL, task: task.into(), command_number: number.into(), ..Text::empty() };
                frame(&header, text::write([("SendTargets", "All")]))
            }
            3 => frame(
                &NopOut { flags: FINAL, task: task.into(), command_number: number.into(), ..NopOut::empty() },
                vec![5; 40],
            ),
            _ => some_command(random, task, number),
        });
    }
    bytes
}

/// Flips, cuts, repeats: what is sent by one who is broken, or means ill.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(5) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at.max(1)),
            2 => bytes[at] = random.below(256) as u8,
            _ => {
                let piece = bytes[at..].iter().take(HEADER_BYTES).copied().collect::<Vec<_>>();
                bytes.splice(at..at, piece);
            }
        }
    }
}

async fn send_and_drain(world: &World, network: &SimNetwork, bytes: Vec<u8>) {
    let stream: Stream = network.host("wild").connect(&address()).await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let draining = world.spawn("drain", async move {
        let mut answers = Vec::new();
        let _ = reader.read_to_end(&mut answers).await;
    });
    let _ = writer.write_all(&bytes).await;
    let _ = writer.shutdown().await;
    draining.await;
}

#[test]
fn a_target_outlives_a_thousand_spoiled_sessions() {
    for seed in 0..sessions() / 50 {
        with_target(seed, move |world, network, drive| async move {
            let (_, events) = start(&world, &network, &drive).await;
            let mut random = world.random("sessions");
            for _ in 0..50 {
                let mut bytes = whole_session(&mut random);
                spoil(&mut random, &mut bytes);
                send_and_drain(&world, &network, bytes).await;
            }
            let uri = Uri { address: address(), target: TARGET.to_owned(), unit: 0 };
            let host = network.host("client");
            let disk = Initiator::connect(&world, host, uri, InitiatorOptions::default()).await;
            let disk = disk.expect("it serves on");
            disk.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
            let is_in = |event: &&Event| matches!(event, Event::LoggedIn { .. });
            let let_in = events.borrow().iter().filter(is_in).count();
            assert!(let_in > 20, "seed {seed}: {let_in} were let in");
        });
    }
}

#[test]
fn spoiled_sessions_leave_nothing_in_memory() {
    // A process of its own: what other tests take is not its memory.
    let measured = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "spoiled::one_target_serves_them_all",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(MEASURED, sessions().to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&measured.stdout).into_owned();
    assert!(measured.status.success(), "{said}{}", String::from_utf8_lossy(&measured.stderr));
    let grown = said.lines().find_map(|line| line.strip_suffix(" bytes more")).expect("it was measured");
    let grown: u64 = grown.rsplit(' ').next().unwrap().parse().unwrap();
    println!("{} spoiled iSCSI sessions: {} KiB more", sessions(), grown >> 10);
    assert!(grown < GROWTH_MAX, "{grown} bytes more after {} sessions", sessions());
}

#[test]
#[ignore = "the process that is measured"]
fn one_target_serves_them_all() {
    let Some(count) = env::var(MEASURED).ok().and_then(|count| count.parse::<u64>().ok()) else { return };
    with_target(7, move |world, network, drive| async move {
        let (_, events) = start(&world, &network, &drive).await;
        let mut random = world.random("sessions");
        let mut before = 0;
        for session in 0..WARMING + count {
            if session == WARMING {
                before = process_use().memory_now.0;
            }
            let mut bytes = whole_session(&mut random);
            spoil(&mut random, &mut bytes);
            send_and_drain(&world, &network, bytes).await;
            events.borrow_mut().clear();
        }
        println!("\n{} bytes more", process_use().memory_now.0.saturating_sub(before));
    });
}
