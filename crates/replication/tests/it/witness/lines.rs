//! The witness over a network: sites, secrets, lost lines and hostile bytes.

use array::format::{EpochId, GroupId, SiteId};
use replication::witness::{
    client::{WITNESS_PORT, WitnessClient, WitnessSilence, WitnessStore},
    group::{WitnessAction, WitnessRefusal, WitnessRequest},
    lease::{LeaseFence, LeaseGuard, LeaseSpan},
    message::{MessageKind, encode_hello, encode_message, encode_request},
    server::WitnessServer,
    session::WitnessSecret,
};
use std::{rc::Rc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Address, IoError, JoinHandle, Network, Random, World, crc32c,
    sim::{NetworkOptions, SimLimits, SimStateFile, Simulation, StateFileFaults},
    with_deadline,
};

const GROUP: GroupId = GroupId([9; 16]);
const SITES: [SiteId; 2] = [SiteId([1; 16]), SiteId([2; 16])];
const HEAD: EpochId = EpochId([7; 16]);

fn address(host: &str) -> Address {
    Address::Tcp { host: host.to_owned(), port: WITNESS_PORT }
}

fn secret(byte: u8) -> Option<WitnessSecret> {
    WitnessSecret::new(&[byte; 16])
}

async fn start(
    world: &World,
    network: &Rc<dyn Network>,
    file: &SimStateFile,
    secret: Option<WitnessSecret>,
) -> JoinHandle<IoError> {
    let server = WitnessServer::open(world, Box::new(file.open()), secret).expect("the file is whole");
    let listener = network.listen(&address("witness")).await.expect("the port is free");
    world.spawn("witness", server.serve(listener))
}

fn acquire(site: usize, fence: u64) -> WitnessRequest {
    let action = WitnessAction::Acquire { span: LeaseSpan::DEFAULT, head: HEAD, by_person: false };
    WitnessRequest { group: GROUP, site: SITES[site], fence: LeaseFence(fence), revision: 0, action }
}

/// Runs a test with the networks of the witness and of two sites.
fn run<F>(seed: u64, main: impl FnOnce(World, [Rc<dyn Network>; 3], Rc<dyn Fn(bool)>) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let hosts = ["witness", "one", "two"].map(|name| network.host(name));
    let cut = Rc::new(
        move |is_cut| {
            if is_cut { network.cut("one", "witness") } else { network.restore("one", "witness") }
        },
    );
    simulation.run(SimLimits::generous(), |world| main(world, hosts, cut)).completed();
}

#[test]
fn the_other_site_takes_over_when_the_holder_is_cut_off() {
    run(1, |world, [witness, one, two], cut| async move {
        let file = SimStateFile::new("witness.db", 1);
        let _serving = start(&world, &witness, &file, secret(1)).await;
        // The first address of the client leads nowhere.
        let client = |network| {
            WitnessClient::new(&world, network, vec![address("nowhere"), address("witness")], secret(1))
        };
        let (one, two) = (client(one), client(two));
        let mut guard = LeaseGuard::default();
        let reply = one.ask(acquire(0, 0)).await.expect("it is reached");
        assert_eq!(reply.answer.result, Ok(()));
        guard.grant(reply.sent, LeaseFence(1), LeaseSpan::DEFAULT);
        cut(true);
        let silence = one.ask(acquire(0, 1)).await.expect_err("it is cut off");
        assert_eq!(silence.to_string().lines().count(), 1);
        loop {
            let reply = two.ask(acquire(1, 1)).await.expect("it is reached");
            if reply.answer.result.is_ok() {
                break;
            }
            assert_eq!(reply.answer.result, Err(WitnessRefusal::Held));
            world.sleep(Duration::from_millis(10)).await;
        }
        assert!(!guard.may_answer(world.now()));
        assert!(world.now().since(reply.sent) < Duration::from_secs(4));
        cut(false);
        let renew = WitnessRequest { action: WitnessAction::Renew { head: HEAD }, ..acquire(0, 1) };
        let reply = one.ask(renew).await.expect("it is reached again");
        assert_eq!(reply.answer.result, Err(WitnessRefusal::NotHolder));
        let views = one.list().await.expect("it is reached");
        assert_eq!((views.len(), views[0].state.holder), (1, Some(SITES[1])));
    });
}

