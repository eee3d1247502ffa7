//! The connection of an initiator, kept up: made, looked over, used, and made again when it breaks.

use super::{
    InitiatorOptions, IscsiUri,
    login::{LoggedInConnection, LoginFailure, SessionType, log_in},
    probe::{DiskInfo, look},
    receive,
    tasks::{Broken, CommandError, CommandOutput, CommandRequest, OutgoingPdu, Tasks},
};
use crate::wire::{
    encoded_pdu::{EncodedPdu, write_pdus},
    header::{FINAL, IMMEDIATE, Logout, PduHeader},
    pdu::{Digests, Pdu},
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

/// Interval of the checks for expired commands and for a silent target.
const LOOK: Duration = Duration::from_millis(250);
/// A target that owes responses and has been silent this long gets a NOP-Out; after twice this time the
/// connection is given up.
const SILENCE: Duration = Duration::from_secs(5);
/// Shortest and longest delay before the next connection attempt.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// PDUs sent in one system call at most.
const PDUS_AT_ONCE: usize = 32;
/// ITT of our NOP-Out. Commands use it last.
const PING: u32 = 0xffff_fffe;

/// A connection to a target that is made again when it breaks.
pub struct Link {
    world: World,
    network: Rc<dyn Network>,
    uri: IscsiUri,
    options: InitiatorOptions,
    /// ISID: the same for each connection, so that a new session reinstates the old one (RFC 7143, 6.3.5).
    session: [u8; 6],
    /// The unit as first probed; a connection to a different unit is refused.
    info: OnceCell<DiskInfo>,
    tasks: RefCell<Tasks>,
    wanted: Notify,
    broken: Notify,
    /// Waits for the first connection.
    tell: Cell<Option<oneshot::Sender<IoResult<()>>>>,
    is_up: Cell<bool>,
    /// The unit was probed over this connection and is the expected one.
    is_open: Cell<bool>,
    heard: Cell<Moment>,
    has_asked: Cell<bool>,
    /// The last reason for the connection being down.
    trouble: RefCell<String>,
    breaks: Cell<u64>,
}

impl Link {
    /// Connects, logs in and probes the unit. The connection is then maintained until the `Link` is dropped.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: IscsiUri,
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
            info: OnceCell::new(),
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
        told.await.expect("the first connection's outcome is always sent")?;
        Ok(link)
    }

    pub fn info(&self) -> &DiskInfo {
        self.info.get().expect("the unit is probed before connect returns")
    }

    pub fn uri(&self) -> &IscsiUri {
        &self.uri
    }

    pub fn breaks(&self) -> u64 {
        self.breaks.get()
    }

    /// Sends a command. It runs to its end even if the future is dropped.
    pub fn ask(
        &self,
        command: CommandRequest,
    ) -> impl Future<Output = Result<CommandOutput, CommandError>> + 'static {
        let patience = if command.is_probe { self.options.connect_max } else { self.options.answer_max };
        let deadline = self.world.now() + patience;
        let told = {
            let mut tasks = self.tasks.borrow_mut();
            if tasks.is_idle() {
                // Silence is counted from the first outstanding command.
                self.heard.set(self.world.now());
            }
            tasks.add(command, deadline)
        };
        self.wanted.notify_one();
        async move {
            let closed = || IoError::new(IoErrorKind::Disconnected, "the initiator was closed");
            told.await.unwrap_or_else(|_| Err(CommandError { error: closed(), sense: None }))
        }
    }

    pub fn check_flush(&self) -> IoResult<()> {
        self.tasks.borrow_mut().check_flush()
    }

    fn error(&self, kind: IoErrorKind, why: &str) -> IoError {
        IoError::new(kind, format!("{}: {why}", self.uri))
    }
}

