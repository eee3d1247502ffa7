//! A relay of TCP that stands for a line: bytes arrive half a round trip later, at any rate or at that of the line, which all
//! connections share in each direction.

use anyhow::{Context, Result, ensure};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes taken at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Of a line with a rate: time that the bytes taken at once keep it busy, and what waits before it at most.
const CHUNK_TIME: Duration = Duration::from_millis(2);
const QUEUE: Duration = Duration::from_millis(20);
/// A sleep of the kernel ends late by about so much; the rest is waited for busily.
const SLEEP_LATE: Duration = Duration::from_micros(80);

/// Interval of looking whether the line is cut.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes, and the moment at which they arrive.
type Chunk = (Instant, Vec<u8>);

/// A relay to a port of this machine. Its threads end with the connections; the one that listens ends with the program.
pub(crate) struct DelayRelay {
    pub port: u16,
    line: Arc<LineState>,
}

#[derive(Default)]
struct LineState {
    one_way_ns: AtomicU64,
    /// In each direction; 0 for any rate.
    bytes_per_second: AtomicU64,
    /// The moments from which each direction is free for further bytes.
    free_at: [Mutex<Option<Instant>>; 2],
    is_cut: AtomicBool,
}

impl LineState {
    /// Bytes to take at once.
    fn chunk_bytes(&self) -> usize {
        match self.bytes_per_second.load(Ordering::Relaxed) {
            0 => CHUNK_BYTES,
            rate => ((rate as f64 * CHUNK_TIME.as_secs_f64()) as usize).clamp(1, CHUNK_BYTES),
        }
    }

    /// Puts bytes on the line in a direction, after those that wait for it; the moment at which they arrive.
    fn put(&self, direction: usize, bytes: usize) -> Instant {
        let one_way = Duration::from_nanos(self.one_way_ns.load(Ordering::Relaxed));
        let now = Instant::now();
        let rate = self.bytes_per_second.load(Ordering::Relaxed);
        if rate == 0 {
            return now + one_way;
        }
        let mut free_at = self.free_at[direction].lock().expect("nobody panics with it");
        let sent =
            free_at.map_or(now, |free| free.max(now)) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        *free_at = Some(sent);
        drop(free_at);
        // Beyond this, the sender's own buffers fill, as they would.
        thread::sleep(sent.saturating_duration_since(now).saturating_sub(QUEUE));
        sent + one_way
    }
}

impl DelayRelay {
    /// Without a delay, at first.
    pub fn to(target: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(LineState::default());
        let line = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // One whose target is away is closed again.
                let _ = carry(near, target, &line);
            }
        });
        Ok(Self { port, line: state })
    }

    /// Ends all connections, and carries no new one.
    pub fn cut(&self) {
        self.line.is_cut.store(true, Ordering::Relaxed);
    }

    pub fn mend(&self) {
        self.line.is_cut.store(false, Ordering::Relaxed);
    }

    /// Sets the round trip that the line adds, for bytes that come from now on.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.line.one_way_ns.store(round_trip.as_nanos() as u64 / 2, Ordering::Relaxed);
    }

    /// Sets the rate of the line in each direction; `None` for any.
    pub fn set_rate(&self, megabits_per_second: Option<f64>) {
        let rate = megabits_per_second.map_or(0, |rate| (rate * 1e6 / 8.0) as u64);
        self.line.bytes_per_second.store(rate, Ordering::Relaxed);
    }
}

fn carry(near: TcpStream, target: u16, line: &Arc<LineState>) -> Result<()> {
    ensure!(!line.is_cut.load(Ordering::Relaxed), "the line is cut");
    let far = TcpStream::connect(("127.0.0.1", target)).context("the target of the relay")?;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
    }
    for (direction, from, to) in [(0, near.try_clone()?, far.try_clone()?), (1, far, near)] {
        let (sender, receiver) = channel();
        let line = Arc::clone(line);
        from.set_read_timeout(Some(LOOK))?;
        thread::spawn(move || take(from, &sender, (&line, direction)));
        thread::spawn(move || deliver(to, &receiver));
    }
    Ok(())
}

fn take(mut from: TcpStream, chunks: &Sender<Chunk>, (line, direction): (&LineState, usize)) {
    let mut bytes = vec![0; CHUNK_BYTES];
    while !line.is_cut.load(Ordering::Relaxed) {
        let count = match from.read(&mut bytes[..line.chunk_bytes()]) {
            Ok(count @ 1..) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            _ => break,
        };
        let arrives = line.put(direction, count);
        if chunks.send((arrives, bytes[..count].to_vec())).is_err() {
            break;
        }
    }
    // The other direction ends, too.
    let _ = from.shutdown(Shutdown::Both);
}

fn deliver(mut to: TcpStream, chunks: &Receiver<Chunk>) {
    for (arrives, bytes) in chunks {
        let left = arrives.saturating_duration_since(Instant::now());
        if left > SLEEP_LATE {
            thread::sleep(left - SLEEP_LATE);
        }
        while Instant::now() < arrives {
            std::hint::spin_loop();
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other end learns that this direction has ended; it may have gone.
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_after_half_a_round_trip_each_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = DelayRelay::to(listener.local_addr().unwrap().port()).unwrap();
        relay.set_round_trip(Duration::from_millis(20));
        let mut near = TcpStream::connect(("127.0.0.1", relay.port)).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let begun = Instant::now();
        for number in 0..100_u8 {
            near.write_all(&[number; 1000]).unwrap();
        }
        let mut arrived = vec![0; 100_000];
        far.read_exact(&mut arrived).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(10));
        assert!(arrived.chunks(1000).zip(0..).all(|(chunk, number)| chunk == [number; 1000]));
        far.write_all(b"answer").unwrap();
        near.read_exact(&mut [0; 6]).unwrap();
        let took = begun.elapsed();
        assert!((Duration::from_millis(20)..Duration::from_secs(5)).contains(&took), "{took:?}");
    }

    #[test]
    fn connections_share_the_rate_of_the_line() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = DelayRelay::to(listener.local_addr().unwrap().port()).unwrap();
        relay.set_rate(Some(8.0));
        let begun = Instant::now();
        let both = [(); 2].map(|()| {
            let mut near = TcpStream::connect(("127.0.0.1", relay.port)).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            thread::spawn(move || near.write_all(&[1; 100_000]).unwrap());
            thread::spawn(move || far.read_exact(&mut [0; 100_000]).unwrap())
        });
        both.into_iter().for_each(|one| one.join().unwrap());
        let took = begun.elapsed();
        assert!((Duration::from_millis(200)..Duration::from_secs(5)).contains(&took), "{took:?}");
    }
}
