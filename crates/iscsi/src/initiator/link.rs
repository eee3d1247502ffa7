//! The connection of an initiator, kept up: made, looked over, used, and made again when it breaks.

use super::{
    InitiatorOptions, Uri,
    logging_in::{NotLoggedIn, Purpose, Session, log_in},
    probe::{Facts, look},
    receiving::take,
    tasks::{Broken, Command, Done, NotDone, Outgoing, Tasks},
};
use crate::wire::{
    frame::{Digests, Frame},
    parcel::{Parcel, write_parcels},
    pdu::{FINAL, Header, IMMEDIATE, Logout},
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    io,
    rc::{Rc, Weak},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, split},
    sync::{Notify, oneshot},
};
use world::{IoError, IoErrorKind, IoResult, Moment, Network, World, with_deadline};

/// How often it is looked whether a command's time is up, and whether the target is there.
const LOOK: Duration = Duration::from_millis(250);
/// A target that owes answers and says nothing for so long is asked whether it is there; as long again, and it is not.
const SILENCE: Duration = Duration::from_secs(5);
/// Before a connection is tried again, at least and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Units sent in one call at most.
const UNITS_AT_ONCE: usize = 32;
/// The tag of our question whether anybody is there. Commands come to it last.
const PING: u32 = 0xffff_fffe;

/// See the module's documentation.
pub struct Link {
    world: World,
    network: Rc<dyn Network>,
    uri: Uri,
    options: InitiatorOptions,
    /// What we call our session: the same for each connection, so that a new one takes the place of the last.
    session: [u8; 6],
    /// As they were when it was connected first; another unit is not used.
    facts: OnceCell<Facts>,
    tasks: RefCell<Tasks>,
    wanted: Notify,
    broken: Notify,
    /// Who waits for the first connection.
    tell: Cell<Option<oneshot::Sender<IoResult<()>>>>,
    is_up: Cell<bool>,
    /// The unit was looked at over this connection, and is the one it was.
    is_open: Cell<bool>,
    heard: Cell<Moment>,
    has_asked: Cell<bool>,
    /// Why it is not up.
    trouble: RefCell<String>,
    breaks: Cell<u64>,
}

impl Link {
    /// Connects, logs in and looks at the unit; from then on the connection is kept up until the link is dropped.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: Uri,
        options: InitiatorOptions,
    ) -> IoResult<Rc<Self>> {
        let mut session = [0x80, 0, 0, 0, 0, 0];
        world.fill_secret(&mut session[1..]);
        let link = Rc::new(Self {
            world: world.clone(),
            network,
            tasks: RefCell::new(Tasks::new(uri.lun())),
            uri,
            options,
            session,
            facts: OnceCell::new(),
            wanted: Notify::new(),
            broken: Notify::new(),
            tell: Cell::new(None),
            is_up: Cell::new(false),
            is_open: Cell::new(false),
            heard: Cell::new(world.now()),
            has_asked: Cell::new(false),
            trouble: RefCell::default(),
            breaks: Cell::new(0),
        });
        let session = begin_first(&link).await?;
        let (tell, told) = oneshot::channel();
        link.tell.set(Some(tell));
        world.spawn("iscsi link", keep_up(Rc::downgrade(&link), session));
        world.spawn("iscsi deadlines", give_up_late(world.clone(), Rc::downgrade(&link)));
        told.await.expect("it is told before the link is gone")?;
        Ok(link)
    }

    /// What the unit is.
    pub fn facts(&self) -> &Facts {
        self.facts.get().expect("who connects looks at the unit first")
    }

    /// Where it is.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Times the connection broke so far.
    pub fn breaks(&self) -> u64 {
        self.breaks.get()
    }

    /// What is asked, done by the unit; it goes on when nobody waits for it.
    pub fn ask(&self, command: Command) -> impl Future<Output = Result<Done, NotDone>> + 'static {
        let patience = if command.is_probe { self.options.connect_max } else { self.options.answer_max };
        let deadline = self.world.now() + patience;
        let told = {
            let mut tasks = self.tasks.borrow_mut();
            if tasks.is_idle() {
                // Until now it had nothing to say.
                self.heard.set(self.world.now());
            }
            tasks.add(command, deadline)
        };
        self.wanted.notify_one();
        async move {
            let closed = || IoError::new(IoErrorKind::Disconnected, "the initiator was closed");
            told.await.unwrap_or_else(|_| Err(NotDone { error: closed(), trouble: None }))
        }
    }

    /// See [`Tasks::check_flush`].
    pub fn check_flush(&self) -> IoResult<()> {
        self.tasks.borrow_mut().check_flush()
    }

    fn error(&self, kind: IoErrorKind, why: &str) -> IoError {
        IoError::new(kind, format!("{}: {why}", self.uri))
    }
}

