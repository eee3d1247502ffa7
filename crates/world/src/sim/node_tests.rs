//! Nodes that crash, pause and restart apart from each other, and charged processor time.

use super::{
    DriveOptions, LinkOptions, NetworkOptions, SimDrive, SimLimits, SimNetwork, SimNode, Simulation,
};
use crate::{Address, BlockDevice, Buffer, ByteCount, ByteOffset, Moment, Stability, Stream, World};
use std::{
    cell::{Cell, RefCell},
    future::Future,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);

/// Runs `main` beside two nodes on one network; it must complete.
fn run<T: 'static, F: Future<Output = T> + 'static>(
    seed: u64,
    main: impl FnOnce(World, [SimNode; 2], SimNetwork) -> F,
) -> T {
    let mut simulation = Simulation::new(seed);
    let nodes = ["a", "b"].map(|name| simulation.add_node(name));
    let network = simulation.add_network(NetworkOptions::rack());
    simulation.run(SimLimits::generous(), |world| main(world, nodes, network)).completed()
}

fn port() -> Address {
    Address::Tcp { host: "b".to_owned(), port: 10 }
}

/// A server on `b` that echoes bytes.
async fn echo(network: Rc<dyn crate::Network>) {
    let listener = network.listen(&port()).await.expect("a free port");
    loop {
        let mut stream = listener.accept().await.expect("the listener is open").stream;
        let mut byte = [0];
        while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {}
    }
}

async fn round_trip(stream: &mut Stream) -> std::io::Result<()> {
    stream.write_all(b"x").await?;
    stream.read_exact(&mut [0]).await.map(drop)
}

#[test]
fn a_crash_stops_one_node_and_resets_its_connections() {
    run(1, |world, [a, b], network| async move {
        let [ours, theirs] = [a.network(&network), b.network(&network)];
        b.start(|_| echo(theirs));
        let ticks = Rc::new(Cell::new(0));
        let counted = Rc::clone(&ticks);
        a.start(|world| async move {
            loop {
                world.sleep(MS).await;
                counted.set(counted.get() + 1);
            }
        });
        world.sleep(MS).await;
        let mut stream = ours.connect(&port()).await.expect("b listens");
        round_trip(&mut stream).await.expect("b answers");
        b.crash();
        assert!(!b.is_up() && a.is_up());
        let broken = round_trip(&mut stream).await.expect_err("b is gone");
        assert_eq!(broken.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(ours.connect(&port()).await.is_err(), "no node listens");
        let before = ticks.get();
        world.sleep(20 * MS).await;
        assert!(ticks.get() >= before + 19, "the other node goes on");
        let theirs = b.network(&network);
        b.start(|_| echo(theirs));
        world.sleep(MS).await;
        let mut stream = ours.connect(&port()).await.expect("b listens again");
        round_trip(&mut stream).await.expect("b answers again");
    });
}

#[test]
fn a_restarted_node_has_a_new_clock_and_other_random_streams() {
    run(2, |world, [a, b], _| async move {
        b.set_wall_ahead(3600);
        let seen = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..2 {
            world.sleep(Duration::from_secs(5)).await;
            for node in [&a, &b] {
                let seen = Rc::clone(&seen);
                node.start(|world| async move {
                    world.sleep(MS).await;
                    let draw = world.random("draw").next_u64();
                    seen.borrow_mut().push((world.now(), world.wall().seconds, draw));
                });
            }
            world.sleep(2 * MS).await;
            a.crash();
            b.crash();
        }
        let seen = seen.take();
        assert_eq!(seen.len(), 4);
        assert!(seen.iter().all(|(now, ..)| *now == Moment(1_000_000)), "{seen:?}");
        let walls: Vec<i64> = seen.iter().map(|(_, wall, _)| *wall).collect();
        assert_eq!(walls[1] - walls[0], if walls[1] > walls[0] { 3600 } else { -3600 }, "{walls:?}");
        let mut draws: Vec<u64> = seen.iter().map(|(.., draw)| *draw).collect();
        draws.sort_unstable();
        draws.dedup();
        assert_eq!(draws.len(), 4, "nodes and starts draw differently");
    });
}

#[test]
fn a_paused_node_runs_nothing_until_it_resumes() {
    run(3, |world, [a, b], _| async move {
        let counts = [&a, &b].map(|node| {
            let count = Rc::new(Cell::new(0));
            let counted = Rc::clone(&count);
            node.start(|world| async move {
                loop {
                    world.sleep(MS).await;
                    counted.set(counted.get() + 1);
                }
            });
            count
        });
        world.sleep(10 * MS).await;
        a.pause();
        let before = counts[0].get();
        world.sleep(50 * MS).await;
        assert_eq!(counts[0].get(), before);
        assert!(counts[1].get() >= 58);
        a.resume();
        world.sleep(10 * MS).await;
        assert!((before + 9..before + 12).contains(&counts[0].get()), "timers that were due fire once");
    });
}

fn block(byte: u8) -> Vec<Arc<Buffer>> {
    vec![Arc::new(Buffer::copy_of(&[byte; 4096]))]
}

async fn first_byte(drive: &SimDrive) -> u8 {
    drive.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.expect("readable")[0][0]
}

#[test]
fn drives_fail_with_their_node_and_no_other() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        let [a, b] = ["a", "b"].map(|name| simulation.add_node(name));
        let drives = [&a, &b].map(|node| {
            let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(1)));
            node.attach(&drive);
            drive
        });
        let main = |world: World| async move {
            for (node, drive) in [&a, &b].into_iter().zip(&drives) {
                let drive = Rc::clone(drive);
                node.start(|world| async move {
                    drive.write(ByteOffset(0), block(7), Stability::Volatile).await.expect("written");
                    loop {
                        // In flight at the crash, each time.
                        let _ = drive.write(ByteOffset(4096), block(8), Stability::Volatile).await;
                        world.yield_now().await;
                    }
                });
            }
            world.sleep(5 * MS).await;
            b.crash();
            a.cut_power();
            world.sleep(5 * MS).await;
            (first_byte(&drives[0]).await, first_byte(&drives[1]).await)
        };
        let (after_cut, after_crash) = simulation.run(SimLimits::generous(), main).completed();
        assert_eq!(after_crash, 7, "a crash keeps what the drive accepted");
        lost += u32::from(after_cut == 0);
    }
    assert!((3..=17).contains(&lost), "{lost} of 20 power cuts lost a volatile write");
}

