//! Malformed sessions: only their own connection ends.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a process of its own is measured")]

use crate::{
    certificates::Authority,
    contexts::with_bitmaps,
    portal::{info, serve},
    scene::{Scene, connect, export, read, start, start_with, uri},
};
use nbd::{
    TlsMode, UriTls,
    wire::{
        handshake::{ContextRequest, InfoRequest, OptionHead, handshake_flag, option},
        transmission::{Request, RequestType},
    },
};
use std::{env, process::Command as Program, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Random, Stream, World,
    real::host::process_use,
    sim::{NetworkOptions, SimLimits, SimNetwork},
};

/// Set in the child process whose memory is measured.
const MEASURED: &str = "SPINDLE_SPOILED_SESSIONS";
/// Most growth of the resident set over all sessions. The simulated network alone keeps about 400 bytes for
/// each connection.
const GROWTH_MAX: u64 = 10 << 20;
/// Sessions before the first measurement, in which buffers reach their size.
const WARMING: u64 = 200;

/// 1,000, or 10,000 with `SPINDLE_FULL`.
fn sessions() -> u64 {
    if env::var_os("SPINDLE_FULL").is_some() { 10_000 } else { 1000 }
}

/// A handshake, options and requests.
fn whole_session(random: &mut Random) -> Vec<u8> {
    let mut bytes =
        u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes().to_vec();
    for _ in 0..random.below(4) {
        let asked = 1 + random.below(12) as u32;
        let mut data = vec![0; random.below(40) as usize];
        random.fill(&mut data);
        bytes.extend(OptionHead::write(asked, &data));
    }
    if random.percent(10.0) {
        bytes.extend(OptionHead::write(option::STARTTLS, &[]));
    }
    if random.percent(50.0) {
        bytes.extend(OptionHead::write(option::STRUCTURED_REPLY, &[]));
    }
    for _ in 0..random.below(3) {
        let asked = [option::LIST_META_CONTEXT, option::SET_META_CONTEXT][random.below(2) as usize];
        bytes.extend(OptionHead::write(asked, &context_request(random)));
    }
    let wanted = InfoRequest { name: "mail".to_owned(), wanted: vec![1, 2, 3] };
    bytes.extend(OptionHead::write(option::GO, &wanted.write()));
    for cookie in 0..random.below(12) {
        let command = RequestType::of([random.below(9), 7][random.below(2) as usize] as u16);
        let length = [0, 1, 512, 4096, 65_536, u32::MAX][random.below(6) as usize];
        let offset = [0, 512, 1 << 19, (1 << 20) - 512, 1 << 20, u64::MAX][random.below(6) as usize];
        let request = Request { flags: random.below(40) as u16, command, cookie, offset, length };
        bytes.extend(request.write());
        if command == RequestType::Write && length <= 65_536 {
            bytes.extend(vec![cookie as u8; length as usize]);
        }
    }
    bytes
}

/// Queries for metadata contexts, as hostile as they come.
fn context_request(random: &mut Random) -> Vec<u8> {
    let long = format!("qemu:dirty-bitmap:{}", "a".repeat(random.below(6000) as usize));
    let known =
        ["base:allocation", "qemu:dirty-bitmap:since-a", "qemu:dirty-bitmap:", "qemu:", "base:", "", ":"];
    let count = [1, 2, 5, 40, 400][random.below(5) as usize];
    let query = |random: &mut Random| match random.below(10) {
        0 => long.clone(),
        1 => format!("qemu:dirty-bitmap:many-{}", random.below(40)),
        pick => known[pick as usize % known.len()].to_owned(),
    };
    let name = ["mail", "", "male"][random.below(3) as usize].to_owned();
    let mut data = ContextRequest { name, queries: (0..count).map(|_| query(random)).collect() }.write();
    if random.percent(20.0) {
        // A count, or a length, beyond the data.
        let at = random.below(data.len() as u64) as usize;
        data[at] = 255;
    }
    data
}

/// Flips, removes or repeats bytes.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at.max(1)),
            2 => bytes[at] = random.below(256) as u8,
            _ => {
                let piece = bytes[at..].iter().take(64).copied().collect::<Vec<_>>();
                bytes.splice(at..at, piece);
            }
        }
    }
}

async fn send_and_drain(world: &World, network: &SimNetwork, bytes: Vec<u8>) {
    let stream: Stream = network.host("client").connect(&uri("").address).await.unwrap();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let draining = world.spawn("drain", async move {
        let mut answers = Vec::new();
        let _ = reader.read_to_end(&mut answers).await;
        answers.len()
    });
    let _ = writer.write_all(&bytes).await;
    let _ = writer.shutdown().await;
    draining.await;
}

#[test]
fn a_server_survives_malformed_sessions() {
    let authority = Authority::new();
    for seed in 0..sessions() / 50 {
        let tls = TlsMode::Allowed(authority.server("server"));
        let Scene { mut simulation, drive, network } = Scene::new(seed, NetworkOptions::rack());
        let run = simulation.run(SimLimits::generous(), |world| async move {
            start_with(&world, &network, vec![with_bitmaps(export("mail", &drive))], tls).await;
            let mut random = world.random("sessions");
            for _ in 0..50 {
                let mut bytes = whole_session(&mut random);
                spoil(&mut random, &mut bytes);
                send_and_drain(&world, &network, bytes).await;
            }
            let client = connect(&world, &network, "mail").await.expect("it serves on");
            read(&client, 0, 4096).await.unwrap();
        });
        run.completed();
    }
}

