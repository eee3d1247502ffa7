//! An initiator's session with a target: commands over a [`Reconnecting`] connection.

use super::{
    InitiatorOptions, IscsiUri,
    login::{LoggedInConnection, SessionTerms, SessionType, log_in},
    probe::{DiskInfo, probe},
    receive,
    tasks::{CommandError, CommandOutput, CommandRequest, OutgoingPdu, ReadBuffers, Tasks},
};
use crate::wire::{
    encoded_pdu::{EncodedPdu, write_pdus},
    header::{DataIn, FINAL, IMMEDIATE, Logout, PduHeader, opcode},
    pdu::{Pdu, PduError, PduHead},
};
use std::{
    cell::{Cell, OnceCell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, sync::Notify};
use world::{
    Address, IoError, IoErrorKind, IoResult, Moment, Network, Stream, World,
    network::{
        address_ring::AddressRing,
        reconnecting::{ConnectFailure, Protocol, Reader, Reconnecting, Writer},
    },
};

/// A target that owes responses and has been silent this long gets a NOP-Out; after twice this time the
/// connection is given up.
const SILENCE: Duration = Duration::from_secs(5);
/// PDUs sent in one system call at most.
const PDUS_AT_ONCE: usize = 32;
/// ITT of our NOP-Out. Commands use it last.
const PING: u32 = 0xffff_fffe;

/// The commands of an initiator and its sessions with one logical unit.
pub struct TargetSession {
    world: World,
    network: Rc<dyn Network>,
    uri: IscsiUri,
    portals: AddressRing,
    options: InitiatorOptions,
    /// The same for each connection, so that a new session reinstates the old one (RFC 7143, 6.3.5).
    isid: [u8; 6],
    /// The unit as first probed; a connection to a different unit is refused.
    info: OnceCell<DiskInfo>,
    tasks: RefCell<Tasks>,
    wake: Notify,
    heard_at: Cell<Moment>,
    has_pinged: Cell<bool>,
}

impl TargetSession {
    /// Connects, logs in and probes the unit.
    pub async fn connect(
        world: &World,
        network: Rc<dyn Network>,
        uri: IscsiUri,
        options: InitiatorOptions,
    ) -> IoResult<Reconnecting<Self>> {
        let mut isid = [0x80, 0, 0, 0, 0, 0];
        world.fill_secret(&mut isid[1..]);
        let session = Self {
            world: world.clone(),
            network,
            tasks: RefCell::new(Tasks::new(uri.lun())),
            portals: AddressRing::new(&uri.address, &uri.others),
            uri,
            options,
            isid,
            info: OnceCell::new(),
            wake: Notify::new(),
            heard_at: Cell::new(world.now()),
            has_pinged: Cell::new(false),
        };
        Reconnecting::connect(world, session).await
    }

    pub fn info(&self) -> &DiskInfo {
        self.info.get().expect("the unit is probed before connect returns")
    }

    pub fn uri(&self) -> &IscsiUri {
        &self.uri
    }

    /// Sends a command. It runs to its end even if the future is dropped.
    pub fn execute(
        &self,
        command: CommandRequest,
    ) -> impl Future<Output = Result<CommandOutput, CommandError>> + 'static {
        let limit = if command.is_probe { self.options.connect_max } else { self.options.answer_max };
        let deadline = self.world.now() + limit;
        let told = {
            let mut tasks = self.tasks.borrow_mut();
            if tasks.is_idle() {
                // Silence is counted from the first outstanding command.
                self.heard_at.set(self.world.now());
            }
            tasks.add(command, deadline)
        };
        self.wake.notify_one();
        async move {
            let closed = || IoError::new(IoErrorKind::Disconnected, "the initiator was closed");
            told.await.unwrap_or_else(|_| Err(CommandError { error: closed(), sense: None }))
        }
    }

    pub fn check_flush(&self) -> IoResult<()> {
        self.tasks.borrow_mut().check_flush()
    }
}

/// The buffers of a read while a Data-In is received into one of them. Dropping it returns them to their command, even if the
/// connection breaks in the middle.
struct LentBuffers<'t> {
    tasks: &'t RefCell<Tasks>,
    itt: u32,
    lent: ReadBuffers,
}

impl<'t> LentBuffers<'t> {
    /// `None` if the PDU is not a Data-In that continues a command within one of its buffers.
    fn of(tasks: &'t RefCell<Tasks>, head: &PduHead) -> Option<Self> {
        if head.opcode() != opcode::DATA_IN || head.data_bytes == 0 {
            return None;
        }
        let header = DataIn::of(&head.header);
        let itt = header.itt.get();
        let lent = tasks.borrow_mut().lend_buffers(itt, header.buffer_offset.get(), head.data_bytes);
        lent.map(|lent| Self { tasks, itt, lent })
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.lent.buffers[self.lent.index][self.lent.range.clone()]
    }
}