/// The first connection that is logged in. A target that hangs up meanwhile is asked again, as one that goes while it is
/// used would be, for as long as connecting may take.
async fn begin_first(link: &Link) -> IoResult<Session> {
    let deadline = link.world.now() + link.options.connect_max;
    let mut pause = PAUSES.0;
    loop {
        match begin(link).await {
            Err(not) if not.was_hung_up && link.world.now() + pause < deadline => {}
            Err(NotLoggedIn { error, was_hung_up: true }) => {
                let why = format!("tried for {} s: {error}", link.options.connect_max.as_secs());
                return Err(link.error(error.kind(), &why));
            }
            begun => return Ok(begun?),
        }
        link.world.sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// A connection that is logged in.
async fn begin(link: &Link) -> Result<Session, NotLoggedIn> {
    let Link { world, network, uri, options, session, .. } = link;
    let logging_in = log_in(world, &**network, &uri.address, Purpose::Use(&uri.target), *session, options);
    let begun = with_deadline(world.sleep(options.connect_max), logging_in).await;
    begun.unwrap_or_else(|| {
        let why = format!("no answer within {} s", options.connect_max.as_secs());
        Err(NotLoggedIn { error: link.error(IoErrorKind::Disconnected, &why), was_hung_up: false })
    })
}

/// Uses `session` until it breaks, then another one, and so on, as long as there is a link. If the first is of no use it is the
/// last.
async fn keep_up(link: Weak<Link>, mut session: Session) {
    let mut pause = PAUSES.0;
    loop {
        let ended = use_session(&link, session).await;
        {
            let Some(link) = link.upgrade() else { return };
            if let Err(why) = ended {
                link.trouble.replace(why);
            }
            link.is_up.set(false);
            if let Some(tell) = link.tell.take() {
                let _ = tell.send(Err(link.error(IoErrorKind::Disconnected, &link.trouble.borrow())));
                return;
            }
            link.breaks.set(link.breaks.get() + 1);
            if link.is_open.replace(false) {
                pause = PAUSES.0;
            }
        }
        session = loop {
            let world = match link.upgrade() {
                Some(link) => link.world.clone(),
                None => return,
            };
            world.sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
            let Some(link) = link.upgrade() else { return };
            match begin(&link).await {
                Ok(session) => break session,
                Err(not) => _ = link.trouble.replace(not.error.to_string()),
            }
        };
    }
}

/// Sends and receives until the connection breaks, or the link is gone.
async fn use_session(weak: &Weak<Link>, session: Session) -> Result<(), Broken> {
    let Some(link) = weak.upgrade() else { return Ok(()) };
    let Session { stream, agreed, command_next, command_max, status_next } = session;
    let digests = Digests { header: agreed.header_digest, data: agreed.data_digest };
    let data_max = agreed.receive_bytes_max as usize;
    let (reader, writer) = split(stream);
    link.tasks.borrow_mut().begin(agreed, (command_next, command_max), status_next);
    link.heard.set(link.world.now());
    link.has_asked.set(false);
    link.is_up.set(true);
    let world = link.world.clone();
    let is_over = Rc::new(Cell::new(false));
    let sending = send(weak.clone(), writer, digests, Rc::clone(&is_over));
    let sending = world.spawn("iscsi commands", sending);
    world.spawn("iscsi look", look_over(Rc::clone(&link)));
    drop(link);
    let received = with_deadline(broken(weak), receive(weak, reader, digests, data_max)).await;
    is_over.set(true);
    if let Some(link) = weak.upgrade() {
        link.wanted.notify_one();
    }
    let sent = sending.await.map_err(|error| error.to_string());
    received.unwrap_or(Ok(())).and(sent)
}

/// Looks at the unit over a new connection, and lets commands go if it is the one they are meant for.
async fn look_over(link: Rc<Link>) {
    let connection = link.breaks.get();
    let found = look(&link).await;
    if link.breaks.get() != connection {
        return;
    }
    let refused = match found {
        Ok(facts) if link.facts.get_or_init(|| facts.clone()).is_same_unit(&facts) => {
            link.is_open.set(true);
            link.tasks.borrow_mut().open();
            link.wanted.notify_one();
            if let Some(tell) = link.tell.take() {
                let _ = tell.send(Ok(()));
            }
            return;
        }
        Ok(_) => link.error(IoErrorKind::NotFound, "it is another unit now"),
        Err(error) => error,
    };
    link.trouble.replace(refused.to_string());
    if let Some(tell) = link.tell.take() {
        let _ = tell.send(Err(refused));
    }
    link.broken.notify_one();
}

/// Ends when somebody finds the connection of no use.
async fn broken(link: &Weak<Link>) {
    match link.upgrade() {
        Some(link) => link.broken.notified().await,
        None => std::future::pending().await,
    }
}

async fn send(
    link: Weak<Link>,
    mut writer: impl AsyncWrite + Unpin,
    digests: Digests,
    is_over: Rc<Cell<bool>>,
) -> io::Result<()> {
    loop {
        let Some(held) = link.upgrade() else {
            return say_goodbye(&mut writer, digests).await;
        };
        if is_over.get() {
            return Ok(());
        }
        let units: Vec<Outgoing> = {
            let mut tasks = held.tasks.borrow_mut();
            std::iter::from_fn(|| tasks.next_to_send()).take(UNITS_AT_ONCE).collect()
        };
        if units.is_empty() {
            held.wanted.notified().await;
            continue;
        }
        drop(held);
        let parcel = |unit: Outgoing| Parcel::new(unit.header, unit.payload, digests);
        let parcels: Vec<Parcel> = units.into_iter().map(parcel).collect();
        write_parcels(&mut writer, &parcels).await?;
    }
}

/// Logs out. Nothing is under way any more, so its number is of no concern.
async fn say_goodbye(writer: &mut (impl AsyncWrite + Unpin), digests: Digests) -> io::Result<()> {
    let bye = Logout { first: IMMEDIATE, flags: FINAL, task: PING.into(), ..Logout::empty() };
    writer.write_all(&Frame::new(bye.to_bytes(), Vec::new()).encode(digests)).await?;
    writer.shutdown().await
}

async fn receive(
    link: &Weak<Link>,
    reader: impl AsyncRead + Unpin,
    digests: Digests,
    data_max: usize,
) -> Result<(), Broken> {
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    loop {
        let frame = Frame::read(&mut reader, digests, data_max).await.map_err(|error| error.to_string())?;
        let frame = frame.ok_or_else(|| "the target hung up".to_owned())?;
        let Some(link) = link.upgrade() else { return Ok(()) };
        let now = link.world.now();
        link.heard.set(now);
        link.has_asked.set(false);
        let mut tasks = link.tasks.borrow_mut();
        take(&mut tasks, &frame, now)?;
        if tasks.wants_to_send() {
            link.wanted.notify_one();
        }
    }
}

/// Commands that take too long are given up, and the connection with them; so is one whose target is gone.
async fn give_up_late(world: World, link: Weak<Link>) {
    loop {
        world.sleep(LOOK).await;
        let Some(link) = link.upgrade() else { return };
        let now = world.now();
        let trouble = match link.is_open.get() {
            true => "the target does not answer".to_owned(),
            false => link.trouble.borrow().clone(),
        };
        let why = format!("no answer within {} s: {trouble}", link.options.answer_max.as_secs());
        let mut tasks = link.tasks.borrow_mut();
        let has_late = tasks.give_up(now, &why);
        let silence = now.since(link.heard.get());
        let is_gone = !tasks.is_idle() && silence >= 2 * SILENCE;
        if link.is_up.get() && (has_late || is_gone) {
            link.trouble.replace("the target does not answer".to_owned());
            link.broken.notify_one();
        } else if !tasks.is_idle() && silence >= SILENCE && !link.has_asked.replace(true) {
            tasks.ping(PING);
        }
        tasks.wake(now);
        link.wanted.notify_one();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Who sends says goodbye.
        self.wanted.notify_one();
    }
}