/// Establishes the first session. A target that hangs up during login is tried again until `connect_max` has
/// passed.
async fn begin_first(link: &Link) -> IoResult<LoggedInConnection> {
    let deadline = link.world.now() + link.options.connect_max;
    let mut pause = PAUSES.0;
    loop {
        match begin(link).await {
            Err(not) if not.was_hung_up && link.world.now() + pause < deadline => {}
            Err(LoginFailure { error, was_hung_up: true }) => {
                let why = format!("tried for {} s: {error}", link.options.connect_max.as_secs());
                return Err(link.error(error.kind(), &why));
            }
            begun => return Ok(begun?),
        }
        link.world.sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn begin(link: &Link) -> Result<LoggedInConnection, LoginFailure> {
    let Link { world, network, uri, options, session, .. } = link;
    let logging_in =
        log_in(world, &**network, &uri.address, SessionType::Normal(&uri.target), *session, options);
    let begun = with_deadline(world.sleep(options.connect_max), logging_in).await;
    begun.unwrap_or_else(|| {
        let why = format!("no answer within {} s", options.connect_max.as_secs());
        Err(LoginFailure { error: link.error(IoErrorKind::Disconnected, &why), was_hung_up: false })
    })
}

/// Uses `session` until it breaks, then a new one, until the `Link` is dropped. If the unit cannot be probed
/// over the first session, it ends.
async fn keep_up(link: Weak<Link>, mut session: LoggedInConnection) {
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

async fn use_session(weak: &Weak<Link>, session: LoggedInConnection) -> Result<(), Broken> {
    let Some(link) = weak.upgrade() else { return Ok(()) };
    let LoggedInConnection { stream, parameters, cmd_sn, max_cmd_sn, exp_stat_sn } = session;
    let digests = Digests { header: parameters.header_digest, data: parameters.data_digest };
    let data_max = parameters.receive_bytes_max as usize;
    let (reader, writer) = split(stream);
    link.tasks.borrow_mut().begin_connection(parameters, (cmd_sn, max_cmd_sn), exp_stat_sn);
    link.heard.set(link.world.now());
    link.has_asked.set(false);
    link.is_up.set(true);
    let world = link.world.clone();
    let is_over = Rc::new(Cell::new(false));
    let sending = send(weak.clone(), writer, digests, Rc::clone(&is_over));
    let sending = world.spawn("iscsi commands", sending);
    world.spawn("iscsi look", look_over(Rc::clone(&link)));
    drop(link);
    let received = with_deadline(broken(weak), receive_pdus(weak, reader, digests, data_max)).await;
    is_over.set(true);
    if let Some(link) = weak.upgrade() {
        link.wanted.notify_one();
    }
    let sent = sending.await.map_err(|error| error.to_string());
    received.unwrap_or(Ok(())).and(sent)
}

/// Probes the unit over a new connection and opens it for commands if the unit is the expected one.
async fn look_over(link: Rc<Link>) {
    let connection = link.breaks.get();
    let found = look(&link).await;
    if link.breaks.get() != connection {
        return;
    }
    let refused = match found {
        Ok(info) if link.info.get_or_init(|| info.clone()).is_same_unit(&info) => {
            link.is_open.set(true);
            link.tasks.borrow_mut().open();
            link.wanted.notify_one();
            if let Some(tell) = link.tell.take() {
                let _ = tell.send(Ok(()));
            }
            return;
        }
        Ok(_) => link.error(IoErrorKind::NotFound, "the unit has changed"),
        Err(error) => error,
    };
    link.trouble.replace(refused.to_string());
    if let Some(tell) = link.tell.take() {
        let _ = tell.send(Err(refused));
    }
    link.broken.notify_one();
}

/// Completes when the connection is found unusable.
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
        let pdus: Vec<OutgoingPdu> = {
            let mut tasks = held.tasks.borrow_mut();
            std::iter::from_fn(|| tasks.next_to_send()).take(PDUS_AT_ONCE).collect()
        };
        if pdus.is_empty() {
            held.wanted.notified().await;
            continue;
        }
        drop(held);
        let pdu = |outgoing: OutgoingPdu| EncodedPdu::new(outgoing.header, outgoing.payload, digests);
        let pdus: Vec<EncodedPdu> = pdus.into_iter().map(pdu).collect();
        write_pdus(&mut writer, &pdus).await?;
    }
}

/// Logs out. No command is outstanding, so CmdSN is irrelevant.
async fn say_goodbye(writer: &mut (impl AsyncWrite + Unpin), digests: Digests) -> io::Result<()> {
    let bye = Logout { first: IMMEDIATE, flags: FINAL, itt: PING.into(), ..Logout::empty() };
    writer.write_all(&Pdu::new(bye.to_bytes(), Vec::new()).encode(digests)).await?;
    writer.shutdown().await
}

async fn receive_pdus(
    link: &Weak<Link>,
    reader: impl AsyncRead + Unpin,
    digests: Digests,
    data_max: usize,
) -> Result<(), Broken> {
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    loop {
        let pdu = Pdu::read(&mut reader, digests, data_max).await.map_err(|error| error.to_string())?;
        let pdu = pdu.ok_or_else(|| "the target closed the connection".to_owned())?;
        let Some(link) = link.upgrade() else { return Ok(()) };
        let now = link.world.now();
        link.heard.set(now);
        link.has_asked.set(false);
        let mut tasks = link.tasks.borrow_mut();
        receive::receive(&mut tasks, &pdu, now)?;
        if tasks.wants_to_send() {
            link.wanted.notify_one();
        }
    }
}

/// Fails commands that have expired and drops the connection; also drops it if the target is silent.
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
        let has_late = tasks.expire(now, &why);
        let silence = now.since(link.heard.get());
        let is_gone = !tasks.is_idle() && silence >= 2 * SILENCE;
        if link.is_up.get() && (has_late || is_gone) {
            link.trouble.replace("the target does not answer".to_owned());
            link.broken.notify_one();
        } else if !tasks.is_idle() && silence >= SILENCE && !link.has_asked.replace(true) {
            tasks.ping(PING);
        }
        tasks.release_delayed(now);
        link.wanted.notify_one();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The sender task logs out.
        self.wanted.notify_one();
    }
}