impl Drop for LentBuffers<'_> {
    fn drop(&mut self) {
        self.tasks.borrow_mut().return_buffers(self.itt, std::mem::take(&mut self.lent.buffers));
    }
}

impl Protocol for TargetSession {
    type Terms = SessionTerms;
    const PEER: &'static str = "the target";
    const CHECK_INTERVAL: Duration = Duration::from_millis(250);
    const FIRST_DELAY: Duration = Duration::from_millis(50);

    fn name(&self) -> String {
        self.uri.to_string()
    }

    fn connect_max(&self) -> Duration {
        self.options.connect_max
    }

    fn answer_max(&self) -> Duration {
        self.options.answer_max
    }

    async fn connect(&self) -> Result<(Stream, SessionTerms), ConnectFailure> {
        let Self { world, network, uri, portals, options, isid, .. } = self;
        let session_type = SessionType::Normal(&uri.target);
        let log_in =
            async |portal: &Address| log_in(world, &**network, portal, session_type, *isid, options).await;
        let LoggedInConnection { stream, terms } =
            portals.connect(world, options.connect_max, log_in).await?;
        Ok((stream, terms))
    }

    fn begin(&self, terms: &SessionTerms) {
        self.tasks.borrow_mut().begin_connection(terms);
        self.heard_at.set(self.world.now());
        self.has_pinged.set(false);
    }

    async fn open(&self) -> IoResult<()> {
        let info = probe(self).await?;
        if self.info.get_or_init(|| info.clone()).is_same_unit(&info) {
            return Ok(());
        }
        Err(IoError::new(IoErrorKind::NotFound, format!("{}: the unit has changed", self.uri)))
    }

    fn opened(&self) {
        self.portals.opened();
        self.tasks.borrow_mut().open();
    }

    fn wake(&self) -> &Notify {
        &self.wake
    }

    async fn send(&self, writer: &mut Writer, terms: &SessionTerms) -> io::Result<bool> {
        let outgoing: Vec<OutgoingPdu> = {
            let mut tasks = self.tasks.borrow_mut();
            std::iter::from_fn(|| tasks.next_to_send()).take(PDUS_AT_ONCE).collect()
        };
        if outgoing.is_empty() {
            return Ok(false);
        }
        let encode = |pdu: OutgoingPdu| EncodedPdu::new(pdu.header, pdu.payload, terms.digests());
        let pdus: Vec<EncodedPdu> = outgoing.into_iter().map(encode).collect();
        write_pdus(writer, &pdus).await?;
        Ok(true)
    }

    async fn receive(&self, reader: &mut Reader, terms: &SessionTerms) -> Result<(), String> {
        let (digests, data_max) = (terms.digests(), terms.parameters.receive_bytes_max as usize);
        let failed = |error: PduError| error.to_string();
        let head = PduHead::read(reader, digests, data_max).await.map_err(failed)?;
        let head = head.ok_or_else(|| "the target closed the connection".to_owned())?;
        let mut data = Vec::new();
        let mut lent = LentBuffers::of(&self.tasks, &head);
        let into = match &mut lent {
            Some(lent) => lent.bytes(),
            None => {
                data.resize(head.data_bytes, 0);
                &mut data
            }
        };
        if !head.read_data(reader, digests, into).await.map_err(failed)? {
            return Err("data digest error".to_owned());
        }
        let in_place = if lent.take().is_some() { head.data_bytes } else { 0 };
        let pdu = head.with_data(data);
        let now = self.world.now();
        self.heard_at.set(now);
        self.has_pinged.set(false);
        let mut tasks = self.tasks.borrow_mut();
        receive::receive(&mut tasks, &pdu, in_place, now)?;
        if tasks.wants_to_send() {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Logs out. No command is outstanding, so CmdSN is irrelevant.
    async fn say_goodbye(&self, writer: &mut Writer, terms: &SessionTerms) -> io::Result<()> {
        let logout = Logout { first: IMMEDIATE, flags: FINAL, itt: PING.into(), ..Logout::empty() };
        writer.write_all(&Pdu::new(logout.to_bytes(), Vec::new()).encode(terms.digests())).await?;
        writer.shutdown().await
    }

    /// Also pings a silent target, and gives it up if it stays silent.
    fn check(&self, now: Moment, reason: &str) -> bool {
        let mut tasks = self.tasks.borrow_mut();
        let has_expired = tasks.expire(now, reason);
        let silence = now.since(self.heard_at.get());
        let is_gone = !tasks.is_idle() && silence >= 2 * SILENCE;
        if !has_expired && !tasks.is_idle() && silence >= SILENCE && !self.has_pinged.replace(true) {
            tasks.ping(PING);
        }
        tasks.release_delayed(now);
        self.wake.notify_one();
        has_expired || is_gone
    }

    fn close(&self) {
        self.tasks.borrow_mut().close();
    }
}
