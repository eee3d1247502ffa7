//! Signals from outside: SIGINT and SIGTERM end the program, SIGHUP has it read its settings again.

use crate::LocalFuture;
use std::{process, sync::Once, thread};
use tokio::{
    runtime::{self, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
};

/// The signal that asked the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationSignal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM: a service manager, `kill`.
    Terminate,
}

impl TerminationSignal {
    /// The exit code by shell convention: 128 plus the signal's number.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Resolves at the next SIGINT or SIGTERM, so that work can end cleanly; one more such signal afterwards ends
/// the process at once. From this call on the first signal does not kill the process, even if the future is
/// dropped.
pub fn interrupted() -> LocalFuture<TerminationSignal> {
    let (give, first) = oneshot::channel();
    let runtime = signal_runtime();
    let mut signals = {
        let _context = runtime.enter();
        Signals::listen()
    };
    // A separate thread: an executor may be stuck in the work that does not end.
    let watcher = thread::Builder::new().name("spindle-signals".into()).spawn(move || {
        runtime.block_on(async {
            // The receiver may be gone; the signal counts all the same.
            let _ = give.send(signals.next().await);
            process::exit(i32::from(signals.next().await.exit_code()));
        })
    });
    if let Err(error) = watcher {
        eprintln!("spindle: Ctrl-C will not be noticed: {error}");
    }
    Box::pin(async move {
        match first.await {
            Ok(signal) => signal,
            // No thread watches.
            Err(_) => std::future::pending().await,
        }
    })
}

/// Requests to read the settings again.
pub struct ReloadRequests(mpsc::UnboundedReceiver<()>);

impl ReloadRequests {
    /// Waits for SIGHUP, which does not end the process any more from this call on.
    pub fn listen() -> Self {
        let (give, requests) = mpsc::unbounded_channel();
        let runtime = signal_runtime();
        let hang_up = {
            let _context = runtime.enter();
            signal(SignalKind::hangup())
        };
        let mut hang_up = hang_up.expect("SIGHUP may be handled");
        let watcher = thread::Builder::new().name("spindle-reloads".into()).spawn(move || {
            runtime.block_on(async { while hang_up.recv().await.is_some() && give.send(()).is_ok() {} });
        });
        if let Err(error) = watcher {
            eprintln!("spindle: SIGHUP will not be noticed: {error}");
        }
        Self(requests)
    }

    /// The next request; those that came meanwhile are one.
    pub async fn requested(&mut self) {
        if self.0.recv().await.is_none() {
            // No thread watches.
            std::future::pending::<()>().await;
        }
        while self.0.try_recv().is_ok() {}
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail like any other write instead of letting
/// SIGXFSZ kill the process. It holds for the whole process.
pub(super) fn survive_large_files() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let runtime = signal_runtime();
        let _context = runtime.enter();
        let number = rustix::process::Signal::XFSZ.as_raw();
        // Registering the handler is enough. If it fails, writes within the limit are unaffected.
        drop(signal(SignalKind::from_raw(number)));
    });
}

fn signal_runtime() -> Runtime {
    let built = runtime::Builder::new_current_thread().enable_io().build();
    built.expect("the kernel gives every process an epoll instance")
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Self {
        Self {
            interrupt: signal(SignalKind::interrupt()).expect("SIGINT may be handled"),
            terminate: signal(SignalKind::terminate()).expect("SIGTERM may be handled"),
        }
    }

    async fn next(&mut self) -> TerminationSignal {
        std::future::poll_fn(|context| {
            if self.interrupt.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(TerminationSignal::Interrupt);
            }
            if self.terminate.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(TerminationSignal::Terminate);
            }
            std::task::Poll::Pending
        })
        .await
    }
}