#[test]
fn a_site_without_the_secret_changes_nothing() {
    for seed in 0..20 {
        run(seed, |world, [witness, one, two], _| async move {
            let file = SimStateFile::new("witness.db", 1);
            let _serving = start(&world, &witness, &file, secret(1)).await;
            let why = |other: Option<WitnessSecret>| {
                let client = WitnessClient::new(&world, Rc::clone(&one), vec![address("witness")], other);
                async move {
                    let WitnessSilence { why, .. } =
                        client.ask(acquire(0, 0)).await.expect_err("it is refused");
                    why
                }
            };
            assert!(why(secret(2)).await.contains("different secrets"));
            assert!(why(None).await.contains("one side has a secret"));
            let client = WitnessClient::new(&world, two, vec![address("witness")], secret(1));
            assert!(client.list().await.expect("it is reached").is_empty());
        });
    }
}

#[test]
fn a_recorded_session_that_is_sent_again_changes_nothing() {
    run(1, |world, [witness, one, two], _| async move {
        let file = SimStateFile::new("witness.db", 1);
        let _serving = start(&world, &witness, &file, secret(1)).await;
        // A relay at site two records what site one sends.
        let relay = two.listen(&address("two")).await.expect("the port is free");
        let relayed = {
            let two = Rc::clone(&two);
            world.spawn("relay", async move {
                let client = relay.accept().await.expect("it connects").stream;
                let server = two.connect(&address("witness")).await.expect("it is reached");
                let (mut from_client, mut to_client) = tokio::io::split(client);
                let (mut from_server, mut to_server) = tokio::io::split(server);
                let mut recorded = Vec::new();
                let forward = async {
                    let mut bytes = [0; 256];
                    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                        recorded.extend(&bytes[..count]);
                        to_server.write_all(&bytes[..count]).await.expect("the witness reads");
                    }
                };
                with_deadline(
                    async {
                        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                    },
                    forward,
                )
                .await;
                recorded
            })
        };
        let client = WitnessClient::new(&world, one, vec![address("two")], secret(1));
        let alone = WitnessRequest { action: WitnessAction::RecordAlone, ..acquire(0, 1) };
        assert_eq!(client.ask(acquire(0, 0)).await.expect("it is reached").answer.result, Ok(()));
        assert_eq!(client.ask(alone).await.expect("it is reached").answer.result, Ok(()));
        drop(client);
        let recorded = relayed.await;
        assert!(recorded.len() > 200, "the session was recorded");
        let judge = WitnessClient::new(&world, Rc::clone(&two), vec![address("witness")], secret(1));
        let before = judge.list().await.expect("it is reached")[0].state.clone();
        let mut stream = two.connect(&address("witness")).await.expect("it is reached");
        stream.write_all(&recorded).await.expect("it is sent");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(judge.list().await.expect("it is reached")[0].state, before);
    });
}

#[test]
fn a_thousand_mutated_sessions_do_no_harm() {
    run(1, |world, [witness, one, two], _| async move {
        let file = SimStateFile::new("witness.db", 1);
        let _serving = start(&world, &witness, &file, None).await;
        let mut random = Random::new(1, "mutations");
        for _ in 0..1_000 {
            let mut messages = vec![encode_message(MessageKind::Hello, 0, &encode_hello(&[5; 32], false))];
            for number in 1..=3 {
                let request = (random.below(4) > 0).then(|| acquire(number % 2, random.below(5)));
                messages.push(encode_message(
                    MessageKind::Request,
                    number as u64,
                    &encode_request(request.as_ref()),
                ));
            }
            let target = random.below(4) as usize;
            for _ in 0..1 + random.below(3) {
                let at = random.below(messages[target].len() as u64) as usize;
                messages[target][at] = random.next_u64() as u8;
            }
            // Half of them have the right checksum, and reach the decoders of bodies.
            if random.below(2) == 0 {
                let checksum = crc32c::crc32c(&[&messages[target][..20], &messages[target][24..]]);
                messages[target][20..24].copy_from_slice(&checksum.to_le_bytes());
            }
            let mut bytes = messages.concat();
            bytes.truncate(random.below(2 * bytes.len() as u64) as usize);
            let mut stream = one.connect(&address("witness")).await.expect("it listens");
            let _ = stream.write_all(&bytes).await;
            world.sleep(Duration::from_millis(random.below(5))).await;
        }
        let client = WitnessClient::new(&world, two, vec![address("witness")], None);
        assert!(!client.list().await.expect("it is still there").is_empty());
    });
}

#[test]
fn nothing_is_answered_after_the_file_failed() {
    run(1, |world, [witness, one, _], _| async move {
        let file = SimStateFile::new("witness.db", 1);
        let serving = start(&world, &witness, &file, None).await;
        file.set_faults(StateFileFaults { failed_syncs: 0..9, ..Default::default() });
        let client = WitnessClient::new(&world, one, vec![address("witness")], None);
        assert!(client.ask(acquire(0, 0)).await.is_err());
        serving.await;
        assert!(client.ask(acquire(0, 0)).await.is_err());
    });
}
