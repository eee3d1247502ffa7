//! Malformed sessions: 1,000, or 10,000 with `SPINDLE_FULL`. None stops the target or leaks memory.

use crate::sessions::{TARGET, address, encode, login, start, with_target};
use iscsi::{
    initiator::{Initiator, InitiatorOptions, IscsiUri},
    scsi::commands::SUPPORTED_COMMANDS,
    target::TargetEvent,
    wire::{
        header::{DataOut, FINAL, IMMEDIATE, NO_TAG, NopOut, PduHeader, ScsiCommand, TaskManagement, Text},
        pdu::HEADER_BYTES,
        text,
    },
};
use std::{env, process::Command};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    BlockDevice, Buffer, ByteOffset, Random, Stream, World, real::host::process_use, sim::SimNetwork,
};

/// Set in the child process whose memory is measured.
const MEASURED: &str = "SPINDLE_SPOILED_SESSIONS";
/// Most growth of the resident set over all sessions. The simulated network alone keeps about 400 bytes for
/// each connection.
const GROWTH_MAX: u64 = 10 << 20;
/// Sessions before the first measurement, in which buffers reach their size.
const WARMING: u64 = 200;

pub fn sessions() -> u64 {
    if env::var_os("SPINDLE_FULL").is_some() { 10_000 } else { 1000 }
}

fn some_command(random: &mut Random, itt: u32, number: u32) -> Vec<u8> {
    let known = &SUPPORTED_COMMANDS[random.below(SUPPORTED_COMMANDS.len() as u64) as usize];
    let mut cdb = [0; 16];
    for (byte, usage) in cdb.iter_mut().zip(known.usage) {
        *byte = if random.percent(30.0) { random.below(256) as u8 & usage & 0x1f } else { 0 };
    }
    (cdb[0], cdb[1]) = (known.code, known.service_action.unwrap_or(0) as u8);
    let data = vec![7; [0, 0, 24, 512, 4096][random.below(5) as usize]];
    let expected = [0, 24, 512, 4096, 70_000, u32::MAX][random.below(6) as usize];
    let header = ScsiCommand {
        flags: FINAL | [0, 0x20, 0x40, 0x60][random.below(4) as usize],
        itt: itt.into(),
        expected_transfer_length: expected.into(),
        cmd_sn: number.into(),
        cdb,
        ..ScsiCommand::empty()
    };
    encode(&header, data)
}

/// A login, then random commands, data, and session requests.
pub fn whole_session(random: &mut Random) -> Vec<u8> {
    let keys = [("MaxBurstLength", "65536"), ("InitialR2T", "No"), ("HeaderDigest", "None"), ("X-y", "z")];
    let mut bytes = login("iqn.x:wild", &keys[..random.below(5) as usize]);
    for itt in 0..random.below(16) as u32 {
        let number = 1 + itt;
        bytes.extend(match random.below(10) {
            0 => encode(
                &TaskManagement {
                    first: IMMEDIATE,
                    flags: FINAL | random.below(9) as u8,
                    itt: itt.into(),
                    referenced_task_tag: (random.below(16) as u32).into(),
                    cmd_sn: number.into(),
                    ..TaskManagement::empty()
                },
                Vec::new(),
            ),
            1 => {
                let offset = [0, 512, u32::MAX][random.below(3) as usize];
                let tag = [NO_TAG, 1, 2][random.below(3) as usize];
                let header = DataOut {
                    flags: FINAL,
                    itt: (random.below(16) as u32).into(),
                    ttt: tag.into(),
                    buffer_offset: offset.into(),
                    ..DataOut::empty()
                };
                encode(&header, vec![1; 512 * random.below(3) as usize])
            }
            2 => {
                let header = Text { flags: FINAL, itt: itt.into(), cmd_sn: number.into(), ..Text::empty() };
                encode(&header, text::write([("SendTargets", "All")]))
            }
            3 => encode(
                &NopOut { flags: FINAL, itt: itt.into(), cmd_sn: number.into(), ..NopOut::empty() },
                vec![5; 40],
            ),
            _ => some_command(random, itt, number),
        });
    }
    bytes
}

/// Flips, removes or repeats bytes.
pub fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
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

pub async fn send_and_drain(world: &World, network: &SimNetwork, bytes: Vec<u8>) {
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
fn a_target_survives_malformed_sessions() {
    for seed in 0..sessions() / 50 {
        with_target(seed, move |world, network, drive| async move {
            let (_, events) = start(&world, &network, &drive).await;
            let mut random = world.random("sessions");
            for _ in 0..50 {
                let mut bytes = whole_session(&mut random);
                spoil(&mut random, &mut bytes);
                send_and_drain(&world, &network, bytes).await;
            }
            let uri = IscsiUri { address: address(), others: Vec::new(), target: TARGET.to_owned(), unit: 0 };
            let host = network.host("client");
            let disk = Initiator::connect(&world, host, uri, InitiatorOptions::default()).await;
            let disk = disk.expect("it serves on");
            disk.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
            let is_in = |event: &&TargetEvent| matches!(event, TargetEvent::LoggedIn { .. });
            let let_in = events.borrow().iter().filter(is_in).count();
            assert!(let_in > 20, "seed {seed}: {let_in} were let in");
        });
    }
}

#[test]
fn malformed_sessions_leak_no_memory() {
    // A child process, so that the memory of other tests does not count.
    let measured = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "malformed_sessions::one_target_serves_all_malformed_sessions",
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
fn one_target_serves_all_malformed_sessions() {
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
