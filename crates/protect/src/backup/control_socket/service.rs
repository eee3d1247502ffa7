//! The process that is frozen.

use super::{
    DELIVERED, FAILED, FIRST, GREETING, LATE, NOTHING, OK, RELEASED, in_a_line,
    kept_logs::{CutGenerations, KeptLogs},
    live_mailboxes::{LiveMailboxes, MESSAGE_BYTES_MAX},
    read_line,
};
use crate::{
    backup::{Freezable, StepError, StepResult},
    planted::{self, BackupBug},
};
use std::{cell::Cell, io, rc::Rc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, split},
    sync::Notify,
};
use world::{
    JoinHandle, Moment, World,
    network::{Listener, Stream, accept_next},
    with_deadline,
};

/// Time without an order after which a connection is ended.
const ORDERED_WITHIN: Duration = Duration::from_secs(60);
/// Longest freeze that is accepted, the limit of a mail server's own snapshots.
const FREEZE_MAX: Duration = Duration::from_secs(20);
/// Longest time of any other step: a client that is gone must be noticed.
const STEP_MAX: Duration = Duration::from_secs(20);

/// A freeze that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedFreeze {
    /// The name of the cut.
    pub name: String,
    /// From the order until the thaw.
    pub length: Duration,
    /// It was frozen until the client's thaw.
    pub was_held: bool,
}

/// A thing that is served at a socket.
#[derive(Clone)]
pub struct ServedThing {
    pub frozen: Rc<dyn Freezable>,
    /// Its log; `None` if that waits for no backup.
    pub logs: Option<Rc<dyn KeptLogs>>,
    /// Its databases, if they take messages.
    pub mailboxes: Option<Rc<dyn LiveMailboxes>>,
}

/// Serves the freezes of one thing until it is stopped.
pub struct FreezeService {
    task: JoinHandle<()>,
    stop: Rc<ServiceStop>,
}

#[derive(Default)]
struct ServiceStop {
    is_asked: Cell<bool>,
    /// For the task, which waits for it between orders alone: no step is given up half-way.
    asked: Notify,
}

impl FreezeService {
    /// Starts to serve; `tell` gets each freeze after its end.
    pub fn start(
        world: &World,
        listener: Box<dyn Listener>,
        thing: ServedThing,
        tell: impl Fn(ServedFreeze) + 'static,
    ) -> Self {
        let stop = Rc::<ServiceStop>::default();
        let service = Service {
            world: world.clone(),
            thing,
            cuts: CutGenerations::default(),
            tell: Box::new(tell),
            stop: Rc::clone(&stop),
        };
        Self { task: world.spawn("freeze service", service.serve(listener)), stop }
    }

    /// Ends it after the step that is under way; what is frozen is thawed.
    pub async fn stop(self) {
        self.stop.is_asked.set(true);
        self.stop.asked.notify_one();
        self.task.await;
    }
}

struct Service {
    world: World,
    thing: ServedThing,
    cuts: CutGenerations,
    tell: Box<dyn Fn(ServedFreeze)>,
    stop: Rc<ServiceStop>,
}

impl Service {
    async fn serve(self, listener: Box<dyn Listener>) {
        while !self.stop.is_asked.get() {
            let accepting = accept_next(&self.world, &*listener, |_| {});
            let Some(accepted) = with_deadline(self.stop.asked.notified(), accepting).await else { return };
            let mut session =
                Session { service: &self, is_prepared: false, has_delivered: false, frozen: None };
            session.serve(accepted.stream).await;
            if !planted::is(BackupBug::EndOfConnectionIgnored) {
                session.undo().await;
            }
        }
    }
}

/// A connection.
struct Session<'s> {
    service: &'s Service,
    is_prepared: bool,
    /// Messages that were not kept yet, perhaps.
    has_delivered: bool,
    /// The name of the cut, and the moment of the order.
    frozen: Option<(String, Moment)>,
}