#[test]
fn charged_work_takes_its_node_s_time_and_no_other_s() {
    run(5, |world, [a, b], _| async move {
        let log = Rc::new(RefCell::new(Vec::new()));
        for (name, node) in [("a", &a), ("b", &b)] {
            let log = Rc::clone(&log);
            node.start(|world| async move {
                let ticking = world.spawn("ticks", {
                    let (world, log) = (world.clone(), Rc::clone(&log));
                    async move {
                        for _ in 0..5 {
                            world.sleep(MS).await;
                            log.borrow_mut().push((name, world.now()));
                        }
                    }
                });
                if name == "a" {
                    world.sleep(Duration::from_micros(100)).await;
                    world.work(Duration::from_micros(3500)).await;
                    assert_eq!(world.now(), Moment(3_600_000), "work takes as long as it costs");
                }
                ticking.await;
            });
        }
        world.sleep(20 * MS).await;
        let ticks_of = |name| -> Vec<u64> {
            log.borrow().iter().filter(|(of, _)| *of == name).map(|(_, at)| at.0 / 1000).collect()
        };
        assert_eq!(ticks_of("b"), [1000, 2000, 3000, 4000, 5000]);
        assert_eq!(ticks_of("a")[..2], [3600, 4600], "no task of a busy node runs");
    });
}

#[test]
fn a_yield_lets_other_tasks_run_and_takes_no_time() {
    run(6, |world, _, _| async move {
        let turns = Rc::new(Cell::new(0));
        let other = world.spawn("other", {
            let (world, turns) = (world.clone(), Rc::clone(&turns));
            async move {
                for _ in 0..10 {
                    turns.set(turns.get() + 1);
                    world.yield_now().await;
                }
            }
        });
        while turns.get() < 10 {
            world.yield_now().await;
        }
        other.await;
        assert_eq!(world.now(), Moment(0));
    });
}

#[test]
fn a_link_has_latency_and_rate_in_each_direction() {
    run(7, |world, [a, b], network| async move {
        let up = LinkOptions { latency: 5 * MS, bytes_per_second: std::num::NonZeroU64::new(100_000) };
        network.set_link("a", "b", up);
        network.set_link("b", "a", LinkOptions { latency: 50 * MS, bytes_per_second: None });
        let [ours, theirs] = [a.network(&network), b.network(&network)];
        b.start(|_| echo(theirs));
        world.sleep(MS).await;
        let start = world.now();
        let mut stream = ours.connect(&port()).await.expect("b listens");
        let connected = world.now().since(start);
        assert!(connected >= 55 * MS && connected < 60 * MS, "{connected:?}");
        let start = world.now();
        stream.write_all(&[0; 10_000]).await.expect("sent");
        let mut back = vec![0; 10_000];
        stream.read_exact(&mut back).await.expect("echoed");
        let took = world.now().since(start);
        assert!(took >= 155 * MS && took < 170 * MS, "100 ms for the rate, 55 ms there and back: {took:?}");
    });
}

#[test]
fn a_link_cut_one_way_delivers_the_other_way() {
    run(8, |world, [a, b], network| async move {
        let [ours, theirs] = [a.network(&network), b.network(&network)];
        b.start(|_| echo(theirs));
        world.sleep(MS).await;
        let mut stream = ours.connect(&port()).await.expect("b listens");
        round_trip(&mut stream).await.expect("b answers");
        network.cut_one_way("b", "a");
        stream.write_all(b"x").await.expect("sent");
        let mut byte = [0];
        let answer = crate::with_deadline(world.sleep(Duration::from_secs(1)), stream.read_exact(&mut byte));
        assert!(answer.await.is_none(), "the answer does not pass");
        network.cut_one_way("a", "b");
        network.restore("a", "b");
        stream.read_exact(&mut byte).await.expect("it arrives once the link is restored");
    });
}
