//! Lost connections and servers that stop.

use crate::scene::{SIZE, Scene, connect, export, read, start};
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, IoErrorKind, Stability,
    sim::{NetworkOptions, SimLimits, SimOutcome},
};

#[test]
fn unanswered_requests_are_sent_again_over_the_next_connection() {
    let mut breaks = 0;
    for seed in 0..20 {
        let options = NetworkOptions { reset_percent: 2.0, ..NetworkOptions::rack() };
        let Scene { mut simulation, drive, network } = Scene::new(seed, options);
        let run = simulation.run(SimLimits::generous(), |world| async move {
            start(&world, &network, vec![export("mail", &drive)]).await;
            let client = loop {
                if let Ok(client) = connect(&world, &network, "mail").await {
                    break client;
                }
            };
            let mut random = world.random("operations");
            let mut content = vec![0_u8; SIZE as usize];
            for round in 0..150_u32 {
                let at = 4096 * random.below(SIZE / 4096);
                if random.percent(60.0) {
                    let data = Buffer::copy_of(&[round as u8 + 1; 4096]);
                    content[at as usize..][..4096].copy_from_slice(&data);
                    client.write(ByteOffset(at), vec![Arc::new(data)], Stability::Stable).await.unwrap();
                } else {
                    let found = read(&client, at, 4096).await.unwrap();
                    assert!(found == content[at as usize..][..4096], "seed {seed}");
                }
            }
            client.flush().await.expect("all writes were stable when they were answered");
            client.breaks()
        });
        breaks += run.completed();
    }
    assert!(breaks > 20, "connections did break: {breaks}");
}

#[test]
fn requests_of_a_client_that_is_ended_go_on_over_its_next_connection() {
    let mut breaks = 0;
    for seed in 0..20 {
        let Scene { mut simulation, drive, network } = Scene::new(seed, NetworkOptions::rack());
        let run = simulation.run(SimLimits::generous(), |world| async move {
            let export = export("mail", &drive);
            let gate = Rc::clone(&export.gate);
            start(&world, &network, vec![export]).await;
            let client = Rc::new(connect(&world, &network, "mail").await.unwrap());
            let writers = (0..16).map(|writer| {
                let client = Rc::clone(&client);
                world.spawn("writer", async move {
                    for round in 0..30 {
                        let data = vec![Arc::new(Buffer::copy_of(&[round; 4096]))];
                        client.write(ByteOffset(4096 * writer), data, Stability::Stable).await.unwrap();
                    }
                })
            });
            let writers: Vec<_> = writers.collect();
            let mut random = world.random("moments");
            for _ in 0..20 {
                world.sleep(Duration::from_micros(random.below(2000))).await;
                gate.end_clients();
            }
            for writer in writers {
                writer.await;
            }
            for writer in 0..16 {
                assert_eq!(read(&*client, 4096 * writer, 4096).await.unwrap(), [29; 4096]);
            }
            client.breaks()
        });
        breaks += run.completed();
    }
    assert!(breaks > 20, "connections did end: {breaks}");
}

#[test]
fn a_flush_fails_if_writes_may_be_lost() {
    let Scene { mut simulation, drive, network } = Scene::new(3, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(&world, &network, vec![export("mail", &drive)]).await;
        let client = connect(&world, &network, "mail").await.unwrap();
        let data = || vec![Arc::new(Buffer::zeroed(4096))];
        client.write(ByteOffset(0), data(), Stability::Volatile).await.unwrap();
        client.flush().await.unwrap();
        network.reset("client", "server");
        world.sleep(Duration::from_secs(5)).await;
        client.flush().await.expect("nothing was written since the last one");
        client.write(ByteOffset(0), data(), Stability::Volatile).await.unwrap();
        network.reset("client", "server");
        world.sleep(Duration::from_secs(5)).await;
        let refused = client.flush().await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::CacheLost, "{refused}");
        client.write(ByteOffset(0), data(), Stability::Volatile).await.unwrap();
        client.flush().await.expect("it was told once, and what came since is stable");
        assert_eq!(client.breaks(), 2);
    });
    run.completed();
}

#[test]
fn a_request_fails_at_its_deadline_and_the_client_reconnects_later() {
    let Scene { mut simulation, drive, network } = Scene::new(4, NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(&world, &network, vec![export("mail", &drive)]).await;
        let client = connect(&world, &network, "mail").await.unwrap();
        network.cut("client", "server");
        let began = world.now();
        let refused = read(&client, 0, 512).await.unwrap_err();
        let took = world.now().since(began);
        assert_eq!(refused.kind(), IoErrorKind::Disconnected);
        assert!(refused.to_string().contains("no answer within 60 s"), "{refused}");
        assert!(took >= Duration::from_secs(60) && took < Duration::from_secs(62), "{took:?}");
        network.restore("client", "server");
        assert!(read(&client, 0, 512).await.is_ok(), "the server is there again");
    });
    run.completed();
}

#[test]
fn flushed_writes_survive_a_power_cut_of_the_server() {
    for seed in 0..40 {
        let Scene { mut simulation, drive, network } = Scene::new(seed, NetworkOptions::rack());
        let flushed = Rc::new(RefCell::new(vec![0_u8; SIZE as usize]));
        let written = Rc::new(RefCell::new(flushed.borrow().clone()));
        let polls = 300 + 40 * seed;
        let limits = SimLimits { polls: Some(polls), ..SimLimits::generous() };
        let first = simulation.run(limits, |world| {
            let (drive, network) = (Rc::clone(&drive), network.clone());
            let (flushed, written) = (Rc::clone(&flushed), Rc::clone(&written));
            async move {
                start(&world, &network, vec![export("mail", &drive)]).await;
                let client = connect(&world, &network, "mail").await.unwrap();
                for round in 0..=255_u8 {
                    let at = 512 * u64::from(round);
                    written.borrow_mut()[at as usize..][..512].fill(round + 1);
                    let data = vec![Arc::new(Buffer::copy_of(&[round + 1; 512]))];
                    client.write(ByteOffset(at), data, Stability::Volatile).await.unwrap();
                    if round % 8 == 7 {
                        let before = written.borrow().clone();
                        client.flush().await.unwrap();
                        *flushed.borrow_mut() = before;
                    }
                    if round == 254 {
                        std::future::pending::<()>().await;
                    }
                }
            }
        });
        assert_eq!(first, SimOutcome::Crashed, "seed {seed}");
        simulation.cut_power();
        let own = Rc::clone(&drive);
        let found =
            simulation.run(SimLimits::generous(), |_| async move { read(&*own, 0, SIZE as usize).await });
        let found = found.completed().unwrap();
        for (sector, kept) in flushed.borrow().chunks(512).enumerate() {
            let is_kept = kept.iter().all(|&byte| byte == 0) || found[sector * 512..][..512] == *kept;
            assert!(is_kept, "seed {seed}, sector {sector}");
        }
    }
}
