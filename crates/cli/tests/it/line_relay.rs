//! A line between two servers: a relay of TCP connections with a delay and a rate, which a test may change.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes that are passed on at one time.
const CHUNK: usize = 16 << 10;
/// Chunks on their way in one direction of a connection.
const CHUNKS_MAX: usize = 512;

/// Time for which the line may have been idle and make up for it.
const LATE_MAX: Duration = Duration::from_millis(150);

/// Figures of the line, in each direction.
#[derive(Default)]
struct Shape {
    delay_us: AtomicU64,
    /// Bytes a second of all connections together; 0 for no limit.
    rate: AtomicU64,
}

impl Shape {
    fn delay(&self) -> Duration {
        Duration::from_micros(self.delay_us.load(Ordering::Relaxed))
    }

    /// The moment at which the line has taken so many bytes more.
    fn take(&self, free_at: &Mutex<Instant>, bytes: usize) -> Instant {
        let now = Instant::now();
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return now;
        }
        let mut free_at = free_at.lock().unwrap();
        // A thread that sleeps too long on a busy machine makes up for it: the rate is right over time.
        *free_at = (*free_at).max(now - LATE_MAX) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        *free_at
    }
}

/// A relay to one port of this machine. It goes on until the process ends.
pub struct LineRelay {
    pub port: u16,
    shape: Arc<Shape>,
}

impl LineRelay {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = Self { port: listener.local_addr().unwrap().port(), shape: Arc::default() };
        let shape = Arc::clone(&own.shape);
        thread::spawn(move || {
            let free_at = [(); 2].map(|()| Arc::new(Mutex::new(Instant::now())));
            for near in listener.incoming() {
                let Ok(near) = near else { continue };
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let both = [(&near, &far), (&far, &near)];
                for ((from, to), free_at) in both.into_iter().zip(&free_at) {
                    to.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (shape, free_at) = (Arc::clone(&shape), Arc::clone(free_at));
                    thread::spawn(move || pass_on(from, to, &shape, &free_at));
                }
            }
        });
        own
    }

    /// Changes the line: the delay each way, and bytes a second each way.
    pub fn set(&self, delay: Duration, rate: Option<u64>) {
        self.shape.delay_us.store(delay.as_micros() as u64, Ordering::Relaxed);
        self.shape.rate.store(rate.unwrap_or(0), Ordering::Relaxed);
    }
}

fn pass_on(mut from: TcpStream, to: TcpStream, shape: &Shape, free_at: &Mutex<Instant>) {
    let (give, chunks) = sync_channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let source = from.try_clone().unwrap();
    let writing = thread::spawn(move || write_at_times(&chunks, to, &source));
    let mut bytes = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let taken = shape.take(free_at, count);
        thread::sleep(taken.saturating_duration_since(Instant::now()));
        if give.send((taken + shape.delay(), bytes[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(give);
    writing.join().unwrap();
}

fn write_at_times(chunks: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream, source: &TcpStream) {
    for (due, chunk) in chunks {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&chunk).is_err() {
            // The sender hears of it, as it does of a connection that was reset.
            let _ = source.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