#[test]
fn a_portal_and_its_threads_survive_malformed_sessions() {
    let authority = Authority::new();
    for seed in 0..sessions() / 50 {
        let tls = TlsMode::Allowed(authority.server("server"));
        let Scene { mut simulation, drive, network } = Scene::new(seed, NetworkOptions::rack());
        let run = simulation.run(SimLimits::generous(), |world| async move {
            let exports = vec![with_bitmaps(export("mail", &drive)), with_bitmaps(export("logs", &drive))];
            serve(&world, &network, exports, tls).await;
            let mut random = world.random("sessions");
            for _ in 0..50 {
                let mut bytes = whole_session(&mut random);
                // Behind the flags; then it is back to the other thread.
                for _ in 0..random.below(3) {
                    bytes.splice(4..4, OptionHead::write(option::INFO, &info("logs")));
                }
                spoil(&mut random, &mut bytes);
                send_and_drain(&world, &network, bytes).await;
            }
            for name in ["mail", "logs"] {
                let client = connect(&world, &network, name).await.expect("it serves on");
                read(&client, 0, 4096).await.unwrap();
            }
        });
        run.completed();
    }
}

#[test]
fn malformed_sessions_leak_no_memory() {
    // A child process, so that the memory of other tests does not count.
    let measured = Program::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "hostile::one_server_serves_all_malformed_sessions",
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
    println!("{} spoiled NBD sessions: {} KiB more", sessions(), grown >> 10);
    assert!(grown < GROWTH_MAX, "{grown} bytes more after {} sessions", sessions());
}

#[test]
#[ignore = "the process that is measured"]
fn one_server_serves_all_malformed_sessions() {
    let Some(count) = env::var(MEASURED).ok().and_then(|count| count.parse::<u64>().ok()) else { return };
    let Scene { mut simulation, drive, network } = Scene::new(7, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(&world, &network, vec![with_bitmaps(export("mail", &drive))]).await;
        let mut random = world.random("sessions");
        let mut before = 0;
        for session in 0..WARMING + count {
            if session == WARMING {
                before = process_use().memory_now.0;
            }
            let mut bytes = whole_session(&mut random);
            spoil(&mut random, &mut bytes);
            send_and_drain(&world, &network, bytes).await;
        }
        println!("\n{} bytes more", process_use().memory_now.0.saturating_sub(before));
    });
    run.completed();
}

#[test]
fn a_client_without_a_handshake_is_disconnected() {
    let Scene { mut simulation, drive, network } = Scene::new(1, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(&world, &network, vec![export("mail", &drive)]).await;
        let mut stream = network.host("client").connect(&uri("").address).await.unwrap();
        let began = world.now();
        let mut greeting = Vec::new();
        stream.read_to_end(&mut greeting).await.unwrap();
        assert_eq!((greeting.len(), world.now().since(began).as_secs()), (18, 10));
    });
    run.completed();
}

#[test]
fn a_client_survives_flipped_bits() {
    (0..200).for_each(|seed| read_through_a_bit_flipper(seed, None));
}

#[test]
fn tls_detects_flipped_bits() {
    let authority = Authority::new();
    (0..100).for_each(|seed| read_through_a_bit_flipper(seed, Some(&authority)));
}

/// Reads through a proxy that flips bits. With an authority the connection uses TLS, and what is read is
/// right.
fn read_through_a_bit_flipper(seed: u64, authority: Option<&Authority>) {
    let is_tls = authority.is_some();
    let server = authority.map_or(TlsMode::Off, |authority| TlsMode::Required(authority.server("server")));
    let tls = authority.map(|authority| authority.client(None));
    let Scene { mut simulation, drive, network } = Scene::new(seed, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start_with(&world, &network, vec![export("mail", &drive)], server).await;
        let listener = network.host("spoiler").listen(&uri("").address).await.unwrap();
        let (own, between) = (world.clone(), network.clone());
        world.spawn("spoiler", async move {
            let mut random = own.random("spoiler");
            while let Ok(accepted) = listener.accept().await {
                let Ok(server) = between.host("spoiler").connect(&uri("").address).await else {
                    continue;
                };
                let (mut from_server, mut to_server) = tokio::io::split(server);
                let (mut from_client, mut to_client) = tokio::io::split(accepted.stream);
                own.spawn("up", async move { drop(tokio::io::copy(&mut from_client, &mut to_server).await) });
                let mut left = random.below(400);
                let mut random = own.random("bytes");
                own.spawn("down", async move {
                    let mut byte = [0; 1];
                    while from_server.read_exact(&mut byte).await.is_ok() {
                        if left == 0 {
                            byte[0] ^= 1 << random.below(8);
                            left = 1 + random.below(2000);
                        }
                        left -= 1;
                        if to_client.write_all(&byte).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let mut through = uri("mail");
        through.address = world::Address::parse("spoiler:10809", 0).unwrap();
        through.tls = is_tls.then(UriTls::default);
        let options = nbd::ClientOptions {
            connect_max: Duration::from_secs(2),
            answer_max: Duration::from_secs(5),
            tls,
        };
        let connecting = nbd::Client::connect(&world, network.host("client"), through, options);
        if let Ok(client) = connecting.await {
            for round in 0..5 {
                let found = read(&client, 512 * round, 512).await;
                assert!(!is_tls || found.map_or(true, |found| found == [0; 512]), "seed {seed}");
            }
        }
    });
    run.completed();
}
