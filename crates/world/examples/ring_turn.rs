//! Turns of the executor, to know what the least of its operations costs on a machine.
//!
//! `ring_turn SOCKET SECONDS` makes a Unix socket at the path SOCKET. One task sends itself a byte through it
//! and receives it through the thread's ring, again and again. A turn is one `sendmsg`, one `io_uring_enter` that
//! submits the receive and takes its completion, and one wake-up of the task. Nothing else is ready meanwhile.
//!
//! It prints one line of JSON: turns, seconds, median and 99th percentile in microseconds, and whether io_uring
//! did it; without io_uring the socket waits in epoll.

use std::{env, process::ExitCode, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Address, IoResult, Network, Stream, World,
    real::{Engine, RealOptions, Sockets, run},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, seconds] = &arguments[..] else {
        eprintln!("usage: ring_turn SOCKET SECONDS");
        return ExitCode::from(2);
    };
    let Ok(seconds) = seconds.parse() else {
        eprintln!("SECONDS is a number");
        return ExitCode::from(2);
    };
    let address = Address::Unix(path.into());
    run(1, RealOptions::default(), async |world| match connection(&address).await {
        Ok([near, far]) => {
            measure(&world, near, far, Duration::from_secs_f64(seconds)).await;
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    })
}

/// Both ends of a connection.
async fn connection(address: &Address) -> IoResult<[Stream; 2]> {
    let listener = Sockets.listen(address).await?;
    let near = Sockets.connect(address).await?;
    Ok([near, listener.accept().await?.stream])
}

async fn measure(world: &World, mut near: Stream, mut far: Stream, span: Duration) {
    let start = world.now();
    let mut begun = start;
    let mut turns: Vec<f64> = Vec::new();
    while begun < start + span {
        near.write_all(&[0]).await.expect("the socket takes a byte");
        far.read_exact(&mut [0]).await.expect("the byte arrives");
        let end = world.now();
        turns.push(end.since(begun).as_secs_f64() * 1e6);
        begun = end;
    }
    let seconds = begun.since(start).as_secs_f64();
    turns.sort_by(f64::total_cmp);
    let at = |share: f64| turns.get((turns.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    println!(
        "{{\"io_uring\": {}, \"turns\": {}, \"seconds\": {seconds}, \"median_us\": {:.3}, \"p99_us\": {:.3}}}",
        Engine::current().fallback_reason().is_none(),
        turns.len(),
        at(0.5),
        at(0.99),
    );
}