impl Session<'_> {
    /// Follows orders until the connection ends, in whatever way.
    async fn serve(&mut self, stream: Stream) {
        let (reader, mut writer) = split(stream);
        let mut reader = BufReader::new(reader);
        let mut answer = format!("{GREETING} {}", in_a_line(&self.service.thing.frozen.describe()));
        while send(&mut writer, &answer).await.is_ok() {
            let Service { world, stop, .. } = self.service;
            let order = with_deadline(world.sleep(ORDERED_WITHIN), read_line(&mut reader));
            let order = with_deadline(stop.asked.notified(), order).await;
            let Some(Some(Some(order))) = order else { return };
            if stop.is_asked.get() {
                return;
            }
            answer = match order.strip_prefix("deliver ") {
                Some(delivery) => match self.deliver(delivery, &mut reader).await {
                    Some(answer) => answer,
                    None => return,
                },
                None => self.follow(&order).await,
            };
        }
    }

    async fn follow(&mut self, order: &str) -> String {
        let thing = &self.service.thing.frozen;
        match order.split_once(' ').unwrap_or((order, "")) {
            ("prepare", "") if !self.is_prepared => {
                self.is_prepared = true;
                answer_of(self.within(STEP_MAX, thing.prepare()).await)
            }
            ("freeze", rest) if self.frozen.is_none() => match freeze_of(rest) {
                Some((within, name)) => {
                    let now = self.service.world.now();
                    self.frozen = Some((name, now));
                    answer_of(self.within(within, thing.freeze(now + within)).await)
                }
                None => format!("{FAILED}say freeze MILLISECONDS NAME, at most {}", FREEZE_MAX.as_millis()),
            },
            ("thaw", "") => match self.thaw().await {
                Some(Ok(true)) => FIRST.to_owned(),
                Some(Ok(false)) => LATE.to_owned(),
                Some(Err(reason)) => format!("{FAILED}{}", in_a_line(&reason)),
                None => format!("{FAILED}nothing was frozen over this connection"),
            },
            ("after", "") if self.is_prepared => {
                self.is_prepared = false;
                answer_of(self.within(STEP_MAX, thing.after()).await)
            }
            ("keep", "") => self.keep().await,
            ("release", name) if self.frozen.is_none() && !name.is_empty() => self.release(name).await,
            _ => format!("{FAILED}{} is no order here, or not now", in_a_line(order)),
        }
    }

    /// The result of a step, unless it takes longer.
    async fn within<T>(
        &self,
        most: Duration,
        step: impl Future<Output = Result<T, StepError>>,
    ) -> Result<T, StepError> {
        let ended = with_deadline(self.service.world.sleep(most), step).await;
        ended.unwrap_or_else(|| Err(StepError(format!("it did not end within {} ms", most.as_millis()))))
    }

    async fn thaw(&mut self) -> Option<Result<bool, String>> {
        let (name, ordered) = self.frozen.take()?;
        let thawed = self.within(STEP_MAX, self.service.thing.frozen.thaw()).await;
        let length = self.service.world.now().since(ordered);
        let was_held = thawed == Ok(true);
        let generation = self.service.thing.logs.as_ref().and_then(|logs| logs.frozen_at());
        if let Some(generation) =
            generation.filter(|_| was_held || planted::is(BackupBug::BrokenFreezeReleases))
        {
            self.service.cuts.note(&name, generation);
        }
        (self.service.tell)(ServedFreeze { name, length, was_held });
        Some(thawed.map_err(|error| error.to_string()))
    }

    async fn release(&self, name: &str) -> String {
        let Some(logs) = &self.service.thing.logs else {
            return format!("{NOTHING}its logs wait for no backup");
        };
        let Some(generation) = self.service.cuts.of(name) else {
            return format!(
                "{NOTHING}it was not frozen for that cut since it started; its logs stay until a later one is proven"
            );
        };
        match self.within(STEP_MAX, logs.release(generation, name)).await {
            Ok(oldest) => format!("{RELEASED}{oldest}"),
            Err(error) => format!("{FAILED}{}", in_a_line(&error.to_string())),
        }
    }

    /// Delivers the message that follows; `None` if it does not come, or is no message: the connection ends then.
    async fn deliver(&mut self, delivery: &str, reader: &mut (impl AsyncRead + Unpin)) -> Option<String> {
        let Service { world, thing, .. } = self.service;
        let (bytes, database) = delivery.split_once(' ')?;
        let bytes = bytes.parse().ok().filter(|&bytes| bytes <= MESSAGE_BYTES_MAX)?;
        let mut message = vec![0; bytes];
        with_deadline(world.sleep(ORDERED_WITHIN), reader.read_exact(&mut message)).await?.ok()?;
        let Some(mailboxes) = thing.mailboxes.as_ref().filter(|_| self.frozen.is_none()) else {
            return Some(format!("{FAILED}it takes no messages, or not now"));
        };
        self.has_delivered = true;
        Some(match self.within(STEP_MAX, mailboxes.deliver(database, message)).await {
            Ok(delivery) => format!("{DELIVERED}{}", delivery.word()),
            Err(error) => format!("{FAILED}{}", in_a_line(&error.to_string())),
        })
    }

    async fn keep(&mut self) -> String {
        match &self.service.thing.mailboxes {
            Some(mailboxes) if self.has_delivered => {
                let kept = self.within(STEP_MAX, mailboxes.keep()).await;
                self.has_delivered = kept.is_err();
                answer_of(kept)
            }
            _ => format!("{FAILED}nothing was delivered over this connection"),
        }
    }

    /// Undoes what the connection did not.
    async fn undo(&mut self) {
        self.thaw().await;
        if let Some(mailboxes) = self.service.thing.mailboxes.as_ref().filter(|_| self.has_delivered)
            && !planted::is(BackupBug::DeliveriesLeftOpen)
        {
            mailboxes.undo().await;
        }
        if std::mem::take(&mut self.is_prepared) {
            // Nobody is there to be told.
            let _ = self.within(STEP_MAX, self.service.thing.frozen.after()).await;
        }
    }
}

async fn send(writer: &mut (impl tokio::io::AsyncWrite + Unpin), line: &str) -> io::Result<()> {
    writer.write_all(format!("{line}\n").as_bytes()).await?;
    writer.flush().await
}

fn answer_of(result: StepResult) -> String {
    match result {
        Ok(()) => OK.to_owned(),
        Err(error) => format!("{FAILED}{}", in_a_line(&error.to_string())),
    }
}

fn freeze_of(text: &str) -> Option<(Duration, String)> {
    let (ms, name) = text.split_once(' ')?;
    let within = Duration::from_millis(ms.parse().ok()?);
    (within <= FREEZE_MAX && !name.is_empty()).then(|| (within, name.to_owned()))
}
