//! The kernel's clocks, and timers accurate to some tens of microseconds.
//!
//! A workload paced at thousands of operations per second needs better than milliseconds. All sleeps of a
//! thread wait in one ordered table. An executor that blocks in io_uring asks for the earliest of them; for any
//! other one a timerfd is set to it.

use super::{edge::watch, host_files};
use crate::{Clock, LocalFuture, MachineUptime, Moment, WallTime};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    io,
    os::fd::OwnedFd,
    path::Path,
    pin::Pin,
    rc::Rc,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Nanoseconds of CLOCK_MONOTONIC at which the world started: the same on all threads.
static ORIGIN: OnceLock<u64> = OnceLock::new();

fn monotonic_nanos() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).expect("monotonic time starts at zero");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are a fraction");
    seconds * 1_000_000_000 + nanos
}

/// Identities of the machine and of its start. A container may have the start's alone.
const IDENTITY_FILES: [&str; 2] = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"];

/// The text of a file; that nothing is known counts as one machine, or as one start.
fn identity(file: &str) -> String {
    let text = host_files::read_to_string(Path::new(file)).unwrap_or_default();
    if text.trim().is_empty() { "unknown".to_owned() } else { text.trim().to_owned() }
}

/// The clock of one thread of the real world.
pub struct RealClock {
    origin: u64,
    timers: Rc<Timers>,
}

impl RealClock {
    /// Sleeps of this clock end when [`RealClock::wake_due`] is called.
    pub(super) fn without_alarm() -> Self {
        Self::with(None)
    }

    /// Sleeps of this clock end while [`RealClock::drive`] runs.
    pub(super) fn with_alarm() -> io::Result<Self> {
        let alarm =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        Ok(Self::with(Some(Arc::new(alarm))))
    }

    fn with(alarm: Option<Arc<OwnedFd>>) -> Self {
        let origin = *ORIGIN.get_or_init(monotonic_nanos);
        Self { origin, timers: Rc::new(Timers { origin, alarm, table: RefCell::default() }) }
    }

    /// Wakes the sleepers whose time has come, and returns the time until the next one.
    pub(super) fn wake_due(&self) -> Option<Duration> {
        let timers = &self.timers;
        if timers.table.borrow().sleepers.is_empty() {
            return None;
        }
        timers.wake_due();
        let table = timers.table.borrow();
        let (&(earliest, _), _) = table.sleepers.first_key_value()?;
        Some(earliest.since(timers.now().min(earliest)))
    }

    /// Wakes sleepers until dropped.
    pub(super) fn drive(&self) -> impl Future<Output = io::Result<()>> + 'static {
        let timers = Rc::clone(&self.timers);
        async move {
            let alarm = watch(timers.alarm.as_ref().expect("a clock that is driven has an alarm"))?;
            loop {
                alarm.readable().await?.clear_ready();
                timers.wake_due();
            }
        }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Moment {
        Moment(monotonic_nanos() - self.origin)
    }

    fn wall(&self) -> WallTime {
        let time = clock_gettime(ClockId::Realtime);
        let nanos = u32::try_from(time.tv_nsec).expect("nanoseconds are a fraction");
        WallTime { seconds: time.tv_sec, nanos }
    }

    fn machine_uptime(&self) -> MachineUptime {
        static IDENTITIES: OnceLock<[String; 2]> = OnceLock::new();
        let [machine, boot] = IDENTITIES.get_or_init(|| IDENTITY_FILES.map(identity));
        let up = Duration::from_nanos(nanos(clock_gettime(ClockId::Boottime)));
        MachineUptime { machine: machine.clone(), boot: boot.clone(), up }
    }

    fn thread_cpu(&self) -> Option<Duration> {
        Some(Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime))))
    }

    fn sleep_until(&self, moment: Moment) -> LocalFuture<()> {
        Box::pin(Sleep { timers: Rc::clone(&self.timers), moment, number: None })
    }
}

#[derive(Default)]
struct TimerTable {
    /// Sleepers by deadline, then by arrival.
    sleepers: BTreeMap<(Moment, u64), Waker>,
    /// Deadline of the timerfd; `None` once it has expired.
    armed: Option<Moment>,
    next_number: u64,
}

struct Timers {
    origin: u64,
    alarm: Option<Arc<OwnedFd>>,
    table: RefCell<TimerTable>,
}

impl Timers {
    fn now(&self) -> Moment {
        Moment(monotonic_nanos() - self.origin)
    }

    fn wake_due(&self) {
        let now = self.now();
        let mut due = Vec::new();
        {
            let mut table = self.table.borrow_mut();
            table.armed = None;
            while let Some(first) = table.sleepers.first_entry() {
                if first.key().0 > now {
                    break;
                }
                due.push(first.remove());
            }
            self.arm(&mut table);
        }
        for waker in due {
            waker.wake();
        }
    }

    /// Sets the timerfd to the earliest sleeper, unless it expires by then anyway.
    fn arm(&self, table: &mut TimerTable) {
        let Some(alarm) = &self.alarm else { return };
        let Some((&(earliest, _), _)) = table.sleepers.first_key_value() else { return };
        if table.armed.is_some_and(|armed| armed <= earliest) {
            return;
        }
        let at = self.origin + earliest.0;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(at / 1_000_000_000).expect("within the clock's range"),
            tv_nsec: i64::try_from(at % 1_000_000_000).expect("less than a second"),
        };
        timerfd_settime(
            alarm,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec { it_interval: zero, it_value: value },
        )
        .expect("a valid time on our own timerfd");
        table.armed = Some(earliest);
    }
}

struct Sleep {
    timers: Rc<Timers>,
    moment: Moment,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.timers.now() >= self.moment {
            return Poll::Ready(());
        }
        let timers = Rc::clone(&self.timers);
        let mut table = timers.table.borrow_mut();
        let number = *self.number.get_or_insert_with(|| {
            table.next_number += 1;
            table.next_number
        });
        table.sleepers.insert((self.moment, number), context.waker().clone());
        timers.arm(&mut table);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // The sleeper is gone already if it was due.
            self.timers.table.borrow_mut().sleepers.remove(&(self.moment, number));
        }
    }
}
