//! ThreadStarter, sleeps and tasks of the real world.

use crate::in_each_engine;
use std::{cell::Cell, num::NonZeroUsize, rc::Rc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, ThreadStarter, World,
    real::{
        Engine, FileDevice, RealOptions, RealThreads, Workers, run,
        signals::{TerminationSignal, interrupted},
        spawn_thread,
    },
};

#[test]
fn sleeps_never_end_early_and_end_in_order() {
    in_each_engine(async |world, _| {
        let order = Rc::new(Cell::new(0));
        // All of them are started before the first one ends, even if this thread does not run for a while.
        let start = world.now() + Duration::from_millis(200);
        let sleepers: Vec<_> = [7_000_u64, 300, 2_500, 300, 0]
            .into_iter()
            .map(|micros| {
                let (asleep, order) = (world.clone(), Rc::clone(&order));
                world.spawn("sleeper", async move {
                    let until = start + Duration::from_micros(micros);
                    asleep.sleep_until(until).await;
                    assert!(asleep.now() >= until, "a sleep ended early");
                    assert!(order.get() <= micros, "sleeps ended out of order");
                    order.set(micros);
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.await;
        }
    });
}

#[test]
fn a_dropped_sleep_delays_no_other() {
    in_each_engine(async |world, _| {
        let mut long = world.sleep(Duration::from_secs(3600));
        std::future::poll_fn(|context| {
            assert!(long.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        let start = world.now();
        world.sleep(Duration::from_millis(1)).await;
        drop(long);
        world.sleep(Duration::from_millis(1)).await;
        let took = world.now().since(start);
        assert!(took >= Duration::from_millis(2) && took < Duration::from_secs(60), "{took:?}");
    });
}

#[test]
fn threads_have_separate_worlds_and_one_time() {
    let folder = tempfile::tempdir().unwrap();
    run(1, RealOptions::default(), async |world| {
        let before = world.now();
        let threads: Vec<_> = (0..3_u64)
            .map(|index| {
                let path = folder.path().join(index.to_string());
                spawn_thread("test-group", index, RealOptions::plain(index == 2), move |world| {
                    Box::pin(async move {
                        let device = FileDevice::create(&path, ByteCount::mib(1)).await.unwrap();
                        device.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
                        assert!(index != 2 || Engine::current().fallback_reason().is_some());
                        (world.now(), world.seed())
                    })
                })
                .unwrap()
            })
            .collect();
        for (index, thread) in (0..).zip(threads) {
            let (there, seed) = thread.join().await;
            assert_eq!(seed, index);
            assert!(before <= there && there <= world.now(), "threads disagree about the time");
        }
    });
}

#[test]
#[should_panic(expected = "the group failed")]
fn a_panic_on_a_thread_propagates_to_the_joiner() {
    let thread = spawn_thread("test-panic", 0, RealOptions::default(), |_| {
        Box::pin(async { panic!("the group failed") })
    });
    let thread: world::real::ThreadHandle<()> = thread.unwrap();
    thread.join_blocking();
}

#[test]
fn a_termination_signal_is_reported_instead_of_ending_the_process() {
    use rustix::process::{Signal, getpid, kill_process};
    run(1, RealOptions::default(), async |_| {
        let interrupted = interrupted();
        kill_process(getpid(), Signal::TERM).unwrap();
        assert_eq!(interrupted.await, TerminationSignal::Terminate);
    });
}

#[test]
fn workers_run_all_jobs_while_the_executor_goes_on() {
    run(1, RealOptions::default(), async |world| {
        let workers = Workers::new(NonZeroUsize::new(2).unwrap());
        // The first two wait for the executor, which could not reply if they blocked it.
        let (ask, mut asked) = tokio::sync::mpsc::unbounded_channel::<tokio::sync::oneshot::Sender<u32>>();
        let answering = world.spawn("answers", async move {
            for number in 0..2 {
                asked.recv().await.unwrap().send(number).unwrap();
            }
        });
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let ask = ask.clone();
                workers.run(move || {
                    let (give, answer) = tokio::sync::oneshot::channel();
                    ask.send(give).unwrap();
                    answer.blocking_recv().unwrap()
                })
            })
            .collect();
        let sums: Vec<_> = (1..50_u64).map(|last| workers.run(move || (1..=last).sum::<u64>())).collect();
        let mut answers = Vec::new();
        for one in waiting {
            answers.push(one.await);
        }
        answers.sort_unstable();
        assert_eq!(answers, [0, 1]);
        answering.await;
        for (sum, last) in sums.into_iter().zip(1_u64..) {
            assert_eq!(sum.await, last * (last + 1) / 2);
        }
        assert_eq!(workers.count(), 2);
    });
}

#[test]
fn a_sleeping_thread_is_woken_from_another() {
    crate::in_each_engine(async |_, _| {
        for _ in 0..200 {
            let (ask, asked) = std::sync::mpsc::channel();
            let (give, answer) = tokio::sync::oneshot::channel();
            let other = std::thread::spawn(move || {
                asked.recv().unwrap();
                give.send(7).unwrap();
            });
            ask.send(()).unwrap();
            assert_eq!(answer.await, Ok(7));
            other.join().unwrap();
        }
    });
}

#[test]
fn a_task_that_panics_ends_alone() {
    crate::in_each_engine(async |world, _| {
        world.spawn("panics", async { panic!("this task is meant to fail") });
        let other = world.spawn("goes on", async { 7 });
        assert_eq!(other.await, 7);
    });
}

#[test]
fn tasks_that_never_end_are_dropped_with_the_world() {
    struct DropCount(Rc<Cell<u32>>, World);
    impl Drop for DropCount {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            // Nothing runs any more; starting a task must do no harm.
            self.1.spawn("late", async { unreachable!("the world has ended") });
        }
    }
    for options in [RealOptions::default(), RealOptions::plain(true)] {
        let dropped = Rc::new(Cell::new(0));
        run(1, options, async |world| {
            for _ in 0..10 {
                let count = DropCount(Rc::clone(&dropped), world.clone());
                world.spawn("waits", async move {
                    std::future::pending::<()>().await;
                    drop(count);
                });
            }
            world.sleep(Duration::from_millis(1)).await;
        });
        assert_eq!(dropped.get(), 10);
    }
}

#[test]
fn tasks_that_yield_let_others_and_the_drive_go_on() {
    crate::in_each_engine(async |world, folder| {
        let device = FileDevice::create(&folder.join("drive"), ByteCount::mib(1)).await.unwrap();
        let (yielding, is_over) = (world.clone(), Rc::new(Cell::new(false)));
        let seen = Rc::clone(&is_over);
        let busy = world.spawn("busy", async move {
            let mut turns = 0_u64;
            while !seen.get() {
                turns += 1;
                yielding.yield_now().await;
            }
            turns
        });
        for _ in 0..20 {
            device.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
        }
        world.sleep(Duration::from_millis(2)).await;
        is_over.set(true);
        assert!(busy.await > 20);
    });
}

#[test]
fn a_panic_of_any_task_ends_its_thread_and_no_other_one() {
    for plain in [false, true] {
        run(1, RealOptions::default(), async |world| {
            let threads = RealThreads { seed: 1, options: RealOptions::plain(plain) };
            let (tell, told) = tokio::sync::oneshot::channel();
            let ill = threads.start(
                "ill",
                Box::new(|world: World| {
                    Box::pin(async move {
                        world.spawn("task", async { panic!("the mover failed") });
                        std::future::pending::<()>().await;
                    })
                }),
            );
            let well = threads.start(
                "well",
                Box::new(|world: World| {
                    Box::pin(async move {
                        told.await.unwrap();
                        world.sleep(Duration::from_millis(1)).await;
                    })
                }),
            );
            assert_eq!(ill.unwrap().await, Err("the mover failed".to_owned()));
            tell.send(()).unwrap();
            assert_eq!(well.unwrap().await, Ok(()));
            world.sleep(Duration::from_millis(1)).await;
        });
    }
}
